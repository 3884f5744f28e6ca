//! One direction of a link as a state machine: a queue, a transmitter, and the way to the far end.
//!
//! ```text
//! offer -> waiting -> sending -> flying -> due
//!           | full      | lost
//! ```
//! Holds: packets leave in the order in which they came; what is sent in any time is at most what
//! the rate allows; every packet offered is counted once as delivered, full, lost or cut, or is
//! still inside.
//! Never: reads the clock, sleeps, looks into a packet.

use crate::profile::Lane;
use crate::random::Random;
use serde::Serialize;
use std::collections::VecDeque;
use std::time::Duration;

/// Packets and the bytes in them, IP headers included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    pub packets: u64,
    pub bytes: u64,
}

impl Tally {
    fn add(&mut self, run: Run) {
        self.packets += run.packets;
        self.bytes += run.bytes as u64;
    }
}

/// What became of the packets of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Sent over the link, whether they arrived or not: the cost of the traffic.
    pub carried: Tally,
    pub delivered: Tally,
    /// Dropped because the queue was full.
    pub full: Tally,
    /// Sent, and lost by chance.
    pub lost: Tally,
    /// Dropped because the link was cut.
    pub cut: Tally,
}

/// Whether a packet was let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Queued,
    Full,
    Cut,
}

/// Packets that come as one: a single one, or what a sender hands down at once for the device to cut.
/// They have the same fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub packets: u64,
    /// On the wire, headers of each packet included.
    pub bytes: usize,
}

impl Run {
    /// A single packet.
    pub fn one(bytes: usize) -> Run {
        Run { packets: 1, bytes }
    }
}

/// All times count from the same moment, whichever the caller chose.
#[derive(Debug)]
pub struct Shape<P> {
    lane: Lane,
    random: Random,
    cut: bool,
    waiting: VecDeque<Packet<P>>,
    waiting_bytes: usize,
    sending: Option<Packet<P>>,
    /// When the transmitter is, or was, through with what it sent last.
    idle_at: Duration,
    flying: VecDeque<Packet<P>>,
    last_due: Duration,
    counters: Counters,
}

#[derive(Debug)]
struct Packet<P> {
    /// When it came, was sent or is due: as the list that it is on would have it.
    at: Duration,
    run: Run,
    packet: P,
}

impl<P> Shape<P> {
    pub fn new(lane: Lane, seed: u64) -> Self {
        Self {
            lane,
            random: Random::new(seed),
            cut: false,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            sending: None,
            idle_at: Duration::ZERO,
            flying: VecDeque::new(),
            last_due: Duration::ZERO,
            counters: Counters::default(),
        }
    }

    /// A packet, or a run of them, comes to the link.
    pub fn offer(&mut self, now: Duration, run: Run, packet: P) -> Fate {
        if self.cut {
            self.counters.cut.add(run);
            return Fate::Cut;
        }
        self.advance(now);
        let fits = self.waiting_bytes + run.bytes <= self.lane.queue_bytes_max;
        if self.sending.is_some() && !fits {
            self.counters.full.add(run);
            return Fate::Full;
        }
        self.waiting_bytes += run.bytes;
        self.waiting.push_back(Packet { at: now, run, packet });
        self.advance(now);
        Fate::Queued
    }

    /// The next packet that has reached the other end by now.
    pub fn due(&mut self, now: Duration) -> Option<P> {
        self.advance(now);
        let arrived = self.flying.pop_front_if(|first| first.at <= now)?;
        self.counters.delivered.add(arrived.run);
        Some(arrived.packet)
    }

    /// When there will be something to do, if nothing is offered before.
    pub fn next_at(&self) -> Option<Duration> {
        let sent = self.sending.as_ref().map(|packet| packet.at);
        let due = self.flying.front().map(|packet| packet.at);
        match (sent, due) {
            (Some(sent), Some(due)) => Some(sent.min(due)),
            (sent, due) => sent.or(due),
        }
    }

    /// Everything on the link is gone, and nothing gets in until `restore`.
    pub fn cut(&mut self) {
        self.cut = true;
        let inside = self.waiting.drain(..).chain(self.sending.take()).chain(self.flying.drain(..));
        for packet in inside {
            self.counters.cut.add(packet.run);
        }
        self.waiting_bytes = 0;
    }

    pub fn restore(&mut self, now: Duration) {
        self.cut = false;
        self.idle_at = now;
    }

    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// Packets that are already being sent or flying are not changed by it.
    pub fn set_lane(&mut self, now: Duration, lane: Lane) {
        self.advance(now);
        self.lane = lane;
    }

    pub fn lane(&self) -> Lane {
        self.lane
    }

    pub fn counters(&self) -> Counters {
        self.counters
    }

    pub fn reset_counters(&mut self) {
        self.counters = Counters::default();
    }

    /// Lets the transmitter do what it would have done by now.
    fn advance(&mut self, now: Duration) {
        loop {
            if let Some(sent) = self.sending.take_if(|packet| packet.at <= now) {
                self.sent(sent);
            }
            if self.sending.is_some() {
                return;
            }
            let Some(next) = self.waiting.pop_front() else { return };
            self.waiting_bytes -= next.run.bytes;
            let start = next.at.max(self.idle_at);
            self.idle_at = start + self.time_to_send(next.run.bytes);
            self.sending = Some(Packet { at: self.idle_at, ..next });
        }
    }

    /// Chance strikes after the link has been paid for.
    fn sent(&mut self, packet: Packet<P>) {
        self.counters.carried.add(packet.run);
        if self.lane.loss > 0.0 && self.random.chance(self.lane.loss) {
            self.counters.lost.add(packet.run);
            return;
        }
        let jitter = self.random.below(self.lane.jitter.as_nanos() as u64);
        let due = packet.at + self.lane.delay + Duration::from_nanos(jitter);
        self.last_due = due.max(self.last_due);
        self.flying.push_back(Packet { at: self.last_due, ..packet });
    }

    fn time_to_send(&self, bytes: usize) -> Duration {
        let nanos = bytes as u128 * 8 * 1_000_000_000 / u128::from(self.lane.bits_per_sec.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests;
