//! A machine that was set back to an earlier state while what it has made is pending: what is pending is given new
//! names at the attach, and whatever happens meanwhile, all of it comes to the server.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::{OpenFlags, WantedMode};
use model::Kind;
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
const PARTIAL: WantedMode = WantedMode::Fixed(Mode::Partial);
const READS: OpenFlags = OpenFlags { read: true, write: false, truncate: false, append: false };
const WRITES: OpenFlags = OpenFlags { read: true, write: true, truncate: false, append: false };
const SLOT: usize = 0;
/// What is written into files that are made while nothing can be sent, and into the one that was there.
const MADE: [u64; 4] = [11, 12, 13, 14];
const OLDER: u64 = 20;
/// What is written into one of those after a crash.
const LATER: u64 = 40;
/// What is written into one that is open meanwhile.
const OPEN: u64 = 30;
const IMAGE_LENGTH: usize = 600_000;
const WRITTEN_AT: u64 = 100_000;
const LATER_AT: u64 = 300_000;
/// Writes in which the names are changed.
const MANY: u64 = 60;
/// Long enough for an attach.
const WHILE: Duration = Duration::from_secs(20);

async fn all(programs: &mut Programs, client: &SimClient, operations: &[Operation]) {
    for operation in operations {
        let outcome = programs.perform(client, operation).await;
        assert!(!matches!(outcome, Outcome::Failed(_)), "{operation}: {outcome}");
    }
}

fn written(path: &str, version: u64) -> [Operation; 4] {
    [
        Operation::Create { path: Path::new(path), mode: 0o644, slot: SLOT },
        Operation::Write { slot: SLOT, offset: 0, length: LENGTH, version },
        Operation::Sync { slot: SLOT },
        Operation::Close { slot: SLOT },
    ]
}

fn changed(path: &str, version: u64) -> [Operation; 4] {
    let open = Operation::Open { path: Path::new(path), slot: SLOT, flags: WRITES };
    let [_, write, sync, close] = written(path, version);
    [open, write, sync, close]
}

/// How many files below this directory have these contents.
fn holding(tree: &Tree, version: u64) -> usize {
    let bytes = stretch(version, LENGTH);
    let holds = |leaf: &&Leaf| leaf.contents.as_ref().is_some_and(|held| **held == bytes);
    tree.0.values().filter(holds).count()
}

fn is_there(tree: &Tree, path: &str, bytes: &[u8]) -> bool {
    let leaf = tree.0.get(&Path::new(path));
    leaf.and_then(|leaf| leaf.contents.as_ref()).is_some_and(|held| held[..] == *bytes)
}

struct Scene {
    room: Room,
    origin: OriginMachine,
    bob: ClientMachine,
    /// What was written last into what he has made.
    made: [u64; 4],
}

impl Scene {
    /// Bob's machine has been set back, has no link, and has made a few files.
    async fn new(seed: u64) -> Scene {
        let room = Room::new(seed, false);
        let origin = OriginMachine::start(&room, Limits::simulated()).unwrap();
        let mut bob = ClientMachine::invited(&room, &origin, 0, Conditions::NEAR, PARTIAL);
        let client = bob.start().await.unwrap();
        let mut programs = Programs::default();
        all(&mut programs, &client, &written("old", 1)).await;
        check::settled(&room, std::slice::from_ref(&bob), true).await.unwrap();
        // Names can be made without a link where all are known.
        let list = Operation::List { path: Path::new(""), page: 10 };
        all(&mut programs, &client, &[list]).await;
        room.clock.sleep(WHILE).await;
        bob.stop(End::Killed, Duration::ZERO);
        let backup = bob.disk.restart();
        bob.disk = bob.disk.restart();
        let client = bob.start().await.unwrap();
        all(&mut programs, &client, &written("lost", 2)).await;
        check::settled(&room, std::slice::from_ref(&bob), true).await.unwrap();
        bob.stop(End::Killed, Duration::ZERO);
        bob.disk = backup;
        bob.mode = WantedMode::Fixed(Mode::Disconnected);
        let client = bob.start().await.unwrap();
        let make = Operation::Make {
            path: Path::new("d"),
            kind: Kind::Directory,
            mode: 0o755,
            target: None,
        };
        all(&mut Programs::default(), &client, &[make]).await;
        for (number, version) in MADE.into_iter().enumerate() {
            let operations = written(&format!("d/{number}"), version);
            all(&mut Programs::default(), &client, &operations).await;
        }
        all(&mut Programs::default(), &client, &changed("old", OLDER)).await;
        bob.mode = PARTIAL;
        Scene { room, origin, bob, made: MADE }
    }

