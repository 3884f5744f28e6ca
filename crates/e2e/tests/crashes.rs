//! kill -9 of the client and of the server under load, again and again: what a call acknowledged
//! is there, and no file is half of a version.
//!
//! The quick form kills ten times each; `FARFS_E2E_KILLS=100` is the long one.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests of real mounts open files and start processes"
)]

use e2e::contents::{noise, number_of, tree, version, write_and_sync};
use e2e::{Mount, World, eventually};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const KILLS: &str = "FARFS_E2E_KILLS";
const SECOND: Duration = Duration::from_secs(1);
/// Names that the load uses.
const SLOTS: u64 = 12;

fn kills() -> u64 {
    std::env::var(KILLS).ok().and_then(|kills| kills.parse().ok()).unwrap_or(10)
}

fn bound() -> Duration {
    SECOND * u32::try_from(60 + 6 * kills()).unwrap()
}

/// How long the load runs before the next kill: never the same.
fn pause(seed: u64) -> Duration {
    let byte = u64::from(noise(seed, 1)[0]);
    Duration::from_millis(30 + 3 * byte)
}

/// What is known of one name: the last change that was acknowledged, and the one whose
/// acknowledgement did not come, which may have happened or not.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    acknowledged: Option<u64>,
    attempted: Option<Option<u64>>,
}

impl Known {
    /// Whether the name may be in this state: a version's number, or gone.
    fn allows(&self, seen: Option<u64>) -> bool {
        seen == self.acknowledged || self.attempted == Some(seen)
    }

    /// What was seen is how it is from now on.
    fn settle(&mut self, seen: Option<u64>) {
        // What was attempted and is not seen yet may still be pending, and come later.
        if seen != self.acknowledged {
            *self = Known { acknowledged: seen, attempted: None };
        }
    }
}

/// A writer's notes: every name with what is known of it.
#[derive(Default)]
struct Notes {
    names: BTreeMap<String, Known>,
    number: u64,
    acknowledged: u64,
}

impl Notes {
    /// Changes names until something fails or it is told to stop.
    fn load(&mut self, folder: &Path, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            if self.one(folder).is_err() {
                return;
            }
        }
    }

    /// One change of one name, in one of the ways in which programs change files.
    fn one(&mut self, folder: &Path) -> std::io::Result<()> {
        self.number += 1;
        let number = self.number;
        let name = format!("name-{}", number * 7 % SLOTS);
        let path = folder.join(&name);
        let known = self.names.entry(name).or_default();
        let bytes = version(number, 200 + (number as usize * 7919) % 40_000);
        let way = number % 5;
        let after = if way == 4 && known.acknowledged.is_some() { None } else { Some(number) };
        known.attempted = Some(after);
        match way {
            4 if after.is_none() => fs::remove_file(&path)?,
            0 | 1 => {
                // Whole and synced, then in place of the old one.
                let fresh = folder.join("fresh");
                write_and_sync(&fresh, &bytes)?;
                fs::rename(&fresh, &path)?;
            }
            _ => {
                // Without fsync: what is acknowledged is the write and the rename.
                let fresh = folder.join("fresh");
                let mut file = fs::File::create(&fresh)?;
                file.write_all(&bytes)?;
                drop(file);
                fs::rename(&fresh, &path)?;
            }
        }
        known.settle(after);
        self.acknowledged += 1;
        Ok(())
    }

    /// Holds the names against what a mount shows, and takes that for the truth from now on.
    #[track_caller]
    fn check(&mut self, folder: &Path, when: &str) {
        let mut listed: Vec<PathBuf> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        listed.sort();
        let mut seen = BTreeMap::new();
        for path in listed {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            // The temporary file may be half: nobody was told that it is whole.
            if name == "fresh" {
                continue;
            }
            let whole = fs::read(&path).unwrap();
            let number = number_of(&whole).unwrap_or_else(|half| panic!("{when}: {name}: {half}"));
            seen.insert(name, number);
        }
        for (name, known) in &mut self.names {
            let now = seen.remove(name);
            assert!(known.allows(now), "{when}: {name} is {now:?}, known is {known:?}");
            known.settle(now);
        }
        assert!(seen.is_empty(), "{when}: names that nobody made: {seen:?}");
    }
}

