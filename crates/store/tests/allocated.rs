//! What a container takes of the disk: what was written, and no hole.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use store::container::{DirectoryContainers, Key};
use store::memory::MemoryContainers;
use store::{Container, Containers};

const KEY: Key = Key { file: 7, generation: 0 };
const MIB: u64 = 1 << 20;
/// Bookkeeping of the file system, which may be counted with the file.
const BESIDES: u64 = 64 << 10;

fn check(containers: &impl Containers) {
    let container = containers.open(KEY, true).unwrap().unwrap();
    container.set_length(1 << 30).unwrap();
    assert!(container.allocated().unwrap() <= BESIDES, "a hole takes nothing");
    container.write(100 * MIB, &vec![1; MIB as usize]).unwrap();
    let taken = container.allocated().unwrap();
    assert!((MIB..=MIB + BESIDES).contains(&taken), "{taken}");
    container.punch(100 * MIB, MIB / 2).unwrap();
    let taken = container.allocated().unwrap();
    assert!((MIB / 2..=MIB / 2 + BESIDES).contains(&taken), "{taken}");
    assert_eq!(container.length().unwrap(), 1 << 30);
}

#[test]
fn holes_of_an_ordinary_file_take_nothing() {
    let directory = tempfile::tempdir().unwrap();
    check(&DirectoryContainers::open(directory.path()).unwrap());
}

#[test]
fn holes_in_memory_take_nothing() {
    check(&MemoryContainers::new());
}
