//! What another program does to a container while it is open: what it has is there all the same
//! after the next look, or that says that it is not.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]
#![allow(clippy::disallowed_methods, reason = "changes the files of the store behind its back")]

use std::fs::{create_dir, read_dir, remove_dir_all, remove_file, rename, write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;
use store::container::{DirectoryContainers, Key, OrdinaryFile};
use store::{Container, Containers};
use tempfile::tempdir;

const KEY: Key = Key { file: 0x1234, generation: 2 };
/// Where the end of it is, behind a hole.
const END: u64 = 4 << 20;

fn path(cache: &Path) -> PathBuf {
    cache.join("34/0000000000001234.2")
}

fn bytes(container: &OrdinaryFile) -> Vec<u8> {
    container.read(0, container.length().unwrap() as usize).unwrap()
}

type Harm = fn(&Path);

const HARMS: [(&str, Harm); 6] = [
    ("it is removed", |cache| remove_file(path(cache)).unwrap()),
    ("it is moved away", |cache| rename(path(cache), cache.join("away")).unwrap()),
    ("another takes its place", |cache| {
        write(cache.join("other"), b"other").unwrap();
        rename(cache.join("other"), path(cache)).unwrap();
    }),
    ("a directory takes its place", |cache| {
        remove_file(path(cache)).unwrap();
        create_dir(path(cache)).unwrap();
    }),
    ("its directory is removed", |cache| remove_dir_all(cache.join("34")).unwrap()),
    ("all are removed", |cache| remove_dir_all(cache).unwrap()),
];

#[test]
fn what_another_program_has_done_to_an_open_container_is_mended_by_a_look() {
    for (what, harm) in HARMS {
        let state = tempdir().unwrap();
        let cache = state.path().join("cache");
        let containers = DirectoryContainers::open(&cache).unwrap();
        let open = containers.open(KEY, true).unwrap().unwrap();
        open.write(0, b"begin").unwrap();
        open.write(END, b"end").unwrap();
        open.look().unwrap();
        assert!(open.is_kept().unwrap());
        for round in 0..3_u8 {
            harm(&cache);
            assert!(!open.is_kept().unwrap(), "{what}");
            open.write(5, &[round; 10]).unwrap();
            open.look().unwrap();
            let found = containers.open(KEY, false).unwrap().expect("it is there");
            assert!(bytes(&found) == bytes(&open), "{what}");
            assert!(found.allocated().unwrap() < END / 2, "{what}: the hole is one");
            assert_eq!(containers.keys().unwrap(), [KEY], "{what}");
        }
    }
}

#[test]
fn looks_that_go_on_leave_nothing_beside_it() {
    let state = tempdir().unwrap();
    let containers = DirectoryContainers::open(state.path()).unwrap();
    let open = containers.open(KEY, true).unwrap().unwrap();
    remove_file(path(state.path())).unwrap();
    for round in 0..150 {
        open.write(round, b"more").unwrap();
        open.look().unwrap();
    }
    let found = containers.open(KEY, false).unwrap().expect("it is there");
    assert_eq!(bytes(&found), bytes(&open));
    assert_eq!(read_dir(state.path().join("34")).unwrap().count(), 1);
}

#[test]
fn what_is_written_after_a_look_is_there_after_a_sync() {
    let state = tempdir().unwrap();
    let containers = DirectoryContainers::open(state.path()).unwrap();
    let open = containers.open(KEY, true).unwrap().unwrap();
    open.write(0, b"begin").unwrap();
    remove_file(path(state.path())).unwrap();
    open.look().unwrap();
    open.write(END, b"end").unwrap();
    open.sync().unwrap();
    let found = containers.open(KEY, false).unwrap().expect("it is there");
    assert!(bytes(&found) == bytes(&open), "whoever is told that it is on the disk finds it");
}

#[test]
fn where_all_was_moved_nothing_is_made() {
    let above = tempdir().unwrap();
    let (state, away) = (above.path().join("state"), above.path().join("away"));
    create_dir(&state).unwrap();
    let containers = DirectoryContainers::open(&state.join("cache")).unwrap();
    let open = containers.open(KEY, true).unwrap().unwrap();
    rename(&state, &away).unwrap();
    create_dir(&state).unwrap();
    let error = open.look().unwrap_err().to_string();
    assert!(error.contains("move that back"), "{error}");
    assert_eq!(read_dir(&state).unwrap().count(), 0);
    std::fs::remove_dir(&state).unwrap();
    rename(&away, &state).unwrap();
    open.look().unwrap();
}

#[test]
fn half_a_container_of_a_process_that_was_killed_is_removed_with_the_next_look_at_all() {
    let cache = tempdir().unwrap();
    let half = path(cache.path()).with_extension("2.new");
    let containers = DirectoryContainers::open(cache.path()).unwrap();
    containers.open(KEY, true).unwrap().unwrap().look().unwrap();
    let foreign = half.with_file_name("notes.new");
    // The times of files go by a coarser clock.
    sleep(Duration::from_millis(20));
    [&half, &foreign].into_iter().for_each(|path| write(path, b"half").unwrap());
    // It may be under way.
    assert_eq!(containers.keys().unwrap(), [KEY]);
    assert!(half.exists());
    sleep(Duration::from_millis(20));
    let containers = DirectoryContainers::open(cache.path()).unwrap();
    assert_eq!(containers.keys().unwrap(), [KEY]);
    assert!(!half.exists() && foreign.exists());
}
