//! A server that is there, and whose store fails: who has cached something goes on with it as if the
//! server were not there, is told why, and is back by itself once the server works again.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::{WantedMode, complete};
use model::{FileId, Kind, Name};
use protocol::{Mode, Status};
use replica::Limits;
use sim::check;
use sim::contents::stretch;
use sim::machine::{ClientMachine, End, OriginMachine, Room};
use sim::network::Conditions;
use sim::operation::{Operation, Outcome, Path};
use sim::perform::Programs;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use store::{Durability, Tables};

/// Without these the origin attaches nobody, and renews no lease.
const WRITERS: &str = "whole-writers";
const LEASES: &str = "origin-leases";
const NODES: &str = "whole-nodes";
const ROWS_MAX: usize = 100;
/// What is known of the tree is on the disk within this.
const CHECKPOINT_WITHIN: Duration = Duration::from_secs(10);
const LENGTH: usize = 5_000;
/// The longest pause before it is tried again, and some.
const BACK_WITHIN: Duration = Duration::from_secs(35);
/// A lease ends within this.
const LEASE: Duration = Duration::from_secs(60);

struct Scene {
    room: Room,
    origin: OriginMachine,
    machine: ClientMachine,
    programs: Programs,
}

impl Scene {
    /// A file is here, and at the origin.
    async fn new(mode: WantedMode) -> Scene {
        let room = Room::new(1, false);
        let origin = OriginMachine::start(&room, Limits::simulated()).unwrap();
        let mut machine = ClientMachine::invited(&room, &origin, 0, Conditions::NEAR, mode);
        machine.start().await.unwrap();
        let mut scene = Scene { room, origin, machine, programs: Programs::default() };
        scene.save("before", 1).await;
        check::settled(&scene.room, std::slice::from_ref(&scene.machine), true).await.unwrap();
        scene.room.clock.sleep(CHECKPOINT_WITHIN).await;
        scene
    }

    async fn does(&mut self, operation: Operation) -> Outcome {
        let client = self.machine.client().unwrap().clone();
        self.programs.perform(&client, &operation).await
    }

    async fn save(&mut self, path: &str, version: u64) {
        for operation in [
            Operation::Create { path: Path::new(path), mode: 0o644, slot: 0 },
            Operation::Write { slot: 0, offset: 0, length: LENGTH, version },
            Operation::Close { slot: 0 },
        ] {
            let outcome = self.does(operation).await;
            assert!(!matches!(outcome, Outcome::Failed(_)), "{path}: {outcome}");
        }
    }

    async fn read(&mut self, path: &str) -> Outcome {
        self.does(Operation::Fetch { path: Path::new(path) }).await
    }

    fn status(&self) -> Status {
        self.machine.client().unwrap().status()
    }

    /// No row of a table can be read any more. Gives what they were.
    fn damage(&self, table: &'static str) -> Vec<(Vec<u8>, Vec<u8>)> {
        let rows = {
            let tables = self.origin.disk.tables("origin");
            tables.read().unwrap().scan(table, &[], &[0xff; 32], ROWS_MAX).unwrap()
        };
        assert!(!rows.is_empty(), "{table}");
        let wrong: Vec<_> = rows.iter().map(|(key, _)| (key.clone(), b"no row".to_vec())).collect();
        self.put(table, &wrong);
        rows
    }

    fn put(&self, table: &'static str, rows: &[(Vec<u8>, Vec<u8>)]) {
        let tables = self.origin.disk.tables("origin");
        let mut write = tables.write().unwrap();
        for (key, value) in rows {
            write.put(table, key, value).unwrap();
        }
        write.commit(Durability::Now).unwrap();
    }

    /// It is shown that the server is there and of no use, and what was cached is as it was.
    async fn goes_on_alone(&mut self) {
        assert_eq!(self.read("before").await, Outcome::Bytes(stretch(1, LENGTH)));
        let status = self.status();
        assert_eq!(status.mode, Mode::Disconnected);
        assert!(status.link.refused && !status.link.connected, "{:?}", status.link);
        assert!(status.link.trouble.unwrap().contains("its store failed"));
        assert!(status.mode_why.contains("cannot be attached"), "{}", status.mode_why);
        self.save("meanwhile", 2).await;
        assert!(self.status().pending.held_back.unwrap().contains("its store failed"));
    }

    async fn comes_back(&mut self) {
        self.room.clock.sleep(BACK_WITHIN).await;
        let status = self.status();
        assert!(status.link.connected && !status.link.refused, "{:?}", status.link);
        check::settled(&self.room, std::slice::from_ref(&self.machine), true).await.unwrap();
        assert_eq!(self.read("meanwhile").await, Outcome::Bytes(stretch(2, LENGTH)));
        check::nothing_broke(&self.room, std::slice::from_ref(&self.machine)).unwrap();
        self.room.network.close();
    }
}

