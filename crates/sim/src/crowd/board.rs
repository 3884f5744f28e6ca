//! What all clients know together: which contents exist, who stored what over what, what each has
//! read, and what was done to names and attributes.

use crate::contents::{self, Ledger, describe};
use crate::operation::Path;
use crate::tree::Tree;
use model::{FileId, Stamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

mod deeds;
mod reads;

use deeds::Deeds;
pub use deeds::{Done, How};
pub use reads::Reader;
use reads::Reads;

#[derive(Default)]
pub struct Board {
    state: Mutex<State>,
    /// A connected writer has closed something.
    closed: Notify,
}

#[derive(Default)]
struct State {
    ledger: Ledger,
    saves: Vec<Save>,
    /// The contents of a stamp, as far as somebody was seen to have opened or stored them.
    stamps: BTreeMap<Stamp, u64>,
    reads: Reads,
    deeds: Deeds,
    /// What a connected writer closed last.
    just_closed: Option<Path>,
    /// Machines that lost their power and have not looked yet what is left.
    torn: usize,
    /// Some machine has lost its power.
    ever_torn: bool,
}

/// Somebody who had seen `base` stored `saved`. Contents by name.
struct Save {
    who: String,
    path: Path,
    file: FileId,
    base: u64,
    saved: u64,
    what: String,
    closed: Option<Closed>,
}

/// How a close that succeeded was meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// It is in the log.
    Logged,
    /// The origin has taken it, and all who hold callbacks were told.
    Connected,
}

/// Which save it is.
#[derive(Clone, Copy)]
pub struct Ticket(usize);

impl Board {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// These contents may be read from now on.
    pub fn enter(&self, bytes: &[u8]) {
        self.state().ledger.enter(bytes);
    }

    /// What was read was stored as a whole by somebody, unless a power cut is being mended.
    pub fn knows(&self, who: &str, what: &str, bytes: &[u8], shared: bool) -> Result<(), String> {
        let state = self.state();
        let mending = state.torn > 0 || (shared && state.ever_torn);
        if mending || state.ledger.knows(bytes) {
            return Ok(());
        }
        Err(format!("{who} read what nobody stored as a whole: {what} is {}", describe(bytes)))
    }

    /// `forgets`: what the machine had logged and not synced may be gone, though it said that it was
    /// done.
    pub fn power_was_cut(&self, who: &str, forgets: bool) {
        let mut state = self.state();
        let may_be_gone = |save: &&mut Save| {
            forgets && save.who == who && matches!(save.closed, Some(Closed::Logged))
        };
        state.saves.iter_mut().filter(may_be_gone).for_each(|save| save.closed = None);
        state.torn += 1;
        state.ever_torn = true;
    }

    pub fn power_cut_is_mended(&self, found: &[&Tree]) {
        let mut state = self.state();
        state.torn -= 1;
        let leaves = found.iter().flat_map(|tree| tree.0.values());
        for contents in leaves.filter_map(|leaf| leaf.contents.as_ref()) {
            state.ledger.enter(contents);
        }
    }

    /// Somebody who has read `base` is about to store `saved` over it.
    pub fn saves(&self, who: &str, what: (&Path, FileId), base: &[u8], saved: &[u8]) -> Ticket {
        let (path, file) = what;
        let mut state = self.state();
        state.ledger.enter(saved);
        state.saves.push(Save {
            who: who.into(),
            path: path.clone(),
            file,
            base: contents::name(base),
            saved: contents::name(saved),
            what: describe(saved),
            closed: None,
        });
        Ticket(state.saves.len() - 1)
    }

    /// It was closed, and is the contents of this stamp.
    pub fn acknowledge(&self, ticket: Ticket, closed: Closed, stamp: Option<Stamp>) {
        let mut state = self.state();
        let save = &mut state.saves[ticket.0];
        save.closed = Some(closed);
        let (saved, path) = (save.saved, save.path.clone());
        if closed == Closed::Connected {
            state.just_closed = Some(path);
            self.closed.notify_waiters();
        }
        state.stamps.extend(stamp.map(|stamp| (stamp, saved)));
    }

    /// Waits until a connected writer has closed something, and tells what.
    pub async fn next_closed(&self) -> Option<Path> {
        self.closed.notified().await;
        self.state().just_closed.clone()
    }

    /// Contents were opened under a stamp.
    pub fn has_stamp(&self, bytes: &[u8], stamp: Option<Stamp>) {
        self.state().stamps.extend(stamp.map(|stamp| (stamp, contents::name(bytes))));
    }

    /// What was stored and acknowledged is there, unless somebody who knew it went on from it or
    /// removed the file with it; or it was written upon a version that the origin was not to keep
    /// any more when it came, and whoever wrote it says that it is `damaged`.
    pub fn nothing_lost(
        &self,
        truth: &Tree,
        damaged: &BTreeSet<(String, FileId)>,
    ) -> Result<(), String> {
        let state = self.state();
        if state.ever_torn {
            return Ok(());
        }
        let contents = truth.0.values().filter_map(|leaf| leaf.contents.as_ref());
        let there: BTreeSet<u64> = contents.map(|contents| contents::name(contents)).collect();
        let lost = state.saves.iter().enumerate().find(|(number, save)| {
            let replaced = state.saves.iter().any(|other| other.base == save.saved);
            let is_told =
                damaged.contains(&(save.who.clone(), save.file)) && !there.contains(&save.base);
            let excused = replaced || state.is_removed(*number) || is_told;
            save.closed.is_some() && !excused && !there.contains(&save.saved)
        });
        match lost {
            None => Ok(()),
            Some((_, save)) => Err(format!(
                "{} stored {} in file {} and was told that it is done, and it is nowhere",
                save.who, save.what, save.file
            )),
        }
    }
}

impl State {
    /// Contents that were stored more than once tell nothing of the order of versions, nor do those
    /// that every new file has. Of what was being written at a crash, what was there before may be
    /// stored anew.
    fn tells_nothing(&self, contents: u64) -> bool {
        let mut stored = 0;
        for save in &self.saves {
            stored += usize::from(save.saved == contents);
            let is_given_up = save.closed.is_none() || save.saved == save.base;
            if is_given_up && (save.saved == contents || save.base == contents) {
                return true;
            }
        }
        stored > 1 || contents == contents::name(&[])
    }

    /// The contents of a file from which these came, save by save.
    fn ancestors(&self, file: FileId, contents: u64) -> BTreeSet<u64> {
        let (mut found, mut at) = (BTreeSet::new(), contents);
        while !self.tells_nothing(at) {
            let save = self.saves.iter().find(|save| save.file == file && save.saved == at);
            let Some(save) = save else { break };
            if !found.insert(save.base) {
                break;
            }
            at = save.base;
        }
        found
    }
}
