//! Files of more chunks than are kept at hand: what is sent of them is what has to be, and all of it
//! arrives, whatever becomes of the index that says where the others are.
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
use std::time::Duration;
use store::{Durability, Tables};

const LENGTH: usize = 3 << 20;
/// A file of that length has some hundred.
const AT_HAND: usize = 10;
const WRITE: OpenFlags = OpenFlags { read: true, write: true, truncate: false, append: false };
const PARTIAL: WantedMode = WantedMode::Fixed(Mode::Partial);
const DISCONNECTED: WantedMode = WantedMode::Fixed(Mode::Disconnected);

fn path() -> Path {
    Path::new("image")
}

struct Scene {
    room: Room,
    _origin: OriginMachine,
    machines: Vec<ClientMachine>,
}

impl Scene {
    async fn new() -> Scene {
        let room = Room::new(1, false);
        let origin = OriginMachine::start(&room, Limits::simulated()).unwrap();
        let mut machines = Vec::new();
        for number in 0..2 {
            let mut machine =
                ClientMachine::invited(&room, &origin, number, Conditions::NEAR, PARTIAL);
            machine.plan_chunks_max = AT_HAND;
            machine.start().await.unwrap();
            machines.push(machine);
        }
        Scene { room, _origin: origin, machines }
    }

    fn client(&self, number: usize) -> SimClient {
        self.machines[number].client().unwrap().clone()
    }

    async fn all(&self, operations: &[Operation]) {
        let mut programs = Programs::default();
        programs.perform_all(&self.client(0), operations.iter().cloned()).await;
    }

    async fn make(&self) {
        let create = Operation::Create { path: path(), mode: 0o644, slot: 0 };
        let write = Operation::Write { slot: 0, offset: 0, length: LENGTH, version: 1 };
        self.all(&[create, write, Operation::Close { slot: 0 }]).await;
    }

    async fn change(&self, offset: usize, length: usize) {
        let open = Operation::Open { path: path(), slot: 0, flags: WRITE };
        let write = Operation::Write { slot: 0, offset: offset as u64, length, version: 2 };
        self.all(&[open, write, Operation::Close { slot: 0 }]).await;
    }

    /// Everything is at the origin, and whoever reads it there finds this.
    async fn is_there(&self, expected: &[u8]) {
        check::settled(&self.room, &self.machines, true).await.unwrap();
        let fetch = Operation::Fetch { path: path() };
        let Outcome::Bytes(bytes) = Programs::default().perform(&self.client(1), &fetch).await
        else {
            panic!("it cannot be read");
        };
        assert!(bytes == expected, "it is not what was written");
        check::nothing_broke(&self.room, &self.machines).unwrap();
    }

    fn sent(&self) -> u64 {
        self.client(0).status().traffic.iter().map(|class| class.sent).sum()
    }

    /// Nothing is known any more of where chunks are.
    fn lose_the_index(&self) {
        let tables = self.machines[0].disk.tables("client");
        let mut write = tables.write().unwrap();
        for (key, _) in write.scan("chunk-index", &[], &[0xff; 32], usize::MAX).unwrap() {
            write.delete("chunk-index", &key).unwrap();
        }
        write.commit(Durability::Later).unwrap();
    }
}

#[test]
fn a_file_of_more_chunks_than_are_at_hand_arrives_and_a_change_costs_what_lies_around_it() {
    sim::run::paused(async {
        let scene = Scene::new().await;
        scene.make().await;
        let mut bytes = stretch(1, LENGTH);
        scene.is_there(&bytes).await;
        for offset in [0, LENGTH / 2, LENGTH - 10] {
            let before = scene.sent();
            scene.change(offset, 10).await;
            bytes[offset..offset + 10].copy_from_slice(&stretch(2, 10));
            scene.is_there(&bytes).await;
            let sent = scene.sent() - before;
            assert!(sent < 40_000, "{sent} bytes went up for ten at {offset}");
        }
        scene.room.network.close();
    });
}

#[test]
fn without_the_index_and_after_a_crash_it_is_cut_once_more_and_arrives() {
    sim::run::paused(async {
        for crashes in [false, true] {
            let mut scene = Scene::new().await;
            // What is not known cannot be changed without a link.
            scene.all(&[Operation::List { path: Path(Vec::new()), page: 10 }]).await;
            scene.client(0).set_mode(DISCONNECTED);
            scene.make().await;
            scene.lose_the_index();
            if crashes {
                scene.machines[0].stop(End::Killed, Duration::ZERO);
                scene.machines[0].mode = PARTIAL;
                scene.machines[0].start().await.unwrap();
                scene.lose_the_index();
            }
            scene.client(0).set_mode(PARTIAL);
            scene.is_there(&stretch(1, LENGTH)).await;
            scene.room.network.close();
        }
    });
}
