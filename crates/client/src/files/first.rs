//! The first change of a container that is a stored version.
//! Holds: the log notes it as opened before the first byte of it changes; old bytes that matter are
//! all here before a new one is written.
//! From: DESIGN, "The client".

use super::bytes::need;
use super::{Files, Grip, Images, Since};
use crate::client::{Client, Core, failed, log_failed};
use crate::part::opened_record;
use crate::presence::{Dirty, Ground, NO_VERSION, Presence};
use crate::room::taken;
use crate::types::{Error, Handle, Need, Step, Stop};
use model::{Change, Contents, FileId, Stamp, Time};
use protocol::{Objection, Upstream};
use std::sync::Arc;
use store::{Container, Containers, Durability, Write};
use update_log::What;
use volume::partial::{self, Missing};

/// What a change touches of a container that is a stored version so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// All of it at once.
    All,
    /// The same, and nobody else knows yet that the file is open here.
    AllOfOwn,
    /// What begins at this offset.
    From(u64),
    /// What lies between these two.
    Stretch(u64, u64),
    /// Nothing that is there.
    Grows,
}

impl Extent {
    fn begins(self) -> u64 {
        match self {
            Extent::All | Extent::AllOfOwn => 0,
            Extent::From(offset) | Extent::Stretch(offset, _) => offset,
            Extent::Grows => u64::MAX,
        }
    }

