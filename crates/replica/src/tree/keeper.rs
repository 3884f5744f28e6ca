//! Keeps one volume and one tree in step: looks, takes in, puts out, and waits.

use super::barred::Barred;
use super::commit::At;
use super::dirt::Dirt;
use super::door::{Ask, TreeState};
use super::doubt::Doubt;
use super::large::Large;
use super::patrol::Patrol;
use super::rows::{self, STAGE_NAME, TreeRow};
use super::undone::Undone;
use super::writing::Outgoing;
use crate::error::Result;
use crate::origin::Inner;
use crate::volumes::Volume;
use model::{Change, FileId, Kind, Seq};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use store::tree::{Tree, Waker, Watch};
use tokio::sync::oneshot;
use tracing::{info, warn};
use world::Moment;

/// How long a tree that is not in its place, or fails, is left alone.
const AWAY_PAUSE: Duration = Duration::from_secs(5);
/// Everything is looked at so often where the machine watches no more directories.
const UNWATCHED_PAUSE: Duration = Duration::from_secs(60);
/// Everything is looked at so often in any case: an event may be missing.
const LOOK_PAUSE: Duration = Duration::from_secs(3600);
/// What could not be put out is tried again after so long, and later and later.
pub(super) const RETRY: Duration = Duration::from_millis(500);
const RETRY_LEAST: Duration = Duration::from_millis(10);
pub(super) const RETRY_DOUBLINGS_MAX: u32 = 7;
/// What could not be put out so often is told of with the reason.
const HINDERED_AFTER: u32 = 3;
/// For a client that waits, so often is waited for files that are about to rest.
const ASK_TRIES: usize = 4;
const ASK_REST: Duration = Duration::from_millis(100);
/// Names of the tables that are read at once.
const NAMES_MAX: usize = 2000;

pub(super) const MARK_NAME: &[u8] = b"mark";
const MARK_BYTES_MAX: usize = 64;

/// A volume that is kept in step with a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeInfo {
    pub volume: String,
    pub path: PathBuf,
    /// None: this process does not keep it.
    pub state: Option<TreeState>,
}

/// Keys of the volume that the tree may have otherwise, in the order in which they were touched.
#[derive(Debug, Default)]
pub(super) struct Behind {
    pub entries: Vec<At>,
    has: BTreeSet<At>,
    pub nodes: BTreeSet<FileId>,
}

impl Behind {
    pub fn entry(&mut self, at: At) {
        if self.has.insert(at.clone()) {
            self.entries.push(at);
        }
    }

    pub fn touch(&mut self, change: &Change) {
        match change {
            Change::Make { parent, name, file, .. }
            | Change::Link { parent, name, file }
            | Change::Unlink { parent, name, file, .. } => {
                self.entry((*parent, name.clone()));
                self.nodes.insert(*file);
            }
            Change::Rename { from, from_name, to, to_name, file, over, whiteout, .. } => {
                self.entry((*from, from_name.clone()));
                self.entry((*to, to_name.clone()));
                self.nodes.insert(*file);
                self.nodes.extend(over);
                self.nodes.extend(whiteout.map(|whiteout| whiteout.file));
            }
            Change::Store { file, .. }
            | Change::SetAttributes { file, .. }
            | Change::SetXattr { file, .. }
            | Change::RemoveXattr { file, .. } => {
                self.nodes.insert(*file);
            }
        }
    }

    pub fn take(&mut self) -> Behind {
        std::mem::take(self)
    }

    pub fn add(&mut self, other: Behind) {
        other.entries.into_iter().for_each(|at| self.entry(at));
        self.nodes.extend(other.nodes);
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.nodes.is_empty()
    }
}

