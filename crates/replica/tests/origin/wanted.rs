//! Chunks that the store has lost are noted, asked for, and taken back from whoever has them.

use crate::party::{Device, LEASE, Party, VOLUME, all_chunks, noise, unlink_of};
use model::{ChunkName, FileId, Seq, Stamp};
use protocol::{
    Access, PAYLOAD_BYTES_MAX, Range, Refusal, Request, Response, WANTED_CHUNKS_MAX, Wanted,
    WantedOf,
};
use replica::{Limits, Repair, Wish};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use store::{Durability, Row};

const TABLE: &str = "origin-wanted";

/// Some kilobytes: chunks of data and a recipe above them.
const LARGE: usize = 400_000;

struct Lost {
    party: Party,
    ada: Device,
    file: FileId,
    version: Stamp,
    bytes: Vec<u8>,
    /// All chunks of the file, by name.
    chunks: BTreeMap<ChunkName, Vec<u8>>,
    /// Of these, the root of the recipe, and the data.
    root: ChunkName,
    data: Vec<ChunkName>,
}

impl Lost {
    async fn new(length: usize) -> Lost {
        Lost::with(Party::new(), length).await
    }

    async fn with(party: Party, length: usize) -> Lost {
        let mut ada = party.join("ada").await;
        let bytes = noise(length, 9);
        let (file, version) = ada.stored("large", &bytes).await;
        let described = ada.describe(&bytes);
        let root = described.tree.contents.root.unwrap().name;
        let recipe: BTreeSet<ChunkName> =
            described.tree.chunks.iter().map(|(name, _)| *name).collect();
        let chunks: BTreeMap<_, _> = all_chunks(&described, &bytes).into_iter().collect();
        let data = chunks.keys().filter(|name| !recipe.contains(name)).copied().collect();
        Lost { party, ada, file, version, bytes, chunks, root, data }
    }

    fn blob(&self, name: &ChunkName) -> Vec<u8> {
        let id = self.party.origin.volumes().unwrap()[0].id;
        [&id.0.to_be_bytes()[..], &name.0].concat()
    }

    /// The disk loses it, and nobody has met that yet.
    fn lose(&self, name: &ChunkName) {
        self.party.blobs.delete(&self.blob(name)).unwrap();
    }

    /// What a device that has nothing of the file gets of it.
    async fn read(&self) -> Result<(), Refusal> {
        let range = Range { offset: 0, length: self.bytes.len() as u64 };
        let (file, version) = (self.file, self.version);
        let recipe =
            Request::Recipe { file, version: Some(version), range, eager_bytes: 0, base: None };
        let read = Request::Read {
            file,
            version,
            ranges: vec![range],
            base: None,
            packed: None,
            inside: None,
        };
        match self.ada.ask(recipe).await {
            Response::Recipe(_) => {}
            Response::Refused(refusal) => return Err(refusal),
            other => panic!("{other:?}"),
        }
        match self.ada.ask(read).await {
            Response::Bytes(payload) => {
                let chunks = chunks::unpack(&payload, PAYLOAD_BYTES_MAX).unwrap();
                assert!(chunks.concat() == self.bytes);
                Ok(())
            }
            Response::Refused(refusal) => Err(refusal),
            other => panic!("{other:?}"),
        }
    }

    async fn fails(&self) {
        let Err(Refusal::Failed(why)) = self.read().await else { panic!("it was read") };
        assert!(why.contains("damaged or missing"), "{why}");
    }

    fn of(&self, chunks: &[ChunkName]) -> Vec<WantedOf> {
        let mut chunks = chunks.to_vec();
        chunks.sort_unstable();
        vec![WantedOf { file: self.file, version: self.version, chunks }]
    }

    fn rows(&self) -> Vec<Row> {
        self.party.tables.read().unwrap().scan(TABLE, &[], &[0xff; 40], 10_000).unwrap()
    }

    async fn left(&self) -> (u64, u64) {
        let checked = self.party.origin.check(Repair::No).await.unwrap();
        (checked.left, checked.wanted)
    }
}

