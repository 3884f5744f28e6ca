//! Room on the disk of a database.
//! Holds: a commit finds its room before it begins; of those that go to memory alone one in sixteen
//! does, where the disk has a gigabyte besides; what memory alone has keeps its own. Room that the disk
//! keeps from others counts, where it is ours.

use super::young::Puts;
use super::{Database, State};
use crate::error::{Result, StoreError};
use crate::files;
use crate::kept::parent_path;
use crate::table::Durability;

/// A commit is refused when the disk has less than this, besides what the commit brings: redb
/// gives up for good where a write fails, and takes with it what only memory has.
pub(super) const ROOM_BYTES_MIN: u64 = 1 << 20;

/// How much of the disk a byte that was put may take, with the pages around it.
const ROOM_FACTOR: u64 = 4;

/// What memory alone has, with what it takes on the disk, is at most one part in so many of the
/// room there: others fill the disk too, and what was committed must find its place.
const UNDURABLE_ONE_IN: u64 = 4;

/// So little may wait in any case: a disk that is nearly full is not made to sync each commit.
const WAITING_BYTES_MIN: u64 = 64 << 10;

/// Of a disk that has so much besides, commits to memory look only now and then.
const PLENTY_BYTES: u64 = 1 << 30;
/// So many go between two looks, of so many bytes each.
const UNLOOKED_MAX: u32 = 15;
const UNLOOKED_BYTES_MAX: u64 = 64 << 10;

/// What the last look has shown.
#[derive(Debug, Default)]
pub(super) struct Plenty {
    /// Commits to memory that may go without another look at the disk.
    unlooked: u32,
}

impl Plenty {
    /// Whether a commit of so many bytes may.
    pub fn goes_on(&mut self, bytes: u64) -> bool {
        let may = self.unlooked > 0 && bytes <= UNLOOKED_BYTES_MAX;
        self.unlooked = if may { self.unlooked - 1 } else { 0 };
        may
    }

    fn is_seen(&mut self, free: u64, wanted: u64) {
        let is_plenty = free >= wanted.saturating_add(PLENTY_BYTES);
        self.unlooked = if is_plenty { UNLOOKED_MAX } else { 0 };
    }
}

impl Database {
    /// Whether the disk has room for so many bytes more. What memory alone has goes there first,
    /// where that is much beside the room that is left.
    pub(super) fn find_room(&self, state: &mut State, bytes: u64) -> Result<()> {
        if self.beneath.is_only_read() {
            // Nothing of it goes to the disk.
            return Ok(());
        }
        let waiting = state.undurable_bytes + self.level().young.bytes();
        let free = files::free_bytes(parent_path(&self.path))?;
        let is_much =
            taken_by(waiting) > (free / UNDURABLE_ONE_IN).max(taken_by(WAITING_BYTES_MIN));
        let wanted = room_for(bytes + waiting);
        state.room.is_seen(free, wanted);
        let fits = free >= wanted || self.takes(bytes + waiting)?;
        if fits && !is_much {
            return Ok(());
        }
        if waiting > 0 && self.takes(waiting)? {
            self.flush(state, &Puts::new(), Durability::Now)?;
            if self.takes(bytes)? {
                return Ok(());
            }
        }
        if fits { Ok(()) } else { Err(StoreError::Full(self.path.clone())) }
    }

    /// The same for one that goes on, of which redb's transaction holds so many bytes already.
    pub(super) fn find_room_held(&self, state: &mut State, bytes: u64, held: u64) -> Result<()> {
        if held == 0 {
            return self.find_room(state, bytes);
        }
        let waiting = state.undurable_bytes + self.level().young.bytes() + held;
        match self.takes(waiting + bytes)? {
            true => Ok(()),
            false => Err(StoreError::Full(self.path.clone())),
        }
    }

    fn takes(&self, bytes: u64) -> Result<bool> {
        if self.beneath.is_only_read() {
            return Ok(true);
        }
        let wanted = room_for(bytes);
        Ok(files::usable_bytes(parent_path(&self.path), wanted)? >= wanted)
    }
}

/// What so many bytes may take of the disk.
fn taken_by(bytes: u64) -> u64 {
    bytes.saturating_mul(ROOM_FACTOR)
}

/// What the disk must have for a commit that brings so much.
fn room_for(bytes: u64) -> u64 {
    taken_by(bytes).saturating_add(ROOM_BYTES_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_there_is_plenty_some_commits_to_memory_do_without_a_look() {
        let mut room = Plenty::default();
        assert!(!room.goes_on(1), "nobody has looked");
        room.is_seen(PLENTY_BYTES + 8, 9);
        assert!(!room.goes_on(1), "it is not plenty");
        room.is_seen(PLENTY_BYTES + 9, 9);
        assert!((0..UNLOOKED_MAX).all(|_| room.goes_on(UNLOOKED_BYTES_MAX)));
        assert!(!room.goes_on(1), "it is time to look");
        room.is_seen(u64::MAX, 9);
        assert!(!room.goes_on(UNLOOKED_BYTES_MAX + 1), "it is a large one");
        assert!(!room.goes_on(1), "the look for that one counts");
    }

    #[test]
    fn a_commit_needs_room_for_what_it_brings_and_some_more() {
        assert_eq!(room_for(0), ROOM_BYTES_MIN);
        assert_eq!(room_for(1000), ROOM_BYTES_MIN + 4000);
        assert_eq!(room_for(u64::MAX), u64::MAX);
    }
}
