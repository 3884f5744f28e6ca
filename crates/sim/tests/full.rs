//! A disk without a byte left, or with just a few: what a program does then is done, or it is told
//! that the disk is full, and nothing that it was told is done is lost.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::{Allocate, OpenFlags, RenameFlag, WantedMode};
use model::Kind;
use protocol::Mode;
use replica::Limits;
use sim::check;
use sim::contents::stretch;
use sim::machine::{ClientMachine, End, OriginMachine, Room, VOLUME};
use sim::network::Conditions;
use sim::operation::{Fault, Operation, Outcome, Path};
use sim::perform::Programs;
use std::time::Duration;
use store::Containers;

const CUT: OpenFlags = OpenFlags { read: true, write: true, truncate: true, append: false };
const BEFORE: usize = 60_000;
const AFTER: usize = 9_000;
const CLOSE: Operation = Operation::Close { slot: 0 };
/// A disk has so many bytes left, up to what the log takes for one update and more.
const LEFT: std::ops::Range<u64> = 0..700;
const LEFT_STEP: usize = 31;
const HOUR: Duration = Duration::from_secs(60 * 60);
/// Room that was made is found within a minute; then the contents take their time.
const FOUND_WITHIN: Duration = Duration::from_secs(90);

fn path() -> Path {
    Path::new("file")
}

fn write(length: usize, version: u64) -> Operation {
    Operation::Write { slot: 0, offset: 0, length, version }
}

struct Scene {
    room: Room,
    _origin: OriginMachine,
    machine: ClientMachine,
    programs: Programs,
}

impl Scene {
    /// A file is here, and at the origin.
    async fn new(mode: Mode) -> Scene {
        let room = Room::new(1, false);
        let origin = OriginMachine::start(&room, Limits::simulated()).unwrap();
        let mode = WantedMode::Fixed(mode);
        let mut machine = ClientMachine::invited(&room, &origin, 0, Conditions::NEAR, mode);
        machine.start().await.unwrap();
        let mut scene = Scene { room, _origin: origin, machine, programs: Programs::default() };
        let create = Operation::Create { path: path(), mode: 0o644, slot: 0 };
        for operation in [create, write(BEFORE, 1), CLOSE] {
            assert!(scene.does(operation).await);
        }
        check::settled(&scene.room, std::slice::from_ref(&scene.machine), true).await.unwrap();
        scene
    }

    /// Whether it is done; else the disk is full.
    async fn does(&mut self, operation: Operation) -> bool {
        let client = self.machine.client().unwrap().clone();
        match self.programs.perform(&client, &operation).await {
            Outcome::Failed(Fault::DiskFull) => false,
            Outcome::Failed(fault) => panic!("{operation}: {fault:?}"),
            _ => true,
        }
    }

    /// The file is this, here and at the origin.
    async fn is(&mut self, bytes: &[u8], what: &str) {
        let machines = std::slice::from_ref(&self.machine);
        check::settled(&self.room, machines, true).await.unwrap();
        check::nothing_broke(&self.room, machines).unwrap();
        assert!(self.machine.client().unwrap().status().damage.is_empty(), "{what}");
        let client = self.machine.client().unwrap().clone();
        let found = self.programs.perform(&client, &Operation::Fetch { path: path() }).await;
        assert!(found == Outcome::Bytes(bytes.to_vec()), "{what}: {found}");
        self.room.network.close();
    }
}

#[test]
fn what_is_written_after_a_file_was_opened_and_cut_on_a_full_disk_is_kept() {
    for mode in [Mode::Partial, Mode::Connected] {
        for left in LEFT.step_by(LEFT_STEP) {
            sim::run::paused(async {
                let mut scene = Scene::new(mode).await;
                let open = || Operation::Open { path: path(), slot: 0, flags: CUT };
                scene.machine.disk.fill_after(left);
                let opened = scene.does(open()).await;
                scene.machine.disk.make_room();
                assert!(opened || scene.does(open()).await);
                assert!(scene.does(write(AFTER, 2)).await && scene.does(CLOSE).await);
                scene.is(&stretch(2, AFTER), &format!("{mode:?}, {left} bytes left")).await;
            });
        }
    }
}

