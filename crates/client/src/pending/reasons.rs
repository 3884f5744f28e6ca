//! Why what is pending has not left, for people and programs.
//! Holds: what is in the way of all is told before what is in the way of one.

use crate::connection::Connection;
use crate::delay::DELAY_ON_BUDGET;
use crate::mode;
use protocol::Mode;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What the pending updates of a file wait for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitsFor {
    /// For nothing: they go next, or with what goes next.
    #[default]
    Turn,
    /// For the server's answer.
    Answer,
    /// The first contents that are pending leave before them: of this file, with its path as above.
    Behind {
        file: u64,
        path: Option<String>,
    },
    HeldBack(HeldBack),
}

/// For programs: a word, and what belongs to it.
impl fmt::Display for WaitsFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WaitsFor::Turn => f.write_str("turn"),
            WaitsFor::Answer => f.write_str("answer"),
            WaitsFor::Behind { path: Some(path), .. } => write!(f, "behind {path}"),
            WaitsFor::Behind { file, path: None } => write!(f, "behind file {file}"),
            WaitsFor::HeldBack(why) => write!(f, "held-back {}", why.word()),
        }
    }
}

/// Why nothing that is pending leaves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HeldBack {
    NoLink,
    /// By the mode that was set.
    Mode(Mode),
    Paused,
    /// The month's budget is spent.
    Budget,
    /// It stays for a while, that it may be cancelled.
    Delay,
    /// The same because the link has a budget.
    BudgetDelay,
    /// It was sent and not taken, for this reason.
    Trouble(String),
}

impl HeldBack {
    /// For programs.
    fn word(&self) -> &'static str {
        match self {
            HeldBack::NoLink => "no-link",
            HeldBack::Mode(_) => "mode",
            HeldBack::Paused => "paused",
            HeldBack::Budget => "budget",
            HeldBack::Delay | HeldBack::BudgetDelay => "delay",
            HeldBack::Trouble(_) => "trouble",
        }
    }
}

impl fmt::Display for HeldBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HeldBack::NoLink => write!(f, "there is no link to the server"),
            HeldBack::Mode(Mode::FetchOnly) => write!(f, "the mode fetch-only was set"),
            HeldBack::Mode(_) => write!(f, "the mode disconnected was set"),
            HeldBack::Paused => write!(f, "sending is paused: `farfs resume` goes on"),
            HeldBack::Budget => write!(
                f,
                "the month's budget of the link is spent: `farfs resume` goes on all the same"
            ),
            HeldBack::Delay => write!(f, "it is younger than --replay-delay"),
            HeldBack::BudgetDelay => write!(
                f,
                "it is younger than {} min, and the link has a budget: what is removed or written \
                 over by then costs nothing (`farfs limit --replay-delay`)",
                DELAY_ON_BUDGET.as_secs() / 60
            ),
            HeldBack::Trouble(why) => write!(f, "{why}"),
        }
    }
}

pub(super) fn held_back(connection: &Connection, trouble: Option<String>) -> Option<HeldBack> {
    if connection.paused {
        return Some(HeldBack::Paused);
    }
    if connection.holds_back() {
        return Some(HeldBack::Budget);
    }
    if !connection.attached && !connection.left {
        let refusal = connection.refusal().map(|why| HeldBack::Trouble(why.to_owned()));
        return Some(refusal.unwrap_or(HeldBack::NoLink));
    }
    if !mode::replays(connection.mode) {
        return Some(HeldBack::Mode(connection.mode));
    }
    trouble.map(HeldBack::Trouble)
}

#[cfg(test)]
mod tests {
    use super::*;
    use world::World;

    #[test]
    fn what_holds_back_is_what_the_user_can_change_first() {
        let now = World::simulated(0, 1).clock.moment();
        let mut connection =
            Connection::new((crate::WantedMode::Auto, None), now, &crate::meta::Meta::default());
        assert_eq!(held_back(&connection, None), Some(HeldBack::NoLink));
        connection.went_refused("its store failed".into(), now);
        assert_eq!(
            held_back(&connection, None),
            Some(HeldBack::Trouble("its store failed".into()))
        );
        connection.attached = true;
        assert_eq!(held_back(&connection, None), None);
        let full = Some("the server's disk is full".to_owned());
        assert_eq!(held_back(&connection, full.clone()), full.clone().map(HeldBack::Trouble));
        connection.mode = Mode::FetchOnly;
        assert_eq!(held_back(&connection, full.clone()), Some(HeldBack::Mode(Mode::FetchOnly)));
        connection.paused = true;
        assert_eq!(held_back(&connection, full), Some(HeldBack::Paused));
    }
}
