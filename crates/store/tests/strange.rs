//! Directories in which something else stands in the place of a file: a link, a directory, a pipe.
//! Nothing of it is shown, written to, cut short or waited for.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]
#![allow(clippy::disallowed_methods, reason = "puts things into the store's place")]

use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use store::container::{DirectoryContainers, Key};
use store::embedded::{Database, Settings};
use store::journal::{FileJournal, salvage};
use store::packs::Packs;
use store::reserve::{FileReserve, Portion};
use store::{Blobs, Container, Containers, Durability, Journal, Reserve, StoreError, Tables};

const KINDS: [&str; 4] = ["link", "dangling link", "directory", "pipe"];

/// Of a link whose target is never to change.
const PRECIOUS: [u8; 8192] = [0x5a; 8192];

fn target(folder: &Path) -> PathBuf {
    folder.join("precious")
}

fn put(folder: &Path, path: &Path, kind: &str) {
    let _ = fs::remove_file(path);
    fs::write(target(folder), PRECIOUS).unwrap();
    match kind {
        "link" => symlink(target(folder), path).unwrap(),
        "dangling link" => symlink(folder.join("nowhere"), path).unwrap(),
        "directory" => {
            fs::create_dir(path).unwrap();
            fs::write(path.join("mine"), "x").unwrap();
        }
        _ => mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap(),
    }
}

fn is_as_it_was(folder: &Path, case: &str) {
    assert!(fs::read(target(folder)).unwrap() == PRECIOUS, "{case}: the target has changed");
    assert!(!folder.join("nowhere").exists(), "{case}: a file was made at the end of the link");
}

/// The file is named, and what it is.
fn is_strange<T>(outcome: Result<T, StoreError>, path: &Path, case: &str) {
    let Err(error) = outcome else { panic!("{case}: taken for a file") };
    assert!(matches!(error, StoreError::Strange { .. }), "{case}: {error}");
    let said = error.to_string();
    let what = case.split(": ").last().unwrap().trim_start_matches("dangling ");
    let place = path.display().to_string();
    assert!(said.starts_with(&place) && said.contains(what), "{case}: {said}");
    assert!(said.contains("move it away"), "{case}: {said}");
}

const ONE: Key = Key { file: 7, generation: 0 };
const TWO: Key = Key { file: 7, generation: 1 };

fn place_of(key: Key) -> String {
    format!("cache/07/{:016x}.{}", key.file, key.generation)
}

fn with_container(check: impl Fn(&DirectoryContainers, &Path, &str)) {
    for kind in KINDS {
        let folder = tempfile::tempdir().unwrap();
        let containers = DirectoryContainers::open(&folder.path().join("cache")).unwrap();
        containers.open(ONE, true).unwrap().unwrap().write(0, b"cached").unwrap();
        put(folder.path(), &folder.path().join(place_of(ONE)), kind);
        check(&containers, folder.path(), kind);
        is_as_it_was(folder.path(), kind);
    }
}

#[test]
fn what_is_no_file_is_no_container() {
    with_container(|containers, folder, kind| {
        let before = fs::symlink_metadata(folder.join(place_of(ONE))).unwrap().file_type();
        assert!(containers.open(ONE, false).unwrap().is_none(), "{kind}");
        assert!(!containers.copy(ONE, TWO, u64::MAX).unwrap(), "{kind}");
        assert!(!containers.rename(ONE, TWO).unwrap(), "{kind}");
        let after = fs::symlink_metadata(folder.join(place_of(ONE))).unwrap().file_type();
        assert_eq!(before, after, "{kind}: whoever only looks changes nothing");
    });
}

