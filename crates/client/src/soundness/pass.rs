//! When the cache is read through, and how far that has come.

use minicbor::{Decode, Encode};
use std::time::Duration;

/// A pass begins so many seconds after the last one began. Disks and file systems that look after
/// themselves are read through every week to every month.
const EVERY_SECS: i64 = 7 * 24 * 3600;
/// What is read in one turn: about 30 ms of a processor.
pub(crate) const BYTES_AT_ONCE: u64 = 16 << 20;
pub(crate) const FILES_AT_ONCE: usize = 256;
/// Between two turns: 20 GB take less than two hours.
pub(crate) const BETWEEN: Duration = Duration::from_secs(5);
/// How often it is looked whether a pass is due, or can go on.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(600);
/// After a start: a machine that has no clock of its own begins in 1970, or when it was last shut down,
/// and is told the time soon after. The last pass would else count as one of then, and the next begin.
pub(crate) const BEGINS_AFTER: Duration = Duration::from_secs(60);
/// Of a large file so much is looked at in one piece.
pub(crate) const WINDOW_BYTES: u64 = 16 << 20;

/// A file of more of which the recipe is not here is compared with what the server says of it, window by
/// window: to cut all of it takes more than a second.
pub(crate) const DESCRIBED_BYTES_MAX: u64 = 256 << 20;

/// The file that is next, and where in it.
pub(crate) type At = (u64, u64);

/// One pass over the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Pass {
    /// Seconds since 1970.
    #[n(0)]
    pub begun: i64,
    /// None: it is over.
    #[n(1)]
    pub at: Option<At>,
}

impl Pass {
    /// The pass that goes on, or begins, or was the last one. What has just been fetched need not be
    /// looked at, so that a new cache has its first pass later.
    pub fn next(last: Option<Pass>, now: i64) -> Pass {
        match last {
            Some(pass) if pass.at.is_some() => pass,
            Some(pass) if now.saturating_sub(pass.begun) >= EVERY_SECS => {
                Pass { begun: now, at: Some((0, 0)) }
            }
            // A clock that was set back does not put it off for as long.
            Some(pass) => Pass { begun: pass.begun.min(now), at: None },
            None => Pass { begun: now, at: None },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_begins_a_week_after_the_last_and_goes_on_until_it_is_over() {
        let new = Pass::next(None, 1000);
        assert_eq!(new, Pass { begun: 1000, at: None });
        assert_eq!(Pass::next(Some(new), 1000 + EVERY_SECS - 1), new);
        let begun = Pass::next(Some(new), 1000 + EVERY_SECS);
        assert_eq!(begun, Pass { begun: 1000 + EVERY_SECS, at: Some((0, 0)) });
        let on = Pass { at: Some((7, 4096)), ..begun };
        assert_eq!(Pass::next(Some(on), i64::MAX), on, "it goes on, whatever the clock says");
        let over = Pass { at: None, ..on };
        assert_eq!(Pass::next(Some(over), 5), Pass { begun: 5, at: None }, "a clock was set back");
    }
}
