//! A client that is killed again before its tables are on the disk.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::WantedMode;
use model::Kind;
use protocol::Mode;
use replica::Limits;
use sim::check as settling;
use sim::machine::{ClientMachine, End, OriginMachine, Room, SimClient};
use sim::network::Conditions;
use sim::operation::{Operation, Outcome, Path};
use sim::perform::Programs;
use std::future::Future;
use std::time::Duration;

/// Whether the next process is asked for the whole directory or for one name of it.
#[derive(Clone, Copy)]
enum Look {
    List,
    Name,
}

fn simulated<T>(seed: u64, play: impl AsyncFnOnce(&Room) -> T) -> T {
    sim::run::paused(async {
        let room = Room::new(seed, false);
        let outcome = play(&room).await;
        room.network.close();
        outcome
    })
}

async fn make(client: &SimClient, name: &str) {
    let path = Path::new(name);
    let make = Operation::Make { path, kind: Kind::Directory, mode: 0o755, target: None };
    let outcome = Programs::default().perform(client, &make).await;
    assert!(matches!(outcome, Outcome::Shown(_)), "{name}: {outcome}");
}

async fn shows(client: &SimClient, look: Look, name: &str) -> bool {
    let operation = match look {
        Look::List => Operation::List { path: Path(Vec::new()), page: 100 },
        Look::Name => Operation::Stat { path: Path::new(name) },
    };
    match Programs::default().perform(client, &operation).await {
        Outcome::Names(names) => names.iter().any(|(found, _)| found.to_string() == name),
        Outcome::Shown(_) => true,
        _ => false,
    }
}

/// A client makes a directory and keeps it to itself, and is killed `kills` times, each time
/// before a checkpoint has put on the disk what it knows of the tree.
fn check(kills: u32, look: Look) {
    for seed in 1..20 {
        simulated(seed, async |room| {
            let origin = OriginMachine::start(room, Limits::simulated()).unwrap();
            let held = WantedMode::Fixed(Mode::FetchOnly);
            let invitation = origin.invite().unwrap();
            let mut machine = ClientMachine::new(room, 0, invitation, Conditions::NEAR, held);
            let client = machine.start().await.unwrap();
            make(&client, "kept").await;
            for kill in 1..=kills {
                machine.stop(End::Killed, Duration::ZERO);
                let client = machine.launch().unwrap();
                attached(room, &client).await;
                assert!(shows(&client, look, "kept").await, "seed {seed}, after kill {kill}");
            }
        });
    }
}

fn attached<'a>(room: &'a Room, client: &'a SimClient) -> impl Future<Output = ()> + 'a {
    const TRIES_MAX: u32 = 1000;
    async move {
        for _ in 0..TRIES_MAX {
            if client.status().link.connected {
                return;
            }
            room.clock.sleep(Duration::from_millis(10)).await;
        }
        panic!("no session");
    }
}

#[test]
fn what_was_done_is_listed_after_a_restart_and_after_each_later_one() {
    check(1, Look::List);
    check(4, Look::List);
}

#[test]
fn what_was_done_is_found_by_its_name_after_a_restart_and_after_each_later_one() {
    check(1, Look::Name);
    check(4, Look::Name);
}

/// What is learnt of a directory is on the disk as soon as there is no link, and what is done in it
/// then shows after a kill, though there is still none.
#[test]
fn what_was_done_without_a_link_is_seen_after_a_kill_without_a_link() {
    for seed in 1..20 {
        simulated(seed, async |room| {
            let origin = OriginMachine::start(room, Limits::simulated()).unwrap();
            let partial = WantedMode::Fixed(Mode::Partial);
            let machine =
                |number| ClientMachine::invited(room, &origin, number, Conditions::NEAR, partial);
            let (mut ada, mut bob) = (machine(0), machine(1));
            let client = ada.start().await.unwrap();
            make(&client, "theirs").await;
            settling::settled(room, std::slice::from_ref(&ada), true).await.unwrap();
            let client = bob.start().await.unwrap();
            let list = Operation::List { path: Path::new("theirs"), page: 100 };
            assert_eq!(Programs::default().perform(&client, &list).await, Outcome::Names(vec![]));
            bob.mode = WantedMode::Fixed(Mode::Disconnected);
            client.set_mode(bob.mode);
            room.clock.sleep(Duration::from_millis(10)).await;
            make(&client, "theirs/mine").await;
            bob.stop(End::Killed, Duration::ZERO);
            let client = bob.launch().unwrap();
            assert!(shows(&client, Look::Name, "theirs/mine").await, "seed {seed}");
            assert!(!client.status().link.connected);
        });
    }
}
