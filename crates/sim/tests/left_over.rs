//! Large files that are not all cached, and were being written to when their machine was killed: what they lack is
//! had from the server, if it can be, and none of them waits for another one.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::{OpenFlags, WantedMode};
use protocol::Mode;
use replica::Limits;
use sim::check;
use sim::contents::stretch;
use sim::machine::{ClientMachine, End, OriginMachine, Room, SimClient};
use sim::network::Conditions;
use sim::operation::{Operation, Outcome, Path};
use sim::perform::Programs;
use std::time::Duration;
use store::Blobs;

const LENGTH: usize = 3 << 20;
/// Of a file so much is cached, and the last of it written to, before a cut: what decides on that is changed.
const CACHED: usize = 2 << 20;
const WRITTEN: usize = 3_000;
const BEFORE_A_CUT: usize = 8;
const BOTH: OpenFlags = OpenFlags { read: true, write: true, truncate: false, append: false };
const PARTIAL: WantedMode = WantedMode::Fixed(Mode::Partial);
const DISCONNECTED: WantedMode = WantedMode::Fixed(Mode::Disconnected);
/// What is stored is taken within this time, and after the last checkpoint no other is made.
const TAKEN_WITHIN: Duration = Duration::from_secs(2);
/// A checkpoint is made within this time.
const CHECKPOINT_WITHIN: Duration = Duration::from_secs(12);

/// Where the file is cut first behind what is to be cached.
fn cut(version: u64) -> usize {
    let secret = chunks::Secret::new([0; 32]);
    let bytes = stretch(version, LENGTH);
    let described = chunks::describe_bytes(&secret, protocol::Cutter::Gear, &bytes);
    let mut cuts = described.pieces.iter().map(|placed| placed.offset as usize);
    cuts.find(|cut| *cut >= CACHED).unwrap()
}

/// Where Bob writes into what Ada has made.
fn at(made: u64) -> usize {
    cut(made) - BEFORE_A_CUT - WRITTEN
}

/// Ada has made files, and Bob has never seen them.
struct Scene {
    room: Room,
    origin: OriginMachine,
    machines: [ClientMachine; 2],
}

impl Scene {
    async fn new() -> Scene {
        Scene::of(1).await
    }

    async fn of(seed: u64) -> Scene {
        let room = Room::new(seed, false);
        let origin = OriginMachine::start(&room, Limits::simulated()).unwrap();
        let machine =
            |number| ClientMachine::invited(&room, &origin, number, Conditions::NEAR, PARTIAL);
        let mut machines = [machine(0), machine(1)];
        machines[1].whole_bytes_max = Some(WRITTEN as u64);
        for machine in &mut machines {
            machine.start().await.unwrap();
        }
        Scene { room, origin, machines }
    }

    fn client(&self, number: usize) -> SimClient {
        self.machines[number].client().unwrap().clone()
    }

    async fn make(&self, name: &str, version: u64) {
        let create = Operation::Create { path: Path::new(name), mode: 0o644, slot: 0 };
        let write = Operation::Write { slot: 0, offset: 0, length: LENGTH, version };
        let operations = [create, write, Operation::Close { slot: 0 }];
        Programs::default().perform_all(&self.client(0), operations).await;
        check::settled(&self.room, &self.machines, true).await.unwrap();
    }

    /// Bob has read the beginning, writes into it, and does not close it.
    async fn write(&self, name: &str, (made, version): (u64, u64)) {
        let operations = [
            Operation::Open { path: Path::new(name), slot: 0, flags: BOTH },
            Operation::Read { slot: 0, offset: 0, length: cut(made) },
            Operation::Write { slot: 0, offset: at(made) as u64, length: WRITTEN, version },
        ];
        Programs::default().perform_all(&self.client(1), operations).await;
    }

    async fn is_killed(&mut self, starts_as: WantedMode) {
        self.room.clock.sleep(CHECKPOINT_WITHIN).await;
        self.machines[1].stop(End::Killed, Duration::ZERO);
        self.machines[1].mode = starts_as;
        self.machines[1].start().await.unwrap();
    }

