//! A read of a client's tables that fails once, whichever it is: what was acknowledged is not lost by it,
//! nor does anything show for good that is not so. And a file that is written to just as it is looked up
//! how to send it.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::{Caller, OpenFlags, WantedMode};
use model::{FileId, Name};
use protocol::Mode;
use replica::Limits;
use sim::check;
use sim::contents::stretch;
use sim::machine::{ClientMachine, End, OriginMachine, Room, SimClient};
use sim::network::Conditions;
use sim::operation::{Operation, Outcome, Path};
use sim::perform::Programs;
use sim::tree::Tree;
use std::time::Duration;

const CALLER: Caller = Caller { uid: 0, gid: 0 };
const LENGTH: usize = 3_000;
const WRITES: OpenFlags = OpenFlags { read: true, write: true, truncate: false, append: false };
const SOON: Duration = Duration::from_secs(7);
/// After a failure it is tried again within this.
const AGAIN: Duration = Duration::from_secs(40);
const FIRST: u64 = 1;
const SECOND: u64 = 2;
const THIRD: u64 = 3;
const OTHERS: u64 = 4;
/// More reads than what is done here takes.
const READS_MAX: u64 = 2_000;

/// When the read fails.
#[derive(Clone, Copy, Debug, PartialEq)]
enum When {
    /// While a program writes once more to what is pending.
    Written,
    /// While it is sent, and judged.
    Sent,
}

fn open(path: &str) -> Operation {
    Operation::Open { path: Path::new(path), slot: 0, flags: WRITES }
}

fn write(version: u64) -> Operation {
    Operation::Write { slot: 0, offset: 0, length: LENGTH, version }
}

const CLOSE: Operation = Operation::Close { slot: 0 };

fn create(path: &str) -> Operation {
    Operation::Create { path: Path::new(path), mode: 0o644, slot: 0 }
}

async fn all(programs: &mut Programs, client: &SimClient, operations: &[Operation]) {
    for operation in operations {
        let outcome = programs.perform(client, operation).await;
        assert!(!matches!(outcome, Outcome::Failed(_)), "{operation}: {outcome}");
    }
}

async fn is_done(programs: &mut Programs, client: &SimClient, operation: &Operation) -> bool {
    !matches!(programs.perform(client, operation).await, Outcome::Failed(_))
}

async fn fetched(programs: &mut Programs, client: &SimClient, path: &str) -> Outcome {
    programs.perform(client, &Operation::Fetch { path: Path::new(path) }).await
}

fn machines(room: &Room, origin: &OriginMachine) -> [ClientMachine; 2] {
    let mode = WantedMode::Fixed(Mode::Partial);
    [0, 1].map(|number| ClientMachine::invited(room, origin, number, Conditions::NEAR, mode))
}

fn held(tree: &Tree, path: &str) -> Option<Vec<u8>> {
    let leaf = tree.0.get(&Path::new(path))?;
    leaf.contents.as_ref().map(|contents| contents.to_vec())
}

