//! A large file of which nothing is cached is copied: nothing of it comes, and whatever happens
//! meanwhile, the copy is what the file was, or it is said that it is not.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::{Allocate, OpenFlags, WantedMode};
use protocol::Mode;
use replica::Limits;
use sim::check;
use sim::contents::stretch;
use sim::machine::{ClientMachine, End, OriginMachine, Room, SimClient, VOLUME};
use sim::network::Conditions;
use sim::operation::{Fault, Operation, Outcome, Path};
use sim::perform::Programs;
use std::time::Duration;
use world::Entropy;

const LENGTH: usize = 3 << 20;
/// Of a file of which parts are copied.
const MIXED_LENGTH: usize = 600_000;
const READ: OpenFlags = OpenFlags { read: true, write: false, truncate: false, append: false };
const WRITE: OpenFlags = OpenFlags { read: true, write: true, truncate: false, append: false };
const PARTIAL: WantedMode = WantedMode::Fixed(Mode::Partial);
const CONNECTED: WantedMode = WantedMode::Fixed(Mode::Connected);
const DISCONNECTED: WantedMode = WantedMode::Fixed(Mode::Disconnected);
/// With less than this much the link has brought nothing of the file but what it is made of.
const LITTLE: u64 = 40 << 10;

fn open(name: &str, slot: usize, flags: OpenFlags) -> Operation {
    Operation::Open { path: Path::new(name), slot, flags }
}

fn create(name: &str, slot: usize) -> Operation {
    Operation::Create { path: Path::new(name), mode: 0o644, slot }
}

/// From the file in slot 0 to that in slot 1.
fn copy(offset: u64, length: usize) -> Operation {
    let (from, to, length) = (0, 1, length as u64);
    Operation::Copy { from, from_offset: offset, to, to_offset: offset, length }
}

fn close(slot: usize) -> Operation {
    Operation::Close { slot }
}

/// As `cp image copy` does it.
fn begin() -> [Operation; 3] {
    [open("image", 0, READ), create("copy", 1), copy(0, usize::MAX >> 1)]
}

/// Somebody has made the file `image`, and the other machines have never seen it.
struct Scene {
    room: Room,
    origin: OriginMachine,
    machines: Vec<ClientMachine>,
}

impl Scene {
    async fn new(seed: u64, modes: &[WantedMode]) -> Scene {
        Scene::of(seed, modes, (LENGTH, None), Limits::simulated()).await
    }

