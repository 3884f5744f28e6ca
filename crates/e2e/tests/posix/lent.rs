//! Large files that somebody may write to, and that the kernel reads by itself meanwhile.

use crate::passthrough::needs_passthrough;
use crate::raw::{Mapping, truncate};
use e2e::contents::noise;
use e2e::{Mount, World, eventually, run};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const BYTES: usize = (16 << 20) + 1234;
const SOON: Duration = Duration::from_secs(30);

fn lent(mount: &Mount) -> u64 {
    mount.status()["passthrough"]["files"].as_u64().unwrap()
}

/// A file that is at the server and in the cache.
fn made(mount: &Mount, name: &str) -> Vec<u8> {
    let bytes = noise(1, BYTES);
    fs::write(mount.path(name), &bytes).unwrap();
    mount.wait();
    bytes
}

/// Opens it so that the kernel reads it itself, as soon as whoever had it open before is gone.
fn open_lent(mount: &Mount, path: &Path) -> File {
    let mut file = None;
    eventually(SOON, "the kernel reads it itself", || {
        drop(file.take());
        let before = lent(mount);
        file = Some(File::open(path).unwrap());
        lent(mount) == before + 1
    });
    file.unwrap()
}

fn both(path: &Path) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

fn is_all(file: &File, expected: &[u8]) -> bool {
    let mut read = vec![0; expected.len()];
    file.read_exact_at(&mut read, 0).unwrap();
    read == expected && file.read_at(&mut [0; 10], expected.len() as u64).unwrap() == 0
}

#[test]
fn a_large_file_is_read_while_the_daemon_stands_still_whoever_may_write_to_it() {
    needs_passthrough!();
    let world = World::new();
    let server = world.server();
    let mount = world.mount(&server, "mount", "partial");
    let bytes = made(&mount, "file");
    let file = open_lent(&mount, &mount.path("file"));
    mount.process().signal(Signal::STOP);
    let read = is_all(&file, &bytes);
    let mapped = Mapping::shared_to_read(&file, BYTES).read(0, BYTES) == bytes;
    mount.process().signal(Signal::CONT);
    assert!(read && mapped);
    drop(file);
    eventually(SOON, "what is closed is given back", || lent(&mount) == 0);
}

/// Whoever reads it may go on doing so for days.
#[test]
fn who_writes_beside_who_reads_is_seen_by_him_and_stored_at_once() {
    needs_passthrough!();
    let world = World::new();
    let server = world.server();
    let mount = world.mount(&server, "mount", "partial");
    let mut bytes = made(&mount, "file");
    let path = mount.path("file");
    let number = fs::metadata(&path).unwrap().ino();
    let reader = open_lent(&mount, &path);
    let mapped = Mapping::shared_to_read(&reader, BYTES);
    for round in 0..3_usize {
        let writer = both(&path);
        assert_eq!(writer.metadata().unwrap().ino(), number, "programs see one number");
        let at = 1_000_000 * (round + 1);
        writer.write_all_at(b"beside", at as u64).unwrap();
        bytes[at..at + 6].copy_from_slice(b"beside");
        assert!(is_all(&reader, &bytes) && mapped.read(0, BYTES) == bytes, "{round}");
        let mapping = Mapping::shared(&writer, BYTES);
        mapping.write(at + 100, b"mapped");
        bytes[at + 100..at + 106].copy_from_slice(b"mapped");
        assert!(is_all(&writer, &bytes), "{round}: who writes sees it at once");
        eventually(SOON, "readers see what was written to a mapping", || is_all(&reader, &bytes));
        drop((mapping, writer));
    }
    mount.wait();
    let other = world.mount(&server, "other", "connected");
    assert!(fs::read(other.path("file")).unwrap() == bytes, "though somebody reads it still");
    let shown = reader.metadata().unwrap();
    let found = fs::metadata(&path).unwrap();
    assert_eq!((shown.mtime(), shown.mtime_nsec()), (found.mtime(), found.mtime_nsec()));
    truncate(&path, 5_000_000).unwrap();
    assert!(is_all(&reader, &bytes[..5_000_000]));
    assert_eq!(reader.metadata().unwrap().len(), 5_000_000);
    drop((reader, mapped));
    eventually(SOON, "what is closed is given back", || lent(&mount) == 0);
    assert!(fs::read(&path).unwrap() == bytes[..5_000_000]);
}

