//! Who removes a file, or renames another one over it, before he can have heard of what somebody else
//! stored in it, does not take that along; and who removes a name that somebody else has given it does not
//! take the others along.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::{OpenFlags, RenameFlag, WantedMode};
use protocol::Mode;
use replica::Limits;
use sim::check;
use sim::contents::stretch;
use sim::machine::{ClientMachine, OriginMachine, Room, VOLUME};
use sim::network::Conditions;
use sim::operation::{Operation, Outcome, Path};
use sim::perform::Programs;
use std::time::Duration;

const PARTIAL: WantedMode = WantedMode::Fixed(Mode::Partial);
const LENGTH: usize = 500;
const ADA: usize = 0;
const BOB: usize = 1;
/// What leaves now arrives after all that is done meanwhile.
const LATE: Conditions = Conditions { delay: Duration::from_secs(4), ..Conditions::NEAR };

struct Scene {
    room: Room,
    origin: OriginMachine,
    machines: [ClientMachine; 2],
}

impl Scene {
    /// Both know two files.
    async fn new(seed: u64) -> Scene {
        let room = Room::new(seed, false);
        let origin = OriginMachine::start(&room, Limits::simulated()).unwrap();
        let machine =
            |number| ClientMachine::invited(&room, &origin, number, Conditions::NEAR, PARTIAL);
        let mut machines = [machine(ADA), machine(BOB)];
        for machine in &mut machines {
            machine.start().await.unwrap();
        }
        let scene = Scene { room, origin, machines };
        for (path, version) in [("file", 1), ("other", 2)] {
            let create = Operation::Create { path: Path::new(path), mode: 0o644, slot: 0 };
            scene.does(ADA, &[create, write(version), close()]).await;
        }
        scene.settled().await;
        scene.room.clock.sleep(Duration::from_secs(3)).await;
        assert_eq!(scene.reads(BOB, "file").await, Some(1));
        assert_eq!(scene.reads(BOB, "other").await, Some(2));
        scene
    }

    async fn does(&self, who: usize, operations: &[Operation]) {
        let client = self.machines[who].client().unwrap();
        let mut programs = Programs::default();
        for operation in operations {
            let outcome = programs.perform(client, operation).await;
            assert!(!matches!(outcome, Outcome::Failed(_)), "{operation}: {outcome}");
        }
    }

    async fn settled(&self) {
        check::settled(&self.room, &self.machines, true).await.unwrap();
    }

    async fn settled_of(&self, who: usize) {
        check::settled(&self.room, &self.machines[who..=who], true).await.unwrap();
    }

    /// Which version of a file is read. None: there is no such name.
    async fn reads(&self, who: usize, path: &str) -> Option<u64> {
        let client = self.machines[who].client().unwrap();
        let fetch = Operation::Fetch { path: Path::new(path) };
        let Outcome::Bytes(found) = Programs::default().perform(client, &fetch).await else {
            return None;
        };
        let version = (1..20).find(|version| stretch(*version, LENGTH) == found);
        Some(version.unwrap_or_else(|| panic!("{path} has {} strange bytes", found.len())))
    }

    /// Ada stores, and Bob, to whom nothing comes for some seconds, does this.
    async fn meanwhile(&self, operations: &[Operation]) {
        self.room.network.set_conditions(self.machines[BOB].line, LATE);
        self.does(ADA, &[open("file"), write(7), close()]).await;
        self.room.clock.sleep(Duration::from_secs(1)).await;
        assert_eq!(self.machines[ADA].client().unwrap().status().pending.updates, 0);
        self.does(BOB, operations).await;
        self.settled().await;
        self.room.network.set_conditions(self.machines[BOB].line, Conditions::NEAR);
        self.room.clock.sleep(Duration::from_secs(30)).await;
        check::all_agree(&self.room, &self.origin, &self.machines).await.unwrap();
    }

    /// The names that are shown, each of a file that shows as many links as it has names.
    async fn names(&self, who: usize) -> Vec<String> {
        let client = self.machines[who].client().unwrap();
        let list = Operation::List { path: Path::new(""), page: 100 };
        let listed = Programs::default().perform(client, &list).await;
        let Outcome::Names(listed) = listed else { panic!("{listed}") };
        for (name, shown) in &listed {
            let names = listed.iter().filter(|(_, other)| other.file == shown.file).count();
            assert_eq!(names as u32, shown.links, "{name}: {shown}");
        }
        listed.into_iter().map(|(name, _)| name.to_string()).collect()
    }

