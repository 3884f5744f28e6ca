//! How much is fetched ahead at once, and how long one waits for it, by what the link takes.

use crate::portions::carried;
use crate::types::Settings;
use protocol::{GATHERED_FILES_MAX, LinkQuality, PAYLOAD_BYTES_MAX};
use std::time::Duration;

/// One answer takes the link about so long, if contents compress as little as possible: the first
/// file of it can be read only when all of it is here.
const BATCH_FOR: Duration = Duration::from_millis(500);
const BATCH_BYTES_MIN: u64 = 8 << 10;
const BATCH_BYTES_MAX: u64 = PAYLOAD_BYTES_MAX as u64 / 2;
/// What is out at the beginning, and what is out at most: the second is what is lost at the end of
/// a long walk.
const WINDOW_FIRST_BATCHES: u64 = 2;
const WINDOW_MOST_BATCHES: u64 = 8;
/// Of the cache, guesses take one byte in so many at most.
const CACHE_ONE_IN: u64 = 16;
/// Larger files are not small, however much may be out.
const SMALL_BYTES_MAX: u64 = PAYLOAD_BYTES_MAX as u64;
/// While nothing is known of the link.
const RATE_GUESS: u64 = 32 << 10;

/// From this rate on the link is faster than who codes against what the client has.
const HELD_RATE_MAX: u64 = 1 << 20;
/// Naming what the client has takes the link no longer, at so many bytes a version.
const NAMING_FOR: Duration = Duration::from_millis(50);
const NAME_BYTES: u64 = 12;

/// Who waits for what is under way waits so many times as long as it should take.
const PATIENCE_TIMES: u32 = 2;
const PATIENCE_MIN: Duration = Duration::from_millis(100);
const PATIENCE_MAX: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Bytes of one answer.
    pub batch: u64,
    pub window_least: u64,
    pub window_first: u64,
    pub window_most: u64,
    /// Versions that are named as what the client has.
    pub held_max: usize,
}

impl Bounds {
    pub fn of(link: &LinkQuality, settings: &Settings) -> Bounds {
        let rate = link.likely_down().unwrap_or(RATE_GUESS);
        let batch = carried(rate, BATCH_FOR).clamp(BATCH_BYTES_MIN, BATCH_BYTES_MAX);
        let cache = settings.cache_bytes_max / CACHE_ONE_IN;
        Bounds {
            batch: batch.min(cache),
            window_least: (batch / 2).min(cache),
            window_first: (batch * WINDOW_FIRST_BATCHES).min(cache),
            window_most: (batch * WINDOW_MOST_BATCHES).min(cache),
            held_max: held_max(link, rate),
        }
    }

    /// The largest file that is fetched ahead while so much may be out.
    pub fn small(&self, window: u64) -> u64 {
        (window / 2).min(SMALL_BYTES_MAX)
    }
}

/// On a fast link, coding against what the client has takes longer than it saves; on a slow one,
/// naming it may.
fn held_max(link: &LinkQuality, rate_down: u64) -> usize {
    if rate_down > HELD_RATE_MAX {
        return 0;
    }
    let named = carried(link.likely_up().unwrap_or(RATE_GUESS), NAMING_FOR) / NAME_BYTES;
    usize::try_from(named).unwrap_or(usize::MAX).min(GATHERED_FILES_MAX)
}

/// How long who lacks something that is under way waits for it: as long as all that is under way
/// should take, and a while more. Then it is asked for again, as something that is waited for.
pub(crate) fn patience(link: &LinkQuality, bytes_under_way: u64) -> Duration {
    let rate = link.likely_down().unwrap_or(RATE_GUESS).max(1);
    let takes = Duration::from_millis(bytes_under_way.saturating_mul(1000) / rate);
    let trip = link.round_trip.unwrap_or_default();
    ((takes + trip) * PATIENCE_TIMES).clamp(PATIENCE_MIN, PATIENCE_MAX)
}
