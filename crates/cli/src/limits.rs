//! How much of the link a mount may use: rates, shares of the traffic classes, a month's budget.

use crate::exit::{Exit, fail};
use crate::units::{BadUnit, duration, show_size, size};
use anyhow::Result;
use link::{RATE_LEAST, Regulation, Tickets};
use serde::{Deserialize, Serialize};
use std::str::FromStr;
use std::time::Duration;

/// Bytes, in a second or in a month; none: as many as there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Most(pub Option<u64>);

impl FromStr for Most {
    type Err = BadUnit;
    fn from_str(text: &str) -> Result<Most, BadUnit> {
        if text == "none" { Ok(Most(None)) } else { size(text).map(|bytes| Most(Some(bytes))) }
    }
}

impl TryFrom<String> for Most {
    type Error = BadUnit;
    fn try_from(text: String) -> Result<Most, BadUnit> {
        text.parse()
    }
}

impl From<Most> for String {
    fn from(most: Most) -> String {
        most.0.map_or_else(|| "none".into(), |bytes| bytes.to_string())
    }
}

/// How long what nobody waits for stays; none: `auto`, as is right for the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Stay(pub Option<Duration>);

impl FromStr for Stay {
    type Err = BadUnit;
    fn from_str(text: &str) -> Result<Stay, BadUnit> {
        if text == "auto" { Ok(Stay(None)) } else { duration(text).map(|time| Stay(Some(time))) }
    }
}

impl TryFrom<String> for Stay {
    type Error = BadUnit;
    fn try_from(text: String) -> Result<Stay, BadUnit> {
        text.parse()
    }
}

impl From<Stay> for String {
    fn from(stay: Stay) -> String {
        stay.0.map_or_else(|| "auto".into(), |time| format!("{}ms", time.as_millis()))
    }
}

/// Shares, as the command line and the configuration say them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Shares(pub Tickets);

impl FromStr for Shares {
    type Err = link::Error;
    fn from_str(text: &str) -> Result<Shares, link::Error> {
        text.parse().map(Shares)
    }
}

impl TryFrom<String> for Shares {
    type Error = link::Error;
    fn try_from(text: String) -> Result<Shares, link::Error> {
        text.parse()
    }
}

impl From<Shares> for String {
    fn from(shares: Shares) -> String {
        shares.0.to_string()
    }
}

/// What is to change of the limits. None: nothing is said of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    pub up: Option<Most>,
    pub down: Option<Most>,
    pub tickets: Option<Shares>,
    pub budget: Option<Most>,
    #[serde(default)]
    pub replay_delay: Option<Stay>,
}

impl Limits {
    /// Rates below the least are an error that names the option.
    pub fn checked(self) -> Result<Limits> {
        for (name, most) in [("limit-up", self.up), ("limit-down", self.down)] {
            let rate = most.and_then(|most| most.0);
            if rate.is_some_and(|rate| rate < RATE_LEAST) {
                return Err(fail(
                    Exit::Usage,
                    format!(
                        "{name}: less than {} a second is too little for callbacks to hold \
                         (`farfs pause` sends nothing that nobody waits for)",
                        show_size(RATE_LEAST)
                    ),
                ));
            }
        }
        Ok(self)
    }

    pub fn is_nothing(self) -> bool {
        self == Limits::default()
    }

    /// The regulation of a link after this.
    pub fn upon(self, before: Regulation) -> Regulation {
        Regulation {
            up: self.up.map_or(before.up, |most| most.0),
            down: self.down.map_or(before.down, |most| most.0),
            tickets: self.tickets.map_or(before.tickets, |shares| shares.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nothing_is_said_of_stays_and_none_lifts_a_limit() {
        let before = Regulation { up: Some(5000), down: Some(6000), tickets: Tickets::default() };
        assert_eq!(Limits::default().upon(before), before);
        let change = Limits {
            up: Some("none".parse().unwrap()),
            tickets: "8:2:2".parse().ok(),
            ..Limits::default()
        };
        let after = change.checked().unwrap().upon(before);
        assert_eq!((after.up, after.down), (None, Some(6000)));
        assert_eq!(after.tickets.to_string(), "8:2:2");
    }

    #[test]
    fn a_rate_at_which_nothing_works_is_refused() {
        let slow = Limits { down: "100".parse().ok(), ..Limits::default() };
        let error = slow.checked().unwrap_err();
        assert_eq!(crate::exit::code(&error), Exit::Usage);
        assert!(error.to_string().contains("limit-down"), "{error}");
        let small = Limits { budget: "100".parse().ok(), ..Limits::default() };
        assert!(small.checked().is_ok(), "a budget may be any");
    }

    #[test]
    fn limits_travel_to_the_daemon_as_they_are() {
        let limits = Limits {
            up: "50K".parse().ok(),
            down: "none".parse().ok(),
            tickets: "8:3:1".parse().ok(),
            budget: "5G".parse().ok(),
            replay_delay: "90s".parse().ok(),
        };
        let auto = Limits { replay_delay: "auto".parse().ok(), ..limits };
        for limits in [limits, auto] {
            let text = serde_json::to_string(&limits).unwrap();
            assert_eq!(serde_json::from_str::<Limits>(&text).unwrap(), limits);
        }
    }
}
