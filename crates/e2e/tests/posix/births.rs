//! When files were made: statx(2), `stat` and `ls`.

use crate::in_both_modes;
use e2e::mount::Wanted;
use e2e::world::farfs;
use e2e::{World, run};
use rustix::fs::{AtFlags, CWD, FileType, Statx, StatxFlags, mknodat, statx};
use rustix::fs::{Timespec, Timestamps, UTIME_NOW, utimensat};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Seconds since 1970, and nanoseconds.
type Moment = (i64, u32);

/// Longer than clocks are coarse.
const A_WHILE: Duration = Duration::from_millis(20);

fn looked_at(path: &Path) -> Statx {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, wanted).unwrap()
}

/// None: nobody knows.
fn born(path: &Path) -> Option<Moment> {
    let stat = looked_at(path);
    let is_known = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
    is_known.then_some((stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec))
}

fn modified(path: &Path) -> Moment {
    let time = looked_at(path).stx_mtime;
    (time.tv_sec, time.tv_nsec)
}

fn now() -> Moment {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    (i64::try_from(now.as_secs()).unwrap(), now.subsec_nanos())
}

/// Linux asks a FUSE file system for it since 6.6.
fn is_asked_for() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let numbers: Vec<u32> = release.split('.').map_while(|part| part.parse().ok()).collect();
    let asks = numbers.as_slice() >= [6, 6].as_slice();
    if !asks {
        println!("not run: Linux {release} does not ask for births");
    }
    asks
}

/// One of each kind below a directory; their names.
fn make_all(folder: &Path) -> [&'static str; 5] {
    fs::create_dir(folder.join("folder")).unwrap();
    fs::write(folder.join("file"), "one").unwrap();
    symlink("file", folder.join("link")).unwrap();
    mknodat(CWD, folder.join("pipe"), FileType::Fifo, 0o644.into(), 0).unwrap();
    fs::write(folder.join("folder/below"), "two").unwrap();
    ["folder", "file", "link", "pipe", "folder/below"]
}

#[test]
fn everything_has_the_time_at_which_it_was_made() {
    if !is_asked_for() {
        return;
    }
    in_both_modes(|mount| {
        assert!(born(&mount.mountpoint).is_some(), "the top was made with the volume");
        let before = now();
        std::thread::sleep(A_WHILE);
        for name in make_all(&mount.mountpoint) {
            let path = mount.path(name);
            let born = born(&path).unwrap();
            assert!(before < born && born <= modified(&path), "{name}");
            assert!(born <= now(), "{name}");
        }
    });
}

#[test]
fn nothing_that_is_done_to_a_file_changes_when_it_was_made() {
    if !is_asked_for() {
        return;
    }
    in_both_modes(|mount| {
        let file = mount.path("file");
        fs::write(&file, "one").unwrap();
        fs::create_dir(mount.path("folder")).unwrap();
        let (made, folder) = (born(&file).unwrap(), born(&mount.path("folder")).unwrap());
        let still = |what: &str, path: &Path| assert_eq!(born(path), Some(made), "{what}");
        std::thread::sleep(A_WHILE);
        fs::write(&file, "two").unwrap();
        still("written", &file);
        assert!(modified(&file) > made);
        File::options().write(true).open(&file).unwrap().set_len(1 << 20).unwrap();
        still("made longer", &file);
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        chown(&file, Some(7), Some(7)).unwrap();
        still("given away", &file);
        let long_ago = Timespec { tv_sec: 5, tv_nsec: 5 };
        let times = Timestamps { last_access: long_ago, last_modification: long_ago };
        utimensat(CWD, &file, &times, AtFlags::empty()).unwrap();
        still("times set", &file);
        assert!(modified(&file) < made, "it may have been changed before it was made here");
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let times = Timestamps { last_access: now, last_modification: now };
        utimensat(CWD, &file, &times, AtFlags::empty()).unwrap();
        fs::hard_link(&file, mount.path("folder/again")).unwrap();
        still("linked", &mount.path("folder/again"));
        fs::rename(&file, mount.path("folder/moved")).unwrap();
        still("renamed", &mount.path("folder/moved"));
        assert_eq!(born(&mount.path("folder")), Some(folder), "others came into it");
        // A file of the same name is another one.
        fs::write(&file, "three").unwrap();
        assert!(born(&file).unwrap() > made);
        fs::rename(mount.path("folder/moved"), &file).unwrap();
        still("renamed over another", &file);
    });
}

#[test]
fn it_is_the_same_elsewhere_after_a_new_mount_in_a_snapshot_and_when_it_is_brought_back() {
    if !is_asked_for() {
        return;
    }
    for mode in ["connected", "partial"] {
        let world = World::new();
        let server = world.server();
        let mut here = world.mount(&server, "here", mode);
        let names = make_all(&here.mountpoint);
        let births = |top: &Path| names.map(|name| born(&top.join(name)));
        let made = births(&here.mountpoint);
        assert!(made.iter().all(Option::is_some), "{mode}");
        here.wait();
        let there = world.mount_with(&server, "there", Wanted { mode, ..Wanted::default() });
        assert_eq!(births(&there.mountpoint), made, "{mode}: elsewhere");
        here.unmount(&[]);
        here.again();
        assert_eq!(births(&here.mountpoint), made, "{mode}: after a new mount");
        here.kill();
        here.again();
        assert_eq!(births(&here.mountpoint), made, "{mode}: after a kill");
        let top = here.mountpoint.display().to_string();
        run(&mut farfs(&["snapshot", "create", &top, "one"])).succeeds();
        let shown = here.path(".farfs/snapshots/one");
        assert_eq!(births(&shown), made, "{mode}: in a snapshot");
        fs::write(here.path("file"), "other").unwrap();
        fs::remove_dir_all(here.path("folder")).unwrap();
        here.wait();
        for name in ["file", "folder"] {
            let path = format!("{}@one", here.path(name).display());
            run(&mut farfs(&["restore", &path])).succeeds();
        }
        assert_eq!(fs::read_to_string(here.path("file")).unwrap(), "one");
        assert_eq!(births(&here.mountpoint), made, "{mode}: brought back");
        assert_eq!(births(&shown), made, "{mode}: in the snapshot, still");
    }
}

#[test]
fn programs_show_it() {
    if !is_asked_for() {
        return;
    }
    in_both_modes(|mount| {
        let path = mount.path("file");
        fs::write(&path, "one").unwrap();
        let (secs, _) = born(&path).unwrap();
        let said = run(Command::new("stat").args(["-c", "%W"]).arg(&path)).succeeds();
        assert_eq!(said.trim(), secs.to_string());
        let list = ["-l", "--time=birth", "--time-style=+%s"];
        let said = run(Command::new("ls").args(list).arg(&path)).succeeds();
        assert_eq!(said.split_whitespace().nth(5), Some(secs.to_string().as_str()), "{said}");
    });
}
