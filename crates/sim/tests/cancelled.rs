//! What is done without a link and does not matter any more when there is one: it is not sent, and
//! what is left comes to the same, whenever the process dies.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::{OpenFlags, WantedMode};
use protocol::Mode;
use replica::Limits;
use sim::check;
use sim::contents::stretch;
use sim::machine::{ClientMachine, End, OriginMachine, Room, VOLUME};
use sim::network::Conditions;
use sim::operation::{Operation, Outcome, Path};
use sim::perform::Programs;
use std::time::Duration;

const PARTIAL: WantedMode = WantedMode::Fixed(Mode::Partial);
const HELD: WantedMode = WantedMode::Fixed(Mode::FetchOnly);
const LENGTH: usize = 3_000;
const CLOSE: Operation = Operation::Close { slot: 0 };
/// The log is looked through, and the tables are on the disk.
const LOOKED: Duration = Duration::from_secs(12);
/// Writes to the disk that the process lives to see.
const WRITES: std::ops::Range<u64> = 0..60;
const KILLS: usize = 12;
/// Versions of a program that run at once.
const RUNNING: usize = 3;

struct Scene {
    room: Room,
    origin: OriginMachine,
    machines: [ClientMachine; 2],
    programs: Programs,
}

impl Scene {
    /// A file is at the origin, and nothing that is done here leaves from now on.
    async fn new(seed: u64) -> Scene {
        Scene::over(Conditions::NEAR, seed).await
    }

    async fn over(conditions: Conditions, seed: u64) -> Scene {
        let room = Room::new(seed, false);
        let origin = OriginMachine::start(&room, Limits::simulated()).unwrap();
        let machine = |number| ClientMachine::invited(&room, &origin, number, conditions, PARTIAL);
        let mut machines = [machine(0), machine(1)];
        machines[0].start().await.unwrap();
        let programs = Programs::default();
        let mut scene = Scene { room, origin, machines, programs };
        for operation in written("object", 1) {
            scene.does(&operation).await;
        }
        scene.settled().await;
        scene.client().set_mode(HELD);
        scene
    }

    fn client(&self) -> sim::machine::SimClient {
        self.machines[0].client().unwrap().clone()
    }

    async fn does(&mut self, operation: &Operation) {
        let outcome = self.programs.perform(&self.client(), operation).await;
        assert!(!matches!(outcome, Outcome::Failed(_)), "{operation}: {outcome}");
    }

    /// Builds the object anew as a compiler does, by way of a temporary file, and as an editor does.
    async fn builds(&mut self, version: u64) {
        for operation in written("scratch", version) {
            self.does(&operation).await;
        }
        for operation in written("temporary", version) {
            self.does(&operation).await;
        }
        let (from, to) = (Path::new("temporary"), Path::new("object"));
        self.does(&Operation::Rename { from, to, flag: client::RenameFlag::Replace }).await;
        self.does(&Operation::Unlink { path: Path::new("scratch") }).await;
    }

    /// Listed at the origin. A client counts those since it was started alone.
    fn conflicts(&self) -> usize {
        self.origin.origin().unwrap().conflicts(VOLUME, 100).unwrap().len()
    }

    async fn settled(&mut self) {
        check::settled(&self.room, &self.machines[..1], true).await.unwrap();
        check::nothing_broke(&self.room, &self.machines[..1]).unwrap();
    }

    /// What another machine reads.
    async fn read_elsewhere(&mut self) -> Outcome {
        let client = self.machines[1].start().await.unwrap();
        let fetch = Operation::Fetch { path: Path::new("object") };
        Programs::default().perform(&client, &fetch).await
    }
}

fn written(name: &str, version: u64) -> Vec<Operation> {
    let create = Operation::Create { path: Path::new(name), mode: 0o644, slot: 0 };
    let write = Operation::Write { slot: 0, offset: 0, length: LENGTH, version };
    vec![create, write, CLOSE]
}

