//! What the link is like: its delay, its rate upwards, and how much is lost, of samples that are taken
//! about every second.
//! Holds: what the sender did not use says nothing about the rate; a round trip behind much that was
//! on its way says at most that the link is no slower; a rate that is not seen again is forgotten.
//! Never: reads a clock. Times are counted from any fixed moment.

use crate::flipflop::FlipFlop;
use protocol::LinkQuality;
use std::fmt;
use std::time::Duration;

/// A round trip may be lengthened by chance and never shortened, so of the first samples of a session the
/// least counts, that of the handshake included.
const EARLY_SAMPLES: u32 = 4;
/// Later it is the least of so many; or of those that came in so long, where little is sent.
const ROUND_TRIPS_LEAST: u64 = 8;
const ROUND_TRIPS_WITHIN: Duration = Duration::from_secs(10);
/// Nobody looks more often.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// With more bytes in one look, both ways together, what is measured of the delay may be our own queue.
const QUIET_BYTES: u64 = 32 << 10;
/// Shorter stretches in which the sender was busy measure bursts.
const BUSY_LEAST: Duration = Duration::from_millis(100);
/// Of fewer packets nothing is said about loss, and of those of a longer time nothing about now.
const LOSS_PACKETS_LEAST: u64 = 50;
const LOSS_WITHIN: Duration = Duration::from_secs(60);
/// A rate that was measured longer ago counts no more: the link may be another.
const RATE_COUNTS_FOR: Duration = Duration::from_secs(600);
/// Of delay and rate the logarithms are filtered: they vary by factors, and one that is late a
/// hundred times must not outweigh ninety-nine that are in time. So much of them is always chance.
const FACTOR_DEVIATION: f64 = 0.1;
/// Shares of packets; and a single sample in which more is lost says no more than that.
const LOSS_DEVIATION: f64 = 0.005;
const LOSS_MOST: f64 = 0.25;

/// None: not known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Round trip.
    pub delay: Option<Duration>,
    /// Bytes a second upwards.
    pub rate: Option<u64>,
    /// Share of the packets that we send.
    pub loss: Option<f64>,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let delay = self.delay.map(|delay| {
            let millis = delay.as_secs_f64() * 1000.0;
            let digits = usize::from(millis < 10.0);
            format!("round trip {millis:.digits$} ms")
        });
        let rate = self.rate.map(|rate| format!("{} KiB/s up", rate.div_ceil(1 << 10)));
        let loss = self.loss.filter(|loss| *loss >= 0.001);
        let loss = loss.map(|loss| format!("{:.1} % lost", loss * 100.0));
        let known: Vec<String> = [delay, rate, loss].into_iter().flatten().collect();
        if known.is_empty() { f.write_str("not measured") } else { f.write_str(&known.join(", ")) }
    }
}

/// What was seen since the look before.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    pub figures: Figures,
    /// The session has only begun: the delay is the least since then.
    pub early: bool,
    /// So much went that the delay may have been our own doing.
    pub busy: bool,
}

/// What is made of the samples.
#[derive(Clone, Copy, Debug)]
pub struct Estimate {
    delay: FlipFlop,
    rate: FlipFlop,
    rate_at: Duration,
    loss: FlipFlop,
}

impl Default for Estimate {
    fn default() -> Estimate {
        Estimate {
            delay: FlipFlop::new(FACTOR_DEVIATION),
            rate: FlipFlop::new(FACTOR_DEVIATION),
            rate_at: Duration::ZERO,
            loss: FlipFlop::new(LOSS_DEVIATION),
        }
    }
}

impl Estimate {
    pub fn take(&mut self, sample: &Sample, now: Duration) {
        let Figures { delay, rate, loss } = sample.figures;
        if let Some(delay) = delay {
            let value = delay.as_secs_f64().max(1e-6).ln();
            let lower = self.delay.value().is_none_or(|known| value < known);
            if sample.early && lower {
                self.delay = FlipFlop::new(FACTOR_DEVIATION);
            }
            if lower || !(sample.busy || sample.early) {
                self.delay.take(value);
            }
        }
        if let Some(rate) = rate {
            if now.saturating_sub(self.rate_at) >= RATE_COUNTS_FOR {
                self.rate = FlipFlop::new(FACTOR_DEVIATION);
            }
            self.rate.take((rate.max(1) as f64).ln());
            self.rate_at = now;
        }
        if let Some(loss) = loss {
            self.loss.take(loss.min(LOSS_MOST));
        }
    }

    pub fn figures(&self, now: Duration) -> Figures {
        let fresh = now.saturating_sub(self.rate_at) < RATE_COUNTS_FOR;
        Figures {
            delay: self.delay.value().map(|value| Duration::from_secs_f64(value.exp())),
            rate: self.rate.value().filter(|_| fresh).map(|value| value.exp() as u64),
            loss: self.loss.value().map(|loss| loss.max(0.0)),
        }
    }
}

/// Makes samples of what a session has counted from its beginning.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sampler {
    looked: Option<Looked>,
}

