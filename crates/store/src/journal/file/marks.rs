//! Where records stand in a segment, so that some are read without those before them.

use super::{End, Segment, damaged, walk};
use crate::error::Result;
use crate::files;
use crate::journal::Position;
use crate::ordinary;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;

/// At most so many bytes of records lie between one mark and the next, but for the last of them.
const MARK_BYTES: u64 = 16 << 10;

/// Some of the records, by position: their offsets.
#[derive(Default)]
pub struct Marks(Vec<(Position, u64)>);

impl Marks {
    /// The next record stands there.
    pub fn note(&mut self, position: Position, offset: u64) {
        if self.0.last().is_none_or(|(_, last)| offset - last >= MARK_BYTES) {
            self.0.push((position, offset));
        }
    }

    /// The last mark that is not beyond a position; none of a segment without records.
    fn before(&self, position: Position) -> Option<End> {
        let behind = self.0.partition_point(|(marked, _)| *marked <= position);
        let (next, offset) = *self.0.get(behind.checked_sub(1)?)?;
        Some(End { offset: offset as usize, next })
    }
}

/// What was read of a segment.
pub struct Read {
    /// Of records.
    pub bytes: usize,
    /// None of its records is behind those that were read.
    pub to_the_end: bool,
}

/// Reads records of a segment from `from` on: about `bytes_max` bytes of them, and one at least if
/// there is one.
pub fn read_records(
    segment: &Segment,
    from: Position,
    bytes_max: usize,
    records: &mut Vec<(Position, Vec<u8>)>,
) -> Result<Read> {
    let Some(begin) = segment.marks.before(from) else {
        return Ok(Read { bytes: 0, to_the_end: true });
    };
    let left = segment.bytes as usize - begin.offset;
    let mut window = left.min(bytes_max.saturating_add(MARK_BYTES as usize));
    let failed = |source: std::io::Error| match source.kind() {
        ErrorKind::UnexpectedEof => damaged(&segment.path, begin.offset),
        _ => files::failed(&segment.path, source),
    };
    let file = ordinary::open(&segment.path, File::options().read(true)).map_err(failed)?;
    loop {
        let mut bytes = vec![0; window];
        file.read_exact_at(&mut bytes, begin.offset as u64).map_err(failed)?;
        let before = records.len();
        let (mut taken, mut passed) = (0, false);
        let end = walk(&bytes, End { offset: 0, next: begin.next }, |position, record| {
            if position < from {
                return;
            }
            if taken < bytes_max || records.len() == before {
                records.push((position, record.to_vec()));
                taken += record.len();
            } else {
                passed = true;
            }
        });
        let is_all = window == left;
        if is_all && end.offset < window {
            return Err(damaged(&segment.path, begin.offset + end.offset));
        }
        if is_all || records.len() > before {
            return Ok(Read { bytes: taken, to_the_end: is_all && !passed });
        }
        // A record that is longer than what was read.
        window = left.min(window.saturating_mul(2));
    }
}
