//! Something else in the place of a file of ours: a link, a directory, a pipe. Nobody hangs, nothing
//! at the end of a link is shown or changed, and what can be had again is.

use e2e::contents::noise;
use e2e::{Mount, World, run};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const KINDS: [&str; 3] = ["link", "directory", "pipe"];

/// What is at the end of a link, and is nobody's but ours.
fn precious() -> Vec<u8> {
    noise(77, 70_000)
}

fn put(world: &World, path: &Path, kind: &str) {
    let _ = fs::remove_file(path);
    let target = world.path("precious");
    fs::write(&target, precious()).unwrap();
    match kind {
        "link" => symlink(target, path).unwrap(),
        "directory" => fs::create_dir(path).unwrap(),
        _ => mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap(),
    }
}

#[track_caller]
fn is_untouched(world: &World, case: &str) {
    assert!(fs::read(world.path("precious")).unwrap() == precious(), "{case}: the target changed");
}

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    run(Command::new("cp").args(["-a", "--sparse=always"]).arg(from).arg(to)).succeeds();
}

/// The containers of a mount that are there.
fn containers(mount: &Mount) -> Vec<PathBuf> {
    let cache = mount.state.join("cache");
    let found = e2e::contents::tree(&cache).into_keys().map(|name| cache.join(name));
    found.filter(|path| path.is_file()).collect()
}

fn container_of(mount: &Mount, bytes: &[u8]) -> PathBuf {
    let holds = |path: &PathBuf| fs::read(path).is_ok_and(|found| found == bytes);
    containers(mount).into_iter().find(holds).expect("a container holds what was written")
}

#[test]
fn what_is_in_the_place_of_a_container_is_put_aside_and_the_file_is_fetched_anew() {
    let world = World::alone(Duration::from_secs(120));
    let server = world.server();
    let mut mount = world.mount(&server, "mount", "partial");
    let files = [("small", noise(1, 4)), ("large", noise(2, 400_000)), ("written", noise(3, 900))];
    for (name, bytes) in &files {
        fs::write(mount.path(name), bytes).unwrap();
    }
    mount.wait();
    for kind in KINDS {
        for (name, bytes) in &files {
            assert!(fs::read(mount.path(name)).unwrap() == *bytes, "{kind}: {name}");
        }
        mount.wait();
        mount.unmount(&[]);
        let there: Vec<PathBuf> =
            files.iter().map(|(_, bytes)| container_of(&mount, bytes)).collect();
        for path in &there {
            put(&world, path, kind);
        }
        mount.again();
        for (name, bytes) in &files[..2] {
            assert!(fs::read(mount.path(name)).unwrap() == *bytes, "{kind}: {name}");
        }
        // Cut to nothing and written anew before anybody reads it.
        fs::write(mount.path("written"), &files[2].1).unwrap();
        fs::write(mount.path(format!("after {kind}")), "goes on").unwrap();
        mount.wait();
        is_untouched(&world, kind);
    }
    assert!(!mount.said().contains("panicked"), "{}", mount.said());
}

#[test]
fn what_comes_into_the_place_of_a_container_while_it_is_mounted_holds_up_nobody() {
    let world = World::new();
    let server = world.server();
    let mut mount = world.mount(&server, "mount", "partial");
    for kind in KINDS {
        let (thesis, note) = (noise(9, 300_000), noise(10, 2_000));
        fs::write(mount.path("thesis"), &thesis).unwrap();
        fs::write(mount.path("note"), &note).unwrap();
        mount.wait();
        // What is written to next is fetched anew, and what is cut to nothing is not.
        for (name, bytes) in [("thesis", &thesis), ("note", &note)] {
            put(&world, &container_of(&mount, bytes), kind);
            let mut file = fs::File::options().append(true).open(mount.path(name)).unwrap();
            std::io::Write::write_all(&mut file, b"more").unwrap();
            drop(file);
            mount.wait();
            let long = [bytes.as_slice(), b"more"].concat();
            assert!(fs::read(mount.path(name)).unwrap() == long, "{kind}: {name}");
            put(&world, &container_of(&mount, &long), kind);
            fs::write(mount.path(name), "anew").unwrap();
            mount.wait();
            assert_eq!(fs::read(mount.path(name)).unwrap(), b"anew", "{kind}: {name}");
            fs::remove_file(mount.path(name)).unwrap();
        }
        mount.set_mode("fetch-only");
        let lost = noise(KINDS.iter().position(|it| *it == kind).unwrap() as u64 + 20, 400_000);
        fs::write(mount.path("lost"), &lost).unwrap();
        fs::write(mount.path("behind"), &note).unwrap();
        put(&world, &container_of(&mount, &lost), kind);
        mount.set_mode("partial");
        let waited = run(&mut mount.farfs("wait", &["--timeout", "50s"])).fails_with(6);
        assert!(waited.contains("lost is gone"), "{kind}: {waited}");
        mount.wait();
        assert!(fs::read(mount.path("behind")).unwrap() == note, "{kind}");
        fs::remove_file(mount.path("behind")).unwrap();
        fs::remove_file(mount.path("lost")).unwrap();
        is_untouched(&world, kind);
    }
}

