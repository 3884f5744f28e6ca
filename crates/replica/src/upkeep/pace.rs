//! How far the wall clock has gone ahead of the one that only goes forward: by what it was set.
//! Holds: what became old in a leap alone does not go before the clock was seen to go evenly from one
//! cycle to the next.

use model::Time;
use std::sync::Mutex;
use std::time::Duration;
use world::{Clock, Moment};

/// A leap of less than one in so many parts of the time for which versions are kept may be a machine
/// that slept, and counts.
const PARTS: u32 = 10;

#[derive(Default)]
pub(crate) struct Pace(Mutex<Option<(Time, Moment)>>);

impl Pace {
    /// From now on leaps are counted. What the clock shows is taken for right.
    pub fn begin(&self, clock: &Clock) {
        *self.since() = Some((clock.time(), clock.moment()));
    }

    /// What the wall clock has gone ahead since; zero if it was set back.
    pub fn leap(&self, clock: &Clock) -> Duration {
        let Some((time, moment)) = *self.since() else { return Duration::ZERO };
        let shown = clock.time().secs.saturating_sub(time.secs);
        let gone = clock.moment().since(moment).as_secs();
        Duration::from_secs(u64::try_from(shown).unwrap_or(0).saturating_sub(gone))
    }

    fn since(&self) -> std::sync::MutexGuard<'_, Option<(Time, Moment)>> {
        crate::volumes::locked(&self.0)
    }
}

/// Whether a leap says too little of the age of what is kept so long.
pub(crate) fn is_too_far(leap: Duration, kept: Duration) -> bool {
    leap > Duration::from_secs(1) && leap > kept / PARTS
}
