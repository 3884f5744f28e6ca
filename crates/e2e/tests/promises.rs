//! What docs/SEMANTICS.md promises and only a mount of its own shows: what is read without a link,
//! and what outlives an unmount, a kill and a mount without a network.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests of real mounts open files and start processes"
)]

use e2e::contents::{noise, tree};
use e2e::mount::Wanted;
use e2e::{World, eventually, timed};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::time::Duration;

/// Until a link that is back is used again.
const BACK: Duration = Duration::from_secs(40);
/// What has not come over a fast link by then does not come.
const A_WHILE: Duration = Duration::from_secs(1);

#[test]
fn what_is_cached_is_shown_as_it_is_where_nobody_vouches_for_it() {
    let world = World::new();
    let server = world.server();
    let (a, mut b) = (world.mount(&server, "a", "partial"), world.mount(&server, "b", "partial"));
    fs::write(a.path("file"), "old").unwrap();
    a.wait();
    eventually(BACK, "b has it", || fs::read(b.path("file")).is_ok_and(|read| read == b"old"));
    b.relay.cut();
    for mode in ["disconnected", "fetch-only"] {
        b.set_mode(mode);
        fs::write(a.path("file"), format!("new, {mode}")).unwrap();
        a.wait();
        assert_eq!(fs::read(b.path("file")).unwrap(), b"old", "{mode}");
    }
    b.relay.restore();
    b.set_mode("partial");
    eventually(BACK, "the new one is seen", || {
        fs::read(b.path("file")).is_ok_and(|read| read == b"new, fetch-only")
    });
}

#[test]
fn what_is_written_is_seen_here_at_once_and_elsewhere_after_a_close_or_fsync() {
    for mode in ["connected", "partial"] {
        let world = World::new();
        let server = world.server();
        let (a, b) = (world.mount(&server, "a", mode), world.mount(&server, "b", mode));
        let sees = |text: &[u8]| fs::read(b.path("file")).is_ok_and(|read| read == text);
        let file = File::create(a.path("file")).unwrap();
        file.write_all_at(b"one", 0).unwrap();
        assert_eq!(fs::read(a.path("file")).unwrap(), b"one", "{mode}");
        std::thread::sleep(A_WHILE);
        assert!(!sees(b"one"), "{mode}: nobody has said that it is a version");
        file.sync_all().unwrap();
        let synced = if mode == "connected" { Duration::ZERO } else { BACK };
        eventually(synced, "what was synced is seen elsewhere", || sees(b"one"));
        file.write_all_at(b"two", 0).unwrap();
        drop(file);
        eventually(synced, "what was closed is seen elsewhere", || sees(b"two"));
    }
}

#[test]
fn what_was_read_here_is_known_here_after_a_new_mount() {
    let world = World::new();
    let server = world.server();
    let mut mount = world.mount(&server, "mount", "connected");
    let other = world.mount(&server, "other", "connected");
    fs::write(mount.path("file"), "read often").unwrap();
    let accessed = |path: PathBuf| {
        let stat = fs::metadata(path).unwrap();
        (stat.atime(), stat.atime_nsec())
    };
    let before = accessed(mount.path("file"));
    assert_eq!(accessed(other.path("file")), before);
    assert_eq!(fs::read(mount.path("file")).unwrap(), b"read often");
    let read = accessed(mount.path("file"));
    assert!(read > before);
    mount.unmount(&[]);
    mount.again();
    assert_eq!(accessed(mount.path("file")), read);
    assert_eq!(accessed(other.path("file")), before);
}

