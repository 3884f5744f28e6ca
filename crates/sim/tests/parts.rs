//! A large file of which hardly anything is cached is written to: no more of it comes than that
//! takes, and whatever happens meanwhile, what was written arrives.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::{Allocate, OpenFlags, WantedMode};
use protocol::Mode;
use replica::Limits;
use sim::check;
use sim::contents::stretch;
use sim::machine::{ClientMachine, End, OriginMachine, Room, SimClient};
use sim::network::Conditions;
use sim::operation::{Fault, Operation, Outcome, Path};
use sim::perform::Programs;
use std::time::Duration;
use world::Entropy;

const LENGTH: usize = 3 << 20;
/// Of a file to which much is done.
const MIXED_LENGTH: usize = 600_000;
const WRITE: OpenFlags = OpenFlags { read: true, write: true, truncate: false, append: false };
const PARTIAL: WantedMode = WantedMode::Fixed(Mode::Partial);
const CONNECTED: WantedMode = WantedMode::Fixed(Mode::Connected);
const DISCONNECTED: WantedMode = WantedMode::Fixed(Mode::Disconnected);

fn path() -> Path {
    Path::new("image")
}

fn open() -> Operation {
    Operation::Open { path: path(), slot: 0, flags: WRITE }
}

fn write(offset: u64, length: usize, version: u64) -> Operation {
    Operation::Write { slot: 0, offset, length, version }
}

const CLOSE: Operation = Operation::Close { slot: 0 };

/// Somebody has made the file, and the last of the machines has never seen it.
struct Scene {
    room: Room,
    _origin: OriginMachine,
    machines: Vec<ClientMachine>,
    bytes: Vec<u8>,
}

impl Scene {
    async fn new(seed: u64, modes: &[WantedMode]) -> Scene {
        Scene::of(seed, modes, LENGTH, None).await
    }

    async fn of(
        seed: u64,
        modes: &[WantedMode],
        length: usize,
        whole_bytes_max: Option<u64>,
    ) -> Scene {
        Scene::limited(seed, modes, (length, whole_bytes_max), Limits::simulated()).await
    }

    async fn limited(
        seed: u64,
        modes: &[WantedMode],
        (length, whole_bytes_max): (usize, Option<u64>),
        limits: Limits,
    ) -> Scene {
        let room = Room::new(seed, false);
        let origin = OriginMachine::start(&room, limits).unwrap();
        let mut machines = Vec::new();
        for (number, mode) in modes.iter().enumerate() {
            let near = Conditions::NEAR;
            let mut machine = ClientMachine::invited(&room, &origin, number, near, *mode);
            machine.whole_bytes_max = whole_bytes_max;
            machine.start().await.unwrap();
            machines.push(machine);
        }
        let scene = Scene { room, _origin: origin, machines, bytes: stretch(1, length) };
        let create = Operation::Create { path: path(), mode: 0o644, slot: 0 };
        scene.all(0, &mut Programs::default(), &[create, write(0, length, 1), CLOSE]).await;
        check::settled(&scene.room, &scene.machines, true).await.unwrap();
        scene
    }

    fn client(&self, number: usize) -> SimClient {
        self.machines[number].client().unwrap().clone()
    }

    fn traffic(&self, number: usize) -> (u64, u64) {
        let traffic = self.client(number).status().traffic;
        let sent = traffic.iter().map(|class| class.sent).sum();
        (sent, traffic.iter().map(|class| class.received).sum())
    }

    async fn all(&self, number: usize, programs: &mut Programs, operations: &[Operation]) {
        programs.perform_all(&self.client(number), operations.iter().cloned()).await;
    }

    /// The same to the file as it should be.
    fn wrote(&mut self, offset: usize, length: usize, version: u64) {
        let end = offset + length;
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[offset..end].copy_from_slice(&stretch(version, length));
    }

    async fn read(&self, number: usize, name: &str) -> Vec<u8> {
        let fetch = Operation::Fetch { path: Path::new(name) };
        match Programs::default().perform(&self.client(number), &fetch).await {
            Outcome::Bytes(bytes) => bytes,
            other => panic!("{other}"),
        }
    }

