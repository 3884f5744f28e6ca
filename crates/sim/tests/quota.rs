//! Quotas: who writes more than there is learns it at the call, and what was accepted is kept.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::{OpenFlags, WantedMode};
use protocol::Mode;
use replica::Limits;
use sim::check;
use sim::contents::stretch;
use sim::machine::{ClientMachine, End, OriginMachine, Room, SimClient};
use sim::network::Conditions;
use sim::operation::{Fault, Operation, Outcome, Path};
use sim::perform::Programs;
use std::time::Duration;

/// Longer than any lease, and than it takes to find out that there is no link.
const LEASE_ENDS: Duration = Duration::from_secs(90);
const VOLUME: &str = sim::machine::VOLUME;
const MODES: [Mode; 2] = [Mode::Connected, Mode::Partial];

struct Scene {
    room: Room,
    origin: OriginMachine,
    machines: Vec<ClientMachine>,
    programs: Vec<Programs>,
}

/// Plays a scene with so many machines, in a volume that may have `bytes`.
fn play<F: Future<Output = ()>>(
    machines: usize,
    mode: Mode,
    bytes: u64,
    work: impl FnOnce(Scene) -> F,
) {
    sim::run::paused(async {
        let room = Room::new(1, false);
        let origin = OriginMachine::start(&room, Limits::simulated()).unwrap();
        let network = room.network.clone();
        let mut scene = Scene { room, origin, machines: Vec::new(), programs: Vec::new() };
        scene.allow(|quota| quota.bytes = Some(bytes));
        for number in 0..machines {
            let mode = WantedMode::Fixed(mode);
            let near = Conditions::NEAR;
            let machine = ClientMachine::invited(&scene.room, &scene.origin, number, near, mode);
            scene.machines.push(machine);
            scene.machines[number].start().await.unwrap();
            scene.programs.push(Programs::default());
        }
        work(scene).await;
        network.close();
    });
}

impl Scene {
    fn allow(&self, change: impl FnOnce(&mut model::Quota)) {
        self.origin.origin().unwrap().set_quota(VOLUME, change).unwrap();
    }

    async fn cut(&self, who: usize) {
        self.room.network.cut(self.machines[who].line, Duration::ZERO);
        self.room.clock.sleep(LEASE_ENDS).await;
    }

    fn client(&self, who: usize) -> SimClient {
        self.machines[who].client().unwrap().clone()
    }

    async fn perform(&mut self, who: usize, operation: Operation) -> Outcome {
        let client = self.client(who);
        self.programs[who].perform(&client, &operation).await
    }

    async fn create(&mut self, who: usize, path: &str) -> Outcome {
        let create = Operation::Create { path: Path::new(path), mode: 0o644, slot: 0 };
        self.perform(who, create).await
    }

    async fn write(&mut self, who: usize, offset: u64, length: usize) -> Outcome {
        self.perform(who, Operation::Write { slot: 0, offset, length, version: 1 }).await
    }

    async fn close(&mut self, who: usize) -> Outcome {
        self.perform(who, Operation::Close { slot: 0 }).await
    }

    async fn save(&mut self, who: usize, path: &str, length: usize) -> Outcome {
        done(self.create(who, path).await);
        let written = self.write(who, 0, length).await;
        if let Outcome::Failed(_) = written {
            done(self.close(who).await);
            return written;
        }
        self.close(who).await
    }

    async fn open(&mut self, who: usize, path: &str) {
        let flags = OpenFlags { write: true, ..OpenFlags::default() };
        done(self.perform(who, Operation::Open { path: Path::new(path), slot: 0, flags }).await);
    }

    fn set_mode(&self, who: usize, mode: Mode) {
        self.client(who).set_mode(WantedMode::Fixed(mode));
    }

    fn launch_after_kill(&mut self, who: usize) {
        self.machines[who].stop(End::Killed, Duration::ZERO);
        self.programs[who] = Programs::default();
        self.machines[who].launch().unwrap();
    }

    async fn left(&self) -> (u64, u64) {
        let client = self.client(0);
        let totals = client::complete(&client, |client| client.totals()).await.unwrap();
        (totals.bytes, totals.bytes_free)
    }

