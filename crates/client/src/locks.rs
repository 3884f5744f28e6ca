//! Locks of the processes of this mount, and what of them the replica above has leased to it.
//! Holds: no process is given what another one here excludes; where locks are leased, none is given
//! what the lease does not cover; what was told to the replica above covers the lease.
//! Never: waits, or asks anybody; `locking` does.
//! From: fcntl(2), flock(2); Gray and Cheriton (1989).

mod ended;
mod lost;
mod questions;
mod released;
mod split;
mod told;

pub use ended::{Process, Taker};
pub(crate) use released::{RELEASED_UNTOLD_WITHIN, RELEASED_WITHIN};

use crate::types::Handle;
use model::{FileId, Lock, LockKind, LockTable, Locks, Waits};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use world::Moment;

/// Files of which all is leased and nothing held: another one more, and the first is given back.
const IDLE_MAX: usize = 256;
/// The last byte that fcntl(2) can lock.
const LAST: u64 = i64::MAX as u64;
/// The byte that SQLite locks first in the file by which its processes share memory, in wal mode.
const MEMORY_BYTE: u64 = 128;
/// How that file's name ends.
const MEMORY_NAME_ENDS: &[u8] = b"-shm";
/// And that of the log.
const LOG_NAME_ENDS: &[u8] = b"-wal";

/// Whoever holds locks: a process, or an open file description, as the kernel calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(pub u64);

/// A lock that is asked for or given up.
#[derive(Clone, Copy, Debug)]
pub struct LockCall {
    pub file: FileId,
    /// Through which it is asked for.
    pub handle: Handle,
    pub owner: Owner,
    pub lock: Lock,
    /// For `F_GETLK` of others to show.
    pub process: u32,
    pub taker: Taker,
}

impl LockCall {
    /// Whether a program that asks for it may be about to share memory by the file.
    pub(crate) fn may_share_memory(&self) -> bool {
        let Lock { kind, first, last, .. } = self.lock;
        kind == LockKind::Record && (first, last) == (MEMORY_BYTE, MEMORY_BYTE)
    }
}

/// Whether processes share memory by a file of this name. Where it has none it may be one.
pub(crate) fn shares_memory(name: Option<&[u8]>) -> bool {
    name.is_none_or(|name| name.ends_with(MEMORY_NAME_ENDS))
}

/// What is read and written under the protection of the memory that is shared by a file of this name.
pub(crate) fn companions(name: &[u8]) -> Vec<Vec<u8>> {
    let database = name.strip_suffix(MEMORY_NAME_ENDS);
    database.map_or(Vec::new(), |name| vec![name.to_vec(), [name, LOG_NAME_ENDS].concat()])
}

/// What a lock must be covered by to be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// By nothing: locks hold among the processes of this mount.
    Here,
    /// By what the replica above has leased; `lasts`: and the lease has not ended.
    Leased { lasts: bool },
}

/// What came of trying.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tried {
    Done,
    /// These are in the way, here.
    InTheWay(BTreeSet<Owner>),
    /// The replica above has to be asked.
    Lacking,
    TooMany,
}

#[derive(Debug, Default)]
pub(crate) struct Table {
    files: BTreeMap<FileId, OfFile>,
    pub waits: Waits<Owner>,
    waiting: u64,
    /// How often what was leased was leased no more: an answer to what was asked before says nothing.
    lapses: u64,
    /// Files of which records were locked here, and that have been open ever since.
    recorded: BTreeSet<FileId>,
    /// Through these, locks were held that somebody else has by now, or has had.
    lost: BTreeSet<Handle>,
    /// There may be a file that was overtaken.
    any_overtaken: bool,
    /// Of these the kernel may still have what was read or written through such a handle.
    lost_files: BTreeSet<FileId>,
    /// Those that are under way.
    questions: JoinSet<()>,
}