    /// The name of what lost a conflict.
    async fn aside(&self) -> String {
        let list = Operation::List { path: Path(Vec::new()), page: 100 };
        let Outcome::Names(names) = Programs::default().perform(&self.client(0), &list).await
        else {
            panic!("it cannot be listed")
        };
        let mut names = names.iter().map(|(name, _)| name.to_string());
        names.find(|name| name.contains("conflict")).unwrap()
    }

    async fn is_everywhere(&self) {
        check::settled(&self.room, &self.machines, true).await.unwrap();
        for number in 0..self.machines.len() {
            assert!(self.read(number, "image").await == self.bytes, "at {number}");
        }
        check::nothing_broke(&self.room, &self.machines).unwrap();
    }

    fn end(self) {
        self.room.network.close();
    }
}

#[test]
fn a_byte_that_is_changed_costs_the_chunk_that_it_is_in() {
    sim::run::paused(async {
        let mut scene = Scene::new(1, &[CONNECTED, CONNECTED]).await;
        let before = scene.traffic(1);
        let mut programs = Programs::default();
        scene.all(1, &mut programs, &[open(), write(1_333_333, 1, 2), CLOSE]).await;
        scene.wrote(1_333_333, 1, 2);
        let after = scene.traffic(1);
        let (sent, received) = (after.0 - before.0, after.1 - before.1);
        assert!(received < 150 << 10, "{received} bytes came");
        assert!(sent < 50 << 10, "{sent} bytes were sent");
        // Once more, beside it: the recipe is known now.
        scene.all(1, &mut programs, &[open(), write(1_334_000, 1, 3), CLOSE]).await;
        scene.wrote(1_334_000, 1, 3);
        let again = scene.traffic(1);
        assert!(again.1 - after.1 < 10 << 10, "{} bytes came", again.1 - after.1);
        assert!(scene.client(1).status().cache.bytes < 300 << 10);
        scene.is_everywhere().await;
        scene.end();
    });
}

#[test]
fn what_is_cut_short_or_appended_costs_what_is_at_the_end() {
    sim::run::paused(async {
        let mut scene = Scene::new(2, &[CONNECTED, CONNECTED]).await;
        let before = scene.traffic(1);
        let mut programs = Programs::default();
        let size = 2_000_000;
        let cut = Operation::Truncate { slot: 0, size };
        scene.all(1, &mut programs, &[open(), cut, write(2_500_000, 100, 2), CLOSE]).await;
        scene.bytes.truncate(size as usize);
        scene.wrote(2_500_000, 100, 2);
        let append = Operation::Append { slot: 0, length: 5000, version: 3 };
        let punch =
            Operation::Allocate { slot: 0, offset: 9_000, length: 70_000, how: Allocate::Punch };
        scene.all(1, &mut programs, &[open(), append, punch, CLOSE]).await;
        scene.wrote(2_500_100, 5000, 3);
        scene.bytes[9_000..79_000].fill(0);
        let after = scene.traffic(1);
        assert!(after.1 - before.1 < 600 << 10, "{} bytes came", after.1 - before.1);
        scene.is_everywhere().await;
        scene.end();
    });
}

#[test]
fn what_was_written_to_a_part_outlives_a_crash() {
    for (how, closed) in [(End::Killed, false), (End::Killed, true), (End::PowerCut, true)] {
        sim::run::paused(async {
            let mut scene = Scene::new(3, &[PARTIAL, WantedMode::Fixed(Mode::FetchOnly)]).await;
            let mut programs = Programs::default();
            let cut = Operation::Truncate { slot: 0, size: 2_800_000 };
            let punch =
                Operation::Allocate { slot: 0, offset: 50, length: 5_000, how: Allocate::Zero };
            let look = Operation::Read { slot: 0, offset: 2_000_000, length: 10 };
            let steps = [open(), write(1_000_000, 10_000, 2), cut, punch, look];
            scene.all(1, &mut programs, &steps).await;
            scene.wrote(1_000_000, 10_000, 2);
            scene.bytes.truncate(2_800_000);
            scene.bytes[50..5_050].fill(0);
            // What was read is written over, once it is known to be here.
            scene.all(1, &mut programs, &[write(2_000_100, 10, 3)]).await;
            scene.wrote(2_000_100, 10, 3);
            if closed {
                scene.all(1, &mut programs, &[Operation::Sync { slot: 0 }]).await;
            }
            scene.machines[1].stop(how, Duration::ZERO);
            scene.machines[1].mode = PARTIAL;
            scene.machines[1].start().await.unwrap();
            scene.is_everywhere().await;
            assert!(scene.client(1).status().damage.is_empty());
            scene.end();
        });
    }
}