    /// Bob hears of everything, and nothing of what he does leaves.
    fn bob_keeps_to_himself(&self, keeps: bool) {
        let mode = if keeps { WantedMode::Fixed(Mode::FetchOnly) } else { PARTIAL };
        self.machines[BOB].client().unwrap().set_mode(mode);
    }

    fn conflicts(&self) -> usize {
        self.origin.origin().unwrap().conflicts(VOLUME, 10).unwrap().len()
    }
}

fn open(path: &str) -> Operation {
    let flags = OpenFlags { write: true, truncate: true, ..OpenFlags::default() };
    Operation::Open { path: Path::new(path), slot: 0, flags }
}

fn write(version: u64) -> Operation {
    Operation::Write { slot: 0, offset: 0, length: LENGTH, version }
}

fn close() -> Operation {
    Operation::Close { slot: 0 }
}

fn unlink(path: &str) -> Operation {
    Operation::Unlink { path: Path::new(path) }
}

fn link(from: &str, to: &str) -> Operation {
    Operation::Link { from: Path::new(from), to: Path::new(to) }
}

fn rename(from: &str, to: &str) -> Operation {
    let (from, to) = (Path::new(from), Path::new(to));
    Operation::Rename { from, to, flag: RenameFlag::Replace }
}

#[test]
fn what_somebody_stored_stays_if_who_removes_the_file_cannot_have_heard_of_it() {
    sim::run::paused(async {
        let scene = Scene::new(1).await;
        scene.meanwhile(&[unlink("file")]).await;
        assert_eq!(scene.reads(BOB, "file").await, Some(7));
        assert_eq!(scene.conflicts(), 1);
        scene.room.network.close();
    });
}

#[test]
fn what_is_renamed_over_it_lies_beside() {
    sim::run::paused(async {
        let scene = Scene::new(2).await;
        scene.meanwhile(&[rename("other", "file")]).await;
        assert_eq!(scene.reads(BOB, "file").await, Some(7));
        assert_eq!(scene.reads(BOB, "other").await, None);
        assert_eq!(scene.conflicts(), 1);
        scene.room.network.close();
    });
}

/// What Bob stored before leaves, as somebody may have given the file another name meanwhile: where it
/// meets what somebody else stored, both are kept.
#[test]
fn a_store_of_ones_own_before_the_removal_makes_no_difference_to_what_somebody_else_stored() {
    sim::run::paused(async {
        for (seed, stored_elsewhere) in [(3, true), (4, false)] {
            let scene = Scene::new(seed).await;
            let removed = [open("file"), write(8), close(), unlink("file")];
            match stored_elsewhere {
                true => scene.meanwhile(&removed).await,
                false => {
                    scene.does(BOB, &removed).await;
                    scene.settled().await;
                    scene.room.clock.sleep(Duration::from_secs(3)).await;
                }
            }
            let left = stored_elsewhere.then_some(7);
            assert_eq!(scene.reads(ADA, "file").await, left);
            // Of the two stores, and of the removal.
            assert_eq!(scene.conflicts(), if stored_elsewhere { 2 } else { 0 });
            scene.room.network.close();
        }
    });
}

/// What is pending here over a file hides what others store into it, until the verdict.
#[test]
fn what_somebody_stored_stays_if_something_pending_hid_it_from_who_removes_the_file() {
    sim::run::paused(async {
        let mode = Operation::SetMode { path: Path::new("file"), mode: 0o600 };
        let hides = [vec![open("file"), write(8), close()], vec![mode]];
        let removals = [unlink("file"), rename("other", "file")];
        for (seed, (hides, removal)) in hides.iter().zip(&removals).enumerate() {
            let scene = Scene::new(6 + seed as u64).await;
            let bob = scene.machines[BOB].client().unwrap();
            bob.set_mode(WantedMode::Fixed(Mode::FetchOnly));
            scene.does(BOB, hides).await;
            scene.does(ADA, &[open("file"), write(7), close()]).await;
            scene.settled_of(ADA).await;
            scene.room.clock.sleep(Duration::from_secs(5)).await;
            scene.does(BOB, std::slice::from_ref(removal)).await;
            bob.set_mode(PARTIAL);
            scene.settled().await;
            scene.room.clock.sleep(Duration::from_secs(30)).await;
            assert_eq!(scene.reads(ADA, "file").await, Some(7), "{removal}");
            // Two stores are one more.
            assert_eq!(scene.conflicts(), 1 + usize::from(hides.len() > 1), "{removal}");
            scene.room.network.close();
        }
    });
}