/// False: there are no so many reads.
async fn fails(reads: u64, when: When) -> bool {
    let room = Room::new(1, false);
    let origin = OriginMachine::start(&room, Limits::simulated()).unwrap();
    let [mut ada, mut bob] = machines(&room, &origin);
    let (there, here) = (ada.start().await.unwrap(), bob.start().await.unwrap());
    let (mut others, mut ours) = (Programs::default(), Programs::default());
    all(&mut ours, &here, &[create("f"), write(FIRST), CLOSE]).await;
    check::settled(&room, std::slice::from_ref(&bob), true).await.unwrap();
    room.network.cut(bob.line, Duration::ZERO);
    room.clock.sleep(SOON).await;
    all(&mut ours, &here, &[create("g"), CLOSE, open("f"), write(SECOND), CLOSE]).await;
    room.clock.sleep(SOON).await;

    let fault = bob.read_fault.clone();
    let mut is_third = false;
    if when == When::Written {
        fault.after(reads);
        if is_done(&mut ours, &here, &open("f")).await {
            let is_written = is_done(&mut ours, &here, &write(THIRD)).await;
            is_third = is_done(&mut ours, &here, &CLOSE).await && is_written;
        }
    } else {
        fault.after(reads);
        room.network.restore(bob.line);
        room.clock.sleep(SOON).await;
    }
    let has_failed = fault.end();
    room.network.restore(bob.line);
    room.clock.sleep(AGAIN).await;
    let machines = [ada, bob];
    check::settled(&room, &machines, true).await.unwrap();
    let found = held(&check::origin_tree(&origin).await.unwrap(), "f");
    let acknowledged = if is_third { THIRD } else { SECOND };
    let may_be = [acknowledged, THIRD].map(|version| Some(stretch(version, LENGTH)));
    assert!(
        may_be.contains(&found) && (found == may_be[0] || when == When::Written),
        "{when:?}, {reads} reads: {:?}",
        found.map(|found| found.len())
    );

    // What another device does is seen.
    all(&mut others, &there, &[open("f"), write(OTHERS), CLOSE]).await;
    let unlink = Operation::Unlink { path: Path::new("g") };
    all(&mut others, &there, &[unlink, create("h"), CLOSE]).await;
    room.clock.sleep(SOON).await;
    let found = fetched(&mut ours, &here, "f").await;
    assert_eq!(found, Outcome::Bytes(stretch(OTHERS, LENGTH)), "{when:?}, {reads} reads");
    let is_gone = matches!(fetched(&mut ours, &here, "g").await, Outcome::Failed(_));
    let is_there = fetched(&mut ours, &here, "h").await == Outcome::Bytes(Vec::new());
    assert!(is_gone && is_there, "{when:?}, {reads} reads: {is_gone} {is_there}");
    check::nothing_broke(&room, &machines).unwrap();
    room.network.close();
    has_failed
}

fn whichever_fails(when: When) {
    for reads in 0..READS_MAX {
        let mut has_failed = false;
        sim::run::paused(async {
            has_failed = fails(reads, when).await;
        });
        if !has_failed {
            assert!(reads > 20, "{reads}");
            return;
        }
    }
    panic!("there are more reads");
}

#[test]
fn what_is_pending_is_not_lost_where_it_is_written_to_again_and_a_read_fails() {
    whichever_fails(When::Written);
}

#[test]
fn what_was_judged_does_not_show_for_good_where_a_read_failed_then() {
    whichever_fails(When::Sent);
}

#[test]
fn what_is_appended_to_a_file_just_as_it_is_sent_after_a_restart_is_not_cut_off() {
    sim::run::paused(async {
        let room = Room::new(1, false);
        let origin = OriginMachine::start(&room, Limits::simulated()).unwrap();
        let [_, mut bob] = machines(&room, &origin);
        let (here, mut ours) = (bob.start().await.unwrap(), Programs::default());
        all(&mut ours, &here, &[create("f"), CLOSE]).await;
        check::settled(&room, std::slice::from_ref(&bob), true).await.unwrap();
        room.network.cut(bob.line, Duration::ZERO);
        room.clock.sleep(SOON).await;
        all(&mut ours, &here, &[open("f"), write(FIRST), CLOSE]).await;
        bob.stop(End::Killed, Duration::ZERO);
        let here = bob.start().await.unwrap();
        let name = Name::new("f").unwrap();
        let file = here.lookup(FileId::ROOT, &name).unwrap().unwrap().file;
        let handle = here.open_file(CALLER, file, WRITES).unwrap().value.handle;
        let (client, more) = (here.clone(), stretch(SECOND, LENGTH));
        bob.read_fault.meanwhile("client-presence", move || {
            client.write(handle, LENGTH as u64, &more).unwrap();
        });
        room.network.restore(bob.line);
        room.clock.sleep(SOON).await;
        assert!(bob.read_fault.has_been_done(), "it was looked up");
        here.flush(CALLER, handle).unwrap();
        here.release(handle);
        let machines = [bob];
        check::settled(&room, &machines, true).await.unwrap();
        let found = held(&check::origin_tree(&origin).await.unwrap(), "f").unwrap();
        let written = [stretch(FIRST, LENGTH), stretch(SECOND, LENGTH)].concat();
        assert_eq!(found.len(), written.len());
        assert!(found == written);
        room.network.close();
    });
}