#[test]
fn what_is_cached_is_there_at_once_where_the_server_attaches_nobody() {
    for mode in [WantedMode::Auto, WantedMode::Fixed(Mode::Partial)] {
        sim::run::paused(async {
            let mut scene = Scene::new(mode).await;
            scene.machine.stop(End::Killed, Duration::from_millis(10));
            let rows = scene.damage(WRITERS);
            let begun = scene.room.clock.moment();
            scene.machine.start().await.unwrap();
            let took = scene.room.clock.moment().since(begun);
            assert!(took < Duration::from_secs(2), "{took:?}: nothing is waited for");
            scene.goes_on_alone().await;
            scene.room.clock.sleep(BACK_WITHIN).await;
            scene.put(WRITERS, &rows);
            scene.comes_back().await;
        });
    }
}

#[test]
fn who_must_be_connected_is_told_at_once_what_the_server_said() {
    sim::run::paused(async {
        let mut scene = Scene::new(WantedMode::Fixed(Mode::Connected)).await;
        scene.machine.stop(End::Killed, Duration::from_millis(10));
        scene.damage(WRITERS);
        let begun = scene.room.clock.moment();
        let said = scene.machine.start().await.map(|_| ()).unwrap_err();
        assert!(said.contains("its store failed"), "{said}");
        assert!(scene.room.clock.moment().since(begun) < Duration::from_secs(2));
        scene.room.network.close();
    });
}

#[test]
fn what_is_cached_stays_there_where_the_server_renews_no_lease() {
    sim::run::paused(async {
        let mut scene = Scene::new(WantedMode::Fixed(Mode::Partial)).await;
        let rows = scene.damage(LEASES);
        scene.room.clock.sleep(LEASE).await;
        scene.goes_on_alone().await;
        scene.put(LEASES, &rows);
        scene.comes_back().await;
    });
}

#[tokio::test(start_paused = true)]
async fn a_file_that_the_origin_cannot_tell_of_keeps_no_device_from_the_others() {
    let mut scene = Scene::new(WantedMode::Auto).await;
    let prefixes = |scene: &Scene| -> BTreeSet<Vec<u8>> {
        let tables = scene.origin.disk.tables("origin");
        let rows = tables.read().unwrap().scan(NODES, &[], &[0xff; 32], ROWS_MAX).unwrap();
        rows.into_iter().map(|(key, _)| key[..key.len() - 8].to_vec()).collect()
    };
    let before = prefixes(&scene);
    scene.save("bad", 2).await;
    scene.save("good", 3).await;
    check::settled(&scene.room, std::slice::from_ref(&scene.machine), true).await.unwrap();
    let bad = prefixes(&scene).difference(&before).next().unwrap().clone();
    let sound = scene.damage(NODES);
    let others: Vec<_> = sound.iter().filter(|row| !row.0.starts_with(&bad)).cloned().collect();
    scene.put(NODES, &others);
    let near = Conditions::NEAR;
    for mode in [Mode::Connected, Mode::Partial] {
        let mode = WantedMode::Fixed(mode);
        let number = if mode == WantedMode::Fixed(Mode::Partial) { 2 } else { 1 };
        let mut bob = ClientMachine::invited(&scene.room, &scene.origin, number, near, mode);
        for _ in 0..2 {
            let client = bob.start().await.unwrap();
            let listed = complete(&client, |client| client.list_names(FileId::ROOT, 0, 100)).await;
            let kinds: BTreeMap<Name, Option<Kind>> =
                listed.unwrap().into_iter().map(|listed| (listed.name, listed.kind)).collect();
            let file = Some(Kind::File);
            let expected = [("bad", None), ("before", file), ("good", file)];
            let expected = expected.map(|(name, kind)| (Name::new(name).unwrap(), kind));
            assert_eq!(kinds, BTreeMap::from(expected));
            let listed = complete(&client, |client| client.list_known(FileId::ROOT, 0, 100)).await;
            let listed = listed.unwrap();
            assert_eq!(listed.iter().filter(|entry| entry.found.is_err()).count(), 1);
            let mut programs = Programs::default();
            let mut read = async |path: &str| {
                programs.perform(&client, &Operation::Fetch { path: Path::new(path) }).await
            };
            assert_eq!(read("good").await, Outcome::Bytes(stretch(3, LENGTH)));
            assert!(matches!(read("bad").await, Outcome::Failed(_)));
            drop(client);
            bob.stop(End::Killed, Duration::ZERO);
        }
    }
}
