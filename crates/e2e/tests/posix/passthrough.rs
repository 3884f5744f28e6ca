//! Files that the kernel reads by itself, from the cache.

use crate::raw::{Mapping, truncate};
use crate::unseen::lent;
use crate::{errno, in_both_modes};
use e2e::contents::noise;
use e2e::disk::Disk;
use e2e::mount::Wanted;
use e2e::{Mount, World, eventually, run};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::Signal;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const BYTES: usize = (2 << 20) + 100;
const SOON: Duration = Duration::from_secs(20);

/// Why these tests cannot run here, if they cannot.
pub(crate) fn hindrance() -> Option<&'static str> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map(|number| number.parse().unwrap_or(0));
    let version: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if !rustix::process::geteuid().is_root() {
        return Some("only root may have the kernel read files itself");
    }
    (version < (6, 9)).then_some("the kernel is older than 6.9")
}

macro_rules! needs_passthrough {
    () => {
        if let Some(why) = $crate::passthrough::hindrance() {
            println!("not run: {why}");
            return;
        }
    };
}
pub(crate) use needs_passthrough;

fn make(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o444)).unwrap();
}

/// Opens it so that the kernel reads it itself, as soon as whoever wrote it has closed it.
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

fn all_of(file: &File, bytes: usize) -> Vec<u8> {
    let mut read = vec![0; bytes];
    file.read_exact_at(&mut read, 0).unwrap();
    assert_eq!(file.read_at(&mut [0; 10], bytes as u64).unwrap(), 0, "it ends there");
    read
}

#[test]
fn what_nobody_may_write_to_is_read_while_the_daemon_stands_still() {
    needs_passthrough!();
    in_both_modes(|mount| {
        let path = mount.path("file");
        make(&path, &noise(1, BYTES));
        let (file, again) = (open_lent(mount, &path), File::open(&path).unwrap());
        mount.process().signal(Signal::STOP);
        let read = all_of(&file, BYTES) == noise(1, BYTES);
        let read_again = all_of(&again, BYTES) == noise(1, BYTES);
        let mapped = Mapping::shared_to_read(&file, BYTES).read(0, BYTES) == noise(1, BYTES);
        let private = Mapping::private(&again, BYTES).read(0, BYTES) == noise(1, BYTES);
        mount.process().signal(Signal::CONT);
        assert!(read && read_again && mapped && private);
        drop(file);
        assert_eq!(lent(mount), 1, "another has it open");
        drop(again);
        eventually(SOON, "what is closed is given back", || lent(mount) == 0);
        // By turns with what the daemon reads.
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let file = File::open(&path).unwrap();
        assert!(all_of(&file, BYTES) == noise(1, BYTES) && lent(mount) == 0);
        fs::set_permissions(&path, Permissions::from_mode(0o444)).unwrap();
        let beside = File::open(&path).unwrap();
        assert!(all_of(&beside, BYTES) == noise(1, BYTES));
        assert_eq!(lent(mount), 0, "of a file all are read in one way");
    });
}

#[test]
fn what_is_small_or_may_be_written_to_is_read_by_way_of_the_daemon() {
    needs_passthrough!();
    in_both_modes(|mount| {
        make(&mount.path("small"), &noise(1, 1000));
        fs::write(mount.path("writable"), noise(2, BYTES)).unwrap();
        make(&mount.path("written"), &noise(3, BYTES));
        for (name, bytes) in [("small", 1000), ("writable", BYTES), ("written", BYTES)] {
            let path = mount.path(name);
            let writer = (name == "written").then(|| File::options().append(true).open(&path));
            let file = File::open(&path).unwrap();
            assert_eq!(all_of(&file, bytes).len(), bytes);
            assert_eq!(lent(mount), 0, "{name}");
            drop((file, writer));
        }
    });
}

#[test]
fn what_is_changed_beside_who_reads_is_seen_at_once_and_stored() {
    needs_passthrough!();
    in_both_modes(|mount| {
        let path = mount.path("file");
        make(&path, &noise(1, BYTES));
        let file = open_lent(mount, &path);
        let mapped = Mapping::shared_to_read(&file, BYTES);
        // Who could write to a mapping unseen opens it beside.
        let both = File::options().read(true).write(true).open(&path).unwrap();
        let written = Mapping::shared(&both, BYTES);
        written.write(0, b"mapped");
        assert_eq!(&written.read(0, 6), b"mapped");
        let mut read = [0; 6];
        both.read_exact_at(&mut read, 0).unwrap();
        assert_eq!(&read, b"mapped");
        eventually(SOON, "readers see what was written to a mapping", || {
            file.read_exact_at(&mut read, 0).unwrap();
            &read == b"mapped" && mapped.read(0, 6) == b"mapped"
        });
        drop((written, both));
        let writer = File::options().write(true).open(&path).unwrap();
        writer.write_all_at(b"beside", 70_000).unwrap();
        let mut read = [0; 6];
        file.read_exact_at(&mut read, 70_000).unwrap();
        assert_eq!((&read, &mapped.read(70_000, 6)[..]), (b"beside", &b"beside"[..]));
        drop(writer);
        let mut appends = File::options().append(true).open(&path).unwrap();
        std::io::Write::write_all(&mut appends, b"the end").unwrap();
        appends.sync_all().unwrap();
        let mut expected = noise(1, BYTES);
        expected[..6].copy_from_slice(b"mapped");
        expected[70_000..70_006].copy_from_slice(b"beside");
        expected.extend(b"the end");
        assert!(all_of(&file, expected.len()) == expected);
        assert_eq!(file.metadata().unwrap().len(), expected.len() as u64);
        drop((appends, mapped));
        truncate(&path, 100_000).unwrap();
        assert!(all_of(&file, 100_000) == expected[..100_000]);
        assert_eq!(lent(mount), 1);
        drop(file);
        eventually(SOON, "what is closed is given back", || lent(mount) == 0);
        assert!(fs::read(&path).unwrap() == expected[..100_000]);
    });
}

