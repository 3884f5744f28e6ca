//! The wall clock of a client is set, while it works or is down.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::{
    Caller, Consistency, Error, Kernel, Lent, LockCall, OpenFlags, Owner, Process, Taker,
    WantedMode, complete,
};
use model::{FileId, Lock, LockKind, Name};
use protocol::Mode;
use protocol::past::{CONFLICTS_TOLD_MAX, Found, Past};
use replica::{Limits, Wish};
use sim::check;
use sim::contents::stretch;
use sim::machine::{ClientMachine, EPOCH_SECS, End, OriginMachine, Room, SimClient, VOLUME};
use sim::network::Conditions;
use sim::operation::{Operation, Outcome, Path, Shown};
use sim::perform::Programs;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::{Container, Containers};

const PARTIAL: WantedMode = WantedMode::Fixed(Mode::Partial);
const SECOND: Duration = Duration::from_secs(1);
const HOUR_SECS: i64 = 3_600;
const DAY_SECS: i64 = 24 * HOUR_SECS;
const YEAR_SECS: i64 = 365 * DAY_SECS;
/// By so much clocks are set: to 1970 at most, and beyond what 64 bits hold of nanoseconds.
const SET_BY_SECS: [i64; 9] = [
    -EPOCH_SECS,
    -10 * YEAR_SECS,
    -DAY_SECS,
    -10,
    0,
    10,
    6 * DAY_SECS,
    10 * YEAR_SECS,
    300 * YEAR_SECS,
];
const LENGTH: usize = 3_000;
/// Longer than it takes until it is looked whether a cache is to be read through, and until it is.
const LOOKED: Duration = Duration::from_secs(1300);

struct Scene {
    room: Room,
    origin: OriginMachine,
    /// Whose clock is right.
    ada: ClientMachine,
    /// Whose clock is set.
    bob: ClientMachine,
}

impl Scene {
    /// Nobody runs yet.
    fn new(seed: u64, limits: Limits) -> Scene {
        let room = Room::new(seed, false);
        let origin = OriginMachine::start(&room, limits).unwrap();
        let machine =
            |number| ClientMachine::invited(&room, &origin, number, Conditions::NEAR, PARTIAL);
        let (ada, bob) = (machine(0), machine(1));
        Scene { room, origin, ada, bob }
    }

    async fn pass(&self, time: Duration) {
        self.room.clock.sleep(time).await;
    }

    /// Until nothing is pending at Bob's. Gives how long that took.
    async fn bob_is_home(&self) -> Duration {
        let begun = self.room.clock.moment();
        check::settled(&self.room, std::slice::from_ref(&self.bob), true).await.unwrap();
        check::nothing_broke(&self.room, std::slice::from_ref(&self.bob)).unwrap();
        self.room.clock.moment().since(begun)
    }
}

fn simulated<F: Future<Output = ()>>(work: impl FnOnce(Scene) -> F) {
    simulated_within(Limits::simulated(), work);
}

fn simulated_within<F: Future<Output = ()>>(limits: Limits, work: impl FnOnce(Scene) -> F) {
    sim::run::paused(async {
        let scene = Scene::new(1, limits);
        let network = scene.room.network.clone();
        work(scene).await;
        network.close();
    });
}

/// Sets a clock to what it is ahead of the room's.
fn set(scene: &Scene, ahead_secs: i64) {
    let shown = scene.bob.clock.time().secs;
    scene.bob.clock.shift(scene.room.clock.time().secs + ahead_secs - shown);
}

fn client(machine: &ClientMachine) -> SimClient {
    machine.client().unwrap().clone()
}

async fn perform(client: &SimClient, operations: &[Operation]) -> Outcome {
    let (mut programs, mut last) = (Programs::default(), Outcome::Done);
    for operation in operations {
        last = programs.perform(client, operation).await;
        assert!(!matches!(last, Outcome::Failed(_)), "{operation}: {last}");
    }
    last
}

