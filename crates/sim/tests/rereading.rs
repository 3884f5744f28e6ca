//! A large file is read again and again while somebody else changes a few bytes of it: each time what
//! is new is sent and fetched, and of the recipe no more than that.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::{OpenFlags, WantedMode};
use protocol::Mode;
use sim::contents::stretch;
use sim::machine::{ClientMachine, OriginMachine, Room};
use sim::network::Conditions;
use sim::operation::{Operation, Outcome, Path};
use sim::perform::Programs;

/// Its recipe has some 40 kB.
const LENGTH: usize = 12 << 20;
/// Of each of two places: its chunk of some 8 KiB, the recipe chunk above it, and messages.
const FEW_BYTES: u64 = 2 * (14 << 10) + 6_000;
/// The two recipe chunks, the one above them, and deltas of two bytes.
const FEW_SENT_BYTES: u64 = 5_500;
const LINE: Conditions = Conditions { bytes_a_second: Some(187_500), ..Conditions::NEAR };

fn path() -> Path {
    Path::new("image")
}

/// `by_turns`: who changes the file is the one who read it last.
async fn scene(by_turns: bool) {
    let room = Room::new(5, false);
    let origin = OriginMachine::start(&room, replica::Limits::simulated()).unwrap();
    let connected = WantedMode::Fixed(Mode::Connected);
    let mut machines =
        [0, 1].map(|number| ClientMachine::invited(&room, &origin, number, LINE, connected));
    let mut clients = Vec::new();
    for machine in &mut machines {
        clients.push(machine.start().await.unwrap());
    }
    let mut programs = [Programs::default(), Programs::default()];
    let mut bytes = stretch(1, LENGTH);
    let write = Operation::Write { slot: 0, offset: 0, length: LENGTH, version: 1 };
    let create = Operation::Create { path: path(), mode: 0o644, slot: 0 };
    let mut due = vec![create, write, Operation::Close { slot: 0 }];
    let mut writer = 0;
    for round in 0..4_u64 {
        let sent = room.network.traffic(machines[writer].line).sent.iter().sum::<u64>();
        programs[writer].perform_all(&clients[writer], due.drain(..)).await;
        let sent = room.network.traffic(machines[writer].line).sent.iter().sum::<u64>() - sent;
        assert!(round == 0 || sent < FEW_SENT_BYTES, "round {round}: {sent} bytes sent for two");
        let reader = 1 - writer;
        let received = || room.network.traffic(machines[reader].line).received.iter().sum::<u64>();
        let before = received();
        let found =
            programs[reader].perform(&clients[reader], &Operation::Fetch { path: path() }).await;
        let Outcome::Bytes(found) = found else { panic!("{found}") };
        assert!(found == bytes, "round {round}: other contents");
        let cost = received() - before;
        let first = round == 0;
        assert!(first || cost < FEW_BYTES, "round {round}: {cost} bytes for two that changed");
        if by_turns {
            writer = reader;
        }
        let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
        due.push(Operation::Open { path: path(), slot: 0, flags });
        for (place, version) in [(1_000_003, 2 + 2 * round), (6_000_011, 3 + 2 * round)] {
            let offset = place + 100_000 * round;
            let at = offset as usize;
            bytes[at..at + 2].copy_from_slice(&stretch(version, 2));
            due.push(Operation::Write { slot: 0, offset, length: 2, version });
        }
        due.push(Operation::Close { slot: 0 });
    }
    room.network.close();
}

#[test]
fn who_reads_a_large_file_again_fetches_what_is_new_in_it() {
    sim::run::paused(scene(false));
}

#[test]
fn who_wrote_a_large_file_and_reads_it_again_fetches_what_is_new_in_it() {
    sim::run::paused(scene(true));
}
