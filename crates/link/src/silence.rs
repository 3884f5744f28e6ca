//! Whether a link on which somebody waits for the other side is dead.
//! Holds: a link on which nobody waits is never probed and never given up.
//! Never: takes a slow answer for a dead link, since the probe is answered by QUIC itself.

use crate::Limits;
use crate::controller;
use crate::transport::code;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use world::{Clock, Moment};

/// What is too long depends on the link: at 9.6 kb/s a single packet takes a second.
const SILENCE_ROUND_TRIPS: u32 = 8;
const SILENCE_MOST: Duration = Duration::from_secs(120);
/// Within the bound this many probes are sent.
const PROBES: u32 = 3;
/// How often one looks, within the bound.
const LOOKS: u32 = 12;

/// What was heard, and when.
#[derive(Clone, Copy, Debug)]
struct Silence {
    datagrams: u64,
    since: Moment,
    probes: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Somebody begins to wait.
    Begin,
    Alive,
    /// Quiet for a while: ask whether anybody is there.
    Probe,
    Dead,
}

impl Silence {
    fn begin(datagrams: u64, now: Moment) -> Silence {
        Silence { datagrams, since: now, probes: 0 }
    }

    fn look(&mut self, datagrams: u64, now: Moment, bound: Duration) -> Look {
        if datagrams != self.datagrams {
            *self = Silence::begin(datagrams, now);
            return Look::Alive;
        }
        let quiet = now.since(self.since);
        if quiet >= bound {
            return Look::Dead;
        }
        if quiet >= bound / (PROBES + 1) * (self.probes + 1) {
            self.probes += 1;
            return Look::Probe;
        }
        Look::Alive
    }
}

/// A smoothed round trip goes on telling of an outage for a long time.
fn likely(smoothed: Duration, recent: Option<Duration>) -> Duration {
    recent.map_or(smoothed, |recent| smoothed.min(recent.saturating_mul(2)))
}

fn bound(limits: &Limits, round_trip: Duration) -> Duration {
    let slow = round_trip.saturating_mul(SILENCE_ROUND_TRIPS);
    limits.silence.max(slow.min(SILENCE_MOST))
}

/// How many wait for the other side.
#[derive(Debug, Default)]
pub(crate) struct Owed {
    count: AtomicUsize,
    begun: Notify,
}

impl Owed {
    pub(crate) fn begin(&self) -> Owing<'_> {
        if self.count.fetch_add(1, Ordering::AcqRel) == 0 {
            self.begun.notify_one();
        }
        Owing(self)
    }

    fn none(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }
}

/// One that waits, until dropped.
#[derive(Debug)]
pub(crate) struct Owing<'a>(&'a Owed);

impl Drop for Owing<'_> {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Watches `connection` for as long as it lives, and closes it when it is dead: gives how long it
/// had been silent. `seen` is told of every look, and sends the probe.
pub(crate) async fn watch(
    connection: &quinn::Connection,
    owed: &Owed,
    clock: &Clock,
    limits: &Limits,
    mut seen: impl FnMut(Look),
) -> Duration {
    let heard = || connection.stats().udp_rx.datagrams;
    loop {
        while owed.none() {
            owed.begun.notified().await;
        }
        let mut silence = Silence::begin(heard(), clock.moment());
        seen(Look::Begin);
        while !owed.none() {
            let recent = controller::measured(connection).round_trip;
            let bound = bound(limits, likely(connection.rtt(), recent));
            clock.sleep(bound / LOOKS).await;
            let look = silence.look(heard(), clock.moment(), bound);
            seen(look);
            if look == Look::Dead {
                tracing::info!(?bound, "nothing heard on the link: given up");
                connection.close(code::SILENT, b"nothing heard");
                return bound;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_quiet_link_is_probed_three_times_and_then_given_up() {
        let clock = Clock::simulated(0);
        let bound = Duration::from_secs(6);
        let mut silence = Silence::begin(5, clock.moment());
        let mut seen = Vec::new();
        for _ in 0..24 {
            clock.sleep(bound / LOOKS).await;
            seen.push(silence.look(5, clock.moment(), bound));
            if seen.last() == Some(&Look::Dead) {
                break;
            }
        }
        assert_eq!(seen.iter().filter(|look| **look == Look::Probe).count(), 3);
        assert_eq!(seen.len(), 12);
    }

    #[tokio::test(start_paused = true)]
    async fn whatever_is_heard_begins_the_wait_anew() {
        let clock = Clock::simulated(0);
        let bound = Duration::from_secs(6);
        let mut silence = Silence::begin(0, clock.moment());
        for datagrams in 1..100 {
            clock.sleep(Duration::from_secs(5)).await;
            assert_eq!(silence.look(datagrams, clock.moment(), bound), Look::Alive);
        }
    }

    #[test]
    fn an_outage_that_is_over_does_not_make_the_next_one_last() {
        let (short, outage) = (Duration::from_millis(60), Duration::from_secs(10));
        assert_eq!(likely(outage, Some(short)), short * 2);
        assert_eq!(likely(short, Some(outage)), short);
        assert_eq!(likely(short, None), short);
    }

    #[test]
    fn a_slow_link_may_be_silent_for_longer() {
        let limits = Limits::default();
        assert_eq!(bound(&limits, Duration::from_millis(20)), limits.silence);
        assert_eq!(bound(&limits, Duration::from_secs(3)), Duration::from_secs(24));
        assert_eq!(bound(&limits, Duration::from_secs(300)), SILENCE_MOST);
    }
}
