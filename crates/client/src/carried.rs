//! What the link carried when that was last measured: after a new mount, or over a new session,
//! nothing is measured before much has come.
//! Holds: what is measured now counts before what is remembered; what is remembered counts only over
//! a link of like round trips.

use crate::client::Client;
use minicbor::{Decode, Encode};
use protocol::{LinkQuality, Upstream};
use std::time::Duration;
use store::Containers;

/// Below this two round trips are alike, whatever their ratio.
const ALIKE_BELOW: Duration = Duration::from_millis(20);

/// What a link carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Carried {
    /// Bytes a second towards us.
    #[n(0)]
    pub rate_down: u64,
    /// The least round trip, in microseconds.
    #[n(1)]
    pub round_trip: u64,
}

impl Carried {
    fn of(link: &LinkQuality) -> Option<Carried> {
        let rate_down = link.rate_down.filter(|rate| *rate > 0)?;
        let round_trip = u64::try_from(link.round_trip_min?.as_micros()).ok()?;
        Some(Carried { rate_down, round_trip })
    }

    /// Whether a link with these round trips may be the one that this was measured of.
    fn is_like(self, round_trip: Duration) -> bool {
        let before = Duration::from_micros(self.round_trip);
        let (less, more) = (round_trip.min(before), round_trip.max(before));
        more <= ALIKE_BELOW || more <= less * 2
    }
}

/// What is remembered of the link, and whether that is of an earlier mount.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memory {
    pub carried: Option<Carried>,
    pub is_earlier: bool,
}

impl Memory {
    pub fn of_earlier(carried: Option<Carried>) -> Memory {
        Memory { carried, is_earlier: carried.is_some() }
    }

    /// Whether what is measured now is to be remembered. While little comes, less is measured than
    /// the link could carry: of one mount, and of one link, the most counts.
    fn takes(&self, now: Carried) -> bool {
        self.carried.is_none_or(|before| {
            let is_more = now.rate_down > before.rate_down.saturating_add(before.rate_down / 4);
            self.is_earlier || is_more || !before.is_like(Duration::from_micros(now.round_trip))
        })
    }
}

/// The link with the rate that it has, as far as that is measured or remembered.
fn with_remembered(link: LinkQuality, carried: Option<Carried>) -> LinkQuality {
    let is_like = |carried: &Carried| link.round_trip_min.is_some_and(|trip| carried.is_like(trip));
    let remembered = carried.filter(is_like);
    let rate_down = link.rate_down.or(remembered.map(|carried| carried.rate_down));
    LinkQuality { rate_down, ..link }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// The link as it is measured, or as it was when it was last measured.
    pub(crate) fn link_remembered(&self) -> LinkQuality {
        let link = self.inner.upstream.quality();
        let carried = self.connection().memory.carried;
        with_remembered(link, carried)
    }

    /// Remembers what the link carries.
    pub(crate) fn note_carried(&self) {
        let Some(now) = Carried::of(&self.inner.upstream.quality()) else { return };
        {
            let mut connection = self.connection();
            if !connection.memory.takes(now) {
                return;
            }
            connection.memory = Memory { carried: Some(now), is_earlier: false };
        }
        let mut core = self.core();
        core.meta.carried = Some(now);
        core.unsaved = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(rate_down: Option<u64>, trip_ms: u64) -> LinkQuality {
        let round_trip_min = Some(Duration::from_millis(trip_ms));
        LinkQuality { rate_down, round_trip_min, ..LinkQuality::default() }
    }

    #[test]
    fn what_is_measured_counts_before_what_is_remembered() {
        let carried = Carried::of(&link(Some(5_000), 600));
        assert_eq!(carried, Some(Carried { rate_down: 5_000, round_trip: 600_000 }));
        let rate = |link| with_remembered(link, carried).rate_down;
        assert_eq!(rate(link(Some(9), 600)), Some(9));
        assert_eq!(rate(link(None, 700)), Some(5_000));
        assert_eq!(with_remembered(link(None, 700), None).rate_down, None);
        assert_eq!(Carried::of(&link(None, 600)), None);
    }

    #[test]
    fn of_a_link_of_other_round_trips_nothing_is_remembered() {
        let rate = |carried, link| with_remembered(link, Carried::of(&carried)).rate_down;
        let slow = link(Some(5_000), 600);
        for (trip, is_it) in [(299, false), (300, true), (1_200, true), (1_201, false), (3, false)]
        {
            assert_eq!(rate(slow, link(None, trip)).is_some(), is_it, "{trip}");
        }
        assert!(rate(link(Some(5_000), 1), link(None, 15)).is_some(), "a little is all the same");
        assert!(rate(slow, LinkQuality::default()).is_none(), "nothing is known of it");
    }

    #[test]
    fn of_one_mount_and_link_the_most_is_remembered() {
        let carried = |rate_down, round_trip| Carried { rate_down, round_trip };
        let memory = |is_earlier| Memory { carried: Some(carried(1_000, 50_000)), is_earlier };
        let takes = |rate| memory(false).takes(carried(rate, 60_000));
        assert_eq!([10, 1_250, 1_251].map(takes), [false, false, true]);
        assert!(memory(false).takes(carried(10, 500_000)), "it is another link");
        assert!(memory(true).takes(carried(10, 60_000)), "it is another mount");
        assert!(Memory::of_earlier(None).takes(carried(1, 1)));
    }
}
