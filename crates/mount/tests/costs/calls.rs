//! What each call of a program costs: the requests that the kernel sends for it and waits for.

use crate::raw::{Mapping, is_terminal, poll, truncate};
use crate::support::{Farm, Machine};
use crate::{asked, listen, times};
use mount::MountOptions;
use rustix::fs::{
    Access, AtFlags, CWD, FallocateFlags, FileType, FlockOperation, IFlags, Mode, OFlags,
    RenameFlags, SeekFrom, StatxFlags, Timespec, Timestamps, XattrFlags, fallocate,
};
use rustix::io::Errno;
use rustix::process::{Flock, FlockType, fcntl_getlk};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// The lists are this kernel's. Another may ask less often.
const KERNEL: &str = "6.18.";

/// A mount with a directory, and the calls of which something else was asked than was expected.
struct Costs {
    machine: Machine,
    wrong: Vec<String>,
}

impl Costs {
    fn of(farm: &Farm) -> Costs {
        let machine = farm.machine("one", MountOptions::default());
        fs::create_dir(machine.path("d")).unwrap();
        Costs { machine, wrong: Vec::new() }
    }

    /// As `of`, with what is asked for once of a mount behind it.
    fn of_later(farm: &Farm) -> Costs {
        let costs = Costs::of(farm);
        drop(File::open(costs.at("")).unwrap());
        costs
    }

    fn at(&self, name: &str) -> PathBuf {
        self.machine.path("d").join(name)
    }

    fn count(&mut self, what: &str, expected: &str, call: impl FnOnce()) {
        let said = asked(call);
        let most = times(expected);
        let is_more =
            times(&said).iter().any(|(kind, times)| most.get(kind).is_none_or(|most| times > most));
        let is_known = rustix::system::uname().release().to_bytes().starts_with(KERNEL.as_bytes());
        if is_more || is_known && said != expected {
            self.wrong.push(format!("{what}: {said}"));
        }
    }

    fn check(&self) {
        assert!(self.wrong.is_empty(), "asked for otherwise: {:#?}", self.wrong);
    }
}

