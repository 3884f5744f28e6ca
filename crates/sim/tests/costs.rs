//! What a change costs in connected mode: how often a disk is waited for, and how many requests
//! are made, until the call returns.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::{Durability, OpenFlags, RenameFlag, WantedMode};
use model::Kind;
use protocol::Mode;
use replica::Limits;
use sim::machine::{ClientMachine, End, OriginMachine, Room};
use sim::network::Conditions;
use sim::operation::{Operation, Outcome, Path};
use sim::perform::Programs;
use std::time::Duration;

const LENGTH: usize = 3000;
/// How often each is done: what goes on beside it happens to fall into one of them and not into all.
const TIMES: usize = 6;
/// Long enough for a checkpoint, and for the log to be synced.
const REST: Duration = Duration::from_secs(7);

/// Syncs at the client, syncs at the origin, requests.
type Costs = (u64, u64, usize);

fn write(version: u64) -> Operation {
    Operation::Write { slot: 0, offset: 0, length: LENGTH, version }
}

/// Several operations, as one call of a program's each.
fn steps(what: &str, time: usize) -> Vec<Operation> {
    let path = Path::new(&format!("file-{time}"));
    let unpacked = Path::new(&format!("unpacked-{time}"));
    let moved = Path::new(&format!("moved-{time}"));
    let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
    let close = Operation::Close { slot: 0 };
    match what {
        "create, write, close" => {
            vec![Operation::Create { path, mode: 0o644, slot: 0 }, write(time as u64), close]
        }
        "open, write, close" => {
            vec![Operation::Open { path, slot: 0, flags }, write(100 + time as u64), close]
        }
        "create, write, set times and mode, close" => vec![
            Operation::Create { path: unpacked.clone(), mode: 0o600, slot: 0 },
            write(200 + time as u64),
            Operation::SetTime { path: unpacked.clone(), secs: 1_000_000 },
            Operation::SetMode { path: unpacked, mode: 0o644 },
            close,
        ],
        "rename" => {
            vec![Operation::Rename { from: path, to: moved, flag: RenameFlag::Replace }]
        }
        "chmod" => vec![Operation::SetMode { path: moved, mode: 0o600 }],
        "unlink" => vec![Operation::Unlink { path: moved }],
        "mkdir" => {
            let path = Path::new(&format!("dir-{time}"));
            vec![Operation::Make { path, kind: Kind::Directory, mode: 0o755, target: None }]
        }
        other => panic!("{other}"),
    }
}

/// The least that each of these costs.
fn measured(whats: &[&'static str]) -> Vec<(&'static str, Costs)> {
    sim::run::paused(async {
        let room = Room::new(1, false);
        let origin = OriginMachine::start(&room, Limits::simulated()).unwrap();
        let mode = WantedMode::Fixed(Mode::Connected);
        let invitation = origin.invite().unwrap();
        // It is known how fast the link is.
        let link = Conditions { bytes_a_second: Some(100_000_000), ..Conditions::NEAR };
        let mut machine = ClientMachine::new(&room, 0, invitation, link, mode);
        (machine.durability, machine.cache_bytes_max) = (Durability::Prompt, 1 << 30);
        let client = machine.start().await.unwrap();
        let requests = || {
            let lines = room.trace.lines();
            lines.iter().filter(|line| line.contains(" 0>origin ")).count()
        };
        let counted = || (machine.disk.syncs(), origin.disk.syncs(), requests());
        let mut found = Vec::new();
        for what in whats {
            let mut least = (u64::MAX, u64::MAX, usize::MAX);
            for time in 0..TIMES {
                room.clock.sleep(REST).await;
                let before = counted();
                let mut programs = Programs::default();
                for operation in steps(what, time) {
                    let outcome = programs.perform(&client, &operation).await;
                    assert!(!matches!(outcome, Outcome::Failed(_)), "{operation}: {outcome}");
                }
                let after = counted();
                least.0 = least.0.min(after.0 - before.0);
                least.1 = least.1.min(after.1 - before.1);
                least.2 = least.2.min(after.2 - before.2);
            }
            found.push((*what, least));
        }
        room.network.close();
        found
    })
}

#[test]
fn no_call_waits_for_this_machines_disk_nor_asks_more_than_once_for_an_update() {
    let expected: [(&str, Costs); 7] = [
        // Two updates; the chunks are on the origin's disk before the tables speak of them.
        ("create, write, close", (0, 3, 2)),
        // Attributes leave with the contents, and are in the same commit.
        ("create, write, set times and mode, close", (0, 3, 2)),
        // The log says that the container changes before the bytes of a stored version do.
        ("open, write, close", (1, 2, 1)),
        ("rename", (0, 1, 1)),
        ("chmod", (0, 1, 1)),
        ("unlink", (0, 1, 1)),
        ("mkdir", (0, 1, 1)),
    ];
    let whats: Vec<_> = expected.iter().map(|(what, _)| *what).collect();
    assert_eq!(measured(&whats), expected);
}

#[test]
fn who_is_mounted_again_asks_what_has_changed_and_nothing_else() {
    sim::run::paused(async {
        let room = Room::new(1, false);
        let origin = OriginMachine::start(&room, Limits::simulated()).unwrap();
        let partial = WantedMode::Fixed(Mode::Partial);
        let near = Conditions::NEAR;
        let mut ada = ClientMachine::invited(&room, &origin, 0, near, partial);
        let mut bob = ClientMachine::invited(&room, &origin, 1, near, partial);
        let (first, other) = (ada.start().await.unwrap(), bob.start().await.unwrap());
        let mut programs = (Programs::default(), Programs::default());
        let read = Operation::Fetch { path: Path::new("file-0") };
        for operation in steps("create, write, close", 0) {
            let outcome = programs.1.perform(&other, &operation).await;
            assert!(!matches!(outcome, Outcome::Failed(_)), "{operation}: {outcome}");
        }
        room.clock.sleep(REST).await;
        let before = programs.0.perform(&first, &read).await;
        assert!(matches!(before, Outcome::Bytes(_)), "{before}");
        room.clock.sleep(REST).await;
        ada.stop(End::Killed, Duration::from_millis(1));
        // Meanwhile somebody else changes what is cached.
        let chmod = Operation::SetMode { path: Path::new("file-0"), mode: 0o600 };
        programs.1.perform(&other, &chmod).await;
        room.clock.sleep(REST).await;
        let asked_before = room.trace.lines().len();
        let again = ada.start().await.unwrap();
        let mut programs = Programs::default();
        let look = Operation::Stat { path: Path::new("file-0") };
        let seen = programs.perform(&again, &look).await.to_string();
        assert!(seen.contains("600"), "what somebody else has changed is seen: {seen}");
        assert_eq!(programs.perform(&again, &read).await, before);
        let lines = room.trace.lines();
        let asked: Vec<_> =
            lines[asked_before..].iter().filter(|line| line.contains(" 0>origin ")).collect();
        assert!(asked.len() == 1 && asked[0].contains("Attach"), "{asked:?}");
        room.network.close();
    });
}
