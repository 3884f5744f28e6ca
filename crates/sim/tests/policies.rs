//! Who may do with less than the current version goes on with the one that is here: whole, for as
//! long as was said, and never so that a change of somebody else's is lost by it.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::{Consistency, OpenFlags, PolicyReport, RenameFlag, Settling, WantedMode};
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

const PARTIAL: WantedMode = WantedMode::Fixed(Mode::Partial);
const SECOND: Duration = Duration::from_secs(1);

/// What Ada has written: path, version, length.
const TREE: [(&str, u64, usize); 3] =
    [("docs/a", 1, 20_000), ("docs/b", 2, 150_000), ("docs/deep/c", 3, 500)];

struct Scene {
    room: Room,
    _origin: OriginMachine,
    ada: ClientMachine,
    bob: ClientMachine,
}

impl Scene {
    /// Bob, who is far away, has read all that Ada has written, and has a policy for it.
    async fn new(seed: u64, consistency: Consistency) -> Scene {
        Scene::with_cache(seed, consistency, 1 << 30).await
    }

    async fn with_cache(seed: u64, consistency: Consistency, cache_bytes_max: u64) -> Scene {
        Scene::with_limits(seed, consistency, cache_bytes_max, Limits::simulated()).await
    }

    async fn with_limits(
        seed: u64,
        consistency: Consistency,
        cache_bytes_max: u64,
        limits: Limits,
    ) -> Scene {
        let room = Room::new(seed, false);
        let origin = OriginMachine::start(&room, limits).unwrap();
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
            create(&client, path, version, length).await;
        }
        bob.start().await.unwrap();
        let scene = Scene { room, _origin: origin, ada, bob };
        scene.ada_settles().await;
        for (path, version, length) in TREE {
            assert_reads(&scene.bob(), path, version, length).await;
        }
        let docs = find(&scene.bob(), "docs").await;
        scene.bob().set_consistency(docs, None, Some(consistency)).unwrap();
        scene
    }

    fn bob(&self) -> SimClient {
        self.bob.client().unwrap().clone()
    }

    fn ada(&self) -> SimClient {
        self.ada.client().unwrap().clone()
    }

    async fn ada_settles(&self) {
        check::settled(&self.room, std::slice::from_ref(&self.ada), true).await.unwrap();
    }

    /// Ada stores a file anew, and Bob is told so.
    async fn ada_stores(&self, path: &str, version: u64, length: usize) {
        store(&self.ada(), path, version, length).await;
        self.ada_settles().await;
        self.room.clock.sleep(SECOND * 3).await;
    }

    /// Waits until the report is as it should be. Gives how many seconds that took.
    async fn until(&self, most_secs: u64, is_so: impl Fn(&PolicyReport) -> bool) -> u64 {
        for second in 0..most_secs {
            if is_so(&self.bob().policy_report().unwrap()) {
                return second;
            }
            self.room.clock.sleep(SECOND).await;
        }
        panic!("{:?}", self.bob().policy_report());
    }

    fn stale(&self) -> Vec<String> {
        let report = self.bob().policy_report().unwrap();
        report.stale.into_iter().map(|stale| stale.path.unwrap_or_default()).collect()
    }
}

async fn perform(client: &SimClient, operations: &[Operation]) {
    let mut programs = Programs::default();
    for operation in operations {
        let outcome = programs.perform(client, operation).await;
        assert!(!matches!(outcome, Outcome::Failed(_)), "{operation:?}: {outcome}");
    }
}

async fn create(client: &SimClient, path: &str, version: u64, length: usize) {
    let slot = 0;
    let create = Operation::Create { path: Path::new(path), mode: 0o644, slot };
    let write = Operation::Write { slot, offset: 0, length, version };
    perform(client, &[create, write, Operation::Close { slot }]).await;
}

