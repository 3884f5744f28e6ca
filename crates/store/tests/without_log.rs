//! Tables whose log is damaged or gone go on without it, where one says so: with all that was committed
//! before the first damage, and nothing of what came after it.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]
#![allow(clippy::disallowed_methods, reason = "damages the store's files behind its back")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use store::embedded::{Database, GivenUp, Settings, give_up_log};
use store::journal::FileJournal;
use store::{Durability, Journal, StoreError, Tables};
use tempfile::TempDir;

/// So long that two segments of the log have what redb lacks.
const ROW_BYTES: usize = 100_000;
const COMMITS: u32 = 10;
/// The log's records are those of the commits but for the first, which redb has.
const FIRST: &str = "tables.log/0000000000000001.journal";
const SECOND: &str = "tables.log/0000000000000007.journal";
const HEADER_BYTES: usize = 24;

type Files = BTreeMap<PathBuf, Vec<u8>>;

fn open(directory: &Path) -> store::Result<Database> {
    let log = directory.join("tables.log");
    let settings = Settings { log: Some(&log), ..Settings::default() };
    Database::open_as(&directory.join("tables.redb"), settings)
}

fn given_up(directory: &Path) -> store::Result<Option<GivenUp>> {
    let log = directory.join("tables.log");
    give_up_log(
        &directory.join("tables.redb"),
        &Settings { log: Some(&log), ..Settings::default() },
    )
}

fn put(tables: &Database, number: u32, value: &[u8]) {
    let mut write = tables.write().unwrap();
    write.put("rows", &number.to_be_bytes(), value).unwrap();
    write.commit(Durability::Now).unwrap();
}

/// The numbers of the rows that there are.
fn rows(directory: &Path) -> Vec<u32> {
    let tables = open(directory).unwrap();
    let rows = tables.read().unwrap().scan("rows", &[], &[0xff; 9], usize::MAX).unwrap();
    rows.into_iter().map(|(key, _)| u32::from_be_bytes(key.try_into().unwrap())).collect()
}

/// Every file below a directory by its path from there, with what is in it.
fn files(directory: &Path) -> Files {
    let (mut found, mut left) = (Files::new(), vec![directory.to_path_buf()]);
    while let Some(place) = left.pop() {
        for path in fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path()) {
            match path.is_dir() {
                true => left.push(path),
                false => {
                    let name = path.strip_prefix(directory).unwrap().to_path_buf();
                    found.insert(name, fs::read(&path).unwrap());
                }
            }
        }
    }
    found
}

fn placed(files: &Files) -> TempDir {
    let memory = Path::new("/dev/shm");
    let place =
        if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    for (name, bytes) in files {
        let path = place.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    place
}

fn log_of(files: &Files) -> Files {
    let in_log = files.iter().filter(|(name, _)| name.starts_with("tables.log"));
    in_log.map(|(name, bytes)| (name.clone(), bytes.clone())).collect()
}

/// As a kill leaves them, with a log of two segments that is needed.
fn killed(value: impl Fn(u32) -> Vec<u8>) -> Files {
    let directory = placed(&Files::new());
    let tables = open(directory.path()).unwrap();
    put(&tables, 0, &value(0));
    let mut seen = files(directory.path());
    for number in 1..COMMITS {
        put(&tables, number, &value(number));
        seen.extend(log_of(&files(directory.path())));
    }
    let segments = seen.keys().filter(|name| name.extension().is_some_and(|e| e == "journal"));
    assert_eq!(segments.collect::<Vec<_>>(), [Path::new(FIRST), Path::new(SECOND)]);
    seen
}

fn with_rows() -> Files {
    killed(|number| vec![number as u8; ROW_BYTES])
}

fn segment<'a>(files: &'a mut Files, name: &str) -> &'a mut Vec<u8> {
    files.get_mut(Path::new(name)).unwrap()
}

/// Where a record of a segment begins, counted from 0, of so many that are equally long.
fn record(segment: &[u8], number: usize, of: usize) -> usize {
    HEADER_BYTES + (segment.len() - HEADER_BYTES) / of * number
}

type Change<'a> = &'a dyn Fn(&mut Files);

