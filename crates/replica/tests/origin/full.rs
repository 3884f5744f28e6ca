//! The origin's disk is full for hours: what needs no write goes on.

use crate::party::{Device, EPOCH_SECS, LEASE, Party, name, rename_of, unlink_of};
use model::{Change, Contents, FileId, Kind, Time, Update};
use protocol::{Range, Refusal, Request, Response, Submit, Tail, Verdict};
use replica::Limits;
use std::sync::Arc;
use std::time::Duration;
use store::faulty::Disk;
use world::World;

const ROOT: FileId = FileId::ROOT;
const HOUR: Duration = Duration::from_secs(60 * 60);

struct Stage {
    disk: Disk,
    world: World,
    party: Party,
}

impl Stage {
    fn new() -> Stage {
        let (disk, world) = (Disk::new(1), World::simulated(EPOCH_SECS, 1));
        let stage = Stage { party: party_on(&disk, &world), disk, world };
        stage.party.origin.create_volume("v", 0, 0, protocol::Cutter::Gear).unwrap();
        stage
    }

    /// The origin dies, and another life of it finds room on the disk.
    fn restarted(self) -> Stage {
        let disk = self.disk.restart();
        Stage { party: party_on(&disk, &self.world), disk, world: self.world }
    }

    async fn pass(&self, time: Duration) {
        self.world.clock.sleep(time).await;
    }

    /// How long a change of somebody who waits for the others takes.
    async fn strict(&self, by: &mut Device, text: &str) -> Duration {
        let start = self.world.clock.moment();
        let (_, make) = by.making(ROOT, text, Kind::File);
        assert!(matches!(by.strict(make).await, Verdict::Taken(_)));
        self.world.clock.moment().since(start)
    }
}

fn party_on(disk: &Disk, world: &World) -> Party {
    let (tables, blobs) = (Arc::new(disk.tables("t")), Arc::new(disk.blobs("b")));
    Party::on(tables, blobs, world.clone(), Limits { lease: LEASE, ..Limits::simulated() })
}

#[tokio::test(start_paused = true)]
async fn on_a_full_disk_leases_and_reading_go_on_and_changes_when_there_is_room() {
    let mut stage = Stage::new();
    let mut ada = stage.party.join("ada").await;
    let mut bob = stage.party.join("bob").await;
    let (file, _) = ada.write_new(ROOT, "a", "text").await;
    bob.list(ROOT).await;
    stage.disk.fill_after(0);
    for _ in 0..24 * 60 {
        stage.pass(LEASE / 2).await;
        for device in [&ada, &bob] {
            let tail = device.renew(device.seen()).await;
            assert!(matches!(tail, Tail::Changes(_)), "{tail:?}");
        }
    }
    assert_eq!(bob.list(ROOT).await.nodes.len(), 2);
    let fetched = bob.recipe(file, Range { offset: 0, length: 4 }, 4096).await;
    assert_eq!(chunks::unpack(&fetched.bytes.unwrap(), 4096).unwrap().concat(), b"text");
    // A session that is lost is followed by another.
    bob = stage.party.rejoin(&bob).await;
    bob.renew(bob.seen()).await;
    bob.list(ROOT).await;
    let (_, make) = ada.making(ROOT, "b", Kind::File);
    let update = ada.update(make);
    let refused = ada.submit_all(true, vec![update.clone()], None).await.unwrap_err();
    assert_eq!(refused, Refusal::NoSpace);
    stage.disk.make_room();
    let taken = ada.submit_all(true, vec![update], None).await.unwrap();
    assert!(matches!(taken.verdicts[..], [Verdict::Taken(_)]));
    assert_eq!(bob.heard(), ["b"]);

    // A strict writer waits for a lease that was prolonged all that time.
    bob.ears.hang();
    let waited = stage.strict(&mut ada, "c").await;
    assert!(waited > LEASE / 4 && waited <= LEASE, "{waited:?}");
    stage = stage.restarted();
    let mut ada = stage.party.rejoin(&ada).await;
    assert_eq!(stage.strict(&mut ada, "d").await, LEASE);
}

#[tokio::test(start_paused = true)]
async fn who_may_hold_a_lease_that_could_not_be_written_is_waited_for_after_a_restart() {
    let stage = Stage::new();
    let ada = stage.party.join("ada").await;
    let bob = stage.party.join("bob").await;
    bob.list(ROOT).await;
    stage.disk.fill_after(0);
    // Longer than what was written down reaches.
    for _ in 0..10 {
        stage.pass(10 * HOUR / 3).await;
        bob.renew(bob.seen()).await;
    }
    let stage = stage.restarted();
    let mut ada = stage.party.rejoin(&ada).await;
    assert_eq!(stage.strict(&mut ada, "one").await, LEASE);
}

