//! What becomes of updates for which the replica above has no room.
//! Holds: what somebody waits for is undone before they are told, and is never taken later; what
//! nobody waits for was acknowledged, and stays pending.
//! From: DESIGN, "The client": in connected mode what is refused is undone, and the application
//! gets the errno.

use crate::client::{Client, Core, error_of};
use crate::files::Files;
use crate::part::opened_record;
use crate::presence::{Dirty, Presence};
use crate::replay_log::{REFUSALS_MAX, stale_by};
use crate::types::{Error, Step};
use model::{Change, FileId, Stamp, Update};
use protocol::{Objection, Upstream};
use std::collections::{BTreeMap, BTreeSet};
use store::container::Key;
use store::{Containers, Durability};
use update_log::{LogError, Record};
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
}

impl Waiters {
    pub fn expect(&mut self, number: u64) {
        self.awaited.insert(number);
    }

    pub fn is_awaited(&self, number: u64) -> bool {
        self.awaited.contains(&number)
    }

    /// Somebody can be told what becomes of it.
    pub fn is_attended(&self, number: u64) -> bool {
        self.awaited.contains(&number) && !self.unattended.contains(&number)
    }

    /// It may be undone, and whoever did it be told so.
    pub fn may_be_undone(&self, number: u64) -> bool {
        self.is_attended(number) && !self.owed.contains(&number)
    }

    /// It stays pending whatever is said of it: it was acknowledged, or what it took the place of.
    pub fn owe(&mut self, number: u64) {
        self.owed.insert(number);
    }

