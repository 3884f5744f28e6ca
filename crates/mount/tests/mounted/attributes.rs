use crate::needs_fuse;
use crate::support::{Farm, is_root};
use client::{Caller, WantedMode, XattrFlag};
use model::FileId;
use mount::MountOptions;
use protocol::Mode;
use rustix::fs::{
    AtFlags, CWD, Timespec, Timestamps, XattrFlags, getxattr, getxattr_query, listxattr,
    removexattr, setxattr, utimensat,
};
use rustix::io::Errno;
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Some user and group that are not root.
const USER: u32 = 12_345;
const GROUP: u32 = 54_321;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// What a shell does as that user; whether it succeeded.
fn as_user(command: &str, folder: &Path) -> bool {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).current_dir(folder).uid(USER).gid(GROUP);
    shell.stderr(std::process::Stdio::null()).status().unwrap().success()
}

/// A mount that everybody may enter.
fn open_to_all() -> MountOptions {
    MountOptions { allow_other: true, ..MountOptions::default() }
}

#[test]
fn modes_owners_and_times_are_set_and_shown() {
    needs_fuse!();
    if !is_root() {
        return;
    }
    let farm = Farm::new();
    let machine = farm.machine("a", MountOptions::default());
    let path = machine.path("file");
    fs::write(&path, "text").unwrap();
    set_mode(&path, 0o640);
    chown(&path, Some(USER), Some(GROUP)).unwrap();
    let seen = fs::metadata(&path).unwrap();
    assert_eq!((seen.uid(), seen.gid(), seen.mode() & 0o7777), (USER, GROUP, 0o640));
    assert_eq!((seen.size(), seen.blocks()), (4, 1));

    // Before 1970, and after 2038.
    for (secs, nanos) in [(-1_000_000_001, 999_999_999), (-1, 5), (1 << 33, 123_456_789)] {
        let time = Timespec { tv_sec: secs, tv_nsec: nanos };
        let times = Timestamps { last_access: time, last_modification: time };
        utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
        let seen = fs::metadata(&path).unwrap();
        assert_eq!((seen.mtime(), seen.mtime_nsec()), (secs, nanos));
        assert_eq!((seen.atime(), seen.atime_nsec()), (secs, nanos));
    }
}

#[test]
fn a_setgid_directory_hands_its_group_down() {
    needs_fuse!();
    if !is_root() {
        return;
    }
    let farm = Farm::new();
    let machine = farm.machine("a", MountOptions::default());
    let shared = machine.path("shared");
    fs::create_dir(&shared).unwrap();
    chown(&shared, None, Some(GROUP)).unwrap();
    set_mode(&shared, 0o2775);
    fs::write(shared.join("file"), "").unwrap();
    fs::create_dir(shared.join("below")).unwrap();
    std::os::unix::fs::symlink("file", shared.join("link")).unwrap();
    for name in ["file", "below", "link"] {
        assert_eq!(fs::symlink_metadata(shared.join(name)).unwrap().gid(), GROUP, "{name}");
    }
    assert_eq!(mode(&shared.join("below")) & 0o2000, 0o2000);
    assert_eq!(mode(&shared.join("file")) & 0o2000, 0);
}

#[test]
fn writing_and_giving_away_take_setuid_away() {
    needs_fuse!();
    if !is_root() {
        return;
    }
    let farm = Farm::new();
    let machine = farm.machine("a", open_to_all());
    set_mode(&machine.path(""), 0o777);
    let path = machine.path("program");
    fs::write(&path, "text").unwrap();
    let privileged = || set_mode(&path, 0o6777);

    for change in ["echo more >> program", ": > program", "truncate -s 1 program"] {
        privileged();
        assert!(as_user(change, &machine.path("")), "{change}");
        assert_eq!(mode(&path), 0o777, "{change}");
    }
    // Setgid without execution is no privilege, and goes with who is not of the file's group.
    for change in ["echo more >> program", "truncate -s 1 program", "fallocate -l 9 program"] {
        set_mode(&path, 0o2666);
        assert!(as_user(change, &machine.path("")), "{change}");
        assert_eq!(mode(&path), 0o666, "{change}");
    }
    // Root keeps the bits when it writes, and loses them as well when it gives the file away.
    privileged();
    fs::write(&path, "by root").unwrap();
    assert_eq!(mode(&path), 0o6777);
    chown(&path, Some(USER), None).unwrap();
    assert_eq!(mode(&path), 0o777);
}

