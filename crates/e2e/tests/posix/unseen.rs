//! Large files that the kernel writes by itself, into the cache.

use crate::passthrough::needs_passthrough;
use crate::quotas::set;
use crate::raw::{Mapping, truncate};
use e2e::contents::noise;
use e2e::mount::Wanted;
use e2e::{Mount, Server, World, eventually, run};
use rustix::fs::{
    FallocateFlags, FlockOperation, Timespec, Timestamps, fallocate, flock, futimens,
};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The least that is lent to who writes, and some more.
const BYTES: usize = (16 << 20) + 4321;
const SOON: Duration = Duration::from_secs(30);

pub fn lent(mount: &Mount) -> u64 {
    mount.status()["passthrough"]["files"].as_u64().unwrap()
}

fn to_write() -> fs::OpenOptions {
    let mut options = File::options();
    options.write(true);
    options
}

fn both() -> fs::OpenOptions {
    let mut options = File::options();
    options.read(true).write(true);
    options
}

/// A file that was written and closed once, and is at the server.
fn made(mount: &Mount, name: &str) -> Vec<u8> {
    let bytes = noise(1, BYTES);
    fs::write(mount.path(name), &bytes).unwrap();
    mount.wait();
    bytes
}

/// Opens it so that the kernel writes to it itself, as soon as it may.
pub fn open_unseen(mount: &Mount, path: &Path, options: &fs::OpenOptions) -> File {
    let (mut file, mut tries) = (None, 0);
    eventually(SOON, "the kernel writes it itself", || {
        if let Some(before) = file.take() {
            drop(before);
            // What was lent until now is taken back in the meantime.
            std::thread::sleep(Duration::from_millis(300));
        }
        let before = lent(mount);
        file = Some(options.open(path).unwrap());
        let is_lent = lent(mount) == before + 1;
        tries += 1;
        // The link may have been measured in a moment in which it was not fast.
        if !is_lent && tries % 5 == 0 {
            drop(file.take());
            let measured = mount.path("measured");
            fs::write(&measured, noise(1000 + tries, BYTES)).unwrap();
            mount.wait();
            fs::remove_file(&measured).unwrap();
        }
        is_lent
    });
    file.unwrap()
}

/// For what is done while nothing is sent, so that the link could not be measured again.
fn is_fast(mount: &Mount, path: &Path) {
    drop(open_unseen(mount, path, &to_write()));
    mount.wait();
}

fn overwrite(bytes: &mut [u8], file: &File, offset: usize, with: &[u8]) {
    file.write_all_at(with, offset as u64).unwrap();
    bytes[offset..offset + with.len()].copy_from_slice(with);
}

/// Another device sees these bytes, and this one does.
fn is_everywhere(world: &World, server: &Server, mount: &Mount, name: &str, bytes: &[u8]) {
    assert!(fs::read(mount.path(name)).unwrap() == bytes, "here");
    mount.wait();
    let other = world.mount(server, "other", "connected");
    assert!(fs::read(other.path(name)).unwrap() == bytes, "elsewhere");
    let here = fs::metadata(mount.path(name)).unwrap();
    let there = fs::metadata(other.path(name)).unwrap();
    assert_eq!((here.mtime(), here.mtime_nsec()), (there.mtime(), there.mtime_nsec()));
    assert_eq!(here.len(), there.len());
}

fn store_is_pending(mount: &Mount, name: &str) -> bool {
    let said = run(&mut mount.farfs("log", &[])).succeeds();
    said.lines().any(|line| line.contains(name) && line.contains("stored"))
}