#[test]
fn a_pending_file_whose_container_is_something_else_holds_up_nobody_and_is_told() {
    for kind in KINDS {
        let world = World::new();
        let server = world.server();
        let mut mount = world.mount(&server, "mount", "partial");
        fs::write(mount.path("thesis"), noise(4, 300_000)).unwrap();
        mount.wait();
        mount.set_mode("fetch-only");
        fs::write(mount.path("thesis"), noise(5, 300_000)).unwrap();
        fs::write(mount.path("other"), noise(6, 5_000)).unwrap();
        mount.unmount(&["--wait", "0s"]);
        put(&world, &container_of(&mount, &noise(5, 300_000)), kind);
        mount.mount_as("partial");
        mount.again();
        let waited = run(&mut mount.farfs("wait", &["--timeout", "50s"])).fails_with(6);
        assert!(waited.contains("thesis") && waited.contains("is gone"), "{kind}: {waited}");
        mount.wait();
        assert_eq!(mount.status()["damage"][0]["path"], "thesis", "{:#}", mount.status());
        assert!(fs::read(mount.path("other")).unwrap() == noise(6, 5_000), "{kind}");
        fs::write(mount.path("thesis"), "anew").unwrap();
        mount.wait();
        is_untouched(&world, kind);
    }
}

/// What a mount needs, or makes anew. Of the log, the segment that has what is pending.
const OF_A_DEVICE: [&str; 8] = [
    "tables.redb",
    "device.pem",
    "server.toml",
    "lock",
    "log/synced",
    "log/lock",
    "log/0000000000000001.journal",
    "reserve",
];

#[test]
fn a_mount_says_what_is_in_the_place_of_its_files_and_waits_for_nothing() {
    let world = World::alone(Duration::from_secs(240));
    let server = world.server();
    let mut mount = world.mount(&server, "mount", "partial");
    fs::write(mount.path("kept"), noise(7, 3_000)).unwrap();
    mount.wait();
    mount.unmount(&[]);
    let pristine = world.path("pristine");
    copy(&mount.state, &pristine);
    let mut refused = 0;
    for name in OF_A_DEVICE {
        for kind in KINDS {
            let case = format!("{name}: {kind}");
            assert!(pristine.join(name).exists(), "{case}");
            copy(&pristine, &mount.state);
            let path = mount.state.join(name);
            put(&world, &path, kind);
            let before = mount.said().len();
            match mount.try_again() {
                Ok(()) => {
                    assert!(name == "reserve", "{case}: mounted");
                    assert!(fs::read(mount.path("kept")).unwrap() == noise(7, 3_000), "{case}");
                    mount.unmount(&[]);
                }
                Err(_) => {
                    refused += 1;
                    let said = mount.said().split_off(before);
                    let last = said.lines().last().unwrap_or_default();
                    println!("{case}: {last}");
                    assert!(last.contains(&path.display().to_string()), "{case}: where: {last}");
                    // Of a link to a key it is the target that is none.
                    let is_said = last.contains(kind) || (name, kind) == ("device.pem", "link");
                    assert!(is_said, "{case}: what: {last}");
                }
            }
            is_untouched(&world, &case);
        }
    }
    assert_eq!(refused, 3 * (OF_A_DEVICE.len() - 1));
}

const OF_A_SERVER: [&str; 4] = ["tables.redb", "lock", "farfs.toml", "chunks/00000001.pack"];

#[test]
fn a_server_says_what_is_in_the_place_of_its_files_and_waits_for_nothing() {
    let world = World::alone(Duration::from_secs(240));
    let mut server = world.server();
    let mut mount = world.mount(&server, "mount", "connected");
    fs::write(mount.path("kept"), noise(8, 30_000)).unwrap();
    mount.unmount(&[]);
    assert_eq!(server.stop(), Some(0));
    let pristine = world.path("pristine");
    copy(&server.data, &pristine);
    let key = fs::read_dir(&pristine).unwrap().map(|entry| entry.unwrap().file_name());
    let key = key.map(|name| name.into_string().unwrap()).find(|name| name.ends_with(".pem"));
    let made_anew = ["chunks/index.redb", "reserve", "address", "control.sock"];
    let names = OF_A_SERVER.into_iter().chain(made_anew).map(str::to_owned).chain(key);
    for name in names {
        for kind in KINDS {
            let case = format!("{name}: {kind}");
            copy(&pristine, &server.data);
            let path = server.data.join(&name);
            put(&world, &path, kind);
            match server.try_restart() {
                Ok(_) => {
                    assert!(made_anew.contains(&name.as_str()), "{case}: it serves");
                    assert_eq!(server.stop(), Some(0), "{case}");
                }
                Err(said) => {
                    let last = said.lines().last().unwrap_or_default();
                    println!("{case}: {last}");
                    let place = match (name.as_str(), kind) {
                        // It is the link's target that is no settings.
                        ("farfs.toml", "link") => "farfs.toml".to_owned(),
                        _ => path.display().to_string(),
                    };
                    assert!(last.contains(&place), "{case}: where: {last}");
                    let is_followed = name == "farfs.toml" || name.ends_with(".pem");
                    let is_said = last.contains(kind) || is_followed && kind == "link";
                    assert!(is_said, "{case}: what: {last}");
                }
            }
            is_untouched(&world, &case);
        }
    }
}