    async fn unlink(&mut self, who: usize, path: &str) {
        let unlink = Operation::Unlink { path: Path::new(path) };
        done(self.perform(who, unlink).await);
    }

    async fn settled(&self) {
        check::settled(&self.room, &self.machines, true).await.unwrap();
        check::all_agree(&self.room, &self.origin, &self.machines).await.unwrap();
        check::nothing_broke(&self.room, &self.machines).unwrap();
        // Nobody waits for whoever looked at the origin.
        self.room.clock.sleep(LEASE_ENDS).await;
    }

    fn used(&self) -> u64 {
        self.origin.origin().unwrap().volumes().unwrap()[0].used.bytes
    }

    fn conflicts(&self) -> usize {
        self.origin.origin().unwrap().conflicts(VOLUME, 100).unwrap().len()
    }
}

#[track_caller]
fn done(outcome: Outcome) {
    assert!(!matches!(outcome, Outcome::Failed(_)), "{outcome}");
}

fn over() -> Outcome {
    Outcome::Failed(Fault::OverQuota)
}

#[test]
fn a_write_beyond_the_quota_fails_at_once_and_removing_makes_room() {
    for mode in MODES {
        play(1, mode, 10_000, async |mut scene| {
            done(scene.save(0, "a", 6_000).await);
            done(scene.create(0, "b").await);
            assert_eq!(scene.write(0, 0, 4_001).await, over());
            done(scene.write(0, 0, 4_000).await);
            assert_eq!(scene.write(0, 4_000, 1).await, over(), "{mode:?}");
            done(scene.write(0, 1_000, 3_000).await);
            done(scene.close(0).await);
            scene.settled().await;
            assert_eq!(scene.used(), 10_000);
            assert_eq!(scene.save(0, "c", 10).await, over());
            scene.unlink(0, "a").await;
            done(scene.save(0, "d", 6_000).await);
            scene.settled().await;
            assert_eq!((scene.used(), scene.conflicts()), (10_000, 0));
        });
    }
}

#[test]
fn without_a_link_no_more_is_accepted_than_is_taken_later() {
    play(1, Mode::Partial, 10_000, async |mut scene| {
        done(scene.save(0, "a", 6_000).await);
        scene.settled().await;
        scene.cut(0).await;
        done(scene.save(0, "b", 3_000).await);
        assert_eq!(scene.save(0, "c", 1_500).await, over());
        scene.unlink(0, "b").await;
        done(scene.save(0, "d", 3_500).await);
        assert_eq!(scene.save(0, "e", 501).await, over());
        // What is known of the quota, and what is pending of it, outlives a crash.
        scene.machines[0].stop(End::Killed, Duration::ZERO);
        scene.programs[0] = Programs::default();
        scene.machines[0].launch().unwrap();
        scene.room.clock.sleep(LEASE_ENDS).await;
        assert_eq!(scene.save(0, "f", 501).await, over());
        done(scene.save(0, "g", 400).await);
        scene.room.network.restore(scene.machines[0].line);
        scene.settled().await;
        assert_eq!((scene.used(), scene.conflicts()), (9_900, 0));
    });
}

/// Of 10000 bytes that there are 4000 are another file's, and 4000 are pending in `ex`, which the
/// server has empty.
async fn with_a_pending_store(scene: &mut Scene, mode: Mode) {
    done(scene.save(0, "f", 4_000).await);
    done(scene.create(0, "ex").await);
    done(scene.close(0).await);
    scene.settled().await;
    scene.set_mode(0, mode);
    scene.open(0, "ex").await;
    done(scene.write(0, 0, 4_000).await);
    done(scene.close(0).await);
}

