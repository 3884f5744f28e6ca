//! What becomes of updates for which the replica above has no room.
//! Holds: what somebody waits for is undone before they are told, and is never taken later; what
//! nobody waits for was acknowledged, and stays pending.
//! From: DESIGN, "The client": in connected mode what is refused is undone, and the application
//! gets the errno.

use crate::client::{Client, Core, error_of};
use crate::files::{Files, OpenFile};
use crate::part::opened_record;
use crate::presence::{Dirty, Presence};
use crate::replay_log::{PAUSE, REFUSALS_MAX, SHORT_PAUSE, stale_by};
use crate::types::{Error, Step};
use model::{Change, FileId, Stamp, Update};
use protocol::{Objection, Upstream};
use std::collections::BTreeSet;
use std::time::Duration;
use store::container::Key;
use store::{Containers, Durability};
use update_log::LogError;

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Stores an open file beside any call: nobody learns what becomes of it.
    pub(crate) fn store_unattended(&self, grip: &crate::files::Grip<C::Container>) -> Step<()> {
        self.settle_closed(Some((grip.file, grip.generation)));
        self.store_now_unattended(grip)
    }

    /// As `store_unattended`, whatever else was closed before.
    pub(crate) fn store_now_unattended(&self, grip: &crate::files::Grip<C::Container>) -> Step<()> {
        let stored = self.store_contents_now(grip, None);
        if let Some(number) = self.unless_closed(grip, stored)? {
            self.core().waiters.leave_unattended(number);
        }
        Ok(())
    }

    /// Whoever waits learns why. How long to wait before what is left is sent.
    pub(crate) fn turn_away(&self, error: &Error) -> Duration {
        let Error::Objection(objection) = error else { return PAUSE };
        match self.turned_away(*objection) {
            // What had no room is out of the way.
            Ok(()) if *objection == Objection::OverQuota => SHORT_PAUSE,
            Ok(()) => PAUSE,
            Err(error) => {
                tracing::error!(%error, "what was not taken could not be undone");
                PAUSE
            }
        }
    }

    /// The replica above has said why it takes nothing. Whoever waits learns it, and what they did
    /// is undone.
    fn turned_away(&self, objection: Objection) -> Result<(), Error> {
        let _pressed = self.pressed();
        let (undone, outcome) = {
            let mut core = self.core();
            let core = &mut *core;
            let judged = core.judged;
            // Of a quota it is the first alone that has no room.
            let first = core.log.first_number().filter(|_| objection == Objection::OverQuota);
            let is_meant = |number: &u64| first.is_none_or(|first| first == *number);
            let may_be_undone = |number: &u64| {
                let may_be_taken = core.meta.is_taken(*number) || core.may_be_ahead(*number);
                !may_be_taken && *number > judged && is_meant(number)
            };
            let numbers = core.waiters.may_be_undone().filter(may_be_undone);
            let undone = numbers.map(|number| core.log.get(number));
            let undone: Vec<Update> =
                undone.filter_map(Result::transpose).collect::<Result<_, _>>().map_err(of_log)?;
            let is_told = |number: &u64| is_meant(number) && !core.may_be_ahead(*number);
            let waited_for: Vec<u64> =
                core.log.numbers_from(judged + 1).take(REFUSALS_MAX).filter(is_told).collect();
            if let Some(first) = first.filter(|_| undone.is_empty()) {
                // It was acknowledged, or the place of what was: it is taken beyond the quota.
                core.waiters.accept(first);
                return Ok(());
            }
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
                let generation = self.generation_of(file, update.stamp)?;
                self.drop_version(core, &mut self.files(), file, generation)?;
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
            self.note_written(core, named_again)?;
        }
        // Whoever is told that it was not done must not find it done after a power cut.
        self.sync_log().map_err(error_of)
    }

    /// With the name of a file the log was told that nothing of it is written to: it learns that
    /// this is so again.
    pub(crate) fn note_written(&self, core: &mut Core, file: FileId) -> Result<(), Error> {
        let files = self.files();
        let mut write = self.inner.tables.write().map_err(error_of)?;
        for open in files.generations(file) {
            let Some(dirty) = open.presence.dirty else { continue };
            core.log.note(&opened_record(file, dirty, &open.presence)).map_err(of_log)?;
            open.presence.save_in_place(&mut *write, file).map_err(error_of)?;
        }
        write.commit(Durability::Later).map_err(error_of)?;
        drop(files);
        self.charge_named(core, file);
        Ok(())
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
        let dirty = Dirty::new(expects, update.uid);
        open.presence.dirty = Some(dirty);
        core.log.note(&opened_record(file, dirty, &open.presence)).map_err(of_log)?;
        // Who has it open for writing is told, or was. What nobody has is owed to whoever closed it.
        open.turned_down = open.is_for_writing();
        let mut write = self.inner.tables.write().map_err(error_of)?;
        open.presence.save(&mut *write, file).map_err(error_of)?;
        write.commit(Durability::Later).map_err(error_of)?;
        let key = Key { file: file.0, generation: open.presence.generation };
        self.charge_again(core, key, expects, &open.presence.contents);
        Ok(true)
    }

    /// The container that is a version, if that is the file's row.
    fn generation_of(&self, file: FileId, version: Stamp) -> Result<Option<u32>, Error> {
        let read = self.inner.tables.read().map_err(error_of)?;
        let row = Presence::load(&*read, file).map_err(error_of)?;
        Ok(row.filter(|row| row.version == version).map(|row| row.generation))
    }

    /// A version that is not to be stored goes, and with it its container. None: it has gone.
    pub(crate) fn drop_version(
        &self,
        core: &mut Core,
        files: &mut Files<C::Container>,
        file: FileId,
        generation: Option<u32>,
    ) -> Result<(), Error> {
        files.note_closed(&mut core.log, file, generation).map_err(of_log)?;
        core.unsaved = true;
        let Some(generation) = generation else { return Ok(()) };
        Self::forget_charge(core, file, generation);
        let mut write = self.inner.tables.write().map_err(error_of)?;
        let row = Presence::load(&*write, file).map_err(error_of)?;
        let next = Presence::next_generation(&*write, file).map_err(error_of)?;
        files.close_version(file, generation);
        match row.filter(|row| row.generation == generation) {
            // The row stays, for the generation that it counts.
            Some(row) => {
                Presence { generation: next, ranges: Vec::new(), dirty: None, ground: None, ..row }
                    .replace(&mut *write, file)
            }
            None => Presence::forget_displaced(&mut *write, file, generation),
        }
        .map_err(error_of)?;
        write.commit(Durability::Later).map_err(error_of)?;
        self.inner.containers.remove(Key { file: file.0, generation }).map_err(error_of)
    }

    /// The last close of a file whose program was told that it could not be stored.
    pub(crate) fn give_up_written(&self, file: FileId, generation: u32) {
        let _pressed = self.pressed();
        let outcome = {
            let mut core = self.core();
            let mut files = self.files();
            // Somebody may have opened it again meanwhile.
            if !files.get(file, generation).is_some_and(OpenFile::is_given_up) {
                return;
            }
            self.drop_version(&mut core, &mut files, file, Some(generation))
        };
        if let Err(error) = outcome {
            tracing::warn!(%file, %error, "what could not be stored could not be removed");
        }
        self.forget(&[volume::partial::Changed::Node { file, contents: true }]);
    }
}

impl From<LogError> for Error {
    fn from(error: LogError) -> Error {
        of_log(error)
    }
}

pub(crate) fn of_log(error: LogError) -> Error {
    match error {
        LogError::Store(error) => error_of(error),
        error => Error::Failed(error.to_string()),
    }
}
