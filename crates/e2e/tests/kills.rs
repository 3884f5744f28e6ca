//! kill -9 in the midst of what takes long or is rare: tidying the server's store, the transfer of
//! a large file, a disk that is full here or at the server.
//!
//! The quick form kills a few times each; `FARFS_E2E_KILLS=50` is the long one.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests of real mounts open files and start processes"
)]

use e2e::contents::{noise, number_of, tree, version, write_and_sync};
use e2e::mount::Wanted;
use e2e::world::farfs;
use e2e::{Lane, Mount, Server, World, eventually, kills, run};
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
/// Names that are replaced again and again while the store is tidied.
const SLOTS: u64 = 6;

fn bound(quick: u64) -> Duration {
    SECOND * u32::try_from(240 + 20 * kills(quick)).unwrap()
}

/// So many milliseconds below `most`, another number for each seed.
fn drawn(seed: u64, most: u64) -> Duration {
    let bytes = noise(seed, 2);
    MS * u32::try_from(u64::from(u16::from_le_bytes([bytes[0], bytes[1]])) % most).unwrap()
}

fn disk(world: &World, name: &str, size: &str) -> PathBuf {
    let place = world.folder(name);
    let options = format!("size={size},mode=0755");
    run(Command::new("mount").args(["-t", "tmpfs", "-o", &options, "farfs-test"]).arg(&place))
        .succeeds();
    place
}

fn enlarge(place: &Path, size: &str) {
    let options = format!("remount,size={size}");
    run(Command::new("mount").args(["-o", &options]).arg(place)).succeeds();
}

/// A whole version in the place of another.
fn save(folder: &Path, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    let fresh = folder.join(format!("{name}.fresh"));
    fs::write(&fresh, bytes)?;
    fs::rename(&fresh, folder.join(name))
}

/// The number of the version that each name has; whatever is no whole version fails.
fn numbers(folder: &Path) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name.ends_with(".fresh") {
            continue;
        }
        let whole = fs::read(&path).unwrap();
        let number = number_of(&whole).unwrap_or_else(|half| panic!("{name}: {half}"));
        found.insert(name, number);
    }
    found
}

fn gc(server: &Server) -> Command {
    let data = server.data.display().to_string();
    farfs(&["gc", "--data", &data, "--empty-trash"])
}

