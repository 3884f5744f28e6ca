//! Whatever is done under whatever policies, in whatever mode: what is read is a version that somebody
//! stored under that name, whole; nothing that was stored is lost; and without policies all see the
//! same in the end.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::{Consistency, OpenFlags, RenameFlag, WantedMode};
use model::{FileId, Kind, Name};
use protocol::Mode;
use replica::Limits;
use sim::check;
use sim::contents::stretch;
use sim::machine::{ClientMachine, End, OriginMachine, Room, SimClient};
use sim::network::Conditions;
use sim::operation::{Operation, Outcome, Path};
use sim::perform::Programs;
use std::time::Duration;

const SEEDS: u64 = 10;
const STEPS: usize = 50;
const FILES: u64 = 4;
const PARTIAL: WantedMode = WantedMode::Fixed(Mode::Partial);
const SECOND: Duration = Duration::from_secs(1);

/// A number from the seed, and the next.
struct Draws(u64);

impl Draws {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % limit
    }
}

struct World {
    seed: u64,
    draws: Draws,
    room: Room,
    _origin: OriginMachine,
    ada: ClientMachine,
    bob: ClientMachine,
    /// Versions, with their lengths.
    stored: Vec<(u64, usize)>,
    /// Reads of what is not current.
    stale_reads: usize,
}

fn path(file: u64) -> String {
    format!("docs/file-{file}")
}

impl World {
    async fn new(seed: u64) -> World {
        let room = Room::new(seed, false);
        let origin = OriginMachine::start(&room, Limits::simulated()).unwrap();
        let machine = |number, line| ClientMachine::invited(&room, &origin, number, line, PARTIAL);
        let mut ada = machine(0, Conditions::NEAR);
        let quick = Conditions { lost_in_thousand: 0, ..Conditions::FAR };
        let mut bob = machine(1, quick);
        ada.start().await.unwrap();
        bob.start().await.unwrap();
        let (stored, draws) = (Vec::new(), Draws(seed));
        let mut world =
            World { seed, draws, room, _origin: origin, ada, bob, stored, stale_reads: 0 };
        let make = Operation::Make {
            path: Path::new("docs"),
            kind: Kind::Directory,
            mode: 0o755,
            target: None,
        };
        Programs::default().perform(&world.ada(), &make).await;
        for file in 0..FILES {
            world.save(world.ada(), &path(file)).await;
        }
        world.rest(20).await;
        for file in 0..FILES {
            world.read(file).await;
        }
        let docs = world.find(&world.bob(), "docs").await.unwrap();
        world.bob().set_consistency(docs, None, Some(Consistency::Manual)).unwrap();
        world
    }

    fn bob(&self) -> SimClient {
        self.bob.client().unwrap().clone()
    }

    fn ada(&self) -> SimClient {
        self.ada.client().unwrap().clone()
    }

    async fn rest(&self, secs: u32) {
        self.room.clock.sleep(SECOND * secs).await;
    }

    fn version(&mut self) -> (u64, usize) {
        let version = 1 + self.stored.len() as u64;
        let length = 1 + self.draws.below(60_000) as usize;
        self.stored.push((version, length));
        (version, length)
    }

    /// Stores a file in place, or makes it.
    async fn save(&mut self, client: SimClient, path: &str) {
        let ((version, length), slot) = (self.version(), 0);
        let flags = OpenFlags { read: true, write: true, truncate: true, ..OpenFlags::default() };
        let mut programs = Programs::default();
        let open = Operation::Open { path: Path::new(path), slot, flags };
        if let Outcome::Failed(_) = programs.perform(&client, &open).await {
            let create = Operation::Create { path: Path::new(path), mode: 0o644, slot };
            if let Outcome::Failed(_) = programs.perform(&client, &create).await {
                return;
            }
        }
        let write = Operation::Write { slot, offset: 0, length, version };
        programs.perform(&client, &write).await;
        programs.perform(&client, &Operation::Close { slot }).await;
    }

    /// As editors do it.
    async fn save_by_rename(&mut self, client: SimClient, path: &str) {
        let beside = format!("{path}.new");
        self.save(client.clone(), &beside).await;
        let (from, to) = (Path::new(&beside), Path::new(path));
        let rename = Operation::Rename { from, to, flag: RenameFlag::Replace };
        Programs::default().perform(&client, &rename).await;
    }

    async fn fetch(&self, client: &SimClient, path: &str) -> Outcome {
        Programs::default().perform(client, &Operation::Fetch { path: Path::new(path) }).await
    }