#[test]
fn a_program_is_run_and_a_file_without_a_name_is_read_from_the_cache() {
    needs_passthrough!();
    in_both_modes(|mount| {
        let program = mount.path("program");
        fs::copy("/bin/bash", &program).unwrap();
        fs::set_permissions(&program, Permissions::from_mode(0o555)).unwrap();
        let held = open_lent(mount, &program);
        let said = run(Command::new(&program).args(["-c", "echo $((6 * 7))"])).succeeds();
        assert_eq!((said.trim(), lent(mount)), ("42", 1));
        drop(held);
        let path = mount.path("gone");
        make(&path, &noise(4, BYTES));
        let file = open_lent(mount, &path);
        fs::remove_file(&path).unwrap();
        assert!(all_of(&file, BYTES) == noise(4, BYTES));
        // And a new one of the same name is another file.
        make(&path, &noise(5, BYTES));
        assert!(all_of(&open_lent(mount, &path), BYTES) == noise(5, BYTES));
        assert!(all_of(&file, BYTES) == noise(4, BYTES));
    });
}

/// The kernel can be lent one container for an inode at a time, and would map the older one.
#[test]
fn who_reads_goes_on_with_the_version_that_was_opened_and_nobody_mixes_two() {
    needs_passthrough!();
    let world = World::new();
    let server = world.server();
    let here = world.mount(&server, "here", "connected");
    let there = world.mount(&server, "there", "connected");
    let path = here.path("file");
    make(&path, &noise(1, BYTES));
    let file = open_lent(&here, &path);
    let writer = File::options().write(true).open(there.path("file")).unwrap();
    writer.write_all_at(b"newer", 5_000).unwrap();
    drop(writer);
    let mut expected = noise(1, BYTES);
    expected[5_000..5_005].copy_from_slice(b"newer");
    eventually(SOON, "the newer version is known", || fs::read(&path).unwrap() == expected);
    let newer = File::open(&path).unwrap();
    assert!(Mapping::shared_to_read(&newer, BYTES).read(0, BYTES) == expected);
    let number = |file: &File| file.metadata().unwrap().ino();
    let shown = fs::metadata(&path).unwrap().ino();
    assert_eq!((number(&newer), number(&file)), (shown, shown));
    let writer = File::options().write(true).open(&path).unwrap();
    writer.write_all_at(b"newest", 9_000).unwrap();
    drop(writer);
    expected[9_000..9_006].copy_from_slice(b"newest");
    assert!(all_of(&newer, BYTES) == expected);
    assert!(all_of(&file, BYTES) == noise(1, BYTES));
    assert!(Mapping::shared_to_read(&file, BYTES).read(0, BYTES) == noise(1, BYTES));
    // Whoever has a lock must read the newest version, which the older descriptor cannot.
    assert_eq!(flock(&file, FlockOperation::NonBlockingLockShared), Err(Errno::BUSY));
    flock(&newer, FlockOperation::NonBlockingLockShared).unwrap();
    drop((file, newer));
    assert!(fs::read(&path).unwrap() == expected);
    let file = open_lent(&here, &path);
    assert!(all_of(&file, BYTES) == expected);
    flock(&file, FlockOperation::NonBlockingLockShared).unwrap();
}

#[test]
fn what_the_kernel_reads_stays_in_the_cache() {
    needs_passthrough!();
    let world = World::new();
    let server = world.server();
    let options = &["--answer-within", "10s", "--cache-size", "12M"][..];
    let wanted = Wanted { mode: "connected", options, ..Wanted::default() };
    let mount = world.mount_with(&server, "small", wanted);
    let path = mount.path("file");
    make(&path, &noise(1, BYTES));
    let file = open_lent(&mount, &path);
    for number in 0..10 {
        fs::write(mount.path(format!("other {number}")), noise(number, 3 << 20)).unwrap();
    }
    mount.wait();
    for number in 0..10 {
        let read = fs::read(mount.path(format!("other {number}"))).unwrap();
        assert!(read == noise(number, 3 << 20));
    }
    let cached = || mount.status()["cache"]["bytes"].as_u64().unwrap();
    eventually(SOON, "the others have left", || cached() <= 13 << 20);
    assert!(all_of(&file, BYTES) == noise(1, BYTES));
    drop(file);
    assert!(fs::read(&path).unwrap() == noise(1, BYTES));
}