/// The machine is killed at some write to its disk, while a program writes over the end and behind
/// it. Says whether it was.
async fn dies_writing(writes: u64) -> bool {
    let modes = [CONNECTED, PARTIAL];
    let mut scene = Scene::of(writes + 1, &modes, MIXED_LENGTH, Some(1)).await;
    let mut programs = Programs::default();
    scene.all(1, &mut programs, &[open()]).await;
    scene.machines[1].disk.crash_after(writes);
    let over_the_end = write(MIXED_LENGTH as u64 - 5_000, 10_000, 2);
    programs.perform(&scene.client(1), &over_the_end).await;
    let died = scene.machines[1].has_crashed();
    scene.machines[1].stop(End::Killed, Duration::ZERO);
    scene.machines[1].disk.crash_after(u64::MAX);
    scene.machines[1].start().await.unwrap();
    check::settled(&scene.room, &scene.machines, true).await.unwrap();
    let found = scene.read(1, "image").await;
    let before = scene.bytes.clone();
    scene.wrote(MIXED_LENGTH - 5_000, 10_000, 2);
    let (all, beginning) = (&scene.bytes[..], &scene.bytes[..MIXED_LENGTH]);
    assert!(
        [&before[..], all, beginning].contains(&&found[..]),
        "at {writes}: {} bytes",
        found.len()
    );
    assert!(died || found == all, "at {writes}");
    scene.bytes = found;
    scene.is_everywhere().await;
    scene.end();
    died
}

#[test]
fn who_is_killed_while_it_writes_over_the_end_has_written_all_or_the_beginning_or_nothing() {
    const WRITES: std::ops::Range<u64> = 0..16;
    let mut died = 0;
    for writes in WRITES {
        died += usize::from(sim::run::paused(dies_writing(writes)));
    }
    assert!((3..WRITES.count()).contains(&died), "it died {died} times");
}

#[test]
fn without_a_link_what_is_written_is_kept_and_stored_when_it_is_back() {
    sim::run::paused(async {
        let mut scene = Scene::new(4, &[PARTIAL, PARTIAL]).await;
        let mut programs = Programs::default();
        scene.all(1, &mut programs, &[Operation::Stat { path: path() }]).await;
        scene.client(1).set_mode(DISCONNECTED);
        scene.room.clock.sleep(Duration::from_secs(1)).await;
        let part = Operation::Read { slot: 0, offset: 2_000_000, length: 10 };
        scene.all(1, &mut programs, &[open(), write(1_000_000, 9_999, 2)]).await;
        scene.wrote(1_000_000, 9_999, 2);
        let lacking = programs.perform(&scene.client(1), &part).await;
        assert!(matches!(lacking, Outcome::Failed(_)), "{lacking}");
        let here = Operation::Read { slot: 0, offset: 1_000_003, length: 10 };
        let found = programs.perform(&scene.client(1), &here).await;
        assert_eq!(found, Outcome::Bytes(scene.bytes[1_000_003..1_000_013].to_vec()));
        scene.all(1, &mut programs, &[CLOSE]).await;
        assert_eq!(scene.client(1).status().pending.updates, 1, "it is still to be stored");
        // It does so after a restart too.
        scene.room.clock.sleep(Duration::from_secs(12)).await;
        scene.machines[1].stop(End::PowerCut, Duration::ZERO);
        scene.machines[1].start().await.unwrap();
        scene.is_everywhere().await;
        scene.end();
    });
}

