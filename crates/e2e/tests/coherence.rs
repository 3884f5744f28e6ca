//! Two devices with one volume: what one closes the other opens, and what both change is kept.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests of real mounts open files and start processes"
)]

use e2e::contents::{noise, number_of, tree_now, version, write_and_sync};
use e2e::mount::Wanted;
use e2e::{Lane, Mount, Server, World, eventually, timed};
use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

/// What others did is seen in partial mode within so long, on a fast link.
const SOON: Duration = Duration::from_secs(5);

fn two(mode: &str) -> (World, Server, Mount, Mount) {
    let world = World::new();
    let server = world.server();
    let (a, b) = (world.mount(&server, "a", mode), world.mount(&server, "b", mode));
    (world, server, a, b)
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// What is in all files of a mount that can be read now.
fn texts(mount: &Mount) -> BTreeSet<String> {
    let paths = tree_now(&mount.mountpoint).unwrap_or_default().into_keys();
    paths.filter_map(|path| fs::read_to_string(mount.path(path)).ok()).collect()
}

#[test]
fn connected_whoever_opens_after_a_close_sees_what_was_closed() {
    let (_world, _server, a, b) = two("connected");
    for round in 0..30 {
        let (writer, reader) = if round % 2 == 0 { (&a, &b) } else { (&b, &a) };
        let whole = version(round, 3_000 + 7_919 * (round as usize % 5));
        write_and_sync(&writer.path("file"), &whole).unwrap();
        assert!(fs::read(reader.path("file")).unwrap() == whole, "round {round}");
        assert_eq!(fs::metadata(reader.path("file")).unwrap().len(), whole.len() as u64);
    }
}

#[test]
fn connected_every_change_of_a_directory_is_seen_at_once() {
    let (_world, _server, a, b) = two("connected");
    for (round, (here, there)) in [(&a, &b), (&b, &a)].into_iter().enumerate() {
        let name = |name: &str| format!("{name}-{round}");
        let see = |name: &str| there.path(name).symlink_metadata().is_ok();
        // Looked up in vain first: that there is no such name is cached as well.
        assert!(!see(&name("new")) && !see(&name("moved")));
        names(&there.mountpoint);
        fs::write(here.path(name("new")), "x").unwrap();
        assert!(see(&name("new")));
        assert!(names(&there.mountpoint).contains(&name("new")));
        fs::rename(here.path(name("new")), here.path(name("moved"))).unwrap();
        assert!(see(&name("moved")) && !see(&name("new")));
        fs::create_dir(here.path(name("folder"))).unwrap();
        fs::rename(here.path(name("moved")), here.path(name("folder")).join("inside")).unwrap();
        assert_eq!(names(&there.path(name("folder"))), BTreeSet::from(["inside".to_owned()]));
        assert!(!see(&name("moved")));
        symlink("somewhere", here.path(name("link"))).unwrap();
        assert_eq!(fs::read_link(there.path(name("link"))).unwrap(), Path::new("somewhere"));
        fs::remove_file(here.path(name("folder")).join("inside")).unwrap();
        assert!(names(&there.path(name("folder"))).is_empty());
        fs::remove_dir(here.path(name("folder"))).unwrap();
        assert!(!see(&name("folder")));
    }
}

/// Several on both machines make, replace and remove names of one directory, one at a time each name,
/// and each looks from the other machine when it has.
#[test]
fn connected_names_are_seen_at_once_where_both_machines_change_one_directory() {
    const NAMES: usize = 4;
    const LATE_MAX: u32 = 8;
    let (_world, _server, a, b) = two("connected");
    let names: Vec<_> = (0..NAMES).map(|_| Mutex::new(())).collect();
    let begun = Instant::now();
    let work = |me: usize| {
        let (here, there) = if me.is_multiple_of(2) { (&a, &b) } else { (&b, &a) };
        let (mut changes, mut late) = (0_u32, 0_u32);
        while begun.elapsed() < Duration::from_secs(6) {
            let which = (me + changes as usize * 3) % NAMES;
            let (name, own) = (format!("name-{which}"), format!("own-{me}"));
            let _one_at_a_time = names[which].lock().unwrap();
            changes += 1;
            let removes = changes.is_multiple_of(2) && here.path(&name).exists();
            if removes {
                fs::remove_file(here.path(&name)).unwrap();
            } else {
                fs::write(here.path(&own), vec![b'x'; changes as usize]).unwrap();
                fs::rename(here.path(&own), here.path(&name)).unwrap();
            }
            let seen = fs::metadata(there.path(&name)).map(|found| found.len()).ok();
            late += u32::from(seen != (!removes).then_some(u64::from(changes)));
        }
        (changes, late)
    };
    let (changes, late) = std::thread::scope(|scope| {
        let work = &work;
        let all: Vec<_> = (0..6).map(|me| scope.spawn(move || work(me))).collect();
        let done = all.into_iter().map(|one| one.join().unwrap());
        done.fold((0, 0), |(changes, late), one| (changes + one.0, late + one.1))
    });
    // What the kernel had when it began it may show once more.
    assert!(late <= LATE_MAX.max(changes / 20), "{late} of {changes} seen late");
}

#[test]
fn connected_attributes_are_seen_at_once() {
    let (_world, _server, a, b) = two("connected");
    fs::write(a.path("file"), "x").unwrap();
    for (round, (here, there)) in [(&a, &b), (&b, &a), (&a, &b)].into_iter().enumerate() {
        let stat = || fs::metadata(there.path("file")).unwrap();
        stat();
        let mode = 0o600 + round as u32;
        fs::set_permissions(here.path("file"), Permissions::from_mode(mode)).unwrap();
        assert_eq!(stat().mode() & 0o7777, mode);
        std::os::unix::fs::chown(here.path("file"), Some(1000 + round as u32), None).unwrap();
        assert_eq!(stat().uid(), 1000 + round as u32);
        fs::hard_link(here.path("file"), here.path(format!("name-{round}"))).unwrap();
        assert_eq!(stat().nlink(), 2 + round as u64);
        let file = File::options().write(true).open(here.path("file")).unwrap();
        file.set_len(round as u64).unwrap();
        file.sync_all().unwrap();
        assert_eq!(stat().len(), round as u64);
        let value = [round as u8];
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(here.path("file"), "user.a", &value, flags).unwrap();
        let mut seen = [0xff; 4];
        assert_eq!(rustix::fs::getxattr(there.path("file"), "user.a", &mut seen), Ok(1));
        assert_eq!(seen[0], round as u8);
    }
}

/// Programs that look for what has changed go by it: git, and tar for what it left out last time.
#[test]
fn connected_a_change_has_one_time_everywhere_whatever_is_set_while_it_is_written() {
    let (_world, _server, a, b) = two("connected");
    let set = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let change = |what: char, file: &mut File, path: &Path| match what {
        'w' => file.write_all(b"text").unwrap(),
        'm' => file.set_permissions(Permissions::from_mode(0o600)).unwrap(),
        't' => file.set_modified(set).unwrap(),
        'l' => fs::hard_link(path, path.with_extension("linked")).unwrap(),
        's' => file.sync_all().unwrap(),
        _ => drop(file.metadata().unwrap()),
    };
    for changes in ["w", "wm", "wt", "wmt", "wtm", "w?", "wl", "wsm", "wmsw", "mwm?"] {
        let (here, there) = (a.path(changes), b.path(changes));
        let mut file = File::create(&here).unwrap();
        for what in changes.chars() {
            change(what, &mut file, &here);
            // Longer than a tick of any clock.
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(file);
        let times = |path: &Path| {
            let stat = fs::metadata(path).unwrap();
            (stat.ctime(), stat.ctime_nsec(), stat.mtime(), stat.mtime_nsec())
        };
        eventually(SOON, "the last close is done", || {
            fs::read(&there).is_ok_and(|text| text == fs::read(&here).unwrap())
        });
        assert_eq!(times(&here), times(&there), "{changes}");
    }
}

#[test]
fn connected_a_file_that_is_open_goes_on_showing_the_version_that_was_opened() {
    let (_world, _server, a, b) = two("connected");
    let old = noise(1, 400_000);
    fs::write(a.path("file"), &old).unwrap();
    let reader = File::open(b.path("file")).unwrap();
    let mut part = vec![0; 1000];
    reader.read_exact_at(&mut part, 0).unwrap();
    for round in 0..3 {
        fs::write(a.path("file"), noise(50 + round, 300_000)).unwrap();
    }
    let mut seen = vec![0; old.len()];
    reader.read_exact_at(&mut seen, 0).unwrap();
    assert!(seen == old, "one whole version, that of the open");
    assert!(fs::read(b.path("file")).unwrap() == noise(52, 300_000), "a new open sees the new one");
    fs::remove_file(a.path("file")).unwrap();
    reader.read_exact_at(&mut seen, 0).unwrap();
    assert!(seen == old, "also when it is gone");
}

#[test]
fn connected_of_two_who_make_one_name_exactly_one_is_told_that_it_exists() {
    let (_world, _server, a, b) = two("connected");
    let barrier = Barrier::new(2);
    let race = |mount: &Mount| -> Vec<bool> {
        (0..25)
            .map(|round| {
                barrier.wait();
                match File::create_new(mount.path(format!("name-{round}"))) {
                    Ok(_) => true,
                    Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => false,
                    Err(error) => panic!("round {round}: {error}"),
                }
            })
            .collect()
    };
    let (won_a, won_b) = std::thread::scope(|scope| {
        let other = scope.spawn(|| race(&b));
        (race(&a), other.join().unwrap())
    });
    for (round, (one, other)) in won_a.iter().zip(&won_b).enumerate() {
        assert!(one != other, "round {round}: a {one}, b {other}");
    }
    assert_eq!(names(&a.mountpoint), names(&b.mountpoint));
    assert_eq!(names(&a.mountpoint).len(), 25);
}

/// A lock made of exclusive creation, as mail programs use: it must hold over both machines.
#[test]
fn connected_a_rename_takes_the_place_of_whatever_others_have_put_there_just_then() {
    let (_world, _server, a, b) = two("connected");
    let stop = AtomicBool::new(false);
    let refused = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                File::create(a.path("name")).unwrap();
                match fs::remove_file(a.path("name")) {
                    Err(error) if error.kind() != ErrorKind::NotFound => panic!("{error}"),
                    _ => {}
                }
            }
        });
        let refused: Vec<String> = (0..60)
            .filter_map(|number| {
                let own = b.path(format!("own {number}"));
                fs::write(&own, "own").unwrap();
                let renamed = fs::rename(&own, b.path("name"));
                renamed.err().map(|error| format!("{number}: {error}"))
            })
            .collect();
        stop.store(true, Ordering::Relaxed);
        refused
    });
    assert_eq!(refused, Vec::<String>::new());
    assert!(names(&b.mountpoint).iter().all(|name| name == "name"), "{:?}", names(&b.mountpoint));
    assert_eq!(names(&a.mountpoint), names(&b.mountpoint));
}