#[derive(Debug)]
struct OfFile {
    held: LockTable<Owner>,
    by: BTreeMap<Owner, By>,
    leased: Leased,
    /// What the replica above takes for held here. None: its answer has not come.
    told: Option<Locks>,
    /// What it took for held before, while `told` is not known, as far as it is held since; nothing of a
    /// file that is leased whole.
    told_before: Locks,
    /// One of these it takes for held, while `told` is not known; more may have been given up here since.
    /// None: nothing is known of it.
    may_be_told: Option<Vec<Locks>>,
    /// Of a file that is leased whole, now or with the next answer: another client wants some of it.
    recalled: bool,
    /// Somebody else has had it since the lease ended: where locks are leased, what is held is lost.
    overtaken: bool,
    /// What was lost the replica above takes for not heard until it is told that nothing is held.
    unheard: bool,
    /// Processes share memory by it, which reaches no further than this machine: who holds any
    /// records here is told to hold all of it.
    for_one: bool,
    /// One question at a time.
    asking: Arc<tokio::sync::Mutex<()>>,
    /// Something was given up, here or elsewhere.
    news: Arc<Notify>,
}

#[derive(Debug, Default)]
struct By {
    process: u32,
    taker: Option<Taker>,
    handles: BTreeSet<Handle>,
    /// A descriptor of one of the handles was closed since it locked anything: maybe the last, of
    /// which the kernel tells later, when whoever closed it has gone on.
    closed: Option<Moment>,
}

#[derive(Debug)]
enum Leased {
    Whole,
    These(Locks),
}

impl OfFile {
    fn new() -> OfFile {
        OfFile {
            held: LockTable::default(),
            by: BTreeMap::new(),
            leased: Leased::These(Locks::default()),
            told: Some(Locks::default()),
            told_before: Locks::default(),
            may_be_told: None,
            recalled: false,
            overtaken: false,
            unheard: false,
            for_one: false,
            asking: Arc::default(),
            news: Arc::default(),
        }
    }

    /// What the replica above is asked for, to give a lock here.
    fn to_ask_for(&self, lock: Lock) -> Lock {
        if self.for_one && lock.kind == LockKind::Record {
            return Lock { exclusive: true, first: 0, last: LAST, ..lock };
        }
        lock
    }

    fn covers(&self, lock: &Lock) -> bool {
        match &self.leased {
            Leased::Whole => true,
            Leased::These(leased) => leased.cover(lock),
        }
    }

    /// Something was given up: who waits looks again, and what is not held is not leased, so that
    /// others come first who wait for it elsewhere.
    fn gave_up(&mut self) {
        if let Leased::These(leased) = &self.leased {
            let together = self.together();
            if self.told.is_none() {
                self.told_before = self.told_before.within(&together);
            }
            self.leased = Leased::These(leased.within(&together));
        }
        let held: BTreeSet<Owner> = self.held.holders().map(|(owner, _)| *owner).collect();
        self.by.retain(|owner, _| held.contains(owner));
        self.overtaken &= !held.is_empty();
        self.news.notify_waiters();
    }

    /// Whether the replica above has to be told what is held. `leases`: locks are leased now.
    fn is_owed(&self, leases: bool) -> bool {
        match (&self.leased, &self.told) {
            (Leased::Whole, _) => self.recalled,
            (Leased::These(_), None) => true,
            (Leased::These(_), Some(told)) if leases => *told != self.together(),
            // What is locked here alone is not told, but what is given up is.
            (Leased::These(_), Some(told)) => !self.together().cover_all(told),
        }
    }

    fn is_idle(&self) -> bool {
        let unused = self.held.is_empty() && Arc::strong_count(&self.asking) == 1;
        unused && Arc::strong_count(&self.news) == 1
    }

    fn is_nothing(&self) -> bool {
        let nothing = matches!(&self.leased, Leased::These(leased) if leased.is_empty());
        nothing && self.told.as_ref().is_some_and(Locks::is_empty) && self.is_idle()
    }
}

impl Table {
    /// Whether it is known what the locks of a file are for.
    pub fn knows(&self, file: FileId) -> bool {
        self.files.get(&file).is_some_and(|of_file| of_file.for_one)
    }

    /// Of those who lock records of the file, one mount at a time gets any.
    pub fn is_for_one(&mut self, file: FileId) {
        self.files.entry(file).or_insert_with(OfFile::new).for_one = true;
    }

