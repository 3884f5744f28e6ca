//! Files that are opened without a link and are not here: nothing of them stays, and the cache does
//! not fill with containers that hold nothing.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::{OpenFlags, WantedMode};
use protocol::Mode;
use replica::Limits;
use sim::check;
use sim::contents::stretch;
use sim::machine::{ClientMachine, End, OriginMachine, Room, SimClient};
use sim::network::Conditions;
use sim::operation::{Fault, Operation, Outcome, Path};
use sim::perform::Programs;
use std::time::Duration;
use store::Containers;

/// More than leave a disk at once that can have no more of them.
const FILES: u64 = 60;
const LENGTH: usize = 3_000;
const PARTIAL: WantedMode = WantedMode::Fixed(Mode::Partial);
const READS: OpenFlags = OpenFlags { read: true, write: false, truncate: false, append: false };

struct Scene {
    room: Room,
    _origin: OriginMachine,
    /// Who has written everything.
    _ada: ClientMachine,
    bob: ClientMachine,
}

fn path(number: u64) -> Path {
    Path::new(&format!("file-{number}"))
}

fn open(number: u64, slot: usize) -> Operation {
    Operation::Open { path: path(number), slot, flags: READS }
}

fn read(slot: usize) -> Operation {
    Operation::Read { slot, offset: 0, length: LENGTH }
}

fn close(slot: usize) -> Operation {
    Operation::Close { slot }
}

impl Scene {
    /// Bob has seen the names of files, and has none of them; "empty" is one of no bytes.
    async fn new(seed: u64) -> Scene {
        let room = Room::new(seed, false);
        let origin = OriginMachine::start(&room, Limits::simulated()).unwrap();
        let near = Conditions::NEAR;
        let machine = |number| ClientMachine::invited(&room, &origin, number, near, PARTIAL);
        let (mut ada, mut bob) = (machine(0), machine(1));
        let client = ada.start().await.unwrap();
        let mut programs = Programs::default();
        let slot = 0;
        for number in 0..FILES {
            let create = Operation::Create { path: path(number), mode: 0o644, slot };
            let write = Operation::Write { slot, offset: 0, length: LENGTH, version: number };
            programs.perform_all(&client, [create, write, close(slot)]).await;
        }
        let create = Operation::Create { path: Path::new("empty"), mode: 0o644, slot };
        programs.perform_all(&client, [create, close(slot)]).await;
        check::settled(&room, std::slice::from_ref(&ada), true).await.unwrap();
        bob.start().await.unwrap();
        let scene = Scene { room, _origin: origin, _ada: ada, bob };
        for number in 0..FILES {
            scene.does(&Operation::Stat { path: path(number) }).await;
        }
        scene.does(&Operation::Stat { path: Path::new("empty") }).await;
        scene
    }

    fn bob(&self) -> SimClient {
        self.bob.client().unwrap().clone()
    }

    async fn does(&self, operation: &Operation) -> Outcome {
        Programs::default().perform(&self.bob(), operation).await
    }

    async fn fetches(&self, number: u64) -> Outcome {
        self.does(&Operation::Fetch { path: path(number) }).await
    }

    async fn link(&self, mode: Mode) {
        self.bob().set_mode(WantedMode::Fixed(mode));
        self.room.clock.sleep(Duration::from_secs(5)).await;
    }

    fn containers(&self) -> usize {
        self.bob.disk.containers("files").keys().unwrap().len()
    }
}

fn is(number: u64) -> Outcome {
    Outcome::Bytes(stretch(number, LENGTH))
}

#[test]
fn what_could_not_be_fetched_leaves_nothing_behind_and_what_is_empty_opens_all_the_same() {
    sim::run::paused(async {
        let scene = Scene::new(1).await;
        assert_eq!(scene.fetches(0).await, is(0));
        assert_eq!(scene.containers(), 1);
        scene.link(Mode::Disconnected).await;
        for _ in 0..2 {
            for number in 1..FILES {
                assert_eq!(scene.fetches(number).await, Outcome::Failed(Fault::Unreachable));
            }
            assert_eq!(scene.containers(), 1, "of what is here");
        }
        assert_eq!(scene.fetches(0).await, is(0));
        let empty = Operation::Fetch { path: Path::new("empty") };
        for _ in 0..2 {
            assert_eq!(scene.does(&empty).await, Outcome::Bytes(Vec::new()));
        }
        scene.link(Mode::Partial).await;
        for number in 0..FILES {
            assert_eq!(scene.fetches(number).await, is(number));
        }
        scene.room.network.close();
    });
}

