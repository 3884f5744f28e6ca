//! When to try again, and how long to hope for an answer: quickly at first, then less and less
//! often, by chance so that a server that comes back is not met by all at once.

use crate::Limits;
use std::time::Duration;

/// Assumed of a link that has never been measured.
const ROUND_TRIP_UNKNOWN: Duration = Duration::from_millis(500);
const ROUND_TRIP_LEAST: Duration = Duration::from_millis(100);
const ROUND_TRIP_MOST: Duration = Duration::from_secs(3);
/// A handshake takes two round trips and some packets; a lost one three round trips more.
pub(crate) const HANDSHAKE_ROUND_TRIPS: u32 = 12;
const PATIENCE_LEAST: Duration = Duration::from_secs(3);
/// After that a fresh socket and a fresh look at the name are worth more than waiting.
const PATIENCE_MOST: Duration = Duration::from_secs(20);
const DOUBLINGS_MAX: u32 = 16;
/// A link that was as quick as this is taken to be so again, but for one attempt in so many: a server
/// that is back is found within a few of such a link's round trips, and who has moved to a slow link
/// gets there all the same.
const NEAR: Duration = Duration::from_millis(50);
const PATIENT_ONE_IN: u32 = 4;
const PATIENT_DOUBLINGS: u32 = 3;
const ROUND_TRIP_DOUBLINGS_MAX: u32 = 5;

#[derive(Clone, Debug)]
pub(crate) struct Retry {
    first: Duration,
    most: Duration,
    handshake: Duration,
    failures: u32,
    /// Smoothed round trip of the last session.
    round_trip: Option<Duration>,
}

impl Retry {
    pub(crate) fn new(limits: &Limits) -> Retry {
        Retry {
            first: limits.retry_first,
            most: limits.retry_most.max(limits.retry_first),
            handshake: limits.handshake,
            failures: 0,
            round_trip: None,
        }
    }

    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    pub(crate) fn failed(&mut self) {
        self.failures = self.failures.saturating_add(1);
    }

    /// The user, or a change of the network, says that things may have changed.
    pub(crate) fn nudged(&mut self) {
        self.failures = 0;
    }

    /// A session has ended. One that ends as soon as it begins is no success.
    pub(crate) fn lived(&mut self, long: Duration, round_trip: Option<Duration>) {
        self.round_trip = round_trip.or(self.round_trip);
        if long >= self.most {
            self.failures = 0;
        } else {
            self.failed();
        }
    }

    /// How long to wait before the next attempt: a doubling bound, of which chance takes up to
    /// a half away.
    pub(crate) fn wait(&self, chance: u64) -> Duration {
        let doublings = self.failures.saturating_sub(1).min(DOUBLINGS_MAX);
        let bound = self.first.saturating_mul(1 << doublings).min(self.most);
        let share = (chance % 1024) as f64 / 1024.0;
        bound.mul_f64(1.0 - share / 2.0)
    }

    /// What QUIC is told to assume: three times this passes before it sends its first packet
    /// again, so too little costs bytes and too much costs time.
    pub(crate) fn round_trip(&self) -> Duration {
        let known = self.round_trip.unwrap_or(ROUND_TRIP_UNKNOWN).mul_f64(1.5);
        let doubled = known.max(ROUND_TRIP_LEAST).saturating_mul(1 << self.doublings());
        doubled.min(ROUND_TRIP_MOST)
    }

    fn doublings(&self) -> u32 {
        let doublings = match self.round_trip.is_some_and(|known| known <= NEAR) {
            false => self.failures,
            true if self.failures % PATIENT_ONE_IN == PATIENT_ONE_IN - 1 => {
                PATIENT_DOUBLINGS + self.failures / PATIENT_ONE_IN
            }
            true => 0,
        };
        doublings.min(ROUND_TRIP_DOUBLINGS_MAX)
    }

    /// How long an attempt may take.
    pub(crate) fn patience(&self) -> Duration {
        let round_trips = self.round_trip() * HANDSHAKE_ROUND_TRIPS;
        round_trips.clamp(PATIENCE_LEAST, PATIENCE_MOST.max(round_trips)).min(self.handshake)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn waits_double_from_the_first_to_the_longest() {
        let mut retry = Retry::new(&Limits::default());
        let mut waits = Vec::new();
        for _ in 0..10 {
            retry.failed();
            waits.push(retry.wait(0).as_millis());
        }
        assert_eq!(waits, [200, 400, 800, 1600, 3200, 6400, 12800, 15000, 15000, 15000]);
        retry.nudged();
        assert_eq!(retry.wait(0), Duration::from_millis(200));
    }

    #[test]
    fn a_session_that_dies_at_once_is_not_a_success() {
        let mut retry = Retry::new(&Limits::default());
        for _ in 0..5 {
            retry.lived(Duration::from_millis(10), None);
        }
        assert_eq!(retry.wait(0), Duration::from_millis(3200));
        retry.lived(Duration::from_secs(60), None);
        assert_eq!(retry.wait(0), Duration::from_millis(200));
    }

    #[test]
    fn a_slow_link_is_remembered() {
        let mut retry = Retry::new(&Limits::default());
        retry.lived(Duration::from_secs(60), Some(Duration::from_millis(2_500)));
        assert_eq!(retry.round_trip(), ROUND_TRIP_MOST);
        assert_eq!(retry.patience(), Duration::from_secs(36));
        retry.lived(Duration::from_secs(60), Some(Duration::from_millis(1)));
        assert_eq!(retry.round_trip(), ROUND_TRIP_LEAST);
        assert_eq!(retry.patience(), PATIENCE_LEAST);
    }

    #[test]
    fn a_near_server_that_was_away_for_long_is_hoped_for_as_briefly_as_before() {
        let mut retry = Retry::new(&Limits::default());
        retry.lived(Duration::from_secs(60), Some(Duration::from_millis(1)));
        let mut guesses = Vec::new();
        for _ in 0..12 {
            guesses.push(retry.round_trip().as_millis());
            retry.failed();
        }
        let patient = [800, 1600, 3000];
        let least = [ROUND_TRIP_LEAST.as_millis(); 3];
        let expected = patient.iter().flat_map(|patient| least.iter().chain([patient]));
        assert_eq!(guesses, expected.copied().collect::<Vec<_>>());
    }

    proptest! {
        #[test]
        fn prop_no_wait_is_beyond_the_bounds(failures: u32, chance: u64) {
            let limits = Limits::default();
            let mut retry = Retry::new(&limits);
            retry.failures = failures;
            prop_assert!(retry.wait(chance) <= limits.retry_most);
            prop_assert!(retry.wait(chance) >= limits.retry_first / 2);
            prop_assert!(retry.patience() <= limits.handshake);
            prop_assert!(retry.patience() >= PATIENCE_LEAST);
            prop_assert!(retry.round_trip() <= ROUND_TRIP_MOST);
        }
    }
}