    async fn of(
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
        let scene = Scene { room, origin, machines };
        let write = Operation::Write { slot: 0, offset: 0, length, version: 1 };
        scene.all(0, &mut Programs::default(), &[create("image", 0), write, close(0)]).await;
        scene.settled().await;
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

    /// It is written anew, all of it.
    async fn overwrite(&self, number: usize, version: u64) {
        let truncated = OpenFlags { truncate: true, ..WRITE };
        let write = Operation::Write { slot: 0, offset: 0, length: LENGTH, version };
        let operations = [open("image", 0, truncated), write, close(0)];
        self.all(number, &mut Programs::default(), &operations).await;
    }

    async fn read(&self, number: usize, name: &str) -> Outcome {
        let fetch = Operation::Fetch { path: Path::new(name) };
        Programs::default().perform(&self.client(number), &fetch).await
    }

    async fn settled(&self) {
        check::settled(&self.room, &self.machines, true).await.unwrap();
    }

    async fn is_everywhere(&self, name: &str, bytes: &[u8]) {
        self.settled().await;
        // What was taken just before a machine died is on its way to the others.
        self.room.clock.sleep(Duration::from_secs(5)).await;
        for number in 0..self.machines.len() {
            let found = self.read(number, name).await;
            assert!(found == Outcome::Bytes(bytes.to_vec()), "at {number}: {found}");
        }
        check::nothing_broke(&self.room, &self.machines).unwrap();
    }

    fn end(self) {
        self.room.network.close();
    }
}

#[test]
fn a_copy_of_what_is_not_here_costs_what_names_it() {
    for mode in [CONNECTED, PARTIAL] {
        sim::run::paused(async {
            let scene = Scene::new(1, &[CONNECTED, mode]).await;
            let before = scene.traffic(1);
            let mut programs = Programs::default();
            scene.all(1, &mut programs, &begin()).await;
            let size = programs.perform(&scene.client(1), &Operation::StatOpen { slot: 1 }).await;
            assert!(format!("{size}").contains(&LENGTH.to_string()), "{size}");
            scene.all(1, &mut programs, &[close(1), close(0)]).await;
            scene.settled().await;
            let after = scene.traffic(1);
            let (sent, received) = (after.0 - before.0, after.1 - before.1);
            println!("copied {LENGTH} bytes: {sent} sent, {received} received");
            assert!(received < LITTLE && sent < LITTLE, "{sent} sent, {received} received");
            scene.is_everywhere("copy", &stretch(1, LENGTH)).await;
            scene.is_everywhere("image", &stretch(1, LENGTH)).await;
            scene.end();
        });
    }
}

/// Before it is stored, and after that and before the origin has it.
#[test]
fn a_copy_is_read_before_it_is_stored_and_written_to() {
    sim::run::paused(async {
        let scene = Scene::new(2, &[CONNECTED, PARTIAL]).await;
        scene.client(1).pause(true).unwrap();
        let mut programs = Programs::default();
        scene.all(1, &mut programs, &begin()).await;
        let look = |slot| Operation::Read { slot, offset: 1_000_000, length: 50_000 };
        let found = programs.perform(&scene.client(1), &look(1)).await;
        let mut bytes = stretch(1, LENGTH);
        assert!(found == Outcome::Bytes(bytes[1_000_000..1_050_000].to_vec()), "{found}");
        let write = |offset, version| Operation::Write { slot: 1, offset, length: 5000, version };
        scene.all(1, &mut programs, &[write(2_000_000, 7), close(1)]).await;
        bytes[2_000_000..2_005_000].copy_from_slice(&stretch(7, 5000));
        let found = scene.read(1, "copy").await;
        assert!(found == Outcome::Bytes(bytes.clone()), "{found}");
        let steps = [open("copy", 1, WRITE), write(100_000, 8), close(1), close(0)];
        scene.all(1, &mut programs, &steps).await;
        bytes[100_000..105_000].copy_from_slice(&stretch(8, 5000));
        scene.client(1).pause(false).unwrap();
        scene.is_everywhere("copy", &bytes).await;
        scene.end();
    });
}

/// What becomes of the source afterwards is no matter: its version is kept.
#[test]
fn a_copy_is_what_the_source_was() {
    for removed in [false, true] {
        sim::run::paused(async {
            let scene = Scene::new(3, &[CONNECTED, PARTIAL]).await;
            let mut programs = Programs::default();
            scene.all(1, &mut programs, &begin()).await;
            match removed {
                true => {
                    let unlink = Operation::Unlink { path: Path::new("image") };
                    scene.all(1, &mut Programs::default(), &[unlink]).await;
                    scene.room.clock.sleep(Duration::from_secs(5)).await;
                }
                false => scene.overwrite(0, 5).await,
            }
            scene.all(1, &mut programs, &[close(1), close(0)]).await;
            scene.is_everywhere("copy", &stretch(1, LENGTH)).await;
            assert!(scene.client(1).status().damage.is_empty());
            scene.end();
        });
    }
}

/// The version of the source is pruned before the copy arrives.
#[test]
fn a_copy_of_a_version_that_is_kept_nowhere_is_no_zeros_and_it_is_said() {
    const SECOND: Duration = Duration::from_secs(1);
    const KEPT: Duration = Duration::from_secs(60);
    let limits = Limits {
        versions_kept: KEPT,
        trash_percent: 0,
        trash_bytes_min: 0,
        trash_kept: Duration::ZERO,
        promise: SECOND,
        mark_every: SECOND,
        collect_every: 20 * SECOND,
        collect_first: 5 * SECOND,
        ..Limits::simulated()
    };
    for (closed, length) in [(true, LENGTH), (false, LENGTH), (false, LENGTH - 999_999)] {
        sim::run::paused(async {
            let modes = [PARTIAL, PARTIAL];
            let scene = Scene::of(4, &modes, (LENGTH, None), limits.clone()).await;
            scene.client(1).pause(true).unwrap();
            let mut programs = Programs::default();
            let [from, to, _] = begin();
            scene.all(1, &mut programs, &[from, to, copy(0, length), close(0)]).await;
            if closed {
                scene.all(1, &mut programs, &[close(1)]).await;
            }
            scene.overwrite(0, 3).await;
            check::settled(&scene.room, &scene.machines[..1], true).await.unwrap();
            scene.room.clock.sleep(3 * KEPT).await;
            let look = match closed {
                true => Operation::Fetch { path: Path::new("copy") },
                false => Operation::Read { slot: 1, offset: 1_000_000, length: 10 },
            };
            let found = programs.perform(&scene.client(1), &look).await;
            assert_eq!(found, Outcome::Failed(Fault::Stale), "closed: {closed}");
            scene.client(1).pause(false).unwrap();
            if !closed {
                let _ = programs.perform(&scene.client(1), &close(1)).await;
            }
            scene.room.clock.sleep(KEPT).await;
            scene.settled().await;
            assert_eq!(scene.client(1).status().damage.len(), 1, "closed: {closed}");
            for number in 0..2 {
                let found = scene.read(number, "copy").await;
                assert_eq!(found, Outcome::Bytes(Vec::new()), "closed: {closed}");
            }
            scene.end();
        });
    }
}

#[test]
fn without_a_link_what_is_not_here_is_not_copied() {
    sim::run::paused(async {
        let scene = Scene::new(5, &[CONNECTED, PARTIAL]).await;
        let mut programs = Programs::default();
        let [from, to, copy] = begin();
        scene.all(1, &mut programs, &[from, to]).await;
        scene.client(1).set_mode(DISCONNECTED);
        scene.room.clock.sleep(Duration::from_secs(1)).await;
        let outcome = programs.perform(&scene.client(1), &copy).await;
        assert!(matches!(outcome, Outcome::Failed(_)), "{outcome}");
        scene.client(1).set_mode(PARTIAL);
        scene.room.clock.sleep(Duration::from_secs(1)).await;
        scene.all(1, &mut programs, &[copy, close(1), close(0)]).await;
        // It is stored without a link, too, and read when there is one.
        scene.is_everywhere("copy", &stretch(1, LENGTH)).await;
        scene.end();
    });
}

#[test]
fn a_copy_counts_against_the_quota() {
    for mode in [CONNECTED, PARTIAL] {
        sim::run::paused(async {
            let scene = Scene::new(6, &[CONNECTED, mode]).await;
            let most = LENGTH as u64 + LENGTH as u64 / 2;
            let origin = scene.origin.origin().unwrap();
            origin.set_quota(VOLUME, |quota| quota.bytes = Some(most)).unwrap();
            scene.room.clock.sleep(Duration::from_secs(60)).await;
            let mut programs = Programs::default();
            let [from, to, copy] = begin();
            scene.all(1, &mut programs, &[from, to]).await;
            let outcome = programs.perform(&scene.client(1), &copy).await;
            assert_eq!(outcome, Outcome::Failed(Fault::OverQuota));
            origin.set_quota(VOLUME, |quota| quota.bytes = None).unwrap();
            scene.room.clock.sleep(Duration::from_secs(60)).await;
            scene.all(1, &mut programs, &[copy, close(1), close(0)]).await;
            scene.is_everywhere("copy", &stretch(1, LENGTH)).await;
            scene.end();
        });
    }
}

/// The machine dies at the `writes`th change of its disk after the copy has begun, and comes up
/// again. Says whether it died before all was done. `over`: something was there, and was cut off.
async fn dies((mode, how, over): (WantedMode, End, bool), writes: u64) -> bool {
    let (modes, limits) = ([CONNECTED, mode], Limits::simulated());
    let mut scene = Scene::of(writes + 1, &modes, (MIXED_LENGTH, Some(0)), limits).await;
    let mut programs = Programs::default();
    let [from, to, copy] = begin();
    scene.all(1, &mut programs, &[from, to]).await;
    scene.all(1, &mut programs, &[Operation::Sync { slot: 1 }]).await;
    let before = if over { stretch(9, 10) } else { Vec::new() };
    if over {
        let write = Operation::Write { slot: 1, offset: 0, length: 10, version: 9 };
        let cut = Operation::Truncate { slot: 1, size: 0 };
        // The log on the disk says that it is written to.
        let other = [create("other", 2), Operation::Sync { slot: 2 }, close(2)];
        scene.all(1, &mut programs, &[write, Operation::Sync { slot: 1 }, cut]).await;
        scene.all(1, &mut programs, &other).await;
    }
    scene.machines[1].disk.crash_after(writes);
    let mut done = Vec::new();
    for operation in [copy, Operation::Sync { slot: 1 }, close(1)] {
        let outcome = programs.perform(&scene.client(1), &operation).await;
        done.push(!matches!(outcome, Outcome::Failed(_)) && !scene.machines[1].has_crashed());
    }
    let died = scene.machines[1].has_crashed();
    scene.machines[1].stop(how, Duration::ZERO);
    scene.machines[1].disk.crash_after(u64::MAX);
    scene.machines[1].start().await.unwrap();
    scene.settled().await;
    let found = scene.read(1, "copy").await;
    let Outcome::Bytes(bytes) = &found else { panic!("{writes}: {found}") };
    let is_whole = *bytes == stretch(1, MIXED_LENGTH);
    // As it was, or as far as the container went that was cut.
    let is_nothing = bytes.is_empty() || *bytes == before || *bytes == stretch(1, before.len());
    assert!(is_whole || is_nothing && !done[1], "{how:?} at {writes}: {found}");
    assert!(is_whole || how == End::PowerCut || !done[0], "{how:?} at {writes}: {found}");
    let bytes = bytes.clone();
    scene.is_everywhere("copy", &bytes).await;
    assert!(scene.client(1).status().damage.is_empty(), "{how:?} at {writes}");
    scene.end();
    died
}

#[test]
fn a_crash_at_any_write_leaves_all_of_a_copy_or_its_beginning_or_nothing() {
    const WRITES: std::ops::Range<u64> = 0..40;
    for play in [
        (PARTIAL, End::Killed, false),
        (PARTIAL, End::PowerCut, true),
        (CONNECTED, End::Killed, true),
        (CONNECTED, End::PowerCut, false),
    ] {
        let mut died = 0;
        for writes in WRITES {
            died += usize::from(sim::run::paused(async { dies(play, writes).await }));
        }
        assert!((4..WRITES.count()).contains(&died), "it died {died} times");
    }
}

/// As `dies`, of who cuts a copy to nothing of which nothing is here.
async fn dies_cutting((mode, how): (WantedMode, End), writes: u64) -> bool {
    let mut scene = Scene::new(writes + 1, &[CONNECTED, mode]).await;
    let mut programs = Programs::default();
    let [from, to, copy] = begin();
    scene.all(1, &mut programs, &[from, to, copy, close(1), close(0)]).await;
    scene.settled().await;
    scene.machines[1].disk.crash_after(writes);
    let cuts = OpenFlags { write: true, truncate: true, ..OpenFlags::default() };
    for operation in [open("copy", 1, cuts), close(1)] {
        programs.perform(&scene.client(1), &operation).await;
    }
    let died = scene.machines[1].has_crashed();
    scene.machines[1].stop(how, Duration::ZERO);
    scene.machines[1].disk.crash_after(u64::MAX);
    scene.machines[1].start().await.unwrap();
    scene.settled().await;
    let found = scene.read(1, "copy").await;
    let Outcome::Bytes(bytes) = &found else { panic!("{writes}: {found}") };
    let is_whole = *bytes == stretch(1, LENGTH);
    assert!(bytes.is_empty() || is_whole, "{how:?} at {writes}: {found}");
    assert!(died || bytes.is_empty(), "{how:?} at {writes}: {found}");
    let bytes = bytes.clone();
    scene.is_everywhere("copy", &bytes).await;
    assert!(scene.client(1).status().damage.is_empty(), "{how:?} at {writes}");
    scene.end();
    died
}

/// Zeros would be neither.
#[test]
fn a_crash_at_any_write_of_who_cuts_a_copy_leaves_the_copy_or_nothing() {
    const WRITES: std::ops::Range<u64> = 0..12;
    for play in [(PARTIAL, End::Killed), (PARTIAL, End::PowerCut), (CONNECTED, End::Killed)] {
        let mut died = 0;
        for writes in WRITES {
            died += usize::from(sim::run::paused(async { dies_cutting(play, writes).await }));
        }
        assert!((3..WRITES.count()).contains(&died), "it died {died} times");
    }
}

/// What a program does to the copy in slot 1, and what becomes of `bytes` by it. Of the file in
/// slot 0 there is `image`.
fn draw(chance: &Entropy, version: u64, image: &[u8], bytes: &mut Vec<u8>) -> Operation {
    let offset = chance.below(bytes.len().max(image.len()) as u64 + 1);
    let slot = 1;
    let length = 1 + chance.below(150_000) as usize;
    let put = |bytes: &mut Vec<u8>, some: &[u8]| {
        let (from, to) = (offset as usize, offset as usize + some.len());
        bytes.resize(bytes.len().max(to), 0);
        bytes[from..to].copy_from_slice(some);
    };
    match chance.below(10) {
        0..5 => {
            let from = (offset as usize).min(image.len());
            let to = (from + 2 * length).min(image.len());
            if from < to {
                put(bytes, &image[from..to]);
            }
            copy(offset, 2 * length)
        }
        5 => {
            let size = chance.below(MIXED_LENGTH as u64);
            bytes.resize(size as usize, 0);
            Operation::Truncate { slot, size }
        }
        6 => {
            put(bytes, &vec![0; length]);
            Operation::Allocate { slot, offset, length: length as u64, how: Allocate::Zero }
        }
        7 => Operation::Read { slot, offset, length },
        _ => {
            put(bytes, &stretch(version, length / 8 + 1));
            Operation::Write { slot, offset, length: length / 8 + 1, version }
        }
    }
}

/// Two copy parts of it in turn, each to what the other has left, and die now and then; a third one
/// changes what they copy from.
#[test]
fn whatever_is_copied_and_written_is_in_the_copy() {
    for seed in 1..=6 {
        let mode = [CONNECTED, PARTIAL][seed as usize % 2];
        sim::run::paused(async {
            let modes = [CONNECTED, mode, mode];
            let limits = Limits::simulated();
            let mut scene = Scene::of(seed, &modes, (MIXED_LENGTH, Some(0)), limits).await;
            scene.all(1, &mut Programs::default(), &[create("copy", 1), close(1)]).await;
            scene.settled().await;
            let (mut version, mut bytes, mut image) = (10, Vec::new(), stretch(1, MIXED_LENGTH));
            for round in 0..10 {
                let number = 1 + round % 2;
                let mut programs = Programs::default();
                let truncate = scene.room.chance.below(2) == 0;
                if truncate {
                    bytes.clear();
                }
                let target = OpenFlags { truncate, ..WRITE };
                let opens = [open("image", 0, READ), open("copy", 1, target)];
                scene.all(number, &mut programs, &opens).await;
                let before = image.clone();
                for _ in 0..=scene.room.chance.below(6) {
                    version += 1;
                    let drawn = draw(&scene.room.chance, version, &before, &mut bytes);
                    scene.all(number, &mut programs, &[drawn]).await;
                    if scene.room.chance.below(6) == 0 {
                        let write =
                            Operation::Write { slot: 0, offset: 9_999, length: 300_000, version };
                        let steps = [open("image", 0, WRITE), write, close(0)];
                        scene.all(0, &mut Programs::default(), &steps).await;
                        image[9_999..309_999].copy_from_slice(&stretch(version, 300_000));
                    }
                }
                match scene.room.chance.below(4) {
                    0 => {
                        scene.machines[number].stop(End::Killed, Duration::ZERO);
                        scene.machines[number].start().await.unwrap();
                    }
                    1 => {
                        scene.all(number, &mut programs, &[Operation::Sync { slot: 1 }]).await;
                        scene.machines[number].stop(End::PowerCut, Duration::ZERO);
                        scene.machines[number].start().await.unwrap();
                    }
                    _ => scene.all(number, &mut programs, &[close(1), close(0)]).await,
                }
                scene.settled().await;
                let found = scene.read(number, "copy").await;
                let fits = found == Outcome::Bytes(bytes.clone());
                assert!(fits, "seed {seed}, round {round}: {found}");
            }
            scene.is_everywhere("copy", &bytes).await;
            scene.is_everywhere("image", &image).await;
            assert!(scene.client(1).status().damage.is_empty());
            scene.end();
        });
    }
}