#[test]
fn of_what_is_built_over_and_over_without_a_link_the_last_is_sent() {
    sim::run::paused(async {
        let mut scene = Scene::new(1).await;
        for version in 2..30 {
            scene.builds(version).await;
        }
        scene.room.clock.sleep(LOOKED).await;
        let status = scene.client().status();
        // The last temporary file is made, filled and renamed over what the origin has.
        assert_eq!(status.pending.updates, 3);
        assert_eq!(status.pending.bytes, LENGTH as u64);
        // Each scratch file was made, stored and removed, each other one made, stored and renamed.
        assert_eq!(status.cancelled.updates, 28 * 3 + 27 * 3);
        assert_eq!(status.cancelled.bytes, (28 + 27) * LENGTH as u64);
        scene.client().set_mode(PARTIAL);
        scene.settled().await;
        assert_eq!(scene.read_elsewhere().await, Outcome::Bytes(stretch(29, LENGTH)));
        assert_eq!(scene.conflicts(), 0);
        scene.room.network.close();
    });
}

/// Says whether the process died.
async fn dies(writes: u64, how: End) -> bool {
    let mut scene = Scene::new(writes + 1).await;
    for version in 2..5 {
        scene.builds(version).await;
    }
    scene.machines[0].disk.crash_after(writes);
    scene.room.clock.sleep(LOOKED).await;
    let died = scene.machines[0].has_crashed();
    scene.machines[0].stop(how, Duration::ZERO);
    scene.machines[0].disk.crash_after(u64::MAX);
    scene.machines[0].start().await.unwrap();
    scene.client().set_mode(PARTIAL);
    scene.settled().await;
    assert_eq!(scene.conflicts(), 0);
    let found = scene.read_elsewhere().await;
    let stored: Vec<_> = (1..5).map(|version| Outcome::Bytes(stretch(version, LENGTH))).collect();
    match how {
        // Nothing that was done is lost.
        End::Killed => assert_eq!(found, stored[3], "{writes}"),
        // What was not on the disk yet may be.
        _ => assert!(stored.contains(&found), "{writes}: {found}"),
    }
    scene.room.network.close();
    died
}

#[test]
fn a_crash_while_it_is_cancelled_leaves_all_of_it_or_what_is_left_of_it() {
    for how in [End::Killed, End::PowerCut] {
        let mut died = 0;
        for writes in WRITES {
            died += usize::from(sim::run::paused(async { dies(writes, how).await }));
        }
        assert!((4..WRITES.count()).contains(&died), "it died {died} times");
    }
}

#[test]
fn what_is_on_its_way_is_not_cancelled() {
    sim::run::paused(async {
        let mut scene = Scene::new(3).await;
        scene.client().set_mode(PARTIAL);
        // It leaves while it is built on.
        for version in 2..40 {
            scene.builds(version).await;
            scene.room.clock.sleep(Duration::from_millis(version * 7 % 40)).await;
        }
        scene.settled().await;
        assert_eq!(scene.read_elsewhere().await, Outcome::Bytes(stretch(39, LENGTH)));
        assert_eq!(scene.conflicts(), 0);
        scene.room.network.close();
    });
}

#[test]
fn what_is_to_stay_for_a_while_leaves_when_it_is_old_enough_or_waited_for() {
    sim::run::paused(async {
        let mut scene = Scene::new(4).await;
        scene.room.clock.sleep(LOOKED).await;
        scene.machines[0].stop(End::Killed, Duration::ZERO);
        scene.machines[0].replay_delay = Some(Duration::from_secs(60));
        scene.machines[0].start().await.unwrap();
        scene.client().set_mode(PARTIAL);
        scene.builds(2).await;
        scene.room.clock.sleep(Duration::from_secs(30)).await;
        scene.builds(3).await;
        let status = scene.client().status();
        assert!(status.pending.held_back.unwrap().contains("--replay-delay"));
        scene.room.clock.sleep(Duration::from_secs(50)).await;
        // The second build has undone the first before it was old enough.
        assert_eq!(scene.client().status().replayed.updates, 0);
        scene.room.clock.sleep(Duration::from_secs(20)).await;
        assert_eq!(scene.client().status().pending.updates, 0);
        assert_eq!(scene.read_elsewhere().await, Outcome::Bytes(stretch(3, LENGTH)));
        // Who waits for it does not wait that long.
        scene.builds(4).await;
        scene.client().hurry();
        scene.room.clock.sleep(Duration::from_secs(5)).await;
        assert_eq!(scene.client().status().pending.updates, 0);
        scene.room.network.close();
    });
}

