//! What is pinned is fetched unasked, follows what others do, stays in a cache that is too small
//! for the rest, and is there without a link.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::{PinsReport, RenameFlag, WantedMode};
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

const SMALL_CACHE: u64 = 256 << 10;
const PARTIAL: WantedMode = WantedMode::Fixed(Mode::Partial);
/// Within this, of the world's time, what is pinned is here.
const WITHIN: Duration = Duration::from_secs(300);

/// What Ada has written: path, version, length.
const TREE: [(&str, u64, usize); 4] =
    [("docs/a", 1, 20_000), ("docs/b", 2, 150_000), ("docs/deep/c", 3, 500), ("other", 4, 900_000)];

struct Scene {
    room: Room,
    _origin: OriginMachine,
    ada: ClientMachine,
    bob: ClientMachine,
}

impl Scene {
    async fn new(seed: u64, cache_bytes_max: u64) -> Scene {
        let room = Room::new(seed, false);
        let origin = OriginMachine::start(&room, Limits::simulated()).unwrap();
        let machine = |number, line| ClientMachine::invited(&room, &origin, number, line, PARTIAL);
        let mut ada = machine(0, Conditions::NEAR);
        let mut bob = machine(1, Conditions::FAR);
        bob.cache_bytes_max = cache_bytes_max;
        let client = ada.start().await.unwrap();
        let mut programs = Programs::default();
        for path in ["docs", "docs/deep"] {
            let (path, kind) = (Path::new(path), Kind::Directory);
            let make = Operation::Make { path, kind, mode: 0o755, target: None };
            programs.perform(&client, &make).await;
        }
        for (path, version, length) in TREE {
            write(&client, path, version, length).await;
        }
        check::settled(&room, std::slice::from_ref(&ada), true).await.unwrap();
        bob.start().await.unwrap();
        Scene { room, _origin: origin, ada, bob }
    }

    fn bob(&self) -> SimClient {
        self.bob.client().unwrap().clone()
    }

    fn ada(&self) -> SimClient {
        self.ada.client().unwrap().clone()
    }

    /// Waits until the report is as it should be.
    async fn until(&self, is_so: impl Fn(&PinsReport) -> bool) -> PinsReport {
        let mut report = PinsReport::default();
        for _ in 0..WITHIN.as_secs() {
            self.room.clock.sleep(Duration::from_secs(1)).await;
            report = self.bob().pins_report(100).unwrap();
            if is_so(&report) {
                return report;
            }
        }
        panic!("{report:?}");
    }

    async fn all_here(&self) -> PinsReport {
        self.until(|report| {
            let walked = report.unknown == 0 && report.bytes > 0;
            walked && report.lacking_bytes == 0
        })
        .await
    }

