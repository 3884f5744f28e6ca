//! A client whose disk alters or loses what was written to a file and has not been sent yet: what the server
//! has of it is asked for there, and what is lost is said before it is to be sent.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::{OpenFlags, WantedMode, Wrong};
use model::FileId;
use protocol::Mode;
use replica::Limits;
use sim::check;
use sim::contents::stretch;
use sim::machine::{ClientMachine, End, OriginMachine, Room, SimClient};
use sim::network::Conditions;
use sim::operation::{Operation, Outcome, Path};
use sim::perform::Programs;
use std::time::Duration;
use store::container::Key;
use store::{Container, Containers, Durability, Tables};

/// Of the smaller no recipe is kept once it was sent.
const LENGTHS: [usize; 2] = [400_000, 3_000_000];
const ADDED: usize = 100_000;
/// More than is mended at once.
const WIDE: usize = 9_000_000;
/// Where a bit is flipped of what the server has.
const AT: usize = 200_000;
const PARTIAL: WantedMode = WantedMode::Fixed(Mode::Partial);
const WRITE: OpenFlags = OpenFlags { read: true, write: true, truncate: false, append: false };
const CHECKPOINTED: Duration = Duration::from_secs(12);

async fn perform(client: &SimClient, operations: &[Operation]) -> Outcome {
    let mut programs = Programs::default();
    let mut last = Outcome::Done;
    for operation in operations {
        last = programs.perform(client, operation).await;
        assert!(!matches!(last, Outcome::Failed(_)), "{last}");
    }
    last
}

async fn read(client: &SimClient) -> Vec<u8> {
    match perform(client, &[Operation::Fetch { path: Path::new("file") }]).await {
        Outcome::Bytes(bytes) => bytes,
        other => panic!("{other}"),
    }
}

/// The container of a file that has one.
fn container(machine: &ClientMachine, file: u64) -> impl Container + use<> {
    let containers = machine.disk.containers("files");
    let keys = containers.list_of(file).unwrap();
    assert_eq!(keys.len(), 1);
    containers.open(keys[0], false).unwrap().unwrap()
}

fn flip(machine: &ClientMachine, file: u64, at: usize) {
    let container = container(machine, file);
    let byte = container.read(at as u64, 1).unwrap()[0];
    container.write(at as u64, &[byte ^ 4]).unwrap();
}

/// Something is added to a file that the server has, and held back; while no process runs the disk flips
/// bits; then it is sent. What everybody reads is to be `left`, which is told what was written.
fn check(length: usize, flipped: &[usize], damaged: usize, left: impl Fn(&mut Vec<u8>)) {
    check_with_crash(length, flipped, damaged, left, None);
}

/// The same; the process dies at that change of its disk after the link is back.
fn check_with_crash(
    length: usize,
    flipped: &[usize],
    damaged: usize,
    left: impl Fn(&mut Vec<u8>),
    crash: Option<u64>,
) {
    sim::run::paused(async {
        let room = &Room::new(1, false);
        let mut origin = OriginMachine::start(room, Limits::simulated()).unwrap();
        let mut machine = ClientMachine::invited(room, &origin, 0, Conditions::NEAR, PARTIAL);
        let client = machine.start().await.unwrap();
        let path = Path::new("file");
        let slot = 0;
        let made = [
            Operation::Create { path: path.clone(), mode: 0o644, slot },
            Operation::Write { slot, offset: 0, length, version: 1 },
            Operation::Close { slot },
        ];
        perform(&client, &made).await;
        check::settled(room, std::slice::from_ref(&machine), true).await.unwrap();
        client.set_mode(WantedMode::Fixed(Mode::FetchOnly));
        let added = [
            Operation::Open { path: path.clone(), slot, flags: WRITE },
            Operation::Write { slot, offset: length as u64, length: ADDED, version: 9 },
            Operation::Close { slot },
        ];
        perform(&client, &added).await;
        let Outcome::Shown(shown) = perform(&client, &[Operation::Stat { path }]).await else {
            panic!("it is not there")
        };
        // In the tables, so that the log is not asked what the container should hold.
        room.clock.sleep(CHECKPOINTED).await;
        machine.stop(End::Killed, Duration::ZERO);
        flipped.iter().for_each(|at| flip(&machine, shown.file, *at));
        let mut client = machine.start().await.unwrap();
        if let Some(changes) = crash {
            machine.disk.crash_after(changes);
            client.set_mode(PARTIAL);
            room.clock.sleep(CHECKPOINTED * 5).await;
            assert!(machine.has_crashed(), "{changes}");
            machine.stop(End::PowerCut, Duration::ZERO);
            machine.disk.crash_after(u64::MAX);
            client = machine.start().await.unwrap();
        }
        client.set_mode(PARTIAL);
        check::settled(room, std::slice::from_ref(&machine), true).await.unwrap();
        let mut expected = [stretch(1, length), stretch(9, ADDED)].concat();
        left(&mut expected);
        let case = format!("{length}, {flipped:?}");
        let mut other =
            ClientMachine::new(room, 1, origin.invite().unwrap(), Conditions::NEAR, PARTIAL);
        let theirs = other.start().await.unwrap();
        assert!(read(&theirs).await == expected, "{case}: as everybody sees it");
        assert_eq!(client.status().damage.len(), damaged, "{case}");
        room.clock.sleep(CHECKPOINTED).await;
        let held = container(&machine, shown.file).read(0, expected.len()).unwrap();
        assert!(held == expected, "{case}: the container is mended");
        assert!(read(&client).await == expected, "{case}: as it is seen here");
        assert!(client.status().mended.times > 0, "{case}");
        check::nothing_broke(room, std::slice::from_ref(&machine)).unwrap();
        other.stop(End::Killed, Duration::ZERO);
        origin.stop(End::Killed, Duration::ZERO);
        room.network.close();
    });
}

