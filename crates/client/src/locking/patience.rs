//! What a wait for a lock remembers from one look to the next.

use std::time::Duration;
use world::Moment;

/// Where what is in the way is about to go.
pub(super) const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(10);
/// Who waits asks again after this, if no news come: whoever is in the way may be gone.
pub(super) const ASK_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How often a question is put again at once whose answer was overtaken.
const OVERTAKEN_MAX: usize = 64;

pub(super) struct Patience {
    /// Since when it is locked whatever is newer elsewhere, for what could not be stored before.
    as_it_is: Option<Moment>,
    overtaken: usize,
    pause: Duration,
}

impl Patience {
    /// Who does not wait is told as soon as it is known.
    pub fn of_who(waits: bool) -> Patience {
        let pause = if waits { ASK_AGAIN_AFTER } else { LOOK_AGAIN_AFTER };
        Patience { as_it_is: None, overtaken: 0, pause }
    }

    /// Whether it is locked whatever is newer elsewhere.
    pub fn takes_it_as_it_is(&self) -> bool {
        self.as_it_is.is_some()
    }

    /// What is in the way of going on with what is newer stays there for now.
    pub fn take_it_as_it_is(&mut self, now: Moment) {
        self.as_it_is = Some(now);
    }

    /// The answer was overtaken. Says whether to ask again at once.
    pub fn asks_again(&mut self) -> bool {
        self.overtaken += 1;
        self.overtaken <= OVERTAKEN_MAX
    }

    /// It looks again so soon this time.
    pub fn looks_within(&mut self, within: Duration) {
        self.pause = self.pause.min(within);
    }

    /// How long to wait for news before it looks again all the same.
    pub fn pause(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = (2 * pause).min(ASK_AGAIN_AFTER);
        pause
    }

    /// What could not be stored when it was last tried, longer ago than `within`, may be by now.
    pub fn tries_anew(&mut self, now: Moment, within: Duration) {
        self.as_it_is = self.as_it_is.filter(|since| now.since(*since) < within);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use world::Clock;

    #[test]
    fn who_does_not_wait_looks_again_soon_and_then_more_and_more_rarely() {
        let mut patience = Patience::of_who(false);
        let pauses = [10, 20, 40, 80, 160, 320, 640, 1000, 1000].map(Duration::from_millis);
        assert_eq!(pauses.map(|_| patience.pause()), pauses);
        assert_eq!(Patience::of_who(true).pause(), ASK_AGAIN_AFTER);
    }

    #[test]
    fn what_is_overtaken_over_and_over_is_asked_with_a_pause_in_between() {
        let mut patience = Patience::of_who(true);
        assert!((0..OVERTAKEN_MAX).all(|_| patience.asks_again()));
        assert!(!patience.asks_again());
    }

    #[test]
    fn what_could_not_be_stored_is_tried_again_after_a_while() {
        let within = Duration::from_secs(5);
        let start = Clock::simulated(0).moment();
        let mut patience = Patience::of_who(true);
        assert!(!patience.takes_it_as_it_is());
        patience.take_it_as_it_is(start);
        patience.tries_anew(start + within / 2, within);
        assert!(patience.takes_it_as_it_is());
        patience.tries_anew(start + within, within);
        assert!(!patience.takes_it_as_it_is());
    }
}
