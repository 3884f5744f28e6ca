//! What one origin gives at most.

use crate::blocking::Blocking;
use std::time::Duration;
use volume::whole::SNAPSHOTS_MAX;

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
    /// How long versions are kept after they were replaced, where the volume says nothing else.
    pub versions_kept: Duration,
    /// How long the names and attributes of old versions are kept at least: they are small, and
    /// what is stored into a removed file is brought back by them.
    pub names_kept: Duration,
    /// The trash keeps so many percent of all contents, and so many bytes at least.
    pub trash_percent: u64,
    pub trash_bytes_min: u64,
    /// Nothing leaves the trash sooner: it may belong to something that is being sent.
    pub trash_kept: Duration,
    /// How long a chunk of which a client was told that it is here stays at least.
    pub promise: Duration,
    /// How often the position is written down, by which the age of versions is known.
    pub mark_every: Duration,
    /// How often the store is tidied, and how long after the start for the first time.
    pub collect_every: Duration,
    pub collect_first: Duration,
    /// Snapshots of one volume, at most `volume::whole::SNAPSHOTS_MAX`.
    pub snapshots_max: usize,
    /// Bytes of a tree's large file that are read, or written, before what else happened is looked
    /// at.
    pub tree_piece_bytes: u64,
}

const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

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
            versions_kept: DAY * 30,
            names_kept: DAY * 90,
            trash_percent: 5,
            trash_bytes_min: 256 << 20,
            trash_kept: DAY,
            promise: HOUR,
            mark_every: HOUR,
            collect_every: DAY,
            collect_first: HOUR,
            snapshots_max: SNAPSHOTS_MAX,
            tree_piece_bytes: 8 << 20,
        }
    }
}

impl Limits {
    /// For a runtime of one thread whose clock is paused.
    pub fn simulated() -> Limits {
        Limits { blocking: Blocking::Inline, ..Limits::default() }
    }
}
