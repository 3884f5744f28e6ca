//! How much may be under way at once, decided by delay: the queue that we make at the slowest
//! link is kept short, so that whatever is urgent overtakes it, and other programs have room.
//!
//! ```text
//!   start --queue grows, or much is lost--> steady --the least delay is old--> drain
//!     ^                                      |  ^                                |
//!     +------------everything lost-----------+  +-----------two rounds-----------+
//! ```
//!
//! Holds: a window of at least two packets (one while the path is learned anew) and at most
//! `WINDOW_MOST`; random loss below `LOSS_TOLERATED` changes nothing.
//! From: LEDBAT (target delay), FAST TCP (steps in proportion), measured at 9.6 kb/s to 1 Gb/s.

mod base;
mod bridge;
mod recent;

use base::Base;
use std::time::{Duration, Instant};

pub(crate) use bridge::{DelayFactory, measured};

/// Standing queue that we aim at, as time: half the empty round trip within these bounds, but
/// enough that a packet is always there to be sent.
const TARGET_LEAST: Duration = Duration::from_millis(10);
const TARGET_MOST: Duration = Duration::from_millis(250);
const TARGET_PACKETS: f64 = 1.5;
/// The share of the longest packet from which on a shorter one says nothing more.
const SHORT_LEAST: f64 = 0.375;

const WINDOW_LEAST_PACKETS: f64 = 2.0;
/// A burst of more would be seconds on a slow link.
const WINDOW_FIRST_PACKETS: f64 = 4.0;
const WINDOW_MOST: f64 = (64 << 20) as f64;

/// How far a round goes towards where the window should be, and how much it may grow.
const STEP: f64 = 0.5;
const GROWTH_MOST: f64 = 1.5;

/// A share that radio links lose by chance. Of what is lost beyond it, three standard deviations
/// are still taken for chance; more means that somebody's queue is full.
const LOSS_TOLERATED: f64 = 0.02;
const LOSS_DEVIATIONS: f64 = 3.0;
/// The window goes so far below what met losses.
const LOSS_CUT: f64 = 0.92;
/// Fewer packets say nothing about how many are lost.
const LOSS_PACKETS_LEAST: f64 = 40.0;
const LOSS_PACKETS_LEAST_AT_START: f64 = 8.0;
/// A window that met losses is tried again slowly, for so long.
const CEILING_FOR: Duration = Duration::from_secs(30);
const ECN_CUT: f64 = 0.85;

/// With a queue that never empties the empty round trip is not seen, so it is made to be.
const DRAIN_AFTER: Duration = Duration::from_secs(30);
const DRAIN_ROUNDS: u32 = 2;
const DRAIN_SHARE: f64 = 0.75;
/// With the least window for so long, what delay there is, is not ours.
const RELEARN_AFTER: Duration = Duration::from_secs(30);

/// The queue that we make is let run empty, to see the empty round trip.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Drain {
    rounds: u32,
    /// To go on with afterwards.
    window: f64,
    /// What was known of the path is wrong: what is seen now takes its place.
    relearn: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Start,
    Steady,
    Drain(Drain),
}

/// What was seen between the sending of a packet and its acknowledgement.
#[derive(Clone, Copy, Debug)]
struct Round {
    began: Instant,
    delay_least: Option<Duration>,
    acked: f64,
    /// Bytes of the longest packet that was acknowledged.
    longest: f64,
    lost: f64,
    /// The window, and not what there was to send, was the bound.
    limited: bool,
    marked: bool,
}

impl Round {
    fn begin(now: Instant) -> Round {
        Round {
            began: now,
            delay_least: None,
            acked: 0.0,
            longest: 0.0,
            lost: 0.0,
            limited: false,
            marked: false,
        }
    }
}

/// The state machine, without QUIC around it. Bytes and times.
#[derive(Clone, Debug)]
pub(crate) struct Delay {
    packet: f64,
    window: f64,
    phase: Phase,
    base: Base,
    round: Round,
    /// Bytes a second that were acknowledged while the window was the bound, smoothed.
    rate: Option<f64>,
    /// Bytes that were acknowledged in rounds in which the window was the bound and had been found, and
    /// how long those took.
    busy: (f64, Duration),
    /// Since losses were last judged.
    acked: f64,
    lost: f64,
    /// The window after losses, and since when it is respected.
    ceiling: Option<(f64, Instant)>,
    least_since: Option<Instant>,
}

