//! Snapshots never change: whatever programs do, through crashes of both sides, and with nothing
//! old kept but what they hold.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::WantedMode;
use protocol::Mode;
use protocol::past::{Found, NotFound, Past};
use replica::{Limits, Wish};
use sim::check as settling;
use sim::machine::{ClientMachine, End, OriginMachine, Room, SimClient, VOLUME};
use sim::network::Conditions;
use sim::operation::{Operation, Path};
use sim::perform::Programs;
use sim::tree::{Tree, of_client};
use sim::workload::Workload;
use std::time::Duration;

const SEEDS: u64 = 6;
const ROUNDS: usize = 5;
const OPERATIONS: usize = 25;

/// The tree without what is told of its place.
async fn seen(client: &SimClient, base: &str) -> Tree {
    let mut tree = of_client(client, &Path::new(base)).await.unwrap();
    tree.0.values_mut().for_each(|leaf| leaf.node = None);
    tree
}

async fn work(client: &SimClient, programs: &mut Programs, workload: &mut Workload) {
    for _ in 0..OPERATIONS {
        let operation = workload.draw(&programs.open_slots());
        programs.perform(client, &operation).await;
    }
    workload.interrupt();
    for slot in programs.open_slots() {
        programs.perform(client, &Operation::Close { slot }).await;
    }
}

async fn play(seed: u64, room: &Room) {
    let limits = Limits {
        versions_kept: Duration::ZERO,
        names_kept: Duration::ZERO,
        trash_bytes_min: 0,
        trash_percent: 0,
        ..Limits::simulated()
    };
    let mut origin = OriginMachine::start(room, limits).unwrap();
    let partial = WantedMode::Fixed(Mode::Partial);
    let machine = |origin: &_, number| {
        ClientMachine::invited(room, origin, number, Conditions::NEAR, partial)
    };
    let (mut ada, mut bob) = (machine(&origin, 0), machine(&origin, 1));
    let mut client = ada.start().await.unwrap();
    let reader = bob.start().await.unwrap();
    let (mut programs, mut workload) = (Programs::default(), Workload::new(room.chance.clone(), 0));
    let mut taken: Vec<(String, Tree)> = Vec::new();
    for round in 0..ROUNDS {
        work(&client, &mut programs, &mut workload).await;
        settling::settled(room, std::slice::from_ref(&ada), true).await.unwrap();
        let name = format!("s{round}");
        let asked = Past::Snapshot { name: name.clone(), uid: 0, token: seed };
        let found = client.look_back(asked).await.unwrap();
        assert!(matches!(found, Found::Snapshot(_)), "seed {seed}: {found:?}");
        taken.push((name, seen(&client, "").await));
        work(&client, &mut programs, &mut workload).await;
        let how = if room.chance.below(2) == 0 { End::Killed } else { End::PowerCut };
        match room.chance.below(3) {
            0 => {
                ada.stop(how, Duration::ZERO);
                programs.forget();
                client = ada.start().await.unwrap();
            }
            1 => {
                origin.stop(how, Duration::ZERO);
                origin.restart().unwrap();
            }
            _ => {}
        }
        settling::settled(room, std::slice::from_ref(&ada), true).await.unwrap();
        let wish = Wish { empty_trash: true, thorough: true, ..Wish::default() };
        origin.origin().unwrap().collect(wish).await.unwrap();
        for (name, then) in &taken {
            let shown = format!(".farfs/snapshots/{name}");
            for (who, client) in [("ada", &client), ("bob", &reader)] {
                let now = seen(client, &shown).await;
                let differences = then.differences("the snapshot then", &now, who);
                assert!(differences.is_empty(), "seed {seed}, {name}: {differences:#?}");
            }
        }
    }
}

#[test]
fn a_snapshot_shows_the_same_to_everybody_for_ever() {
    for seed in 1..=SEEDS {
        sim::run::paused(async {
            let room = Room::new(seed, false);
            play(seed, &room).await;
            room.network.close();
        });
    }
}

/// Asked for again after its answer was lost, a removal finds nothing to remove.
#[test]
fn a_removal_that_was_done_counts_as_done_when_the_answer_is_lost() {
    sim::run::paused(async {
        let room = Room::new(1, false);
        let origin = OriginMachine::start(&room, Limits::simulated()).unwrap();
        let slow = Conditions { delay: Duration::from_millis(50), ..Conditions::NEAR };
        let mode = WantedMode::Fixed(Mode::Partial);
        let mut ada = ClientMachine::invited(&room, &origin, 0, slow, mode);
        let client = ada.start().await.unwrap();
        let asked = Past::Snapshot { name: "one".into(), uid: 0, token: 1 };
        let Found::Snapshot(made) = client.look_back(asked).await.unwrap() else { panic!() };
        let there = async || {
            let found = origin.origin().unwrap().look_back(VOLUME, Past::Snapshots).await.unwrap();
            found != Found::Snapshots(Vec::new())
        };
        let remove = Past::Forget { name: "one".into(), uid: 0 };
        let (removed, ()) = tokio::join!(client.look_back(remove.clone()), async {
            while there().await {
                room.clock.sleep(Duration::from_millis(1)).await;
            }
            room.network.break_session(ada.line, Duration::ZERO);
        });
        assert_eq!(removed.unwrap(), Found::Snapshot(made));
        let twice = client.look_back(remove).await.unwrap();
        assert_eq!(twice, Found::Not(NotFound::NoSnapshot("one".into())));
        room.network.close();
    });
}
