//! Paths as people say them: by symbolic links in a mount.

use crate::text;
use e2e::{Ran, World, run};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

fn said(world: &World, arguments: &[&str], path: &Path) -> Ran {
    run(world.farfs(arguments).arg(path))
}

#[test]
fn what_a_link_leads_to_is_what_is_waited_for_and_told_of() {
    let world = World::new();
    let server = world.server();
    let mut mount = world.mount(&server, "mount", "partial");
    fs::create_dir(mount.path("d")).unwrap();
    symlink("d", mount.path("ld")).unwrap();
    symlink("f1", mount.path("lf")).unwrap();
    symlink("d/../ld/deep", mount.path("twice")).unwrap();
    symlink("/etc", mount.path("out")).unwrap();
    mount.wait();
    mount.set_mode("fetch-only");
    for name in ["f1", "d/deep"] {
        fs::write(mount.path(name), name).unwrap();
    }
    // Where it leads to, or what says so from outside.
    symlink(mount.path("lf"), world.path("from")).unwrap();
    let slash = |name: &str| format!("{}/{name}/", text(&mount.mountpoint));
    let waits = ["wait", "--timeout", "1s"];
    for name in ["f1", "lf", "ld", "ld/deep", "twice", "ld/../d/deep", "ld/../f1", "ld/../lf"] {
        said(&world, &waits, &mount.path(name)).fails_with(8);
    }
    said(&world, &waits, Path::new(&slash("ld"))).fails_with(8);
    said(&world, &waits, &world.path("from")).fails_with(8);
    for (name, told) in [("lf", "f1"), ("ld", "d/deep"), ("twice", "d/deep")] {
        let log = said(&world, &["log"], &mount.path(name)).succeeds();
        assert!(log.contains(told), "{name}: {log}");
    }
    for outside in ["out", "out/passwd", "ld/../../nothing"] {
        let why = said(&world, &waits, &mount.path(outside)).fails_with(7);
        assert!(why.contains("is not in a farfs mount"), "{outside}: {why}");
    }
    said(&world, &["pin", "-r"], &mount.path("ld")).succeeds();
    said(&world, &["policy", "--ask-above", "9"], &mount.path("lf")).succeeds();
    let pins = run(&mut mount.farfs("pins", &[])).succeeds();
    assert!(pins.contains('d') && !pins.contains("ld"), "{pins}");
    let policies = run(&mut mount.farfs("policy", &["--list"])).succeeds();
    assert!(policies.contains("f1") && !policies.contains("lf"), "{policies}");
    let explained = said(&world, &["explain"], &mount.path("lf")).succeeds();
    assert!(explained.contains("f1"), "{explained}");
    said(&world, &["unpin"], &mount.path("ld")).succeeds();
    // One that leads nowhere.
    symlink("nothing", mount.path("dangling")).unwrap();
    said(&world, &waits, &mount.path("dangling")).fails_with(7);
}

#[test]
fn directories_are_found_by_links_and_names_stay_what_they_are() {
    let world = World::new();
    let server = world.server();
    let mount = world.mount(&server, "mount", "partial");
    fs::create_dir(mount.path("d")).unwrap();
    symlink("d", mount.path("ld")).unwrap();
    fs::write(mount.path("d/x"), "first").unwrap();
    symlink("x", mount.path("d/link")).unwrap();
    mount.wait();
    run(&mut world.farfs(&["snapshot", "create", &text(&mount.mountpoint), "s1"])).succeeds();
    fs::write(mount.path("d/x"), "second").unwrap();
    mount.wait();
    let history = said(&world, &["history"], &mount.path("ld/x")).succeeds();
    assert!(history.lines().count() > 1, "{history}");
    said(&world, &["restore"], &mount.path("ld/x@s1")).succeeds();
    assert_eq!(fs::read(mount.path("d/x")).unwrap(), b"first");
    // What is gone is named by its directory, and a link by its name.
    for name in ["x", "link"] {
        fs::remove_file(mount.path("d").join(name)).unwrap();
        mount.wait();
        said(&world, &["history"], &mount.path("ld").join(name)).succeeds();
        said(&world, &["restore"], &mount.path("ld").join(format!("{name}@s1"))).succeeds();
    }
    assert_eq!(fs::read(mount.path("d/x")).unwrap(), b"first");
    assert_eq!(fs::read_link(mount.path("d/link")).unwrap(), Path::new("x"));
    fs::write(mount.path("d/x"), "third").unwrap();
    mount.wait();
    said(&world, &["restore"], &mount.path("d/link@s1")).succeeds();
    assert_eq!(fs::read(mount.path("d/x")).unwrap(), b"third");
}