impl Delay {
    pub(crate) fn new(now: Instant, packet_bytes: u16) -> Delay {
        let packet = f64::from(packet_bytes);
        Delay {
            packet,
            window: packet * WINDOW_FIRST_PACKETS,
            phase: Phase::Start,
            base: Base::new(now),
            round: Round::begin(now),
            rate: None,
            busy: (0.0, Duration::ZERO),
            acked: 0.0,
            lost: 0.0,
            ceiling: None,
            least_since: None,
        }
    }

    pub(crate) fn window(&self) -> u64 {
        self.window as u64
    }

    pub(crate) fn rate(&self) -> Option<u64> {
        self.rate.map(|rate| rate as u64)
    }

    /// None while the window is still looking for its bound.
    pub(crate) fn steady_rate(&self) -> Option<u64> {
        self.rate().filter(|_| self.phase != Phase::Start)
    }

    pub(crate) fn busy(&self) -> (u64, Duration) {
        (self.busy.0 as u64, self.busy.1)
    }

    pub(crate) fn packet_bytes(&self) -> u64 {
        self.packet as u64
    }

    pub(crate) fn round_trip_least(&self) -> Option<Duration> {
        self.base.least()
    }

    pub(crate) fn set_packet(&mut self, packet_bytes: u16) {
        self.packet = f64::from(packet_bytes);
        self.bound_window();
    }

    /// A packet of `bytes` that left at `sent` has been acknowledged. `limited`: more would
    /// have been sent, had the window been larger.
    pub(crate) fn acked(&mut self, now: Instant, sent: Instant, bytes: u64, limited: bool) {
        let delay = now.saturating_duration_since(sent);
        self.base.seen(now, delay);
        let bytes = bytes as f64;
        self.round.acked += bytes;
        self.round.longest = self.round.longest.max(bytes);
        self.round.limited |= limited;
        let least = self.round.delay_least.map_or(delay, |least| least.min(delay));
        self.round.delay_least = Some(least);
        if self.phase == Phase::Start && limited {
            // Doubles in every round.
            self.window += bytes;
            self.bound_window();
        }
        if sent >= self.round.began {
            self.end_round(now, least);
        }
    }

    pub(crate) fn lost(&mut self, bytes: u64) {
        self.round.lost += bytes as f64;
    }

    /// The path has marked packets instead of dropping them.
    pub(crate) fn marked(&mut self) {
        self.round.marked = true;
    }

    /// Nothing has come through for a long time.
    pub(crate) fn all_lost(&mut self, now: Instant) {
        self.window = self.packet * WINDOW_LEAST_PACKETS;
        self.phase = Phase::Start;
        self.round = Round::begin(now);
        self.ceiling = None;
        (self.acked, self.lost) = (0.0, 0.0);
    }

    fn end_round(&mut self, now: Instant, least: Duration) {
        let round = std::mem::replace(&mut self.round, Round::begin(now));
        self.acked += round.acked;
        self.lost += round.lost;
        let base = self.base.least().unwrap_or(least);
        let queue = least.saturating_sub(base);
        self.measure_rate(&round, now);
        let target = self.target(base, &round);

        if let Some(keep) = self.judge_losses(&round) {
            self.cut(now, keep);
        } else {
            match self.phase {
                Phase::Start if queue > target / 2 => {
                    // What is too much already is known, so it is not sent first.
                    let keep = (base + target).as_secs_f64() / least.as_secs_f64().max(1e-9);
                    self.window *= keep.min(1.0);
                    self.phase = Phase::Steady;
                }
                Phase::Start => {}
                Phase::Steady => self.step(&round, base, queue, target),
                Phase::Drain(drain) => self.drain(drain, now, least),
            }
        }
        self.bound_window();
        self.look_at_base(now, &round, base, queue, target);
    }

    fn measure_rate(&mut self, round: &Round, now: Instant) {
        let long = now.saturating_duration_since(round.began);
        let seconds = long.as_secs_f64();
        if seconds <= 0.0 {
            return;
        }
        // While it looks for its bound, and while a queue is let run empty, it is less than the link's.
        if round.limited && self.phase == Phase::Steady {
            self.busy = (self.busy.0 + round.acked, self.busy.1 + long);
        }
        let seen = round.acked / seconds;
        self.rate = Some(match self.rate {
            Some(rate) if round.limited => rate + (seen - rate) / 4.0,
            // With little to send, only what is faster than known says something.
            Some(rate) => rate.max(seen),
            None => seen,
        });
    }