    /// What the replica above is asked for, to give a lock here.
    pub fn to_ask_for(&self, call: &LockCall) -> Lock {
        self.files.get(&call.file).map_or(call.lock, |of_file| of_file.to_ask_for(call.lock))
    }

    /// Somebody is in the way of a lock. One of flock(2) takes the place of another by giving that
    /// up first: else two who ask for more would wait for each other. Says whether one was held.
    pub fn convert(&mut self, call: &LockCall) -> bool {
        call.lock.kind == LockKind::Whole && self.unlock(call, &[LockKind::Whole])
    }

    /// Whether others here hold what excludes it.
    pub fn are_in_the_way(&self, call: &LockCall) -> bool {
        let of_file = self.files.get(&call.file);
        of_file.is_some_and(|f| f.held.in_the_way(call.owner, &call.lock).next().is_some())
    }

    /// Locks it, if that can be decided here and nobody is in the way.
    pub fn try_lock(&mut self, call: &LockCall, scope: Scope) -> Tried {
        let of_file = self.files.entry(call.file).or_insert_with(OfFile::new);
        let in_the_way = of_file.held.in_the_way(call.owner, &call.lock);
        let owners: BTreeSet<Owner> = in_the_way.map(|(owner, _)| owner).collect();
        if !owners.is_empty() {
            self.convert(call);
            return Tried::InTheWay(owners);
        }
        if let Scope::Leased { lasts } = scope {
            if of_file.is_full(call.lock.exclusive) {
                return Tried::TooMany;
            }
            if !lasts || !of_file.covers(&call.lock) {
                return Tried::Lacking;
            }
        }
        let weaker = !call.lock.exclusive && of_file.held.of(call.owner).is_some();
        if of_file.held.lock(call.owner, call.lock).is_err() {
            unreachable!("nobody is in the way, as was just seen");
        }
        let by = of_file.by.entry(call.owner).or_default();
        by.process = call.process;
        by.taker = Some(call.taker.beside(by.taker));
        by.closed = None;
        by.handles.insert(call.handle);
        if call.lock.kind == LockKind::Record {
            self.recorded.insert(call.file);
        }
        if weaker {
            of_file.gave_up();
            self.waits.let_go(call.owner);
        }
        Tried::Done
    }

    /// Gives up a stretch, of these kinds. Says whether anything was held.
    pub fn unlock(&mut self, call: &LockCall, kinds: &[LockKind]) -> bool {
        self.change((call.file, &[call.owner]), |held| {
            let mut changed = false;
            for kind in kinds {
                changed |= held.unlock(call.owner, &Lock { kind: *kind, ..call.lock });
            }
            changed
        })
    }

    /// A process has closed a descriptor of the file: none of its records stays locked.
    pub fn closed(&mut self, file: FileId, owner: Owner) -> bool {
        self.change((file, &[owner]), |held| held.unlock_all(owner, LockKind::Record))
    }

    /// The last descriptor of a handle is closed.
    pub fn released(&mut self, file: FileId, handle: Handle) -> bool {
        self.lost.remove(&handle);
        let over = self.over_with(file, handle);
        if let Some(of_file) = self.files.get_mut(&file) {
            for by in of_file.by.values_mut() {
                by.handles.remove(&handle);
            }
        }
        self.change((file, &over), |held| {
            over.iter().filter(|owner| held.remove(**owner)).count() > 0
        })
    }

    /// Those who hold it give something up.
    fn change(
        &mut self,
        (file, owners): (FileId, &[Owner]),
        change: impl FnOnce(&mut LockTable<Owner>) -> bool,
    ) -> bool {
        let Some(of_file) = self.files.get_mut(&file) else { return false };
        let changed = change(&mut of_file.held);
        if changed {
            of_file.gave_up();
            owners.iter().for_each(|owner| self.waits.let_go(*owner));
        }
        if of_file.is_nothing() {
            self.files.remove(&file);
        }
        changed
    }

