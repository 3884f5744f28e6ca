//! Files that are made without a name: O_TMPFILE.

use crate::needs_fuse;
use crate::support::{Farm, Link, Machine, is_root};
use client::Caller;
use model::{FileId, Name};
use mount::MountOptions;
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, Timespec, Timestamps, XattrFlags, fchmod, fgetxattr, fsetxattr,
    futimens, linkat, openat,
};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(10);
const ACL_DEFAULT: &str = "system.posix_acl_default";
const ACL_ACCESS: &str = "system.posix_acl_access";

fn nameless(directory: &Path, more: OFlags) -> File {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC | more;
    openat(CWD, directory, flags, Mode::from_raw_mode(0o640)).unwrap().into()
}

fn again(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

fn give(file: &File, name: &Path) -> Result<(), Errno> {
    linkat(CWD, again(file), CWD, name, AtFlags::SYMLINK_FOLLOW)
}

fn names(machine: &Machine, directory: &str) -> Vec<String> {
    let entries = fs::read_dir(machine.path(directory)).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn text(file: &File) -> String {
    let mut text = String::new();
    let mut file = file.try_clone().unwrap();
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    text
}

/// Bytes that no two chunks have in common.
fn many_bytes(count: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..count).map(step).collect()
}

#[test]
fn a_file_without_a_name_is_this_machines_alone_until_it_gets_one() {
    needs_fuse!();
    let farm = Farm::new();
    let here = farm.machine("here", MountOptions::default());
    let there = farm.machine("there", MountOptions::default());
    fs::create_dir(here.path("folder")).unwrap();
    let mut file = nameless(&here.path("folder"), OFlags::empty());
    file.write_all(b"what was written").unwrap();
    let made = file.metadata().unwrap();
    assert_eq!((made.nlink(), made.len(), made.mode() & 0o7777), (0, 16, 0o640));
    fchmod(&file, Mode::from_raw_mode(0o604)).unwrap();
    fsetxattr(&file, "user.colour", b"blue", XattrFlags::CREATE).unwrap();
    let mut value = [0; 16];
    assert_eq!(fgetxattr(&file, "user.colour", &mut value), Ok(4));
    let time = Timespec { tv_sec: 1_000_000_000, tv_nsec: 5 };
    // Through a descriptor of its own, of which the first one knows.
    let other = File::options().read(true).write(true).open(again(&file)).unwrap();
    other.write_all_at(b"W", 0).unwrap();
    other.set_len(10).unwrap();
    futimens(&file, &Timestamps { last_access: time, last_modification: time }).unwrap();
    assert_eq!(text(&file), "What was w");
    file.sync_all().unwrap();
    drop(other);
    assert_eq!(text(&file), "What was w");
    assert_eq!((names(&here, "folder"), names(&there, "folder")), (vec![], vec![]));
    assert_eq!(here.client().status().pending.updates, 0);

    give(&file, &here.path("folder/file")).unwrap();
    for machine in [&here, &there] {
        let found = fs::metadata(machine.path("folder/file")).unwrap();
        assert_eq!((found.ino(), found.nlink(), found.len()), (made.ino(), 1, 10));
        // It was made before it got its name.
        assert_eq!(found.created().ok(), made.created().ok());
        assert_eq!((found.mtime(), found.mtime_nsec()), (1_000_000_000, 5));
        assert_eq!(found.mode() & 0o7777, 0o604);
        assert_eq!(fs::read_to_string(machine.path("folder/file")).unwrap(), "What was w");
        let open = File::open(machine.path("folder/file")).unwrap();
        assert_eq!(fgetxattr(&open, "user.colour", &mut value), Ok(4));
        assert_eq!(&value[..4], b"blue");
    }
    assert_eq!(file.metadata().unwrap().nlink(), 1);
    // From here on it is a file like any other.
    file.write_all_at(b"!", 10).unwrap();
    drop(file);
    assert_eq!(fs::read_to_string(there.path("folder/file")).unwrap(), "What was w!");
    fs::hard_link(here.path("folder/file"), here.path("second")).unwrap();
    assert_eq!(fs::metadata(there.path("second")).unwrap().nlink(), 2);
}

#[test]
fn what_is_closed_without_a_name_is_gone() {
    needs_fuse!();
    let farm = Farm::new();
    let here = farm.machine("here", MountOptions::default());
    let mut file = nameless(&here.path(""), OFlags::empty());
    file.write_all(&many_bytes(300_000)).unwrap();
    file.sync_all().unwrap();
    let id = model::FileId(file.metadata().unwrap().ino());
    let is_there =
        || here.block_on(client::complete(here.client(), |client| client.attributes(id))).is_ok();
    assert!(is_there());
    assert_eq!(here.containers(), 1);
    drop(file);
    let begun = Instant::now();
    while (is_there() || here.containers() > 0) && begun.elapsed() < SOON {
        std::thread::yield_now();
    }
    assert!(!is_there());
    assert_eq!(here.containers(), 0);
    assert_eq!(here.client().status().pending.updates, 0);
}

#[test]
fn one_that_is_to_stay_without_a_name_gets_none() {
    needs_fuse!();
    let farm = Farm::new();
    let here = farm.machine("here", MountOptions::default());
    let file = nameless(&here.path(""), OFlags::EXCL);
    assert_eq!(give(&file, &here.path("file")), Err(Errno::NOENT));
    assert!(names(&here, "").is_empty());
}

#[test]
fn where_a_name_is_taken_another_may_be_given() {
    needs_fuse!();
    let farm = Farm::new();
    let here = farm.machine("here", MountOptions::default());
    fs::write(here.path("taken"), "mine").unwrap();
    let mut file = nameless(&here.path(""), OFlags::empty());
    file.write_all(b"text").unwrap();
    assert_eq!(give(&file, &here.path("taken")), Err(Errno::EXIST));
    assert_eq!(give(&file, &here.path("nowhere/file")), Err(Errno::NOENT));
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    give(&file, &here.path("free")).unwrap();
    assert_eq!(fs::read_to_string(here.path("free")).unwrap(), "text");
    assert_eq!(fs::read_to_string(here.path("taken")).unwrap(), "mine");
}

/// The kernel lets one after the other through, as far as it knows that it is one file.
#[test]
fn two_who_give_a_file_a_name_at_once_give_it_two() {
    needs_fuse!();
    let farm = Farm::new();
    let here = farm.machine("here", MountOptions::default());
    let there = farm.machine("there", MountOptions::default());
    let mut file = nameless(&here.path(""), OFlags::empty());
    let contents = many_bytes(16 << 20);
    file.write_all(&contents).unwrap();
    let id = FileId(file.metadata().unwrap().ino());
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let (caller, begin) = (Caller { uid, gid }, Barrier::new(2));
    let link = |name: &str| {
        let name = Name::new(name).unwrap();
        begin.wait();
        here.block_on(client::complete(here.client(), |client| {
            client.link(caller, id, FileId::ROOT, &name)
        }))
    };
    std::thread::scope(|scope| {
        let (one, other) = (scope.spawn(|| link("a")), scope.spawn(|| link("b")));
        for given in [one.join().unwrap(), other.join().unwrap()] {
            given.unwrap();
        }
    });
    drop(file);
    for machine in [&here, &there] {
        assert_eq!(names(machine, ""), ["a", "b"]);
        assert_eq!(fs::metadata(machine.path("a")).unwrap().nlink(), 2);
        assert!(fs::read(machine.path("b")).unwrap() == contents);
    }
}

/// The name is taken elsewhere while this machine's word is on its way.
#[test]
fn who_is_refused_a_name_has_the_file_as_before() {
    needs_fuse!();
    let farm = Farm::new();
    let here = farm.machine("here", MountOptions::default());
    let there = farm.machine("there", MountOptions::default());
    for (round, contents) in
        [many_bytes(0), many_bytes(700), many_bytes(900_000)].iter().enumerate()
    {
        let (taken, free) = (format!("taken {round}"), format!("free {round}"));
        assert!(!there.path(&taken).exists() && !here.path(&taken).exists());
        let mut file = nameless(&here.path(""), OFlags::empty());
        file.write_all(contents).unwrap();
        here.set_link(Link::Held);
        let outcome = std::thread::scope(|scope| {
            let waits = scope.spawn(|| give(&file, &here.path(&taken)));
            while here.client().status().pending.updates == 0 {
                std::thread::yield_now();
            }
            fs::write(there.path(&taken), "theirs").unwrap();
            here.set_link(Link::Open);
            waits.join().unwrap()
        });
        assert_eq!(outcome, Err(Errno::EXIST));
        let found = file.metadata().unwrap();
        assert_eq!((found.nlink(), found.len()), (0, contents.len() as u64));
        file.write_all(b"more").unwrap();
        give(&file, &here.path(&free)).unwrap();
        drop(file);
        for machine in [&here, &there] {
            let read = fs::read(machine.path(&free)).unwrap();
            assert_eq!(read, [&contents[..], b"more"].concat());
            assert_eq!(fs::read_to_string(machine.path(&taken)).unwrap(), "theirs");
        }
        assert_eq!(names(&there, "").len(), 2 * (round + 1));
    }
}

#[test]
fn nobody_sees_a_file_under_its_name_without_its_contents() {
    needs_fuse!();
    let farm = Farm::new();
    let here = farm.machine("here", MountOptions::default());
    let there = farm.machine("there", MountOptions::default());
    let contents = many_bytes(3 << 20);
    let mut file = nameless(&here.path(""), OFlags::empty());
    file.write_all(&contents).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sees = scope.spawn(|| {
            let mut sizes = Vec::new();
            while !done.load(Ordering::Relaxed) {
                sizes.extend(fs::metadata(there.path("file")).map(|found| found.len()));
            }
            sizes
        });
        give(&file, &here.path("file")).unwrap();
        done.store(true, Ordering::Relaxed);
        assert!(sees.join().unwrap().iter().all(|size| *size == contents.len() as u64));
    });
    assert_eq!(fs::read(there.path("file")).unwrap(), contents);
}

