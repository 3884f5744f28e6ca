//! Modes, owners, times, extended attributes, and what statfs says.

use crate::{errno, in_both_modes};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, XattrFlags,
    fallocate, statfs, statvfs, utimensat,
};
use rustix::io::Errno;
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::Path;
use std::time::UNIX_EPOCH;

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn permission_bits_are_kept_all_twelve() {
    in_both_modes(|mount| {
        let path = mount.path("file");
        fs::write(&path, "").unwrap();
        for bits in [0o644, 0o000, 0o777, 0o4755, 0o2755, 0o1777, 0o600] {
            fs::set_permissions(&path, Permissions::from_mode(bits)).unwrap();
            assert_eq!(mode(&path), bits);
        }
        fs::create_dir(mount.path("folder")).unwrap();
        fs::set_permissions(mount.path("folder"), Permissions::from_mode(0o1700)).unwrap();
        assert_eq!(mode(&mount.path("folder")), 0o1700);
        let missing = fs::set_permissions(mount.path("missing"), Permissions::from_mode(0o000));
        assert_eq!(errno(missing), Errno::NOENT);
    });
}

#[test]
fn owners_are_kept_of_links_too() {
    in_both_modes(|mount| {
        fs::write(mount.path("file"), "").unwrap();
        symlink("file", mount.path("link")).unwrap();
        chown(mount.path("file"), Some(1234), Some(5678)).unwrap();
        lchown(mount.path("link"), Some(11), Some(22)).unwrap();
        let owner = |name: &str| {
            let stat = fs::symlink_metadata(mount.path(name)).unwrap();
            (stat.uid(), stat.gid())
        };
        assert_eq!((owner("file"), owner("link")), ((1234, 5678), (11, 22)));
        chown(mount.path("file"), None, Some(9)).unwrap();
        assert_eq!(owner("file"), (1234, 9));
        // Some identities are as large as can be.
        chown(mount.path("file"), Some(u32::MAX - 1), Some(u32::MAX - 1)).unwrap();
        assert_eq!(owner("file"), (u32::MAX - 1, u32::MAX - 1));
    });
}

#[test]
fn a_change_of_owner_takes_setuid_and_setgid_from_all_but_directories() {
    in_both_modes(|mount| {
        use rustix::fs::{FileType, makedev, mknodat};
        let kinds = [
            ("file", FileType::RegularFile, 0),
            ("pipe", FileType::Fifo, 0),
            ("socket", FileType::Socket, 0),
            ("character", FileType::CharacterDevice, makedev(1, 3)),
            ("block", FileType::BlockDevice, makedev(7, 0)),
        ];
        for (name, kind, device) in kinds {
            mknodat(CWD, mount.path(name), kind, 0o644.into(), device).unwrap();
        }
        fs::create_dir(mount.path("folder")).unwrap();
        let given = |name: &str, before: u32, (owner, group)| {
            let path = mount.path(name);
            fs::set_permissions(&path, Permissions::from_mode(before)).unwrap();
            assert_eq!(mode(&path), before, "{name}");
            chown(&path, owner, group).unwrap();
            mode(&path)
        };
        let changes = [(Some(7), Some(8)), (None, Some(9)), (Some(10), None), (None, None)];
        for change in changes {
            for (name, ..) in kinds {
                let (all, group) = (given(name, 0o6777, change), given(name, 0o2755, change));
                assert_eq!((all, group), (0o777, 0o755), "{name} {change:?}");
                // Without execution by the group it is not a privilege.
                assert_eq!(given(name, 0o6666, change), 0o2666, "{name} {change:?}");
            }
            assert_eq!(given("folder", 0o6777, change), 0o6777, "{change:?}");
        }
    });
}

fn stamps(access: (i64, i64), change: (i64, i64)) -> Timestamps {
    let time = |(tv_sec, tv_nsec)| Timespec { tv_sec, tv_nsec };
    Timestamps { last_access: time(access), last_modification: time(change) }
}

