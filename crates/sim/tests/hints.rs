//! What a client only believes of chunks: it has a bound, however much was written and however often
//! the machine was started again, and without any of it all goes on.
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
use store::{Durability, Tables};

const HOME: &str = "client-home";
const HERE: &str = "chunk-index";
const INSIDE: &str = "inside-index";
const CUT: OpenFlags = OpenFlags { read: true, write: true, truncate: true, append: false };
const FILES: u64 = 4;
const LENGTH: usize = 300_000;
/// Rows of each kind that much traffic has left behind.
const LEFT_BEHIND: u32 = 40_000;
/// There may be so many for a cache in which next to nothing is.
const BOUND: usize = 20_000;
const ROUNDS: u64 = 2;

struct Scene {
    room: Room,
    _origin: OriginMachine,
    machine: ClientMachine,
}

impl Scene {
    async fn new() -> Scene {
        let room = Room::new(1, false);
        let origin = OriginMachine::start(&room, Limits::simulated()).unwrap();
        let mode = WantedMode::Fixed(Mode::Partial);
        let mut machine = ClientMachine::invited(&room, &origin, 0, Conditions::NEAR, mode);
        machine.start().await.unwrap();
        Scene { room, _origin: origin, machine }
    }

    fn rows(&self, table: &'static str) -> usize {
        let tables = self.machine.disk.tables("client");
        let read = tables.read().unwrap();
        read.scan(table, &[], &[0xff; 64], usize::MAX).unwrap().len()
    }

    /// Writes the same files over and over.
    async fn overwrite(&self, round: u64) {
        let client = self.machine.client().unwrap().clone();
        let mut programs = Programs::default();
        for file in 0..FILES {
            let path = Path::new(&format!("file{file}"));
            let open = match round {
                0 => Operation::Create { path, mode: 0o644, slot: 0 },
                _ => Operation::Open { path, slot: 0, flags: CUT },
            };
            let version = round * FILES + file;
            let write = Operation::Write { slot: 0, offset: 0, length: LENGTH, version };
            programs.perform_all(&client, [open, write, Operation::Close { slot: 0 }]).await;
        }
    }

    async fn is(&self, round: u64) {
        check::settled(&self.room, std::slice::from_ref(&self.machine), true).await.unwrap();
        let client = self.machine.client().unwrap().clone();
        for file in 0..FILES {
            let fetch = Operation::Fetch { path: Path::new(&format!("file{file}")) };
            let Outcome::Bytes(bytes) = Programs::default().perform(&client, &fetch).await else {
                panic!("it cannot be read");
            };
            assert!(bytes == stretch(round * FILES + file, LENGTH), "it is not what was written");
        }
    }

    /// As much other traffic leaves them.
    fn leave_behind(&self) {
        let tables = self.machine.disk.tables("client");
        let mut write = tables.write().unwrap();
        // A place in a container that is here, where other bytes are by now.
        let all = write.scan(HERE, &[], &[0xff; 64], usize::MAX).unwrap();
        let place = all.last().unwrap().1.clone();
        for number in 0..LEFT_BEHIND {
            let mut name = [9; 24];
            // Names are evenly spread.
            name[..4].copy_from_slice(&number.wrapping_mul(0x9e37_79b1).to_be_bytes());
            write.put(HOME, &name, &[]).unwrap();
            write.put(HERE, &name, &place).unwrap();
            write.put(INSIDE, &name, &[0; 48]).unwrap();
        }
        write.commit(Durability::Later).unwrap();
    }
}

#[test]
fn what_is_believed_of_chunks_has_a_bound_whatever_was_written() {
    sim::run::paused(async {
        let mut scene = Scene::new().await;
        for round in 0..ROUNDS {
            scene.overwrite(round).await;
            scene.is(round).await;
            scene.leave_behind();
            // Even if it is never up for long.
            for _ in 0..2 {
                scene.room.clock.sleep(Duration::from_secs(12)).await;
                scene.machine.stop(End::Killed, Duration::ZERO);
                scene.machine.start().await.unwrap();
            }
            scene.room.clock.sleep(Duration::from_secs(12)).await;
            for table in [HOME, HERE] {
                let rows = scene.rows(table);
                assert!(rows < BOUND, "{rows} rows of {table} in round {round}");
            }
            assert_eq!(scene.rows(INSIDE), 0, "no such version is here");
        }
        scene.is(ROUNDS - 1).await;
        check::nothing_broke(&scene.room, std::slice::from_ref(&scene.machine)).unwrap();
    });
}
