//! One client and an origin, in situations that are set up and not drawn.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::{Durability, OpenFlags, WantedMode};
use model::Kind;
use protocol::{Mode, Status};
use sim::check::{self, Pairs};
use sim::contents::stretch;
use sim::machine::{ClientMachine, EPOCH_SECS, OriginMachine, Room, SimClient};
use sim::network::Conditions;
use sim::operation::{Fault, Operation, Outcome, Path};
use sim::perform::Programs;
use sim::reference::Reference;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
/// Longer than any lease.
const LEASE_ENDS: Duration = Duration::from_secs(90);

struct Scene {
    room: Room,
    origin: OriginMachine,
    machine: ClientMachine,
    client: SimClient,
    programs: Programs,
}

/// Plays a scene in simulated time.
fn play<F: Future<Output = ()>>(mode: WantedMode, work: impl FnOnce(Scene) -> F) {
    play_at(replica::Limits::simulated(), mode, work);
}

/// With an origin of these limits.
fn play_at<F: Future<Output = ()>>(
    limits: replica::Limits,
    mode: WantedMode,
    work: impl FnOnce(Scene) -> F,
) {
    sim::run::paused(async {
        let room = Room::new(1, false);
        let origin = OriginMachine::start(&room, limits).unwrap();
        let invitation = origin.invite().unwrap();
        let mut machine = ClientMachine::new(&room, 0, invitation, Conditions::NEAR, mode);
        (machine.durability, machine.cache_bytes_max) = (Durability::Prompt, 1 << 30);
        let client = machine.start().await.unwrap();
        let network = room.network.clone();
        work(Scene { room, origin, machine, client, programs: Programs::default() }).await;
        network.close();
    });
}

fn fixed(mode: Mode) -> WantedMode {
    WantedMode::Fixed(mode)
}

impl Scene {
    async fn perform(&mut self, operation: Operation) -> Outcome {
        self.programs.perform(&self.client, &operation).await
    }

    #[track_caller]
    fn done(outcome: Outcome) {
        assert!(!matches!(outcome, Outcome::Failed(_)), "{outcome}");
    }

    /// Makes a file with the contents of `version` and closes it.
    async fn save(&mut self, path: &str, version: u64, length: usize) -> Outcome {
        let made = self.perform(create(path)).await;
        if matches!(made, Outcome::Failed(_)) {
            return made;
        }
        Self::done(self.write(0, version, length).await);
        self.close(0).await
    }

    async fn write(&mut self, slot: usize, version: u64, length: usize) -> Outcome {
        self.perform(Operation::Write { slot, offset: 0, length, version }).await
    }

    async fn open(&mut self, path: &str, slot: usize) {
        let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
        Self::done(self.perform(Operation::Open { path: Path::new(path), slot, flags }).await);
    }

    async fn close(&mut self, slot: usize) -> Outcome {
        self.perform(Operation::Close { slot }).await
    }

    async fn read(&mut self, path: &str) -> Outcome {
        self.perform(Operation::Fetch { path: Path::new(path) }).await
    }

    async fn make_directory(&mut self, path: &str) -> Outcome {
        let (path, kind) = (Path::new(path), Kind::Directory);
        self.perform(Operation::Make { path, kind, mode: 0o755, target: None }).await
    }

    fn status(&self) -> Status {
        self.client.status()
    }

    async fn pass(&self, time: Duration) {
        self.room.clock.sleep(time).await;
    }

    async fn settled(&self) {
        let machines = std::slice::from_ref(&self.machine);
        check::settled(&self.room, machines, true).await.unwrap();
    }

    /// Everything is at the origin, and both show the same. Whoever looked at the origin for this
    /// is not waited for afterwards.
    async fn agree(&self) {
        self.settled().await;
        let machines = std::slice::from_ref(&self.machine);
        check::all_agree(&self.room, &self.origin, machines).await.unwrap();
        check::nothing_broke(&self.room, machines).unwrap();
        self.pass(LEASE_ENDS).await;
    }
}

fn create(path: &str) -> Operation {
    Operation::Create { path: Path::new(path), mode: 0o644, slot: 0 }
}

fn holds(version: u64, length: usize) -> Outcome {
    Outcome::Bytes(stretch(version, length))
}

