//! Commits that say that they failed, and are there all the same, or are not: nobody who holds a
//! promise goes by what was before, and nobody is told of what is not there.
#![allow(
    clippy::disallowed_methods,
    reason = "the other programs of the server are played by the test"
)]

use crate::ground::{Ground, Place};
use crate::party::{Device, EPOCH_SECS, LEASE, Party, VOLUME, unlink_of};
use model::{FileId, Kind, Seq, Update};
use protocol::past::{Found, Past};
use protocol::{Attach, Cutter, Refusal, Request, Response, Session, Submitted, Tail, Verdict};
use replica::Limits;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use store::faulty::{Disk, Failure, FaultyTables};
use store::{Before, Durability, Read, Reserve, Row, StoreError, Tables, Write};
use world::World;

/// More writes than a scenario makes.
const WRITES_MAX: u64 = 200;

fn limits() -> Limits {
    Limits { lease: LEASE, ..Limits::simulated() }
}

fn party_on(disk: &Disk, tables: Arc<dyn Tables>, limits: Limits) -> Party {
    let world = World::simulated(EPOCH_SECS, 1);
    let party = Party::on(tables, Arc::new(disk.blobs("b")), world, limits);
    party.origin.create_volume(VOLUME, 1000, 1000, Cutter::Gear).unwrap();
    party
}

fn party_with(limits: Limits) -> (Disk, Party) {
    let disk = Disk::new(1);
    let party = party_on(&disk, Arc::new(disk.tables("t")), limits);
    (disk, party)
}

/// A device that has the root's entries cached.
async fn watching(party: &Party, name: &str) -> Device {
    let device = party.join(name).await;
    device.list(FileId::ROOT).await;
    device
}

fn making(device: &mut Device, text: &str) -> Update {
    let (_, make) = device.making(FileId::ROOT, text, Kind::File);
    device.update(make)
}

async fn send(device: &Device, strict: bool, update: &Update) -> Result<Submitted, Refusal> {
    device.submit_all(strict, vec![update.clone()], None).await
}

/// The commit of what is sent fails.
async fn send_in_vain(disk: &Disk, failure: Failure, device: &Device, update: &Update) {
    disk.fail_after(0, failure);
    let sent = send(device, false, update).await;
    assert!(matches!(sent, Err(Refusal::Failed(_))), "{sent:?}");
    assert!(disk.has_failed());
    // Notices go out.
    tokio::task::yield_now().await;
}

async fn heard_soon(device: &Device) -> Vec<String> {
    tokio::time::sleep(Duration::from_millis(1)).await;
    device.heard()
}