    async fn all_is_there(self, what: &str) -> Tree {
        let machines = [self.bob];
        check::settled(&self.room, &machines, true).await.unwrap();
        let tree = check::origin_tree(&self.origin).await.unwrap();
        for version in self.made.into_iter().chain([OLDER]) {
            assert_eq!(holding(&tree, version), 1, "{what}: {version}");
        }
        for (number, version) in self.made.into_iter().enumerate() {
            let path = format!("/d/{number}");
            assert!(is_there(&tree, &path, &stretch(version, LENGTH)), "{what}: {path}");
        }
        assert!(machines[0].client().unwrap().status().damage.is_empty(), "{what}");
        self.room.clock.sleep(WHILE).await;
        check::all_agree(&self.room, &self.origin, &machines).await.unwrap();
        self.room.network.close();
        tree
    }
}

/// It dies at the `writes`th change of its disk after the link is back, and comes up again; perhaps without
/// a link at first, and a program goes on with this one of its files. Says whether it died before all
/// was done.
async fn dies(how: End, writes: u64, goes_on: Option<usize>) -> bool {
    let mut scene = Scene::new(writes + 1).await;
    scene.bob.disk.crash_after(writes);
    scene.bob.client().unwrap().set_mode(PARTIAL);
    scene.room.clock.sleep(WHILE).await;
    let died = scene.bob.has_crashed();
    scene.bob.stop(how, Duration::ZERO);
    scene.bob.disk.crash_after(u64::MAX);
    if let Some(number) = goes_on {
        scene.bob.mode = WantedMode::Fixed(Mode::Disconnected);
        // What may leave its cache does.
        scene.bob.cache_bytes_max = 1;
        let client = scene.bob.start().await.unwrap();
        all(&mut Programs::default(), &client, &changed(&format!("d/{number}"), LATER)).await;
        scene.room.clock.sleep(WHILE * 2).await;
        scene.made[number] = LATER;
        client.set_mode(PARTIAL);
    } else {
        scene.bob.start().await.unwrap();
    }
    scene.all_is_there(&format!("{how:?} at {writes}, {goes_on:?}")).await;
    died
}

#[test]
fn a_crash_at_any_write_while_what_is_pending_is_renamed_loses_nothing() {
    for how in [End::Killed, End::PowerCut] {
        let mut writes = 0;
        while sim::run::paused(dies(how, writes, None)) {
            // Of the last it is the same that is done again and again.
            writes += if writes < MANY { 1 } else { 5 };
        }
        assert!(writes > 20, "{how:?}: {writes}");
    }
}

#[test]
fn what_is_written_between_a_crash_in_that_and_the_next_try_is_not_lost_either() {
    for number in [0, 3] {
        let mut writes = 0;
        while sim::run::paused(dies(End::Killed, writes, Some(number))) {
            writes += if writes < MANY { 1 } else { 5 };
        }
        assert!(writes > 20, "{writes}");
    }
}

#[test]
fn a_disk_that_is_full_while_what_is_pending_is_renamed_loses_nothing() {
    for (seed, bytes) in (1..).zip((0..24_000).step_by(1_700)) {
        sim::run::paused(async {
            let scene = Scene::new(seed).await;
            scene.bob.disk.fill_after(bytes);
            scene.bob.client().unwrap().set_mode(PARTIAL);
            scene.room.clock.sleep(WHILE).await;
            scene.bob.disk.make_room();
            scene.all_is_there(&format!("full after {bytes}")).await;
        });
    }
}

#[test]
fn what_is_pending_takes_no_room_twice_while_it_is_renamed() {
    sim::run::paused(async {
        let scene = Scene::new(1).await;
        let client = scene.bob.client().unwrap().clone();
        let [create, _, sync, close] = written("d/large", 1);
        let write = Operation::Write { slot: SLOT, offset: 0, length: IMAGE_LENGTH, version: 1 };
        all(&mut Programs::default(), &client, &[create, write, sync, close]).await;
        scene.bob.disk.fill_after(IMAGE_LENGTH as u64 / 2);
        client.set_mode(PARTIAL);
        scene.room.clock.sleep(WHILE).await;
        drop(client);
        let tree = scene.all_is_there("nearly full").await;
        assert!(is_there(&tree, "/d/large", &stretch(1, IMAGE_LENGTH)));
    });
}

/// It is left over, and needs no other start to be stored.
async fn is_stored_by_its_new_name(seed: u64, bytes: u64, killed: bool) {
    let mut scene = Scene::new(seed).await;
    let client = scene.bob.client().unwrap().clone();
    let [create, write, ..] = written("d/open", OPEN);
    all(&mut Programs::default(), &client, &[create, write]).await;
    scene.bob.disk.fill_after(bytes);
    client.set_mode(PARTIAL);
    scene.room.clock.sleep(WHILE).await;
    scene.bob.disk.make_room();
    scene.room.clock.sleep(WHILE).await;
    drop(client);
    if killed {
        scene.bob.stop(End::Killed, Duration::ZERO);
        scene.bob.start().await.unwrap();
    }
    let what = format!("full after {bytes}, killed: {killed}");
    let tree = scene.all_is_there(&what).await;
    assert!(is_there(&tree, "/d/open", &stretch(OPEN, LENGTH)), "{what}");
}