/// What the kernel is not given back, it keeps on the disk though it has no name any more.
#[test]
fn what_was_lent_to_the_kernel_is_given_back() {
    needs_passthrough!();
    let world = World::new();
    let server = world.server();
    let disk = Disk::new(&world, "mount.state", 48 << 20);
    let options = &["--answer-within", "10s", "--cache-size", "12M"][..];
    let wanted = Wanted { mode: "connected", options, ..Wanted::default() };
    let mut mount = world.mount_with(&server, "mount", wanted);
    let path = mount.path("file");
    for number in 0..30 {
        make(&path, &noise(number, 2 * BYTES));
        let (file, again) = (open_lent(&mount, &path), File::open(&path).unwrap());
        assert!(all_of(&again, 2 * BYTES) == noise(number, 2 * BYTES), "{number}");
        fs::remove_file(&path).unwrap();
        drop((file, again));
    }
    mount.unmount(&[]);
    rustix::mount::unmount(&disk.place, rustix::mount::UnmountFlags::empty()).unwrap();
}

#[test]
fn after_a_kill_what_was_written_beside_is_there_and_the_rest_is_as_it_was() {
    needs_passthrough!();
    let world = World::new();
    let server = world.server();
    let mut mount = world.mount(&server, "mount", "partial");
    let path = mount.path("file");
    make(&path, &noise(1, BYTES));
    mount.wait();
    let file = open_lent(&mount, &path);
    let writer = File::options().write(true).open(&path).unwrap();
    writer.write_all_at(b"beside", 1_000_000).unwrap();
    mount.kill();
    drop((file, writer));
    mount.again();
    let mut expected = noise(1, BYTES);
    expected[1_000_000..1_000_006].copy_from_slice(b"beside");
    assert!(fs::read(&path).unwrap() == expected);
    assert!(all_of(&open_lent(&mount, &path), BYTES) == expected);
    mount.wait();
    let other = world.mount(&server, "other", "connected");
    assert!(fs::read(other.path("file")).unwrap() == expected);
}

#[test]
fn files_of_a_snapshot_are_read_by_the_kernel_itself() {
    needs_passthrough!();
    let world = World::new();
    let server = world.server();
    let mount = world.mount(&server, "mount", "connected");
    fs::write(mount.path("file"), noise(1, BYTES)).unwrap();
    let mountpoint = mount.mountpoint.display().to_string();
    run(&mut e2e::world::farfs(&["snapshot", "create", &mountpoint, "one"])).succeeds();
    fs::write(mount.path("file"), noise(2, BYTES)).unwrap();
    let path = mount.path(".farfs/snapshots/one/file");
    assert!(fs::read(&path).unwrap() == noise(1, BYTES));
    let file = open_lent(&mount, &path);
    assert!(all_of(&file, BYTES) == noise(1, BYTES));
    assert_eq!(errno(File::options().write(true).open(&path)), Errno::ROFS);
}

#[test]
fn where_it_is_not_wanted_or_cannot_be_files_are_read_all_the_same() {
    needs_passthrough!();
    let world = World::new();
    let server = world.server();
    let options = &["--answer-within", "10s", "--passthrough", "off"][..];
    let wanted = Wanted { mode: "connected", options, ..Wanted::default() };
    let off = world.mount_with(&server, "off", wanted);
    let path = off.path("file");
    make(&path, &noise(1, BYTES));
    let why = |mount: &Mount| mount.status()["passthrough"]["off"].as_str().map(str::to_owned);
    let file = File::open(&path).unwrap();
    assert!(all_of(&file, BYTES) == noise(1, BYTES) && lent(&off) == 0);
    assert_eq!(why(&off).as_deref(), Some("it was mounted without"));

    let mut deep = world.mount(&server, "deep", "connected");
    deep.unmount(&[]);
    let _overlay = Overlay::over(&world, &deep.state);
    deep.again();
    assert_eq!(why(&deep), None);
    for _ in 0..3 {
        assert!(fs::read(deep.path("file")).unwrap() == noise(1, BYTES));
    }
    assert!(why(&deep).unwrap().contains("lies upon another one"));
    assert_eq!(lent(&deep), 0);
    deep.unmount(&[]);
}

/// A file system upon others, until it is dropped.
struct Overlay(PathBuf);

impl Overlay {
    fn over(world: &World, folder: &Path) -> Overlay {
        let (upper, work) = (world.folder("upper"), world.folder("work"));
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            folder.display(),
            upper.display(),
            work.display()
        );
        let mut command = Command::new("mount");
        run(command.args(["-t", "overlay", "overlay", "-o", &options]).arg(folder)).succeeds();
        Overlay(folder.to_path_buf())
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let flags = rustix::mount::UnmountFlags::DETACH;
        let _ = rustix::mount::unmount(&self.0, flags);
    }
}
