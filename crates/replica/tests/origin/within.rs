//! What is inside the containers that are here serves as well as what is here by itself.
#![allow(clippy::disallowed_methods, reason = "the test plays a program of the server")]

use crate::party::{Device, Party, all_chunks, noise, store_of};
use crate::tree::Yard;
use chunks::inside::index::{Index, Place};
use model::{ChunkName, FileId, Kind, Stamp};
use protocol::{PAYLOAD_BYTES_MAX, Range, Request, Response, Submit, Submitted, Verdict};
use replica::{Limits, Wish};
use std::time::Duration;
use store::Durability;

/// So long the origin is left alone.
const A_WHILE: Duration = Duration::from_secs(10);
/// For each byte that is found so many may be unpacked.
const MANY: Option<u32> = Some(1000);
/// In the keys of the only volume's rows.
const OF_VOLUME: Index<'static> = Index(&[0, 0, 0, 1]);

/// A gzip file of blocks that are stored as they are, each shorter than a chunk.
fn gzip(plain: &[u8]) -> Vec<u8> {
    const BLOCK: usize = 1_000;
    let mut file = b"\x1f\x8b\x08\0\0\0\0\0\0\x03".to_vec();
    let blocks = plain.chunks(BLOCK).count();
    for (number, block) in plain.chunks(BLOCK).enumerate() {
        let length = block.len() as u16;
        file.push(u8::from(number + 1 == blocks));
        file.extend([length.to_le_bytes(), (!length).to_le_bytes()].concat());
        file.extend(block);
    }
    file.extend([0; 4]);
    file.extend((plain.len() as u32).to_le_bytes());
    file
}

/// The origin does for a while what it does in the background.
async fn left_alone(party: &Party) {
    let origin = party.origin.clone();
    let upkeep = tokio::spawn(async move { origin.keep_up().await });
    party.world.clock.sleep(A_WHILE).await;
    upkeep.abort();
}

/// Stores a file of which the recipe alone is sent.
async fn store_by_name(device: &mut Device, bytes: &[u8], seek: Option<u32>) -> Submitted {
    let described = device.describe(bytes);
    let (file, making) = device.making(FileId::ROOT, &format!("{}", device.stamp()), Kind::File);
    assert!(matches!(device.replay(making).await, Verdict::Taken(_)));
    let recipe: Vec<&[u8]> =
        described.tree.chunks.iter().map(|(_, chunk)| chunk.as_slice()).collect();
    let payload = (!recipe.is_empty()).then(|| chunks::pack(&recipe));
    let updates = vec![device.update(store_of(file, device.stamp(), described.tree.contents))];
    let submit = Submit {
        settled: 0,
        strict: false,
        updates,
        payload,
        deltas: None,
        seek,
        ahead: None,
        under: None,
    };
    match device.ask(Request::Submit(submit)).await {
        Response::Submitted(submitted) => submitted,
        other => panic!("{other:?}"),
    }
}

async fn is_whole(device: &Device, bytes: &[u8]) -> bool {
    let version = device.stamp();
    let nodes = device.list(FileId::ROOT).await.nodes;
    let file = nodes
        .iter()
        .find(|state| state.node.as_ref().is_some_and(|node| node.contents_stamp == version));
    let file = file.unwrap().file;
    let ranges = vec![Range { offset: 0, length: bytes.len() as u64 }];
    let read = Request::Read { file, version, ranges, base: None, packed: None, inside: None };
    match device.ask(read).await {
        Response::Bytes(payload) => {
            chunks::unpack(&payload, PAYLOAD_BYTES_MAX).unwrap().concat() == bytes
        }
        other => panic!("{other:?}"),
    }
}

async fn found(device: &Device, names: &[ChunkName]) -> Vec<bool> {
    match device.ask(Request::Find { names: names.to_vec() }).await {
        Response::Found(bits) => {
            (0..names.len()).map(|at| bits[at / 8] >> (at % 8) & 1 == 1).collect()
        }
        other => panic!("{other:?}"),
    }
}

