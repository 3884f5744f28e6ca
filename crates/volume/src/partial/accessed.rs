//! Times of access: they are this machine's, and no update tells of them by itself.
//! Holds: neither what the replica above said nor what is pending is changed by them.

use super::change::{node_row, put_node};
use super::{Accessed, Missing};
use model::{FileId, Time};
use store::Write;

/// Notes that a file was read at a moment, if the time of access that shows is still `seen`.
pub fn note_accessed(
    write: &mut dyn Write,
    file: FileId,
    seen: Time,
    at: Time,
) -> Result<(), Missing> {
    let mut row = node_row(write, file)?;
    let Some(mut node) = row.shown().cloned() else { return Ok(()) };
    let over = node.atime;
    if let Some(accessed) = &row.accessed {
        accessed.show(&mut node);
    }
    if node.atime != seen {
        return Ok(());
    }
    row.accessed = Some(Accessed { over, at });
    put_node(write, file, &row)
}

/// The time of access has been set. Says whether another one was noted.
pub fn forget_accessed(write: &mut dyn Write, file: FileId) -> Result<bool, Missing> {
    let mut row = node_row(write, file)?;
    let was_noted = row.accessed.take().is_some();
    if was_noted {
        put_node(write, file, &row)?;
    }
    Ok(was_noted)
}