#[test]
fn a_container_is_made_where_something_else_was() {
    with_container(|containers, folder, kind| {
        let fresh = containers.open(ONE, true).unwrap().unwrap();
        assert_eq!(fresh.length().unwrap(), 0, "{kind}");
        fresh.set_length(3).unwrap();
        fresh.write(0, b"new").unwrap();
        let again = containers.open(ONE, false).unwrap().unwrap();
        assert_eq!(again.read(0, 9).unwrap(), b"new", "{kind}");
        assert_eq!(containers.list_of(ONE.file).unwrap(), [ONE], "{kind}");
        let aside = folder.join(format!("{}.aside-1", place_of(ONE)));
        assert!(fs::symlink_metadata(&aside).is_ok(), "{kind}: nothing is thrown away");
        assert_eq!(kind == "directory", aside.join("mine").exists());
    });
}

#[test]
fn what_is_in_the_way_of_a_container_is_removed_and_renamed_over() {
    with_container(|containers, _, kind| {
        containers.open(TWO, true).unwrap().unwrap().write(0, b"two").unwrap();
        assert!(containers.rename(TWO, ONE).unwrap(), "{kind}");
        let moved = containers.open(ONE, false).unwrap().unwrap();
        assert_eq!(moved.read(0, 9).unwrap(), b"two", "{kind}");
    });
    with_container(|containers, _, kind| {
        containers.remove(ONE).unwrap();
        assert_eq!(containers.list().unwrap(), [], "{kind}");
        assert!(containers.open(ONE, false).unwrap().is_none(), "{kind}");
    });
}

#[test]
fn what_is_in_the_place_of_a_directory_of_containers_is_put_aside() {
    for kind in KINDS.into_iter().chain(["file"]) {
        if kind != "file" && kind != "pipe" {
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let fan = folder.path().join("cache/07");
        let containers = DirectoryContainers::open(&folder.path().join("cache")).unwrap();
        match kind {
            "file" => fs::write(&fan, "x").unwrap(),
            _ => put(folder.path(), &fan, kind),
        }
        assert_eq!(containers.keys().unwrap(), [], "{kind}");
        assert!(containers.open(ONE, false).unwrap().is_none(), "{kind}");
        containers.open(ONE, true).unwrap().unwrap().write(0, b"new").unwrap();
        assert_eq!(containers.keys().unwrap(), [ONE], "{kind}");
    }
}

#[test]
fn a_link_in_the_place_of_a_directory_of_containers_is_followed_or_told_and_never_put_aside() {
    for kind in ["link", "dangling link"] {
        let folder = tempfile::tempdir().unwrap();
        let fan = folder.path().join("cache/07");
        let containers = DirectoryContainers::open(&folder.path().join("cache")).unwrap();
        put(folder.path(), &fan, kind);
        for case in ["open", "create", "copy", "rename", "rename to", "list", "list of"] {
            let outcome = match case {
                "open" => containers.open(ONE, false).map(drop),
                "create" => containers.open(ONE, true).map(drop),
                "copy" => containers.copy(ONE, TWO, 1).map(drop),
                "rename" => containers.rename(ONE, Key { file: 8, generation: 0 }).map(drop),
                "rename to" => containers.rename(Key { file: 8, generation: 0 }, ONE).map(drop),
                "list" => containers.list().map(drop),
                _ => containers.list_of(ONE.file).map(drop),
            };
            is_strange(outcome, &fan, &format!("{case}: {kind}"));
            assert!(fs::symlink_metadata(&fan).unwrap().is_symlink(), "{case}: {kind}");
        }
        is_as_it_was(folder.path(), kind);
    }
    // The disk that it leads to is mounted.
    let folder = tempfile::tempdir().unwrap();
    let containers = DirectoryContainers::open(&folder.path().join("cache")).unwrap();
    put(folder.path(), &folder.path().join("cache/07"), "dangling link");
    fs::create_dir(folder.path().join("nowhere")).unwrap();
    containers.open(ONE, true).unwrap().unwrap().write(0, b"there").unwrap();
    assert_eq!(containers.keys().unwrap(), [ONE]);
    assert!(folder.path().join("nowhere").join(&place_of(ONE)["cache/07/".len()..]).is_file());
}

#[test]
fn what_cannot_be_looked_at_is_neither_missing_nor_put_aside() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let containers = DirectoryContainers::open(&cache).unwrap();
    containers.open(ONE, true).unwrap().unwrap().write(0, b"cached").unwrap();
    // Nothing can be said of what is behind more links than the kernel follows.
    fs::rename(&cache, folder.path().join("real")).unwrap();
    symlink("cache", &cache).unwrap();
    assert!(containers.open(ONE, false).is_err());
    assert!(containers.open(ONE, true).is_err());
    assert!(containers.list_of(ONE.file).is_err());
    fs::remove_file(&cache).unwrap();
    fs::rename(folder.path().join("real"), &cache).unwrap();
    assert_eq!(containers.keys().unwrap(), [ONE]);
    assert_eq!(fs::read_dir(&cache).unwrap().count(), 1);
}