fn names_of(device: &Device, bytes: &[u8]) -> Vec<ChunkName> {
    let described = device.describe(bytes);
    let recipe = described.tree.chunks.len();
    all_chunks(&described, bytes).into_iter().skip(recipe).map(|(name, _)| name).collect()
}

#[tokio::test(start_paused = true)]
async fn contents_that_are_inside_a_container_need_not_be_sent() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let bytes = noise(90_000, 1);
    ada.stored("all.gz", &gzip(&bytes)).await;
    let submitted = store_by_name(&mut ada, &bytes, MANY).await;
    assert!(!submitted.missing.is_empty(), "nobody has looked yet");
    left_alone(&party).await;
    let submitted = store_by_name(&mut ada, &bytes, None).await;
    assert!(!submitted.missing.is_empty(), "nobody has asked for it");
    let submitted = store_by_name(&mut ada, &bytes, Some(0)).await;
    assert!(!submitted.missing.is_empty(), "it would be too much work");
    let names = names_of(&ada, &bytes);
    assert!(found(&ada, &names).await.into_iter().all(|found| found));
    let submitted = store_by_name(&mut ada, &bytes, MANY).await;
    assert_eq!(submitted.missing, []);
    assert!(matches!(submitted.verdicts[..], [Verdict::Taken(_)]), "{submitted:?}");
    assert!(is_whole(&ada, &bytes).await);
}

#[tokio::test(start_paused = true)]
async fn what_was_seen_is_known_after_a_restart_and_what_was_not_is_looked_at_then() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let (seen, unseen) = (noise(50_000, 1), noise(50_000, 2));
    ada.stored("seen.gz", &gzip(&seen)).await;
    left_alone(&party).await;
    ada.stored("unseen.gz", &gzip(&unseen)).await;
    let party = party.killed();
    let mut ada = party.rejoin(&ada).await;
    assert_eq!(store_by_name(&mut ada, &seen, MANY).await.missing, []);
    assert!(!store_by_name(&mut ada, &unseen, MANY).await.missing.is_empty());
    left_alone(&party).await;
    assert_eq!(store_by_name(&mut ada, &unseen, MANY).await.missing, []);
    assert!(is_whole(&ada, &unseen).await);
}

/// Writes over what the index says of these chunks.
fn lie(party: &Party, names: &[ChunkName], place: Place) {
    let mut write = party.tables.write().unwrap();
    for name in names {
        OF_VOLUME.note(&mut *write, name, place).unwrap();
    }
    write.commit(Durability::Later).unwrap();
}

fn places(party: &Party, names: &[ChunkName]) -> usize {
    let read = party.tables.read().unwrap();
    names.iter().map(|name| OF_VOLUME.find(&*read, name).unwrap().len()).sum()
}

