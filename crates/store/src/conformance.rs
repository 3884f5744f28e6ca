//! What every back end must do; each one's tests call these.
//! `open` gives the same store again: for what is on a disk it opens it anew, so nothing of an
//! earlier one may be held then.

mod names;

use crate::blob::Blobs;
use crate::container::{Container, Containers, Key, Sizes};
use crate::error::Result;
use crate::journal::{Journal, Position};
use crate::table::{Durability, Row, Tables, Write};

/// Wide enough for the blocks of every file system that we know.
const HOLE_BYTES: u64 = 256 << 10;

pub fn tables<T: Tables>(open: impl Fn() -> T) -> Result<()> {
    an_empty_table_has_nothing(&open())?;
    a_transaction_sees_its_own_writes(&open())?;
    {
        let tables = open();
        commit(&tables, |write| {
            write.put("rows", b"b", b"2")?;
            write.put("rows", b"a", b"1")?;
            write.put("rows", b"c", b"3")?;
            write.put("rows", b"", b"")
        })?;
    }
    let tables = open();
    rows_are_there_in_order(&tables)?;
    a_dropped_transaction_leaves_nothing(&tables)?;
    a_reader_sees_one_commit(&tables)?;
    drop(tables);
    let tables = open();
    assert_eq!(tables.read()?.get("rows", b"a")?, Some(b"new".to_vec()), "a commit is kept");
    assert_eq!(tables.read()?.get("rows", b"b")?, None, "so is a deletion");
    assert!(tables.room()? > 0, "what took all that has room");
    writers_take_turns(&tables)
}

fn commit<T: Tables>(tables: &T, work: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let mut write = tables.write()?;
    work(write.as_mut())?;
    write.commit(Durability::Now)
}

fn row(key: &[u8], value: &[u8]) -> Row {
    (key.to_vec(), value.to_vec())
}

fn an_empty_table_has_nothing(tables: &impl Tables) -> Result<()> {
    let read = tables.read()?;
    assert_eq!(read.get("none", b"key")?, None);
    assert_eq!(read.scan("none", b"", b"\xff", 10)?, []);
    assert_eq!(read.last("none", b"", b"\xff")?, None);
    Ok(())
}

fn a_transaction_sees_its_own_writes(tables: &impl Tables) -> Result<()> {
    let mut write = tables.write()?;
    write.put("own", b"1", b"one")?;
    write.put("own", b"2", b"two")?;
    write.put("own", b"2", b"deux")?;
    write.delete("own", b"1")?;
    write.delete("own", b"never there")?;
    assert_eq!(write.get("own", b"1")?, None);
    assert_eq!(write.get("own", b"2")?, Some(b"deux".to_vec()));
    assert_eq!(write.scan("own", b"", b"\xff", 10)?, [row(b"2", b"deux")]);
    assert_eq!(write.last("own", b"", b"\xff")?, Some(row(b"2", b"deux")));
    assert_eq!(tables.read()?.get("own", b"2")?, None, "not committed yet");
    write.commit(Durability::Later)?;
    assert_eq!(tables.read()?.get("own", b"2")?, Some(b"deux".to_vec()));
    Ok(())
}

fn rows_are_there_in_order(tables: &impl Tables) -> Result<()> {
    let all = [row(b"", b""), row(b"a", b"1"), row(b"b", b"2"), row(b"c", b"3")];
    let read = tables.read()?;
    assert_eq!(read.scan("rows", b"", b"\xff", usize::MAX)?, all);
    assert_eq!(read.scan("rows", b"", b"\xff", 2)?, all[..2]);
    assert_eq!(read.scan("rows", b"", b"\xff", 0)?, []);
    assert_eq!(read.scan("rows", b"a", b"c", 10)?, all[1..3], "without the end");
    assert_eq!(read.scan("rows", b"c", b"a", 10)?, [], "an empty stretch");
    assert_eq!(read.scan("rows", b"a\0", b"b\0", 10)?, all[2..3]);
    assert_eq!(read.last("rows", b"", b"\xff")?, Some(all[3].clone()));
    assert_eq!(read.last("rows", b"", b"c")?, Some(all[2].clone()), "without the end");
    assert_eq!(read.last("rows", b"d", b"e")?, None);
    assert_eq!(read.last("rows", b"b", b"b")?, None);
    Ok(())
}