async fn make(client: &SimClient, path: &str, version: u64, length: usize) {
    let create = Operation::Create { path: Path::new(path), mode: 0o644, slot: 0 };
    let write = Operation::Write { slot: 0, offset: 0, length, version };
    perform(client, &[create, write, Operation::Close { slot: 0 }]).await;
}

async fn store(client: &SimClient, path: &str, version: u64, length: usize) {
    let flags = OpenFlags { read: true, write: true, truncate: true, ..OpenFlags::default() };
    let open = Operation::Open { path: Path::new(path), slot: 0, flags };
    let write = Operation::Write { slot: 0, offset: 0, length, version };
    perform(client, &[open, write, Operation::Close { slot: 0 }]).await;
}

async fn is_read(client: &SimClient, path: &str, version: u64, length: usize) {
    let found = perform(client, &[Operation::Fetch { path: Path::new(path) }]).await;
    assert!(found == Outcome::Bytes(stretch(version, length)), "{path}: {found}");
}

async fn list(client: &SimClient) -> Outcome {
    let list = Operation::List { path: Path(Vec::new()), page: 100 };
    Programs::default().perform(client, &list).await
}

/// Bob's link is silent, and his clock is set. What Ada has written when she is told so has not to
/// show at Bob's, but what was there before must not either: his lease has ended.
#[test]
fn no_lease_is_believed_for_longer_whatever_the_clock_is_set_to() {
    let lease = SECOND * 15;
    for by in SET_BY_SECS {
        simulated_within(Limits { lease, ..Limits::simulated() }, async |mut scene| {
            scene.ada.mode = WantedMode::Fixed(Mode::Connected);
            scene.bob.mode = WantedMode::Fixed(Mode::Connected);
            let (ada, bob) = (scene.ada.start().await.unwrap(), scene.bob.start().await.unwrap());
            make(&ada, "before", 1, LENGTH).await;
            assert!(matches!(list(&bob).await, Outcome::Names(names) if names.len() == 1));
            scene.room.network.cut(scene.bob.line, SECOND * 90);
            let silent = scene.room.clock.moment();
            set(&scene, by);
            make(&ada, "after", 2, LENGTH).await;
            let waited = scene.room.clock.moment().since(silent);
            assert!(waited > lease - SECOND && waited < lease + SECOND * 5, "{by}: {waited:?}");
            let found = list(&bob).await;
            assert!(matches!(found, Outcome::Failed(_)), "{by}: {found}");
            scene.room.network.restore(scene.bob.line);
            scene.pass(SECOND * 95).await;
            assert!(matches!(list(&bob).await, Outcome::Names(names) if names.len() == 2), "{by}");
        });
    }
}

/// A lock is held for as long as the lease and no longer. To and fro as clocks go.
#[test]
fn a_lock_is_held_while_the_clock_goes_to_and_fro_and_no_longer_than_the_lease_after_a_kill() {
    const CALLER: Caller = Caller { uid: 0, gid: 0 };
    const BOTH: OpenFlags = OpenFlags { read: true, write: true, truncate: false, append: false };
    async fn call(client: &SimClient) -> LockCall {
        let name = Name::new("file").unwrap();
        let found = complete(client, |c| c.lookup(FileId::ROOT, &name)).await.unwrap().unwrap();
        let file = found.file;
        let opened = complete(client, |c| c.open_file(CALLER, file, BOTH)).await.unwrap().value;
        let lock = Lock { kind: LockKind::Record, exclusive: true, first: 0, last: 7 };
        LockCall {
            file,
            handle: opened.handle,
            owner: Owner(1),
            lock,
            process: 1,
            taker: Taker::Told,
        }
    }
    simulated(async |mut scene| {
        scene.ada.mode = WantedMode::Fixed(Mode::Connected);
        scene.bob.mode = WantedMode::Fixed(Mode::Connected);
        let (ada, bob) = (scene.ada.start().await.unwrap(), scene.bob.start().await.unwrap());
        make(&ada, "file", 1, LENGTH).await;
        let (adas, bobs) = (call(&ada).await, call(&bob).await);
        bob.lock(&bobs, true).await.unwrap();
        for by in SET_BY_SECS {
            set(&scene, by);
            scene.pass(SECOND * 40).await;
            let tried = ada.lock(&adas, false).await;
            assert!(matches!(tried, Err(Error::Locked)), "{by}: {tried:?}");
        }
        scene.bob.stop(End::Killed, SECOND * 5);
        let silent = scene.room.clock.moment();
        let got = scene.room.clock.within(SECOND * 120, ada.lock(&adas, true)).await;
        let waited = scene.room.clock.moment().since(silent);
        assert!(matches!(got, Some(Ok(_))), "{got:?} after {waited:?}");
    });
}