#[test]
fn who_has_it_open_beside_others_reads_it_when_the_link_is_back() {
    sim::run::paused(async {
        let scene = Scene::new(2).await;
        scene.link(Mode::Disconnected).await;
        let client = scene.bob();
        let (mut one, mut other) = (Programs::default(), Programs::default());
        for programs in [&mut one, &mut other] {
            programs.perform_all(&client, [open(3, 0)]).await;
            let found = programs.perform(&client, &read(0)).await;
            assert_eq!(found, Outcome::Failed(Fault::Unreachable));
        }
        one.perform_all(&client, [close(0)]).await;
        assert_eq!(scene.containers(), 1, "the other has it open");
        scene.link(Mode::Partial).await;
        assert_eq!(other.perform(&client, &read(0)).await, is(3));
        other.perform_all(&client, [close(0)]).await;
        assert_eq!(scene.containers(), 1, "it is here");
        scene.link(Mode::Disconnected).await;
        assert_eq!(scene.fetches(3).await, is(3));
        scene.room.network.close();
    });
}

#[test]
fn what_holds_nothing_since_an_earlier_run_goes_when_the_next_one_begins() {
    for how in [End::Killed, End::PowerCut] {
        sim::run::paused(async {
            let mut scene = Scene::new(3).await;
            assert_eq!(scene.fetches(0).await, is(0));
            scene.link(Mode::Disconnected).await;
            let client = scene.bob();
            let mut open_still = Vec::new();
            for number in 1..FILES {
                let mut programs = Programs::default();
                programs.perform_all(&client, [open(number, 0)]).await;
                open_still.push(programs);
            }
            assert_eq!(scene.containers() as u64, FILES);
            // The new session is written down, and with it what is known of them.
            scene.link(Mode::Partial).await;
            scene.bob.stop(how, Duration::from_millis(10));
            scene.bob.start().await.unwrap();
            assert_eq!(scene.containers(), 1, "{how:?}");
            for number in 0..FILES {
                assert_eq!(scene.fetches(number).await, is(number), "{how:?}");
            }
            scene.room.network.close();
        });
    }
}

#[test]
fn nothing_leaves_a_disk_without_an_inode_for_what_cannot_come_and_a_few_files_for_what_can() {
    sim::run::paused(async {
        let scene = Scene::new(4).await;
        let here = FILES / 3;
        for number in 0..here {
            assert_eq!(scene.fetches(number).await, is(number));
        }
        let held = scene.containers();
        scene.bob.disk.bound_containers(Some(held));
        scene.link(Mode::Disconnected).await;
        let mut lacking = 0;
        for number in 0..FILES {
            // Some were fetched ahead.
            let found = scene.fetches(number).await;
            let is_here = found == is(number);
            assert!(is_here || found == Outcome::Failed(Fault::Unreachable), "{number}");
            assert!(is_here || number >= here, "{number} left for another");
            lacking += u64::from(!is_here);
        }
        assert_eq!(lacking, FILES - held as u64);
        scene.link(Mode::Partial).await;
        for number in here..FILES {
            assert_eq!(scene.fetches(number).await, is(number));
        }
        assert!(scene.containers() <= held);
        let create = Operation::Create { path: Path::new("new"), mode: 0o644, slot: 0 };
        let client = scene.bob();
        Programs::default().perform_all(&client, [create, close(0)]).await;
        scene.room.network.close();
    });
}

#[test]
fn a_call_without_a_handle_finds_what_came_for_it() {
    sim::run::paused(async {
        let scene = Scene::new(5).await;
        let half = LENGTH as u64 / 2;
        let cut = Operation::Cut { path: path(7), size: half };
        assert_eq!(scene.does(&cut).await, Outcome::Done);
        let cut: Vec<u8> = stretch(7, LENGTH)[..LENGTH / 2].to_vec();
        assert_eq!(scene.fetches(7).await, Outcome::Bytes(cut));
        scene.room.network.close();
    });
}
