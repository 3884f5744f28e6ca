//! Extended attributes that are more than a file may have: it is said by the call, in every mode.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::{WantedMode, XattrFlag};
use protocol::Mode;
use replica::Limits;
use sim::check;
use sim::machine::{ClientMachine, OriginMachine, Room};
use sim::network::Conditions;
use sim::operation::{Fault, Operation, Outcome, Path};
use sim::perform::Programs;

/// Two of them are as much as a file may have.
const BYTES: usize = 60_000;

fn path() -> Path {
    Path::new("f")
}

fn set(name: &str) -> Operation {
    let (name, value) = (name.as_bytes().to_vec(), vec![7; BYTES]);
    Operation::SetXattr { path: path(), name, value, flag: XattrFlag::Either }
}

#[test]
fn more_than_a_file_may_have_is_refused_by_the_call_and_nothing_that_was_taken_is_lost() {
    for mode in [Mode::Connected, Mode::Partial] {
        sim::run::paused(async {
            let room = Room::new(1, false);
            let origin = OriginMachine::start(&room, Limits::simulated()).unwrap();
            let wanted = WantedMode::Fixed(mode);
            let mut ada = ClientMachine::invited(&room, &origin, 0, Conditions::NEAR, wanted);
            let client = ada.start().await.unwrap();
            let mut programs = Programs::default();
            let create = Operation::Create { path: path(), mode: 0o644, slot: 0 };
            programs.perform(&client, &create).await;
            for (name, outcome) in [
                ("user.a", Outcome::Done),
                ("user.b", Outcome::Done),
                ("user.c", Outcome::Failed(Fault::NoSpace)),
            ] {
                assert_eq!(programs.perform(&client, &set(name)).await, outcome, "{mode:?} {name}");
            }
            programs.perform(&client, &Operation::Close { slot: 0 }).await;
            check::settled(&room, &[ada], true).await.unwrap();
            let tree = check::origin_tree(&origin).await.unwrap();
            assert_eq!(tree.0.values().map(|leaf| leaf.xattrs.len()).max(), Some(2), "{mode:?}");
            room.network.close();
        });
    }
}
