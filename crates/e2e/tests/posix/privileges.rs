//! Privileges of files that the kernel writes by itself, which the daemon does not see.

use crate::errno;
use crate::passthrough::needs_passthrough;
use crate::permissions::{NOBODY, as_user};
use crate::unseen::{lent, open_unseen};
use e2e::contents::noise;
use e2e::mount::Wanted;
use e2e::{Mount, Server, World, eventually, run};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::time::Duration;

/// More than the least that is lent to who writes.
const BYTES: usize = 17 << 20;
const SOON: Duration = Duration::from_secs(20);
/// What is written unseen is looked at ten times a second.
const A_FEW_LOOKS: Duration = Duration::from_millis(500);
const CAPABILITY: &str = "security.capability";
/// CAP_NET_RAW, as of `struct vfs_cap_data` in Linux's `linux/capability.h`: revision 2, effective.
const NET_RAW: [u8; 20] = [1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const WRITES: &str = "dd if=/dev/zero of=file conv=notrunc bs=4096 count=1 status=none";

/// Where calls do not wait, so that the kernel may write by itself, and other users may too.
fn mounted(world: &World, server: &Server) -> Mount {
    let options = &["--answer-within", "10s", "--allow-other"][..];
    world.mount_with(server, "mount", Wanted { mode: "partial", options, ..Wanted::default() })
}

#[test]
fn who_writes_to_a_large_file_takes_setuid_and_setgid_away_too() {
    needs_passthrough!();
    let world = World::new();
    let server = world.server();
    let mount = mounted(&world, &server);
    let path = mount.path("file");
    let set = |mode| fs::set_permissions(&path, Permissions::from_mode(mode));
    let mode = || fs::metadata(&path).unwrap().mode() & 0o7777;
    fs::write(&path, noise(1, BYTES)).unwrap();
    mount.wait();
    let file = open_unseen(&mount, &path, File::options().write(true));
    // Who sets them while somebody writes so is told.
    for wanted in [0o4755, 0o2755] {
        assert_eq!(errno(set(wanted)), Errno::BUSY);
    }
    let give = || rustix::fs::setxattr(&path, CAPABILITY, &NET_RAW, XattrFlags::empty());
    assert_eq!(give(), Err(Errno::BUSY));
    set(0o666).unwrap();
    drop(file);
    eventually(SOON, "it is closed", || set(0o6777).is_ok());
    for (wanted, then) in [(0o6777, 0o777), (0o4777, 0o777), (0o2777, 0o777), (0o2666, 0o666)] {
        set(wanted).unwrap();
        assert_eq!(mode(), wanted);
        as_user(NOBODY, &mount.mountpoint, WRITES).succeeds();
        assert_eq!(mode(), then, "of {wanted:o}");
        mount.wait();
    }
    give().unwrap();
    as_user(NOBODY, &mount.mountpoint, WRITES).succeeds();
    assert_eq!(rustix::fs::getxattr(&path, CAPABILITY, &mut [0; 64][..]), Err(Errno::NODATA));
    mount.wait();
    let other = world.mount(&server, "other", "connected");
    assert_eq!(fs::metadata(other.path("file")).unwrap().mode() & 0o7777, 0o666);
}

/// Writes once to what it has open, when it is told to.
const WRITES_LATER: &str = "exec 3<>file && : >$FOLDER/opened
    until [ -e $FOLDER/go ]; do sleep 0.05; done
    printf x >&3 && : >$FOLDER/wrote
    until [ -e $FOLDER/end ]; do sleep 0.05; done";

#[test]
fn what_another_device_gives_while_a_user_writes_to_a_large_file_goes_with_his_next_write() {
    needs_passthrough!();
    let world = World::new();
    let server = world.server();
    let mount = mounted(&world, &server);
    let other = world.mount(&server, "other", "connected");
    let path = mount.path("file");
    let mode = || fs::metadata(&path).unwrap().mode() & 0o7777;
    let set_there = |mode| fs::set_permissions(other.path("file"), Permissions::from_mode(mode));
    fs::write(&path, noise(1, BYTES)).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    mount.wait();
    // What root writes takes nothing.
    let file = open_unseen(&mount, &path, File::options().write(true));
    set_there(0o4777).unwrap();
    eventually(SOON, "it is seen here", || mode() == 0o4777);
    std::thread::sleep(A_FEW_LOOKS);
    file.write_all_at(b"x", 0).unwrap();
    std::thread::sleep(A_FEW_LOOKS);
    assert_eq!(mode(), 0o4777);
    drop(file);
    mount.wait();
    assert_eq!(fs::metadata(other.path("file")).unwrap().mode() & 0o7777, 0o4777);
    set_there(0o666).unwrap();
    eventually(SOON, "it is seen here", || mode() == 0o666);
    drop(open_unseen(&mount, &path, File::options().write(true)));
    mount.wait();

    let folder = world.folder("signals");
    fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
    let is_there = |name: &str| folder.join(name).exists();
    let tell = |name: &str| fs::write(folder.join(name), "").unwrap();
    let script = WRITES_LATER.replace("$FOLDER", folder.to_str().unwrap());
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| as_user(NOBODY, &mount.mountpoint, &script).succeeds());
        eventually(SOON, "he has it open", || is_there("opened"));
        assert_eq!(lent(&mount), 1, "the kernel writes it itself");
        set_there(0o6777).unwrap();
        eventually(SOON, "it is seen here", || mode() == 0o6777);
        std::thread::sleep(A_FEW_LOOKS);
        assert_eq!(mode(), 0o6777, "nobody has written to it yet");
        tell("go");
        eventually(SOON, "he has written", || is_there("wrote"));
        eventually(SOON, "the privileges are gone while he has it open", || mode() == 0o777);
        tell("end");
        writer.join().unwrap();
    });
    mount.wait();
    assert_eq!(fs::metadata(other.path("file")).unwrap().mode() & 0o7777, 0o777);
    let bytes = fs::read(other.path("file")).unwrap();
    assert!(bytes[..1] == *b"x" && bytes[1..] == noise(1, BYTES)[1..]);
}