    async fn go_without_a_link(&self) -> SimClient {
        let client = self.bob();
        client.set_mode(WantedMode::Fixed(Mode::Disconnected));
        self.room.clock.sleep(Duration::from_secs(2)).await;
        client
    }
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

/// Looks a path up name by name, as the kernel does.
async fn find(client: &SimClient, path: &str) -> FileId {
    let mut at = FileId::ROOT;
    for part in path.split('/') {
        let name = Name::new(part).unwrap();
        at = client::complete(client, |client| client.lookup(at, &name))
            .await
            .unwrap()
            .unwrap()
            .file;
    }
    at
}

async fn fetch(client: &SimClient, path: &str) -> Outcome {
    Programs::default().perform(client, &Operation::Fetch { path: Path::new(path) }).await
}

async fn assert_reads(client: &SimClient, path: &str, version: u64, length: usize) {
    let found = fetch(client, path).await;
    assert!(found == Outcome::Bytes(stretch(version, length)), "{path}: {found}");
}

#[test]
fn a_pinned_tree_comes_unasked_and_is_read_without_a_link() {
    sim::run::paused(async {
        let scene = Scene::new(1, 1 << 30).await;
        let docs = find(&scene.bob(), "docs").await;
        scene.bob().pin(docs, None, 0, true).unwrap();
        let report = scene.all_here().await;
        assert_eq!((report.pins[0].files, report.bytes), (3, 170_500));
        assert_eq!(report.pins[0].path.as_deref(), Some("docs"));
        let client = scene.go_without_a_link().await;
        for (path, version, length) in &TREE[..3] {
            assert_reads(&client, path, *version, *length).await;
        }
        let other = fetch(&client, "other").await;
        assert!(matches!(other, Outcome::Failed(_)), "nobody has pinned it: {other}");
        scene.room.network.close();
    });
}

#[test]
fn what_others_change_make_and_rename_below_a_pin_comes_too() {
    sim::run::paused(async {
        let scene = Scene::new(2, 1 << 30).await;
        let docs = find(&scene.bob(), "docs").await;
        scene.bob().pin(docs, None, 0, true).unwrap();
        scene.all_here().await;
        let (ada, mut programs) = (scene.ada(), Programs::default());
        write(&ada, "docs/deep/new", 7, 9_000).await;
        programs.perform(&ada, &Operation::Unlink { path: Path::new("docs/a") }).await;
        write(&ada, "docs/a", 8, 30_000).await;
        let (from, to) = (Path::new("docs"), Path::new("papers"));
        programs.perform(&ada, &Operation::Rename { from, to, flag: RenameFlag::Replace }).await;
        check::settled(&scene.room, std::slice::from_ref(&scene.ada), true).await.unwrap();
        let as_changed = |report: &PinsReport| {
            report.pins[0].files == 4 && report.unknown == 0 && report.lacking_bytes == 0
        };
        let report = scene.until(as_changed).await;
        assert_eq!(report.pins[0].path.as_deref(), Some("papers"), "the pin follows its file");
        let client = scene.go_without_a_link().await;
        assert_reads(&client, "papers/deep/new", 7, 9_000).await;
        assert_reads(&client, "papers/a", 8, 30_000).await;
        scene.room.network.close();
    });
}

/// Reads much more than the cache holds, and says whether the pinned tree is still here.
async fn is_here_after_much_else(scene: &Scene) -> bool {
    for _ in 0..2 {
        assert_reads(&scene.bob(), "other", 4, 900_000).await;
    }
    scene.room.clock.sleep(Duration::from_secs(15)).await;
    let client = scene.go_without_a_link().await;
    let found = fetch(&client, "docs/b").await;
    found == Outcome::Bytes(stretch(2, 150_000))
}

#[test]
fn what_is_pinned_does_not_leave_a_cache_that_is_full() {
    for pinned in [true, false] {
        sim::run::paused(async {
            let scene = Scene::new(3, SMALL_CACHE).await;
            let docs = find(&scene.bob(), "docs").await;
            scene.bob().pin(docs, None, 0, true).unwrap();
            scene.all_here().await;
            if !pinned {
                assert!(scene.bob().unpin(docs).unwrap());
                assert!(!scene.bob().unpin(docs).unwrap(), "it is gone");
                // More than half of the cache, and not much used: it is the first to go.
                write(&scene.ada(), "much", 9, 200_000).await;
                let settled = std::slice::from_ref(&scene.ada);
                check::settled(&scene.room, settled, true).await.unwrap();
                assert_reads(&scene.bob(), "much", 9, 200_000).await;
            }
            assert_eq!(is_here_after_much_else(&scene).await, pinned);
            scene.room.network.close();
        });
    }
}

#[test]
fn pins_hold_over_a_restart_and_a_power_cut() {
    for (seed, how) in [(4, End::PowerCut), (5, End::Killed)] {
        sim::run::paused(async {
            let mut scene = Scene::new(seed, 1 << 30).await;
            let docs = find(&scene.bob(), "docs").await;
            scene.bob().pin(docs, None, 3, true).unwrap();
            scene.bob.stop(how, Duration::ZERO);
            scene.bob.start().await.unwrap();
            let report = scene.all_here().await;
            assert_eq!((report.pins.len(), report.pins[0].priority), (1, 3));
            let client = scene.go_without_a_link().await;
            assert_reads(&client, "docs/b", 2, 150_000).await;
            scene.room.network.close();
        });
    }
}

#[test]
fn pins_that_do_not_fit_are_told_and_do_not_overfill_the_cache() {
    sim::run::paused(async {
        let scene = Scene::new(6, SMALL_CACHE).await;
        let other = find(&scene.bob(), "other").await;
        scene.bob().pin(other, None, 0, false).unwrap();
        let report = scene.until(|report| report.full).await;
        assert!(report.bytes > report.cache_bytes_max && report.lacking_bytes > 0, "{report:?}");
        assert_eq!(report.lacking[0].path, "other");
        scene.room.clock.sleep(Duration::from_secs(120)).await;
        let held = scene.bob().status().cache.bytes;
        assert!(held <= SMALL_CACHE + (64 << 10), "{held} bytes in a cache of {SMALL_CACHE}");
        scene.room.network.close();
    });
}

async fn rename(client: &SimClient, from: &str, to: &str) {
    let (from, to) = (Path::new(from), Path::new(to));
    let rename = Operation::Rename { from, to, flag: RenameFlag::Replace };
    let outcome = Programs::default().perform(client, &rename).await;
    assert!(!matches!(outcome, Outcome::Failed(_)), "{rename:?}: {outcome}");
}

async fn unlink(client: &SimClient, path: &str) {
    let unlink = Operation::Unlink { path: Path::new(path) };
    let outcome = Programs::default().perform(client, &unlink).await;
    assert!(!matches!(outcome, Outcome::Failed(_)), "{unlink:?}: {outcome}");
}

/// As most editors do.
async fn save_by_rename(client: &SimClient, path: &str, version: u64, length: usize) {
    let beside = format!("{path}.new");
    write(client, &beside, version, length).await;
    rename(client, &beside, path).await;
}

impl Scene {
    async fn ada_settles(&self) {
        check::settled(&self.room, std::slice::from_ref(&self.ada), true).await.unwrap();
    }

