//! A link that changes under a client whose mode goes by it.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::WantedMode;
use protocol::Mode;
use sim::machine::{ClientMachine, OriginMachine, Room, SimClient};
use sim::network::Conditions;
use sim::operation::{Operation, Outcome, Path};
use sim::perform::Programs;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
/// Samples that are taken until a change is believed, and more.
const BELIEVED: Duration = Duration::from_secs(8);

struct Scene {
    room: Room,
    /// Whose link changes, and another who keeps the volume in use, so that the first waits for the
    /// server where the link allows it.
    ada: (ClientMachine, SimClient, Programs),
    bob: (ClientMachine, SimClient, Programs),
    saved: u64,
}

fn play<F: Future<Output = ()>>(work: impl FnOnce(Scene) -> F) {
    sim::run::paused(async {
        let room = Room::new(1, false);
        let origin = OriginMachine::start(&room, replica::Limits::simulated()).unwrap();
        let mut people = Vec::new();
        for number in 0..2 {
            let near = Conditions::NEAR;
            let mut machine =
                ClientMachine::invited(&room, &origin, number, near, WantedMode::Auto);
            let client = machine.start().await.unwrap();
            people.push((machine, client, Programs::default()));
        }
        let network = room.network.clone();
        let (bob, ada) = (people.pop().unwrap(), people.pop().unwrap());
        let mut scene = Scene { room, ada, bob, saved: 0 };
        scene.pass(SECOND * 3).await;
        assert_eq!(scene.mode(), Mode::Connected, "it is near, and she is not alone");
        work(scene).await;
        network.close();
    });
}

impl Scene {
    fn mode(&self) -> Mode {
        self.ada.1.status().mode
    }

    fn becomes(&self, conditions: Conditions) {
        self.room.network.set_conditions(0, conditions);
    }

    /// Both work meanwhile, about once a second.
    async fn pass(&mut self, time: Duration) {
        let until = self.room.clock.moment() + time;
        while !until.since(self.room.clock.moment()).is_zero() {
            self.saved += 1;
            for (name, (_, client, programs)) in [("ada", &mut self.ada), ("bob", &mut self.bob)] {
                let path = Path::new(name);
                let version = self.saved;
                for operation in [
                    Operation::Create { path, slot: 0, mode: 0o644 },
                    Operation::Write { slot: 0, offset: 0, length: 100, version },
                    Operation::Close { slot: 0 },
                    Operation::Unlink { path: Path::new(name) },
                ] {
                    let outcome = programs.perform(client, &operation).await;
                    assert!(!matches!(outcome, Outcome::Failed(_)), "{outcome}");
                }
            }
            self.room.clock.sleep(SECOND).await;
        }
    }

    /// What the link is made of changes, and comes back.
    async fn follows(&mut self, conditions: Conditions, why: &str) {
        self.becomes(conditions);
        self.pass(BELIEVED).await;
        let status = self.ada.1.status();
        assert_eq!(status.mode, Mode::Partial, "{}", status.mode_why);
        assert!(status.mode_why.contains(why), "{}", status.mode_why);
        let change = status.mode_changes.last().unwrap();
        assert_eq!((change.from, change.to), (Mode::Connected, Mode::Partial));
        assert!(change.why.contains(why), "{}", change.why);
        self.becomes(Conditions::NEAR);
        self.pass(SECOND * 45).await;
        let status = self.ada.1.status();
        assert_eq!(status.mode, Mode::Connected, "{}", status.mode_why);
    }
}

#[test]
fn a_link_that_becomes_far_is_no_longer_waited_for() {
    play(|mut scene| async move {
        scene.follows(Conditions { delay: SECOND / 20, ..Conditions::NEAR }, "far away").await;
    });
}

#[test]
fn a_link_that_becomes_slow_is_no_longer_waited_for() {
    play(|mut scene| async move {
        let slow = Conditions { bytes_a_second: Some(20_000), ..Conditions::NEAR };
        scene.becomes(Conditions { bytes_a_second: Some(1_000_000), ..Conditions::NEAR });
        scene.pass(BELIEVED).await;
        assert_eq!(scene.mode(), Mode::Connected);
        scene.becomes(slow);
        scene.pass(BELIEVED).await;
        let status = scene.ada.1.status();
        assert_eq!(status.mode, Mode::Partial, "{}", status.mode_why);
        assert!(status.mode_why.contains("slow"), "{}", status.mode_why);
        assert!(status.link.estimate.rate_up.unwrap() < 30_000);
    });
}

#[test]
fn a_link_that_loses_much_is_no_longer_waited_for() {
    play(|mut scene| async move {
        let lossy = Conditions { lost_in_thousand: 150, ..Conditions::NEAR };
        scene.follows(lossy, "much is lost").await;
    });
}

#[test]
fn a_second_in_which_everything_is_late_changes_nothing() {
    play(|mut scene| async move {
        for _ in 0..10 {
            scene.becomes(Conditions { delay: SECOND / 4, ..Conditions::NEAR });
            scene.room.clock.sleep(SECOND).await;
            scene.becomes(Conditions::NEAR);
            scene.pass(SECOND * 20).await;
            assert_eq!(scene.mode(), Mode::Connected);
        }
        let changes = scene.ada.1.status().mode_changes;
        assert!(!changes.iter().any(|change| change.why.contains("poor")), "{changes:?}");
    });
}