#[test]
fn who_could_not_write_a_byte_on_a_full_disk_sees_what_another_stores_then() {
    for left in LEFT.step_by(LEFT_STEP) {
        sim::run::paused(async {
            let mut scene = Scene::new(Mode::Partial).await;
            let partial = WantedMode::Fixed(Mode::Partial);
            let (room, origin) = (&scene.room, &scene._origin);
            let mut other = ClientMachine::invited(room, origin, 1, Conditions::NEAR, partial);
            other.start().await.unwrap();
            let flags = OpenFlags { truncate: false, ..CUT };
            assert!(scene.does(Operation::Open { path: path(), slot: 0, flags }).await);
            scene.machine.disk.fill_after(left);
            let behind =
                Operation::Write { slot: 0, offset: BEFORE as u64, length: AFTER, version: 3 };
            scene.does(behind).await;
            scene.does(CLOSE).await;
            scene.machine.disk.make_room();
            scene.room.clock.sleep(FOUND_WITHIN).await;
            let cut = Operation::Open { path: path(), slot: 0, flags: CUT };
            let client = other.client().unwrap().clone();
            Programs::default().perform_all(&client, [cut, write(AFTER, 2), CLOSE]).await;
            check::settled(&scene.room, std::slice::from_ref(&other), true).await.unwrap();
            scene.is(&stretch(2, AFTER), &format!("{left} bytes left")).await;
        });
    }
}

#[test]
fn a_close_on_a_full_disk_says_so_and_what_was_written_is_stored_when_there_is_room() {
    for left in LEFT.step_by(LEFT_STEP) {
        sim::run::paused(async {
            let mut scene = Scene::new(Mode::Partial).await;
            let unlink = Operation::Unlink { path: path() };
            let create = Operation::Create { path: path(), mode: 0o644, slot: 0 };
            assert!(scene.does(unlink).await && scene.does(create).await);
            assert!(scene.does(write(BEFORE, 2)).await);
            scene.machine.disk.fill_after(left);
            let closed = scene.does(CLOSE).await;
            scene.machine.disk.make_room();
            scene.is(&stretch(2, BEFORE), &format!("closed: {closed}, {left} bytes left")).await;
        });
    }
}

/// Room is set aside for more than is written.
const ASIDE: u64 = 200_000;

fn allocate(length: u64, how: Allocate) -> Operation {
    Operation::Allocate { slot: 0, offset: 0, length, how }
}

#[test]
fn what_room_was_set_aside_for_is_written_when_the_disk_is_full_and_the_rest_is_refused() {
    for how in [Allocate::Keep, Allocate::Extend, Allocate::Zero, Allocate::ZeroWithin] {
        sim::run::paused(async {
            let mut scene = Scene::new(Mode::Partial).await;
            let flags = OpenFlags { truncate: false, ..CUT };
            assert!(scene.does(Operation::Open { path: path(), slot: 0, flags }).await);
            assert!(scene.does(allocate(ASIDE, how)).await);
            scene.machine.disk.fill_after(0);
            for how in [Allocate::Keep, Allocate::Extend, Allocate::Zero, Allocate::ZeroWithin] {
                assert!(!scene.does(allocate(2 * ASIDE, how)).await, "{how:?}");
                assert!(scene.does(allocate(ASIDE / 2, Allocate::Keep)).await);
            }
            let length = ASIDE as usize;
            assert!(scene.does(write(length, 2)).await, "{how:?}");
            let beyond = Operation::Write { slot: 0, offset: ASIDE, length: AFTER, version: 3 };
            assert!(!scene.does(beyond).await, "{how:?}");
            scene.machine.disk.make_room();
            assert!(scene.does(CLOSE).await);
            scene.is(&stretch(2, length), &format!("{how:?}")).await;
        });
    }
}

fn held(scene: &Scene) -> u64 {
    let there = scene.machine.disk.containers("files").list().unwrap();
    there.iter().map(|(_, bytes)| bytes).sum()
}

#[test]
fn a_part_of_the_room_that_was_set_aside_before_the_disk_was_full_is_given_back() {
    sim::run::paused(async {
        let mut scene = Scene::new(Mode::Partial).await;
        let before = held(&scene);
        let flags = OpenFlags { truncate: false, ..CUT };
        assert!(scene.does(Operation::Open { path: path(), slot: 0, flags }).await);
        assert!(scene.does(write(AFTER, 2)).await);
        scene.machine.disk.fill_after(ASIDE + ASIDE / 2);
        assert!(!scene.does(allocate(2 * ASIDE, Allocate::Keep)).await);
        assert!(held(&scene) > ASIDE, "a part stays");
        scene.machine.disk.make_room();
        assert!(scene.does(CLOSE).await);
        assert!(held(&scene) <= before + AFTER as u64, "{} is held", held(&scene));
        scene.room.network.close();
    });
}

