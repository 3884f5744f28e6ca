//! What was written to a part has been stored, and its container is gone or harmed when the client
//! comes up after a kill.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::{OpenFlags, WantedMode};
use model::Kind;
use protocol::{Damage, Mode};
use replica::Limits;
use sim::check;
use sim::contents::stretch;
use sim::machine::{ClientMachine, End, OriginMachine, Room, SimClient};
use sim::network::Conditions;
use sim::operation::{Operation, Outcome, Path};
use sim::perform::Programs;
use std::time::Duration;
use store::container::Key;
use store::{Container, Containers};

const LENGTH: usize = 600_000;
/// A checkpoint has been made, and the next one is not near.
const CHECKPOINTED: Duration = Duration::from_millis(10_500);
/// Where something is written, and how much.
const AT: usize = 300_000;
const WRITTEN: usize = 5_000;
const PARTIAL: WantedMode = WantedMode::Fixed(Mode::Partial);
const CONNECTED: WantedMode = WantedMode::Fixed(Mode::Connected);
/// What is stored stays here.
const HELD: WantedMode = WantedMode::Fixed(Mode::FetchOnly);
const WRITE: OpenFlags = OpenFlags { read: true, write: true, truncate: false, append: false };

/// Ada has made the image; Bob has nothing of it, and a directory of his own.
struct Scene {
    room: Room,
    _origin: OriginMachine,
    machines: [ClientMachine; 2],
    bytes: Vec<u8>,
}

async fn perform(client: &SimClient, operations: &[Operation]) -> Outcome {
    let mut programs = Programs::default();
    let mut last = Outcome::Done;
    for operation in operations {
        last = programs.perform(client, operation).await;
        assert!(!matches!(last, Outcome::Failed(_)), "{operation}: {last}");
    }
    last
}

async fn read(client: &SimClient, path: &str) -> Vec<u8> {
    match perform(client, &[Operation::Fetch { path: Path::new(path) }]).await {
        Outcome::Bytes(bytes) => bytes,
        other => panic!("{path}: {other}"),
    }
}

impl Scene {
    async fn new(mode: WantedMode) -> Scene {
        let room = Room::new(1, false);
        let origin = OriginMachine::start(&room, Limits::simulated()).unwrap();
        let near = Conditions::NEAR;
        let mut ada = ClientMachine::invited(&room, &origin, 0, near, PARTIAL);
        let mut bob = ClientMachine::invited(&room, &origin, 1, near, mode);
        bob.whole_bytes_max = Some(WRITTEN as u64);
        let client = ada.start().await.unwrap();
        let path = Path::new("image");
        let create = Operation::Create { path, mode: 0o644, slot: 0 };
        let write = Operation::Write { slot: 0, offset: 0, length: LENGTH, version: 1 };
        perform(&client, &[create, write, Operation::Close { slot: 0 }]).await;
        check::settled(&room, std::slice::from_ref(&ada), true).await.unwrap();
        let client = bob.start().await.unwrap();
        // The names are known after a kill: there is something to make a checkpoint of.
        perform(&client, &[Operation::List { path: Path(Vec::new()), page: 100 }]).await;
        let (path, kind) = (Path::new("bobs"), Kind::Directory);
        perform(&client, &[Operation::Make { path, kind, mode: 0o755, target: None }]).await;
        room.clock.sleep(CHECKPOINTED).await;
        Scene { room, _origin: origin, machines: [ada, bob], bytes: stretch(1, LENGTH) }
    }

    fn bob(&self) -> &SimClient {
        self.machines[1].client().unwrap()
    }

    /// Bob writes to the image, at `at`, and closes it.
    async fn writes(&mut self, at: usize, version: u64) {
        let open = Operation::Open { path: Path::new("image"), slot: 0, flags: WRITE };
        let write = Operation::Write { slot: 0, offset: at as u64, length: WRITTEN, version };
        perform(self.bob(), &[open, write, Operation::Close { slot: 0 }]).await;
        self.bytes[at..at + WRITTEN].copy_from_slice(&stretch(version, WRITTEN));
    }

    async fn settled(&self) {
        check::settled(&self.room, &self.machines, true).await.unwrap();
    }

    /// The containers of the image on Bob's disk.
    async fn containers(&self) -> Vec<Key> {
        let stat = Operation::Stat { path: Path::new("image") };
        let Outcome::Shown(shown) = perform(self.bob(), &[stat]).await else {
            panic!("it is not there")
        };
        self.machines[1].disk.containers("files").list_of(shown.file).unwrap()
    }

    fn killed(&mut self) {
        self.machines[1].stop(End::Killed, Duration::ZERO);
    }

