//! What is said of a volume that cannot be shown: whose trouble it is, and what to do about it.

use crate::exit::{Exit, fail};
use crate::state::Known;
use crate::units;

/// How the server was found when the volume did not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    Answers,
    TurnsAway,
    Silent,
}

/// What is known of why.
#[derive(Clone, Debug, Default)]
pub struct Why {
    /// What the link says or, where there is nothing to say of it, the client.
    pub link: String,
    /// What the session with the server says, if there is one.
    pub session: Option<String>,
    /// What is damaged here, in words with what to do about it.
    pub damage: Option<String>,
}

pub fn error(server: Server, why: Why, known: &Known) -> anyhow::Error {
    let Why { link, session, damage } = why;
    let (exit, why) = match (server, damage) {
        (Server::TurnsAway, _) => (Exit::TurnedAway, link),
        // What cannot be read here cannot be shown, whatever a server says.
        (_, Some(damage)) => (Exit::Damaged, damage),
        // It cannot attach this device.
        (Server::Answers, None) => (Exit::Failure, session.unwrap_or(link)),
        (Server::Silent, None) => (Exit::Unreachable, link),
    };
    let mut advice = advice(exit, &why);
    if exit == Exit::Failure && advice.is_empty() && !known.unattached {
        advice = ". What is cached of it can be used meanwhile: mount with --mode auto";
    }
    fail(exit, format!("cannot mount {}: {why}{advice}", known.url))
}

/// The first of these places, and that there are more. None: nothing is damaged.
pub fn damage(places: &[String]) -> Option<String> {
    let (first, more) = places.split_first()?;
    Some(match more.len() as u64 {
        0 => first.clone(),
        more => format!("{first} (and {} more)", units::count(more, "place")),
    })
}

/// What the user can look at.
fn advice(exit: Exit, why: &str) -> &'static str {
    match exit {
        Exit::Failure if why == protocol::Objection::NoSpace.to_string() => {
            ". The server's disk is full: make room there with `farfs gc --data DIR \
             --empty-trash`, or remove what else is on that disk, and mount again"
        }
        Exit::Unreachable => {
            ". Look whether `farfs serve` runs there, whether a firewall lets UDP through to its \
             port and the way takes packets of 1,228 bytes (`ping -M do -s 1200 HOST`), and whether \
             the URL names the address at which this machine reaches it \
             (`farfs serve --advertise HOST:PORT` sets what invitations name)"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit;

    fn said(server: Server, damage: Option<&str>, unattached: bool) -> (Exit, String) {
        let [url, key, volume] = ["farfs://h:1/main", "", "main"].map(str::to_owned);
        let known = Known { unattached, ..Known::new(url, key, volume, "/mnt".into()) };
        let link = "it does not answer".into();
        let why = Why { link, session: None, damage: damage.map(str::to_owned) };
        let error = error(server, why, &known);
        (exit::code(&error), exit::words(&error))
    }

    #[test]
    fn damage_here_is_told_whatever_the_server_does_but_turn_the_device_away() {
        let damage = "/state/tables.redb is damaged: a page makes no sense";
        for server in [Server::Answers, Server::Silent] {
            let (exit, words) = said(server, Some(damage), false);
            assert_eq!(exit, Exit::Damaged, "{words}");
            assert_eq!(words, format!("cannot mount farfs://h:1/main: {damage}"));
        }
        assert_eq!(said(Server::TurnsAway, Some(damage), false).0, Exit::TurnedAway);
    }

    #[test]
    fn of_many_damaged_places_one_is_told() {
        let places = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(damage(&places[..0]), None);
        assert_eq!(damage(&places[..1]).as_deref(), Some("a"));
        assert_eq!(damage(&places).as_deref(), Some("a (and 2 places more)"));
    }

    #[test]
    fn without_damage_it_is_the_servers_trouble_or_the_ways_to_it() {
        let (exit, words) = said(Server::Silent, None, false);
        assert!(exit == Exit::Unreachable && words.contains("firewall"), "{words}");
        let (exit, words) = said(Server::Answers, None, false);
        assert!(exit == Exit::Failure && words.contains("--mode auto"), "{words}");
        let (exit, words) = said(Server::Answers, None, true);
        assert!(exit == Exit::Failure && !words.contains("--mode auto"), "{words}");
    }
}