async fn asked(device: &Device) -> Option<Wanted> {
    match device.ask(Request::Renew { seen: Seq(0) }).await {
        Response::Renewed { wanted, .. } => wanted,
        other => panic!("{other:?}"),
    }
}

async fn put(device: &Device, chunks: &[&[u8]]) -> Response {
    device.ask(Request::Put { payload: chunks::pack(chunks), deltas: None }).await
}

const STORED: Response = Response::Stored { useless: None, known: None };

#[tokio::test(start_paused = true)]
async fn what_is_met_missing_is_asked_for_and_forgotten_when_it_is_back() {
    let lost = Lost::new(LARGE).await;
    assert_eq!(asked(&lost.ada).await, None);
    let gone = [lost.data[3], lost.data[11]];
    gone.iter().for_each(|name| lost.lose(name));
    assert_eq!(asked(&lost.ada).await, None, "nobody has met it");
    lost.fails().await;
    let bob = lost.party.join("bob").await;
    let expected = Wanted { missing: 2, versions: lost.of(&gone) };
    assert_eq!(bob.attached.wanted, Some(expected.clone()));
    assert_eq!(asked(&lost.ada).await, Some(expected));
    assert_eq!(lost.rows().len(), 2);
    // Asked for once in a session, and still said to be missing.
    assert_eq!(asked(&bob).await, Some(Wanted { missing: 2, versions: vec![] }));
    assert_eq!(put(&bob, &[&lost.chunks[&gone[0]]]).await, STORED);
    assert_eq!(asked(&bob).await, Some(Wanted { missing: 1, versions: vec![] }));
    lost.fails().await;
    assert_eq!(put(&bob, &[&lost.chunks[&gone[1]]]).await, STORED);
    assert_eq!(lost.read().await, Ok(()));
    assert_eq!(asked(&bob).await, None);
    assert_eq!((lost.rows().len(), lost.left().await), (0, (0, 0)));
}

#[tokio::test(start_paused = true)]
async fn bytes_that_do_not_bear_their_name_are_dropped_and_asked_for() {
    for which in ["data", "recipe"] {
        let lost = Lost::new(LARGE).await;
        let name = if which == "data" { lost.data[0] } else { lost.root };
        lost.lose(&name);
        lost.party.blobs.put(&lost.blob(&name), b"other bytes").unwrap();
        lost.fails().await;
        let wanted = asked(&lost.ada).await.unwrap();
        assert_eq!(wanted.versions, lost.of(&[name]), "{which}");
        assert_eq!(put(&lost.ada, &[&lost.chunks[&name]]).await, STORED);
        assert_eq!(lost.read().await, Ok(()));
    }
}