    /// Nobody has anything else, and nothing lies beside it.
    async fn is_everywhere(&self, is_there: bool) {
        self.settled().await;
        for machine in &self.machines {
            let client = machine.client().unwrap();
            let list = Operation::List { path: Path(Vec::new()), page: 100 };
            let Outcome::Names(found) = perform(client, &[list]).await else {
                panic!("it cannot be listed")
            };
            assert_eq!(found.len(), 1 + usize::from(is_there), "{found:?}");
            if is_there {
                assert!(read(client, "image").await == self.bytes);
            }
        }
        check::nothing_broke(&self.room, &self.machines).unwrap();
    }
}

/// Why the container of the image goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goes {
    /// Others need its place in the cache.
    Leaves,
    /// With the file.
    Removed,
}

/// What Bob has written is stored `stores` times and taken each time; the container goes; and he
/// is killed before the tables say any of it.
fn check_taken(mode: WantedMode, stores: usize, goes: Goes) {
    let case = format!("{mode:?}, {stores} stores, {goes:?}");
    sim::run::paused(async {
        let mut scene = Scene::new(mode).await;
        for store in 0..stores {
            scene.writes(AT + store * 50_000, 10 + store as u64).await;
            scene.settled().await;
        }
        let there = scene.containers().await;
        if goes == Goes::Removed {
            perform(scene.bob(), &[Operation::Unlink { path: Path::new("image") }]).await;
            scene.settled().await;
        }
        scene.killed();
        let containers = scene.machines[1].disk.containers("files");
        there.iter().for_each(|key| containers.remove(*key).unwrap());
        let bob = scene.machines[1].launch().unwrap();
        assert!(bob.status().pending.updates > 0, "{case}: the crash undid the verdicts");
        if goes == Goes::Leaves && stores == 2 {
            // It may be before the verdicts are there once more.
            scene.writes(4 * WRITTEN, 19).await;
        }
        scene.is_everywhere(goes == Goes::Leaves).await;
        if goes == Goes::Leaves {
            scene.writes(2 * WRITTEN, 20).await;
            scene.is_everywhere(true).await;
        }
        assert_eq!(bob.status().damage, [], "{case}");
        assert_eq!(bob.status().conflicts, 0, "{case}");
        scene.room.network.close();
    });
}

#[test]
fn what_was_taken_is_not_lost_when_its_container_leaves_before_a_kill() {
    for mode in [PARTIAL, CONNECTED] {
        for stores in [1, 2, 3] {
            check_taken(mode, stores, Goes::Leaves);
        }
    }
}

#[test]
fn what_was_taken_and_removed_is_not_missed_after_a_kill() {
    for mode in [PARTIAL, CONNECTED] {
        for stores in [1, 2] {
            check_taken(mode, stores, Goes::Removed);
        }
    }
}

/// What the disk does to a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harm {
    Flips,
    Loses,
}

/// When it does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// While no process runs, before the tables of the last one were on the disk.
    Killed,
    /// While the process runs.
    Running,
}

/// Something is written and held back; its container comes to harm; then it is to be sent.
fn check_harmed(harm: Harm, when: When) {
    let case = format!("{harm:?}, {when:?}");
    sim::run::paused(async {
        let mut scene = Scene::new(HELD).await;
        let before = scene.bytes.clone();
        scene.writes(AT, 10).await;
        let there = scene.containers().await;
        if when == When::Killed {
            scene.killed();
        }
        let containers = scene.machines[1].disk.containers("files");
        let [key] = there[..] else { panic!("{case}: {there:?}") };
        match harm {
            Harm::Flips => {
                let container = containers.open(key, false).unwrap().unwrap();
                let byte = scene.bytes[AT] ^ 1;
                container.write(AT as u64, &[byte]).unwrap();
                scene.bytes[AT] = byte;
            }
            Harm::Loses => {
                containers.remove(key).unwrap();
                scene.bytes = before;
            }
        }
        if when == When::Killed {
            scene.machines[1].start().await.unwrap();
        }
        let bob = scene.bob().clone();
        bob.set_mode(PARTIAL);
        scene.is_everywhere(true).await;
        let damage = bob.status().damage;
        let [Damage { path, stored_bytes, .. }] = &damage[..] else { panic!("{case}: {damage:?}") };
        assert_eq!(path.as_deref(), Some("image"), "{case}");
        let stored = (harm == Harm::Flips).then_some(LENGTH as u64);
        assert_eq!(*stored_bytes, stored, "{case}");
        // The rest does not wait for it.
        scene.writes(AT, 11).await;
        scene.is_everywhere(true).await;
        scene.room.network.close();
    });
}

#[test]
fn what_is_left_of_what_was_written_to_a_part_is_stored_and_its_damage_is_said() {
    for when in [When::Killed, When::Running] {
        for harm in [Harm::Flips, Harm::Loses] {
            check_harmed(harm, when);
        }
    }
}
