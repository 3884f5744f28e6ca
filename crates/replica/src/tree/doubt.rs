//! When everything is looked at because something was met that could not be placed at once.
//! Holds: after a doubt everything is looked at, and both sides compared, within `WITHIN_MAX`, or
//! where looking takes long, as soon as it takes a twentieth of the time.

use std::time::Duration;
use world::Moment;

/// So long after the last doubt.
const QUIET: Duration = Duration::from_secs(5);
/// And so long after the first, if there are always new ones.
const WITHIN_MAX: Duration = Duration::from_secs(60);
/// How many times as long as the last look took it rests.
const REST: u32 = 19;

#[derive(Debug)]
pub(super) struct Doubt {
    /// The first and the last since everything was looked at.
    raised: Option<(Moment, Moment)>,
    begun: Moment,
    rested: Moment,
}

impl Doubt {
    pub fn none(now: Moment) -> Doubt {
        Doubt { raised: None, begun: now, rested: now }
    }

    pub fn raise(&mut self, now: Moment) {
        let first = self.raised.map_or(now, |(first, _)| first);
        self.raised = Some((first, now));
    }

    /// When everything is looked at. None: there is no doubt.
    pub fn due(&self) -> Option<Moment> {
        let (first, last) = self.raised?;
        Some((last + QUIET).min(first + WITHIN_MAX).max(self.rested))
    }

    /// Everything is looked at from now on: what is met from now on is another doubt.
    pub fn begin(&mut self, now: Moment) {
        (self.raised, self.begun) = (None, now);
    }

    pub fn end(&mut self, now: Moment) {
        self.rested = now + now.since(self.begun).saturating_mul(REST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use world::Clock;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_doubt_is_looked_into_when_no_other_comes_and_in_any_case_in_the_end() {
        let start = Clock::simulated(0).moment();
        let mut doubt = Doubt::none(start);
        assert_eq!(doubt.due(), None);
        doubt.raise(start);
        assert_eq!(doubt.due(), Some(start + QUIET));
        for seconds in 1..100 {
            doubt.raise(start + SECOND * seconds);
        }
        assert_eq!(doubt.due(), Some(start + WITHIN_MAX));
        doubt.begin(start + WITHIN_MAX);
        assert_eq!(doubt.due(), None);
    }

    #[test]
    fn looking_takes_a_twentieth_of_the_time() {
        let start = Clock::simulated(0).moment();
        let mut doubt = Doubt::none(start);
        doubt.begin(start);
        doubt.raise(start);
        doubt.end(start + SECOND * 10);
        assert_eq!(doubt.due(), Some(start + SECOND * 200));
    }
}
