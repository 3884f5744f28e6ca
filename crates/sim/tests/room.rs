//! A cache that is smaller than what is read through it: files larger than it are read, leave it
//! in stretches while they are open, and are read again, whenever the machine crashes.
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
use std::sync::LazyLock;
use std::time::Duration;
use store::Containers;

const CACHE: u64 = 256 << 10;
const LARGE: usize = 900_000;
const SMALL: usize = 3_000;
const CHUNK_MAX: u64 = 64 << 10;
const STEP: usize = 32 << 10;
const PARTIAL: WantedMode = WantedMode::Fixed(Mode::Partial);

struct Scene {
    room: Room,
    _origin: OriginMachine,
    /// Who has written everything.
    _ada: ClientMachine,
    bob: ClientMachine,
}

impl Scene {
    async fn new(seed: u64) -> Scene {
        let room = Room::new(seed, false);
        let origin = OriginMachine::start(&room, Limits::simulated()).unwrap();
        let near = Conditions::NEAR;
        let machine = |number| ClientMachine::invited(&room, &origin, number, near, PARTIAL);
        let (mut ada, mut bob) = (machine(0), machine(1));
        bob.cache_bytes_max = CACHE;
        let client = ada.start().await.unwrap();
        let mut programs = Programs::default();
        for (path, version, length) in [("large", 1, LARGE), ("small", 2, SMALL)] {
            let slot = 0;
            let create = Operation::Create { path: Path::new(path), mode: 0o644, slot };
            let write = Operation::Write { slot, offset: 0, length, version };
            programs.perform_all(&client, [create, write, Operation::Close { slot }]).await;
        }
        check::settled(&room, std::slice::from_ref(&ada), true).await.unwrap();
        bob.start().await.unwrap();
        Scene { room, _origin: origin, _ada: ada, bob }
    }

    fn bob(&self) -> SimClient {
        self.bob.client().unwrap().clone()
    }

    /// What the containers of the cache take.
    fn held(&self) -> u64 {
        let there = self.bob.disk.containers("files").list().unwrap();
        there.iter().map(|(_, bytes)| bytes).sum()
    }
}

async fn open(programs: &mut Programs, client: &SimClient, path: &str) {
    let flags = OpenFlags { read: true, ..OpenFlags::default() };
    let opened = Operation::Open { path: Path::new(path), slot: 0, flags };
    let outcome = programs.perform(client, &opened).await;
    assert!(!matches!(outcome, Outcome::Failed(_)), "{outcome}");
}

/// None: the machine is dead.
async fn read(programs: &mut Programs, client: &SimClient, offset: usize) -> Option<Vec<u8>> {
    let read = Operation::Read { slot: 0, offset: offset as u64, length: STEP };
    match programs.perform(client, &read).await {
        Outcome::Bytes(bytes) => Some(bytes),
        _ => None,
    }
}

fn expected(offset: usize) -> Vec<u8> {
    static LARGE_ONE: LazyLock<Vec<u8>> = LazyLock::new(|| stretch(1, LARGE));
    LARGE_ONE[offset..LARGE.min(offset + STEP)].to_vec()
}

#[test]
fn a_file_larger_than_the_cache_is_read_to_and_fro_within_its_size_and_drives_nobody_out() {
    sim::run::paused(async {
        let scene = Scene::new(1).await;
        let client = scene.bob();
        let mut programs = Programs::default();
        let small = Operation::Fetch { path: Path::new("small") };
        let found = programs.perform(&client, &small).await;
        assert!(found == Outcome::Bytes(stretch(2, SMALL)), "{found}");
        open(&mut programs, &client, "large").await;
        let forth = (0..LARGE).step_by(STEP);
        let back = forth.clone().rev();
        let mut most = 0;
        for offset in forth.clone().chain(back).chain(forth) {
            let found = read(&mut programs, &client, offset).await;
            assert!(found == Some(expected(offset)), "at {offset}");
            most = most.max(scene.held());
        }
        // The last chunk may reach beyond what there was room for.
        assert!(most <= CACHE + CHUNK_MAX, "{most} bytes were in a cache of {CACHE}");
        assert!(most > CACHE / 2, "the cache is made use of: {most}");
        // What was there before is read without the link.
        client.set_mode(WantedMode::Fixed(Mode::Disconnected));
        scene.room.clock.sleep(Duration::from_secs(2)).await;
        let found = programs.perform(&client, &small).await;
        assert!(found == Outcome::Bytes(stretch(2, SMALL)), "{found}");
        scene.room.network.close();
    });
}

#[test]
fn two_readers_of_one_file_at_different_places_both_read_on() {
    sim::run::paused(async {
        let scene = Scene::new(2).await;
        let client = scene.bob();
        let (mut one, mut other) = (Programs::default(), Programs::default());
        open(&mut one, &client, "large").await;
        open(&mut other, &client, "large").await;
        let half = LARGE / 2 / STEP * STEP;
        for offset in (0..half).step_by(STEP) {
            let (left, right) = tokio::join!(
                read(&mut one, &client, offset),
                read(&mut other, &client, half + offset)
            );
            assert!(left == Some(expected(offset)), "at {offset}");
            assert!(right == Some(expected(half + offset)), "at {}", half + offset);
        }
        scene.room.network.close();
    });
}

#[test]
fn a_crash_while_stretches_leave_shows_no_zeros() {
    for (number, how) in [End::PowerCut, End::Killed].into_iter().enumerate() {
        // From before the first stretch leaves until after several have.
        for writes in (0..96).step_by(8) {
            let seed = 100 * number as u64 + writes;
            sim::run::paused(async {
                let mut scene = Scene::new(seed).await;
                let client = scene.bob();
                let mut programs = Programs::default();
                open(&mut programs, &client, "large").await;
                // Nearly full, and then the machine dies in the midst of making room.
                let mut offset = 0;
                while scene.held() < CACHE / 2 {
                    assert!(read(&mut programs, &client, offset).await.is_some());
                    offset += STEP;
                }
                scene.bob.disk.crash_after(writes);
                while offset < LARGE && read(&mut programs, &client, offset).await.is_some() {
                    offset += STEP;
                }
                assert!(scene.bob.has_crashed(), "seed {seed}: it read to the end");
                scene.bob.stop(how, Duration::from_millis(10));
                let client = scene.bob.start().await.unwrap();
                let mut programs = Programs::default();
                open(&mut programs, &client, "large").await;
                for offset in (0..LARGE).step_by(STEP) {
                    let found = read(&mut programs, &client, offset).await;
                    assert!(found == Some(expected(offset)), "seed {seed}, at {offset}");
                }
                scene.room.network.close();
            });
        }
    }
}
