//! What is around a command does not decide what it does: outputs that take nothing, what a script has open, a
//! server that is silent.

use crate::{SECOND, has_ended, is_mounted, mount_in_background, text};
use e2e::contents::noise;
use e2e::mount::Wanted;
use e2e::{World, eventually, run, timed};
use rustix::fs::{FlockOperation, flock};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::Signal;
use std::fs::{self, File};
use std::process::{Command, Stdio};

fn full() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

/// Its exit code, with nobody who reads what it says.
fn unheard(mut command: Command) -> Option<i32> {
    let started = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(full()).spawn();
    started.unwrap().wait().unwrap().code()
}

#[test]
fn who_reads_nothing_of_what_is_said_has_it_done_all_the_same() {
    let world = World::new();
    let server = world.server();
    let place = world.folder("mount");
    let mut mount = world.farfs(&["mount", &server.invite()]);
    mount.arg(&place).arg("--state").arg(world.path("state")).args(["--mode", "fetch-only"]);
    let mut foreground = Command::new(mount.get_program());
    foreground.args(mount.get_args()).arg("--foreground");
    e2e::world::marked(&mut foreground);
    assert_eq!(unheard(mount), Some(0));
    fs::write(place.join("pending"), noise(1, 10_000)).unwrap();
    // It tells of what is pending.
    assert_eq!(unheard(world.farfs(&["umount", &text(&place), "--wait", "1s"])), Some(0));
    assert!(!is_mounted(&place));
    let mut daemon = foreground.stdin(Stdio::null()).stderr(full()).spawn().unwrap();
    eventually(20 * SECOND, "it is mounted", || is_mounted(&place));
    eventually(20 * SECOND, "it answers", || {
        run(&mut world.farfs(&["status", &text(&place)])).code == Some(0)
    });
    assert_eq!(fs::read(place.join("pending")).unwrap(), noise(1, 10_000));
    assert_eq!(unheard(world.farfs(&["umount", &text(&place), "--wait", "1s"])), Some(0));
    assert_eq!(daemon.wait().unwrap().code(), Some(0));
}

#[test]
fn a_daemon_has_nothing_open_that_its_command_was_started_with() {
    let world = World::new();
    let server = world.server();
    let lock = File::create(world.path("lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    fcntl_setfd(&lock, FdFlags::empty()).unwrap();
    let (place, ran) = mount_in_background(&world, &server.invite(), "mount", &[]);
    ran.succeeds();
    drop(lock);
    let again = File::open(world.path("lock")).unwrap();
    let free = flock(&again, FlockOperation::NonBlockingLockExclusive);
    run(&mut world.farfs(&["umount", &text(&place)])).succeeds();
    free.unwrap();
}

#[test]
fn what_is_cached_is_mounted_though_no_call_may_wait_for_as_long_as_a_silent_server_takes() {
    let world = World::new();
    let server = world.server();
    let options = &["--answer-within", "3s"][..];
    let mut mount = world.mount_with(&server, "mount", Wanted { options, ..Wanted::default() });
    fs::write(mount.path("file"), "cached").unwrap();
    mount.wait();
    mount.unmount(&[]);
    server.process().signal(Signal::STOP);
    let ((), took) = timed(|| mount.again());
    assert!(took < 9 * SECOND, "{took:?}");
    assert_eq!(fs::read(mount.path("file")).unwrap(), b"cached");
    mount.unmount(&[]);
    // Who asked for connected mode waits for the server, and no longer than he said.
    mount.mount_as("connected");
    let said = mount.try_again().unwrap_err();
    assert!(said.contains("did not answer") || said.contains("cannot mount"), "{said}");
    server.process().signal(Signal::CONT);
}

#[test]
fn a_mount_is_found_by_the_path_that_it_has_since_a_directory_above_was_renamed() {
    let world = World::new();
    let server = world.server();
    let (before, after) = (world.folder("before/m"), world.path("after/m"));
    let mut mount = world.farfs(&["mount", &server.invite(), &text(&before)]);
    mount.arg("--state").arg(world.path("state"));
    run(&mut mount).succeeds();
    fs::rename(world.path("before"), world.path("after")).unwrap();
    let farfs = |arguments: &[&str]| run(&mut world.farfs(arguments));
    let place = text(&after);
    farfs(&["mode", &place, "fetch-only"]).succeeds();
    fs::write(after.join("pending"), "x").unwrap();
    farfs(&["wait", "--timeout", "1s", &text(&after.join("pending"))]).fails_with(8);
    let listed = farfs(&["status"]);
    assert!(listed.err.is_empty() && listed.out.contains(&place), "{listed:#?}");
    let status: serde_json::Value =
        serde_json::from_str(&farfs(&["status", "--json", &place]).succeeds()).unwrap();
    assert_eq!(status["mountpoint"].as_str(), Some(place.as_str()));
    let told = farfs(&["umount", "--wait", "1s", &place]);
    assert!(told.err.contains("not yet at the server"), "{told:#?}");
    told.succeeds();
    assert!(!is_mounted(&after) && has_ended(status["pid"].as_u64().unwrap()));
}
