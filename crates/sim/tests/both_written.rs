//! A file that is written to here while another machine stores a new version of it, which is opened
//! here beside, too: what was written to either is there after a kill.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::{OpenFlags, WantedMode};
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
use store::Containers;

const PARTIAL: WantedMode = WantedMode::Fixed(Mode::Partial);
const LENGTH: usize = 3_000;
/// What is written to the older version is longer.
const OLDER_LENGTH: usize = 4_000;
const WRITES: OpenFlags = OpenFlags { read: true, write: true, truncate: false, append: false };
/// Long enough for the tables to be on the disk.
const CHECKPOINT: Duration = Duration::from_secs(7);
/// What may serve as a base for a while bears such a generation.
const KEPT_ASIDE: u32 = 1 << 31;
/// What each of them writes.
const FIRST: u64 = 1;
const OTHERS: u64 = 2;
const OLDER: u64 = 3;
const NEWER: u64 = 4;

/// What is done with the two versions here, by the slot of each.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Done {
    Write(usize),
    Close(usize),
    /// By somebody who finds it by its name.
    Read,
}

const OLD: usize = 0;
const NEW: usize = 1;

fn path() -> Path {
    Path::new("f")
}

fn open(slot: usize, flags: OpenFlags) -> Operation {
    Operation::Open { path: path(), slot, flags }
}

fn write(slot: usize, version: u64) -> Operation {
    let length = if version == OLDER { OLDER_LENGTH } else { LENGTH };
    Operation::Write { slot, offset: 0, length, version }
}

fn read(slot: usize) -> Operation {
    Operation::Read { slot, offset: 0, length: LENGTH }
}

async fn all(programs: &mut Programs, client: &SimClient, operations: &[Operation]) {
    for operation in operations {
        let outcome = programs.perform(client, operation).await;
        assert!(!matches!(outcome, Outcome::Failed(_)), "{operation}: {outcome}");
    }
}

/// How many files have these contents, under whatever names.
fn holding(tree: &Tree, bytes: &[u8]) -> usize {
    let holds = |leaf: &&Leaf| leaf.contents.as_ref().is_some_and(|held| **held == bytes);
    tree.0.values().filter(holds).count()
}

async fn check(room: &Room, done: &[Done], (cut, late): (bool, bool), killed: bool) {
    let origin = OriginMachine::start(room, Limits::simulated()).unwrap();
    let machine = |number| ClientMachine::invited(room, &origin, number, Conditions::NEAR, PARTIAL);
    let (mut ada, mut bob) = (machine(0), machine(1));
    let client = ada.start().await.unwrap();
    let mut others = Programs::default();
    let create = Operation::Create { path: path(), mode: 0o644, slot: 0 };
    all(&mut others, &client, &[create, write(0, FIRST), Operation::Close { slot: 0 }]).await;
    check::settled(room, std::slice::from_ref(&ada), true).await.unwrap();

    let here = bob.start().await.unwrap();
    let mut programs = Programs::default();
    all(&mut programs, &here, &[open(OLD, WRITES), read(OLD)]).await;
    all(&mut others, &client, &[open(0, WRITES), write(0, OTHERS), Operation::Close { slot: 0 }])
        .await;
    room.clock.sleep(CHECKPOINT).await;
    all(&mut programs, &here, &[open(NEW, WRITES)]).await;
    let found = programs.perform(&here, &read(NEW)).await;
    assert_eq!(found, Outcome::Bytes(stretch(OTHERS, LENGTH)), "it is another version");
    if cut {
        room.network.cut(bob.line, Duration::ZERO);
    }
    for done in done {
        let operation = match *done {
            Done::Write(OLD) => write(OLD, OLDER),
            Done::Write(slot) => write(slot, NEWER),
            Done::Close(slot) => Operation::Close { slot },
            Done::Read => Operation::Fetch { path: path() },
        };
        all(&mut programs, &here, &[operation]).await;
        if late {
            room.clock.sleep(CHECKPOINT).await;
        }
    }
    if killed {
        bob.stop(End::Killed, Duration::ZERO);
        bob.start().await.unwrap();
    } else {
        let left = [OLD, NEW].into_iter().filter(|slot| !done.contains(&Done::Close(*slot)));
        let closes: Vec<Operation> = left.map(|slot| Operation::Close { slot }).collect();
        all(&mut programs, &here, &closes).await;
    }
    room.network.restore(bob.line);
    let machines = [ada, bob];
    check::settled(room, &machines, true).await.unwrap();
    let tree = check::origin_tree(&origin).await.unwrap();
    for (slot, version, length) in [(OLD, OLDER, OLDER_LENGTH), (NEW, NEWER, LENGTH)] {
        let found = holding(&tree, &stretch(version, length));
        let written = usize::from(done.contains(&Done::Write(slot)));
        assert_eq!(
            found, written,
            "{done:?}, cut {cut}, late {late}, killed {killed}: written to {slot}"
        );
    }
    room.network.close();
}

