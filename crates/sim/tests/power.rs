//! A connected client whose machine loses its power just after the origin has taken what it did.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::{Durability, OpenFlags, RenameFlag, WantedMode};
use model::Kind;
use protocol::Mode;
use replica::Limits;
use sim::check;
use sim::machine::{ClientMachine, End, OriginMachine, Room, SimClient};
use sim::network::Conditions;
use sim::operation::{Operation, Outcome, Path};
use sim::perform::Programs;
use sim::tree::{self, Tree};
use std::time::Duration;

const LENGTH: usize = 3000;
const CONNECTED: WantedMode = WantedMode::Fixed(Mode::Connected);
const SEEDS: std::ops::Range<u64> = 1..5;
/// Long enough for the tables to be on the disk.
const CHECKPOINT: Duration = Duration::from_secs(7);
/// Whoever has looked is not waited for any more.
const LEASE_ENDS: Duration = Duration::from_secs(90);
/// Shorter than the log is left to gather, longer than a change takes.
const MOMENT: Duration = Duration::from_millis(150);

struct Scene {
    room: Room,
    origin: OriginMachine,
    machine: ClientMachine,
    client: SimClient,
}

fn create(path: &str) -> Operation {
    Operation::Create { path: Path::new(path), mode: 0o644, slot: 0 }
}

fn open(path: &str) -> Operation {
    let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
    Operation::Open { path: Path::new(path), slot: 0, flags }
}

fn write(version: u64) -> Operation {
    Operation::Write { slot: 0, offset: 0, length: LENGTH, version }
}

fn directory(path: &str) -> Operation {
    Operation::Make { path: Path::new(path), kind: Kind::Directory, mode: 0o755, target: None }
}

fn rename(from: &str, to: &str) -> Operation {
    Operation::Rename { from: Path::new(from), to: Path::new(to), flag: RenameFlag::Replace }
}

fn unlink(path: &str) -> Operation {
    Operation::Unlink { path: Path::new(path) }
}

const CLOSE: Operation = Operation::Close { slot: 0 };

/// All kinds of changes, each of which the origin has when it returns.
fn changes() -> Vec<Operation> {
    let mode = Operation::SetMode { path: Path::new("dir"), mode: 0o700 };
    vec![
        open("old"),
        write(2),
        CLOSE,
        directory("dir"),
        create("dir/new"),
        write(3),
        CLOSE,
        rename("old", "dir/old"),
        mode,
        open("dir/new"),
        write(4),
        CLOSE,
        open("gone"),
        write(5),
        CLOSE,
        unlink("gone"),
        rename("dir/new", "dir/old"),
        Operation::Link { from: Path::new("dir/old"), to: Path::new("link") },
        Operation::Cut { path: Path::new("link"), size: 7 },
        Operation::CreateUnborn { directory: Path::new("dir"), mode: 0o600, slot: 0 },
        write(6),
        Operation::Bear { slot: 0, to: Path::new("dir/born") },
        CLOSE,
    ]
}

impl Scene {
    async fn set_up(room: &Room) -> Scene {
        let origin = OriginMachine::start(room, Limits::simulated()).unwrap();
        let invitation = origin.invite().unwrap();
        let mut machine = ClientMachine::new(room, 0, invitation, Conditions::NEAR, CONNECTED);
        (machine.durability, machine.cache_bytes_max) = (Durability::Prompt, 1 << 30);
        let client = machine.start().await.unwrap();
        let scene = Scene { room: room.clone(), origin, machine, client };
        scene.perform(&[create("old"), write(1), CLOSE, create("gone"), write(1), CLOSE]).await;
        room.clock.sleep(CHECKPOINT).await;
        scene
    }

    async fn perform(&self, operations: &[Operation]) {
        let mut programs = Programs::default();
        for operation in operations {
            let outcome = programs.perform(&self.client, operation).await;
            assert!(!matches!(outcome, Outcome::Failed(_)), "{operation}: {outcome}");
        }
    }

    /// The power goes, and the machine comes up again without a link.
    async fn lose_power(&mut self) {
        self.room.network.cut(self.machine.line, Duration::ZERO);
        self.machine.stop(End::PowerCut, Duration::ZERO);
        self.client = self.machine.launch().unwrap();
    }

    async fn agree(&self) -> Tree {
        self.room.network.restore(self.machine.line);
        let machines = std::slice::from_ref(&self.machine);
        self.client.ready(Duration::from_secs(60)).await.unwrap();
        check::settled(&self.room, machines, true).await.unwrap();
        let tree = check::all_agree(&self.room, &self.origin, machines).await.unwrap();
        check::nothing_broke(&self.room, machines).unwrap();
        tree
    }

    async fn truth(&self) -> Tree {
        check::origin_tree(&self.origin).await.unwrap()
    }
}

fn play(seed: u64, work: impl AsyncFnOnce(Scene)) {
    sim::run::paused(async {
        let room = Room::new(seed, false);
        work(Scene::set_up(&room).await).await;
        room.network.close();
    });
}

fn is_same(before: &Tree, after: &Tree) -> Result<(), String> {
    check::same("the origin before", before, "the origin after", after)
}

