//! What can still be read of a damaged journal. Reads only: the journal is left as it is.

use super::Position;
use super::envelope::{self, HEADER_BYTES, Header};
use super::file::{ENDING, End, is_first, read_header, synced, walk};
use crate::error::{Result, StoreError};
use crate::{blocks, files, ordinary};
use std::fs::File;
use std::path::{Path, PathBuf};

#[derive(Default)]
pub struct Salvaged {
    /// Every record that is whole, in order; some positions are missing where there is damage.
    pub records: Vec<(Position, Vec<u8>)>,
    /// Where bytes were passed over: file, offset, how many.
    pub damage: Vec<(PathBuf, u64, u64)>,
    /// The first position of each segment, in order, as its name says.
    pub begun: Vec<Position>,
    /// One segment at least is there whose header is whole, as of every journal that was ever opened.
    pub is_there: bool,
    /// Records up to this one had been synced. 0: that is not said.
    pub synced: Position,
    /// Records that were found behind damage, and have the position of what is damaged: they may be
    /// what another record holds.
    pub doubtful: Vec<Position>,
}

impl Salvaged {
    /// Stretches of positions, the first and the last of each, of records that there were and that
    /// are not among these. `known`: there were records up to this one. What is missing before the
    /// first segment may have been retired, and does not count while there is a segment.
    pub fn missing(&self, known: Position) -> Vec<(Position, Position)> {
        let first = self.begun.first().copied().unwrap_or(1);
        let begun = self.begun.last().map_or(0, |begun| begun - 1);
        let last = self.synced.max(known).max(begun);
        let there = self.records.iter().map(|(position, _)| *position);
        let (mut missing, mut next) = (Vec::new(), first);
        for position in there.chain([last + 1]).filter(|position| *position >= first) {
            if position > next {
                missing.push((next, position - 1));
            }
            next = next.max(position + 1);
        }
        missing
    }
}

/// Goes through a journal that nobody has open, past whatever is damaged. Records before the
/// first damage are a prefix of what was appended; whether those behind it still make sense is
/// for the caller to say. Errors: something else stands in its place.
pub fn salvage(directory: &Path) -> Result<Salvaged> {
    let synced = synced::upto(directory).unwrap_or(0);
    let mut salvaged = Salvaged { synced, ..Salvaged::default() };
    if !files::is_directory(directory)? {
        return Ok(salvaged);
    }
    let found = files::numbered(directory, ENDING)?;
    for (index, (first, path)) in found.iter().enumerate() {
        let beyond = found.get(index + 1).map_or(Position::MAX, |(next, _)| *next);
        let bytes = match read_segment_where_it_can_be(path) {
            // Nobody knows how much is missing.
            Err(StoreError::Strange { .. }) => {
                salvaged.damage.push((path.clone(), 0, 0));
                continue;
            }
            read => read?,
        };
        if !is_first(*first) {
            salvaged.damage.push((path.clone(), 0, bytes.len() as u64));
            continue;
        }
        salvaged.begun.push(*first);
        salvaged.is_there |= envelope::parse_header(&bytes) == Header::First(*first);
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
                if skipped > 0 && envelope.position == end.next {
                    salvaged.doubtful.push(envelope.position);
                }
                salvaged.records.push((envelope.position, envelope.record.to_vec()));
                end.offset += envelope.bytes();
                end.next = envelope.position + 1;
            }
        }
    }
    Ok(salvaged)
}

/// Whether a newer farfs has written to it, as far as can be seen: then it may be whole.
pub fn is_of_newer(directory: &Path) -> bool {
    let is_newer = |path: &PathBuf| {
        let header = read_header(path).map(|(header, _)| envelope::parse_header(&header));
        matches!(header, Ok(Header::Newer(_)))
    };
    files::numbered(directory, ENDING)
        .is_ok_and(|found| found.iter().any(|(_, path)| is_newer(path)))
}

/// With zeros, which are no records, for what the disk has lost of it.
fn read_segment_where_it_can_be(path: &Path) -> Result<Vec<u8>> {
    let opened = ordinary::open(path, File::options().read(true));
    let file = opened.map_err(|source| files::failed(path, source))?;
    let length = usize::try_from(files::length(&file, path)?).unwrap_or(usize::MAX);
    blocks::read_what_is_there(&file, path, 0, length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{FileJournal, Journal};

    #[test]
    fn what_the_disk_still_has_of_a_journal_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let journal = FileJournal::open(directory.path()).unwrap();
        for number in 0..30_u8 {
            journal.append(&[number; 1000]).unwrap();
        }
        journal.sync().unwrap();
        drop(journal);
        let (_, path) = files::numbered(directory.path(), ENDING).unwrap().remove(0);
        blocks::lost::lose(&path, 2..3);
        let salvaged = salvage(directory.path()).unwrap();
        blocks::lost::find_again();
        let there: Vec<u64> = salvaged.records.iter().map(|(position, _)| *position).collect();
        assert!((23..=26).contains(&there.len()) && there.contains(&30), "{there:?}");
        assert!(salvaged.records.iter().all(|(at, record)| record == &[*at as u8 - 1; 1000]));
        assert_eq!(salvaged.missing(0).len(), 1, "{there:?}");
        assert!(!salvaged.damage.is_empty());
    }
}
