//! The round trip of an empty path: the least that was seen in this stretch and the last.

use std::time::{Duration, Instant};

/// A path that has become longer is noticed after two stretches.
const STRETCH: Duration = Duration::from_secs(120);

#[derive(Clone, Copy, Debug)]
pub(super) struct Base {
    began: Instant,
    now: Option<Duration>,
    before: Option<Duration>,
    /// When a round trip near the least was last seen, or looked for.
    fresh: Instant,
}

impl Base {
    pub(super) fn new(now: Instant) -> Base {
        Base { began: now, now: None, before: None, fresh: now }
    }

    pub(super) fn seen(&mut self, now: Instant, delay: Duration) {
        if now.saturating_duration_since(self.began) >= STRETCH {
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
        *self = Base { began: now, now: Some(delay), before: None, fresh: now };
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
