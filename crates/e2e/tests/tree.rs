//! `farfs serve --tree`: programs of the server and programs of a mount, on the same files.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests of real mounts open files and start processes"
)]

#[path = "posix/raw.rs"]
#[allow(dead_code, reason = "of the raw calls only mappings are needed here")]
mod raw;

use e2e::contents::{Tree, noise, number_of, tree, version, write_and_sync};
use e2e::{Mount, Server, World, eventually, run};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
/// What one side does is on the other within so long.
const SOON: Duration = Duration::from_secs(60);

struct Yard {
    world: World,
    folder: PathBuf,
    server: Server,
    mount: Mount,
}

fn yard(mode: &str) -> Yard {
    let world = World::bounded(240 * SECOND);
    let folder = world.folder("shared");
    let server = world.server_of(&folder);
    let mount = world.mount(&server, "mount", mode);
    Yard { world, folder, server, mount }
}

/// The tree as its programs see it, without what is FarFS's own.
fn seen(folder: &Path) -> Tree {
    let mut seen = tree(folder);
    seen.retain(|name, _| !name.to_string_lossy().starts_with(".farfs-tree"));
    seen
}

fn same(yard: &Yard) {
    // A file may go while the tree is read.
    let whole = |read: &dyn Fn() -> Tree| catch_unwind(AssertUnwindSafe(read)).ok();
    eventually(SOON, "both sides are the same", || {
        let here = whole(&|| seen(&yard.folder));
        here.is_some() && here == whole(&|| tree(&yard.mount.mountpoint))
    });
}

fn git(folder: &Path, arguments: &[&str]) {
    let mut git = Command::new("git");
    git.arg("-C").arg(folder).args(["-c", "user.name=t", "-c", "user.email=t@example.org"]);
    git.args(["-c", "safe.directory=*"]).args(arguments);
    run(&mut git).succeeds();
}

#[test]
fn what_programs_of_the_server_write_is_seen_by_the_mount() {
    let yard = yard("connected");
    fs::create_dir_all(yard.folder.join("a/b")).unwrap();
    fs::write(yard.folder.join("a/b/file"), noise(1, 300_000)).unwrap();
    fs::write(yard.folder.join(OsStr::from_bytes(&[0xff, b'n'])), "x").unwrap();
    same(&yard);
    let source = yard.world.folder("source");
    git(&source, &["init", "-q"]);
    for number in 0..40 {
        fs::write(source.join(format!("file-{number}")), noise(number, 3000)).unwrap();
    }
    git(&source, &["add", "."]);
    git(&source, &["commit", "-qm", "all"]);
    let clone = yard.folder.join("clone");
    run(Command::new("git").args(["clone", "-q"]).arg(&source).arg(&clone)).succeeds();
    run(Command::new("cp").arg("-a").arg(&clone).arg(yard.folder.join("copy"))).succeeds();
    same(&yard);
    git(&yard.mount.path("clone"), &["fsck", "--strict"]);
    fs::remove_dir_all(yard.folder.join("copy")).unwrap();
    fs::rename(yard.folder.join("clone"), yard.folder.join("moved")).unwrap();
    same(&yard);
    assert_eq!(yard.server.conflicts(), Vec::<String>::new());
}

/// Until the mount shows the text, whatever was promised to it before.
fn shows(yard: &Yard, name: &str, text: &[u8]) {
    eventually(SOON, "the mount shows what was written", || {
        fs::read(yard.mount.path(name)).is_ok_and(|bytes| bytes == text)
    });
}