    async fn bob_pins(&self, path: &str, by_name: bool) {
        let client = self.bob();
        let file = find(&client, path).await;
        let (above, name) = path.rsplit_once('/').unwrap();
        let (directory, name) = (find(&client, above).await, Name::new(name).unwrap());
        client.pin(file, by_name.then_some(client::Place { directory, name }), 0, false).unwrap();
    }

    /// The one pin is of this path, and all of so many bytes is here.
    async fn until_here(&self, path: &str, bytes: u64) -> PinsReport {
        let is_so = |report: &PinsReport| {
            let pin = &report.pins[0];
            let there = pin.path.as_deref() == Some(path) && !pin.removed;
            there && (report.bytes, report.lacking_bytes, report.unknown) == (bytes, 0, 0)
        };
        self.until(is_so).await
    }
}

#[test]
fn a_pin_holds_for_what_somebody_saves_by_rename() {
    for (seed, by_name) in [(11, true), (12, false)] {
        sim::run::paused(async {
            let scene = Scene::new(seed, 1 << 30).await;
            scene.bob_pins("docs/a", by_name).await;
            let first = scene.until_here("docs/a", 20_000).await.pins[0].file;
            for (version, length) in [(21, 30_000), (22, 10_000), (23, 40_000)] {
                save_by_rename(&scene.ada(), "docs/a", version, length).await;
                scene.ada_settles().await;
                scene.until_here("docs/a", length as u64).await;
            }
            save_by_rename(&scene.bob(), "docs/a", 24, 50_000).await;
            scene.room.clock.sleep(Duration::from_secs(5)).await;
            let report = scene.until_here("docs/a", 50_000).await;
            assert_eq!(report.pins.len(), 1);
            assert_ne!(report.pins[0].file, first);
            let client = scene.go_without_a_link().await;
            assert_reads(&client, "docs/a", 24, 50_000).await;
            scene.room.network.close();
        });
    }
}

#[test]
fn a_pin_holds_over_a_backup_by_rename_and_is_not_of_the_backup() {
    sim::run::paused(async {
        let scene = Scene::new(13, 1 << 30).await;
        scene.bob_pins("docs/a", true).await;
        scene.until_here("docs/a", 20_000).await;
        rename(&scene.ada(), "docs/a", "docs/a~").await;
        scene.ada_settles().await;
        scene.room.clock.sleep(Duration::from_secs(20)).await;
        write(&scene.ada(), "docs/a", 31, 25_000).await;
        scene.ada_settles().await;
        let report = scene.until_here("docs/a", 25_000).await;
        assert_eq!(report.pins.len(), 1, "{report:?}");
        scene.room.network.close();
    });
}

#[test]
fn a_pin_goes_along_when_its_file_is_renamed_and_holds_for_saves_there() {
    sim::run::paused(async {
        let scene = Scene::new(14, 1 << 30).await;
        scene.bob_pins("docs/a", true).await;
        scene.until_here("docs/a", 20_000).await;
        rename(&scene.ada(), "docs/a", "docs/deep/z").await;
        scene.ada_settles().await;
        find_listed(&scene.bob(), "docs/deep").await;
        scene.room.clock.sleep(Duration::from_secs(90)).await;
        scene.until_here("docs/deep/z", 20_000).await;
        save_by_rename(&scene.ada(), "docs/deep/z", 41, 60_000).await;
        // Of the name that was given up it is no more.
        write(&scene.ada(), "docs/a", 42, 70_000).await;
        scene.ada_settles().await;
        let report = scene.until_here("docs/deep/z", 60_000).await;
        assert_eq!(report.pins.len(), 1, "{report:?}");
        scene.room.network.close();
    });
}

async fn find_listed(client: &SimClient, path: &str) {
    let list = Operation::List { path: Path::new(path), page: 100 };
    let outcome = Programs::default().perform(client, &list).await;
    assert!(!matches!(outcome, Outcome::Failed(_)), "{outcome}");
}

#[test]
fn a_pin_of_what_was_removed_waits_for_its_name_or_is_taken_away() {
    sim::run::paused(async {
        let scene = Scene::new(15, 1 << 30).await;
        scene.bob_pins("docs/a", true).await;
        scene.until_here("docs/a", 20_000).await;
        unlink(&scene.ada(), "docs/a").await;
        scene.ada_settles().await;
        let report = scene.until(|report| report.pins[0].removed).await;
        assert_eq!(report.pins[0].path.as_deref(), Some("docs/a"));
        assert_eq!((report.lacking_bytes, report.unknown), (0, 0), "nothing is missing of it");
        write(&scene.ada(), "docs/a", 51, 33_000).await;
        scene.ada_settles().await;
        scene.until_here("docs/a", 33_000).await;
        unlink(&scene.ada(), "docs/a").await;
        scene.ada_settles().await;
        scene.until(|report| report.pins[0].removed).await;
        let directory = find(&scene.bob(), "docs").await;
        let at = |name| client::Place { directory, name: Name::new(name).unwrap() };
        assert_eq!(scene.bob().left_at(&at("b")).unwrap(), None);
        let left = scene.bob().left_at(&at("a")).unwrap().expect("a pin is left");
        assert!(scene.bob().unpin(left).unwrap());
        assert!(scene.bob().pins_report(0).unwrap().pins.is_empty());
        scene.room.network.close();
    });
}

#[test]
fn a_pin_holds_for_what_was_saved_while_nobody_could_tell_of_it() {
    sim::run::paused(async {
        let mut scene = Scene::new(16, 1 << 30).await;
        scene.bob_pins("docs/a", true).await;
        scene.until_here("docs/a", 20_000).await;
        scene.bob.stop(End::Killed, Duration::ZERO);
        save_by_rename(&scene.ada(), "docs/a", 61, 44_000).await;
        scene.ada_settles().await;
        scene.room.clock.sleep(Duration::from_secs(300)).await;
        scene.bob.start().await.unwrap();
        scene.until_here("docs/a", 44_000).await;
        scene.room.network.close();
    });
}