/// Whatever the clock shows, the same happens at the same moment: how soon a client is back that was
/// cut off, brings home what it has, and has what is pinned.
#[test]
fn what_is_tried_again_is_tried_when_it_would_have_been_whatever_the_clock_is_set_to() {
    let play = |by: i64| {
        let mut times = Vec::new();
        simulated(async |mut scene| {
            let ada = scene.ada.start().await.unwrap();
            let bob = scene.bob.start().await.unwrap();
            make(&ada, "pinned", 1, 40_000).await;
            make(&bob, "mine", 2, LENGTH).await;
            scene.pass(SECOND * 10).await;
            let pinned = file_of(&bob, "pinned").await;
            bob.pin(FileId(pinned), None, 1, false).unwrap();
            scene.pass(SECOND * 10).await;
            scene.room.network.cut(scene.bob.line, SECOND);
            scene.pass(SECOND * 100).await;
            set(&scene, by);
            store(&ada, "pinned", 3, 50_000).await;
            make(&bob, "more", 4, LENGTH).await;
            scene.pass(SECOND * 100).await;
            set(&scene, -by.abs());
            scene.room.network.restore(scene.bob.line);
            let back = scene.room.clock.moment();
            let mut is_back = [false; 3];
            while is_back != [true; 3] {
                let status = bob.status();
                let lacks = bob.pins_report(10).unwrap().lacking.len();
                let now = [
                    status.link.connected,
                    status.pending.updates == 0,
                    status.link.connected && lacks == 0,
                ];
                if now != is_back {
                    times.push((scene.room.clock.moment().since(back), now));
                }
                is_back = now;
                assert!(scene.room.clock.moment().since(back) < SECOND * 200, "{by}: {now:?}");
                scene.pass(SECOND / 10).await;
            }
            is_read(&bob, "pinned", 3, 50_000).await;
            is_read(&ada, "more", 4, LENGTH).await;
        });
        times
    };
    let expected = play(0);
    for by in SET_BY_SECS {
        assert_eq!(play(by), expected, "{by}");
    }
}

