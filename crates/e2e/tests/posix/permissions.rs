//! Who may do what: as root, as the owner and as somebody else.

use crate::{errno, in_both_modes};
use e2e::{Ran, World, run};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::io::Errno;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

pub const NOBODY: u32 = 65_534;

/// A line of shell as another user and group.
pub fn as_user(uid: u32, folder: &Path, line: &str) -> Ran {
    let ids = [format!("--reuid={uid}"), format!("--regid={uid}")];
    run(Command::new("setpriv")
        .args(ids)
        .args(["--clear-groups", "sh", "-c", line])
        .env("LC_ALL", "C")
        .current_dir(folder))
}

#[track_caller]
pub fn denied(ran: Ran, why: &str) {
    assert_ne!(ran.code, Some(0), "{ran:#?}");
    assert!(ran.err.contains(why), "{ran:#?}");
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn what_is_not_allowed_is_denied() {
    in_both_modes(|mount| {
        let here = mount.mountpoint.as_path();
        fs::create_dir(mount.path("closed")).unwrap();
        fs::write(mount.path("closed/file"), "x").unwrap();
        fs::write(mount.path("secret"), "x").unwrap();
        fs::write(mount.path("public"), "x").unwrap();
        set_mode(&mount.path("closed"), 0o700);
        set_mode(&mount.path("secret"), 0o600);
        let nobody = |line: &str| as_user(NOBODY, here, line);
        assert_eq!(nobody("cat public").succeeds(), "x");
        denied(nobody("cat secret"), "Permission denied");
        denied(nobody("echo y > public"), "ermission denied");
        denied(nobody("cat closed/file"), "Permission denied");
        denied(nobody("ls closed"), "Permission denied");
        denied(nobody("mkdir new"), "Permission denied");
        denied(nobody("rm -f public"), "Permission denied");
        denied(nobody("mv public other"), "Permission denied");
        denied(nobody("chmod 777 public"), "not permitted");
        denied(nobody("chown 65534 public"), "not permitted");
        denied(nobody("setfattr -n user.a -v b public"), "Permission denied");
        // One may be allowed to list and not to enter, or to enter and not to list.
        set_mode(&mount.path("closed"), 0o744);
        denied(nobody("cat closed/file"), "Permission denied");
        set_mode(&mount.path("closed"), 0o711);
        assert_eq!(nobody("cat closed/file").succeeds(), "x");
        denied(nobody("ls closed"), "Permission denied");
    });
}

#[test]
fn whoever_makes_a_file_owns_it_and_may_do_with_it_what_owners_may() {
    in_both_modes(|mount| {
        let open = mount.path("open");
        fs::create_dir(&open).unwrap();
        set_mode(&open, 0o777);
        let nobody = |line: &str| as_user(NOBODY, &open, line);
        nobody("umask 027 && echo x > mine && mkdir folder && ln -s mine link && mkfifo pipe")
            .succeeds();
        for name in ["mine", "folder", "link", "pipe"] {
            let stat = fs::symlink_metadata(open.join(name)).unwrap();
            assert_eq!((stat.uid(), stat.gid()), (NOBODY, NOBODY), "{name}");
        }
        assert_eq!(fs::metadata(open.join("mine")).unwrap().mode() & 0o7777, 0o640);
        assert_eq!(fs::metadata(open.join("folder")).unwrap().mode() & 0o7777, 0o750);
        nobody("chmod 600 mine && touch -d 2001-01-01 mine && setfattr -n user.a -v b mine")
            .succeeds();
        denied(nobody("chown 0 mine"), "not permitted");
        denied(nobody("chgrp 0 mine"), "not permitted");
        denied(nobody("setfattr -n trusted.a -v b mine"), "not permitted");
    });
}

#[test]
fn in_a_sticky_directory_only_owners_remove() {
    in_both_modes(|mount| {
        let shared = mount.path("shared");
        fs::create_dir(&shared).unwrap();
        set_mode(&shared, 0o1777);
        fs::write(shared.join("root's"), "").unwrap();
        as_user(1000, &shared, "touch theirs").succeeds();
        denied(as_user(NOBODY, &shared, "rm -f \"root's\""), "not permitted");
        denied(as_user(NOBODY, &shared, "mv theirs x"), "not permitted");
        as_user(1000, &shared, "rm theirs").succeeds();
    });
}

#[test]
fn in_a_setgid_directory_files_get_its_group() {
    in_both_modes(|mount| {
        let team = mount.path("team");
        fs::create_dir(&team).unwrap();
        chown(&team, None, Some(4321)).unwrap();
        set_mode(&team, 0o2777);
        as_user(NOBODY, &team, "touch file && mkdir folder").succeeds();
        let stat = |name: &str| fs::metadata(team.join(name)).unwrap();
        assert_eq!((stat("file").gid(), stat("folder").gid()), (4321, 4321));
        assert_eq!(stat("folder").mode() & 0o2000, 0o2000, "and directories hand it on");
        assert_eq!(stat("file").mode() & 0o2000, 0);
    });
}

#[test]
fn a_write_or_a_new_owner_takes_the_setuid_bit() {
    in_both_modes(|mount| {
        let path = mount.path("program");
        let mode = || fs::metadata(&path).unwrap().mode() & 0o7777;
        fs::write(&path, "x").unwrap();
        chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        set_mode(&path, 0o6755);
        as_user(NOBODY, &mount.mountpoint, "echo more >> program").succeeds();
        assert_eq!(mode(), 0o755, "a write by an ordinary user");
        set_mode(&path, 0o6755);
        chown(&path, Some(1000), Some(1000)).unwrap();
        assert_eq!(mode(), 0o755, "another owner");
    });
}

/// The kernel knows that a write changes size and times, and nothing of the mode: who asks for that
/// alone, or runs the program, has what the kernel has.
#[test]
fn who_asks_for_the_mode_alone_sees_that_a_write_has_taken_privileges() {
    in_both_modes(|mount| {
        let path = mount.path("program");
        let mode = || {
            let wanted = StatxFlags::MODE;
            statx(CWD, &path, AtFlags::empty(), wanted).unwrap().stx_mode & 0o7777
        };
        for line in [
            "printf more >> program",
            "fallocate -l 100000 program",
            "fallocate -p -o 0 -l 4096 program",
            "truncate -s 1 program",
            ": > program",
        ] {
            fs::write(&path, "x").unwrap();
            set_mode(&path, 0o6777);
            assert_eq!(mode(), 0o6777);
            as_user(NOBODY, &mount.mountpoint, line).succeeds();
            assert_eq!(mode(), 0o777, "{line}");
        }
    });
}

#[test]
fn without_allow_other_only_the_user_who_mounted_sees_it() {
    let world = World::new();
    let server = world.server();
    let mount = world.mount(&server, "mount", "connected");
    fs::write(mount.path("public"), "x").unwrap();
    denied(
        as_user(NOBODY, Path::new("/"), &format!("ls {}", mount.mountpoint.display())),
        "denied",
    );
    assert_eq!(fs::read(mount.path("public")).unwrap(), b"x");
}

#[test]
fn a_read_only_device_changes_nothing() {
    let world = World::new();
    let server = world.server();
    let writer = world.mount(&server, "writer", "connected");
    fs::write(writer.path("file"), "x").unwrap();
    for mode in ["connected", "partial"] {
        let wanted = e2e::mount::Wanted {
            mode,
            invitation: &["--read-only"],
            ..e2e::mount::Wanted::default()
        };
        let reader = world.mount_with(&server, &format!("reader-{mode}"), wanted);
        assert_eq!(fs::read(reader.path("file")).unwrap(), b"x");
        assert_eq!(errno(fs::write(reader.path("file"), "y")), Errno::ROFS, "{mode}");
        assert_eq!(errno(fs::write(reader.path("new"), "y")), Errno::ROFS, "{mode}");
        assert_eq!(errno(fs::create_dir(reader.path("dir"))), Errno::ROFS, "{mode}");
        assert_eq!(errno(fs::remove_file(reader.path("file"))), Errno::ROFS, "{mode}");
        let renamed = fs::rename(reader.path("file"), reader.path("other"));
        assert_eq!(errno(renamed), Errno::ROFS, "{mode}");
        let mode_set = fs::set_permissions(reader.path("file"), Permissions::from_mode(0o000));
        assert_eq!(errno(mode_set), Errno::ROFS, "{mode}");
        assert_eq!(fs::read_dir(&reader.mountpoint).unwrap().count(), 1);
        assert_eq!(reader.pending(), 0);
    }
    assert_eq!(fs::read(writer.path("file")).unwrap(), b"x");
}

#[test]
fn a_mount_may_be_read_only_by_wish() {
    let world = World::new();
    let server = world.server();
    let options = &["-o", "ro"][..];
    let mount = world.mount_with(
        &server,
        "mount",
        e2e::mount::Wanted { options, mode: "connected", ..e2e::mount::Wanted::default() },
    );
    assert_eq!(errno(fs::write(mount.path("new"), "y")), Errno::ROFS);
    assert_eq!(errno(fs::create_dir(mount.path("new"))), Errno::ROFS);
}