/// It lets go of a file that is open meanwhile, and may find no room to store what was written to it.
#[test]
fn what_could_not_be_stored_before_it_was_renamed_conflicts_with_nothing() {
    for (seed, bytes) in (1..).zip((0..24_000).step_by(800)) {
        for killed in [false, true] {
            sim::run::paused(is_stored_by_its_new_name(seed, bytes, killed));
        }
    }
}

/// Of which nothing was here, and what was written into some of the copies is not at the server. One was being
/// written to when the machine was killed, and is when it attaches.
#[test]
fn a_copy_that_is_pending_rests_on_what_it_is_a_copy_of_by_its_new_name_too() {
    sim::run::paused(async {
        let room = Room::new(1, false);
        let origin = OriginMachine::start(&room, Limits::simulated()).unwrap();
        let mut ada = ClientMachine::invited(&room, &origin, 1, Conditions::NEAR, PARTIAL);
        let client = ada.start().await.unwrap();
        let [create, _, sync, close] = written("image", 1);
        let write = Operation::Write { slot: SLOT, offset: 0, length: IMAGE_LENGTH, version: 1 };
        all(&mut Programs::default(), &client, &[create, write, sync, close]).await;
        check::settled(&room, std::slice::from_ref(&ada), true).await.unwrap();
        let mut bob = ClientMachine::invited(&room, &origin, 0, Conditions::NEAR, PARTIAL);
        bob.whole_bytes_max = Some(0);
        let client = bob.start().await.unwrap();
        client.pause(true).unwrap();
        let mut programs = Programs::default();
        let image = Operation::Open { path: Path::new("image"), slot: SLOT + 1, flags: READS };
        let (from, length) = (SLOT + 1, IMAGE_LENGTH as u64);
        let copy = Operation::Copy { from, from_offset: 0, to: SLOT, to_offset: 0, length };
        let write = Operation::Write { slot: SLOT, offset: WRITTEN_AT, length: LENGTH, version: 2 };
        all(&mut programs, &client, &[image]).await;
        let [create, .., close] = written("bare", 1);
        all(&mut programs, &client, &[create, copy.clone(), close]).await;
        let [create, .., close] = written("changed", 1);
        all(&mut programs, &client, &[create, copy.clone(), write.clone(), close]).await;
        let [create, ..] = written("left", 1);
        all(&mut programs, &client, &[create, copy, write]).await;
        room.clock.sleep(WHILE).await;
        drop(client);
        bob.stop(End::Killed, Duration::ZERO);
        let backup = bob.disk.restart();
        bob.disk = bob.disk.restart();
        // It goes on from the state that is a backup, and sends nothing.
        bob.start().await.unwrap();
        room.clock.sleep(WHILE).await;
        bob.stop(End::Killed, Duration::ZERO);
        bob.disk = backup;
        bob.mode = WantedMode::Fixed(Mode::Disconnected);
        let client = bob.start().await.unwrap();
        client.pause(false).unwrap();
        // It cannot be stored before there is a link.
        let [open, ..] = changed("left", 1);
        let write = Operation::Write { slot: SLOT, offset: LATER_AT, length: LENGTH, version: 3 };
        let mut programs = Programs::default();
        all(&mut programs, &client, &[open]).await;
        client.set_mode(PARTIAL);
        // It is on its way to the server by then.
        room.clock.sleep(Duration::from_millis(6)).await;
        all(&mut programs, &client, &[write]).await;
        let machines = [ada, bob];
        check::settled(&room, &machines, true).await.unwrap();
        let tree = check::origin_tree(&origin).await.unwrap();
        let mut bytes = stretch(1, IMAGE_LENGTH);
        assert!(is_there(&tree, "/bare", &bytes));
        bytes[WRITTEN_AT as usize..][..LENGTH].copy_from_slice(&stretch(2, LENGTH));
        assert!(is_there(&tree, "/changed", &bytes));
        bytes[LATER_AT as usize..][..LENGTH].copy_from_slice(&stretch(3, LENGTH));
        assert!(is_there(&tree, "/left", &bytes));
        assert!(client.status().damage.is_empty());
        check::nothing_broke(&room, &machines).unwrap();
        room.network.close();
    });
}

/// It was stored, and goes on being written to by who has it open.
#[test]
fn what_is_written_upon_what_was_renamed_while_it_was_open_conflicts_with_nothing() {
    sim::run::paused(async {
        let scene = Scene::new(1).await;
        let client = scene.bob.client().unwrap().clone();
        let mut programs = Programs::default();
        let [open, write, sync, close] = changed("old", OPEN);
        all(&mut programs, &client, &[open, write, Operation::Flush { slot: SLOT }]).await;
        client.set_mode(PARTIAL);
        scene.room.clock.sleep(WHILE).await;
        let again = Operation::Write { slot: SLOT, offset: 0, length: LENGTH, version: OLDER };
        all(&mut programs, &client, &[again, sync, close]).await;
        drop(client);
        let tree = scene.all_is_there("open").await;
        assert!(is_there(&tree, "/old", &stretch(OLDER, LENGTH)));
        assert_eq!(holding(&tree, OPEN), 0, "it is one file");
    });
}
