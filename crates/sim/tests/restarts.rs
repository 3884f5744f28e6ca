//! A client that is killed again before its tables are on the disk.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::{Caller, Handle, Making, OpenFlags, RenameFlag, WantedMode, complete};
use model::{FileId, Kind, Name};
use protocol::Mode;
use replica::Limits;
use sim::check as settling;
use sim::machine::{ClientMachine, End, OriginMachine, Room, SimClient};
use sim::network::Conditions;
use sim::operation::{Fault, Operation, Outcome, Path};
use sim::perform::Programs;
use std::future::Future;
use std::time::Duration;

/// Whether the next process is asked for the whole directory or for one name of it.
#[derive(Clone, Copy)]
enum Look {
    List,
    Name,
}

/// A client that runs has made a checkpoint within this.
const CHECKPOINT_WITHIN: Duration = Duration::from_secs(10);

fn simulated<T>(seed: u64, play: impl AsyncFnOnce(&Room) -> T) -> T {
    sim::run::paused(async {
        let room = Room::new(seed, false);
        let outcome = play(&room).await;
        room.network.close();
        outcome
    })
}

async fn make(client: &SimClient, name: &str) {
    let path = Path::new(name);
    let make = Operation::Make { path, kind: Kind::Directory, mode: 0o755, target: None };
    let outcome = Programs::default().perform(client, &make).await;
    assert!(matches!(outcome, Outcome::Shown(_)), "{name}: {outcome}");
}

async fn shows(client: &SimClient, look: Look, name: &str) -> bool {
    let operation = match look {
        Look::List => Operation::List { path: Path(Vec::new()), page: 100 },
        Look::Name => Operation::Stat { path: Path::new(name) },
    };
    match Programs::default().perform(client, &operation).await {
        Outcome::Names(names) => names.iter().any(|(found, _)| found.to_string() == name),
        Outcome::Shown(_) => true,
        _ => false,
    }
}

/// A client makes a directory and keeps it to itself, and is killed `kills` times, each time
/// before a checkpoint has put on the disk what it knows of the tree.
fn check(kills: u32, look: Look) {
    for seed in 1..20 {
        simulated(seed, async |room| {
            let origin = OriginMachine::start(room, Limits::simulated()).unwrap();
            let held = WantedMode::Fixed(Mode::FetchOnly);
            let invitation = origin.invite().unwrap();
            let mut machine = ClientMachine::new(room, 0, invitation, Conditions::NEAR, held);
            let client = machine.start().await.unwrap();
            make(&client, "kept").await;
            for kill in 1..=kills {
                machine.stop(End::Killed, Duration::ZERO);
                let client = machine.launch().unwrap();
                attached(room, &client).await;
                assert!(shows(&client, look, "kept").await, "seed {seed}, after kill {kill}");
            }
        });
    }
}

fn attached<'a>(room: &'a Room, client: &'a SimClient) -> impl Future<Output = ()> + 'a {
    const TRIES_MAX: u32 = 1000;
    async move {
        for _ in 0..TRIES_MAX {
            if client.status().link.connected {
                return;
            }
            room.clock.sleep(Duration::from_millis(10)).await;
        }
        panic!("no session");
    }
}

#[test]
fn what_was_done_is_listed_after_a_restart_and_after_each_later_one() {
    check(1, Look::List);
    check(4, Look::List);
}

#[test]
fn what_was_done_is_found_by_its_name_after_a_restart_and_after_each_later_one() {
    check(1, Look::Name);
    check(4, Look::Name);
}

/// What is learnt of a directory is on the disk as soon as there is no link, and what is done in it
/// then shows after a kill, though there is still none.
#[test]
fn what_was_done_without_a_link_is_seen_after_a_kill_without_a_link() {
    for seed in 1..20 {
        simulated(seed, async |room| {
            let origin = OriginMachine::start(room, Limits::simulated()).unwrap();
            let partial = WantedMode::Fixed(Mode::Partial);
            let machine =
                |number| ClientMachine::invited(room, &origin, number, Conditions::NEAR, partial);
            let (mut ada, mut bob) = (machine(0), machine(1));
            let client = ada.start().await.unwrap();
            make(&client, "theirs").await;
            settling::settled(room, std::slice::from_ref(&ada), true).await.unwrap();
            let client = bob.start().await.unwrap();
            let list = Operation::List { path: Path::new("theirs"), page: 100 };
            assert_eq!(Programs::default().perform(&client, &list).await, Outcome::Names(vec![]));
            bob.mode = WantedMode::Fixed(Mode::Disconnected);
            client.set_mode(bob.mode);
            room.clock.sleep(Duration::from_millis(10)).await;
            make(&client, "theirs/mine").await;
            bob.stop(End::Killed, Duration::ZERO);
            let client = bob.launch().unwrap();
            assert!(shows(&client, Look::Name, "theirs/mine").await, "seed {seed}");
            assert!(!client.status().link.connected);
        });
    }
}

