//! Versions of a file that are open beside each other, since another machine has changed it.

use crate::raw::Mapping;
use e2e::contents::noise;
use e2e::mount::Wanted;
use e2e::{Mount, World, eventually, run};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

const BYTES: usize = 64 << 10;
const SOON: Duration = Duration::from_secs(30);

fn both(path: &Path) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

fn bytes(file: &File) -> Vec<u8> {
    let mut read = vec![0; 2 * BYTES];
    let length = file.read_at(&mut read, 0).unwrap();
    read.truncate(length);
    read
}

/// A file that `one` has open as it was, and `other` has changed in its place since.
fn changed_while_open(one: &Mount, other: &Mount) -> File {
    fs::write(one.path("file"), vec![b'1'; BYTES]).unwrap();
    one.wait();
    eventually(SOON, "the other has it", || {
        fs::read(other.path("file")).is_ok_and(|read| read == vec![b'1'; BYTES])
    });
    let older = both(&one.path("file"));
    assert!(bytes(&older) == vec![b'1'; BYTES]);
    both(&other.path("file")).write_all_at(&vec![b'2'; BYTES], 0).unwrap();
    other.wait();
    eventually(SOON, "what was changed is here", || {
        fs::read(one.path("file")).unwrap() == vec![b'2'; BYTES]
    });
    assert!(bytes(&older) == vec![b'1'; BYTES], "who has it open keeps it");
    older
}

/// The pages of the older version are in the kernel, and were taken for those of what was stored.
#[test]
fn what_is_written_beside_an_older_version_is_what_is_read_when_that_is_closed() {
    let world = World::new();
    let server = world.server();
    let one = world.mount(&server, "one", "partial");
    let other = world.mount(&server, "other", "partial");
    let older = changed_while_open(&one, &other);
    let path = one.path("file");
    both(&path).write_all_at(b"3", 0).unwrap();
    one.wait();
    assert!(bytes(&older) == vec![b'1'; BYTES]);
    drop(older);
    let mut expected = vec![b'2'; BYTES];
    expected[0] = b'3';
    for _ in 0..20 {
        // It asks for the size, so that it is opened as what the kernel may cache.
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(fs::metadata(&path).unwrap().len(), BYTES as u64);
        assert!(fs::read(&path).unwrap() == expected);
    }
}

/// Each is mapped, and has its own length, whichever is the longer one.
#[test]
fn versions_that_are_open_beside_each_other_are_each_mapped_with_its_own_length() {
    let world = World::new();
    let server = world.server();
    let one = world.mount(&server, "one", "partial");
    let other = world.mount(&server, "other", "partial");
    let path = one.path("file");
    let version = |number: usize| noise(number as u64, [20_000, 70_000, 5_000, 40_000][number]);
    let number = {
        fs::write(&path, version(0)).unwrap();
        one.wait();
        fs::metadata(&path).unwrap().ino()
    };
    let mut open: Vec<(File, Mapping, Mapping)> = Vec::new();
    for now in 0..4 {
        if now > 0 {
            eventually(SOON, "the other has it", || {
                fs::read(other.path("file")).is_ok_and(|read| read == version(now - 1))
            });
            fs::write(other.path("file"), version(now)).unwrap();
            other.wait();
            eventually(SOON, "it is here", || fs::read(&path).unwrap() == version(now));
        }
        let file = both(&path);
        let length = version(now).len();
        let shared = Mapping::shared(&file, length);
        let private = Mapping::private(&file, length);
        open.push((file, shared, private));
        for (of, (file, shared, private)) in open.iter().enumerate() {
            let expected = version(of);
            let length = expected.len();
            assert_eq!(file.metadata().unwrap().len(), length as u64, "{of} of {now}");
            assert_eq!(file.metadata().unwrap().ino(), number, "programs see one number");
            assert!(bytes(file) == expected, "{of} of {now}");
            assert!(shared.read(0, length) == expected, "{of} of {now}");
            assert!(private.read(0, length) == expected, "{of} of {now}");
        }
        assert_eq!(fs::metadata(&path).unwrap().len(), length as u64);
        assert!(fs::read(&path).unwrap() == version(now));
    }
    let (newest, mapping, _) = open.pop().unwrap();
    mapping.write(0, b"mapped");
    let mut expected = version(3);
    expected[..6].copy_from_slice(b"mapped");
    drop((newest, mapping, open));
    one.wait();
    assert!(fs::read(&path).unwrap() == expected);
    eventually(SOON, "the other sees it", || fs::read(other.path("file")).unwrap() == expected);
}