#[test]
fn times_are_kept_to_the_nanosecond_before_1970_and_after_2038() {
    in_both_modes(|mount| {
        let path = mount.path("file");
        fs::write(&path, "").unwrap();
        for (seconds, nanos) in
            [(1_000_000_000, 123_456_789), (-86_400, 1), (4_102_444_800, 999_999_999), (0, 0)]
        {
            let set = stamps((seconds, nanos), (seconds, nanos));
            utimensat(CWD, &path, &set, AtFlags::empty()).unwrap();
            let stat = fs::metadata(&path).unwrap();
            assert_eq!((stat.mtime(), stat.mtime_nsec()), (seconds, nanos));
        }
        let before = fs::metadata(&path).unwrap();
        let keep = stamps((0, UTIME_OMIT), (0, UTIME_OMIT));
        utimensat(CWD, &path, &keep, AtFlags::empty()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mtime(), before.mtime());
        let now = stamps((0, UTIME_OMIT), (0, UTIME_NOW));
        utimensat(CWD, &path, &now, AtFlags::empty()).unwrap();
        assert!(fs::metadata(&path).unwrap().mtime() > 1_700_000_000);
        symlink("file", mount.path("link")).unwrap();
        let own = stamps((0, UTIME_OMIT), (77, 7));
        utimensat(CWD, mount.path("link"), &own, AtFlags::SYMLINK_NOFOLLOW).unwrap();
        assert_eq!(fs::symlink_metadata(mount.path("link")).unwrap().mtime(), 77);
    });
}

/// Whether something that happens changes a time.
fn changes(path: &Path, time: impl Fn(&fs::Metadata) -> (i64, i64), work: impl FnOnce()) -> bool {
    let before = time(&fs::symlink_metadata(path).unwrap());
    std::thread::sleep(std::time::Duration::from_millis(30));
    work();
    time(&fs::symlink_metadata(path).unwrap()) > before
}

#[test]
fn times_change_with_what_they_tell_of() {
    in_both_modes(|mount| {
        let (folder, file) = (mount.path("folder"), mount.path("folder/file"));
        fs::create_dir(&folder).unwrap();
        fs::write(&file, "one").unwrap();
        let modified = |stat: &fs::Metadata| (stat.mtime(), stat.mtime_nsec());
        let changed = |stat: &fs::Metadata| (stat.ctime(), stat.ctime_nsec());
        assert!(changes(&file, modified, || fs::write(&file, "two").unwrap()));
        assert!(changes(&file, changed, || fs::write(&file, "three").unwrap()));
        let chmod = || fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        assert!(changes(&file, changed, chmod));
        assert!(!changes(&file, modified, chmod));
        let link = || fs::hard_link(&file, folder.join("second")).unwrap();
        assert!(changes(&file, changed, link));
        assert!(changes(&folder, modified, || fs::write(folder.join("new"), "").unwrap()));
        assert!(changes(&folder, modified, || fs::remove_file(folder.join("new")).unwrap()));
        let rename = || fs::rename(folder.join("second"), mount.path("away")).unwrap();
        assert!(changes(&folder, modified, rename));
        assert!(!changes(&folder, modified, || fs::write(&file, "four").unwrap()));
    });
}

#[test]
fn what_is_done_to_an_open_file_changes_its_times_before_it_is_closed() {
    in_both_modes(|mount| {
        let path = mount.path("file");
        let file = File::create(&path).unwrap();
        let modified = |stat: &fs::Metadata| (stat.mtime(), stat.mtime_nsec());
        let changed = |stat: &fs::Metadata| (stat.ctime(), stat.ctime_nsec());
        let write = || (&file).write_all(b"some").unwrap();
        let cut = || file.set_len(2).unwrap();
        let cut_to_as_much = || file.set_len(2).unwrap();
        let reserve = || fallocate(&file, FallocateFlags::empty(), 0, 8192).unwrap();
        let works: [&dyn Fn(); 4] = [&write, &cut, &cut_to_as_much, &reserve];
        for (number, work) in works.into_iter().enumerate() {
            assert!(changes(&path, changed, work), "the {number}th");
            assert!(changes(&path, modified, work), "the {number}th");
        }
        // A time that is set is no time of change.
        let set = || file.set_modified(UNIX_EPOCH).unwrap();
        assert!(changes(&path, changed, set));
        assert_eq!(fs::metadata(&path).unwrap().mtime(), 0);
        assert_ne!(fs::metadata(&path).unwrap().ctime(), 0);
    });
}

