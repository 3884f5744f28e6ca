//! A client whose disk does not keep what was written and has not been sent yet.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::WantedMode;
use model::FileId;
use protocol::{Damage, Mode};
use replica::Limits;
use sim::check;
use sim::contents::stretch;
use sim::machine::{ClientMachine, End, OriginMachine, Room, SimClient};
use sim::network::Conditions;
use sim::operation::{Operation, Outcome, Path};
use sim::perform::Programs;
use std::time::Duration;
use store::container::Key;
use store::{Container, Containers};

const LENGTH: usize = 60_000;
/// Where a bit is flipped.
const AT: usize = 31_000;
/// The block that is lost there.
const LOST: std::ops::Range<usize> = 28_672..32_768;
/// Longer than it takes until the next checkpoint.
const CHECKPOINTED: Duration = Duration::from_secs(12);
/// Longer than any lease.
const LEASE_ENDS: Duration = Duration::from_secs(90);

/// What happens to the container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harm {
    Flip,
    Cut,
    Remove,
    /// A block of it cannot be read any more.
    Lose,
}

/// When it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// While no process runs, before the tables of the last one were on the disk.
    Killed,
    /// While no process runs.
    Checkpointed,
    /// While the process runs.
    Running,
    /// After its container was closed, and before the file is opened once more.
    Opened,
}

async fn perform(client: &SimClient, operations: &[Operation]) -> Outcome {
    let mut programs = Programs::default();
    let mut last = Outcome::Done;
    for operation in operations {
        last = programs.perform(client, operation).await;
    }
    last
}

async fn save(client: &SimClient, path: &str, version: u64) {
    let saved = perform(
        client,
        &[
            Operation::Create { path: Path::new(path), mode: 0o644, slot: 0 },
            Operation::Write { slot: 0, offset: 0, length: LENGTH, version },
            Operation::Close { slot: 0 },
        ],
    )
    .await;
    assert!(!matches!(saved, Outcome::Failed(_)), "{saved}");
}

async fn read(client: &SimClient, path: &str) -> Outcome {
    perform(client, &[Operation::Fetch { path: Path::new(path) }]).await
}

/// Does harm to the container of a file, and says what it holds then.
fn harm(machine: &ClientMachine, file: u64, how: Harm) -> Vec<u8> {
    let containers = machine.disk.containers("files");
    let key = Key { file, generation: 0 };
    let container = containers.open(key, false).unwrap().unwrap();
    match how {
        Harm::Flip => {
            let byte = container.read(AT as u64, 1).unwrap()[0];
            container.write(AT as u64, &[byte ^ 1]).unwrap();
        }
        Harm::Cut => container.set_length(AT as u64).unwrap(),
        Harm::Remove => {
            containers.remove(key).unwrap();
            return Vec::new();
        }
        Harm::Lose => {
            let mut left = container.read(0, LENGTH).unwrap();
            container.lose(AT as u64, 1, true);
            left[LOST].fill(0);
            return left;
        }
    }
    container.read(0, LENGTH).unwrap()
}

fn simulated(work: impl AsyncFnOnce(&Room)) {
    sim::run::paused(async {
        let room = Room::new(1, false);
        work(&room).await;
        room.network.close();
    });
}

/// A file is written and held back; its container comes to harm; then it is to be sent.
fn check(how: Harm, when: When) {
    let case = format!("{how:?}, {when:?}");
    simulated(async |room| {
        let mut origin = OriginMachine::start(room, Limits::simulated()).unwrap();
        let held = WantedMode::Fixed(Mode::FetchOnly);
        let mut machine = ClientMachine::invited(room, &origin, 0, Conditions::NEAR, held);
        let mut client = machine.start().await.unwrap();
        save(&client, "harmed", 1).await;
        save(&client, "sound", 2).await;
        let Outcome::Shown(shown) =
            perform(&client, &[Operation::Stat { path: Path::new("harmed") }]).await
        else {
            panic!("{case}: it is not there")
        };
        if when != When::Killed {
            room.clock.sleep(CHECKPOINTED).await;
        }
        if when != When::Running {
            machine.stop(End::Killed, Duration::ZERO);
        }
        let left = harm(&machine, shown.file, how);
        if when != When::Running {
            client = machine.start().await.unwrap();
        }
        if when == When::Opened {
            // Of a container that is too short it finds nothing, and nobody else has it.
            read(&client, "harmed").await;
        }
        client.set_mode(WantedMode::Fixed(Mode::Partial));
        check::settled(room, std::slice::from_ref(&machine), true)
            .await
            .unwrap_or_else(|error| panic!("{case}: {error}"));
        noted(&client, &left, how, &case);
        assert_eq!(read(&client, "harmed").await, Outcome::Bytes(left), "{case}");
        assert_eq!(read(&client, "sound").await, Outcome::Bytes(stretch(2, LENGTH)), "{case}");
        let machines = std::slice::from_ref(&machine);
        check::all_agree(room, &origin, machines).await.unwrap();
        check::nothing_broke(room, machines).unwrap();
        room.clock.sleep(LEASE_ENDS).await;
        // What was said is said after a kill too, until it has been told, and shown after that.
        assert_eq!(client.status().conflicts, 0, "{case}");
        machine.stop(End::Killed, Duration::ZERO);
        let client = machine.start().await.unwrap();
        assert!(!client.status().damage[0].told, "{case}");
        client.damage_told(Some(FileId(shown.file))).unwrap();
        assert!(client.status().damage[0].told, "{case}");
        origin.stop(End::Killed, Duration::ZERO);
    });
}

