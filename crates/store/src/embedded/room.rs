//! Room on the disk of a database.
//! Holds: a commit finds its room before it begins; what memory alone has keeps its own.

use super::young::Puts;
use super::{Database, State};
use crate::error::{Result, StoreError};
use crate::files;
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

impl Database {
    /// Whether the disk has room for so many bytes more. What memory alone has goes there first,
    /// where that is much beside the room that is left.
    pub(super) fn find_room(&self, state: &mut State, bytes: u64) -> Result<()> {
        let waiting = state.undurable_bytes + self.level().young.bytes();
        let free = files::free_bytes(&self.path)?;
        let is_much =
            taken_by(waiting) > (free / UNDURABLE_ONE_IN).max(taken_by(WAITING_BYTES_MIN));
        let fits = has_room(free, bytes + waiting);
        if fits && !is_much {
            return Ok(());
        }
        if waiting > 0 && has_room(free, waiting) {
            self.flush(state, &Puts::new(), Durability::Now)?;
            if has_room(files::free_bytes(&self.path)?, bytes) {
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
        match has_room(files::free_bytes(&self.path)?, waiting + bytes) {
            true => Ok(()),
            false => Err(StoreError::Full(self.path.clone())),
        }
    }
}

/// What so many bytes may take of the disk.
fn taken_by(bytes: u64) -> u64 {
    bytes.saturating_mul(ROOM_FACTOR)
}

fn has_room(free_bytes: u64, bytes: u64) -> bool {
    free_bytes >= taken_by(bytes).saturating_add(ROOM_BYTES_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_needs_room_for_what_it_brings_and_some_more() {
        assert!(has_room(ROOM_BYTES_MIN, 0));
        assert!(!has_room(ROOM_BYTES_MIN, 1));
        assert!(!has_room(u64::MAX - 1, u64::MAX));
        assert!(has_room(ROOM_BYTES_MIN + 4000, 1000));
    }
}
