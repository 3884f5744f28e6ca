//! A client whose disk alters what was written to a file and has not been sent yet: what the server has
//! of it is asked for there.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::{OpenFlags, WantedMode};
use protocol::Mode;
use replica::Limits;
use sim::check;
use sim::contents::stretch;
use sim::machine::{ClientMachine, End, OriginMachine, Room, SimClient};
use sim::network::Conditions;
use sim::operation::{Operation, Outcome, Path};
use sim::perform::Programs;
use std::time::Duration;
use store::{Container, Containers};

/// Of the smaller no recipe is kept once it was sent.
const LENGTHS: [usize; 2] = [400_000, 3_000_000];
const ADDED: usize = 100_000;
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
        let client = machine.start().await.unwrap();
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
fn of_what_was_altered_before_it_was_sent_what_nobody_has_alone_is_lost() {
    for length in LENGTHS {
        let lost = length + ADDED / 2;
        check(length, &[AT, lost], 1, |written| written[lost] ^= 4);
    }
}
