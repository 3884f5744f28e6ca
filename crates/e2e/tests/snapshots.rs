//! Snapshots, the versions of a file, and bringing one back, as a user has them.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests of real mounts open files and start processes"
)]

use e2e::contents::{noise, tree, tree_with_attributes};
use e2e::world::farfs;
use e2e::{Mount, World, eventually, run};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(30);

fn snapshot(mount: &Mount, command: &str, name: &str) -> Command {
    farfs(&["snapshot", command, &mount.mountpoint.display().to_string(), name])
}

fn shown(mount: &Mount, name: &str) -> PathBuf {
    mount.path(".farfs/snapshots").join(name)
}

#[track_caller]
fn shell(folder: &Path, line: &str) -> String {
    run(Command::new("sh").args(["-ec", line]).current_dir(folder)).succeeds()
}

/// Files of every kind, hard links, and a program's tree.
fn fill(folder: &Path) {
    fs::create_dir_all(folder.join("docs/deep/deeper")).unwrap();
    fs::write(folder.join("docs/a.txt"), "first").unwrap();
    fs::write(folder.join("docs/large"), noise(1, 3 << 20)).unwrap();
    fs::write(folder.join("docs/deep/deeper/b"), noise(2, 70_000)).unwrap();
    fs::hard_link(folder.join("docs/a.txt"), folder.join("docs/deep/again")).unwrap();
    symlink("a.txt", folder.join("docs/link")).unwrap();
    fs::set_permissions(folder.join("docs/a.txt"), fs::Permissions::from_mode(0o640)).unwrap();
    shell(folder, "mkfifo docs/pipe && setfattr -n user.note -v kept docs/a.txt || true");
}

#[test]
fn a_snapshot_shows_what_was_and_never_changes() {
    for mode in ["connected", "partial"] {
        let world = World::new();
        let mut server = world.server();
        let mut a = world.mount(&server, "a", mode);
        let b = world.mount(&server, "b", mode);
        fill(&a.mountpoint);
        let before = tree_with_attributes(&a.path("docs"));
        run(&mut snapshot(&a, "create", "one")).succeeds();
        run(&mut snapshot(&a, "create", "one")).fails_with(1);
        run(&mut snapshot(&a, "create", "v1")).fails_with(2);
        fs::write(a.path("docs/a.txt"), "second").unwrap();
        fs::remove_dir_all(a.path("docs/deep")).unwrap();
        fs::rename(a.path("docs/large"), a.path("elsewhere")).unwrap();
        fs::set_permissions(a.path("docs"), fs::Permissions::from_mode(0o700)).unwrap();
        a.wait();
        let now = tree(&a.path("docs"));
        for mount in [&a, &b] {
            let one = shown(mount, "one");
            assert_eq!(tree_with_attributes(&one.join("docs")), before, "{mode}");
            assert_eq!(fs::read_to_string(one.join("docs/a.txt")).unwrap(), "first");
            assert!(
                fs::read_dir(&mount.mountpoint)
                    .unwrap()
                    .all(|entry| { entry.unwrap().file_name() != ".farfs" })
            );
        }
        let inode = |mount: &Mount, name: &str| {
            fs::symlink_metadata(shown(mount, "one").join(name)).unwrap().ino()
        };
        for name in ["", "docs", "docs/a.txt", "docs/link"] {
            assert_eq!(inode(&a, name), inode(&b, name), "{name}");
        }
        assert_eq!(inode(&a, "docs/a.txt"), inode(&a, "docs/deep/again"));
        assert_ne!(inode(&a, "docs/a.txt"), fs::metadata(a.path("docs/a.txt")).unwrap().ino());
        // Through crashes of both sides.
        a.kill();
        server.kill();
        server.restart();
        a.again();
        eventually(SOON, "the snapshot is shown again", || {
            fs::read_to_string(shown(&a, "one").join("docs/a.txt")).is_ok_and(|it| it == "first")
        });
        assert_eq!(tree_with_attributes(&shown(&a, "one").join("docs")), before, "{mode}");
        assert_eq!(tree(&a.path("docs")), now);
        run(&mut snapshot(&b, "remove", "one")).succeeds();
        run(&mut snapshot(&b, "remove", "one")).fails_with(7);
        for mount in [&a, &b] {
            let gone = fs::symlink_metadata(shown(mount, "one")).unwrap_err();
            assert_eq!(gone.kind(), ErrorKind::NotFound, "{mode}");
        }
    }
}