/// The numbers of the packs in which the server's contents are.
fn packs(server: &Server) -> Vec<String> {
    let entries = fs::read_dir(server.data.join("chunks")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut packs: Vec<String> = names.filter(|name| name.ends_with(".pack")).collect();
    packs.sort();
    packs
}

#[test]
fn tidying_that_is_killed_at_any_moment_loses_nothing() {
    let quick = 5;
    let world = World::bounded(bound(quick));
    let mut server = world.server();
    let data = server.data.display().to_string();
    // What was replaced is garbage at once.
    let keep = ["volume", "set", "--data", &data, "--keep-versions", "0s", "main"];
    run(&mut farfs(&keep)).succeeds();
    let mount = world.mount(&server, "mount", "partial");
    let mut kept = BTreeMap::new();
    let mut number = 0;
    for kill in 0..kills(quick) {
        for _ in 0..SLOTS {
            number += 1;
            let name = format!("name-{}", number % SLOTS);
            let bytes = version(number, 60_000 + (number as usize * 7919) % 90_000);
            save(&mount.mountpoint, &name, &bytes).unwrap();
            kept.insert(name, number);
        }
        mount.wait();
        // What was promised to the writer is not promised by the next server.
        server.kill();
        let mut tidying = if kill % 2 == 0 {
            server.restart();
            gc(&server)
        } else {
            gc(&server)
        };
        let mut child = tidying
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(30 * MS + drawn(kill, 250));
        if kill % 2 == 0 {
            server.kill();
        } else {
            let _ = child.kill();
        }
        child.wait().unwrap();
        server.restart();
        assert_eq!(numbers(&mount.mountpoint), kept, "after kill {kill}");
    }
    run(&mut gc(&server)).succeeds();
    assert!(!packs(&server).contains(&"00000001.pack".to_owned()), "{:?}", packs(&server));
    let other = world.mount(&server, "other", "connected");
    assert_eq!(numbers(&other.mountpoint), kept);
    assert_eq!(server.conflicts(), Vec::<String>::new());
    assert_eq!(server.stop(), Some(0));
    run(&mut farfs(&["check", "--data", &data])).succeeds();
}

/// A file that takes so long that both sides can be killed while it is sent.
const LARGE_BYTES: usize = 2_500_000;
/// What one kill may cost: what was on its way or not yet asked about.
const KILL_BYTES: u64 = 400_000;

#[test]
fn a_large_file_is_sent_on_from_where_it_was_when_either_side_is_killed() {
    let quick = 3;
    let world = World::alone(bound(quick));
    let mut server = world.server();
    let slow = Lane::new(4_000_000, 10 * MS);
    let wanted = Wanted { mode: "partial", up: Some(slow), ..Wanted::default() };
    let mut mount = world.mount_with(&server, "mount", wanted);
    let large = noise(1, LARGE_BYTES);
    let before = mount.relay.traffic().up.carried.bytes;
    fs::write(mount.path("large"), &large).unwrap();
    let times = kills(quick);
    for kill in 0..times {
        let upto = LARGE_BYTES as u64 * (kill + 1) / (times + 2);
        let sent = || mount.relay.traffic().up.carried.bytes - before;
        eventually(60 * SECOND, "some of it has been sent", || sent() > upto);
        if kill % 3 != 1 {
            server.kill();
        }
        if kill % 3 != 0 {
            mount.kill();
            mount.again();
        }
        if kill % 3 != 1 {
            server.restart();
        }
    }
    mount.wait();
    let sent = mount.relay.traffic().up.carried.bytes - before;
    println!("{sent} bytes were sent for {LARGE_BYTES}, with {times} kills");
    let most = LARGE_BYTES as u64 * 11 / 10 + times * KILL_BYTES;
    assert!(sent < most, "{sent} bytes for {LARGE_BYTES}");
    let other = world.mount(&server, "other", "connected");
    assert!(fs::read(other.path("large")).unwrap() == large);
}

#[test]
fn a_large_file_is_fetched_on_from_where_it_was_when_the_server_is_killed() {
    let quick = 3;
    let world = World::alone(bound(quick));
    let mut server = world.server();
    let large = noise(2, LARGE_BYTES);
    let mut author = world.mount(&server, "author", "connected");
    write_and_sync(&author.path("large"), &large).unwrap();
    author.unmount(&[]);
    let slow = Lane::new(4_000_000, 10 * MS);
    let wanted = Wanted { mode: "partial", down: Some(slow), ..Wanted::default() };
    let mount = world.mount_with(&server, "mount", wanted);
    assert_eq!(fs::metadata(mount.path("large")).unwrap().len(), LARGE_BYTES as u64);
    let before = mount.relay.traffic().down.carried.bytes;
    let come = || mount.relay.traffic().down.carried.bytes - before;
    let times = kills(quick);
    for kill in 0..times {
        let upto = LARGE_BYTES as u64 * (kill + 1) / (times + 2);
        let path = mount.path("large");
        let reader = std::thread::spawn(move || fs::read(path));
        eventually(60 * SECOND, "some of it has come", || come() > upto || reader.is_finished());
        server.kill();
        server.restart();
        // It has read all, or was told that it cannot.
        if let Ok(read) = reader.join().unwrap() {
            assert!(read == large);
        }
    }
    eventually(60 * SECOND, "it is read", || {
        fs::read(mount.path("large")).is_ok_and(|read| read == large)
    });
    println!("{} bytes came for {LARGE_BYTES}, with {times} kills", come());
    let most = LARGE_BYTES as u64 * 11 / 10 + times * KILL_BYTES;
    assert!(come() < most, "{} bytes for {LARGE_BYTES}", come());
}

/// Much shorter than a lease, and much longer than a mount needs to see that the server is another.
const GOES_ON: Duration = Duration::from_secs(12);

#[test]
fn who_saves_after_the_server_was_killed_does_not_wait_for_the_lease_of_an_idle_device() {
    let world = World::alone(120 * SECOND);
    let mut server = world.server();
    let (ada, bob) =
        (world.mount(&server, "ada", "connected"), world.mount(&server, "bob", "auto"));
    for kill in 0..3 {
        // Bob has used the volume just now, does nothing any more, and nobody tells him.
        write_and_sync(&bob.path("bob's"), &noise(kill, 3000)).unwrap();
        assert_eq!(fs::read_dir(&bob.mountpoint).unwrap().count() as u64, 1 + kill.min(1));
        server.kill();
        std::thread::sleep(SECOND);
        server.restart();
        let begun = std::time::Instant::now();
        write_and_sync(&ada.path("ada's"), &noise(10 + kill, 300_000)).unwrap();
        let took = begun.elapsed();
        println!("saved {took:?} after the server was back");
        assert!(took < GOES_ON, "{took:?}");
    }
}

const FILE_BYTES: usize = 500_000;

#[track_caller]
fn all_there(mount: &Mount, files: u64) {
    for number in 0..files {
        let read = fs::read(mount.path(format!("file-{number}"))).unwrap();
        assert!(read == noise(number, FILE_BYTES), "file {number}: {} bytes", read.len());
    }
}

/// Who was told that there is no room asks first how much there is, and sends nothing where that is too
/// little: then the server has nothing to say.
fn waits_for_room(mount: &Mount) -> bool {
    mount.status()["pending"]["trouble"]
        .as_str()
        .is_some_and(|trouble| trouble.contains("no space"))
}

#[test]
fn a_server_whose_disk_is_full_may_be_killed_and_loses_nothing() {
    let quick = 3;
    let world = World::bounded(bound(quick));
    let place = disk(&world, "small", "12m");
    let mut server = world.server_at(&place.join("data"), "origin");
    let mount = world.mount(&server, "mount", "partial");
    let files = 30;
    for number in 0..files {
        fs::write(mount.path(format!("file-{number}")), noise(number, FILE_BYTES)).unwrap();
    }
    // Each server says so once; the first may have done before all is written.
    let said_full = |server: &e2e::Server| server.said().matches("no space left").count();
    let mut before = 0;
    for kill in 0..kills(quick) {
        let begun = std::time::Instant::now();
        eventually(40 * SECOND, "the disk is full", || {
            said_full(&server) > before || (begun.elapsed() > 10 * SECOND && waits_for_room(&mount))
        });
        std::thread::sleep(drawn(kill, 300));
        server.kill();
        before = said_full(&server);
        server.restart();
        all_there(&mount, files);
    }
    assert!(mount.pending() > 0, "15 MB do not fit 12");
    enlarge(&place, "64m");
    eventually(60 * SECOND, "everything has been sent", || mount.pending() == 0);
    let other = world.mount(&server, "other", "connected");
    all_there(&other, files);
    assert_eq!(server.conflicts(), Vec::<String>::new());
    server.stop();
    run(&mut farfs(&["check", "--data", &server.data.display().to_string()])).succeeds();
}

#[test]
fn a_device_whose_disk_is_full_may_be_killed_and_loses_nothing() {
    let quick = 3;
    let world = World::bounded(bound(quick));
    let server = world.server();
    let place = disk(&world, "mount.state", "12m");
    // What is written is held back, so that it has to be kept here.
    let mut mount = world.mount(&server, "mount", "fetch-only");
    let mut written = 0;
    let refused = loop {
        match write_and_sync(&mount.path(format!("file-{written}")), &noise(written, FILE_BYTES)) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 60, "30 MB do not fit 12");
    };
    assert_eq!(refused.kind(), ErrorKind::StorageFull, "{refused}");
    assert!(written > 2, "{written}");
    for kill in 0..kills(quick) {
        mount.kill();
        mount.again();
        all_there(&mount, written);
        let again = write_and_sync(&mount.path("more"), &noise(99, 2 * FILE_BYTES));
        assert!(again.is_err(), "kill {kill}: there is no room");
        std::thread::sleep(drawn(kill, 200));
    }
    enlarge(&place, "64m");
    mount.set_mode("partial");
    eventually(60 * SECOND, "everything has been sent", || mount.pending() == 0);
    let other = world.mount(&server, "other", "connected");
    all_there(&other, written);
    assert_eq!(tree(&mount.mountpoint), tree(&other.mountpoint));
}

