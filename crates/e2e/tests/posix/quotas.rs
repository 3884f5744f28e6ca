//! Quotas, as programs and `df` meet them.

use crate::errno;
use crate::raw::Mapping;
use e2e::world::farfs;
use e2e::{Server, World, run};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Mode, OFlags, chown, fallocate, linkat, open, statvfs,
};
use rustix::io::Errno;
use rustix::process::Uid;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

const KIB: u64 = 1 << 10;

pub(crate) fn set(server: &Server, options: &[&str]) {
    let data = server.data.to_str().unwrap();
    let words = [&["volume", "set", "--data", data][..], options, &["main"]].concat();
    run(&mut farfs(&words)).succeeds();
}

#[test]
fn what_exceeds_a_quota_fails_at_the_call_and_df_shows_what_is_left() {
    for mode in ["connected", "partial"] {
        let world = World::new();
        let server = world.server();
        set(&server, &["--quota", "100K", "--quota-files", "4"]);
        let mount = world.mount(&server, "one", mode);
        let file = File::create(mount.path("file")).unwrap();
        file.write_all_at(&vec![7; 60 * KIB as usize], 0).unwrap();
        assert_eq!(errno(file.write_all_at(&vec![8; 41 * KIB as usize], 60 * KIB)), Errno::DQUOT);
        assert_eq!(fallocate(&file, FallocateFlags::empty(), 0, 101 * KIB), Err(Errno::DQUOT));
        file.write_all_at(&vec![9; 60 * KIB as usize], 0).unwrap();
        drop(file);
        mount.wait();
        let shown = statvfs(mount.path("file")).unwrap();
        assert_eq!((shown.f_blocks * shown.f_frsize) / KIB, 100, "{mode}");
        assert_eq!((shown.f_bavail * shown.f_frsize) / KIB, 40);
        assert_eq!((shown.f_files, shown.f_favail), (4, 2));
        fs::write(mount.path("second"), "").unwrap();
        fs::create_dir(mount.path("folder")).unwrap();
        assert_eq!(errno(fs::write(mount.path("third"), "")), Errno::DQUOT);
        fs::hard_link(mount.path("second"), mount.path("folder/second")).unwrap();
        fs::remove_dir_all(mount.path("folder")).unwrap();
        fs::remove_file(mount.path("file")).unwrap();
        fs::write(mount.path("third"), vec![1; 100 * KIB as usize]).unwrap();
        mount.wait();
        let listed = run(&mut farfs(&["volume", "list", "--data", server.data.to_str().unwrap()]));
        let listed = listed.succeeds();
        assert!(listed.contains("3 files of 4, 100.0 KiB of 100.0 KiB"), "{listed}");
    }
}

#[test]
fn a_user_has_a_quota_of_the_own() {
    let world = World::new();
    let server = world.server();
    set(&server, &["--quota-user", "1234=10K"]);
    let mount = world.mount(&server, "one", "connected");
    let (small, large) = (mount.path("small"), mount.path("large"));
    fs::write(&small, vec![1; 6 * KIB as usize]).unwrap();
    fs::write(&large, vec![1; 5 * KIB as usize]).unwrap();
    let give = |path| chown(path, Some(Uid::from_raw(1234)), None);
    give(&small).unwrap();
    assert_eq!(give(&large), Err(Errno::DQUOT));
    assert_eq!(errno(fs::write(&small, vec![1; 11 * KIB as usize])), Errno::DQUOT);
    set(&server, &["--quota-user", "1234=none"]);
    give(&large).unwrap();
    fs::write(&small, vec![1; 11 * KIB as usize]).unwrap();
}

#[test]
fn what_a_file_without_a_name_holds_counts_from_the_moment_in_which_it_gets_one() {
    for mode in ["connected", "partial"] {
        let world = World::new();
        let server = world.server();
        set(&server, &["--quota", "100K"]);
        let mount = world.mount(&server, "one", mode);
        fs::write(mount.path("first"), vec![1; 50 * KIB as usize]).unwrap();
        let flags = OFlags::TMPFILE | OFlags::RDWR;
        let file = File::from(open(&mount.mountpoint, flags, Mode::from(0o644)).unwrap());
        let named = |name: &str| {
            let from = format!("/proc/self/fd/{}", file.as_raw_fd());
            linkat(CWD, from, CWD, mount.path(name), AtFlags::SYMLINK_FOLLOW)
        };
        file.write_all_at(&vec![2; 60 * KIB as usize], 0).unwrap();
        assert_eq!(named("second"), Err(Errno::DQUOT), "{mode}");
        assert!(!mount.path("second").exists());
        file.set_len(50 * KIB).unwrap();
        named("second").unwrap();
        drop(file);
        mount.wait();
        assert_eq!(fs::read(mount.path("second")).unwrap(), vec![2; 50 * KIB as usize]);
        assert_eq!(errno(fs::write(mount.path("third"), vec![3; KIB as usize])), Errno::DQUOT);
        assert_eq!(server.conflicts(), Vec::<String>::new());
    }
}

/// The program goes on when it has written to its memory; what it waits for is told, and the log.
#[test]
fn what_is_written_to_a_mapping_beyond_a_quota_fails_with_the_sync_and_is_logged() {
    let world = World::new();
    let server = world.server();
    set(&server, &["--quota", "100K"]);
    let mount = world.mount(&server, "one", "partial");
    let bytes = 200 * KIB as usize;
    let file = File::options().read(true).write(true).create_new(true).open(mount.path("file"));
    let file = file.unwrap();
    file.set_len(bytes as u64).unwrap();
    let mapping = Mapping::shared(&file, bytes);
    mapping.write(0, &vec![7; bytes]);
    assert!(file.sync_all().is_err());
    let said = "what a program wrote to a mapping could not be kept";
    assert_eq!(mount.process().said().matches(said).count(), 1, "of one file once");
}