#[test]
fn of_a_part_that_was_written_to_and_a_change_elsewhere_both_are_kept() {
    sim::run::paused(async {
        let mut scene = Scene::new(5, &[PARTIAL, PARTIAL]).await;
        let mut programs = Programs::default();
        scene.all(1, &mut programs, &[open(), write(1_000_000, 10, 2)]).await;
        let mut mine = scene.bytes.clone();
        mine[1_000_000..1_000_010].copy_from_slice(&stretch(2, 10));
        let mut others = Programs::default();
        scene.all(0, &mut others, &[open(), write(0, 2_500_000, 3), CLOSE]).await;
        scene.wrote(0, 2_500_000, 3);
        let only = &scene.machines[..1];
        check::settled(&scene.room, only, true).await.unwrap();
        // What is read meanwhile is as it was when it was opened.
        let look = Operation::Read { slot: 0, offset: 2_000_000, length: 50_000 };
        let found = programs.perform(&scene.client(1), &look).await;
        assert_eq!(found, Outcome::Bytes(mine[2_000_000..2_050_000].to_vec()));
        scene.all(1, &mut programs, &[CLOSE]).await;
        scene.is_everywhere().await;
        assert!(scene.read(0, &scene.aside().await).await == mine);
        scene.end();
    });
}

/// So long a version is kept that was replaced.
const KEPT: Duration = Duration::from_secs(60);

fn forgetful() -> Limits {
    const SECOND: Duration = Duration::from_secs(1);
    Limits {
        versions_kept: KEPT,
        trash_percent: 0,
        trash_bytes_min: 0,
        trash_kept: Duration::ZERO,
        promise: SECOND,
        mark_every: SECOND,
        collect_every: 20 * SECOND,
        collect_first: 5 * SECOND,
        ..Limits::simulated()
    }
}

/// The version that a part was written upon is pruned before what was written arrives, or before
/// it could even be described.
#[test]
fn what_was_written_upon_a_version_that_is_kept_nowhere_is_stored_by_itself_and_it_is_said() {
    for closed in [false, true] {
        sim::run::paused(async {
            let modes = [PARTIAL, WantedMode::Fixed(Mode::FetchOnly)];
            let mut scene = Scene::limited(6, &modes, (LENGTH, None), forgetful()).await;
            let mut programs = Programs::default();
            scene.all(1, &mut programs, &[open(), write(1_000_000, 10_000, 2)]).await;
            if closed {
                scene.all(1, &mut programs, &[CLOSE]).await;
            }
            let mut others = Programs::default();
            scene.all(0, &mut others, &[open(), write(0, LENGTH, 3), CLOSE]).await;
            scene.wrote(0, LENGTH, 3);
            check::settled(&scene.room, &scene.machines[..1], true).await.unwrap();
            scene.room.clock.sleep(2 * KEPT).await;
            scene.client(1).set_mode(PARTIAL);
            if !closed {
                let stopped = programs.perform(&scene.client(1), &CLOSE).await;
                assert_eq!(stopped, Outcome::Failed(Fault::Stale));
            }
            scene.room.clock.sleep(KEPT).await;
            check::settled(&scene.room, &scene.machines, true).await.unwrap();
            assert!(scene.read(0, "image").await == scene.bytes, "closed: {closed}");
            assert_eq!(scene.client(1).status().damage.len(), 1, "closed: {closed}");
            let aside = scene.read(0, &scene.aside().await).await;
            assert_eq!(aside.len(), LENGTH);
            assert!(aside[1_000_000..1_010_000] == stretch(2, 10_000), "closed: {closed}");
            assert!(aside[2_000_000..].iter().all(|byte| *byte == 0), "closed: {closed}");
            scene.end();
        });
    }
}