#[tokio::test(start_paused = true)]
async fn what_the_index_says_is_not_believed() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let (inside, other) = (noise(50_000, 1), noise(30_000, 2));
    let container = gzip(&inside);
    let (file, version) = ada.stored("all.gz", &container).await;
    left_alone(&party).await;
    let right = {
        let read = party.tables.read().unwrap();
        OF_VOLUME.find(&*read, &names_of(&ada, &inside)[0]).unwrap()[0]
    };
    assert_eq!((right.file, right.version), (file, version));
    let names = names_of(&ada, &other);
    let lies = [
        right,
        Place { packed: 0, ..right },
        Place { start: 0, ..right },
        Place { packed: 3, ..right },
        Place { offset: u64::MAX, ..right },
        Place { offset: 1 << 60, length: u32::MAX, ..right },
        Place { start: u64::MAX, packed: u64::MAX, ..right },
        Place { length: 0, ..right },
        Place { version: Stamp::new(ada.replica, 999), ..right },
    ];
    for place in lies {
        lie(&party, &names, place);
        let submitted = store_by_name(&mut ada, &other, Some(u32::MAX)).await;
        assert_eq!(submitted.missing.len(), names.len(), "{place:?}");
    }
    // A damaged row is as good as none.
    let mut write = party.tables.write().unwrap();
    let key = [&[0, 0, 0, 1][..], &names[0].0].concat();
    write.put("inside-index", &key, b"damaged").unwrap();
    write.commit(Durability::Later).unwrap();
    assert_eq!(found(&ada, &names[..1]).await, [false]);
    let submitted = store_by_name(&mut ada, &other, MANY).await;
    assert_eq!(submitted.missing.len(), names.len());
    // What was found out to be wrong is not looked at again.
    lie(&party, &names, Place { start: 7, ..right });
    store_by_name(&mut ada, &other, MANY).await;
    let read = party.tables.read().unwrap();
    for name in &names {
        let places = OF_VOLUME.find(&*read, name).unwrap();
        assert!(places.iter().all(|place| place.version != version), "{places:?}");
    }
    drop(read);
    assert_eq!(store_by_name(&mut ada, &inside, MANY).await.missing, []);
}

#[tokio::test(start_paused = true)]
async fn what_is_gone_is_forgotten() {
    let brief = Duration::from_secs(60);
    let limits = Limits {
        versions_kept: brief,
        names_kept: brief,
        collect_every: brief,
        collect_first: brief,
        ..Limits::simulated()
    };
    let party = Party::with(limits);
    let mut ada = party.join("ada").await;
    let bytes = noise(50_000, 1);
    let (file, first) = ada.stored("all.gz", &gzip(&bytes)).await;
    left_alone(&party).await;
    let names = names_of(&ada, &bytes);
    assert_eq!(places(&party, &names), names.len());
    let second = ada.storing(file, first, "something else").await;
    ada.replay(second).await;
    party.origin.collect(Wish::default()).await.unwrap();
    party.world.clock.sleep(brief * 3).await;
    party.origin.collect(Wish::default()).await.unwrap();
    assert!(found(&ada, &names).await.iter().all(|found| !found), "the version is not kept");
    let origin = party.origin.clone();
    let upkeep = tokio::spawn(async move { origin.keep_up().await });
    for _ in 0..4 {
        party.world.clock.sleep(brief).await;
        ada.write_new(FileId::ROOT, &format!("{}", ada.stamp()), "to be noticed").await;
    }
    party.world.clock.sleep(brief).await;
    upkeep.abort();
    assert_eq!(places(&party, &names), 0);
}

#[tokio::test(start_paused = true)]
async fn what_a_container_in_a_directory_of_the_server_holds_is_found() {
    let mut yard = Yard::new();
    let (bytes, file) = (noise(60_000, 1), noise(40_000, 2));
    std::fs::write(yard.path("all.gz"), gzip(&bytes)).unwrap();
    std::fs::write(yard.path("alone"), &file).unwrap();
    yard.settle();
    left_alone(&yard.party).await;
    let mut ada = yard.party.join("ada").await;
    for bytes in [&bytes, &file] {
        assert!(found(&ada, &names_of(&ada, bytes)).await.into_iter().all(|found| found));
        assert_eq!(store_by_name(&mut ada, bytes, MANY).await.missing, []);
        assert!(is_whole(&ada, bytes).await);
    }
    yard.settle();
}

#[tokio::test(start_paused = true)]
async fn nothing_is_left_of_a_volume_that_was_removed() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let bytes = noise(50_000, 1);
    ada.stored("all.gz", &gzip(&bytes)).await;
    left_alone(&party).await;
    let names = names_of(&ada, &bytes);
    assert!(places(&party, &names) > 0);
    party.origin.remove_volume(crate::party::VOLUME).unwrap();
    assert_eq!(places(&party, &names), 0);
}