/// The same through what is open to be written alone, which a file is lent for while its store is
/// pending.
const WRITES_ALONE_LATER: &str = "{ until [ -e $FOLDER/go ]; do sleep 0.05; done
    printf x && : >$FOLDER/wrote
    until [ -e $FOLDER/end ]; do sleep 0.05; done; } | dd of=file bs=1 conv=notrunc status=none";

#[test]
fn what_another_device_gives_while_a_user_writes_upon_what_is_pending_goes_too() {
    needs_passthrough!();
    let world = World::new();
    let server = world.server();
    let mount = mounted(&world, &server);
    let other = world.mount(&server, "other", "connected");
    let path = mount.path("file");
    let mode = || fs::metadata(&path).unwrap().mode() & 0o7777;
    fs::write(&path, noise(1, BYTES)).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    mount.wait();
    drop(open_unseen(&mount, &path, File::options().write(true)));
    mount.wait();
    run(&mut mount.farfs("pause", &[])).succeeds();
    let file = open_unseen(&mount, &path, File::options().write(true));
    file.write_all_at(b"pending", 5000).unwrap();
    drop(file);
    eventually(SOON, "it is pending", || mount.pending() > 0 && lent(&mount) == 0);

    let folder = world.folder("signals");
    fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
    let tell = |name: &str| fs::write(folder.join(name), "").unwrap();
    let script = WRITES_ALONE_LATER.replace("$FOLDER", folder.to_str().unwrap());
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| as_user(NOBODY, &mount.mountpoint, &script).succeeds());
        eventually(SOON, "the kernel writes it itself", || lent(&mount) == 1);
        fs::set_permissions(other.path("file"), Permissions::from_mode(0o4777)).unwrap();
        eventually(SOON, "it is seen here", || mode() == 0o4777);
        std::thread::sleep(A_FEW_LOOKS);
        assert_eq!(mode(), 0o4777, "nobody has written to it yet");
        tell("go");
        eventually(SOON, "he has written", || folder.join("wrote").exists());
        eventually(SOON, "the privileges are gone while he has it open", || mode() == 0o777);
        tell("end");
        writer.join().unwrap();
    });
    run(&mut mount.farfs("resume", &[])).succeeds();
    mount.wait();
    assert_eq!(fs::metadata(other.path("file")).unwrap().mode() & 0o7777, 0o777);
    let mut bytes = noise(1, BYTES);
    bytes[0] = b'x';
    bytes[5000..5007].copy_from_slice(b"pending");
    assert!(fs::read(other.path("file")).unwrap() == bytes);
}