#[test]
fn what_is_written_on_before_it_was_sent_counts_each_byte_once() {
    for mode in [Mode::FetchOnly, Mode::Disconnected] {
        play(1, Mode::Partial, 10_000, async |mut scene| {
            with_a_pending_store(&mut scene, mode).await;
            scene.open(0, "ex").await;
            done(scene.write(0, 4_000, 1_000).await);
            assert_eq!(scene.write(0, 5_000, 1_001).await, over(), "{mode:?}");
            done(scene.write(0, 5_000, 1_000).await);
            done(scene.write(0, 2_000, 4_000).await);
            assert_eq!(scene.write(0, 6_000, 1).await, over(), "{mode:?}");
            done(scene.close(0).await);
            scene.open(0, "ex").await;
            assert_eq!(scene.write(0, 6_000, 1).await, over(), "{mode:?}");
            done(scene.close(0).await);
            scene.set_mode(0, Mode::Partial);
            scene.settled().await;
            assert_eq!((scene.used(), scene.conflicts()), (10_000, 0));
        });
    }
}

#[test]
fn what_is_cut_before_it_was_sent_counts_by_what_is_left() {
    play(1, Mode::Partial, 10_000, async |mut scene| {
        with_a_pending_store(&mut scene, Mode::Disconnected).await;
        scene.open(0, "ex").await;
        done(scene.perform(0, Operation::Truncate { slot: 0, size: 3_000 }).await);
        assert_eq!(scene.write(0, 3_000, 3_001).await, over());
        done(scene.write(0, 3_000, 3_000).await);
        scene.unlink(0, "ex").await;
        done(scene.write(0, 6_000, 9_000).await);
        done(scene.close(0).await);
        assert_eq!(scene.save(0, "g", 6_001).await, over());
        done(scene.save(0, "h", 6_000).await);
        scene.set_mode(0, Mode::Partial);
        scene.settled().await;
        assert_eq!((scene.used(), scene.conflicts()), (10_000, 0));
    });
}

#[test]
fn what_is_written_while_what_made_the_file_is_taken_counts_once() {
    play(1, Mode::Partial, 10_000, async |mut scene| {
        done(scene.save(0, "f", 4_000).await);
        scene.settled().await;
        scene.set_mode(0, Mode::FetchOnly);
        done(scene.save(0, "new", 4_000).await);
        scene.open(0, "new").await;
        done(scene.write(0, 4_000, 1_000).await);
        scene.set_mode(0, Mode::Partial);
        scene.room.clock.sleep(LEASE_ENDS).await;
        assert_eq!(scene.write(0, 5_000, 1_001).await, over());
        done(scene.write(0, 5_000, 1_000).await);
        done(scene.close(0).await);
        scene.settled().await;
        assert_eq!((scene.used(), scene.conflicts()), (10_000, 0));
    });
}

#[test]
fn what_a_copy_is_made_of_counts_once_when_it_is_written_on() {
    const IMAGE: usize = 3 << 20;
    let most = 2 * IMAGE as u64 + 10_000;
    play(2, Mode::Partial, most, async |mut scene| {
        done(scene.save(0, "image", IMAGE).await);
        done(scene.create(1, "copy").await);
        done(scene.close(1).await);
        check::settled(&scene.room, &scene.machines, true).await.unwrap();
        scene.room.clock.sleep(LEASE_ENDS).await;
        let flags = OpenFlags { read: true, ..OpenFlags::default() };
        let open = Operation::Open { path: Path::new("image"), slot: 1, flags };
        let (from_offset, to_offset, length) = (0, 0, u64::MAX >> 1);
        let copy = Operation::Copy { from: 1, from_offset, to: 0, to_offset, length };
        done(scene.perform(1, open).await);
        scene.open(1, "copy").await;
        done(scene.perform(1, copy).await);
        scene.set_mode(1, Mode::FetchOnly);
        done(scene.close(1).await);
        scene.open(1, "copy").await;
        done(scene.write(1, IMAGE as u64, 4_000).await);
        assert_eq!(scene.write(1, IMAGE as u64 + 4_000, 6_001).await, over());
        done(scene.write(1, IMAGE as u64 + 4_000, 6_000).await);
        done(scene.write(1, 5_000, 6_000).await);
        done(scene.close(1).await);
        done(scene.perform(1, Operation::Close { slot: 1 }).await);
        scene.set_mode(1, Mode::Partial);
        check::settled(&scene.room, &scene.machines, true).await.unwrap();
        assert_eq!((scene.used(), scene.conflicts()), (most, 0));
    });
}

