//! What all clients know together: which contents exist, who stored what over what, and what was
//! removed.

use crate::contents::{self, Ledger, describe};
use crate::tree::Tree;
use model::FileId;
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub struct Board {
    /// Close-to-open holds between all clients.
    strict: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    ledger: Ledger,
    saves: Vec<Save>,
    removed: BTreeSet<FileId>,
    /// Machines that lost their power and have not looked yet what is left.
    torn: usize,
    /// Some machine has lost its power.
    ever_torn: bool,
}

/// Somebody who had seen `base` stored `saved`. Contents by name.
struct Save {
    who: String,
    file: FileId,
    base: u64,
    saved: u64,
    what: String,
    acknowledged: bool,
}

/// Which save it is.
#[derive(Clone, Copy)]
pub struct Ticket(usize);

impl Board {
    pub fn new(strict: bool) -> Board {
        Board { strict, state: Mutex::default() }
    }

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

    pub fn power_was_cut(&self) {
        let mut state = self.state();
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
    pub fn saves(&self, who: &str, file: FileId, base: &[u8], saved: &[u8]) -> Ticket {
        let mut state = self.state();
        state.ledger.enter(saved);
        state.saves.push(Save {
            who: who.into(),
            file,
            base: contents::name(base),
            saved: contents::name(saved),
            what: describe(saved),
            acknowledged: false,
        });
        Ticket(state.saves.len() - 1)
    }

    pub fn acknowledge(&self, ticket: Ticket) {
        self.state().saves[ticket.0].acknowledged = true;
    }

    /// Somebody is about to take away a name of this file, perhaps the last.
    pub fn removes(&self, file: FileId) {
        self.state().removed.insert(file);
    }

    /// How many saves there are: those that were closed by now are among them.
    pub fn closed_by_now(&self) -> Vec<usize> {
        let state = self.state();
        (0..state.saves.len()).filter(|save| state.saves[*save].acknowledged).collect()
    }

    /// Who opened the file when these saves had been closed must not read what they replaced.
    pub fn is_fresh(
        &self,
        who: &str,
        file: FileId,
        bytes: &[u8],
        closed: &[usize],
    ) -> Result<(), String> {
        if !self.strict || bytes.is_empty() {
            return Ok(());
        }
        let state = self.state();
        let read = contents::name(bytes);
        let of_file = || state.saves.iter().filter(|save| save.file == file);
        // Of two that replaced the same, one was kept aside.
        let rivals = of_file().filter(|save| save.base == read).count();
        let overtaken = closed.iter().map(|save| &state.saves[*save]);
        // A few bytes may be the same again.
        let mut overtaken =
            overtaken.filter(|save| save.file == file && save.base == read && save.saved != read);
        match overtaken.next() {
            Some(save) if rivals == 1 => Err(format!(
                "{who} opened {file} after {} had closed {}, and read {}",
                save.who,
                save.what,
                describe(bytes)
            )),
            _ => Ok(()),
        }
    }

    /// What was stored and acknowledged is there, unless somebody who knew it went on from it or
    /// removed the file.
    pub fn nothing_lost(&self, truth: &Tree) -> Result<(), String> {
        let state = self.state();
        if state.ever_torn {
            return Ok(());
        }
        let contents = truth.0.values().filter_map(|leaf| leaf.contents.as_ref());
        let there: BTreeSet<u64> = contents.map(|contents| contents::name(contents)).collect();
        let lost = state.saves.iter().find(|save| {
            let replaced = state.saves.iter().any(|other| other.base == save.saved);
            let excused = replaced || state.removed.contains(&save.file);
            save.acknowledged && !excused && !there.contains(&save.saved)
        });
        match lost {
            None => Ok(()),
            Some(save) => Err(format!(
                "{} stored {} in file {} and was told that it is done, and it is nowhere",
                save.who, save.what, save.file
            )),
        }
    }
}