/// Without a link Bob works on with a clock that is set before each step, and over kills; Ada changes
/// the same file meanwhile. All of it comes home once, both sides of the conflict are kept, and files
/// bear the time that the clock showed.
#[test]
fn what_is_logged_under_many_clocks_comes_home_once_and_loses_no_conflict() {
    for how in [End::Killed, End::PowerCut] {
        simulated(async |mut scene| {
            scene.bob.durability = client::Durability::Sync;
            let ada = scene.ada.start().await.unwrap();
            make(&ada, "both", 1, LENGTH).await;
            let bob = scene.bob.start().await.unwrap();
            is_read(&bob, "both", 1, LENGTH).await;
            bob.set_mode(WantedMode::Fixed(Mode::FetchOnly));
            scene.bob.mode = WantedMode::Fixed(Mode::FetchOnly);
            let mut written = Vec::new();
            for (number, by) in (1..).zip(SET_BY_SECS) {
                set(&scene, by);
                let bob = client(&scene.bob);
                let (path, before) = (format!("f{number}"), scene.bob.clock.time().secs);
                make(&bob, &path, number, LENGTH).await;
                written.push((path, number, before));
                store(&bob, "both", 100 + number, LENGTH).await;
                tell_all(&bob);
                // The next process finds another time than the last one.
                if number % 3 == 0 {
                    scene.bob.stop(how, Duration::ZERO);
                    scene.bob.start().await.unwrap();
                }
                scene.pass(SECOND * 15).await;
            }
            store(&ada, "both", 99, LENGTH).await;
            check::settled(&scene.room, std::slice::from_ref(&scene.ada), true).await.unwrap();
            let bob = client(&scene.bob);
            bob.set_mode(PARTIAL);
            for by in SET_BY_SECS {
                set(&scene, by);
                scene.pass(SECOND / 20).await;
            }
            assert!(scene.bob_is_home().await < SECOND * 60);
            scene.pass(SECOND * 5).await;
            let machines = [scene.ada, scene.bob];
            check::all_agree(&scene.room, &scene.origin, &machines).await.unwrap();
            for (path, version, at) in written {
                is_read(&ada, &path, version, LENGTH).await;
                let shown = mtime(&ada, &path).await;
                assert!((at..at + 5).contains(&shown), "{path}: {shown}, and written {at}");
            }
            let listed = scene.origin.origin().unwrap().conflicts(VOLUME, 100).unwrap();
            assert_eq!(listed.len(), 1, "{listed:?}");
            is_read(&ada, "both", 99, LENGTH).await;
            let (_, _, name) = listed[0].aside.clone().unwrap();
            let last = 100 + SET_BY_SECS.len() as u64;
            is_read(&ada, &name.to_string(), last, LENGTH).await;
            let bob = client(&machines[1]);
            let asked = Past::Conflicts { after: 0, conflicts_max: CONFLICTS_TOLD_MAX, by: None };
            bob.look_back(asked).await.unwrap();
            for by in SET_BY_SECS {
                let clock = &machines[1].clock;
                clock.shift(EPOCH_SECS + by - clock.time().secs);
                tell_all(&bob);
            }
        });
    }
}

/// What users are told of times has none that no clock can show.
fn tell_all(client: &SimClient) {
    client.status();
    client.pending_log(None, 100).unwrap();
    client.misses_report().unwrap();
    client.policy_report().unwrap();
    client.pins_report(100).unwrap();
    client.conflicts_told().unwrap();
}

async fn shown(client: &SimClient, path: &str) -> Shown {
    match perform(client, &[Operation::Stat { path: Path::new(path) }]).await {
        Outcome::Shown(shown) => shown,
        other => panic!("{path}: {other}"),
    }
}

async fn file_of(client: &SimClient, path: &str) -> u64 {
    shown(client, path).await.file
}

async fn mtime(client: &SimClient, path: &str) -> i64 {
    let file = FileId(file_of(client, path).await);
    complete(client, |c| c.attributes(file)).await.unwrap().node.mtime.secs
}

/// Versions and snapshots are kept by the server's clock and in the order in which they were taken,
/// whatever time they bear.
#[test]
fn versions_that_bear_a_wrong_time_are_kept_and_told_of_in_their_order() {
    simulated(async |mut scene| {
        let bob = scene.bob.start().await.unwrap();
        make(&bob, "file", 0, LENGTH).await;
        scene.bob_is_home().await;
        let mut ats = Vec::new();
        for (version, by) in (1..).zip(SET_BY_SECS) {
            set(&scene, by);
            ats.push(scene.bob.clock.time().secs);
            store(&bob, "file", version, LENGTH + version as usize).await;
            scene.bob_is_home().await;
            let asked = Past::Snapshot { name: format!("s{version}"), uid: 0, token: version };
            let made = bob.look_back(asked).await.unwrap();
            assert!(matches!(made, Found::Snapshot(_)), "{by}: {made:?}");
            scene.pass(SECOND * 2).await;
        }
        let wish = Wish { empty_trash: true, thorough: true, ..Wish::default() };
        scene.origin.origin().unwrap().collect(wish).await.unwrap();
        let path = vec![Name::new("file").unwrap()];
        let asked = Past::History { path, before: None, versions_max: 100, by: None };
        let Found::History(history) = bob.look_back(asked).await.unwrap() else { panic!() };
        let told: Vec<i64> = history.versions.iter().map(|version| version.at.secs).collect();
        let newest_first: Vec<i64> = ats.into_iter().rev().collect();
        assert_eq!(told[..SET_BY_SECS.len()], newest_first);
        for version in 1..=SET_BY_SECS.len() as u64 {
            let path = format!(".farfs/snapshots/s{version}/file");
            is_read(&bob, &path, version, LENGTH + version as usize).await;
        }
    });
}