#[test]
fn a_large_file_is_written_while_the_daemon_stands_still_and_stored_when_it_is_closed() {
    needs_passthrough!();
    let world = World::new();
    let server = world.server();
    let mount = world.mount(&server, "mount", "partial");
    let mut bytes = made(&mount, "file");
    let path = mount.path("file");
    let file = open_unseen(&mount, &path, &to_write());
    let before = fs::metadata(&path).unwrap();
    // With the first write the kernel asks whether the file has privileges to lose.
    overwrite(&mut bytes, &file, 10, b"first");
    mount.process().signal(Signal::STOP);
    let outcome = file.write_all_at(b"unseen", 5_000_000);
    let grown = file.write_all_at(b"beyond", BYTES as u64);
    mount.process().signal(Signal::CONT);
    outcome.and(grown).unwrap();
    bytes[5_000_000..5_000_006].copy_from_slice(b"unseen");
    bytes.extend(b"beyond");
    // Who looks at it sees it at once.
    let now = fs::metadata(&path).unwrap();
    assert_eq!(now.len(), bytes.len() as u64);
    assert!((now.mtime(), now.mtime_nsec()) > (before.mtime(), before.mtime_nsec()));
    assert!(fs::read(&path).unwrap() == bytes);
    drop(file);
    let closed = fs::metadata(&path).unwrap();
    assert_eq!((closed.mtime(), closed.mtime_nsec()), (now.mtime(), now.mtime_nsec()));
    is_everywhere(&world, &server, &mount, "file", &bytes);
    let stored = fs::metadata(&path).unwrap();
    assert_eq!((stored.mtime(), stored.mtime_nsec()), (now.mtime(), now.mtime_nsec()));
    eventually(SOON, "it is given back", || lent(&mount) == 0);
}

/// What a program did after it had closed a file must not be elsewhere before that.
#[test]
fn what_is_done_after_the_close_is_logged_after_what_was_written() {
    needs_passthrough!();
    let world = World::new();
    let server = world.server();
    let mount = world.mount(&server, "mount", "partial");
    let mut bytes = made(&mount, "file");
    is_fast(&mount, &mount.path("file"));
    run(&mut mount.farfs("pause", &[])).succeeds();
    for round in 0..4_u8 {
        let file = open_unseen(&mount, &mount.path("file"), &to_write());
        overwrite(&mut bytes, &file, 100_000, &[round; 5000]);
        drop(file);
        match round {
            0 => fs::write(mount.path("marker"), b"it is done").unwrap(),
            1 => fs::rename(mount.path("marker"), mount.path("mark")).unwrap(),
            2 => fs::set_permissions(mount.path("mark"), PermissionsExt::from_mode(0o600)).unwrap(),
            _ => fs::remove_file(mount.path("mark")).unwrap(),
        }
        assert!(store_is_pending(&mount, "file"), "{round}");
    }
    run(&mut mount.farfs("resume", &[])).succeeds();
    is_everywhere(&world, &server, &mount, "file", &bytes);
}

#[test]
fn what_was_opened_to_write_and_only_read_is_stored_by_nobody() {
    needs_passthrough!();
    let world = World::new();
    let server = world.server();
    let mount = world.mount(&server, "mount", "partial");
    let bytes = made(&mount, "file");
    let path = mount.path("file");
    let version = || run(&mut world.farfs(&["explain", path.to_str().unwrap()])).succeeds();
    let (before, there) = (version(), fs::metadata(&path).unwrap());
    is_fast(&mount, &path);
    run(&mut mount.farfs("pause", &[])).succeeds();
    let file = open_unseen(&mount, &path, &both());
    let mut read = vec![0; BYTES];
    file.read_exact_at(&mut read, 0).unwrap();
    assert!(read == bytes);
    drop(file);
    eventually(SOON, "nothing is pending", || mount.pending() == 0 && lent(&mount) == 0);
    let now = fs::metadata(&path).unwrap();
    assert_eq!((now.mtime(), now.mtime_nsec()), (there.mtime(), there.mtime_nsec()));
    eventually(SOON, "it is the same version", || version() == before);
}

#[test]
fn who_syncs_or_locks_has_each_version_stored_from_then_on() {
    needs_passthrough!();
    let world = World::new();
    let server = world.server();
    let mut mount = world.mount(&server, "mount", "partial");
    let mut bytes = made(&mount, "synced");
    fs::write(mount.path("locked"), &bytes).unwrap();
    mount.wait();
    let file = open_unseen(&mount, &mount.path("synced"), &to_write());
    overwrite(&mut bytes, &file, 7, b"synced");
    file.sync_all().unwrap();
    drop(file);
    let locked = open_unseen(&mount, &mount.path("locked"), &to_write());
    flock(&locked, FlockOperation::NonBlockingLockExclusive).unwrap();
    // Only what is stored says so over a new mount.
    locked.write_all_at(b"locked", 0).unwrap();
    drop(locked);
    mount.wait();
    made(&mount, "written");
    for _ in 0..2 {
        for name in ["synced", "locked"] {
            eventually(SOON, "it is given back", || lent(&mount) == 0);
            let file = to_write().open(mount.path(name)).unwrap();
            assert_eq!(lent(&mount), 0, "{name}");
            drop(file);
        }
        mount.unmount(&[]);
        mount.again();
        drop(open_unseen(&mount, &mount.path("written"), &to_write()));
    }
    is_everywhere(&world, &server, &mount, "synced", &bytes);
}