/// What hangs below a recipe chunk is known only when that is back.
#[tokio::test(start_paused = true)]
async fn what_is_missing_below_a_missing_recipe_chunk_is_asked_for_when_that_is_back() {
    let lost = Lost::new(LARGE).await;
    let below = lost.data[5];
    lost.lose(&lost.root);
    lost.lose(&below);
    lost.fails().await;
    assert_eq!(asked(&lost.ada).await.unwrap().versions, lost.of(&[lost.root]));
    assert_eq!(put(&lost.ada, &[&lost.chunks[&lost.root]]).await, STORED);
    let wanted = asked(&lost.ada).await.unwrap();
    assert_eq!((wanted.missing, wanted.versions), (1, lost.of(&[below])));
    assert_eq!(put(&lost.ada, &[&lost.chunks[&below]]).await, STORED);
    assert_eq!(lost.read().await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_device_that_may_only_read_gives_back_what_is_missing_and_nothing_else() {
    let lost = Lost::new(LARGE).await;
    let eve = lost.party.join_as("eve", Access::ReadOnly).await;
    let [gone, also, here] = [lost.data[1], lost.data[2], lost.data[3]];
    let of = |name: &ChunkName| lost.chunks[name].as_slice();
    let refused = Response::Refused(Refusal::ReadOnly);
    assert_eq!(put(&eve, &[of(&here)]).await, refused, "nothing is missing");
    lost.lose(&gone);
    lost.lose(&also);
    lost.fails().await;
    let blobs = lost.party.blobs.list(&[], 1000).unwrap().len();
    assert_eq!(put(&eve, &[of(&gone), b"something of her own"]).await, refused);
    assert_eq!(lost.party.blobs.list(&[], 1000).unwrap().len(), blobs, "nothing of it is kept");
    let deltas = Some(Vec::new());
    let with_deltas = Request::Put { payload: chunks::pack(&[of(&gone)]), deltas };
    assert_eq!(eve.ask(with_deltas).await, refused);
    // What somebody else was quicker to give back is passed over.
    assert_eq!(put(&eve, &[of(&gone), of(&here)]).await, STORED);
    assert_eq!(put(&eve, &[of(&gone), of(&also)]).await, STORED);
    assert_eq!(lost.read().await, Ok(()));
    assert_eq!(put(&eve, &[of(&gone)]).await, refused);
}

#[tokio::test(start_paused = true)]
async fn more_than_one_answer_holds_is_asked_for_with_the_next_ones() {
    let lost = Lost::new(4 * LARGE).await;
    assert!(lost.data.len() > 2 * WANTED_CHUNKS_MAX, "{}", lost.data.len());
    lost.data.iter().for_each(|name| lost.lose(name));
    assert!(lost.party.origin.check(Repair::No).await.unwrap().wanted > 0);
    let mut named = BTreeSet::new();
    loop {
        let wanted = asked(&lost.ada).await.unwrap();
        assert_eq!(wanted.missing, lost.data.len() as u64);
        let chunks: Vec<_> = wanted.versions.into_iter().flat_map(|of| of.chunks).collect();
        if chunks.is_empty() {
            break;
        }
        assert!(chunks.len() <= WANTED_CHUNKS_MAX);
        for name in chunks {
            assert!(named.insert(name), "asked for twice");
        }
    }
    assert!(named.iter().eq(&lost.data));
}

/// A version lacks more than is noted of it at a time.
#[tokio::test(start_paused = true)]
async fn when_what_was_noted_of_a_version_is_back_what_else_it_lacks_is_noted() {
    let lost = Lost::new(30 * LARGE).await;
    assert!(lost.data.len() > 1100, "{}", lost.data.len());
    lost.data.iter().for_each(|name| lost.lose(name));
    let first = lost.party.origin.check(Repair::No).await.unwrap().wanted;
    assert_eq!(first, 1000);
    let mut given = 0;
    while let Some(wanted) = asked(&lost.ada).await {
        let names = wanted.versions.into_iter().flat_map(|of| of.chunks);
        for name in names {
            assert_eq!(put(&lost.ada, &[&lost.chunks[&name]]).await, STORED);
            given += 1;
        }
    }
    assert_eq!(given, lost.data.len());
    assert_eq!(lost.left().await, (0, 0));
}

#[tokio::test(start_paused = true)]
async fn what_a_check_finds_missing_is_said_and_asked_for_also_after_a_restart() {
    let lost = Lost::new(LARGE).await;
    let gone = [lost.data[0], lost.data[1]];
    gone.iter().for_each(|name| lost.lose(name));
    let checked = lost.party.origin.check(Repair::Yes).await.unwrap();
    assert_eq!((checked.left, checked.wanted), (1, 2), "{checked:?}");
    let problem = &checked.problems[0];
    assert!(problem.place.starts_with("/large ") && problem.what.starts_with("2 of its chunks"));
    let party = lost.party.killed();
    let ada = party.rejoin(&lost.ada).await;
    let expected = Wanted { missing: 2, versions: lost.of(&gone) };
    assert_eq!(ada.attached.wanted, Some(expected));
    let back: Vec<&[u8]> = gone.iter().map(|name| lost.chunks[name].as_slice()).collect();
    assert_eq!(put(&ada, &back).await, STORED);
    // What came back is on the disk before it is forgotten that it was missing.
    let party = party.without_power();
    let checked = party.origin.check(Repair::No).await.unwrap();
    assert_eq!((checked.problems, checked.wanted), (vec![], 0));
    let ada = party.rejoin(&lost.ada).await;
    assert_eq!(ada.attached.wanted, None);
}

#[tokio::test(start_paused = true)]
async fn a_damaged_row_is_told_of_and_does_not_keep_the_origin_from_opening() {
    let lost = Lost::new(LARGE).await;
    lost.lose(&lost.data[0]);
    lost.party.origin.check(Repair::Yes).await.unwrap();
    let mut write = lost.party.tables.write().unwrap();
    write.put(TABLE, &lost.rows()[0].0, b"damaged").unwrap();
    write.commit(Durability::Now).unwrap();
    let party = lost.party.killed();
    let checked = party.origin.check(Repair::Yes).await.unwrap();
    let told = |problem: &replica::Problem| problem.place.ends_with(TABLE);
    assert!(checked.problems.iter().any(told), "{checked:?}");
    // It has found the chunk missing once more, and written the row anew.
    let checked = party.origin.check(Repair::No).await.unwrap();
    assert!(!checked.problems.iter().any(told), "{checked:?}");
    assert_eq!(checked.wanted, 1);
}

fn tidying() -> Limits {
    let hour = Duration::from_secs(60 * 60);
    Limits {
        lease: LEASE,
        versions_kept: Duration::ZERO,
        names_kept: Duration::ZERO,
        collect_every: hour,
        ..Limits::simulated()
    }
}

#[tokio::test(start_paused = true)]
async fn what_no_version_names_any_more_is_not_asked_for() {
    let mut lost = Lost::with(Party::with(tidying()), LARGE).await;
    lost.lose(&lost.data[0]);
    lost.fails().await;
    let unlink = unlink_of(FileId::ROOT, "large", lost.file);
    lost.ada.replay(unlink).await;
    lost.party.world.clock.sleep(Duration::from_secs(10)).await;
    lost.ada = lost.party.rejoin(&lost.ada).await;
    assert!(lost.ada.attached.wanted.is_some());
    lost.party.origin.collect(Wish::default()).await.unwrap();
    let ada = lost.party.rejoin(&lost.ada).await;
    assert_eq!(ada.attached.wanted, None);
    assert_eq!(lost.rows().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn tidying_notes_the_recipe_chunks_that_it_cannot_read() {
    let lost = Lost::with(Party::with(tidying()), LARGE).await;
    lost.lose(&lost.root);
    let dry = Wish { dry_run: true, ..Wish::default() };
    assert_eq!(lost.party.origin.collect(dry).await.unwrap().unsure, 1);
    assert_eq!(asked(&lost.ada).await, None);
    assert_eq!(lost.party.origin.collect(Wish::default()).await.unwrap().unsure, 1);
    assert_eq!(asked(&lost.ada).await.unwrap().versions, lost.of(&[lost.root]));
    assert_eq!(put(&lost.ada, &[&lost.chunks[&lost.root]]).await, STORED);
    assert_eq!(lost.party.origin.collect(Wish::default()).await.unwrap().unsure, 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_missing_goes_with_its_volume() {
    let lost = Lost::new(LARGE).await;
    lost.lose(&lost.data[0]);
    lost.fails().await;
    assert_eq!(lost.rows().len(), 1);
    lost.party.origin.remove_volume(VOLUME).unwrap();
    assert_eq!(lost.rows().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_comes_with_a_store_is_not_missing_any_more() {
    let mut lost = Lost::new(LARGE).await;
    let gone = lost.data[2];
    lost.lose(&gone);
    lost.fails().await;
    let bytes = lost.bytes.clone();
    lost.ada.stored("again", &bytes).await;
    assert_eq!(lost.read().await, Ok(()));
    assert_eq!(asked(&lost.ada).await, None);
}