#[test]
fn room_that_was_left_beyond_the_end_of_a_stored_file_is_given_back_when_it_was_opened_again() {
    sim::run::paused(async {
        let mut scene = Scene::new(Mode::Partial).await;
        let before = held(&scene);
        let flags = OpenFlags { truncate: false, ..CUT };
        let open = Operation::Open { path: path(), slot: 0, flags };
        assert!(scene.does(open.clone()).await);
        assert!(scene.does(write(AFTER, 2)).await);
        assert!(scene.does(allocate(ASIDE, Allocate::Keep)).await);
        assert!(scene.does(Operation::Sync { slot: 0 }).await);
        scene.machine.stop(End::Killed, Duration::ZERO);
        scene.programs = Programs::default();
        scene.machine.start().await.unwrap();
        check::settled(&scene.room, std::slice::from_ref(&scene.machine), true).await.unwrap();
        assert!(scene.does(open).await);
        assert!(scene.does(CLOSE).await);
        assert!(held(&scene) <= before + AFTER as u64, "{} is held", held(&scene));
        scene.room.network.close();
    });
}

#[test]
fn room_beyond_the_end_counts_while_the_file_is_open_and_is_given_back_then() {
    for crashes in [false, true] {
        sim::run::paused(async {
            let mut scene = Scene::new(Mode::Partial).await;
            let before = held(&scene);
            let flags = OpenFlags { truncate: false, ..CUT };
            assert!(scene.does(Operation::Open { path: path(), slot: 0, flags }).await);
            assert!(scene.does(allocate(ASIDE, Allocate::Keep)).await);
            let counted = |scene: &Scene| scene.machine.client().unwrap().status().cache.bytes;
            assert!(counted(&scene) >= ASIDE && held(&scene) > ASIDE);
            assert!(scene.does(Operation::Sync { slot: 0 }).await);
            assert!(counted(&scene) >= ASIDE, "it is open still");
            if crashes {
                assert!(scene.does(write(AFTER, 2)).await);
                scene.machine.stop(End::Killed, Duration::ZERO);
                scene.programs = Programs::default();
                scene.machine.start().await.unwrap();
                check::settled(&scene.room, std::slice::from_ref(&scene.machine), true)
                    .await
                    .unwrap();
            } else {
                assert!(scene.does(CLOSE).await);
            }
            assert!(held(&scene) <= before + AFTER as u64, "{} is held", held(&scene));
            assert!(counted(&scene) < ASIDE);
            scene.room.network.close();
        });
    }
}

/// One client far from an origin whose disk has room for less than what is stored.
/// Another file of this name is there.
async fn crowded(
    room: &Room,
    other: &str,
    length: usize,
) -> (OriginMachine, ClientMachine, Programs) {
    let origin = OriginMachine::start(room, Limits::simulated()).unwrap();
    let mode = WantedMode::Fixed(Mode::Partial);
    let mut machine = ClientMachine::invited(room, &origin, 0, Conditions::NEAR, mode);
    machine.start().await.unwrap();
    let mut programs = Programs::default();
    let client = machine.client().unwrap().clone();
    let create = |path| Operation::Create { path, mode: 0o644, slot: 0 };
    for operation in [create(Path::new(other)), write(BEFORE, 1), CLOSE, create(path())] {
        programs.perform(&client, &operation).await;
    }
    check::settled(room, std::slice::from_ref(&machine), false).await.unwrap();
    origin.disk.fill_after(length as u64 / 3);
    for operation in [write(length, 2), CLOSE] {
        let outcome = programs.perform(&client, &operation).await;
        assert!(!matches!(outcome, Outcome::Failed(_)), "{operation}: {outcome}");
    }
    (origin, machine, programs)
}

#[test]
fn what_a_full_origin_has_no_room_for_is_not_sent_again_and_goes_once_there_is_room() {
    const LENGTH: usize = 6 << 20;
    sim::run::paused(async {
        let room = Room::new(1, false);
        let (origin, machine, mut programs) = crowded(&room, "other", LENGTH).await;
        let sent = || room.network.traffic(machine.line).sent.iter().sum::<u64>();
        room.clock.sleep(HOUR).await;
        let first_hour = sent();
        assert!(first_hour < 2 * LENGTH as u64, "{first_hour} bytes");
        let trouble = machine.client().unwrap().status().pending.trouble;
        assert!(trouble.unwrap().contains("no space left"));
        room.clock.sleep(HOUR).await;
        let idle = sent() - first_hour;
        assert!(idle < LENGTH as u64 / 8, "{idle} bytes in an hour");
        origin.disk.make_room();
        room.clock.sleep(FOUND_WITHIN).await;
        assert_eq!(machine.client().unwrap().status().pending.updates, 0);
        let all = sent();
        assert!(all < 3 * LENGTH as u64, "{all} bytes");
        let client = machine.client().unwrap().clone();
        let found = programs.perform(&client, &Operation::Fetch { path: path() }).await;
        assert!(found == Outcome::Bytes(stretch(2, LENGTH)));
        check::nothing_broke(&room, std::slice::from_ref(&machine)).unwrap();
        room.network.close();
    });
}

