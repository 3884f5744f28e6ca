//! Directories of one name that two machines make at the same time, each for files of its own: they are one,
//! and neither's programs notice it.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::{OpenFlags, WantedMode};
use model::Kind;
use protocol::Mode;
use replica::Limits;
use sim::check;
use sim::contents::stretch;
use sim::machine::{ClientMachine, End, OriginMachine, Room, SimClient};
use sim::network::Conditions;
use sim::operation::{Fault, Operation, Outcome, Path};
use sim::perform::Programs;
use std::time::Duration;
use world::Clock;

const PARTIAL: WantedMode = WantedMode::Fixed(Mode::Partial);
const APPENDS: OpenFlags = OpenFlags { read: false, write: true, truncate: false, append: true };
const READS: OpenFlags = OpenFlags { read: true, write: false, truncate: false, append: false };
const LENGTH: usize = 300;
/// How often each file is opened, appended to and closed.
const TIMES: u64 = 6;
const DIRECTORIES: u64 = 12;
/// Some round trips of the line.
const DELAYS_MS: [u64; 3] = [2, 20, 60];

fn line(delay_ms: u64) -> Conditions {
    let delay = Duration::from_millis(delay_ms);
    Conditions { delay, jitter: delay / 2, lost_in_thousand: 0, bytes_a_second: None }
}

async fn perform(programs: &mut Programs, client: &SimClient, operation: Operation) {
    let outcome = programs.perform(client, &operation).await;
    assert!(!matches!(outcome, Outcome::Failed(_)), "{operation}: {outcome}");
}

/// As `mkdir -p` does.
async fn directory(programs: &mut Programs, client: &SimClient, path: &str) {
    let make =
        Operation::Make { path: Path::new(path), kind: Kind::Directory, mode: 0o755, target: None };
    let outcome = programs.perform(client, &make).await;
    assert!(
        matches!(outcome, Outcome::Shown(_) | Outcome::Done | Outcome::Failed(Fault::Exists)),
        "{make}: {outcome}"
    );
}

/// What is appended to the file of a machine in a directory, each time.
fn version(who: u64, number: u64, time: u64) -> u64 {
    1 + who + 2 * (time + TIMES * number)
}

/// How long a program rests between two calls: up to as long as a message takes, by chance.
struct Pace {
    state: u64,
    most: Duration,
}

impl Pace {
    async fn rest(&mut self, clock: &Clock) {
        self.state =
            self.state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        clock.sleep(self.most * (self.state >> 40) as u32 / (1 << 24)).await;
    }
}

/// A program that makes directories, a file of its own in each, and appends to it by its name.
async fn unpack(client: &SimClient, clock: &Clock, who: u64, below: &str, mut pace: Pace) {
    let (mut programs, start) = (Programs::default(), clock.moment());
    for number in 0..DIRECTORIES {
        // Both begin at once.
        let due = pace.most * (2 * TIMES * number) as u32;
        clock.sleep(due.saturating_sub(clock.moment().since(start))).await;
        let above = format!("d{number}");
        let inner = format!("{above}{below}");
        directory(&mut programs, client, &above).await;
        if inner != above {
            directory(&mut programs, client, &inner).await;
        }
        // What it makes may leave before there is anything in it.
        pace.rest(clock).await;
        let path = Path::new(&format!("{inner}/{who}"));
        let create = Operation::Create { path: path.clone(), mode: 0o644, slot: 0 };
        perform(&mut programs, client, create).await;
        perform(&mut programs, client, Operation::Close { slot: 0 }).await;
        pace.rest(clock).await;
        for time in 0..TIMES {
            let open = Operation::Open { path: path.clone(), slot: 0, flags: APPENDS };
            perform(&mut programs, client, open).await;
            let version = version(who, number, time);
            perform(&mut programs, client, Operation::Append { slot: 0, length: LENGTH, version })
                .await;
            perform(&mut programs, client, Operation::Close { slot: 0 }).await;
            pace.rest(clock).await;
        }
    }
}

