//! By which numbers the kernel knows files: by the file's own, until that one cannot be opened as
//! it has to be, and by another from then on. Programs see the file's own in any case.
//! Holds: a file has one number by which it is found, the current one, and what the kernel has cached
//! of its contents it has by that one alone; what the kernel still has by an older one is the same
//! file; a number is never used for two files.
//! From: the kernel's `fs/fuse/iomode.c`, which lets an inode of it be read in one way at a time, and
//! `fs/namei.c`, which looks a path up anew when opening what it led to says ESTALE.

use crate::ranks::{self, Rank, Ranked};
use model::{FileId, REPLICA_MAX, Stamp};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use volume::partial::Merged;
use world::{Entropy, Moment};

/// No file has one of these: this replica is never given to anybody.
const FIRST: u64 = (REPLICA_MAX as u64) << 40;
/// So long a new number is kept free for who needed it, and who was told to look a path up anew
/// is remembered: the kernel does it at once.
const LOOKED_UP_WITHIN: Duration = Duration::from_secs(1);
/// Threads that are remembered.
const REFUSED_MAX: usize = 1024;

#[derive(Debug, Default)]
pub struct Numbers {
    /// Whether a file has ever had another number.
    any: AtomicBool,
    state: Mutex<State>,
    /// Whether there are directories that are one with others.
    any_merged: AtomicBool,
    merged: Mutex<Arc<Merged>>,
}

#[derive(Debug, Default)]
struct State {
    given: u64,
    others: HashMap<u64, Other>,
    of_file: HashMap<FileId, OfFile>,
    /// Threads that were told to look a path up anew, and have not opened the file yet.
    refused: HashMap<u32, Refused>,
}

#[derive(Debug)]
struct Refused {
    file: FileId,
    /// The oldest of its generations that was to be had then.
    since: u32,
    at: Moment,
}

impl Refused {
    fn is_about(&self, file: FileId, now: Moment) -> bool {
        self.file == file && now.since(self.at) < LOOKED_UP_WITHIN
    }
}

/// A number that is not the file's own.
#[derive(Debug)]
struct Other {
    file: FileId,
    /// How often the kernel has been told of it and not forgotten it.
    lookups: u64,
}

#[derive(Debug)]
struct OfFile {
    current: u64,
    /// Those that are not its own.
    others: Vec<u64>,
    /// The kernel has it by its own no more.
    own_is_forgotten: bool,
    /// When the current one was new, until it has been opened by who needed it.
    fresh_since: Option<Moment>,
    /// The version whose size the kernel was told by the current one, if it was new since.
    told_as: Option<Stamp>,
}

/// By which inode of the kernel's a file is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inode {
    pub number: u64,
    /// The thread that asks, 0 if that is not known.
    pub thread: u32,
}

impl Inode {
    /// The first that the kernel has of a file.
    pub fn of(file: FileId) -> Inode {
        Inode { number: file.0, thread: 0 }
    }
}

/// How an inode is among those that the kernel has of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub number: u64,
    pub current: u64,
    /// The kernel may have the file by others as well.
    pub is_one_of_several: bool,
    /// It is new, and who needed it is about to come.
    pub is_fresh: bool,
    /// Who asks was told to look the path up anew, and is here again: the kernel does that once, and
    /// the program would hear of it the second time.
    pub is_retry: bool,
    /// The oldest generation that was to be had when he was told so.
    pub since: Option<u32>,
    /// The generation that he is to have, whatever is current.
    pub joins: Option<u32>,
}

impl Place {
    /// Of a handle that the kernel does not get.
    pub fn of_nobody() -> Place {
        Place {
            number: 0,
            current: 0,
            is_one_of_several: false,
            is_fresh: false,
            is_retry: false,
            since: None,
            joins: None,
        }
    }

    pub fn is_current(&self) -> bool {
        self.number == self.current
    }
}

impl Numbers {
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// What was given out in an earlier life leads to nothing in this one.
    pub(crate) fn begin(&self, entropy: &Entropy) {
        let mut bytes = [0; 4];
        entropy.fill(&mut bytes);
        self.state().given = u64::from(u32::from_le_bytes(bytes)) << 6;
    }