fn failed(fault: Fault) -> Outcome {
    Outcome::Failed(fault)
}

#[test]
fn connected_what_the_origin_has_no_room_for_is_undone_and_never_taken() {
    play(fixed(Mode::Connected), async |mut scene| {
        Scene::done(scene.save("old", 1, 3_000).await);
        scene.origin.disk.fill_after(0);
        assert_eq!(scene.make_directory("d").await, failed(Fault::NoSpace));
        assert_eq!(scene.save("new", 2, 3_000).await, failed(Fault::NoSpace));
        scene.open("old", 0).await;
        Scene::done(scene.write(0, 3, 4_000).await);
        let flushed = scene.perform(Operation::Flush { slot: 0 }).await;
        assert_eq!(flushed, failed(Fault::NoSpace));
        assert_eq!(scene.status().pending.updates, 0);
        assert_eq!(scene.read("old").await, holds(3, 4_000), "it is open and written to");
        assert_eq!(scene.close(0).await, failed(Fault::NoSpace));
        scene.origin.disk.make_room();
        assert_eq!(scene.read("old").await, holds(1, 3_000));
        assert_eq!(scene.read("new").await, failed(Fault::NoEntry));
        scene.pass(60 * SECOND).await;
        scene.agree().await;
        let there = check::origin_tree(&scene.origin).await.unwrap();
        scene.pass(LEASE_ENDS).await;
        Scene::done(scene.make_directory("d").await);
        scene.open("old", 0).await;
        Scene::done(scene.write(0, 4, 5_000).await);
        Scene::done(scene.close(0).await);
        assert_eq!(scene.read("old").await, holds(4, 5_000));
        scene.agree().await;
        let then = check::origin_tree(&scene.origin).await.unwrap();
        assert!(!there.differences("before", &then, "after").is_empty());
        assert_eq!(scene.status().conflicts, 0);
    });
}

impl Scene {
    async fn set_mode(&mut self, path: &str, mode: u16) -> Outcome {
        self.perform(Operation::SetMode { path: Path::new(path), mode }).await
    }

    async fn mode(&mut self, path: &str) -> u16 {
        match self.perform(Operation::Stat { path: Path::new(path) }).await {
            Outcome::Shown(shown) => shown.mode,
            other => panic!("{other}"),
        }
    }
}

#[test]
fn attributes_set_while_a_file_is_written_stay_pending_when_the_origin_has_no_room() {
    play(fixed(Mode::Connected), async |mut scene| {
        for (passes, makes_room) in [(Duration::ZERO, false), (SECOND, false), (SECOND, true)] {
            Scene::done(scene.save("f", 1, 3_000).await);
            scene.open("f", 0).await;
            Scene::done(scene.write(0, 2, 4_000).await);
            scene.origin.disk.fill_after(0);
            Scene::done(scene.set_mode("f", 0o600).await);
            scene.pass(passes).await;
            let (outcome, stored) = if makes_room {
                scene.origin.disk.make_room();
                (Outcome::Done, holds(2, 4_000))
            } else {
                (failed(Fault::NoSpace), holds(1, 3_000))
            };
            assert_eq!(scene.close(0).await, outcome);
            assert_eq!(scene.mode("f").await, 0o600);
            assert_eq!(scene.read("f").await, stored);
            scene.origin.disk.make_room();
            scene.agree().await;
            assert_eq!(scene.mode("f").await, 0o600);
            Scene::done(scene.perform(Operation::Unlink { path: Path::new("f") }).await);
        }
    });
}

#[test]
fn attributes_of_a_file_that_stays_open_do_not_wait_for_its_close() {
    play(fixed(Mode::Connected), async |mut scene| {
        Scene::done(scene.save("f", 1, 3_000).await);
        scene.open("f", 0).await;
        Scene::done(scene.write(0, 2, 4_000).await);
        Scene::done(scene.set_mode("f", 0o600).await);
        assert_eq!(scene.status().pending.updates, 1);
        scene.pass(SECOND).await;
        assert_eq!(scene.status().pending.updates, 0);
        Scene::done(scene.close(0).await);
        scene.agree().await;
    });
}

