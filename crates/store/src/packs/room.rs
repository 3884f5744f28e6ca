//! Room on the disk of the packs: what blobs leave of it, and in which pieces a pack is written
//! anew where there is little.

use super::Packs;
use crate::error::{Result, StoreError};
use crate::files::Disk;
use crate::reserve::tidying_bytes;

/// What a piece leaves on the disk, for the index and whoever else writes.
const LEFT_BYTES: u64 = 1536 << 10;

/// A piece is no smaller, however little room there is: it would free next to nothing.
const PIECE_BYTES_MIN: u64 = 128 << 10;

impl Packs {
    /// A full disk must not keep anybody from tidying up what has filled it.
    pub(super) fn leave_room(&self, more: u64) -> Result<()> {
        if more == 0 || more <= self.room_for_blobs()? {
            return Ok(());
        }
        Err(StoreError::Full(self.directory.clone()))
    }

    pub(super) fn room_for_blobs(&self) -> Result<u64> {
        Ok(for_blobs(Disk::of(&self.directory)?))
    }

    /// How much of a pack is copied before its end is cut off.
    pub(super) fn piece_bytes(&self) -> Result<u64> {
        Ok(piece_of(Disk::of(&self.directory)?.free).min(self.piece_bytes_max))
    }
}

fn for_blobs(disk: Disk) -> u64 {
    match disk.total {
        // A file system that does not count what it has.
        0 => u64::MAX,
        total => disk.free.saturating_sub(tidying_bytes(total)),
    }
}

fn piece_of(free: u64) -> u64 {
    (free.saturating_sub(LEFT_BYTES) / 2).max(PIECE_BYTES_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blobs_leave_what_tidying_up_needs_and_do_not_count_what_is_kept_from_others() {
        let disk = |free| Disk { total: 48 << 20, free, unused: 40 << 20, files_left: None };
        assert_eq!(for_blobs(disk(5 << 20)), 3 << 20);
        assert_eq!(for_blobs(disk(1 << 20)), 0);
        assert_eq!(for_blobs(Disk { total: 0, free: 0, unused: 0, files_left: None }), u64::MAX);
    }

    #[test]
    fn pieces_are_as_large_as_there_is_room_for() {
        assert_eq!(piece_of(0), PIECE_BYTES_MIN);
        assert_eq!(piece_of(LEFT_BYTES + (8 << 20)), 4 << 20);
    }
}