/// What a program does to the file, and what becomes of `bytes` by it.
fn draw(chance: &Entropy, version: u64, bytes: &mut Vec<u8>) -> Operation {
    let offset = chance.below(bytes.len() as u64 + 1);
    let slot = 0;
    match chance.below(9) {
        8 => {
            // Nobody sees any of it but in how long the file is.
            let (length, how) = (1 + chance.below(150_000), [Allocate::Keep, Allocate::Extend]);
            let how = how[chance.below(2) as usize];
            if how == Allocate::Extend {
                bytes.resize(bytes.len().max((offset + length) as usize), 0);
            }
            Operation::Allocate { slot, offset, length, how }
        }
        0 => {
            let size = chance.below(MIXED_LENGTH as u64);
            bytes.resize(size as usize, 0);
            Operation::Truncate { slot, size }
        }
        1 => {
            let length = 1 + chance.below(150_000);
            let end = (offset + length) as usize;
            bytes.resize(bytes.len().max(end), 0);
            bytes[offset as usize..end].fill(0);
            Operation::Allocate { slot, offset, length, how: Allocate::Zero }
        }
        2 => {
            let length = 1 + chance.below(50_000) as usize;
            let offset = bytes.len() as u64 + chance.below(2) * chance.below(200_000);
            bytes.resize(offset as usize, 0);
            bytes.extend(stretch(version, length));
            Operation::Write { slot, offset, length, version }
        }
        3 => Operation::Read { slot, offset, length: chance.below(100_000) as usize },
        _ => {
            let length = 1 + chance.below(20_000) as usize;
            let end = offset as usize + length;
            bytes.resize(bytes.len().max(end), 0);
            bytes[offset as usize..end].copy_from_slice(&stretch(version, length));
            Operation::Write { slot, offset, length, version }
        }
    }
}

/// Two write to the file in turn, each to what the other has left, and are killed now and then.
#[test]
fn whatever_is_done_to_parts_the_file_is_what_was_written() {
    for seed in 1..=3 {
        sim::run::paused(async {
            let mut scene = Scene::of(seed, &[CONNECTED; 3], MIXED_LENGTH, Some(0)).await;
            let mut version = 10;
            for round in 0..10 {
                let number = 1 + round % 2;
                let mut programs = Programs::default();
                scene.all(number, &mut programs, &[open()]).await;
                for _ in 0..=scene.room.chance.below(6) {
                    version += 1;
                    let drawn = draw(&scene.room.chance, version, &mut scene.bytes);
                    scene.all(number, &mut programs, &[drawn]).await;
                    if scene.room.chance.below(4) == 0 {
                        scene.all(number, &mut programs, &[Operation::Sync { slot: 0 }]).await;
                    }
                }
                if scene.room.chance.below(3) == 0 {
                    scene.machines[number].stop(End::Killed, Duration::ZERO);
                    scene.machines[number].start().await.unwrap();
                } else {
                    scene.all(number, &mut programs, &[CLOSE]).await;
                }
                check::settled(&scene.room, &scene.machines, true).await.unwrap();
                let found = scene.read(number, "image").await;
                assert!(found == scene.bytes, "seed {seed}, round {round}");
            }
            scene.is_everywhere().await;
            scene.end();
        });
    }
}

/// On a disk with so many bytes left, or none, the log cannot be told of a cut; after a kill the file
/// is what it was cut to, and what was written to it since.
#[test]
fn a_cut_on_a_full_disk_outlives_a_crash_and_shows_no_zeros_where_there_were_bytes() {
    for (left, grows) in [0, 20, 40, 80, 160].into_iter().flat_map(|n| [(n, false), (n, true)]) {
        sim::run::paused(async {
            let modes = [CONNECTED, PARTIAL, CONNECTED];
            let mut scene = Scene::of(7, &modes, MIXED_LENGTH, Some(0)).await;
            let mut programs = Programs::default();
            let look = Operation::Read { slot: 0, offset: 100_000, length: 90_000 };
            scene.all(1, &mut programs, &[open(), look, write(150_000, 10, 2)]).await;
            scene.wrote(150_000, 10, 2);
            scene.machines[1].disk.fill_after(left);
            let size = 120_000;
            let client = scene.client(1).clone();
            let cut = Operation::Truncate { slot: 0, size };
            let outcome = programs.perform(&client, &cut).await;
            let full = Outcome::Failed(Fault::DiskFull);
            assert!(outcome == Outcome::Done || outcome == full, "{outcome}");
            if outcome == Outcome::Done {
                scene.bytes.truncate(size as usize);
            }
            if grows {
                scene.machines[1].disk.make_room();
                scene.all(1, &mut programs, &[write(200_000, 5_000, 3)]).await;
                scene.bytes.resize(scene.bytes.len().max(200_000), 0);
                scene.wrote(200_000, 5_000, 3);
            }
            scene.machines[1].stop(End::Killed, Duration::ZERO);
            scene.machines[1].disk.make_room();
            scene.machines[1].start().await.unwrap();
            scene.is_everywhere().await;
            scene.end();
        });
    }
}