#[test]
fn a_file_that_stays_open_is_stored_by_the_next_sync_once_there_is_room() {
    play(fixed(Mode::Connected), async |mut scene| {
        Scene::done(scene.save("old", 1, 3_000).await);
        scene.open("old", 0).await;
        Scene::done(scene.write(0, 2, 4_000).await);
        scene.origin.disk.fill_after(0);
        for _ in 0..2 {
            let synced = scene.perform(Operation::Sync { slot: 0 }).await;
            assert_eq!(synced, failed(Fault::NoSpace));
        }
        scene.origin.disk.make_room();
        Scene::done(scene.perform(Operation::Sync { slot: 0 }).await);
        Scene::done(scene.close(0).await);
        assert_eq!(scene.read("old").await, holds(2, 4_000));
        scene.agree().await;
        assert_eq!(scene.status().conflicts, 0);
    });
}

#[test]
fn what_was_undone_does_not_come_back_with_the_next_start() {
    play(fixed(Mode::Connected), async |mut scene| {
        Scene::done(scene.save("old", 1, 3_000).await);
        scene.origin.disk.fill_after(0);
        assert_eq!(scene.make_directory("d").await, failed(Fault::NoSpace));
        scene.open("old", 0).await;
        Scene::done(scene.write(0, 2, 4_000).await);
        assert_eq!(scene.close(0).await, failed(Fault::NoSpace));
        scene.origin.disk.make_room();
        scene.machine.stop(sim::machine::End::PowerCut, SECOND);
        scene.programs.forget();
        scene.client = scene.machine.start().await.unwrap();
        scene.pass(30 * SECOND).await;
        assert_eq!(scene.read("old").await, holds(1, 3_000));
        let there = scene.perform(Operation::Stat { path: Path::new("d") }).await;
        assert_eq!(there, failed(Fault::NoEntry));
        scene.agree().await;
    });
}

#[test]
fn partial_what_the_origin_has_no_room_for_stays_pending_and_status_says_why() {
    play(fixed(Mode::Partial), async |mut scene| {
        Scene::done(scene.save("old", 1, 3_000).await);
        // A lease that runs out could not be renewed.
        scene.settled().await;
        scene.origin.disk.fill_after(0);
        Scene::done(scene.make_directory("d").await);
        Scene::done(scene.save("new", 2, 3_000).await);
        scene.pass(10 * SECOND).await;
        let pending = scene.status().pending;
        assert!(pending.updates > 0);
        assert!(pending.trouble.unwrap().contains("no space left"));
        // Who waits from now on is told, and the rest stays.
        scene.client.set_mode(fixed(Mode::Connected));
        assert_eq!(scene.make_directory("e").await, failed(Fault::NoSpace));
        assert_eq!(scene.status().pending.updates, pending.updates);
        scene.origin.disk.make_room();
        scene.agree().await;
        assert_eq!(scene.status().pending.trouble, None);
        assert_eq!(scene.read("new").await, holds(2, 3_000));
        let there = scene.perform(Operation::Stat { path: Path::new("e") }).await;
        assert_eq!(there, failed(Fault::NoEntry));
    });
}

#[test]
fn what_took_the_place_of_acknowledged_contents_stays_when_the_origin_has_no_room() {
    play(fixed(Mode::Partial), async |mut scene| {
        scene.settled().await;
        scene.origin.disk.fill_after(0);
        // Acknowledged, and nowhere but here.
        Scene::done(scene.save("f", 1, 3_000).await);
        scene.client.set_mode(fixed(Mode::Connected));
        scene.open("f", 0).await;
        Scene::done(scene.write(0, 2, 4_000).await);
        assert_eq!(scene.close(0).await, failed(Fault::NoSpace));
        scene.pass(10 * SECOND).await;
        assert_eq!(scene.read("f").await, holds(2, 4_000));
        scene.origin.disk.make_room();
        scene.agree().await;
        assert_eq!(scene.read("f").await, holds(2, 4_000));
        assert_eq!(scene.status().conflicts, 0);
    });
}

