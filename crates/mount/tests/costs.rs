//! How often the kernel asks the daemon, and waits, for each call of a program. Each time costs tens
//! of microseconds, so that one more is to be noticed. Of what is there more than one would think,
//! Linux 6.18 does not let the daemon spare anything:
//! - a directory's attributes are asked for when it is used next after something in it was made,
//!   removed or renamed, and a file's after it was written to or read;
//! - a directory's attributes are asked for, too, when it is looked at next after the daemon listed it:
//!   its time of access may have moved;
//! - when a file was made is asked for by a call of its own, for who wants to know that, once for as
//!   long as the kernel has the file: no listing and no lookup can say it;
//! - a file's attributes are asked for once more when it is opened to be read for the first time
//!   since it was written here: of a time of access alone the kernel cannot be told to forget it;
//! - the attribute `security.capability` is asked for before the first write after each change of
//!   attributes, and before a change of owner.
#![allow(clippy::disallowed_methods, reason = "the tests are the programs that use the mount")]
#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]
#![allow(dead_code, reason = "the other tests of mounts use the rest of it")]

#[path = "mounted/support.rs"]
mod support;

use mount::MountOptions;
use replica::Limits;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use support::{Farm, Link};
use tracing::field::{Field, Visit};
use tracing::span;

/// What the kernel has asked for since it was last looked at.
static ASKED: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());

const KINDS: [&str; 24] = [
    "lookup",
    "getattr",
    "statx",
    "setattr",
    "readlink",
    "mkdir",
    "unlink",
    "symlink",
    "rename",
    "link",
    "open",
    "create",
    "read",
    "write",
    "flush",
    "fsync",
    "readdir",
    "readdirplus",
    "statfs",
    "getxattr",
    "fallocate",
    "tmpfile",
    "interrupt",
    "other",
];

struct Listening;