/// What is written to an older version through what was opened before stays apart from the newer one
/// until it is stored, and is then listed as a conflict or is the newest.
#[test]
fn what_is_written_to_an_older_version_is_not_seen_in_a_newer_one_that_is_open_beside() {
    let world = World::new();
    let server = world.server();
    let one = world.mount(&server, "one", "partial");
    let other = world.mount(&server, "other", "partial");
    let older = changed_while_open(&one, &other);
    let path = one.path("file");
    let newer = both(&path);
    let mapped = (Mapping::shared(&older, BYTES), Mapping::shared(&newer, BYTES));
    older.write_all_at(b"older", 100).unwrap();
    mapped.0.write(200, b"older");
    newer.write_all_at(b"newer", 300).unwrap();
    mapped.1.write(400, b"newer");
    let with = |byte: u8, places: [usize; 2], text: &[u8]| {
        let mut bytes = vec![byte; BYTES];
        for at in places {
            bytes[at..at + text.len()].copy_from_slice(text);
        }
        bytes
    };
    let (old, new) = (with(b'1', [100, 200], b"older"), with(b'2', [300, 400], b"newer"));
    assert!(bytes(&older) == old && mapped.0.read(0, BYTES) == old);
    assert!(bytes(&newer) == new && mapped.1.read(0, BYTES) == new);
    assert!(fs::read(&path).unwrap() == new, "whoever opens it gets the newer one");
    drop((newer, mapped.1));
    one.wait();
    assert!(fs::read(&path).unwrap() == new);
    assert!(bytes(&older) == old);
}

/// What was closed would be gone without a word.
#[test]
fn an_older_version_cannot_be_written_to_while_what_was_written_to_a_newer_one_is_pending() {
    let world = World::new();
    let server = world.server();
    let one = world.mount(&server, "one", "partial");
    let other = world.mount(&server, "other", "partial");
    let older = changed_while_open(&one, &other);
    let path = one.path("file");
    run(&mut one.farfs("mode", &["fetch-only"])).succeeds();
    both(&path).write_all_at(b"newer", 0).unwrap();
    let refused = older.write_all_at(b"older", 0).unwrap_err();
    assert_eq!(Errno::from_io_error(&refused), Some(Errno::STALE));
    let mut expected = vec![b'2'; BYTES];
    expected[..5].copy_from_slice(b"newer");
    assert!(fs::read(&path).unwrap() == expected);
    assert!(bytes(&older) == vec![b'1'; BYTES]);
    run(&mut one.farfs("mode", &["partial"])).succeeds();
    one.wait();
    older.write_all_at(b"older", 0).unwrap();
    drop(older);
    one.wait();
    // What was written upon the first version lies beside.
    assert!(fs::read(&path).unwrap() == expected);
    eventually(SOON, "the other has it", || fs::read(other.path("file")).unwrap() == expected);
}

/// Whoever has got the lock reads and appends to what the other has written, by whatever number he has
/// the file open.
#[test]
fn who_appends_under_a_lock_appends_to_what_the_others_have_appended() {
    let world = World::new();
    let server = world.server();
    let one = world.mount(&server, "one", "connected");
    let other = world.mount(&server, "other", "connected");
    let path = one.path("file");
    fs::write(&path, "begun ").unwrap();
    let appends = || File::options().read(true).append(true).open(&path).unwrap();
    let first = appends();
    assert_eq!(bytes(&first), b"begun ");
    File::options().append(true).open(other.path("file")).unwrap().write_all(b"other ").unwrap();
    eventually(SOON, "it is here", || fs::read(&path).unwrap() == b"begun other ");
    let second = appends();
    let mut expected = b"begun other ".to_vec();
    for round in 0..4 {
        for (mut file, who) in [(&first, "first"), (&second, "second")] {
            flock(file, FlockOperation::LockExclusive).unwrap();
            let text = format!("{who}{round} ");
            file.write_all(text.as_bytes()).unwrap();
            expected.extend_from_slice(text.as_bytes());
            assert_eq!(String::from_utf8(bytes(file)), String::from_utf8(expected.clone()));
            flock(file, FlockOperation::Unlock).unwrap();
        }
    }
    drop((first, second));
    assert!(fs::read(&path).unwrap() == expected);
    assert!(fs::read(other.path("file")).unwrap() == expected);
}

/// So large that after a kill each container is taken for one that the kernel may have been lent.
#[test]
fn what_was_written_to_two_versions_of_a_large_file_is_there_after_a_kill() {
    const LARGE: usize = 17 << 20;
    for older_first in [true, false] {
        let world = World::new();
        let server = world.server();
        let options = &["--passthrough", "off"][..];
        let wanted = Wanted { mode: "partial", options, ..Wanted::default() };
        let mut one = world.mount_with(&server, "one", wanted);
        let other = world.mount(&server, "other", "partial");
        let path = one.path("file");
        fs::write(&path, noise(1, LARGE)).unwrap();
        one.wait();
        eventually(SOON, "the other has it", || {
            fs::metadata(other.path("file")).is_ok_and(|told| told.len() == LARGE as u64)
        });
        let older = both(&path);
        fs::write(other.path("file"), noise(2, LARGE)).unwrap();
        other.wait();
        eventually(SOON, "what was changed is here", || {
            fs::read(&path).unwrap() == noise(2, LARGE)
        });
        let newer = both(&path);
        let mut writes = [(&older, b"older"), (&newer, b"newer")];
        if !older_first {
            writes.reverse();
        }
        for (file, mark) in writes {
            file.write_all_at(mark, 0).unwrap();
        }
        one.kill();
        drop((older, newer));
        one.again();
        one.wait();
        let marked = |mark: &[u8], number: u64| {
            let expected = [mark, &noise(number, LARGE)[mark.len()..]].concat();
            let there = fs::read_dir(&other.mountpoint).unwrap();
            there.filter(|it| fs::read(it.as_ref().unwrap().path()).unwrap() == expected).count()
        };
        eventually(SOON, "both are there", || (marked(b"older", 1), marked(b"newer", 2)) == (1, 1));
    }
}