#[derive(Clone, Copy, Debug)]
struct Looked {
    at: Duration,
    /// Samples of the delay, up to those that are early.
    samples: u32,
    /// Since the last of them: how many had been measured, when that was, and the least.
    round_trips: u64,
    round_trips_at: Duration,
    round_trip: Option<Duration>,
    wire_bytes: u64,
    /// What the next rate is counted from.
    busy_bytes: u64,
    busy_for: Duration,
    /// What the next loss is counted from, and since when.
    packets: u64,
    lost: u64,
    packets_at: Duration,
}

impl Sampler {
    /// None: it is too early.
    pub fn look(&mut self, quality: &LinkQuality, now: Duration) -> Option<Sample> {
        let counts = quality.counts;
        let delay = quality.round_trip_lately.or(quality.round_trip_min);
        let Some(looked) = &mut self.looked else {
            self.looked = Some(Looked {
                at: now,
                samples: 1,
                round_trips: counts.round_trips,
                round_trips_at: now,
                round_trip: None,
                wire_bytes: counts.wire_bytes,
                busy_bytes: counts.busy_bytes,
                busy_for: counts.busy_for,
                packets: counts.packets_sent,
                lost: counts.packets_lost,
                packets_at: now,
            });
            let delay = delay.into_iter().chain(quality.round_trip_min).min();
            let figures = Figures { delay, ..Figures::default() };
            return Some(Sample { figures, early: true, busy: false });
        };
        if now.saturating_sub(looked.at) < LOOK_EVERY {
            return None;
        }
        looked.at = now;
        let moved = counts.wire_bytes.saturating_sub(looked.wire_bytes);
        looked.wire_bytes = counts.wire_bytes;
        let early = looked.samples < EARLY_SAMPLES;
        let delay = match early {
            true => delay.into_iter().chain(quality.round_trip_min).min(),
            false => delay,
        };
        let figures = Figures {
            delay: looked.delay(delay, counts.round_trips, now),
            rate: looked.rate(counts.busy_bytes, counts.busy_for),
            loss: looked.loss(counts.packets_sent, counts.packets_lost, now),
        };
        Some(Sample { figures, early, busy: moved > QUIET_BYTES })
    }
}

impl Looked {
    fn delay(&mut self, seen: Option<Duration>, count: u64, now: Duration) -> Option<Duration> {
        let new = count.saturating_sub(self.round_trips);
        if new == 0 {
            self.round_trips_at = now;
            return None;
        }
        self.round_trip = self.round_trip.into_iter().chain(seen).min();
        let long = now.saturating_sub(self.round_trips_at);
        let early = self.samples < EARLY_SAMPLES;
        if !early && new < ROUND_TRIPS_LEAST && long < ROUND_TRIPS_WITHIN {
            return None;
        }
        self.samples += u32::from(early);
        (self.round_trips, self.round_trips_at) = (count, now);
        self.round_trip.take()
    }

    fn rate(&mut self, busy_bytes: u64, busy_for: Duration) -> Option<u64> {
        let long = busy_for.saturating_sub(self.busy_for);
        if long < BUSY_LEAST {
            return None;
        }
        let bytes = busy_bytes.saturating_sub(self.busy_bytes);
        (self.busy_bytes, self.busy_for) = (busy_bytes, busy_for);
        Some((bytes as f64 / long.as_secs_f64()) as u64)
    }

