//! Reading and changing what is open.
//! Holds: a container is noted in the log as opened before the first byte of it changes; old
//! bytes that matter are all here before a new one is written.
//! From: DESIGN, "The client".

use super::{Altered, FILE_BYTES_MAX, Grip, Images, OpenFile, Since};
use crate::client::{Client, failed, log_failed};
use crate::mode;
use crate::part::opened_record;
use crate::presence::{Dirty, Presence};
use crate::room::taken;
use crate::types::{Caller, Done, Error, Handle, Need, Step, Stop};
use model::FileId;
use protocol::{Objection, Upstream};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use store::{Container, Containers, Durability, Result as StoreResult};
use volume::partial;

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Reads; fewer bytes than asked for only at the end of the file.
    pub fn read(&self, handle: Handle, offset: u64, length: usize) -> Step<Vec<u8>> {
        self.has_its_locks(handle)?;
        let (grip, left, counts) = {
            let mut files = self.files();
            let (grip, flags) = files.grip(handle)?;
            if !flags.read {
                return Err(Error::BadHandle.into());
            }
            let open = files.get_mut(grip.file, grip.generation).ok_or(Error::BadHandle)?;
            if !open.presence.has(offset, length as u64) {
                return Err(Stop::Need(need(&grip, offset, length as u64)));
            }
            self.note_reader(open, offset, (grip.file, grip.generation));
            open.read_to = offset + length as u64;
            self.touch(open, offset, length as u64);
            let left = grip.left.load(Ordering::Acquire);
            let counts = files.read_counts(handle);
            (grip, left, counts)
        };
        if counts {
            self.accessed(grip.file);
        }
        self.inner.counters.hits.fetch_add(1, Ordering::Relaxed);
        self.note_read(grip.file);
        self.inner.room.came_for(grip.file, offset, length as u64);
        let bytes = grip.container.read(offset, length).map_err(failed)?;
        if grip.left.load(Ordering::Acquire) != left {
            // Some of it may have left the cache meanwhile: the next try looks again.
            return Err(Stop::Need(need(&grip, offset, length as u64)));
        }
        Ok(bytes)
    }

    /// Writes all of `bytes`.
    pub fn write(&self, handle: Handle, offset: u64, bytes: &[u8]) -> Step<()> {
        let end = offset.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > FILE_BYTES_MAX) {
            return Err(Error::TooLarge.into());
        }
        self.has_its_locks(handle)?;
        let appends = self.files().appends_directly(handle);
        let change = match end {
            Some(end) if !appends => Extent::Stretch(offset, end),
            _ => Extent::Grows,
        };
        self.has_quota_to_write(handle, (!appends).then_some(offset), bytes.len() as u64)?;
        let end = std::cell::OnceCell::new();
        self.alter(handle, 0, change, |container| {
            // The kernel's idea of the end may be that of another version. And a second try goes
            // where the first one went.
            let found = if appends { container.length()? } else { offset };
            let start = *end.get_or_init(|| found);
            container.write(start, bytes)?;
            Ok(Altered::Stretch(start..start + bytes.len() as u64))
        })
    }

    /// fallocate(2).
    pub fn allocate(
        &self,
        handle: Handle,
        offset: u64,
        length: u64,
        mode: crate::Allocate,
    ) -> Step<()> {
        let end = offset.checked_add(length).filter(|end| *end <= FILE_BYTES_MAX);
        let Some(end) = end else { return Err(Error::TooLarge.into()) };
        let change = match mode {
            crate::Allocate::Keep | crate::Allocate::Extend => Extent::Grows,
            crate::Allocate::Punch | crate::Allocate::Zero => Extent::From(offset),
        };
        if mode == crate::Allocate::Extend {
            self.has_quota_to_write(handle, Some(offset), length)?;
        }
        self.alter(handle, 0, change, |container| {
            match mode {
                // What is not here stays away: nothing of it is as it was not before.
                crate::Allocate::Keep => return Ok(Altered::Nothing),
                crate::Allocate::Extend => {
                    let grows_from = offset.max(container.length()?);
                    container.allocate(offset, length)?;
                    let grows = grows_from < end;
                    return Ok(if grows {
                        Altered::Room(grows_from..end)
                    } else {
                        Altered::Nothing
                    });
                }
                crate::Allocate::Punch => {
                    let end = end.min(container.length()?);
                    if offset < end {
                        container.punch(offset, end - offset)?;
                    }
                }
                crate::Allocate::Zero => {
                    if end > container.length()? {
                        container.set_length(end)?;
                    }
                    container.punch(offset, length)?;
                }
            }
            // Of what it makes longer, the end tells.
            Ok(Altered::Room(offset..end))
        })
    }

    /// close(2) of one descriptor: what was written becomes an update. Contents that were only cut
    /// to nothing do so with the last close: a shell that redirects closes a copy first, and
    /// nobody wants to see the file empty.
    pub fn flush(&self, caller: Caller, handle: Handle) -> Step<Done<()>> {
        let (grip, flags) = self.files().grip(handle)?;
        let only_cut = |open: &OpenFile<_>| open.only_cut;
        if !flags.write || self.files().get(grip.file, grip.generation).is_some_and(only_cut) {
            return Ok(Done { value: (), wait: None });
        }
        let wait = self.store_or_leave(&grip, caller.uid)?;
        Ok(Done { value: (), wait })
    }

    /// As `flush`, also where contents were only cut: whoever gives a lock up is done with them.
    pub(crate) fn store_written(&self, caller: Caller, handle: Handle) -> Step<Done<()>> {
        let (grip, flags) = self.files().grip(handle)?;
        let wait = if flags.write { self.store_or_leave(&grip, caller.uid)? } else { None };
        Ok(Done { value: (), wait })
    }

    /// Stores what was written. What that lacks and cannot be had now is waited for by upkeep.
    fn store_or_leave(&self, grip: &Grip<C::Container>, uid: u32) -> Step<Option<u64>> {
        match self.store(grip, Some(uid)) {
            Err(Stop::Need(_)) if !mode::fetches(self.connection().mode) => Ok(None),
            outcome => outcome,
        }
    }

    /// fsync(2): as `flush`, and safe from a power cut.
    pub fn sync(&self, caller: Caller, handle: Handle) -> Step<Done<()>> {
        let (grip, _) = self.files().grip(handle)?;
        let wait = self.store_or_leave(&grip, caller.uid)?;
        grip.container.sync().map_err(failed)?;
        self.make_sure(grip.file)?;
        Ok(Done { value: (), wait })
    }

    /// fsync(2) of a directory: what was done to names is safe from a power cut. In connected mode
    /// each change has waited for its verdict already.
    pub fn sync_names(&self) -> Step<()> {
        self.sync_log().map_err(failed)
    }

    /// Cuts or grows the contents.
    pub(crate) fn truncate(
        &self,
        caller: Caller,
        file: FileId,
        handle: Option<Handle>,
        size: u64,
    ) -> Step<Option<u64>> {
        if size > FILE_BYTES_MAX {
            return Err(Error::TooLarge.into());
        }
        if let Some(handle) = handle {
            self.resize(handle, size, caller.uid, false)?;
            return Ok(None);
        }
        let opened = self.open_for_us(caller, file)?;
        let outcome = self.resize(opened.handle, size, caller.uid, true).and_then(|()| {
            let (grip, _) = self.files().grip(opened.handle)?;
            self.store_or_leave(&grip, caller.uid)
        });
        self.release(opened.handle);
        outcome
    }

    /// `alone`: nobody but the caller knows of the handle yet.
    pub(super) fn resize(&self, handle: Handle, size: u64, uid: u32, alone: bool) -> Step<()> {
        let (grip, _) = self.files().grip(handle)?;
        if size == 0 {
            // Nothing of what was there is needed.
            let nothing_else = {
                let files = self.files();
                let open = files.get(grip.file, grip.generation);
                open.is_none_or(|open| open.presence.dirty.is_none() || open.only_cut)
            };
            let change = if alone { Extent::AllOfOwn } else { Extent::All };
            let cut = |container: &C::Container| container.set_length(0);
            self.alter(handle, uid, change, |container| {
                cut(container).map(|()| Altered::Length(0))
            })?;
            self.charge_cut(handle, 0)?;
            let mut files = self.files();
            if let Some(open) = files.get_mut(grip.file, grip.generation) {
                open.only_cut = nothing_else;
            }
            return Ok(());
        }
        if grip.container.length().map_err(failed)? == size && self.is_dirty(&grip) {
            let now = self.inner.world.clock.time();
            if let Some(open) = self.files().get_mut(grip.file, grip.generation) {
                open.note_changed(now);
            }
            return Ok(());
        }
        self.alter(handle, uid, Extent::From(size), |container| {
            container.set_length(size).map(|()| Altered::Length(size))
        })?;
        self.charge_cut(handle, size)
    }

    fn is_dirty(&self, grip: &Grip<C::Container>) -> bool {
        self.files()
            .get(grip.file, grip.generation)
            .is_some_and(|open| open.presence.dirty.is_some())
    }

    /// Changes a container; `change` says what of it. What is left of the old bytes must be here,
    /// or it must be known where they are, and the log must know of the change before. A change
    /// that finds the disk full is tried again with less in the cache.
    fn alter(
        &self,
        handle: Handle,
        uid: u32,
        extent: Extent,
        change: impl Fn(&C::Container) -> StoreResult<Altered>,
    ) -> Step<()> {
        let (grip, flags) = self.files().grip(handle)?;
        if !flags.write {
            return Err(Error::BadHandle.into());
        }
        let still = grip.still.clone();
        let _writing = still.read().unwrap_or_else(PoisonError::into_inner);
        self.begin_to_alter(&grip, uid, extent)?;
        // It may be another one by now.
        let container = self.files().grip(handle)?.0.container;
        self.keep_image(&grip, &container, extent)?;
        let outcome = self.with_room(|| change(&container));
        let outcome = outcome.map_err(failed).and_then(|altered| {
            self.note_altered(&grip, &container, &altered)?;
            Ok(altered)
        });
        let work = outcome.as_ref().ok().and_then(|altered| self.work_for(altered));
        let now = self.inner.world.clock.time();
        let mut files = self.files();
        let open = files.get_mut(grip.file, grip.generation);
        let altered = match outcome {
            Ok(altered) => altered,
            Err(stop) => {
                // Some of it may have been written.
                if let Some(open) = open {
                    (open.since, open.front) = (None, None);
                    open.presence.doubt();
                }
                return Err(stop);
            }
        };
        let mut more = false;
        if let Some(open) = open {
            more = open.note_change(&altered, work, self.steps().step);
            open.written = true;
            open.only_cut = false;
            open.turned_down = false;
            open.note_changed(now);
        }
        drop(files);
        if more {
            self.more_is_written(grip.file, grip.generation);
        }
        Ok(())
    }

    fn begin_to_alter(&self, grip: &Grip<C::Container>, uid: u32, extent: Extent) -> Step<()> {
        let _opening = grip.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_dirty(grip) {
            self.forget_time_set(grip)?;
            return self.go_on_upon_ground(grip);
        }
        let size = grip.container.length().map_err(failed)?;
        let from = match extent {
            Extent::All | Extent::AllOfOwn => 0,
            Extent::From(offset) | Extent::Stretch(offset, _) => offset,
            Extent::Grows => u64::MAX,
        };
        let all = matches!(extent, Extent::All | Extent::AllOfOwn);
        if !all {
            if !self.may_be_ground(grip)? {
                self.want_whole(grip)?;
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
        if self.has_ground(grip) {
            // What is said of it next is of what is on the disk.
            self.sync_log().map_err(failed)?;
        }
        if from < size {
            self.sync_before_writing_over(grip.key()).map_err(failed)?;
            if let Some(before) = before {
                self.keep_old(grip, &before, extent == Extent::AllOfOwn)?;
                self.begin_images(grip, &before);
            }
        }
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

    /// Before a change: what it takes away.
    fn keep_image(
        &self,
        grip: &Grip<C::Container>,
        container: &C::Container,
        extent: Extent,
    ) -> Step<()> {
        let (from, to) = match extent {
            Extent::Grows => return Ok(()),
            Extent::Stretch(from, to) => (from, to),
            Extent::From(_) | Extent::All | Extent::AllOfOwn => {
                // It may be much.
                if let Some(open) = self.files().get_mut(grip.file, grip.generation) {
                    open.images = None;
                }
                return Ok(());
            }
        };
        let lacking = match self.files().get(grip.file, grip.generation) {
            Some(OpenFile { images: Some(images), .. }) => images.lacking(from, to),
            _ => return Ok(()),
        };
        for (from, to) in lacking {
            let length = usize::try_from(to - from).unwrap_or(usize::MAX);
            let old = container.read(from, length).map_err(failed)?;
            let mut files = self.files();
            let Some(open) = files.get_mut(grip.file, grip.generation) else { return Ok(()) };
            let fits = |images: &mut Images| images.note(from, &old);
            if !open.images.as_mut().is_some_and(fits) {
                open.images = None;
            }
        }
        Ok(())
    }

    /// Keeps the stored version that is about to be written over: the next one will be like it.
    fn keep_old(&self, grip: &Grip<C::Container>, before: &Presence, own: bool) -> Step<()> {
        let mut files = self.files();
        let open = files.get_mut(grip.file, grip.generation).ok_or(Error::BadHandle)?;
        if !(own && open.handles == 1) {
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
        Err(Stop::Need(need(grip, 0, open.presence.contents.size)))
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
            // It has no name to come back under: nothing of it is kept.
            open.presence.dirty = Some(Dirty::new(open.presence.version, uid));
            return Ok(None);
        }
        self.has_room()?;
        // All of what follows or nothing.
        let _pressed = self.pressed();
        let before = open.presence.clone();
        let mut write = self.inner.tables.write().map_err(failed)?;
        let mut expects = open.presence.version;
        // What is here of one that is all to go is not all that there was until it is cut.
        let none_is_needed = before.is_whole() || (all && before.ranges.is_empty());
        let ground = (!none_is_needed).then(|| before.ground_to_write_upon());
        // A store that is pending is overtaken: its contents are about to change. If it was on
        // its way and has been taken, the origin sees that the next one takes its place.
        let overtaken = core.log.pending_store(grip.file);
        if let Some(number) = overtaken {
            expects = core.log.expected_by(number).map_err(log_failed)?.unwrap_or(expects);
        }
        // Noted before the store is taken back: between the two, a crash loses neither.
        let dirty = Dirty::new(expects, uid);
        let opened = Presence { dirty: Some(dirty), ground, ..before.clone() };
        core.log.note(&opened_record(grip.file, dirty, &opened)).map_err(log_failed)?;
        let was_behind = core.behind;
        if let Some(number) = overtaken {
            self.overtake(&mut core, number).map_err(log_failed)?;
            // Until the tables know of it.
            core.behind = true;
            // What it was to be sent against the next one is sent against.
            let images = core.plans.images(number);
            core.plans.remove(number);
            open.images = images.map(Arc::unwrap_or_clone);
            let last = core.log.of_file(grip.file).next().map(|(number, _)| number);
            partial::patch_cancelled_store(&mut *write, grip.file, expects, last)
                .map_err(crate::client::stop)?;
        }
        core.unsaved = true;
        self.inner.room.sub(taken(&open.container).map_err(failed)?);
        open.presence = opened;
        open.overtook = overtaken.is_some();
        if open.since.is_none() && open.presence.ground.is_none() && !all {
            open.since =
                Since::reopened(&open.presence.contents, self.inner.settings.again_bytes_min);
        }
        open.presence.save(&mut *write, grip.file).map_err(failed)?;
        write.commit(Durability::Later).map_err(failed)?;
        core.behind = was_behind;
        self.recharge(&mut core, [grip.file]);
        Ok(overtaken.is_none().then_some(before))
    }
}

/// What a change touches of a container that is a stored version so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
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

fn need<K>(grip: &Grip<K>, offset: u64, length: u64) -> Need {
    Need::Contents { file: grip.file, generation: grip.generation, offset, length }
}
