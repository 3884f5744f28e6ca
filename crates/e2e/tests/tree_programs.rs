//! `farfs serve --tree`: git, cp, mv, tar and rsync at work on the server and on a mount at the
//! same time, and both sides the same when they are done.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests of real mounts open files and start processes"
)]

use e2e::contents::{Tree, noise, tree_with_links_now};
use e2e::{Mount, Server, World, run};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
/// Both sides are the same so long after the last change.
const SOON: Duration = Duration::from_secs(120);

struct Yard {
    world: World,
    folder: PathBuf,
    server: Server,
    mount: Mount,
}

fn yard() -> Yard {
    let world = World::bounded(600 * SECOND);
    let folder = world.folder("shared");
    let server = world.server_of(&folder);
    let mount = world.mount(&server, "mount", "connected");
    Yard { world, folder, server, mount }
}

/// A side without what is FarFS's own. None: something went while it was read.
fn seen(folder: &Path) -> Option<Tree> {
    let mut seen = tree_with_links_now(folder).ok()?;
    seen.retain(|name, _| !name.to_string_lossy().starts_with(".farfs-tree"));
    Some(seen)
}

fn same(yard: &Yard) {
    let mut differs = Vec::new();
    let mut compare = || {
        let (Some(tree), Some(mount)) = (seen(&yard.folder), seen(&yard.mount.mountpoint)) else {
            return false;
        };
        let names = tree.keys().chain(mount.keys());
        let other = names.filter(|name| tree.get(*name) != mount.get(*name));
        differs = other
            .map(|name| (name.clone(), tree.get(name).cloned(), mount.get(name).cloned()))
            .collect();
        differs.is_empty()
    };
    let start = std::time::Instant::now();
    while !compare() && start.elapsed() < SOON {
        thread::sleep(SECOND / 4);
    }
    differs.truncate(10);
    assert!(differs.is_empty(), "still other on the two sides: {differs:?}");
}

fn git(folder: &Path, arguments: &[&str]) {
    let mut git = Command::new("git");
    git.arg("-C").arg(folder).args(["-c", "user.name=t", "-c", "user.email=t@example.org"]);
    git.args(["-c", "safe.directory=*", "-c", "gc.auto=0"]).args(arguments);
    run(&mut git).succeeds();
}

