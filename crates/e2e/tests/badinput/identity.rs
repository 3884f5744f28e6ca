//! A state directory whose server has another volume by now, or that is there twice.

use e2e::{World, eventually, run};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Mounts in the background what a state directory knows, with a URL or without.
fn mounted(world: &World, state: &Path, url: Option<&str>) -> std::path::PathBuf {
    mounted_in(world, state, url, "partial")
}

fn mounted_in(world: &World, state: &Path, url: Option<&str>, mode: &str) -> std::path::PathBuf {
    let place = world.folder(&format!("{}.place", state.file_name().unwrap().to_str().unwrap()));
    let mut mount = world.farfs(&["mount"]);
    mount.args(url).arg(&place).arg("--state").arg(state).args(["--mode", mode]);
    run(&mut mount).succeeds();
    place
}

fn status(world: &World, place: &Path) -> serde_json::Value {
    let status = run(&mut world.farfs(&["status", text(place), "--json"])).succeeds();
    serde_json::from_str(&status).unwrap()
}

/// Ids of files and numbers of updates begin anew in a new volume, and mean others.
#[test]
fn what_is_pending_of_a_volume_does_not_go_into_another_of_its_name() {
    let world = World::new();
    let mut server = world.server();
    let mut old = world.mount(&server, "old", "partial");
    for name in ["one", "two", "three"] {
        fs::write(old.path(name), format!("old {name}")).unwrap();
    }
    old.wait();
    old.set_mode("disconnected");
    fs::write(old.path("one"), "pending").unwrap();
    old.unmount(&["--wait", "0s"]);
    server.stop();
    let data = text(&server.data).to_owned();
    run(&mut world.farfs(&["volume", "remove", "--data", &data, "--yes", "main"])).succeeds();
    run(&mut world.farfs(&["volume", "create", "--data", &data, "main"])).succeeds();
    server.restart();
    let new = world.mount(&server, "new", "partial");
    for number in 0..8 {
        fs::write(new.path(format!("new {number}")), format!("new {number}")).unwrap();
    }
    new.wait();
    let state = world.path("old.state");
    let place = mounted(&world, &state, Some(&server.invite()));
    eventually(20 * SECOND, "it is said", || {
        let trouble = status(&world, &place)["link"]["trouble"].to_string();
        trouble.contains("another volume") && trouble.contains("farfs salvage")
    });
    // Nor is anything taken in of what others do there.
    for number in 0..8 {
        fs::write(new.path(format!("new {number}")), format!("new {number}")).unwrap();
    }
    fs::write(new.path("later"), "x").unwrap();
    new.wait();
    std::thread::sleep(SECOND);
    let names = fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.collect();
    names.sort();
    assert_eq!(names, ["one", "three", "two"]);
    assert_eq!(fs::read(place.join("two")).unwrap(), b"old two", "what is here stays");
    assert!(fs::metadata(place.join("new 1")).is_err());
    run(&mut world.farfs(&["umount", text(&place), "--wait", "0s"])).succeeds();
    for number in 0..8 {
        let name = format!("new {number}");
        assert_eq!(fs::read_to_string(new.path(&name)).unwrap(), name, "nobody writes to it");
    }
    let out = world.path("out");
    run(&mut world.farfs(&["salvage", text(&state), text(&out)])).succeeds();
    assert_eq!(fs::read(out.join("one")).unwrap(), b"pending");
}

/// Who has a new file open in the moment in which two become of one goes on with `EBADF`, and may write it
/// again.
fn write_while_they_part(path: &Path, bytes: &str) {
    match fs::write(path, bytes) {
        Err(error) if error.raw_os_error() == Some(libc::EBADF) => fs::write(path, bytes).unwrap(),
        outcome => outcome.unwrap(),
    }
}

/// As of a virtual machine that was cloned while it ran.
#[test]
fn two_mounts_of_one_state_become_two_devices_and_both_send_what_they_have() {
    let world = World::new();
    let server = world.server();
    let one = world.mount(&server, "one", "partial");
    fs::write(one.path("before"), "x").unwrap();
    one.wait();
    let (state, copy) = (world.path("one.state"), world.path("copy.state"));
    run(Command::new("cp").arg("-a").arg(&state).arg(&copy)).succeeds();
    let two = mounted(&world, &copy, None);
    for number in 0..20 {
        write_while_they_part(&one.path(format!("one {number}")), "of one");
        write_while_they_part(&two.join(format!("two {number}")), "of two");
    }
    one.wait();
    run(&mut world.farfs(&["wait", text(&two), "--timeout", "60s"])).succeeds();
    let other = world.mount(&server, "other", "connected");
    // What had been taken in the moment in which they parted may be there twice, as a conflict.
    for number in 0..20 {
        assert_eq!(fs::read(other.path(format!("one {number}"))).unwrap(), b"of one");
        assert_eq!(fs::read(other.path(format!("two {number}"))).unwrap(), b"of two");
    }
    // Both go on.
    fs::write(one.path("more of one"), "x").unwrap();
    fs::write(two.join("more of two"), "x").unwrap();
    let seen = |name: &str| other.path(name).exists();
    eventually(30 * SECOND, "both are seen", || seen("more of one") && seen("more of two"));
    run(&mut world.farfs(&["umount", text(&two)])).succeeds();
}

