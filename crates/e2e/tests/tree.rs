//! `farfs serve --tree`: programs of the server and programs of a mount, on the same files.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests of real mounts open files and start processes"
)]

use e2e::contents::{Tree, noise, number_of, tree, version, write_and_sync};
use e2e::{Mount, Server, World, eventually, run};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
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