    fn loss(&mut self, packets: u64, lost: u64, now: Duration) -> Option<f64> {
        let sent = packets.saturating_sub(self.packets);
        let share = (sent >= LOSS_PACKETS_LEAST)
            .then(|| (lost.saturating_sub(self.lost) as f64 / sent as f64).min(1.0));
        if share.is_some() || now.saturating_sub(self.packets_at) >= LOSS_WITHIN {
            (self.packets, self.lost, self.packets_at) = (packets, lost, now);
        }
        share
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::LinkCounts;

    const SECOND: Duration = Duration::from_secs(1);
    const MS: Duration = Duration::from_millis(1);

    #[derive(Default)]
    struct Session {
        quality: LinkQuality,
        sampler: Sampler,
        estimate: Estimate,
        now: Duration,
    }

    impl Session {
        fn second(&mut self, change: impl FnOnce(&mut LinkQuality)) -> Option<Sample> {
            self.now += SECOND;
            change(&mut self.quality);
            let sample = self.sampler.look(&self.quality, self.now);
            if let Some(sample) = &sample {
                self.estimate.take(sample, self.now);
            }
            sample
        }

        fn trip(&mut self, trip: Duration) -> Option<Sample> {
            self.second(|quality| {
                quality.round_trip_lately = Some(trip);
                quality.counts.round_trips += ROUND_TRIPS_LEAST;
            })
        }

        fn figures(&self) -> Figures {
            self.estimate.figures(self.now)
        }
    }

    fn settled(trip: Duration) -> Session {
        let mut session = Session::default();
        (0..=EARLY_SAMPLES).for_each(|_| assert!(session.trip(trip).is_some()));
        session
    }

    #[test]
    fn a_round_trip_counts_once() {
        let mut session = settled(MS);
        assert_eq!(session.second(|_| ()).unwrap().figures.delay, None);
        assert_eq!(session.trip(MS * 3).unwrap().figures.delay, Some(MS * 3));
        let now = session.now + LOOK_EVERY / 2;
        assert_eq!(session.sampler.look(&session.quality, now), None, "too early");
    }

    #[test]
    fn of_the_first_samples_the_least_counts() {
        let mut session = Session::default();
        session.quality.round_trip_min = Some(MS * 15);
        for (trip, known) in [(20, 15), (9, 9), (300, 9), (300, 9)] {
            let sample = session.trip(MS * trip).unwrap();
            assert!(sample.early);
            assert_eq!(
                session.figures().delay.unwrap().as_secs_f64().mul_add(1e3, 0.5) as u32,
                known
            );
        }
        assert!(!session.trip(MS).unwrap().early);
    }

    #[test]
    fn a_sample_is_the_least_of_enough_round_trips() {
        let mut session = settled(MS);
        let mut few = |trip: u32| {
            let sample = session.second(|quality| {
                quality.round_trip_lately = Some(MS * trip);
                quality.counts.round_trips += 3;
            });
            sample.unwrap().figures.delay
        };
        assert_eq!((few(9), few(40), few(50)), (None, None, Some(MS * 9)));
        let mut one = |trip: u32| {
            let sample = session.second(|quality| {
                quality.round_trip_lately = Some(MS * trip);
                quality.counts.round_trips += u64::from(trip > 0);
            });
            sample.unwrap().figures.delay
        };
        assert_eq!(one(60), None);
        let later: Vec<_> = (0..20).filter_map(|_| one(50)).collect();
        assert_eq!(later, [MS * 50, MS * 50], "what comes rarely counts in the end, and once");
    }

    #[test]
    fn behind_much_that_was_sent_a_round_trip_says_only_that_the_link_is_no_slower() {
        let mut session = settled(MS * 4);
        for _ in 0..20 {
            session.second(|quality| {
                quality.round_trip_lately = Some(MS * 200);
                quality.counts.round_trips += 9;
                quality.counts.wire_bytes += 1 << 20;
            });
        }
        assert_eq!(session.figures().delay.unwrap().as_millis(), 4);
        for _ in 0..5 {
            session.second(|quality| {
                quality.round_trip_lately = Some(MS);
                quality.counts.round_trips += 9;
                quality.counts.wire_bytes += 1 << 20;
            });
        }
        assert_eq!(session.figures().delay.unwrap().as_millis(), 1);
    }

    #[test]
    fn only_what_was_sent_while_the_sender_was_busy_says_something_about_the_rate() {
        let mut session = Session::default();
        session.trip(MS);
        for _ in 0..5 {
            session.second(|quality| quality.counts.wire_bytes += 100);
        }
        assert_eq!(session.figures().rate, None);
        for _ in 0..5 {
            session.second(|quality| {
                quality.counts.busy_bytes += 50_000;
                quality.counts.busy_for += SECOND / 2;
            });
        }
        let rate = session.figures().rate.unwrap();
        assert!((99_000..=101_000).contains(&rate), "{rate}");
        session.now += RATE_COUNTS_FOR;
        assert_eq!(session.figures().rate, None, "it is too old");
        session.second(|quality| {
            quality.counts.busy_bytes += 10_000;
            quality.counts.busy_for += SECOND;
        });
        let rate = session.figures().rate.unwrap();
        assert!((9_900..=10_100).contains(&rate), "it begins anew: {rate}");
    }

    #[test]
    fn loss_is_of_enough_packets_and_of_now() {
        let mut session = Session::default();
        let mut second = |sent: u64, lost: u64| {
            session
                .second(|quality| {
                    let LinkCounts { packets_sent, packets_lost, .. } = &mut quality.counts;
                    (*packets_sent, *packets_lost) = (*packets_sent + sent, *packets_lost + lost);
                })
                .unwrap()
                .figures
                .loss
        };
        assert_eq!(second(0, 0), None);
        assert_eq!(second(30, 3), None, "too few");
        assert_eq!(second(30, 3), Some(0.1));
        assert_eq!(second(100, 0), Some(0.0));
        assert_eq!(second(20, 20), None);
        (0..70).for_each(|_| assert_eq!(second(0, 0), None));
        assert_eq!(second(60, 6), Some(0.1), "what was lost before is long ago");
    }

    #[test]
    fn figures_are_told_as_far_as_they_are_known() {
        let figures = Figures { delay: Some(MS * 60), rate: Some(43_500), loss: Some(0.031) };
        assert_eq!(figures.to_string(), "round trip 60 ms, 43 KiB/s up, 3.1 % lost");
        let figures = Figures { delay: Some(MS * 3 / 2), rate: None, loss: Some(0.0) };
        assert_eq!(figures.to_string(), "round trip 1.5 ms");
        assert_eq!(Figures::default().to_string(), "not measured");
    }
}