    /// What Bob reads is a whole version, if there is one.
    async fn read(&mut self, file: u64) {
        let stale = self.bob().policy_report().unwrap().stale;
        self.stale_reads += stale.iter().filter(|one| one.path == Some(path(file))).count();
        if let Outcome::Bytes(bytes) = self.fetch(&self.bob(), &path(file)).await {
            let is_version = |(version, length): &(u64, usize)| bytes == stretch(*version, *length);
            let known = bytes.is_empty() || self.stored.iter().any(is_version);
            assert!(known, "seed {}: file {file} has {} bytes of nobody's", self.seed, bytes.len());
        }
    }

    async fn find(&self, client: &SimClient, path: &str) -> Option<FileId> {
        let mut at = FileId::ROOT;
        for part in path.split('/') {
            let name = Name::new(part).unwrap();
            let found = client::complete(client, |client| client.lookup(at, &name)).await;
            at = found.ok().flatten()?.file;
        }
        Some(at)
    }

    async fn step(&mut self) {
        let file = self.draws.below(FILES);
        match self.draws.below(16) {
            0..3 => self.save(self.ada(), &path(file)).await,
            3 | 4 => self.save_by_rename(self.ada(), &path(file)).await,
            5 => {
                let unlink = Operation::Unlink { path: Path::new(&path(file)) };
                Programs::default().perform(&self.ada(), &unlink).await;
            }
            6 => self.save(self.bob(), &path(file)).await,
            7 => self.save_by_rename(self.bob(), &path(file)).await,
            8..11 => {
                for file in 0..FILES {
                    self.read(file).await;
                }
            }
            11 => {
                let top =
                    ["docs".to_owned(), path(file)][usize::from(self.draws.below(3) > 0)].clone();
                let consistency = [
                    None,
                    Some(Consistency::Strict),
                    Some(Consistency::Bounded(20)),
                    Some(Consistency::Manual),
                    Some(Consistency::Manual),
                ];
                let consistency = consistency[self.draws.below(5) as usize];
                if let Some(top) = self.find(&self.bob(), &top).await {
                    self.bob().set_consistency(top, None, consistency).unwrap();
                }
            }
            12 => {
                let top = self.find(&self.bob(), &path(file)).await.unwrap_or(FileId::ROOT);
                self.bob().refresh(top, false).unwrap();
            }
            13 => {
                let modes = [Mode::Connected, Mode::FetchOnly, Mode::Disconnected];
                let mode = modes.get(self.draws.below(9) as usize).copied();
                self.bob().set_mode(WantedMode::Fixed(mode.unwrap_or(Mode::Partial)));
            }
            14 => {
                let how = [End::Killed, End::PowerCut][self.draws.below(2) as usize];
                // What is not on the disk yet may be lost with the power.
                self.rest(20).await;
                self.bob.stop(how, Duration::ZERO);
                self.bob.start().await.unwrap();
            }
            _ => self.rest(10).await,
        }
        let pause = self.draws.below(4) as u32;
        self.rest(pause).await;
    }

    /// What a client shows in the directory, by name.
    async fn all(&self, client: &SimClient) -> Vec<(String, Outcome)> {
        let list = Operation::List { path: Path::new("docs"), page: 100 };
        let Outcome::Names(names) = Programs::default().perform(client, &list).await else {
            panic!("seed {}: docs cannot be listed", self.seed);
        };
        let mut all = Vec::new();
        for (name, _) in names {
            let contents = self.fetch(client, &format!("docs/{name}")).await;
            all.push((name.to_string(), contents));
        }
        all
    }

    async fn ends_well(&self) {
        self.bob().set_mode(PARTIAL);
        for policy in self.bob().policy_report().unwrap().policies {
            self.bob().set_consistency(FileId(policy.file), None, None).unwrap();
        }
        let machines = [&self.ada, &self.bob];
        for machine in machines {
            check::settled(&self.room, std::slice::from_ref(machine), true).await.unwrap();
        }
        self.rest(20).await;
        let stale = self.bob().policy_report().unwrap().stale;
        assert!(stale.is_empty(), "seed {}: {stale:?}", self.seed);
        let (hers, his) = (self.all(&self.ada()).await, self.all(&self.bob()).await);
        let names = |all: &[(String, Outcome)]| {
            all.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(names(&hers), names(&his), "seed {}", self.seed);
        for ((name, one), (_, other)) in hers.iter().zip(&his) {
            assert!(one == other, "seed {}: {name}: {one} and {other}", self.seed);
        }
    }
}

#[test]
fn whatever_is_done_under_whatever_policies_what_is_read_is_whole_and_all_agree_in_the_end() {
    let mut stale_reads = 0;
    for seed in 1..=SEEDS {
        stale_reads += sim::run::paused(async {
            let mut world = World::new(seed).await;
            for _ in 0..STEPS {
                world.step().await;
            }
            world.ends_well().await;
            world.room.network.close();
            world.stale_reads
        });
    }
    assert!(stale_reads > 10, "{stale_reads}");
}