#[test]
fn what_was_altered_before_it_was_sent_and_the_server_has_is_as_it_was_written() {
    for length in LENGTHS {
        check(length, &[AT], 0, |_| {});
    }
}

#[test]
fn what_was_altered_all_over_is_mended_in_portions_and_a_crash_between_two_is_harmless() {
    let flipped: Vec<usize> = (0..WIDE).step_by(10_000).collect();
    for crash in [None, Some(30), Some(700)] {
        check_with_crash(WIDE, &flipped, 0, |_| {}, crash);
    }
}

#[test]
fn of_what_was_altered_before_it_was_sent_what_nobody_has_alone_is_lost() {
    for length in LENGTHS {
        let lost = length + ADDED / 2;
        check(length, &[AT, lost], 1, |written| written[lost] ^= 4);
    }
}

/// Two files are written and held back. Gives the id of the first.
async fn held_back(room: &Room, machine: &mut ClientMachine) -> (SimClient, u64) {
    let client = machine.start().await.unwrap();
    for (name, version) in [("file", 1), ("sound", 2)] {
        let (path, slot) = (Path::new(name), 0);
        let made = [
            Operation::Create { path, mode: 0o644, slot },
            Operation::Write { slot, offset: 0, length: LENGTHS[0], version },
            Operation::Close { slot },
        ];
        perform(&client, &made).await;
    }
    let Outcome::Shown(shown) =
        perform(&client, &[Operation::Stat { path: Path::new("file") }]).await
    else {
        panic!("it is not there")
    };
    room.clock.sleep(CHECKPOINTED).await;
    (client, shown.file)
}

fn remove(machine: &ClientMachine, file: u64) {
    let containers = machine.disk.containers("files");
    let keys = containers.list_of(file).unwrap();
    keys.into_iter().for_each(|key| assert!(containers.remove(key).is_ok()));
}

/// What is said of what was written to "file", once.
fn is_said(client: &SimClient, case: &str) {
    let damage = client.status().damage;
    let [one] = &damage[..] else { panic!("{case}: {damage:?}") };
    assert_eq!((one.path.as_deref(), one.unsent), (Some("file"), true), "{case}");
}

/// Who comes upon it first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meets {
    Reading,
    Checking,
    Explaining,
    Mounting,
}

