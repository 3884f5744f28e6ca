//! How one asks the replica above, and how a replica is asked.
//! Holds: events of one upstream come in the order in which the replica above sent them.

use crate::{Class, Notice, Request, Response};
use std::future::Future;
use std::time::Duration;

/// The request was not answered: the link is down, or was cut before the answer came. Whether
/// the request was done is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreachable {
    #[error("there is no connection to the server")]
    NoLink,
    #[error("the connection to the server was lost before it answered")]
    Lost,
    #[error("the server turned this device away: {0}")]
    TurnedAway(String),
    /// It is there, and does not let this device use the volume now: its store fails, for one.
    #[error("{0}")]
    Refused(String),
    #[error("nothing was heard from the server for {} s", .0.as_secs())]
    Silent(Duration),
    /// The server's name has no address, or no network leads there.
    #[error("nothing leads to the server from here")]
    NoWay,
    #[error("the mode is disconnected, as was asked for")]
    Unwanted,
}

impl Unreachable {
    /// How long nothing has been heard, where that is the reason.
    pub fn silent_for(&self) -> Duration {
        match self {
            Unreachable::Silent(silent) => *silent,
            _ => Duration::ZERO,
        }
    }
}

/// What an upstream tells without being asked.
#[derive(Debug)]
pub enum Event {
    /// A new session: attach before anything else.
    Up,
    /// The session is gone, and with it the callbacks once their lease ends; or there can be none now.
    Down(Unreachable),
    /// Something changed. The replica above waits until `done` is called, or dropped.
    Notice(Notice, tokio::sync::oneshot::Sender<()>),
}

/// The link as it was last measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkQuality {
    pub connected: bool,
    /// The round trip as last measured, how long ago that was, and the least of some minutes.
    pub round_trip: Option<Duration>,
    pub round_trip_age: Option<Duration>,
    pub round_trip_min: Option<Duration>,
    /// The least of the last second or two in which it was measured.
    pub round_trip_lately: Option<Duration>,
    /// Bytes a second, as last estimated from what was acknowledged.
    pub rate_up: Option<u64>,
    pub rate_down: Option<u64>,
    /// Bytes a second that the user lets it carry. None: as many as it can.
    pub limit_up: Option<u64>,
    pub limit_down: Option<u64>,
    pub counts: LinkCounts,
}

/// What this session has counted since it began; who looks twice knows what happened between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// How often the round trip has been measured.
    pub round_trips: u64,
    /// Packets that were sent, and of these what was taken to be lost.
    pub packets_sent: u64,
    pub packets_lost: u64,
    /// Bytes in packets, both ways together.
    pub wire_bytes: u64,
    /// Bytes that were acknowledged while the link, and not what there was to send, was the bound;
    /// and how long that was so.
    pub busy_bytes: u64,
    pub busy_for: Duration,
}

/// Within a house a round trip takes no longer, and over a slow link it takes longer.
pub const HOUSE: Duration = Duration::from_millis(5);
/// What a link within a house carries in a second, at least nearly always.
const HOUSE_RATE: u64 = 2 << 20;

/// The rate of a link as it was measured, or as its round trip lets one expect: while little goes over
/// a fast link, little is measured. None: nothing speaks for one rate or another.
pub fn likely_rate(measured: Option<u64>, round_trip_min: Option<Duration>) -> Option<u64> {
    let in_house = round_trip_min.is_some_and(|trip| trip <= HOUSE);
    // None is less than any rate.
    measured.max(in_house.then_some(HOUSE_RATE))
}

fn limited(rate: Option<u64>, limit: Option<u64>) -> Option<u64> {
    match (rate, limit) {
        (Some(rate), Some(limit)) => Some(rate.min(limit)),
        (rate, limit) => rate.or(limit),
    }
}

impl LinkQuality {
    /// Bytes a second towards us, measured or as is likely.
    pub fn likely_down(&self) -> Option<u64> {
        limited(likely_rate(self.rate_down, self.round_trip_min), self.limit_down)
    }

    /// Bytes a second from us, measured or as is likely.
    pub fn likely_up(&self) -> Option<u64> {
        limited(likely_rate(self.rate_up, self.round_trip_min), self.limit_up)
    }
}