    /// Whether something is left as it is of what has so many bytes.
    fn leaves_some_of(self, size: u64) -> bool {
        let takes_all = match self {
            Extent::All | Extent::AllOfOwn => true,
            Extent::Stretch(from, to) => from == 0 && to >= size,
            // Of a stretch only its beginning may be said.
            Extent::From(_) | Extent::Grows => false,
        };
        size > 0 && !takes_all
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Of a container that is a stored version so far. The caller sees to it that nobody else
    /// begins to.
    pub(super) fn begin_first_change(
        &self,
        grip: &Grip<C::Container>,
        uid: u32,
        extent: Extent,
    ) -> Step<()> {
        let size = grip.container.length().map_err(failed)?;
        let from = extent.begins();
        let all = matches!(extent, Extent::All | Extent::AllOfOwn);
        if !all {
            if !self.may_be_ground(grip)? {
                self.want_whole(grip)?;
            }
            if extent.leaves_some_of(size) {
                self.want_sound(grip, matches!(extent, Extent::Stretch(..) | Extent::Grows))?;
            }
            // A crash may leave the new bytes half written, but not take the old ones.
            self.sync_before_change(grip.key(), &grip.container).map_err(failed)?;
        }
        // Of what is all to go and is not here at all the container would be taken for zeros, if a
        // crash came before it is cut. One of another length is nobody's version.
        let cut_first = all && size > 0 && self.lacks_all(grip)?;
        if cut_first {
            grip.container.set_length(0).map_err(failed)?;
        }
        let noted = self.note_opened(grip, uid, all);
        if let (true, Err(_)) = (cut_first, &noted) {
            grip.container.set_length(size).map_err(failed)?;
        }
        let before = noted?;
        // Until the log is on the disk.
        self.note_added_to(grip, size);
        if self.has_ground(grip) {
            // What is said of it next is of what is on the disk.
            self.sync_log().map_err(failed)?;
        }
        if from < size {
            self.begin_to_write_over(grip, extent)?;
            if let Some(before) = before {
                self.keep_old(grip, &before, extent == Extent::AllOfOwn)?;
                self.begin_images(grip, &before);
            }
        }
        Ok(())
    }

    fn note_added_to(&self, grip: &Grip<C::Container>, size: u64) {
        if let Some(open) = self.files().get_mut(grip.file, grip.generation) {
            open.added_to = (size > 0).then_some(size);
        }
    }

    /// Of a container that is being written to. Bytes of the version before that were left as they
    /// are may be about to change: then the log says durably that it is that version no more.
    pub(super) fn begin_to_write_over(
        &self,
        grip: &Grip<C::Container>,
        extent: Extent,
    ) -> Step<()> {
        let added_to = |files: &Files<_>| files.get(grip.file, grip.generation)?.added_to;
        if added_to(&self.files()).is_none_or(|size| extent.begins() >= size) {
            return Ok(());
        }
        self.sync_before_writing_over(grip.key()).map_err(failed)?;
        self.note_added_to(grip, 0);
        Ok(())
    }

    /// Nothing of a version is here.
    fn lacks_all(&self, grip: &Grip<C::Container>) -> Step<bool> {
        let files = self.files();
        let open = files.get(grip.file, grip.generation).ok_or(Error::BadHandle)?;
        let Presence { ranges, ground, .. } = &open.presence;
        Ok(ranges.is_empty() && ground.is_none() && !open.presence.is_whole())
    }

    /// Where the version that is about to be written over is not kept whole, what is written over
    /// of it is.
    fn begin_images(&self, grip: &Grip<C::Container>, before: &Presence) {
        let kept = self.trash().find(grip.file, Some(before.version)).is_some();
        let mut files = self.files();
        let Some(open) = files.get_mut(grip.file, grip.generation) else { return };
        // What is not here cannot be put back.
        let gives = !kept && before.is_whole();
        open.images = gives.then(|| Images::new(before.version, before.contents.size));
    }

    /// Keeps the stored version that is about to be written over: the next one will be like it.
    fn keep_old(&self, grip: &Grip<C::Container>, before: &Presence, own: bool) -> Step<()> {
        let mut files = self.files();
        // What is lent stays the container of who has it mapped, though nobody has it open any more.
        let is_out = files.is_out(grip.file);
        let open = files.get_mut(grip.file, grip.generation).ok_or(Error::BadHandle)?;
        if is_out || !own || open.handles > 1 {
            drop(files);
            return self.keep_before_change(grip.file, before).map_err(failed);
        }
        if let Some(fresh) = self.keep_and_replace(grip.file, before).map_err(failed)? {
            open.container = fresh;
        }
        Ok(())
    }

    pub(crate) fn want_whole(&self, grip: &Grip<C::Container>) -> Step<()> {
        let files = self.files();
        let open = files.get(grip.file, grip.generation).ok_or(Error::BadHandle)?;
        if open.presence.is_whole() {
            return Ok(());
        }
        Err(Stop::Need(need(grip, 0, open.presence.limit())))
    }

    /// The log learns that the container is not what was stored, before it is so. Gives back the
    /// version that the container is, if that is not pending.
    fn note_opened(
        &self,
        grip: &Grip<C::Container>,
        uid: u32,
        all: bool,
    ) -> Step<Option<Presence>> {
        let mut core = self.core();
        if core.meta.access == protocol::Access::ReadOnly {
            return Err(Objection::ReadOnly.into());
        }
        let mut files = self.files();
        let open = files.get_mut(grip.file, grip.generation).ok_or(Error::BadHandle)?;
        if open.presence.dirty.is_some() {
            return Ok(None);
        }
        if open.unlinked.is_some() {
            return self.note_nameless(&mut core, grip.file, open, uid).map(|()| None);
        }
        self.has_room()?;
        // All of what follows or nothing.
        let _pressed = self.pressed();
        let before = open.presence.clone();
        let mut write = self.inner.tables.write().map_err(failed)?;
        let mut expects = open.presence.version;
        // A store that is pending is overtaken: its contents are about to change. If it was on
        // its way and has been taken, the origin sees that the next one takes its place.
        let overtaken = pending_in(&core, grip.file, &before)?;
        if let Some(number) = overtaken.filter(|number| self.is_kept(&core, *number)) {
            return Err(Stop::Need(Need::Verdict(number)));
        }
        if let Some(number) = overtaken {
            expects = core.log.expected_by(number).map_err(log_failed)?.unwrap_or(expects);
        }
        let dirty = Dirty::new(expects, uid);
        let opened = opened(&before, dirty, all);
        // Before anything is taken back all that this comes to is ready, but for the commit.
        if let Some(number) = overtaken {
            core.show_without(&mut *write, grip.file, (number, expects))
                .map_err(crate::client::stop)?;
        }
        opened.save(&mut *write, grip.file).map_err(failed)?;
        let bytes = taken(&open.container).map_err(failed)?;
        // Noted before the store is taken back: between the two, a crash loses neither.
        core.log.note(&opened_record(grip.file, dirty, &opened)).map_err(log_failed)?;
        let was_behind = core.behind;
        if let Some(number) = overtaken {
            self.overtake(&mut core, number).map_err(log_failed)?;
            // Until the tables know of it.
            core.behind = true;
            open.images = core.take_images(number);
        }
        core.unsaved = true;
        self.inner.room.sub(bytes);
        open.presence = opened;
        open.overtook = overtaken.is_some();
        if open.since.is_none() && open.presence.ground.is_none() && !all {
            open.since =
                Since::reopened(&open.presence.contents, self.inner.settings.again_bytes_min);
        }
        write.commit(Durability::Later).map_err(failed)?;
        core.behind = was_behind;
        if overtaken.is_some() {
            self.charge_again(&mut core, grip.key(), expects, &before.contents);
        }
        Ok(overtaken.is_none().then_some(before))
    }
}

impl<K: Container> Files<K> {
    /// Of what is about to be written: the bytes up to where what it is written upon ends, if it goes
    /// on behind that, and not all of what lies under it is here.
    pub(super) fn ground_ends_within(
        &self,
        handle: Handle,
        offset: u64,
        length: u64,
    ) -> Option<usize> {
        let state = self.handles.get(&handle.0).filter(|_| !self.appends_directly(handle))?;
        let presence = &self.open.get(&(state.file, state.generation))?.presence;
        let ends = presence.limit();
        let is_within = offset < ends && ends < offset.saturating_add(length);
        let lacks = is_within && !presence.absent(offset, ends).is_empty();
        lacks.then(|| usize::try_from(ends - offset).ok()).flatten()
    }
}

impl Core {
    /// What is pending last of a file's contents.
    pub(crate) fn pending_version(&self, file: FileId) -> Option<Stamp> {
        let pending = self.log.pending_store(file).zip(self.meta.replica);
        pending.map(|(number, us)| Stamp::new(us, number))
    }

