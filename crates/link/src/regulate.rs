//! How much a session may send, and how its traffic classes share that, as the user wants it, in
//! both directions.
//! Holds: a limit holds up nobody for longer than a piece takes at that rate; what the one below
//! asks of the one above is bounded before it counts.
//! From: partially connected operation, 5.1: tickets are "a knob to turn".

use crate::Error;
use crate::hello::Upward;
use crate::live::Live;
use minicbor::{Decode, Encode};
use std::fmt;
use std::str::FromStr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A lower limit would make notices of what others did come late, and sessions fail.
pub const RATE_LEAST: u64 = 1 << 10;
const TICKETS_MOST: u16 = 1000;
/// Prefetch has what is left: of one ticket of the others so small a part.
const PARTS: u64 = 16;
/// What packets have beside what they carry, about: one byte in so many.
const HEADERS_ONE_IN: u64 = 16;
/// So many pieces go in a second at least, so that who is more urgent does not wait long.
const PIECES_A_SECOND: u64 = 20;
const PIECE_BYTES_LEAST: u64 = 128;

/// Tickets of interactive, demand and replay traffic in the lottery, and of prefetch if it is to have
/// more than what is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Tickets {
    #[n(0)]
    interactive: u16,
    #[n(1)]
    demand: u16,
    #[n(2)]
    replay: u16,
    /// None: a part of one ticket.
    #[n(3)]
    prefetch: Option<u16>,
}

impl Default for Tickets {
    fn default() -> Tickets {
        Tickets { interactive: 8, demand: 3, replay: 1, prefetch: None }
    }
}

impl Tickets {
    /// Each is taken as at least 1, so that nobody starves, and at most 1,000.
    pub fn new(interactive: u16, demand: u16, replay: u16) -> Tickets {
        let [interactive, demand, replay] =
            [interactive, demand, replay].map(|tickets| tickets.clamp(1, TICKETS_MOST));
        Tickets { interactive, demand, replay, prefetch: None }
    }

    /// The same with so many tickets of prefetch.
    #[must_use]
    pub fn with_prefetch(self, prefetch: Option<u16>) -> Tickets {
        Tickets { prefetch: prefetch.map(|tickets| tickets.clamp(1, TICKETS_MOST)), ..self }
    }

    /// By class, in the order of `Class::ALL`.
    pub(crate) fn by_class(self) -> [u64; 4] {
        let Tickets { interactive, demand, replay, prefetch } = self;
        let prefetch = prefetch.map_or(1, |tickets| u64::from(tickets) * PARTS);
        let [interactive, demand, replay] =
            [interactive, demand, replay].map(|tickets| u64::from(tickets) * PARTS);
        [interactive, demand, replay, prefetch]
    }
}

impl fmt::Display for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.interactive, self.demand, self.replay)?;
        self.prefetch.map_or(Ok(()), |prefetch| write!(f, ":{prefetch}"))
    }
}

/// As `8:3:1`, or `8:3:1:1` with prefetch.
impl FromStr for Tickets {
    type Err = Error;

    fn from_str(text: &str) -> Result<Tickets, Error> {
        let mut numbers = text.split(':').map(|part| {
            part.trim().parse::<u16>().ok().filter(|number| (1..=TICKETS_MOST).contains(number))
        });
        let mut next = || numbers.next().flatten();
        let (Some(interactive), Some(demand), Some(replay)) = (next(), next(), next()) else {
            return Err(Error::Tickets(text.to_owned()));
        };
        match (numbers.next(), numbers.next()) {
            (None, None) => Ok(Tickets::new(interactive, demand, replay)),
            (Some(Some(prefetch)), None) => {
                Ok(Tickets::new(interactive, demand, replay).with_prefetch(Some(prefetch)))
            }
            _ => Err(Error::Tickets(text.to_owned())),
        }
    }
}

/// What one side of a session keeps to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub(crate) struct Rule {
    /// Bytes a second on the wire, about.
    #[n(0)]
    rate_max: Option<u64>,
    #[n(1)]
    tickets: Option<Tickets>,
}

impl Rule {
    pub(crate) fn tickets(self) -> [u64; 4] {
        let Tickets { interactive, demand, replay, prefetch } = self.tickets.unwrap_or_default();
        // A peer may say what it likes.
        Tickets::new(interactive, demand, replay).with_prefetch(prefetch).by_class()
    }

    fn rate_max(self) -> Option<u64> {
        self.rate_max.map(|rate| rate.max(RATE_LEAST))
    }

