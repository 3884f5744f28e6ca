//! Two clocks: one that people read, and one that only goes forward.

use model::Time;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
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
    simulated: Option<Simulated>,
}

#[derive(Clone, Debug)]
struct Simulated {
    start: Instant,
    /// What the wall clock showed then. Clones share it.
    epoch_secs: Arc<AtomicI64>,
}

impl Clock {
    pub fn real() -> Clock {
        Clock { simulated: None }
    }

    pub fn simulated(epoch_secs: i64) -> Clock {
        let epoch_secs = Arc::new(AtomicI64::new(epoch_secs));
        Clock { simulated: Some(Simulated { start: Instant::now(), epoch_secs }) }
    }

    /// The clock of another machine: of a simulated one, the wall clock is set by itself.
    pub fn apart(&self) -> Clock {
        let simulated = self.simulated.as_ref().map(|Simulated { start, epoch_secs }| {
            let epoch_secs = Arc::new(AtomicI64::new(epoch_secs.load(Ordering::Relaxed)));
            Simulated { start: *start, epoch_secs }
        });
        Clock { simulated }
    }

    /// Sets the wall clock forward, or back. The machine's own is left alone.
    pub fn shift(&self, secs: i64) {
        if let Some(Simulated { epoch_secs, .. }) = &self.simulated {
            epoch_secs.fetch_add(secs, Ordering::Relaxed);
        }
    }

    pub fn moment(&self) -> Moment {
        Moment(Instant::now())
    }

    /// A clock set before 1970 shows 1970.
    pub fn time(&self) -> Time {
        let since_1970 = match &self.simulated {
            Some(Simulated { start, epoch_secs }) => {
                let (epoch_secs, since) = (epoch_secs.load(Ordering::Relaxed), start.elapsed());
                let epoch = Duration::from_secs(epoch_secs.unsigned_abs());
                if epoch_secs < 0 { since.saturating_sub(epoch) } else { since + epoch }
            }
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

    #[tokio::test(start_paused = true)]
    async fn a_wall_clock_that_is_set_leaves_the_other_one_and_other_machines_alone() {
        let clock = Clock::simulated(1_000);
        let (same, apart, start) = (clock.clone(), clock.apart(), clock.moment());
        clock.shift(-300);
        assert_eq!([&clock, &same, &apart].map(|clock| clock.time().secs), [700, 700, 1_000]);
        apart.shift(50);
        assert_eq!([&clock, &same, &apart].map(|clock| clock.time().secs), [700, 700, 1_050]);
        assert_eq!(clock.moment().since(start), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wall_clock_that_is_set_before_1970_shows_1970_until_it_has_passed() {
        let clock = Clock::simulated(1_000);
        clock.shift(-1_060);
        assert_eq!(clock.time(), Time::default());
        clock.sleep(Duration::from_secs(61)).await;
        assert_eq!(clock.time(), Time { secs: 1, nanos: 0 });
    }
}