fn to_write(path: &Path) -> File {
    File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

fn opened(path: &Path, flags: OFlags) -> File {
    rustix::fs::open(path, flags, Mode::empty()).unwrap().into()
}

fn stat(path: &Path) {
    rustix::fs::stat(path).unwrap();
}

/// As cat(1) does; Rust's own `read_to_end` wants to know when the file was made.
fn read(path: &Path) {
    let mut file = File::open(path).unwrap();
    let mut bytes = vec![0; rustix::fs::fstat(&file).unwrap().st_size as usize];
    file.read_exact(&mut bytes).unwrap();
    assert_eq!((bytes.len(), file.read(&mut [0]).unwrap()), (3000, 0));
}

#[test]
fn the_kernel_asks_no_more_often_than_it_must() {
    let Some(_alone) = listen() else { return };
    let farm = Farm::new();
    let mut costs = Costs::of_later(&farm);
    let d = costs.at("");
    let at = |name: &str| d.join(name);
    costs.count("create, write, close", "create, flush, getxattr, lookup, write", || {
        fs::write(at("f"), [1; 3000]).unwrap();
    });
    let expected = "create, flush, getattr, getxattr, lookup, 2 setattr, write";
    costs.count("create, write, set times and mode, close", expected, || {
        let mut file = File::create_new(at("g")).unwrap();
        file.write_all(&[2; 3000]).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        file.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
    });
    costs.count("stat, just written", "2 getattr", || stat(&at("f")));
    costs.count("stat, again", "", || stat(&at("f")));
    // Who asks for it, as the standard library of Rust always does, pays once for each file.
    let born = || drop(fs::metadata(at("f")).unwrap().created());
    costs.count("stat with the time of birth", "statx", born);
    costs.count("the same, again", "", born);
    let none = || drop(fs::metadata(at("none")).unwrap_err());
    costs.count("stat of what is not there", "lookup", none);
    costs.count("the same, again", "", none);
    costs.count("open, read, close, just written", "getattr, open, read", || read(&at("f")));
    costs.count("open, read, close, again", "getattr, open", || read(&at("f")));
    costs.count("open, read, close, from then on", "open", || read(&at("f")));
    let list = || assert_eq!(fs::read_dir(&d).unwrap().count(), 2);
    costs.count("list", "readdir, readdirplus", list);
    costs.count("list, again", "getattr", list);
    costs.count("open, write, close", "flush, getxattr, open, write", || {
        to_write(&at("f")).write_all_at(b"other", 100).unwrap();
    });
    let expected = "create, flush, 2 getxattr, lookup, 3 setattr, write";
    costs.count("a file as tar(1) unpacks it", expected, || {
        let mut file = File::create_new(at("t")).unwrap();
        file.write_all(&[3; 700]).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
        rustix::fs::fchown(&file, Some(user), Some(group)).unwrap();
        file.set_permissions(fs::Permissions::from_mode(0o644)).unwrap();
    });
    costs.count("a lock as git(1) takes it", "create, flush, 2 getattr, lookup, unlink", || {
        drop(File::options().read(true).write(true).create_new(true).open(at("l")).unwrap());
        fs::remove_file(at("l")).unwrap();
    });
    costs.check();
}

#[test]
fn what_is_not_done_here_is_asked_for_once() {
    let Some(_alone) = listen() else { return };
    let farm = Farm::new();
    let mut costs = Costs::of(&farm);
    let (f, g) = (to_write(&costs.at("f")), to_write(&costs.at("g")));
    f.write_all_at(&[1; 100], 0).unwrap();
    let d = costs.at("");
    costs.count("open a directory", "getattr, opendir", || drop(File::open(&d).unwrap()));
    costs.count("the same, again", "", || drop(File::open(&d).unwrap()));
    costs.count("poll", "poll", || assert!(poll(&f)));
    costs.count("poll, again", "", || assert!(poll(&f)));
    let copy = || {
        let copied = rustix::fs::copy_file_range(&f, Some(&mut 0), &g, Some(&mut 0), 100);
        assert_eq!(copied, Ok(100));
    };
    let expected = "copy_file_range, copy_file_range_64, getxattr";
    costs.count("copy_file_range", expected, copy);
    costs.count("copy_file_range, again", "copy_file_range", copy);
    // What it does not know of FUSE file systems it refuses itself.
    for flags in [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE] {
        costs.count("collapse, insert", "", || {
            assert_eq!(fallocate(&f, flags, 0, 4096), Err(Errno::OPNOTSUPP));
        });
    }
    costs.count("FICLONE", "", || {
        assert_eq!(rustix::fs::ioctl_ficlone(&g, &f), Err(Errno::OPNOTSUPP));
    });
    costs.count("syncfs", "", || rustix::fs::syncfs(&f).unwrap());
    // Of commands, and of attributes, it does not remember that there are none.
    for _ in 0..2 {
        costs.count("isatty", "ioctl", || assert!(!is_terminal(&f)));
        costs.count("lsattr", "ioctl, open", || assert!(rustix::fs::ioctl_getflags(&f).is_err()));
        costs.count("chattr", "ioctl, open", || {
            assert!(rustix::fs::ioctl_setflags(&f, IFlags::NOATIME).is_err());
        });
        costs.count("security.selinux", "getxattr", || {
            let got = rustix::fs::getxattr(&d, "security.selinux", &mut [0; 9][..]);
            assert_eq!(got, Err(Errno::OPNOTSUPP));
        });
    }
    costs.check();
}

#[test]
fn a_change_of_names_costs_a_lookup_and_then_the_directory() {
    let Some(_alone) = listen() else { return };
    let farm = Farm::new();
    let mut costs = Costs::of_later(&farm);
    let d = costs.at("");
    let at = |name: &str| d.join(name);
    let rename = |from: &str, to: &str, flags| {
        rustix::fs::renameat_with(CWD, at(from), CWD, at(to), flags).unwrap();
    };
    costs.count("mkdir", "lookup, mkdir", || fs::create_dir(at("a")).unwrap());
    costs.count("mkdir, the next", "getattr, lookup, mkdir", || fs::create_dir(at("b")).unwrap());
    costs.count("rmdir", "getattr, rmdir", || fs::remove_dir(at("b")).unwrap());
    costs.count("mkfifo", "getattr, lookup, mknod", || {
        rustix::fs::mknodat(CWD, at("p"), FileType::Fifo, 0o600.into(), 0).unwrap();
    });
    costs.count("create, close", "create, flush, getattr, lookup", || drop(to_write(&at("f"))));
    costs.count("O_CREAT of what is there", "flush, getattr, open", || drop(to_write(&at("f"))));
    costs.count("O_TRUNC of what is there", "flush, getattr, getxattr, open", || {
        drop(File::create(at("f")).unwrap());
    });
    costs.count("O_EXCL of what is there", "lookup", || {
        drop(File::create_new(at("f")).unwrap_err());
    });
    costs.count("symlink", "lookup, symlink", || {
        std::os::unix::fs::symlink("f", at("s")).unwrap();
    });
    costs.count("readlink", "getattr, readlink", || drop(fs::read_link(at("s")).unwrap()));
    costs.count("readlink, again", "", || drop(fs::read_link(at("s")).unwrap()));
    costs.count("link", "link, lookup", || fs::hard_link(at("f"), at("h")).unwrap());
    costs.count("rename", "getattr, lookup, rename", || fs::rename(at("f"), at("i")).unwrap());
    costs.count("create", "create, flush, getattr, lookup", || drop(to_write(&at("g"))));
    costs.count("rename over another", "getattr, lookup, rename", || {
        fs::rename(at("g"), at("i")).unwrap();
    });
    costs.count("RENAME_EXCHANGE", "getattr, rename2", || {
        rename("h", "i", RenameFlags::EXCHANGE);
    });
    costs.count("RENAME_NOREPLACE", "getattr, lookup, rename2", || {
        rename("h", "j", RenameFlags::NOREPLACE);
    });
    costs.count("unlink", "getattr, unlink", || fs::remove_file(at("j")).unwrap());
    let tmpfile = || rustix::fs::open(&d, OFlags::TMPFILE | OFlags::WRONLY, 0o600.into()).unwrap();
    costs.count("a file without a name", "flush, getattr, tmpfile", || drop(tmpfile()));
    let expected = "flush, 2 getattr, link, lookup, tmpfile";
    costs.count("a file without a name gets one", expected, || {
        rustix::fs::linkat(tmpfile(), "", CWD, at("t"), AtFlags::EMPTY_PATH).unwrap();
    });
    costs.check();
}

#[test]
fn looking_costs_what_the_kernel_does_not_have() {
    let Some(_alone) = listen() else { return };
    let farm = Farm::new();
    let mut costs = Costs::of_later(&farm);
    let (d, f) = (costs.at(""), costs.at("f"));
    fs::write(&f, [1; 3000]).unwrap();
    let access = |how| rustix::fs::access(&f, how);
    costs.count("access, just written", "getattr", || access(Access::READ_OK).unwrap());
    costs.count("access", "", || access(Access::READ_OK | Access::WRITE_OK).unwrap());
    // What the kernel would refuse may have been allowed elsewhere meanwhile.
    costs.count("access that is refused", "getattr", || {
        assert_eq!(access(Access::EXEC_OK), Err(Errno::ACCESS));
    });
    costs.count("a path alone", "", || drop(opened(&f, OFlags::PATH)));
    costs.count("open a directory", "", || drop(File::open(&d).unwrap()));
    costs.count("fsync of a directory", "fsyncdir", || File::open(&d).unwrap().sync_all().unwrap());
    costs.count("statfs", "statfs", || _ = rustix::fs::statvfs(&d).unwrap());
    costs.count("open and close to read", "open", || drop(File::open(&f).unwrap()));
    costs.count("open and close to write", "flush, getattr, open", || drop(to_write(&f)));
    let file = to_write(&f);
    costs.count("fstat", "", || _ = rustix::fs::fstat(&file).unwrap());
    let born = || {
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        rustix::fs::statx(&file, "", AtFlags::EMPTY_PATH, wanted).unwrap();
    };
    costs.count("statx with the time of birth", "statx", born);
    costs.count("the same, again", "", born);
    file.write_all_at(b"x", 0).unwrap();
    costs.count("the same, once it was written to", "statx", born);
    costs.check();
}

#[test]
fn what_is_set_is_told_with_the_answer() {
    let Some(_alone) = listen() else { return };
    let farm = Farm::new();
    let mut costs = Costs::of_later(&farm);
    let f = costs.at("f");
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    let file = File::create(&f).unwrap();
    stat(&f);
    let mode = fs::Permissions::from_mode;
    costs.count("chmod", "setattr", || fs::set_permissions(&f, mode(0o640)).unwrap());
    costs.count("fchmod", "setattr", || file.set_permissions(mode(0o600)).unwrap());
    costs.count("chown", "getxattr, setattr", || {
        rustix::fs::chown(&f, Some(user), Some(group)).unwrap();
    });
    let time = Timespec { tv_sec: 7, tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    costs.count("utimensat", "setattr", || {
        rustix::fs::utimensat(CWD, &f, &times, AtFlags::empty()).unwrap();
    });
    costs.count("futimens", "setattr", || rustix::fs::futimens(&file, &times).unwrap());
    costs.count("truncate", "getxattr, setattr", || truncate(&f, 100));
    costs.count("ftruncate", "getxattr, setattr", || file.set_len(50).unwrap());
    costs.count("stat", "", || stat(&f));
    // What is written to a mapping until then is not to count as changed later.
    let may_be_mapped = to_write(&f);
    stat(&f);
    costs.count("futimens of what may be mapped", "setattr", || {
        rustix::fs::futimens(&may_be_mapped, &times).unwrap();
    });
    costs.count("stat after it", "getattr", || stat(&f));
    let name = "user.a";
    costs.count("setxattr", "setxattr", || {
        rustix::fs::setxattr(&f, name, b"1", XattrFlags::empty()).unwrap();
    });
    for _ in 0..2 {
        costs.count("getxattr", "getxattr", || {
            assert_eq!(rustix::fs::getxattr(&f, name, &mut [0; 9][..]), Ok(1));
        });
        costs.count("listxattr", "listxattr", || {
            assert_eq!(rustix::fs::listxattr(&f, &mut [0; 99][..]), Ok(name.len() + 1));
        });
    }
    costs.count("removexattr", "removexattr", || rustix::fs::removexattr(&f, name).unwrap());
    costs.count("stat, changed so", "getattr", || stat(&f));
    let list = || {
        let got = rustix::fs::getxattr(&f, "system.posix_acl_access", &mut [0; 99][..]);
        assert_eq!(got, Err(Errno::NODATA));
    };
    costs.count("its access list", "getxattr", list);
    costs.count("its access list, again", "", list);
    costs.check();
}

#[test]
fn what_was_written_is_read_without_asking() {
    let Some(_alone) = listen() else { return };
    let farm = Farm::new();
    let mut costs = Costs::of_later(&farm);
    let (f, g) = (costs.at("f"), costs.at("g"));
    let file = to_write(&f);
    let (page, much) = ([1; 4096], vec![1; 4 << 20]);
    let write = || file.write_all_at(&page, 0).unwrap();
    let read = |bytes: usize| file.read_exact_at(&mut vec![0; bytes], 0).unwrap();
    costs.count("write", "getxattr, write", write);
    costs.count("write, again", "write", write);
    costs.count("read", "", || read(4096));
    costs.count("read at the end", "getattr", || {
        assert_eq!(file.read_at(&mut [0; 10], 4096).unwrap(), 0);
    });
    costs.count("fsync", "fsync", || file.sync_all().unwrap());
    costs.count("fsync, again", "fsync", || file.sync_all().unwrap());
    costs.count("fdatasync", "fsync", || file.sync_data().unwrap());
    // The answer about the end had attributes.
    costs.count("write after it", "getxattr, write", write);
    costs.count("write 4 MiB", "4 write", || file.write_all_at(&much, 0).unwrap());
    costs.count("read 4 MiB", "", || read(4 << 20));
    let seek = |to| _ = rustix::fs::seek(&file, to).unwrap();
    costs.count("SEEK_SET", "", || seek(SeekFrom::Start(5)));
    costs.count("SEEK_END, just written", "getattr", || seek(SeekFrom::End(0)));
    costs.count("SEEK_END", "", || seek(SeekFrom::End(0)));
    costs.count("SEEK_DATA", "lseek", || seek(SeekFrom::Data(5)));
    costs.count("SEEK_HOLE", "lseek", || seek(SeekFrom::Hole(5)));
    let make_room = |flags| fallocate(&file, flags, 0, 4096).unwrap();
    costs.count("fallocate", "fallocate, getxattr", || make_room(FallocateFlags::empty()));
    costs.count("keep the size", "fallocate", || make_room(FallocateFlags::KEEP_SIZE));
    costs.count("zero", "fallocate", || make_room(FallocateFlags::ZERO_RANGE));
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    costs.count("punch", "fallocate", || make_room(punch));
    costs.count("read what was punched", "read", || read(4096));
    let other = to_write(&g);
    costs.count("sendfile", "getxattr, write", || {
        assert_eq!(rustix::fs::sendfile(&other, &file, Some(&mut 0), 4096), Ok(4096));
    });
    costs.count("close a copy of the descriptor", "flush", || drop(file.try_clone().unwrap()));
    costs.count("close", "flush", || drop(file));
    let mut end = File::options().append(true).open(&f).unwrap();
    costs.count("append", "write", || end.write_all(b"abc").unwrap());
    costs.count("close", "flush", || drop(end));
    let synced = opened(&g, OFlags::WRONLY | OFlags::DSYNC);
    costs.count("write, synced", "fsync, write", || synced.write_all_at(&page, 0).unwrap());
    let direct = opened(&f, OFlags::RDWR | OFlags::DIRECT);
    for _ in 0..2 {
        costs.count("read directly", "read", || direct.read_exact_at(&mut [0; 4096], 0).unwrap());
        costs.count("write directly", "write", || direct.write_all_at(&page, 0).unwrap());
    }
    costs.check();
}

/// What the other program does with its mapping.
const TOLD: &str = "COSTS_MAPS";

/// Maps a file in a process of its own: who maps a file of a mount holds its own memory still while
/// it waits, and here the daemon with it.
fn maps(how: &str, path: &Path) {
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", "calls::another_program_maps_a_file"]);
    let output = program.env(TOLD, how).env("COSTS_FILE", path).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// That program: told nothing, it does nothing.
#[test]
fn another_program_maps_a_file() {
    let Ok(how) = std::env::var(TOLD) else { return };
    let file = to_write(Path::new(&std::env::var_os("COSTS_FILE").unwrap()));
    let mapping = Mapping::of(&file, 1 << 16);
    for done in how.split(' ') {
        match done {
            "read" => assert_eq!((mapping.read(5), mapping.read(50_000)), (1, 1)),
            "write" => mapping.write(50, 2),
            "sync" => mapping.sync(),
            other => panic!("{other}"),
        }
    }
}

#[test]
fn a_mapping_that_was_written_to_is_handed_on_page_by_page() {
    let Some(_alone) = listen() else { return };
    let farm = Farm::new();
    let mut costs = Costs::of_later(&farm);
    let f = costs.at("f");
    fs::write(&f, vec![1; 1 << 16]).unwrap();
    stat(&f);
    costs.count("read", "flush, open", || maps("read", &f));
    costs.count("write", "flush, getattr, open, write", || maps("write", &f));
    costs.count("write and msync", "flush, fsync, open, write", || maps("write sync", &f));
    let expected = "flush, 2 fsync, getattr, open, 2 write";
    costs.count("the same, twice", expected, || maps("write sync write sync", &f));
    costs.check();
}

#[test]
fn each_change_of_a_lock_is_asked_for() {
    let Some(_alone) = listen() else { return };
    let farm = Farm::new();
    let mut costs = Costs::of_later(&farm);
    let f = costs.at("f");
    fs::write(&f, "abc").unwrap();
    let (file, to_read) = (to_write(&f), File::open(&f).unwrap());
    let whole = |how| rustix::fs::flock(&file, how).unwrap();
    let part = |how| rustix::fs::fcntl_lock(&file, how).unwrap();
    costs.count("flock", "setlkw", || whole(FlockOperation::LockExclusive));
    costs.count("a weaker one", "setlkw", || whole(FlockOperation::LockShared));
    costs.count("give it up", "setlkw", || whole(FlockOperation::Unlock));
    costs.count("flock or nothing", "setlk", || whole(FlockOperation::NonBlockingLockShared));
    costs.count("fcntl", "setlk", || part(FlockOperation::NonBlockingLockExclusive));
    costs.count("fcntl that waits", "setlkw", || part(FlockOperation::LockExclusive));
    costs.count("what is in the way", "getlk", || {
        assert_eq!(fcntl_getlk(&file, &Flock::from(FlockType::WriteLock)), Ok(None));
    });
    costs.count("give it up", "setlkw", || part(FlockOperation::Unlock));
    costs.count("give up nothing", "setlkw", || part(FlockOperation::Unlock));
    part(FlockOperation::LockExclusive);
    costs.count("close with both", "flush", || drop(file));
    rustix::fs::flock(&to_read, FlockOperation::LockShared).unwrap();
    rustix::fs::fcntl_lock(&to_read, FlockOperation::LockShared).unwrap();
    costs.count("close to read with both", "", || drop(to_read));
    costs.check();
}