#[test]
fn with_no_room_at_all_here_what_the_origin_refuses_is_undone_and_files_can_be_removed() {
    play(fixed(Mode::Connected), async |mut scene| {
        Scene::done(scene.save("old", 1, 3_000).await);
        scene.origin.disk.fill_after(0);
        let (path, kind) = (Path::new("d"), Kind::Directory);
        let making = Operation::Make { path, kind, mode: 0o755, target: None };
        let made = scene.programs.perform(&scene.client, &making);
        // Once the directory is in the log, and before the origin has refused it.
        let fill = async { scene.machine.disk.fill_after(0) };
        let (made, ()) = tokio::join!(biased; made, fill);
        assert_eq!(made, failed(Fault::NoSpace));
        let there = scene.perform(Operation::Stat { path: Path::new("d") }).await;
        assert_eq!(there, failed(Fault::NoEntry));
        scene.client.set_mode(fixed(Mode::Partial));
        Scene::done(scene.perform(Operation::Unlink { path: Path::new("old") }).await);
        scene.machine.disk.make_room();
        scene.origin.disk.make_room();
        scene.agree().await;
    });
}

#[test]
fn disconnected_by_wish_nothing_goes_over_a_link_that_is_there() {
    play(fixed(Mode::Partial), async |mut scene| {
        Scene::done(scene.save("seen", 1, 3_000).await);
        scene.agree().await;
        let mut other = other_client(&scene).await;
        let theirs = other.client().unwrap().clone();
        let mut others = Programs::default();
        save_by(&mut others, &theirs, "unseen", 2).await;
        scene.client.set_mode(fixed(Mode::Disconnected));
        scene.pass(SECOND).await;
        let traffic = |scene: &Scene| scene.room.network.traffic(scene.machine.line);
        let before = traffic(&scene);
        let asked = scene.room.clock.moment();
        assert_eq!(scene.read("unseen").await, failed(Fault::Unreachable));
        assert_eq!(scene.room.clock.moment().since(asked), Duration::ZERO, "at once");
        assert_eq!(scene.read("seen").await, holds(1, 3_000));
        Scene::done(scene.save("mine", 3, 2_000).await);
        save_by(&mut others, &theirs, "more", 4).await;
        for _ in 0..120 {
            assert_eq!(scene.read("seen").await, holds(1, 3_000));
            scene.pass(SECOND).await;
        }
        assert_eq!(traffic(&scene), before, "not a byte, in either direction");
        let status = scene.status();
        assert_eq!((status.mode, status.pending.updates > 0), (Mode::Disconnected, true));
        assert!(status.link.trouble.unwrap().contains("as was asked for"));
        scene.client.set_mode(fixed(Mode::Partial));
        assert_eq!(scene.read("unseen").await, holds(2, 2_000));
        scene.agree().await;
        other.stop(sim::machine::End::Killed, SECOND);
    });
}

/// Connected by `auto`: the first change after the link began to hang waits until it is given up,
/// and by then the mode has changed.
#[test]
fn a_link_that_hangs_holds_up_the_first_change_for_the_silence_and_no_longer() {
    play(WantedMode::Auto, async |mut scene| {
        // Who has the volume for itself does not wait for the server.
        let _company = other_client(&scene).await;
        Scene::done(scene.make_directory("before").await);
        scene.pass(5 * SECOND).await;
        assert_eq!(scene.status().mode, Mode::Connected);
        let silence = 6 * SECOND;
        scene.room.network.hang(scene.machine.line, silence);
        let began = scene.room.clock.moment();
        Scene::done(scene.make_directory("first").await);
        let took = scene.room.clock.moment().since(began);
        assert!(took <= silence + SECOND / 10, "{took:?}");
        assert_eq!(scene.status().mode, Mode::Disconnected);
        let began = scene.room.clock.moment();
        Scene::done(scene.make_directory("second").await);
        assert_eq!(scene.room.clock.moment().since(began), Duration::ZERO);
        scene.room.network.restore(scene.machine.line);
        scene.agree().await;
    });
}

async fn other_client(scene: &Scene) -> ClientMachine {
    let invitation = scene.origin.invite().unwrap();
    let mode = fixed(Mode::Connected);
    let mut other = ClientMachine::new(&scene.room, 1, invitation, Conditions::NEAR, mode);
    other.start().await.unwrap();
    other
}

