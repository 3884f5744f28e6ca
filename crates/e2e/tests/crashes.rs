//! kill -9 of the client and of the server under load, again and again: what a call acknowledged
//! is there, and no file is half of a version.
//!
//! The quick form kills 30 times each; `FARFS_E2E_KILLS=100` is the long one.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests of real mounts open files and start processes"
)]

use e2e::contents::{noise, number_of, tree, version, write_and_sync};
use e2e::{Mount, World, eventually};
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// What the quick form does.
const KILLS: u64 = 30;
const SECOND: Duration = Duration::from_secs(1);
/// The load gets as far within this, or it hangs.
const LOAD_BOUND: Duration = Duration::from_secs(60);
/// A file that is never seen but whole.
const WHOLE: &str = "whole";
/// Names that the load uses.
const SLOTS: u64 = 12;

fn kills() -> u64 {
    e2e::kills(KILLS)
}

fn bound() -> Duration {
    SECOND * u32::try_from(60 + 20 * kills()).unwrap()
}

/// How long the load runs before the next kill: until so many more updates are acknowledged, and
/// for a while after, never the same, so that the kill is at any point of an update.
#[derive(Clone, Copy)]
struct Pause {
    updates: u64,
    while_after: Duration,
}

impl Pause {
    fn drawn(seed: u64) -> Pause {
        let bytes = noise(seed, 2);
        let updates = 3 + u64::from(bytes[0]) % 11;
        Pause { updates, while_after: Duration::from_micros(400 * u64::from(bytes[1])) }
    }
}

/// What is known of one name: the last change that was acknowledged, and the one whose
/// acknowledgement did not come, which may have happened or not.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    acknowledged: Option<u64>,
    attempted: Option<Option<u64>>,
    /// What was attempted once, and was not there when that could be seen: it must not come later.
    gone: Option<Option<u64>>,
}

/// How a name was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Judged {
    AsAcknowledged,
    AsAttempted,
    /// As it was attempted, and was not when it was looked at before.
    Late,
    Lost,
}

impl Known {
    /// What it means that the name is in this state: a version's number, or gone.
    fn judge(&self, seen: Option<u64>) -> Judged {
        if seen == self.acknowledged {
            Judged::AsAcknowledged
        } else if self.attempted == Some(seen) {
            Judged::AsAttempted
        } else if self.gone == Some(seen) {
            Judged::Late
        } else {
            Judged::Lost
        }
    }

    /// What was seen is how it is from now on.
    fn settle(&mut self, seen: Option<u64>) {
        let missed = self.attempted.filter(|attempted| *attempted != seen);
        *self = Known { acknowledged: seen, attempted: None, gone: missed.or(self.gone) };
    }
}

/// What came of it all.
#[derive(Debug, Default)]
struct Figures {
    kills: u64,
    acknowledged: u64,
    /// Changes whose acknowledgement did not come, by whether they were there afterwards.
    came: u64,
    did_not_come: u64,
    late: u64,
    lost: u64,
    half: u64,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} kills; {} updates acknowledged, {} of them lost; {} not acknowledged: {} there \
             after the restart, {} not, {} there only later; {} half versions",
            self.kills,
            self.acknowledged,
            self.lost,
            self.came + self.did_not_come,
            self.came,
            self.did_not_come,
            self.late,
            self.half,
        )
    }
}

/// A writer's notes: every name with what is known of it.
#[derive(Default)]
struct Notes {
    names: BTreeMap<String, Known>,
    number: u64,
    /// Versions have up to so many bytes more than is usual.
    more_bytes: usize,
    figures: Figures,
    /// Of the figures, for who waits while the load runs.
    acknowledged: Arc<AtomicU64>,
    /// What was found and must not be.
    wrong: Vec<String>,
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
        let bytes = version(number, 200 + (number as usize * 7919) % (40_000 + self.more_bytes));
        let known = self.names.entry(name).or_default();
        let way = number % 6;
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
            5 => {
                // Made without a name, and given one when it is whole.
                let whole = folder.join(WHOLE);
                let _ = fs::remove_file(&whole);
                nameless(folder, &bytes)?;
                let file = nameless(folder, &bytes)?;
                give_name(&file, &whole)?;
                fs::rename(&whole, &path)?;
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
        self.figures.acknowledged += 1;
        self.acknowledged.store(self.figures.acknowledged, Ordering::Relaxed);
        Ok(())
    }

    /// Holds the names against what a mount shows, and takes that for the truth from now on.
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
            match number_of(&fs::read(&path).unwrap()) {
                Ok(_) if name == WHOLE => {}
                Ok(number) => drop(seen.insert(name, number)),
                Err(half) => {
                    self.figures.half += 1;
                    self.wrong.push(format!("{when}: {name}: {half}"));
                    self.names.remove(&name);
                }
            }
        }
        for (name, known) in &mut self.names {
            let now = seen.remove(name);
            let judged = known.judge(now);
            match judged {
                Judged::AsAcknowledged => {
                    self.figures.did_not_come += u64::from(known.attempted.is_some());
                }
                Judged::AsAttempted => self.figures.came += 1,
                Judged::Late => self.figures.late += 1,
                Judged::Lost => self.figures.lost += 1,
            }
            if matches!(judged, Judged::Late | Judged::Lost) {
                self.wrong.push(format!("{when}: {name} is {now:?}, {judged:?}: {known:?}"));
            }
            known.settle(now);
        }
        if !seen.is_empty() {
            self.wrong.push(format!("{when}: names that nobody made: {seen:?}"));
        }
    }

    /// Says what came of it, and fails if anything was wrong.
    #[track_caller]
    fn conclude(&self, what: &str) {
        println!("{what}: {}", self.figures);
        assert!(self.wrong.is_empty(), "{what}: {}\n{}", self.figures, self.wrong.join("\n"));
        let figures = &self.figures;
        assert!(figures.acknowledged > 5 * figures.kills, "there was a load: {figures}");
    }
}

