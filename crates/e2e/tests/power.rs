//! The power goes while the server rewrites its packs, while both sides of a tree write, and with an
//! index that is damaged besides: the disk loses everything that was not synced, and what was
//! acknowledged is there all the same.
//!
//! The quick form cuts the power a few times each; `FARFS_E2E_KILLS=50` is the long one.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests of real mounts open files and start processes"
)]

use e2e::contents::{noise, number_of, version};
use e2e::disk::{Disk, spoil};
use e2e::mount::Wanted;
use e2e::world::farfs;
use e2e::{Server, World, eventually, kills, run};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
const DISK_BYTES: u64 = 192 << 20;
const SLOTS: u64 = 6;

fn bound(quick: u64) -> Duration {
    SECOND * u32::try_from(240 + 30 * kills(quick)).unwrap()
}

fn drawn(seed: u64, most: u64) -> Duration {
    let bytes = noise(seed, 2);
    MS * u32::try_from(u64::from(u16::from_le_bytes([bytes[0], bytes[1]])) % most).unwrap()
}

/// A whole version in the place of another, safe from a power cut.
fn save(folder: &Path, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    let fresh = folder.join(format!("{name}.fresh"));
    let file = File::create(&fresh)?;
    std::io::Write::write_all(&mut &file, bytes)?;
    file.sync_all()?;
    fs::rename(&fresh, folder.join(name))?;
    File::open(folder)?.sync_all()
}

/// The number of the version that each name has; whatever is no whole version fails.
#[track_caller]
fn numbers(folder: &Path) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_file() && !name.ends_with(".fresh") {
            let whole = fs::read(&path).unwrap();
            let number = number_of(&whole).unwrap_or_else(|half| panic!("{name}: {half}"));
            found.insert(name, number);
        }
    }
    found
}

/// Of the server's packs, the oldest.
fn oldest_pack(server: &Server) -> String {
    let entries = fs::read_dir(server.data.join("chunks")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".pack")).min().unwrap()
}

/// Files of the server's in which it looks where chunks are.
fn indexes(server: &Server) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(server.data.join("chunks")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let is_index = |path: &std::path::PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with("index") && path.is_file()
    };
    paths.filter(is_index).collect()
}

#[test]
fn packs_that_are_rewritten_when_the_power_goes_have_lost_nothing_also_with_a_damaged_index() {
    let quick = 6;
    let world = World::bounded(bound(quick));
    let disk = Disk::new(&world, "disk", DISK_BYTES);
    let mut server = world.server_at(&disk.place.join("data"), "origin");
    let data = server.data.display().to_string();
    let keep = ["volume", "set", "--data", &data, "--keep-versions", "0s", "main"];
    run(&mut farfs(&keep)).succeeds();
    let mount = world.mount(&server, "mount", "partial");
    let (mut kept, mut number, mut rewritten) = (BTreeMap::new(), 0, 0);
    for cut in 0..kills(quick) {
        for _ in 0..SLOTS {
            number += 1;
            let name = format!("name-{}", number % SLOTS);
            let bytes = version(number, 200_000 + (number as usize * 7919) % 900_000);
            save(&mount.mountpoint, &name, &bytes).unwrap();
            kept.insert(name, number);
        }
        mount.wait();
        // What was promised to the writer is not promised by the next server.
        server.kill();
        server.restart();
        let oldest = oldest_pack(&server);
        let mut gc = farfs(&["gc", "--data", &data, "--empty-trash"]);
        let quiet = gc.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut tidying = quiet.spawn().unwrap();
        if cut % 3 == 2 {
            // When the old pack has just gone.
            eventually(20 * SECOND, "packs are rewritten", || oldest_pack(&server) != oldest);
        } else {
            std::thread::sleep(5 * MS + drawn(cut, 250));
        }
        rewritten += u64::from(oldest_pack(&server) != oldest);
        disk.lose_power(&[server.process()]);
        server.kill();
        tidying.wait().unwrap();
        disk.is_back();
        if cut % 2 == 1 {
            let indexes = indexes(&server);
            assert!(!indexes.is_empty(), "there is an index to be damaged");
            indexes.iter().for_each(|index| spoil(index));
        }
        server.restart();
        // By a device that has nothing cached.
        let mut other = world.mount(&server, &format!("other-{cut}"), "connected");
        assert_eq!(numbers(&other.mountpoint), kept, "after power cut {cut}");
        other.unmount(&[]);
    }
    assert!(rewritten > 0, "packs were rewritten");
    assert_eq!(server.conflicts(), Vec::<String>::new());
    assert_eq!(server.stop(), Some(0));
    run(&mut farfs(&["check", "--data", &data])).succeeds();
}