#[test]
fn nothing_of_a_snapshot_can_be_changed() {
    let world = World::new();
    let server = world.server();
    let a = world.mount(&server, "a", "connected");
    fill(&a.mountpoint);
    fs::write(a.path("free"), "x").unwrap();
    run(&mut snapshot(&a, "create", "one")).succeeds();
    let one = shown(&a, "one");
    let before = tree_with_attributes(&one);
    let read_only = |what: &str, outcome: std::io::Result<()>| {
        let error = outcome.expect_err(what);
        assert_eq!(error.raw_os_error(), Some(libc::EROFS), "{what}: {error}");
    };
    let file = one.join("docs/a.txt");
    read_only("write", fs::OpenOptions::new().write(true).open(&file).map(drop));
    read_only("cut", fs::OpenOptions::new().write(true).truncate(true).open(&file).map(drop));
    read_only("create", fs::write(one.join("new"), "x"));
    read_only("mkdir", fs::create_dir(one.join("docs/new")));
    read_only("unlink", fs::remove_file(&file));
    read_only("rmdir", fs::remove_dir(one.join("docs/deep/deeper")));
    read_only("rename within", fs::rename(&file, one.join("docs/b.txt")));
    read_only("rename into", fs::rename(a.path("free"), one.join("docs/free")));
    read_only("rename out of", fs::rename(&file, a.path("taken")));
    read_only("link", fs::hard_link(&file, a.path("linked")));
    read_only("symlink", symlink("x", one.join("link")));
    read_only("chmod", fs::set_permissions(&file, fs::Permissions::from_mode(0o777)));
    read_only("snapshots", fs::create_dir(a.path(".farfs/snapshots/two")));
    read_only("control", fs::write(a.path(".farfs/new"), "x"));
    read_only("remove snapshots", fs::remove_dir(a.path(".farfs/snapshots")));
    read_only("remove control", fs::remove_dir(a.path(".farfs")));
    read_only("move control", fs::rename(a.path(".farfs"), a.path("away")));
    let there = fs::create_dir(a.path(".farfs")).unwrap_err();
    assert_eq!(there.kind(), ErrorKind::AlreadyExists);
    assert_eq!(tree_with_attributes(&one), before);
}

#[test]
fn programs_read_a_snapshot_as_any_tree() {
    let world = World::new();
    let server = world.server();
    let (a, b) = (world.mount(&server, "a", "partial"), world.mount(&server, "b", "partial"));
    let settings = "export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null \
                    GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a \
                    GIT_COMMITTER_EMAIL=a@b; ";
    fill(&a.mountpoint);
    shell(
        &a.mountpoint,
        &format!(
            "{settings} git init -q -b main repo && cd repo && for n in 1 2 3 4 5 6 7 8; do
               seq $n 900 > file-$n; done && git add -A && git commit -qm one"
        ),
    );
    run(&mut snapshot(&a, "create", "one")).succeeds();
    shell(
        &a.mountpoint,
        &format!("{settings} cd repo && echo two > file-1 && git commit -qam two"),
    );
    a.wait();
    for mount in [&a, &b] {
        let (one, out) = (shown(mount, "one"), world.folder(&format!("out-{}", mount_name(mount))));
        let from = one.display();
        let clone =
            format!("{settings} git -c safe.directory='*' clone -q --no-local {from}/repo r");
        shell(&out, &format!("{clone} && test -s r/file-1 && grep -q 900 r/file-1"));
        shell(&out, &format!("tar -C {from} -cf - docs | tar xf -"));
        shell(&out, &format!("diff -r --no-dereference -x pipe {from}/docs docs"));
        shell(&out, &format!("cp -a {from}/docs copied && diff -r -x pipe copied docs"));
        shell(&out, &format!("test $(find {from} | wc -l) -gt 40"));
        shell(&out, &format!("test \"$(cat {from}/repo/file-1 | head -1)\" = 1"));
    }
    // What is here already does not travel again.
    let large = fs::read(b.path("docs/large")).unwrap();
    run(&mut snapshot(&a, "create", "two")).succeeds();
    let (read, bytes) =
        b.relay.traffic_of(|| fs::read(shown(&b, "two").join("docs/large")).unwrap());
    assert_eq!(read, large);
    assert!(bytes < 100_000, "{bytes} bytes for {} that were here", large.len());
    b.relay.cut();
    eventually(SOON, "there is no link", || b.mode() == "disconnected");
    assert_eq!(fs::read(shown(&b, "two").join("docs/large")).unwrap(), large);
    run(&mut snapshot(&b, "create", "three")).fails_with(3);
}