    /// What Ada finds is what she has made and Bob has written into.
    async fn is_written(&self, name: &str, (made, written): (u64, u64)) -> bool {
        let fetch = Operation::Fetch { path: Path::new(name) };
        let mut bytes = stretch(made, LENGTH);
        bytes[at(made)..][..WRITTEN].copy_from_slice(&stretch(written, WRITTEN));
        match Programs::default().perform(&self.client(0), &fetch).await {
            Outcome::Bytes(found) => found == bytes,
            other => panic!("{name}: {other}"),
        }
    }
}

/// The link goes so long after the start. Gives how much is read then, in five minutes.
async fn reads_without_a_link(millis: u64) -> u64 {
    let mut scene = Scene::new().await;
    scene.make("image", 1).await;
    scene.write("image", (1, 2)).await;
    scene.room.clock.sleep(CHECKPOINT_WITHIN).await;
    scene.machines[1].stop(End::Killed, Duration::ZERO);
    scene.machines[1].launch().unwrap();
    scene.room.clock.sleep(Duration::from_millis(millis)).await;
    scene.client(1).set_mode(DISCONNECTED);
    let before = scene.machines[1].disk.bytes_read();
    scene.room.clock.sleep(Duration::from_secs(300)).await;
    let read = scene.machines[1].disk.bytes_read() - before;
    scene.client(1).set_mode(PARTIAL);
    // It does not wait for the next try.
    scene.room.clock.sleep(Duration::from_secs(15)).await;
    assert!(scene.is_written("image", (1, 2)).await, "after {millis} ms");
    check::settled(&scene.room, &scene.machines, true).await.unwrap();
    scene.room.network.close();
    read
}

#[test]
fn what_lacks_something_without_a_link_is_not_read_again_and_again() {
    // By then it is known from the server how the file was cut, and not what is behind the cut.
    let read = sim::run::paused(reads_without_a_link(15));
    let times = read / CACHED as u64;
    assert!((3..9).contains(&times), "it was read {times} times");
}

#[test]
fn one_whose_ground_cannot_be_had_keeps_no_other_from_being_stored() {
    sim::run::paused(async {
        let mut scene = Scene::new().await;
        scene.make("first", 1).await;
        let chunks = scene.origin.disk.blobs("chunks");
        let of_the_first = chunks.list(&[], usize::MAX).unwrap();
        scene.make("second", 2).await;
        scene.write("first", (1, 3)).await;
        scene.write("second", (2, 4)).await;
        for (name, _) in of_the_first {
            chunks.delete(&name).unwrap();
        }
        scene.is_killed(PARTIAL).await;
        scene.room.clock.sleep(Duration::from_secs(30)).await;
        assert!(scene.is_written("second", (2, 4)).await, "it waits for the first one");
        scene.room.network.close();
    });
}

/// The steps of a start that finds a large file written over of which the tables may not know yet that it was stored.
async fn steps_of_a_start(seed: u64) -> u64 {
    let mut scene = Scene::of(seed).await;
    let create = Operation::Create { path: Path::new("large"), mode: 0o644, slot: 0 };
    let write = |version| Operation::Write { slot: 0, offset: 0, length: LENGTH, version };
    let mut programs = Programs::default();
    programs.perform_all(&scene.client(1), [create, write(1)]).await;
    scene.room.clock.sleep(CHECKPOINT_WITHIN).await;
    // It was written over once that had been taken.
    programs.perform_all(&scene.client(1), [Operation::Sync { slot: 0 }]).await;
    scene.room.clock.sleep(TAKEN_WITHIN).await;
    programs.perform_all(&scene.client(1), [write(2)]).await;
    let before = scene.machines[1].headway.made();
    scene.machines[1].stop(End::Killed, Duration::ZERO);
    scene.machines[1].start().await.unwrap();
    let made = scene.machines[1].headway.made() - before;
    scene.room.network.close();
    made
}

/// A start that takes long says so, as long as it has headway. Whether the tables had come to the disk is for chance
/// to say.
#[test]
fn a_start_that_has_to_read_what_was_stored_makes_headway() {
    let reads = |seed| sim::run::paused(steps_of_a_start(seed)) >= 12;
    assert!((1..=8).any(reads));
}
