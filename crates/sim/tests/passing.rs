//! A file that takes the link long does not hold up what has nothing to do with it, and does where
//! a program counts on the order; whatever is killed or cut meanwhile, it comes to the same.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::{OpenFlags, RenameFlag, WantedMode};
use model::Kind;
use protocol::Mode;
use replica::Limits;
use sim::check;
use sim::contents::stretch;
use sim::machine::{ClientMachine, End, OriginMachine, Room, SimClient};
use sim::network::Conditions;
use sim::operation::{Operation, Outcome, Path};
use sim::perform::Programs;
use std::time::Duration;

const PARTIAL: WantedMode = WantedMode::Fixed(Mode::Partial);
const CONNECTED: WantedMode = WantedMode::Fixed(Mode::Connected);
/// A telephone line: what is large takes it half a minute, and what is small no time.
const SLOW: Conditions = Conditions {
    delay: Duration::from_millis(100),
    bytes_a_second: Some(7_200),
    ..Conditions::NEAR
};
const LARGE: usize = 200_000;
const SMALL: usize = 300;
/// What is known is on the disk by then.
const CHECKPOINT: Duration = Duration::from_secs(12);
/// The same, and it is not about to be written down again.
const CHECKPOINTED: Duration = Duration::from_secs(6);
/// Of the journal in memory.
const SEGMENT_RECORDS: u64 = 16;
const SOON: Duration = Duration::from_secs(8);

struct Scene {
    room: Room,
    _origin: OriginMachine,
    machines: [ClientMachine; 2],
    programs: Programs,
}

impl Scene {
    /// One machine is far away, the other is not. What the link carries is known.
    async fn new(seed: u64, mode: WantedMode) -> Scene {
        let room = Room::new(seed, false);
        let origin = OriginMachine::start(&room, Limits::simulated()).unwrap();
        let far = ClientMachine::invited(&room, &origin, 0, SLOW, mode);
        let near = ClientMachine::invited(&room, &origin, 1, Conditions::NEAR, PARTIAL);
        let mut machines = [far, near];
        for machine in &mut machines {
            machine.start().await.unwrap();
        }
        let programs = Programs::default();
        let mut scene = Scene { room, _origin: origin, machines, programs };
        scene.does_all(&written("before", SMALL * 20, 1)).await;
        scene.settled().await;
        scene
    }

    fn client(&self) -> SimClient {
        self.machines[0].client().unwrap().clone()
    }

    async fn does(&mut self, operation: &Operation) {
        let outcome = self.programs.perform(&self.client(), operation).await;
        let now = self.room.clock.moment();
        assert!(!matches!(outcome, Outcome::Failed(_)), "{now:?} {operation}: {outcome}");
    }

    async fn does_all(&mut self, operations: &[Operation]) {
        for operation in operations {
            self.does(operation).await;
        }
    }

    async fn rest(&self, time: Duration) {
        self.room.clock.sleep(time).await;
    }

    async fn settled(&mut self) {
        check::settled(&self.room, &self.machines, true).await.unwrap();
        check::nothing_broke(&self.room, &self.machines).unwrap();
        assert_eq!(self.client().status().conflicts, 0);
    }

    /// Which version of a file of this length the other machine reads. None: there is no such name.
    async fn elsewhere(&self, name: &str, length: usize) -> Option<u64> {
        let client = self.machines[1].client().unwrap();
        let fetch = Operation::Fetch { path: Path::new(name) };
        let Outcome::Bytes(found) = Programs::default().perform(client, &fetch).await else {
            return None;
        };
        if found.is_empty() {
            return Some(0);
        }
        let version = (1..20).find(|version| stretch(*version, length) == found);
        Some(version.unwrap_or_else(|| panic!("{name} has {} strange bytes", found.len())))
    }

    fn went_ahead(&self) -> u64 {
        self.client().status().replayed.ahead
    }
}

fn written(name: &str, length: usize, version: u64) -> Vec<Operation> {
    let slot = 1;
    let create = Operation::Create { path: Path::new(name), mode: 0o644, slot };
    let write = Operation::Write { slot, offset: 0, length, version };
    vec![create, write, Operation::Close { slot }]
}

/// Writes a file anew that is there.
fn again(name: &str, length: usize, version: u64) -> Vec<Operation> {
    let slot = 1;
    let flags = OpenFlags { read: true, write: true, truncate: true, append: false };
    let open = Operation::Open { path: Path::new(name), slot, flags };
    let write = Operation::Write { slot, offset: 0, length, version };
    vec![open, write, Operation::Close { slot }]
}

fn rename(from: &str, to: &str) -> Operation {
    let (from, to) = (Path::new(from), Path::new(to));
    Operation::Rename { from, to, flag: RenameFlag::Replace }
}