    fn state(&self) -> Ranked<'_, State> {
        ranks::lock(Rank::Numbers, &self.state)
    }

    /// The file that the kernel knows by this number.
    pub fn file(&self, number: u64) -> FileId {
        let own = FileId(number);
        if !self.any() || number < FIRST || own.is_past() {
            return own;
        }
        self.state().others.get(&number).map_or(own, |other| other.file)
    }

    /// Before the kernel is told what bears a name: the number to find it by.
    pub fn tell(&self, file: FileId) -> u64 {
        if !self.any() {
            return file.0;
        }
        let mut state = self.state();
        let number = state.current(file);
        if let Some(other) = state.others.get_mut(&number) {
            other.lookups += 1;
        }
        number
    }

    /// As `tell`, of a file that has several, with the size of this version. Of several answers that
    /// are under way the kernel takes the first for an inode that is new to it: so by a number that
    /// nobody `has_open` it is told of one version alone, and by another one of the next. Says, too,
    /// whether it is such a one.
    pub(crate) fn tell_as(&self, file: FileId, version: Stamp, has_open: bool) -> (u64, bool) {
        let mut state = self.state();
        let told_as = state.of_file.get(&file).and_then(|of_file| of_file.told_as);
        let is_new = !has_open && told_as.is_some_and(|told| told != version);
        if is_new {
            state.give(file, None);
            state.let_go_of_unused(file);
        }
        if let Some(of_file) = state.of_file.get_mut(&file) {
            of_file.told_as = Some(version);
        }
        let number = state.current(file);
        if let Some(other) = state.others.get_mut(&number) {
            other.lookups += 1;
        }
        (number, is_new)
    }

    /// Whether the kernel was told of no other version by the current number since that was new.
    pub(crate) fn may_be_told_as(&self, file: FileId, version: Stamp) -> bool {
        let is_one = |of_file: &OfFile| of_file.told_as.is_none_or(|told| told == version);
        !self.any() || self.state().of_file.get(&file).is_none_or(is_one)
    }

    /// The kernel has a number so many times less. Gives back the file.
    pub fn forgotten(&self, number: u64, times: u64) -> FileId {
        let file = self.file(number);
        if self.any() {
            self.state().forgotten(number, times);
        }
        file
    }

    /// A directory is going to be one with another. Who has the first means that one from then on.
    pub(crate) fn merge(&self, from: FileId, to: FileId) {
        let mut merged = self.lock_merged();
        let to = merged.get(&to).copied().unwrap_or(to);
        let all = Arc::make_mut(&mut merged);
        all.values_mut().filter(|other| **other == from).for_each(|other| *other = to);
        all.insert(from, to);
        self.any_merged.store(true, Ordering::Release);
    }

    /// Those that are one with others. None: there are none.
    pub(crate) fn merged(&self) -> Option<Arc<Merged>> {
        self.any_merged.load(Ordering::Acquire).then(|| self.lock_merged().clone())
    }

    fn lock_merged(&self) -> MutexGuard<'_, Arc<Merged>> {
        self.merged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All numbers by which the kernel may have a file.
    pub fn all(&self, file: FileId) -> Vec<u64> {
        let mut all = vec![file.0];
        if let Some(merged) = self.merged() {
            let same = merged.iter().filter(|(_, to)| **to == file);
            all.extend(same.map(|(from, _)| from.0));
        }
        if self.any()
            && let Some(of_file) = self.state().of_file.get(&file)
        {
            if of_file.own_is_forgotten {
                all.retain(|number| *number != file.0);
            }
            all.extend(&of_file.others);
        }
        all
    }

    /// Whether it may have it by more than one: what it is told of the one it does not know of the
    /// other.
    pub fn has_several(&self, file: FileId) -> bool {
        let is_several = |of_file: &OfFile| of_file.others.len() > 1 || !of_file.own_is_forgotten;
        self.any() && self.state().of_file.get(&file).is_some_and(is_several)
    }

    /// Whether it had, and has not been forgotten since.
    pub(crate) fn has_had_several(&self, file: FileId) -> bool {
        self.any() && self.state().of_file.contains_key(&file)
    }

    /// By which it is found.
    pub(crate) fn current(&self, file: FileId) -> u64 {
        if self.any() { self.state().current(file) } else { file.0 }
    }

    /// The kernel has forgotten something of a file, and has been told of it so often more than it
    /// has forgotten.
    pub(crate) fn left(&self, file: FileId, told: u64) {
        if !self.any() {
            return;
        }
        let mut state = self.state();
        let State { others, of_file, .. } = &mut *state;
        let Some(of_file) = of_file.get_mut(&file) else { return };
        let by_others = of_file.others.iter().filter_map(|other| others.get(other));
        // Of what is being told just now, the file is noted before its number is.
        let is_all = by_others.map(|other| other.lookups).sum::<u64>() >= told;
        of_file.own_is_forgotten |= is_all && of_file.current != file.0;
    }

    /// Who is about to open a file: where he has come to.
    pub(crate) fn place(&self, file: FileId, inode: Inode, now: Moment) -> Place {
        if !self.any() {
            return Place { number: inode.number, current: file.0, ..Place::of_nobody() };
        }
        let state = self.state();
        let refused = state.refused.get(&inode.thread);
        let since = refused.filter(|refused| refused.is_about(file, now)).map(|it| it.since);
        let of_file = state.of_file.get(&file);
        let fresh_since = of_file.and_then(|of_file| of_file.fresh_since);
        Place {
            number: inode.number,
            current: state.current(file),
            is_one_of_several: of_file.is_some(),
            is_fresh: fresh_since.is_some_and(|since| now.since(since) < LOOKED_UP_WITHIN),
            is_retry: since.is_some(),
            since,
            joins: None,
        }
    }

    /// Who came by this inode is told to look the path up anew, and gets no older generation than
    /// `since`. If it is the current one, or that is
    /// in his way, too, he finds another there: says whether it is so.
    pub(crate) fn refuse(
        &self,
        file: FileId,
        (inode, since): (Inode, u32),
        current_is_in_the_way: bool,
        now: Moment,
    ) -> bool {
        let mut state = self.state();
        if inode.thread != 0 {
            if state.refused.len() >= REFUSED_MAX {
                state.refused.retain(|_, refused| refused.is_about(refused.file, now));
            }
            state.refused.insert(inode.thread, Refused { file, since, at: now });
        }
        self.any.store(true, Ordering::Release);
        if state.current(file) != inode.number && !current_is_in_the_way {
            return false;
        }
        state.give(file, Some(now));
        true
    }

    /// A thread has opened a file. `took`: what was new is one that it needed, and is free for all
    /// once all who were told to look it up have come.
    pub(crate) fn has_come(&self, file: FileId, thread: u32, took: bool, now: Moment) {
        if !self.any() {
            return;
        }
        let mut state = self.state();
        state.refused.remove(&thread);
        let is_awaited = || state.refused.values().any(|refused| refused.is_about(file, now));
        if took
            && !is_awaited()
            && let Some(of_file) = state.of_file.get_mut(&file)
        {
            of_file.fresh_since = None;
        }
    }

    /// From now on a file is found by this number, which the kernel has of it already.
    pub(crate) fn take_over(&self, file: FileId, number: u64) {
        let mut state = self.state();
        if let Some(of_file) = state.of_file.get_mut(&file) {
            (of_file.current, of_file.fresh_since) = (number, None);
            of_file.own_is_forgotten &= number != file.0;
            of_file.told_as = None;
        }
        state.let_go_of_unused(file);
    }

    /// What the kernel has by this file's number is another one.
    pub(crate) fn is_anothers(&self, file: FileId) {
        self.any.store(true, Ordering::Release);
        self.state().give(file, None);
    }

    /// The kernel has a file by no number any more.
    pub(crate) fn let_go(&self, file: FileId) {
        if self.any_merged.load(Ordering::Acquire) {
            Arc::make_mut(&mut self.lock_merged()).remove(&file);
        }
        if !self.any() {
            return;
        }
        let mut state = self.state();
        if let Some(of_file) = state.of_file.remove(&file) {
            for other in of_file.others {
                state.others.remove(&other);
            }
        }
    }
}