fn noted(client: &SimClient, left: &[u8], how: Harm, case: &str) {
    let damage = client.status().damage;
    let [Damage { path, stored_bytes, zeros, told: false, .. }] = &damage[..] else {
        panic!("{case}: {damage:?}")
    };
    assert_eq!(path.as_deref(), Some("harmed"), "{case}");
    let expected = (how != Harm::Remove).then_some(left.len() as u64);
    assert_eq!(*stored_bytes, expected, "{case}");
    assert_eq!(*zeros, if how == Harm::Lose { LOST.len() as u64 } else { 0 }, "{case}");
}

#[test]
fn what_is_left_of_a_pending_file_is_stored_and_its_damage_is_said() {
    for when in [When::Killed, When::Checkpointed, When::Running, When::Opened] {
        for how in [Harm::Flip, Harm::Cut, Harm::Remove, Harm::Lose] {
            check(how, when);
        }
    }
}

/// The answer was lost, or a crash undid it: what the origin has needs nothing from here.
#[test]
fn what_was_taken_before_it_came_to_harm_is_not_damaged() {
    taken_before(Harm::Flip);
    taken_before(Harm::Lose);
}

fn taken_before(how: Harm) {
    simulated(async |room| {
        let origin = OriginMachine::start(room, Limits::simulated()).unwrap();
        let mode = WantedMode::Fixed(Mode::Partial);
        let mut machine = ClientMachine::invited(room, &origin, 0, Conditions::NEAR, mode);
        let client = machine.start().await.unwrap();
        client.set_mode(WantedMode::Fixed(Mode::FetchOnly));
        save(&client, "file", 1).await;
        // In the tables, so that the log is not asked what the container should hold.
        room.clock.sleep(CHECKPOINTED).await;
        client.set_mode(WantedMode::Fixed(Mode::Partial));
        check::settled(room, std::slice::from_ref(&machine), true).await.unwrap();
        let Outcome::Shown(shown) =
            perform(&client, &[Operation::Stat { path: Path::new("file") }]).await
        else {
            panic!("it is not there")
        };
        machine.stop(End::Killed, Duration::ZERO);
        harm(&machine, shown.file, how);
        let client = machine.launch().unwrap();
        assert!(client.status().pending.updates > 0, "the crash undid the verdict");
        check::settled(room, std::slice::from_ref(&machine), true).await.unwrap();
        assert_eq!(client.status().damage, []);
        let mut other =
            ClientMachine::new(room, 1, origin.invite().unwrap(), Conditions::NEAR, mode);
        let theirs = other.start().await.unwrap();
        assert_eq!(read(&theirs, "file").await, Outcome::Bytes(stretch(1, LENGTH)));
        other.stop(End::Killed, Duration::ZERO);
    });
}

/// A disk that was unplugged for a minute, or a cable that was loose.
#[test]
fn what_can_be_read_again_after_a_minute_is_sent_as_it_was_written() {
    simulated(async |room| {
        let origin = OriginMachine::start(room, Limits::simulated()).unwrap();
        let held = WantedMode::Fixed(Mode::FetchOnly);
        let mut machine = ClientMachine::invited(room, &origin, 0, Conditions::NEAR, held);
        let client = machine.start().await.unwrap();
        save(&client, "before", 3).await;
        save(&client, "file", 1).await;
        save(&client, "after", 2).await;
        room.clock.sleep(CHECKPOINTED).await;
        let file = |shown| match shown {
            Outcome::Shown(shown) => shown.file,
            other => panic!("{other}"),
        };
        let stat = |path| [Operation::Stat { path: Path::new(path) }];
        let file = file(perform(&client, &stat("file")).await);
        let lose = |lost| {
            let containers = machine.disk.containers("files");
            let container = containers.open(Key { file, generation: 0 }, false).unwrap();
            container.unwrap().lose(AT as u64, 1, lost);
        };
        // Nothing is known of it any more than its container says.
        lose(true);
        machine.stop(End::Killed, Duration::ZERO);
        let client = machine.start().await.unwrap();
        client.set_mode(WantedMode::Fixed(Mode::Partial));
        room.clock.sleep(Duration::from_secs(60)).await;
        assert_eq!(client.status().damage, []);
        let pending = client.status().pending.updates;
        assert!((1..=5).contains(&pending), "what comes before it has gone: {pending}");
        let containers = machine.disk.containers("files");
        let container = containers.open(Key { file, generation: 0 }, false).unwrap().unwrap();
        container.lose(AT as u64, 1, false);
        check::settled(room, std::slice::from_ref(&machine), true).await.unwrap();
        assert_eq!(client.status().damage, []);
        assert_eq!(read(&client, "file").await, Outcome::Bytes(stretch(1, LENGTH)));
        check::all_agree(room, &origin, std::slice::from_ref(&machine)).await.unwrap();
        machine.stop(End::Killed, Duration::ZERO);
    });
}

