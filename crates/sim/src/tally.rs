//! How much happened in a run, so that many runs together can say what they stood.

use std::fmt;
use std::ops::AddAssign;
use std::sync::{Arc, Mutex, PoisonError};

/// What happened, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub runs: u64,
    pub operations: u64,
    /// Of lines, and of sessions while the line stays up.
    pub cuts: u64,
    /// Processes that were killed, or machines that lost their power.
    pub clients_ended: u64,
    pub origins_ended: u64,
    /// Changes of the mode, by the user.
    pub modes: u64,
    /// Pins, policies, refreshes and pauses.
    pub wishes: u64,
    /// Of clients, while they run or not.
    pub clocks_set: u64,
    /// Of files of which a connected writer had closed a version, which had to show.
    pub opens: u64,
    /// Of those, by clients in partial mode.
    pub opens_partial: u64,
    /// Updates that no longer mattered before they left.
    pub cancelled: u64,
    /// As the origin lists them at the end.
    pub conflicts: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.runs += other.runs;
        self.operations += other.operations;
        self.cuts += other.cuts;
        self.clients_ended += other.clients_ended;
        self.origins_ended += other.origins_ended;
        self.modes += other.modes;
        self.wishes += other.wishes;
        self.clocks_set += other.clocks_set;
        self.opens += other.opens;
        self.opens_partial += other.opens_partial;
        self.cancelled += other.cancelled;
        self.conflicts += other.conflicts;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} runs, {} operations, {} cuts, {} ends of clients, {} ends of origins, {} changes of \
             mode, {} pins, policies, refreshes and pauses, {} times that a clock was set, {} opens that had to show what was closed, {} of them in partial mode, {} \
             updates cancelled, {} conflicts listed",
            self.runs,
            self.operations,
            self.cuts,
            self.clients_ended,
            self.origins_ended,
            self.modes,
            self.wishes,
            self.clocks_set,
            self.opens,
            self.opens_partial,
            self.cancelled,
            self.conflicts
        )
    }
}

/// The tally of one run, which all who take part in it add to.
#[derive(Clone, Debug, Default)]
pub struct Counting(Arc<Mutex<Tally>>);

impl Counting {
    pub fn count(&self, add: impl FnOnce(&mut Tally)) {
        add(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub fn tally(&self) -> Tally {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