/// As on ext4.
#[test]
fn giving_away_to_nobody_else_takes_setuid_away_from_who_may() {
    needs_fuse!();
    if !is_root() {
        return;
    }
    let farm = Farm::new();
    let machine = farm.machine("a", open_to_all());
    set_mode(&machine.path(""), 0o777);
    let path = machine.path("program");
    fs::write(&path, "text").unwrap();
    for (before, after) in [(0o6755, 0o755), (0o2755, 0o755), (0o6644, 0o2644), (0o755, 0o755)] {
        set_mode(&path, before);
        chown(&path, None, None).unwrap();
        assert_eq!(mode(&path), after, "{before:o}");
    }
    const NOBODY: &str = "import os; os.chown('program', -1, -1)";
    let tries = || as_user(&format!("python3 -c \"{NOBODY}\""), &machine.path(""));
    set_mode(&path, 0o4755);
    // There it is refused; here nothing comes of it.
    tries();
    assert_eq!(mode(&path), 0o4755, "somebody else's");
    chown(&path, Some(USER), None).unwrap();
    set_mode(&path, 0o4755);
    assert!(tries());
    assert_eq!(mode(&path), 0o755);
    fs::create_dir(machine.path("folder")).unwrap();
    set_mode(&machine.path("folder"), 0o2755);
    chown(machine.path("folder"), None, None).unwrap();
    assert_eq!(mode(&machine.path("folder")), 0o2755);
}

#[test]
fn the_kernel_checks_permissions() {
    needs_fuse!();
    if !is_root() {
        return;
    }
    let farm = Farm::new();
    let machine = farm.machine("a", open_to_all());
    let root = machine.path("");
    set_mode(&root, 0o1777);
    fs::write(machine.path("secret"), "").unwrap();
    set_mode(&machine.path("secret"), 0o600);
    assert!(!as_user("cat secret", &root));
    assert!(as_user("touch own", &root));
    assert!(as_user("test -O own && mkdir folder && rmdir folder", &root));
    // The sticky bit: nobody takes away what is another's.
    fs::write(machine.path("roots"), "").unwrap();
    set_mode(&machine.path("roots"), 0o666);
    assert!(!as_user("rm -f roots", &root));
    assert!(as_user("echo x > roots && rm own", &root));
}

#[test]
fn without_leave_nobody_else_enters() {
    needs_fuse!();
    if !is_root() {
        return;
    }
    let farm = Farm::new();
    let machine = farm.machine("a", MountOptions::default());
    set_mode(&machine.path(""), 0o777);
    let command = format!("ls '{}'", machine.path("").display());
    assert!(!as_user(&command, Path::new("/")));
}

#[test]
fn extended_attributes_are_kept_by_name() {
    needs_fuse!();
    let farm = Farm::new();
    let machine = farm.machine("a", MountOptions::default());
    let path = machine.path("file");
    fs::write(&path, "").unwrap();
    let name = "user.comment";
    let get = |buffer: &mut [u8]| getxattr(&path, name, buffer);
    assert_eq!(getxattr_query(&path, name), Err(Errno::NODATA));
    let set = |value: &[u8], flags| setxattr(&path, name, value, flags);
    assert_eq!(set(b"x", XattrFlags::REPLACE), Err(Errno::NODATA));
    set(b"first", XattrFlags::CREATE).unwrap();
    assert_eq!(set(b"x", XattrFlags::CREATE), Err(Errno::EXIST));
    set(b"second", XattrFlags::empty()).unwrap();

    assert_eq!(getxattr_query(&path, name), Ok(6));
    assert_eq!(get(&mut [0; 3]), Err(Errno::RANGE));
    let mut value = [0; 64];
    let length = get(&mut value).unwrap();
    assert_eq!(&value[..length], b"second");
    let mut names = [0; 64];
    let length = listxattr(&path, &mut names).unwrap();
    assert_eq!(&names[..length], b"user.comment\0");

    removexattr(&path, name).unwrap();
    assert_eq!(listxattr(&path, &mut names), Ok(0));
    assert_eq!(removexattr(&path, name), Err(Errno::NODATA));
    let acl = getxattr(&path, "system.posix_acl_access", &mut value);
    assert_eq!(acl, Err(Errno::NODATA));
    // As on ext4: it is not there afterwards.
    removexattr(&path, "system.posix_acl_access").unwrap();
    removexattr(&path, "system.posix_acl_default").unwrap();
    let other = getxattr(&path, "system.nfs4_acl", &mut value);
    assert_eq!(other, Err(Errno::OPNOTSUPP));
}

