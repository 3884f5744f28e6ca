//! Links that people have, by name: rate, delay, loss and queue of both directions.
//! From: Fluid Replication, table 1, for the seven that carry its names.

use crate::{Error, Result};
use serde::Serialize;
use std::time::Duration;

/// One direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Lane {
    pub bits_per_sec: u64,
    /// From one end to the other.
    pub delay: Duration,
    /// Added to the delay, anew for each packet, from none to this much. Packets keep their order.
    pub jitter: Duration,
    /// The share of packets that are sent and never arrive.
    pub loss: f64,
    /// What may wait to be sent; a packet that does not fit is dropped.
    pub queue_bytes_max: usize,
}

/// A link: `up` leads from the near end, where the client is, to the far one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Profile {
    pub name: String,
    pub about: String,
    pub up: Lane,
    pub down: Lane,
}

const KB: u64 = 1_000;
const MB: u64 = 1_000_000;
const GB: u64 = 1_000_000_000;

/// The name of the profile in which the link is not what is measured.
pub const LAN: &str = "lan";

struct Row {
    name: &'static str,
    up: u64,
    down: u64,
    delay_us: u64,
    jitter_us: u64,
    loss: f64,
    about: &'static str,
}

const fn row(
    name: &'static str,
    (up, down): (u64, u64),
    delay_us: u64,
    about: &'static str,
) -> Row {
    Row { name, up, down, delay_us, jitter_us: 0, loss: 0.0, about }
}

/// The delay of the four dial-up links is what was measured with modems, their own work included.
#[rustfmt::skip]
const ROWS: &[Row] = &[
    row(LAN, (GB, GB), 0, "as good as no link at all"),
    row("office", (300 * MB, 300 * MB), 1_000, "good Wi-Fi in the same building"),
    row("adsl", (348 * KB, 1_500 * KB), 30_000, "a house in the country"),
    Row { jitter_us: 30_000, loss: 0.02,
        ..row("weak-lte", (500 * KB, 2 * MB), 60_000, "one bar, on a train") },
    Row { loss: 0.01,
        ..row("satellite", (512 * KB, 2 * MB), 300_000, "a ship, by way of a geostationary orbit") },
    row("64k", (64 * KB, 64 * KB), 100_000, "the slowest that LBFS's workloads are measured on"),
    row("isdn", (64 * KB, 64 * KB), 100_000, "one B channel"),
    row("modem", (57_600, 57_600), 100_000, "57.6 kb/s"),
    row("modem-28.8", (28_800, 28_800), 100_000, "28.8 kb/s"),
    row("modem-9.6", (9_600, 9_600), 100_000, "9.6 kb/s"),
    row("local-area", (10 * MB, 10 * MB), 0, "Fluid Replication, table 1"),
    row("small-distance", (4 * MB, 4 * MB), 15_000, "Fluid Replication, table 1"),
    row("medium-distance", (3 * MB, 3 * MB), 33_500, "Fluid Replication, table 1"),
    row("large-distance", (MB, MB), 45_000, "Fluid Replication, table 1"),
    row("intercontinental", (MB, MB), 55_000, "Fluid Replication, table 1"),
    row("low-bandwidth", (56 * KB, 56 * KB), 0, "Fluid Replication, table 1"),
    row("high-latency", (10 * MB, 10 * MB), 200_000, "Fluid Replication, table 1"),
];

/// Queues hold this much time at their rate, as those of home routers and modems do.
const QUEUE_MS: u64 = 250;
/// So that a slow link can hold a burst of a few packets, and a fast one is no memory hog.
const QUEUE_BYTES: std::ops::RangeInclusive<u64> = 16 * 1024..=4 * 1024 * 1024;

impl Lane {
    /// A direction without jitter and loss, with the usual queue.
    pub fn new(bits_per_sec: u64, delay: Duration) -> Self {
        let queue = bits_per_sec * QUEUE_MS / 8_000;
        let queue_bytes_max = queue.clamp(*QUEUE_BYTES.start(), *QUEUE_BYTES.end()) as usize;
        Self { bits_per_sec, delay, jitter: Duration::ZERO, loss: 0.0, queue_bytes_max }
    }

    fn words(&self) -> String {
        let mut words = format!("{}, {:?}", rate(self.bits_per_sec), self.delay);
        if !self.jitter.is_zero() {
            words += &format!(" to {:?}", self.delay + self.jitter);
        }
        if self.loss > 0.0 {
            words += &format!(", {} % lost", self.loss * 100.0);
        }
        words
    }
}

impl Profile {
    pub fn all() -> Vec<Self> {
        ROWS.iter().map(Self::from_row).collect()
    }

    pub fn named(name: &str) -> Result<Self> {
        let row = ROWS.iter().find(|row| row.name == name);
        row.map(Self::from_row).ok_or_else(|| Error::Profile(name.into()))
    }

    pub fn lan() -> Self {
        Self::from_row(&ROWS[0])
    }

    /// The same both ways.
    pub fn symmetric(name: &str, lane: Lane) -> Self {
        Self { name: name.into(), about: String::new(), up: lane, down: lane }
    }

    fn from_row(row: &Row) -> Self {
        let lane = |rate| Lane {
            jitter: Duration::from_micros(row.jitter_us),
            loss: row.loss,
            ..Lane::new(rate, Duration::from_micros(row.delay_us))
        };
        Self {
            name: row.name.into(),
            about: row.about.into(),
            up: lane(row.up),
            down: lane(row.down),
        }
    }

    /// Both directions in one line.
    pub fn words(&self) -> String {
        if self.up == self.down {
            return format!("{} each way", self.up.words());
        }
        format!("up {}; down {}", self.up.words(), self.down.words())
    }
}

/// `1.5 Mb/s`
pub fn rate(bits_per_sec: u64) -> String {
    let (value, unit) = match bits_per_sec {
        GB.. => (bits_per_sec as f64 / GB as f64, "Gb/s"),
        MB.. => (bits_per_sec as f64 / MB as f64, "Mb/s"),
        _ => (bits_per_sec as f64 / KB as f64, "kb/s"),
    };
    format!("{value} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_is_found_by_its_name() {
        for profile in Profile::all() {
            assert_eq!(Profile::named(&profile.name).unwrap(), profile);
            assert!(profile.up.bits_per_sec > 0 && profile.down.queue_bytes_max >= 1500);
        }
        assert!(Profile::named("carrier-pigeon").is_err());
        assert_eq!(Profile::lan().name, LAN);
    }

    #[test]
    fn a_profile_says_what_it_is_in_one_line() {
        let words = |name| Profile::named(name).unwrap().words();
        assert_eq!(words("adsl"), "up 348 kb/s, 30ms; down 1.5 Mb/s, 30ms");
        assert_eq!(words("local-area"), "10 Mb/s, 0ns each way");
        assert!(words("weak-lte").contains("60ms to 90ms, 2 % lost"));
    }
}
