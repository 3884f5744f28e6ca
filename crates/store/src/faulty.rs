//! A machine whose stores are in memory and can fail: it crashes at a chosen write, is killed,
//! loses its power, a write fails, or its disk is full; and it starts again with what a real one
//! would have.
//!
//! ```text
//!            kill, or the write of crash_after
//!   running ─────────────────────────────────→ dead ──restart──→ another Disk, running
//!      └──────────────── cut_power ──────────────↑    (cut_power may follow a kill)
//! ```
//!
//! Holds: from the crash on every call on every handle fails with `StoreError::Crashed`, for ever;
//! the same seed and the same calls leave the same stores.

use crate::error::{Result, StoreError};
use crate::files::{failed, locked};
use crate::memory::{MemoryBlobs, MemoryContainers, MemoryJournal, MemoryTables};
use crate::tree::Tree;
use std::collections::BTreeMap;
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

mod chance;
mod handles;

use chance::Chance;
pub use handles::{
    FaultyBlobs, FaultyContainer, FaultyContainers, FaultyJournal, FaultyReserve, FaultyTables,
};

/// Clones are the same disk of the same machine.
#[derive(Clone)]
pub struct Disk {
    machine: Arc<Machine>,
    stores: Arc<Mutex<Stores>>,
}

#[derive(Default)]
struct Stores {
    tables: BTreeMap<String, MemoryTables>,
    blobs: BTreeMap<String, MemoryBlobs>,
    journals: BTreeMap<String, MemoryJournal>,
    containers: BTreeMap<String, MemoryContainers>,
}

impl Disk {
    /// An empty disk. The seed decides what a power cut keeps of what was not synced.
    pub fn new(seed: u64) -> Disk {
        Disk::with(seed, Stores::default(), None)
    }

    fn with(seed: u64, stores: Stores, flushed_one_in: Option<u64>) -> Disk {
        let state = State {
            seed,
            writes: 0,
            syncs: 0,
            bytes_read: 0,
            writes_left: None,
            failing: None,
            bytes_left: None,
            flushed_one_in,
            reserve: RESERVE_BYTES,
            containers_max: None,
            health: Health::Running,
            calls: 0,
            others: Vec::new(),
            barred: Vec::new(),
            read_only: false,
        };
        Disk { machine: Arc::new(Machine(Mutex::new(state))), stores: Arc::new(Mutex::new(stores)) }
    }

    /// The tables of this name; they come into being when they are first asked for.
    pub fn tables(&self, name: &str) -> FaultyTables {
        let store = locked(&self.stores).tables.entry(name.to_string()).or_default().clone();
        FaultyTables::new(store, self.machine.clone())
    }

    pub fn blobs(&self, name: &str) -> FaultyBlobs {
        let store = locked(&self.stores).blobs.entry(name.to_string()).or_default().clone();
        FaultyBlobs::new(store, self.machine.clone())
    }

    pub fn journal(&self, name: &str) -> FaultyJournal {
        let store = locked(&self.stores).journals.entry(name.to_string()).or_default().clone();
        FaultyJournal::new(store, self.machine.clone())
    }

    pub fn containers(&self, name: &str) -> FaultyContainers {
        let store = locked(&self.stores).containers.entry(name.to_string()).or_default().clone();
        FaultyContainers::new(store, self.machine.clone())
    }

    /// A tree on this machine: an ordinary directory, of which every change is a write of the
    /// machine's. What was done to it stays, whatever becomes of the machine.
    pub fn tree(&self, path: &Path) -> Result<Tree> {
        Tree::with(path, Faults(Some(self.machine.clone())))
    }

    /// The next `writes` writes succeed; at the one after the machine dies, and it does nothing. An
    /// append is torn there, after any of its bytes, as the seed says; whole it may be, too.
    /// Writes are: a commit, a put or delete of a blob, an append, a retire, a change of a
    /// container, its making or removal, a change of a tree, and every sync.
    pub fn crash_after(&self, writes: u64) {
        locked(&self.machine.0).writes_left = Some(writes);
    }