#[test]
fn what_is_small_is_seen_before_what_is_large_has_come() {
    sim::run::paused(async {
        let mut scene = Scene::new(1, PARTIAL).await;
        scene.does_all(&written("large", LARGE, 2)).await;
        scene.does_all(&written("small", SMALL, 3)).await;
        scene.does_all(&written("temporary", SMALL, 4)).await;
        scene.does(&rename("temporary", "before")).await;
        scene.rest(SOON).await;
        assert_eq!(scene.elsewhere("small", SMALL).await, Some(3));
        assert_eq!(scene.elsewhere("before", SMALL).await, Some(4));
        assert_eq!(scene.elsewhere("large", SMALL).await, None);
        assert_eq!(scene.went_ahead(), 5);
        // What comes meanwhile does not wait either.
        scene.does_all(&written("later", SMALL, 5)).await;
        scene.rest(SOON).await;
        assert_eq!(scene.elsewhere("later", SMALL).await, Some(5));
        assert_eq!(scene.elsewhere("large", SMALL).await, None);
        scene.settled().await;
        assert_eq!(scene.elsewhere("large", LARGE).await, Some(2));
        scene.room.network.close();
    });
}

/// Wherever the log is cut off: so many records stand in a segment of it at most.
#[test]
fn what_was_made_ahead_and_is_being_written_outlives_a_kill() {
    for before in 0..SEGMENT_RECORDS {
        sim::run::paused(made_ahead_and_killed(before));
    }
}

async fn made_ahead_and_killed(before: u64) {
    let mut scene = Scene::new(14, PARTIAL).await;
    for number in 0..before {
        let mode = 0o600 + number as u16;
        scene.does(&Operation::SetMode { path: Path::new("before"), mode }).await;
        scene.settled().await;
    }
    scene.does_all(&written("large", LARGE, 2)).await;
    scene.does(&Operation::Create { path: Path::new("open"), mode: 0o644, slot: 2 }).await;
    scene.rest(SOON).await;
    assert_eq!(scene.went_ahead(), 1);
    // The large file has come, too, and the log is cut off behind both.
    check::settled(&scene.room, &scene.machines, false).await.unwrap();
    scene.does(&Operation::Write { slot: 2, offset: 0, length: SMALL, version: 3 }).await;
    scene.rest(CHECKPOINT).await;
    scene.machines[0].stop(End::Killed, Duration::ZERO);
    scene.programs = Programs::default();
    scene.machines[0].start().await.unwrap();
    scene.rest(SOON).await;
    scene.settled().await;
    assert_eq!(scene.elsewhere("open", SMALL).await, Some(3), "{before} updates before");
    assert_eq!(scene.elsewhere("large", LARGE).await, Some(2));
    scene.room.network.close();
}

/// After a kill verdicts that had come are awaited once more, and that of what went ahead comes
/// before those of what the same file held before. Whenever the file is written again or removed, it
/// is upon what shows: what went ahead, or what the other machine has stored upon that.
#[test]
fn what_went_ahead_before_a_kill_is_built_upon_without_a_conflict() {
    for theirs in [false, true] {
        for removes in [false, true] {
            let waits = (900..1500).step_by(30).map(Duration::from_millis);
            let seen = waits
                .filter(|wait| sim::run::paused(killed_and_built_upon(theirs, removes, *wait)));
            assert!(seen.count() > 5, "theirs: {theirs}");
        }
    }
}

/// False: what the other machine has stored is not known yet.
async fn killed_and_built_upon(theirs: bool, removes: bool, wait: Duration) -> bool {
    let case = format!("theirs: {theirs}, removes: {removes}, after {wait:?}");
    let mut scene = Scene::new(15, PARTIAL).await;
    scene.does_all(&written("small", SMALL, 2)).await;
    scene.settled().await;
    scene.rest(CHECKPOINTED).await;
    scene.does_all(&again("small", SMALL, 3)).await;
    check::settled(&scene.room, &scene.machines, false).await.unwrap();
    scene.does_all(&written("large", LARGE, 10)).await;
    scene.does_all(&again("small", SMALL, 11)).await;
    scene.rest(Duration::from_secs(1)).await;
    scene.machines[0].stop(End::Killed, Duration::ZERO);
    scene.programs = Programs::default();
    assert_eq!(scene.elsewhere("small", SMALL).await, Some(11), "{case}");
    if theirs {
        let mut programs = Programs::default();
        for operation in again("small", SMALL, 12) {
            programs.perform(scene.machines[1].client().unwrap(), &operation).await;
        }
        check::settled(&scene.room, &scene.machines[1..], true).await.unwrap();
    }
    let client = scene.machines[0].launch().unwrap();
    assert_eq!(client.status().pending.updates, 4, "the crash undid the verdicts");
    scene.rest(wait).await;
    let fetch = Operation::Fetch { path: Path::new("small") };
    let found = scene.programs.perform(&client, &fetch).await;
    if theirs && found != Outcome::Bytes(stretch(12, SMALL)) {
        scene.room.network.close();
        return false;
    }
    scene.does_all(&again("small", SMALL, 13)).await;
    if removes {
        scene.does(&Operation::Unlink { path: Path::new("small") }).await;
    }
    scene.settled().await;
    let there = (!removes).then_some(13);
    assert_eq!(scene.elsewhere("small", SMALL).await, there, "{case}");
    scene.room.network.close();
    true
}

