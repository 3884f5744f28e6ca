//! Large files are sent while they are written: each byte goes once, and whatever happens before the
//! close, the file is what was written, or nothing is left of it.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::{Durability, OpenFlags, WantedMode};
use protocol::{Mode, PAYLOAD_BYTES_MAX};
use replica::Limits;
use sim::check;
use sim::contents::stretch;
use sim::machine::{ClientMachine, End, OriginMachine, Room};
use sim::network::Conditions;
use sim::operation::{Operation, Outcome, Path};
use sim::perform::Programs;
use std::time::Duration;

const LENGTH: usize = 1 << 20;
const PIECE: usize = 64 << 10;
const MOMENT: Duration = Duration::from_millis(50);
const CLOSE: Operation = Operation::Close { slot: 0 };

struct Scene {
    room: Room,
    origin: OriginMachine,
    machine: ClientMachine,
    programs: Programs,
}

/// Plays a scene in simulated time. With `always`, files are sent while they are written whatever
/// the link.
fn play<F: Future<Output = ()>>(
    conditions: Conditions,
    (mode, always): (Mode, bool),
    work: impl FnOnce(Scene) -> F,
) {
    sim::run::paused(async {
        let room = Room::new(1, false);
        let origin = OriginMachine::start(&room, Limits::simulated()).unwrap();
        let mode = WantedMode::Fixed(mode);
        let mut machine = ClientMachine::invited(&room, &origin, 0, conditions, mode);
        machine.durability = Durability::Prompt;
        machine.early_bytes_min = always.then_some(PIECE as u64);
        machine.start().await.unwrap();
        let network = room.network.clone();
        work(Scene { room, origin, machine, programs: Programs::default() }).await;
        network.close();
    });
}

fn path() -> Path {
    Path::new("large")
}

fn create() -> Operation {
    Operation::Create { path: path(), mode: 0o644, slot: 0 }
}

impl Scene {
    async fn all(&mut self, operations: &[Operation]) {
        let client = self.machine.client().unwrap().clone();
        self.programs.perform_all(&client, operations.iter().cloned()).await;
    }

    async fn perform(&mut self, operation: Operation) -> Outcome {
        let client = self.machine.client().unwrap().clone();
        self.programs.perform(&client, &operation).await
    }

    /// Writes all of it in pieces, each version of its own.
    async fn write(&mut self, length: usize, first: u64) {
        for (number, offset) in (0..length).step_by(PIECE).enumerate() {
            let version = first + number as u64;
            let length = PIECE.min(length - offset);
            self.all(&[Operation::Write { slot: 0, offset: offset as u64, length, version }]).await;
            self.room.clock.sleep(MOMENT).await;
        }
    }

    fn sent(&self) -> u64 {
        self.room.network.traffic(self.machine.line).sent.iter().sum()
    }

    async fn read(&mut self) -> Outcome {
        self.perform(Operation::Fetch { path: path() }).await
    }

    async fn is(&mut self, bytes: &[u8]) {
        let Outcome::Bytes(found) = self.read().await else { panic!("it cannot be read") };
        assert!(found == bytes, "it is not what was written");
        let machines = std::slice::from_ref(&self.machine);
        check::settled(&self.room, machines, true).await.unwrap();
        check::nothing_broke(&self.room, machines).unwrap();
        let other = ClientMachine::invited(
            &self.room,
            &self.origin,
            1,
            Conditions::NEAR,
            WantedMode::Fixed(Mode::Partial),
        );
        let before = std::mem::replace(&mut self.machine, other);
        self.machine.start().await.unwrap();
        let Outcome::Bytes(found) = self.read().await else { panic!("it cannot be read there") };
        assert!(found == bytes, "it is not at the origin what was written");
        self.machine = before;
    }
}

/// What `write` makes.
fn written(length: usize, first: u64) -> Vec<u8> {
    let pieces = (0..length).step_by(PIECE).enumerate();
    let piece = |(number, offset): (usize, usize)| {
        stretch(first + number as u64, PIECE.min(length - offset))
    };
    pieces.flat_map(piece).collect()
}

