//! How much of a file is fetched at once, and how long one waits for it, by what the link brings.
//! Holds: what is asked for at once comes within seconds, or it is one chunk; who waits for bytes
//! that the link is bringing is not told that time is up.
//! From: LBFS, "Read protocol"; partially connected operation, 5.1.

use chunks::{Placed, transfer};
use model::{ChunkName, Piece};
use protocol::{LinkQuality, PAYLOAD_BYTES_MAX, Range};
use std::collections::BTreeSet;
use std::time::Duration;

const KIB: u64 = 1 << 10;

/// The estimate is of what came, and little may have been asked for: so it is stretched.
const EAGER_FOR: Duration = Duration::from_secs(4);
const WHOLE_FOR: Duration = Duration::from_secs(30);
const WINDOW_FOR: Duration = Duration::from_secs(4);
const REQUEST_FOR: Duration = Duration::from_secs(2);
/// What nobody has asked for takes the link no longer than this. Where that is little, the link is
/// not idle for long while a reader asks for the next window.
const ONWARD_FOR: Duration = Duration::from_millis(250);
const ONWARD_BYTES_MIN: u64 = KIB * KIB;
const ONWARD_BYTES_MAX: u64 = 16 * KIB * KIB;

/// Until something is known of the link.
const RATE_GUESS: u64 = 8 * KIB;
/// A round trip this short is no slow link's.
const NEAR: Duration = Duration::from_millis(20);

/// Requests for one file that are under way at once.
pub(crate) const REQUESTS_MAX: usize = 3;

/// No link is taken to be slower, in bytes a second.
const RATE_LEAST: u64 = 250;
/// Who waits for bytes waits so many times as long as they should take, besides the usual.
const PATIENCE_TIMES: u64 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Portions {
    /// Files up to so many bytes come with the first answer.
    pub eager: u64,
    /// Files up to so many bytes are fetched as a whole.
    pub whole: u64,
    /// A reader who goes on gets twice as much each time, between these.
    pub window_least: u64,
    pub window_most: u64,
    /// What one request may bring.
    pub request: u64,
    /// A reader who goes on gets so many bytes before he asks for them; none if that is not worth
    /// while.
    pub onward: u64,
}

impl Portions {
    pub fn of(link: &LinkQuality) -> Portions {
        let brings = |time: Duration| match rate_of(link) {
            None => u64::MAX,
            Some(rate) => carried(rate, time),
        };
        let window_least = brings(WINDOW_FOR).clamp(16 * KIB, 128 * KIB);
        Portions {
            eager: brings(EAGER_FOR).clamp(8 * KIB, 64 * KIB),
            whole: brings(WHOLE_FOR).clamp(16 * KIB, KIB * KIB),
            window_least,
            window_most: brings(WINDOW_FOR / 2).clamp(window_least, 8 * KIB * KIB),
            request: brings(REQUEST_FOR).clamp(4 * KIB, PAYLOAD_BYTES_MAX as u64),
            onward: match brings(ONWARD_FOR).min(ONWARD_BYTES_MAX) {
                little if little < ONWARD_BYTES_MIN => 0,
                much => much,
            },
        }
    }
}

impl Portions {
    /// As much of a file at once as there is room for.
    pub fn within(self, bytes_max: u64) -> Portions {
        let window_most = self.window_most.min(bytes_max);
        let window_least = self.window_least.min(window_most);
        let onward = match self.onward.min(bytes_max) {
            little if little < ONWARD_BYTES_MIN => 0,
            much => much,
        };
        let whole = self.whole.min(bytes_max);
        Portions { whole, window_least, window_most, onward, ..self }
    }
}

/// Bytes that a link carries in a time.
pub(crate) fn carried(rate: u64, time: Duration) -> u64 {
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    rate.saturating_mul(millis) / 1000
}

/// Bytes a second. None: nothing is known, and nothing speaks for a slow link.
fn rate_of(link: &LinkQuality) -> Option<u64> {
    let far = link.round_trip_min.is_some_and(|trip| trip > NEAR);
    link.rate_down.or(far.then_some(RATE_GUESS))
}

