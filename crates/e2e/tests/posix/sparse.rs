//! Sparse files: `stat`, `du`, `cp` and `tar` see that they are, whoever made them, whether they are
//! cached or not.

use e2e::contents::noise;
use e2e::{Mount, World, run};
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

const MIB: u64 = 1 << 20;
const SIZE: u64 = 512 * MIB;
/// Where there is data, one after the other.
const DATA: [(u64, usize); 3] = [(70 * MIB, 1), (200 * MIB, 300_000), (SIZE - 1, 1)];
/// What the data take at most, with the chunks and blocks around them.
const TAKEN_MAX: u64 = MIB;

fn make(path: &Path) {
    let file = File::create(path).unwrap();
    file.set_len(SIZE).unwrap();
    for (offset, length) in DATA {
        file.write_all_at(&noise(offset, length), offset).unwrap();
    }
}

fn taken(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

/// Looks for data and holes without reading a byte.
fn data_of(path: &Path) -> Vec<(u64, u64)> {
    let file = File::open(path).unwrap();
    let (mut found, mut at) = (Vec::new(), 0);
    loop {
        match seek(&file, SeekFrom::Data(at)) {
            Ok(start) => {
                at = seek(&file, SeekFrom::Hole(start)).unwrap();
                found.push((start, at));
            }
            Err(Errno::NXIO) => return found,
            Err(error) => panic!("{error}"),
        }
    }
}

#[track_caller]
fn is_sparse(path: &Path) {
    assert_eq!(fs::metadata(path).unwrap().len(), SIZE);
    assert!((1..=TAKEN_MAX).contains(&taken(path)), "{} bytes are taken", taken(path));
    let data = data_of(path);
    assert!(data.iter().map(|(from, to)| to - from).sum::<u64>() <= TAKEN_MAX, "{data:?}");
    for (offset, length) in DATA {
        let holds = |(from, to): &(u64, u64)| *from <= offset && offset + length as u64 <= *to;
        assert!(data.iter().any(holds), "the data at {offset} are in a hole: {data:?}");
        let mut bytes = vec![0; length];
        File::open(path).unwrap().read_exact_at(&mut bytes, offset).unwrap();
        assert!(bytes == noise(offset, length), "at {offset}");
    }
}

/// What all files below a folder of an ordinary disk take up there.
fn on_disk(mount: &Mount) -> u64 {
    let said = run(Command::new("du").args(["-s", "-B1"]).arg(&mount.state)).succeeds();
    said.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn a_sparse_file_is_sparse_for_programs_on_every_machine_before_and_after_it_is_cached() {
    let world = World::new();
    let server = world.server();
    let one = world.mount(&server, "one", "partial");
    let other = world.mount(&server, "other", "partial");
    make(&one.path("sparse"));
    is_sparse(&one.path("sparse"));
    one.wait();
    is_sparse(&one.path("sparse"));
    // Not a byte of it is there.
    let path = other.path("sparse");
    assert!((1..=TAKEN_MAX).contains(&taken(&path)), "{}", taken(&path));
    assert_eq!(data_of(&path).len(), DATA.len());
    is_sparse(&path);
    assert!(on_disk(&other) < 64 * MIB, "{}", on_disk(&other));
}

#[test]
fn copies_of_a_sparse_file_are_sparse() {
    let world = World::new();
    let server = world.server();
    let one = world.mount(&server, "one", "partial");
    let other = world.mount(&server, "other", "partial");
    make(&one.path("sparse"));
    one.wait();
    let (sparse, copy) = (other.path("sparse"), other.path("copy"));
    run(Command::new("cp").args([&sparse, &copy])).succeeds();
    is_sparse(&copy);
    let archive = world.path("archive.tar");
    let folder = other.path("");
    run(Command::new("tar").arg("-Scf").arg(&archive).arg("-C").arg(&folder).arg("sparse"))
        .succeeds();
    assert!(fs::metadata(&archive).unwrap().len() < 2 * TAKEN_MAX);
    other.wait();
    is_sparse(&one.path("copy"));
    assert!(on_disk(&other) < 64 * MIB, "{}", on_disk(&other));
}

#[test]
fn zeros_that_a_program_writes_are_a_hole_for_everybody_else() {
    let world = World::new();
    let server = world.server();
    let one = world.mount(&server, "one", "partial");
    let other = world.mount(&server, "other", "partial");
    let zeros = vec![0; 4 * MIB as usize];
    fs::write(one.path("zeros"), &zeros).unwrap();
    one.wait();
    assert_eq!(taken(&other.path("zeros")), 0);
    assert!(fs::read(other.path("zeros")).unwrap() == zeros);
    // What is set aside for a file is not a hole while it is written.
    let file = File::create(one.path("room")).unwrap();
    fallocate(&file, FallocateFlags::empty(), 0, MIB).unwrap();
    assert!(taken(&one.path("room")) >= MIB);
}