/// A list that gives a user more, as the kernel has it.
fn list() -> Vec<u8> {
    let entries = [(1_u16, 7_u16, !0_u32), (2, 6, 1), (4, 5, !0), (0x10, 7, !0), (0x20, 0, !0)];
    let entries = entries.iter().flat_map(|(tag, may, id)| {
        [&tag.to_le_bytes()[..], &may.to_le_bytes()[..], &id.to_le_bytes()[..]].concat()
    });
    2_u32.to_le_bytes().into_iter().chain(entries).collect()
}

#[test]
fn the_directory_in_which_it_was_made_hands_down_and_the_one_of_its_name_does_not() {
    needs_fuse!();
    if !is_root() {
        return;
    }
    let farm = Farm::new();
    let here = farm.machine("here", MountOptions::default());
    let there = farm.machine("there", MountOptions::default());
    for folder in ["plain", "listed"] {
        fs::create_dir(here.path(folder)).unwrap();
    }
    let listed = here.path("listed");
    fs::set_permissions(&listed, fs::Permissions::from_mode(0o2777)).unwrap();
    std::os::unix::fs::chown(&listed, None, Some(17)).unwrap();
    fs::set_permissions(&listed, fs::Permissions::from_mode(0o2777)).unwrap();
    let folder = File::open(&listed).unwrap();
    fsetxattr(&folder, ACL_DEFAULT, &list(), XattrFlags::empty()).unwrap();
    // (made in, named in, group, has a list)
    let cases = [
        ("plain", "listed", 0, false),
        ("listed", "plain", 17, true),
        ("listed", "listed", 17, true),
    ];
    for (made_in, named_in, group, has_list) in cases {
        let file = nameless(&here.path(made_in), OFlags::empty());
        let made = file.metadata().unwrap();
        let name = format!("{named_in}/from {made_in}");
        give(&file, &here.path(&name)).unwrap();
        for machine in [&here, &there] {
            let found = File::open(machine.path(&name)).unwrap();
            let (attributes, mut value) = (found.metadata().unwrap(), [0; 128]);
            assert_eq!((made.mode(), made.gid()), (attributes.mode(), attributes.gid()), "{name}");
            assert_eq!(attributes.gid(), group, "{name}");
            let listed = fgetxattr(&found, ACL_ACCESS, &mut value);
            assert_eq!(listed.is_ok(), has_list, "{name}: {listed:?}");
        }
    }
}

#[test]
fn without_a_link_a_name_is_given_at_once() {
    needs_fuse!();
    let farm = Farm::new();
    let here = farm.machine("here", MountOptions::default());
    assert!(names(&here, "").is_empty());
    here.set_link(Link::Cut);
    assert!(here.comes_to(protocol::Mode::Disconnected));
    let mut file = nameless(&here.path(""), OFlags::empty());
    file.write_all(b"far away").unwrap();
    give(&file, &here.path("file")).unwrap();
    drop(file);
    assert_eq!(fs::read_to_string(here.path("file")).unwrap(), "far away");
    assert_eq!(here.client().status().pending.updates, 3);
}
