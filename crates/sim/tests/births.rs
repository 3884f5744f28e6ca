//! When files were made: the same for everybody, whatever became of the updates that made them.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::{OpenFlags, RenameFlag, WantedMode};
use model::{Kind, Time};
use protocol::Mode;
use replica::Limits;
use sim::check;
use sim::machine::{ClientMachine, End, OriginMachine, Room};
use sim::network::Conditions;
use sim::operation::{Operation, Outcome, Path};
use sim::perform::Programs;
use sim::tree::of_client;
use std::collections::BTreeMap;
use std::time::Duration;

const ADA: usize = 0;
const BOB: usize = 1;
const A_WHILE: Duration = Duration::from_secs(3);
const LONG: Duration = Duration::from_secs(100);

struct Scene {
    room: Room,
    origin: OriginMachine,
    machines: [ClientMachine; 2],
}

impl Scene {
    async fn new(seed: u64) -> Scene {
        let room = Room::new(seed, false);
        let origin = OriginMachine::start(&room, Limits::simulated()).unwrap();
        let mode = WantedMode::Fixed(Mode::Partial);
        let machine =
            |number| ClientMachine::invited(&room, &origin, number, Conditions::NEAR, mode);
        let mut machines = [machine(ADA), machine(BOB)];
        for machine in &mut machines {
            machine.start().await.unwrap();
        }
        Scene { room, origin, machines }
    }

    async fn does(&self, who: usize, operations: &[Operation]) {
        let client = self.machines[who].client().unwrap();
        let mut programs = Programs::default();
        for operation in operations {
            let outcome = programs.perform(client, operation).await;
            assert!(!matches!(outcome, Outcome::Failed(_)), "{operation}: {outcome}");
        }
    }

    /// All that was done has arrived everywhere, and everybody sees the same.
    async fn agree(&self) {
        check::settled(&self.room, &self.machines, true).await.unwrap();
        self.room.clock.sleep(A_WHILE).await;
        check::all_agree(&self.room, &self.origin, &self.machines).await.unwrap();
    }

    /// When what is there was made, by its path.
    async fn births(&self, who: usize) -> BTreeMap<String, Option<Time>> {
        let client = self.machines[who].client().unwrap();
        let tree = of_client(client, &Path::new("")).await.unwrap();
        let born = |leaf: sim::tree::Leaf| leaf.node.unwrap().born;
        tree.0.into_iter().map(|(path, leaf)| (path.to_string(), born(leaf))).collect()
    }

    fn now(&self) -> Time {
        self.room.clock.time()
    }
}

fn create(path: &str) -> [Operation; 3] {
    let path = Path::new(path);
    [Operation::Create { path, mode: 0o644, slot: 0 }, write(1), Operation::Close { slot: 0 }]
}

fn write(version: u64) -> Operation {
    Operation::Write { slot: 0, offset: 0, length: 500, version }
}

fn store(path: &str, version: u64) -> [Operation; 3] {
    let flags = OpenFlags { write: true, truncate: true, ..OpenFlags::default() };
    let open = Operation::Open { path: Path::new(path), slot: 0, flags };
    [open, write(version), Operation::Close { slot: 0 }]
}

fn make(path: &str, kind: Kind) -> Operation {
    let target = (kind == Kind::Symlink).then(|| b"file".to_vec());
    Operation::Make { path: Path::new(path), kind, mode: 0o755, target }
}

fn rename(from: &str, to: &str) -> Operation {
    let (from, to) = (Path::new(from), Path::new(to));
    Operation::Rename { from, to, flag: RenameFlag::Replace }
}

#[test]
fn what_was_made_without_a_link_was_made_then_and_not_when_it_arrived() {
    sim::run::paused(async {
        let mut scene = Scene::new(1).await;
        // What is there is known here.
        assert!(scene.births(ADA).await[""].is_some());
        let line = scene.machines[ADA].line;
        scene.room.network.cut(line, Duration::ZERO);
        scene.room.clock.sleep(A_WHILE).await;
        let begun = scene.now();
        scene.does(ADA, &create("/a")).await;
        scene.does(ADA, &[make("/d", Kind::Directory), make("/l", Kind::Symlink)]).await;
        scene.room.clock.sleep(A_WHILE).await;
        // Without a name first.
        let (directory, path) = (Path::new("/d"), Path::new("/d/named"));
        let unborn = Operation::CreateUnborn { directory, mode: 0o600, slot: 1 };
        let client = scene.machines[ADA].client().unwrap();
        let mut programs = Programs::default();
        programs.perform(client, &unborn).await;
        let ended = scene.now();
        scene.room.clock.sleep(LONG).await;
        let bear = Operation::Bear { slot: 1, to: path };
        let outcome = programs.perform(client, &bear).await;
        assert!(!matches!(outcome, Outcome::Failed(_)), "{outcome}");
        programs.perform(client, &Operation::Close { slot: 1 }).await;
        scene.does(ADA, &store("/a", 2)).await;
        scene.does(ADA, &[rename("/a", "/d/b"), rename("/d/b", "/d/c")]).await;
        let here = scene.births(ADA).await;
        scene.room.network.restore(line);
        scene.room.clock.sleep(LONG).await;
        scene.agree().await;
        assert_eq!(scene.births(ADA).await, here);
        assert_eq!(scene.births(BOB).await, here);
        for path in ["/d", "/l", "/d/c", "/d/named"] {
            let born = here[path].unwrap();
            assert!(begun <= born && born <= ended, "{path}: {begun:?} {born:?} {ended:?}");
        }
        // They are what is known after a crash, too.
        scene.machines[ADA].stop(End::Killed, Duration::ZERO);
        scene.machines[ADA].start().await.unwrap();
        assert_eq!(scene.births(ADA).await, here);
        scene.room.network.close();
    });
}

#[test]
fn of_two_versions_that_met_both_were_made_when_the_file_was() {
    sim::run::paused(async {
        let scene = Scene::new(2).await;
        scene.does(ADA, &create("/file")).await;
        scene.agree().await;
        let made = scene.births(BOB).await["/file"];
        assert!(made.is_some());
        scene.room.clock.sleep(A_WHILE).await;
        for line in scene.machines.each_ref().map(|machine| machine.line) {
            scene.room.network.cut(line, Duration::ZERO);
        }
        scene.room.clock.sleep(A_WHILE).await;
        scene.does(ADA, &store("/file", 2)).await;
        scene.does(BOB, &store("/file", 3)).await;
        // These two are files of their own, of which each was made when it was.
        scene.does(ADA, &create("/new")).await;
        scene.room.clock.sleep(A_WHILE).await;
        scene.does(BOB, &create("/new")).await;
        let news = [scene.births(ADA).await["/new"], scene.births(BOB).await["/new"]];
        for line in scene.machines.each_ref().map(|machine| machine.line) {
            scene.room.network.restore(line);
        }
        scene.room.clock.sleep(LONG).await;
        scene.agree().await;
        let births = scene.births(ADA).await;
        assert_eq!(births, scene.births(BOB).await);
        let of = |begins: &str| {
            let found = births.iter().filter(|(path, _)| path.starts_with(begins));
            found.map(|(_, born)| *born).collect::<Vec<_>>()
        };
        assert_eq!(of("/file"), [made, made], "{births:?}");
        let (mut told, mut news) = (of("/new"), news.to_vec());
        told.sort_unstable();
        news.sort_unstable();
        assert_eq!(told, news, "{births:?}");
        scene.room.network.close();
    });
}
