//! Chunks that the origin has been seen to have.
//! Holds: it is never trusted. The origin says what it lacks; of a row that is missing, a chunk is
//! sent, or asked for, that is there.

use chunks::{Look, Swept, index, sweep_names};
use model::ChunkName;
use store::{Read, StoreError, Write};

const HOME: &str = "client-home";

pub(crate) fn is_home(read: &dyn Read, name: &ChunkName) -> Result<bool, StoreError> {
    Ok(read.get(HOME, &name.0)?.is_some())
}

pub(crate) fn note_home(write: &mut dyn Write, name: &ChunkName) -> Result<(), StoreError> {
    write.put(HOME, &name.0, &[])
}

pub(crate) fn forget_home(write: &mut dyn Write, name: &ChunkName) -> Result<(), StoreError> {
    write.delete(HOME, &name.0)
}

/// Forgets some where there are too many: first those that are not here, so that nobody is likely
/// to store them.
pub(crate) fn sweep(write: &mut dyn Write, look: Look) -> Result<Swept, StoreError> {
    sweep_names(write, HOME, look, |read, name| Ok(!index::find(read, name)?.is_empty()))
}

/// Removes rows, at most `rows_max`. Gives how many.
pub(crate) fn clear(write: &mut dyn Write, rows_max: usize) -> Result<usize, StoreError> {
    chunks::clear_names(write, HOME, rows_max)
}