async fn store(client: &SimClient, path: &str, version: u64, length: usize) {
    let slot = 0;
    let flags = OpenFlags { read: true, write: true, truncate: true, ..OpenFlags::default() };
    let open = Operation::Open { path: Path::new(path), slot, flags };
    let write = Operation::Write { slot, offset: 0, length, version };
    perform(client, &[open, write, Operation::Close { slot }]).await;
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

async fn size(client: &SimClient, path: &str) -> u64 {
    let file = find(client, path).await;
    let found = client::complete(client, |client| client.attributes(file)).await.unwrap();
    found.node.contents.size
}

async fn fetch(client: &SimClient, path: &str) -> Outcome {
    Programs::default().perform(client, &Operation::Fetch { path: Path::new(path) }).await
}

/// Attributes and contents are those of one version.
async fn assert_reads(client: &SimClient, path: &str, version: u64, length: usize) {
    let found = fetch(client, path).await;
    assert!(found == Outcome::Bytes(stretch(version, length)), "{path}: {found}");
    assert_eq!(size(client, path).await, length as u64, "{path}");
}

#[test]
fn what_changed_elsewhere_shows_as_it_was_until_the_user_asks() {
    sim::run::paused(async {
        let scene = Scene::new(1, Consistency::Manual).await;
        scene.ada_stores("docs/b", 7, 90_000).await;
        scene.ada_stores("docs/deep/c", 8, 800).await;
        for _ in 0..3 {
            assert_reads(&scene.bob(), "docs/b", 2, 150_000).await;
            assert_reads(&scene.bob(), "docs/deep/c", 3, 500).await;
            scene.room.clock.sleep(SECOND * 400).await;
        }
        assert_eq!(scene.stale(), ["docs/b", "docs/deep/c"]);
        let (docs, b) = (find(&scene.bob(), "docs").await, find(&scene.bob(), "docs/b").await);
        assert_eq!(scene.bob().refresh(docs, false).unwrap(), 1, "b, and not what is deeper");
        // It shows as it was until all of it is here: nobody waits for it.
        let reads = scene.bob().status().cache.misses;
        scene.until(120, |report| report.stale.len() == 1).await;
        assert_eq!(scene.bob().status().cache.misses, reads);
        assert_reads(&scene.bob(), "docs/b", 7, 90_000).await;
        assert_reads(&scene.bob(), "docs/deep/c", 3, 500).await;
        assert_eq!(find(&scene.bob(), "docs/b").await, b, "it is the same file");
        assert_eq!(scene.bob().refresh(docs, true).unwrap(), 1);
        scene.until(120, |report| report.stale.is_empty()).await;
        assert_reads(&scene.bob(), "docs/deep/c", 8, 800).await;
        scene.room.network.close();
    });
}

#[test]
fn what_does_not_fit_into_the_cache_says_so_and_goes_on_as_it_was() {
    sim::run::paused(async {
        let scene = Scene::with_cache(21, Consistency::Manual, 400_000).await;
        scene.ada_stores("docs/b", 7, 900_000).await;
        let b = find(&scene.bob(), "docs/b").await;
        assert_eq!(scene.bob().refresh(b, false).unwrap(), 1);
        scene.until(120, |report| report.stale[0].no_room).await;
        assert_reads(&scene.bob(), "docs/b", 2, 150_000).await;
        // What fits is brought.
        scene.ada_stores("docs/b", 8, 90_000).await;
        assert_eq!(scene.bob().refresh(b, false).unwrap(), 1);
        assert!(!scene.bob().policy_report().unwrap().stale[0].no_room);
        scene.until(120, |report| report.stale.is_empty()).await;
        assert_reads(&scene.bob(), "docs/b", 8, 90_000).await;
        scene.room.network.close();
    });
}

#[test]
fn what_is_bounded_is_brought_by_itself_and_without_a_link_to_spare_when_its_time_is_over() {
    for (seed, paused) in [(2, false), (3, true)] {
        sim::run::paused(async {
            let scene = Scene::new(seed, Consistency::Bounded(100)).await;
            scene.bob().pause(paused).unwrap();
            scene.ada_stores("docs/b", 7, 90_000).await;
            assert_reads(&scene.bob(), "docs/b", 2, 150_000).await;
            let took = scene.until(200, |report| report.stale.is_empty()).await;
            assert!(if paused { (90..=100).contains(&took) } else { took < 60 }, "{took}");
            assert_reads(&scene.bob(), "docs/b", 7, 90_000).await;
            scene.room.network.close();
        });
    }
}

#[test]
fn what_is_strict_or_here_in_part_shows_as_it_is_at_once() {
    sim::run::paused(async {
        let scene = Scene::new(4, Consistency::Manual).await;
        let b = find(&scene.bob(), "docs/b").await;
        scene.bob().set_consistency(b, None, Some(Consistency::Strict)).unwrap();
        scene.ada_stores("docs/b", 7, 90_000).await;
        assert_reads(&scene.bob(), "docs/b", 7, 90_000).await;
        create(&scene.ada(), "docs/large", 9, 6_000_000).await;
        scene.ada_settles().await;
        scene.room.clock.sleep(SECOND * 3).await;
        let slot = 1;
        let flags = OpenFlags { read: true, ..OpenFlags::default() };
        let open = Operation::Open { path: Path::new("docs/large"), slot, flags };
        let read = Operation::Read { slot, offset: 0, length: 10 };
        perform(&scene.bob(), &[open, read]).await;
        scene.ada_stores("docs/large", 10, 70_000).await;
        assert_reads(&scene.bob(), "docs/large", 10, 70_000).await;
        assert!(scene.stale().is_empty());
        // What is new below the directory has its policy.
        scene.ada_stores("docs/large", 11, 60_000).await;
        assert_reads(&scene.bob(), "docs/large", 10, 70_000).await;
        // And without one it is as everywhere.
        scene.bob().set_consistency(find(&scene.bob(), "docs").await, None, None).unwrap();
        scene.until(5, |report| report.stale.is_empty()).await;
        assert_reads(&scene.bob(), "docs/large", 11, 60_000).await;
        scene.room.network.close();
    });
}

#[test]
fn a_file_that_is_saved_by_a_rename_over_it_shows_as_it_was_too() {
    sim::run::paused(async {
        let scene = Scene::new(5, Consistency::Manual).await;
        let before = find(&scene.bob(), "docs/b").await;
        create(&scene.ada(), "docs/b.new", 7, 90_000).await;
        let (from, to) = (Path::new("docs/b.new"), Path::new("docs/b"));
        perform(&scene.ada(), &[Operation::Rename { from, to, flag: RenameFlag::Replace }]).await;
        scene.ada_settles().await;
        scene.room.clock.sleep(SECOND * 3).await;
        assert_reads(&scene.bob(), "docs/b", 2, 150_000).await;
        assert_eq!(find(&scene.bob(), "docs/b").await, before);
        assert!(matches!(fetch(&scene.bob(), "docs/b.new").await, Outcome::Failed(_)));
        assert_eq!(scene.stale(), ["docs/b"]);
        assert_eq!(scene.bob().refresh(before, false).unwrap(), 1);
        scene.until(120, |report| report.stale.is_empty()).await;
        assert_reads(&scene.bob(), "docs/b", 7, 90_000).await;
        assert_ne!(find(&scene.bob(), "docs/b").await, before);
        // What is removed is gone at once.
        perform(&scene.ada(), &[Operation::Unlink { path: Path::new("docs/a") }]).await;
        scene.ada_settles().await;
        scene.room.clock.sleep(SECOND * 3).await;
        assert!(matches!(fetch(&scene.bob(), "docs/a").await, Outcome::Failed(_)));
        scene.room.network.close();
    });
}

#[test]
fn a_name_that_is_held_is_not_forgotten_when_its_file_is_replaced_under_another_name() {
    sim::run::paused(async {
        let scene = Scene::new(12, Consistency::Strict).await;
        let before = find(&scene.bob(), "docs/a").await;
        scene.bob().set_consistency(before, None, Some(Consistency::Manual)).unwrap();
        let rename = |from, to, flag| {
            let (from, to) = (Path::new(from), Path::new(to));
            [Operation::Rename { from, to, flag }]
        };
        perform(&scene.ada(), &rename("docs/a", "docs/b", RenameFlag::Exchange)).await;
        scene.ada_settles().await;
        scene.room.clock.sleep(SECOND * 3).await;
        assert_reads(&scene.bob(), "docs/a", 1, 20_000).await;
        create(&scene.ada(), "docs/new", 7, 30_000).await;
        perform(&scene.ada(), &rename("docs/new", "docs/b", RenameFlag::Replace)).await;
        scene.ada_settles().await;
        scene.room.clock.sleep(SECOND * 3).await;
        assert_reads(&scene.bob(), "docs/b", 7, 30_000).await;
        scene.until(120, |report| report.stale.is_empty()).await;
        assert_reads(&scene.bob(), "docs/a", 2, 150_000).await;
        assert_reads(&scene.bob(), "docs/b", 7, 30_000).await;
        scene.room.network.close();
    });
}

#[test]
fn of_what_is_stored_over_an_old_version_and_the_current_one_both_are_kept() {
    for (seed, mode) in [(6, Mode::Partial), (12, Mode::Connected)] {
        sim::run::paused(async {
            let scene = Scene::new(seed, Consistency::Manual).await;
            scene.bob().set_mode(WantedMode::Fixed(mode));
            scene.ada_stores("docs/b", 7, 90_000).await;
            assert_reads(&scene.bob(), "docs/b", 2, 150_000).await;
            store(&scene.bob(), "docs/b", 8, 60_000).await;
            check::settled(&scene.room, std::slice::from_ref(&scene.bob), true).await.unwrap();
            scene.room.clock.sleep(SECOND * 5).await;
            assert!(scene.stale().is_empty(), "who met a conflict knows what is current");
            for client in [scene.ada(), scene.bob()] {
                assert_reads(&client, "docs/b", 7, 90_000).await;
                let listed = names(&client, "docs").await;
                let other = listed.iter().find(|name| name.contains("conflict"));
                let other = other.unwrap_or_else(|| panic!("{listed:?}"));
                assert_reads(&client, &format!("docs/{other}"), 8, 60_000).await;
            }
            scene.room.network.close();
        });
    }
}

#[test]
fn nobody_waits_for_who_need_not_have_what_is_current_until_he_needs_it() {
    sim::run::paused(async {
        let scene = Scene::new(13, Consistency::Bounded(10_000)).await;
        // He goes by callbacks, and nothing is fetched in the background for now.
        scene.bob().pause(true).unwrap();
        scene.ada().set_mode(WantedMode::Fixed(Mode::Connected));
        let takes = async |version| {
            scene.room.clock.sleep(SECOND * 3).await;
            assert!(matches!(fetch(&scene.bob(), "docs/a").await, Outcome::Bytes(_)));
            let start = scene.room.clock.moment();
            store(&scene.ada(), "docs/b", version, 1_000).await;
            scene.room.clock.moment().since(start)
        };
        let (far, near) = (Duration::from_millis(240), Duration::from_millis(100));
        let took = takes(7).await;
        assert!(took < near, "{took:?}");
        scene.bob().pause(false).unwrap();
        scene.bob().set_mode(WantedMode::Fixed(Mode::Connected));
        let took = takes(8).await;
        assert!(took >= far, "{took:?}");
        assert_reads(&scene.bob(), "docs/b", 8, 1_000).await;
        scene.bob().set_mode(PARTIAL);
        let took = takes(9).await;
        assert!(took < near, "{took:?}");
        let docs = find(&scene.bob(), "docs").await;
        scene.bob().set_consistency(docs, None, Some(Consistency::Strict)).unwrap();
        // It counts for whoever looks from now on, though nothing has rested since.
        assert_reads(&scene.bob(), "docs/b", 9, 1_000).await;
        let took = takes(10).await;
        assert!(took >= far, "{took:?}");
        scene.room.network.close();
    });
}

async fn names(client: &SimClient, path: &str) -> Vec<String> {
    let list = Operation::List { path: Path::new(path), page: 100 };
    match Programs::default().perform(client, &list).await {
        Outcome::Names(names) => names.iter().map(|(name, _)| name.to_string()).collect(),
        other => panic!("{other}"),
    }
}

#[test]
fn policies_and_what_shows_under_them_hold_over_a_restart_and_a_power_cut() {
    for (seed, how) in [(7, End::PowerCut), (8, End::Killed)] {
        sim::run::paused(async {
            let mut scene = Scene::new(seed, Consistency::Manual).await;
            scene.ada_stores("docs/b", 7, 90_000).await;
            scene.room.clock.sleep(SECOND * 10).await;
            scene.bob.stop(how, Duration::ZERO);
            // And one that changes meanwhile.
            store(&scene.ada(), "docs/a", 8, 30_000).await;
            scene.ada_settles().await;
            scene.bob.start().await.unwrap();
            assert_reads(&scene.bob(), "docs/b", 2, 150_000).await;
            assert_reads(&scene.bob(), "docs/a", 1, 20_000).await;
            assert_eq!(scene.stale(), ["docs/a", "docs/b"]);
            scene.bob().refresh(FileId::ROOT, true).unwrap();
            scene.until(120, |report| report.stale.is_empty()).await;
            assert_reads(&scene.bob(), "docs/b", 7, 90_000).await;
            assert_reads(&scene.bob(), "docs/a", 8, 30_000).await;
            scene.room.network.close();
        });
    }
}

#[test]
fn what_is_bounded_goes_on_over_a_restart_until_its_time_is_over() {
    for (seed, how) in [(12, End::Killed), (13, End::PowerCut)] {
        for (minutes, is_over) in [(5, false), (15, true)] {
            sim::run::paused(async {
                let mut scene = Scene::new(seed, Consistency::Bounded(600)).await;
                scene.room.clock.sleep(SECOND * 10).await;
                scene.bob.stop(how, Duration::ZERO);
                store(&scene.ada(), "docs/b", 7, 90_000).await;
                scene.ada_settles().await;
                scene.room.clock.sleep(SECOND * 60 * minutes).await;
                scene.bob.start().await.unwrap();
                if !is_over {
                    assert_reads(&scene.bob(), "docs/b", 2, 150_000).await;
                    assert_eq!(scene.stale(), ["docs/b"]);
                    scene.until(60, |report| report.stale.is_empty()).await;
                }
                assert_reads(&scene.bob(), "docs/b", 7, 90_000).await;
                scene.room.network.close();
            });
        }
    }
}

#[test]
fn of_what_changed_too_much_to_be_told_nobody_knows_when_it_was_current() {
    sim::run::paused(async {
        let limits = Limits { tail_keys_max: 4, ..Limits::simulated() };
        let mut scene = Scene::with_limits(14, Consistency::Bounded(600), 1 << 30, limits).await;
        scene.room.clock.sleep(SECOND * 10).await;
        scene.bob.stop(End::Killed, Duration::ZERO);
        store(&scene.ada(), "docs/b", 7, 90_000).await;
        for file in 0..10 {
            create(&scene.ada(), &format!("docs/more-{file}"), 20 + file, 100).await;
        }
        scene.ada_settles().await;
        scene.bob.start().await.unwrap();
        assert_reads(&scene.bob(), "docs/b", 7, 90_000).await;
        scene.room.network.close();
    });
}

#[test]
fn in_connected_mode_what_is_bounded_is_current() {
    sim::run::paused(async {
        let scene = Scene::new(9, Consistency::Bounded(10_000)).await;
        scene.bob().pause(true).unwrap();
        scene.ada_stores("docs/b", 7, 90_000).await;
        assert_reads(&scene.bob(), "docs/b", 2, 150_000).await;
        scene.bob().pause(false).unwrap();
        scene.bob().set_mode(WantedMode::Fixed(Mode::Connected));
        assert_reads(&scene.bob(), "docs/b", 7, 90_000).await;
        store(&scene.ada(), "docs/b", 9, 40_000).await;
        scene.ada_settles().await;
        scene.room.clock.sleep(SECOND).await;
        assert_reads(&scene.bob(), "docs/b", 9, 40_000).await;
        scene.room.network.close();
    });
}

#[test]
fn small_files_that_are_pinned_or_refreshed_come_several_with_one_answer() {
    const FILES: usize = 60;
    sim::run::paused(async {
        let scene = Scene::new(10, Consistency::Manual).await;
        let asked = || {
            let lines = scene.room.trace.lines();
            lines.iter().filter(|line| line.contains(" 1>origin ")).count()
        };
        let path = |file| format!("docs/small-{file}");
        for file in 0..FILES {
            create(&scene.ada(), &path(file), 100 + file as u64, 2_000).await;
        }
        scene.ada_settles().await;
        scene.room.clock.sleep(SECOND * 5).await;
        let (docs, before) = (find(&scene.bob(), "docs").await, asked());
        scene.bob().pin(docs, None, 0, true).unwrap();
        for _ in 0..60 {
            scene.room.clock.sleep(SECOND).await;
            let report = scene.bob().pins_report(0).unwrap();
            if report.unknown == 0 && report.lacking_bytes == 0 && report.pins[0].files > 60 {
                break;
            }
        }
        let pinned = asked() - before;
        assert!(pinned < FILES / 2, "{pinned}");
        for file in 0..FILES {
            assert_reads(&scene.bob(), &path(file), 100 + file as u64, 2_000).await;
        }
        for file in 0..FILES {
            store(&scene.ada(), &path(file), 200 + file as u64, 1_900).await;
        }
        scene.ada_settles().await;
        scene.until(30, |report| report.stale.len() == FILES).await;
        let before = asked();
        scene.bob().refresh(docs, true).unwrap();
        scene.until(60, |report| report.stale.is_empty()).await;
        let refreshed = asked() - before;
        assert!(refreshed < FILES / 2, "{refreshed}");
        let before = asked();
        for file in 0..FILES {
            assert_reads(&scene.bob(), &path(file), 200 + file as u64, 1_900).await;
        }
        assert!(asked() - before < 5, "all of it is here");
        scene.room.network.close();
    });
}

#[test]
fn what_would_take_long_fails_at_once_until_it_is_here_or_allowed() {
    sim::run::paused(async {
        let mut scene = Scene::new(11, Consistency::Strict).await;
        let docs = find(&scene.bob(), "docs").await;
        scene.bob().set_ask_above(docs, None, Some(20)).unwrap();
        create(&scene.ada(), "docs/film", 7, 4_000_000).await;
        create(&scene.ada(), "docs/clip", 8, 3_000_000).await;
        create(&scene.ada(), "docs/note", 9, 3_000).await;
        scene.ada_settles().await;
        scene.room.clock.sleep(SECOND * 5).await;
        let clock = scene.room.clock.clone();
        let fails = async |client: &SimClient, path: &str| {
            let before = clock.moment();
            let failed = matches!(fetch(client, path).await, Outcome::Failed(_));
            failed && clock.moment().since(before) < SECOND * 5
        };
        assert!(fails(&scene.bob(), "docs/film").await && fails(&scene.bob(), "docs/clip").await);
        assert_reads(&scene.bob(), "docs/note", 9, 3_000).await;
        let report = scene.bob().misses_report().unwrap();
        let asks = report.iter().map(|miss| (miss.path.as_deref(), miss.size, miss.times));
        let mut asks: Vec<_> = asks.collect();
        // Both may have been missed in one second.
        asks.sort_unstable();
        let (film, clip) = (Some("docs/film"), Some("docs/clip"));
        assert_eq!(asks, [(clip, 3_000_000, 1), (film, 4_000_000, 1)]);
        assert!(report.iter().all(|miss| miss.asks_secs > Some(20)), "{report:?}");
        // After a new mount nothing is measured yet, and the link is as it was.
        scene.bob.stop(End::Killed, Duration::ZERO);
        scene.bob.start().await.unwrap();
        scene.room.clock.sleep(SECOND * 5).await;
        assert!(fails(&scene.bob(), "docs/film").await && fails(&scene.bob(), "docs/clip").await);
        // What was stored here is here; what is written to is not waited for.
        store(&scene.bob(), "docs/film", 10, 5_000).await;
        assert_reads(&scene.bob(), "docs/film", 10, 5_000).await;
        let clip = find(&scene.bob(), "docs/clip").await;
        assert_eq!(scene.bob().settle_misses(Some(clip), Settling::Fetch), 1);
        for _ in 0..600 {
            scene.room.clock.sleep(SECOND).await;
            if scene.bob().misses_report().unwrap().iter().all(|miss| !miss.coming) {
                break;
            }
        }
        let misses = scene.bob().status().cache.misses;
        assert_reads(&scene.bob(), "docs/clip", 8, 3_000_000).await;
        assert_eq!(scene.bob().status().cache.misses, misses, "all of it is here");
        scene.room.network.close();
    });
}