#[test]
fn who_waits_for_what_is_pending_has_it_looked_for_room_at_once() {
    const LENGTH: usize = 1 << 20;
    sim::run::paused(async {
        let room = Room::new(1, false);
        let (origin, machine, _programs) = crowded(&room, "other", LENGTH).await;
        room.clock.sleep(HOUR).await;
        origin.disk.make_room();
        machine.client().unwrap().hurry();
        room.clock.sleep(Duration::from_secs(5)).await;
        assert_eq!(machine.client().unwrap().status().pending.updates, 0);
        room.network.close();
    });
}

#[test]
fn a_file_is_removed_though_what_is_pending_before_has_no_room() {
    const LENGTH: usize = 1 << 20;
    let ends = [None, Some(End::Killed), Some(End::PowerCut)];
    let modes = [Mode::Connected, Mode::Partial];
    for (mode, end) in modes.into_iter().flat_map(|mode| ends.map(|end| (mode, end))) {
        sim::run::paused(async {
            let room = Room::new(1, false);
            let (mut origin, mut machine, mut programs) = crowded(&room, "old", LENGTH).await;
            room.clock.sleep(HOUR).await;
            let client = machine.client().unwrap().clone();
            let waiting = client.status().pending.updates;
            assert!(waiting > 0);
            client.set_mode(WantedMode::Fixed(mode));
            origin.disk.fill_after(0);
            let removed =
                programs.perform(&client, &Operation::Unlink { path: Path::new("old") }).await;
            assert_eq!(removed, Outcome::Done);
            if mode == Mode::Partial {
                room.clock.sleep(FOUND_WITHIN).await;
            }
            assert_eq!(client.status().pending.updates, waiting, "the rest waits");
            drop(client);
            if let Some(end) = end {
                machine.stop(end, Duration::ZERO);
                origin.stop(end, Duration::ZERO);
                origin.restart().unwrap();
                machine.start().await.unwrap();
                programs.forget();
            }
            origin.disk.make_room();
            let machines = std::slice::from_ref(&machine);
            check::settled(&room, machines, true).await.unwrap();
            check::all_agree(&room, &origin, machines).await.unwrap();
            check::nothing_broke(&room, machines).unwrap();
            let client = machine.client().unwrap().clone();
            let old = programs.perform(&client, &Operation::Stat { path: Path::new("old") }).await;
            assert_eq!(old, Outcome::Failed(Fault::NoEntry));
            let found = programs.perform(&client, &Operation::Fetch { path: path() }).await;
            assert!(found == Outcome::Bytes(stretch(2, LENGTH)), "{mode:?}, {end:?}");
            assert_eq!(client.status().conflicts, 0);
            room.network.close();
        });
    }
}

#[test]
fn what_is_written_to_a_file_is_kept_when_the_full_origin_does_not_let_it_be_removed() {
    for end in [End::Killed, End::PowerCut] {
        sim::run::paused(async {
            let room = Room::new(1, false);
            let origin = OriginMachine::start(&room, Limits::simulated()).unwrap();
            let mode = WantedMode::Fixed(Mode::Partial);
            let mut machine = ClientMachine::invited(&room, &origin, 0, Conditions::NEAR, mode);
            let client = machine.start().await.unwrap();
            let mut programs = Programs::default();
            check::settled(&room, std::slice::from_ref(&machine), true).await.unwrap();
            origin.disk.fill_after(0);
            let create = Operation::Create { path: path(), mode: 0o644, slot: 0 };
            let sync = Operation::Sync { slot: 0 };
            for operation in [create, write(AFTER, 1), sync, write(AFTER, 2)] {
                let outcome = programs.perform(&client, &operation).await;
                assert!(!matches!(outcome, Outcome::Failed(_)), "{operation}: {outcome}");
            }
            client.set_mode(WantedMode::Fixed(Mode::Connected));
            let removed = programs.perform(&client, &Operation::Unlink { path: path() }).await;
            assert_eq!(removed, Outcome::Failed(Fault::NoSpace), "it is still to be made there");
            drop(client);
            machine.stop(end, Duration::ZERO);
            machine.start().await.unwrap();
            origin.disk.make_room();
            check::settled(&room, std::slice::from_ref(&machine), true).await.unwrap();
            let client = machine.client().unwrap().clone();
            let found =
                Programs::default().perform(&client, &Operation::Fetch { path: path() }).await;
            let kept = [1, 2].map(|version| Outcome::Bytes(stretch(version, AFTER)));
            // What was not synced may go with the power.
            let lost = end == End::PowerCut && found == kept[0];
            assert!(lost || found == kept[1], "{end:?}: {found}");
            room.network.close();
        });
    }
}