fn mount_name(mount: &Mount) -> String {
    mount.mountpoint.file_name().unwrap().to_string_lossy().into_owned()
}

fn history(mount: &Mount, name: &str) -> Vec<serde_json::Value> {
    let path = mount.path(name).display().to_string();
    let told = run(&mut farfs(&["history", "--json", &path])).succeeds();
    serde_json::from_str(&told).unwrap()
}

fn words(versions: &[serde_json::Value]) -> Vec<String> {
    let word = |version: &serde_json::Value| {
        let changes = version["changes"].as_array().unwrap().iter();
        let changes: Vec<_> = changes.map(|change| change.as_str().unwrap()).collect();
        match version["size"].as_u64() {
            Some(size) => format!("{} ({size})", changes.join(", ")),
            None => changes.join(", "),
        }
    };
    versions.iter().map(word).collect()
}

fn restore(what: &Path, version: &str, more: &[&str]) -> Command {
    let what = format!("{}@{version}", what.display());
    farfs(&[&["restore", what.as_str()][..], more].concat())
}

#[test]
fn every_version_of_a_file_is_listed_and_can_be_had_again() {
    for mode in ["connected", "partial"] {
        let world = World::new();
        let server = world.server();
        let (a, b) = (world.mount(&server, "a", mode), world.mount(&server, "b", mode));
        let (file, other) = (a.path("report"), a.path("other"));
        fs::write(&file, noise(1, 300_000)).unwrap();
        a.wait();
        fs::write(&file, noise(2, 200_000)).unwrap();
        a.wait();
        // As many programs save: another file is put in the place of it.
        fs::write(a.path("new"), noise(3, 100_000)).unwrap();
        a.wait();
        fs::rename(a.path("new"), &file).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        fs::rename(&file, &other).unwrap();
        fs::remove_file(&other).unwrap();
        a.wait();
        let told = history(&b, "report");
        let said = words(&told);
        assert_eq!(said[0], "removed", "{said:?}");
        assert!(
            said.contains(&"put in place of another, renamed from new (100000)".into()),
            "{said:?}"
        );
        assert!(said.contains(&"contents (200000)".into()), "{said:?}");
        assert!(said.contains(&"contents (300000)".into()), "{said:?}");
        assert!(said.last().unwrap().starts_with("made"), "{said:?}");
        let of_other = words(&history(&b, "other"));
        assert_eq!(of_other[0], "removed");
        assert!(of_other[1].starts_with("renamed from report"), "{of_other:?}");
        assert!(of_other.contains(&"mode (100000)".into()), "{of_other:?}");
        run(&mut farfs(&["history", &a.path("nothing").display().to_string()])).fails_with(7);
        let version = |size: u64| {
            let found = told.iter().find(|version| version["size"] == size).unwrap();
            found["version"].as_str().unwrap().to_owned()
        };
        let (done, bytes) =
            a.relay.traffic_of(|| run(&mut restore(&file, &version(300_000), &[])).succeeds());
        assert!(bytes < 30_000, "{bytes} bytes travelled");
        assert_eq!(done.trim(), "1 file made");
        for mount in [&a, &b] {
            eventually(SOON, "it is back", || {
                fs::read(mount.path("report")).is_ok_and(|read| read == noise(1, 300_000))
            });
        }
        let inode = fs::metadata(&file).unwrap().ino();
        let done = run(&mut restore(&file, &version(200_000), &[])).succeeds();
        assert_eq!(done.trim(), "1 file changed");
        assert_eq!(fs::read(&file).unwrap(), noise(2, 200_000), "{mode}");
        assert_eq!(fs::metadata(&file).unwrap().ino(), inode);
        let to = a.path("copy").display().to_string();
        run(&mut restore(&file, &version(300_000), &["--to", &to])).succeeds();
        assert_eq!(fs::read(a.path("copy")).unwrap(), noise(1, 300_000));
        assert_eq!(fs::read(&file).unwrap(), noise(2, 200_000));
        let now = words(&history(&a, "report"));
        assert!(now[0].starts_with("contents") && now[0].ends_with("(200000)"), "{now:?}");
        run(&mut restore(&file, "v999999", &[])).fails_with(7);
        run(&mut restore(&file, "nowhere", &[])).fails_with(7);
        run(&mut restore(&a.path("no/such/file"), "v1", &[])).fails_with(7);
    }
}