#[test]
fn times_that_are_set_are_those_of_the_last_to_set_them() {
    needs_passthrough!();
    let world = World::new();
    let server = world.server();
    let mount = world.mount(&server, "mount", "partial");
    let mut bytes = made(&mount, "file");
    let path = mount.path("file");
    let set = |file: &File| {
        let at = Timespec { tv_sec: 1_000_000_000, tv_nsec: 5 };
        futimens(file, &Timestamps { last_access: at, last_modification: at }).unwrap();
    };
    let file = open_unseen(&mount, &path, &to_write());
    overwrite(&mut bytes, &file, 1000, b"before");
    set(&file);
    assert_eq!(file.metadata().unwrap().mtime(), 1_000_000_000);
    drop(file);
    mount.wait();
    let after = fs::metadata(&path).unwrap();
    assert_eq!((after.mtime(), after.mtime_nsec()), (1_000_000_000, 5));
    let file = open_unseen(&mount, &path, &to_write());
    set(&file);
    overwrite(&mut bytes, &file, 2000, b"after");
    drop(file);
    assert!(fs::metadata(&path).unwrap().mtime() > 1_700_000_000);
    is_everywhere(&world, &server, &mount, "file", &bytes);
}

#[test]
fn all_that_can_be_done_to_an_open_file_can_be_done_to_it() {
    needs_passthrough!();
    let world = World::new();
    let server = world.server();
    let mount = world.mount(&server, "mount", "partial");
    let mut bytes = made(&mount, "file");
    let path = mount.path("file");
    let file = open_unseen(&mount, &path, &both());
    let mut appends = File::options().append(true).open(&path).unwrap();
    let reader = File::open(&path).unwrap();
    appends.write_all(b"at the end").unwrap();
    bytes.extend(b"at the end");
    overwrite(&mut bytes, &file, 123, b"in the midst");
    let mut seen = vec![0; bytes.len()];
    reader.read_exact_at(&mut seen, 0).unwrap();
    assert!(seen == bytes, "readers share it");
    fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 4096, 8192).unwrap();
    bytes[4096..4096 + 8192].fill(0);
    let length = BYTES - 1_000_000;
    file.set_len(length as u64).unwrap();
    bytes.truncate(length);
    appends.write_all(b"again").unwrap();
    bytes.extend(b"again");
    truncate(&path, length as i64 + 2).unwrap();
    bytes.truncate(length + 2);
    let mapping = Mapping::shared(&file, bytes.len());
    mapping.write(50_000, b"mapped");
    bytes[50_000..50_006].copy_from_slice(b"mapped");
    assert_eq!(fs::metadata(&path).unwrap().len(), bytes.len() as u64);
    drop((file, appends));
    // The mapping is still there, and so is who reads.
    mapping.write(60_000, b"later");
    bytes[60_000..60_005].copy_from_slice(b"later");
    drop(mapping);
    mount.wait();
    let again = both().open(&path).unwrap();
    overwrite(&mut bytes, &again, 0, b"beside a reader");
    let mut seen = vec![0; bytes.len()];
    reader.read_exact_at(&mut seen, 0).unwrap();
    assert!(seen == bytes);
    drop((again, reader));
    eventually(SOON, "it is given back", || lent(&mount) == 0);
    is_everywhere(&world, &server, &mount, "file", &bytes);
}