/// What a program here has written to a file, and not closed yet, hides what others store into it.
#[test]
fn what_somebody_stored_stays_if_what_is_not_stored_yet_hid_it_from_who_removes_the_file() {
    sim::run::paused(async {
        for (seed, removal) in [unlink("file"), rename("other", "file")].iter().enumerate() {
            for is_stored_after_all in [false, true] {
                let scene = Scene::new(10 + seed as u64).await;
                let bob = scene.machines[BOB].client().unwrap();
                let mut editor = Programs::default();
                for operation in [open("file"), write(8)] {
                    let outcome = editor.perform(bob, &operation).await;
                    assert!(!matches!(outcome, Outcome::Failed(_)), "{operation}: {outcome}");
                }
                scene.does(ADA, &[open("file"), write(7), close()]).await;
                scene.room.clock.sleep(Duration::from_secs(5)).await;
                scene.does(BOB, std::slice::from_ref(removal)).await;
                if is_stored_after_all {
                    scene.room.clock.sleep(Duration::from_secs(10)).await;
                }
                editor.perform(bob, &close()).await;
                scene.settled().await;
                scene.room.clock.sleep(Duration::from_secs(30)).await;
                assert_eq!(scene.reads(ADA, "file").await, Some(7), "{removal}");
                assert_eq!(scene.reads(BOB, "file").await, Some(7), "{removal}");
                let conflicts = 1 + usize::from(is_stored_after_all);
                assert_eq!(scene.conflicts(), conflicts, "{removal}");
                scene.room.network.close();
            }
        }
    });
}

/// What a program has written and not closed is one's own to remove with what it was written upon.
#[test]
fn of_what_is_not_stored_yet_nothing_stays_where_nobody_else_stored() {
    sim::run::paused(async {
        for (seed, removal) in [unlink("file"), rename("other", "file")].iter().enumerate() {
            for stores_before in [false, true] {
                let scene = Scene::new(20 + seed as u64).await;
                let bob = scene.machines[BOB].client().unwrap();
                if stores_before {
                    scene.does(BOB, &[open("file"), write(9), close()]).await;
                }
                let mut editor = Programs::default();
                for operation in [open("file"), write(8)] {
                    let outcome = editor.perform(bob, &operation).await;
                    assert!(!matches!(outcome, Outcome::Failed(_)), "{operation}: {outcome}");
                }
                scene.does(BOB, std::slice::from_ref(removal)).await;
                scene.room.clock.sleep(Duration::from_secs(10)).await;
                editor.perform(bob, &close()).await;
                scene.settled().await;
                scene.room.clock.sleep(Duration::from_secs(30)).await;
                let left = matches!(removal, Operation::Rename { .. }).then_some(2);
                assert_eq!(scene.reads(ADA, "file").await, left, "{removal}");
                assert_eq!(scene.conflicts(), 0, "{removal}");
                scene.room.network.close();
            }
        }
    });
}

/// What one has stored oneself, and has heard of or not, is one's own to remove.
#[test]
fn of_what_one_has_stored_oneself_nothing_stays() {
    sim::run::paused(async {
        let scene = Scene::new(5).await;
        scene.room.network.set_conditions(scene.machines[BOB].line, LATE);
        scene.does(BOB, &[open("file"), write(8), close()]).await;
        // It is on its way, or has arrived, and no verdict has come.
        scene.room.clock.sleep(Duration::from_secs(5)).await;
        scene.does(BOB, &[unlink("file"), rename("other", "file")]).await;
        scene.settled().await;
        scene.does(ADA, &[]).await;
        scene.room.clock.sleep(Duration::from_secs(30)).await;
        assert_eq!(scene.reads(ADA, "file").await, Some(2));
        assert_eq!(scene.reads(ADA, "other").await, None);
        assert_eq!(scene.conflicts(), 0);
        scene.room.network.close();
    });
}

