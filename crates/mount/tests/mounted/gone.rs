//! Files that are removed after the kernel has found them. A descriptor with O_PATH is just that: the
//! file was looked up, and nobody has opened it yet.

use crate::needs_fuse;
use crate::support::{Farm, Machine};
use model::FileId;
use mount::MountOptions;
use rustix::fs::{CWD, Mode, OFlags, XattrFlags, fgetxattr, fremovexattr, fsetxattr, openat};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(10);

/// A file that was looked up.
struct LookedUp {
    file: FileId,
    descriptor: OwnedFd,
}

impl LookedUp {
    fn at(path: &Path) -> LookedUp {
        let descriptor = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let file = FileId(fs::metadata(path).unwrap().ino());
        LookedUp { file, descriptor }
    }

    /// Where the kernel opens it without looking it up again.
    fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.descriptor.as_raw_fd()).into()
    }

    fn links(&self) -> u64 {
        fs::metadata(self.path()).unwrap().nlink()
    }
}

fn is_there(machine: &Machine, file: FileId) -> bool {
    let found = client::complete(machine.client(), |client| client.attributes(file));
    machine.block_on(found).is_ok()
}

/// The kernel tells late that it has forgotten a file.
fn is_forgotten(machine: &Machine, file: FileId) -> bool {
    let begun = Instant::now();
    while is_there(machine, file) {
        if begun.elapsed() > SOON {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

#[test]
fn what_was_looked_up_is_opened_though_it_was_removed_here() {
    needs_fuse!();
    let farm = Farm::new();
    let machine = farm.machine("here", MountOptions::default());
    let removals: [fn(&Machine); 2] = [
        |machine| fs::remove_file(machine.path("file")).unwrap(),
        |machine| {
            fs::write(machine.path("new"), "new").unwrap();
            fs::rename(machine.path("new"), machine.path("file")).unwrap();
        },
    ];
    for remove in removals {
        fs::write(machine.path("file"), "what it was").unwrap();
        let found = LookedUp::at(&machine.path("file"));
        remove(&machine);
        for _ in 0..2 {
            assert_eq!(fs::read_to_string(found.path()).unwrap(), "what it was");
            assert_eq!(found.links(), 0);
        }
        let file = found.file;
        assert!(is_there(&machine, file));
        drop(found);
        assert!(is_forgotten(&machine, file));
    }
}

#[test]
fn what_was_looked_up_is_opened_though_it_was_removed_elsewhere() {
    needs_fuse!();
    let farm = Farm::new();
    let (here, there) = (
        farm.machine("here", MountOptions::default()),
        farm.machine("there", MountOptions::default()),
    );
    for cached in [true, false] {
        fs::write(here.path("file"), "what it was").unwrap();
        if cached {
            assert_eq!(fs::read_to_string(there.path("file")).unwrap(), "what it was");
        }
        let found = LookedUp::at(&there.path("file"));
        fs::write(here.path("new"), "another").unwrap();
        fs::rename(here.path("new"), here.path("file")).unwrap();
        assert_eq!(fs::read_to_string(there.path("file")).unwrap(), "another");
        for _ in 0..2 {
            assert_eq!(fs::read_to_string(found.path()).unwrap(), "what it was");
            assert_eq!(found.links(), 0);
        }
        let file = found.file;
        drop(found);
        assert!(is_forgotten(&there, file));
    }
}

#[test]
fn what_is_written_to_a_file_after_its_removal_here_is_seen_by_nobody_else() {
    needs_fuse!();
    let farm = Farm::new();
    let (here, there) = (
        farm.machine("here", MountOptions::default()),
        farm.machine("there", MountOptions::default()),
    );
    fs::write(here.path("file"), "first").unwrap();
    let found = LookedUp::at(&here.path("file"));
    fs::remove_file(here.path("file")).unwrap();
    let mut options = File::options();
    let mut open = options.read(true).append(true).open(found.path()).unwrap();
    open.write_all(b" and second").unwrap();
    open.rewind().unwrap();
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "first and second");
    drop(open);
    // As long as the kernel has it, it is what was written.
    assert_eq!(fs::read_to_string(found.path()).unwrap(), "first and second");
    assert_eq!(fs::metadata(found.path()).unwrap().len(), 16);
    assert_eq!(fs::read_dir(there.path("")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(here.path("")).unwrap().count(), 0);
}

#[test]
fn attributes_of_an_open_file_are_set_after_its_removal_here() {
    needs_fuse!();
    let farm = Farm::new();
    let machine = farm.machine("a", MountOptions::default());
    fs::write(machine.path("file"), b"text").unwrap();
    let file = File::options().write(true).open(machine.path("file")).unwrap();
    fs::remove_file(machine.path("file")).unwrap();
    let mut value = [0; 10];
    assert_eq!(fgetxattr(&file, "user.a", &mut value), Err(Errno::NODATA));
    fsetxattr(&file, "user.a", b"one", XattrFlags::empty()).unwrap();
    assert_eq!(fgetxattr(&file, "user.a", &mut value), Ok(3));
    assert_eq!(fsetxattr(&file, "user.a", b"two", XattrFlags::CREATE), Err(Errno::EXIST));
    fremovexattr(&file, "user.a").unwrap();
    assert_eq!(fremovexattr(&file, "user.a"), Err(Errno::NODATA));
    file.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o600);
    assert!(fs::read_dir(machine.path("")).unwrap().next().is_none());
}

#[test]
fn what_is_written_to_a_file_after_its_removal_elsewhere_brings_it_back() {
    needs_fuse!();
    let farm = Farm::new();
    let (here, there) = (
        farm.machine("here", MountOptions::default()),
        farm.machine("there", MountOptions::default()),
    );
    fs::write(here.path("file"), "first").unwrap();
    let found = LookedUp::at(&there.path("file"));
    fs::remove_file(here.path("file")).unwrap();
    let mut options = File::options();
    let mut open = options.append(true).open(found.path()).unwrap();
    open.write_all(b" and second").unwrap();
    drop(open);
    assert_eq!(fs::read_to_string(here.path("file")).unwrap(), "first and second");
}