#[test]
fn names_of_one_file_are_one_file_in_the_mount() {
    let world = World::bounded(240 * SECOND);
    let folder = world.folder("shared");
    fs::write(folder.join("a"), "1\n").unwrap();
    fs::hard_link(folder.join("a"), folder.join("b")).unwrap();
    let server = world.server_of(&folder);
    let mount = world.mount(&server, "mount", "connected");
    let yard = Yard { world, folder, server, mount };
    same(&yard);
    let numbers = |folder: &Path| {
        ["a", "b"]
            .map(|name| fs::metadata(folder.join(name)).map(|m| (m.ino(), m.nlink())).unwrap())
    };
    let seen = numbers(&yard.mount.mountpoint);
    assert_eq!((seen[0], seen[0].1), (seen[1], 2));
    fs::File::options()
        .append(true)
        .open(yard.folder.join("b"))
        .unwrap()
        .write_all(b"2\n")
        .unwrap();
    for name in ["a", "b"] {
        shows(&yard, name, b"1\n2\n");
    }
    fs::write(yard.mount.path("a"), "3\n").unwrap();
    same(&yard);
    let there = numbers(&yard.folder);
    assert_eq!((there[0], there[0].1), (there[1], 2), "and in the tree");
}

#[test]
fn what_is_written_under_a_name_outside_of_the_tree_is_seen_by_the_mount() {
    let yard = yard("connected");
    fs::write(yard.folder.join("inside"), "1").unwrap();
    same(&yard);
    shows(&yard, "inside", b"1");
    let outside = yard.world.path("outside");
    fs::hard_link(yard.folder.join("inside"), &outside).unwrap();
    for text in ["12", "123", "1234"] {
        fs::write(&outside, text).unwrap();
        shows(&yard, "inside", text.as_bytes());
    }
}

#[test]
fn what_is_written_into_a_mapping_is_seen_by_the_mount_while_it_lasts() {
    let yard = yard("connected");
    let mut bytes = vec![b'-'; 10_000];
    fs::write(yard.folder.join("mapped"), &bytes).unwrap();
    same(&yard);
    shows(&yard, "mapped", &bytes);
    let file = fs::File::options().read(true).write(true).open(yard.folder.join("mapped")).unwrap();
    let mapping = raw::Mapping::shared(&file, bytes.len());
    drop(file);
    for (at, text) in [(0, b"one"), (6000, b"two"), (3, b"3rd")] {
        mapping.write(at, text);
        bytes[at..at + text.len()].copy_from_slice(text);
        shows(&yard, "mapped", &bytes);
    }
}

#[test]
fn what_programs_of_a_mount_write_is_in_the_tree() {
    let yard = yard("connected");
    let work = yard.mount.path("work");
    fs::create_dir(&work).unwrap();
    git(&work, &["init", "-q"]);
    for number in 0..20 {
        fs::write(work.join(format!("file-{number}")), noise(number, 3000)).unwrap();
        git(&work, &["add", "."]);
        git(&work, &["commit", "-qm", "one more"]);
    }
    same(&yard);
    git(&yard.folder.join("work"), &["fsck", "--strict"]);
    fs::rename(&work, yard.mount.path("moved")).unwrap();
    fs::remove_dir_all(yard.mount.path("moved").join(".git")).unwrap();
    same(&yard);
    assert_eq!(yard.server.conflicts(), Vec::<String>::new());
}

#[test]
fn a_program_of_the_server_never_sees_half_a_file() {
    let yard = yard("connected");
    let there = yard.folder.join("file");
    let stop = AtomicBool::new(false);
    let reads = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                if let Ok(whole) = fs::read(&there) {
                    number_of(&whole).unwrap_or_else(|half| panic!("half a file: {half}"));
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        for number in 1..=30 {
            let bytes = version(number, 20_000 + 7919 * number as usize);
            write_and_sync(&yard.mount.path("fresh"), &bytes).unwrap();
            fs::rename(yard.mount.path("fresh"), yard.mount.path("file")).unwrap();
        }
        eventually(SOON, "the last version is in the tree", || {
            fs::read(&there).is_ok_and(|whole| number_of(&whole) == Ok(30))
        });
        stop.store(true, Ordering::Relaxed);
    });
    assert!(reads.load(Ordering::Relaxed) > 0);
    same(&yard);
}

