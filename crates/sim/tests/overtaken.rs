//! An answer that arrives after the word that more was missed than can be told.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::{WantedMode, complete};
use model::{FileId, Kind, Name};
use protocol::Mode;
use replica::Limits;
use sim::machine::{ClientMachine, OriginMachine, Room, SimClient};
use sim::network::Conditions;
use sim::operation::{Operation, Path};
use sim::perform::Programs;
use std::time::Duration;

/// Messages overtake each other.
const DISORDERLY: Conditions = Conditions {
    delay: Duration::from_millis(1),
    jitter: Duration::from_secs(5),
    lost_in_thousand: 0,
    bytes_a_second: None,
};
const SEEDS: u64 = 16;
/// A lease has so little left then that it is renewed.
const NEARLY_DUE: Duration = Duration::from_secs(11);
const LONG: Duration = Duration::from_secs(60);

fn make(path: &str) -> Operation {
    Operation::Make { path: Path::new(path), kind: Kind::Directory, mode: 0o755, target: None }
}

fn list(path: &str) -> Operation {
    Operation::List { path: Path::new(path), page: 100 }
}

async fn find(client: &SimClient, directory: FileId, name: &str) -> Option<FileId> {
    let name = Name::new(name).unwrap();
    let found = complete(client, |client| client.lookup(directory, &name)).await.unwrap();
    found.map(|found| found.file)
}

#[test]
fn what_was_listed_before_the_cache_was_in_doubt_does_not_count_after_it() {
    for seed in 0..SEEDS {
        sim::run::paused(async {
            let room = Room::new(seed, false);
            let limits = Limits { tail_keys_max: 1, ..Limits::simulated() };
            let origin = OriginMachine::start(&room, limits).unwrap();
            let mode = WantedMode::Fixed(Mode::Partial);
            let near = Conditions::NEAR;
            let machine = |number| ClientMachine::invited(&room, &origin, number, near, mode);
            let (mut ada, mut bob) = (machine(0), machine(1));
            let there = ada.start().await.unwrap();
            Programs::default().perform_all(&there, ["top", "low", "low/old"].map(make)).await;
            room.clock.sleep(LONG).await;
            let here = bob.start().await.unwrap();
            Programs::default().perform_all(&here, [list("")]).await;
            room.network.set_conditions(bob.line, DISORDERLY);
            let low = find(&here, FileId::ROOT, "low").await.unwrap();
            for round in 0..4 {
                room.clock.sleep(NEARLY_DUE).await;
                let made: Vec<_> = (0..4).map(|n| make(&format!("{round}-{n}"))).collect();
                Programs::default().perform_all(&there, made).await;
                Programs::default().perform_all(&here, [list("low"), list("")]).await;
            }
            room.clock.sleep(LONG).await;
            Programs::default().perform_all(&here, [list("low")]).await;
            Programs::default().perform_all(&there, [make("low/new")]).await;
            room.clock.sleep(LONG / 4).await;
            assert!(find(&here, low, "new").await.is_some(), "seed {seed}");
            room.network.close();
        });
    }
}