/// Whoever holds it keeps the tree.
pub struct Keeper {
    pub(super) inner: Arc<Inner>,
    pub(super) volume: Arc<Volume>,
    pub(super) tree: Tree,
    pub(super) watch: Watch,
    pub(super) row: TreeRow,
    /// What the server is called in the names of what is kept aside.
    pub(super) name: String,
    pub(super) watched: BTreeMap<i32, FileId>,
    /// Directories that were listed since they are watched.
    pub(super) listed: BTreeSet<FileId>,
    pub(super) dirt: Dirt,
    pub(super) large: Large,
    pub(super) outgoing: Outgoing,
    pub(super) patrol: Patrol,
    pub(super) barred: Barred,
    pub(super) doubt: Doubt,
    pub(super) behind: Behind,
    /// When the tree was changed last, if a row says that it is being changed.
    pub(super) underway: Option<Moment>,
    /// What was put into the tree, and could not be written down.
    pub(super) undone: Option<Undone>,
    /// Something failed, and may have left in the stage what belongs nowhere.
    pub(super) littered: bool,
    /// Only what is found as the volume has it is written down.
    pub(super) recovers: bool,
    /// Files that an earlier life had on their way, and of which only what is made again was left.
    pub(super) in_transit: BTreeSet<FileId>,
    /// The log was looked at up to here.
    pub(super) upto: Seq,
    pub(super) files_made: u64,
    pub(super) root_noted: bool,
    /// The machine watches no more directories.
    pub(super) unwatched: bool,
    /// The tree keeps extended attributes.
    pub(super) has_xattrs: bool,
    /// What was said once and is not said again.
    pub(super) said: BTreeSet<&'static str>,
    pub(super) away: bool,
    pub(super) looked_at_all: Moment,
    pub(super) stuck: u32,
    /// Something was done in the tree since what was left behind was tried.
    pub(super) stirred: bool,
    /// Directories that are to go and were not empty, and how often that was tried.
    pub(super) unemptied: BTreeMap<FileId, u32>,
    /// Why something was left behind when it was tried last.
    pub(super) hindered: Vec<String>,
    /// What was left behind was tried last.
    pub(super) tried: Moment,
    /// The tree's disk was full, and that was said.
    pub(super) full: bool,
    /// It cannot be changed, and that was said.
    pub(super) read_only: bool,
    /// Nothing was compared since the start.
    pub(super) new: bool,
}

/// Ends a keeper that runs.
#[derive(Clone, Debug)]
pub struct Stopper {
    stopped: Arc<AtomicBool>,
    waker: Waker,
}

impl Stopper {
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.waker.wake();
    }
}

impl Keeper {
    /// What ends `run`, from another thread.
    pub fn stopper(&self) -> Stopper {
        Stopper { stopped: Arc::default(), waker: self.watch.waker() }
    }

    /// Keeps the tree in step until it is stopped or the volume is removed.
    pub fn run(mut self, stopper: &Stopper) {
        self.volume.door.open(self.watch.waker(), self.tree.path().to_path_buf());
        let mut trouble = None;
        while !stopper.stopped.load(Ordering::Acquire) && !self.volume.is_removed() {
            let pause = match self.round() {
                Ok(pause) => {
                    trouble = None;
                    pause
                }
                Err(error) => {
                    // The same again and again is said once.
                    let error = error.to_string();
                    if trouble.as_ref() != Some(&error) {
                        let volume = &self.volume.name;
                        warn!(volume, error, "the tree could not be kept in step");
                    }
                    trouble = Some(error);
                    AWAY_PAUSE
                }
            };
            if let Err(error) = self.watch.wait(pause) {
                warn!(volume = self.volume.name, %error, "the tree is not watched any more");
                break;
            }
        }
        self.volume.door.close();
    }

    /// Looks at what has changed on either side and carries it over. Gives back for how long
    /// there is nothing to do.
    pub fn round(&mut self) -> Result<Duration> {
        let asked = self.volume.door.asked();
        let done = self.all_of_it(&asked);
        if done.is_err() {
            // What was noted and not done is found again.
            self.dirt.everything = true;
            self.new = true;
            self.littered = true;
        }
        self.tell_state(done.as_ref().err().map(ToString::to_string));
        for (_, sender) in asked {
            // Whoever asked may be gone.
            let _ = sender.send(());
        }
        done
    }

