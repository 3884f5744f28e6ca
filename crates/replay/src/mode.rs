//! Which mode a client works in, and what that means.
//! Holds: without a fixed wish the mode goes by the link's grade and by company; without a link
//! every mode but connected is disconnected.
//! From: DESIGN, "The client"; partially connected operation, section 4.

use crate::estimate::Figures;
use crate::grade::{Grade, lack_of};
use protocol::Mode;
use std::fmt;
use std::time::Duration;

/// A link that has been gone for less is expected back.
pub const LINK_GRACE: Duration = Duration::from_secs(5);

/// What the user wants; `Auto` goes by the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WantedMode {
    Auto,
    Fixed(Mode),
}

/// What is known of the link.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkView {
    /// How long there has been no session; none: there is one.
    pub down_for: Option<Duration>,
    /// There is one, and over it the replica above refuses to be used.
    pub refused: bool,
    /// There is one again, and the replica above lets whoever changed something come first.
    pub attaching: bool,
    /// None: nothing has been measured.
    pub grade: Option<Grade>,
    pub figures: Figures,
    /// Nobody else uses the volume.
    pub alone: bool,
    /// Nothing is sent for now, by the user's wish or for want of a budget.
    pub held_back: bool,
}

/// Why the mode is what it is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Why {
    Wished,
    NoLink,
    /// The replica above is there, and cannot be used.
    Refused,
    Alone,
    HeldBack,
    /// The link has this grade, by these figures.
    Link(Grade, Figures),
    /// Nothing was learnt that would change it.
    #[default]
    Unmeasured,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Wished => f.write_str("as set"),
            Why::NoLink => f.write_str("there is no link"),
            Why::Refused => f.write_str("the volume cannot be attached"),
            Why::Alone => f.write_str("nobody else is there"),
            Why::HeldBack => f.write_str("what is changed is held back"),
            Why::Unmeasured => f.write_str("the link has not been measured yet"),
            Why::Link(Grade::Good, figures) => write!(f, "the link is good: {figures}"),
            Why::Link(Grade::Poor, figures) => match lack_of(figures) {
                Some(lack) => write!(f, "the link is poor: {lack}, {figures}"),
                None => write!(f, "the link is poor, or was lately: {figures}"),
            },
        }
    }
}

/// The mode to work in, given the one before, and why.
pub fn choose(wanted: WantedMode, link: &LinkView, before: (Mode, Why)) -> (Mode, Why) {
    let (mode, why) = chosen(wanted, link, before);
    // Nobody waits for what does not leave.
    if link.held_back && mode == Mode::Connected {
        return (Mode::Partial, Why::HeldBack);
    }
    (mode, why)
}

