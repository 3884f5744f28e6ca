//! A server that comes back from a backup: nothing that is cached of what it has lost goes before
//! the user has said so, and whoever has nothing to lose goes on.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::{OpenFlags, WantedMode};
use model::Kind;
use replica::Limits;
use sim::check;
use sim::contents::stretch;
use sim::machine::{ClientMachine, End, OriginMachine, Room, SimClient};
use sim::network::Conditions;
use sim::operation::{Operation, Outcome, Path};
use sim::perform::Programs;
use std::time::Duration;
use store::faulty::Disk;

const LENGTH: usize = 20_000;
const READ: OpenFlags = OpenFlags { read: true, write: false, truncate: false, append: false };

struct Scene {
    room: Room,
    origin: OriginMachine,
    machines: Vec<ClientMachine>,
}

impl Scene {
    async fn new() -> Scene {
        let room = Room::new(1, false);
        let origin = OriginMachine::start(&room, Limits::simulated()).unwrap();
        let mut machines = Vec::new();
        for number in 0..2 {
            let mode = WantedMode::Auto;
            let mut machine =
                ClientMachine::invited(&room, &origin, number, Conditions::NEAR, mode);
            machine.start().await.unwrap();
            machines.push(machine);
        }
        Scene { room, origin, machines }
    }

    async fn join(&mut self, number: u64) {
        let (room, mode) = (&self.room, WantedMode::Auto);
        let mut machine =
            ClientMachine::invited(room, &self.origin, number as _, Conditions::NEAR, mode);
        machine.start().await.unwrap();
        self.machines.push(machine);
    }

    fn client(&self, number: usize) -> SimClient {
        self.machines[number].client().unwrap().clone()
    }

    async fn save(&self, name: &str, version: u64) {
        self.save_by(0, name, version).await;
    }

    async fn save_by(&self, number: usize, name: &str, version: u64) {
        let operations = [
            Operation::Create { path: Path::new(name), mode: 0o644, slot: 0 },
            Operation::Write { slot: 0, offset: 0, length: LENGTH, version },
            Operation::Close { slot: 0 },
        ];
        Programs::default().perform_all(&self.client(number), operations).await;
    }

    async fn make_directory(&self, name: &str) {
        let (path, kind) = (Path::new(name), Kind::Directory);
        let make = Operation::Make { path, kind, mode: 0o755, target: None };
        Programs::default().perform(&self.client(0), &make).await;
    }

    async fn settled(&self) {
        check::settled(&self.room, &self.machines, true).await.unwrap();
    }