fn a_dropped_transaction_leaves_nothing(tables: &impl Tables) -> Result<()> {
    let mut write = tables.write()?;
    write.put("rows", b"a", b"lost")?;
    write.put("rows", b"z", b"lost")?;
    drop(write);
    assert_eq!(tables.read()?.get("rows", b"a")?, Some(b"1".to_vec()));
    assert_eq!(tables.read()?.get("rows", b"z")?, None);
    Ok(())
}

fn a_reader_sees_one_commit(tables: &impl Tables) -> Result<()> {
    let before = tables.read()?;
    commit(tables, |write| {
        write.put("rows", b"a", b"new")?;
        write.delete("rows", b"b")
    })?;
    assert_eq!(before.get("rows", b"a")?, Some(b"1".to_vec()));
    assert_eq!(before.scan("rows", b"b", b"c", 10)?, [row(b"b", b"2")]);
    let after = tables.read()?;
    assert_eq!(after.get("rows", b"a")?, Some(b"new".to_vec()));
    assert_eq!(after.get("rows", b"b")?, None);
    Ok(())
}

fn writers_take_turns(tables: &impl Tables) -> Result<()> {
    const WRITERS: usize = 4;
    const TURNS: u64 = 25;
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    for _ in 0..TURNS {
                        let mut write = tables.write()?;
                        let count = write.get("count", b"n")?.map_or(0, |bytes| number(&bytes));
                        write.put("count", b"n", &(count + 1).to_be_bytes())?;
                        write.commit(Durability::Later)?;
                    }
                    Ok(())
                })
            })
            .collect();
        writers.into_iter().try_for_each(|writer| writer.join().expect("no writer panics"))
    })?;
    let count = tables.read()?.get("count", b"n")?.map_or(0, |bytes| number(&bytes));
    assert_eq!(count, WRITERS as u64 * TURNS);
    Ok(())
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().expect("the test itself put eight bytes"))
}

pub fn blobs<B: Blobs>(open: impl Fn() -> B) -> Result<()> {
    let large = vec![7; 300_000];
    let longest = [0xff; 64];
    {
        let blobs = open();
        assert_eq!(blobs.get(b"a")?, None);
        assert!(!blobs.has(b"a")?);
        let empty = blobs.bytes();
        blobs.put(b"a", b"first")?;
        blobs.put(b"a", b"a name stands for its bytes")?;
        blobs.put(b"empty", b"")?;
        blobs.put(&longest, &large)?;
        assert_eq!(blobs.get(b"a")?, Some(b"first".to_vec()));
        assert!(blobs.bytes() >= empty + 300_005);
        assert!(blobs.room()? > 0, "what took all that has room");
        blobs.put(b"gone", &large)?;
        let with_gone = blobs.bytes();
        blobs.delete(b"gone")?;
        blobs.delete(b"never there")?;
        assert!(blobs.bytes() < with_gone, "what is deleted takes no bytes");
        assert_eq!(blobs.get(b"gone")?, None);
        blobs.put(b"back", b"once")?;
        blobs.delete(b"back")?;
        blobs.put(b"back", b"again")?;
        blobs.sync()?;
        assert!(blobs.put(b"", b"x").is_err(), "a name has at least a byte");
        assert!(blobs.put(&[0; 65], b"x").is_err(), "and at most 64");
        readers_and_writers_meet(&blobs)?;
        many_are_put_at_once(&blobs)?;
    }
    let blobs = open();
    many_are_there(&blobs)?;
    assert_eq!(blobs.get(b"a")?, Some(b"first".to_vec()));
    assert_eq!(blobs.get(b"empty")?, Some(Vec::new()));
    assert_eq!(blobs.get(&longest)?, Some(large));
    assert_eq!(blobs.get(b"back")?, Some(b"again".to_vec()));
    assert!(blobs.has(b"a")?);
    assert!(!blobs.has(b"gone")?);
    names_are_listed_in_order(&blobs)?;
    space_is_reclaimed_and_nothing_else_goes(&blobs)?;
    Ok(())
}

const MANY: u64 = 60;

/// Of many, the number and bytes: of some of which none are there, and of every length.
fn one_of_many(number: u64) -> ([u8; 9], Vec<u8>) {
    let mut name = *b"many-\0\0\0\0";
    name[5..].copy_from_slice(&number.to_be_bytes()[4..]);
    (name, vec![number as u8; number as usize % 300])
}