    /// What an overtaken store was to be sent against the next one is sent against.
    fn take_images(&mut self, number: u64) -> Option<Images> {
        let images = self.plans.images(number);
        self.plans.remove(number);
        images.map(Arc::unwrap_or_clone)
    }

    /// What is to show of a file when this store of it, which expects that version, is taken back.
    pub(crate) fn show_without(
        &self,
        write: &mut dyn Write,
        file: FileId,
        (number, expects): (u64, Stamp),
    ) -> Result<(), Missing> {
        let mut left = self.log.of_file(file).map(|(other, _)| other);
        let last = left.find(|other| *other != number);
        partial::patch_cancelled_store(write, file, (expects, self.other_store(file, number)), last)
    }

    /// What the last other pending store of a file stores, which was made of another version than this one.
    fn other_store(&self, file: FileId, number: u64) -> Option<(Stamp, Contents, Time)> {
        let mut stores = self.log.of_file(file).filter(|(_, what)| *what == What::Stores);
        let (other, _) = stores.find(|(other, _)| *other != number)?;
        let update = self.log.get(other).ok().flatten()?;
        match update.change {
            Change::Store { contents, mtime, .. } => Some((update.stamp, contents, mtime)),
            _ => None,
        }
    }

    /// The pending store of a file that the next one takes the place of, if that is written upon
    /// `version`. It need not be pending: after a kill the verdict of what went ahead may come before
    /// those, awaited once more, of what had been taken before it.
    fn pending_under(&self, file: FileId, version: Stamp) -> Option<u64> {
        let number = self.log.pending_store(file)?;
        let is_it = self.meta.replica.is_some_and(|own| Stamp::new(own, number) == version);
        (is_it || !self.meta.is_taken(number)).then_some(number)
    }
}

/// What is about to be written to.
fn opened(before: &Presence, dirty: Dirty, all: bool) -> Presence {
    let ground = ground_under(before, all);
    let mut opened = Presence { dirty: Some(dirty), ground, ..before.clone() };
    opened.leave_out_narrow();
    opened
}

/// What is lacking lies under what is about to be written. What is here of a version that is `all` to
/// go is not all that there was until it is cut.
fn ground_under(before: &Presence, all: bool) -> Option<Ground> {
    let is_bare = before.ranges.is_empty() && before.ground.is_none();
    let none_is_needed = before.is_whole() || (all && is_bare);
    (!none_is_needed).then(|| before.ground_to_write_upon())
}

/// The store of a file that is pending, whose place is taken by who writes to this container,
/// as it is `version`.
fn pending_in(core: &Core, file: FileId, mine: &Presence) -> Step<Option<u64>> {
    let Some(number) = core.pending_under(file, mine.version) else { return Ok(None) };
    let update = core.log.get(number).map_err(log_failed)?;
    let stored = update.and_then(|update| match update.change {
        Change::Store { contents, .. } => Some((update.stamp, contents)),
        _ => None,
    });
    if is_anothers((mine.version, mine.contents), stored) {
        return Err(Objection::Changed.into());
    }
    Ok(Some(number))
}

/// Whether what is pending is what another container holds than the one that is about to be written to,
/// which is a version that was opened before, or that others stored. To write to that would take the place of
/// what was stored, with nobody told; so it waits, and who writes is told. After a kill a container may be no
/// version, and what has another number by now may be open by its earlier one.
fn is_anothers(mine: (Stamp, Contents), pending: Option<(Stamp, Contents)>) -> bool {
    let (version, contents) = mine;
    let is_it = |(stamp, stored): (Stamp, Contents)| stamp == version || stored == contents;
    version != NO_VERSION && pending.is_some_and(|pending| !is_it(pending))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::ReplicaId;

    #[test]
    fn what_begins_where_all_does_may_leave_the_rest() {
        let taking = [Extent::All, Extent::AllOfOwn, Extent::Stretch(0, 9), Extent::Stretch(0, 10)];
        assert_eq!(taking.map(|extent| extent.leaves_some_of(9)), [false; 4]);
        let leaving = [Extent::From(0), Extent::From(3), Extent::Stretch(0, 8), Extent::Grows];
        assert_eq!(leaving.map(|extent| extent.leaves_some_of(9)), [true; 4]);
        assert!(!Extent::Grows.leaves_some_of(0));
    }

    #[test]
    fn another_version_is_not_written_over_what_is_pending() {
        let sized = |size| Contents { size, ..Contents::EMPTY };
        let stored = |number, size| (Stamp::new(ReplicaId(3), number), sized(size));
        assert!(is_anothers(stored(6, 60), Some(stored(7, 70))));
        assert!(!is_anothers(stored(7, 60), Some(stored(7, 70))), "it is what is pending");
        assert!(!is_anothers(stored(6, 70), Some(stored(7, 70))), "by its earlier number");
        assert!(!is_anothers(stored(6, 60), None));
        assert!(!is_anothers((NO_VERSION, sized(60)), Some(stored(7, 70))));
    }
}
