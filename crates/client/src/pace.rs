//! How much is sent at once, by how long the link takes for it.
//! From: partially connected operation, 5.1: what nobody waits for must not hold up the rest.

use crate::portions::carried;
use protocol::{LinkQuality, PAYLOAD_BYTES_MAX};
use std::time::Duration;

/// Contents that go with a batch without being asked for: at least, and at most.
const EAGER_BYTES_MIN: u64 = 2 << 10;
const EAGER_BYTES_MAX: u64 = 256 << 10;
/// They may take so long, or a round trip if that is longer: asking first takes one anyway.
const EAGER_FOR: Duration = Duration::from_secs(1);

/// Bytes of contents that may go with a batch before the replica above has said what it lacks.
/// Until something is known of the link, few.
pub(crate) fn eager_bytes(link: &LinkQuality) -> u64 {
    let Some(rate) = link.rate_up else { return EAGER_BYTES_MIN };
    let takes = link.round_trip.unwrap_or_default().max(EAGER_FOR);
    let millis = u64::try_from(takes.as_millis()).unwrap_or(u64::MAX);
    (rate.saturating_mul(millis) / 1000).clamp(EAGER_BYTES_MIN, EAGER_BYTES_MAX)
}

/// How long one message with contents may take at the measured rate; it is one chunk at least.
const PUT_FOR: Duration = Duration::from_secs(1);
/// A message is this long at least, however slow the link.
const PUT_BYTES_MIN: u64 = 4 << 10;

/// Bytes of one message with contents.
pub(crate) fn put_bytes(rate: Option<u64>) -> u64 {
    let bytes = carried(rate.unwrap_or(PUT_BYTES_MIN), PUT_FOR);
    bytes.clamp(PUT_BYTES_MIN, PAYLOAD_BYTES_MAX as u64)
}

/// Who waits while one is sent waits so many times as long as it should take, besides the usual.
const PATIENCE_TIMES: u64 = 2;
/// No link is taken to be slower, in bytes a second.
const RATE_LEAST: u64 = 250;

/// How long to wait until one message with contents has gone up and been answered, where an answer
/// to one without any may take `usual` and the longest chunk has so many bytes.
pub(crate) fn step_within(rate: Option<u64>, longest: u64, usual: Duration) -> Duration {
    let Some(rate) = rate else { return usual };
    let bytes = carried(rate, PUT_FOR).saturating_add(longest);
    usual.saturating_add(Duration::from_millis(
        bytes.saturating_mul(1000 * PATIENCE_TIMES) / rate.max(RATE_LEAST),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_chunk_is_waited_for_as_long_as_it_takes() {
        let usual = Duration::from_secs(30);
        assert_eq!(step_within(None, 1 << 20, usual), usual);
        assert!(step_within(Some(1_200), 64 << 10, usual) > Duration::from_secs(80));
        assert!(step_within(Some(1 << 30), 64 << 10, usual) < usual + Duration::from_secs(5));
        assert!(step_within(Some(0), 64 << 10, usual) < Duration::from_secs(600));
    }

    #[test]
    fn a_message_takes_the_link_a_second_and_of_an_unknown_one_it_is_short() {
        assert_eq!(put_bytes(Some(125_000)), 125_000);
        assert_eq!(put_bytes(Some(100)), PUT_BYTES_MIN);
        assert_eq!(put_bytes(None), PUT_BYTES_MIN);
        assert_eq!(put_bytes(Some(u64::MAX)), PAYLOAD_BYTES_MAX as u64);
    }

    fn at(rate_up: Option<u64>, round_trip_ms: u64) -> u64 {
        let round_trip = Some(Duration::from_millis(round_trip_ms));
        eager_bytes(&LinkQuality { rate_up, round_trip, ..LinkQuality::default() })
    }

    #[test]
    fn what_goes_unasked_takes_the_link_about_a_second_or_a_round_trip() {
        assert_eq!(at(Some(43_500), 60), 43_500);
        assert_eq!(at(Some(10_000), 1_500), 15_000);
        for (rate, trip) in [(1_200, 1_300), (3_600, 700), (8_000, 200), (60_000, 3_000)] {
            let secs = at(Some(rate), trip) as f64 / rate as f64;
            let bound = (trip as f64 / 1000.0).max(1.0).max(2_048.0 / rate as f64);
            assert!(secs <= bound, "{rate} bytes a second, {trip} ms: {secs} s");
        }
    }

    #[test]
    fn of_an_unknown_link_little_is_asked() {
        assert_eq!(at(None, 5_000), EAGER_BYTES_MIN);
        assert_eq!(eager_bytes(&LinkQuality::default()), EAGER_BYTES_MIN);
    }

    #[test]
    fn a_fast_link_is_given_no_more_than_its_bound() {
        assert_eq!(at(Some(u64::MAX), 100), EAGER_BYTES_MAX);
    }
}