#[test]
fn of_changes_on_both_sides_at_once_both_are_kept() {
    let yard = yard("partial");
    fs::write(yard.folder.join("notes.txt"), "one").unwrap();
    same(&yard);
    yard.mount.relay.cut();
    fs::write(yard.mount.path("notes.txt"), "the device's").unwrap();
    fs::write(yard.folder.join("notes.txt"), "the server's").unwrap();
    let known = || fs::read_to_string(yard.folder.join("notes.txt")).unwrap();
    assert_eq!(known(), "the server's");
    // It is taken in while the device cannot be heard.
    let other = yard.world.mount(&yard.server, "other", "connected");
    eventually(SOON, "the server's is taken in", || {
        fs::read_to_string(other.path("notes.txt")).is_ok_and(|text| text == "the server's")
    });
    yard.mount.relay.restore();
    yard.mount.wait();
    same(&yard);
    let texts: BTreeSet<String> = fs::read_dir(&yard.folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    assert_eq!(texts, ["the device's", "the server's"].map(String::from).into());
    assert_eq!(yard.server.conflicts().len(), 1);
}

#[test]
fn what_changed_while_the_server_was_down_is_found() {
    let mut yard = yard("connected");
    for name in ["kept", "changed", "moved", "gone"] {
        fs::write(yard.folder.join(name), name).unwrap();
    }
    same(&yard);
    assert_eq!(yard.server.stop(), Some(0));
    fs::write(yard.folder.join("changed"), "anew").unwrap();
    fs::rename(yard.folder.join("moved"), yard.folder.join("there")).unwrap();
    fs::remove_file(yard.folder.join("gone")).unwrap();
    fs::create_dir(yard.folder.join("new")).unwrap();
    fs::write(yard.folder.join("new/file"), "new").unwrap();
    // Which tree it was is remembered.
    yard.server.options.clear();
    yard.server.restart();
    eventually(SOON, "the change is seen", || {
        fs::read_to_string(yard.mount.path("new/file")).is_ok_and(|text| text == "new")
    });
    same(&yard);
    assert_eq!(yard.server.conflicts(), Vec::<String>::new());
}

#[test]
fn a_server_that_is_killed_while_both_sides_write_loses_nothing() {
    let mut yard = yard("partial");
    let (ours, theirs) = (yard.folder.join("ours"), yard.mount.path("theirs"));
    fs::create_dir(&ours).unwrap();
    fs::create_dir(&theirs).unwrap();
    same(&yard);
    let stop = AtomicBool::new(false);
    let writes = |folder: &Path| {
        let mut number = 0;
        while !stop.load(Ordering::Relaxed) {
            number += 1;
            let bytes = version(number, 500 + 7919 * (number as usize % 5));
            let fresh = folder.join("fresh");
            fs::write(&fresh, bytes).unwrap();
            fs::rename(&fresh, folder.join(format!("name-{}", number % 7))).unwrap();
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| writes(&ours));
        scope.spawn(|| writes(&theirs));
        for kill in 0..6 {
            std::thread::sleep(Duration::from_millis(300 + 150 * kill));
            yard.server.kill();
            yard.server.restart();
        }
        stop.store(true, Ordering::Relaxed);
    });
    let here = tree(&ours);
    let there = tree(&theirs);
    yard.mount.wait();
    same(&yard);
    assert_eq!(tree(&ours), here, "what was written here is here");
    assert_eq!(tree(&theirs), there, "and what was written there");
    for file in there.keys().chain(here.keys()) {
        let path =
            [&ours, &theirs].map(|folder| folder.join(file)).into_iter().find(|p| p.is_file());
        number_of(&fs::read(path.unwrap()).unwrap()).unwrap();
    }
}

#[test]
fn a_directory_that_is_not_the_tree_is_refused() {
    let mut yard = yard("connected");
    fs::write(yard.folder.join("a"), "one").unwrap();
    same(&yard);
    yard.server.stop();
    let other = yard.world.folder("other");
    yard.server.options = vec!["--tree".into(), other.display().to_string()];
    let said = yard.server.try_restart().unwrap_err();
    assert!(said.contains("is not the one"), "{said}");
    yard.server.options.clear();
    yard.server.restart();
    same(&yard);
}