#[test]
fn what_was_being_written_when_the_client_was_killed_counts() {
    play(1, Mode::Partial, 10_000, async |mut scene| {
        with_a_pending_store(&mut scene, Mode::Disconnected).await;
        scene.open(0, "ex").await;
        done(scene.write(0, 4_000, 1_000).await);
        scene.room.network.cut(scene.machines[0].line, Duration::ZERO);
        scene.launch_after_kill(0);
        assert_eq!(scene.save(0, "g", 1_001).await, over());
        done(scene.save(0, "h", 1_000).await);
        scene.room.network.restore(scene.machines[0].line);
        scene.settled().await;
        assert_eq!((scene.used(), scene.conflicts()), (10_000, 0));
    });
}

#[test]
fn what_was_not_taken_and_is_still_open_counts_until_it_is_stored() {
    play(2, Mode::Connected, 10_000, async |mut scene| {
        done(scene.create(1, "bob").await);
        done(scene.write(1, 0, 8_000).await);
        done(scene.save(0, "ada", 8_000).await);
        assert_eq!(scene.perform(1, Operation::Flush { slot: 0 }).await, over());
        scene.unlink(0, "ada").await;
        scene.room.clock.sleep(LEASE_ENDS).await;
        assert_eq!(scene.write(1, 8_000, 2_001).await, over());
        let create = Operation::Create { path: Path::new("more"), mode: 0o644, slot: 1 };
        done(scene.perform(1, create).await);
        let write = |length| Operation::Write { slot: 1, offset: 0, length, version: 1 };
        assert_eq!(scene.perform(1, write(2_001)).await, over());
        done(scene.perform(1, write(2_000)).await);
        done(scene.perform(1, Operation::Close { slot: 1 }).await);
        done(scene.close(1).await);
        scene.settled().await;
        assert_eq!((scene.used(), scene.conflicts()), (10_000, 0));
    });
}

#[test]
fn contents_that_are_asked_for_piece_by_piece_count_too() {
    play(1, Mode::Partial, 2_000_000, async |mut scene| {
        done(scene.save(0, "a", 1_500_000).await);
        check::settled(&scene.room, &scene.machines, true).await.unwrap();
        scene.cut(0).await;
        assert_eq!(scene.save(0, "b", 500_001).await, over());
        done(scene.save(0, "c", 500_000).await);
        scene.room.network.restore(scene.machines[0].line);
        check::settled(&scene.room, &scene.machines, true).await.unwrap();
        assert_eq!((scene.used(), scene.conflicts()), (2_000_000, 0));
    });
}

#[test]
fn what_was_accepted_while_others_used_the_room_is_kept_and_listed() {
    play(2, Mode::Partial, 10_000, async |mut scene| {
        done(scene.save(0, "old", 1_000).await);
        scene.settled().await;
        scene.cut(1).await;
        done(scene.save(1, "bob", 8_000).await);
        done(scene.save(0, "ada", 8_000).await);
        check::settled(&scene.room, &scene.machines[..1], true).await.unwrap();
        scene.room.network.restore(scene.machines[1].line);
        scene.settled().await;
        assert_eq!((scene.used(), scene.conflicts()), (17_000, 1));
        let bob = Operation::Fetch { path: Path::new("bob") };
        assert_eq!(scene.perform(0, bob).await, Outcome::Bytes(stretch(1, 8_000)));
        for who in [0, 1] {
            assert_eq!(scene.save(who, &format!("more{who}"), 10).await, over());
        }
        scene.unlink(0, "bob").await;
        scene.settled().await;
        done(scene.save(1, "some", 1_000).await);
        scene.settled().await;
        assert_eq!(scene.used(), 10_000);
    });
}

#[test]
fn connected_who_finds_the_room_used_by_others_is_told_and_nothing_is_taken() {
    play(2, Mode::Connected, 10_000, async |mut scene| {
        done(scene.save(0, "old", 1_000).await);
        done(scene.create(1, "bob").await);
        done(scene.write(1, 0, 8_000).await);
        done(scene.save(0, "ada", 8_000).await);
        let flush = Operation::Flush { slot: 0 };
        assert_eq!(scene.perform(1, flush.clone()).await, over());
        scene.unlink(1, "ada").await;
        done(scene.perform(1, flush).await);
        done(scene.close(1).await);
        scene.settled().await;
        assert_eq!((scene.used(), scene.conflicts()), (9_000, 0));
    });
}