/// Each with the link and without, and with the tables on the disk and behind.
fn check_all(done: &[Done], killed: bool) {
    for how in [(false, false), (false, true), (true, false), (true, true)] {
        sim::run::paused(async { check(&Room::new(1, false), done, how, killed).await });
    }
}

const BOTH: [[usize; 2]; 2] = [[OLD, NEW], [NEW, OLD]];

#[test]
fn what_was_written_to_two_versions_at_once_is_all_there_when_both_are_closed() {
    for written in BOTH {
        check_all(&written.map(Done::Write), false);
    }
}

#[test]
fn what_was_written_to_two_versions_at_once_is_all_there_after_a_kill() {
    check_all(&[Done::Write(OLD)], true);
    for written in BOTH {
        check_all(&written.map(Done::Write), true);
        check_all(&[written[0], written[1], written[0]].map(Done::Write), true);
    }
}

#[test]
fn what_was_written_to_one_version_is_there_after_a_kill_though_another_one_was_closed() {
    for written in BOTH {
        for closed in BOTH {
            let both = written.map(Done::Write);
            let [first, last] = closed.map(Done::Close);
            check_all(&[both[0], both[1], first], true);
            check_all(&[both[0], both[1], first, last], true);
        }
    }
}

#[test]
fn what_was_stored_through_either_is_found_by_its_name_and_takes_nothing_along() {
    use Done::{Close, Read, Write};
    for killed in [false, true] {
        check_all(&[Write(OLD), Close(OLD), Read], killed);
        check_all(&[Write(OLD), Close(OLD), Read, Close(NEW), Read], killed);
        for [first, last] in BOTH {
            for written in BOTH {
                let [one, other] = written.map(Write);
                check_all(&[one, other, Close(first), Read, Close(last), Read], killed);
                check_all(&[one, other, Close(first), Close(last), Read], killed);
            }
        }
    }
}

#[test]
fn what_was_not_written_to_is_not_stored_beside_what_was() {
    check_all(&[Done::Write(NEW), Done::Close(OLD)], true);
}

#[test]
fn what_was_written_to_the_older_version_is_there_though_the_newer_one_came_before_it_was_sent() {
    sim::run::paused(async {
        let room = Room::new(2, false);
        let origin = OriginMachine::start(&room, Limits::simulated()).unwrap();
        let (near, mode) = (Conditions::NEAR, PARTIAL);
        let machine = |number| ClientMachine::invited(&room, &origin, number, near, mode);
        let (mut ada, mut bob) = (machine(0), machine(1));
        let client = ada.start().await.unwrap();
        let close = Operation::Close { slot: OLD };
        let mut others = Programs::default();
        let create = Operation::Create { path: path(), mode: 0o644, slot: OLD };
        all(&mut others, &client, &[create, write(OLD, FIRST), close.clone()]).await;
        check::settled(&room, std::slice::from_ref(&ada), true).await.unwrap();
        let here = bob.start().await.unwrap();
        let mut programs = Programs::default();
        all(&mut programs, &here, &[open(OLD, WRITES), read(OLD)]).await;
        all(&mut others, &client, &[open(OLD, WRITES), write(OLD, OTHERS), close.clone()]).await;
        room.clock.sleep(CHECKPOINT).await;
        all(&mut programs, &here, &[open(NEW, WRITES)]).await;
        // Nothing is sent, and all can be fetched.
        here.set_mode(WantedMode::Fixed(Mode::FetchOnly));
        all(&mut programs, &here, &[write(OLD, OLDER), close]).await;
        let found = programs.perform(&here, &read(NEW)).await;
        assert_eq!(found, Outcome::Bytes(stretch(OTHERS, LENGTH)));
        all(&mut programs, &here, &[Operation::Close { slot: NEW }]).await;
        here.set_mode(PARTIAL);
        check::settled(&room, &[ada, bob], true).await.unwrap();
        let tree = check::origin_tree(&origin).await.unwrap();
        assert_eq!(holding(&tree, &stretch(OLDER, OLDER_LENGTH)), 1);
        assert_eq!(holding(&tree, &stretch(OTHERS, LENGTH)), 1);
        room.network.close();
    });
}

