//! Which calls change which times.

use super::both;
use e2e::contents::noise;
use rustix::fs::{CWD, FallocateFlags, fallocate};
use std::fmt::Write as _;
use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// What is done, to which file, and how.
type Reading = (&'static str, &'static str, fn(&Path));

/// Which of the calls that read something move the time of access, after a change.
pub fn accesses(place: &Path, told: &mut String) {
    let path = place.join("accessed");
    fs::write(&path, noise(9, 10_000)).unwrap();
    fs::create_dir(place.join("listed")).unwrap();
    std::os::unix::fs::symlink("accessed", place.join("followed")).unwrap();
    // To open a file counts here, too, where the kernel may have its contents.
    let reads: [Reading; 5] = [
        ("read", "accessed", |path| drop(fs::read(path).unwrap())),
        ("read without a trace", "accessed", |path| {
            let file = File::options().read(true).custom_flags(libc::O_NOATIME).open(path).unwrap();
            _ = (&file).read(&mut [0; 10]).unwrap();
        }),
        ("looked at", "accessed", |path| _ = fs::metadata(path).unwrap()),
        ("listed", "listed", |path| _ = fs::read_dir(path).unwrap().count()),
        ("followed", "followed", |path| drop(fs::read_link(path).unwrap())),
    ];
    for (what, name, read) in reads {
        let path = place.join(name);
        let times = |read, changed| {
            let time = |tv_sec| rustix::fs::Timespec { tv_sec, tv_nsec: 0 };
            let set = rustix::fs::Timestamps {
                last_access: time(read),
                last_modification: time(changed),
            };
            let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
            rustix::fs::utimensat(CWD, &path, &set, flags).unwrap();
        };
        let stat = || fs::symlink_metadata(&path).unwrap();
        for (read_at, changed_at) in [(1_000_000, 2_000_000), (2_000_000_000, 1_000_000)] {
            times(read_at, changed_at);
            let before = stat();
            read(&path);
            let after = stat();
            let moved = before.atime() != after.atime();
            let changed = before.ctime() != after.ctime() || before.mtime() != after.mtime();
            writeln!(told, "{what} {read_at}: {moved} {changed}").unwrap();
        }
    }
}

/// What changes which times, of the file and of its directory.
pub fn changes(place: &Path, told: &mut String) {
    let folder = place.join("folder");
    fs::create_dir(&folder).unwrap();
    let path = folder.join("file");
    let file = both(&path);
    let stat = |path: &Path| {
        let stat = fs::symlink_metadata(path).unwrap();
        [(stat.mtime(), stat.mtime_nsec()), (stat.ctime(), stat.ctime_nsec())]
    };
    let set = |name: &str, value: &[u8]| {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(&path, name, value, flags).unwrap();
    };
    let works: [(&str, &dyn Fn()); 19] = [
        ("write", &|| file.write_all_at(b"some", 0).unwrap()),
        ("write of nothing", &|| file.write_all_at(b"", 0).unwrap()),
        ("write as before", &|| file.write_all_at(b"some", 0).unwrap()),
        ("cut", &|| file.set_len(2).unwrap()),
        ("cut to as much", &|| file.set_len(2).unwrap()),
        ("room", &|| fallocate(&file, FallocateFlags::empty(), 0, 100).unwrap()),
        ("room kept", &|| fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 9_000).unwrap()),
        ("room as before", &|| fallocate(&file, FallocateFlags::empty(), 0, 50).unwrap()),
        ("mode", &|| fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap()),
        ("mode as before", &|| fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap()),
        ("owner as before", &|| std::os::unix::fs::chown(&path, Some(0), Some(0)).unwrap()),
        ("attribute", &|| set("user.a", b"1")),
        ("attribute anew", &|| set("user.a", b"2")),
        ("attribute removed", &|| rustix::fs::removexattr(&path, "user.a").unwrap()),
        ("sync", &|| file.sync_all().unwrap()),
        ("link", &|| fs::hard_link(&path, folder.join("link")).unwrap()),
        ("rename", &|| fs::rename(folder.join("link"), place.join("away")).unwrap()),
        ("unlink", &|| fs::remove_file(place.join("away")).unwrap()),
        ("open to cut", &|| drop(File::create(&path).unwrap())),
    ];
    for (what, work) in works {
        let before = [stat(&path), stat(&folder), stat(place)];
        work();
        let after = [stat(&path), stat(&folder), stat(place)];
        let moved: Vec<String> = before
            .iter()
            .zip(&after)
            .map(|(before, after)| format!("{:?}", [0, 1].map(|at| before[at] != after[at])))
            .collect();
        writeln!(told, "{what}: {moved:?}").unwrap();
    }
}