async fn save_by(programs: &mut Programs, client: &SimClient, path: &str, version: u64) {
    let write = Operation::Write { slot: 0, offset: 0, length: 2_000, version };
    for operation in [create(path), write, Operation::Close { slot: 0 }] {
        Scene::done(programs.perform(client, &operation).await);
    }
}

#[test]
fn what_is_open_and_written_counts_as_cached_at_once() {
    play(WantedMode::Auto, async |mut scene| {
        let before = scene.status().cache;
        Scene::done(scene.perform(create("file")).await);
        Scene::done(scene.write(0, 1, 3).await);
        let open = scene.status().cache;
        assert_eq!((open.files, open.bytes), (before.files + 1, before.bytes + 3));
        Scene::done(scene.write(0, 2, 5_000).await);
        assert_eq!(scene.status().cache.bytes, before.bytes + 5_000);
        Scene::done(scene.close(0).await);
        scene.pass(3 * SECOND).await;
        let closed = scene.status().cache;
        assert_eq!((closed.files, closed.bytes), (before.files + 1, before.bytes + 5_000));
    });
}

/// A kernel sends what is written to a file that was opened to append to the end that it knows,
/// and the client does so where the kernel may know another version's end.
#[test]
fn what_is_appended_goes_to_the_end_beside_an_older_version_and_alone() {
    play(fixed(Mode::Connected), async |mut scene| {
        Scene::done(scene.save("file", 1, 300).await);
        scene.agree().await;
        let mut other = other_client(&scene).await;
        let theirs = other.client().unwrap().clone();
        let append = OpenFlags { write: true, append: true, ..OpenFlags::default() };
        let path = Path::new("file");
        for older in [true, false] {
            let mut reference = Reference::new(2, 0o755);
            Scene::done(reference.perform(0, &create("file")));
            Scene::done(reference.perform(0, &Operation::Close { slot: 0 }));
            let flags = OpenFlags { read: true, ..OpenFlags::default() };
            if older {
                let open = Operation::Open { path: path.clone(), slot: 1, flags };
                Scene::done(scene.perform(open).await);
            }
            let mut others = Programs::default();
            let truncate = OpenFlags { write: true, truncate: true, ..OpenFlags::default() };
            for operation in [
                Operation::Open { path: path.clone(), slot: 0, flags: truncate },
                Operation::Write { slot: 0, offset: 0, length: 200, version: 2 },
                Operation::Close { slot: 0 },
            ] {
                Scene::done(reference.perform(1, &operation));
                Scene::done(others.perform(&theirs, &operation).await);
            }
            for operation in [
                Operation::Open { path: path.clone(), slot: 0, flags: append },
                Operation::Write { slot: 0, offset: 5_000, length: 100, version: 3 },
                Operation::Write { slot: 0, offset: 0, length: 100, version: 4 },
                Operation::Append { slot: 0, length: 100, version: 5 },
                Operation::Close { slot: 0 },
                Operation::Fetch { path: path.clone() },
            ] {
                let expected = reference.perform(0, &operation);
                assert_eq!(scene.perform(operation).await, expected);
            }
            let parts = [(2, 200), (3, 100), (4, 100), (5, 100)];
            let bytes = parts.map(|(version, length)| stretch(version, length)).concat();
            assert_eq!(scene.read("file").await, Outcome::Bytes(bytes));
            if older {
                Scene::done(scene.close(1).await);
            }
        }
        other.stop(sim::machine::End::Killed, SECOND);
    });
}

/// An origin that keeps what was replaced for `kept`, and nothing longer than it must.
fn keeping(kept: Duration) -> replica::Limits {
    replica::Limits {
        versions_kept: kept,
        trash_percent: 0,
        trash_bytes_min: 0,
        trash_kept: Duration::ZERO,
        promise: SECOND,
        mark_every: SECOND,
        collect_every: 5 * SECOND,
        collect_first: 5 * SECOND,
        ..replica::Limits::simulated()
    }
}