#[test]
fn most_of_a_file_is_sent_before_it_is_closed_and_all_of_it_once() {
    for mode in [Mode::Partial, Mode::Connected] {
        play(Conditions::NEAR, (mode, true), |mut scene| async move {
            let before = scene.sent();
            scene.all(&[create()]).await;
            scene.write(LENGTH, 1).await;
            let early = scene.sent() - before;
            assert!(early > LENGTH as u64 * 7 / 10, "{early} bytes were sent by then");
            scene.all(&[CLOSE]).await;
            scene.is(&written(LENGTH, 1)).await;
            let all = scene.sent() - before;
            assert!(all < LENGTH as u64 * 11 / 10, "{all} bytes were sent");
        });
    }
}

#[test]
fn what_was_sent_counts_also_if_the_file_is_closed_while_it_is_on_its_way() {
    play(Conditions::NEAR, (Mode::Partial, true), |mut scene| async move {
        let before = scene.sent();
        let all = Operation::Write { slot: 0, offset: 0, length: LENGTH, version: 1 };
        scene.all(&[create(), all]).await;
        tokio::task::yield_now().await;
        scene.all(&[CLOSE]).await;
        scene.is(&stretch(1, LENGTH)).await;
        let all = scene.sent() - before;
        assert!(all < LENGTH as u64 * 11 / 10, "{all} bytes were sent");
    });
}

#[test]
fn what_is_written_over_is_cut_and_sent_again_and_nothing_else() {
    play(Conditions::NEAR, (Mode::Partial, true), |mut scene| async move {
        let before = scene.sent();
        scene.all(&[create()]).await;
        scene.write(LENGTH, 1).await;
        let head = Operation::Write { slot: 0, offset: 0, length: 100, version: 90 };
        let middle = Operation::Write { slot: 0, offset: 500_000, length: 100, version: 91 };
        scene.all(&[head, middle, CLOSE]).await;
        let mut bytes = written(LENGTH, 1);
        bytes[..100].copy_from_slice(&stretch(90, 100));
        bytes[500_000..500_100].copy_from_slice(&stretch(91, 100));
        scene.is(&bytes).await;
        let all = scene.sent() - before;
        assert!(all < LENGTH as u64 * 12 / 10, "{all} bytes were sent");
    });
}

#[test]
fn a_file_that_is_cut_while_it_is_sent_is_what_it_is_in_the_end() {
    play(Conditions::NEAR, (Mode::Partial, true), |mut scene| async move {
        scene.all(&[create()]).await;
        scene.write(LENGTH, 1).await;
        scene.all(&[Operation::Truncate { slot: 0, size: 300_000 }]).await;
        let end = Operation::Write { slot: 0, offset: 400_000, length: 200_000, version: 90 };
        scene.all(&[end]).await;
        scene.room.clock.sleep(MOMENT).await;
        scene.all(&[CLOSE]).await;
        let mut bytes = written(LENGTH, 1);
        bytes.truncate(300_000);
        bytes.resize(400_000, 0);
        bytes.extend(stretch(90, 200_000));
        scene.is(&bytes).await;
        // And written anew from the beginning.
        let flags = OpenFlags { write: true, truncate: true, ..OpenFlags::default() };
        scene.all(&[Operation::Open { path: path(), slot: 0, flags }]).await;
        scene.write(LENGTH / 2, 50).await;
        scene.all(&[Operation::Truncate { slot: 0, size: 0 }]).await;
        scene.write(LENGTH / 4, 70).await;
        scene.all(&[CLOSE]).await;
        scene.is(&written(LENGTH / 4, 70)).await;
    });
}

#[test]
fn a_crash_while_it_is_written_costs_nothing_but_what_was_sent() {
    for how in [End::Killed, End::PowerCut] {
        play(Conditions::NEAR, (Mode::Partial, true), |mut scene| async move {
            scene.all(&[create()]).await;
            scene.write(LENGTH, 1).await;
            scene.machine.stop(how, MOMENT);
            scene.programs.forget();
            scene.machine.start().await.unwrap();
            if how == End::Killed {
                scene.is(&written(LENGTH, 1)).await;
            }
            scene.all(&[Operation::Unlink { path: path() }, create()]).await;
            scene.write(LENGTH, 30).await;
            scene.all(&[CLOSE]).await;
            scene.is(&written(LENGTH, 30)).await;
        });
    }
}