/// What is left and what is known to be lost after this, and that it goes on.
#[track_caller]
fn goes_on(whole: &Files, case: &str, change: Change<'_>, kept: u64, lost: Option<u64>) {
    let mut damaged = whole.clone();
    change(&mut damaged);
    let place = placed(&damaged);
    let refused = open(place.path()).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(refused.contains("tables.log"), "{case}: {refused}");
    let given_up_now = given_up(place.path()).unwrap().expect("it is damaged");
    assert_eq!((given_up_now.kept, given_up_now.lost), (kept, lost), "{case}: {given_up_now:?}");
    assert!(given_up_now.why.contains("tables.log"), "{case}: {given_up_now:?}");
    let log = log_of(&damaged);
    match &given_up_now.aside {
        None => assert!(log.is_empty(), "{case}"),
        Some(aside) => {
            assert_eq!(*aside, place.path().join("tables.log.given-up-1"), "{case}");
            let there = files(place.path());
            // One without a byte is of no use, and goes when the log is opened.
            for (name, bytes) in log.into_iter().filter(|(_, bytes)| !bytes.is_empty()) {
                let name = name.strip_prefix("tables.log").unwrap();
                let now = &there[&Path::new("tables.log.given-up-1").join(name)];
                assert!(*now == bytes, "{case}: {} has changed", name.display());
            }
        }
    }
    assert_eq!(given_up(place.path()).unwrap(), None, "{case}: it is no more needed");
    let mut wanted: Vec<u32> = (0..=kept as u32).collect();
    assert_eq!(rows(place.path()), wanted, "{case}");
    // It goes on with a log of its own, also over a kill.
    let tables = open(place.path()).unwrap();
    put(&tables, 1000, b"new");
    put(&tables, 1001, b"newer");
    wanted.extend([1000, 1001]);
    let after = placed(&files(place.path()));
    drop(tables);
    for directory in [after.path(), place.path()] {
        assert_eq!(given_up(directory).unwrap(), None, "{case}");
        assert_eq!(rows(directory), wanted, "{case}");
    }
}

#[test]
fn what_was_committed_before_the_first_damage_is_kept_and_the_rest_is_put_aside() {
    let whole = with_rows();
    let flip = |files: &mut Files, name: &str, at: usize| segment(files, name)[at] ^= 1;
    let in_first = |number| record(&whole[Path::new(FIRST)], number, 6);
    let in_second = |number| record(&whole[Path::new(SECOND)], number, 3);
    let goes_on = |case: &str, change: Change<'_>, kept, lost| {
        goes_on(&whole, case, change, kept, Some(lost));
    };
    goes_on("the first record", &|files| flip(files, FIRST, in_first(0) + 99), 0, 9);
    goes_on("a record in the middle", &|files| flip(files, FIRST, in_first(3) + 50_000), 3, 6);
    goes_on("the beginning of a record", &|files| flip(files, FIRST, in_first(4) + 5), 4, 5);
    goes_on("the last record", &|files| flip(files, SECOND, in_second(2) + 99), 8, 1);
    goes_on("an end", &|files| segment(files, SECOND).truncate(in_second(1) + 99), 7, 2);
    goes_on("an end in the middle", &|files| segment(files, FIRST).truncate(in_first(2)), 2, 7);
    goes_on("no first segment", &|files| drop(files.remove(Path::new(FIRST))), 0, 9);
    goes_on("no last segment", &|files| drop(files.remove(Path::new(SECOND))), 6, 3);
    goes_on("an empty segment", &|files| segment(files, FIRST).clear(), 0, 9);
    goes_on("a header", &|files| flip(files, FIRST, 3), 9, 0);
    goes_on("the last header", &|files| flip(files, SECOND, 22), 9, 0);
    goes_on("more at an end", &|files| segment(files, FIRST).extend([7; 100]), 9, 0);
}

#[test]
fn without_a_log_the_tables_go_on_as_they_were_last_written_down() {
    let whole = with_rows();
    let without = |files: &mut Files| files.retain(|name, _| !name.starts_with("tables.log"));
    goes_on(&whole, "gone", &without, 0, None);
    // One of another moment, which is behind what the tables have.
    let directory = placed(&whole);
    let (tables, before) = (open(directory.path()).unwrap(), log_of(&whole));
    (20..40).for_each(|number| put(&tables, number, &[7; ROW_BYTES]));
    let mut after = files(directory.path());
    drop(tables);
    after.retain(|name, _| !name.starts_with("tables.log"));
    after.extend(before);
    let place = placed(&after);
    let given_up = given_up(place.path()).unwrap().expect("it is not the one that is needed");
    assert_eq!((given_up.kept, given_up.lost), (0, None), "{given_up:?}");
    let there = rows(place.path());
    assert!(there.len() > COMMITS as usize && there.len() < 30, "{there:?}");
}