#[test]
fn it_is_cut_or_removed_while_the_kernel_writes_to_it() {
    needs_passthrough!();
    let world = World::new();
    let server = world.server();
    let mount = world.mount(&server, "mount", "partial");
    made(&mount, "cut");
    let path = mount.path("cut");
    let file = open_unseen(&mount, &path, &both());
    let again = to_write().truncate(true).open(&path).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 0);
    file.write_all_at(b"from the first", 0).unwrap();
    again.write_all_at(b"From", 0).unwrap();
    drop((file, again));
    is_everywhere(&world, &server, &mount, "cut", b"From the first");
    let bytes = made(&mount, "gone");
    let file = open_unseen(&mount, &mount.path("gone"), &both());
    file.write_all_at(b"kept", 0).unwrap();
    fs::remove_file(mount.path("gone")).unwrap();
    let mut read = vec![0; BYTES];
    file.read_exact_at(&mut read, 0).unwrap();
    assert!(&read[..4] == b"kept" && read[4..] == bytes[4..]);
    drop(file);
    fs::write(mount.path("gone"), b"another").unwrap();
    assert_eq!(fs::read(mount.path("gone")).unwrap(), b"another");
    mount.wait();
    eventually(SOON, "it is given back", || lent(&mount) == 0);
}

#[test]
fn after_a_kill_what_the_kernel_wrote_is_stored_and_nobody_changes_it_any_more() {
    needs_passthrough!();
    let world = World::new();
    let server = world.server();
    let mut mount = world.mount(&server, "mount", "partial");
    let mut bytes = made(&mount, "file");
    made(&mount, "closed");
    let path = mount.path("file");
    let file = open_unseen(&mount, &path, &both());
    overwrite(&mut bytes, &file, 9_000_000, b"before the kill");
    let closed = open_unseen(&mount, &mount.path("closed"), &to_write());
    closed.write_all_at(b"closed", 0).unwrap();
    drop(closed);
    mount.kill();
    mount.again();
    // Its mount is gone, and the kernel lets it write on all the same.
    let _ = file.write_all_at(b"after the kill", 9_000_000);
    assert!(fs::read(&path).unwrap() == bytes);
    assert_eq!(&fs::read(mount.path("closed")).unwrap()[..6], b"closed");
    drop(file);
    is_everywhere(&world, &server, &mount, "file", &bytes);
}

#[test]
fn after_a_kill_what_was_cut_is_nobodys_to_change_either() {
    needs_passthrough!();
    let world = World::new();
    let server = world.server();
    let mut mount = world.mount(&server, "mount", "partial");
    let mut bytes = made(&mount, "file");
    let path = mount.path("file");
    let file = open_unseen(&mount, &path, &both());
    // It is one of those now that the kernel would not have got.
    file.set_len(1_000_000).unwrap();
    bytes.truncate(1_000_000);
    overwrite(&mut bytes, &file, 900_000, b"before the kill");
    mount.kill();
    mount.again();
    let _ = file.write_all_at(b"after the kill", 900_000);
    assert!(fs::read(&path).unwrap() == bytes);
    drop(file);
    is_everywhere(&world, &server, &mount, "file", &bytes);
}

#[test]
fn where_a_quota_counts_or_calls_wait_the_daemon_writes() {
    needs_passthrough!();
    let world = World::new();
    let server = world.server();
    let mut mount = world.mount(&server, "mount", "connected");
    let path = mount.path("file");
    made(&mount, "file");
    let file = both().open(&path).unwrap();
    assert_eq!(lent(&mount), 0, "calls wait");
    drop(file);
    mount.set_mode("partial");
    drop(open_unseen(&mount, &path, &both()));
    mount.wait();
    set(&server, &["--quota", "1G"]);
    eventually(SOON, "the quota is known", || {
        fs::write(mount.path("small"), b"news").unwrap();
        let file = both().open(&path).unwrap();
        let is_lent = lent(&mount) > 0;
        drop(file);
        !is_lent
    });
}

#[test]
fn where_each_close_makes_what_was_written_safe_the_daemon_writes() {
    needs_passthrough!();
    let world = World::new();
    let server = world.server();
    let options = &["--answer-within", "10s", "--durability", "sync"][..];
    let wanted = Wanted { mode: "partial", options, ..Wanted::default() };
    let mount = world.mount_with(&server, "mount", wanted);
    made(&mount, "file");
    for _ in 0..5 {
        let file = to_write().open(mount.path("file")).unwrap();
        assert_eq!(lent(&mount), 0);
        file.write_all_at(b"synced", 0).unwrap();
    }
}