/// Bytes sent and received by class, as messages; and on the wire, all told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// In the order of `Class::ALL`.
    pub sent: [u64; 4],
    pub received: [u64; 4],
    pub wire_sent: u64,
    pub wire_received: u64,
}

/// The replica above, as the one below sees it. It reconnects by itself and tells so.
pub trait Upstream: Send + Sync + 'static {
    /// Asks, and waits for the answer as long as the session lives.
    fn ask(
        &self,
        class: Class,
        request: Request,
    ) -> impl Future<Output = Result<Response, Unreachable>> + Send;

    /// The next event. None: the upstream has been closed for good.
    fn event(&self) -> impl Future<Output = Option<Event>> + Send;

    fn quality(&self) -> LinkQuality;

    fn traffic(&self) -> Traffic;

    /// Somebody counts on a session, or waits for one: whether it still bears is found out soon, and
    /// where there is none the next attempt to make one comes without a rest.
    fn look(&self) {}
}

/// The one below, as the replica above sees it.
pub trait Downstream: Send + Sync + 'static {
    /// Sends a notice. Ready when the one below has taken it in; false if it never will.
    fn tell(&self, notice: Notice) -> impl Future<Output = bool> + Send;

    /// Bytes a second that the way down carries, as far as that is known.
    fn rate(&self) -> Option<u64> {
        None
    }

    /// The session lives, as far as that is known: what it asks may be answered when it has ended.
    fn is_there(&self) -> bool {
        true
    }
}

/// Who wants a session. The link has proved that it holds `device`'s private key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The device's public key, as its certificate has it (DER SubjectPublicKeyInfo).
    pub device: Vec<u8>,
    /// The name that the device gives itself, for people to read. Not proved.
    pub name: String,
    pub volume: String,
    /// The token of an invitation, if the device brings one.
    pub invitation: Option<String>,
}

/// Why a caller gets no session. What the caller learns of it is the same for all but `Busy`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TurnedAway {
    /// Unknown device, used or unknown invitation, unknown volume: an uninvited device learns
    /// nothing, so these are one.
    #[error(
        "the server does not know this device, or the invitation has been used; \
         ask for a new invitation (farfs invite)"
    )]
    NotInvited,
    #[error("the server cannot take the session now: {0}")]
    Busy(String),
}

/// A replica as the link sees it: admits callers.
pub trait Service: Send + Sync + 'static {
    type Session: Session;

    fn admit<D: Downstream>(
        &self,
        caller: Caller,
        downstream: D,
    ) -> impl Future<Output = Result<Self::Session, TurnedAway>> + Send;
}

/// One caller's session. Dropped when the link is gone.
pub trait Session: Send + Sync + 'static {
    fn answer(&self, request: Request) -> impl Future<Output = Response> + Send;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_carries_no_more_than_the_user_lets_it() {
        let quality = |rate_down, trip, limit_down| LinkQuality {
            rate_down,
            round_trip_min: Some(Duration::from_micros(trip)),
            limit_down,
            ..LinkQuality::default()
        };
        assert_eq!(quality(Some(21_000), 300, Some(20_000)).likely_down(), Some(20_000));
        assert_eq!(quality(Some(7_000), 30_000, Some(20_000)).likely_down(), Some(7_000));
        assert_eq!(quality(None, 30_000, Some(20_000)).likely_down(), Some(20_000));
        assert_eq!(quality(None, 30_000, None).likely_down(), None);
        assert_eq!(quality(Some(9), 300, Some(20_000)).likely_up(), Some(HOUSE_RATE));
    }

    #[test]
    fn the_round_trip_tells_a_house_from_what_is_far() {
        let trip = |micros| Some(Duration::from_micros(micros));
        assert_eq!(likely_rate(None, trip(300)), Some(HOUSE_RATE));
        assert_eq!(likely_rate(None, trip(30_000)), None);
        assert_eq!(likely_rate(None, None), None);
        assert_eq!(likely_rate(Some(1_200), trip(300)), Some(HOUSE_RATE), "little was asked for");
        assert_eq!(likely_rate(Some(100 << 20), trip(300)), Some(100 << 20));
        assert_eq!(likely_rate(Some(1_200), trip(30_000)), Some(1_200));
    }
}
