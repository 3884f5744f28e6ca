//! How long updates took to come how far is counted as it was.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::WantedMode;
use protocol::{Mode, Reach, ReachTimes};
use replica::Limits;
use sim::check;
use sim::machine::{ClientMachine, OriginMachine, Room, SimClient};
use sim::network::Conditions;
use sim::operation::{Operation, Outcome, Path};
use sim::perform::Programs;
use std::time::Duration;

const PARTIAL: WantedMode = WantedMode::Fixed(Mode::Partial);
/// 36 kB take it 5 s.
const SLOW: Conditions = Conditions {
    delay: Duration::from_millis(100),
    bytes_a_second: Some(7_200),
    ..Conditions::NEAR
};
const LENGTH: usize = 36_000;
/// Nothing is asked more often.
const APART: Duration = Duration::from_secs(61);

async fn writes(client: &SimClient, name: &str, version: u64) {
    let slot = 1;
    let create = Operation::Create { path: Path::new(name), mode: 0o644, slot };
    let write = Operation::Write { slot, offset: 0, length: LENGTH, version };
    let mut programs = Programs::default();
    for operation in [create, write, Operation::Close { slot }] {
        let outcome = programs.perform(client, &operation).await;
        assert!(!matches!(outcome, Outcome::Failed(_)), "{operation}: {outcome}");
    }
}

async fn lists(client: &SimClient) {
    let list = Operation::List { path: Path::new(""), page: 100 };
    let outcome = Programs::default().perform(client, &list).await;
    assert!(!matches!(outcome, Outcome::Failed(_)), "{outcome}");
}

fn times(client: &SimClient, reach: Reach) -> ReachTimes {
    let reached = client.status().reached;
    reached.into_iter().find(|times| times.reach == reach).unwrap()
}

fn secs(us: u64) -> f64 {
    us as f64 / 1e6
}

#[test]
fn what_takes_the_link_long_is_logged_at_once_and_home_and_seen_when_it_was() {
    sim::run::paused(counted());
}

async fn counted() {
    let room = Room::new(1, false);
    let origin = OriginMachine::start(&room, Limits::simulated()).unwrap();
    let far = ClientMachine::invited(&room, &origin, 0, SLOW, PARTIAL);
    let near = ClientMachine::invited(&room, &origin, 1, Conditions::NEAR, PARTIAL);
    let mut machines = [far, near];
    for machine in &mut machines {
        machine.start().await.unwrap();
    }
    let client = machines[0].client().unwrap().clone();
    lists(machines[1].client().unwrap()).await;

    writes(&client, "first", 1).await;
    check::settled(&room, &machines, true).await.unwrap();
    let (logged, home) = (times(&client, Reach::Logged), times(&client, Reach::Home));
    assert!(logged.updates >= 2 && secs(logged.most_us) < 0.5, "{logged:?}");
    assert!((4.5..9.0).contains(&secs(home.most_us)), "{home:?}");
    let seen = times(&client, Reach::Visible);
    assert_eq!(seen.updates, 1, "{seen:?}");
    assert!((secs(home.most_us)..9.5).contains(&secs(seen.most_us)), "{seen:?} {home:?}");

    // Who has cached it and does not answer has to be waited for until his lease ends.
    room.clock.sleep(APART).await;
    lists(machines[1].client().unwrap()).await;
    room.network.hang(machines[1].line, Duration::from_secs(60));
    writes(&client, "second", 2).await;
    room.clock.sleep(Duration::from_secs(40)).await;
    let late = times(&client, Reach::Visible);
    assert_eq!(late.updates, 2, "{late:?}");
    let took = secs(late.sum_us - seen.sum_us);
    assert!((8.0..40.0).contains(&took), "{took} s");
    assert_eq!(times(&client, Reach::Safe).sum_us, times(&client, Reach::Home).sum_us);
    room.network.close();
}