#[test]
fn where_every_call_waits_for_the_disk_what_has_returned_outlives_the_devices_power() {
    let world = World::bounded(240 * SECOND);
    let disk = Disk::new(&world, "disk", DISK_BYTES);
    std::os::unix::fs::symlink(disk.folder("state"), world.path("mount.state")).unwrap();
    let server = world.server();
    let options = ["--answer-within", "10s", "--durability", "sync"];
    let wanted = Wanted { mode: "partial", options: &options, ..Wanted::default() };
    let mut mount = world.mount_with(&server, "mount", wanted);
    // It is nowhere but here.
    run(&mut mount.farfs("pause", &[])).succeeds();
    let (directory, file) = (|cut| format!("made-{cut}"), |cut| format!("made-{cut}/file"));
    for cut in 0..3 {
        fs::create_dir(mount.path(directory(cut))).unwrap();
        fs::write(mount.path(file(cut)), version(cut, 10_000)).unwrap();
        fs::create_dir(mount.path(format!("last-{cut}"))).unwrap();
        disk.lose_power(&[mount.process()]);
        mount.kill();
        disk.is_back();
        mount.again();
        for before in 0..=cut {
            assert!(mount.path(format!("last-{before}")).is_dir(), "{before} after {cut}");
            let whole = fs::read(mount.path(file(before))).unwrap();
            assert_eq!(number_of(&whole), Ok(before), "after {cut}");
        }
    }
    run(&mut mount.farfs("resume", &[])).succeeds();
    mount.wait();
    assert_eq!(server.conflicts(), Vec::<String>::new());
}

/// What a writer of names knows of them: the last version that was acknowledged, and the one
/// that it was about to write.
type Saved = BTreeMap<String, (u64, u64)>;

/// Saves versions under a few names until that fails or it is told to stop. What ends after that
/// counts as attempted alone: the disk's power may have gone meanwhile.
fn saves(folder: &Path, saved: &mut Saved, number: &mut u64, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        *number += 1;
        let name = format!("name-{}", *number % SLOTS);
        let bytes = version(*number, 500 + 7919 * (*number as usize % 5));
        let of_name = saved.entry(name.clone()).or_default();
        of_name.1 = *number;
        if save(folder, &name, &bytes).is_err() || stop.load(Ordering::SeqCst) {
            return;
        }
        of_name.0 = *number;
        std::thread::sleep(10 * MS);
    }
}

/// Every name has what was acknowledged last, or what was attempted after it.
#[track_caller]
fn has_all(folder: &Path, saved: &mut Saved, when: &str) {
    let there = numbers(folder);
    for (name, known) in saved {
        let number = there.get(name).copied().unwrap_or(0);
        assert!(number == known.0 || number == known.1, "{when}: {name} is {number}: {known:?}");
        *known = (number, number);
    }
}

/// What loses its power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    /// The server's machine, its data and the tree; every other time the disk without the machine.
    Both,
    /// The disk of the tree alone.
    Tree,
}

fn play_tree(whose: Whose) {
    let quick = 3;
    let world = World::bounded(bound(quick));
    let disk = Disk::new(&world, "disk", DISK_BYTES);
    let folder = disk.folder("shared");
    let data = match whose {
        Whose::Both => disk.place.join("data"),
        Whose::Tree => world.path("data"),
    };
    let mut server = world.server_at(&data, "origin");
    server.stop();
    server.options = vec!["--tree".into(), folder.display().to_string()];
    server.restart();
    let mount = world.mount(&server, "mount", "partial");
    let (ours, theirs) = (folder.join("ours"), mount.path("theirs"));
    fs::create_dir(&ours).unwrap();
    File::open(&folder).unwrap().sync_all().unwrap();
    fs::create_dir(&theirs).unwrap();
    let (theirs_here, ours_there) = (folder.join("theirs"), mount.path("ours"));
    let both_there = || theirs_here.is_dir() && ours_there.is_dir();
    eventually(60 * SECOND, "both sides have both", both_there);
    let (mut here, mut there) = (Saved::new(), Saved::new());
    let (mut of_here, mut of_there) = (0, 1_000_000);
    for cut in 0..kills(quick) {
        let when = format!("{whose:?}, after power cut {cut}");
        let [stop_here, stop_there] = [AtomicBool::new(false), AtomicBool::new(false)];
        std::thread::scope(|scope| {
            scope.spawn(|| saves(&ours, &mut here, &mut of_here, &stop_here));
            scope.spawn(|| saves(&theirs, &mut there, &mut of_there, &stop_there));
            std::thread::sleep(400 * MS + drawn(cut, 900));
            stop_here.store(true, Ordering::SeqCst);
            if whose == Whose::Both && cut % 2 == 1 {
                disk.lose_power(&[server.process()]);
            } else {
                disk.fail(&[server.process()]);
            }
            std::thread::sleep(drawn(cut + 7, 200));
            stop_there.store(true, Ordering::SeqCst);
        });
        server.kill();
        disk.is_back();
        server.restart();
        has_all(&ours, &mut here, &when);
        has_all(&theirs, &mut there, &when);
        mount.wait();
        eventually(60 * SECOND, "both sides are the same", || {
            let same = |one: &Path, other: &Path| {
                let of = |folder: &Path| std::panic::catch_unwind(|| numbers(folder)).ok();
                of(one).is_some_and(|one| of(other) == Some(one))
            };
            same(&ours, &ours_there) && same(&theirs_here, &theirs)
        });
        has_all(&ours_there, &mut here, &when);
        has_all(&theirs_here, &mut there, &when);
    }
    assert_eq!(server.conflicts(), Vec::<String>::new());
    assert!(here.len() > 1 && there.len() > 1, "both sides wrote: {here:?}, {there:?}");
}

#[test]
fn a_server_that_loses_its_power_while_both_sides_of_its_tree_write_loses_nothing() {
    play_tree(Whose::Both);
}

#[test]
fn a_tree_whose_disk_alone_loses_its_power_while_both_sides_write_loses_nothing() {
    play_tree(Whose::Tree);
}
