//! Up to where a journal was synced, in a file beside the segments: what tells damage of the newest
//! records from a tail that a power cut has torn.
//! Holds: it is never ahead of the disk. It is written after each sync and not synced itself, so
//! after a power cut it may be behind, and after a kill it is not.

use super::Position;
use crate::error::Result;
use crate::files;
use crate::ordinary::{self, Strange};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const NAME: &str = "synced";
/// The position and the checksum of its bytes, little-endian.
const BYTES: usize = 12;

pub(super) struct SyncedMark(File);

fn path(directory: &Path) -> PathBuf {
    directory.join(NAME)
}

/// 0: it does not say. What is no file is an error: the mark may have said a lot.
pub fn upto(directory: &Path) -> Result<Position> {
    let (mut bytes, path) = ([0; BYTES], path(directory));
    let file = ordinary::open(&path, File::options().read(true));
    match file.and_then(|file| file.read_exact_at(&mut bytes, 0)) {
        Err(error) if Strange::of(&error).is_some() => Err(files::failed(&path, error)),
        read => Ok(read.ok().and_then(|()| parse(&bytes)).unwrap_or(0)),
    }
}

impl SyncedMark {
    pub fn open(directory: &Path) -> Result<SyncedMark> {
        files::open(&path(directory), true).map(SyncedMark)
    }

    /// Without it less damage is told from a torn tail, and nothing else: a disk without room for it
    /// is no reason to fail.
    pub fn note(&self, upto: Position) {
        if let Err(error) = self.0.write_all_at(&sealed(upto), 0) {
            tracing::debug!(%error, upto, "the mark of what is synced stays behind");
        }
    }
}

fn sealed(upto: Position) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    let (position, checksum) = bytes.split_at_mut(8);
    position.copy_from_slice(&upto.to_le_bytes());
    checksum.copy_from_slice(&crc32c::crc32c(position).to_le_bytes());
    bytes
}

fn parse(bytes: &[u8; BYTES]) -> Option<Position> {
    let upto = u64::from_le_bytes(bytes[..8].try_into().ok()?);
    (sealed(upto) == *bytes).then_some(upto)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written_and_says_nothing_when_it_is_torn() {
        let bytes = sealed(0x0102_0304);
        assert_eq!(bytes[..8], [4, 3, 2, 1, 0, 0, 0, 0]);
        assert_eq!(parse(&bytes), Some(0x0102_0304));
        for at in 0..BYTES {
            let mut torn = bytes;
            torn[at] ^= 1;
            assert_eq!(parse(&torn), None);
        }
    }
}