#[test]
fn a_journal_says_what_is_in_the_place_of_its_files() {
    for name in ["0000000000000001.journal", "synced", "lock"] {
        for kind in KINDS {
            let folder = tempfile::tempdir().unwrap();
            let log = folder.path().join("log");
            let journal = FileJournal::open(&log).unwrap();
            journal.append(b"a record").unwrap();
            journal.sync().unwrap();
            drop(journal);
            let case = format!("{name}: {kind}");
            put(folder.path(), &log.join(name), kind);
            is_strange(FileJournal::open(&log), &log.join(name), &case);
            let salvaged = salvage(&log).unwrap();
            assert_eq!(salvaged.records.is_empty(), name.ends_with(".journal"), "{case}");
            assert_eq!(salvaged.damage.is_empty(), !name.ends_with(".journal"), "{case}");
            is_as_it_was(folder.path(), &case);
        }
    }
}

#[test]
fn tables_say_what_is_in_their_place() {
    for kind in KINDS {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tables.redb");
        put(folder.path(), &path, kind);
        is_strange(Database::open(&path), &path, kind);
        is_strange(Database::check(&path), &path, kind);
        is_as_it_was(folder.path(), kind);
        let log = folder.path().join("tables.log/0000000000000001.journal");
        fs::create_dir(log.parent().unwrap()).unwrap();
        put(folder.path(), &log, kind);
        let settings = Settings { log: log.parent(), ..Settings::default() };
        let tables = folder.path().join("others.redb");
        is_strange(Database::open_as(&tables, settings), &log, kind);
        is_as_it_was(folder.path(), kind);
    }
}

#[test]
fn packs_say_what_is_in_their_place_and_their_index_is_made_again() {
    for (name, is_refused) in [("00000001.pack", true), ("index.redb", false), ("lost", true)] {
        for kind in KINDS {
            let folder = tempfile::tempdir().unwrap();
            let chunks = folder.path().join("chunks");
            let packs = Packs::open(&chunks).unwrap();
            packs.put(b"name", b"a blob").unwrap();
            packs.sync().unwrap();
            drop(packs);
            let case = format!("{name}: {kind}");
            put(folder.path(), &chunks.join(name), kind);
            let opened = Packs::open(&chunks).and_then(|packs| {
                packs.lost()?;
                packs.get(b"name")
            });
            match is_refused {
                true => is_strange(opened, &chunks.join(name), &case),
                false => assert_eq!(opened.unwrap().as_deref(), Some(&b"a blob"[..]), "{case}"),
            }
            is_as_it_was(folder.path(), &case);
        }
    }
}

#[test]
fn room_is_kept_aside_where_something_else_was() {
    for kind in KINDS {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("reserve");
        put(folder.path(), &path, kind);
        let reserve = FileReserve::open(&path, Portion { bytes: 1 << 20, one_in: 2 });
        assert!(reserve.is_kept(), "{kind}");
        assert!(fs::symlink_metadata(&path).unwrap().is_file(), "{kind}");
        is_as_it_was(folder.path(), kind);
    }
}

