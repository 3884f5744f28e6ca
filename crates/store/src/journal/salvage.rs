//! What can still be read of a damaged journal. Reads only: the journal is left as it is.

use super::Position;
use super::envelope::{self, HEADER_BYTES};
use super::file::{ENDING, End, is_first, read_segment, walk};
use crate::error::Result;
use crate::files;
use std::path::{Path, PathBuf};

pub struct Salvaged {
    /// Every record that is whole, in order; some positions are missing where there is damage.
    pub records: Vec<(Position, Vec<u8>)>,
    /// Where bytes were passed over: file, offset, how many.
    pub damage: Vec<(PathBuf, u64, u64)>,
}

/// Goes through a journal that nobody has open, past whatever is damaged. Records before the
/// first damage are a prefix of what was appended; whether those behind it still make sense is
/// for the caller to say.
pub fn salvage(directory: &Path) -> Result<Salvaged> {
    let mut salvaged = Salvaged { records: Vec::new(), damage: Vec::new() };
    let found = files::numbered(directory, ENDING)?;
    for (index, (first, path)) in found.iter().enumerate() {
        let beyond = found.get(index + 1).map_or(Position::MAX, |(next, _)| *next);
        let bytes = read_segment(path)?;
        if !is_first(*first) {
            salvaged.damage.push((path.clone(), 0, bytes.len() as u64));
            continue;
        }
        let mut end = walk(&bytes, End::at_first(*first), |position, record| {
            salvaged.records.push((position, record.to_vec()));
        });
        end.offset = end.offset.max(HEADER_BYTES.min(bytes.len()));
        while end.offset < bytes.len() {
            let rest = &bytes[end.offset..];
            let last = beyond.min(end.next + (rest.len() / envelope::ENVELOPE_BYTES) as u64);
            let (skipped, found) = match envelope::find(rest, end.next, last) {
                Some((skipped, envelope)) => (skipped, Some(envelope)),
                None => (rest.len(), None),
            };
            if skipped > 0 {
                salvaged.damage.push((path.clone(), end.offset as u64, skipped as u64));
            }
            end.offset += skipped;
            if let Some(envelope) = found {
                salvaged.records.push((envelope.position, envelope.record.to_vec()));
                end.offset += envelope.bytes();
                end.next = envelope.position + 1;
            }
        }
    }
    Ok(salvaged)
}
