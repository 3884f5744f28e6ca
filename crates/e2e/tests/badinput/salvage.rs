//! What was not yet sent is had out of a state directory whose log is damaged or gone.

use super::says;
use e2e::contents::noise;
use e2e::world::farfs;
use e2e::{Mount, Server, World, eventually, run};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const FILES: u64 = 12;

fn text(number: u64) -> Vec<u8> {
    noise(number + 1, 5_000 + 1_000 * number as usize)
}

/// The newest segment of the log, which holds something.
fn segment(log: &std::path::Path) -> PathBuf {
    let files = fs::read_dir(log).unwrap().map(|entry| entry.unwrap().path());
    let segments = files.filter(|path| fs::metadata(path).unwrap().len() > 1_000);
    segments.max().expect("something was logged")
}

#[test]
fn what_was_not_sent_is_copied_out_of_a_damaged_state_directory() {
    let world = World::bounded(Duration::from_secs(90));
    let server = world.server();
    let mut mount = world.mount(&server, "mount", "auto");
    fs::write(mount.path("sent"), b"sent").unwrap();
    mount.wait();
    mount.set_mode("disconnected");
    fs::create_dir(mount.path("trip")).unwrap();
    for number in 0..FILES {
        fs::write(mount.path(format!("trip/draft {number}")), text(number)).unwrap();
        let (from, to) = (format!("trip/draft {number}"), format!("trip/day {number}"));
        fs::rename(mount.path(from), mount.path(to)).unwrap();
    }
    fs::write(mount.path("trip/new"), text(0)).unwrap();
    fs::rename(mount.path("trip/new"), mount.path("trip/day 0")).unwrap();
    run(&mut mount.farfs("wait", &["--until", "logged"])).succeeds();
    mount.kill();
    let segment = segment(&mount.state.join("log"));
    let file = fs::File::options().read(true).write(true).open(&segment).unwrap();
    let (middle, mut byte) = (file.metadata().unwrap().len() / 2, [0]);
    file.read_exact_at(&mut byte, middle).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], middle).unwrap();

    let (state, out) = (mount.state.display().to_string(), world.path("salvaged"));
    eventually(Duration::from_secs(20), "it is told how to have it out", || {
        let refused = run(&mut mount.command());
        refused.code == Some(6) && refused.err.contains(&format!("farfs salvage {state}"))
    });
    let out_shown = out.display().to_string();
    let salvaged = run(&mut farfs(&["salvage", &state, &out_shown]));
    assert!(matches!(salvaged.code, Some(0 | 6)), "{}\n{}", salvaged.out, salvaged.err);
    assert!(salvaged.out.contains("cannot be read"), "{}", salvaged.out);
    let whole = |number: &u64| {
        let names = [format!("trip/day {number}"), format!("trip/draft {number}")];
        names.iter().any(|name| fs::read(out.join(name)).is_ok_and(|read| read == text(*number)))
    };
    let whole = (0..FILES).filter(whole).count() as u64;
    assert!(whole >= FILES - 1, "{whole} of {FILES}: {}\n{}", salvaged.out, salvaged.err);

    says(run(&mut farfs(&["salvage", &state, &out_shown])), 5, &["is not empty"]);
    let nothing = world.folder("nothing").display().to_string();
    let other = world.path("other").display().to_string();
    says(run(&mut farfs(&["salvage", &nothing, &other])), 7, &["not the state of a mount"]);
}

const DRAFTS: u64 = 3;

/// Every ordinary file below a directory, with what it holds.
fn held(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let found = e2e::contents::tree(directory).into_keys().map(|path| directory.join(path));
    found
        .filter(|path| path.is_file())
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect()
}

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    run(Command::new("cp").args(["-a", "--sparse=always"]).arg(from).arg(to)).succeeds();
}

fn damage(path: &Path, way: &str) {
    let length = fs::metadata(path).unwrap().len();
    match way {
        "deleted" => fs::remove_file(path).unwrap(),
        "emptied" => fs::write(path, b"").unwrap(),
        "halved" => {
            fs::File::options().write(true).open(path).unwrap().set_len(length / 2).unwrap()
        }
        _ => fs::write(path, noise(99, 900)).unwrap(),
    }
}