#[test]
fn what_does_not_fit_into_one_message_goes_with_the_next() {
    sim::run::paused(async {
        let mut scene = Scene::new(8, PARTIAL).await;
        scene.does_all(&written("large", LARGE, 2)).await;
        for version in 3..12 {
            scene.does_all(&written(&format!("small{version}"), SMALL * 10, version)).await;
        }
        scene.rest(Duration::from_secs(20)).await;
        for version in 3..12 {
            let name = format!("small{version}");
            assert_eq!(scene.elsewhere(&name, SMALL * 10).await, Some(version), "{name}");
        }
        assert_eq!(scene.elsewhere("large", LARGE).await, None);
        scene.settled().await;
        scene.room.network.close();
    });
}

#[test]
fn what_has_to_do_with_the_large_file_comes_after_it() {
    sim::run::paused(async {
        let mut scene = Scene::new(2, PARTIAL).await;
        scene.does_all(&written("large", LARGE, 2)).await;
        scene.does(&rename("large", "moved")).await;
        scene.does_all(&written("large", SMALL, 3)).await;
        scene.does_all(&written("small", SMALL, 4)).await;
        scene.rest(SOON).await;
        assert_eq!(scene.elsewhere("small", SMALL).await, Some(4));
        assert_eq!(scene.elsewhere("large", SMALL).await, None);
        assert_eq!(scene.elsewhere("moved", SMALL).await, None);
        scene.settled().await;
        assert_eq!(scene.elsewhere("large", SMALL).await, Some(3));
        assert_eq!(scene.elsewhere("moved", LARGE).await, Some(2));
        scene.room.network.close();
    });
}

#[test]
fn what_a_program_does_after_it_made_sure_of_a_file_comes_after_that() {
    sim::run::paused(async {
        for again in [false, true] {
            let mut scene = Scene::new(3, PARTIAL).await;
            scene.does(&Operation::Create { path: Path::new("large"), mode: 0o644, slot: 0 }).await;
            let write = Operation::Write { slot: 0, offset: 0, length: LARGE, version: 2 };
            scene.does(&write).await;
            scene.does(&Operation::Sync { slot: 0 }).await;
            scene.does_all(&written("marker", SMALL, 4)).await;
            if again {
                // It is known after a restart.
                scene.machines[0].stop(End::Killed, Duration::ZERO);
                scene.machines[0].start().await.unwrap();
                scene.programs = Programs::default();
            }
            scene.rest(SOON).await;
            assert_eq!(scene.elsewhere("marker", SMALL).await, None, "again: {again}");
            assert_eq!(scene.elsewhere("large", SMALL).await, None);
            scene.settled().await;
            assert_eq!(scene.elsewhere("marker", SMALL).await, Some(4));
            assert_eq!(scene.elsewhere("large", LARGE).await, Some(2));
            scene.room.network.close();
        }
    });
}

#[test]
fn where_all_is_to_leave_in_its_order_it_does() {
    sim::run::paused(async {
        let mut scene = Scene::new(4, PARTIAL).await;
        scene.machines[0].stop(End::Killed, Duration::ZERO);
        scene.machines[0].passes_from = None;
        scene.machines[0].start().await.unwrap();
        scene.does_all(&written("large", LARGE, 2)).await;
        scene.does_all(&written("small", SMALL, 3)).await;
        scene.rest(SOON).await;
        assert_eq!(scene.elsewhere("small", SMALL).await, None);
        scene.settled().await;
        assert_eq!(scene.went_ahead(), 0);
        scene.room.network.close();
    });
}