    /// Whether an owner holds a stretch that nobody else may hold.
    pub fn holds_exclusively(&self, file: FileId, owner: Owner) -> bool {
        let held = self.files.get(&file).and_then(|of_file| of_file.held.of(owner));
        held.is_some_and(|held| held.iter().any(|lock| lock.exclusive))
    }

    /// Whether an owner gives up that nobody else may hold a stretch, and keeps it all the same.
    pub fn weakens(&self, call: &LockCall) -> bool {
        let held = self.files.get(&call.file).and_then(|of_file| of_file.held.of(call.owner));
        // Of two that can be shared, neither excludes the other.
        !call.lock.exclusive && held.is_some_and(|held| held.in_the_way_of(&call.lock).is_some())
    }

    /// What is in the way here, and whose it is. The second: whether others need be asked.
    pub fn look(&self, call: &LockCall, scope: Scope) -> (Option<(Lock, u32)>, bool) {
        let Some(of_file) = self.files.get(&call.file) else {
            return (None, scope != Scope::Here);
        };
        let first = of_file.held.in_the_way(call.owner, &call.lock).next();
        let found =
            first.map(|(owner, lock)| (lock, of_file.by.get(&owner).map_or(0, |by| by.process)));
        let decided = scope == Scope::Leased { lasts: true } && of_file.covers(&call.lock);
        let lacks = found.is_none() && scope != Scope::Here && !decided;
        (found, lacks)
    }

    /// Whether any process holds anything.
    pub fn any_held(&self) -> bool {
        self.files.values().any(|of_file| !of_file.held.is_empty())
    }

    pub fn number_of_a_wait(&mut self) -> u64 {
        self.waiting += 1;
        self.waiting
    }

    /// Tells when something of the file was given up.
    pub fn news(&mut self, file: FileId) -> Arc<Notify> {
        self.files.entry(file).or_insert_with(OfFile::new).news.clone()
    }

    /// Whoever asks about a file has this first.
    pub fn asking(&mut self, file: FileId) -> Arc<tokio::sync::Mutex<()>> {
        self.files.entry(file).or_insert_with(OfFile::new).asking.clone()
    }

    fn bound_idle(&mut self, but: FileId) {
        let idle = |file: &OfFile| {
            matches!(file.leased, Leased::Whole) && !file.recalled && file.is_idle()
        };
        let others = self.files.iter_mut().filter(|(file, of_file)| **file != but && idle(of_file));
        let mut others: Vec<_> = others.map(|(_, of_file)| of_file).collect();
        let over = (others.len() + 1).saturating_sub(IDLE_MAX);
        others.iter_mut().take(over).for_each(|of_file| of_file.recalled = true);
    }

    /// A notice has come: who waits asks again, and what is leased whole is given account of.
    pub fn told_of(&mut self, files: &[FileId]) {
        for file in files {
            match self.files.get_mut(file) {
                Some(of_file) => {
                    // Or it is being leased, and the answer comes later than this.
                    of_file.recalled = true;
                    of_file.news.notify_waiters();
                }
                // It is leased here by what is believed above: that is given back.
                None => {
                    let of_file = OfFile { told: None, ..OfFile::new() };
                    self.files.insert(*file, of_file);
                }
            }
        }
    }

    /// Whether the replica above has to be told of a file.
    pub fn owes(&self, file: FileId, scope: Scope) -> bool {
        self.files.get(&file).is_some_and(|of_file| of_file.is_owed(scope != Scope::Here))
    }

    /// Files of which the replica above has to be told.
    pub fn owed(&mut self, leases: bool) -> Vec<FileId> {
        self.files.retain(|_, of_file| !of_file.is_nothing());
        let owed = self.files.iter().filter(|(_, of_file)| of_file.is_owed(leases));
        owed.map(|(file, _)| *file).collect()
    }

    /// Whether anything is held that is not leased.
    pub fn is_unclaimed(&self) -> bool {
        self.files.values().any(|of_file| match &of_file.leased {
            Leased::Whole => false,
            Leased::These(leased) => !leased.cover_all(&of_file.together()),
        })
    }
}

#[cfg(test)]
mod tests;