/// A mount with drafts that were not sent, and what was sent before; how it ended is for `end`.
fn with_drafts(world: &World, server: &Server, name: &str, end: impl Fn(&mut Mount)) -> Mount {
    let mut mount = world.mount(server, name, "partial");
    fs::create_dir(mount.path("trip")).unwrap();
    fs::write(mount.path("trip/sent"), text(20)).unwrap();
    mount.wait();
    mount.set_mode("disconnected");
    for number in 0..DRAFTS {
        fs::write(mount.path(format!("trip/draft {number}")), text(number)).unwrap();
    }
    run(&mut mount.farfs("wait", &["--until", "logged"])).succeeds();
    end(&mut mount);
    mount
}

fn salvage(state: &Path, out: &Path) -> e2e::Ran {
    let _ = fs::remove_dir_all(out);
    run(&mut farfs(&["salvage", &state.display().to_string(), &out.display().to_string()]))
}

/// The mount is refused, says how to go on, and leaves the log and the cache as they are.
fn is_refused(mount: &Mount, case: &str) {
    let kept = || [held(&mount.state.join("log")), held(&mount.state.join("cache"))];
    let before = kept();
    let refused = run(&mut mount.command());
    assert_eq!(refused.code, Some(6), "{case}: {}", refused.err);
    let advice = format!(
        "`farfs salvage {} OUT` copies it out; then copy device.pem and server.toml",
        mount.state.display()
    );
    assert!(refused.err.contains(&advice), "{case}: {}", refused.err);
    assert!(!refused.err.contains(", remove "), "{case}: {}", refused.err);
    let lock = |kept: [Vec<(PathBuf, Vec<u8>)>; 2]| {
        kept.into_iter().flatten().filter(|(path, _)| !path.ends_with("lock")).collect::<Vec<_>>()
    };
    assert!(lock(before) == lock(kept()), "{case}: a mount that is refused changes nothing");
}

#[test]
fn what_the_cache_holds_is_copied_out_whatever_became_of_the_log_and_the_tables() {
    let world = World::bounded(Duration::from_secs(180));
    let server = world.server();
    let mount = with_drafts(&world, &server, "mount", |mount| {
        mount.unmount(&["--wait", "0s"]);
    });
    let (pristine, out) = (world.path("pristine"), world.path("salvaged"));
    copy(&mount.state, &pristine);
    let whole = salvage(&mount.state, &out);
    assert_eq!((whole.code, held(&out).len() as u64), (Some(0), DRAFTS), "{}", whole.out);
    for way in ["deleted", "emptied", "halved", "filled with garbage"] {
        copy(&pristine, &mount.state);
        damage(&segment(&mount.state.join("log")), way);
        is_refused(&mount, way);
        // Whoever removes the mark of what was synced has no log that is whole, either.
        fs::remove_file(mount.state.join("log/synced")).unwrap();
        is_refused(&mount, way);
        let salvaged = salvage(&mount.state, &out);
        says(salvaged, 6, &["not all of the log could be read"]);
        for number in 0..DRAFTS {
            let draft = fs::read(out.join(format!("trip/draft {number}")));
            assert!(draft.is_ok_and(|draft| draft == text(number)), "{way}: {number}");
        }
        assert_eq!(held(&out).len() as u64, DRAFTS, "{way}: what was sent is not among them");

        for tables in ["deleted", "emptied", "filled with garbage"] {
            let case = format!("the log {way}, the tables {tables}");
            damage(&mount.state.join("tables.redb"), tables);
            is_refused(&mount, &case);
            let salvaged = salvage(&mount.state, &out);
            let said = salvaged.out.clone();
            says(salvaged, 6, &["of the log", "the tables could not be read"]);
            let found = held(&out);
            for number in 0..DRAFTS {
                assert!(found.iter().any(|(_, held)| *held == text(number)), "{case}: {number}");
            }
            assert!(said.contains("the server may have it"), "{case}: {said}");
            copy(&pristine.join("tables.redb"), &mount.state.join("tables.redb"));
        }
    }
    // As it was advised.
    let other = world.mount(&server, "other", "partial");
    let (found, _) = held(&out).into_iter().next().expect("something was copied out");
    fs::copy(found, other.path("trip/back")).unwrap();
    other.wait();
}