#[test]
fn a_newer_version_is_opened_while_the_kernel_reads_an_older_one() {
    needs_passthrough!();
    let world = World::new();
    let server = world.server();
    let mount = world.mount(&server, "mount", "partial");
    let bytes = made(&mount, "file");
    let path = mount.path("file");
    let reader = open_lent(&mount, &path);
    let other = world.mount(&server, "other", "partial");
    let mut newer = bytes.clone();
    for round in 0..2_u8 {
        let at = 10_000 * (usize::from(round) + 1);
        let writer = File::options().write(true).open(other.path("file")).unwrap();
        writer.write_all_at(&[round; 500], at as u64).unwrap();
        newer[at..at + 500].fill(round);
        drop(writer);
        other.wait();
        eventually(SOON, "the newer version comes", || fs::read(&path).unwrap() == newer);
        let now = both(&path);
        assert!(Mapping::shared(&now, BYTES).read(0, BYTES) == newer, "{round}");
        assert!(is_all(&now, &newer) && is_all(&reader, &bytes), "{round}");
    }
    // What is written here goes on from the newer one.
    let writer = File::options().append(true).open(&path).unwrap();
    writer.write_all_at(b"the end", 0).unwrap();
    drop(writer);
    newer.extend(b"the end");
    mount.wait();
    eventually(SOON, "it is there", || fs::read(other.path("file")).unwrap() == newer);
    assert!(is_all(&reader, &bytes));
}

#[test]
fn other_names_and_descriptors_of_what_is_lent_lead_to_the_same_file() {
    needs_passthrough!();
    let world = World::new();
    let server = world.server();
    let mount = world.mount(&server, "mount", "partial");
    let mut bytes = made(&mount, "file");
    let (path, second) = (mount.path("file"), mount.path("second"));
    fs::hard_link(&path, &second).unwrap();
    mount.wait();
    let reader = open_lent(&mount, &path);
    let links = |path: &Path| fs::metadata(path).unwrap().nlink();
    assert_eq!((links(&path), links(&second)), (2, 2));
    let writer = both(&path);
    // The kernel still knows the second name by what the readers have.
    let beside = both(&second);
    beside.write_all_at(b"second", 500).unwrap();
    writer.write_all_at(b"first", 600).unwrap();
    bytes[500..506].copy_from_slice(b"second");
    bytes[600..605].copy_from_slice(b"first");
    for file in [&reader, &writer, &beside] {
        assert!(is_all(file, &bytes));
    }
    drop((writer, beside));
    // A shell gives a program a descriptor, and the program opens it once more.
    let again = format!("/proc/self/fd/{}", reader.as_raw_fd());
    let mut read = Vec::new();
    File::open(&again).unwrap().read_to_end(&mut read).unwrap();
    assert!(read == bytes);
    let script = format!("cat /dev/stdin < '{}' | cksum", second.display());
    let sum = run(Command::new("sh").args(["-c", &script])).succeeds();
    let script = format!("cksum < '{}'", path.display());
    assert_eq!(sum, run(Command::new("sh").args(["-c", &script])).succeeds());
    truncate(&second, 1_000_000).unwrap();
    assert!(fs::read(&path).unwrap() == bytes[..1_000_000]);
    fs::remove_file(&path).unwrap();
    assert_eq!(links(&second), 1);
    assert!(is_all(&reader, &bytes[..1_000_000]));
    drop(reader);
    assert!(fs::read(&second).unwrap() == bytes[..1_000_000]);
}

/// The kernel says that it was closed when the program has gone on.
#[test]
fn who_reads_it_and_then_writes_to_it_has_it_from_the_kernel_both_times() {
    needs_passthrough!();
    let world = World::new();
    let server = world.server();
    let mount = world.mount(&server, "mount", "partial");
    let mut bytes = made(&mount, "file");
    let path = mount.path("file");
    for round in 0..5_u8 {
        let reader = open_lent(&mount, &path);
        assert!(is_all(&reader, &bytes), "{round}");
        drop(reader);
        let mut writer = None;
        eventually(SOON, "the kernel writes it itself", || {
            drop(writer.take());
            writer = Some(File::options().write(true).open(&path).unwrap());
            lent(&mount) == 1
        });
        writer.unwrap().write_all_at(&[round; 3000], 70_000).unwrap();
        bytes[70_000..73_000].fill(round);
    }
    assert!(fs::read(&path).unwrap() == bytes);
    mount.wait();
    let other = world.mount(&server, "other", "connected");
    assert!(fs::read(other.path("file")).unwrap() == bytes);
}
