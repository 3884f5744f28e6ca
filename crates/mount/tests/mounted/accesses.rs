use crate::needs_fuse;
use crate::support::Farm;
use mount::{KernelFlag, MountOptions};
use rustix::fs::{AtFlags, CWD, OFlags, Timespec, Timestamps, UTIME_OMIT, open, utimensat};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Times of access, of modification and of change, in seconds and nanoseconds.
type Times = [(i64, i64); 3];

fn times(path: &Path) -> Times {
    let seen = fs::symlink_metadata(path).unwrap();
    [
        (seen.atime(), seen.atime_nsec()),
        (seen.mtime(), seen.mtime_nsec()),
        (seen.ctime(), seen.ctime_nsec()),
    ]
}

/// Sets the time of access alone, to so many seconds from now.
fn set_access(path: &Path, from_now: i64) -> (i64, i64) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let access = Timespec { tv_sec: i64::try_from(now).unwrap() + from_now, tv_nsec: 7 };
    let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let set = Timestamps { last_access: access, last_modification: omit };
    utimensat(CWD, path, &set, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    (access.tv_sec, access.tv_nsec)
}

/// Reads it, by whatever reads such a thing.
fn read(path: &Path) {
    let kind = fs::symlink_metadata(path).unwrap().file_type();
    if kind.is_dir() {
        assert!(fs::read_dir(path).unwrap().count() > 0);
    } else if kind.is_symlink() {
        fs::read_link(path).unwrap();
    } else {
        assert!(!fs::read(path).unwrap().is_empty());
    }
}

#[test]
fn the_first_reading_after_a_change_moves_the_time_of_access_and_nothing_else() {
    needs_fuse!();
    let farm = Farm::new();
    let (one, other) =
        (farm.machine("one", MountOptions::default()), farm.machine("other", Default::default()));
    fs::write(one.path("file"), "text").unwrap();
    // Of these the kernel has the pages already.
    fs::write(one.path("pages"), vec![1; 1 << 20]).unwrap();
    fs::create_dir(one.path("folder")).unwrap();
    fs::write(one.path("folder/file"), "text").unwrap();
    symlink("file", one.path("link")).unwrap();
    for name in ["file", "pages", "folder", "link"] {
        let path = one.path(name);
        let elsewhere = times(&other.path(name));
        let before = times(&path);
        read(&path);
        let after = times(&path);
        assert!(after[0] > before[0], "{name}: {before:?} {after:?}");
        assert_eq!(after[1..], before[1..], "{name}");
        read(&path);
        assert_eq!(times(&path), after, "{name}: once is enough");
        assert_eq!(times(&other.path(name)), elsewhere, "{name}: nobody else is told");
    }
}

#[test]
fn a_time_of_access_moves_when_it_is_a_day_old_and_stays_as_it_was_set() {
    needs_fuse!();
    let farm = Farm::new();
    let machine = farm.machine("one", MountOptions::default());
    let path = machine.path("file");
    fs::write(&path, "text").unwrap();
    // Later than the change that sets it.
    let set = set_access(&path, 3600);
    read(&path);
    assert_eq!(times(&path)[0], set);
    let old = set_access(&path, -100_000);
    assert_eq!(times(&path)[0], old);
    read(&path);
    assert!(times(&path)[0] > old);
    assert_eq!(set_access(&path, -100_000).1, 7);
    assert_eq!(times(&path)[0].1, 7, "what was read before does not count any more");
}

#[test]
fn who_asks_for_it_reads_without_a_trace() {
    needs_fuse!();
    let farm = Farm::new();
    let flags = vec![KernelFlag::NoAtime];
    let without = MountOptions { kernel_flags: flags, ..MountOptions::default() };
    let read_only = MountOptions { read_only: true, ..MountOptions::default() };
    let writer = farm.machine("writer", MountOptions::default());
    fs::create_dir(writer.path("folder")).unwrap();
    fs::write(writer.path("folder/file"), "text").unwrap();
    for (name, options) in [("without", without), ("read only", read_only)] {
        let machine = farm.machine(name, options);
        for path in ["folder", "folder/file"].map(|path| machine.path(path)) {
            let before = times(&path);
            read(&path);
            assert_eq!(times(&path), before, "{name}");
        }
    }
    let path = writer.path("folder/file");
    let before = times(&path);
    let file = open(&path, OFlags::RDONLY | OFlags::NOATIME, rustix::fs::Mode::empty()).unwrap();
    assert_eq!(rustix::io::read(&file, &mut [0; 10]).unwrap(), 4);
    assert_eq!(times(&path), before);
}

#[test]
fn what_was_read_goes_with_attributes_that_are_set() {
    needs_fuse!();
    let farm = Farm::new();
    let (one, other) =
        (farm.machine("one", MountOptions::default()), farm.machine("other", Default::default()));
    fs::write(one.path("file"), "text").unwrap();
    let before = times(&other.path("file"));
    read(&one.path("file"));
    let read_at = times(&one.path("file"))[0];
    assert!(read_at > before[0]);
    fs::set_permissions(one.path("file"), Permissions::from_mode(0o600)).unwrap();
    assert_eq!(times(&one.path("file"))[0], read_at);
    assert_eq!(times(&other.path("file"))[0], read_at);
}
