//! What one origin gives at most.

use crate::blocking::Blocking;
use std::time::Duration;

/// The bounds of an origin. `Default` is for a server, `simulated` for one thread of simulation.
#[derive(Clone, Debug)]
pub struct Limits {
    /// How long a callback holds unless it is renewed.
    pub lease: Duration,
    /// Keys in a tail; a client that has missed more looks at its cache anew.
    pub tail_keys_max: usize,
    /// Updates that are looked through for a tail.
    pub tail_records_max: u64,
    /// Files that one client holds callbacks on one by one; beyond, it is told of everything.
    pub shown_max: usize,
    /// Clients whose callbacks are remembered while they are away.
    pub holders_max: usize,
    pub sessions_max: usize,
    /// Bytes of contents that the origin keeps, all volumes together.
    pub bytes_max: u64,
    pub blocking: Blocking,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            lease: Duration::from_secs(25),
            tail_keys_max: 20_000,
            tail_records_max: 200_000,
            shown_max: 200_000,
            holders_max: 4096,
            sessions_max: 1024,
            bytes_max: 1 << 50,
            blocking: Blocking::Pool,
        }
    }
}

impl Limits {
    /// For a runtime of one thread whose clock is paused.
    pub fn simulated() -> Limits {
        Limits { blocking: Blocking::Inline, ..Limits::default() }
    }
}
