//! The wall clock of the server is set.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::WantedMode;
use model::Kind;
use protocol::Mode;
use replica::Limits;
use sim::machine::{ClientMachine, End, OriginMachine, Room, SimClient};
use sim::network::Conditions;
use sim::operation::{Operation, Outcome, Path};
use sim::perform::Programs;
use std::time::Duration;

/// Longer than any lease.
const SILENCE: Duration = Duration::from_secs(90);
const DAY_SECS: i64 = 24 * 60 * 60;

async fn make(client: &SimClient, name: &str) {
    let path = Path::new(name);
    let make = Operation::Make { path, kind: Kind::Directory, mode: 0o755, target: None };
    let outcome = Programs::default().perform(client, &make).await;
    assert!(matches!(outcome, Outcome::Shown(_)), "{name}: {outcome}");
}

async fn list(client: &SimClient) -> Outcome {
    let list = Operation::List { path: Path(Vec::new()), page: 100 };
    Programs::default().perform(client, &list).await
}

/// Two machines are connected. The link of one is silent, and the server starts again with its wall
/// clock set: what the other one has made, when it is told so, shows to whoever has gone on by its
/// lease, or that lease has ended.
fn check(shift_secs: i64) {
    sim::run::paused(async {
        let room = Room::new(1, false);
        // Less than what a call waits for.
        let lease = Duration::from_secs(15);
        let limits = Limits { lease, ..Limits::simulated() };
        let mut origin = OriginMachine::start(&room, limits).unwrap();
        let connected = WantedMode::Fixed(Mode::Connected);
        let machine =
            |number| ClientMachine::invited(&room, &origin, number, Conditions::NEAR, connected);
        let (mut ada, mut bob) = (machine(0), machine(1));
        let (adas, bobs) = (ada.start().await.unwrap(), bob.start().await.unwrap());
        make(&adas, "before").await;
        assert!(matches!(list(&bobs).await, Outcome::Names(names) if names.len() == 1));

        room.network.cut(bob.line, SILENCE);
        let silent = room.clock.moment();
        origin.stop(End::Killed, Duration::ZERO);
        origin.clock.shift(shift_secs);
        origin.restart().unwrap();
        make(&adas, "after").await;
        let waited = room.clock.moment().since(silent);
        assert!(
            waited > lease - Duration::from_secs(1),
            "{shift_secs}: bob believes what it was shown, {waited:?}"
        );
        assert!(waited < lease + Duration::from_secs(5), "{shift_secs}: {waited:?}");
        room.network.close();
    });
}

#[test]
fn a_writer_waits_for_who_is_silent_wherever_the_servers_clock_was_set_to() {
    for days in [-800, -1, 0, 1, 6, 400] {
        check(days * DAY_SECS);
    }
}