#[tokio::test(start_paused = true)]
async fn what_a_failed_commit_has_left_is_told_of_at_once_and_not_done_twice() {
    let (disk, party) = party_with(limits());
    let mut ada = watching(&party, "ada").await;
    let bob = watching(&party, "bob").await;
    let update = making(&mut ada, "a");
    send_in_vain(&disk, Failure::All, &ada, &update).await;
    assert_eq!(heard_soon(&bob).await, ["a"]);
    assert_eq!(ada.heard(), ["a"], "its writer was told that it failed");
    // It is told how it was judged, as often as it asks.
    for _ in 0..2 {
        let sent = send(&ada, false, &update).await.unwrap();
        assert_eq!(sent.verdicts, [Verdict::Taken(Seq(1))]);
    }
    assert_eq!((heard_soon(&bob).await, party.tree().as_str()), (vec!["a".into()], "a: "));
    let update = making(&mut ada, "b");
    assert_eq!(send(&ada, false, &update).await.unwrap().verdicts, [Verdict::Taken(Seq(2))]);
    assert_eq!(heard_soon(&bob).await, ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn of_a_failed_commit_that_left_nothing_nobody_is_told() {
    let (disk, party) = party_with(limits());
    let mut ada = watching(&party, "ada").await;
    let bob = watching(&party, "bob").await;
    let update = making(&mut ada, "a");
    send_in_vain(&disk, Failure::Nothing, &ada, &update).await;
    assert_eq!((heard_soon(&bob).await, party.tree().as_str()), (vec![], ""));
    assert_eq!(bob.seen(), Seq::START);
    let other = making(&mut ada, "b");
    let sent = ada.submit_all(false, vec![update, other], None).await.unwrap();
    assert_eq!(sent.verdicts, [Verdict::Taken(Seq(1)), Verdict::Taken(Seq(2))]);
    assert_eq!(heard_soon(&bob).await, ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn who_sends_it_again_is_answered_when_everybody_was_told() {
    let (disk, party) = party_with(limits());
    let mut ada = watching(&party, "ada").await;
    let bob = watching(&party, "bob").await;
    bob.ears.hang();
    let update = making(&mut ada, "a");
    send_in_vain(&disk, Failure::All, &ada, &update).await;
    let clock = &party.world.clock;
    let start = clock.moment();
    let again = async {
        let sent = send(&ada, true, &update).await.unwrap();
        (sent.verdicts, clock.moment().since(start).as_secs())
    };
    let takes_in = async {
        clock.sleep(Duration::from_secs(7)).await;
        bob.ears.take_in();
    };
    let ((verdicts, waited), ()) = tokio::join!(again, takes_in);
    assert_eq!((verdicts, waited), (vec![Verdict::Taken(Seq(1))], 7));
    assert_eq!(bob.heard().first().map(String::as_str), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn those_who_shared_a_failed_commit_are_judged_once_each() {
    for failure in [Failure::All, Failure::Nothing] {
        let (disk, party) = party_with(limits());
        let mut ada = watching(&party, "ada").await;
        let mut eve = watching(&party, "eve").await;
        let bob = watching(&party, "bob").await;
        let (one, other) = (making(&mut ada, "same"), making(&mut eve, "same"));
        disk.fail_after(0, failure);
        let both = tokio::join!(send(&ada, true, &one), send(&eve, true, &other));
        assert!(disk.has_failed());
        // Alone each of them succeeds.
        let verdicts = [both.0.unwrap().verdicts, both.1.unwrap().verdicts].concat();
        assert!(matches!(verdicts[..], [Verdict::Taken(Seq(1)), Verdict::Refused(_)]));
        assert_eq!((party.tree().as_str(), bob.seen()), ("same: ", Seq(1)), "{failure:?}");
        assert_eq!(heard_soon(&bob).await.first().map(String::as_str), Some("same"));
        assert_eq!(send(&eve, true, &other).await.unwrap().verdicts, verdicts[1..]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_too_much_to_be_told_comes_with_the_next_tail() {
    let (disk, party) = party_with(Limits { tail_keys_max: 1, ..limits() });
    let mut ada = watching(&party, "ada").await;
    let bob = watching(&party, "bob").await;
    let update = making(&mut ada, "a");
    send_in_vain(&disk, Failure::All, &ada, &update).await;
    let update = making(&mut ada, "b");
    send(&ada, false, &update).await.unwrap();
    assert_eq!(heard_soon(&bob).await, Vec::<String>::new(), "he is behind");
    assert_eq!(bob.renew(bob.seen()).await, Tail::TooFar(Seq(2)));
    bob.list(FileId::ROOT).await;
    let update = making(&mut ada, "c");
    send(&ada, true, &update).await.unwrap();
    assert_eq!(bob.heard(), ["c"]);
}

#[tokio::test(start_paused = true)]
async fn who_has_fallen_behind_and_renews_holds_a_writer_up_no_longer() {
    let (disk, party) = party_with(Limits { tail_keys_max: 8, ..limits() });
    let mut ada = watching(&party, "ada").await;
    let above = ada.make_directory(FileId::ROOT, "above").await;
    let elsewhere = ada.make_directory(above, "elsewhere").await;
    let bob = watching(&party, "bob").await;
    let much = (0..8).map(|number| {
        let (_, make) = ada.making(elsewhere, &format!("{number}"), Kind::File);
        ada.update(make)
    });
    let much: Vec<Update> = much.collect();
    disk.fail_after(0, Failure::All);
    ada.submit_all(false, much, None).await.unwrap_err();
    let clock = &party.world.clock;
    let start = clock.moment();
    let (_, make) = ada.making(FileId::ROOT, "a", Kind::File);
    let writes = async {
        assert!(matches!(ada.strict(make).await, Verdict::Taken(_)));
        clock.moment().since(start).as_secs()
    };
    let renews = async {
        clock.sleep(Duration::from_secs(5)).await;
        assert!(bob.heard().is_empty(), "he is behind");
        assert!(matches!(bob.renew(bob.seen()).await, Tail::Changes(_)));
    };
    assert_eq!(tokio::join!(writes, renews).0, 5);
    // It may have arrived before the tail, and tells of what that does.
    assert_eq!(bob.heard(), ["a"]);
}

/// Tables that cannot be read from the moment that a write has failed until they are unveiled.
struct Veiled {
    tables: FaultyTables,
    disk: Disk,
    is_veiled: AtomicBool,
}

impl Tables for Veiled {
    fn read(&self) -> store::Result<Box<dyn Read + '_>> {
        if self.is_veiled.load(Ordering::SeqCst) && self.disk.has_failed() {
            let (place, what) = ("the tables".into(), "an earlier write failed".into());
            return Err(StoreError::Database { place, what });
        }
        self.tables.read()
    }

    fn write(&self) -> store::Result<Box<dyn Write + '_>> {
        self.tables.write()
    }

    fn room(&self) -> store::Result<u64> {
        self.tables.room()
    }

    fn before(&self) -> Before {
        self.tables.before()
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_seen_at_once_is_told_of_when_it_can() {
    for goes_on_writing in [false, true] {
        let disk = Disk::new(1);
        let (tables, is_veiled) = (disk.tables("t"), AtomicBool::new(false));
        let veiled = Arc::new(Veiled { tables, disk: disk.clone(), is_veiled });
        let party = party_on(&disk, veiled.clone(), limits());
        let mut ada = watching(&party, "ada").await;
        let mut eve = watching(&party, "eve").await;
        let bob = watching(&party, "bob").await;
        let update = making(&mut ada, "a");
        veiled.is_veiled.store(true, Ordering::SeqCst);
        send_in_vain(&disk, Failure::All, &ada, &update).await;
        assert_eq!(heard_soon(&bob).await, Vec::<String>::new());
        veiled.is_veiled.store(false, Ordering::SeqCst);
        if goes_on_writing {
            let update = making(&mut eve, "b");
            send(&eve, true, &update).await.unwrap();
            assert_eq!(bob.heard(), ["a", "b"]);
        } else {
            let keeps_up = party.origin.keep_up();
            assert!(party.world.clock.within(LEASE / 4, keeps_up).await.is_none());
            assert_eq!(bob.heard(), ["a"]);
        }
        let sent = send(&ada, true, &update).await.unwrap();
        assert_eq!(sent.verdicts, [Verdict::Taken(Seq(1))]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_whose_commit_failed_and_is_there_is_told_of() {
    let (disk, party) = party_with(limits());
    let ada = party.join("ada").await;
    let bob = party.join("bob").await;
    bob.list(FileId::SNAPSHOTS).await;
    disk.fail_after(0, Failure::All);
    let past = Past::Snapshot { name: "one".into(), uid: 7, token: 1 };
    let made = ada.ask(Request::Past(past)).await;
    assert!(matches!(made, Response::Refused(_)) && disk.has_failed(), "{made:?}");
    assert_eq!(heard_soon(&bob).await, ["one"]);
}

#[tokio::test(start_paused = true)]
async fn what_programs_changed_is_told_of_if_it_is_there() {
    let mut told = 0;
    for writes in 0..WRITES_MAX {
        let mut ground = Ground::new(limits(), Place::Apart).await;
        while !ground.keeper.is_settled() {
            ground.keeper.round().unwrap();
        }
        let bob = watching(&ground.party, "bob").await;
        fs::write(ground.path("a"), "text").unwrap();
        ground.disk.fail_after(writes, Failure::All);
        while !ground.disk.has_failed() && !ground.party.tree().contains("a: text") {
            // One that fails is looked at below.
            let _ = ground.keeper.round();
            tokio::time::advance(Duration::from_millis(50)).await;
        }
        if !ground.disk.has_failed() {
            assert!(told > 0);
            return;
        }
        let is_there = !ground.party.tree().is_empty();
        assert_eq!(heard_soon(&bob).await.contains(&"a".to_owned()), is_there, "{writes}");
        told += usize::from(is_there);
    }
    panic!("the scenario makes more than {WRITES_MAX} writes");
}

#[tokio::test(start_paused = true)]
async fn what_comes_after_a_failed_commit_is_judged_by_what_it_has_left() {
    let (disk, party) = party_with(limits());
    let mut ada = watching(&party, "ada").await;
    let mut bob = watching(&party, "bob").await;
    let (file, _) = ada.write_new(FileId::ROOT, "a", "text").await;
    let change = unlink_of(FileId::ROOT, "a", file);
    let update = ada.update(change);
    send_in_vain(&disk, Failure::All, &ada, &update).await;
    assert_eq!(heard_soon(&bob).await, ["a", "-a"]);
    let (_, make) = bob.making(FileId::ROOT, "a", Kind::File);
    assert!(matches!(bob.strict(make).await, Verdict::Taken(Seq(4))));
    // What ada sends again was before that.
    assert_eq!(send(&ada, true, &update).await.unwrap().verdicts, [Verdict::Taken(Seq(3))]);
    assert_eq!(party.tree(), "a: ");
}

/// Every commit fails from now on, and leaves all that it should, until it is over.
struct Doubtful {
    tables: FaultyTables,
    is_now: AtomicBool,
    /// There is no room but what is kept aside.
    is_full: AtomicBool,
    is_lent: AtomicBool,
    commits: AtomicU64,
}

impl Reserve for Doubtful {
    fn is_kept(&self) -> bool {
        true
    }

    fn lend(&self) {
        self.is_lent.store(true, Ordering::SeqCst);
    }

    fn take_back(&self) {
        self.is_lent.store(false, Ordering::SeqCst);
    }
}

struct DoubtfulWrite<'a> {
    write: Box<dyn Write + 'a>,
    tables: &'a Doubtful,
}

impl Tables for Doubtful {
    fn read(&self) -> store::Result<Box<dyn Read + '_>> {
        self.tables.read()
    }

    fn write(&self) -> store::Result<Box<dyn Write + '_>> {
        Ok(Box::new(DoubtfulWrite { write: self.tables.write()?, tables: self }))
    }

    fn room(&self) -> store::Result<u64> {
        let is_full = self.is_full.load(Ordering::SeqCst);
        if is_full { Ok(0) } else { self.tables.room() }
    }

    fn before(&self) -> Before {
        self.tables.before()
    }
}

impl Read for DoubtfulWrite<'_> {
    fn get(&self, table: &'static str, key: &[u8]) -> store::Result<Option<Vec<u8>>> {
        self.write.get(table, key)
    }

    fn scan(
        &self,
        table: &'static str,
        from: &[u8],
        to: &[u8],
        rows_max: usize,
    ) -> store::Result<Vec<Row>> {
        self.write.scan(table, from, to, rows_max)
    }

    fn last(&self, table: &'static str, from: &[u8], to: &[u8]) -> store::Result<Option<Row>> {
        self.write.last(table, from, to)
    }
}

impl Write for DoubtfulWrite<'_> {
    fn put(&mut self, table: &'static str, key: &[u8], value: &[u8]) -> store::Result<()> {
        self.write.put(table, key, value)
    }

    fn delete(&mut self, table: &'static str, key: &[u8]) -> store::Result<()> {
        self.write.delete(table, key)
    }

    fn commit(self: Box<Self>, durability: Durability) -> store::Result<()> {
        let Doubtful { is_full, is_lent, .. } = self.tables;
        if is_full.load(Ordering::SeqCst) && !is_lent.load(Ordering::SeqCst) {
            return Err(StoreError::Full("the tables".into()));
        }
        self.write.commit(durability)?;
        if self.tables.is_now.load(Ordering::SeqCst) {
            let (place, what) = ("the tables".into(), "the sync failed".into());
            return Err(StoreError::Database { place, what });
        }
        self.tables.commits.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

fn doubtful_party() -> (Disk, Arc<Doubtful>, Party) {
    let disk = Disk::new(1);
    let doubtful = Arc::new(Doubtful {
        tables: disk.tables("t"),
        is_now: AtomicBool::new(false),
        is_full: AtomicBool::new(false),
        is_lent: AtomicBool::new(false),
        commits: AtomicU64::new(0),
    });
    let party = party_on(&disk, doubtful.clone(), limits());
    (disk, doubtful, party)
}

impl Doubtful {
    fn commits(&self) -> u64 {
        self.commits.load(Ordering::SeqCst)
    }

    /// The commit of what is sent fails, and so does the one that should settle it.
    async fn send_in_vain(&self, device: &Device, update: &Update) {
        self.is_now.store(true, Ordering::SeqCst);
        let sent = send(device, false, update).await;
        assert!(matches!(sent, Err(Refusal::Failed(_))), "{sent:?}");
        self.is_now.store(false, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_is_no_verdict_on_what_a_failed_commit_has_left() {
    let (disk, doubtful, party) = doubtful_party();
    let mut ada = watching(&party, "ada").await;
    let update = making(&mut ada, "a");
    doubtful.send_in_vain(&ada, &update).await;
    disk.fill_after(0);
    // It is not known to be on the disk, and it is not true that it was not taken.
    doubtful.send_in_vain(&ada, &update).await;
    // A commit that brings nothing needs no room.
    assert_eq!(send(&ada, true, &update).await.unwrap().verdicts, [Verdict::Taken(Seq(1))]);
    let update = making(&mut ada, "b");
    assert_eq!(send(&ada, true, &update).await.unwrap_err(), Refusal::NoSpace);
}

#[tokio::test(start_paused = true)]
async fn who_attaches_is_told_that_it_is_taken_when_it_is_on_the_disk() {
    let (_disk, doubtful, party) = doubtful_party();
    let mut ada = watching(&party, "ada").await;
    // What is written of a client that comes back stays as it is.
    let ada_back = party.rejoin(&ada).await;
    ada.session = ada_back.session;
    let update = making(&mut ada, "a");
    doubtful.send_in_vain(&ada, &update).await;
    doubtful.is_now.store(true, Ordering::SeqCst);
    let (session, _) = party.admit("ada", None).await.unwrap();
    let (replica, made, seen) = (Some(ada.replica), ada.made, ada.seen());
    let attach =
        Request::Attach(Attach { replica, made, seen, locks: None, life: None, heard: None });
    let refused = session.answer(attach.clone()).await;
    assert!(matches!(refused, Response::Refused(_)), "{refused:?}");
    doubtful.is_now.store(false, Ordering::SeqCst);
    let before = doubtful.commits();
    let attached = session.answer(attach).await;
    let Response::Attached(attached) = attached else { panic!("{attached:?}") };
    assert_eq!(attached.taken, 1);
    assert!(doubtful.commits() > before);
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_is_asked_for_again_is_on_the_disk_and_told_of() {
    let (_disk, doubtful, party) = doubtful_party();
    let ada = party.join("ada").await;
    let bob = party.join("bob").await;
    bob.list(FileId::SNAPSHOTS).await;
    bob.ears.hang();
    let past = || Request::Past(Past::Snapshot { name: "one".into(), uid: 7, token: 1 });
    doubtful.is_now.store(true, Ordering::SeqCst);
    for _ in 0..2 {
        let made = ada.ask(past()).await;
        assert!(matches!(made, Response::Refused(_)), "{made:?}");
    }
    doubtful.is_now.store(false, Ordering::SeqCst);
    let (before, clock) = (doubtful.commits(), &party.world.clock);
    let start = clock.moment();
    let again = async {
        let made = ada.ask(past()).await;
        assert!(matches!(made, Response::Past(Found::Snapshot(_))), "{made:?}");
        clock.moment().since(start).as_secs()
    };
    let takes_in = async {
        clock.sleep(Duration::from_secs(7)).await;
        bob.ears.take_in();
    };
    assert_eq!(tokio::join!(again, takes_in).0, 7);
    assert!(doubtful.commits() > before);
}

#[tokio::test(start_paused = true)]
async fn nobody_is_told_of_what_a_loss_of_power_would_take_back_if_the_disk_can_have_it() {
    let (disk, doubtful, party) = doubtful_party();
    let mut ada = watching(&party, "ada").await;
    let bob = watching(&party, "bob").await;
    let update = making(&mut ada, "a");
    let before = doubtful.commits();
    send_in_vain(&disk, Failure::All, &ada, &update).await;
    assert_eq!((heard_soon(&bob).await, doubtful.commits()), (vec!["a".into()], before + 1));
    // Where the disk cannot have it, they would be shown it all the same.
    let update = making(&mut ada, "b");
    doubtful.send_in_vain(&ada, &update).await;
    assert_eq!((heard_soon(&bob).await.len(), doubtful.commits()), (2, before + 1));
}

#[tokio::test(start_paused = true)]
async fn what_has_filled_the_disk_can_be_removed_after_a_failed_commit() {
    let (_disk, doubtful, party) = doubtful_party();
    party.origin.use_reserve(doubtful.clone());
    let mut ada = watching(&party, "ada").await;
    let (file, make) = ada.making(FileId::ROOT, "a", Kind::File);
    let update = ada.update(make);
    doubtful.send_in_vain(&ada, &update).await;
    doubtful.is_full.store(true, Ordering::SeqCst);
    assert_eq!(send(&ada, true, &update).await.unwrap().verdicts, [Verdict::Taken(Seq(1))]);
    let other = making(&mut ada, "b");
    assert_eq!(send(&ada, true, &other).await.unwrap_err(), Refusal::NoSpace);
    // What came in vain is taken back, and goes after what makes room.
    let unlink = unlink_of(FileId::ROOT, "a", file);
    assert!(matches!(ada.strict(unlink).await, Verdict::Taken(Seq(2))));
}