fn many_are_put_at_once(blobs: &impl Blobs) -> Result<()> {
    let many: Vec<_> = (0..MANY).map(one_of_many).collect();
    let (name, bytes) = &many[7];
    blobs.put(name, bytes)?;
    let mut together: Vec<(&[u8], &[u8])> =
        many.iter().map(|(name, bytes)| (&name[..], &bytes[..])).collect();
    // One that was there before is among them, and one twice.
    together.push(together[9]);
    blobs.put_all(&together)?;
    blobs.put_all(&together[..3])?;
    blobs.put_all(&[])?;
    assert!(blobs.put_all(&[(b"before what cannot be", b"x"), (b"", b"x")]).is_err());
    many_are_there(blobs)?;
    blobs.sync()
}

fn many_are_there(blobs: &impl Blobs) -> Result<()> {
    for (name, bytes) in (0..MANY).map(one_of_many) {
        assert_eq!(blobs.get(&name)?, Some(bytes));
    }
    Ok(())
}

fn list_all(blobs: &impl Blobs, names_max: usize) -> Result<Vec<(Vec<u8>, u64)>> {
    let (mut after, mut all) = (Vec::new(), Vec::new());
    loop {
        let some = blobs.list(&after, names_max)?;
        assert!(some.len() <= names_max);
        let Some((last, _)) = some.last() else { return Ok(all) };
        after = last.clone();
        all.extend(some);
    }
}

fn names_are_listed_in_order(blobs: &impl Blobs) -> Result<()> {
    let all = list_all(blobs, 1000)?;
    assert!(all.is_sorted(), "in the order of names");
    for (name, length) in &all {
        assert_eq!(blobs.get(name)?.map(|blob| blob.len() as u64), Some(*length));
    }
    assert!(all.contains(&(b"a".to_vec(), 5)) && all.contains(&(b"empty".to_vec(), 0)));
    assert!(all.iter().all(|(name, _)| name != b"gone"));
    for names_max in [1, 2, 3] {
        assert_eq!(list_all(blobs, names_max)?, all, "{names_max} at a time");
    }
    Ok(())
}

fn space_is_reclaimed_and_nothing_else_goes(blobs: &impl Blobs) -> Result<()> {
    /// Far more than it takes.
    const TURNS_MAX: usize = 1000;
    for number in 0..40_u8 {
        blobs.put(&[b'r', number], &[number; 1000])?;
    }
    for number in (0..40_u8).filter(|number| number % 4 != 0) {
        blobs.delete(&[b'r', number])?;
    }
    let before = list_all(blobs, 1000)?;
    let mut turns = 0;
    while blobs.reclaim(50)?.is_some_and(|freed| freed > 500) {
        turns += 1;
        assert!(turns < TURNS_MAX, "it ends");
    }
    assert_eq!(list_all(blobs, 1000)?, before);
    for number in 0..40_u8 {
        let expected = (number % 4 == 0).then(|| vec![number; 1000]);
        assert_eq!(blobs.get(&[b'r', number])?, expected);
    }
    assert_eq!(blobs.damage()?, []);
    Ok(())
}