#[test]
fn where_bytes_cost_money_what_is_soon_undone_is_not_sent() {
    sim::run::paused(async {
        let mut scene = Scene::new(5).await;
        scene.room.clock.sleep(LOOKED).await;
        scene.machines[0].stop(End::Killed, Duration::ZERO);
        scene.machines[0].budget = Some(1 << 40);
        scene.machines[0].start().await.unwrap();
        scene.client().set_mode(PARTIAL);
        let minute = Duration::from_secs(60);
        scene.builds(2).await;
        scene.room.clock.sleep(2 * minute).await;
        scene.builds(3).await;
        let status = scene.client().status();
        assert!(status.pending.held_back.unwrap().contains("the link has a budget"));
        assert_eq!((status.replay_delay.millis, status.replay_delay.for_budget), (180_000, true));
        scene.room.clock.sleep(2 * minute).await;
        assert_eq!(scene.client().status().replayed.updates, 0);
        scene.room.clock.sleep(minute + LOOKED).await;
        assert_eq!(scene.client().status().pending.updates, 0);
        assert_eq!(scene.read_elsewhere().await, Outcome::Bytes(stretch(3, LENGTH)));
        // Who waits does not wait that long, nor who has said that nothing is to stay.
        scene.builds(4).await;
        scene.client().hurry();
        scene.room.clock.sleep(Duration::from_secs(5)).await;
        assert_eq!(scene.client().status().pending.updates, 0);
        scene.builds(5).await;
        scene.room.clock.sleep(Duration::from_secs(5)).await;
        assert_ne!(scene.client().status().pending.updates, 0);
        scene.client().set_replay_delay(Some(Duration::ZERO));
        scene.room.clock.sleep(Duration::from_secs(5)).await;
        assert_eq!(scene.client().status().pending.updates, 0);
        scene.room.network.close();
    });
}

#[test]
fn what_may_have_left_before_a_restart_is_not_cancelled_before_that_is_known() {
    sim::run::paused(async {
        // The answer is lost at any of these moments, and the process with it.
        for millis in (1..40).step_by(3) {
            let mut scene = Scene::new(millis + 100).await;
            scene.room.clock.sleep(LOOKED).await;
            scene.client().set_mode(PARTIAL);
            for operation in written("brief", 2) {
                scene.does(&operation).await;
            }
            scene.room.clock.sleep(Duration::from_millis(millis)).await;
            scene.machines[0].stop(End::Killed, Duration::ZERO);
            // Here it is not known whether it has left, and there is no link to ask over.
            let line = scene.machines[0].line;
            scene.room.network.cut(line, Duration::ZERO);
            scene.machines[0].mode = WantedMode::Fixed(Mode::Disconnected);
            scene.machines[0].start().await.unwrap();
            scene.does(&Operation::Unlink { path: Path::new("brief") }).await;
            scene.room.clock.sleep(LOOKED).await;
            scene.room.network.restore(line);
            scene.client().set_mode(PARTIAL);
            scene.settled().await;
            let client = scene.machines[1].start().await.unwrap();
            let fetch = Operation::Fetch { path: Path::new("brief") };
            let found = Programs::default().perform(&client, &fetch).await;
            assert!(matches!(found, Outcome::Failed(_)), "{millis}: it is back: {found}");
            scene.room.network.close();
        }
    });
}

/// Builds while what was built leaves, is killed in the midst of it, and goes on.
async fn is_killed_again_and_again(seed: u64) {
    let mut scene = Scene::over(Conditions::FAR, seed).await;
    scene.client().set_mode(PARTIAL);
    let chance = scene.room.chance.clone();
    let mut version = 1;
    for _ in 0..KILLS {
        for _ in 0..1 + chance.below(8) {
            version += 1;
            scene.room.clock.sleep(Duration::from_millis(chance.below(300))).await;
            // Who runs a program keeps it, whatever is built meanwhile.
            let (slot, flags) =
                (1 + version as usize % RUNNING, OpenFlags { read: true, ..OpenFlags::default() });
            let _ = scene.programs.perform(&scene.client(), &Operation::Close { slot }).await;
            scene.does(&Operation::Open { path: Path::new("object"), slot, flags }).await;
            scene.builds(version).await;
        }
        scene.machines[0].stop(End::Killed, Duration::ZERO);
        scene.programs = Programs::default();
        scene.machines[0].start().await.unwrap();
    }
    scene.settled().await;
    assert_eq!(scene.read_elsewhere().await, Outcome::Bytes(stretch(version, LENGTH)));
    assert_eq!(scene.conflicts(), 0, "seed {seed}: what was removed is back");
    scene.room.network.close();
}