    /// The longest piece that may go at once.
    pub(crate) fn piece_bytes_max(self) -> u64 {
        let at_rate = |rate: u64| (rate / PIECES_A_SECOND).max(PIECE_BYTES_LEAST);
        self.rate_max().map_or(u64::MAX, at_rate)
    }

    /// How long nothing goes after so many bytes.
    pub(crate) fn rest_after(self, bytes: u64) -> Option<Duration> {
        let rate = self.rate_max()?;
        let on_wire = bytes + bytes / HEADERS_ONE_IN;
        Some(Duration::from_secs_f64(on_wire as f64 / rate as f64))
    }
}

/// What the user wants of the link to a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Regulation {
    /// Bytes a second on the wire, about: at least `RATE_LEAST`. None: as many as it carries.
    pub up: Option<u64>,
    pub down: Option<u64>,
    pub tickets: Tickets,
}

impl Regulation {
    fn here(self) -> Rule {
        Rule { rate_max: self.up, tickets: Some(self.tickets) }
    }

    fn there(self) -> Rule {
        Rule { rate_max: self.down, tickets: Some(self.tickets) }
    }
}

/// What is wanted now, over all sessions.
#[derive(Debug, Default)]
pub(crate) struct Regulated(Mutex<Regulation>);

impl Regulated {
    pub(crate) fn new(regulation: Regulation) -> Regulated {
        Regulated(Mutex::new(regulation))
    }

    fn lock(&self) -> MutexGuard<'_, Regulation> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self) -> Regulation {
        *self.lock()
    }

    pub(crate) fn set(&self, regulation: Regulation) {
        *self.lock() = regulation;
    }
}

impl Live {
    /// Keeps to it from now on, and has the server keep to it. A server of before this was known
    /// does not.
    pub(crate) fn regulate(&self, wanted: Regulation, before: Regulation) {
        self.wire.regulate(wanted.here());
        if self.regulates() && wanted.there() != before.there() {
            let upward = self.upward.clone();
            tokio::spawn(async move {
                // A session that has ended regulates nothing.
                let _ = upward.send(Upward::Regulate(wanted.there())).await;
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tickets_are_read_as_they_are_shown() {
        let tickets: Tickets = "8:3:1".parse().unwrap();
        assert_eq!((tickets, tickets.to_string().as_str()), (Tickets::default(), "8:3:1"));
        assert_eq!(tickets.by_class(), [128, 48, 16, 1]);
        let tickets: Tickets = "8:3:1:2".parse().unwrap();
        assert_eq!(tickets.to_string(), "8:3:1:2");
        assert_eq!(tickets.by_class(), [8 * PARTS, 3 * PARTS, PARTS, 2 * PARTS]);
        for wrong in [
            "",
            "8:3",
            "8:3:1:1:1",
            "8:3:1:0",
            "8:3:1:",
            "8:3:0",
            "8:-3:1",
            "8:3:1001",
            "a:b:c",
            "8,3,1",
        ] {
            let error = wrong.parse::<Tickets>().unwrap_err().to_string();
            assert!(error.contains("8:3:1"), "{error}");
        }
    }

    #[test]
    fn at_a_limit_pieces_are_short_and_rests_make_up_the_rate() {
        let rule = Rule { rate_max: Some(20_000), tickets: None };
        assert_eq!(rule.piece_bytes_max(), 1_000);
        assert_eq!(rule.rest_after(1_600), Some(Duration::from_millis(85)));
        let free = Rule::default();
        assert_eq!((free.piece_bytes_max(), free.rest_after(1)), (u64::MAX, None));
    }

    proptest! {
        #[test]
        fn prop_whatever_a_peer_says_goes_on(
            rate in any::<Option<u64>>(),
            tickets in any::<Option<(u16, u16, u16, Option<u16>)>>(),
            bytes in 1_u64..100_000,
        ) {
            let tickets = tickets.map(|(interactive, demand, replay, prefetch)| {
                Tickets { interactive, demand, replay, prefetch }
            });
            let rule = Rule { rate_max: rate, tickets };
            prop_assert!(rule.tickets().iter().all(|tickets| (1..=16_000).contains(tickets)));
            prop_assert!(rule.piece_bytes_max() >= PIECE_BYTES_LEAST);
            let longest = Duration::from_secs_f64(bytes as f64 * 1.1 / RATE_LEAST as f64);
            prop_assert!(rule.rest_after(bytes).unwrap_or_default() <= longest);
        }
    }
}