/// What is pending of a file hides no other name that somebody gives it, and who removes that one, or puts
/// something else in its place, removes that alone.
#[test]
fn of_two_names_one_is_removed_though_something_of_the_file_was_pending_when_it_got_them() {
    sim::run::paused(async {
        let mode = Operation::SetMode { path: Path::new("file"), mode: 0o600 };
        let pending = [
            (vec![open("file"), write(8), close()], "file", 8),
            (vec![mode], "file", 1),
            (vec![rename("file", "renamed")], "renamed", 1),
        ];
        let removals = [unlink("third"), rename("other", "third")];
        let each = pending.iter().flat_map(|one| removals.iter().map(move |other| (one, other)));
        for (seed, ((pending, name, version), removal)) in each.enumerate() {
            let scene = Scene::new(30 + seed as u64).await;
            scene.bob_keeps_to_himself(true);
            scene.does(BOB, pending).await;
            scene.does(ADA, &[link("file", "third")]).await;
            scene.room.clock.sleep(Duration::from_secs(5)).await;
            assert_eq!(scene.names(BOB).await, [*name, "other", "third"].sorted());
            scene.does(BOB, std::slice::from_ref(removal)).await;
            let left = match removal {
                Operation::Unlink { .. } => [*name, "other"].sorted(),
                _ => [*name, "third"].sorted(),
            };
            assert_eq!(scene.names(BOB).await, left, "{removal}");
            assert_eq!(scene.reads(BOB, name).await, Some(*version), "{removal}");
            scene.does(BOB, &[open(name), write(9), close()]).await;
            scene.bob_keeps_to_himself(false);
            scene.settled().await;
            scene.room.clock.sleep(Duration::from_secs(30)).await;
            for who in [ADA, BOB] {
                assert_eq!(scene.names(who).await, left, "{removal}");
                assert_eq!(scene.reads(who, name).await, Some(9), "{removal}");
            }
            assert_eq!(scene.conflicts(), 0, "{removal}");
            scene.room.network.close();
        }
    });
}

/// Nor is a name shown that is gone: who removes the last one removes the file.
#[test]
fn the_last_name_is_removed_though_something_of_the_file_was_pending_when_it_lost_the_others() {
    sim::run::paused(async {
        let mode = Operation::SetMode { path: Path::new("file"), mode: 0o600 };
        for (seed, pending) in
            [vec![open("file"), write(8), close()], vec![mode]].iter().enumerate()
        {
            let scene = Scene::new(40 + seed as u64).await;
            scene.does(ADA, &[link("file", "third")]).await;
            scene.settled().await;
            scene.room.clock.sleep(Duration::from_secs(3)).await;
            scene.bob_keeps_to_himself(true);
            scene.does(BOB, pending).await;
            scene.does(ADA, &[unlink("third")]).await;
            scene.room.clock.sleep(Duration::from_secs(5)).await;
            assert_eq!(scene.names(BOB).await, ["file", "other"]);
            // Who has it open goes on with it, and nobody else sees what he writes.
            let bob = scene.machines[BOB].client().unwrap();
            let mut program = Programs::default();
            program.perform(bob, &open("file")).await;
            scene.does(BOB, &[unlink("file")]).await;
            program.perform(bob, &write(9)).await;
            program.perform(bob, &close()).await;
            scene.bob_keeps_to_himself(false);
            scene.settled().await;
            scene.room.clock.sleep(Duration::from_secs(30)).await;
            for who in [ADA, BOB] {
                assert_eq!(scene.names(who).await, ["other"]);
            }
            assert_eq!(scene.conflicts(), 0);
            scene.room.network.close();
        }
    });
}

/// Two have renamed a file: what shows is by what comes of that, and nothing is written to a name that goes.
#[test]
fn of_two_names_that_two_have_given_a_file_at_once_one_shows() {
    sim::run::paused(async {
        let scene = Scene::new(50).await;
        scene.bob_keeps_to_himself(true);
        scene.does(BOB, &[rename("file", "mine")]).await;
        scene.does(ADA, &[rename("file", "theirs")]).await;
        scene.room.clock.sleep(Duration::from_secs(5)).await;
        assert_eq!(scene.names(BOB).await, ["other", "theirs"]);
        // While that does not show, names of others count as well.
        let mode = Operation::SetMode { path: Path::new("other"), mode: 0o600 };
        scene.does(BOB, &[mode]).await;
        scene.does(ADA, &[link("other", "third")]).await;
        scene.room.clock.sleep(Duration::from_secs(5)).await;
        assert_eq!(scene.names(BOB).await, ["other", "theirs", "third"]);
        scene.does(BOB, &[open("theirs"), write(9), close()]).await;
        scene.bob_keeps_to_himself(false);
        scene.settled().await;
        scene.room.clock.sleep(Duration::from_secs(30)).await;
        for who in [ADA, BOB] {
            assert_eq!(scene.names(who).await, ["other", "theirs", "third"]);
            assert_eq!(scene.reads(who, "theirs").await, Some(9));
        }
        scene.room.network.close();
    });
}

trait Sorted {
    fn sorted(self) -> Self;
}

impl<const N: usize> Sorted for [&str; N] {
    fn sorted(mut self) -> Self {
        self.sort_unstable();
        self
    }
}