#[test]
fn connected_a_lock_file_keeps_a_counter_whole() {
    let (_world, _server, a, b) = two("connected");
    const ROUNDS: u64 = 12;
    fs::write(a.path("counter"), "0").unwrap();
    let count = |mount: &Mount| {
        for _ in 0..ROUNDS {
            eventually(Duration::from_secs(60), "the lock is free", || {
                File::create_new(mount.path("lock")).is_ok()
            });
            let number: u64 = fs::read_to_string(mount.path("counter")).unwrap().parse().unwrap();
            fs::write(mount.path("counter"), (number + 1).to_string()).unwrap();
            fs::remove_file(mount.path("lock")).unwrap();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| count(&a));
        count(&b);
    });
    assert_eq!(fs::read_to_string(a.path("counter")).unwrap(), (2 * ROUNDS).to_string());
}

#[test]
fn a_reader_never_sees_half_of_a_version_that_is_written_elsewhere() {
    for mode in ["connected", "partial"] {
        let (_world, server, a, b) = two(mode);
        fs::write(a.path("file"), version(0, 50_000)).unwrap();
        a.wait();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for number in 1..=25 {
                    let bytes = 10_000 + 13_000 * (number as usize % 7);
                    fs::write(a.path("file"), version(number, bytes)).unwrap();
                }
            });
            let mut last = 0;
            while !writer.is_finished() {
                let whole = fs::read(b.path("file")).unwrap();
                let number = number_of(&whole).unwrap_or_else(|half| panic!("{mode}: {half}"));
                assert!(number >= last, "{mode}: {number} after {last}");
                last = number;
            }
        });
        a.wait();
        assert_eq!(server.conflicts(), Vec::<String>::new(), "{mode}: only one has written");
        eventually(SOON, "the last version is seen", || {
            number_of(&fs::read(b.path("file")).unwrap()) == Ok(25)
        });
    }
}

