//! What was written and could not be stored, or could not be written at all.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::{Durability, OpenFlags, WantedMode};
use protocol::Mode;
use replica::Limits;
use sim::check;
use sim::contents::stretch;
use sim::machine::{ClientMachine, End, OriginMachine, Room, SimClient};
use sim::network::Conditions;
use sim::operation::{Fault, Operation, Outcome, Path};
use sim::perform::Programs;
use std::time::Duration;

const LENGTH: usize = 3_000;
const TOUCHED_SECS: i64 = 1_000_000;
const READ: OpenFlags = OpenFlags { read: true, write: false, truncate: false, append: false };
const APPEND: OpenFlags = OpenFlags { read: false, write: true, truncate: false, append: true };
const CLOSE: Operation = Operation::Close { slot: 0 };
const SYNC: Operation = Operation::Sync { slot: 0 };

fn path() -> Path {
    Path::new("f")
}

fn create() -> Operation {
    Operation::Create { path: path(), mode: 0o644, slot: 0 }
}

fn write() -> Operation {
    Operation::Write { slot: 0, offset: 0, length: LENGTH, version: 1 }
}

fn open(flags: OpenFlags) -> Operation {
    Operation::Open { path: path(), slot: 0, flags }
}

struct Scene {
    room: Room,
    origin: OriginMachine,
    machine: ClientMachine,
    client: SimClient,
    programs: Programs,
}

impl Scene {
    async fn new(mode: Mode) -> Scene {
        let room = Room::new(1, false);
        let origin = OriginMachine::start(&room, Limits::simulated()).unwrap();
        let mode = WantedMode::Fixed(mode);
        let mut machine = ClientMachine::invited(&room, &origin, 0, Conditions::NEAR, mode);
        machine.durability = Durability::Prompt;
        let client = machine.start().await.unwrap();
        Scene { room, origin, machine, client, programs: Programs::default() }
    }

    async fn perform(&mut self, operation: Operation) -> Outcome {
        self.programs.perform(&self.client, &operation).await
    }

    async fn all(&mut self, operations: impl IntoIterator<Item = Operation>) {
        for operation in operations {
            let what = operation.to_string();
            let outcome = self.perform(operation).await;
            assert!(!matches!(outcome, Outcome::Failed(_)), "{what}: {outcome}");
        }
    }

    async fn settled(&self) {
        let machines = std::slice::from_ref(&self.machine);
        check::settled(&self.room, machines, true).await.unwrap();
        check::nothing_broke(&self.room, machines).unwrap();
    }
}

#[test]
fn what_could_not_be_written_leaves_the_time_of_the_file_though_the_process_dies() {
    sim::run::paused(async {
        let mut scene = Scene::new(Mode::Partial).await;
        let touch = Operation::SetTime { path: path(), secs: TOUCHED_SECS };
        scene.all([create(), write(), CLOSE, touch]).await;
        scene.settled().await;
        scene.all([open(APPEND)]).await;
        let append = Operation::Append { slot: 0, length: LENGTH, version: 2 };
        // The log has room for that it is written to, and then there is none for what is written.
        scene.machine.disk.fill_after(200);
        assert_eq!(scene.perform(append).await, Outcome::Failed(Fault::DiskFull));
        scene.machine.stop(End::Killed, Duration::ZERO);
        scene.machine.disk.make_room();
        scene.client = scene.machine.start().await.unwrap();
        scene.programs = Programs::default();
        scene.settled().await;
        let Outcome::Shown(shown) = scene.perform(Operation::Stat { path: path() }).await else {
            panic!("it is not there");
        };
        assert_eq!((shown.mtime.unwrap().secs, shown.size), (TOUCHED_SECS, LENGTH as u64));
        scene.room.network.close();
    });
}

#[test]
fn a_time_that_was_set_after_the_last_write_outlives_the_process_and_that_before_it_does_not() {
    for written_again in [false, true] {
        for crashes in 1..=2 {
            sim::run::paused(async {
                let mut scene = Scene::new(Mode::Partial).await;
                let touch = || Operation::SetTime { path: path(), secs: TOUCHED_SECS };
                let append = |version| Operation::Append { slot: 0, length: LENGTH, version };
                scene.all([create(), write(), CLOSE]).await;
                scene.settled().await;
                scene.all([open(APPEND), append(2), touch()]).await;
                if written_again {
                    scene.all([append(3)]).await;
                }
                for _ in 0..crashes {
                    scene.machine.stop(End::Killed, Duration::ZERO);
                    scene.client = scene.machine.start().await.unwrap();
                }
                scene.programs = Programs::default();
                scene.settled().await;
                let Outcome::Shown(shown) = scene.perform(Operation::Stat { path: path() }).await
                else {
                    panic!("it is not there");
                };
                let lengths = if written_again { 3 } else { 2 };
                assert_eq!(shown.size, (lengths * LENGTH) as u64);
                assert_eq!(shown.mtime.unwrap().secs == TOUCHED_SECS, !written_again);
                scene.room.network.close();
            });
        }
    }
}

#[test]
fn what_somebody_else_has_written_is_kept_though_a_reader_learns_that_there_is_no_room() {
    sim::run::paused(async {
        let mut scene = Scene::new(Mode::Partial).await;
        scene.all([create()]).await;
        scene.settled().await;
        scene.all([write()]).await;
        scene.machine.disk.fill_after(0);
        let closed = scene.perform(CLOSE).await;
        assert_eq!(closed, Outcome::Failed(Fault::DiskFull), "it waits for room");
        scene.machine.disk.make_room();
        scene.machine.mode = WantedMode::Fixed(Mode::Connected);
        scene.client.set_mode(scene.machine.mode);
        scene.origin.disk.fill_after(0);
        scene.all([open(READ)]).await;
        assert_eq!(scene.perform(SYNC).await, Outcome::Failed(Fault::NoSpace));
        scene.all([CLOSE]).await;
        scene.origin.disk.make_room();
        scene.settled().await;
        let found = scene.perform(Operation::Fetch { path: path() }).await;
        assert_eq!(found, Outcome::Bytes(stretch(1, LENGTH)));
        scene.room.network.close();
    });
}