/// What was learnt of a directory just before a kill is lost with it, and what is pending there rests
/// on that. A name that it took away does not show all the same.
#[test]
fn a_name_that_was_moved_away_shows_no_more_after_two_kills_and_without_a_link() {
    for seed in 1..20 {
        simulated(seed, async |room| {
            let origin = OriginMachine::start(room, Limits::simulated()).unwrap();
            let machine = |number, mode| {
                let mode = WantedMode::Fixed(mode);
                ClientMachine::invited(room, &origin, number, Conditions::NEAR, mode)
            };
            let mut bob = machine(1, Mode::FetchOnly);
            let client = bob.start().await.unwrap();
            room.clock.sleep(CHECKPOINT_WITHIN).await;
            let mut ada = machine(0, Mode::Partial);
            let adas = ada.start().await.unwrap();
            make(&adas, "theirs").await;
            make(&adas, "theirs/old").await;
            settling::settled(room, std::slice::from_ref(&ada), true).await.unwrap();
            let rename = Operation::Rename {
                from: Path::new("theirs/old"),
                to: Path::new("theirs/new"),
                flag: RenameFlag::Replace,
            };
            let renamed = Programs::default().perform(&client, &rename).await;
            assert_eq!(renamed, Outcome::Done, "seed {seed}");
            bob.stop(End::Killed, Duration::ZERO);
            // What changed since is told, and the rest of the directory is not.
            let client = bob.launch().unwrap();
            attached(room, &client).await;
            assert!(shows(&client, Look::Name, "theirs/new").await, "seed {seed}");
            bob.stop(End::Killed, Duration::ZERO);
            bob.mode = WantedMode::Fixed(Mode::Disconnected);
            let client = bob.launch().unwrap();
            let stat = Operation::Stat { path: Path::new("theirs/old") };
            let old = Programs::default().perform(&client, &stat).await;
            assert_eq!(old, Outcome::Failed(Fault::NoEntry), "seed {seed}");
            assert!(shows(&client, Look::Name, "theirs/new").await, "seed {seed}");
            bob.mode = WantedMode::Fixed(Mode::Partial);
            client.set_mode(bob.mode);
            settling::settled(room, &[ada, bob], true).await.unwrap();
            let conflicts = origin.origin().unwrap().conflicts(sim::machine::VOLUME, 10).unwrap();
            assert!(conflicts.is_empty(), "seed {seed}: {conflicts:?}");
        });
    }
}

const CALLER: Caller = Caller { uid: 0, gid: 0 };
const BOTH: OpenFlags = OpenFlags { read: true, write: true, truncate: false, append: false };

async fn found(client: &SimClient, name: &Name) -> FileId {
    complete(client, |c| c.lookup(FileId::ROOT, name)).await.unwrap().unwrap().file
}

async fn open(client: &SimClient, file: FileId) -> Handle {
    complete(client, |c| c.open_file(CALLER, file, BOTH)).await.unwrap().value.handle
}

async fn write(client: &SimClient, handle: Handle, bytes: &[u8]) {
    complete(client, |c| c.write(handle, 0, bytes)).await.unwrap();
}

/// What is left in the container of a file that was written to and removed is no version, and must
/// not serve as one.
#[test]
fn what_was_written_to_a_removed_file_is_not_taken_for_its_version_after_a_kill() {
    const BEFORE: &[u8] = b"as it was stored";
    const AFTER: &[u8] = b"and never stored";
    for seed in 1..6 {
        simulated(seed, async |room| {
            let origin = OriginMachine::start(room, Limits::simulated()).unwrap();
            let partial = WantedMode::Fixed(Mode::Partial);
            let machine =
                |number| ClientMachine::invited(room, &origin, number, Conditions::NEAR, partial);
            let mut ada = machine(0);
            let adas = ada.start().await.unwrap();
            let name = Name::new(b"file".as_slice()).unwrap();
            let making =
                Making { kind: Kind::File, mode: 0o644, uid: 0, gid: 0, target: None, rdev: None };
            let made =
                complete(&adas, |c| c.create(CALLER, FileId::ROOT, &name, &making, BOTH)).await;
            let handle = made.unwrap().value.1.handle;
            write(&adas, handle, BEFORE).await;
            complete(&adas, |c| c.flush(CALLER, handle)).await.unwrap();
            adas.release(handle);
            settling::settled(room, std::slice::from_ref(&ada), true).await.unwrap();

            let handle = open(&adas, found(&adas, &name).await).await;
            write(&adas, handle, AFTER).await;
            complete(&adas, |c| c.unlink(CALLER, FileId::ROOT, &name, false)).await.unwrap();
            for kill in 0..2 {
                ada.stop(End::Killed, Duration::ZERO);
                let adas = ada.launch().unwrap();
                let wrong = adas.files_that_are_not_as_stored().unwrap();
                assert!(wrong.is_empty(), "seed {seed}, kill {kill}: {wrong:?}");
            }
        });
    }
}

