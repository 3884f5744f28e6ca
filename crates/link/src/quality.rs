//! What has gone over the link, by class and on the wire, and how fast the other side sends.

use crate::classes::place;
use crate::controller;
use protocol::{Class, LinkCounts, LinkQuality, Traffic};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use world::Moment;

/// Bytes of messages, before compression; and on the wire for connections that have ended.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    sent: [AtomicU64; 4],
    received: [AtomicU64; 4],
    wire_sent: AtomicU64,
    wire_received: AtomicU64,
}

impl Counters {
    pub(crate) fn sent(&self, class: Class, bytes: u64) {
        self.sent[place(class)].fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn received(&self, class: Class, bytes: u64) {
        self.received[place(class)].fetch_add(bytes, Ordering::Relaxed);
    }

    /// A connection has ended: its bytes are kept.
    pub(crate) fn ended(&self, connection: &quinn::Connection) {
        let (sent, received) = wire(connection);
        self.wire_sent.fetch_add(sent, Ordering::Relaxed);
        self.wire_received.fetch_add(received, Ordering::Relaxed);
    }

    /// All so far, with those of a connection that lives.
    pub(crate) fn traffic(&self, live: Option<&quinn::Connection>) -> Traffic {
        let (sent, received) = live.map(wire).unwrap_or_default();
        let read = |counts: &[AtomicU64; 4]| {
            std::array::from_fn(|class| counts[class].load(Ordering::Relaxed))
        };
        Traffic {
            sent: read(&self.sent),
            received: read(&self.received),
            wire_sent: self.wire_sent.load(Ordering::Relaxed) + sent,
            wire_received: self.wire_received.load(Ordering::Relaxed) + received,
        }
    }
}

/// Bytes on the wire, sent and received: datagrams with their UDP and IP headers.
fn wire(connection: &quinn::Connection) -> (u64, u64) {
    const UDP_IPV4: u64 = 8 + 20;
    const UDP_IPV6: u64 = 8 + 40;
    let header = match connection.remote_address() {
        SocketAddr::V6(address) if address.ip().to_ipv4_mapped().is_none() => UDP_IPV6,
        _ => UDP_IPV4,
    };
    let stats = connection.stats();
    let bytes = |udp: quinn::UdpStats| udp.bytes + udp.datagrams * header;
    (bytes(stats.udp_tx), bytes(stats.udp_rx))
}

/// How fast the other side sends, at its best lately. It may have had little to send, so a low
/// stretch says nothing, and the best of several counts. An answer came at least as fast as its
/// bytes in the time since it was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrivals {
    began: Moment,
    bytes_at_beginning: u64,
    /// Bytes a second of the quickest answer of this stretch.
    answered: u64,
    /// Bytes a second in the last stretches, newest first.
    best: [u64; Arrivals::STRETCHES],
}

impl Arrivals {
    const STRETCHES: usize = 8;
    /// Shorter stretches measure bursts. On a slow link it is two round trips.
    const STRETCH_LEAST: Duration = Duration::from_millis(250);
    /// A stretch in which less has come says nothing about the link.
    const STRETCH_BYTES_LEAST: u64 = 2_400;
    /// Fewer may come at once where a link lets bursts through.
    const ANSWER_BYTES_LEAST: u64 = 16 << 10;

    pub(crate) fn begin(bytes: u64, now: Moment) -> Arrivals {
        Arrivals {
            began: now,
            bytes_at_beginning: bytes,
            answered: 0,
            best: [0; Arrivals::STRETCHES],
        }
    }

    /// The time before was idle.
    pub(crate) fn begin_again(&mut self, bytes: u64, now: Moment) {
        self.began = now;
        self.bytes_at_beginning = bytes;
    }

    /// `bytes` have come since the connection began.
    pub(crate) fn look(&mut self, bytes: u64, now: Moment, round_trip: Duration) {
        let long = now.since(self.began);
        if long < Arrivals::STRETCH_LEAST.max(round_trip * 2) {
            return;
        }
        let came = bytes.saturating_sub(self.bytes_at_beginning);
        if came >= Arrivals::STRETCH_BYTES_LEAST {
            self.best.rotate_right(1);
            self.best[0] = ((came as f64 / long.as_secs_f64()) as u64).max(self.answered);
            self.answered = 0;
        }
        self.began = now;
        self.bytes_at_beginning = bytes;
    }

    /// An answer of so many bytes came so long after it was asked for.
    pub(crate) fn answered(&mut self, bytes: u64, after: Duration) {
        if bytes >= Arrivals::ANSWER_BYTES_LEAST && !after.is_zero() {
            self.answered = self.answered.max((bytes as f64 / after.as_secs_f64()) as u64);
        }
    }