#[tokio::test(start_paused = true)]
async fn a_lease_goes_on_for_as_long_as_the_disk_is_full_and_is_waited_for_after_a_restart() {
    let stage = Stage::new();
    let ada = stage.party.join("ada").await;
    let bob = stage.party.join("bob").await;
    stage.disk.fill_after(0);
    stage.pass(400 * HOUR).await;
    bob.renew(bob.seen()).await;
    let stage = stage.restarted();
    let mut ada = stage.party.rejoin(&ada).await;
    assert_eq!(stage.strict(&mut ada, "one").await, LEASE);
    let entries = ada.inspect(vec![], vec![(ROOT, name("one"))]).await.entries;
    assert!(entries[0].file.is_some());
}

#[tokio::test(start_paused = true)]
async fn what_is_free_is_the_least_of_the_limit_and_of_what_the_disk_has() {
    let stage = Stage::new();
    let ada = stage.party.join("ada").await;
    let measured = async || {
        let Response::Measured(totals) = ada.ask(Request::Measure).await else { panic!() };
        totals
    };
    let limit = stage.party.limits.bytes_max;
    assert_eq!(measured().await.bytes_free, limit - measured().await.bytes);
    stage.disk.fill_after(8 << 20);
    let small = measured().await;
    assert_eq!(small.bytes_free, 8 << 20);
    assert!((1..(8 << 20) / 512).contains(&small.files_free), "{small:?}");
    stage.disk.fill_after(0);
    assert_eq!((measured().await.bytes_free, measured().await.files_free), (0, 0));
    stage.disk.make_room();
    assert_eq!(measured().await.bytes_free, limit - small.bytes);
}

/// Submits this, ahead of its turn or in it.
async fn submits(by: &Device, ahead: bool, update: &Update) -> Response {
    let (settled, updates) = (by.settled, vec![update.clone()]);
    let (payload, deltas, seek, ahead) = (None, None, None, ahead.then_some(true));
    by.ask(Request::Submit(Submit {
        settled,
        strict: true,
        updates,
        payload,
        deltas,
        seek,
        ahead,
        under: None,
    }))
    .await
}

#[tokio::test(start_paused = true)]
async fn what_was_taken_ahead_is_told_at_the_next_attach_until_its_turn_comes() {
    let stage = Stage::new();
    let mut ada = stage.party.join("ada").await;
    let updates: Vec<Update> = ["first", "second", "third"]
        .map(|name| ada.making(ROOT, name, Kind::File).1)
        .map(|make| ada.update(make))
        .into();
    let number = |at: usize| updates[at].stamp.number;
    for at in [2, 1] {
        submits(&ada, true, &updates[at]).await;
    }
    let back = stage.party.rejoin(&ada).await;
    assert_eq!(back.attached.ahead, Some(vec![number(1), number(2)]));
    assert_eq!((back.replica, back.attached.taken), (ada.replica, number(0) - 1));
    // One that was set back would give a number of these to something else.
    ada.made = number(1);
    let set_back = stage.party.rejoin(&ada).await;
    assert_ne!(set_back.replica, ada.replica);
    assert_eq!(set_back.attached.ahead, None);
    ada.made = number(2);
    let ada = stage.party.rejoin(&ada).await;
    for update in &updates {
        submits(&ada, false, update).await;
    }
    let back = stage.party.rejoin(&ada).await;
    assert_eq!((back.attached.ahead.clone(), back.attached.taken), (None, number(2)));
    assert_eq!(stage.party.tree(), "first: \nsecond: \nthird: ");
}