/// What is pending of attributes shows also where somebody else has set them since, and after a kill.
#[test]
fn a_mode_that_is_pending_shows_over_what_others_have_set_and_after_a_kill() {
    for seed in 1..10 {
        simulated(seed, async |room| {
            let origin = OriginMachine::start(room, Limits::simulated()).unwrap();
            let machine = |number, mode| {
                let mode = WantedMode::Fixed(mode);
                ClientMachine::invited(room, &origin, number, Conditions::NEAR, mode)
            };
            let mut ada = machine(0, Mode::Partial);
            let client = ada.start().await.unwrap();
            make(&client, "both").await;
            settling::settled(room, std::slice::from_ref(&ada), true).await.unwrap();
            let mut bob = machine(1, Mode::FetchOnly);
            let held = bob.start().await.unwrap();
            set_mode(&held, 0o750).await;
            set_mode(&client, 0o700).await;
            settling::settled(room, std::slice::from_ref(&ada), true).await.unwrap();
            room.clock.sleep(Duration::from_secs(10)).await;
            assert_eq!(mode_of(&held).await, 0o750, "seed {seed}");
            for kill in 1..=2 {
                bob.stop(End::Killed, Duration::ZERO);
                let held = bob.launch().unwrap();
                attached(room, &held).await;
                assert_eq!(mode_of(&held).await, 0o750, "seed {seed}, after kill {kill}");
            }
            let held = bob.client().unwrap();
            held.set_mode(WantedMode::Fixed(Mode::Partial));
            let both = [ada, bob];
            settling::settled(room, &both, true).await.unwrap();
            let conflicts = origin.origin().unwrap().conflicts(sim::machine::VOLUME, 10).unwrap();
            assert_eq!(conflicts.len(), 1, "seed {seed}: {conflicts:?}");
        });
    }
}

async fn set_mode(client: &SimClient, mode: u16) {
    let set = Operation::SetMode { path: Path::new("both"), mode };
    let outcome = Programs::default().perform(client, &set).await;
    assert!(!matches!(outcome, Outcome::Failed(_)), "{outcome}");
}

async fn mode_of(client: &SimClient) -> u16 {
    let stat = Operation::Stat { path: Path::new("both") };
    match Programs::default().perform(client, &stat).await {
        Outcome::Shown(shown) => shown.mode,
        outcome => panic!("{outcome}"),
    }
}

/// A file that takes long to cut holds up no start: it is stored beside the calls, shows as it was
/// written until then, and counts as pending. Nor does who reads it meanwhile keep it from being stored.
#[test]
fn what_was_open_is_stored_beside_the_calls_of_the_next_process() {
    const LENGTH: usize = 100_000;
    for mode in [Mode::FetchOnly, Mode::Disconnected] {
        simulated(1, async |room| {
            let origin = OriginMachine::start(room, Limits::simulated()).unwrap();
            let partial = WantedMode::Fixed(Mode::Partial);
            let mut ada = ClientMachine::invited(room, &origin, 0, Conditions::NEAR, partial);
            let adas = ada.start().await.unwrap();
            let mut programs = Programs::default();
            for operation in [
                Operation::Create { path: Path::new("file"), mode: 0o644, slot: 0 },
                Operation::Write { slot: 0, offset: 0, length: LENGTH, version: 1 },
            ] {
                let outcome = programs.perform(&adas, &operation).await;
                assert!(!matches!(outcome, Outcome::Failed(_)), "{operation}: {outcome}");
            }
            room.clock.sleep(CHECKPOINT_WITHIN).await;
            ada.mode = WantedMode::Fixed(mode);
            ada.stop(End::Killed, Duration::ZERO);
            let adas = ada.launch().unwrap();
            let pending = adas.status().pending;
            assert_eq!((pending.updates, pending.bytes), (1, 0), "{mode:?}: {pending:?}");
            let name = Name::new(b"file".as_slice()).unwrap();
            let file = adas.lookup(FileId::ROOT, &name).unwrap().unwrap();
            assert_eq!(file.node.contents.size, LENGTH as u64, "{mode:?}");
            let reads = OpenFlags { write: false, ..BOTH };
            let reader = adas.open_file(CALLER, file.file, reads).unwrap().value.handle;
            room.clock.sleep(Duration::from_secs(1)).await;
            let pending = adas.status().pending;
            assert_eq!((pending.updates, pending.bytes), (1, LENGTH as u64), "{mode:?}");
            adas.release(reader);
            adas.set_mode(partial);
            settling::settled(room, std::slice::from_ref(&ada), true).await.unwrap();
            settling::all_agree(room, &origin, std::slice::from_ref(&ada)).await.unwrap();
        });
    }
}
