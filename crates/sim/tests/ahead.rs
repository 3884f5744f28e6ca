//! Reading on in a directory that has more names than are looked at for one plan.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::WantedMode;
use model::Kind;
use protocol::Mode;
use replica::Limits;
use sim::check;
use sim::contents::stretch;
use sim::machine::{ClientMachine, OriginMachine, Room, SimClient};
use sim::network::Conditions;
use sim::operation::{Operation, Outcome, Path};
use sim::perform::Programs;
use std::time::Duration;

const FILES: u64 = 8_500;
const LENGTH: usize = 200;
/// Those that are read have contents: so many that follow each other, and one in so many of all.
const FIRST: u64 = 1_000;
const READ: u64 = 200;
const ONE_IN: u64 = 40;
const PARTIAL: WantedMode = WantedMode::Fixed(Mode::Partial);

fn path(number: u64) -> Path {
    Path::new(&format!("file-{number:05}"))
}

/// How many files came before anybody asked for them.
async fn fetched_ahead(client: &SimClient, numbers: impl Iterator<Item = u64>) -> u64 {
    let before = client.status().prefetch.files;
    for number in numbers {
        let fetch = Operation::Fetch { path: path(number) };
        let fetched = Programs::default().perform(client, &fetch).await;
        assert_eq!(fetched, Outcome::Bytes(stretch(number, LENGTH)));
    }
    client.status().prefetch.files - before
}

#[test]
fn who_reads_on_in_a_large_directory_is_gone_ahead_of_and_who_reads_to_and_fro_is_not() {
    sim::run::paused(async {
        let room = Room::new(1, false);
        let origin = OriginMachine::start(&room, Limits::simulated()).unwrap();
        let near = Conditions::NEAR;
        let machine = |number| ClientMachine::invited(&room, &origin, number, near, PARTIAL);
        let (mut ada, mut bob) = (machine(0), machine(1));
        let client = ada.start().await.unwrap();
        let mut programs = Programs::default();
        for number in 0..FILES {
            if !(FIRST..FIRST + READ).contains(&number) && number % ONE_IN > 0 {
                let make = Operation::Make {
                    path: path(number),
                    kind: Kind::File,
                    mode: 0o644,
                    target: None,
                };
                programs.perform_all(&client, [make]).await;
                continue;
            }
            let create = Operation::Create { path: path(number), mode: 0o644, slot: 0 };
            let write = Operation::Write { slot: 0, offset: 0, length: LENGTH, version: number };
            programs.perform_all(&client, [create, write, Operation::Close { slot: 0 }]).await;
        }
        check::settled(&room, std::slice::from_ref(&ada), true).await.unwrap();
        let client = bob.start().await.unwrap();
        let list = Operation::List { path: Path::new(""), page: 1_000 };
        programs.perform(&client, &list).await;
        let by_name = fetched_ahead(&client, FIRST..FIRST + READ).await;
        assert!(by_name > READ / 2, "{by_name} were fetched ahead");
        room.clock.sleep(Duration::from_secs(60)).await;
        let to_and_fro = (0..READ).map(|number| number * 89 % READ * ONE_IN);
        let none = fetched_ahead(&client, to_and_fro).await;
        assert_eq!(none, 0, "were fetched ahead");
        room.network.close();
    });
}
