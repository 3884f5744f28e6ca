//! Tables and packs that are only read: what is seen is what would be seen where they can be written to,
//! and not a byte of them changes.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]
#![allow(
    clippy::disallowed_methods,
    reason = "reads and damages the store's files behind its back"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use store::embedded::{Database, Settings};
use store::packs::Packs;
use store::{Blobs, Durability, Row, Tables, Writes};
use tempfile::TempDir;

const PACK_BYTES: u64 = 2000;
const BLOBS: u8 = 60;

fn tempdir() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap()
}

/// Every file below a directory, with what is in it.
fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.insert(path.clone(), std::fs::read(&path).unwrap());
        }
    }
    found
}

fn copy(from: &Path) -> TempDir {
    let to = tempdir();
    for (path, bytes) in files(from) {
        let path = to.path().join(path.strip_prefix(from).unwrap());
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    to
}

/// Does it, and nothing of the directory is another than before.
fn unchanged<T>(directory: &Path, work: impl FnOnce() -> T) -> T {
    let before = files(directory);
    let outcome = work();
    let after = files(directory);
    assert!(before.keys().eq(after.keys()), "{:?}", after.keys());
    for (path, bytes) in before {
        assert!(after.get(&path) == Some(&bytes), "{} has changed", path.display());
    }
    outcome
}

fn tables(directory: &Path, writes: Writes) -> store::Result<Database> {
    let (path, log) = (directory.join("tables.redb"), directory.join("tables.log"));
    let over = writes.above(&path)?;
    let settings = Settings { log: Some(&log), young_rows_max: 20, over, ..Settings::default() };
    Database::open_as(&path, settings)
}

fn rows(tables: &Database) -> store::Result<Vec<Row>> {
    tables.read()?.scan("rows", &[], &[0xff; 9], usize::MAX)
}

fn put(tables: &dyn Tables, number: u32, durability: Durability) -> store::Result<()> {
    let mut write = tables.write()?;
    write.put("rows", &number.to_be_bytes(), &number.to_be_bytes().repeat(50))?;
    write.commit(durability)
}

/// As a kill leaves them, or closed in order.
fn tables_with_rows(is_killed: bool) -> TempDir {
    let directory = tempdir();
    let open = tables(directory.path(), Writes::Kept).unwrap();
    (0..500).for_each(|number| put(&open, number, Durability::Now).unwrap());
    if is_killed {
        return copy(directory.path());
    }
    drop(open);
    directory
}

#[test]
fn tables_are_read_with_their_log_after_a_kill_and_after_an_end_in_order() {
    for is_killed in [true, false] {
        let directory = tables_with_rows(is_killed);
        let seen = unchanged(directory.path(), || {
            let looked = tables(directory.path(), Writes::Forgotten).unwrap();
            rows(&looked).unwrap()
        });
        assert_eq!(seen.len(), 500, "killed: {is_killed}");
        let written = tables(directory.path(), Writes::Kept).unwrap();
        assert!(rows(&written).unwrap() == seen, "killed: {is_killed}");
    }
}

#[test]
fn what_is_written_above_tables_is_seen_until_they_are_closed() {
    let directory = tables_with_rows(true);
    unchanged(directory.path(), || {
        let looked = tables(directory.path(), Writes::Forgotten).unwrap();
        for number in 500..2000 {
            let durability = if number % 3 == 0 { Durability::Now } else { Durability::Later };
            put(&looked, number, durability).unwrap();
        }
        assert_eq!(rows(&looked).unwrap().len(), 2000);
        assert_eq!(looked.give_back(0).unwrap(), 0);
        drop(looked);
        let again = tables(directory.path(), Writes::Forgotten).unwrap();
        assert_eq!(rows(&again).unwrap().len(), 500);
    });
}

#[test]
fn a_log_that_is_torn_or_damaged_or_gone_is_what_it_is_where_it_can_be_written_to() {
    let directory = tables_with_rows(true);
    let log = directory.path().join("tables.log");
    let newest = files(&log).into_keys().filter(|path| path.extension().is_some()).max().unwrap();
    let name = newest.strip_prefix(directory.path()).unwrap();
    let whole = std::fs::read(&newest).unwrap();
    let seen = |directory: &Path, writes| {
        let rows = tables(directory, writes).and_then(|tables| rows(&tables));
        rows.map_err(|error| error.to_string().replace(&directory.display().to_string(), ""))
    };
    let mut outcomes = [0, 0];
    for at in (0..whole.len()).step_by(311) {
        let mut flipped = whole.clone();
        flipped[at] ^= 0x55;
        for (bytes, has_mark) in [(&flipped[..], true), (&whole[..at], true), (&whole[..at], false)]
        {
            let damaged = copy(directory.path());
            std::fs::write(damaged.path().join(name), bytes).unwrap();
            if !has_mark {
                std::fs::remove_file(damaged.path().join("tables.log/synced")).unwrap();
            }
            let looked = unchanged(damaged.path(), || seen(damaged.path(), Writes::Forgotten));
            assert!(looked == seen(damaged.path(), Writes::Kept), "byte {at}: {looked:?}");
            outcomes[usize::from(looked.is_ok())] += 1;
        }
    }
    assert!(outcomes.iter().all(|count| *count > 0), "{outcomes:?}");
    let gone = copy(directory.path());
    std::fs::remove_dir_all(gone.path().join("tables.log")).unwrap();
    let error = unchanged(gone.path(), || seen(gone.path(), Writes::Forgotten)).unwrap_err();
    assert!(error.contains("is missing"), "{error}");
}

#[test]
fn damage_of_tables_is_met_as_an_error_and_never_as_a_wrong_row() {
    let directory = tables_with_rows(true);
    let path = directory.path().join("tables.redb");
    let whole = std::fs::read(&path).unwrap();
    let wanted = rows(&tables(copy(directory.path()).path(), Writes::Kept).unwrap()).unwrap();
    let mut told = 0;
    for at in (0..whole.len()).step_by(10_007) {
        let damaged = copy(directory.path());
        let mut bytes = whole.clone();
        let end = whole.len().min(at + 200);
        bytes[at..end].iter_mut().for_each(|byte| *byte ^= 0xa5);
        std::fs::write(damaged.path().join("tables.redb"), bytes).unwrap();
        let looked = unchanged(damaged.path(), || {
            tables(damaged.path(), Writes::Forgotten).and_then(|tables| rows(&tables))
        });
        let written = tables(damaged.path(), Writes::Kept).and_then(|tables| rows(&tables));
        assert_eq!(looked.is_ok(), written.is_ok(), "byte {at}: {looked:?}");
        match looked {
            Ok(rows) => assert!(rows == wanted, "byte {at}"),
            Err(_) => told += 1,
        }
    }
    assert!(told > 0);
}

fn blob(number: u8) -> Vec<u8> {
    vec![number; 100 + usize::from(number)]
}

fn packs_with_blobs() -> TempDir {
    let directory = tempdir();
    let packs = Packs::open_with_packs(directory.path(), PACK_BYTES).unwrap();
    (0..BLOBS).for_each(|number| packs.put(&[number], &blob(number)).unwrap());
    packs.delete(&[7]).unwrap();
    packs.sync().unwrap();
    drop(packs);
    directory
}

/// What one sees of packs.
fn seen(packs: &Packs, directory: &Path) -> String {
    let blobs: Vec<u8> =
        (0..BLOBS).filter(|number| packs.get(&[*number]).unwrap() == Some(blob(*number))).collect();
    let listed: Vec<u8> =
        packs.list(&[], 1000).unwrap().into_iter().map(|(name, _)| name[0]).collect();
    let (damage, lost) = (packs.damage().unwrap(), packs.lost().unwrap());
    let said = format!("{blobs:?} {listed:?} {} {damage:?} {lost:?}", packs.bytes());
    said.replace(&directory.display().to_string(), "")
}

/// What is seen of packs that are only read is what is seen when they are opened in order; and what that
/// mends, by the names of the files.
#[track_caller]
fn seen_alike(directory: &Path, case: &str) -> (String, Vec<String>) {
    let (looked, unmended) = unchanged(directory, || {
        let looked = Packs::look_with_packs(directory, PACK_BYTES).unwrap();
        (seen(&looked, directory), looked.unmended().to_vec())
    });
    let opened = Packs::open_with_packs(directory, PACK_BYTES).unwrap();
    assert_eq!(looked, seen(&opened, directory), "{case}");
    assert!(opened.unmended().is_empty(), "{case}");
    let names =
        unmended.iter().map(|said| said.split(": ").next().unwrap().rsplit('/').next().unwrap());
    (looked, names.map(str::to_owned).collect())
}

#[test]
fn packs_are_seen_as_they_would_be_mended_whatever_is_wrong_with_them() {
    let original = packs_with_blobs();
    let (whole, _) = seen_alike(original.path(), "whole");
    let newest = files(original.path())
        .into_keys()
        .filter(|path| path.extension().is_some_and(|e| e == "pack"))
        .max();
    let newest = newest.unwrap();
    let newest = newest.file_name().unwrap();
    let length = std::fs::metadata(original.path().join(newest)).unwrap().len();
    let next = original.path().join(format!("{:08x}.pack", 1 + files(original.path()).len()));
    let cut = |directory: &Path, name: &std::ffi::OsStr, length| {
        let file = std::fs::File::options().write(true).open(directory.join(name)).unwrap();
        file.set_len(length).unwrap();
    };
    type Change<'a> = &'a dyn Fn(&Path);
    let torn = newest.to_str().unwrap();
    let changes: [(&str, bool, &[&str], Change<'_>); 9] = [
        ("no index", true, &[], &|at| std::fs::remove_file(at.join("index.redb")).unwrap()),
        ("half an index", true, &["index.redb"], &|at| cut(at, "index.redb".as_ref(), 10_000)),
        ("an index that was found damaged", true, &["index.redb"], &|at| {
            std::fs::write(at.join("index-damaged"), b"").unwrap();
        }),
        ("a torn end", false, &["index.redb", torn], &|at| cut(at, newest, length - 30)),
        ("a torn end and no index", false, &[torn], &|at| {
            cut(at, newest, length - 30);
            std::fs::remove_file(at.join("index.redb")).unwrap();
        }),
        ("a pack that was just begun", false, &[], &|at| {
            std::fs::write(at.join(next.file_name().unwrap()), b"FarFSpak").unwrap();
        }),
        ("a pack is gone", false, &["index.redb"], &|at| {
            std::fs::remove_file(at.join("00000002.pack")).unwrap()
        }),
        ("a flipped byte", false, &[], &|at| {
            let path = at.join("00000002.pack");
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[700] ^= 1;
            std::fs::write(path, bytes).unwrap();
        }),
        ("a head that is none", false, &[], &|at| {
            let path = at.join("00000001.pack");
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[16..20].fill(0);
            std::fs::write(path, bytes).unwrap();
        }),
    ];
    for (case, is_harmless, wanted, change) in changes {
        let changed = copy(original.path());
        change(changed.path());
        let (seen, unmended) = seen_alike(changed.path(), case);
        assert_eq!(seen == whole, is_harmless, "{case}: {seen}");
        assert_eq!(unmended, wanted, "{case}");
    }
    // Nothing but the files of a lost directory.
    assert!(seen_alike(tempdir().path(), "empty").0.starts_with("[] [] "));
}

#[test]
fn packs_that_are_only_read_take_nothing() {
    let directory = packs_with_blobs();
    unchanged(directory.path(), || {
        let packs = Packs::look_with_packs(directory.path(), PACK_BYTES).unwrap();
        let refused = |outcome: store::Result<()>| {
            let kind = outcome.unwrap_err().kind();
            assert_eq!(kind, Some(std::io::ErrorKind::ReadOnlyFilesystem));
        };
        refused(packs.put(b"new", b"bytes"));
        refused(packs.delete(&[1]));
        refused(packs.reclaim(1).map(drop));
        refused(packs.renew_damaged());
        packs.sync().unwrap();
        assert_eq!(packs.get(&[1]).unwrap(), Some(blob(1)));
    });
    let gone = directory.path().join("none");
    assert!(Packs::look(&gone).unwrap().list(&[], 9).unwrap().is_empty());
    assert!(!gone.exists(), "nothing is made");
}

#[test]
fn where_things_are_only_read_nothing_is_put_anew_or_taken_away() {
    let directory = tables_with_rows(true);
    std::fs::write(directory.path().join("tables.redb.new"), b"half").unwrap();
    let looked = unchanged(directory.path(), || tables(directory.path(), Writes::Forgotten));
    let looked = looked.unwrap();
    unchanged(directory.path(), || looked.unname().unwrap_err());
    std::fs::remove_file(directory.path().join("tables.redb")).unwrap();
    unchanged(directory.path(), || {
        (500..700).for_each(|number| put(&looked, number, Durability::Now).unwrap());
        assert_eq!((rows(&looked).unwrap().len(), looked.put_anew()), (700, 0));
        drop(looked);
    });
    let directory = packs_with_blobs();
    for half in ["index.redb.new", "00000001.pack.new"] {
        std::fs::write(directory.path().join(half), b"half").unwrap();
    }
    let look = || Packs::look_with_packs(directory.path(), PACK_BYTES).unwrap();
    let looked = unchanged(directory.path(), look);
    for gone in ["index.redb", "00000001.pack"] {
        std::fs::remove_file(directory.path().join(gone)).unwrap();
    }
    unchanged(directory.path(), || {
        looked.sync().unwrap();
        // Nobody is told that it was never there.
        let error = looked.get(&[0]).unwrap_err().to_string();
        assert!(error.contains("00000001.pack") && error.contains("removed it"), "{error}");
        assert_eq!(looked.get(&[BLOBS - 1]).unwrap(), Some(blob(BLOBS - 1)));
        drop(looked);
    });
}
