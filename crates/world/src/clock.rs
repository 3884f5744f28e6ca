//! Three clocks: one that people read; one that only goes forward, and stands still while the machine is
//! suspended, as what this machine does and sleeps by it; and one that goes on meanwhile, as others do.

use model::Time;
use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
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

/// Since the machine was started, in suspend or not.
fn since_boot() -> Duration {
    let since = clock_gettime(ClockId::Boottime);
    let secs = u64::try_from(since.tv_sec).unwrap_or(0);
    Duration::new(secs, u32::try_from(since.tv_nsec).unwrap_or(0))
}

/// A moment, and how long after the start of the machine it was.
static BEGUN: LazyLock<(Instant, Duration)> = LazyLock::new(|| (Instant::now(), since_boot()));

/// A moment on the clock that goes on in suspend: what others have promised ends by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OuterMoment(Instant);

impl OuterMoment {
    /// How long after `earlier` this is; zero if it is not.
    pub fn since(self, earlier: OuterMoment) -> Duration {
        self.0.saturating_duration_since(earlier.0)
    }
}

impl std::ops::Add<Duration> for OuterMoment {
    type Output = OuterMoment;

    fn add(self, duration: Duration) -> OuterMoment {
        OuterMoment(self.0 + duration)
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
    /// For how long the machine was suspended.
    suspended_secs: Arc<AtomicU64>,
}

impl Clock {
    pub fn real() -> Clock {
        Clock { simulated: None }
    }

    pub fn simulated(epoch_secs: i64) -> Clock {
        let (epoch_secs, suspended_secs) = (Arc::new(AtomicI64::new(epoch_secs)), Arc::default());
        let start = Instant::now();
        Clock { simulated: Some(Simulated { start, epoch_secs, suspended_secs }) }
    }

    /// The clock of another machine: of a simulated one, the wall clock is set by itself.
    pub fn apart(&self) -> Clock {
        let simulated = self.simulated.as_ref().map(|Simulated { start, epoch_secs, .. }| {
            let epoch_secs = Arc::new(AtomicI64::new(epoch_secs.load(Ordering::Relaxed)));
            Simulated { start: *start, epoch_secs, suspended_secs: Arc::default() }
        });
        Clock { simulated }
    }

    /// Sets the wall clock forward, or back. The machine's own is left alone.
    pub fn shift(&self, secs: i64) {
        if let Some(Simulated { epoch_secs, .. }) = &self.simulated {
            epoch_secs.fetch_add(secs, Ordering::Relaxed);
        }
    }

    /// As if the machine had just come back from so long a suspend. Its own clocks are left alone.
    pub fn suspend(&self, secs: u32) {
        if let Some(Simulated { suspended_secs, .. }) = &self.simulated {
            suspended_secs.fetch_add(secs.into(), Ordering::Relaxed);
            self.shift(secs.into());
        }
    }

    /// For how long the machine has been suspended since it was started, about.
    pub fn suspended(&self) -> Duration {
        match &self.simulated {
            Some(Simulated { suspended_secs, .. }) => {
                Duration::from_secs(suspended_secs.load(Ordering::Relaxed))
            }
            None => {
                let (begun, booted) = *BEGUN;
                let awake = Instant::now().saturating_duration_since(begun);
                since_boot().saturating_sub(booted + awake)
            }
        }
    }

    pub fn moment(&self) -> Moment {
        Moment(Instant::now())
    }

    pub fn outer_moment(&self) -> OuterMoment {
        match &self.simulated {
            Some(_) => OuterMoment(Instant::now() + self.suspended()),
            None => {
                let (begun, booted) = *BEGUN;
                OuterMoment(begun + since_boot().saturating_sub(booted))
            }
        }
    }

    /// A clock set before 1970 shows 1970.
    pub fn time(&self) -> Time {
        let since_1970 = match &self.simulated {
            Some(Simulated { start, epoch_secs, .. }) => {
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
    async fn while_a_machine_is_suspended_one_of_its_clocks_stands_still() {
        let (clock, hour) = (Clock::simulated(1_000), Duration::from_secs(3_600));
        let (apart, start, outside) = (clock.apart(), clock.moment(), clock.outer_moment());
        clock.suspend(3_600);
        assert_eq!(clock.moment(), start);
        assert_eq!(clock.outer_moment().since(outside), hour);
        assert_eq!((clock.time().secs, clock.suspended()), (4_600, hour));
        assert_eq!((apart.outer_moment(), apart.suspended()), (outside, Duration::ZERO));
    }

    #[test]
    fn the_machines_own_clock_goes_forward_as_fast_as_time_does() {
        let (clock, begun) = (Clock::real(), std::time::Instant::now());
        let (first, suspended) = (clock.outer_moment(), clock.suspended());
        std::thread::sleep(Duration::from_millis(20));
        let (passed, most) = (clock.outer_moment().since(first), begun.elapsed());
        assert!(passed >= Duration::from_millis(20), "{passed:?}");
        // Unless the machine is suspended just now.
        let suspended = clock.suspended().saturating_sub(suspended);
        assert!(passed <= most + suspended + Duration::from_millis(1), "{passed:?} of {most:?}");
        assert!(clock.outer_moment() >= first + passed);
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