/// Too much to be fetched as a whole.
const LARGE: usize = 5 << 18;

/// What a machine shows, also of files that do not come with one answer.
async fn tree_of(machine: &ClientMachine) -> Tree {
    sim::tree::of_client(machine.client().unwrap(), &Path(Vec::new())).await.unwrap()
}

/// Ada stores two versions of a large file, of which Bob has the first open, and a bit of it.
async fn begin_large(room: &Room, ada: &mut ClientMachine, bob: &mut ClientMachine) -> Programs {
    let client = ada.start().await.unwrap();
    let mut others = Programs::default();
    let create = Operation::Create { path: path(), mode: 0o644, slot: OLD };
    let large = |version| Operation::Write { slot: OLD, offset: 0, length: LARGE, version };
    let close = Operation::Close { slot: OLD };
    all(&mut others, &client, &[create, large(FIRST), close.clone()]).await;
    check::settled(room, std::slice::from_ref(ada), true).await.unwrap();
    let here = bob.start().await.unwrap();
    let mut programs = Programs::default();
    all(&mut programs, &here, &[open(OLD, WRITES), read(OLD)]).await;
    all(&mut others, &client, &[open(OLD, WRITES), large(OTHERS), close]).await;
    room.clock.sleep(CHECKPOINT).await;
    programs
}

#[test]
fn what_is_read_of_an_older_version_that_is_open_leaves_alone_what_is_pending_of_a_newer_one() {
    for killed in [false, true] {
        sim::run::paused(async {
            let room = Room::new(3, false);
            let origin = OriginMachine::start(&room, Limits::simulated()).unwrap();
            let (near, mode) = (Conditions::NEAR, PARTIAL);
            let machine = |number| ClientMachine::invited(&room, &origin, number, near, mode);
            let (mut ada, mut bob) = (machine(0), machine(1));
            let mut programs = begin_large(&room, &mut ada, &mut bob).await;
            let here = bob.client().unwrap().clone();
            // Nothing is sent, and all can be fetched.
            here.set_mode(WantedMode::Fixed(Mode::FetchOnly));
            let large = Operation::Write { slot: NEW, offset: 0, length: LARGE, version: NEWER };
            all(&mut programs, &here, &[open(NEW, WRITES), large, Operation::Close { slot: NEW }])
                .await;
            let (offset, length) = (LARGE as u64 - 1_000, 1_000);
            let found =
                programs.perform(&here, &Operation::Read { slot: OLD, offset, length }).await;
            assert!(found == Outcome::Bytes(stretch(FIRST, LARGE)[LARGE - 1_000..].to_vec()));
            if !killed {
                let found = programs.perform(&here, &Operation::Fetch { path: path() }).await;
                assert!(found == Outcome::Bytes(stretch(NEWER, LARGE)), "it is what was written");
                all(&mut programs, &here, &[Operation::Close { slot: OLD }]).await;
            } else {
                bob.stop(End::Killed, Duration::ZERO);
                bob.start().await.unwrap();
            }
            bob.client().unwrap().set_mode(PARTIAL);
            let machines = [ada, bob];
            check::settled(&room, &machines, true).await.unwrap();
            let tree = tree_of(&machines[0]).await;
            assert_eq!(holding(&tree, &stretch(NEWER, LARGE)), 1, "killed {killed}");
            let keys = machines[1].disk.containers("files").keys().unwrap();
            let versions: Vec<_> = keys.iter().filter(|key| key.generation < KEPT_ASIDE).collect();
            // After a kill it goes with the next start.
            assert!(killed || versions.len() == 1, "what is older goes: {versions:?}");
            room.network.close();
        });
    }
}
