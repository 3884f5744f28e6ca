//! What came lately, by itself in memory: what comes next is sent as what it adds to it.
//! Holds: its bytes are bounded; every version in it came from the replica above, whole.

use super::bounds::Bounds;
use model::{FileId, Stamp};
use protocol::{BASE_BYTES_MAX, GATHERED_FILES_MAX};
use std::collections::VecDeque;
use std::sync::Arc;

const HELD_BYTES_MAX: u64 = BASE_BYTES_MAX / 4 * 3;
/// Larger files leave no room for others.
const FILE_BYTES_MAX: u64 = HELD_BYTES_MAX / 2;

/// One version that came whole.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub file: FileId,
    pub version: Stamp,
    pub bytes: Arc<[u8]>,
}

/// The newest last.
#[derive(Debug, Default)]
pub(crate) struct Held {
    kept: VecDeque<Kept>,
    bytes: u64,
}

impl Held {
    pub fn keep(&mut self, file: FileId, version: Stamp, bytes: &[u8]) {
        let size = bytes.len() as u64;
        if size == 0 || size > FILE_BYTES_MAX {
            return;
        }
        self.bytes += size;
        self.kept.push_back(Kept { file, version, bytes: bytes.into() });
        while self.bytes > HELD_BYTES_MAX || self.kept.len() > GATHERED_FILES_MAX {
            let Some(oldest) = self.kept.pop_front() else { return };
            self.bytes -= oldest.bytes.len() as u64;
        }
    }

    /// As many of the newest as are worth naming, the oldest first.
    pub fn newest(&self, bounds: &Bounds) -> Vec<Kept> {
        let first = self.kept.len().saturating_sub(bounds.held_max);
        self.kept.range(first..).cloned().collect()
    }

    pub fn clear(&mut self) {
        *self = Held::default();
    }
}

/// The bytes of versions, one after another.
pub(crate) fn joined(kept: &[Kept]) -> Vec<u8> {
    let parts: Vec<&[u8]> = kept.iter().map(|one| &one.bytes[..]).collect();
    parts.concat()
}