/// What was written to a part is stored; the link is lost so many milliseconds later, the part is
/// written to again, and the process may be killed. Says whether the store has arrived and the answer
/// has not.
async fn is_written_over_after(millis: u64, killed: bool) -> bool {
    let modes = [PARTIAL, PARTIAL];
    let mut scene = Scene::limited(8, &modes, (LENGTH, None), forgetful()).await;
    let mut programs = Programs::default();
    scene.all(1, &mut programs, &[open(), write(1_000_000, 10_000, 2), CLOSE]).await;
    scene.wrote(1_000_000, 10_000, 2);
    scene.room.clock.sleep(Duration::from_millis(millis)).await;
    let line = scene.machines[1].line;
    scene.room.network.cut(line, Duration::ZERO);
    let unanswered = scene.client(1).status().pending.updates > 0;
    scene.client(1).set_mode(DISCONNECTED);
    scene.all(1, &mut programs, &[open(), write(2_000_000, 10, 3), CLOSE]).await;
    // The other one is told of it.
    scene.room.clock.sleep(Duration::from_secs(1)).await;
    let arrived = scene.read(0, "image").await == scene.bytes;
    if killed {
        scene.machines[1].stop(End::Killed, Duration::ZERO);
        scene.machines[1].mode = DISCONNECTED;
        scene.machines[1].start().await.unwrap();
    }
    scene.room.clock.sleep(3 * KEPT).await;
    scene.room.network.restore(line);
    scene.client(1).set_mode(PARTIAL);
    scene.room.clock.sleep(KEPT).await;
    check::settled(&scene.room, &scene.machines, true).await.unwrap();
    let lost_answer = arrived && unanswered;
    let aside = killed && lost_answer;
    if aside {
        // Nobody knows any more what the store that arrived was made of.
        let beside = scene.read(0, &scene.aside().await).await;
        assert!(beside[2_000_000..2_000_010] == stretch(3, 10), "after {millis} ms");
        assert!(beside[1_000_000..1_010_000] == stretch(2, 10_000), "after {millis} ms");
    } else {
        scene.wrote(2_000_000, 10, 3);
    }
    scene.is_everywhere().await;
    let damage = scene.client(1).status().damage.len();
    assert_eq!(damage, usize::from(aside), "after {millis} ms");
    scene.end();
    lost_answer
}

fn is_written_over_an_own_store(killed: bool) {
    let mut met = 0;
    for millis in (8..24).step_by(2) {
        met += usize::from(sim::run::paused(is_written_over_after(millis, killed)));
    }
    assert!(met > 0, "no answer was lost");
}

#[test]
fn what_is_written_over_an_own_store_is_upon_that_though_what_that_was_upon_is_kept_nowhere() {
    is_written_over_an_own_store(false);
}

#[test]
fn after_a_kill_it_is_beside_that_store_and_takes_no_bytes_from_it() {
    is_written_over_an_own_store(true);
}

/// More chunks than one answer of the server names.
const MANY_CHUNKS: usize = 31_000;
const CHUNK: usize = 2_100;

/// What is written so often, one behind the other, is cut into as many chunks.
fn is_cut_alike(version: u64) -> bool {
    let secret = chunks::Secret::new([0; 32]);
    let bytes = stretch(version, CHUNK).repeat(50);
    chunks::describe_bytes(&secret, protocol::Cutter::Gear, &bytes).pieces.len() >= 49
}

