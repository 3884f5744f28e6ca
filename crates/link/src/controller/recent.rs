//! The round trip as it is now: the least of the last few. One that lasted over an outage, or
//! behind a burst, is passed over, and a path that has become longer is noticed soon.

use std::time::Duration;

const KEPT: usize = 4;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Recent {
    last: [Duration; KEPT],
    seen: u64,
}

impl Recent {
    pub(super) fn seen(&mut self, delay: Duration) {
        self.last.rotate_right(1);
        self.last[0] = delay;
        self.seen += 1;
    }

    /// How many there have been.
    pub(super) fn count(&self) -> u64 {
        self.seen
    }

    pub(super) fn least(&self) -> Option<Duration> {
        let known = usize::try_from(self.seen).unwrap_or(KEPT).min(KEPT);
        self.last[..known].iter().min().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_over_an_outage_is_passed_over_and_a_longer_path_is_noticed() {
        let mut recent = Recent::default();
        assert_eq!(recent.least(), None);
        let (short, outage) = (Duration::from_millis(60), Duration::from_secs(40));
        recent.seen(outage);
        assert_eq!(recent.least(), Some(outage), "all that is known");
        recent.seen(short);
        recent.seen(outage);
        assert_eq!(recent.least(), Some(short));
        let long = Duration::from_millis(600);
        for _ in 0..KEPT {
            recent.seen(long);
        }
        assert_eq!((recent.least(), recent.count()), (Some(long), 7));
    }
}