/// Flips a bit of what is cached of a file.
fn flip(machine: &ClientMachine, file: u64) {
    let containers = machine.disk.containers("files");
    for key in containers.list_of(file).unwrap() {
        let container = containers.open(key, false).unwrap().unwrap();
        let byte = container.read(31_000, 1).unwrap()[0];
        container.write(31_000, &[byte ^ 4]).unwrap();
    }
}

/// A machine without a clock of its own: before it is told the time it shows 1970.
#[test]
fn the_cache_is_not_read_through_at_every_start_of_a_machine_that_begins_in_1970() {
    simulated(async |mut scene| {
        let bob = scene.bob.start().await.unwrap();
        make(&bob, "file", 1, 60_000).await;
        scene.bob_is_home().await;
        scene.pass(LOOKED).await;
        flip(&scene.bob, file_of(&bob, "file").await);
        for _ in 0..3 {
            scene.bob.stop(End::Killed, Duration::ZERO);
            set(&scene, -EPOCH_SECS);
            let bob = scene.bob.start().await.unwrap();
            scene.pass(SECOND * 30).await;
            set(&scene, 0);
            scene.pass(LOOKED).await;
            assert_eq!(bob.status().mended.times, 0, "it is not due for days");
        }
    });
}

/// The clock was ahead by years when the cache was read through, and then it was right again: it is
/// read through again a week later, and not after these years.
#[test]
fn the_cache_is_read_through_a_week_later_though_the_clock_was_ahead_the_last_time() {
    simulated(async |mut scene| {
        let bob = scene.bob.start().await.unwrap();
        make(&bob, "file", 1, 60_000).await;
        scene.bob_is_home().await;
        set(&scene, 10 * YEAR_SECS);
        scene.pass(LOOKED).await;
        set(&scene, 0);
        scene.pass(LOOKED).await;
        scene.bob.stop(End::Killed, Duration::ZERO);
        scene.pass(Duration::from_secs(8 * 24 * 3600)).await;
        let bob = scene.bob.start().await.unwrap();
        flip(&scene.bob, file_of(&bob, "file").await);
        scene.pass(LOOKED).await;
        assert_eq!(bob.status().mended.times, 1);
        is_read(&bob, "file", 1, 60_000).await;
    });
}

/// Of a version that is not current it is known how old it is by a clock that is as it was. Where it
/// shows an earlier time than when the version was current, or says that it is too old, what is current
/// shows; over a new start as well.
#[test]
fn what_is_bounded_is_current_when_the_clock_does_not_tell_how_old_it_is() {
    let bound_secs = 2 * HOUR_SECS;
    for by in SET_BY_SECS {
        for restarts in [false, true] {
            simulated(async |mut scene| {
                let ada = scene.ada.start().await.unwrap();
                make(&ada, "file", 1, LENGTH).await;
                scene.pass(SECOND * 5).await;
                let bob = scene.bob.start().await.unwrap();
                is_read(&bob, "file", 1, LENGTH).await;
                let file = FileId(file_of(&bob, "file").await);
                let bounded = Some(Consistency::Bounded(bound_secs as u32));
                bob.set_consistency(file, None, bounded).unwrap();
                // Nothing is brought while the link is paused.
                scene.pass(SECOND * 5).await;
                bob.pause(true).unwrap();
                store(&ada, "file", 2, LENGTH).await;
                scene.pass(SECOND * 10).await;
                is_read(&bob, "file", 1, LENGTH).await;
                if restarts {
                    scene.pass(SECOND * 10).await;
                    scene.bob.stop(End::Killed, Duration::ZERO);
                }
                set(&scene, by);
                if restarts {
                    scene.bob.start().await.unwrap();
                    client(&scene.bob).pause(true).unwrap();
                }
                scene.pass(SECOND * 3).await;
                let tells = by.abs() < bound_secs;
                let version = if tells { 1 } else { 2 };
                let bob = client(&scene.bob);
                is_read(&bob, "file", version, LENGTH).await;
                bob.pause(false).unwrap();
                scene.pass(SECOND * 30).await;
                is_read(&bob, "file", 2, LENGTH).await;
            });
        }
    }
}