    /// The next `writes` writes succeed; the one after fails, and the machine goes on.
    pub fn fail_after(&self, writes: u64, failure: Failure) {
        locked(&self.machine.0).failing = Some((writes, failure));
    }

    /// Whether no write is still to fail, as `fail_after` said.
    pub fn has_failed(&self) -> bool {
        locked(&self.machine.0).failing.is_none()
    }

    /// Writes that bring more than `bytes` from now on fail with `StoreError::Full` and leave
    /// nothing; smaller ones go on. Nothing comes free by deleting: `make_room` does it.
    pub fn fill_after(&self, bytes: u64) {
        locked(&self.machine.0).bytes_left = Some(bytes);
    }

    /// Of so many commits that need not be on the disk at once, one comes there all the same, as the seed
    /// says: as where the disk has little room left. So it is after a restart.
    pub fn flush_one_in(&self, commits: u64) {
        locked(&self.machine.0).flushed_one_in = Some(commits);
    }

    /// From now on there can be so many containers in one place, or as many as one likes: as on a
    /// disk without an inode left, which has bytes.
    pub fn bound_containers(&self, most: Option<usize>) {
        locked(&self.machine.0).containers_max = most;
    }

    pub fn make_room(&self) {
        locked(&self.machine.0).bytes_left = None;
    }

    /// Just before the call on a tree that follows `calls` others, somebody else does `what`.
    pub fn meanwhile(&self, calls: u64, what: impl FnOnce() + Send + 'static) {
        let mut state = locked(&self.machine.0);
        let at = state.calls + calls;
        state.others.push((at, Box::new(what)));
    }

    /// Directories of trees that may not be opened from now on, nor what lies in them.
    pub fn bar(&self, directories: &[PathBuf]) {
        locked(&self.machine.0).barred = directories.to_vec();
    }

    /// From now on trees can be read and nothing else, or changed again. A sync of one says that it is
    /// well, as that of a real file system does.
    pub fn set_read_only(&self, read_only: bool) {
        locked(&self.machine.0).read_only = read_only;
    }

    /// What this disk keeps aside beside what `fill_after` leaves.
    pub fn reserve(&self) -> FaultyReserve {
        FaultyReserve::new(self.machine.clone())
    }

    /// The process dies; the machine keeps running.
    pub fn kill(&self) {
        let mut state = locked(&self.machine.0);
        if state.health == Health::Running {
            state.health = Health::Killed;
        }
    }

    /// The machine dies, or had died as a process alone and now loses its power too.
    pub fn cut_power(&self) {
        locked(&self.machine.0).health = Health::PowerCut;
    }

    pub fn has_crashed(&self) -> bool {
        locked(&self.machine.0).health != Health::Running
    }

    /// Writes that succeeded since the disk was made or the machine started.
    pub fn writes(&self) -> u64 {
        locked(&self.machine.0).writes
    }

    /// Bytes that were read from containers.
    pub fn bytes_read(&self) -> u64 {
        locked(&self.machine.0).bytes_read
    }

    /// Of the writes, how often somebody waited for the disk: syncs, and commits that are durable.
    pub fn syncs(&self) -> u64 {
        locked(&self.machine.0).syncs
    }

    /// What is left, on a machine that runs and has room. One that still runs is killed first.
    pub fn restart(&self) -> Disk {
        self.kill();
        let (health, seed, flushed_one_in) = {
            let state = locked(&self.machine.0);
            (state.health, state.seed, state.flushed_one_in)
        };
        let mut chance = Chance(seed);
        let stores = locked(&self.stores).survivors(health, &mut chance);
        Disk::with(chance.draw(), stores, flushed_one_in)
    }
}

/// What a write that fails leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    Nothing,
    /// One that waits for the disk all that it should, though it says otherwise; others nothing.
    All,
}

