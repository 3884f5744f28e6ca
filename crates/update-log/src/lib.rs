//! The ordered log of updates that are not yet known to be taken: append, cancel, truncate.
//! Holds: what was appended is there after the process dies; what was synced, after a power cut;
//! numbers only grow; an update that may have reached the replica above is never cancelled, but
//! for a store that the next store of the file overtakes.
//! From: partially connected operation, 5.2; DESIGN, "Updates".

mod log;
mod record;

pub use log::{Batch, Cancel, LogError, NEAR_MAX, Page, Recovered, UpdateLog, What, subjects};
pub use record::{Record, RecordError};