impl State {
    fn current(&self, file: FileId) -> u64 {
        self.of_file.get(&file).map_or(file.0, |of_file| of_file.current)
    }

    /// A file gets another number. `fresh_since`: for who needs it.
    fn give(&mut self, file: FileId, fresh_since: Option<Moment>) {
        let new = FIRST + self.given;
        self.given += 1;
        self.others.insert(new, Other { file, lookups: 0 });
        let own = OfFile {
            current: file.0,
            others: Vec::new(),
            own_is_forgotten: false,
            fresh_since: None,
            told_as: None,
        };
        let of_file = self.of_file.entry(file).or_insert(own);
        of_file.others.push(new);
        of_file.current = new;
        of_file.fresh_since = fresh_since.or(of_file.fresh_since);
        of_file.told_as = None;
    }

    fn forgotten(&mut self, number: u64, times: u64) {
        let Some(other) = self.others.get_mut(&number) else { return };
        other.lookups = other.lookups.saturating_sub(times);
        if other.lookups == 0 {
            let file = other.file;
            self.let_go_of_unused(file);
        }
    }

    /// Numbers that the kernel has forgotten, but for the current one: the kernel forgets it, too,
    /// while it looks a path up anew, and must find it there.
    fn let_go_of_unused(&mut self, file: FileId) {
        let State { others: all, of_file, .. } = self;
        let Entry::Occupied(mut of_file) = of_file.entry(file) else { return };
        let OfFile { current, others, .. } = of_file.get_mut();
        others.retain(|number| {
            let is_used = number == current || all.get(number).is_some_and(|o| o.lookups > 0);
            if !is_used {
                all.remove(number);
            }
            is_used
        });
        if others.is_empty() {
            of_file.remove();
        }
    }
}

#[cfg(test)]
mod tests;
