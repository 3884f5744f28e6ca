//! Large files on slow lines, while lines are cut and both machines are killed again and again:
//! what was carried over is not carried over again.
#![allow(clippy::unwrap_used, reason = "a scenario that cannot go on is a failed test")]

use client::{Caller, Making, OpenFlags, WantedMode, complete};
use model::{FileId, Kind, Name};
use protocol::Mode;
use replica::Limits;
use sim::machine::{ClientMachine, End, OriginMachine, Room, SimClient};
use sim::network::Conditions;
use std::time::Duration;

const CALLER: Caller = Caller { uid: 1000, gid: 1000 };
const BYTES: usize = 1_200_000;
/// Half a minute for all of it.
const SLOW: Conditions = Conditions { bytes_a_second: Some(40_000), ..Conditions::NEAR };
/// What one interruption may cost: messages that were on their way, what is sent unasked, and what
/// came since the last checkpoint.
const COST_BYTES: u64 = 260_000;
/// Recipe, names of chunks, messages.
const BESIDE_BYTES: u64 = 80_000;
/// Seeds that are played: when, and what, is interrupted.
const SEEDS: u64 = 4;
const INTERRUPTIONS: u64 = 6;
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// By then it has arrived, or never does.
const WITHIN: Duration = Duration::from_secs(900);