fn lost(meets: Meets) {
    sim::run::paused(async {
        let (room, case) = (&Room::new(1, false), format!("{meets:?}"));
        let mut origin = OriginMachine::start(room, Limits::simulated()).unwrap();
        let held = WantedMode::Fixed(Mode::FetchOnly);
        let mut machine = ClientMachine::invited(room, &origin, 0, Conditions::NEAR, held);
        let (mut client, file) = held_back(room, &mut machine).await;
        if meets == Meets::Mounting {
            machine.stop(End::Killed, Duration::ZERO);
        }
        remove(&machine, file);
        if meets == Meets::Mounting {
            client = machine.start().await.unwrap();
            room.clock.sleep(Duration::from_secs(1)).await;
        } else {
            assert_eq!(client.status().damage, [], "{case}: nobody has met it");
        }
        match meets {
            Meets::Reading => {
                let mut programs = Programs::default();
                let fetch = Operation::Fetch { path: Path::new("file") };
                let read = programs.perform(&client, &fetch).await;
                assert!(matches!(read, Outcome::Failed(_)), "{case}: {read}");
            }
            Meets::Checking => {
                let turn = client.read_through((0, 0)).await.unwrap();
                let [wrong] = &turn.wrong[..] else { panic!("{case}: {turn:?}") };
                let said = (&wrong.path[..], wrong.bytes, wrong.unsent);
                assert_eq!(said, ("file", LENGTHS[0] as u64, true), "{case}");
                assert_eq!(turn.unknown, 0, "{case}");
            }
            Meets::Explaining => {
                let told = client.explain(FileId(file), "file").unwrap();
                assert!(told.why.iter().any(|why| why.contains("lost")), "{case}: {told:?}");
                assert!(!told.why.iter().any(|why| why.contains("is fetched")), "{case}: {told:?}");
                assert_eq!(told.bytes_here, 0, "{case}");
            }
            Meets::Mounting => {}
        }
        is_said(&client, &case);
        client.read_through((0, 0)).await.unwrap();
        is_said(&client, &case);
        // What became of it takes the place of what was said.
        client.set_mode(PARTIAL);
        check::settled(room, std::slice::from_ref(&machine), true).await.unwrap();
        let damage = client.status().damage;
        assert!(matches!(&damage[..], [one] if !one.unsent), "{case}: {damage:?}");
        check::nothing_broke(room, std::slice::from_ref(&machine)).unwrap();
        origin.stop(End::Killed, Duration::ZERO);
        room.network.close();
    });
}

#[test]
fn what_is_pending_and_lost_is_said_by_whoever_meets_it_and_once() {
    for meets in [Meets::Reading, Meets::Checking, Meets::Explaining, Meets::Mounting] {
        lost(meets);
    }
}

/// Two files are held back, and the container of the first is gone or cut short.
async fn held_and_lost(room: &Room, machine: &mut ClientMachine, left: usize) -> (SimClient, u64) {
    let (client, file) = held_back(room, machine).await;
    match left {
        0 => remove(machine, file),
        left => container(machine, file).set_length(left as u64).unwrap(),
    }
    let turn = client.read_through((0, 0)).await.unwrap();
    assert_eq!(turn.wrong.len(), 1, "{turn:?}");
    is_said(&client, "checked");
    (client, file)
}

#[test]
fn what_is_cut_short_before_it_was_sent_is_said_with_what_is_there() {
    sim::run::paused(async {
        let room = &Room::new(1, false);
        let mut origin = OriginMachine::start(room, Limits::simulated()).unwrap();
        let held = WantedMode::Fixed(Mode::FetchOnly);
        let mut machine = ClientMachine::invited(room, &origin, 0, Conditions::NEAR, held);
        let (client, file) = held_and_lost(room, &mut machine, 10).await;
        assert_eq!(client.status().damage[0].stored_bytes, Some(10));
        let told = client.explain(FileId(file), "file").unwrap();
        assert!(told.why[0].contains("the first 10 of") && told.bytes_here == 10, "{told:?}");
        client.set_mode(PARTIAL);
        check::settled(room, std::slice::from_ref(&machine), true).await.unwrap();
        let damage = client.status().damage;
        assert!(matches!(&damage[..], [one] if !one.unsent), "{damage:?}");
        check::nothing_broke(room, std::slice::from_ref(&machine)).unwrap();
        origin.stop(End::Killed, Duration::ZERO);
        room.network.close();
    });
}

#[test]
fn what_is_put_back_or_written_anew_before_it_was_sent_is_said_to_be_lost_no_more() {
    for is_put_back in [true, false] {
        sim::run::paused(async {
            let room = &Room::new(1, false);
            let mut origin = OriginMachine::start(room, Limits::simulated()).unwrap();
            let held = WantedMode::Fixed(Mode::FetchOnly);
            let mut machine = ClientMachine::invited(room, &origin, 0, Conditions::NEAR, held);
            let (client, file) = held_and_lost(room, &mut machine, 0).await;
            if is_put_back {
                let containers = machine.disk.containers("files");
                let key = Key { file, generation: 0 };
                let container = containers.open(key, true).unwrap().unwrap();
                container.write(0, &stretch(1, LENGTHS[0])).unwrap();
            } else {
                let (slot, length) = (0, LENGTHS[0]);
                let flags = OpenFlags { truncate: true, ..WRITE };
                let anew = [
                    Operation::Open { path: Path::new("file"), slot, flags },
                    Operation::Write { slot, offset: 0, length, version: 1 },
                    Operation::Close { slot },
                ];
                perform(&client, &anew).await;
            }
            assert_eq!(client.status().damage, [], "{is_put_back}");
            assert_eq!(client.read_through((0, 0)).await.unwrap().wrong, [], "{is_put_back}");
            let told = client.explain(FileId(file), "file").unwrap();
            assert!(!told.why.iter().any(|why| why.contains("lost")), "{told:?}");
            client.set_mode(PARTIAL);
            check::settled(room, std::slice::from_ref(&machine), true).await.unwrap();
            assert_eq!(client.status().damage, [], "{is_put_back}");
            let tree = check::origin_tree(&origin).await.unwrap();
            let leaf = tree.0.get(&Path::new("/file")).and_then(|leaf| leaf.contents.clone());
            assert!(leaf.unwrap()[..] == stretch(1, LENGTHS[0]), "{is_put_back}");
            check::nothing_broke(room, std::slice::from_ref(&machine)).unwrap();
            origin.stop(End::Killed, Duration::ZERO);
            room.network.close();
        });
    }
}