#[test]
fn a_removed_directory_comes_back_with_all_that_was_in_it() {
    let world = World::new();
    let mut server = world.server();
    let (a, b) = (world.mount(&server, "a", "partial"), world.mount(&server, "b", "connected"));
    fill(&a.mountpoint);
    shell(&a.path("docs"), "mkdir many && cd many && for n in $(seq 1200); do echo $n > f$n; done");
    run(&mut snapshot(&a, "create", "one")).succeeds();
    let before = tree_with_attributes(&a.path("docs"));
    shell(&a.mountpoint, "rm -rf docs");
    a.wait();
    let (_, bytes) = a
        .relay
        .traffic_of(|| run(&mut restore(&a.path("docs"), "one", &["--timeout", "20s"])).succeeds());
    assert!(bytes < 1_000_000, "{bytes} bytes travelled of 3 MiB and more");
    for mount in [&a, &b] {
        assert_eq!(tree_with_attributes(&mount.path("docs")), before);
    }
    // What came since stays, what was changed is as it was, and what is the same is left alone.
    fs::write(a.path("docs/deep/deeper/b"), "changed").unwrap();
    fs::write(a.path("docs/since"), "new").unwrap();
    shell(&a.path("docs"), "rm many/f7 a.txt");
    let done = run(&mut restore(&a.path("docs"), "one", &[])).succeeds();
    assert!(done.contains("2 files made") || done.contains("files made"), "{done}");
    shell(&a.path("docs"), "test $(cat many/f7) = 7 && test a.txt -ef deep/again && rm since");
    assert_eq!(fs::read(a.path("docs/deep/deeper/b")).unwrap(), noise(2, 70_000));
    // At the server, and after it was killed.
    server.kill();
    server.restart();
    let data = server.data.display().to_string();
    let listed = run(&mut farfs(&["snapshot", "list", "--data", &data, "main"])).succeeds();
    assert!(listed.starts_with("one  "), "{listed}");
    let done =
        run(&mut farfs(&["restore", "--data", &data, "docs@one", "--to", "again"])).succeeds();
    assert!(done.contains("files made"), "{done}");
    eventually(SOON, "what was restored at the server is seen", || {
        fs::read_to_string(a.path("again/a.txt")).is_ok_and(|read| read == "first")
    });
    let checked = run(&mut farfs(&["check", "--data", &data])).succeeds();
    assert!(!checked.contains("snapshot"), "{checked}");
    run(&mut farfs(&["snapshot", "remove", "--data", &data, "main", "one"])).succeeds();
    eventually(SOON, "the snapshot is gone", || !shown(&a, "one").exists());
}