#[test]
fn tables_beside_a_link_stay_usable() {
    let folder = tempfile::tempdir().unwrap();
    let tables = Database::open(&folder.path().join("tables.redb")).unwrap();
    let mut write = tables.write().unwrap();
    write.put("table", b"key", b"value").unwrap();
    write.commit(Durability::Now).unwrap();
    drop(tables);
    // A directory on the way may be a link: that is where somebody wants it.
    symlink(folder.path(), folder.path().join("way")).unwrap();
    let again = Database::open(&folder.path().join("way/tables.redb")).unwrap();
    assert_eq!(again.read().unwrap().get("table", b"key").unwrap().as_deref(), Some(&b"value"[..]));
}

#[test]
fn what_is_in_the_place_of_a_directory_is_named_with_what_to_do() {
    for kind in ["an ordinary file", "dangling link", "pipe"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("directory");
        match kind {
            "an ordinary file" => fs::write(&path, "mine").unwrap(),
            kind => put(folder.path(), &path, kind),
        }
        is_strange(Packs::open(&path), &path, kind);
        is_strange(Packs::has_records(&path), &path, kind);
        is_strange(DirectoryContainers::open(&path), &path, kind);
        is_strange(FileJournal::open(&path), &path, kind);
        is_strange(FileJournal::open_knowing(&path, 1), &path, kind);
        is_strange(salvage(&path), &path, kind);
        is_strange(FileJournal::open(&path.join("below")), &path, kind);
        let settings = Settings { log: Some(&path), ..Settings::default() };
        is_strange(Database::open_as(&folder.path().join("redb"), settings), &path, kind);
        assert!(!folder.path().join("nowhere").exists());
    }
}

#[test]
fn of_containers_all_is_found_but_what_lies_where_something_else_is() {
    for kind in ["an ordinary file", "dangling link", "link"] {
        let folder = tempfile::tempdir().unwrap();
        let containers = DirectoryContainers::open(&folder.path().join("cache")).unwrap();
        containers.open(ONE, true).unwrap().unwrap().write(0, b"there").unwrap();
        let other = folder.path().join("cache/08");
        match kind {
            "an ordinary file" => fs::write(&other, "mine").unwrap(),
            kind => put(folder.path(), &other, kind),
        }
        let (keys, mut unreadable) = containers.readable_keys();
        assert_eq!((keys, unreadable.len()), (vec![ONE], 1), "{kind}");
        is_strange(Err::<(), _>(unreadable.remove(0)), &other, kind);
        let containers = DirectoryContainers::look(&other).unwrap();
        let (keys, unreadable) = containers.readable_keys();
        assert!(keys.is_empty() && unreadable.len() == 1, "{kind}: {unreadable:?}");
    }
}

#[test]
fn another_database_in_the_place_of_the_index_is_put_aside_whole() {
    for forgets in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let chunks = folder.path().join("chunks");
        let packs = Packs::open(&chunks).unwrap();
        packs.put(b"name", b"a blob").unwrap();
        packs.sync().unwrap();
        drop(packs);
        let index = chunks.join("index.redb");
        fs::remove_file(&index).unwrap();
        let put = |value: &[u8]| {
            let log = folder.path().join("tables.log");
            let settings = Settings { log: Some(&log), ..Settings::default() };
            let tables = Database::open_as(&index, settings).unwrap();
            let mut write = tables.write().unwrap();
            write.put("whole-nodes", b"key", value).unwrap();
            write.commit(Durability::Now).unwrap();
        };
        put(b"value");
        if forgets {
            Packs::forget_index(&chunks).unwrap();
        }
        let packs = Packs::open(&chunks).unwrap();
        assert_eq!(packs.get(b"name").unwrap().as_deref(), Some(&b"a blob"[..]));
        let tables = Database::open(&chunks.join("index.redb.aside-1")).unwrap();
        let row = tables.read().unwrap().get("whole-nodes", b"key").unwrap();
        assert_eq!(row.as_deref(), Some(&b"value"[..]));
    }
}
