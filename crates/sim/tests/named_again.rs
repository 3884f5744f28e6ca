//! A file that is removed here while a program has it open, and that comes back: another device has stored a
//! version of it meanwhile, or given it another name, or the removal is not taken.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::{OpenFlags, RenameFlag, WantedMode};
use protocol::Mode;
use replica::Limits;
use sim::check;
use sim::contents::stretch;
use sim::machine::{ClientMachine, End, OriginMachine, Room, SimClient};
use sim::network::Conditions;
use sim::operation::{Operation, Outcome, Path};
use sim::perform::Programs;
use sim::tree::{Leaf, Tree};
use std::time::Duration;

const LENGTH: usize = 3_000;
const WRITES: OpenFlags = OpenFlags { read: true, write: true, truncate: false, append: false };
/// What each of them writes.
const FIRST: u64 = 1;
const OTHERS: u64 = 2;
const OURS: u64 = 3;
const AGAIN: u64 = 4;
/// The slot of what was open when it was removed, and of what was opened later.
const BEFORE: usize = 0;
const AFTER: usize = 1;
const SOON: Duration = Duration::from_secs(7);

fn path() -> Path {
    Path::new("f")
}

fn open(slot: usize) -> Operation {
    Operation::Open { path: path(), slot, flags: WRITES }
}

fn write(slot: usize, version: u64) -> Operation {
    Operation::Write { slot, offset: 0, length: LENGTH, version }
}

fn close(slot: usize) -> Operation {
    Operation::Close { slot }
}

async fn all(programs: &mut Programs, client: &SimClient, operations: &[Operation]) {
    for operation in operations {
        let outcome = programs.perform(client, operation).await;
        assert!(!matches!(outcome, Outcome::Failed(_)), "{operation}: {outcome}");
    }
}

/// How many files have these contents, under whatever names.
fn holding(tree: &Tree, version: u64) -> usize {
    let bytes = stretch(version, LENGTH);
    let holds = |leaf: &&Leaf| leaf.contents.as_ref().is_some_and(|held| **held == bytes);
    tree.0.values().filter(holds).count()
}

struct Scene {
    room: Room,
    origin: OriginMachine,
    machines: [ClientMachine; 2],
}

impl Scene {
    /// Both know the file.
    async fn new(seed: u64, mode: Mode) -> (Scene, [SimClient; 2]) {
        let room = Room::new(seed, false);
        let origin = OriginMachine::start(&room, Limits::simulated()).unwrap();
        let (near, mode) = (Conditions::NEAR, WantedMode::Fixed(mode));
        let machine = |number| ClientMachine::invited(&room, &origin, number, near, mode);
        let (mut ada, mut bob) = (machine(0), machine(1));
        let there = ada.start().await.unwrap();
        let create = Operation::Create { path: path(), mode: 0o644, slot: BEFORE };
        let mut programs = Programs::default();
        all(&mut programs, &there, &[create, write(BEFORE, FIRST), close(BEFORE)]).await;
        check::settled(&room, std::slice::from_ref(&ada), true).await.unwrap();
        let here = bob.start().await.unwrap();
        all(&mut programs, &here, &[Operation::Fetch { path: path() }]).await;
        (Scene { room, origin, machines: [ada, bob] }, [there, here])
    }

    async fn tree(&self) -> Tree {
        check::settled(&self.room, &self.machines, true).await.unwrap();
        check::origin_tree(&self.origin).await.unwrap()
    }
}

/// It is written to through what was open before, or through what is opened after.
async fn comes_back(seed: u64, slot: usize, killed: bool) {
    let (mut scene, [there, here]) = Scene::new(seed, Mode::Partial).await;
    let (mut others, mut ours) = (Programs::default(), Programs::default());
    all(&mut others, &there, &[open(BEFORE), write(BEFORE, OTHERS)]).await;
    all(&mut ours, &here, &[open(BEFORE), Operation::Unlink { path: path() }]).await;
    scene.room.clock.sleep(SOON).await;
    all(&mut others, &there, &[close(BEFORE)]).await;
    scene.room.clock.sleep(SOON).await;
    let found = ours.perform(&here, &Operation::Fetch { path: path() }).await;
    assert_eq!(
        found,
        Outcome::Bytes(stretch(OTHERS, LENGTH)),
        "who opens it now gets what is there"
    );
    if slot == AFTER {
        all(&mut ours, &here, &[open(AFTER)]).await;
    }
    all(&mut ours, &here, &[write(slot, OURS)]).await;
    if killed {
        scene.room.clock.sleep(SOON).await;
        scene.machines[1].stop(End::Killed, Duration::ZERO);
        scene.machines[1].start().await.unwrap();
    } else {
        all(&mut ours, &here, &[close(slot)]).await;
    }
    let tree = scene.tree().await;
    let found = [OTHERS, OURS].map(|version| holding(&tree, version));
    assert_eq!(found, [usize::from(slot == BEFORE), 1], "{slot}, killed {killed}");
    scene.room.network.close();
}

#[test]
fn what_is_written_to_a_file_that_another_device_has_brought_back_is_stored() {
    for (seed, slot) in (1..).zip([BEFORE, AFTER]) {
        for killed in [false, true] {
            sim::run::paused(comes_back(seed, slot, killed));
        }
    }
}