const MIB: usize = 1 << 20;

/// An origin that has room for eight MiB of contents, and so many clients.
async fn small(room: &Room, modes: &[Mode]) -> (OriginMachine, Vec<ClientMachine>) {
    with_room_for(8 * MIB, room, modes).await
}

async fn with_room_for(
    length: usize,
    room: &Room,
    modes: &[Mode],
) -> (OriginMachine, Vec<ClientMachine>) {
    let limits = Limits { bytes_max: length as u64, ..Limits::simulated() };
    let origin = OriginMachine::start(room, limits).unwrap();
    let mut machines = Vec::new();
    for (number, mode) in modes.iter().enumerate() {
        let mode = WantedMode::Fixed(*mode);
        let mut machine = ClientMachine::invited(room, &origin, number, Conditions::NEAR, mode);
        machine.start().await.unwrap();
        machines.push(machine);
    }
    (origin, machines)
}

/// Makes a file of this name and length. False: the origin had no room for it.
async fn saved(machine: &ClientMachine, name: &str, version: u64, length: usize) -> bool {
    let client = machine.client().unwrap().clone();
    let mut programs = Programs::default();
    let create = Operation::Create { path: Path::new(name), mode: 0o644, slot: 0 };
    let mut is_saved = true;
    for operation in [create, write(length, version), CLOSE] {
        match programs.perform(&client, &operation).await {
            Outcome::Failed(Fault::NoSpace | Fault::DiskFull) => is_saved = false,
            Outcome::Failed(fault) => panic!("{operation}: {fault:?}"),
            _ => {}
        }
    }
    is_saved
}

async fn removed(machine: &ClientMachine, name: &str) -> Outcome {
    let client = machine.client().unwrap().clone();
    let unlink = Operation::Unlink { path: Path::new(name) };
    Programs::default().perform(&client, &unlink).await
}

async fn is_there(machine: &ClientMachine, name: &str, version: u64, length: usize) {
    let client = machine.client().unwrap().clone();
    let fetch = Operation::Fetch { path: Path::new(name) };
    let found = Programs::default().perform(&client, &fetch).await;
    assert!(found == Outcome::Bytes(stretch(version, length)), "{name}: {found}");
}

#[test]
fn what_came_of_a_file_that_had_no_room_is_given_back_and_the_next_one_has_some() {
    sim::run::paused(async {
        let room = Room::new(1, false);
        let (origin, machines) = small(&room, &[Mode::Connected; 2]).await;
        assert!(saved(&machines[0], "kept", 1, MIB).await);
        // More than once, and whoever is next.
        for round in 0..3 {
            assert!(!saved(&machines[0], "large", 2 + round, 12 * MIB).await, "it is too large");
            removed(&machines[0], "large").await;
            room.clock.sleep(Duration::from_secs(30)).await;
            assert!(saved(&machines[1], "next", 20 + round, 5 * MIB).await, "round {round}");
            is_there(&machines[0], "next", 20 + round, 5 * MIB).await;
            assert_eq!(removed(&machines[1], "next").await, Outcome::Done);
            // The removed file is an old version, which is kept for a while.
            origin.origin().unwrap().keep_versions(VOLUME, Some(Duration::ZERO)).unwrap();
        }
        is_there(&machines[1], "kept", 1, MIB).await;
        check::all_agree(&room, &origin, &machines).await.unwrap();
        check::nothing_broke(&room, &machines).unwrap();
        room.network.close();
    });
}

#[test]
fn old_versions_stay_when_there_is_no_room_and_a_clock_goes_ahead() {
    const DAY: i64 = 24 * 60 * 60;
    sim::run::paused(async {
        let room = Room::new(1, false);
        let (origin, machines) = small(&room, &[Mode::Connected]).await;
        assert!(saved(&machines[0], "kept", 1, 2 * MIB).await);
        assert_eq!(removed(&machines[0], "kept").await, Outcome::Done);
        // It has been tidied before.
        room.clock.sleep(2 * HOUR).await;
        origin.clock.shift(400 * DAY);
        for round in 0..3 {
            // It had room if the old version had gone.
            assert!(!saved(&machines[0], "large", 2 + round, 7 * MIB).await, "round {round}");
            removed(&machines[0], "large").await;
            room.clock.sleep(Duration::from_secs(60)).await;
        }
        room.network.close();
    });
}