/// What is to stay for a while stays no longer for a clock that shows an earlier time than it did, and
/// no time at all where the clock says that it has stayed for years.
#[test]
fn what_is_to_stay_for_a_while_leaves_whatever_the_clock_is_set_to() {
    for by in SET_BY_SECS {
        for restarts in [false, true] {
            simulated(async |mut scene| {
                scene.bob.replay_delay = Some(SECOND * 60);
                let bob = scene.bob.start().await.unwrap();
                make(&bob, "file", 1, LENGTH).await;
                scene.pass(SECOND * 20).await;
                assert_ne!(bob.status().pending.updates, 0, "{by}: it stays");
                if restarts {
                    scene.bob.stop(End::Killed, Duration::ZERO);
                }
                set(&scene, by);
                if restarts {
                    scene.bob.start().await.unwrap();
                }
                make(&client(&scene.bob), "other", 2, LENGTH).await;
                let took = scene.bob_is_home().await;
                assert!(took < SECOND * 65, "{by}: {took:?}");
                let ada = scene.ada.start().await.unwrap();
                is_read(&ada, "file", 1, LENGTH).await;
                is_read(&ada, "other", 2, LENGTH).await;
            });
        }
    }
}

/// Bytes in a month. The clock was ahead by ten years for a while, or was so from the beginning: this
/// month's budget counts on, and with the next month, and not in ten years, there is another one.
#[test]
fn a_budget_of_a_month_is_there_again_with_the_next_though_a_clock_was_ahead() {
    const BUDGET: u64 = 60_000;
    for begins_ahead in [false, true] {
        simulated(async |mut scene| {
            scene.bob.budget = Some(BUDGET);
            scene.bob.replay_delay = Some(Duration::ZERO);
            if begins_ahead {
                set(&scene, 10 * YEAR_SECS);
            }
            let bob = scene.bob.start().await.unwrap();
            make(&bob, "before", 1, LENGTH).await;
            scene.bob_is_home().await;
            let spent = bob.status().budget.spent;
            set(&scene, 10 * YEAR_SECS);
            scene.pass(SECOND * 30).await;
            set(&scene, 0);
            scene.pass(SECOND * 30).await;
            assert!(bob.status().budget.spent >= spent, "no budget is had twice");
            make(&bob, "large", 2, 80_000).await;
            scene.bob_is_home().await;
            make(&bob, "after", 3, LENGTH).await;
            scene.pass(SECOND * 60).await;
            let status = bob.status();
            assert!(status.budget.spent > BUDGET, "{:?}", status.budget);
            assert_ne!(status.pending.updates, 0, "it waits for the next month");
            set(&scene, 40 * DAY_SECS);
            assert!(scene.bob_is_home().await < SECOND * 30);
            assert!(bob.status().budget.spent < BUDGET);
        });
    }
}

