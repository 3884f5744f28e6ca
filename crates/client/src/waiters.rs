//! Who waits for which verdict, and what may leave later because nobody waits for it yet.
//! Holds: whoever waits for an update is told what became of it, and of all that was to be told
//! with it; what was acknowledged is never undone.

use crate::client::{Client, Core};
use model::FileId;
use protocol::{Objection, Upstream};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use store::Containers;
use tokio::sync::Notify;
use world::Moment;

/// Who waits for which verdict.
#[derive(Default)]
pub(crate) struct Waiters {
    /// Updates that are done only when the replica above has taken them. What was done without
    /// waiting for a verdict is kept aside if it meets a change, whatever the mode is when it
    /// leaves.
    awaited: BTreeSet<u64>,
    /// Of them, those that went beside a call, which nobody can be told of.
    unattended: BTreeSet<u64>,
    /// Stores in the place of one that was acknowledged, which is not there to go back to, and
    /// what was acknowledged itself.
    owed: BTreeSet<u64>,
    /// How many calls wait for an update just now.
    waiting: BTreeMap<u64, usize>,
    /// Of a file that is being written: changes of its attributes, which its next close waits for.
    with_close: BTreeMap<FileId, Vec<u64>>,
    /// Whoever waits for an update is told what became of these, too.
    also: BTreeMap<u64, Vec<u64>>,
    /// Need not leave before this by themselves: what their close waits for goes along.
    held_back: BTreeMap<u64, Moment>,
    /// Stores that may be written over, though somebody waits for them: it took too long.
    released: BTreeSet<u64>,
    /// Of them, those that were written over before their verdict came.
    overtaken: BTreeSet<u64>,
    /// Bear other numbers, as a copy of the state here is in use: who waited is told that it failed.
    renamed: BTreeSet<u64>,
    /// An update may be waited for no more.
    freed: Arc<Notify>,
}

impl Waiters {
    pub fn expect(&mut self, number: u64) {
        self.awaited.insert(number);
    }

    /// All that is waited for bears other numbers from now on, which are none of these.
    pub fn rename_all(&mut self) {
        self.renamed.extend(self.waiting.keys().chain(&self.awaited));
        self.freed.notify_waiters();
    }

    pub fn is_renamed(&self, number: u64) -> bool {
        self.renamed.contains(&number)
    }

    /// It leaves as what nobody waits for.
    pub fn accept(&mut self, number: u64) {
        self.awaited.remove(&number);
        self.freed.notify_waiters();
    }

    pub fn is_awaited(&self, number: u64) -> bool {
        self.awaited.contains(&number)
    }

    pub fn any_awaited(&self) -> bool {
        !self.awaited.is_empty() || !self.waiting.is_empty()
    }

    /// Somebody waits for it, or is to be told what became of it.
    pub fn concern(&self, number: u64) -> bool {
        let told_with = |others: &Vec<u64>| others.contains(&number);
        self.awaited.contains(&number)
            || self.waiting.contains_key(&number)
            || self.also.contains_key(&number)
            || self.also.values().any(told_with)
            || self.with_close.values().any(told_with)
    }

    /// Somebody can be told what becomes of it.
    pub fn is_attended(&self, number: u64) -> bool {
        self.awaited.contains(&number) && !self.unattended.contains(&number)
    }

    /// What is waited for, or is about to be, keeps its contents: whoever writes over them waits.
    pub fn keeps(&self, number: u64) -> bool {
        let is_waited_for = self.is_attended(number) || self.waiting.contains_key(&number);
        is_waited_for && !self.released.contains(&number)
    }

    /// It keeps them no longer.
    pub fn release(&mut self, number: u64) {
        self.released.insert(number);
    }

    pub fn note_overtaken(&mut self, number: u64) {
        if self.released.contains(&number) {
            self.overtaken.insert(number);
        }
    }

    /// It went before its verdict came, and what it stored is not above.
    pub fn is_overtaken(&self, number: u64) -> bool {
        self.overtaken.contains(&number)
    }

    pub fn freed(&self) -> Arc<Notify> {
        self.freed.clone()
    }

    /// These may be undone, and whoever did them be told so.
    pub fn may_be_undone(&self) -> impl Iterator<Item = u64> {
        let numbers = self.awaited.iter().copied();
        numbers.filter(|number| self.is_attended(*number) && !self.owed.contains(number))
    }

    /// It stays pending whatever is said of it: it was acknowledged, or what it took the place of.
    pub fn owe(&mut self, number: u64) {
        self.owed.insert(number);
    }

    pub fn leave_unattended(&mut self, number: u64) {
        if !self.waiting.contains_key(&number) {
            self.unattended.insert(number);
            self.freed.notify_waiters();
        }
    }

    /// Forgets what is not pending any more, but for what somebody is to be told yet.
    pub fn retain(&mut self, keep: impl Fn(u64) -> bool, is_refused: impl Fn(u64) -> bool) {
        self.awaited.retain(|number| keep(*number));
        self.unattended.retain(|number| keep(*number));
        self.owed.retain(|number| keep(*number));
        self.held_back.retain(|number, _| keep(*number));
        let is_needed = |number: &u64| keep(*number) || is_refused(*number);
        self.with_close.retain(|_, numbers| {
            numbers.retain(is_needed);
            !numbers.is_empty()
        });
        let waiting = &self.waiting;
        self.also.retain(|number, others| {
            keep(*number) || waiting.contains_key(number) || others.iter().any(is_needed)
        });
        self.released.retain(|number| keep(*number) || waiting.contains_key(number));
        self.overtaken.retain(|number| waiting.contains_key(number));
        self.freed.notify_waiters();
    }