/// As a shell closes copies of what its output goes to, with each program that it starts.
#[test]
fn who_closes_copies_without_end_holds_nobody_up() {
    needs_passthrough!();
    let world = World::new();
    let server = world.server();
    let mount = world.mount(&server, "mount", "partial");
    let mut bytes = made(&mount, "file");
    let file = open_unseen(&mount, &mount.path("file"), &to_write());
    let (begun, ends) = (AtomicU32::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let closes = scope.spawn(|| {
            let start = Instant::now();
            while !ends.load(Ordering::Acquire) && start.elapsed() < SOON {
                drop(file.try_clone().unwrap());
                begun.fetch_add(1, Ordering::AcqRel);
            }
            start.elapsed() < SOON
        });
        eventually(SOON, "copies are closed", || begun.load(Ordering::Acquire) > 10);
        for name in ["first", "second"] {
            fs::create_dir(mount.path(name)).unwrap();
        }
        ends.store(true, Ordering::Release);
        assert!(closes.join().unwrap(), "directories are made meanwhile");
    });
    overwrite(&mut bytes, &file, 77, b"at the end");
    drop(file);
    is_everywhere(&world, &server, &mount, "file", &bytes);
}

/// What is closed is stored afterwards, which nobody can wait for.
#[test]
fn who_comes_while_the_kernel_writes_sees_it_a_moment_after_it_is_closed() {
    needs_passthrough!();
    let world = World::new();
    let server = world.server();
    let mount = world.mount_with(&server, "mount", Wanted { mode: "auto", ..Wanted::default() });
    let mut bytes = made(&mount, "file");
    fs::write(mount.path("locked"), b"small").unwrap();
    eventually(SOON, "it is alone", || mount.mode() == "partial");
    let path = mount.path("file");
    let file = open_unseen(&mount, &path, &both());
    overwrite(&mut bytes, &file, 0, b"alone");
    let locked = both().open(mount.path("locked")).unwrap();
    flock(&locked, FlockOperation::NonBlockingLockExclusive).unwrap();
    let other = world.mount(&server, "other", "connected");
    other.path("file").metadata().unwrap();
    eventually(SOON, "calls wait", || mount.mode() == "connected");
    // What has nothing to do with it is as ever.
    let elsewhere = both().open(other.path("locked")).unwrap();
    let refused = flock(&elsewhere, FlockOperation::NonBlockingLockExclusive);
    assert_eq!(refused, Err(rustix::io::Errno::WOULDBLOCK));
    // What would be written under a lock of it could not be stored in time.
    let refused = flock(&file, FlockOperation::NonBlockingLockExclusive);
    assert_eq!(refused, Err(rustix::io::Errno::BUSY));
    overwrite(&mut bytes, &file, 8_000_000, b"in company");
    drop(file);
    eventually(SOON, "it is there", || fs::read(other.path("file")).unwrap() == bytes);
    assert!(fs::read(&path).unwrap() == bytes);
}

#[test]
fn what_was_locked_while_the_kernel_writes_stays_locked_for_who_comes_until_it_is_stored() {
    needs_passthrough!();
    let world = World::new();
    let server = world.server();
    let mount = world.mount_with(&server, "mount", Wanted { mode: "auto", ..Wanted::default() });
    let mut bytes = made(&mount, "file");
    eventually(SOON, "it is alone", || mount.mode() == "partial");
    let file = open_unseen(&mount, &mount.path("file"), &both());
    flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
    overwrite(&mut bytes, &file, 0, b"alone");
    let other = world.mount(&server, "other", "connected");
    let elsewhere = both().open(other.path("file")).unwrap();
    eventually(SOON, "calls wait", || mount.mode() == "connected");
    let refused = flock(&elsewhere, FlockOperation::NonBlockingLockExclusive);
    assert_eq!(refused, Err(rustix::io::Errno::WOULDBLOCK));
    overwrite(&mut bytes, &file, 8_000_000, b"in company");
    drop(file);
    flock(&elsewhere, FlockOperation::LockExclusive).unwrap();
    let mut read = vec![0; BYTES];
    elsewhere.read_exact_at(&mut read, 0).unwrap();
    assert!(read == bytes, "what was written under the lock is read under it");
}

