//! The round trip of an empty path: the least that was seen in this stretch and the last.

use std::time::{Duration, Instant};

/// A path that has become longer is noticed after two stretches.
const STRETCH: Duration = Duration::from_secs(120);
/// What is to be seen soon.
const SHORT_STRETCH: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
pub(super) struct Base {
    stretch: Duration,
    began: Instant,
    now: Option<Duration>,
    before: Option<Duration>,
    /// When a round trip near the least was last seen, or looked for.
    fresh: Instant,
}

impl Base {
    pub(super) fn new(now: Instant) -> Base {
        Base { stretch: STRETCH, began: now, now: None, before: None, fresh: now }
    }

    /// Of so little time that it is the round trip as it is now.
    pub(super) fn lately(now: Instant) -> Base {
        Base { stretch: SHORT_STRETCH, ..Base::new(now) }
    }

    pub(super) fn seen(&mut self, now: Instant, delay: Duration) {
        if now.saturating_duration_since(self.began) >= self.stretch {
            self.before = self.now.take();
            self.began = now;
        }
        if self.least().is_none_or(|least| delay <= least + least / 16) {
            self.fresh = now;
        }
        self.now = Some(self.now.map_or(delay, |least| least.min(delay)));
    }

    pub(super) fn least(&self) -> Option<Duration> {
        match (self.now, self.before) {
            (Some(now), Some(before)) => Some(now.min(before)),
            (now, before) => now.or(before),
        }
    }

    /// How long ago the least was seen or looked for.
    pub(super) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.fresh)
    }

    pub(super) fn looked(&mut self, now: Instant) {
        self.fresh = now;
    }

    /// The path is another: what is known of it begins with `delay`.
    pub(super) fn relearn(&mut self, now: Instant, delay: Duration) {
        *self = Base { stretch: self.stretch, now: Some(delay), ..Base::new(now) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_is_forgotten_after_two_stretches() {
        let start = Instant::now();
        let mut base = Base::new(start);
        assert_eq!(base.least(), None);
        let (short, long) = (Duration::from_millis(20), Duration::from_millis(600));
        base.seen(start, short);
        for stretch in 1..=3 {
            let now = start + STRETCH * stretch;
            base.seen(now, long);
            let least = if stretch == 1 { short } else { long };
            assert_eq!(base.least(), Some(least));
        }
    }

    #[test]
    fn lately_is_the_last_seconds_in_which_something_was_seen() {
        let start = Instant::now();
        let mut base = Base::lately(start);
        let (short, long) = (Duration::from_millis(1), Duration::from_millis(60));
        base.seen(start, short);
        base.seen(start + SHORT_STRETCH / 2, long);
        assert_eq!(base.least(), Some(short));
        base.seen(start + SHORT_STRETCH * 40, long);
        assert_eq!(base.least(), Some(short), "nothing was seen in between");
        base.seen(start + SHORT_STRETCH * 41, long);
        assert_eq!(base.least(), Some(long));
    }

    #[test]
    fn only_what_is_near_the_least_is_fresh() {
        let start = Instant::now();
        let mut base = Base::new(start);
        base.seen(start, Duration::from_millis(100));
        let later = start + Duration::from_secs(40);
        base.seen(later, Duration::from_millis(150));
        assert_eq!(base.age(later), Duration::from_secs(40));
        base.seen(later, Duration::from_millis(104));
        assert_eq!(base.age(later), Duration::ZERO);
    }
}
