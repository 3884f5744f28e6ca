//! Whether what was appended is in the files still, and how it is put there anew.
//! Holds: what another program has removed, cut short or put in the place of a segment is noticed
//! before the next record is appended, and after each sync before anybody is told of it; nothing is
//! made where the journal's directory no longer lies.

use super::{ENDING, FileJournal, SALVAGE, Segment, State, SyncedMark, newest};
use crate::error::Result;
use crate::files::{self, locked};
use crate::journal::envelope;
use crate::kept::{Identity, identity, is_gone, moved, parent_of, parent_path};
use std::fs::{File, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// Segments before the newest that are kept open: what is removed can be had from them.
pub const OPEN_MAX: usize = 16;
/// Of the segments before the newest so many are looked at after a sync, in turns.
pub const LOOKED_AT: usize = 8;

/// What is kept of the newest segment grows by so much: twice as much would be for nothing.
const GROWS_BY: usize = 256 << 10;

/// A segment to which records are appended, and which file it is.
pub struct Open {
    pub file: Arc<File>,
    is: Identity,
}

impl Open {
    pub fn of(file: File, path: &Path) -> Result<Open> {
        let is = identity(&file.metadata().map_err(|source| files::failed(path, source))?);
        Ok(Open { file: Arc::new(file), is })
    }
}

pub fn add(kept: &mut Vec<u8>, bytes: &[u8]) {
    if kept.capacity() - kept.len() < bytes.len() {
        kept.reserve_exact(bytes.len().max(GROWS_BY));
    }
    kept.extend_from_slice(bytes);
}

impl FileJournal {
    /// Before a record is appended: behind an end that is not ours it would hide what is gone.
    pub(super) fn look_at_newest(&self, state: &mut State) -> Result<()> {
        if is_newest_there(state) { Ok(()) } else { self.put_all_anew(state) }
    }

    /// After a sync, and where something could not be read: at the newest segment, and so many before
    /// it. Ok(true): something was put there anew.
    pub(super) fn look(&self, state: &mut State, before_max: usize) -> Result<bool> {
        let before = state.segments.len() - 1;
        let looked_at = before.min(before_max);
        let mut turn = (state.turn..).take(looked_at).map(|index| index % before);
        if turn.all(|index| is_there(&state.segments[index])) && is_newest_there(state) {
            state.turn = (state.turn + looked_at) % before.max(1);
            return Ok(false);
        }
        self.put_all_anew(state)?;
        Ok(true)
    }

    /// Writes what is not there any more: the newest segment from memory, others from what is open.
    fn put_all_anew(&self, state: &mut State) -> Result<()> {
        if parent_of(&self.directory).ok() != Some(self.parent) {
            return Err(moved(&self.directory));
        }
        match std::fs::create_dir(&self.directory) {
            Ok(()) => files::sync_directory(parent_path(&self.directory))?,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(files::failed(&self.directory, error)),
        }
        self.lock_again()?;
        let count = state.segments.len();
        for index in 0..count - 1 {
            if !is_there(&state.segments[index]) {
                let bytes = still_open(&state.segments[index])?;
                let segment = &mut state.segments[index];
                segment.file = Some(Arc::new(self.write_anew(&segment.path, &bytes)?));
            }
        }
        if !is_newest_there(state) {
            let path = &newest(state).path;
            let file = self.write_anew(path, &state.newest_bytes)?;
            state.newest = Open::of(file, path)?;
            self.group.note(state.next - 1);
        }
        let mut mark = locked(&self.mark);
        *mark = SyncedMark::open(&self.directory)?;
        mark.note(self.group.synced());
        state.put_anew += 1;
        tracing::error!(
            directory = %self.directory.display(),
            "another program has removed or changed files here that are in use; they are written anew, \
             and nothing is lost"
        );
        Ok(())
    }

    /// Where the file is gone that says that the directory is in use.
    fn lock_again(&self) -> Result<()> {
        let mut lock = locked(&self.lock);
        if links(&lock) == 0 || !self.directory.join(files::LOCK_FILE).exists() {
            *lock = files::lock_directory(&self.directory)?;
        }
        Ok(())
    }

    /// On the disk, all of it, when it has its name.
    fn write_anew(&self, path: &Path, bytes: &[u8]) -> Result<File> {
        let aside = path.with_extension(format!("{}.new", &ENDING[1..]));
        let written = files::open(&aside, true).and_then(|file| {
            let failed = |source| files::failed(path, source);
            file.set_len(0).map_err(failed)?;
            files::append_at(&file, &aside, 0, bytes)?;
            file.sync_data().map_err(failed)?;
            if path.is_dir() {
                files::remove(path)?;
            }
            std::fs::rename(&aside, path).map_err(failed)?;
            files::sync_directory(&self.directory)?;
            Ok(file)
        });
        if written.is_err()
            && let Err(error) = files::remove(&aside)
        {
            tracing::warn!(%error, "half a segment stays");
        }
        written
    }
}

fn is_newest_there(state: &State) -> bool {
    let is_whole = |open: Metadata| open.nlink() > 0 && open.len() == newest(state).bytes;
    match lies(newest(state), Some(state.newest.is)) {
        // The open file was seen by its name.
        Some(lies) => lies,
        None => state.newest.file.metadata().is_ok_and(is_whole),
    }
}

fn is_there(segment: &Segment) -> bool {
    let open = segment.file.as_ref().and_then(|file| file.metadata().ok());
    lies(segment, open.as_ref().map(identity)).unwrap_or(true)
}

/// Where its name says, and as the file that is open, if one is. None: what may not be looked at may
/// be there all the same.
fn lies(segment: &Segment, open: Option<Identity>) -> Option<bool> {
    let is_open_one = |found: &Metadata| open.is_none_or(|open| open == identity(found));
    match std::fs::symlink_metadata(&segment.path) {
        Ok(found) => Some(found.is_file() && found.len() == segment.bytes && is_open_one(&found)),
        Err(error) if is_gone(&error) => Some(false),
        Err(_) => None,
    }
}

fn links(file: &File) -> u64 {
    file.metadata().map_or(0, |metadata| metadata.nlink())
}

/// The bytes of a segment, if they are what was written.
fn still_open(segment: &Segment) -> Result<Vec<u8>> {
    let Segment { first, path, bytes, file, .. } = segment;
    let gone = || {
        let what =
            "what was written is not here any more: another program has removed or changed it";
        files::damaged(path, 0, format!("{what}; {SALVAGE}"))
    };
    let file = file.as_ref().ok_or_else(gone)?;
    let read = files::read_at(file, path, 0, *bytes as usize)?;
    let is_ours = envelope::parse_header(&read) == envelope::Header::First(*first);
    let end = super::walk(&read, super::End::at_first(*first), |_, _| {});
    if is_ours && end.offset as u64 == *bytes { Ok(read) } else { Err(gone()) }
}
