//! Room that a program has set aside in an open file, and holes that it has made.
//! Holds: what there is no room for is refused, and nothing is changed; room beyond the end is kept
//! for as long as somebody has the file open, and counts as what the cache holds.

use super::first::Extent;
use super::{Altered, FILE_BYTES_MAX, Files, OpenFile};
use crate::client::{Client, failed};
use crate::room::taken;
use crate::types::{Allocate, Error, Handle, Step};
use model::FileId;
use protocol::Upstream;
use store::container::Sizes;
use store::{Container, Containers, Result as StoreResult};

/// What a container takes beyond its last block without anybody having asked for it.
const BESIDES_BYTES: u64 = 64 << 10;

impl<U: Upstream, C: Containers> Client<U, C> {
    /// fallocate(2).
    pub fn allocate(&self, handle: Handle, offset: u64, length: u64, mode: Allocate) -> Step<()> {
        let end = offset.checked_add(length).filter(|end| *end <= FILE_BYTES_MAX);
        let Some(end) = end else { return Err(Error::TooLarge.into()) };
        self.has_its_locks(handle)?;
        let change = match mode {
            Allocate::Keep | Allocate::Extend => Extent::Grows,
            Allocate::Punch | Allocate::Zero | Allocate::ZeroWithin => Extent::From(offset),
        };
        let counts_to = match mode {
            Allocate::Punch => offset,
            Allocate::Extend | Allocate::Zero => end,
            // What lies beyond the end is none of the contents.
            Allocate::Keep | Allocate::ZeroWithin => {
                let (grip, _) = self.files().grip(handle)?;
                end.min(grip.container.length().map_err(failed)?)
            }
        };
        self.has_quota_to_write(handle, Some(offset), counts_to.saturating_sub(offset))?;
        if mode != Allocate::Punch {
            // A disk that has become full may keep a part of what it was asked for.
            let (grip, _) = self.files().grip(handle)?;
            if let Some(open) = self.files().get_mut(grip.file, grip.generation) {
                open.room_to = open.room_to.max(end);
            }
        }
        let done = self.alter(handle, 0, change, |container| {
            let size = container.length()?;
            match mode {
                // What is not here stays away: nothing of it is as it was not before.
                Allocate::Keep => {
                    container.set_aside(offset, length)?;
                    return Ok(Altered::Nothing);
                }
                Allocate::Extend => {
                    let grows_from = offset.max(size);
                    container.allocate(offset, length)?;
                    let grows = grows_from < end;
                    return Ok(if grows {
                        Altered::Room(grows_from..end)
                    } else {
                        Altered::Nothing
                    });
                }
                Allocate::Punch => {
                    let end = end.min(size);
                    if offset < end {
                        container.punch(offset, end - offset)?;
                    }
                }
                Allocate::Zero | Allocate::ZeroWithin => {
                    container.zero(offset, length)?;
                    if mode == Allocate::Zero && end > size {
                        container.set_length(end)?;
                    }
                }
            }
            // Of what it makes longer, the end tells.
            Ok(Altered::Room(offset..end))
        });
        if mode != Allocate::Punch {
            self.inner.room.wanted.notify_one();
        }
        done
    }
}

impl<K: Container> OpenFile<K> {
    /// Bytes of the disk that are set aside beyond the end.
    fn room_beyond(&self) -> StoreResult<u64> {
        if self.room_to == 0 {
            return Ok(0);
        }
        let Sizes { length, allocated } = self.container.sizes()?;
        Ok(self.room_to.saturating_sub(length).min(allocated))
    }

    /// Nobody has it open any more.
    pub(super) fn give_room_back(&self) {
        if self.room_to == 0 {
            return;
        }
        // Nobody else can write to it: whoever opens it waits for the lock that the caller holds.
        let length = self.container.length();
        if let Err(error) = length.and_then(|length| self.container.set_length(length)) {
            tracing::warn!(%error, "room that was set aside beyond the end of a file stays");
        }
    }

    /// Its container is from before it was opened, perhaps with what was set aside until this machine
    /// stopped.
    pub(super) fn look_for_room(&mut self, file: FileId) {
        match self.container.sizes() {
            Ok(Sizes { length, allocated }) => {
                let beyond = allocated.saturating_sub(length);
                let is_set_aside = beyond > BESIDES_BYTES;
                self.room_to = if is_set_aside { length.saturating_add(beyond) } else { 0 };
            }
            Err(error) => tracing::debug!(%error, %file, "what is set aside of it is not known"),
        }
    }
}

impl<K: Container> Files<K> {
    /// Bytes that were written and not stored, and those of room that was set aside beyond the end.
    pub fn written_bytes(&self) -> StoreResult<u64> {
        let written = self.open.values().filter(|open| open.presence.dirty.is_some());
        let written: StoreResult<u64> = written.map(|open| taken(&open.container)).sum();
        let beyond: StoreResult<u64> = self.open.values().map(OpenFile::room_beyond).sum();
        Ok(written?.saturating_add(beyond?))
    }

    /// It was cut: of what was set aside beyond the end nothing is left.
    pub(super) fn room_is_cut(&mut self, file: FileId, generation: u32) {
        if let Some(open) = self.get_mut(file, generation) {
            open.room_to = 0;
        }
    }
}
