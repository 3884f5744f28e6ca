//! One who has the volume for itself, and others that come.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::{OpenFlags, WantedMode};
use model::Kind;
use protocol::Mode;
use sim::contents::stretch;
use sim::machine::{ClientMachine, OriginMachine, Room, SimClient};
use sim::network::Conditions;
use sim::operation::{Fault, Operation, Outcome, Path};
use sim::perform::Programs;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const LENGTH: usize = 3000;
/// Longer than any lease, and the time after which one is renewed.
const LEASE_ENDS: Duration = Duration::from_secs(90);

struct Scene {
    room: Room,
    origin: OriginMachine,
}

fn play<F: Future<Output = ()>>(work: impl FnOnce(Scene) -> F) {
    sim::run::paused(async {
        let room = Room::new(1, false);
        let origin = OriginMachine::start(&room, replica::Limits::simulated()).unwrap();
        let network = room.network.clone();
        work(Scene { room, origin }).await;
        network.close();
    });
}

struct Person {
    machine: ClientMachine,
    client: SimClient,
    programs: Programs,
}

impl Scene {
    async fn comes(&self, number: usize) -> Person {
        let (room, near, auto) = (&self.room, Conditions::NEAR, WantedMode::Auto);
        let mut machine = ClientMachine::invited(room, &self.origin, number, near, auto);
        let client = machine.start().await.unwrap();
        Person { machine, client, programs: Programs::default() }
    }

    async fn pass(&self, time: Duration) {
        self.room.clock.sleep(time).await;
    }
}

impl Person {
    fn mode(&self) -> Mode {
        self.client.status().mode
    }

    fn pending(&self) -> u64 {
        self.client.status().pending.updates
    }

    async fn perform(&mut self, operation: Operation) -> Outcome {
        self.programs.perform(&self.client, &operation).await
    }

    async fn save(&mut self, path: &str, version: u64) {
        let path = Path::new(path);
        for operation in [
            Operation::Create { path, slot: 0, mode: 0o644 },
            Operation::Write { slot: 0, offset: 0, length: LENGTH, version },
            Operation::Close { slot: 0 },
        ] {
            self.done(operation).await;
        }
    }

    async fn done(&mut self, operation: Operation) {
        let outcome = self.perform(operation).await;
        assert!(!matches!(outcome, Outcome::Failed(_)), "{outcome}");
    }

    async fn read(&mut self, path: &str) -> Outcome {
        self.perform(Operation::Fetch { path: Path::new(path) }).await
    }
}

fn contents(version: u64) -> Outcome {
    Outcome::Bytes(stretch(version, LENGTH))
}

#[test]
fn who_comes_sees_all_that_was_closed_by_the_one_who_was_alone() {
    play(|scene| async move {
        let mut ada = scene.comes(0).await;
        scene.pass(SECOND).await;
        assert_eq!(ada.mode(), Mode::Partial, "nobody else is there");
        ada.save("first", 1).await;
        assert!(ada.pending() > 0, "she did not wait");
        let mut bob = scene.comes(1).await;
        assert_eq!((ada.mode(), ada.pending()), (Mode::Connected, 0), "before he is there");
        assert_eq!(bob.read("first").await, contents(1));
        ada.save("second", 2).await;
        assert_eq!(ada.pending(), 0, "she waits now");
        assert_eq!(bob.read("second").await, contents(2));
        bob.save("third", 3).await;
        assert_eq!(ada.read("third").await, contents(3));
        bob.client.shut_down(SECOND * 5).await;
        scene.pass(SECOND).await;
        assert_eq!(ada.mode(), Mode::Partial, "she is alone again");
    });
}

#[test]
fn who_does_not_use_it_is_no_company_and_still_sees_all_that_was_closed() {
    play(|scene| async move {
        let mut ada = scene.comes(0).await;
        let mut bob = scene.comes(1).await;
        bob.save("his 0", 10).await;
        for round in 0..3 {
            let (his, hers) = (format!("his {round}"), format!("hers {round}"));
            assert_eq!(ada.read(&his).await, contents(10 + round));
            assert_eq!(ada.mode(), Mode::Connected, "he used it just now");
            // Longer than a lease, in which she alone uses it.
            for _ in 0..18 {
                scene.pass(SECOND * 5).await;
                ada.read(&his).await;
            }
            assert_eq!(ada.mode(), Mode::Partial, "nobody else uses it");
            ada.save(&hers, 20 + round).await;
            assert!(ada.pending() > 0, "she did not wait");
            assert_eq!(bob.read(&hers).await, contents(20 + round), "he asks first");
            assert_eq!((ada.mode(), ada.pending()), (Mode::Connected, 0));
            bob.save(&format!("his {}", round + 1), 11 + round).await;
        }
    });
}