fn noise(length: usize) -> Vec<u8> {
    let mut state = 7u64;
    let next = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

fn name() -> Name {
    Name::new("large").unwrap()
}

async fn store(client: &SimClient, bytes: &[u8]) {
    let making =
        Making { kind: Kind::File, mode: 0o644, uid: 1000, gid: 1000, target: None, rdev: None };
    let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
    let call = |client: &SimClient| client.create(CALLER, FileId::ROOT, &name(), &making, flags);
    let handle = complete(client, call).await.unwrap().value.1.handle;
    complete(client, |client| client.write(handle, 0, bytes)).await.unwrap();
    complete(client, |client| client.flush(CALLER, handle)).await.unwrap();
    complete(client, |client| client.sync(CALLER, handle)).await.unwrap();
    client.release(handle);
}

/// All of the file, if it can be had now.
async fn read(client: &SimClient) -> Option<Vec<u8>> {
    let found = complete(client, |client| client.lookup(FileId::ROOT, &name())).await.ok()??;
    let flags = OpenFlags { read: true, ..OpenFlags::default() };
    let opened = complete(client, |client| client.open_file(CALLER, found.file, flags)).await;
    let handle = opened.ok()?.value.handle;
    let mut bytes = Vec::new();
    let all = loop {
        let offset = bytes.len() as u64;
        match complete(client, |client| client.read(handle, offset, 1 << 20)).await {
            Ok(some) if some.is_empty() => break Some(bytes),
            Ok(some) => bytes.extend(some),
            Err(_) => break None,
        }
    };
    client.release(handle);
    all
}

struct Scene {
    /// How machines end.
    end: End,
    room: Room,
    origin: OriginMachine,
    machine: ClientMachine,
}

impl Scene {
    async fn new(seed: u64, end: End) -> Scene {
        let room = Room::new(seed, false);
        let origin = OriginMachine::start(&room, Limits::simulated()).unwrap();
        let invitation = origin.invite().unwrap();
        let mode = WantedMode::Fixed(Mode::Partial);
        let mut machine = ClientMachine::new(&room, 0, invitation, SLOW, mode);
        machine.cache_bytes_max = 1 << 30;
        machine.start().await.unwrap();
        Scene { end, room, origin, machine }
    }

    /// Something is interrupted, and goes on a little later.
    async fn interrupt(&mut self) {
        let line = self.machine.line;
        let away = Duration::from_millis(self.room.chance.below(8_000));
        let notice = Duration::from_secs(self.room.chance.below(3));
        match self.room.chance.below(4) {
            0 => {
                self.room.network.cut(line, notice);
                self.room.clock.sleep(away).await;
                self.room.network.restore(line);
            }
            1 => {
                self.machine.stop(self.end, notice);
                self.room.clock.sleep(away).await;
                self.machine.launch().unwrap();
            }
            2 => {
                self.origin.stop(self.end, notice);
                self.room.clock.sleep(away).await;
                self.origin.restart().unwrap();
            }
            _ => {
                self.machine.stop(self.end, notice);
                self.origin.stop(self.end, notice);
                self.room.clock.sleep(away).await;
                self.origin.restart().unwrap();
                self.machine.launch().unwrap();
            }
        }
    }

    async fn pause(&self) {
        let pause = Duration::from_millis(500 + self.room.chance.below(6_000));
        self.room.clock.sleep(pause).await;
    }

    /// A client that never had anything finds it.
    async fn is_at_the_origin(&self, contents: &[u8]) {
        let invitation = self.origin.invite().unwrap();
        let mode = WantedMode::Fixed(Mode::Connected);
        let mut fresh = ClientMachine::new(&self.room, 9, invitation, Conditions::NEAR, mode);
        fresh.cache_bytes_max = 1 << 30;
        fresh.start().await.unwrap();
        assert!(read(fresh.client().unwrap()).await.unwrap() == contents);
    }
}

fn simulated(seed: u64, end: End, play: impl AsyncFnOnce(Scene)) {
    sim::run::paused(async {
        let scene = Scene::new(seed, end).await;
        let network = scene.room.network.clone();
        play(scene).await;
        network.close();
    });
}

fn most() -> u64 {
    BYTES as u64 + BESIDE_BYTES + INTERRUPTIONS * COST_BYTES
}

#[test]
fn what_was_sent_before_a_crash_or_a_cut_is_not_sent_again() {
    sends(End::Killed);
}

#[test]
fn what_was_sent_before_the_power_went_is_not_sent_again() {
    sends(End::PowerCut);
}

#[test]
fn what_was_fetched_before_a_crash_or_a_cut_is_not_fetched_again() {
    fetches(End::Killed);
}

#[test]
fn what_was_fetched_before_the_power_went_is_not_fetched_again() {
    fetches(End::PowerCut);
}

fn sends(end: End) {
    for seed in 1..=SEEDS {
        simulated(seed, end, async |mut scene: Scene| {
            let contents = noise(BYTES);
            store(scene.machine.client().unwrap(), &contents).await;
            for _ in 0..INTERRUPTIONS {
                scene.pause().await;
                scene.interrupt().await;
            }
            let start = scene.room.clock.moment();
            while scene.machine.client().unwrap().status().pending.updates > 0 {
                assert!(scene.room.clock.moment().since(start) < WITHIN, "seed {seed}");
                scene.room.clock.sleep(LOOK_EVERY).await;
            }
            let sent: u64 = scene.room.network.traffic(scene.machine.line).sent.iter().sum();
            assert!(sent < most(), "seed {seed}: {sent} bytes were sent for {BYTES}");
            scene.is_at_the_origin(&contents).await;
        });
    }
}

fn fetches(end: End) {
    for seed in 1..=SEEDS {
        simulated(seed, end, async |mut scene: Scene| {
            let contents = noise(BYTES);
            let invitation = scene.origin.invite().unwrap();
            let mode = WantedMode::Fixed(Mode::Connected);
            let near = Conditions::NEAR;
            let mut author = ClientMachine::new(&scene.room, 1, invitation, near, mode);
            author.start().await.unwrap();
            store(author.client().unwrap(), &contents).await;
            while author.client().unwrap().status().pending.updates > 0 {
                scene.room.clock.sleep(LOOK_EVERY).await;
            }
            author.client().unwrap().shut_down(Duration::ZERO).await;
            author.stop(End::Killed, Duration::ZERO);
            for _ in 0..INTERRUPTIONS {
                let client = scene.machine.client().unwrap().clone();
                let reading = tokio::spawn(async move { read(&client).await });
                scene.pause().await;
                scene.interrupt().await;
                reading.abort();
            }
            let start = scene.room.clock.moment();
            let found = loop {
                if let Some(found) = read(scene.machine.client().unwrap()).await {
                    break found;
                }
                assert!(scene.room.clock.moment().since(start) < WITHIN, "seed {seed}");
                scene.room.clock.sleep(LOOK_EVERY).await;
            };
            assert!(found == contents, "seed {seed}");
            let came: u64 = scene.room.network.traffic(scene.machine.line).received.iter().sum();
            assert!(came < most(), "seed {seed}: {came} bytes came for {BYTES}");
        });
    }
}

#[test]
fn a_large_file_that_is_on_its_way_waits_while_updates_are_held_and_goes_on_after_it() {
    simulated(1, End::Killed, async |scene: Scene| {
        let contents = noise(BYTES);
        let client = scene.machine.client().unwrap();
        store(client, &contents).await;
        let sent = || scene.room.network.traffic(scene.machine.line).sent.iter().sum::<u64>();
        scene.room.clock.sleep(Duration::from_secs(8)).await;
        client.set_mode(WantedMode::Fixed(Mode::FetchOnly));
        // One message was on its way.
        scene.room.clock.sleep(Duration::from_secs(10)).await;
        let before = sent();
        assert!(before > 100_000, "only {before} bytes had been sent");
        scene.room.clock.sleep(Duration::from_secs(60)).await;
        let held = sent();
        assert!(held - before < BESIDE_BYTES, "{} bytes were sent all the same", held - before);
        assert_eq!(client.status().pending.updates, 2);
        client.set_mode(WantedMode::Fixed(Mode::Partial));
        let start = scene.room.clock.moment();
        while client.status().pending.updates > 0 {
            assert!(scene.room.clock.moment().since(start) < WITHIN);
            scene.room.clock.sleep(LOOK_EVERY).await;
        }
        assert!(sent() < BYTES as u64 + BESIDE_BYTES + COST_BYTES, "{} bytes were sent", sent());
        scene.is_at_the_origin(&contents).await;
    });
}