#[test]
fn a_link_that_is_cut_while_it_is_written_costs_nothing() {
    play(Conditions::NEAR, (Mode::Partial, true), |mut scene| async move {
        let before = scene.sent();
        scene.all(&[create()]).await;
        scene.write(LENGTH / 2, 1).await;
        scene.room.network.cut(scene.machine.line, MOMENT);
        let rest =
            Operation::Write { slot: 0, offset: LENGTH as u64 / 2, length: 1000, version: 90 };
        scene.all(&[rest, CLOSE]).await;
        scene.room.clock.sleep(MOMENT).await;
        scene.room.network.restore(scene.machine.line);
        let bytes = [written(LENGTH / 2, 1), stretch(90, 1000)].concat();
        scene.is(&bytes).await;
        let all = scene.sent() - before;
        assert!(all < LENGTH as u64 * 7 / 10, "{all} bytes were sent");
    });
}

#[test]
fn a_disk_of_the_origin_that_is_full_is_told_when_the_file_is_closed_and_not_before() {
    play(Conditions::NEAR, (Mode::Connected, true), |mut scene| async move {
        scene.all(&[create()]).await;
        scene.origin.disk.fill_after(100_000);
        scene.write(LENGTH, 1).await;
        let told = scene.perform(CLOSE).await;
        assert!(matches!(told, Outcome::Failed(_)), "{told}");
        scene.origin.disk.make_room();
        scene.all(&[Operation::Unlink { path: path() }, create()]).await;
        scene.write(LENGTH, 30).await;
        scene.all(&[CLOSE]).await;
        scene.is(&written(LENGTH, 30)).await;
    });
}

#[test]
fn over_a_slow_link_a_file_that_is_removed_again_costs_nothing() {
    let far = |rate| Conditions {
        delay: Duration::from_millis(10),
        bytes_a_second: rate,
        ..Conditions::NEAR
    };
    let message = PAYLOAD_BYTES_MAX as u64;
    // Of a near one it is not known how fast it is before a message went over it.
    let slow = [None, Some(60_000), Some(900_000)].map(|rate| (far(rate), 10_000));
    for (conditions, most) in slow.into_iter().chain([(Conditions::NEAR, message + 10_000)]) {
        play(conditions, (Mode::Partial, false), |mut scene| async move {
            let before = scene.sent();
            scene.all(&[create()]).await;
            scene.write(8 * LENGTH, 1).await;
            scene.all(&[Operation::Unlink { path: path() }, CLOSE]).await;
            let sent = scene.sent() - before;
            assert!(sent < most, "{sent} bytes were sent");
        });
    }
}

#[test]
fn over_a_fast_link_a_large_file_is_sent_while_it_is_written_and_a_small_one_is_not() {
    let conditions = Conditions { bytes_a_second: Some(100_000_000), ..Conditions::NEAR };
    for (length, least, most) in [(2 * LENGTH, 0, 10_000), (8 * LENGTH, 6 * LENGTH, 9 * LENGTH)] {
        play(conditions, (Mode::Partial, false), |mut scene| async move {
            let before = scene.sent();
            scene.all(&[create()]).await;
            scene.write(length, 1).await;
            let sent = (scene.sent() - before) as usize;
            assert!((least..most).contains(&sent), "{sent} bytes were sent");
            scene.all(&[CLOSE]).await;
        });
    }
}

#[test]
fn of_what_the_origin_has_by_another_name_little_is_sent() {
    play(Conditions::NEAR, (Mode::Partial, true), |mut scene| async move {
        scene.all(&[create()]).await;
        scene.write(LENGTH, 1).await;
        scene.all(&[CLOSE]).await;
        scene.is(&written(LENGTH, 1)).await;
        // Another machine, which has never seen it, writes the same.
        let mode = WantedMode::Fixed(Mode::Partial);
        let mut other =
            ClientMachine::invited(&scene.room, &scene.origin, 2, Conditions::NEAR, mode);
        other.early_bytes_min = Some(PIECE as u64);
        scene.machine = other;
        scene.machine.start().await.unwrap();
        let before = scene.sent();
        let path = Path::new("copy");
        scene.all(&[Operation::Create { path, mode: 0o644, slot: 0 }]).await;
        scene.write(LENGTH, 1).await;
        scene.all(&[CLOSE]).await;
        scene.is(&written(LENGTH, 1)).await;
        let all = scene.sent() - before;
        assert!(all < LENGTH as u64 / 4, "{all} bytes were sent");
    });
}