#[test]
fn who_died_is_company_until_its_lease_is_over() {
    play(|scene| async move {
        let mut ada = scene.comes(0).await;
        let mut bob = scene.comes(1).await;
        bob.machine.stop(sim::machine::End::Killed, SECOND);
        scene.pass(SECOND * 3).await;
        assert_eq!(ada.mode(), Mode::Connected);
        scene.pass(LEASE_ENDS).await;
        ada.save("wakes her", 1).await;
        scene.pass(SECOND * 3).await;
        assert_eq!(ada.mode(), Mode::Partial);
    });
}

#[test]
fn a_link_that_is_cut_while_one_is_alone_loses_nothing_and_company_is_heard_of_after_it() {
    play(|scene| async move {
        let mut ada = scene.comes(0).await;
        ada.save("before", 7).await;
        scene.pass(SECOND).await;
        scene.room.network.cut(ada.machine.line, SECOND / 10);
        ada.save("first", 1).await;
        let mut bob = scene.comes(1).await;
        scene.room.network.restore(ada.machine.line);
        scene.pass(SECOND * 20).await;
        assert_eq!((ada.mode(), ada.pending()), (Mode::Connected, 0));
        assert_eq!(bob.read("first").await, contents(1));
        let made = bob
            .perform(Operation::Make {
                path: Path::new("second"),
                kind: Kind::Directory,
                mode: 0o755,
                target: None,
            })
            .await;
        assert!(!matches!(made, Outcome::Failed(_)), "{made}");
    });
}

#[test]
fn a_mode_set_while_a_file_is_written_that_meets_another_is_refused_at_its_close() {
    play(|scene| async move {
        let (mut ada, mut bob) = (scene.comes(0).await, scene.comes(1).await);
        ada.client.set_mode(WantedMode::Fixed(Mode::Connected));
        bob.client.set_mode(WantedMode::Fixed(Mode::Connected));
        ada.save("f", 1).await;
        assert_eq!(bob.read("f").await, contents(1));
        let path = Path::new("f");
        let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
        let set = |mode| Operation::SetMode { path: path.clone(), mode };
        ada.done(Operation::Open { path: path.clone(), slot: 0, flags }).await;
        ada.done(Operation::Write { slot: 0, offset: 0, length: LENGTH, version: 2 }).await;
        ada.done(set(0o600)).await;
        bob.done(set(0o640)).await;
        let closed = ada.perform(Operation::Close { slot: 0 }).await;
        assert_eq!(closed, Outcome::Failed(Fault::Changed), "it says what became of the mode");
        for person in [&mut ada, &mut bob] {
            assert_eq!(person.read("f").await, contents(2), "what was written is not lost by that");
            let shown = person.perform(Operation::Stat { path: path.clone() }).await;
            assert!(matches!(shown, Outcome::Shown(shown) if shown.mode == 0o640));
        }
    });
}

#[test]
fn who_comes_back_while_a_dead_one_is_waited_for_does_not_go_on_without_a_link() {
    play(|scene| async move {
        let mut ada = scene.comes(0).await;
        let mut bob = scene.comes(1).await;
        ada.save("f", 1).await;
        assert_eq!(bob.read("f").await, contents(1));
        bob.client.shut_down(SECOND * 5).await;
        bob.machine.stop(sim::machine::End::Killed, SECOND);
        scene.pass(SECOND).await;
        assert_eq!(ada.mode(), Mode::Partial);
        let path = Path::new("f");
        let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
        ada.done(Operation::Open { path, slot: 0, flags }).await;
        ada.done(Operation::Write { slot: 0, offset: 0, length: LENGTH, version: 2 }).await;
        ada.done(Operation::Close { slot: 0 }).await;
        scene.pass(SECOND * 2).await;
        assert_eq!(ada.pending(), 0);
        ada.machine.stop(sim::machine::End::Killed, 60 * SECOND);
        // The origin cannot know yet that she is not there any more, and waits for her.
        bob.client = bob.machine.start().await.unwrap();
        bob.programs = Programs::default();
        for _ in 0..200 {
            assert_ne!(bob.mode(), Mode::Disconnected);
            scene.pass(SECOND / 10).await;
        }
        assert_eq!(bob.read("f").await, contents(2));
    });
}