#[test]
fn what_a_device_goes_on_sending_stays_at_a_full_origin_and_goes_when_it_sends_something_else() {
    const LENGTH: usize = 12 * MIB;
    sim::run::paused(async {
        let room = Room::new(1, false);
        let (origin, machines) = small(&room, &[Mode::Partial, Mode::Connected]).await;
        let [waits, other] = &machines[..] else { unreachable!() };
        assert!(saved(waits, "large", 1, LENGTH).await, "it is pending");
        let sent = || room.network.traffic(waits.line).sent.iter().sum::<u64>();
        for round in 0..12 {
            room.clock.sleep(HOUR / 6).await;
            assert!(!saved(other, "small", 2 + round, 2 * MIB).await, "round {round}");
            assert_eq!(removed(other, "small").await, Outcome::Done);
        }
        let all = sent();
        assert!(all < 2 * LENGTH as u64, "{all} bytes: what it had sent went again and again");
        assert!(waits.client().unwrap().status().pending.updates > 0);
        assert_eq!(removed(waits, "large").await, Outcome::Done);
        assert!(saved(waits, "next", 30, 5 * MIB).await);
        room.clock.sleep(2 * FOUND_WITHIN).await;
        assert_eq!(waits.client().unwrap().status().pending.updates, 0);
        is_there(other, "next", 30, 5 * MIB).await;
        assert!(saved(other, "small", 31, MIB).await);
        assert_eq!(removed(other, "next").await, Outcome::Done);
        room.clock.sleep(FOUND_WITHIN).await;
        check::all_agree(&room, &origin, &machines).await.unwrap();
        check::nothing_broke(&room, &machines).unwrap();
        room.network.close();
    });
}

/// How a file goes for which there was no room.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Goes {
    Removed,
    WithItsDirectory,
    Replaced,
    Emptied,
}

const ROOM: usize = 3 * MIB;
const TOO_LONG: usize = 4 * MIB;
/// Fits where no more than a file of half a MiB is kept.
const NEXT: usize = 2 * MIB;
/// Nobody has to wait for it.
const SOON: Duration = Duration::from_secs(20);
const SHORT: usize = 10_000;

fn create(name: &str) -> Operation {
    Operation::Create { path: Path::new(name), mode: 0o644, slot: 0 }
}

fn made(directory: &str) -> Operation {
    Operation::Make { path: Path::new(directory), kind: Kind::Directory, mode: 0o755, target: None }
}

async fn done(machine: &ClientMachine, operations: impl IntoIterator<Item = Operation>) {
    let client = machine.client().unwrap().clone();
    let mut programs = Programs::default();
    for operation in operations {
        let outcome = programs.perform(&client, &operation).await;
        assert!(!matches!(outcome, Outcome::Failed(_)), "{operation}: {outcome}");
    }
}

async fn is_gone(machine: &ClientMachine, name: &str) {
    let client = machine.client().unwrap().clone();
    let stat = Operation::Stat { path: Path::new(name) };
    let found = Programs::default().perform(&client, &stat).await;
    assert_eq!(found, Outcome::Failed(Fault::NoEntry), "{name}");
}

/// Makes a file that is too large, which the origin knows before it has contents, or not.
async fn saved_too_long(machine: &ClientMachine, name: &str, room: &Room, known: bool) {
    let client = machine.client().unwrap().clone();
    let mut programs = Programs::default();
    programs.perform(&client, &create(name)).await;
    if known {
        room.clock.sleep(Duration::from_secs(2)).await;
    }
    for operation in [write(TOO_LONG, 7), CLOSE] {
        let outcome = programs.perform(&client, &operation).await;
        assert!(!matches!(outcome, Outcome::Failed(_)), "{operation}: {outcome}");
    }
}

fn pending(machine: &ClientMachine) -> u64 {
    machine.client().unwrap().status().pending.updates
}

