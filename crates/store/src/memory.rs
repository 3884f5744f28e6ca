//! Every back end in memory, for tests and simulation: the same calls give the same bytes in the
//! same order on every run.
//! Holds: each knows what a disk would have kept: `after_kill` and `after_power_cut` give back
//! another store with just that. Clones of a handle share one store.
//! Never: draws chance; what a power cut keeps of what was not synced, the caller decides.

mod blobs;
mod containers;
mod journal;
mod tables;

pub use blobs::MemoryBlobs;
pub use containers::{MemoryContainer, MemoryContainers};
pub use journal::MemoryJournal;
pub use tables::MemoryTables;

/// Answers, one by one, whether something that was not synced outlived the power cut.
pub type Keep<'a> = dyn FnMut() -> bool + 'a;
