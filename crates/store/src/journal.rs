//! A journal: records appended in order, read back in order, retired from the front.
//! Holds: after a crash the records are a prefix of those appended, with all that was synced;
//! after the process alone was killed, all that `append` returned for.

use crate::error::Result;

mod envelope;
mod file;
mod salvage;

pub use envelope::RECORD_BYTES_MAX;
pub use file::{FileJournal, SEGMENT_BYTES};
pub use salvage::{Salvaged, salvage};

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

    /// Records from the first that is kept, in order.
    fn records(&self) -> Result<Vec<(Position, Vec<u8>)>>;

    /// Records up to and including `upto` may go; whole segments do.
    fn retire(&self, upto: Position) -> Result<()>;
}