#[test]
fn what_is_removed_that_had_no_room_is_not_sent_any_more_and_all_else_goes() {
    let ways = [Goes::Removed, Goes::WithItsDirectory, Goes::Replaced, Goes::Emptied];
    for (goes, known) in ways.into_iter().flat_map(|goes| [true, false].map(|known| (goes, known)))
    {
        sim::run::paused(async {
            let room = Room::new(1, false);
            let (origin, machines) =
                with_room_for(ROOM, &room, &[Mode::Partial, Mode::Connected]).await;
            let [waits, other] = &machines[..] else { unreachable!() };
            let (path, name) = (|name: &str| Path::new(name), "dir/large");
            done(waits, [made("dir")]).await;
            assert!(saved(waits, "new", 2, SHORT).await && saved(waits, "kept", 1, MIB / 2).await);
            saved_too_long(waits, name, &room, known).await;
            room.clock.sleep(HOUR / 6).await;
            assert!(pending(waits) > 0 && !saved(other, "next", 3, NEXT).await);
            assert_eq!(removed(other, "next").await, Outcome::Done);
            let sent = || room.network.traffic(waits.line).sent.iter().sum::<u64>();
            let before = sent();
            let ends = match goes {
                Goes::Removed => vec![Operation::Unlink { path: path(name) }],
                Goes::WithItsDirectory => vec![
                    Operation::Unlink { path: path(name) },
                    Operation::RemoveDirectory { path: path("dir") },
                ],
                Goes::Replaced => vec![Operation::Rename {
                    from: path("new"),
                    to: path(name),
                    flag: RenameFlag::Replace,
                }],
                Goes::Emptied => vec![Operation::Cut { path: path(name), size: 0 }],
            };
            done(waits, ends).await;
            done(waits, [made("newdir")]).await;
            assert!(saved(waits, "small", 4, SHORT).await);
            room.clock.sleep(SOON).await;
            assert_eq!(pending(waits), 0, "{goes:?}, known: {known}");
            assert!(sent() - before < MIB as u64 / 4, "{goes:?}: {} bytes", sent() - before);
            is_there(other, "small", 4, SHORT).await;
            done(other, [Operation::Stat { path: path("newdir") }]).await;
            match goes {
                Goes::Removed | Goes::WithItsDirectory => is_gone(other, name).await,
                Goes::Replaced => is_there(other, name, 2, SHORT).await,
                Goes::Emptied => is_there(other, name, 7, 0).await,
            }
            assert!(saved(other, "next", 5, NEXT).await, "{goes:?}, known: {known}");
            assert_eq!(removed(other, "next").await, Outcome::Done);
            check::all_agree(&room, &origin, &machines).await.unwrap();
            check::nothing_broke(&room, &machines).unwrap();
            room.network.close();
        });
    }
}

#[test]
fn nothing_that_was_turned_down_and_removed_keeps_room_from_others_though_no_more_is_sent() {
    for known in [true, false] {
        sim::run::paused(async {
            let room = Room::new(1, false);
            let (_origin, machines) =
                with_room_for(ROOM, &room, &[Mode::Partial, Mode::Connected]).await;
            saved_too_long(&machines[0], "large", &room, known).await;
            room.clock.sleep(HOUR / 6).await;
            assert_eq!(removed(&machines[0], "large").await, Outcome::Done);
            room.clock.sleep(SOON).await;
            assert_eq!(pending(&machines[0]), 0);
            assert!(saved(&machines[1], "next", 3, NEXT + MIB / 2).await, "known: {known}");
            room.network.close();
        });
    }
}

#[test]
fn a_crash_after_what_had_no_room_was_removed_costs_nothing_else() {
    let ends = [(true, End::Killed), (false, End::Killed), (false, End::PowerCut)];
    let delays = [Duration::ZERO, Duration::from_millis(2500), SOON];
    for ((of_client, end), after) in
        ends.into_iter().flat_map(|end| delays.map(|after| (end, after)))
    {
        sim::run::paused(async {
            let room = Room::new(1, false);
            let (mut origin, mut machines) = with_room_for(ROOM, &room, &[Mode::Partial; 2]).await;
            assert!(saved(&machines[0], "kept", 1, MIB / 2).await);
            saved_too_long(&machines[0], "large", &room, true).await;
            room.clock.sleep(HOUR / 6).await;
            assert_eq!(removed(&machines[0], "large").await, Outcome::Done);
            assert!(saved(&machines[0], "small", 4, SHORT).await);
            room.clock.sleep(after).await;
            if of_client {
                machines[0].stop(end, Duration::ZERO);
                machines[0].start().await.unwrap();
            } else {
                origin.stop(end, Duration::ZERO);
                origin.restart().unwrap();
            }
            room.clock.sleep(2 * FOUND_WITHIN).await;
            assert_eq!(pending(&machines[0]), 0, "of client: {of_client}, {end:?} after {after:?}");
            check::settled(&room, &machines, true).await.unwrap();
            check::all_agree(&room, &origin, &machines).await.unwrap();
            check::nothing_broke(&room, &machines).unwrap();
            is_gone(&machines[1], "large").await;
            is_there(&machines[1], "small", 4, SHORT).await;
            is_there(&machines[1], "kept", 1, MIB / 2).await;
            assert!(saved(&machines[1], "next", 5, NEXT).await);
            room.clock.sleep(FOUND_WITHIN).await;
            assert_eq!(pending(&machines[1]), 0);
            room.network.close();
        });
    }
}