struct What(Option<&'static str>);

impl Visit for What {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "what" {
            self.0 = KINDS.iter().copied().find(|kind| *kind == value).or(Some("other"));
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

impl tracing::Subscriber for Listening {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target() == "mount::asked"
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let mut what = What(None);
        event.record(&mut what);
        ASKED.lock().unwrap_or_else(PoisonError::into_inner).extend(what.0);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// What was asked for while this ran, by kind. That a file is released or forgotten, no program
/// waits for.
fn asked(call: impl FnOnce()) -> String {
    settle();
    ASKED.lock().unwrap().clear();
    call();
    settle();
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for kind in ASKED.lock().unwrap().iter() {
        *kinds.entry(kind).or_default() += 1;
    }
    let said = kinds.iter().map(|(kind, times)| match times {
        1 => (*kind).to_owned(),
        times => format!("{times} {kind}"),
    });
    said.collect::<Vec<_>>().join(", ")
}

/// Until nothing has been asked for a while.
fn settle() {
    let mut before = usize::MAX;
    loop {
        let now = ASKED.lock().unwrap().len();
        if now == before {
            return;
        }
        before = now;
        std::thread::sleep(Duration::from_millis(30));
    }
}

/// How often each kind is named.
fn times(said: &str) -> BTreeMap<&str, usize> {
    said.split(", ")
        .filter(|part| !part.is_empty())
        .map(|part| match part.split_once(' ') {
            Some((times, kind)) => (kind, times.parse().unwrap()),
            None => (part, 1),
        })
        .collect()
}

/// As cat(1) does; Rust's own `read_to_end` wants to know when the file was made.
fn read(path: &Path) {
    let mut file = File::open(path).unwrap();
    let mut bytes = vec![0; rustix::fs::fstat(&file).unwrap().st_size as usize];
    file.read_exact(&mut bytes).unwrap();
    assert_eq!((bytes.len(), file.read(&mut [0]).unwrap()), (3000, 0));
}

/// One test at a time is listened to.
static ALONE: Mutex<()> = Mutex::new(());

fn listen() -> MutexGuard<'static, ()> {
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // The first one has set it for all.
    let _ = tracing::subscriber::set_global_default(Listening);
    alone
}

/// Lists a directory and looks at all that is in it.
fn look_at_all(directory: &Path) {
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().metadata().unwrap());
    assert_eq!(files.filter(|file| file.len() == 3).count(), 40);
}

#[test]
fn after_a_while_a_directory_is_asked_for_and_not_each_of_its_files() {
    if let Some(why) = support::hindrance() {
        println!("not run: {why}");
        return;
    }
    let _alone = listen();
    let lease = Duration::from_secs(4);
    let farm = Farm::with(Limits { lease, ..Limits::default() });
    let machine = farm.machine("one", MountOptions::default());
    let directory = machine.path("d");
    fs::create_dir(&directory).unwrap();
    (0..40).for_each(|file| fs::write(directory.join(file.to_string()), "abc").unwrap());
    look_at_all(&directory);
    for _ in 0..2 {
        // What the kernel was told is too old when the lease is over.
        std::thread::sleep(lease + Duration::from_secs(1));
        let said = asked(|| look_at_all(&directory));
        let times = times(&said);
        let of = |kind| times.get(kind).copied().unwrap_or(0);
        assert!(of("readdirplus") > 0, "{said}");
        // The directory's own name may be asked for.
        assert!(of("lookup") <= 1 && of("getattr") <= 2, "{said}");
    }
}

/// A directory of directories, with a file in each.
fn make_below(directory: &Path, count: usize) {
    for below in 0..count {
        let below = directory.join(below.to_string());
        fs::create_dir_all(&below).unwrap();
        fs::write(below.join("file"), "abc").unwrap();
    }
}

/// Looks at all that is below, a directory at a time, as find(1) does.
fn walk(directory: &Path) -> usize {
    let names: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap()).collect();
    let walked = names.iter().map(|entry| match entry.metadata().unwrap().is_dir() {
        true => walk(&entry.path()) + 1,
        false => 1,
    });
    walked.sum()
}

#[test]
fn of_directories_that_were_listed_the_one_above_is_asked_for() {
    if let Some(why) = support::hindrance() {
        println!("not run: {why}");
        return;
    }
    let _alone = listen();
    let farm = Farm::new();
    let machine = farm.machine("one", MountOptions::default());
    make_below(&machine.path("d"), 40);
    let walks = || asked(|| assert_eq!(walk(&machine.path("d")), 80));
    let said = walks();
    assert!(times(&said)["readdirplus"] > 40, "{said}");
    let said = walks();
    let again: usize = times(&said).values().sum();
    assert!((1..=6).contains(&again), "{said}");
    // Its own time of access has moved by that.
    assert!(["", "getattr"].contains(&walks().as_str()));
    assert_eq!(walks(), "");
}

/// It forgets the access lists of what it is told of.
#[test]
fn with_directories_that_were_listed_access_lists_are_asked_for_once_more() {
    if let Some(why) = support::hindrance() {
        println!("not run: {why}");
        return;
    }
    let _alone = listen();
    let farm = Farm::new();
    let machine = farm.machine("one", MountOptions::default());
    make_below(&machine.path("d"), 40);
    let lists = || {
        asked(|| {
            let listed = Command::new("ls").arg("-lR").arg(machine.path("d")).output();
            assert!(listed.unwrap().status.success());
        })
    };
    let said = lists();
    assert!(times(&said)["readdirplus"] > 40 && !said.contains("statx"), "{said}");
    let said = lists();
    assert!(!said.contains("statx"), "{said}");
    let again = times(&said);
    // Of a directory there are two, and of its own.
    assert!(again.get("getxattr").is_none_or(|asked| *asked <= 82), "{said}");
    assert!(again.values().sum::<usize>() <= 82 + 6, "{said}");
    // The directory above has its turn: its attributes, and then its access lists.
    let left = (0..3).map(|_| times(&lists()).values().sum::<usize>()).sum::<usize>();
    assert!(left <= 4, "{left}");
}

#[test]
fn the_kernel_asks_no_more_often_than_it_must() {
    if let Some(why) = support::hindrance() {
        println!("not run: {why}");
        return;
    }
    let _alone = listen();
    let farm = Farm::new();
    let machine = farm.machine("one", MountOptions::default());
    let at = |name: &str| machine.path(name);
    let mut found = Vec::new();
    let mut count = |what: &'static str, call: &dyn Fn()| found.push((what, asked(call)));

    count("mkdir", &|| fs::create_dir(at("d")).unwrap());
    count("create, write, close", &|| fs::write(at("d/f"), [1; 3000]).unwrap());
    count("create, write, set times and mode, close", &|| {
        let mut file = File::create_new(at("d/g")).unwrap();
        file.write_all(&[2; 3000]).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        file.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
    });
    let stat = |name| _ = rustix::fs::stat(at(name)).unwrap();
    count("stat, just written", &|| stat("d/f"));
    count("stat, again", &|| stat("d/f"));
    count("stat with the time of birth", &|| drop(fs::metadata(at("d/f")).unwrap().created()));
    count("the same, again", &|| drop(fs::metadata(at("d/f")).unwrap().created()));
    count("stat of what is not there", &|| drop(fs::metadata(at("d/none")).unwrap_err()));
    count("the same, again", &|| drop(fs::metadata(at("d/none")).unwrap_err()));
    count("open, read, close, just written", &|| read(&at("d/f")));
    count("open, read, close, again", &|| read(&at("d/f")));
    count("list", &|| assert_eq!(fs::read_dir(at("d")).unwrap().count(), 2));
    count("list, again", &|| assert_eq!(fs::read_dir(at("d")).unwrap().count(), 2));
    count("open, write, close", &|| {
        let file = OpenOptions::new().write(true).open(at("d/f")).unwrap();
        file.write_all_at(b"other", 100).unwrap();
    });
    count("chmod", &|| fs::set_permissions(at("d/f"), fs::Permissions::from_mode(0o640)).unwrap());
    count("truncate", &|| {
        OpenOptions::new().write(true).open(at("d/g")).unwrap().set_len(10).unwrap();
    });
    count("symlink", &|| std::os::unix::fs::symlink("f", at("d/s")).unwrap());
    count("readlink", &|| drop(fs::read_link(at("d/s")).unwrap()));
    count("readlink, again", &|| drop(fs::read_link(at("d/s")).unwrap()));
    count("link", &|| fs::hard_link(at("d/f"), at("d/h")).unwrap());
    count("rename", &|| fs::rename(at("d/f"), at("d/i")).unwrap());
    count("unlink", &|| fs::remove_file(at("d/h")).unwrap());
    count("a file without a name", &|| {
        let flags = rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::WRONLY;
        drop(rustix::fs::open(at("d"), flags, 0o600.into()).unwrap());
    });
    count("collapse and insert", &|| {
        let file = OpenOptions::new().write(true).open(at("d/i")).unwrap();
        for flags in [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE] {
            assert_eq!(fallocate(&file, flags, 0, 4096), Err(rustix::io::Errno::OPNOTSUPP));
        }
    });
    count("statfs", &|| _ = rustix::fs::statvfs(at("d")).unwrap());
    count("a file as tar(1) unpacks it", &|| {
        let mut file = File::create_new(at("d/t")).unwrap();
        file.write_all(&[3; 700]).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
        rustix::fs::fchown(&file, Some(user), Some(group)).unwrap();
        file.set_permissions(fs::Permissions::from_mode(0o644)).unwrap();
    });
    count("a lock as git(1) takes it", &|| {
        drop(OpenOptions::new().read(true).write(true).create_new(true).open(at("d/l")).unwrap());
        fs::remove_file(at("d/l")).unwrap();
    });

    // Another kernel may ask less often.
    let expected = [
        ("mkdir", "getattr, lookup, mkdir"),
        ("create, write, close", "create, flush, getattr, getxattr, lookup, write"),
        (
            "create, write, set times and mode, close",
            "create, flush, getattr, getxattr, lookup, 2 setattr, write",
        ),
        ("stat, just written", "2 getattr"),
        ("stat, again", ""),
        // Who asks for it, as the standard library of Rust always does, pays once for each file.
        ("stat with the time of birth", "statx"),
        ("the same, again", ""),
        ("stat of what is not there", "lookup"),
        ("the same, again", ""),
        ("open, read, close, just written", "getattr, open, read"),
        ("open, read, close, again", "getattr, open"),
        ("list", "readdir, readdirplus"),
        ("list, again", "getattr"),
        ("open, write, close", "flush, getxattr, open, write"),
        ("chmod", "setattr"),
        ("truncate", "flush, getxattr, open, setattr"),
        ("symlink", "lookup, symlink"),
        ("readlink", "getattr, readlink"),
        ("readlink, again", ""),
        ("link", "link, lookup"),
        ("rename", "getattr, lookup, rename"),
        ("unlink", "getattr, unlink"),
        ("a file without a name", "flush, getattr, tmpfile"),
        // What it does not know of FUSE file systems it refuses itself.
        ("collapse and insert", "flush, getattr, open"),
        ("statfs", "statfs"),
        (
            "a file as tar(1) unpacks it",
            "create, flush, getattr, 2 getxattr, lookup, 3 setattr, write",
        ),
        ("a lock as git(1) takes it", "create, flush, 2 getattr, lookup, unlink"),
    ];
    assert_eq!(found.len(), expected.len());
    for ((what, asked), (_, most)) in found.iter().zip(expected) {
        let most = times(most);
        let more = times(asked)
            .into_iter()
            .filter(|(kind, times)| *times > most.get(kind).copied().unwrap_or(0))
            .collect::<Vec<_>>();
        assert!(more.is_empty(), "{what}: {asked}");
    }
    it_tells_of_signals(&farm);
}

/// Each time, not only the first.
fn it_tells_of_signals(farm: &Farm) {
    let reader = farm.machine("two", MountOptions::default());
    let path = reader.path("d");
    reader.set_link(Link::Held);
    for _ in 0..2 {
        let said = asked(|| {
            let mut program = Command::new("cat");
            let mut waits = program.arg(&path).stdout(Stdio::null()).spawn().unwrap();
            while !ASKED.lock().unwrap().contains(&"lookup") {
                std::thread::yield_now();
            }
            kill_process(Pid::from_child(&waits), Signal::TERM).unwrap();
            assert!(!waits.wait().unwrap().success());
        });
        assert!(times(&said).contains_key("interrupt"), "{said}");
    }
    reader.set_link(Link::Open);
}