#[test]
fn what_is_written_to_a_file_whose_removal_was_not_taken_is_stored() {
    sim::run::paused(async {
        let (scene, [there, here]) = Scene::new(5, Mode::Connected).await;
        let (mut others, mut ours) = (Programs::default(), Programs::default());
        all(&mut ours, &here, &[open(BEFORE), write(BEFORE, OURS)]).await;
        let rename =
            Operation::Rename { from: path(), to: Path::new("g"), flag: RenameFlag::Replace };
        let unlink = Operation::Unlink { path: path() };
        let mut remover = Programs::default();
        let (renamed, _) =
            tokio::join!(others.perform(&there, &rename), remover.perform(&here, &unlink));
        assert_eq!(renamed, Outcome::Done);
        all(&mut ours, &here, &[close(BEFORE)]).await;
        let found = ours.perform(&here, &Operation::Fetch { path: Path::new("g") }).await;
        assert_eq!(found, Outcome::Bytes(stretch(OURS, LENGTH)));
        assert_eq!(holding(&scene.tree().await, OURS), 1);
        scene.room.network.close();
    });
}

/// What is written to it while it has no name is synced, and it comes back by another name, with what it
/// held before: while it is still `open`, or when it was closed.
async fn comes_back_as_it_was(seed: u64, is_open: bool, again: bool) {
    let (scene, [there, here]) = Scene::new(seed, Mode::Partial).await;
    let (mut others, mut ours) = (Programs::default(), Programs::default());
    scene.room.network.cut(scene.machines[1].line, Duration::ZERO);
    scene.room.clock.sleep(SOON).await;
    all(&mut ours, &here, &[open(BEFORE), Operation::Unlink { path: path() }]).await;
    all(&mut ours, &here, &[write(BEFORE, OURS), Operation::Sync { slot: BEFORE }]).await;
    let rename = Operation::Rename { from: path(), to: Path::new("g"), flag: RenameFlag::Replace };
    all(&mut others, &there, &[rename]).await;
    if !is_open {
        all(&mut ours, &here, &[close(BEFORE)]).await;
    }
    scene.room.network.restore(scene.machines[1].line);
    scene.room.clock.sleep(2 * SOON).await;
    if again {
        all(&mut ours, &here, &[write(BEFORE, AGAIN)]).await;
    }
    if is_open {
        all(&mut ours, &here, &[close(BEFORE)]).await;
    }
    let written = if again { AGAIN } else { OURS };
    let expected = if is_open { written } else { FIRST };
    let tree = scene.tree().await;
    assert_eq!(holding(&tree, expected), 1, "open {is_open}, again {again}");
    let found = ours.perform(&here, &Operation::Fetch { path: Path::new("g") }).await;
    assert_eq!(found, Outcome::Bytes(stretch(expected, LENGTH)), "open {is_open}, again {again}");
    scene.room.network.close();
}

#[test]
fn what_was_written_to_a_file_without_a_name_is_not_taken_for_what_it_held_before() {
    for (seed, (is_open, again)) in (11..).zip([(true, false), (true, true), (false, false)]) {
        sim::run::paused(comes_back_as_it_was(seed, is_open, again));
    }
}

/// Nothing of what is written to it is stored before the machine dies.
async fn comes_back_after_a_kill(seed: u64, how: End, after: Duration) {
    let (mut scene, [there, here]) = Scene::new(seed, Mode::Partial).await;
    let (mut others, mut ours) = (Programs::default(), Programs::default());
    let line = scene.machines[1].line;
    scene.room.network.cut(line, Duration::ZERO);
    scene.room.clock.sleep(SOON).await;
    all(&mut ours, &here, &[open(BEFORE), Operation::Unlink { path: path() }]).await;
    scene.room.clock.sleep(SOON).await;
    all(&mut ours, &here, &[write(BEFORE, OURS)]).await;
    scene.room.clock.sleep(after).await;
    let rename = Operation::Rename { from: path(), to: Path::new("g"), flag: RenameFlag::Replace };
    all(&mut others, &there, &[rename]).await;
    check::settled(&scene.room, &scene.machines[..1], true).await.unwrap();
    drop(here);
    scene.machines[1].stop(how, Duration::ZERO);
    scene.room.network.restore(line);
    let here = scene.machines[1].start().await.unwrap();
    let wrong = here.files_that_are_not_as_stored().unwrap();
    assert!(wrong.is_empty(), "{how:?}, {after:?}: {wrong:?}");
    let tree = scene.tree().await;
    assert_eq!(holding(&tree, FIRST), 1, "{how:?}, {after:?}");
    let fetch = Operation::Fetch { path: Path::new("g") };
    let found = Programs::default().perform(&here, &fetch).await;
    assert!(found == Outcome::Bytes(stretch(FIRST, LENGTH)), "{how:?}, {after:?}");
    scene.room.network.close();
}

#[test]
fn what_was_written_to_a_file_without_a_name_is_no_version_after_a_kill_either() {
    for (seed, how) in (21..25).flat_map(|seed| [End::Killed, End::PowerCut].map(|how| (seed, how)))
    {
        for after in [Duration::ZERO, SOON] {
            sim::run::paused(comes_back_after_a_kill(seed, how, after));
        }
    }
}