/// Runs the load, does something in its midst, and returns when the load has ended.
fn under_load(notes: &mut Notes, folder: PathBuf, pause: Duration, blow: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| notes.load(&folder, &stop));
        std::thread::sleep(pause);
        blow();
        stop.store(true, Ordering::Relaxed);
    });
}

fn kill_clients(mode: &str) {
    let world = World::bounded(bound());
    let server = world.server();
    let mut mount = world.mount(&server, "mount", mode);
    let mut notes = Notes::default();
    for kill in 0..kills() {
        let process = mount.process().clone();
        under_load(&mut notes, mount.mountpoint.clone(), pause(kill), || process.kill());
        mount.kill();
        mount.again();
        notes.check(&mount.mountpoint, &format!("{mode}, after kill {kill}"));
    }
    assert!(notes.acknowledged > 5 * kills(), "there was a load: {}", notes.acknowledged);
    at_the_server(&world, &server, &mount, &mut notes, mode);
}

/// A new device sees the same as the one that was killed.
fn at_the_server(
    world: &World,
    server: &e2e::Server,
    mount: &Mount,
    notes: &mut Notes,
    mode: &str,
) {
    let _ = fs::remove_file(mount.path("fresh"));
    mount.wait();
    let other = world.mount(server, "other", "connected");
    notes.check(&other.mountpoint, &format!("{mode}, at the server"));
    assert_eq!(tree(&other.mountpoint), tree(&mount.mountpoint), "{mode}");
    assert_eq!(server.conflicts(), Vec::<String>::new(), "nobody else changed anything");
}

#[test]
fn a_client_that_is_killed_loses_nothing_that_it_acknowledged_in_partial_mode() {
    kill_clients("partial");
}

#[test]
fn a_client_that_is_killed_loses_nothing_that_it_acknowledged_in_connected_mode() {
    kill_clients("connected");
}

fn kill_servers(mode: &str) {
    let world = World::bounded(bound());
    let mut server = world.server();
    let mount = world.mount(&server, "mount", mode);
    let mut notes = Notes::default();
    for kill in 0..kills() {
        under_load(&mut notes, mount.mountpoint.clone(), pause(100 + kill), || {
            server.kill();
            server.restart();
            // The load goes on with the new one, if it is still running.
            std::thread::sleep(pause(200 + kill) / 2);
        });
        notes.check(&mount.mountpoint, &format!("{mode}, after kill {kill}"));
    }
    assert!(notes.acknowledged > 5 * kills(), "there was a load: {}", notes.acknowledged);
    eventually(60 * SECOND, "everything has been sent", || mount.pending() == 0);
    at_the_server(&world, &server, &mount, &mut notes, mode);
}

#[test]
fn a_server_that_is_killed_loses_nothing_that_it_acknowledged_in_partial_mode() {
    kill_servers("partial");
}

#[test]
fn a_server_that_is_killed_loses_nothing_that_it_acknowledged_in_connected_mode() {
    kill_servers("connected");
}

/// Both at once, and the client without a link before: its log is all there is.
#[test]
fn both_may_be_killed_while_much_is_pending() {
    let world = World::bounded(bound());
    let mut server = world.server();
    let mut mount = world.mount(&server, "mount", "partial");
    let mut notes = Notes::default();
    assert_eq!(fs::read_dir(&mount.mountpoint).unwrap().count(), 0);
    for kill in 0..kills() {
        if kill % 2 == 0 {
            mount.relay.cut();
        }
        let process = mount.process().clone();
        let (folder, pause) = (mount.mountpoint.clone(), pause(300 + kill));
        under_load(&mut notes, folder, pause, || {
            process.kill();
            server.kill();
        });
        mount.kill();
        server.restart();
        mount.relay.restore();
        mount.again();
        notes.check(&mount.mountpoint, &format!("after kill {kill}"));
    }
    at_the_server(&world, &server, &mount, &mut notes, "partial");
}