/// The kernel says that a file is closed when only a mapping is left of it.
#[test]
fn what_is_written_to_a_mapping_after_the_close_is_stored() {
    needs_passthrough!();
    let world = World::new();
    let server = world.server();
    let mount = world.mount(&server, "mount", "partial");
    let mut bytes = made(&mount, "file");
    let path = mount.path("file");
    let file = open_unseen(&mount, &path, &both());
    overwrite(&mut bytes, &file, 0, b"written");
    let mapping = Mapping::shared(&file, BYTES);
    drop(file);
    std::thread::sleep(Duration::from_secs(1));
    mapping.write(70_000, b"after the close");
    bytes[70_000..70_015].copy_from_slice(b"after the close");
    assert_eq!(lent(&mount), 1, "it is mapped");
    assert!(fs::read(&path).unwrap() == bytes, "who opens it shares it");
    fs::write(mount.path("other"), b"is not held up").unwrap();
    drop(mapping);
    eventually(SOON, "it is given back", || lent(&mount) == 0);
    is_everywhere(&world, &server, &mount, "file", &bytes);
}

#[test]
fn what_one_writes_while_the_version_before_is_being_stored_is_stored_too() {
    needs_passthrough!();
    let world = World::new();
    let server = world.server();
    let mount = world.mount(&server, "mount", "partial");
    let mut bytes = made(&mount, "file");
    let path = mount.path("file");
    let first = open_unseen(&mount, &path, &to_write());
    // With it open the file stays lent.
    let reader = File::open(&path).unwrap();
    drop(first);
    for round in 0..30_u64 {
        let file = to_write().open(&path).unwrap();
        overwrite(&mut bytes, &file, 0, &round.to_le_bytes());
        drop(file);
        std::thread::sleep(Duration::from_millis(round % 6));
    }
    mount.wait();
    let other = world.mount(&server, "elsewhere", "connected");
    assert!(fs::read(other.path("file")).unwrap() == bytes, "who reads holds up nothing");
    drop(reader);
    is_everywhere(&world, &server, &mount, "file", &bytes);
}

/// A file as programs that share it see it, and what of it they have open.
struct Model {
    bytes: Vec<u8>,
    open: Vec<(File, bool)>,
    mapped: Vec<Mapping>,
}

/// Draws what to do next from noise.
struct Draw {
    seed: u64,
    count: u64,
}

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.count += 1;
        let drawn: [u8; 8] = noise(self.seed * 1_000_003 + self.count, 8).try_into().unwrap();
        (u64::from_le_bytes(drawn) % bound as u64) as usize
    }
}

/// No file gets shorter, as what is mapped must be there.
const KEPT: usize = 8 << 20;

fn do_something(path: &Path, model: &mut Model, draw: &mut Draw) {
    let Model { bytes, open, mapped } = model;
    let which = draw.below(10);
    let chosen = (!open.is_empty()).then(|| draw.below(open.len()));
    match (which, chosen) {
        (0 | 1, _) if open.len() < 5 => {
            let (read, write) = [(true, false), (false, true), (true, true)][draw.below(3)];
            let file = File::options().read(read).write(write).open(path).unwrap();
            open.push((file, write));
        }
        (2, Some(chosen)) => drop(open.swap_remove(chosen)),
        (3 | 4, Some(chosen)) if open[chosen].1 => {
            let offset = draw.below(bytes.len());
            let with = noise(draw.count, 1 + draw.below(50_000));
            bytes.resize(bytes.len().max(offset + with.len()), 0);
            overwrite(bytes, &open[chosen].0, offset, &with);
        }
        (5, Some(chosen)) if open[chosen].1 => {
            let length = KEPT + draw.below(BYTES);
            open[chosen].0.set_len(length as u64).unwrap();
            bytes.resize(length, 0);
        }
        (6, Some(chosen)) if mapped.len() < 3 => {
            // Who cannot read or write it cannot map it so.
            let file = &open[chosen].0;
            let flags = rustix::fs::fcntl_getfl(file).unwrap();
            if flags.contains(rustix::fs::OFlags::RDWR) {
                mapped.push(Mapping::shared(file, KEPT));
            }
        }
        (7, _) if !mapped.is_empty() => {
            let (offset, with) = (draw.below(KEPT - 3000), noise(draw.count, 3000));
            let chosen = draw.below(mapped.len());
            mapped[chosen].write(offset, &with);
            bytes[offset..offset + with.len()].copy_from_slice(&with);
        }
        (8, _) if !mapped.is_empty() => drop(mapped.swap_remove(draw.below(mapped.len()))),
        (9, _) => {
            for _ in 0..3 {
                let file = to_write().open(path).unwrap();
                let with = noise(draw.count, 500);
                overwrite(bytes, &file, draw.below(KEPT), &with);
                drop(file);
                std::thread::sleep(Duration::from_millis(draw.below(6) as u64));
            }
        }
        _ => {}
    }
    assert_eq!(fs::metadata(path).unwrap().len(), bytes.len() as u64);
}