fn readers_and_writers_meet(blobs: &impl Blobs) -> Result<()> {
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4_u8)
            .map(|worker| {
                scope.spawn(move || -> Result<()> {
                    for turn in 0..50_u8 {
                        // Two workers put the same names.
                        let name = [worker / 2, turn];
                        blobs.put(&name, &[turn; 100])?;
                        assert_eq!(blobs.get(&name)?, Some(vec![turn; 100]));
                        if turn % 10 == 0 {
                            blobs.sync()?;
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no worker panics"))
    })
}

pub fn journal<J: Journal>(open: impl Fn() -> J) -> Result<()> {
    {
        let journal = open();
        assert_eq!(journal.records()?, []);
        for number in 1..=40_u8 {
            assert_eq!(journal.append(&[number; 9])?, Position::from(number));
        }
        journal.sync()?;
        assert_eq!(journal.append(b"")?, 41, "a record may be empty");
    }
    let journal = open();
    let records = journal.records()?;
    assert_eq!(records.len(), 41);
    assert_eq!(records[6], (7, vec![7; 9]));
    assert_eq!(records[40], (41, Vec::new()));
    assert_eq!(journal.read(39, usize::MAX)?, records[38..], "from the middle");
    assert_eq!(journal.read(41, 0)?, records[40..], "one at least");
    assert_eq!(journal.read(42, usize::MAX)?, []);
    let few = journal.read(7, 20)?;
    assert!((1..=3).contains(&few.len()) && records[6..].starts_with(&few), "{few:?}");

    journal.retire(20)?;
    let left = journal.records()?;
    assert!(left.len() >= 21, "more than was allowed is gone");
    assert_eq!(left[left.len() - 21..], records[20..], "what is not retired is kept");
    journal.retire(Position::MAX)?;
    drop(journal);

    let journal = open();
    assert_eq!(journal.next(), 42, "also where no record is left");
    assert_eq!(journal.append(b"next")?, 42, "no position is given twice");
    assert_eq!(journal.records()?.last(), Some(&(42, b"next".to_vec())));
    appenders_meet(&journal)
}

fn appenders_meet(journal: &impl Journal) -> Result<()> {
    let mut taken: Vec<Position> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4_u8)
            .map(|worker| {
                scope.spawn(move || -> Result<Vec<Position>> {
                    let mut taken = Vec::new();
                    for turn in 0..20 {
                        taken.push(journal.append(&[worker; 30])?);
                        if turn % 5 == 0 {
                            journal.sync()?;
                        }
                    }
                    Ok(taken)
                })
            })
            .collect();
        let taken = workers.into_iter().map(|worker| worker.join().expect("no worker panics"));
        Ok::<_, crate::StoreError>(taken.collect::<Result<Vec<_>>>()?.concat())
    })?;
    taken.sort_unstable();
    assert_eq!(taken, (43..43 + 80).collect::<Vec<_>>(), "each position once, and none left out");
    let kept: Vec<Position> = journal.records()?.iter().map(|(position, _)| *position).collect();
    assert!(kept.ends_with(&taken));
    Ok(())
}

pub fn containers<C: Containers>(open: impl Fn() -> C) -> Result<()> {
    let key = Key { file: 0x0123_4567_89ab_cdef, generation: 0 };
    let sparse = Key { file: 7, generation: 3 };
    {
        let containers = open();
        assert!(containers.open(key, false)?.is_none());
        assert_eq!(containers.list()?, []);
        assert_eq!(containers.list_of(key.file)?, []);
        let container = containers.open(key, true)?.expect("it was to be made");
        room_is_set_aside(&container)?;
        container.set_length(0)?;
        contents_are_kept(&container)?;
        container.sync()?;
        holes_are_told(&containers.open(sparse, true)?.expect("it was to be made"))?;
        containers.sync_all()?;
    }
    let containers = open();
    let container = containers.open(key, false)?.expect("it was made");
    assert_eq!(container.read(0, 100)?, b"hello\0\0\0there");
    let mut listed = containers.list()?;
    listed.sort_unstable();
    assert_eq!(listed.iter().map(|(key, _)| *key).collect::<Vec<_>>(), [sparse, key]);
    let mut keys = containers.keys()?;
    keys.sort_unstable();
    assert_eq!(keys, [sparse, key]);
    assert_eq!(containers.list_of(key.file)?, [key]);
    assert!(listed[0].1 < 3 * HOLE_BYTES, "holes take no room: {listed:?}");

    containers.remove(key)?;
    containers.remove(key)?;
    assert!(containers.open(key, false)?.is_none());
    assert_eq!(container.read(0, 5)?, b"hello", "who has it open keeps it");
    let fresh = containers.open(key, true)?.expect("it was to be made");
    assert_eq!(fresh.length()?, 0, "the name begins anew");
    names::containers_change_names(&containers)?;
    names::containers_have_several_names(&containers)
}

fn contents_are_kept(container: &impl Container) -> Result<()> {
    assert_eq!(container.length()?, 0);
    assert_eq!(container.read(0, 10)?, b"");
    container.write(0, b"hello world")?;
    let shared = container.clone();
    shared.write(8, b"there")?;
    assert_eq!(container.read(0, 100)?, b"hello wothere");
    assert_eq!(container.read_apart(0, 8192)?, b"hello wothere", "before a sync, too");
    assert_eq!(container.read_apart(4096, 4096)?, b"");
    assert_eq!(container.read(6, 2)?, b"wo");
    assert_eq!(container.read(13, 1)?, b"");
    assert_eq!(container.read(u64::MAX / 4, 1)?, b"");
    container.set_length(5)?;
    container.set_length(8)?;
    assert_eq!(container.read(0, 100)?, b"hello\0\0\0", "what was cut off does not come back");
    container.write(8, b"there")?;
    container.write(2, b"")?;
    assert_eq!(container.length()?, 13);
    Ok(())
}

