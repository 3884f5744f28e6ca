//! Room that was set aside is there when it is written to, however full the disk is by then.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]
#![allow(clippy::disallowed_methods, reason = "mounts a disk of its own, as root")]

use rustix::mount::{UnmountFlags, unmount};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use store::container::{DirectoryContainers, Key};
use store::{Container, Containers, StoreError};

const MIB: u64 = 1 << 20;

/// A small disk, which goes with this.
struct Disk(PathBuf);

impl Disk {
    fn new(directory: &Path) -> Disk {
        let (image, place) = (directory.join("image"), directory.join("disk"));
        File::create(&image).unwrap().set_len(64 * MIB).unwrap();
        std::fs::create_dir(&place).unwrap();
        let done = |command: &mut Command| assert!(command.status().unwrap().success());
        done(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image));
        done(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&place));
        Disk(place)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        unmount(&self.0, UnmountFlags::DETACH).unwrap();
    }
}

fn is_full<T>(outcome: Result<T, StoreError>) -> bool {
    matches!(outcome, Err(StoreError::Full(_)))
}

/// Fills the disk as far as contents may.
fn fill(containers: &DirectoryContainers) {
    let rest = containers.open(Key { file: 9, generation: 0 }, true).unwrap().unwrap();
    let written = (0..100).take_while(|at| !is_full(rest.write(at * MIB, &vec![1; MIB as usize])));
    assert!((8..40).contains(&written.count()));
}

#[test]
fn what_was_set_aside_can_be_written_when_the_disk_is_full() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Disk::new(directory.path());
    let containers = DirectoryContainers::open(&disk.0.join("cache")).unwrap();
    let open = |file| containers.open(Key { file, generation: 0 }, true).unwrap().unwrap();
    let (grown, kept, zeroed, written) = (open(1), open(2), open(3), open(4));
    grown.allocate(0, 4 * MIB).unwrap();
    kept.set_aside(0, 4 * MIB).unwrap();
    zeroed.write(0, &[7; 5000]).unwrap();
    zeroed.zero(0, 4 * MIB).unwrap();
    written.write(0, &vec![1; 4 * MIB as usize]).unwrap();
    fill(&containers);
    for container in [&grown, &kept, &zeroed, &written] {
        container.write(3 * MIB - 1, &vec![2; MIB as usize]).unwrap();
        container.write(0, &vec![3; MIB as usize]).unwrap();
        assert!(is_full(container.write(4 * MIB - 1, &vec![4; MIB as usize])));
        // Nothing is taken for what is there.
        container.set_aside(MIB, MIB).unwrap();
        container.sync().unwrap();
        assert_eq!(container.read(4 * MIB - 2, 1).unwrap(), [2]);
    }
}

#[test]
fn what_a_full_disk_has_no_room_for_is_refused_at_once_and_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Disk::new(directory.path());
    let containers = DirectoryContainers::open(&disk.0.join("cache")).unwrap();
    let container = containers.open(Key { file: 1, generation: 0 }, true).unwrap().unwrap();
    container.write(0, &[7; 5000]).unwrap();
    fill(&containers);
    let taken = container.allocated().unwrap();
    assert!(is_full(container.set_aside(0, 8 * MIB)));
    assert!(is_full(container.zero(0, 8 * MIB)));
    assert!(is_full(container.allocate(0, 8 * MIB)));
    assert_eq!(container.read(0, 9000).unwrap(), [7; 5000]);
    assert_eq!(container.allocated().unwrap(), taken);
}