/// How long to wait for an answer with so many bytes, beside others like it, where an answer
/// without any may take `usual`. A link that brings nothing any more is found out by its session.
pub(crate) fn patience(link: &LinkQuality, bytes: u64, usual: Duration) -> Duration {
    let Some(rate) = rate_of(link) else { return usual };
    let rate = rate.max(RATE_LEAST);
    let millis = bytes.saturating_mul(1000 * PATIENCE_TIMES * REQUESTS_MAX as u64) / rate;
    usual.saturating_add(Duration::from_millis(millis))
}

/// The missing chunks of these pieces, in requests of at most so many bytes, or of one chunk.
pub(crate) fn requests(
    pieces: &[Placed],
    missing: &BTreeSet<ChunkName>,
    most: u64,
) -> Vec<Vec<Range>> {
    let mut requests = Vec::new();
    let mut asked = BTreeSet::new();
    let mut group: Vec<Placed> = Vec::new();
    let mut bytes = 0;
    let have = |_: &ChunkName| false;
    for placed in pieces {
        let Piece::Chunk { name, length } = placed.piece else { continue };
        if !missing.contains(&name) || !asked.insert(name) {
            continue;
        }
        if bytes + length > most && !group.is_empty() {
            requests.extend(transfer::plan_fetch(&group, have));
            group.clear();
            bytes = 0;
        }
        group.push(*placed);
        bytes += length;
    }
    requests.extend(transfer::plan_fetch(&group, have));
    requests
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(rate_down: Option<u64>, round_trip_ms: u64) -> LinkQuality {
        let round_trip_min = Some(Duration::from_millis(round_trip_ms));
        LinkQuality { rate_down, round_trip_min, ..LinkQuality::default() }
    }

    #[test]
    fn what_is_asked_for_at_once_comes_within_seconds_on_every_link() {
        for rate in [1_200, 3_600, 8_000, 43_500, 187_500, 125_000_000] {
            let portions = Portions::of(&link(Some(rate), 60));
            assert!(portions.eager / rate < 8, "{rate}: {portions:?}");
            assert!(portions.window_least / rate < 15, "{rate}: {portions:?}");
            assert!(portions.request / rate < 5, "{rate}: {portions:?}");
            assert!(portions.whole / rate <= 30, "{rate}: {portions:?}");
        }
    }

    #[test]
    fn a_fast_link_brings_as_much_as_it_may() {
        let most = Portions::of(&link(Some(125_000_000), 1));
        assert_eq!(most.eager, 64 * KIB);
        assert_eq!(most.whole, KIB * KIB);
        assert_eq!((most.window_least, most.window_most), (128 * KIB, 8 * KIB * KIB));
        assert_eq!(Portions::of(&link(None, 1)), most);
    }

    #[test]
    fn unasked_comes_what_a_fast_link_brings_in_a_moment() {
        let onward = |rate| Portions::of(&link(rate, 1)).onward;
        assert_eq!((onward(Some(187_500)), onward(Some(3_000_000))), (0, 0));
        assert_eq!(onward(Some(12_500_000)), 3_125_000);
        assert_eq!(onward(Some(125_000_000)), ONWARD_BYTES_MAX);
        let small = Portions::of(&link(Some(125_000_000), 1));
        assert_eq!(small.within(ONWARD_BYTES_MIN).onward, ONWARD_BYTES_MIN);
        assert_eq!(small.within(ONWARD_BYTES_MIN - 1).onward, 0);
        assert_eq!(Portions::of(&link(None, 300)).onward, 0);
    }

    #[test]
    fn of_an_unknown_link_that_is_far_little_is_asked() {
        let unknown = Portions::of(&link(None, 300));
        assert_eq!((unknown.eager, unknown.request), (32 * KIB, 16 * KIB));
        assert_eq!(patience(&link(None, 1), 64 * KIB, NEAR), NEAR);
    }

    #[test]
    fn who_waits_for_bytes_waits_for_as_long_as_they_take() {
        let usual = Duration::from_secs(30);
        let slow = link(Some(1_200), 300);
        let most = Portions::of(&slow).request + 64 * KIB;
        let takes = Duration::from_secs(most * REQUESTS_MAX as u64 / 1_200);
        assert!(patience(&slow, most, usual) > takes);
        assert_eq!(patience(&slow, 0, usual), usual);
        assert!(
            patience(&link(Some(1 << 30), 1), 64 * KIB, usual) < usual + Duration::from_secs(1)
        );
        assert!(patience(&link(Some(0), 1), KIB, usual) < Duration::from_secs(120));
    }
}