#[test]
fn an_open_old_version_is_read_for_its_time_and_then_as_far_as_it_is_cached() {
    /// Too much to be fetched as a whole.
    const LENGTH: usize = 5 << 18;
    const KEPT: Duration = Duration::from_secs(60);
    const FAR: u64 = 1 << 20;
    play_at(keeping(KEPT), fixed(Mode::Connected), async |mut scene| {
        let mut other = other_client(&scene).await;
        let theirs = other.client().unwrap().clone();
        let mut others = Programs::default();
        let write = |version| Operation::Write { slot: 0, offset: 0, length: LENGTH, version };
        for operation in [create("file"), write(1), Operation::Close { slot: 0 }] {
            Scene::done(others.perform(&theirs, &operation).await);
        }
        scene.open("file", 0).await;
        let read = |slot, offset| Operation::Read { slot, offset, length: 1_000 };
        let stretch_at = |version, offset: u64| {
            Outcome::Bytes(stretch(version, LENGTH)[offset as usize..][..1_000].to_vec())
        };
        let path = Path::new("file");
        let flags = OpenFlags { write: true, ..OpenFlags::default() };
        for operation in
            [Operation::Open { path, slot: 0, flags }, write(2), Operation::Close { slot: 0 }]
        {
            Scene::done(others.perform(&theirs, &operation).await);
        }
        scene.pass(KEPT / 2).await;
        assert!(scene.perform(read(0, 0)).await == stretch_at(1, 0), "it is kept for its time");
        scene.pass(KEPT).await;
        assert!(scene.perform(read(0, 0)).await == stretch_at(1, 0), "it is cached");
        assert_eq!(scene.perform(read(0, FAR)).await, failed(Fault::Stale));
        assert_eq!(scene.write(0, 3, 10).await, failed(Fault::Stale));
        scene.open("file", 1).await;
        assert!(scene.perform(read(1, FAR)).await == stretch_at(2, FAR));
        assert!(scene.perform(read(0, 0)).await == stretch_at(1, 0), "it is cached still");
        for slot in 0..2 {
            Scene::done(scene.close(slot).await);
        }
        scene.settled().await;
        check::nothing_broke(&scene.room, std::slice::from_ref(&scene.machine)).unwrap();
        other.stop(sim::machine::End::Killed, SECOND);
    });
}

#[test]
fn a_file_without_a_name_shows_the_time_of_what_was_last_done_to_it() {
    play(fixed(Mode::Connected), async |mut scene| {
        let mut other = other_client(&scene).await;
        let theirs = other.client().unwrap().clone();
        let mut others = Programs::default();
        let (mut reference, mut pairs) = (Reference::new(2, 0o755), Pairs::default());
        let touch = |path, secs| Operation::SetTime { path: Path::new(path), secs };
        let write = |slot| Operation::Write { slot, offset: 0, length: 100, version: 1 };
        let unlink = |path| Operation::Unlink { path: Path::new(path) };
        let flags = OpenFlags { write: true, ..OpenFlags::default() };
        let open = Operation::Open { path: Path::new("written"), slot: 0, flags };
        let touched = Operation::Create { path: Path::new("touched"), mode: 0o644, slot: 1 };
        let mut last = Vec::new();
        for (side, operation) in [
            (0, create("written")),
            (0, Operation::Close { slot: 0 }),
            (0, touch("written", 1_000)),
            (0, open),
            (0, write(0)),
            (0, unlink("written")),
            (0, Operation::StatOpen { slot: 0 }),
            (0, touched),
            (0, write(1)),
            (0, Operation::Sync { slot: 1 }),
            (1, touch("touched", 2_000)),
            (0, unlink("touched")),
            (0, Operation::StatOpen { slot: 1 }),
        ] {
            let expected = reference.perform(side, &operation);
            let found = match side {
                0 => scene.perform(operation.clone()).await,
                _ => others.perform(&theirs, &operation).await,
            };
            Scene::done(expected.clone());
            assert!(pairs.agree_on_outcome(&expected, &found), "{operation}: {found:?}");
            if let (Operation::StatOpen { .. }, Outcome::Shown(shown)) = (&operation, found) {
                last.push(shown.mtime.unwrap().secs);
            }
        }
        assert!(last[0] >= EPOCH_SECS, "it was written after its time was set");
        assert_eq!(last[1], 2_000, "it was stored before its time was set");
        other.stop(sim::machine::End::Killed, SECOND);
    });
}
