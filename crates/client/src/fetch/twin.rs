//! What a snapshot shows of a file, and what is here of it as it is now.

use crate::presence::Presence;
use model::{FileId, Past, Stamp};

/// The file that a snapshot shows as it was, as it is now.
pub(crate) fn now_of(file: FileId) -> Option<FileId> {
    match file.past() {
        Some(Past::Of(_, now)) => Some(now),
        _ => None,
    }
}

/// Whether what is here of a file is this version, as it was stored.
pub(crate) fn is_here(row: &Presence, version: Stamp) -> bool {
    row.version == version && row.dirty.is_none() && row.ground.is_none()
}