#[test]
fn a_log_that_is_whole_or_not_needed_or_of_a_newer_farfs_is_not_given_up() {
    let whole = with_rows();
    let stays = |files: &Files| {
        let place = placed(files);
        let outcome = given_up(place.path());
        assert!(log_of(&self::files(place.path())) == log_of(files), "something has changed");
        (outcome, place)
    };
    let (outcome, place) = stays(&whole);
    assert_eq!(outcome.unwrap(), None, "it is whole");
    assert_eq!(rows(place.path()).len(), COMMITS as usize);
    // What was not synced may be torn.
    let mut torn = whole.clone();
    let end = record(&torn[Path::new(SECOND)], 2, 3);
    segment(&mut torn, SECOND).truncate(end + 99);
    torn.remove(Path::new("tables.log/synced"));
    assert_eq!(stays(&torn).0.unwrap(), None, "it is torn");
    // It was closed in order above.
    let mut closed = files(place.path());
    let names: Vec<_> = log_of(&closed).into_keys().filter(|n| n.extension().is_some()).collect();
    names.iter().for_each(|name| closed.get_mut(name).unwrap()[3] ^= 1);
    assert!(!names.is_empty());
    assert_eq!(stays(&closed).0.unwrap(), None, "it is not needed");
    for name in [FIRST, SECOND] {
        let mut newer = whole.clone();
        let header = &mut segment(&mut newer, name)[..HEADER_BYTES];
        header[8] = 2;
        let checksum = crc32c::crc32c(&header[..20]).to_le_bytes();
        header[20..].copy_from_slice(&checksum);
        let (outcome, place) = stays(&newer);
        for said in [outcome.unwrap_err(), open(place.path()).err().unwrap()] {
            assert!(matches!(said, StoreError::Database { .. }), "{said}");
            assert!(said.to_string().contains("a newer farfs"), "{said}");
        }
    }
}

#[test]
fn damaged_tables_stay_as_they_are_and_so_does_their_log() {
    let mut damaged = with_rows();
    segment(&mut damaged, FIRST)[99] ^= 1;
    damaged.get_mut(Path::new("tables.redb")).unwrap()[..400].fill(0xa5);
    let place = placed(&damaged);
    let error = given_up(place.path()).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("tables.redb"), "{error}");
    assert!(files(place.path()) == damaged, "something has changed");
}

#[test]
fn what_a_damaged_record_holds_is_not_taken_for_a_record() {
    let beside = placed(&Files::new());
    let journal = FileJournal::open(beside.path()).unwrap();
    let forged = b"\x01\x04\0\0\0rows\x04\0\0\0\xee\xee\xee\xee\x01\0\0\0x";
    let mut begins = 0;
    for _ in 0..3 {
        begins = files(beside.path())[Path::new("0000000000000001.journal")].len();
        journal.append(forged).unwrap();
    }
    let bytes = &files(beside.path())[Path::new("0000000000000001.journal")][begins..];
    let value = |number| match number {
        3 => bytes.iter().copied().chain([3; ROW_BYTES]).take(ROW_BYTES).collect(),
        number => vec![number as u8; ROW_BYTES],
    };
    let flip = |files: &mut Files| {
        let first = segment(files, FIRST);
        let at = record(first, 2, 6) + 5;
        first[at] ^= 1;
    };
    goes_on(&killed(value), "a record in a record", &flip, 2, Some(7));
}

#[test]
fn a_log_is_put_aside_beside_those_of_before() {
    let mut files = with_rows();
    for number in [1, 2] {
        let name = Path::new(FIRST).file_name().unwrap();
        let aside = Path::new(&format!("tables.log.given-up-{number}")).join(name);
        files.insert(aside, files[Path::new(FIRST)].clone());
    }
    files.retain(|name, _| !name.starts_with("tables.log"));
    let place = placed(&files);
    let lost = given_up(place.path()).unwrap().expect("it is gone");
    assert_eq!((lost.aside, lost.kept), (None, 0), "those are of another time");
    let tables = open(place.path()).unwrap();
    (20..25).for_each(|number| put(&tables, number, b"new"));
    let mut after = self::files(place.path());
    let newest = log_of(&after).into_keys().find(|name| name.extension().is_some()).unwrap();
    after.get_mut(&newest).unwrap()[HEADER_BYTES + 50] ^= 1;
    drop(tables);
    let place = placed(&after);
    let given_up = given_up(place.path()).unwrap().expect("it is damaged");
    assert_eq!(given_up.aside, Some(place.path().join("tables.log.given-up-3")));
    assert!(rows(place.path()).contains(&20));
}