    /// For whoever asks how the tree is.
    fn tell_state(&mut self, trouble: Option<String>) {
        let barred = self.tell_barred();
        let read_only = self.tree.is_read_only();
        if read_only && !self.read_only {
            let path = self.tree.path().display().to_string();
            warn!(
                volume = self.volume.name,
                path, "the tree is read-only: what devices do waits until it can be changed"
            );
        }
        self.read_only = read_only;
        let hindered = match self.stuck >= HINDERED_AFTER {
            true => self.hindered.clone(),
            false => Vec::new(),
        };
        let waiting = self.behind.entries.len() + self.behind.nodes.len();
        let waiting = (waiting + self.outgoing.len()) as u64;
        self.volume.door.tell(|state| {
            (state.away, state.full, state.read_only) = (self.away, self.full, read_only);
            (state.waiting, state.trouble, state.hindered) = (waiting, trouble, hindered);
            if let Some(barred) = barred {
                state.barred = barred;
            }
        });
    }

    fn all_of_it(&mut self, asked: &[(Ask, oneshot::Sender<()>)]) -> Result<Duration> {
        // First, whatever fails after it: what is not taken would end each wait at once.
        self.take_events()?;
        if !self.is_here()? {
            return Ok(AWAY_PAUSE);
        }
        self.redo()?;
        let asked_names = self.note_asked(asked)?;
        let looks_at_all = self.look_at_all_if_due()?;
        self.patrol_if_due()?;
        self.try_barred_if_due();
        self.take_in()?;
        for _ in 0..ASK_TRIES {
            let now = self.inner.world.clock.moment();
            let Some(next) = self.dirt.next().filter(|_| !asked.is_empty()) else { break };
            let left = next.since(now);
            if left > ASK_REST {
                break;
            }
            self.watch.wait(left)?;
            self.take_events()?;
            self.take_in()?;
        }
        self.read_asked(&asked_names)?;
        self.let_out()?;
        if self.new {
            self.compare_all()?;
            self.let_out()?;
            self.new = false;
        }
        if self.dirt.is_clean() {
            self.in_transit.clear();
        }
        if looks_at_all {
            self.doubt.end(self.inner.world.clock.moment());
        }
        self.read_on()?;
        self.write_on()?;
        self.clear_litter()?;
        self.end_underway();
        self.volume.door.ready();
        Ok(self.pause())
    }

    fn pause(&self) -> Duration {
        let now = self.inner.world.clock.moment();
        let mut pause = if self.unwatched { UNWATCHED_PAUSE } else { LOOK_PAUSE };
        pause = pause.min(self.patrol.due.since(now));
        let dues = [self.dirt.next(), self.doubt.due(), self.barred.due(), self.outgoing.due()];
        let dues = dues.into_iter().chain([self.underway_due().filter(|_| self.is_settled())]);
        for next in dues.flatten() {
            pause = pause.min(next.since(now));
        }
        if self.dirt.everything || !self.dirt.lists.is_empty() {
            pause = Duration::ZERO;
        }
        if !self.behind.is_empty() {
            // What does not get on must not keep the machine busy.
            let (least, most) = self.retries();
            pause = pause.clamp(least, most);
        }
        let is_busy = self.large.is_busy() || self.outgoing.is_due(now);
        if is_busy { Duration::ZERO } else { pause }
    }

    /// What does not get on is tried again after the one at least, and after the other at most.
    pub(super) fn retries(&self) -> (Duration, Duration) {
        let doubled = 2u32.pow(self.stuck.min(RETRY_DOUBLINGS_MAX));
        (RETRY_LEAST * doubled, RETRY * doubled)
    }

    /// Whether nothing is left to be done but wait.
    pub fn is_settled(&self) -> bool {
        self.dirt.is_clean()
            && self.behind.is_empty()
            && !self.large.is_busy()
            && !self.outgoing.is_busy()
    }

