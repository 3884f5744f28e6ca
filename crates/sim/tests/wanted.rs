//! An origin whose disk has lost chunks gets them back from the caches of its clients.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::WantedMode;
use protocol::{Access, Mode};
use replica::{Limits, Repair};
use sim::check;
use sim::contents::stretch;
use sim::machine::{ClientMachine, End, OriginMachine, Room, SimClient, VOLUME};
use sim::network::Conditions;
use sim::operation::{Operation, Outcome, Path};
use sim::perform::Programs;
use std::time::Duration;
use store::container::Key;
use store::{Blobs, Container, Containers};

/// With a recipe of several chunks above the data.
const LARGE: usize = 700_000;
const SMALL: usize = 5_000;
const FILES: [(&str, u64, usize); 3] = [("large", 1, LARGE), ("small", 2, SMALL), ("one", 3, 900)];
/// Everything is back within this, if it comes back at all.
const HEALED: Duration = Duration::from_secs(120);
/// Longer than it takes until somebody who is in use renews.
const RENEWED: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_secs(5);
const PARTIAL: WantedMode = WantedMode::Fixed(Mode::Partial);

async fn perform(client: &SimClient, operations: &[Operation]) -> Outcome {
    let mut programs = Programs::default();
    let mut last = Outcome::Done;
    for operation in operations {
        last = programs.perform(client, operation).await;
    }
    last
}

async fn save(client: &SimClient, path: &str, version: u64, length: usize) {
    let slot = 0;
    let saved = perform(
        client,
        &[
            Operation::Create { path: Path::new(path), mode: 0o644, slot },
            Operation::Write { slot, offset: 0, length, version },
            Operation::Close { slot },
        ],
    )
    .await;
    assert!(!matches!(saved, Outcome::Failed(_)), "{saved}");
}

async fn read(client: &SimClient, path: &str) -> Outcome {
    perform(client, &[Operation::Fetch { path: Path::new(path) }]).await
}

async fn file_of(client: &SimClient, path: &str) -> u64 {
    match perform(client, &[Operation::Stat { path: Path::new(path) }]).await {
        Outcome::Shown(shown) => shown.file,
        other => panic!("{other}"),
    }
}

struct Scene {
    room: Room,
    origin: OriginMachine,
    /// Who has written everything.
    ada: ClientMachine,
    bob: ClientMachine,
}

impl Scene {
    async fn new(room: &Room) -> Scene {
        let origin = OriginMachine::start(room, Limits::simulated()).unwrap();
        let near = Conditions::NEAR;
        let machine = |number| ClientMachine::invited(room, &origin, number, near, PARTIAL);
        let (mut ada, mut bob) = (machine(0), machine(1));
        let client = ada.start().await.unwrap();
        bob.start().await.unwrap();
        for (path, version, length) in FILES {
            save(&client, path, version, length).await;
        }
        check::settled(room, std::slice::from_ref(&ada), true).await.unwrap();
        Scene { room: room.clone(), origin, ada, bob }
    }

    fn bob(&self) -> &SimClient {
        self.bob.client().unwrap()
    }

    fn ada(&self) -> &SimClient {
        self.ada.client().unwrap()
    }

    /// The disk loses every so manyth chunk. Gives back how many.
    fn lose(&self, one_in: usize) -> usize {
        let blobs = self.origin.disk.blobs("chunks");
        let lost: Vec<_> = blobs.list(&[], 10_000).unwrap().into_iter().step_by(one_in).collect();
        lost.iter().for_each(|(name, _)| blobs.delete(name).unwrap());
        lost.len()
    }

    /// Chunks that versions lack.
    async fn missing(&self) -> u64 {
        let checked = self.origin.origin().unwrap().check(Repair::No).await.unwrap();
        assert_eq!(checked.left > 0, checked.wanted > 0, "{checked:?}");
        checked.wanted
    }

    /// Somebody uses a client, for so long or until nothing is missing any more.
    async fn use_until_healed(&self, client: &SimClient, within: Duration) -> bool {
        let begun = self.room.clock.moment();
        while self.room.clock.moment().since(begun) < within {
            perform(client, &[Operation::Stat { path: Path::new("small") }]).await;
            self.room.clock.sleep(LOOK_EVERY).await;
            if self.missing().await == 0 {
                return true;
            }
        }
        false
    }

    async fn all_is_read_by_bob(&self) {
        for (path, version, length) in FILES {
            let expected = Outcome::Bytes(stretch(version, length));
            assert!(read(self.bob(), path).await == expected, "{path}");
        }
    }

    async fn nothing_is_read_by_bob(&self) {
        for (path, ..) in FILES {
            let outcome = read(self.bob(), path).await;
            assert!(matches!(outcome, Outcome::Failed(_)), "{path}: {outcome}");
        }
    }
}

fn simulated(work: impl AsyncFnOnce(&Room)) {
    sim::run::paused(async {
        let room = Room::new(1, false);
        work(&room).await;
        room.network.close();
    });
}