#[test]
fn a_mount_of_what_is_cached_starts_without_a_network_and_sends_what_was_pending() {
    for mode in ["auto", "partial"] {
        let world = World::new();
        let server = world.server();
        let wanted = Wanted { mode, options: &[], ..Wanted::default() };
        let mut mount = world.mount_with(&server, "mount", wanted);
        fs::create_dir(mount.path("folder")).unwrap();
        fs::write(mount.path("folder/file"), noise(1, 50_000)).unwrap();
        mount.wait();
        mount.relay.cut();
        fs::write(mount.path("folder/pending"), noise(2, 5_000)).unwrap();
        fs::remove_file(mount.path("folder/file")).unwrap();
        fs::write(mount.path("folder/file"), noise(3, 30_000)).unwrap();
        let here = tree(&mount.mountpoint);
        mount.unmount(&[]);
        mount.again();
        assert_eq!(tree(&mount.mountpoint), here, "{mode}");
        assert!(mount.pending() > 0, "{mode}");
        mount.relay.restore();
        eventually(BACK, "what was pending has been sent", || mount.pending() == 0);
        let other = world.mount(&server, "other", "connected");
        assert_eq!(tree(&other.mountpoint), here, "{mode}");
    }
}

#[test]
fn a_change_whose_answer_did_not_come_in_time_is_done_all_the_same() {
    let world = World::new();
    let server = world.server();
    let options = &["--answer-within", "2s"][..];
    let wanted = Wanted { mode: "connected", options, ..Wanted::default() };
    let mount = world.mount_with(&server, "mount", wanted);
    fs::create_dir(mount.path("before")).unwrap();
    mount.relay.cut();
    let (made, took) = timed(|| fs::create_dir(mount.path("folder")));
    assert_eq!(made.unwrap_err().kind(), ErrorKind::TimedOut);
    assert!(took < Duration::from_secs(8), "{took:?}");
    mount.relay.restore();
    eventually(BACK, "it has been sent", || mount.pending() == 0);
    let other = world.mount(&server, "other", "connected");
    assert!(other.path("folder").is_dir());
}

/// Or else the next program that writes to the old name would write into what bears the new one.
#[test]
fn a_rename_whose_answer_did_not_come_in_time_is_seen_by_whoever_looks_next() {
    let world = World::new();
    let server = world.server();
    let options = &["--answer-within", "2s"][..];
    let wanted = Wanted { mode: "connected", options, ..Wanted::default() };
    let mount = world.mount_with(&server, "mount", wanted);
    let (fresh, kept) = (mount.path("fresh"), mount.path("kept"));
    fs::write(&kept, "old").unwrap();
    fs::write(&fresh, "one").unwrap();
    mount.relay.cut();
    assert_eq!(fs::rename(&fresh, &kept).unwrap_err().kind(), ErrorKind::TimedOut);
    // Long before the kernel would ask of its own accord, when the lease ends.
    eventually(Duration::from_secs(8), "the old name is gone", || !fresh.exists());
    mount.relay.restore();
    eventually(BACK, "it has been sent", || mount.pending() == 0);
    fs::write(&fresh, "two").unwrap();
    assert_eq!(fs::read(&kept).unwrap(), b"one");
    assert_eq!(fs::read(&fresh).unwrap(), b"two");
}

#[test]
fn what_was_written_and_not_closed_outlives_a_kill() {
    for mode in ["connected", "partial"] {
        let world = World::new();
        let server = world.server();
        let wanted = Wanted { mode, ..Wanted::default() };
        let mut mount = world.mount_with(&server, "mount", wanted);
        fs::write(mount.path("old"), noise(1, 20_000)).unwrap();
        let mut fresh = File::create(mount.path("fresh")).unwrap();
        fresh.write_all(&noise(2, 10_000)).unwrap();
        let old = File::options().write(true).open(mount.path("old")).unwrap();
        old.write_all_at(b"changed", 5_000).unwrap();
        mount.kill();
        drop((fresh, old));
        mount.again();
        let mut changed = noise(1, 20_000);
        changed[5_000..5_007].copy_from_slice(b"changed");
        assert!(fs::read(mount.path("old")).unwrap() == changed, "{mode}");
        assert!(fs::read(mount.path("fresh")).unwrap() == noise(2, 10_000), "{mode}");
        mount.wait();
        let other = world.mount(&server, "other", "connected");
        assert_eq!(tree(&other.mountpoint), tree(&mount.mountpoint), "{mode}");
    }
}
