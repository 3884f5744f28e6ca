//! Files as memory.

use crate::in_both_modes;
use crate::raw::{Mapping, truncate};
use e2e::contents::noise;
use e2e::run;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

fn read_write(path: &std::path::Path) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

#[test]
fn what_is_written_through_a_shared_mapping_is_in_the_file() {
    in_both_modes(|mount| {
        let path = mount.path("file");
        fs::write(&path, noise(1, 50_000)).unwrap();
        let file = read_write(&path);
        let mapping = Mapping::shared(&file, 50_000);
        assert!(mapping.read(0, 50_000) == noise(1, 50_000));
        mapping.write(20_000, b"through memory");
        mapping.sync();
        let mut expected = noise(1, 50_000);
        expected[20_000..20_014].copy_from_slice(b"through memory");
        assert!(fs::read(&path).unwrap() == expected);
        // And the other way: what is written is seen in memory.
        file.write_all_at(b"by a call", 30_000).unwrap();
        assert_eq!(mapping.read(30_000, 9), b"by a call");
        drop(mapping);
        drop(file);
        expected[30_000..30_009].copy_from_slice(b"by a call");
        assert!(fs::read(&path).unwrap() == expected);
    });
}

/// The descriptor is closed before the mapping is written: as the linker and databases do.
#[test]
fn a_shared_mapping_may_be_written_after_its_descriptor_is_closed() {
    in_both_modes(|mount| {
        let path = mount.path("file");
        fs::write(&path, vec![0; 10_000]).unwrap();
        let mapping = Mapping::shared(&read_write(&path), 10_000);
        mapping.write(5_000, b"late");
        mapping.sync();
        drop(mapping);
        e2e::eventually(std::time::Duration::from_secs(5), "the write is in the file", || {
            &fs::read(&path).unwrap()[5_000..5_004] == b"late"
        });
        // Contents of a file become a version when it is closed, and it was: open and close it.
        drop(read_write(&path));
    });
}

#[test]
fn what_is_written_through_a_private_mapping_stays_there() {
    in_both_modes(|mount| {
        let path = mount.path("file");
        fs::write(&path, "as it was").unwrap();
        let mapping = Mapping::private(&File::open(&path).unwrap(), 9);
        mapping.write(0, b"otherwise");
        assert_eq!(mapping.read(0, 9), b"otherwise");
        assert_eq!(fs::read(&path).unwrap(), b"as it was");
    });
}

#[test]
fn a_file_is_cut_by_its_path() {
    in_both_modes(|mount| {
        let path = mount.path("file");
        fs::write(&path, noise(2, 9_000)).unwrap();
        truncate(&path, 100).unwrap();
        assert!(fs::read(&path).unwrap() == noise(2, 9_000)[..100]);
        truncate(&path, 200).unwrap();
        assert_eq!(fs::read(&path).unwrap()[100..], [0; 100]);
        assert!(truncate(&mount.path("missing"), 0).is_err());
        assert!(truncate(&mount.mountpoint, 0).is_err());
    });
}

/// As databases do with the memory that they share: one works with it, another opens it.
#[test]
fn what_one_program_writes_and_closes_another_can_map() {
    in_both_modes(|mount| {
        let path = mount.path("file");
        let mode = mount.mode();
        // What is closed waits in the log, so that it is pending when it is written again.
        run(&mut mount.farfs("mode", &["fetch-only"])).succeeds();
        let first = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        for round in 1..=4 {
            drop(first.try_clone().unwrap());
            first.set_len(round * 4096).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().len(), round * 4096);
            let second = read_write(&path);
            let mapping = Mapping::shared(&second, round as usize * 4096);
            mapping.write(0, &[round as u8]);
            assert_eq!(Mapping::shared(&first, 4096).read(0, 1), [round as u8]);
        }
        drop(first);
        run(&mut mount.farfs("mode", &[&mode])).succeeds();
    });
}

/// A program that maps a file as soon as another machine has replaced its contents.
#[test]
fn what_another_machine_has_just_replaced_can_be_mapped() {
    let world = e2e::World::new();
    let server = world.server();
    let here = world.mount(&server, "here", "connected");
    let there = world.mount(&server, "there", "connected");
    for round in 1..=20 {
        // Longer and shorter by turns.
        let bytes = noise(round, if round % 2 == 0 { 9_000 } else { 40_000 });
        fs::write(here.path("file"), &bytes).unwrap();
        let file = read_write(&there.path("file"));
        let length = file.metadata().unwrap().len() as usize;
        assert_eq!(length, bytes.len(), "round {round}");
        assert!(Mapping::shared(&file, length).read(0, length) == bytes, "round {round}");
    }
}

/// As on a local disk, where the write counts when it is done, not when it reaches the file.
#[test]
fn times_that_are_set_after_a_write_to_a_mapping_stay() {
    in_both_modes(|mount| {
        let path = mount.path("file");
        fs::write(&path, vec![0; 10_000]).unwrap();
        let set = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        let modified = || fs::metadata(&path).unwrap().modified().unwrap();
        let file = read_write(&path);
        let mapping = Mapping::shared(&file, 10_000);
        mapping.write(5_000, b"before");
        file.set_modified(set).unwrap();
        assert_eq!(modified(), set);
        file.sync_all().unwrap();
        assert_eq!(modified(), set, "nothing was written since");
        mapping.write(5_000, b"after it");
        drop(mapping);
        drop(file);
        e2e::eventually(std::time::Duration::from_secs(5), "the second write counts", || {
            modified() != set && &fs::read(&path).unwrap()[5_000..5_008] == b"after it"
        });
    });
}
