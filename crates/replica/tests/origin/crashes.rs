//! The machine crashes at every write of a scenario in turn, and is full.

use crate::party::{
    Device, EPOCH_SECS, Ears, Party, make_of, name, rename_over, store_of, unlink_of,
};
use model::{Change, FileId, Kind, ReplicaId, Seq, Stamp, Update};
use protocol::{
    Access, Attach, Refusal, Request, Response, Service, Session, Submit, Submitted, Verdict,
};
use replica::{Limits, Origin, OriginSession, Repair, Wish};
use std::sync::Arc;
use store::Blobs;
use store::faulty::Disk;
use world::World;

const ROOT: FileId = FileId::ROOT;
/// Times that a step is sent; a crash costs one or two.
const TRIES_MAX: usize = 6;

fn party_on(disk: &Disk, world: &World) -> Party {
    let (tables, blobs) = (Arc::new(disk.tables("t")), Arc::new(disk.blobs("b")));
    Party::on(tables, blobs, world.clone(), Limits::simulated())
}

/// What a device does, with the text of the chunk that its update needs.
struct Deed {
    by: usize,
    update: Update,
    text: Option<&'static str>,
}

/// Two devices: ada, who is the first to be given an id, and bob.
const DEVICES: [&str; 2] = ["ada", "bob"];

fn file(by: usize, counter: u64) -> FileId {
    FileId::new(ReplicaId(by as u32 + 1), counter).unwrap()
}

fn stamp(by: usize, number: u64) -> Stamp {
    Stamp::new(ReplicaId(by as u32 + 1), number)
}

/// Files, directories, conflicts of contents, names and removal, and a second conflict behind one.
fn deeds(device: &Device) -> Vec<Deed> {
    let stored = |file, expects, text: &'static str| {
        let contents = device.describe(text.as_bytes()).tree.contents;
        (store_of(file, expects, contents), Some(text))
    };
    let plain = |change: Change| (change, None);
    let (a, b) = (file(0, 1), file(1, 1));
    let docs = file(0, 2);
    let by_device: Vec<(usize, (Change, Option<&'static str>))> = vec![
        (0, plain(make_of(ROOT, "a", a, Kind::File))),
        (0, stored(a, stamp(0, 1), "base")),
        (0, plain(make_of(ROOT, "docs", docs, Kind::Directory))),
        (1, plain(make_of(ROOT, "docs", file(1, 2), Kind::Directory))),
        (1, plain(make_of(file(1, 2), "b", b, Kind::File))),
        (1, stored(b, stamp(1, 2), "bob's b")),
        (0, stored(a, stamp(0, 2), "ada's")),
        (1, stored(a, stamp(0, 2), "bob's")),
        (1, stored(a, stamp(1, 4), "bob's again")),
        (0, plain(rename_over((ROOT, "a"), (docs, "b"), a, None))),
        (0, plain(unlink_of(docs, "b", b))),
        (1, stored(b, stamp(1, 3), "back")),
        (1, plain(Change::Link { parent: ROOT, name: name("link"), file: b })),
    ];
    let mut made = [0; 2];
    let at = model::Time { secs: EPOCH_SECS, nanos: 0 };
    by_device
        .into_iter()
        .map(|(by, (change, text))| {
            made[by] += 1;
            let update = Update { stamp: stamp(by, made[by]), uid: 1, at, change };
            Deed { by, update, text }
        })
        .collect()
}

/// The origin and the sessions of its devices, until the machine crashes.
struct Stage {
    disk: Disk,
    world: World,
    party: Party,
    sessions: [Option<OriginSession>; 2],
    power_cut: bool,
    crashes: usize,
}

impl Stage {
    /// The machine starts again with what it has left.
    fn restart(&mut self) {
        assert!(self.disk.has_crashed(), "nothing else makes a request fail here");
        if self.power_cut {
            self.disk.cut_power();
        }
        self.disk = self.disk.restart();
        self.party = party_on(&self.disk, &self.world);
        self.sessions = [None, None];
        self.crashes += 1;
    }

    /// The device's session, attached as often as it takes.
    async fn session(&mut self, by: usize, made: u64) -> Option<&OriginSession> {
        if self.sessions[by].is_none() {
            let caller = self.party.caller(DEVICES[by], None);
            let session = self.party.origin.admit(caller, Ears::default()).await.ok()?;
            let replica = Some(ReplicaId(by as u32 + 1));
            // They know of everything when they make an update.
            let seen = self.party.origin.volumes().ok()?[0].position;
            let attach = Attach { replica, made, seen, locks: None, life: None, heard: None };
            let Response::Attached(attached) = session.answer(Request::Attach(attach)).await else {
                return None;
            };
            assert_eq!(Some(attached.replica), replica, "nobody was set back");
            self.sessions[by] = Some(session);
        }
        self.sessions[by].as_ref()
    }

