//! Which mode the link allows.
//! Holds: without a fixed wish the mode changes only when the link has clearly changed
//! (hysteresis), so that a link at the edge does not make it flap; without a link every mode but
//! connected is disconnected.
//! From: DESIGN, "The client"; partially connected operation, section 4.

use crate::types::WantedMode;
use protocol::Mode;
use std::time::Duration;

/// A round trip up to which waiting for every update is bearable.
const CONNECTED_ROUND_TRIP_MAX: Duration = Duration::from_millis(8);
/// A round trip from which it is not. Between the two the mode stays.
const PARTIAL_ROUND_TRIP_MIN: Duration = Duration::from_millis(12);
/// A link that has been gone for less is expected back.
pub const LINK_GRACE: Duration = Duration::from_secs(5);

/// What is known of the link.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkView {
    /// How long there has been no session; none: there is one.
    pub down_for: Option<Duration>,
    /// There is one again, and the replica above lets whoever changed something come first.
    pub attaching: bool,
    pub round_trip_min: Option<Duration>,
    /// Nobody else uses the volume.
    pub alone: bool,
}

/// The mode to work in, given the one before.
pub fn choose(wanted: WantedMode, link: LinkView, before: Mode) -> Mode {
    // What was done meanwhile by who is asked to wait for others would not know of theirs.
    let gone = link.down_for.is_some_and(|down_for| down_for >= LINK_GRACE) && !link.attaching;
    match wanted {
        // To wait for the replica above is what was asked for.
        WantedMode::Fixed(Mode::Connected) => return Mode::Connected,
        _ if gone => return Mode::Disconnected,
        WantedMode::Fixed(mode) => return mode,
        WantedMode::Auto if link.down_for.is_some() => return before,
        WantedMode::Auto => {}
    }
    match link.round_trip_min {
        // Nobody could see how far a change has come.
        Some(_) if link.alone => Mode::Partial,
        Some(trip) if trip <= CONNECTED_ROUND_TRIP_MAX => Mode::Connected,
        Some(trip) if trip >= PARTIAL_ROUND_TRIP_MIN => Mode::Partial,
        _ if before == Mode::Disconnected => Mode::Partial,
        _ => before,
    }
}

/// The mode where nothing is sent for now: nobody waits for what does not leave.
pub fn where_paused(mode: Mode, paused: bool) -> Mode {
    if paused && mode == Mode::Connected { Mode::Partial } else { mode }
}

/// An update is done only when the replica above has taken it.
pub fn waits_for_verdicts(mode: Mode) -> bool {
    mode == Mode::Connected
}

/// Pending updates may leave.
pub fn replays(mode: Mode) -> bool {
    matches!(mode, Mode::Connected | Mode::Partial)
}

/// What is missing may be fetched.
pub fn fetches(mode: Mode) -> bool {
    mode != Mode::Disconnected
}

/// What is cached counts only under a callback.
pub fn validates(mode: Mode) -> bool {
    matches!(mode, Mode::Connected | Mode::Partial)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn auto(link: LinkView, before: Mode) -> Mode {
        choose(WantedMode::Auto, link, before)
    }

    fn trip(millis: u64) -> LinkView {
        let round_trip_min = Some(Duration::from_millis(millis));
        LinkView { round_trip_min, ..LinkView::default() }
    }

    #[test]
    fn nobody_is_waited_for_by_who_has_the_volume_for_itself() {
        let alone = LinkView { alone: true, ..trip(1) };
        assert_eq!(auto(alone, Mode::Connected), Mode::Partial);
        assert_eq!(auto(trip(1), Mode::Partial), Mode::Connected);
        let wanted = WantedMode::Fixed(Mode::Connected);
        assert_eq!(choose(wanted, alone, Mode::Connected), Mode::Connected);
    }

    #[test]
    fn a_near_server_is_waited_for_and_a_far_one_is_not() {
        assert_eq!(auto(trip(1), Mode::Disconnected), Mode::Connected);
        assert_eq!(auto(trip(60), Mode::Connected), Mode::Partial);
    }

    #[test]
    fn a_link_at_the_edge_does_not_make_the_mode_flap() {
        assert_eq!(auto(trip(10), Mode::Connected), Mode::Connected);
        assert_eq!(auto(trip(10), Mode::Partial), Mode::Partial);
    }

    #[test]
    fn a_short_outage_changes_nothing_and_a_long_one_disconnects() {
        let down = |secs| LinkView { down_for: Some(Duration::from_secs(secs)), ..trip(1) };
        assert_eq!(auto(down(1), Mode::Connected), Mode::Connected);
        assert_eq!(auto(down(10), Mode::Connected), Mode::Disconnected);
        assert_eq!(auto(trip(1), Mode::Disconnected), Mode::Connected);
    }

    #[test]
    fn who_is_being_attached_is_not_without_a_link_however_long_that_takes() {
        let down_for = Some(Duration::from_secs(9));
        let coming = LinkView { down_for, attaching: true, ..trip(1) };
        assert_eq!(auto(coming, Mode::Connected), Mode::Connected);
        let again = LinkView { attaching: false, ..coming };
        assert_eq!(auto(again, Mode::Connected), Mode::Disconnected);
        // It stays without one until it is attached.
        assert_eq!(auto(coming, Mode::Disconnected), Mode::Disconnected);
    }

    #[test]
    fn a_fixed_wish_is_kept_whatever_the_link_is_like() {
        for mode in [Mode::Connected, Mode::Partial, Mode::FetchOnly, Mode::Disconnected] {
            let wanted = WantedMode::Fixed(mode);
            assert_eq!(choose(wanted, trip(1), Mode::Disconnected), mode);
            assert_eq!(choose(wanted, trip(900), Mode::Connected), mode);
        }
    }

    #[test]
    fn without_a_link_every_wish_but_connected_is_disconnected() {
        let down = |secs| LinkView { down_for: Some(Duration::from_secs(secs)), ..trip(1) };
        for mode in [Mode::Partial, Mode::FetchOnly] {
            assert_eq!(choose(WantedMode::Fixed(mode), down(1), mode), mode);
            assert_eq!(choose(WantedMode::Fixed(mode), down(9), mode), Mode::Disconnected);
        }
        let wanted = WantedMode::Fixed(Mode::Connected);
        assert_eq!(choose(wanted, down(99), Mode::Connected), Mode::Connected);
    }
}