    /// The next close of the file waits for this update, which may leave with that, and leaves by
    /// itself from `until` on. Its call was told that it is done, so it stays pending where there
    /// is no room for it.
    pub fn wait_with_close(&mut self, file: FileId, number: u64, until: Moment) {
        self.owe(number);
        self.with_close.entry(file).or_default().push(number);
        self.held_back.insert(number, until);
    }

    /// What a close is to wait for that has stored this: of all that is left to be waited for the
    /// last, and whoever waits for that is told of the others.
    pub fn at_close(&mut self, file: FileId, stored: Option<u64>) -> Option<u64> {
        let Some(mut numbers) = self.with_close.remove(&file) else { return stored };
        numbers.extend(stored);
        numbers.sort_unstable();
        let last = numbers.pop();
        if let (Some(last), false) = (last, numbers.is_empty()) {
            self.also.entry(last).or_default().extend(numbers);
        }
        last
    }

    /// Whoever waits for this update is told what became of these: of the last first.
    pub fn tell_with(&mut self, number: u64, others: Vec<u64>) {
        self.also.entry(number).or_default().extend(others);
    }

    /// What is told with this update.
    pub fn told_with(&self, number: u64) -> &[u64] {
        self.also.get(&number).map_or(&[], Vec::as_slice)
    }

    /// Until when nothing need leave, if so many updates are pending and all may be held back.
    pub fn all_held_back(&self, pending: usize) -> Option<Moment> {
        let first = self.held_back.values().min().copied();
        first.filter(|_| self.held_back.len() == pending)
    }

    fn begin(&mut self, number: u64) {
        self.unattended.remove(&number);
        *self.waiting.entry(number).or_default() += 1;
        self.held_back.clear();
    }

    /// Whoever gave up was told that it may be done later: it is not to be refused then.
    fn end(&mut self, number: u64) {
        if let Some(count) = self.waiting.get_mut(&number) {
            *count -= 1;
            if *count == 0 {
                self.waiting.remove(&number);
                self.awaited.remove(&number);
                for other in self.also.remove(&number).unwrap_or_default() {
                    self.awaited.remove(&other);
                }
                self.freed.notify_waiters();
            }
        }
    }
}

/// A call waits for a verdict until this is dropped.
pub(crate) struct Waiting<'a, U: Upstream, C: Containers> {
    client: &'a Client<U, C>,
    number: u64,
}

impl<U: Upstream, C: Containers> Drop for Waiting<'_, U, C> {
    fn drop(&mut self) {
        self.client.core().waiters.end(self.number);
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    pub(crate) fn waiting(&self, number: u64) -> Waiting<'_, U, C> {
        self.core().waiters.begin(number);
        self.inner.replay_wanted.notify_one();
        self.inner.full.ask();
        Waiting { client: self, number }
    }

    /// How long all that is pending may still wait for a close to leave with.
    pub(crate) fn holds_back(&self) -> Option<Duration> {
        if let Some(rest) = self.delays() {
            return Some(rest);
        }
        let core = self.core();
        let until = core.waiters.all_held_back(core.log.pending_len())?;
        let rest = until.since(self.inner.world.clock.moment());
        (rest > Duration::ZERO).then_some(rest)
    }
}

impl Core {
    /// Why one of the updates was refused that are told with this one, if one was.
    pub(crate) fn told_with(&mut self, number: u64) -> Option<Objection> {
        let Core { waiters, refusals, .. } = self;
        let others = waiters.told_with(number).iter();
        others.filter_map(|other| refusals.remove(other)).last()
    }

    pub(crate) fn forget_waiters(&mut self) {
        let Core { log, refusals, waiters, .. } = self;
        waiters.retain(|number| log.is_pending(number), |number| refusals.contains_key(&number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_gives_up_waiting_is_not_awaited_and_who_goes_on_is() {
        let mut waiters = Waiters::default();
        waiters.expect(7);
        waiters.begin(7);
        waiters.begin(7);
        waiters.end(7);
        assert!(waiters.is_awaited(7) && waiters.is_attended(7));
        waiters.end(7);
        assert!(!waiters.is_awaited(7));
    }

    #[test]
    fn what_went_beside_a_call_is_attended_once_somebody_waits_for_it() {
        let mut waiters = Waiters::default();
        waiters.expect(7);
        waiters.leave_unattended(7);
        assert!(waiters.is_awaited(7) && !waiters.is_attended(7));
        waiters.begin(7);
        assert!(waiters.is_attended(7));
        waiters.leave_unattended(7);
        assert!(waiters.is_attended(7));
        waiters.retain(|_| false, |_| false);
        assert!(!waiters.is_awaited(7));
    }

    #[test]
    fn what_is_waited_for_keeps_its_contents_until_that_ends_or_takes_too_long() {
        let mut waiters = Waiters::default();
        assert!(!waiters.keeps(7));
        waiters.expect(7);
        assert!(waiters.keeps(7), "whoever did it is about to wait");
        waiters.begin(7);
        waiters.end(7);
        assert!(!waiters.keeps(7));
        waiters.begin(7);
        assert!(waiters.keeps(7), "it is waited for, in whatever mode it was done");
        waiters.note_overtaken(7);
        assert!(!waiters.is_overtaken(7));
        waiters.release(7);
        waiters.note_overtaken(7);
        assert!(!waiters.keeps(7) && waiters.is_overtaken(7));
        waiters.retain(|_| false, |_| false);
        assert!(waiters.is_overtaken(7), "somebody is to be told yet");
        waiters.end(7);
        waiters.retain(|_| false, |_| false);
        assert!(!waiters.is_overtaken(7));
    }
}