    /// What one client finds under a name.
    async fn read(&self, number: usize, name: &str) -> Option<Vec<u8>> {
        let (mut programs, client) = (Programs::default(), self.client(number));
        let open = Operation::Open { path: Path::new(name), slot: 0, flags: READ };
        programs.perform(&client, &open).await;
        let read = Operation::Read { slot: 0, offset: 0, length: LENGTH };
        match programs.perform(&client, &read).await {
            Outcome::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    async fn names(&self, number: usize) -> Vec<String> {
        let list = Operation::List { path: Path(Vec::new()), page: 100 };
        match Programs::default().perform(&self.client(number), &list).await {
            Outcome::Names(names) => names.iter().map(|(name, _)| name.to_string()).collect(),
            other => panic!("{other}"),
        }
    }

    /// The server's disk as it is, and the server goes on.
    fn backed_up(&mut self) -> Disk {
        self.origin.stop(End::Killed, Duration::ZERO);
        let backup = self.origin.disk.restart();
        self.origin.restart().unwrap();
        backup
    }

    fn put_back(&mut self, backup: Disk) {
        self.origin.stop(End::Killed, Duration::ZERO);
        self.origin.disk = backup;
        self.origin.restart().unwrap();
    }

    /// Does something of which the server knows nothing afterwards.
    async fn lost_by_the_server(&mut self, work: impl AsyncFnOnce(&Scene)) {
        self.settled().await;
        let backup = self.backed_up();
        self.settled().await;
        work(self).await;
        self.settled().await;
        self.put_back(backup);
        self.room.clock.sleep(Duration::from_secs(60)).await;
    }
}

#[test]
fn what_the_server_lost_and_is_cached_stays_until_the_user_says_otherwise() {
    sim::run::paused(async {
        let mut scene = Scene::new().await;
        scene.save("before", 1).await;
        scene.lost_by_the_server(async |scene| scene.save("after", 2).await).await;
        let status = scene.client(0).status();
        let trouble = status.link.trouble.unwrap_or_default();
        assert!(trouble.contains("set back") && trouble.contains("1 files"), "{trouble}");
        assert_eq!(scene.read(0, "after").await, Some(stretch(2, LENGTH)));
        scene.machines[0].stop(End::Killed, Duration::ZERO);
        scene.machines[0].launch().unwrap();
        scene.room.clock.sleep(Duration::from_secs(60)).await;
        assert_eq!(scene.read(0, "after").await, Some(stretch(2, LENGTH)), "after a kill too");
        scene.machines[0].stop(End::Killed, Duration::ZERO);
        scene.machines[0].accepts_set_back = true;
        scene.machines[0].start().await.unwrap();
        scene.settled().await;
        for number in 0..2 {
            assert_eq!(scene.names(number).await, ["before"]);
            assert_eq!(scene.read(number, "before").await, Some(stretch(1, LENGTH)));
        }
        scene.save("later", 3).await;
        scene.settled().await;
        assert_eq!(scene.read(1, "later").await, Some(stretch(3, LENGTH)));
        check::nothing_broke(&scene.room, &scene.machines).unwrap();
        scene.room.network.close();
    });
}

#[test]
fn whoever_has_nothing_to_lose_goes_on_with_what_the_server_has() {
    sim::run::paused(async {
        let mut scene = Scene::new().await;
        scene.save("before", 1).await;
        scene.lost_by_the_server(async |scene| scene.make_directory("lost").await).await;
        scene.settled().await;
        for number in 0..2 {
            assert_eq!(scene.names(number).await, ["before"]);
        }
        scene.save("later", 2).await;
        scene.settled().await;
        assert_eq!(scene.read(1, "later").await, Some(stretch(2, LENGTH)));
        check::nothing_broke(&scene.room, &scene.machines).unwrap();
        scene.room.network.close();
    });
}

#[test]
fn a_server_that_has_as_many_changes_again_is_told_from_what_it_was() {
    sim::run::paused(async {
        let mut scene = Scene::new().await;
        scene.save("before", 1).await;
        scene.settled().await;
        let backup = scene.backed_up();
        scene.settled().await;
        scene.save("after", 2).await;
        scene.settled().await;
        // What the first one knows is on its disk, and it goes.
        scene.room.clock.sleep(Duration::from_secs(10)).await;
        scene.machines[0].stop(End::Killed, Duration::ZERO);
        scene.put_back(backup);
        scene.room.clock.sleep(Duration::from_secs(60)).await;
        for version in 10..20 {
            scene.save_by(1, &format!("instead-{version}"), version).await;
        }
        scene.room.clock.sleep(Duration::from_secs(60)).await;
        scene.machines[0].launch().unwrap();
        scene.room.clock.sleep(Duration::from_secs(60)).await;
        let trouble = scene.client(0).status().link.trouble.unwrap_or_default();
        assert!(trouble.contains("set back") && trouble.contains("1 files"), "{trouble}");
        assert_eq!(scene.read(0, "after").await, Some(stretch(2, LENGTH)));
        scene.machines[0].stop(End::Killed, Duration::ZERO);
        scene.machines[0].accepts_set_back = true;
        scene.machines[0].start().await.unwrap();
        scene.settled().await;
        for number in 0..2 {
            assert_eq!(scene.names(number).await.len(), 11, "{number}");
            assert_eq!(scene.read(number, "before").await, Some(stretch(1, LENGTH)));
            assert_eq!(scene.read(number, "instead-10").await, Some(stretch(10, LENGTH)));
        }
        scene.save("later", 3).await;
        scene.settled().await;
        assert_eq!(scene.read(1, "later").await, Some(stretch(3, LENGTH)));
        check::nothing_broke(&scene.room, &scene.machines).unwrap();
        scene.room.network.close();
    });
}

/// A server that was set back gives an id to a device that it had given to another before, and that device makes files
/// by the same numbers.
#[test]
fn what_was_cached_of_a_lost_file_is_not_shown_for_another_that_bears_its_id() {
    sim::run::paused(async {
        let mut scene = Scene::new().await;
        scene.save("before", 1).await;
        scene.settled().await;
        let backup = scene.backed_up();
        scene.join(2).await;
        scene.save_by(2, "lost", 50).await;
        scene.settled().await;
        assert_eq!(scene.read(0, "lost").await, Some(stretch(50, LENGTH)));
        scene.room.clock.sleep(Duration::from_secs(10)).await;
        scene.machines[0].stop(End::Killed, Duration::ZERO);
        // The server will not know its device.
        scene.machines.remove(2).stop(End::Killed, Duration::ZERO);
        scene.put_back(backup);
        scene.join(3).await;
        scene.room.clock.sleep(Duration::from_secs(60)).await;
        scene.save_by(2, "instead", 60).await;
        scene.room.clock.sleep(Duration::from_secs(60)).await;
        scene.machines[0].accepts_set_back = true;
        scene.machines[0].start().await.unwrap();
        scene.settled().await;
        for number in 0..3 {
            assert_eq!(scene.names(number).await, ["before", "instead"], "{number}");
            let read = scene.read(number, "instead").await;
            assert!(read == Some(stretch(60, LENGTH)), "{number}");
        }
        check::nothing_broke(&scene.room, &scene.machines).unwrap();
        scene.room.network.close();
    });
}
