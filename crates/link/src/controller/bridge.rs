//! The state machine as QUIC sees it.

use super::Delay;
use super::base::Base;
use super::recent::Recent;
use quinn::congestion::{Controller, ControllerFactory};
use quinn_proto::RttEstimator;
use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug)]
pub(crate) struct DelayFactory;

impl ControllerFactory for DelayFactory {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        Box::new(Bridge {
            delay: Delay::new(now, current_mtu),
            smoothed: Base::new(now),
            lately: Base::lately(now),
            recent: Recent::default(),
            in_flight: 0,
            in_flight_most: 0,
        })
    }
}

#[derive(Clone, Debug)]
struct Bridge {
    delay: Delay,
    /// The smoothed round trip, without the time that the peer took to acknowledge.
    smoothed: Base,
    /// The lesser of both, of the last seconds.
    lately: Base,
    recent: Recent,
    /// Bytes under way, and the most of them since acknowledgements last came.
    in_flight: u64,
    in_flight_most: u64,
}

impl Bridge {
    /// Whether what is above sent as much as it may: it may hand down no more than that, and QUIC
    /// takes it for having nothing to send.
    fn is_full(&self) -> bool {
        self.in_flight_most + self.delay.packet_bytes() > self.delay.window()
    }
}

impl Controller for Bridge {
    fn on_sent(&mut self, _now: Instant, bytes: u64, _last_packet_number: u64) {
        self.in_flight += bytes;
        self.in_flight_most = self.in_flight_most.max(self.in_flight);
    }

    fn on_end_acks(
        &mut self,
        _now: Instant,
        in_flight: u64,
        _app_limited: bool,
        _largest_packet_num_acked: Option<u64>,
    ) {
        self.in_flight = in_flight;
        self.in_flight_most = in_flight;
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.delay.acked(now, sent, bytes, !app_limited || self.is_full());
        self.smoothed.seen(now, rtt.get());
        let delay = now.saturating_duration_since(sent);
        self.lately.seen(now, delay.min(rtt.get()));
        self.recent.seen(delay);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        _sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        if is_persistent_congestion {
            self.delay.all_lost(now);
        } else if lost_bytes == 0 {
            self.delay.marked();
        } else {
            self.delay.lost(lost_bytes);
        }
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.delay.set_packet(new_mtu);
    }

    fn window(&self) -> u64 {
        // QUIC keeps what is under way below this, not at it.
        self.delay.window() + 1
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        self.window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// What the controller knows of a link.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measured {
    /// Bytes a second that got through, as last measured.
    pub(crate) rate: Option<u64>,
    /// The same, once the window has met its bound: before, it is only what was tried.
    pub(crate) steady_rate: Option<u64>,
    /// The round trip as it is now, and how often it has been measured.
    pub(crate) round_trip: Option<Duration>,
    pub(crate) round_trips: u64,
    /// The least round trip of the last minutes.
    pub(crate) round_trip_least: Option<Duration>,
    /// That of the last second or two in which it was measured.
    pub(crate) round_trip_lately: Option<Duration>,
    /// Bytes acknowledged while the window was the bound, and how long it was.
    pub(crate) busy: (u64, Duration),
}

pub(crate) fn measured(connection: &quinn::Connection) -> Measured {
    let Ok(bridge) = connection.congestion_state().into_any().downcast::<Bridge>() else {
        return Measured::default();
    };
    // Neither is ever less than the truth.
    let round_trip_least = match (bridge.delay.round_trip_least(), bridge.smoothed.least()) {
        (Some(seen), Some(smoothed)) => Some(seen.min(smoothed)),
        (seen, smoothed) => seen.or(smoothed),
    };
    Measured {
        rate: bridge.delay.rate(),
        steady_rate: bridge.delay.steady_rate(),
        round_trip: bridge.recent.least(),
        round_trips: bridge.recent.count(),
        round_trip_least,
        round_trip_lately: bridge.lately.least(),
        busy: bridge.delay.busy(),
    }
}