/// Two branches that have little in common, and an archive.
fn source(world: &World) -> PathBuf {
    let source = world.folder("source");
    git(&source, &["init", "-q", "-b", "one"]);
    for (branch, numbers) in [("one", 0..30), ("two", 20..45)] {
        if branch == "two" {
            git(&source, &["checkout", "-q", "-b", branch]);
            git(&source, &["rm", "-q", "-r", "."]);
        }
        for number in numbers {
            let folder = source.join(format!("{}/{}", branch, number % 7));
            fs::create_dir_all(&folder).unwrap();
            let path = folder.join(format!("file-{number}"));
            fs::write(&path, noise(number, 2000)).unwrap();
            let mode = if number % 5 == 0 { 0o755 } else { 0o644 };
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
        git(&source, &["add", "."]);
        git(&source, &["commit", "-q", "-m", branch]);
    }
    source
}

/// Runs where it may fail: another may have moved what it works on.
fn tried(command: &mut Command) {
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.status().unwrap();
}

fn copies(from: &Path, to: &Path) -> bool {
    Command::new("cp").arg("-a").arg(from).arg(to).stderr(Stdio::null()).status().unwrap().success()
}

/// What people do with directories, in one of their own.
fn work(there: &Path, source: &Path) {
    fs::create_dir(there).unwrap();
    let (clone, copy, old) = (there.join("r"), there.join("r2"), there.join("r3"));
    run(Command::new("git").args(["clone", "-q", "--no-hardlinks"]).arg(source).arg(&clone))
        .succeeds();
    git(&clone, &["checkout", "-q", "one"]);
    assert!(copies(&clone, &copy));
    fs::rename(&clone, &old).unwrap();
    fs::rename(&copy, &clone).unwrap();
    fs::rename(&old, &copy).unwrap();
    git(&clone, &["checkout", "-q", "two"]);
    for _ in 0..3 {
        // Two directories change places.
        fs::rename(copy.join("one/1"), copy.join("t")).unwrap();
        fs::rename(copy.join("one/2"), copy.join("one/1")).unwrap();
        fs::rename(copy.join("t"), copy.join("one/2")).unwrap();
    }
    let archive = there.join("all.tar");
    run(Command::new("tar").arg("-cf").arg(&archive).arg("-C").arg(&clone).arg("two")).succeeds();
    fs::create_dir(there.join("unpacked")).unwrap();
    run(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(there.join("unpacked")))
        .succeeds();
    fs::rename(there.join("unpacked/two"), there.join("release")).unwrap();
    fs::hard_link(there.join("release/1/file-43"), there.join("release/link")).unwrap();
    for branch in ["one", "two", "one"] {
        git(&clone, &["checkout", "-q", branch]);
        let from = format!("{}/", clone.display());
        let mut rsync = Command::new("rsync");
        run(rsync.args(["-a", "--delete", "--exclude=.git"]).arg(from).arg(there.join("mirror")))
            .succeeds();
    }
    fs::rename(&copy, there.join("release/inside")).unwrap();
    git(&clone, &["fsck", "--strict"]);
}

/// The same names on both sides at once; much of it fails, and some becomes conflicts.
fn meddle(there: &Path, source: &Path, who: usize) {
    for number in 0..6 {
        let name = |what: &str| there.join(format!("{what}{}", (number + who) % 3));
        let (one, other) = (name("a"), there.join(format!("b{}", number % 3)));
        let from = source.join(if number % 2 == 0 { "two/1" } else { "two/2" });
        copies(&from, &one);
        tried(Command::new("mv").arg("-T").arg(&one).arg(&other));
        tried(Command::new("mv").arg(&other).arg(name("c")));
        tried(Command::new("chmod").arg("700").arg(name("c")));
        // What is asked for may be gone.
        let _ = fs::hard_link(other.join("file-43"), one.join("more"));
        let _ = fs::write(other.join("file-36"), format!("{who} {number}"));
        tried(Command::new("rm").arg("-rf").arg(name("b")));
    }
}

#[test]
fn programs_at_work_on_both_sides_leave_both_the_same() {
    let yard = yard();
    let source = source(&yard.world);
    fs::create_dir(yard.folder.join("met")).unwrap();
    same(&yard);
    thread::scope(|scope| {
        let sides = [&yard.folder, &yard.mount.mountpoint];
        for (who, side) in sides.into_iter().enumerate() {
            let source = &source;
            scope.spawn(move || {
                work(&side.join(format!("own{who}")), source);
                meddle(&side.join("met"), source, who);
            });
        }
    });
    yard.mount.wait();
    same(&yard);
    git(&yard.mount.path("own0/r"), &["fsck", "--strict"]);
    git(&yard.folder.join("own1/r"), &["fsck", "--strict"]);
}

#[test]
fn a_copy_that_is_moved_at_once_is_on_the_mount_whole() {
    let yard = yard();
    let source = source(&yard.world);
    for number in 0..4 {
        let (copy, moved) = (yard.folder.join("x"), yard.folder.join(format!("y{number}")));
        assert!(copies(&source, &copy));
        fs::rename(&copy, &moved).unwrap();
        fs::create_dir_all(moved.join("p")).unwrap();
        fs::create_dir_all(moved.join("q")).unwrap();
        for name in 0..5 {
            fs::write(moved.join(format!("p/{name}")), "p").unwrap();
            fs::write(moved.join(format!("q/{name}")), "q").unwrap();
        }
        fs::rename(moved.join("p"), moved.join("t")).unwrap();
        fs::rename(moved.join("q"), moved.join("p")).unwrap();
        fs::rename(moved.join("t"), moved.join("q")).unwrap();
    }
    same(&yard);
    assert_eq!(yard.server.conflicts(), Vec::<String>::new());
}
