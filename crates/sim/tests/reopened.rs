//! Large files that are opened again: what is cut is what lies around what was written, and the
//! outcome is what was written, whatever is lacking of the recipe that it goes by.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::{Allocate, OpenFlags, WantedMode};
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

const LENGTH: usize = 6 << 20;
const WRITE: OpenFlags = OpenFlags { read: true, write: true, truncate: false, append: false };

fn path() -> Path {
    Path::new("image")
}

/// Two clients and a file that one of them has made.
struct Scene {
    room: Room,
    _origin: OriginMachine,
    machines: Vec<ClientMachine>,
    bytes: Vec<u8>,
    version: u64,
}

impl Scene {
    async fn new(seed: u64) -> Scene {
        let room = Room::new(seed, false);
        let origin = OriginMachine::start(&room, Limits::simulated()).unwrap();
        let mut machines = Vec::new();
        for number in 0..2 {
            let mode = WantedMode::Fixed(Mode::Partial);
            let mut machine =
                ClientMachine::invited(&room, &origin, number, Conditions::NEAR, mode);
            machine.start().await.unwrap();
            machines.push(machine);
        }
        let bytes = stretch(1, LENGTH);
        let scene = Scene { room, _origin: origin, machines, bytes, version: 1 };
        let create = Operation::Create { path: path(), mode: 0o644, slot: 0 };
        let write = Operation::Write { slot: 0, offset: 0, length: LENGTH, version: 1 };
        scene.all(&[create, write, Operation::Close { slot: 0 }]).await;
        scene.is_there().await;
        scene
    }

    fn client(&self, number: usize) -> SimClient {
        self.machines[number].client().unwrap().clone()
    }

    async fn all(&self, operations: &[Operation]) {
        let mut programs = Programs::default();
        programs.perform_all(&self.client(0), operations.iter().cloned()).await;
    }

    /// Does it to the file that is opened for it. Gives the bytes that were read of containers.
    async fn change(&self, what: &[Operation]) -> u64 {
        let before = self.machines[0].disk.bytes_read();
        let mut operations = vec![Operation::Open { path: path(), slot: 0, flags: WRITE }];
        operations.extend_from_slice(what);
        operations.push(Operation::Close { slot: 0 });
        self.all(&operations).await;
        self.machines[0].disk.bytes_read() - before
    }

    fn write(&mut self, offset: usize, length: usize) -> Operation {
        self.version += 1;
        let end = offset + length;
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[offset..end].copy_from_slice(&stretch(self.version, length));
        Operation::Write { slot: 0, offset: offset as u64, length, version: self.version }
    }

    fn truncate(&mut self, size: usize) -> Operation {
        self.bytes.resize(size, 0);
        Operation::Truncate { slot: 0, size: size as u64 }
    }

    fn free(&mut self, offset: usize, length: usize) -> Operation {
        let end = self.bytes.len().min(offset + length);
        self.bytes[offset.min(end)..end].fill(0);
        let how = Allocate::Punch;
        Operation::Allocate { slot: 0, offset: offset as u64, length: length as u64, how }
    }

    async fn is_there(&self) {
        check::settled(&self.room, &self.machines, true).await.unwrap();
        let fetch = Operation::Fetch { path: path() };
        let Outcome::Bytes(bytes) = Programs::default().perform(&self.client(1), &fetch).await
        else {
            panic!("it cannot be read");
        };
        assert!(bytes == self.bytes, "it is not what was written");
        check::nothing_broke(&self.room, &self.machines).unwrap();
    }

    async fn kill(&mut self) {
        self.machines[0].stop(End::Killed, Duration::ZERO);
        self.machines[0].start().await.unwrap();
    }

    /// One of the pieces that recipes are kept in.
    fn lose_some_of_the_recipe(&self) {
        let tables = self.machines[0].disk.tables("client");
        let mut write = tables.write().unwrap();
        let rows = write.scan("client-recipes", &[], &[0xff; 64], usize::MAX).unwrap();
        assert!(rows.len() > 2, "there are pieces to be lost");
        write.delete("client-recipes", &rows[rows.len() / 2].0).unwrap();
        write.commit(Durability::Later).unwrap();
    }
}

#[test]
fn of_a_file_that_is_opened_again_what_lies_around_the_change_is_read() {
    sim::run::paused(async {
        let mut scene = Scene::new(1).await;
        for restarts in [false, true] {
            if restarts {
                // By then a checkpoint has made the tables durable.
                scene.room.clock.sleep(Duration::from_secs(60)).await;
                scene.kill().await;
            }
            for offset in [0, LENGTH / 2, LENGTH - 10] {
                let write = scene.write(offset, 10);
                let read = scene.change(&[write]).await;
                assert!(
                    read < 1 << 20,
                    "{read} bytes were read for ten at {offset}, started again: {restarts}"
                );
                scene.is_there().await;
            }
        }
        scene.room.network.close();
    });
}

#[test]
fn without_all_of_the_recipe_it_is_cut_whole_and_goes_by_the_new_one_from_there_on() {
    sim::run::paused(async {
        let mut scene = Scene::new(2).await;
        scene.lose_some_of_the_recipe();
        let write = scene.write(LENGTH / 3, 10);
        let read = scene.change(&[write]).await;
        assert!(read >= LENGTH as u64, "only {read} bytes were read, by a recipe that lacks some");
        scene.is_there().await;
        let write = scene.write(LENGTH / 2, 10);
        let read = scene.change(&[write]).await;
        assert!(read < 1 << 20, "{read} bytes were read");
        scene.is_there().await;
        scene.room.network.close();
    });
}

#[test]
fn whatever_is_done_to_it_what_arrives_is_what_was_written() {
    for seed in 0..6 {
        sim::run::paused(async move {
            let mut scene = Scene::new(seed).await;
            let chance = scene.room.chance.clone();
            for _ in 0..8 {
                let mut what = Vec::new();
                for _ in 0..1 + chance.below(4) {
                    let at = chance.below(scene.bytes.len() as u64 + 1) as usize;
                    let some = 1 + chance.below(300_000) as usize;
                    what.push(match chance.below(6) {
                        0 => scene.truncate(at.max(1 << 20)),
                        1 => scene.truncate(scene.bytes.len() + some),
                        2 => scene.free(at, some),
                        3 => Operation::Sync { slot: 0 },
                        _ => scene.write(at, some),
                    });
                }
                scene.change(&what).await;
                if chance.below(4) == 0 {
                    scene.kill().await;
                }
            }
            scene.is_there().await;
            scene.room.network.close();
        });
    }
}