async fn of_many_chunks(seed: u64) -> Scene {
    let mut scene = Scene::of(seed, &[PARTIAL, PARTIAL], 1, None).await;
    let version = (1..1_000).find(|version| is_cut_alike(*version)).unwrap();
    let writes = (0..MANY_CHUNKS).map(|n| write((n * CHUNK) as u64, CHUNK, version));
    let all: Vec<Operation> = [open()].into_iter().chain(writes).chain([CLOSE]).collect();
    scene.all(0, &mut Programs::default(), &all).await;
    scene.bytes = stretch(version, CHUNK).repeat(MANY_CHUNKS);
    check::settled(&scene.room, &scene.machines, true).await.unwrap();
    scene
}

#[test]
fn a_file_of_more_chunks_than_an_answer_names_is_written_to_after_it_was_replaced() {
    sim::run::paused(async {
        let mut scene = of_many_chunks(10).await;
        let mut programs = Programs::default();
        scene.all(1, &mut programs, &[open()]).await;
        scene.all(0, &mut Programs::default(), &[open(), write(0, 10, 7), CLOSE]).await;
        check::settled(&scene.room, &scene.machines, true).await.unwrap();
        let mut mine = scene.bytes.clone();
        scene.wrote(0, 10, 7);
        scene.all(1, &mut programs, &[write(1_000_000, 10, 8), CLOSE]).await;
        mine[1_000_000..1_000_010].copy_from_slice(&stretch(8, 10));
        scene.is_everywhere().await;
        assert!(scene.read(0, &scene.aside().await).await == mine);
        scene.end();
    });
}

#[test]
fn in_a_file_of_more_chunks_than_an_answer_names_data_is_found_while_it_is_written_to() {
    sim::run::paused(async {
        let mut scene = of_many_chunks(11).await;
        let mut programs = Programs::default();
        scene.all(1, &mut programs, &[open(), write(1_000_000, 10, 8)]).await;
        scene.wrote(1_000_000, 10, 8);
        let offset = 30_000_000;
        let before = scene.traffic(1).1;
        scene.all(1, &mut programs, &[Operation::SeekData { slot: 0, offset }]).await;
        assert_eq!(scene.traffic(1).1, before, "what is not here counts as data");
        scene.all(1, &mut programs, &[CLOSE]).await;
        scene.is_everywhere().await;
        scene.end();
    });
}

/// More of a file that is hardly cached is written to, here and there, than is noted of one.
const SCATTERED: u64 = 4_300;
const APART: u64 = 2_000;
const SCATTERED_LENGTH: usize = (SCATTERED * APART) as usize + 400_000;

fn scattered(range: std::ops::Range<u64>) -> Vec<Operation> {
    range.map(|n| write(n * APART, 16, 2 + n)).collect()
}

async fn of_scattered(seed: u64) -> Scene {
    let mut scene = Scene::of(seed, &[PARTIAL, PARTIAL], SCATTERED_LENGTH, None).await;
    scene.all(1, &mut Programs::default(), &[Operation::Stat { path: path() }]).await;
    for n in 0..SCATTERED {
        scene.wrote((n * APART) as usize, 16, 2 + n);
    }
    scene
}

#[test]
fn however_many_places_are_written_to_no_write_fetches_all_of_the_file() {
    sim::run::paused(async {
        let scene = of_scattered(12).await;
        let mut programs = Programs::default();
        scene.all(1, &mut programs, &[open()]).await;
        scene.all(1, &mut programs, &scattered(0..4_000)).await;
        let before = scene.traffic(1).1;
        scene.all(1, &mut programs, &scattered(4_000..SCATTERED)).await;
        let received = scene.traffic(1).1 - before;
        assert!(received < 2 << 20, "{received} bytes came");
        scene.all(1, &mut programs, &[CLOSE]).await;
        scene.is_everywhere().await;
        scene.end();
    });
}

#[test]
fn however_many_places_are_written_to_that_needs_no_link() {
    sim::run::paused(async {
        let scene = of_scattered(13).await;
        scene.client(1).set_mode(DISCONNECTED);
        let mut programs = Programs::default();
        scene.all(1, &mut programs, &[open()]).await;
        scene.all(1, &mut programs, &scattered(0..SCATTERED)).await;
        scene.all(1, &mut programs, &[CLOSE]).await;
        scene.client(1).set_mode(PARTIAL);
        scene.is_everywhere().await;
        assert!(scene.client(1).status().damage.is_empty());
        scene.end();
    });
}
