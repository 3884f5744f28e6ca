//! How far a start has come with what a kill has left: large files may have to be read whole, and whoever waits
//! for the start is to know one that works from one that hangs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Steps that were done, each a bounded piece of work. All that are cloned from one are one.
#[derive(Clone, Debug, Default)]
pub struct Headway(Arc<AtomicU64>);

impl Headway {
    pub fn step(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub fn made(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
