//! A client that lost what its pending changes rest on, and learns it again in parts.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::{WantedMode, complete};
use model::{FileId, Kind, Name};
use protocol::Mode;
use replica::Limits;
use sim::check;
use sim::machine::{ClientMachine, End, OriginMachine, Room, SimClient};
use sim::network::Conditions;
use sim::operation::{Operation, Outcome, Path};
use sim::perform::Programs;
use std::time::Duration;

const DIRECTORIES: [&str; 4] = ["a", "b", "c", "d"];
/// Long enough for the tables to be on the disk.
const CHECKPOINT: Duration = Duration::from_secs(7);

async fn make(client: &SimClient, path: &str) {
    let make =
        Operation::Make { path: Path::new(path), kind: Kind::Directory, mode: 0o755, target: None };
    let outcome = Programs::default().perform(client, &make).await;
    assert!(matches!(outcome, Outcome::Shown(_)), "{path}: {outcome}");
}

async fn found(client: &SimClient, directory: FileId, name: &str) -> Option<FileId> {
    let name = Name::new(name).unwrap();
    let found = complete(client, |client| client.lookup(directory, &name)).await;
    found.ok().flatten().map(|found| found.file)
}

/// Whether a directory is known here.
async fn is_known(client: &SimClient, directory: FileId) -> bool {
    complete(client, |client| client.attributes(directory)).await.is_ok()
}

/// The link goes `after` so long, in the midst of what is learnt again. Says how many of the
/// directories are known here then.
async fn check(room: &Room, after: Duration) -> usize {
    let origin = OriginMachine::start(room, Limits::simulated()).unwrap();
    let machine = |number, conditions, mode| {
        ClientMachine::invited(room, &origin, number, conditions, WantedMode::Fixed(mode))
    };
    let mut ada = machine(0, Conditions::NEAR, Mode::Partial);
    let client = ada.start().await.unwrap();
    for directory in DIRECTORIES {
        make(&client, directory).await;
        // One that is not listed with those above it.
        make(&client, &format!("{directory}/deep")).await;
    }
    check::settled(room, std::slice::from_ref(&ada), true).await.unwrap();
    let mut bob = machine(1, Conditions::FAR, Mode::FetchOnly);
    let client = bob.start().await.unwrap();
    room.clock.sleep(CHECKPOINT).await;
    let mut deep = Vec::new();
    for directory in DIRECTORIES {
        make(&client, &format!("{directory}/deep/mine")).await;
        let above = found(&client, FileId::ROOT, directory).await.unwrap();
        deep.push(found(&client, above, "deep").await.unwrap());
    }
    bob.stop(End::Killed, Duration::ZERO);
    let client = bob.launch().unwrap();
    while !client.status().link.connected {
        room.clock.sleep(Duration::from_millis(10)).await;
    }
    // It asks for all that is pending, whatever this looks at.
    let looking = is_known(&client, FileId::ROOT);
    let cutting = async {
        room.clock.sleep(after).await;
        room.network.cut(bob.line, Duration::ZERO);
    };
    tokio::join!(looking, cutting);
    let mut known = 0;
    for directory in &deep {
        if is_known(&client, *directory).await {
            known += 1;
            let mine = found(&client, *directory, "mine").await;
            assert!(mine.is_some(), "what is in {directory} is hidden, after {after:?}");
        }
    }
    room.network.restore(bob.line);
    client.ready(Duration::from_secs(60)).await.unwrap();
    room.clock.sleep(Duration::from_secs(5)).await;
    for directory in deep {
        assert!(found(&client, directory, "mine").await.is_some(), "hidden when all is known");
    }
    room.network.close();
    known
}

#[test]
fn what_was_learnt_before_the_link_went_shows_what_rests_on_it() {
    let mut some = false;
    for millis in (0..4_000).step_by(50) {
        let known = sim::run::paused(async {
            check(&Room::new(1 + millis, false), Duration::from_millis(millis)).await
        });
        some |= (1..DIRECTORIES.len()).contains(&known);
    }
    assert!(some, "the link never went in the midst of it");
}