#[test]
fn after_a_kill_what_was_not_sent_is_copied_out_without_the_log() {
    let world = World::bounded(Duration::from_secs(90));
    let server = world.server();
    let mount = with_drafts(&world, &server, "mount", Mount::kill);
    let out = world.path("salvaged");
    fs::remove_file(segment(&mount.state.join("log"))).unwrap();
    is_refused(&mount, "killed");
    says(salvage(&mount.state, &out), 6, &["not all of the log could be read"]);
    let found = held(&out);
    for number in 0..DRAFTS {
        assert!(found.iter().any(|(_, held)| *held == text(number)), "{number}: {found:?}");
    }
}

/// In the container that holds just this, as a disk does.
fn flip_two_bits_of(cache: &Path, holds: &[u8]) {
    let found = held(cache).into_iter().find(|(_, held)| held == holds);
    let (path, mut bytes) = found.expect("it is in the cache");
    bytes[100] ^= 1;
    bytes[101] ^= 0x80;
    fs::write(path, bytes).unwrap();
}

#[test]
fn what_is_not_as_it_was_written_is_copied_out_and_said() {
    let world = World::bounded(Duration::from_secs(90));
    for (name, is_killed) in [("killed", true), ("unmounted", false)] {
        let server = world.server_at(&world.path(&format!("{name}.data")), name);
        let mount =
            with_drafts(&world, &server, &format!("{name}.mount"), |mount| match is_killed {
                true => mount.kill(),
                false => drop(mount.unmount(&["--wait", "0s"])),
            });
        let out = world.path(&format!("{name}.out"));
        assert_eq!(salvage(&mount.state, &out).code, Some(0), "{name}");
        flip_two_bits_of(&mount.state.join("cache"), &text(1));
        let salvaged = salvage(&mount.state, &out);
        let told: Vec<&str> =
            salvaged.out.lines().filter(|line| line.contains("is not what was written")).collect();
        assert!(told.len() == 1 && told[0].contains("trip/draft 1:"), "{name}: {}", salvaged.out);
        says(salvaged, 6, &["of 1 file what is left is not what was written"]);
        let copied = |number| fs::read(out.join(format!("trip/draft {number}"))).unwrap();
        assert!(copied(0) == text(0) && copied(2) == text(2), "{name}");
        let differ = copied(1).iter().zip(&text(1)).filter(|(is, was)| is != was).count();
        assert_eq!((differ, copied(1).len()), (2, text(1).len()), "{name}");
        // Without the tables there is nothing to compare with.
        fs::remove_file(mount.state.join("tables.redb")).unwrap();
        let salvaged = salvage(&mount.state, &out);
        assert!(salvaged.out.contains("could not be compared"), "{name}: {}", salvaged.out);
        says(salvaged, 6, &["the tables could not be read"]);
    }
}

#[test]
fn it_is_copied_out_where_nothing_says_any_more_what_was_mounted() {
    let world = World::bounded(Duration::from_secs(90));
    let server = world.server();
    let mount = with_drafts(&world, &server, "mount", Mount::kill);
    let out = world.path("salvaged");
    fs::remove_file(mount.state.join("server.toml")).unwrap();
    damage(&segment(&mount.state.join("log")), "filled with garbage");
    is_refused(&mount, "no server.toml");
    says(salvage(&mount.state, &out), 6, &["not all of the log could be read"]);
    let found = held(&out);
    for number in 0..DRAFTS {
        assert!(found.iter().any(|(_, held)| *held == text(number)), "{number}: {found:?}");
    }
}

#[test]
fn it_is_copied_out_of_a_disk_that_is_mounted_read_only() {
    let world = World::bounded(Duration::from_secs(90));
    let server = world.server();
    let disk = crate::full::disk(&world, "mount.state", "64m");
    let mount = with_drafts(&world, &server, "mount", Mount::kill);
    let out = world.path("salvaged");
    run(Command::new("mount").args(["-o", "remount,ro"]).arg(&disk)).succeeds();
    let salvaged = salvage(&mount.state, &out);
    assert!(salvaged.err.contains("mounted read-only"), "{}", salvaged.err);
    salvaged.succeeds();
    let mut names: Vec<PathBuf> = held(&out).into_iter().map(|(path, _)| path).collect();
    names.sort();
    let drafts = (0..DRAFTS).map(|number| out.join(format!("trip/draft {number}")));
    assert_eq!(names, drafts.collect::<Vec<_>>());
    for (number, path) in names.iter().enumerate() {
        assert!(fs::read(path).unwrap() == text(number as u64), "{number}");
    }
}