    pub(crate) fn rate(&self) -> Option<u64> {
        self.best.into_iter().chain([self.answered]).max().filter(|rate| *rate > 0)
    }
}

/// When the round trip was last found to have been measured anew.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measuring {
    round_trips: u64,
    at: Moment,
}

impl Measuring {
    pub(crate) fn begin(now: Moment) -> Measuring {
        Measuring { round_trips: 0, at: now }
    }

    /// How long ago that was, as exactly as one looks often.
    fn age(&mut self, round_trips: u64, now: Moment) -> Duration {
        if round_trips != self.round_trips {
            *self = Measuring { round_trips, at: now };
        }
        now.since(self.at)
    }
}

pub(crate) fn quality(
    connection: &quinn::Connection,
    rate_down: Option<u64>,
    measuring: &mut Measuring,
    now: Moment,
) -> LinkQuality {
    let measured = controller::measured(connection);
    let path = connection.stats().path;
    let (sent, received) = wire(connection);
    LinkQuality {
        connected: true,
        // The handshake's own, until something has been acknowledged after it.
        round_trip: measured.round_trip.or(Some(connection.rtt())),
        round_trip_age: Some(measuring.age(measured.round_trips, now)),
        round_trip_min: measured.round_trip_least.or(Some(connection.min_rtt())),
        round_trip_lately: measured.round_trip_lately.or(Some(connection.min_rtt())),
        rate_up: measured.rate,
        rate_down,
        limit_up: None,
        limit_down: None,
        counts: LinkCounts {
            round_trips: measured.round_trips,
            packets_sent: path.sent_packets,
            packets_lost: path.lost_packets,
            wire_bytes: sent + received,
            busy_bytes: measured.busy.0,
            busy_for: measured.busy.1,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use world::Clock;

    #[tokio::test(start_paused = true)]
    async fn the_best_stretch_lately_is_the_rate() {
        let clock = Clock::simulated(0);
        let mut arrivals = Arrivals::begin(0, clock.moment());
        let mut bytes = 0;
        let mut second = async |came: u64, arrivals: &mut Arrivals| {
            clock.sleep(Duration::from_secs(1)).await;
            bytes += came;
            arrivals.look(bytes, clock.moment(), Duration::from_millis(20));
        };
        assert_eq!(arrivals.rate(), None);
        second(50, &mut arrivals).await;
        assert_eq!(arrivals.rate(), None, "too little to tell");
        second(100_000, &mut arrivals).await;
        second(10_000, &mut arrivals).await;
        assert_eq!(arrivals.rate(), Some(100_000));
        for _ in 0..Arrivals::STRETCHES {
            second(10_000, &mut arrivals).await;
        }
        assert_eq!(arrivals.rate(), Some(10_000), "the link has become slower");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_says_more_than_the_stretch_that_it_came_in() {
        let clock = Clock::simulated(0);
        let mut arrivals = Arrivals::begin(0, clock.moment());
        arrivals.answered(1_000, Duration::from_micros(10));
        assert_eq!(arrivals.rate(), None, "a burst may be that quick anywhere");
        arrivals.answered(100_000, Duration::from_millis(10));
        arrivals.answered(100_000, Duration::from_millis(100));
        assert_eq!(arrivals.rate(), Some(10_000_000));
        let mut bytes = 0;
        for _ in 0..Arrivals::STRETCHES {
            assert_eq!(arrivals.rate(), Some(10_000_000));
            clock.sleep(Duration::from_secs(1)).await;
            bytes += 200_000;
            arrivals.look(bytes, clock.moment(), Duration::from_millis(20));
        }
        clock.sleep(Duration::from_secs(1)).await;
        arrivals.look(bytes + 200_000, clock.moment(), Duration::from_millis(20));
        assert_eq!(arrivals.rate(), Some(200_000), "it is as old as its stretch");
    }

    #[tokio::test(start_paused = true)]
    async fn a_round_trip_is_as_old_as_the_last_one_that_was_measured() {
        let clock = Clock::simulated(0);
        let mut measuring = Measuring::begin(clock.moment());
        let second = Duration::from_secs(1);
        clock.sleep(second).await;
        assert_eq!(measuring.age(3, clock.moment()), Duration::ZERO);
        clock.sleep(second * 40).await;
        assert_eq!(measuring.age(3, clock.moment()), second * 40);
        assert_eq!(measuring.age(4, clock.moment()), Duration::ZERO);
    }

    #[test]
    fn bytes_are_counted_by_class() {
        let counters = Counters::default();
        counters.sent(Class::Demand, 5);
        counters.sent(Class::Demand, 6);
        counters.received(Class::Prefetch, 7);
        let traffic = counters.traffic(None);
        assert_eq!(traffic.sent, [0, 11, 0, 0]);
        assert_eq!(traffic.received, [0, 0, 0, 7]);
    }
}
