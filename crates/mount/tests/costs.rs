//! How often the kernel asks the daemon, and waits, for each call of a program. Each time costs tens
//! of microseconds, so that one more is to be noticed. Every request counts, by its name in
//! `linux/fuse.h` and whoever answers it; but not FORGET and BATCH_FORGET, which nobody answers, and
//! RELEASE, for which the kernel has no program wait: they come when they like.
//!
//! Of what is there more than one would think, Linux 6.18 does not let the daemon spare anything.
//! Of attributes:
//! - a directory's are asked for when it is used next after something in it was made, removed or
//!   renamed, and a file's after it was written to or read;
//! - a directory's are asked for, too, when it is looked at next after the daemon listed it: its time
//!   of access may have moved;
//! - when a file was made is asked for by a call of its own, for who wants to know that, once for as
//!   long as the kernel has the file and nothing is written to it: no listing and no lookup can say it;
//! - a file's are asked for once more when it is opened to be read for the first time since it was
//!   written here: of a time of access alone the kernel cannot be told to forget it;
//! - they are asked for after times were set of a file that is open to be read and written: what may
//!   have been written to a mapping is handed on first, with which the kernel forgets the rest;
//! - before the kernel refuses something, it asks whether it is still to be refused;
//! - `security.capability` is asked for before the first write after each change of attributes, and
//!   before each change of owner or length; other extended attributes whenever a program wants them.
//!
//! Of names: one that is to be made, or to be renamed to, is looked up whatever the kernel knows of it.
//!
//! Of open files:
//! - the close of each copy of a descriptor is told if it was opened to write, though nothing was
//!   written: that is settled when it is opened;
//! - one that writes with O_DSYNC has an fsync after each write, and fsync is asked for though nothing
//!   was written since; of syncfs the daemon hears nothing;
//! - where data and holes are is asked for each time, and each lock, though it changes nothing;
//! - a mapping that was written to is handed on when it is given back, by a call that waits for it;
//! - a command (ioctl) is asked for each time, as isatty does of every file, and those of `lsattr` with
//!   an open of their own; of most else that is not done here, opendir and poll, it asks once.
#![allow(clippy::disallowed_methods, reason = "the tests are the programs that use the mount")]
#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]
#![allow(dead_code, reason = "the other tests of mounts use the rest of it")]

#[path = "costs/calls.rs"]
mod calls;
#[path = "costs/raw.rs"]
mod raw;
#[path = "mounted/support.rs"]
mod support;

use mount::MountOptions;
use replica::Limits;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use support::{Farm, Link};
use tracing::field::{Field, Visit};
use tracing::span;

/// What the kernel has asked for since it was last looked at.
static ASKED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// What no program waits for.
const UNWAITED: [&str; 3] = ["forget", "batch_forget", "release"];

struct Listening;

struct What(Option<String>);

impl Visit for What {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "what" {
            self.0 = Some(value.to_owned());
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

impl tracing::Subscriber for Listening {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target() == "fuse::asked"
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let mut what = What(None);
        event.record(&mut what);
        let waits = what.0.filter(|what| !UNWAITED.contains(&what.as_str()));
        ASKED.lock().unwrap_or_else(PoisonError::into_inner).extend(waits);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// What was asked for while this ran, by kind.
fn asked(call: impl FnOnce()) -> String {
    settle();
    ASKED.lock().unwrap().clear();
    call();
    settle();
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for kind in ASKED.lock().unwrap().drain(..) {
        *kinds.entry(kind).or_default() += 1;
    }
    let said = kinds.iter().map(|(kind, times)| match times {
        1 => kind.clone(),
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

/// One test at a time is listened to.
static ALONE: Mutex<()> = Mutex::new(());

/// None: nothing can be mounted here, as is said.
fn listen() -> Option<MutexGuard<'static, ()>> {
    if let Some(why) = support::hindrance() {
        println!("not run: {why}");
        return None;
    }
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // The first one has set it for all.
    let _ = tracing::subscriber::set_global_default(Listening);
    Some(alone)
}

/// Lists a directory and looks at all that is in it.
fn look_at_all(directory: &Path) {
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().metadata().unwrap());
    assert_eq!(files.filter(|file| file.len() == 3).count(), 40);
}

#[test]
fn after_a_while_a_directory_is_asked_for_and_not_each_of_its_files() {
    let Some(_alone) = listen() else { return };
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
    let Some(_alone) = listen() else { return };
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
    let said = walks();
    assert!(["", "getattr"].contains(&said.as_str()), "{said}");
    assert_eq!(walks(), "");
}

/// It forgets the access lists of what it is told of.
#[test]
fn with_directories_that_were_listed_access_lists_are_asked_for_once_more() {
    let Some(_alone) = listen() else { return };
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
    // Of a directory there are two, and of its own. And each ls(1) asks for `security.selinux` once.
    assert!(again.get("getxattr").is_none_or(|asked| *asked <= 82 + 1), "{said}");
    assert!(again.values().sum::<usize>() <= 82 + 1 + 6, "{said}");
    // The directory above has its turn: its attributes, and then its access lists.
    let left: Vec<_> = (0..3).map(|_| lists()).collect();
    let asked = left.iter().map(|said| times(said).values().sum::<usize>()).sum::<usize>();
    assert!(asked <= 4 + left.len(), "{left:?}");
}

/// Each time, not only the first.
#[test]
fn the_kernel_tells_of_signals() {
    let Some(_alone) = listen() else { return };
    let farm = Farm::new();
    let reader = farm.machine("two", MountOptions::default());
    let path = reader.path("d");
    reader.set_link(Link::Held);
    for _ in 0..2 {
        let said = asked(|| {
            let mut program = Command::new("cat");
            let mut waits = program.arg(&path).stdout(Stdio::null()).spawn().unwrap();
            while !ASKED.lock().unwrap().iter().any(|what| what == "lookup") {
                std::thread::yield_now();
            }
            kill_process(Pid::from_child(&waits), Signal::TERM).unwrap();
            assert!(!waits.wait().unwrap().success());
        });
        assert!(times(&said).contains_key("interrupt"), "{said}");
    }
    reader.set_link(Link::Open);
}