fn chosen(wanted: WantedMode, link: &LinkView, before: (Mode, Why)) -> (Mode, Why) {
    // What was done meanwhile by who is asked to wait for others would not know of theirs.
    let gone = link.down_for.is_some_and(|down_for| down_for >= LINK_GRACE) && !link.attaching;
    match wanted {
        // To wait for the replica above is what was asked for.
        WantedMode::Fixed(Mode::Connected) => return (Mode::Connected, Why::Wished),
        _ if gone && link.refused => return (Mode::Disconnected, Why::Refused),
        _ if gone => return (Mode::Disconnected, Why::NoLink),
        WantedMode::Fixed(mode) => return (mode, Why::Wished),
        WantedMode::Auto if link.down_for.is_some() => return before,
        WantedMode::Auto => {}
    }
    let Some(grade) = link.grade else {
        let (mode, why) = before;
        return if mode == Mode::Disconnected {
            (Mode::Partial, Why::Unmeasured)
        } else {
            (mode, why)
        };
    };
    match grade {
        // Nobody could see how far a change has come.
        _ if link.alone => (Mode::Partial, Why::Alone),
        Grade::Good => (Mode::Connected, Why::Link(grade, link.figures)),
        Grade::Poor => (Mode::Partial, Why::Link(grade, link.figures)),
    }
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

    const GOOD: LinkView = link(Some(Grade::Good), 1);
    const POOR: LinkView = link(Some(Grade::Poor), 60);

    const fn link(grade: Option<Grade>, millis: u64) -> LinkView {
        let delay = Some(Duration::from_millis(millis));
        LinkView {
            down_for: None,
            refused: false,
            attaching: false,
            grade,
            figures: Figures { delay, rate: None, loss: None },
            alone: false,
            held_back: false,
        }
    }

    fn check(wanted: WantedMode, link: LinkView, before: Mode) -> Mode {
        choose(wanted, &link, (before, Why::Unmeasured)).0
    }

    fn auto(link: LinkView, before: Mode) -> Mode {
        check(WantedMode::Auto, link, before)
    }

    fn down(secs: u64) -> LinkView {
        LinkView { down_for: Some(Duration::from_secs(secs)), ..GOOD }
    }

    #[test]
    fn nobody_is_waited_for_by_who_has_the_volume_for_itself() {
        let alone = LinkView { alone: true, ..GOOD };
        assert_eq!(auto(alone, Mode::Connected), Mode::Partial);
        assert_eq!(auto(GOOD, Mode::Partial), Mode::Connected);
        assert_eq!(
            check(WantedMode::Fixed(Mode::Connected), alone, Mode::Connected),
            Mode::Connected
        );
    }

    #[test]
    fn a_good_link_is_waited_for_and_a_poor_one_is_not() {
        for before in [Mode::Connected, Mode::Partial, Mode::Disconnected] {
            assert_eq!(auto(GOOD, before), Mode::Connected);
            assert_eq!(auto(POOR, before), Mode::Partial);
        }
        let unmeasured = LinkView { grade: None, ..GOOD };
        assert_eq!(auto(unmeasured, Mode::Connected), Mode::Connected);
        assert_eq!(auto(unmeasured, Mode::Disconnected), Mode::Partial);
    }

    #[test]
    fn a_short_outage_changes_nothing_and_a_long_one_disconnects() {
        assert_eq!(auto(down(1), Mode::Connected), Mode::Connected);
        assert_eq!(auto(down(10), Mode::Connected), Mode::Disconnected);
        assert_eq!(auto(GOOD, Mode::Disconnected), Mode::Connected);
    }

    #[test]
    fn who_is_being_attached_is_not_without_a_link_however_long_that_takes() {
        let coming = LinkView { attaching: true, ..down(9) };
        assert_eq!(auto(coming, Mode::Connected), Mode::Connected);
        assert_eq!(auto(down(9), Mode::Connected), Mode::Disconnected);
        // It stays without one until it is attached.
        assert_eq!(auto(coming, Mode::Disconnected), Mode::Disconnected);
    }

    #[test]
    fn who_is_refused_goes_on_without_the_server_and_is_told_why() {
        let refused = LinkView { refused: true, ..down(9) };
        let outcome = |wanted| choose(wanted, &refused, (Mode::Partial, Why::Unmeasured));
        for wanted in [WantedMode::Auto, WantedMode::Fixed(Mode::Partial)] {
            assert_eq!(outcome(wanted), (Mode::Disconnected, Why::Refused));
        }
        let connected = WantedMode::Fixed(Mode::Connected);
        assert_eq!(outcome(connected), (Mode::Connected, Why::Wished));
    }

    #[test]
    fn a_fixed_wish_is_kept_whatever_the_link_is_like() {
        for mode in [Mode::Connected, Mode::Partial, Mode::FetchOnly, Mode::Disconnected] {
            let wanted = WantedMode::Fixed(mode);
            assert_eq!(check(wanted, GOOD, Mode::Disconnected), mode);
            assert_eq!(check(wanted, POOR, Mode::Connected), mode);
        }
    }

    #[test]
    fn without_a_link_every_wish_but_connected_is_disconnected() {
        for mode in [Mode::Partial, Mode::FetchOnly] {
            assert_eq!(check(WantedMode::Fixed(mode), down(1), mode), mode);
            assert_eq!(check(WantedMode::Fixed(mode), down(9), mode), Mode::Disconnected);
        }
        let wanted = WantedMode::Fixed(Mode::Connected);
        assert_eq!(check(wanted, down(99), Mode::Connected), Mode::Connected);
    }

    #[test]
    fn where_nothing_is_sent_nobody_waits() {
        let held = LinkView { held_back: true, ..GOOD };
        assert_eq!(auto(held, Mode::Connected), Mode::Partial);
        assert_eq!(check(WantedMode::Fixed(Mode::Connected), held, Mode::Connected), Mode::Partial);
        assert_eq!(
            auto(LinkView { held_back: true, ..down(9) }, Mode::Partial),
            Mode::Disconnected
        );
    }

    #[test]
    fn what_made_the_choice_is_told() {
        let why = |link: LinkView| {
            choose(WantedMode::Auto, &link, (Mode::Partial, Why::Unmeasured)).1.to_string()
        };
        assert_eq!(why(GOOD), "the link is good: round trip 1.0 ms");
        assert_eq!(why(POOR), "the link is poor: far away, round trip 60 ms");
        assert_eq!(why(LinkView { alone: true, ..GOOD }), "nobody else is there");
        let lately = LinkView { grade: Some(Grade::Poor), ..GOOD };
        assert_eq!(why(lately), "the link is poor, or was lately: round trip 1.0 ms");
    }
}