/// The last seed that it tells of is the failing one; `FARFS_E2E_SEED` has it drawn again.
#[test]
fn whatever_programs_do_with_it_all_of_them_see_it_and_it_is_stored() {
    needs_passthrough!();
    let world = World::new();
    let server = world.server();
    let mount = world.mount(&server, "mount", "partial");
    let other = world.mount(&server, "elsewhere", "connected");
    let wanted = std::env::var("FARFS_E2E_SEED").ok().and_then(|seed| seed.parse().ok());
    let drawn = wanted.unwrap_or_else(|| u64::from(std::process::id()));
    for seed in [1, 2, drawn] {
        println!("seed {seed}");
        let name = format!("file {seed}");
        let bytes = made(&mount, &name);
        let path = mount.path(&name);
        drop(open_unseen(&mount, &path, &both()));
        let mut model = Model { bytes, open: Vec::new(), mapped: Vec::new() };
        let mut draw = Draw { seed, count: 0 };
        for step in 0..120 {
            do_something(&path, &mut model, &mut draw);
            if step % 40 == 39 {
                model.open.clear();
                assert!(fs::read(&path).unwrap() == model.bytes, "seed {seed}, step {step}");
            }
        }
        model.mapped.clear();
        mount.wait();
        assert!(fs::read(&path).unwrap() == model.bytes, "seed {seed}");
        let there = || fs::read(other.path(&name)).unwrap() == model.bytes;
        eventually(SOON, &format!("seed {seed}: it is elsewhere"), there);
    }
}

/// Each change of the volume stores what was closed before it. One that has come upon a file for that lets
/// alone what is written to it since it was opened again.
#[test]
fn what_is_opened_again_while_others_store_what_was_closed_is_whole() {
    needs_passthrough!();
    const ROUNDS: u64 = 100;
    let world = World::new();
    let server = world.server();
    let mount = world.mount(&server, "mount", "partial");
    let mut bytes = made(&mount, "file");
    let path = mount.path("file");
    drop(open_unseen(&mount, &path, &both()));
    let goes_on = AtomicBool::new(true);
    let change = |number: u64| {
        for count in (0_u64..).take_while(|_| goes_on.load(Ordering::Relaxed)) {
            let directory = mount.path(format!("directory-{number}-{}", count % 7));
            fs::create_dir(&directory).unwrap();
            fs::remove_dir(&directory).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let mut write = || {
        let mut draw = Draw { seed: 7, count: 0 };
        for round in 0..ROUNDS {
            let file = both().open(&path).unwrap();
            overwrite(&mut bytes, &file, draw.below(KEPT), &round.to_le_bytes());
            drop(file);
            std::thread::sleep(Duration::from_millis(draw.below(4) as u64));
            let file = to_write().open(&path).unwrap();
            for _ in 0..draw.below(50) {
                overwrite(&mut bytes, &file, draw.below(KEPT), &round.to_le_bytes());
                let length = 2 * KEPT + draw.below(KEPT / 4);
                file.set_len(length as u64).unwrap();
                bytes.resize(length, 0);
                assert_eq!(file.metadata().unwrap().len(), length as u64, "round {round}");
                std::thread::sleep(Duration::from_micros(draw.below(1000) as u64));
            }
        }
    };
    std::thread::scope(|scope| {
        (0..4).for_each(|number| drop(scope.spawn(move || change(number))));
        write();
        goes_on.store(false, Ordering::Relaxed);
    });
    is_everywhere(&world, &server, &mount, "file", &bytes);
}