    /// One try. None: the machine has crashed.
    async fn attempt(&mut self, deed: &Deed) -> Option<Submitted> {
        let session = self.session(deed.by, deed.update.stamp.number).await?;
        if let Some(text) = deed.text {
            let payload = chunks::pack(&[text.as_bytes()]);
            let put = session.answer(Request::Put { payload, deltas: None }).await;
            if !matches!(put, Response::Stored { .. }) {
                return None;
            }
        }
        let updates = vec![deed.update.clone()];
        let submit = Submit {
            settled: 0,
            strict: false,
            updates,
            payload: None,
            deltas: None,
            seek: None,
            ahead: None,
            under: None,
        };
        match session.answer(Request::Submit(submit)).await {
            Response::Submitted(submitted) => Some(submitted),
            Response::Refused(Refusal::Failed(_)) => None,
            response => panic!("{response:?}"),
        }
    }

    async fn done(&mut self, deed: &Deed) -> Verdict {
        for _ in 0..TRIES_MAX {
            match self.attempt(deed).await {
                Some(submitted) if submitted.verdicts.is_empty() => {}
                Some(submitted) => return submitted.verdicts[0].clone(),
                None => self.restart(),
            }
        }
        panic!("{:?} is not taken", deed.update)
    }
}

/// What came of a run: verdicts, the tree and the conflicts. And how often the machine crashed.
type Outcome = (Vec<Verdict>, String, Vec<String>);

