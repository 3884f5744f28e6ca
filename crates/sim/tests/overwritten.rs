//! A file of which little or nothing is in the cache is opened to be written anew, and the process
//! dies in the midst of that.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::{OpenFlags, WantedMode};
use protocol::Mode;
use replica::Limits;
use sim::check;
use sim::contents::stretch;
use sim::machine::{ClientMachine, End, OriginMachine, Room};
use sim::network::Conditions;
use sim::operation::{Operation, Outcome, Path};
use sim::perform::Programs;
use std::time::Duration;

const PARTIAL: WantedMode = WantedMode::Fixed(Mode::Partial);
/// Writes to the disk that the process lives to see.
const WRITES: std::ops::Range<u64> = 0..24;
const READ: OpenFlags = OpenFlags { read: true, write: false, truncate: false, append: false };
const ANEW: OpenFlags = OpenFlags { read: false, write: true, truncate: true, append: false };
const CLOSE: Operation = Operation::Close { slot: 0 };
/// Long enough for the tables to be on the disk.
const CHECKPOINT: Duration = Duration::from_secs(7);

fn path() -> Path {
    Path::new("f")
}

fn open(flags: OpenFlags) -> Operation {
    Operation::Open { path: path(), slot: 0, flags }
}

/// `read`: so much of it is in the cache. Says whether the process died.
async fn check(room: &Room, (length, read): (usize, usize), writes: u64, how: End) -> bool {
    let origin = OriginMachine::start(room, Limits::simulated()).unwrap();
    let machine = |number| ClientMachine::invited(room, &origin, number, Conditions::NEAR, PARTIAL);
    let (mut ada, mut bob) = (machine(0), machine(1));
    bob.whole_bytes_max = Some(0);
    let mut programs = Programs::default();
    let client = ada.start().await.unwrap();
    let create = Operation::Create { path: path(), mode: 0o644, slot: 0 };
    let write = Operation::Write { slot: 0, offset: 0, length, version: 1 };
    for operation in [create, write, CLOSE] {
        let outcome = programs.perform(&client, &operation).await;
        assert!(!matches!(outcome, Outcome::Failed(_)), "{operation}: {outcome}");
    }
    check::settled(room, std::slice::from_ref(&ada), true).await.unwrap();
    let client = bob.start().await.unwrap();
    let some = Operation::Read { slot: 0, offset: 0, length: read };
    for operation in [open(READ), some, CLOSE].into_iter().take(if read > 0 { 3 } else { 0 }) {
        let outcome = programs.perform(&client, &operation).await;
        assert!(!matches!(outcome, Outcome::Failed(_)), "{operation}: {outcome}");
    }
    assert!(matches!(
        programs.perform(&client, &Operation::Stat { path: path() }).await,
        Outcome::Shown(_)
    ));
    room.clock.sleep(CHECKPOINT).await;
    bob.disk.crash_after(writes);
    let _ = programs.perform(&client, &open(ANEW)).await;
    let died = bob.has_crashed();
    bob.stop(how, Duration::ZERO);
    bob.disk.crash_after(u64::MAX);
    bob.start().await.unwrap();
    let machines = [ada, bob];
    check::settled(room, &machines, true).await.unwrap();
    let client = machines[0].client().unwrap();
    let found = Programs::default().perform(client, &Operation::Fetch { path: path() }).await;
    let (old, empty) = (Outcome::Bytes(stretch(1, length)), Outcome::Bytes(Vec::new()));
    assert!(found == old || found == empty, "{read} of {length}, {writes} writes: {found}");
    room.network.close();
    died
}

fn check_all((length, read): (usize, usize)) {
    for how in [End::Killed, End::PowerCut] {
        let mut died = 0;
        for writes in WRITES {
            died += usize::from(sim::run::paused(async {
                check(&Room::new(writes + 1, false), (length, read), writes, how).await
            }));
        }
        assert!((4..WRITES.count()).contains(&died), "it died {died} times");
    }
}

#[test]
fn a_file_that_is_not_here_is_as_it_was_or_empty_if_a_crash_comes_while_it_is_opened_anew() {
    check_all((3_000, 0));
}

#[test]
fn a_file_of_which_some_is_here_is_as_it_was_or_empty_if_a_crash_comes_while_it_is_opened_anew() {
    check_all((6_000_000, 10));
}