#[test]
fn a_name_that_an_earlier_farfs_took_can_be_read_and_removed_and_no_other_is_taken() {
    needs_fuse!();
    let farm = Farm::new();
    let machine = farm.machine("a", MountOptions::default());
    let path = machine.path("file");
    fs::write(&path, "").unwrap();
    let stat = fs::metadata(&path).unwrap();
    let (owner, file) = (Caller { uid: stat.uid(), gid: stat.gid() }, FileId(stat.ino()));
    let mut value = [0; 64];
    for (name, refusal) in [("foo.bar", Errno::OPNOTSUPP), ("user.", Errno::INVAL)] {
        let set = || setxattr(&path, name, b"new", XattrFlags::empty());
        assert_eq!(set(), Err(refusal), "{name}");
        assert_eq!(getxattr_query(&path, name), Err(refusal), "{name}");
        assert_eq!(removexattr(&path, name), Err(refusal), "{name}");
        let either = XattrFlag::Either;
        machine.client().set_xattr(owner, file, name.as_bytes(), b"old", either).unwrap();
        let length = getxattr(&path, name, &mut value).unwrap();
        assert_eq!(&value[..length], b"old", "{name}");
        let length = listxattr(&path, &mut value).unwrap();
        assert_eq!(&value[..length], [name.as_bytes(), b"\0"].concat(), "{name}");
        assert_eq!(set(), Err(refusal), "{name}");
        removexattr(&path, name).unwrap();
        assert_eq!(listxattr(&path, &mut value), Ok(0));
        assert_eq!(removexattr(&path, name), Err(refusal), "{name}");
    }
}

#[test]
fn the_volume_has_a_size_and_room() {
    needs_fuse!();
    let farm = Farm::new();
    let machine = farm.machine("a", MountOptions::default());
    let seen = rustix::fs::statvfs(machine.path("")).unwrap();
    assert_eq!((seen.f_namemax, seen.f_frsize), (255, 4096));
    assert!(seen.f_blocks > 0 && seen.f_bfree <= seen.f_blocks);
    assert!(seen.f_files > 0 && seen.f_ffree <= seen.f_files);
}

/// CAP_NET_RAW, as of `struct vfs_cap_data` in Linux's `linux/capability.h`: revision 2, effective.
const NET_RAW: [u8; 20] = [1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

#[test]
fn a_capability_goes_with_what_is_appended_whoever_appends() {
    const NAME: &str = "security.capability";
    needs_fuse!();
    if !is_root() {
        return;
    }
    let farm = Farm::new();
    let machine = farm.machine("machine", MountOptions::default());
    for mode in [Mode::Connected, Mode::Partial] {
        machine.client().set_mode(WantedMode::Fixed(mode));
        let path = machine.path("program");
        fs::write(&path, "of before").unwrap();
        setxattr(&path, NAME, &NET_RAW, XattrFlags::empty()).unwrap();
        assert_eq!(getxattr(&path, NAME, &mut [0; 64]), Ok(20));
        let mut program = fs::File::options().append(true).open(&path).unwrap();
        program.write_all(b", and more").unwrap();
        let found = getxattr(&path, NAME, &mut [0; 64]);
        assert_eq!(found, Err(Errno::NODATA), "{mode:?}");
        fs::remove_file(&path).unwrap();
    }
}