#[test]
fn files_are_counted_too_and_the_files_of_a_user() {
    for mode in MODES {
        play(1, mode, 1 << 30, async |mut scene| {
            // The root directory is one.
            scene.allow(|quota| quota.files = Some(3));
            scene.machines[0].stop(End::Killed, Duration::ZERO);
            scene.programs[0] = Programs::default();
            scene.machines[0].start().await.unwrap();
            done(scene.save(0, "a", 10).await);
            done(scene.save(0, "b", 10).await);
            assert_eq!(scene.create(0, "c").await, over(), "{mode:?}");
            scene.unlink(0, "a").await;
            done(scene.save(0, "c", 10).await);
            scene.settled().await;
            let uid = match scene.perform(0, Operation::Stat { path: Path::new("b") }).await {
                Outcome::Shown(shown) => shown.uid,
                other => panic!("{other}"),
            };
            scene.allow(|quota| quota.set_user(uid, Some(100)));
            scene.room.clock.sleep(LEASE_ENDS).await;
            let flags = OpenFlags { write: true, ..OpenFlags::default() };
            let open = Operation::Open { path: Path::new("b"), slot: 0, flags };
            done(scene.perform(0, open).await);
            done(scene.write(0, 0, 90).await);
            assert_eq!(scene.write(0, 90, 1).await, over());
            done(scene.close(0).await);
            scene.settled().await;
            assert_eq!(scene.used(), 100);
        });
    }
}

#[test]
fn what_statfs_shows_is_the_quota_and_what_is_left_of_it() {
    play(1, Mode::Partial, 10_000, async |mut scene| {
        scene.allow(|quota| quota.files = Some(5));
        done(scene.save(0, "a", 4_000).await);
        scene.settled().await;
        let client = scene.client(0);
        let totals = client::complete(&client, |client| client.totals()).await.unwrap();
        assert_eq!((totals.bytes, totals.bytes_free), (4_000, 6_000));
        assert_eq!((totals.files, totals.files_free), (2, 3));
        scene.cut(0).await;
        done(scene.save(0, "b", 1_000).await);
        let totals = client.totals().map_err(|_| "nothing is known").unwrap();
        assert_eq!((totals.bytes, totals.bytes_free), (5_000, 5_000));
        assert_eq!((totals.files, totals.files_free), (3, 2));
    });
}

#[test]
fn what_this_device_has_done_statfs_shows_at_once() {
    for mode in MODES {
        play(1, mode, 10_000, async |mut scene| {
            assert_eq!(scene.left().await, (0, 10_000));
            done(scene.save(0, "a", 4_000).await);
            assert_eq!(scene.left().await, (4_000, 6_000), "{mode:?}");
            check::settled(&scene.room, &scene.machines, true).await.unwrap();
            assert_eq!(scene.left().await, (4_000, 6_000), "{mode:?}");
            done(scene.save(0, "b", 6_000).await);
            assert_eq!(scene.save(0, "c", 1).await, over());
            assert_eq!(scene.left().await, (10_000, 0), "{mode:?}");
            scene.unlink(0, "a").await;
            assert_eq!(scene.left().await, (6_000, 4_000), "{mode:?}");
            scene.settled().await;
        });
    }
}

#[test]
fn without_ever_having_asked_statfs_shows_the_quota_that_is_known() {
    play(1, Mode::Partial, 10_000, async |mut scene| {
        scene.allow(|quota| quota.files = Some(5));
        done(scene.save(0, "a", 4_000).await);
        scene.settled().await;
        scene.room.network.cut(scene.machines[0].line, Duration::ZERO);
        scene.launch_after_kill(0);
        scene.set_mode(0, Mode::Disconnected);
        done(scene.save(0, "b", 1_000).await);
        let totals = scene.client(0).totals().map_err(|_| "nothing is known").unwrap();
        assert_eq!((totals.bytes, totals.bytes_free), (5_000, 5_000));
        assert_eq!((totals.files, totals.files_free), (3, 2));
    });
}
