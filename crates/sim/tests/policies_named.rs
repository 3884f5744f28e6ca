//! A policy of a file holds for what bears its name: also after somebody has saved by rename.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::{Consistency, Place, PolicyReport, RenameFlag, WantedMode};
use model::{FileId, Name};
use protocol::Mode;
use replica::Limits;
use sim::check;
use sim::contents::stretch;
use sim::machine::{ClientMachine, OriginMachine, Room, SimClient};
use sim::network::Conditions;
use sim::operation::{Operation, Outcome, Path};
use sim::perform::Programs;
use std::time::Duration;

const PARTIAL: WantedMode = WantedMode::Fixed(Mode::Partial);
const SECOND: Duration = Duration::from_secs(1);

struct Scene {
    room: Room,
    _origin: OriginMachine,
    ada: ClientMachine,
    bob: ClientMachine,
}

impl Scene {
    /// Bob has read the file `a` that Ada has written, and has a policy for it.
    async fn new(seed: u64, consistency: Consistency) -> Scene {
        let room = Room::new(seed, false);
        let origin = OriginMachine::start(&room, Limits::simulated()).unwrap();
        let machine = |number, line| ClientMachine::invited(&room, &origin, number, line, PARTIAL);
        let (mut ada, mut bob) = (machine(0, Conditions::NEAR), machine(1, Conditions::FAR));
        write(&ada.start().await.unwrap(), "a", 1, 20_000).await;
        bob.start().await.unwrap();
        let scene = Scene { room, _origin: origin, ada, bob };
        scene.settle(&scene.ada).await;
        assert_reads(&scene.bob(), "a", 1, 20_000).await;
        let file = find(&scene.bob(), "a").await;
        let place = Place { directory: FileId::ROOT, name: Name::new("a").unwrap() };
        scene.bob().set_consistency(file, Some(place), Some(consistency)).unwrap();
        scene
    }

    fn bob(&self) -> SimClient {
        self.bob.client().unwrap().clone()
    }

    fn ada(&self) -> SimClient {
        self.ada.client().unwrap().clone()
    }

    async fn settle(&self, who: &ClientMachine) {
        check::settled(&self.room, std::slice::from_ref(who), true).await.unwrap();
        self.room.clock.sleep(SECOND * 3).await;
    }

    async fn saves_by_rename(&self, who: &ClientMachine, version: u64, length: usize) {
        let client = who.client().unwrap().clone();
        write(&client, "a.new", version, length).await;
        let (from, to) = (Path::new("a.new"), Path::new("a"));
        perform(&client, &Operation::Rename { from, to, flag: RenameFlag::Replace }).await;
        self.settle(who).await;
    }

    async fn until(&self, is_so: impl Fn(&PolicyReport) -> bool) -> PolicyReport {
        for _ in 0..300 {
            let report = self.bob().policy_report().unwrap();
            if is_so(&report) {
                return report;
            }
            self.room.clock.sleep(SECOND).await;
        }
        panic!("{:?}", self.bob().policy_report());
    }

    async fn refreshed(&self) {
        self.bob().refresh(FileId::ROOT, true).unwrap();
        self.until(|report| report.stale.is_empty()).await;
    }
}

async fn perform(client: &SimClient, operation: &Operation) {
    let outcome = Programs::default().perform(client, operation).await;
    assert!(!matches!(outcome, Outcome::Failed(_)), "{operation:?}: {outcome}");
}

async fn write(client: &SimClient, path: &str, version: u64, length: usize) {
    let slot = 0;
    let mut programs = Programs::default();
    let create = Operation::Create { path: Path::new(path), mode: 0o644, slot };
    let write = Operation::Write { slot, offset: 0, length, version };
    for operation in [create, write, Operation::Close { slot }] {
        let outcome = programs.perform(client, &operation).await;
        assert!(!matches!(outcome, Outcome::Failed(_)), "{operation:?}: {outcome}");
    }
}

async fn find(client: &SimClient, name: &str) -> FileId {
    let name = Name::new(name).unwrap();
    let found = client::complete(client, |client| client.lookup(FileId::ROOT, &name)).await;
    found.unwrap().unwrap().file
}

async fn assert_reads(client: &SimClient, path: &str, version: u64, length: usize) {
    let fetch = Operation::Fetch { path: Path::new(path) };
    let found = Programs::default().perform(client, &fetch).await;
    assert!(found == Outcome::Bytes(stretch(version, length)), "{path}: {found}");
}

#[test]
fn what_is_saved_by_rename_again_and_again_shows_as_it_was_each_time() {
    sim::run::paused(async {
        let scene = Scene::new(1, Consistency::Manual).await;
        let mut shown = (1, 20_000);
        for (version, length) in [(2, 30_000), (3, 10_000), (4, 5_000)] {
            scene.saves_by_rename(&scene.ada, version, length).await;
            assert_reads(&scene.bob(), "a", shown.0, shown.1).await;
            scene.refreshed().await;
            assert_reads(&scene.bob(), "a", version, length).await;
            shown = (version, length);
        }
        let report = scene.bob().policy_report().unwrap();
        assert_eq!(report.policies.len(), 1);
        assert_eq!(report.policies[0].path.as_deref(), Some("a"));
        scene.room.network.close();
    });
}

#[test]
fn what_one_saves_by_rename_oneself_keeps_its_policy() {
    sim::run::paused(async {
        let scene = Scene::new(2, Consistency::Manual).await;
        scene.saves_by_rename(&scene.bob, 2, 30_000).await;
        scene.saves_by_rename(&scene.ada, 3, 10_000).await;
        scene.until(|report| !report.stale.is_empty()).await;
        assert_reads(&scene.bob(), "a", 2, 30_000).await;
        scene.room.network.close();
    });
}

#[test]
fn a_policy_of_what_was_removed_waits_for_its_name_or_is_taken_away() {
    sim::run::paused(async {
        let scene = Scene::new(3, Consistency::Manual).await;
        perform(&scene.ada(), &Operation::Unlink { path: Path::new("a") }).await;
        scene.settle(&scene.ada).await;
        let report = scene.until(|report| report.policies[0].removed).await;
        assert_eq!(report.policies[0].path.as_deref(), Some("a"));
        write(&scene.ada(), "a", 5, 7_000).await;
        scene.settle(&scene.ada).await;
        scene.until(|report| !report.policies[0].removed).await;
        assert_reads(&scene.bob(), "a", 5, 7_000).await;
        scene.saves_by_rename(&scene.ada, 6, 8_000).await;
        assert_reads(&scene.bob(), "a", 5, 7_000).await;
        let place = Place { directory: FileId::ROOT, name: Name::new("a").unwrap() };
        let left = scene.bob().left_at(&place).unwrap().unwrap();
        scene.bob().set_consistency(left, None, None).unwrap();
        assert!(scene.bob().policy_report().unwrap().policies.is_empty());
        scene.until(|report| report.stale.is_empty()).await;
        assert_reads(&scene.bob(), "a", 6, 8_000).await;
        scene.room.network.close();
    });
}