#[test]
fn partial_what_others_did_is_seen_within_seconds() {
    let (_world, _server, a, b) = two("partial");
    for round in 0..6 {
        let (here, there) = if round % 2 == 0 { (&a, &b) } else { (&b, &a) };
        let whole = version(round, 20_000);
        fs::write(here.path("file"), &whole).unwrap();
        eventually(SOON, "the contents", || fs::read(there.path("file")).is_ok_and(|r| r == whole));
        fs::create_dir(here.path(format!("folder-{round}"))).unwrap();
        fs::rename(here.path("file"), here.path(format!("folder-{round}/file"))).unwrap();
        eventually(SOON, "the rename", || {
            there.path(format!("folder-{round}/file")).exists() && !there.path("file").exists()
        });
        fs::rename(here.path(format!("folder-{round}/file")), here.path("file")).unwrap();
        fs::remove_dir(here.path(format!("folder-{round}"))).unwrap();
        let only = BTreeSet::from(["file".to_owned()]);
        eventually(SOON, "the removal", || names(&there.mountpoint) == only);
    }
}

#[test]
fn partial_what_two_changed_is_both_kept_and_listed() {
    let (_world, server, a, b) = two("partial");
    fs::write(a.path("notes.txt"), "the beginning").unwrap();
    a.wait();
    eventually(SOON, "both have it", || fs::read(b.path("notes.txt")).is_ok());
    // Without a link a name can be made only where it is known to be free.
    assert_eq!((names(&a.mountpoint).len(), names(&b.mountpoint).len()), (1, 1));
    a.relay.cut();
    b.relay.cut();
    fs::write(a.path("notes.txt"), "what a wrote").unwrap();
    fs::write(b.path("notes.txt"), "what b wrote").unwrap();
    // Changes of other names are no conflict.
    fs::write(a.path("of a"), "a").unwrap();
    fs::write(b.path("of b"), "b").unwrap();
    // Both make the same name, and one of them makes a directory of it.
    fs::write(a.path("both"), "file of a").unwrap();
    fs::create_dir(b.path("both")).unwrap();
    fs::write(b.path("both/inside"), "in b's").unwrap();
    for mount in [&a, &b] {
        mount.relay.restore();
        mount.wait();
    }
    let wanted = ["what a wrote", "what b wrote", "a", "b", "file of a", "in b's"];
    let wanted: BTreeSet<String> = wanted.map(String::from).into();
    eventually(SOON, "both devices have all that was written", || {
        texts(&a) == wanted && texts(&b) == wanted
    });
    eventually(SOON, "and under the same names", || {
        let [a, b] = [&a, &b].map(|mount| tree_now(&mount.mountpoint));
        a.is_ok() && a == b
    });
    let beside: Vec<String> =
        names(&a.mountpoint).into_iter().filter(|name| name.contains("conflict")).collect();
    assert_eq!(beside.len(), 2, "{beside:?}");
    assert!(beside.iter().any(|name| name.starts_with("notes") && name.ends_with(".txt")));
    let listed = server.conflicts();
    assert_eq!(listed.len(), 2, "{listed:#?}");
    let counted = |mount: &Mount| mount.status()["conflicts"].as_u64().unwrap();
    assert_eq!(counted(&a) + counted(&b), 2);
}