/// Data and recipes alike: a recipe is made again from the file.
#[test]
fn a_client_that_has_everything_heals_an_origin_that_has_lost_everything() {
    simulated(async |room| {
        let scene = Scene::new(room).await;
        let lost = scene.lose(1);
        assert!(lost > 60, "{lost}");
        scene.nothing_is_read_by_bob().await;
        assert!(scene.use_until_healed(scene.ada(), HEALED).await);
        scene.all_is_read_by_bob().await;
        let status = scene.ada().status().wanted;
        assert_eq!((status.given, status.missing), (lost as u64, 0));
        let machines = [scene.ada, scene.bob];
        check::nothing_broke(room, &machines).unwrap();
    });
}

/// Nobody has to touch the mount that has the chunks: it attaches by itself.
#[test]
fn what_was_found_missing_while_the_origin_was_down_is_asked_for_when_it_is_up() {
    simulated(async |room| {
        let mut scene = Scene::new(room).await;
        scene.lose(3);
        assert!(scene.missing().await > 0);
        scene.origin.stop(End::Killed, Duration::ZERO);
        scene.origin.restart().unwrap();
        scene.room.clock.sleep(RENEWED).await;
        assert_eq!(scene.missing().await, 0);
        scene.all_is_read_by_bob().await;
    });
}

/// What each has is enough together, and what one of them has lost as well is not made up.
#[test]
fn what_nobody_has_any_more_stays_missing_and_the_rest_comes_back() {
    simulated(async |room| {
        let scene = Scene::new(room).await;
        assert!(matches!(read(scene.bob(), "small").await, Outcome::Bytes(_)));
        let harmed = Key { file: file_of(scene.ada(), "small").await, generation: 0 };
        let container = scene.ada.disk.containers("files").open(harmed, false).unwrap().unwrap();
        container.write(0, &[0xff; SMALL]).unwrap();
        let harmed = Key { file: file_of(scene.ada(), "one").await, generation: 0 };
        let container = scene.ada.disk.containers("files").open(harmed, false).unwrap().unwrap();
        container.write(100, b"?").unwrap();
        scene.lose(1);
        assert!(!scene.use_until_healed(scene.ada(), RENEWED).await);
        let status = scene.ada().status().wanted;
        assert!(status.missing > 0 && status.files.contains(&"one".into()), "{status:?}");
        assert!(!scene.use_until_healed(scene.bob(), RENEWED).await);
        assert_eq!(scene.missing().await, 1, "the only chunk of one file");
        for (path, version, length) in &FILES[..2] {
            let expected = Outcome::Bytes(stretch(*version, *length));
            assert!(read(scene.bob(), path).await == expected, "{path}");
        }
        assert!(matches!(read(scene.bob(), "one").await, Outcome::Failed(_)));
    });
}

#[test]
fn where_nothing_may_be_sent_nothing_is_given_back_until_it_may() {
    simulated(async |room| {
        let scene = Scene::new(room).await;
        for mode in [Mode::FetchOnly, Mode::Disconnected] {
            scene.ada().set_mode(WantedMode::Fixed(mode));
            scene.lose(2);
            assert!(!scene.use_until_healed(scene.ada(), RENEWED).await, "{mode:?}");
            assert_eq!(scene.ada().status().wanted.given, 0, "{mode:?}");
        }
        scene.ada().set_mode(PARTIAL);
        assert!(scene.use_until_healed(scene.ada(), HEALED).await);
        scene.all_is_read_by_bob().await;
    });
}

#[test]
fn a_device_that_may_only_read_gives_back_what_it_has_read() {
    simulated(async |room| {
        let mut scene = Scene::new(room).await;
        let invitation =
            scene.origin.origin().unwrap().invite(VOLUME, Access::ReadOnly, None).unwrap();
        let mut eve = ClientMachine::new(room, 2, invitation, Conditions::NEAR, PARTIAL);
        eve.cache_bytes_max = 1 << 30;
        let reader = eve.start().await.unwrap();
        for (path, ..) in FILES {
            assert!(matches!(read(&reader, path).await, Outcome::Bytes(_)));
        }
        scene.ada.stop(End::Killed, Duration::ZERO);
        scene.lose(1);
        scene.nothing_is_read_by_bob().await;
        assert!(scene.use_until_healed(&reader, HEALED).await);
        scene.all_is_read_by_bob().await;
    });
}

/// The version that was replaced is in the trash of the cache.
#[test]
fn an_older_version_comes_back_from_what_the_cache_keeps_of_it() {
    simulated(async |room| {
        let scene = Scene::new(room).await;
        perform(
            scene.ada(),
            &[
                Operation::Create { path: Path::new("new"), mode: 0o644, slot: 0 },
                Operation::Write { slot: 0, offset: 0, length: SMALL, version: 9 },
                Operation::Close { slot: 0 },
                Operation::Unlink { path: Path::new("large") },
            ],
        )
        .await;
        check::settled(room, std::slice::from_ref(&scene.ada), true).await.unwrap();
        scene.lose(1);
        assert!(scene.missing().await > 0);
        assert!(scene.use_until_healed(scene.ada(), HEALED).await);
    });
}
