//! A server whose log of the tables is damaged, and of which there is no backup: it goes on without the last
//! changes where one says so, and devices that know of them notice.

use super::says;
use e2e::contents::noise;
use e2e::wait::eventually;
use e2e::world::farfs;
use e2e::{Mount, Server, World, run};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

const BYTES: usize = 20_000;
/// A record of the log begins with so many bytes that are not the server's.
const ENVELOPE_BYTES: usize = 28;

fn newest_segment(server: &Server) -> PathBuf {
    let entries = fs::read_dir(server.data.join("tables.log")).unwrap();
    let segments = entries.map(|entry| entry.unwrap().path());
    segments.filter(|path| path.extension().is_some_and(|e| e == "journal")).max().unwrap()
}

fn save(mount: &Mount, name: &str, number: u64) {
    fs::write(mount.path(name), noise(number, BYTES)).unwrap();
}

#[track_caller]
fn has(mount: &Mount, name: &str, number: u64) {
    assert!(fs::read(mount.path(name)).unwrap() == noise(number, BYTES), "{name}");
}

fn names(mount: &Mount) -> Vec<String> {
    let entries = fs::read_dir(&mount.mountpoint).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

/// What the server took after this is lost with the log.
fn lose_what_comes(server: &mut Server, work: impl FnOnce()) {
    let (segment, before) = (newest_segment(server), fs::read(newest_segment(server)).unwrap());
    work();
    server.kill();
    let mut bytes = fs::read(&segment).unwrap();
    assert!(bytes.len() > before.len() + ENVELOPE_BYTES && bytes.starts_with(&before));
    bytes[before.len() + ENVELOPE_BYTES] ^= 1;
    fs::write(segment, bytes).unwrap();
}

#[test]
fn a_server_goes_on_without_the_damaged_end_of_its_log_and_a_device_that_knows_of_it_notices() {
    let world = World::alone(Duration::from_secs(240));
    let mut server = world.server();
    let data = server.data.display().to_string();
    let mut mount = world.mount(&server, "mount", "auto");
    save(&mount, "before", 1);
    mount.wait();
    lose_what_comes(&mut server, || {
        save(&mount, "after", 2);
        mount.wait();
    });
    save(&mount, "pending", 3);

    let both_ways = [&*data, "tables.log", "from a backup", "--repair --without-log"];
    let said = server.try_restart().expect_err("its log is damaged");
    let said = said.lines().last().unwrap_or_default();
    assert!(both_ways.iter().all(|words| said.contains(words)), "{said}");
    assert!(!said.contains("what is affected"), "{said}");
    let repair = ["check", "--data", &data, "--repair"];
    for check in [&repair[..3], &repair] {
        says(run(&mut farfs(check)), 6, &both_ways);
    }
    let without_log = [&repair[..], &["--without-log"]].concat();
    let said = run(&mut farfs(&without_log)).succeeds();
    for words in ["from before that; lost: ", " at least)", "tables.log.given-up-1"] {
        assert!(said.contains(words), "{words:?} is not in: {said}");
    }
    says(run(&mut farfs(&without_log)), 2, &["whole, or not needed"]);
    server.restart();
    says(run(&mut farfs(&without_log)), 5, &["stop that server"]);

    eventually(Duration::from_secs(60), "the device has noticed", || {
        let trouble = mount.status()["link"]["trouble"].to_string();
        trouble.contains("set back") && trouble.contains("--accept-set-back")
    });
    has(&mount, "after", 2);
    has(&mount, "pending", 3);
    assert!(mount.pending() > 0);
    let kept = fs::read(mount.path("after")).unwrap();
    mount.unmount(&["--wait", "0s"]);
    mount.set_options(&["--answer-within", "10s", "--accept-set-back"]);
    mount.again();
    mount.wait();
    assert_eq!(names(&mount), ["before", "pending"]);
    fs::write(mount.path("after"), kept).unwrap();
    save(&mount, "later", 4);
    mount.wait();
    let other = world.mount(&server, "other", "connected");
    for mount in [&mount, &other] {
        assert_eq!(names(mount), ["after", "before", "later", "pending"]);
        for (name, number) in [("before", 1), ("after", 2), ("pending", 3), ("later", 4)] {
            has(mount, name, number);
        }
    }
    assert_eq!(server.conflicts(), [""; 0]);
    assert_eq!(server.stop(), Some(0));
    run(&mut farfs(&repair[..3])).succeeds();
}