#[test]
fn extended_attributes_are_set_read_listed_and_removed() {
    in_both_modes(|mount| {
        use rustix::fs::{getxattr, listxattr, removexattr, setxattr};
        let path = mount.path("file");
        fs::write(&path, "").unwrap();
        fs::create_dir(mount.path("folder")).unwrap();
        let mut value = [0_u8; 70_000];
        let none = XattrFlags::empty();
        for path in [&path, &mount.path("folder")] {
            assert_eq!(getxattr(path, "user.a", &mut value), Err(Errno::NODATA));
            setxattr(path, "user.a", b"one", none).unwrap();
            setxattr(path, "user.empty", b"", none).unwrap();
            assert_eq!(getxattr(path, "user.a", &mut value), Ok(3));
            assert_eq!(&value[..3], b"one");
            assert_eq!(getxattr(path, "user.empty", &mut value), Ok(0));
            assert_eq!(getxattr(path, "user.a", &mut value[..2]), Err(Errno::RANGE));
            assert_eq!(setxattr(path, "user.a", b"x", XattrFlags::CREATE), Err(Errno::EXIST));
            assert_eq!(setxattr(path, "user.b", b"x", XattrFlags::REPLACE), Err(Errno::NODATA));
            setxattr(path, "user.a", b"other", XattrFlags::REPLACE).unwrap();
            setxattr(path, "trusted.t", &[0, 255, 0], none).unwrap();
            let length = listxattr(path, &mut value).unwrap();
            let mut names: Vec<&[u8]> = value[..length].split(|byte| *byte == 0).collect();
            names.sort_unstable();
            assert_eq!(names, [&b""[..], b"trusted.t", b"user.a", b"user.empty"]);
            removexattr(path, "user.a").unwrap();
            assert_eq!(removexattr(path, "user.a"), Err(Errno::NODATA));
        }
    });
}

#[test]
fn extended_attributes_have_a_namespace_and_a_name_in_it() {
    in_both_modes(|mount| {
        use rustix::fs::setxattr;
        fs::write(mount.path("file"), "").unwrap();
        let set = |name: &str| setxattr(mount.path("file"), name, b"x", XattrFlags::empty());
        for name in ["user.a", "trusted.a", "security.a"] {
            set(name).unwrap();
        }
        for name in ["foo.bar", "os2.x", "btrfs.x", "system.x", "user", "plain"] {
            assert_eq!(set(name), Err(Errno::OPNOTSUPP), "{name}");
        }
        for name in ["user.", "trusted.", "security."] {
            assert_eq!(set(name), Err(Errno::INVAL), "{name}");
        }
    });
}

#[test]
fn extended_attributes_have_the_limits_of_linux() {
    in_both_modes(|mount| {
        use rustix::fs::{getxattr, lsetxattr, setxattr};
        let path = mount.path("file");
        fs::write(&path, "").unwrap();
        let none = XattrFlags::empty();
        let longest = format!("user.{}", "n".repeat(250));
        setxattr(&path, longest.as_str(), b"x", none).unwrap();
        let too_long = format!("user.{}", "n".repeat(251));
        assert_eq!(setxattr(&path, too_long.as_str(), b"x", none), Err(Errno::RANGE));
        let big = vec![7; 4096];
        setxattr(&path, "user.big", &big, none).unwrap();
        let mut seen = vec![0; 65_536];
        assert_eq!(getxattr(&path, "user.big", &mut seen), Ok(4096));
        assert_eq!(seen[..4096], big);
        let largest = vec![9; 65_536];
        match setxattr(&path, "user.largest", &largest, none) {
            Ok(()) => {
                assert_eq!(getxattr(&path, "user.largest", &mut seen), Ok(65_536));
                assert_eq!(seen, largest);
            }
            Err(error) => assert!([Errno::NOSPC, Errno::TOOBIG, Errno::RANGE].contains(&error)),
        }
        let beyond = vec![9; 65_537];
        assert_eq!(setxattr(&path, "user.beyond", &beyond, none), Err(Errno::TOOBIG));
        symlink("file", mount.path("link")).unwrap();
        assert_eq!(lsetxattr(mount.path("link"), "user.x", b"", none), Err(Errno::PERM));
    });
}