impl Stores {
    fn survivors(&self, health: Health, chance: &mut Chance) -> Stores {
        let cut = Chance(!chance.0).draw();
        if health != Health::PowerCut {
            return Stores {
                tables: each(&self.tables, MemoryTables::after_kill),
                blobs: each(&self.blobs, MemoryBlobs::after_kill),
                journals: each(&self.journals, MemoryJournal::after_kill),
                containers: each(&self.containers, MemoryContainers::after_kill),
            };
        }
        Stores {
            tables: each(&self.tables, MemoryTables::after_power_cut),
            blobs: each(&self.blobs, |s| s.after_power_cut(&mut chance.some_part())),
            journals: each(&self.journals, |s| s.after_power_cut(&mut chance.some_part(), cut)),
            containers: each(&self.containers, |s| s.after_power_cut(&mut chance.some_part())),
        }
    }
}

fn each<S>(stores: &BTreeMap<String, S>, mut left: impl FnMut(&S) -> S) -> BTreeMap<String, S> {
    stores.iter().map(|(name, store)| (name.clone(), left(store))).collect()
}

/// What may go wrong with an ordinary directory: nothing, unless it is on a faulty machine.
#[derive(Clone, Default)]
pub(crate) struct Faults(Option<Arc<Machine>>);

impl Faults {
    /// Nothing goes wrong but what the real disk does, and nobody counts.
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }

    pub fn reads(&self) -> Result<()> {
        self.meanwhile();
        self.0.as_ref().map_or(Ok(()), |machine| machine.reads())
    }

    /// A directory is about to be opened.
    pub fn opens(&self, path: &Path) -> Result<()> {
        let Some(machine) = &self.0 else { return Ok(()) };
        let is_barred = locked(&machine.0).barred.iter().any(|barred| path.starts_with(barred));
        match is_barred {
            true => Err(failed(path, ErrorKind::PermissionDenied.into())),
            false => Ok(()),
        }
    }

    /// A look at something, before which others may have their turn.
    pub fn meanwhile(&self) {
        if let Some(machine) = &self.0 {
            machine.others_first();
        }
    }

    pub fn is_read_only(&self) -> bool {
        self.0.as_ref().is_some_and(|machine| locked(&machine.0).read_only)
    }

    /// A change that takes so many bytes.
    pub fn changes<T>(&self, bytes: usize, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.meanwhile();
        if self.is_read_only() {
            return Err(read_only());
        }
        self.writes(bytes, work)
    }

    pub fn syncs(&self, work: impl FnOnce() -> Result<()>) -> Result<()> {
        self.meanwhile();
        if self.is_read_only() {
            return Ok(());
        }
        self.writes(0, work)
    }

    fn writes<T>(&self, bytes: usize, work: impl FnOnce() -> Result<T>) -> Result<T> {
        match &self.0 {
            Some(machine) => machine.writes(bytes, work),
            None => work(),
        }
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Faults" } else { "NoFaults" })
    }
}

/// What all handles of one machine ask before they do anything.
pub(crate) struct Machine(Mutex<State>);

struct State {
    seed: u64,
    writes: u64,
    syncs: u64,
    /// From containers.
    bytes_read: u64,
    writes_left: Option<u64>,
    /// Writes that succeed before one fails.
    failing: Option<(u64, Failure)>,
    bytes_left: Option<u64>,
    /// Of so many commits of tables that need not be on the disk at once, one is all the same.
    flushed_one_in: Option<u64>,
    /// What is kept aside of a disk that is not full without bounds.
    reserve: u64,
    containers_max: Option<usize>,
    health: Health,
    /// Calls on trees.
    calls: u64,
    /// What others do, and before the call of which number.
    others: Vec<(u64, Other)>,
    barred: Vec<PathBuf>,
    /// Trees.
    read_only: bool,
}

type Other = Box<dyn FnOnce() + Send>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Health {
    Running,
    Killed,
    PowerCut,
}

impl State {
    fn fails_now(&mut self) -> bool {
        let Some((writes, _)) = &mut self.failing else { return false };
        match writes.checked_sub(1) {
            Some(left) => *writes = left,
            None => self.failing = None,
        }
        self.failing.is_none()
    }
}

fn full() -> StoreError {
    StoreError::Full(PathBuf::from("the simulated disk"))
}

/// EIO.
fn broken() -> StoreError {
    of_errno(5)
}

/// EROFS.
fn read_only() -> StoreError {
    of_errno(30)
}