    /// Of packets that are short only so that others overtake them, fewer bytes wait too.
    fn target(&self, base: Duration, round: &Round) -> Duration {
        let short = (round.longest / self.packet).clamp(SHORT_LEAST, 1.0);
        // Where there was no more to send, they are short for that.
        let share = if round.limited { short } else { 1.0 };
        let packets = match self.rate {
            Some(rate) if rate > 0.0 => {
                let waiting = 1.0 + (TARGET_PACKETS - 1.0) * share;
                Duration::try_from_secs_f64(waiting * share * self.packet / rate)
                    .unwrap_or(TARGET_MOST)
            }
            _ => Duration::ZERO,
        };
        (base / 2).mul_f64(share).max(packets).clamp(TARGET_LEAST, TARGET_MOST)
    }

    /// The share of the window to keep, if more was lost than chance explains.
    fn judge_losses(&mut self, round: &Round) -> Option<f64> {
        if round.marked {
            return Some(ECN_CUT);
        }
        let lost = self.lost / self.packet;
        let packets = lost + self.acked / self.packet;
        let enough = match self.phase {
            Phase::Start => LOSS_PACKETS_LEAST_AT_START,
            _ => LOSS_PACKETS_LEAST,
        };
        if packets < enough {
            return None;
        }
        (self.acked, self.lost) = (0.0, 0.0);
        let expected = packets * LOSS_TOLERATED;
        let chance = expected + LOSS_DEVIATIONS * expected.sqrt();
        (lost > chance).then(|| (1.0 - lost / packets) * LOSS_CUT)
    }

    fn cut(&mut self, now: Instant, keep: f64) {
        if let Phase::Drain(drain) = self.phase {
            self.window = drain.window;
        }
        self.window *= keep.max(0.5);
        self.phase = Phase::Steady;
        self.ceiling = Some((self.window, now));
    }

    /// Half of the way to where the queue would be the target.
    fn step(&mut self, round: &Round, base: Duration, queue: Duration, target: Duration) {
        let ratio = (base + target).as_secs_f64() / (base + queue).as_secs_f64().max(1e-9);
        let mut wanted = self.window * (1.0 - STEP + STEP * ratio).min(GROWTH_MOST);
        if wanted > self.window {
            if !round.limited {
                return;
            }
            if let Some((ceiling, since)) = self.ceiling {
                wanted = wanted.min(self.window.max(ceiling) + self.packet);
                let respected = self.round.began.saturating_duration_since(since) < CEILING_FOR;
                self.ceiling = respected.then_some((ceiling, since));
            }
        }
        self.window = wanted;
    }

    fn drain(&mut self, drain: Drain, now: Instant, least: Duration) {
        if let Some(rounds) = drain.rounds.checked_sub(1) {
            self.phase = Phase::Drain(Drain { rounds, ..drain });
            return;
        }
        if drain.relearn {
            self.base.relearn(now, least);
        }
        self.window = drain.window;
        self.phase = Phase::Steady;
    }

    /// Keeps the empty round trip known.
    fn look_at_base(
        &mut self,
        now: Instant,
        round: &Round,
        base: Duration,
        queue: Duration,
        target: Duration,
    ) {
        if self.phase != Phase::Steady {
            return;
        }
        let least_window = self.window <= self.packet * WINDOW_LEAST_PACKETS;
        let drain = Drain { rounds: DRAIN_ROUNDS, window: self.window, relearn: false };
        if least_window && queue > target {
            let since = *self.least_since.get_or_insert(now);
            if now.saturating_duration_since(since) >= RELEARN_AFTER {
                self.least_since = None;
                self.phase = Phase::Drain(Drain { relearn: true, ..drain });
                self.window = self.packet;
            }
            return;
        }
        self.least_since = None;
        if round.limited && !least_window && self.base.age(now) >= DRAIN_AFTER {
            self.base.looked(now);
            self.phase = Phase::Drain(drain);
            let empty = base.as_secs_f64() / (base + queue).as_secs_f64().max(1e-9);
            self.window *= empty * DRAIN_SHARE;
            self.bound_window();
        }
    }

    fn bound_window(&mut self) {
        let least = match self.phase {
            Phase::Drain(drain) if drain.relearn => self.packet,
            _ => self.packet * WINDOW_LEAST_PACKETS,
        };
        self.window = self.window.clamp(least, WINDOW_MOST);
    }
}

#[cfg(test)]
mod tests;