fn holes_are_told(container: &impl Container) -> Result<()> {
    container.write(2 * HOLE_BYTES, &[1; 4096])?;
    assert_eq!(container.length()?, 2 * HOLE_BYTES + 4096);
    let everything = container.data(0, u64::MAX / 4)?;
    assert!(covers(&everything, 2 * HOLE_BYTES, 4096), "{everything:?}");
    assert!(!covers(&everything, 0, 1), "the hole in front is told: {everything:?}");
    assert_eq!(container.data(0, HOLE_BYTES)?, [], "nothing there");
    assert_eq!(container.data(4 * HOLE_BYTES, 10)?, [], "nor beyond the end");
    assert_eq!(container.data(2 * HOLE_BYTES + 10, 20)?, [(2 * HOLE_BYTES + 10, 20)]);
    assert_eq!(container.read(HOLE_BYTES, 3)?, [0; 3]);

    container.write(0, &vec![2; 2 * HOLE_BYTES as usize])?;
    container.punch(100, 2 * HOLE_BYTES - 200)?;
    container.punch(5, 0)?;
    assert_eq!(container.read(99, 2)?, [2, 0]);
    assert_eq!(container.read(2 * HOLE_BYTES - 101, 2)?, [0, 2]);
    assert!(!covers(&container.data(0, u64::MAX / 4)?, HOLE_BYTES / 2, HOLE_BYTES));
    let length = container.length()?;
    container.punch(length, HOLE_BYTES)?;
    assert_eq!(container.length()?, length, "a hole does not make it longer");

    container.allocate(length, 1000)?;
    assert_eq!(container.length()?, length + 1000);
    container.allocate(0, 10)?;
    assert_eq!(container.length()?, length + 1000, "nor room it already has");
    assert_eq!(container.read(length, 2000)?, [0; 1000]);
    Ok(())
}

fn room_is_set_aside(container: &impl Container) -> Result<()> {
    let besides = 64 << 10;
    container.write(0, b"as it was")?;
    container.set_aside(0, HOLE_BYTES)?;
    container.set_aside(HOLE_BYTES, 0)?;
    assert_eq!(container.length()?, 9, "nothing that one could read");
    assert_eq!(container.read(0, 100)?, b"as it was");
    let taken = container.allocated()?;
    assert!((HOLE_BYTES..HOLE_BYTES + besides).contains(&taken), "{taken} is taken");
    container.set_aside(0, HOLE_BYTES)?;
    assert_eq!(container.allocated()?, taken, "it was there already");
    container.write(HOLE_BYTES - 4, b"back")?;
    assert_eq!((container.length()?, container.allocated()?), (HOLE_BYTES, taken));
    assert_eq!(container.sizes()?, Sizes { length: HOLE_BYTES, allocated: taken });
    assert_eq!(container.read(5, 10)?, b" was\0\0\0\0\0\0");
    container.set_aside(2 * HOLE_BYTES, HOLE_BYTES)?;
    container.set_length(HOLE_BYTES + 1)?;
    assert!(container.allocated()? >= 2 * HOLE_BYTES, "who makes it longer keeps it");

    container.zero(3, HOLE_BYTES / 2)?;
    assert_eq!(container.read(0, 6)?, b"as \0\0\0");
    assert!(container.allocated()? >= 2 * HOLE_BYTES, "zeros keep their room");
    container.zero(0, 4 * HOLE_BYTES)?;
    assert_eq!(container.read(0, 2 * HOLE_BYTES as usize)?, vec![0; HOLE_BYTES as usize + 1]);
    let taken = container.allocated()?;
    assert!((4 * HOLE_BYTES..4 * HOLE_BYTES + besides).contains(&taken), "{taken} is taken");
    container.set_length(container.length()?)?;
    let taken = container.allocated()?;
    assert!(taken < 2 * HOLE_BYTES, "{taken} is taken beyond the end");
    container.punch(0, HOLE_BYTES)?;
    assert!(container.allocated()? <= besides);
    Ok(())
}

fn covers(stretches: &[(u64, u64)], offset: u64, length: u64) -> bool {
    stretches.iter().any(|(start, bytes)| *start <= offset && offset + length <= start + bytes)
}