async fn check(seed: u64, delay_ms: u64, below: &str, killed: bool) {
    let room = Room::new(seed, false);
    let origin = OriginMachine::start(&room, Limits::simulated()).unwrap();
    let machine = |number| ClientMachine::invited(&room, &origin, number, line(delay_ms), PARTIAL);
    let (mut ada, mut bob) = (machine(0), machine(1));
    let (hers, his) = (ada.start().await.unwrap(), bob.start().await.unwrap());
    let pace = |who| Pace { state: seed + who, most: Duration::from_millis(delay_ms) };
    tokio::join!(
        unpack(&hers, &room.clock, 0, below, pace(0)),
        unpack(&his, &room.clock, 1, below, pace(1_000))
    );
    drop((hers, his));
    if killed {
        for machine in [&mut ada, &mut bob] {
            machine.stop(End::Killed, Duration::ZERO);
            machine.start().await.unwrap();
        }
    }
    check::settled(&room, &[ada, bob], true).await.unwrap();
    let tree = check::origin_tree(&origin).await.unwrap();
    let what = format!("seed {seed}, {delay_ms} ms, below {below:?}, killed {killed}");
    for (who, number) in [0, 1].into_iter().flat_map(|who| (0..DIRECTORIES).map(move |n| (who, n)))
    {
        let path = Path::new(&format!("d{number}{below}/{who}"));
        let written: Vec<u8> =
            (0..TIMES).flat_map(|time| stretch(version(who, number, time), LENGTH)).collect();
        let found = tree.0.get(&path).and_then(|leaf| leaf.contents.clone());
        assert_eq!(found.as_deref(), Some(&written), "{what}: {path}");
    }
    let beside = tree.0.keys().filter(|path| path.to_string().contains("conflict"));
    assert_eq!(beside.count(), 0, "{what}");
    room.network.close();
}

fn check_all(below: &str, killed: bool) {
    for delay_ms in DELAYS_MS {
        for seed in 1..=3 {
            sim::run::paused(check(seed, delay_ms, below, killed));
        }
    }
}

#[test]
fn who_appends_to_a_file_of_his_own_in_a_directory_that_others_make_too_loses_nothing() {
    check_all("", false);
}

#[test]
fn nor_does_he_where_a_directory_in_that_is_made_by_both_as_well() {
    check_all("/in", false);
}

#[test]
fn nor_when_both_machines_are_killed() {
    check_all("/in", true);
}

/// What is pending in such a directory shows after a kill, also where there is no link any more.
#[test]
fn what_is_pending_in_it_shows_after_a_kill_without_a_link() {
    sim::run::paused(async {
        let room = Room::new(1, false);
        let origin = OriginMachine::start(&room, Limits::simulated()).unwrap();
        let machine = |number| ClientMachine::invited(&room, &origin, number, line(20), PARTIAL);
        let (mut ada, mut bob) = (machine(0), machine(1));
        let (hers, his) = (ada.start().await.unwrap(), bob.start().await.unwrap());
        let (mut ada_does, mut bob_does) = (Programs::default(), Programs::default());
        let list = |path| Operation::List { path, page: 100 };
        perform(&mut bob_does, &his, list(Path(Vec::new()))).await;
        room.clock.sleep(Duration::from_secs(8)).await;
        room.network.cut(bob.line, Duration::ZERO);
        directory(&mut ada_does, &hers, "d").await;
        room.clock.sleep(Duration::from_secs(2)).await;
        directory(&mut bob_does, &his, "d").await;
        room.network.restore(bob.line);
        while his.status().pending.updates > 0 {
            room.clock.sleep(Duration::from_millis(10)).await;
        }
        perform(&mut bob_does, &his, list(Path::new("d"))).await;
        // A checkpoint is made every few seconds; what is meant here is one that is not waited for.
        room.clock.sleep(Duration::from_millis(500)).await;
        room.network.cut(bob.line, Duration::ZERO);
        let path = Path::new("d/after");
        let create = Operation::Create { path: path.clone(), mode: 0o644, slot: 0 };
        perform(&mut bob_does, &his, create).await;
        let write = Operation::Append { slot: 0, length: LENGTH, version: 7 };
        perform(&mut bob_does, &his, write).await;
        perform(&mut bob_does, &his, Operation::Close { slot: 0 }).await;
        drop(his);
        bob.stop(End::Killed, Duration::ZERO);
        let his = bob.launch().unwrap();
        let mut bob_does = Programs::default();
        let open = Operation::Open { path: path.clone(), slot: 0, flags: READS };
        perform(&mut bob_does, &his, open).await;
        let read = Operation::Read { slot: 0, offset: 0, length: LENGTH };
        assert_eq!(bob_does.perform(&his, &read).await, Outcome::Bytes(stretch(7, LENGTH)));
        perform(&mut bob_does, &his, Operation::Close { slot: 0 }).await;
        room.network.restore(bob.line);
        check::settled(&room, &[ada, bob], true).await.unwrap();
        let tree = check::origin_tree(&origin).await.unwrap();
        let found = tree.0.get(&path).and_then(|leaf| leaf.contents.clone());
        assert_eq!(found.as_deref(), Some(&stretch(7, LENGTH)));
        room.network.close();
    });
}
