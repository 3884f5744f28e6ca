//! Room that programs set aside with `fallocate`, on a disk that is full.

use crate::errno;
use crate::raw::Mapping;
use e2e::contents::noise;
use e2e::disk::Disk;
use e2e::{Mount, World};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

const MIB: usize = 1 << 20;
const ASIDE: usize = 8 * MIB;
const PAGE: usize = 4096;

const GROW: FallocateFlags = FallocateFlags::empty();
const KEEP: FallocateFlags = FallocateFlags::KEEP_SIZE;
const ZERO: FallocateFlags = FallocateFlags::ZERO_RANGE;

fn opened(mount: &Mount, name: &str) -> File {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).open(mount.path(name)).unwrap()
}

/// With another file, which stays open, so that nothing of it leaves the cache.
fn fill(mount: &Mount) -> File {
    let rest = opened(mount, "rest");
    let full = (0..80).map(|at| rest.write_all_at(&noise(at, MIB), at * MIB as u64));
    let error = full.filter_map(Result::err).next().expect("the disk is small");
    assert_eq!(Errno::from_io_error(&error), Some(Errno::NOSPC));
    rest
}

#[test]
fn what_is_written_to_a_mapping_over_room_that_was_set_aside_is_kept_on_a_full_disk() {
    let world = World::new();
    let server = world.server();
    let _disk = Disk::new(&world, "mount.state", 96 << 20);
    let mount = world.mount(&server, "mount", "partial");
    let ways = [GROW, KEEP, ZERO, ZERO | KEEP].into_iter().zip(["grow", "keep", "zero", "within"]);
    let files: Vec<(&str, File)> = ways
        .map(|(how, name)| {
            let file = opened(&mount, name);
            if how.contains(KEEP) {
                file.set_len(ASIDE as u64).unwrap();
            }
            fallocate(&file, how, 0, ASIDE as u64).unwrap();
            assert_eq!(file.metadata().unwrap().len(), ASIDE as u64);
            (name, file)
        })
        .collect();
    let rest = fill(&mount);
    for (_, file) in &files {
        let mapping = Mapping::shared(file, ASIDE);
        (0..ASIDE).step_by(PAGE).for_each(|at| mapping.write(at, b"kept"));
        mapping.sync();
    }
    drop(rest);
    let expected = |at: usize| if at % PAGE < 4 { b"kept"[at % PAGE] } else { 0 };
    let expected: Vec<u8> = (0..ASIDE).map(expected).collect();
    for (name, file) in files {
        file.sync_all().unwrap();
        drop(file);
        assert!(fs::read(mount.path(name)).unwrap() == expected, "{name}");
    }
}

#[test]
fn what_there_is_no_room_for_is_refused_at_the_call_and_changes_nothing() {
    let world = World::new();
    let server = world.server();
    let _disk = Disk::new(&world, "mount.state", 64 << 20);
    let mount = world.mount(&server, "mount", "partial");
    let file = opened(&mount, "file");
    file.write_all_at(b"as it was", 0).unwrap();
    for how in [GROW, KEEP, ZERO, ZERO | KEEP] {
        assert_eq!(fallocate(&file, how, 0, 70 << 20), Err(Errno::NOSPC), "{how:?}");
    }
    assert_eq!(fs::read(mount.path("file")).unwrap(), b"as it was");
    // Beyond the end, for who appends.
    fallocate(&file, KEEP, 0, ASIDE as u64).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 9);
    let rest = fill(&mount);
    file.write_all_at(&noise(1, ASIDE), 0).unwrap();
    assert_eq!(errno(file.write_all_at(&noise(2, MIB), ASIDE as u64)), Errno::NOSPC);
    drop((file, rest));
    assert!(fs::read(mount.path("file")).unwrap() == noise(1, ASIDE));
}