#[test]
fn partial_an_update_of_what_another_removed_brings_it_back() {
    let (_world, _server, a, b) = two("partial");
    fs::create_dir(a.path("folder")).unwrap();
    fs::write(a.path("folder/file"), "the beginning").unwrap();
    a.wait();
    eventually(SOON, "both have it", || fs::read(b.path("folder/file")).is_ok());
    a.relay.cut();
    b.relay.cut();
    fs::write(a.path("folder/file"), "worth keeping").unwrap();
    fs::remove_file(b.path("folder/file")).unwrap();
    fs::remove_dir(b.path("folder")).unwrap();
    b.relay.restore();
    b.wait();
    a.relay.restore();
    a.wait();
    let found = |mount: &Mount| texts(mount).contains("worth keeping");
    eventually(SOON, "it is there again, on both", || found(&a) && found(&b));
}

/// A holder of callbacks that has gone away for good must not be waited for.
#[test]
fn a_device_that_was_unmounted_holds_up_nobody() {
    let (_world, _server, a, mut b) = two("connected");
    fs::write(a.path("file"), "one").unwrap();
    assert_eq!(fs::read(b.path("file")).unwrap(), b"one");
    b.unmount(&[]);
    let (written, took) = timed(|| write_and_sync(&a.path("file"), b"two"));
    written.unwrap();
    assert!(took < Duration::from_secs(2), "{took:?}");
}

