//! Links as they are measured on the way: made from a seed, second by second.

use protocol::LinkQuality;
use std::f64::consts::TAU;
use std::time::Duration;

/// What a link is like for a while.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// Median of the round trip, and the standard deviation of its logarithm.
    pub delay_ms: f64,
    pub jitter: f64,
    /// Share of seconds in which everything is late, and the most by which.
    pub late: f64,
    pub late_ms: f64,
    /// Bytes a second upwards.
    pub rate: f64,
    pub loss: f64,
}

impl Link {
    pub const CABLE: Link =
        Link { delay_ms: 1.0, jitter: 0.1, late: 0.0, late_ms: 0.0, rate: 1e7, loss: 0.0 };
    /// Wi-Fi.
    pub const RADIO: Link =
        Link { delay_ms: 3.0, jitter: 0.5, late: 0.03, late_ms: 200.0, rate: 2e6, loss: 0.005 };
    /// The third generation's.
    pub const TELEPHONE: Link =
        Link { delay_ms: 90.0, jitter: 0.4, late: 0.05, late_ms: 1500.0, rate: 6e4, loss: 0.01 };
}

/// What a session over such links counts.
pub struct Trace {
    state: u64,
    pub quality: LinkQuality,
    lost: f64,
}

impl Trace {
    pub fn new(seed: u64) -> Trace {
        Trace { state: seed, quality: LinkQuality::default(), lost: 0.0 }
    }

    /// From 0 to 1.
    fn share(&mut self) -> f64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.share().max(1e-12).ln()).sqrt();
        radius * (TAU * self.share()).cos()
    }

    /// A second in which a hundred packets are sent, and the sender is busy for a half of it.
    pub fn second(&mut self, link: &Link) {
        const PACKETS: u64 = 100;
        let mut delay = link.delay_ms * (self.normal() * link.jitter).exp();
        if self.share() < link.late {
            delay += self.share() * link.late_ms;
        }
        let lost = (0..PACKETS).filter(|_| self.share() < link.loss).count();
        let rate = link.rate * (self.normal() * link.jitter).exp();
        self.lost += lost as f64;
        self.quality.round_trip_lately = Some(Duration::from_secs_f64(delay / 1000.0));
        let counts = &mut self.quality.counts;
        counts.round_trips += PACKETS / 2;
        counts.packets_sent += PACKETS;
        counts.packets_lost = self.lost as u64;
        counts.busy_bytes += (rate / 2.0) as u64;
        counts.busy_for += Duration::from_millis(500);
    }
}