#[test]
fn what_was_renamed_over_stays_away_after_kills_wherever_the_log_was_looked_through() {
    for seed in 10..18 {
        sim::run::paused(is_killed_again_and_again(seed));
    }
}

#[test]
fn what_was_stored_in_a_file_that_others_have_moved_is_there_though_its_name_was_taken_here() {
    sim::run::paused(async {
        let mut scene = Scene::new(7).await;
        let other = scene.machines[1].start().await.unwrap();
        // Without a link nothing is heard of what the other does.
        let line = scene.machines[0].line;
        scene.room.network.cut(line, Duration::ZERO);
        scene.client().set_mode(WantedMode::Fixed(Mode::Disconnected));
        let opened = OpenFlags { write: true, truncate: true, ..OpenFlags::default() };
        let object = || Path::new("object");
        scene.does(&Operation::Open { path: object(), slot: 0, flags: opened }).await;
        scene.does(&Operation::Write { slot: 0, offset: 0, length: LENGTH, version: 2 }).await;
        scene.does(&CLOSE).await;
        let flag = client::RenameFlag::Replace;
        let moved = Operation::Rename { from: object(), to: Path::new("kept"), flag };
        assert!(!matches!(Programs::default().perform(&other, &moved).await, Outcome::Failed(_)));
        for operation in written("temporary", 3) {
            scene.does(&operation).await;
        }
        let from = Path::new("temporary");
        scene.does(&Operation::Rename { from, to: object(), flag }).await;
        scene.room.clock.sleep(LOOKED).await;
        scene.room.network.restore(line);
        scene.client().set_mode(PARTIAL);
        scene.settled().await;
        for (name, version) in [("object", 3), ("kept", 2)] {
            let fetch = Operation::Fetch { path: Path::new(name) };
            let found = Programs::default().perform(&other, &fetch).await;
            assert_eq!(found, Outcome::Bytes(stretch(version, LENGTH)), "{name}");
        }
        scene.room.network.close();
    });
}

/// What nobody else has seen is renamed over by what another device has moved, or left where it is.
async fn is_renamed_over(elsewhere: Option<Operation>, looked: bool) {
    let case = format!("{elsewhere:?}, looked through: {looked}");
    let mut scene = Scene::new(8).await;
    let other = scene.machines[1].start().await.unwrap();
    let line = scene.machines[0].line;
    scene.room.network.cut(line, Duration::ZERO);
    for operation in written("brief", 2) {
        scene.does(&operation).await;
    }
    let (from, to) = (Path::new("object"), Path::new("brief"));
    let flag = client::RenameFlag::Replace;
    scene.does(&Operation::Rename { from, to, flag }).await;
    if looked {
        scene.room.clock.sleep(LOOKED).await;
    }
    let mut others = Programs::default();
    if let Some(operation) = &elsewhere {
        let outcome = others.perform(&other, operation).await;
        assert!(!matches!(outcome, Outcome::Failed(_)), "{case}: {outcome}");
    }
    scene.room.clock.sleep(Duration::from_secs(1)).await;
    scene.room.network.restore(line);
    scene.client().set_mode(PARTIAL);
    scene.settled().await;
    let brief = if elsewhere.is_some() { 2 } else { 1 };
    let moved = matches!(elsewhere, Some(Operation::Rename { .. }));
    for (name, version) in [("brief", Some(brief)), ("kept", moved.then_some(1)), ("object", None)]
    {
        for client in [&other, &scene.client()] {
            let fetch = Operation::Fetch { path: Path::new(name) };
            let found = Programs::default().perform(client, &fetch).await;
            match version {
                Some(version) => {
                    assert_eq!(found, Outcome::Bytes(stretch(version, LENGTH)), "{case}: {name}");
                }
                None => assert!(matches!(found, Outcome::Failed(_)), "{case}: {name}: {found}"),
            }
        }
    }
    assert_eq!(scene.conflicts(), usize::from(moved), "{case}");
    scene.room.network.close();
}

#[test]
fn what_was_to_be_replaced_by_what_is_moved_elsewhere_has_its_contents() {
    let (from, to) = (Path::new("object"), Path::new("kept"));
    let moves = Operation::Rename { from, to, flag: client::RenameFlag::Replace };
    for looked in [false, true] {
        for elsewhere in [Some(moves.clone()), None] {
            sim::run::paused(is_renamed_over(elsewhere, looked));
        }
    }
}
