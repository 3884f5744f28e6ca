//! Two clocks: one that people read, and one that only goes forward.

use model::Time;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// A moment on the clock that only goes forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Instant);

impl Moment {
    /// How long after `earlier` this is; zero if it is not.
    pub fn since(self, earlier: Moment) -> Duration {
        self.0.saturating_duration_since(earlier.0)
    }
}

impl std::ops::Add<Duration> for Moment {
    type Output = Moment;

    fn add(self, duration: Duration) -> Moment {
        Moment(self.0 + duration)
    }
}

#[derive(Clone, Debug)]
pub struct Clock {
    /// None: the wall clock is the machine's.
    simulated: Option<(Instant, i64)>,
}

impl Clock {
    pub fn real() -> Clock {
        Clock { simulated: None }
    }

    pub fn simulated(epoch_secs: i64) -> Clock {
        Clock { simulated: Some((Instant::now(), epoch_secs)) }
    }

    pub fn moment(&self) -> Moment {
        Moment(Instant::now())
    }

    pub fn time(&self) -> Time {
        let since_1970 = match self.simulated {
            Some((start, epoch_secs)) => {
                start.elapsed() + Duration::from_secs(epoch_secs.unsigned_abs())
            }
            // A clock set before 1970 shows 1970.
            None => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
        };
        let secs = i64::try_from(since_1970.as_secs()).unwrap_or(i64::MAX);
        Time { secs, nanos: since_1970.subsec_nanos() }
    }

    pub async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }

    /// The output of `future`, or none if it takes longer than `bound`.
    pub async fn within<F: Future>(&self, bound: Duration, future: F) -> Option<F::Output> {
        tokio::time::timeout(bound, future).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_simulated_clock_moves_with_the_runtime_and_waits_for_nobody() {
        let clock = Clock::simulated(1_000);
        let start = clock.moment();
        clock.sleep(Duration::from_secs(3_600)).await;
        assert_eq!(clock.time(), Time { secs: 4_600, nanos: 0 });
        assert_eq!(clock.moment().since(start), Duration::from_secs(3_600));
        assert_eq!(clock.within(Duration::from_secs(1), std::future::pending::<()>()).await, None);
    }
}
