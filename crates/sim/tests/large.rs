//! A large file that stays open, is written to here and there, and is synced again and again: what
//! is stored each time is what was written, though hardly any of it is read for that.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::{Allocate, WantedMode};
use protocol::Mode;
use sim::contents::stretch;
use sim::machine::{ClientMachine, OriginMachine, Room};
use sim::network::Conditions;
use sim::operation::{Operation, Outcome, Path};
use sim::perform::Programs;
use world::Entropy;

const LENGTH: usize = 3 << 20;
const ROUNDS: usize = 12;

/// What a program does to the file, and what becomes of `bytes` by it.
fn draw(chance: &Entropy, version: u64, bytes: &mut Vec<u8>) -> Operation {
    let place = |chance: &Entropy, bytes: &[u8]| chance.below(bytes.len() as u64 + 1);
    let slot = 0;
    match chance.below(10) {
        0 => {
            let size = LENGTH as u64 / 2 + chance.below(LENGTH as u64);
            bytes.resize(size as usize, 0);
            Operation::Truncate { slot, size }
        }
        1 => {
            let (offset, length) = (place(chance, bytes), 1 + chance.below(300_000));
            let end = (offset + length) as usize;
            bytes.resize(bytes.len().max(end), 0);
            bytes[offset as usize..end].fill(0);
            Operation::Allocate { slot, offset, length, how: Allocate::Zero }
        }
        2 => {
            let length = 1 + chance.below(50_000) as usize;
            // A hole behind the end, now and then.
            let offset = bytes.len() as u64 + chance.below(2) * chance.below(200_000);
            bytes.resize(offset as usize, 0);
            bytes.extend(stretch(version, length));
            Operation::Write { slot, offset, length, version }
        }
        _ => {
            let (offset, length) = (place(chance, bytes), 1 + chance.below(9_000) as usize);
            let end = offset as usize + length;
            bytes.resize(bytes.len().max(end), 0);
            bytes[offset as usize..end].copy_from_slice(&stretch(version, length));
            Operation::Write { slot, offset, length, version }
        }
    }
}

async fn scene(seed: u64) {
    let room = Room::new(seed, false);
    let origin = OriginMachine::start(&room, replica::Limits::simulated()).unwrap();
    let connected = WantedMode::Fixed(Mode::Connected);
    let near = Conditions::NEAR;
    let mut machines =
        [0, 1].map(|number| ClientMachine::invited(&room, &origin, number, near, connected));
    let writer = machines[0].start().await.unwrap();
    let reader = machines[1].start().await.unwrap();
    let (mut writing, mut reading) = (Programs::default(), Programs::default());
    let path = || Path::new("image");
    let mut bytes = stretch(1, LENGTH);
    let write = Operation::Write { slot: 0, offset: 0, length: LENGTH, version: 1 };
    let mut version = 1;
    let mut due = vec![Operation::Create { path: path(), mode: 0o644, slot: 0 }, write];
    for _ in 0..ROUNDS {
        due.push(Operation::Sync { slot: 0 });
        writing.perform_all(&writer, due.drain(..)).await;
        let found = reading.perform(&reader, &Operation::Fetch { path: path() }).await;
        let Outcome::Bytes(found) = found else { panic!("seed {seed}: {found}") };
        assert!(found == bytes, "seed {seed}: another file was stored than was written");
        for _ in 0..=room.chance.below(4) {
            version += 1;
            due.push(draw(&room.chance, version, &mut bytes));
        }
    }
    assert!(writer.status().damage.is_empty());
    room.network.close();
}

#[test]
fn what_is_stored_of_a_file_that_stays_open_is_what_was_written() {
    for seed in 1..=3 {
        sim::run::paused(scene(seed));
    }
}
