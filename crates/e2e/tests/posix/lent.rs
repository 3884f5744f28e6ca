//! Large files that somebody may write to, and that the kernel reads by itself meanwhile.

use crate::passthrough::needs_passthrough;
use crate::raw::{Mapping, truncate};
use crate::unseen::lent;
use crate::unseen::open_unseen;
use e2e::contents::noise;
use e2e::{Mount, World, eventually, run};
use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const BYTES: usize = (16 << 20) + 1234;
const SOON: Duration = Duration::from_secs(30);

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

/// Of what is only mapped nobody has a descriptor.
#[test]
fn what_is_cut_to_nothing_by_its_name_is_cut_for_whoever_has_it_mapped() {
    needs_passthrough!();
    let world = World::new();
    let server = world.server();
    let mount = world.mount(&server, "mount", "partial");
    let by_path: fn(&Path) = |path| truncate(path, 0).unwrap();
    let by_opening: fn(&Path) = |path| {
        let flags = OFlags::RDONLY | OFlags::TRUNC;
        drop(rustix::fs::open(path, flags, Mode::empty()).unwrap());
    };
    for (round, cut) in (2_u64..).zip([by_path, by_opening]) {
        let name = format!("file {round}");
        made(&mount, &name);
        let path = mount.path(&name);
        let reader = open_lent(&mount, &path);
        let mapped = Mapping::shared_to_read(&reader, BYTES);
        drop(reader);
        cut(&path);
        assert_eq!(fs::metadata(&path).unwrap().len(), 0);
        let newer = noise(round, BYTES);
        File::options().write(true).open(&path).unwrap().write_all(&newer).unwrap();
        assert!(mapped.read(0, BYTES) == newer, "{round}");
        let again = File::open(&path).unwrap();
        assert!(is_all(&again, &newer), "{round}");
        drop((mapped, again));
        mount.wait();
        eventually(SOON, "what is closed is given back", || lent(&mount) == 0);
        assert!(fs::read(&path).unwrap() == newer, "{round}");
    }
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

/// The kernel looks the path up anew once, and no more.
#[test]
fn whoever_opens_by_its_path_what_is_lent_to_readers_can() {
    needs_passthrough!();
    let world = World::new();
    let server = world.server();
    let mount = world.mount(&server, "mount", "partial");
    let path = |number: usize| mount.path(format!("file {number}"));
    for number in 0..8 {
        fs::write(path(number), noise(number as u64, BYTES)).unwrap();
    }
    mount.wait();
    for number in 0..8 {
        let reader = open_lent(&mount, &path(number));
        let first = both(&path(number));
        let second = File::options().append(true).open(path(number)).unwrap();
        drop((first, second));
        // The number that was given to who wrote is not wanted any more.
        fs::rename(path(number), mount.path("other")).unwrap();
        File::options().write(true).open(mount.path("other")).unwrap();
        assert!(is_all(&reader, &noise(number as u64, BYTES)));
    }
}

/// What the kernel cached of it by an older number is of an earlier time.
#[test]
fn what_was_cached_by_an_older_number_is_not_shown_when_that_is_the_only_one_again() {
    needs_passthrough!();
    let world = World::new();
    let server = world.server();
    let mount = world.mount(&server, "mount", "partial");
    let mut bytes = made(&mount, "file");
    let (path, second) = (mount.path("file"), mount.path("second"));
    fs::hard_link(&path, &second).unwrap();
    let reader = open_lent(&mount, &path);
    fs::metadata(&second).unwrap();
    let mut write = |file: &File, with: &[u8]| {
        file.write_all_at(with, 5000).unwrap();
        bytes[5000..5000 + with.len()].copy_from_slice(with);
        bytes.clone()
    };
    let writer = both(&path);
    write(&writer, b"first");
    drop(reader);
    // The second name leads to what the reader had.
    let older = File::open(&second).unwrap();
    let mapped = Mapping::private(&older, BYTES);
    let expected = write(&writer, b"second");
    writer.sync_all().unwrap();
    assert!(is_all(&older, &expected));
    drop((writer, mapped, older));
    fs::remove_file(&path).unwrap();
    assert!(fs::read(&second).unwrap() == expected);
    let last = both(&second);
    let mapping = Mapping::shared(&last, BYTES);
    assert!(mapping.read(0, BYTES) == expected);
    mapping.write(0, b"x");
    drop((mapping, last));
    let mut expected = expected;
    expected[0] = b'x';
    mount.wait();
    let other = world.mount(&server, "other", "connected");
    assert!(fs::read(other.path("second")).unwrap() == expected);
}

/// The kernel has the file itself, and looks nothing up.
#[test]
fn a_file_that_is_mounted_elsewhere_by_itself_can_be_written_to_beside_its_readers_and_after() {
    needs_passthrough!();
    let world = World::new();
    let server = world.server();
    let mount = world.mount(&server, "mount", "partial");
    let mut bytes = made(&mount, "file");
    let path = mount.path("file");
    let bound = world.folder("bound").join("file");
    fs::write(&bound, b"").unwrap();
    run(Command::new("mount").arg("--bind").args([&path, &bound])).succeeds();
    let reader = open_lent(&mount, &path);
    // A mapping could be written to unseen.
    let refused = File::options().read(true).write(true).open(&bound).map(drop);
    assert_eq!(crate::errno(refused), rustix::io::Errno::TXTBSY);
    let cached = both(&path);
    assert!(is_all(&cached, &bytes));
    let writer = File::options().write(true).open(&bound).unwrap();
    writer.write_all_at(b"bound", 7000).unwrap();
    bytes[7000..7005].copy_from_slice(b"bound");
    assert!(is_all(&reader, &bytes));
    eventually(SOON, "who has it cached sees it", || is_all(&cached, &bytes));
    drop((writer, reader, cached));
    eventually(SOON, "it is given back", || lent(&mount) == 0);
    let last = both(&bound);
    last.write_all_at(b"last", 9000).unwrap();
    bytes[9000..9004].copy_from_slice(b"last");
    assert!(is_all(&last, &bytes) && fs::read(&path).unwrap() == bytes);
    drop(last);
    truncate(&bound, 100_000).unwrap();
    assert!(fs::read(&path).unwrap() == bytes[..100_000]);
    run(Command::new("umount").arg(&bound)).succeeds();
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
        let writer = open_unseen(&mount, &path, File::options().write(true));
        writer.write_all_at(&[round; 3000], 70_000).unwrap();
        bytes[70_000..73_000].fill(round);
    }
    assert!(fs::read(&path).unwrap() == bytes);
    mount.wait();
    let other = world.mount(&server, "other", "connected");
    assert!(fs::read(other.path("file")).unwrap() == bytes);
}

/// Of all that is cached on this machine.
fn cached_bytes() -> u64 {
    let told = fs::read_to_string("/proc/meminfo").unwrap();
    let line = told.lines().find_map(|line| line.strip_prefix("Cached:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

/// As pages of the mount and of the container, of which the first serve nobody any more.
#[test]
fn what_was_written_by_way_of_the_daemon_is_not_kept_in_memory_twice() {
    needs_passthrough!();
    let world = World::new();
    let server = world.server();
    let mount = world.mount(&server, "mount", "partial");
    // The server caches nothing of it meanwhile.
    run(&mut mount.farfs("pause", &[])).succeeds();
    let (piece, pieces) = (noise(7, BYTES), 8);
    let path = mount.path("file");
    let before = cached_bytes();
    let file = File::create(&path).unwrap();
    for _ in 0..pieces {
        (&file).write_all(&piece).unwrap();
    }
    drop(file);
    let once = (pieces * BYTES) as u64;
    eventually(SOON, "it is there once", || cached_bytes() < before + once + once / 2);
    let file = open_lent(&mount, &path);
    for number in 0..pieces {
        let mut read = vec![0; BYTES];
        file.read_exact_at(&mut read, (number * BYTES) as u64).unwrap();
        assert!(read == piece);
    }
}