/// What a writer of names knows of them: the last version that was acknowledged, and the one
/// that it was about to write.
type Saved = std::collections::BTreeMap<String, (u64, u64)>;

/// Saves versions under a few names until that fails or it is told to stop.
fn saves(folder: &Path, saved: &mut Saved, number: &mut u64, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        *number += 1;
        let name = format!("name-{}", *number % 7);
        let bytes = version(*number, 500 + 7919 * (*number as usize % 5));
        let of_name = saved.entry(name.clone()).or_default();
        of_name.1 = *number;
        let fresh = folder.join("fresh");
        if fs::write(&fresh, bytes).and_then(|()| fs::rename(&fresh, folder.join(name))).is_err() {
            return;
        }
        of_name.0 = *number;
        std::thread::sleep(Duration::from_millis(15));
    }
}

/// Every name has what was acknowledged last, or what was attempted after it.
#[track_caller]
fn has_all(folder: &Path, saved: &mut Saved, when: &str) {
    for (name, known) in saved {
        let found = fs::read(folder.join(name)).map(|whole| number_of(&whole).unwrap());
        let number = found.unwrap_or(0);
        assert!(number == known.0 || number == known.1, "{when}: {name} is {number}: {known:?}");
        *known = (number, number);
    }
}

#[test]
fn both_sides_may_be_killed_while_both_write_and_nothing_is_lost() {
    let mut yard = yard("partial");
    let (ours, theirs) = (yard.folder.join("ours"), yard.mount.path("theirs"));
    fs::create_dir(&ours).unwrap();
    fs::create_dir(&theirs).unwrap();
    same(&yard);
    let (mut here, mut there) = ((Saved::new(), 0), (Saved::new(), 0));
    for kill in 0..e2e::kills(4) {
        let stop = AtomicBool::new(false);
        let process = yard.mount.process().clone();
        std::thread::scope(|scope| {
            scope.spawn(|| saves(&ours, &mut here.0, &mut here.1, &stop));
            scope.spawn(|| saves(&theirs, &mut there.0, &mut there.1, &stop));
            std::thread::sleep(Duration::from_millis(300 + 97 * (kill % 7)));
            if kill % 3 != 0 {
                process.kill();
            }
            if kill % 3 != 1 {
                yard.server.kill();
            }
            stop.store(true, Ordering::Relaxed);
        });
        if kill % 3 != 1 {
            yard.server.restart();
        }
        if kill % 3 != 0 {
            yard.mount.kill();
            yard.mount.again();
        }
        has_all(&theirs, &mut there.0, &format!("the mount after kill {kill}"));
    }
    yard.mount.wait();
    for folder in [&ours, &theirs] {
        let _ = fs::remove_file(folder.join("fresh"));
    }
    yard.mount.wait();
    same(&yard);
    has_all(&yard.folder.join("theirs"), &mut there.0, "the tree");
    has_all(&yard.mount.path("ours"), &mut here.0, "the mount");
    assert_eq!(yard.server.conflicts(), Vec::<String>::new());
}