#[test]
fn without_a_session_since_the_start_nothing_is_said_to_be_lost_that_may_be_at_the_server() {
    sim::run::paused(async {
        let room = &Room::new(1, false);
        let mut origin = OriginMachine::start(room, Limits::simulated()).unwrap();
        let held = WantedMode::Fixed(Mode::FetchOnly);
        let mut machine = ClientMachine::invited(room, &origin, 0, Conditions::NEAR, held);
        let (_, file) = held_back(room, &mut machine).await;
        machine.stop(End::Killed, Duration::ZERO);
        remove(&machine, file);
        machine.mode = WantedMode::Fixed(Mode::Disconnected);
        let client = machine.start().await.unwrap();
        room.clock.sleep(Duration::from_secs(1)).await;
        let wrong = client.read_through((0, 0)).await.unwrap().wrong;
        let [Wrong { left: Some(left), unsent: true, .. }] = &wrong[..] else {
            panic!("{wrong:?}")
        };
        assert!(left.contains("is known when there is a link"), "{left}");
        let told = client.explain(FileId(file), "file").unwrap();
        assert!(told.why[0].contains("is known when there is a link"), "{told:?}");
        assert_eq!(client.status().damage, []);
        client.set_mode(held);
        room.clock.sleep(CHECKPOINTED).await;
        is_said(&client, "with a link");
        origin.stop(End::Killed, Duration::ZERO);
        room.network.close();
    });
}

/// Of how many files a recipe is kept until what is pending of them was sent.
fn kept(machine: &ClientMachine) -> usize {
    let tables = machine.disk.tables("client");
    let rows = tables.read().unwrap().scan("client-unsent", &[], &[0xff; 9], 10).unwrap();
    rows.len()
}

async fn save(client: &SimClient, length: usize, truncate: bool) {
    let (slot, flags) = (0, OpenFlags { truncate, ..WRITE });
    let saved = [
        Operation::Open { path: Path::new("file"), slot, flags },
        Operation::Write { slot, offset: 0, length, version: 7 },
        Operation::Close { slot },
    ];
    perform(client, &saved).await;
}

#[test]
fn a_recipe_that_is_kept_until_a_store_was_sent_goes_when_that_is_sent_or_replaced() {
    sim::run::paused(async {
        let room = &Room::new(1, false);
        let mut origin = OriginMachine::start(room, Limits::simulated()).unwrap();
        let held = WantedMode::Fixed(Mode::FetchOnly);
        let mut machine = ClientMachine::invited(room, &origin, 0, Conditions::NEAR, held);
        let (client, file) = held_back(room, &mut machine).await;
        assert_eq!(kept(&machine), 2);
        // One is one chunk from here on, and needs none; then it is kept elsewhere.
        save(&client, 100, true).await;
        assert_eq!(kept(&machine), 1);
        for _ in 0..3 {
            save(&client, LENGTHS[0], true).await;
            assert_eq!(kept(&machine), 1, "it waits for the checkpoint");
        }
        room.clock.sleep(CHECKPOINTED).await;
        assert_eq!(kept(&machine), 2);
        save(&client, LENGTHS[1], true).await;
        assert_eq!(kept(&machine), 1);
        client.set_mode(PARTIAL);
        check::settled(room, std::slice::from_ref(&machine), true).await.unwrap();
        assert_eq!(kept(&machine), 0);
        let tables = machine.disk.tables("client");
        let mut write = tables.write().unwrap();
        write.put("client-unsent", &file.to_be_bytes(), &[9]).unwrap();
        write.commit(Durability::Now).unwrap();
        drop(tables);
        assert_eq!(client.read_through((0, 0)).await.unwrap().wrong, []);
        assert_eq!(kept(&machine), 0, "who reads the cache through finds what was left over");
        check::nothing_broke(room, std::slice::from_ref(&machine)).unwrap();
        origin.stop(End::Killed, Duration::ZERO);
        room.network.close();
    });
}
