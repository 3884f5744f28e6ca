//! How long updates take to come how far.
//! Holds: what is counted as reached was reached by then; of who has been told of an update the
//! replica above is asked only where that costs next to nothing of what the update did.
//! From: Fluid Replication, "visibility and safety"; DESIGN, `Reach`.

use crate::client::Client;
use model::Time;
use protocol::{Reach, ReachTimes, Upstream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use store::Containers;
use tokio::sync::Notify;
use world::Moment;

/// Bounds of what is counted together, in microseconds: from a sync of a quick disk to a day.
const BOUNDS_US: [u64; 18] = [
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    15_000_000,
    60_000_000,
    300_000_000,
    1_800_000_000,
    14_400_000_000,
    86_400_000_000,
];
/// Updates that are on their way to the disk and counted; more than this are not.
const UNSYNCED_MAX: usize = 65_536;
/// One question who has been told, and its answer, are a hundredth of this.
const ASK_PER_BYTES: u64 = 16 << 10;
/// No question is asked sooner after another.
const ASK_APART: Duration = Duration::from_secs(60);

/// A distribution of times.
#[derive(Default)]
pub(crate) struct Took {
    sum_us: AtomicU64,
    most_us: AtomicU64,
    within: [AtomicU64; BOUNDS_US.len()],
    longer: AtomicU64,
}

impl Took {
    pub fn note(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let at = BOUNDS_US.partition_point(|bound| *bound < us);
        self.within.get(at).unwrap_or(&self.longer).fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
        self.most_us.fetch_max(us, Ordering::Relaxed);
    }

    pub fn told(&self, reach: Reach) -> ReachTimes {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let within: Vec<(u64, u64)> =
            BOUNDS_US.into_iter().zip(self.within.iter().map(load)).collect();
        let updates = within.iter().map(|(_, count)| count).sum::<u64>() + load(&self.longer);
        ReachTimes {
            reach,
            updates,
            sum_us: load(&self.sum_us),
            most_us: load(&self.most_us),
            within,
        }
    }
}

/// What is counted since the mount.
#[derive(Default)]
pub(crate) struct Reached {
    logged: Took,
    pub home: Took,
    visible: Took,
    /// When those were logged that the disk may not have.
    unsynced: Mutex<Vec<Moment>>,
    sample: Mutex<Sample>,
    wanted: Notify,
}

/// Of which update it is asked who has been told.
#[derive(Default)]
struct Sample {
    /// When it was logged.
    next: Option<Time>,
    /// When the last was asked about, and how much had been sent by then.
    last: Option<(Moment, u64)>,
}

impl Sample {
    /// Whether a question may be asked now, so many bytes having been sent.
    fn may_ask(&self, now: Moment, sent: u64) -> bool {
        self.next.is_none()
            && self.last.map_or(sent >= ASK_PER_BYTES, |(at, before)| {
                now.since(at) >= ASK_APART && sent.saturating_sub(before) >= ASK_PER_BYTES
            })
    }
}

/// A clock that was set back makes nothing negative.
pub(crate) fn between(at: Time, now: Time) -> Duration {
    let nanos = |time: Time| i128::from(time.secs) * 1_000_000_000 + i128::from(time.nanos);
    Duration::from_nanos(u64::try_from(nanos(now) - nanos(at)).unwrap_or(0))
}

impl Reached {
    pub fn note_appended(&self, now: Moment) {
        let mut unsynced = self.unsynced.lock().unwrap_or_else(PoisonError::into_inner);
        if unsynced.len() < UNSYNCED_MAX {
            unsynced.push(now);
        }
    }

    /// What the next sync of the log brings to the disk.
    pub fn before_sync(&self) -> Vec<Moment> {
        std::mem::take(&mut *self.unsynced.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn note_synced(&self, appended: &[Moment], now: Moment) {
        appended.iter().for_each(|at| self.logged.note(now.since(*at)));
    }

    pub fn note_sync_failed(&self, mut appended: Vec<Moment>) {
        let mut unsynced = self.unsynced.lock().unwrap_or_else(PoisonError::into_inner);
        appended.append(&mut *unsynced);
        appended.truncate(UNSYNCED_MAX);
        *unsynced = appended;
    }

    pub fn note_visible(&self, took: Duration) {
        self.visible.note(took);
    }

    /// There is one server: what is on another machine is at home.
    pub fn told(&self) -> Vec<ReachTimes> {
        vec![
            self.logged.told(Reach::Logged),
            self.home.told(Reach::Safe),
            self.visible.told(Reach::Visible),
            self.home.told(Reach::Home),
        ]
    }

    fn sample(&self) -> std::sync::MutexGuard<'_, Sample> {
        self.sample.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Updates that were logged at these times have been judged. Of those that somebody waited for,
    /// everybody had been told before; where there is nobody else, there is nobody to tell.
    pub(crate) fn note_home(&self, logged: impl Iterator<Item = Time>, strict: bool) {
        let (now, reached) = (self.inner.world.clock.time(), &self.inner.counters.reached);
        let (alone, may_ask) = {
            let connection = self.connection();
            (connection.alone, connection.attached && connection.tells && !connection.paused)
        };
        let mut first = None;
        for at in logged {
            first.get_or_insert(at);
            let took = between(at, now);
            reached.home.note(took);
            if strict || alone {
                reached.note_visible(took);
            }
        }
        if strict || alone || !may_ask {
            return;
        }
        let traffic = self.inner.upstream.traffic();
        let sent = traffic.sent.iter().sum();
        let mut sample = reached.sample();
        let moment = self.inner.world.clock.moment();
        if let (Some(first), true) = (first, sample.may_ask(moment, sent)) {
            sample.next = Some(first);
            sample.last = Some((moment, sent));
            reached.wanted.notify_one();
        }
    }

    /// Asks of an update here and there when everybody has been told, until `shut_down`.
    pub(crate) async fn run_reached(&self) {
        let reached = &self.inner.counters.reached;
        while !self.is_stopping() {
            tokio::select! {
                biased;
                () = reached.wanted.notified() => {}
                () = self.until_stopping() => break,
            }
            let Some(at) = reached.sample().next else { continue };
            match self.visible().await {
                Ok(()) => reached.note_visible(between(at, self.inner.world.clock.time())),
                Err(error) => tracing::debug!(%error, "nobody said who has been told"),
            }
            reached.sample().next = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use world::World;

    #[test]
    fn times_are_counted_by_the_bound_that_they_do_not_exceed() {
        let took = Took::default();
        let day = Duration::from_secs(86_400);
        for time in [Duration::ZERO, Duration::from_millis(1), Duration::from_micros(1_001), day] {
            took.note(time);
        }
        took.note(day * 2);
        let told = took.told(Reach::Home);
        assert_eq!((told.updates, told.most_us), (5, 172_800_000_000));
        assert_eq!(told.sum_us, 2_001 + 3 * 86_400_000_000);
        let counted: Vec<_> = told.within.iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted, [&(1_000, 2), &(2_500, 1), &(86_400_000_000, 1)]);
    }

    #[test]
    fn a_clock_that_was_set_back_makes_no_time_negative() {
        let at = |secs, nanos| Time { secs, nanos };
        assert_eq!(between(at(10, 900_000_000), at(12, 100_000_000)), Duration::from_millis(1_200));
        assert_eq!(between(at(20, 0), at(19, 0)), Duration::ZERO);
    }

    #[test]
    fn what_a_sync_did_not_bring_to_the_disk_counts_with_the_next() {
        let now = World::simulated(0, 1).clock.moment();
        let reached = Reached::default();
        reached.note_appended(now);
        let first = reached.before_sync();
        reached.note_appended(now + Duration::from_secs(1));
        reached.note_sync_failed(first);
        let both = reached.before_sync();
        reached.note_synced(&both, now + Duration::from_secs(3));
        let told = reached.logged.told(Reach::Logged);
        assert_eq!((told.updates, told.sum_us, told.most_us), (2, 5_000_000, 3_000_000));
        assert!(reached.before_sync().is_empty());
    }

    #[test]
    fn who_has_been_told_is_asked_once_a_minute_at_most_and_where_much_is_sent() {
        let now = World::simulated(0, 1).clock.moment();
        let mut sample = Sample::default();
        assert!(!sample.may_ask(now, 1_000), "one small update");
        assert!(sample.may_ask(now, ASK_PER_BYTES));
        sample.last = Some((now, ASK_PER_BYTES));
        assert!(!sample.may_ask(now + ASK_APART / 2, 100 * ASK_PER_BYTES));
        assert!(!sample.may_ask(now + ASK_APART, ASK_PER_BYTES + 1_000));
        assert!(sample.may_ask(now + ASK_APART, 2 * ASK_PER_BYTES));
        sample.next = Some(Time { secs: 1, nanos: 0 });
        assert!(!sample.may_ask(now + ASK_APART, 2 * ASK_PER_BYTES), "one is asked about");
    }
}