async fn run(crash_after: Option<u64>, power_cut: bool) -> (Outcome, usize, u64) {
    let disk = Disk::new(crash_after.unwrap_or(0));
    let world = World::simulated(EPOCH_SECS, 1);
    let party = party_on(&disk, &world);
    party.origin.create_volume("v", 0, 0, protocol::Cutter::Gear).unwrap();
    let ada = party.join("ada").await;
    let bob = party.join("bob").await;
    let deeds = deeds(&ada);
    drop((ada, bob));
    let before = disk.writes();
    if let Some(writes) = crash_after {
        disk.crash_after(writes);
    }
    let mut stage = Stage { disk, world, party, sessions: [None, None], power_cut, crashes: 0 };
    let mut verdicts = Vec::new();
    for deed in &deeds {
        verdicts.push(stage.done(deed).await);
    }
    let written = stage.disk.writes().saturating_sub(before);
    ((verdicts, stage.party.tree(), stage.party.conflicts()), stage.crashes, written)
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_write_changes_nothing_of_what_comes_out() {
    let (calm, crashes, writes) = run(None, false).await;
    assert_eq!(crashes, 0);
    assert!(calm.0.iter().all(|verdict| !matches!(verdict, Verdict::Refused(_))), "{calm:?}");
    assert_eq!(calm.2.len(), 4, "{calm:?}");
    assert!(writes > 20, "{writes}");
    for write in 0..writes {
        for power_cut in [false, true] {
            let (outcome, crashes, _) = run(Some(write), power_cut).await;
            assert_eq!(crashes, 1, "crash after {write} writes");
            assert_eq!(outcome, calm, "crash after {write} writes, power cut: {power_cut}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_refuses_and_loses_nothing() {
    let disk = Disk::new(1);
    let party = party_on(&disk, &World::simulated(EPOCH_SECS, 1));
    party.origin.create_volume("v", 0, 0, protocol::Cutter::Gear).unwrap();
    let mut ada = party.join("ada").await;
    let (file, _) = ada.write_new(ROOT, "a", "old").await;
    let store = ada.storing(file, ada.stamp(), "new").await;
    let store = ada.update(store);
    disk.fill_after(0);
    let refused = ada.submit_all(true, vec![store.clone()], None).await.unwrap_err();
    assert_eq!(refused, Refusal::NoSpace);
    let payload = chunks::pack(&[b"more"]);
    assert_eq!(
        ada.ask(Request::Put { payload, deltas: None }).await,
        Response::Refused(Refusal::NoSpace)
    );
    assert_eq!(party.tree(), "a: old");
    disk.make_room();
    ada.submit_all(true, vec![store], None).await.unwrap();
    assert_eq!(party.tree(), "a: new");
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_lets_devices_in_and_has_files_removed_with_what_is_kept_aside() {
    let disk = Disk::new(1);
    let party = party_on(&disk, &World::simulated(EPOCH_SECS, 1));
    party.origin.use_reserve(Arc::new(disk.reserve()));
    party.origin.create_volume("v", 0, 0, protocol::Cutter::Gear).unwrap();
    let mut ada = party.join("ada").await;
    let (file, _) = ada.write_new(ROOT, "a", "old").await;
    let invitation = party.origin.invite("v", Access::ReadWrite, None).unwrap();
    let store = ada.storing(file, ada.stamp(), "new").await;
    let store = ada.update(store);
    disk.fill_after(0);
    let refused = ada.submit_all(true, vec![store], None).await.unwrap_err();
    assert_eq!(refused, Refusal::NoSpace, "this needs room");
    // One that was never here, which writes more than one that is known.
    let (session, ears) = party.admit("bob", Some(invitation)).await.unwrap();
    let mut bob = Device::attached("bob", session, ears, None, 0, Seq::START).await;
    let unlink = bob.update(unlink_of(ROOT, "a", file));
    let verdicts = bob.submit_all(true, vec![unlink], None).await.unwrap().verdicts;
    assert!(matches!(verdicts[..], [Verdict::Taken(_)]), "{verdicts:?}");
    assert_eq!(party.tree(), "");
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_removal_of_a_volume_goes_on_when_the_origin_is_opened() {
    for writes in 1..8 {
        let disk = Disk::new(1);
        let world = World::simulated(EPOCH_SECS, 1);
        let party = party_on(&disk, &world);
        party.origin.create_volume("v", 0, 0, protocol::Cutter::Gear).unwrap();
        let mut ada = party.join("ada").await;
        ada.write_new(ROOT, "a", "text").await;
        ada.write_new(ROOT, "b", "another").await;
        // The first write says that the volume is to go.
        disk.crash_after(writes);
        let removed = party.origin.remove_volume("v");
        assert!(removed.is_err(), "it takes more than {writes} writes");
        let disk = disk.restart();
        let after = party_on(&disk, &world);
        assert!(after.origin.volumes().unwrap().is_empty());
        assert_eq!(after.blobs.bytes(), 0, "crash after {writes} writes");
        let read = after.tables.read().unwrap();
        for table in ["whole-nodes", "whole-contents", "whole-log", "origin-removed"] {
            assert!(read.scan(table, &[], &[0xff; 9], 1).unwrap().is_empty(), "{table}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_volume_goes_on_a_full_disk_as_far_as_there_is_room_and_the_server_starts() {
    let (mut refused, mut left) = (0, 0);
    for bytes in 0..100 {
        let disk = Disk::new(1);
        let world = World::simulated(EPOCH_SECS, 1);
        let party = party_on(&disk, &world);
        party.origin.create_volume("v", 0, 0, protocol::Cutter::Gear).unwrap();
        let mut ada = party.join("ada").await;
        for (name, text) in [("a", "text"), ("b", "another"), ("c", "more")] {
            ada.write_new(ROOT, name, text).await;
        }
        disk.fill_after(bytes);
        if let Err(error) = party.origin.remove_volume("v") {
            assert!(error.is_full(), "{bytes}: {error}");
            assert_eq!(party.origin.volumes().unwrap().len(), 1, "{bytes}");
            refused += 1;
            continue;
        }
        left += u64::from(party.blobs.bytes() > 0);
        let disk = disk.restart();
        disk.fill_after(0);
        let after = party_on(&disk, &world);
        assert!(after.origin.volumes().unwrap().is_empty(), "{bytes}");
        disk.make_room();
        after.origin.collect(Wish::default()).await.unwrap();
        assert_eq!(after.blobs.bytes(), 0, "{bytes}");
        let read = after.tables.read().unwrap();
        for table in ["whole-nodes", "whole-contents", "whole-log", "origin-removed"] {
            assert!(read.scan(table, &[], &[0xff; 9], 1).unwrap().is_empty(), "{bytes}: {table}");
        }
    }
    assert!(refused > 0 && left > 0, "{refused} refused, {left} left");
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_is_to_go_stays_where_nothing_can_be_written_and_is_no_damage() {
    for writes in 1..8 {
        let disk = Disk::new(1);
        let world = World::simulated(EPOCH_SECS, 1);
        let party = party_on(&disk, &world);
        party.origin.create_volume("v", 0, 0, protocol::Cutter::Gear).unwrap();
        let mut ada = party.join("ada").await;
        ada.write_new(ROOT, "a", "text").await;
        ada.write_new(ROOT, "b", "another").await;
        disk.crash_after(writes);
        assert!(party.origin.remove_volume("v").is_err(), "it takes more than {writes} writes");
        let disk = disk.restart();
        let blobs = Arc::new(disk.blobs("b"));
        let there = blobs.bytes();
        let tables = Arc::new(disk.tables("t"));
        let looked = Origin::look(tables, blobs.clone(), world, Limits::simulated()).unwrap();
        let checked = looked.check(Repair::No).await.unwrap();
        assert_eq!((checked.volumes, checked.problems), (0, vec![]), "{writes} writes");
        assert_eq!(blobs.bytes(), there);
    }
}