#[test]
fn one_program_does_not_wait_for_the_large_file_of_another() {
    sim::run::paused(async {
        let scene = Scene::new(5, CONNECTED).await;
        let client = scene.client();
        let large = async {
            let mut programs = Programs::default();
            for operation in written("large", LARGE, 2) {
                programs.perform(&client, &operation).await;
            }
        };
        let small = async {
            scene.rest(Duration::from_secs(2)).await;
            let began = scene.room.clock.moment();
            let mut programs = Programs::default();
            for operation in written("small", SMALL, 3) {
                let outcome = programs.perform(&client, &operation).await;
                assert!(!matches!(outcome, Outcome::Failed(_)), "{operation}: {outcome}");
            }
            assert_eq!(scene.elsewhere("small", SMALL).await, Some(3));
            assert_eq!(scene.elsewhere("large", SMALL).await, Some(0));
            scene.room.clock.moment().since(began)
        };
        let ((), took) = tokio::join!(large, small);
        assert!(took < SOON, "it took {took:?}");
        assert_eq!(scene.elsewhere("large", LARGE).await, Some(2));
        scene.room.network.close();
    });
}

/// Killed, or cut off, `millis` after it was written; says how much had gone ahead.
async fn interrupted(millis: u64, how: Option<End>) -> u64 {
    let mut scene = Scene::new(millis, PARTIAL).await;
    scene.rest(CHECKPOINT).await;
    scene.does_all(&written("large", LARGE, 2)).await;
    scene
        .does(&Operation::Make {
            path: Path::new("directory"),
            kind: Kind::Directory,
            mode: 0o755,
            target: None,
        })
        .await;
    for (version, name) in (3..).zip(["one", "two", "three"]) {
        scene.does_all(&written(name, SMALL, version)).await;
        scene.does(&rename(name, &format!("directory/{name}"))).await;
    }
    scene.rest(Duration::from_millis(millis)).await;
    let ahead = scene.went_ahead();
    let line = scene.machines[0].line;
    match how {
        Some(how) => {
            scene.machines[0].stop(how, Duration::ZERO);
            scene.room.network.cut(line, Duration::ZERO);
            scene.machines[0].mode = WantedMode::Fixed(Mode::Disconnected);
            scene.machines[0].start().await.unwrap();
            scene.programs = Programs::default();
        }
        None => scene.room.network.cut(line, Duration::ZERO),
    }
    scene.rest(Duration::from_secs(20)).await;
    if how != Some(End::PowerCut) {
        // It may be there by now, and whether it is cannot be known here.
        scene.does(&Operation::Unlink { path: Path::new("directory/two") }).await;
        scene.does_all(&written("directory/two", SMALL, 9)).await;
        scene.does(&rename("directory/three", "three")).await;
    }
    scene.room.network.restore(line);
    scene.client().set_mode(PARTIAL);
    scene.settled().await;
    if how != Some(End::PowerCut) {
        assert_eq!(scene.elsewhere("large", LARGE).await, Some(2), "{millis}");
        assert_eq!(scene.elsewhere("directory/one", SMALL).await, Some(3), "{millis}");
        assert_eq!(scene.elsewhere("directory/two", SMALL).await, Some(9), "{millis}");
        assert_eq!(scene.elsewhere("three", SMALL).await, Some(5), "{millis}");
        assert_eq!(scene.elsewhere("directory/three", SMALL).await, None, "{millis}");
    }
    scene.room.network.close();
    ahead
}

#[test]
fn a_cut_or_a_crash_meanwhile_changes_nothing() {
    for how in [None, Some(End::Killed), Some(End::PowerCut)] {
        let (mut none, mut some) = (0, 0);
        for millis in (0..1_300).step_by(90) {
            match sim::run::paused(async { interrupted(millis, how).await }) {
                0 => none += 1,
                _ => some += 1,
            }
        }
        assert!(none > 2 && some > 2, "{none} before anything went ahead, {some} after");
    }
}

#[test]
fn who_was_set_back_makes_no_update_under_a_number_that_went_ahead() {
    sim::run::paused(async {
        let mut scene = Scene::new(7, PARTIAL).await;
        scene.rest(Duration::from_secs(20)).await;
        scene.machines[0].stop(End::Killed, Duration::ZERO);
        let backup = scene.machines[0].disk.restart();
        scene.machines[0].disk = scene.machines[0].disk.restart();
        scene.machines[0].start().await.unwrap();
        scene.does_all(&written("large", LARGE, 2)).await;
        scene.does_all(&written("small", SMALL, 3)).await;
        scene.rest(SOON).await;
        assert_eq!(scene.elsewhere("small", SMALL).await, Some(3));
        scene.machines[0].stop(End::Killed, Duration::ZERO);
        scene.machines[0].disk = backup;
        scene.programs = Programs::default();
        scene.machines[0].start().await.unwrap();
        for (version, name) in (10..).zip(["other", "another", "third"]) {
            scene.does_all(&written(name, SMALL, version)).await;
        }
        scene.settled().await;
        for (version, name) in (10..).zip(["other", "another", "third"]) {
            assert_eq!(scene.elsewhere(name, SMALL).await, Some(version));
        }
        assert_eq!(scene.elsewhere("small", SMALL).await, Some(3));
        scene.room.network.close();
    });
}