#[test]
fn what_was_waited_for_is_as_it_was_and_no_number_or_id_is_given_twice() {
    let count = changes().len();
    let mut forgotten = 0;
    for (seed, upto) in SEEDS.flat_map(|seed| (1..=count).map(move |upto| (seed, upto))) {
        // Of what is written and open the power may take anything.
        let is_open = |operation: &Operation| {
            matches!(operation, Operation::Write { .. } | Operation::Open { .. })
        };
        if !is_open(&changes()[upto - 1]) {
            play(seed, async |mut scene| {
                scene.perform(&changes()[..upto]).await;
                let before = scene.truth().await;
                scene.lose_power().await;
                scene.client.set_mode(WantedMode::Fixed(Mode::Disconnected));
                let here = tree::of_client(&scene.client, &Path(Vec::new())).await;
                forgotten += u32::from(here.is_ok_and(|here| is_same(&before, &here).is_err()));
                scene.client.set_mode(CONNECTED);
                let after = scene.agree().await;
                is_same(&before, &after).unwrap_or_else(|why| panic!("{seed}, {upto}: {why}"));
                scene.room.clock.sleep(LEASE_ENDS).await;
                let more = [directory("more"), create("more/new"), write(9), CLOSE];
                scene.perform(&more).await;
                let last = scene.agree().await;
                assert_eq!(last.0.len(), before.0.len() + 2, "{seed}, {upto}");
            });
        }
    }
    assert!(forgotten > 10, "the machine must have forgotten what it did: {forgotten}");
}

#[test]
fn a_second_cut_before_the_link_is_back_takes_nothing_either() {
    for (seed, upto) in SEEDS.flat_map(|seed| [3, 7, 12, 16].map(|upto| (seed, upto))) {
        play(seed, async |mut scene| {
            scene.perform(&changes()[..upto]).await;
            let before = scene.truth().await;
            for _ in 0..3 {
                scene.lose_power().await;
                scene.room.clock.sleep(MOMENT * seed as u32).await;
            }
            let after = scene.agree().await;
            // What cannot be told from something that was written since may be kept beside.
            for (path, leaf) in &before.0 {
                let twin = after.0.get(path).unwrap_or_else(|| panic!("{seed}: {path} is gone"));
                assert!(twin.contents == leaf.contents, "{seed}, {upto}: {path} is otherwise");
            }
        });
    }
}

#[test]
fn what_is_saved_without_a_link_over_what_was_forgotten_is_kept_beside_it() {
    let mut beside = 0;
    for seed in SEEDS {
        play(seed, async |mut scene| {
            scene.perform(&[open("old"), write(2), CLOSE]).await;
            let before = scene.truth().await;
            scene.lose_power().await;
            scene.client.set_mode(WantedMode::Fixed(Mode::Disconnected));
            let here = tree::of_client(&scene.client, &Path(Vec::new())).await;
            let remembers = here.is_ok_and(|here| is_same(&before, &here).is_ok());
            scene.perform(&[open("old"), write(3), CLOSE]).await;
            scene.client.set_mode(CONNECTED);
            let after = scene.agree().await;
            if !remembers {
                let closed = &before.0[&Path::new("old")].contents;
                let is_there = after.0.values().any(|leaf| leaf.contents == *closed);
                assert!(is_there, "{seed}: what was closed is gone");
                assert_eq!(after.0.len(), before.0.len() + 1, "{seed}");
                beside += 1;
            }
        });
    }
    assert!(beside > 0, "nothing was forgotten");
}

#[test]
fn what_was_added_to_and_then_written_over_is_one_thing_here_and_at_the_origin() {
    let behind = Operation::Write { slot: 0, offset: LENGTH as u64, length: 100, version: 2 };
    let cut = Operation::Cut { path: Path::new("old"), size: 7 };
    for (seed, over) in (1..9).flat_map(|seed| [write(3), cut.clone()].map(|over| (seed, over))) {
        play(seed, async |mut scene| {
            scene.perform(&[open("old"), behind.clone(), over.clone()]).await;
            scene.lose_power().await;
            scene.agree().await;
        });
    }
}

/// What is written upon a store that the log has lost, and that was asked about since, is there after
/// a kill.
#[test]
fn what_is_written_upon_what_was_forgotten_outlives_a_kill_after_it_was_asked_about() {
    for seed in SEEDS {
        play(seed, async |mut scene| {
            scene.perform(&[open("old"), write(2), CLOSE]).await;
            scene.lose_power().await;
            scene.agree().await;
            let mut programs = Programs::default();
            for operation in [open("old"), write(3)] {
                let outcome = programs.perform(&scene.client, &operation).await;
                assert!(!matches!(outcome, Outcome::Failed(_)), "{seed}: {operation}: {outcome}");
            }
            let fetch = Operation::Fetch { path: Path::new("old") };
            let written = programs.perform(&scene.client, &fetch).await;
            scene.room.clock.sleep(CHECKPOINT).await;
            scene.machine.stop(End::Killed, Duration::ZERO);
            scene.client = scene.machine.launch().unwrap();
            scene.agree().await;
            let after = Programs::default().perform(&scene.client, &fetch).await;
            assert!(after == written, "{seed}: what was written is not there");
        });
    }
}