/// A file without a name that holds this.
fn nameless(folder: &Path, bytes: &[u8]) -> std::io::Result<fs::File> {
    use rustix::fs::{CWD, Mode, OFlags, openat};
    let flags = OFlags::TMPFILE | OFlags::WRONLY;
    let mut file = fs::File::from(openat(CWD, folder, flags, Mode::from_raw_mode(0o600))?);
    file.write_all(bytes)?;
    Ok(file)
}

fn give_name(file: &fs::File, name: &Path) -> std::io::Result<()> {
    use rustix::fs::{AtFlags, CWD, linkat};
    let open = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(linkat(CWD, open, CWD, name, AtFlags::SYMLINK_FOLLOW)?)
}

/// Bytes of all files below a folder.
fn bytes_below(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let bytes = entries.map(|entry| match entry.file_type().unwrap().is_dir() {
        true => bytes_below(&entry.path()),
        false => entry.metadata().map_or(0, |found| found.blocks() * 512),
    });
    bytes.sum()
}

#[test]
fn of_a_file_without_a_name_nothing_outlives_the_client() {
    for mode in ["connected", "partial"] {
        let world = World::bounded(bound());
        let server = world.server();
        let mut mount = world.mount(&server, "mount", mode);
        fs::write(mount.path("file"), "text").unwrap();
        mount.wait();
        let before = bytes_below(&mount.state);
        let bytes = noise(7, 20_000_000);
        let (file, sent) = mount.relay.traffic_of(|| nameless(&mount.mountpoint, &bytes).unwrap());
        assert!(sent < 1_000_000, "{mode}: {sent} bytes went over the link");
        assert!(bytes_below(&mount.state) > before + 20_000_000, "{mode}: it is there");
        mount.kill();
        drop(file);
        mount.again();
        let left = bytes_below(&mount.state).saturating_sub(before);
        assert!(left < 8_000_000, "{mode}: {left} bytes are left");
        mount.wait();
        assert_eq!(fs::read_dir(&mount.mountpoint).unwrap().count(), 1);
        let other = world.mount(&server, "other", "connected");
        assert_eq!(fs::read_dir(&other.mountpoint).unwrap().count(), 1);
    }
}

/// Runs the load, does something in its midst, and returns when the load has ended.
#[track_caller]
fn under_load(notes: &mut Notes, folder: PathBuf, pause: Pause, blow: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    let acknowledged = notes.acknowledged.clone();
    let enough = acknowledged.load(Ordering::Relaxed) + pause.updates;
    std::thread::scope(|scope| {
        let load = scope.spawn(|| notes.load(&folder, &stop));
        let _stopped = Stops(&stop);
        eventually(LOAD_BOUND, "the load is under way", || {
            acknowledged.load(Ordering::Relaxed) >= enough || load.is_finished()
        });
        std::thread::sleep(pause.while_after);
        blow();
    });
}

/// Ends the load, whatever becomes of who watches it.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn kill_clients(mode: &str) {
    let world = World::bounded(bound());
    let server = world.server();
    let mut mount = world.mount(&server, "mount", mode);
    let mut notes = Notes::default();
    for kill in 0..kills() {
        let process = mount.process().clone();
        under_load(&mut notes, mount.mountpoint.clone(), Pause::drawn(kill), || process.kill());
        mount.kill();
        mount.again();
        notes.figures.kills += 1;
        notes.check(&mount.mountpoint, &format!("{mode}, after kill {kill}"));
    }
    at_the_server(&world, &server, &mount, &mut notes, mode);
    notes.conclude(&format!("client killed, {mode}"));
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
    let _ = fs::remove_file(mount.path(WHOLE));
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
        under_load(&mut notes, mount.mountpoint.clone(), Pause::drawn(100 + kill), || {
            server.kill();
            server.restart();
            // The load goes on with the new one, if it is still running.
            std::thread::sleep(Pause::drawn(200 + kill).while_after);
        });
        notes.figures.kills += 1;
        notes.check(&mount.mountpoint, &format!("{mode}, after kill {kill}"));
    }
    eventually(60 * SECOND, "everything has been sent", || mount.pending() == 0);
    at_the_server(&world, &server, &mount, &mut notes, mode);
    notes.conclude(&format!("server killed, {mode}"));
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
        let (folder, pause) = (mount.mountpoint.clone(), Pause::drawn(300 + kill));
        under_load(&mut notes, folder, pause, || {
            process.kill();
            server.kill();
        });
        mount.kill();
        server.restart();
        mount.relay.restore();
        mount.again();
        notes.figures.kills += 1;
        notes.check(&mount.mountpoint, &format!("after kill {kill}"));
    }
    at_the_server(&world, &server, &mount, &mut notes, "partial");
    notes.conclude("both killed, partial");
}