#[test]
fn on_a_disk_that_is_entirely_full_versions_can_be_given_up_and_gc_frees_it() {
    let world = World::bounded(bound(0));
    let place = disk(&world, "small", "48m");
    let mut server = world.server_at(&place.join("data"), "origin");
    let options = &["--answer-within", "60s"][..];
    let wanted = Wanted { mode: "connected", options, ..Wanted::default() };
    let mount = world.mount_with(&server, "mount", wanted);
    // Replaced again and again, and kept.
    let refused = (0..100)
        .find_map(|number| write_and_sync(&mount.path("file"), &noise(number, 3_000_000)).err());
    assert_eq!(refused.map(|error| error.kind()), Some(ErrorKind::StorageFull));
    // To the last byte.
    let rest = (0..).find_map(|number| {
        let stuffing = fs::write(place.join(format!("stuffing-{number}")), noise(number, 40_000));
        stuffing.err()
    });
    assert_eq!(rest.map(|error| error.kind()), Some(ErrorKind::StorageFull));
    let data = server.data.display().to_string();
    let invite = ["invite", "--data", &data];
    assert!(run(&mut farfs(&invite)).fails_with(1).contains("no space left"));
    // While a server runs, devices that wait for room take what comes free.
    server.kill();
    let keep = ["volume", "set", "--data", &data, "--keep-versions", "0s", "main"];
    run(&mut farfs(&keep)).succeeds();
    let freed = ["gc", "--data", &data, "--empty-trash", "--forget-sent"];
    let freed = run(&mut farfs(&freed)).succeeds();
    assert!(freed.contains("given back to the disk: "), "{freed}");
    server.restart();
    eventually(30 * SECOND, "there is room again", || {
        write_and_sync(&mount.path("later"), &noise(200, 1_000_000)).is_ok()
    });
}