/// As of a backup of the state that is mounted beside the one that it was made of.
#[test]
fn of_two_that_begin_with_one_state_the_second_is_another_device_before_it_makes_anything() {
    for mode in ["connected", "partial"] {
        let world = World::new();
        let server = world.server();
        let mut one = world.mount(&server, "one", mode);
        fs::write(one.path("before"), "x").unwrap();
        one.unmount(&[]);
        let (state, copy) = (world.path("one.state"), world.path("copy.state"));
        run(Command::new("cp").arg("-a").arg(&state).arg(&copy)).succeeds();
        let places = [&state, &copy].map(|state| mounted_in(&world, state, None, mode));
        let up = |place: &Path| status(&world, place)["link"]["connected"] == true;
        eventually(20 * SECOND, "both have a link", || places.iter().all(|place| up(place)));
        let mut open = Vec::new();
        for (place, name) in places.iter().zip(["one", "two"]) {
            let mut file = fs::File::create_new(place.join(name)).unwrap();
            file.write_all(format!("{name}, first").as_bytes()).unwrap();
            open.push(file);
        }
        for file in &mut open {
            file.write_all(b" and second").unwrap();
            file.sync_all().unwrap();
        }
        drop(open);
        for place in &places {
            run(&mut world.farfs(&["wait", text(place), "--timeout", "60s"])).succeeds();
        }
        let other = world.mount(&server, "other", "connected");
        for name in ["one", "two"] {
            let expected = format!("{name}, first and second");
            assert_eq!(fs::read_to_string(other.path(name)).unwrap(), expected, "{mode}");
            for place in &places {
                let seen = || fs::read_to_string(place.join(name)).ok() == Some(expected.clone());
                eventually(20 * SECOND, "each shows it", seen);
            }
        }
        assert_eq!(fs::read_dir(&other.mountpoint).unwrap().count(), 3, "no conflict");
        for place in &places {
            run(&mut world.farfs(&["umount", text(place)])).succeeds();
        }
    }
}

/// Both make files by the same ids, and updates by the same numbers.
#[test]
fn copies_that_run_apart_lose_nothing_and_what_is_open_meanwhile_fails() {
    let world = World::new();
    let server = world.server();
    let mut one = world.mount(&server, "one", "partial");
    fs::write(one.path("before"), "x").unwrap();
    one.unmount(&[]);
    let (state, copy) = (world.path("one.state"), world.path("copy.state"));
    run(Command::new("cp").arg("-a").arg(&state).arg(&copy)).succeeds();
    let one = mounted(&world, &state, None);
    let two = mounted_in(&world, &copy, None, "disconnected");
    for (place, name) in [(&one, "one"), (&two, "two")] {
        for number in 0..20 {
            fs::write(place.join(format!("{name} {number}")), format!("of {name}")).unwrap();
        }
    }
    run(&mut world.farfs(&["wait", text(&one), "--timeout", "60s"])).succeeds();
    let mut open = fs::File::create_new(two.join("open")).unwrap();
    open.write_all(b"first").unwrap();
    run(&mut world.farfs(&["mode", text(&two), "partial"])).succeeds();
    run(&mut world.farfs(&["wait", text(&two), "--timeout", "60s"])).succeeds();
    let failed = open.write_all(b" second").and_then(|()| open.sync_all());
    assert!(failed.is_err(), "it is open by an id that is another's now");
    drop(open);
    let other = world.mount(&server, "other", "connected");
    for place in [&other.mountpoint, &one, &two] {
        for number in 0..20 {
            for name in ["one", "two"] {
                let read = || fs::read_to_string(place.join(format!("{name} {number}"))).ok();
                let is_there = || read().as_deref() == Some(&*format!("of {name}"));
                eventually(20 * SECOND, "it is there", is_there);
            }
        }
        let read = || fs::read_to_string(place.join("open")).ok();
        eventually(20 * SECOND, "so is what was open", || read().as_deref() == Some("first"));
    }
    fs::write(two.join("open"), "again").unwrap();
    run(&mut world.farfs(&["wait", text(&two), "--timeout", "60s"])).succeeds();
    let seen = || fs::read_to_string(other.path("open")).ok().as_deref() == Some("again");
    eventually(20 * SECOND, "it goes on", seen);
    for place in [&one, &two] {
        run(&mut world.farfs(&["umount", text(place)])).succeeds();
    }
}