/// With the settings that users have.
#[test]
fn a_device_that_vanished_holds_up_a_writer_once_and_the_writer_gets_no_error() {
    let world = World::new();
    let server = world.server();
    let wanted = Wanted { mode: "connected", options: &[], ..Wanted::default() };
    let a = world.mount_with(&server, "a", wanted);
    let mut b = world.mount_with(&server, "b", wanted);
    for name in ["one", "two"] {
        fs::write(a.path(name), "old").unwrap();
        assert_eq!(fs::read(b.path(name)).unwrap(), b"old");
    }
    b.relay.cut();
    let (written, took) = timed(|| write_and_sync(&a.path("one"), b"new"));
    written.unwrap();
    assert!(took > Duration::from_secs(1), "b was promised to be told: {took:?}");
    let (written, took) = timed(|| write_and_sync(&a.path("two"), b"new"));
    written.unwrap();
    assert!(took < Duration::from_secs(2), "b is late, and is not waited for again: {took:?}");
    b.relay.restore();
    eventually(Duration::from_secs(30), "b catches up", || {
        ["one", "two"].iter().all(|name| fs::read(b.path(name)).is_ok_and(|read| read == b"new"))
    });
    b.kill();
}

/// A third device far away, on a slow link, with the same files in its cache.
#[test]
fn a_weak_device_does_not_slow_down_the_others_twice() {
    let world = World::new();
    let server = world.server();
    let a = world.mount(&server, "a", "connected");
    let slow = Lane::new(64_000, Duration::from_millis(150));
    let wanted = Wanted { mode: "partial", up: Some(slow), down: Some(slow), ..Wanted::default() };
    fs::write(a.path("file"), "old").unwrap();
    let weak = world.mount_with(&server, "weak", wanted);
    assert_eq!(fs::read(weak.path("file")).unwrap(), b"old");
    let (_, took) = timed(|| fs::write(a.path("file"), "told").unwrap());
    assert!(took < Duration::from_secs(5), "a round trip of the weak one: {took:?}");
    eventually(Duration::from_secs(10), "the weak one sees it", || {
        fs::read(weak.path("file")).is_ok_and(|read| read == b"told")
    });
}