/// Nobody has closed it, so that nobody was told that it is kept: it stays, and is stored when it can
/// be read again.
#[test]
fn what_was_being_written_at_a_crash_and_cannot_be_read_holds_up_nothing() {
    simulated(async |room| {
        let origin = OriginMachine::start(room, Limits::simulated()).unwrap();
        let mode = WantedMode::Fixed(Mode::Partial);
        let mut machine = ClientMachine::invited(room, &origin, 0, Conditions::NEAR, mode);
        let client = machine.start().await.unwrap();
        let mut programs = Programs::default();
        for operation in [
            Operation::Create { path: Path::new("harmed"), mode: 0o644, slot: 0 },
            Operation::Write { slot: 0, offset: 0, length: LENGTH, version: 1 },
        ] {
            let outcome = programs.perform(&client, &operation).await;
            assert!(!matches!(outcome, Outcome::Failed(_)), "{outcome}");
        }
        let stat = Operation::Stat { path: Path::new("harmed") };
        let Outcome::Shown(shown) = programs.perform(&client, &stat).await else {
            panic!("it is not there")
        };
        machine.stop(End::Killed, Duration::ZERO);
        harm(&machine, shown.file, Harm::Lose);
        let client = machine.start().await.unwrap();
        save(&client, "sound", 2).await;
        room.clock.sleep(Duration::from_secs(300)).await;
        let pending = client.status().pending;
        assert_eq!((client.status().damage, pending.updates), (vec![], 1), "{pending:?}");
        let containers = machine.disk.containers("files");
        let key = Key { file: shown.file, generation: 0 };
        containers.open(key, false).unwrap().unwrap().lose(AT as u64, 1, false);
        room.clock.sleep(Duration::from_secs(60)).await;
        check::settled(room, std::slice::from_ref(&machine), true).await.unwrap();
        assert_eq!(read(&client, "harmed").await, Outcome::Bytes(stretch(1, LENGTH)));
        assert_eq!(read(&client, "sound").await, Outcome::Bytes(stretch(2, LENGTH)));
        check::all_agree(room, &origin, std::slice::from_ref(&machine)).await.unwrap();
        machine.stop(End::Killed, Duration::ZERO);
    });
}

/// It knows how the container was cut, and what was written since: nothing.
#[test]
fn of_a_large_file_that_is_open_too_the_rest_is_stored_once_and_told_of_once() {
    const LARGE: usize = 2_500_000;
    simulated(async |room| {
        let origin = OriginMachine::start(room, Limits::simulated()).unwrap();
        let held = WantedMode::Fixed(Mode::FetchOnly);
        let mut machine = ClientMachine::invited(room, &origin, 0, Conditions::NEAR, held);
        let client = machine.start().await.unwrap();
        let mut programs = Programs::default();
        for operation in [
            Operation::Create { path: Path::new("large"), mode: 0o644, slot: 0 },
            Operation::Write { slot: 0, offset: 0, length: LARGE, version: 1 },
            Operation::Sync { slot: 0 },
        ] {
            let outcome = programs.perform(&client, &operation).await;
            assert!(!matches!(outcome, Outcome::Failed(_)), "{outcome}");
        }
        save(&client, "sound", 2).await;
        let stat = Operation::Stat { path: Path::new("large") };
        let Outcome::Shown(shown) = programs.perform(&client, &stat).await else {
            panic!("it is not there")
        };
        let mut left = stretch(1, LARGE);
        left[LOST].fill(0);
        let containers = machine.disk.containers("files");
        let key = Key { file: shown.file, generation: 0 };
        containers.open(key, false).unwrap().unwrap().lose(AT as u64, 1, true);
        client.set_mode(WantedMode::Fixed(Mode::Partial));
        room.clock.sleep(Duration::from_secs(400)).await;
        let status = client.status();
        assert_eq!(status.damage.len(), 1, "{:?}", status.damage);
        assert_eq!(status.pending.updates, 0, "{:?}", status.pending);
        assert!(read(&client, "large").await == Outcome::Bytes(left.clone()), "what is left");
        assert_eq!(read(&client, "sound").await, Outcome::Bytes(stretch(2, LENGTH)));
        programs.perform(&client, &Operation::Close { slot: 0 }).await;
        check::settled(room, std::slice::from_ref(&machine), true).await.unwrap();
        let mut other =
            ClientMachine::new(room, 1, origin.invite().unwrap(), Conditions::NEAR, held);
        let theirs = other.start().await.unwrap();
        assert!(read(&theirs, "large").await == Outcome::Bytes(left), "what others see");
        other.stop(End::Killed, Duration::ZERO);
        machine.stop(End::Killed, Duration::ZERO);
    });
}