/// The cache is full of what was read while the clock was ahead. That goes when there is no room, and
/// not what is read from then on, which would have to be fetched again each time.
#[test]
fn what_was_read_while_the_clock_was_ahead_does_not_keep_the_cache_for_itself() {
    const FILES: u64 = 40;
    const BYTES: usize = 10_000;
    simulated(async |mut scene| {
        scene.bob.cache_bytes_max = 200_000;
        let ada = scene.ada.start().await.unwrap();
        for file in 0..FILES {
            make(&ada, &format!("f{file}"), file, BYTES).await;
        }
        check::settled(&scene.room, std::slice::from_ref(&scene.ada), true).await.unwrap();
        let bob = scene.bob.start().await.unwrap();
        set(&scene, 10 * YEAR_SECS);
        for file in 0..25 {
            is_read(&bob, &format!("f{file}"), file, BYTES).await;
            scene.pass(SECOND).await;
        }
        set(&scene, 0);
        for file in 25..FILES {
            is_read(&bob, &format!("f{file}"), file, BYTES).await;
            scene.pass(SECOND).await;
        }
        scene.pass(SECOND * 20).await;
        bob.set_mode(WantedMode::Fixed(Mode::Disconnected));
        for file in 26..FILES {
            is_read(&bob, &format!("f{file}"), file, BYTES).await;
        }
    });
}

/// What it is told to forget, with contents, and names.
#[derive(Default)]
struct Forgets(Mutex<Vec<FileId>>, Mutex<Vec<String>>);

impl Kernel for Forgets {
    fn forget_node(&self, file: FileId, contents: bool) -> bool {
        self.0.lock().unwrap().extend(contents.then_some(file));
        true
    }

    fn forget_from(&self, file: FileId, _: u64) -> bool {
        self.forget_node(file, true)
    }

    fn forget_others(&self, _: FileId, _: u64) -> bool {
        true
    }

    fn forget_entry(&self, _: FileId, _: &Name) {}

    fn forget_name(&self, _: FileId, name: &Name) {
        self.1.lock().unwrap().push(name.to_string());
    }

    fn forget_absent(&self) {
        self.1.lock().unwrap().push("(absent)".into());
    }

    fn lend(&self, _: BorrowedFd<'_>) -> Option<Arc<dyn Lent>> {
        None
    }

    fn takes_none(&self) -> Option<String> {
        None
    }

    fn has_ended(&self, _: Process) -> bool {
        false
    }
}

/// The machine was suspended for an hour while its lease lasted, and its link is not there yet: what it
/// was told before counts no more, neither here nor in the kernel, whose clock stood still; and with the
/// link it is told what has changed.
#[test]
fn a_lease_ends_while_the_machine_is_suspended() {
    simulated(async |mut scene| {
        scene.ada.mode = WantedMode::Fixed(Mode::Connected);
        scene.bob.mode = WantedMode::Fixed(Mode::Connected);
        let (ada, bob) = (scene.ada.start().await.unwrap(), scene.bob.start().await.unwrap());
        let kernel = Arc::new(Forgets::default());
        bob.set_kernel(kernel.clone());
        make(&ada, "before", 1, LENGTH).await;
        assert!(matches!(list(&bob).await, Outcome::Names(names) if names.len() == 1));
        scene.pass(SECOND * 5).await;
        scene.room.network.cut(scene.bob.line, SECOND * 90);
        assert!(matches!(list(&bob).await, Outcome::Names(_)), "its lease lasts");
        let name = Name::new("before").unwrap();
        assert!(bob.lookup_known(FileId::ROOT, &name).is_ok_and(|found| found.is_some()));
        kernel.0.lock().unwrap().clear();
        scene.bob.clock.suspend(3_600);
        assert_eq!(bob.cache_for(), Duration::ZERO);
        let found = list(&bob).await;
        assert!(matches!(found, Outcome::Failed(_)), "{found}");
        assert!(kernel.0.lock().unwrap().contains(&FileId::ROOT));
        let names = std::mem::take(&mut *kernel.1.lock().unwrap());
        assert_eq!(names, ["(absent)", "before"]);
        make(&ada, "after", 2, LENGTH).await;
        scene.room.network.restore(scene.bob.line);
        scene.pass(SECOND * 95).await;
        assert!(matches!(list(&bob).await, Outcome::Names(names) if names.len() == 2));
    });
}