    pub fn leave_unattended(&mut self, number: u64) {
        if !self.waiting.contains_key(&number) {
            self.unattended.insert(number);
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
                self.also.remove(&number);
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
        Waiting { client: self, number }
    }

    /// Stores an open file beside any call: nobody learns what becomes of it.
    pub(crate) fn store_unattended(&self, grip: &crate::files::Grip<C::Container>) -> Step<()> {
        if let Some(number) = self.store_contents(grip, None)? {
            self.core().waiters.leave_unattended(number);
        }
        Ok(())
    }

    /// The replica above has said why it takes nothing. Whoever waits learns it, and what they did
    /// is undone.
    pub(crate) fn turned_away(&self, objection: Objection) -> Result<(), Error> {
        let _pressed = self.pressed();
        let (undone, outcome) = {
            let mut core = self.core();
            let core = &mut *core;
            let undone: Vec<Update> = core
                .log
                .pending()
                .filter(|update| {
                    let number = update.stamp.number;
                    core.waiters.may_be_undone(number)
                        && !core.meta.is_taken(number)
                        && number > core.judged
                })
                .cloned()
                .collect();
            let judged = core.judged;
            let pending = core.log.pending().map(|update| update.stamp.number);
            let waited_for: Vec<u64> =
                pending.filter(|number| *number > judged).take(REFUSALS_MAX).collect();
            let outcome = self.take_back(core, &undone);
            // What this disk has no room to undo may still be taken: nobody is told that it was
            // not done before that is so.
            let kept: BTreeSet<u64> = undone
                .iter()
                .map(|update| update.stamp.number)
                .filter(|number| core.log.is_pending(*number))
                .collect();
            let told = waited_for.into_iter().filter(|number| !kept.contains(number));
            core.refusals.extend(told.map(|number| (number, objection)));
            core.forget_waiters();
            // Of several some may have been taken back, and show.
            core.note_behind(&outcome);
            (undone, outcome)
        };
        self.forget(&undone.iter().flat_map(stale_by).collect::<Vec<_>>());
        self.inner.settled.notify_waiters();
        outcome
    }

    fn take_back(&self, core: &mut Core, undone: &[Update]) -> Result<(), Error> {
        if undone.is_empty() {
            return Ok(());
        }
        let numbers: Vec<u64> = undone.iter().map(|update| update.stamp.number).collect();
        core.log.returned(&numbers);
        for update in undone {
            let store = match update.change {
                Change::Store { file, expects, .. } => Some((file, expects)),
                _ => None,
            };
            // Noted as written before the store is taken back: a crash between the two loses
            // neither.
            let open = match store {
                Some((file, expects)) => self.write_again(core, update, file, expects)?,
                None => true,
            };
            core.log.cancel(update.stamp.number).map_err(of_log)?;
            core.plans.remove(update.stamp.number);
            if let (Some((file, _)), false) = (store, open) {
                self.drop_version(core, &mut self.files(), file, update.stamp)?;
            }
            tracing::warn!(update = %update.stamp, "the server has no room: an update was undone");
        }
        core.unsaved = true;
        self.rebuild(core, undone)?;
        for update in undone {
            let named_again = match update.change {
                Change::Unlink { file, .. } | Change::Rename { over: Some(file), .. } => file,
                _ => continue,
            };
            // What is written to it while it is open is to be stored again.
            self.files().named_again(named_again);
        }
        // Whoever is told that it was not done must not find it done after a power cut.
        self.sync_log().map_err(error_of)
    }

    /// What was stored and is still open is written and not stored again: the next close or sync
    /// tries once more. Says whether it is open.
    fn write_again(
        &self,
        core: &mut Core,
        update: &Update,
        file: FileId,
        expects: Stamp,
    ) -> Result<bool, Error> {
        let mut files = self.files();
        let Some(open) = files.holder_of(file, update.stamp) else { return Ok(false) };
        if open.unlinked.is_some() || open.presence.dirty.is_some() {
            return Ok(true);
        }
        let dirty = Dirty { expects, uid: update.uid };
        open.presence.dirty = Some(dirty);
        core.log.note(&opened_record(file, dirty, &open.presence)).map_err(of_log)?;
        open.turned_down = true;
        let mut write = self.inner.tables.write().map_err(error_of)?;
        open.presence.save(&mut *write, file).map_err(error_of)?;
        write.commit(Durability::Later).map_err(error_of)?;
        Ok(true)
    }

    /// A version that is not to be stored goes, and with it its container.
    pub(crate) fn drop_version(
        &self,
        core: &mut Core,
        files: &mut Files<C::Container>,
        file: FileId,
        version: Stamp,
    ) -> Result<(), Error> {
        core.log.note(&Record::Closed { file }).map_err(of_log)?;
        core.unsaved = true;
        let mut write = self.inner.tables.write().map_err(error_of)?;
        let row = Presence::load(&*write, file).map_err(error_of)?;
        let Some(row) = row.filter(|row| row.version == version) else { return Ok(()) };
        let generation = row.generation;
        files.close_version(file, generation);
        // The row stays, for the generation that it counts.
        let without = Presence {
            generation: generation.wrapping_add(1),
            ranges: Vec::new(),
            dirty: None,
            ground: None,
            ..row
        };
        without.save(&mut *write, file).map_err(error_of)?;
        write.commit(Durability::Later).map_err(error_of)?;
        self.inner.containers.remove(Key { file: file.0, generation }).map_err(error_of)
    }

    /// The last close of a file whose program was told that it could not be stored.
    pub(crate) fn give_up_written(&self, file: FileId, generation: u32) {
        let _pressed = self.pressed();
        let outcome = {
            let mut core = self.core();
            let mut files = self.files();
            let version = files
                .get(file, generation)
                .filter(|open| open.is_given_up())
                .map(|open| open.presence.version);
            // Somebody may have opened it again meanwhile.
            let Some(version) = version else { return };
            self.drop_version(&mut core, &mut files, file, version)
        };
        if let Err(error) = outcome {
            tracing::warn!(%file, %error, "what could not be stored could not be removed");
        }
        self.forget(&[volume::partial::Changed::Node { file, contents: true }]);
    }
}

pub(crate) fn of_log(error: LogError) -> Error {
    match error {
        LogError::Store(error) => error_of(error),
        error => Error::Failed(error.to_string()),
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
}
