//! A journal: records appended in order, read back in order, retired from the front.
//! Holds: after a crash the records are a prefix of those appended, with all that was synced;
//! after the process alone was killed, all that `append` returned for.

use crate::error::Result;

mod envelope;
mod file;
mod salvage;

pub use envelope::RECORD_BYTES_MAX;
pub(crate) use envelope::sealed;
pub use file::{AsItIs, FileJournal, SEGMENT_BYTES};
pub(crate) use salvage::is_of_newer;
pub use salvage::{Salvaged, salvage};

/// Bytes of records that are read at once by whoever reads them all.
pub const READ_BYTES: usize = 1 << 20;

/// Where a record stands: counted from 1, never used again.
pub type Position = u64;

pub trait Journal: Send + Sync + 'static {
    /// The next position; the record survives the process when this returns.
    fn append(&self, record: &[u8]) -> Result<Position>;

    /// The position that `append` gives next. Beyond the records that are kept, it tells how many
    /// there have been.
    fn next(&self) -> Position;

    /// All records appended before are safe from a power cut when this returns. Concurrent
    /// callers share one sync.
    fn sync(&self) -> Result<()>;

    /// Records from position `from` on that are kept, in order: those of about `bytes_max` bytes,
    /// and one at least, if there is one.
    fn read(&self, from: Position, bytes_max: usize) -> Result<Vec<(Position, Vec<u8>)>>;

    /// Records from the first that is kept, in order.
    fn records(&self) -> Result<Vec<(Position, Vec<u8>)>> {
        let mut records = Vec::new();
        let mut from = 0;
        loop {
            let read = self.read(from, READ_BYTES)?;
            let Some((last, _)) = read.last() else { return Ok(records) };
            from = last + 1;
            records.extend(read);
        }
    }

    /// Records up to and including `upto` may go; whole segments do.
    fn retire(&self, upto: Position) -> Result<()>;

    /// How often records were not there any more while the journal was in use, and were put there
    /// anew.
    fn put_anew(&self) -> u64 {
        0
    }
}

/// The whole records in bytes that begin with the one of a position.
pub(crate) fn records_in(bytes: &[u8], first: Position) -> Vec<(Position, Vec<u8>)> {
    let mut records = Vec::new();
    file::walk(bytes, file::End { offset: 0, next: first }, |position, record| {
        records.push((position, record.to_vec()));
    });
    records
}