fn of_errno(errno: i32) -> StoreError {
    let source = std::io::Error::from_raw_os_error(errno);
    StoreError::Io { place: "the simulated disk".to_owned(), source }
}

impl Machine {
    pub fn reads(&self) -> Result<()> {
        match locked(&self.0).health {
            Health::Running => Ok(()),
            Health::Killed | Health::PowerCut => Err(StoreError::Crashed),
        }
    }

    /// From a container, which is counted.
    fn reads_bytes(&self, read: impl FnOnce() -> Result<Vec<u8>>) -> Result<Vec<u8>> {
        self.reads()?;
        let bytes = read()?;
        locked(&self.0).bytes_read += bytes.len() as u64;
        Ok(bytes)
    }

    fn others_first(&self) {
        let due: Vec<_> = {
            let mut state = locked(&self.0);
            let now = state.calls;
            state.calls += 1;
            state.others.extract_if(.., |(at, _)| *at <= now).collect()
        };
        // Without the lock: it is another program that does it.
        due.into_iter().for_each(|(_, what)| what());
    }

    /// What may still be brought before the disk is full.
    pub fn room(&self) -> Result<u64> {
        self.reads()?;
        Ok(locked(&self.0).bytes_left.unwrap_or(u64::MAX))
    }

    /// Whether a commit comes to the disk that need not.
    pub fn flushes(&self) -> bool {
        let state = locked(&self.0);
        state.flushed_one_in.is_some_and(|one_in| {
            Chance(state.seed ^ state.writes).draw().is_multiple_of(one_in.max(1))
        })
    }

    pub fn containers_max(&self) -> Option<usize> {
        locked(&self.0).containers_max
    }

    /// Whether enough is kept aside, after taking what there is to set aside.
    pub fn keeps_reserve(&self) -> bool {
        let mut state = locked(&self.0);
        let lacks = RESERVE_BYTES - state.reserve;
        match &mut state.bytes_left {
            None => state.reserve = RESERVE_BYTES,
            Some(left) => {
                let more = lacks.min(*left);
                *left -= more;
                state.reserve += more;
            }
        }
        state.reserve >= RESERVE_LEAST_BYTES
    }

    /// What is kept aside may be written.
    pub fn lends_reserve(&self) {
        let mut state = locked(&self.0);
        let reserve = std::mem::take(&mut state.reserve);
        if let Some(left) = &mut state.bytes_left {
            *left += reserve;
        }
    }

    /// A write that waits for the disk.
    pub fn syncs<T>(&self, bytes: usize, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let fails = locked(&self.0).failing == Some((0, Failure::All));
        if fails {
            locked(&self.0).failing = None;
        }
        let outcome = self.writes(bytes, work)?;
        if fails {
            return Err(broken());
        }
        locked(&self.0).syncs += 1;
        Ok(outcome)
    }

    /// A write that brings so many bytes; one at which `work` fails does not count.
    pub fn writes<T>(&self, bytes: usize, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.writes_or(bytes, work, |_| {})
    }

    /// The same of a write that leaves something when the machine dies at it: `torn` gets a number
    /// that says how much.
    pub fn writes_or<T>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> Result<T>,
        torn: impl FnOnce(u64),
    ) -> Result<T> {
        // Held during the write, so that it is either before the crash or not at all.
        let mut state = locked(&self.0);
        if state.health != Health::Running {
            return Err(StoreError::Crashed);
        }
        if state.writes_left == Some(0) {
            state.health = Health::Killed;
            torn(Chance(state.seed ^ state.writes).draw());
            return Err(StoreError::Crashed);
        }
        if let Some(left) = state.bytes_left {
            match left.checked_sub(bytes as u64) {
                Some(left) => state.bytes_left = Some(left),
                None => return Err(full()),
            }
        }
        if state.fails_now() {
            return Err(broken());
        }
        let outcome = work()?;
        state.writes += 1;
        state.writes_left = state.writes_left.map(|left| left - 1);
        Ok(outcome)
    }
}

/// Small against what is written in a simulation, and enough to undo any of it.
const RESERVE_BYTES: u64 = 64 << 10;
const RESERVE_LEAST_BYTES: u64 = RESERVE_BYTES / 4;