    /// Gives back the names that are asked about.
    fn note_asked(&mut self, asked: &[(Ask, oneshot::Sender<()>)]) -> Result<BTreeSet<At>> {
        let now = self.inner.world.clock.moment();
        let mut names = BTreeSet::new();
        for (ask, _) in asked {
            for file in &ask.files {
                names.extend(self.note_file(*file)?);
            }
            for (directory, name) in &ask.names {
                self.dirt.note(*directory, name.clone(), false, now);
                names.insert((*directory, name.clone()));
            }
            if self.unwatched {
                self.dirt.lists.extend(&ask.lists);
            }
        }
        Ok(names)
    }

    /// Something could not be placed as it should be, or might not have been seen whole.
    pub(super) fn doubts(&mut self) {
        self.doubt.raise(self.inner.world.clock.moment());
    }

    fn look_at_all_if_due(&mut self) -> Result<bool> {
        let now = self.inner.world.clock.moment();
        let pause = if self.unwatched { UNWATCHED_PAUSE } else { LOOK_PAUSE };
        let in_doubt = self.doubt.due().is_some_and(|due| due <= now);
        if !self.dirt.everything && !in_doubt && now.since(self.looked_at_all) < pause {
            return Ok(false);
        }
        self.looked_at_all = now;
        self.doubt.begin(now);
        self.dirt.everything = false;
        self.new = true;
        self.root_noted = true;
        self.dirt.lists.insert(FileId::ROOT);
        let mut after = None;
        loop {
            let read = self.inner.tables.read()?;
            let page = rows::all_names(&*read, self.volume.id, after.take(), NAMES_MAX)?;
            let Some((last, _)) = page.last() else { return Ok(true) };
            after = Some(last.clone());
            for (at, file) in &page {
                let known = rows::known(&*read, self.volume.id, *file)?;
                if at.0 != rows::STAGE && known.is_some_and(|k| k.kind == Kind::Directory) {
                    self.dirt.lists.insert(*file);
                }
            }
        }
    }

    /// Whether the tree is the one that was agreed on, and in its place.
    fn is_here(&mut self) -> Result<bool> {
        let here = (self.tree.is_in_place() && self.has_mark(&self.tree)) || self.is_back()?;
        if !here && !self.away {
            let path = self.tree.path().display().to_string();
            warn!(
                volume = self.volume.name,
                path,
                "the tree is gone, or another is in its place: nothing is taken for removed, \
                 and nothing carried over until it is back"
            );
        }
        if here && self.away {
            info!(volume = self.volume.name, "the tree is back");
        }
        self.away = !here;
        Ok(here)
    }

    /// The path leads to the tree again: it was moved or mounted there anew.
    fn is_back(&mut self) -> Result<bool> {
        let Ok(tree) = self.tree.again() else { return Ok(false) };
        if !tree.is_in_place() || !self.has_mark(&tree) {
            return Ok(false);
        }
        self.tree = tree;
        self.doubt_undone();
        self.watched.clear();
        self.listed.clear();
        self.patrol = Patrol::after(self.inner.world.clock.moment());
        (self.large, self.outgoing) = (Large::default(), Outgoing::default());
        self.dirt.everything = true;
        self.new = true;
        Ok(true)
    }

    fn has_mark(&self, tree: &Tree) -> bool {
        mark_of(tree).is_ok_and(|mark| mark.as_deref() == Some(&self.row.mark[..]))
    }
}

/// What stands in a tree that says which it is.
pub(super) fn mark_of(tree: &Tree) -> Result<Option<Vec<u8>>> {
    let Some(stage) = tree.directory(STAGE_NAME)? else { return Ok(None) };
    if stage.stat(MARK_NAME)?.is_none() {
        return Ok(None);
    }
    Ok(Some(stage.open(MARK_NAME)?.read(0, MARK_BYTES_MAX)?))
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.volume.door.close();
    }
}
