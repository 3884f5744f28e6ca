//! A directory in which another device has made a name that nothing more is known of here, when there is no
//! link: what is known is listed, and it is said that this is not all.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::{Error, Stop, WantedMode};
use model::FileId;
use protocol::Mode;
use replica::Limits;
use sim::check;
use sim::machine::{ClientMachine, OriginMachine, Room, SimClient};
use sim::network::Conditions;
use sim::operation::{Operation, Path};
use sim::perform::Programs;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(20);
/// Longer than a call waits for a link.
const LONG: Duration = Duration::from_secs(120);

async fn make(client: &SimClient, name: &str) {
    let create = Operation::Create { path: Path::new(name), mode: 0o644, slot: 0 };
    Programs::default().perform_all(client, [create, Operation::Close { slot: 0 }]).await;
}

/// The names of the root, and whether that was said to be all.
fn listed(client: &SimClient) -> (Vec<String>, bool) {
    let (mut names, mut cookie) = (Vec::new(), 0);
    loop {
        match client.list_names(FileId::ROOT, cookie, 2) {
            Ok(page) if page.is_empty() => return (names, true),
            Ok(page) => {
                cookie = page.last().unwrap().cookie;
                names.extend(page.iter().map(|it| it.name.to_string()));
            }
            Err(Stop::Error(Error::Unreachable(_))) => return (names, false),
            Err(stop) => panic!("{stop}"),
        }
    }
}

#[test]
fn names_that_are_known_are_listed_and_the_end_says_that_others_are_lacking() {
    sim::run::paused(async {
        let room = Room::new(1, false);
        let origin = OriginMachine::start(&room, Limits::simulated()).unwrap();
        let (near, mode) = (Conditions::NEAR, WantedMode::Fixed(Mode::Partial));
        let machine = |number| ClientMachine::invited(&room, &origin, number, near, mode);
        let (mut ada, mut bob) = (machine(0), machine(1));
        let there = ada.start().await.unwrap();
        for name in ["a", "b", "c"] {
            make(&there, name).await;
        }
        check::settled(&room, std::slice::from_ref(&ada), true).await.unwrap();
        let here = bob.start().await.unwrap();
        let list = Operation::List { path: Path::new(""), page: 10 };
        Programs::default().perform_all(&here, [list]).await;
        make(&there, "d").await;
        room.clock.sleep(SOON).await;
        for is_cut in [false, true] {
            match is_cut {
                true => room.network.cut(bob.line, Duration::ZERO),
                false => here.set_mode(WantedMode::Fixed(Mode::Disconnected)),
            }
            room.clock.sleep(LONG).await;
            let (mut names, is_all) = listed(&here);
            names.sort();
            assert_eq!((names.join(""), is_all), ("abc".into(), false), "cut {is_cut}");
            here.set_mode(mode);
            room.network.restore(bob.line);
            room.clock.sleep(LONG).await;
        }
        let list = Operation::List { path: Path::new(""), page: 10 };
        Programs::default().perform_all(&here, [list]).await;
        assert!(listed(&here).1);
        room.network.close();
    });
}