#[test]
fn a_full_disk_of_the_tree_holds_up_what_devices_did_and_df_shows_it() {
    let world = World::bounded(120 * SECOND);
    let folder = world.folder("shared");
    let options = ["-t", "tmpfs", "-o", "size=6m,mode=0755", "farfs-test"];
    run(Command::new("mount").args(options).arg(&folder)).succeeds();
    let server = world.server_of(&folder);
    let mount = world.mount(&server, "mount", "connected");
    let room = |path: &Path| {
        let said = run(Command::new("df").args(["-B1", "--output=avail"]).arg(path)).succeeds();
        said.lines().nth(1).unwrap().trim().parse::<u64>().unwrap()
    };
    eventually(SOON, "df shows the tree's disk", || room(&mount.mountpoint) <= 6 << 20);
    for number in 0..12 {
        let path = mount.path(format!("file-{number}"));
        write_and_sync(&path, &noise(number, 700_000)).unwrap();
    }
    let waits = "waits until the tree's disk has room";
    eventually(SOON, "it is said that the disk is full", || server.said().contains(waits));
    std::thread::sleep(3 * SECOND);
    assert_eq!(server.said().matches(waits).count(), 1, "once");
    fs::write(folder.join("by a program"), "x").unwrap();
    run(Command::new("mount").args(["-o", "remount,size=32m"]).arg(&folder)).succeeds();
    let yard = Yard { world, folder, server, mount };
    same(&yard);
    for number in 0..12 {
        let there = fs::read(yard.folder.join(format!("file-{number}"))).unwrap();
        assert!(there == noise(number, 700_000), "file {number}");
    }
    assert_eq!(yard.server.conflicts(), Vec::<String>::new());
}

#[test]
fn a_server_that_is_not_root_keeps_a_tree_and_says_once_that_owners_stay() {
    let nobody = 65534;
    let mut yard = yard("connected");
    assert_eq!(yard.server.stop(), Some(0));
    let chown = ["-R", "65534:65534"];
    run(Command::new("chown").args(chown).arg(&yard.server.data).arg(&yard.folder)).succeeds();
    yard.server.user = Some(nobody);
    yard.server.restart();
    for number in 0..5 {
        let path = yard.mount.path(format!("file-{number}"));
        fs::write(&path, noise(number, 3000)).unwrap();
        std::os::unix::fs::chown(&path, Some(1234), Some(1234)).unwrap();
    }
    eventually(SOON, "all is in the tree", || {
        (0..5).all(|number| {
            let there = fs::read(yard.folder.join(format!("file-{number}")));
            there.is_ok_and(|bytes| bytes == noise(number, 3000))
        })
    });
    fs::write(yard.folder.join("back"), "x").unwrap();
    eventually(SOON, "a program's file is seen", || yard.mount.path("back").exists());
    let said = yard.server.said();
    assert_eq!(said.matches("not everything can be set in the tree").count(), 1, "{said}");
}

#[test]
fn a_directory_that_the_server_may_not_open_is_left_out_and_named() {
    let mut yard = yard("connected");
    assert_eq!(yard.server.stop(), Some(0));
    let closed = yard.folder.join("closed");
    fs::create_dir_all(closed.join("in")).unwrap();
    fs::write(closed.join("in/file"), "one").unwrap();
    run(Command::new("chown").args(["-R", "65534:65534"]).arg(&yard.server.data).arg(&yard.folder))
        .succeeds();
    yard.server.user = Some(65534);
    yard.server.restart();
    let there = yard.mount.path("closed/in/file");
    let reads = |text: &str| fs::read_to_string(&there).is_ok_and(|found| found == text);
    eventually(SOON, "it is seen while it is open", || reads("one"));
    let owned = |by: u32| {
        std::os::unix::fs::chown(&closed, Some(by), Some(by)).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    };
    owned(0);
    fs::write(closed.join("in/file"), "two").unwrap();
    fs::write(yard.folder.join("other"), "x").unwrap();
    eventually(SOON, "all else goes on", || yard.mount.path("other").exists());
    assert!(reads("one"), "it is as it was seen last");
    let data = yard.server.data.to_str().unwrap();
    let named = |said: &str| said.contains("/closed") && said.contains("left out");
    eventually(SOON, "it is named", || {
        named(&run(&mut yard.world.farfs(&["status", "--data", data])).succeeds())
    });
    assert!(named(&run(&mut yard.world.farfs(&["check", "--data", data])).succeeds()));
    assert!(named(&yard.server.said()), "{}", yard.server.said());
    owned(65534);
    eventually(SOON, "it is taken in again", || reads("two"));
    let said = run(&mut yard.world.farfs(&["status", "--data", data])).succeeds();
    assert!(!said.contains("left out"), "{said}");
}