#[test]
fn the_file_system_tells_what_it_is() {
    in_both_modes(|mount| {
        const FUSE: u64 = 0x6573_5546;
        fs::write(mount.path("file"), "").unwrap();
        let kind = statfs(&mount.mountpoint).unwrap();
        assert_eq!(kind.f_type as u64, FUSE);
        let totals = statvfs(mount.path("file")).unwrap();
        assert_eq!(totals.f_namemax, 255);
        assert!(totals.f_blocks > 0 && totals.f_bavail <= totals.f_blocks);
        assert!(totals.f_files > 0 && totals.f_ffree > 0);
    });
}

#[test]
fn inode_numbers_last_over_a_new_mount() {
    let world = e2e::World::new();
    let server = world.server();
    let mut mount = world.mount(&server, "mount", "connected");
    fs::create_dir(mount.path("folder")).unwrap();
    fs::write(mount.path("folder/file"), "x").unwrap();
    let inodes = |mount: &e2e::Mount| {
        ["", "folder", "folder/file"].map(|name| fs::metadata(mount.path(name)).unwrap().ino())
    };
    let before = inodes(&mount);
    assert_eq!(before[0], 1, "the root");
    mount.unmount(&[]);
    mount.again();
    assert_eq!(inodes(&mount), before);
    let other = world.mount(&server, "other", "connected");
    assert_eq!(inodes(&other), before, "and are the same on every machine");
}

#[test]
fn what_is_open_changes_when_its_last_name_goes() {
    in_both_modes(|mount| {
        let made = |name: &str| {
            fs::write(mount.path(name), "contents").unwrap();
            File::open(mount.path(name)).unwrap()
        };
        let times = |file: &File| {
            let stat = file.metadata().unwrap();
            ((stat.ctime(), stat.ctime_nsec()), (stat.mtime(), stat.mtime_nsec()), stat.nlink())
        };
        let (removed, replaced) = (made("removed"), made("replaced"));
        let (written, two) = (File::create(mount.path("written")).unwrap(), made("two"));
        (&written).write_all(b"it is still being written").unwrap();
        fs::hard_link(mount.path("two"), mount.path("names")).unwrap();
        fs::create_dir(mount.path("folder")).unwrap();
        let folder = File::open(mount.path("folder")).unwrap();
        drop(made("another"));
        let all = [&removed, &replaced, &written, &folder, &two];
        let before = all.map(times);
        std::thread::sleep(std::time::Duration::from_millis(20));
        for name in ["removed", "written", "two"] {
            fs::remove_file(mount.path(name)).unwrap();
        }
        fs::rename(mount.path("another"), mount.path("replaced")).unwrap();
        fs::remove_dir(mount.path("folder")).unwrap();
        let after = all.map(times);
        for (number, (before, after)) in before.into_iter().zip(after).enumerate() {
            assert!(after.0 > before.0, "{number}: it changed: {before:?} {after:?}");
            assert_eq!(after.1, before.1, "{number}: and its contents did not");
            assert_eq!(after.2, u64::from(number == 4), "{number}");
        }
        // It was not changed again by being looked at, or closed.
        assert_eq!(times(&removed), after[0]);
    });
}