#[test]
fn what_others_have_stored_meanwhile_stays_when_what_had_no_room_is_removed() {
    sim::run::paused(async {
        let room = Room::new(1, false);
        let (origin, machines) =
            with_room_for(ROOM, &room, &[Mode::Partial, Mode::Connected]).await;
        let [waits, other] = &machines[..] else { unreachable!() };
        assert!(saved(other, "doc", 1, SHORT).await);
        is_there(waits, "doc", 1, SHORT).await;
        let open = || Operation::Open { path: Path::new("doc"), slot: 0, flags: CUT };
        let client = waits.client().unwrap().clone();
        client.set_mode(WantedMode::Fixed(Mode::Disconnected));
        done(waits, [open(), write(TOO_LONG, 7), CLOSE]).await;
        done(other, [open(), write(SHORT, 8), CLOSE]).await;
        client.set_mode(WantedMode::Fixed(Mode::Partial));
        room.clock.sleep(HOUR / 6).await;
        assert!(pending(waits) > 0, "it has no room");
        assert_eq!(removed(waits, "doc").await, Outcome::Done);
        room.clock.sleep(FOUND_WITHIN).await;
        assert_eq!(pending(waits), 0);
        check::all_agree(&room, &origin, &machines).await.unwrap();
        is_there(waits, "doc", 8, SHORT).await;
        is_there(other, "doc", 8, SHORT).await;
        room.network.close();
    });
}

#[test]
fn a_removal_goes_ahead_also_of_a_file_that_itself_had_no_room() {
    sim::run::paused(async {
        let room = Room::new(1, false);
        let (origin, machines) =
            with_room_for(ROOM, &room, &[Mode::Partial, Mode::Connected]).await;
        let [waits, other] = &machines[..] else { unreachable!() };
        let client = waits.client().unwrap().clone();
        let mut programs = Programs::default();
        let second = Operation::Create { path: Path::new("second"), mode: 0o644, slot: 1 };
        programs.perform(&client, &second).await;
        room.clock.sleep(Duration::from_secs(2)).await;
        saved_too_long(waits, "first", &room, true).await;
        let write = Operation::Write { slot: 1, offset: 0, length: TOO_LONG, version: 9 };
        for operation in [write, Operation::Close { slot: 1 }] {
            programs.perform(&client, &operation).await;
        }
        room.clock.sleep(HOUR / 6).await;
        assert_eq!(removed(waits, "second").await, Outcome::Done);
        room.clock.sleep(SOON).await;
        is_gone(other, "second").await;
        assert_eq!(pending(waits), 1, "the first waits for room");
        assert_eq!(removed(waits, "first").await, Outcome::Done);
        room.clock.sleep(SOON).await;
        assert_eq!(pending(waits), 0);
        assert!(saved(other, "next", 5, NEXT + MIB / 2).await);
        assert_eq!(removed(other, "next").await, Outcome::Done);
        check::all_agree(&room, &origin, &machines).await.unwrap();
        check::nothing_broke(&room, &machines).unwrap();
        room.network.close();
    });
}

#[test]
fn what_had_no_room_is_there_once_it_has_some_if_others_have_moved_what_was_removed_here() {
    sim::run::paused(async {
        let room = Room::new(1, false);
        let (origin, machines) =
            with_room_for(64 * MIB, &room, &[Mode::Partial, Mode::Connected]).await;
        let [waits, other] = &machines[..] else { unreachable!() };
        assert!(saved(other, "doc", 1, SHORT).await);
        is_there(waits, "doc", 1, SHORT).await;
        let client = waits.client().unwrap().clone();
        client.set_mode(WantedMode::Fixed(Mode::Disconnected));
        let open = Operation::Open { path: Path::new("doc"), slot: 0, flags: CUT };
        done(waits, [open, write(TOO_LONG, 7), CLOSE]).await;
        assert_eq!(removed(waits, "doc").await, Outcome::Done);
        let (from, to, flag) = (Path::new("doc"), Path::new("moved"), RenameFlag::Replace);
        done(other, [Operation::Rename { from, to, flag }]).await;
        origin.disk.fill_after(TOO_LONG as u64 / 3);
        client.set_mode(WantedMode::Fixed(Mode::Partial));
        room.clock.sleep(HOUR / 6).await;
        assert!(pending(waits) > 0);
        origin.disk.make_room();
        room.clock.sleep(FOUND_WITHIN).await;
        assert_eq!(pending(waits), 0);
        is_there(other, "moved", 7, TOO_LONG).await;
        is_there(waits, "moved", 7, TOO_LONG).await;
        check::nothing_broke(&room, &machines).unwrap();
        room.network.close();
    });
}