#[tokio::test(start_paused = true)]
async fn a_removal_ahead_of_its_turn_is_taken_once_and_passes_nothing_over() {
    let stage = Stage::new();
    stage.party.origin.use_reserve(Arc::new(stage.disk.reserve()));
    let mut ada = stage.party.join("ada").await;
    let (file, _) = ada.write_new(ROOT, "a", "text").await;
    let (_, make) = ada.making(ROOT, "b", Kind::File);
    let make = ada.update(make);
    let unlink = ada.update(unlink_of(ROOT, "a", file));
    stage.disk.fill_after(0);
    assert_eq!(submits(&ada, false, &make).await, Response::Refused(Refusal::NoSpace));
    let answer = submits(&ada, true, &make).await;
    assert_eq!(answer, Response::Refused(Refusal::NoSpace));
    let verdict = |answer: Response| match answer {
        Response::Submitted(submitted) => submitted.verdicts[0].clone(),
        answer => panic!("{answer:?}"),
    };
    let taken = verdict(submits(&ada, true, &unlink).await);
    assert!(matches!(taken, Verdict::Taken(_)), "{taken:?}");
    assert_eq!(stage.party.tree(), "");
    // Its answer was lost.
    assert_eq!(verdict(submits(&ada, true, &unlink).await), taken);
    stage.disk.make_room();
    let stage = stage.restarted();
    let ada = stage.party.rejoin(&ada).await;
    assert!(matches!(verdict(submits(&ada, false, &make).await), Verdict::Taken(_)));
    assert_eq!(verdict(submits(&ada, false, &unlink).await), taken);
    assert_eq!(stage.party.tree(), "b: ");
    let ada = stage.party.rejoin(&ada).await;
    assert_eq!(ada.attached.taken, unlink.stamp.number);
}

#[tokio::test(start_paused = true)]
async fn renames_and_cutting_to_nothing_use_what_is_kept_aside_as_removals_do() {
    let stage = Stage::new();
    stage.party.origin.use_reserve(Arc::new(stage.disk.reserve()));
    let mut ada = stage.party.join("ada").await;
    let (file, stamp) = ada.write_new(ROOT, "a", "text").await;
    let mtime = Time { secs: EPOCH_SECS, nanos: 0 };
    let cut = Change::Store { file, expects: stamp, contents: Contents::EMPTY, mtime };
    let rename = rename_of((ROOT, "a"), (ROOT, "b"), file);
    stage.disk.fill_after(0);
    for change in [cut, rename] {
        let update = ada.update(change);
        let answer = submits(&ada, false, &update).await;
        let Response::Submitted(submitted) = answer else { panic!("{answer:?}") };
        assert!(matches!(submitted.verdicts[..], [Verdict::Taken(_)]), "{submitted:?}");
    }
    assert_eq!(stage.party.tree(), "b: ");
}

#[tokio::test(start_paused = true)]
async fn what_was_taken_is_answered_again_on_a_full_disk_and_what_comes_after_it_is_not_taken() {
    let stage = Stage::new();
    stage.party.origin.use_reserve(Arc::new(stage.disk.reserve()));
    let mut ada = stage.party.join("ada").await;
    let made = ["a", "b"].map(|name| ada.making(ROOT, name, Kind::File).1);
    let [first, second] = made.map(|make| ada.update(make));
    let verdicts = |answer: Response| match answer {
        Response::Submitted(submitted) => submitted.verdicts,
        answer => panic!("{answer:?}"),
    };
    let taken = verdicts(submits(&ada, false, &first).await);
    assert!(matches!(taken[..], [Verdict::Taken(_)]), "{taken:?}");
    stage.disk.fill_after(0);
    // The answer was lost with the session.
    let ada = stage.party.rejoin(&ada).await;
    assert_eq!(verdicts(submits(&ada, false, &first).await), taken);
    let both = ada.submit_all(true, vec![first.clone(), second.clone()], None).await.unwrap();
    assert_eq!(both.verdicts, taken, "the second has no room");
    assert_eq!(submits(&ada, false, &second).await, Response::Refused(Refusal::NoSpace));
    stage.disk.make_room();
    assert_eq!(stage.party.tree(), "a: ");
    let both = ada.submit_all(true, vec![first, second], None).await.unwrap();
    assert!(matches!(both.verdicts[..], [Verdict::Taken(_), Verdict::Taken(_)]), "{both:?}");
    assert_eq!(stage.party.tree(), "a: \nb: ");
}

/// A start that finds no room is written down with the first attach, for which some is kept aside.
#[tokio::test(start_paused = true)]
async fn that_a_server_was_started_on_a_full_disk_is_known_before_anybody_is_told_anything() {
    let stage = Stage::new();
    let mut ada = stage.party.join("ada").await;
    ada.write_new(ROOT, "a", "text").await;
    let before = ada.attached.runs.clone().unwrap();
    let disk = stage.disk.restart();
    disk.fill_after(0);
    let party = party_on(&disk, &stage.world);
    party.origin.use_reserve(Arc::new(disk.reserve()));
    let back = party.rejoin(&ada).await;
    let now = back.attached.runs.clone().unwrap();
    assert_eq!(now[..before.len()], before);
    assert_eq!(now.len(), before.len() + 1);
    let again = party.rejoin(&back).await;
    assert_eq!(again.attached.runs, Some(now), "it is one run");
}
