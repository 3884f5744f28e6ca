//! Reading and changing what is open.
//! Holds: a container is noted in the log as opened before the first byte of it changes; old
//! bytes that matter are all here before a new one is written.
//! From: DESIGN, "The client".

use super::first::Extent;
use super::{Altered, FILE_BYTES_MAX, Grip, Images, OpenFile};
use crate::client::{Client, failed};
use crate::locks::Owner;
use crate::mode;
use crate::ranks::{self, Rank};
use crate::types::{Caller, Done, Error, Handle, Need, Step, Stop};
use crate::unreadable::readable;
use model::FileId;
use protocol::Upstream;
use std::sync::atomic::Ordering;
use store::{Container, Containers, Result as StoreResult};

/// Held by who changes a container: nobody makes a version of it meanwhile.
pub(super) type Writing<'a> = ranks::Reading<'a, ()>;

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
        let bytes = match self.read_landed(&grip, offset, length) {
            Ok(bytes) => bytes,
            Err(error) => {
                let unread = Self::need_of_unread(&grip, (offset, length as u64), error)?;
                return Err(Stop::Need(unread));
            }
        };
        if grip.left.load(Ordering::Acquire) != left {
            // Some of it may have left the cache meanwhile: the next try looks again.
            return Err(Stop::Need(need(&grip, offset, length as u64)));
        }
        Ok(bytes)
    }

    /// Whether what is written through a handle goes to the end: fcntl(2) may change that after the
    /// file was opened.
    pub fn appends(&self, handle: Handle, appends: bool) {
        if let Some(state) = self.files().handles.get_mut(&handle.0) {
            state.flags.append = appends;
        }
    }

    /// Whether what is written through a handle goes around the kernel's cache. Then the kernel leaves it to
    /// us what is to be safe when the call returns.
    pub fn is_past_cache(&self, handle: Handle) -> bool {
        self.files().handles.get(&handle.0).is_some_and(|state| state.direct)
    }

    /// Writes all of `bytes`.
    pub fn write(&self, handle: Handle, offset: u64, bytes: &[u8]) -> Step<()> {
        let end = offset.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > FILE_BYTES_MAX) {
            return Err(Error::TooLarge.into());
        }
        self.has_its_locks(handle)?;
        // Nobody makes a version of half of it.
        self.while_writing(handle, |writing| {
            let ground_ends = self.files().ground_ends_within(handle, offset, bytes.len() as u64);
            let (upon, behind) = bytes.split_at(ground_ends.unwrap_or(0));
            if !upon.is_empty() {
                self.has_quota_to_write(handle, Some(offset), bytes.len() as u64)?;
                // Of what lies upon the ground the log is told when it is there. If a crash comes before
                // that, nothing may lie behind the end that it had, as if that alone had been written.
                self.write_one(handle, offset, upon, writing)?;
            }
            self.write_one(handle, offset + upon.len() as u64, behind, writing)
        })
    }

    /// Works on what a handle has open while nobody makes a version of it, and it does not go on with
    /// another one.
    pub(super) fn while_writing<T>(
        &self,
        handle: Handle,
        work: impl FnOnce(&Writing<'_>) -> Step<T>,
    ) -> Step<T> {
        loop {
            let grip = self.files().grip(handle)?.0;
            let writing = ranks::read(Rank::Still, &grip.still);
            if self.files().grip(handle)?.0.generation == grip.generation {
                return work(&writing);
            }
        }
    }

    fn write_one(
        &self,
        handle: Handle,
        offset: u64,
        bytes: &[u8],
        writing: &Writing<'_>,
    ) -> Step<()> {
        let end = offset.checked_add(bytes.len() as u64);
        let appends = self.files().appends_directly(handle);
        let change = match end {
            Some(end) if !appends => Extent::Stretch(offset, end),
            _ => Extent::Grows,
        };
        self.has_quota_to_write(handle, (!appends).then_some(offset), bytes.len() as u64)?;
        let end = std::cell::OnceCell::new();
        self.alter_while(writing, handle, 0, change, |container| {
            // The kernel's idea of the end may be that of another version. And a second try goes
            // where the first one went.
            let found = if appends { container.length()? } else { offset };
            let start = *end.get_or_init(|| found);
            container.write(start, bytes)?;
            Ok(Altered::Stretch(start..start + bytes.len() as u64))
        })
    }

    /// close(2) of one descriptor: what was written becomes an update. Contents that were only cut
    /// to nothing do so with the last close: a shell that redirects closes a copy first, and
    /// nobody wants to see the file empty.
    pub fn flush(&self, caller: Caller, handle: Handle) -> Step<Done<()>> {
        self.flush_one(caller, handle, None)
    }

    /// The same by one who may have locked records, and gives them up with this: whoever gets them
    /// is to see that the contents were cut.
    pub fn flush_by(&self, caller: Caller, handle: Handle, owner: Owner) -> Step<Done<()>> {
        self.flush_one(caller, handle, Some(owner))
    }

    fn flush_one(&self, caller: Caller, handle: Handle, owner: Option<Owner>) -> Step<Done<()>> {
        if self.is_flushed_unseen(handle) {
            return Ok(Done { value: (), wait: None });
        }
        let (grip, flags) = self.files().grip(handle)?;
        let only_cut = |open: &OpenFile<_>| open.only_cut;
        if !flags.write {
            return Ok(Done { value: (), wait: None });
        }
        let cut = self.files().get(grip.file, grip.generation).is_some_and(only_cut);
        let counts = |owner| self.leased_alone(grip.file, owner);
        let leave = cut && !owner.is_some_and(counts);
        let wait = if leave { None } else { self.store_open(handle, caller.uid)?.1 };
        self.sync_what_failed().map_err(failed)?;
        Ok(Done { value: (), wait })
    }

    /// As `flush`, also where contents were only cut: whoever gives a lock up is done with them.
    pub(crate) fn store_written(&self, caller: Caller, handle: Handle) -> Step<Done<()>> {
        let (_, flags) = self.files().grip(handle)?;
        let wait = if flags.write { self.store_open(handle, caller.uid)?.1 } else { None };
        Ok(Done { value: (), wait })
    }

    /// Stores what was written of what a handle has open. It may go on with another version meanwhile, if
    /// others have stored all of it.
    fn store_open(&self, handle: Handle, uid: u32) -> Step<(Grip<C::Container>, Option<u64>)> {
        loop {
            let grip = self.files().grip(handle)?.0;
            match self.store_or_leave(&grip, uid) {
                Err(Stop::Error(Error::BadHandle)) if self.still_open(&grip).is_none() => {}
                outcome => return Ok((grip, outcome?)),
            }
        }
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
        let file = self.files().grip(handle)?.0.file;
        self.files().is_not_plain(file);
        let (grip, wait) = self.store_open(handle, caller.uid)?;
        grip.container.sync().map_err(failed)?;
        // Of what was stored before it is what others get.
        let is_unseen = self.files().kernel_writes(grip.file, grip.generation);
        if is_unseen || self.core().log.pending_store(grip.file).is_some() {
            self.keep_container(&grip)?;
        }
        self.make_sure(grip.file)?;
        Ok(Done { value: (), wait })
    }

    /// fsync(2) of a directory: what was done to names is safe from a power cut. In connected mode
    /// each change has waited for its verdict already.
    pub fn sync_names(&self) -> Step<()> {
        self.settle_closed(None);
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
            self.has_its_locks(handle)?;
            self.resize(handle, size, caller.uid, false)?;
            return Ok(None);
        }
        let opened = self.open_for_us(caller, file)?;
        let outcome = self
            .resize(opened.handle, size, caller.uid, true)
            .and_then(|()| Ok(self.store_open(opened.handle, caller.uid)?.1));
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
            files.room_is_cut(grip.file, grip.generation);
            if let Some(open) = files.get_mut(grip.file, grip.generation) {
                open.only_cut = nothing_else;
            }
            return Ok(());
        }
        let before = grip.container.length().map_err(failed)?;
        if before == size && self.is_dirty(&grip) {
            let now = self.inner.world.clock.time();
            if let Some(open) = self.files().get_mut(grip.file, grip.generation) {
                open.note_changed(now);
            }
            return Ok(());
        }
        self.alter(handle, uid, Extent::From(size), |container| {
            container.set_length(size).map(|()| Altered::Length(size))
        })?;
        if size <= before {
            self.files().room_is_cut(grip.file, grip.generation);
        }
        self.charge_cut(handle, size)
    }

    pub(super) fn is_dirty(&self, grip: &Grip<C::Container>) -> bool {
        self.files()
            .get(grip.file, grip.generation)
            .is_some_and(|open| open.presence.dirty.is_some())
    }

    /// Changes a container; `change` says what of it. What is left of the old bytes must be here,
    /// or it must be known where they are, and the log must know of the change before. A change
    /// that finds the disk full is tried again with less in the cache.
    pub(super) fn alter(
        &self,
        handle: Handle,
        uid: u32,
        extent: Extent,
        change: impl Fn(&C::Container) -> StoreResult<Altered>,
    ) -> Step<()> {
        self.while_writing(handle, |writing| self.alter_while(writing, handle, uid, extent, change))
    }

    /// While the caller keeps whoever makes versions of the container away.
    fn alter_while(
        &self,
        _writing: &Writing<'_>,
        handle: Handle,
        uid: u32,
        extent: Extent,
        change: impl Fn(&C::Container) -> StoreResult<Altered>,
    ) -> Step<()> {
        let (grip, flags) = self.files().grip(handle)?;
        if !flags.write {
            return Err(Error::BadHandle.into());
        }
        // What is kept aside may be lent, for want of an inode that a file here has.
        self.with_room(|| self.begin_to_alter(&grip, uid, extent))?;
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

    pub(super) fn begin_to_alter(
        &self,
        grip: &Grip<C::Container>,
        uid: u32,
        extent: Extent,
    ) -> Step<()> {
        let _opening = ranks::lock(Rank::Opening, &grip.opening);
        if self.is_dirty(grip) {
            self.begin_to_write_over(grip, extent)?;
            self.forget_time_set(grip)?;
            return self.go_on_upon_ground(grip);
        }
        self.begin_first_change(grip, uid, extent)
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
            let old = readable(container.read(from, length)).map_err(failed)?;
            let mut files = self.files();
            let Some(open) = files.get_mut(grip.file, grip.generation) else { return Ok(()) };
            // What is written over it can be read again, and is sent as it is.
            let fits = |images: &mut Images| old.is_some_and(|old| images.note(from, &old));
            if !open.images.as_mut().is_some_and(fits) {
                open.images = None;
            }
        }
        Ok(())
    }
}

pub(super) fn need<K>(grip: &Grip<K>, offset: u64, length: u64) -> Need {
    Need::Contents { file: grip.file, generation: grip.generation, offset, length }
}
