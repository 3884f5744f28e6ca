//! What a snapshot shows and what is here already as the file is now: nothing travels.
//! Holds: bytes count only if the file was that very version before and after they were read.

use super::Target;
use crate::client::{Client, error_of};
use crate::files::OpenFile;
use crate::presence::Presence;
use crate::types::Error;
use chunks::Placed;
use model::{FileId, Past, Piece, Stamp};
use protocol::{Range, Upstream};
use store::container::Key;
use store::{Container, Containers, StoreError};

/// Bytes that are copied at once.
const STEP_BYTES: u64 = 1 << 20;

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

impl<U: Upstream, C: Containers> Client<U, C> {
    /// True: the stretch is here now.
    pub(super) fn take_from_twin(
        &self,
        target: &Target<C::Container>,
        range: Range,
    ) -> Result<bool, Error> {
        let Some(now) = now_of(target.file) else { return Ok(false) };
        let row = || -> Result<Option<Presence>, StoreError> {
            let of_it = |open: &&OpenFile<_>| open.presence.version == target.version;
            let clean = self.files().generations(now).filter(of_it).all(OpenFile::is_clean);
            let row = Presence::load(&*self.inner.tables.read()?, now)?;
            let fits = |row: &Presence| is_here(row, target.version);
            Ok(row.filter(|row| fits(row) && clean && row.has(range.offset, range.length)))
        };
        let Some(found) = row().map_err(error_of)? else { return Ok(false) };
        let key = Key { file: now.0, generation: found.generation };
        let Some(container) = self.inner.containers.open(key, false).map_err(error_of)? else {
            return Ok(false);
        };
        for (from, length) in container.data(range.offset, range.length).map_err(error_of)? {
            let mut at = from;
            while at < from + length {
                let step = STEP_BYTES.min(from + length - at) as usize;
                let bytes = container.read(at, step).map_err(error_of)?;
                if bytes.is_empty() {
                    break;
                }
                self.fill(target, at, &bytes)?;
                at += bytes.len() as u64;
            }
        }
        // Somebody may have begun to change it, or some of it may have left the cache.
        let is_same = |row: &Presence| row.generation == found.generation;
        if !row().map_err(error_of)?.as_ref().is_some_and(is_same) {
            return Ok(false);
        }
        let whole = Piece::Zeros { length: range.length };
        self.note_checked(
            target,
            found.contents,
            &[Placed { offset: range.offset, piece: whole }],
            |_| Ok(()),
        )?;
        Ok(true)
    }
}
