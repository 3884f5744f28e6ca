//! A store that is whole is said to be, and whatever is damaged in it is told of.

use crate::party::{Device, LEASE, Party, VOLUME, all_chunks, name, noise, store_of, unlink_of};
use model::{Change, FileId, Kind};
use protocol::{Attach, Heard, Refusal, Request, Response, Verdict};
use replica::{Checked, Limits, Origin, Repair, ReplicaError, State};
use std::io::ErrorKind;
use std::sync::Arc;
use store::{Before, Durability, Read, Row, StoreError, Tables, Write};
use volume::whole;

const ROOT: FileId = FileId::ROOT;

/// One of everything that an origin has rows for.
async fn furnished() -> (Party, Device) {
    let limits = Limits { lease: LEASE, ..Limits::simulated() };
    let party = Party::with(limits);
    let mut ada = party.join("ada").await;
    let docs = ada.make_directory(ROOT, "docs").await;
    let (file, stamp) = ada.write_new(docs, "a", "first").await;
    let mut bob = party.join("bob").await;
    let second = ada.storing(file, stamp, "second").await;
    ada.replay(second).await;
    let third = bob.storing(file, stamp, "third").await;
    assert!(matches!(bob.replay(third).await, Verdict::KeptAside { .. }));
    ada.replay(Change::Link { parent: ROOT, name: name("link"), file }).await;
    let (gone, _) = ada.write_new(ROOT, "gone", "gone").await;
    ada.replay(unlink_of(ROOT, "gone", gone)).await;
    let (large, make) = ada.making(ROOT, "large", Kind::File);
    ada.replay(make).await;
    let bytes = noise(200_000, 5);
    let described = ada.describe(&bytes);
    for (_, chunk) in all_chunks(&described, &bytes) {
        ada.put(&[&chunk]).await;
    }
    ada.replay(store_of(large, ada.stamp(), described.tree.contents)).await;
    ada.put(&[b"nobody names this"]).await;
    party.origin.invite(VOLUME, protocol::Access::ReadOnly, None).unwrap();
    party.origin.collect(replica::Wish::default()).await.unwrap();
    (party, ada)
}

async fn check(party: &Party, repair: Repair) -> Checked {
    party.origin.check(repair).await.unwrap()
}

const TABLES: [&str; 20] = [
    "whole-head",
    "whole-nodes",
    "whole-entries",
    "whole-entries-now",
    "whole-names-now",
    "whole-contents",
    "whole-log",
    "whole-writers",
    "whole-verdicts",
    "whole-times",
    "whole-runs",
    "origin-volumes",
    "origin-next-volume",
    "origin-devices",
    "origin-invitations",
    "origin-leases",
    "origin-conflicts",
    "origin-aside-contents",
    "origin-aside-names",
    "origin-trash",
];

fn rows(party: &Party, table: &'static str) -> Vec<Row> {
    rows_of(&*party.tables, table)
}

fn rows_of(tables: &dyn Tables, table: &'static str) -> Vec<Row> {
    tables.read().unwrap().scan(table, &[], &[0xff; 300], 10_000).unwrap()
}

fn put(party: &Party, table: &'static str, key: &[u8], value: Option<&[u8]>) {
    let mut write = party.tables.write().unwrap();
    match value {
        Some(value) => write.put(table, key, value).unwrap(),
        None => write.delete(table, key).unwrap(),
    }
    write.commit(Durability::Now).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_whole_is_said_to_be() {
    let (party, _) = furnished().await;
    let checked = check(&party, Repair::No).await;
    assert_eq!(checked.problems, []);
    assert_eq!((checked.volumes, checked.left), (1, 0));
    assert!(checked.versions >= 5 && checked.chunks > 20, "{checked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_damaged_row_of_any_table_is_told_of() {
    let (party, _) = furnished().await;
    let mut tried = 0;
    for table in TABLES {
        for (key, value) in rows(&party, table) {
            // Rows that say all by their keys have no value to damage.
            let Some(last) = value.len().checked_sub(1) else { continue };
            let mut damaged = value.clone();
            damaged[last] ^= 1;
            put(&party, table, &key, Some(&damaged));
            let found = party.origin.check(Repair::No).await;
            // Without its row nobody knows that there is the volume: that is an error at once.
            assert!(found.is_err() || found.unwrap().left > 0, "{table} {key:?}");
            put(&party, table, &key, Some(&value));
            tried += 1;
        }
    }
    assert!(tried > 50, "{tried}");
    assert_eq!(check(&party, Repair::No).await.problems, []);
}

/// What was drawn for a run is nowhere else: any may have been, so that no device takes it for a set-back.
#[tokio::test(start_paused = true)]
async fn a_damaged_run_turns_nobody_away_and_is_mended_so_that_nobody_is_alarmed() {
    let (party, ada) = furnished().await;
    let (key, _) = rows(&party, "whole-runs").pop().unwrap();
    put(&party, "whole-runs", &key, Some(&[0xff]));
    let in_common = async || {
        let (session, ears) = party.admit(&ada.name, None).await.unwrap();
        let heard = Heard { upto: ada.seen(), runs: ada.attached.runs.clone().unwrap() };
        let (replica, made, seen) = (Some(ada.replica), ada.made, ada.seen());
        let heard = Some(heard);
        let attach = Attach { replica, made, seen, locks: None, life: None, heard };
        Device::attached_by(&ada.name, session, ears, attach).await.attached.in_common
    };
    assert_eq!(in_common().await, None);
    assert!(check(&party, Repair::No).await.left > 0);
    let repaired = check(&party, Repair::Yes).await;
    assert_eq!((repaired.left, repaired.problems.len()), (0, 1), "{repaired:?}");
    assert_eq!(check(&party, Repair::No).await.problems, []);
    assert_eq!(in_common().await, None);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_not_counted_as_gone() {
    let (party, _) = furnished().await;
    let before = rows(&party, "whole-head");
    let (key, value) = rows(&party, "whole-nodes").swap_remove(2);
    put(&party, "whole-nodes", &key, Some(&[0xff]));
    let repaired = check(&party, Repair::Yes).await;
    assert!(repaired.left > 0, "{repaired:?}");
    assert_eq!(rows(&party, "whole-head"), before);
    put(&party, "whole-nodes", &key, Some(&value));
    assert_eq!(check(&party, Repair::No).await.problems, []);
}

#[tokio::test(start_paused = true)]
async fn a_lost_row_of_the_present_tree_is_told_of_and_made_again_where_others_say_it() {
    let (party, _) = furnished().await;
    for table in ["whole-entries-now", "whole-names-now", "whole-nodes", "whole-contents"] {
        for (key, value) in rows(&party, table) {
            put(&party, table, &key, None);
            let derived = table.ends_with("-now");
            let found = check(&party, Repair::No).await;
            let current = found.left > 0;
            assert!(current || !derived, "{table} {key:?}: {found:?}");
            if derived {
                let mended = check(&party, Repair::Yes).await;
                assert!(mended.left < found.left, "{mended:?}");
                assert_eq!(check(&party, Repair::No).await.problems, [], "{table}");
                assert_eq!(rows(&party, table).iter().find(|row| row.0 == key).unwrap().1, value);
            }
            put(&party, table, &key, Some(&value));
        }
    }
    assert_eq!(check(&party, Repair::No).await.problems, []);
}

#[tokio::test(start_paused = true)]
async fn a_chunk_that_is_lost_or_wrong_is_told_of_with_the_files_that_need_it() {
    let (party, mut ada) = furnished().await;
    let all = party.blobs.list(&[], 1000).unwrap();
    let mut needed = 0;
    for (blob, _) in &all {
        let bytes = party.blobs.get(blob).unwrap().unwrap();
        party.blobs.delete(blob).unwrap();
        let found = check(&party, Repair::No).await;
        needed += usize::from(found.left > 0);
        party.blobs.put(blob, b"other bytes").unwrap();
        let found = check(&party, Repair::No).await;
        assert!(found.problems.iter().any(|problem| problem.what.contains("do not bear")));
        let mended = check(&party, Repair::Yes).await;
        let wrong = |p: &&replica::Problem| p.what.contains("do not bear");
        assert!(mended.problems.iter().filter(wrong).all(|p| p.state == State::Mended));
        assert!(!party.blobs.has(blob).unwrap(), "it counts as missing");
        party.blobs.put(blob, &bytes).unwrap();
    }
    assert_eq!(needed, all.len() - 1, "all but the one that nobody names");
    // The next client that stores the same is asked for it.
    let (file, stamp) = ada.write_new(ROOT, "b", "").await;
    let contents = ada.describe(b"second").tree.contents;
    let id = party.origin.volumes().unwrap()[0].id;
    let blob = [&id.0.to_be_bytes()[..], &contents.root.unwrap().name.0].concat();
    party.blobs.delete(&blob).unwrap();
    let found = check(&party, Repair::Yes).await;
    assert!(
        found.problems[0].place.starts_with("/docs/a")
            || found.problems[0].place.starts_with("/link")
    );
    let store = ada.update(store_of(file, stamp, contents));
    let submitted = ada.submit_all(false, vec![store.clone()], None).await.unwrap();
    assert_eq!(submitted.missing, [contents.root.unwrap().name]);
    let payload = Some(chunks::pack(&[b"second"]));
    ada.submit_all(false, vec![store], payload).await.unwrap();
    assert_eq!(check(&party, Repair::No).await.problems, []);
}

#[tokio::test(start_paused = true)]
async fn where_nothing_can_be_written_what_is_missing_is_told_of_and_not_noted() {
    let (party, _) = furnished().await;
    for (blob, _) in party.blobs.list(&[], 1000).unwrap() {
        party.blobs.delete(&blob).unwrap();
    }
    let (tables, blobs) = (party.tables.clone(), party.blobs.clone());
    let looked = Origin::look(tables, blobs, party.world.clone(), party.limits.clone()).unwrap();
    let seen = looked.check(Repair::No).await.unwrap();
    assert!(seen.left > 0 && seen.wanted > 0, "{seen:?}");
    assert_eq!(rows(&party, "origin-wanted"), []);
    let checked = check(&party, Repair::No).await;
    assert_eq!((checked.problems, checked.wanted), (seen.problems, seen.wanted));
    assert!(!rows(&party, "origin-wanted").is_empty());
}

/// As on a disk that has become read-only while the server runs.
struct TakesNothing(Arc<dyn Tables>);

impl Tables for TakesNothing {
    fn read(&self) -> store::Result<Box<dyn Read + '_>> {
        self.0.read()
    }

    fn write(&self) -> store::Result<Box<dyn Write + '_>> {
        let source = ErrorKind::ReadOnlyFilesystem.into();
        Err(StoreError::Io { place: "tables".into(), source })
    }

    fn room(&self) -> store::Result<u64> {
        self.0.room()
    }

    fn before(&self) -> Before {
        self.0.before()
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_found_is_told_also_by_a_server_whose_disk_takes_nothing_any_more() {
    let (party, _) = furnished().await;
    let (tables, blobs) = (Arc::new(TakesNothing(party.tables.clone())), party.blobs.clone());
    let (world, limits) = (party.world.clone(), party.limits.clone());
    let stuck = Origin::open(tables, blobs, world, limits).unwrap();
    for (blob, _) in party.blobs.list(&[], 1000).unwrap() {
        party.blobs.delete(&blob).unwrap();
    }
    let found = stuck.check(Repair::No).await.unwrap();
    assert!(found.left > 0 && found.wanted > 0, "{found:?}");
    assert!(found.unnoted.as_ref().is_some_and(|why| why.contains("tables")), "{found:?}");
    assert_eq!(check(&party, Repair::No).await.unnoted, None);
}

#[tokio::test(start_paused = true)]
async fn a_damaged_node_is_listed_as_a_name_and_costs_no_other_file() {
    let (party, mut ada) = furnished().await;
    let docs = ada.list(ROOT).await.directories[0].entries[0].1;
    let below = ada.make_directory(docs, "below").await;
    ada.write_new(below, "deep", "deep").await;
    let (bad, _) = ada.write_new(docs, "bad", "bad").await;
    let whole = ada.list_as(ROOT, None, 1000, true).await;
    let damage = |file: FileId| {
        let of = |key: &[u8]| key[..key.len() - 8].ends_with(&file.0.to_be_bytes());
        for (key, _) in rows(&party, "whole-nodes").iter().filter(|(key, _)| of(key)) {
            put(&party, "whole-nodes", key, Some(b"no row"));
        }
    };
    damage(bad);
    let listing = ada.list_as(ROOT, None, 1000, true).await;
    assert_eq!(listing.directories, whole.directories, "all names");
    let nodes: Vec<_> = whole.nodes.into_iter().filter(|state| state.file != bad).collect();
    assert_eq!(listing.nodes, nodes);
    let asked = |request| async { ada.ask(request).await };
    let inspect = |nodes: Vec<FileId>| Request::Inspect { nodes, entries: Vec::new() };
    assert!(matches!(asked(inspect(vec![bad])).await, Response::Refused(Refusal::Failed(_))));
    assert!(matches!(asked(inspect(vec![docs])).await, Response::Inspected(_)));
    damage(below);
    let listing = ada.list_as(ROOT, None, 1000, true).await;
    let listed: Vec<FileId> = listing.directories.iter().map(|listed| listed.directory).collect();
    assert_eq!(listed, [ROOT, docs]);
    let list = |directory| Request::List {
        directory,
        after: None,
        entries_max: 100,
        deep: true,
        also: Some(vec![below]),
    };
    assert!(matches!(asked(list(below)).await, Response::Refused(Refusal::Failed(_))));
    let Response::Listing(listing) = asked(list(docs)).await else { panic!("it is whole") };
    assert_eq!(listing.directories.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_the_catalogue_alone_has_is_told_of_as_damage() {
    let (party, _ada) = furnished().await;
    let Party { tables, blobs, world, limits, .. } = party;
    let heads = tables.read().unwrap().scan("whole-head", &[], &[0xff; 9], 2).unwrap();
    let mut write = tables.write().unwrap();
    write.delete("whole-head", &heads[0].0).unwrap();
    write.commit(Durability::Now).unwrap();
    let error = Origin::open(tables.clone(), blobs, world, limits).err().unwrap();
    assert!(matches!(error, ReplicaError::Tree(whole::Error::Damaged { .. })), "{error}");
    let said = error.to_string();
    assert!(
        said.contains(&format!("head of volume {VOLUME}")) && said.contains("backup"),
        "{said}"
    );
}

/// Where names lie in tables of a real disk, a page of them at a time makes no sense.
#[allow(clippy::disallowed_methods, reason = "damages the tables behind the store's back")]
#[tokio::test(start_paused = true)]
async fn a_table_that_only_repeats_others_is_made_anew_where_a_page_of_it_cannot_be_read() {
    const PAGE: usize = 4096;
    const NAMES: u32 = 200;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tables.redb");
    let limits = Limits { lease: LEASE, ..Limits::simulated() };
    let Party { blobs, world, .. } = Party::with(limits.clone());
    let opened = |tables| Origin::open(tables, blobs.clone(), world.clone(), limits.clone());
    let wanted = {
        let tables = Arc::new(store::embedded::Database::open(&path).unwrap());
        let party = Party::on(tables, blobs.clone(), world.clone(), limits.clone());
        party.origin.create_volume(VOLUME, 0, 0, protocol::Cutter::Gear).unwrap();
        let mut ada = party.join("ada").await;
        for number in 0..NAMES {
            ada.make_directory(ROOT, &format!("name {number:05}")).await;
        }
        ["whole-entries-now", "whole-names-now"].map(|table| rows(&party, table))
    };
    assert_eq!(wanted[0].len(), NAMES as usize);
    let whole = std::fs::read(&path).unwrap();
    let named = b"name 00";
    let places = whole.windows(named.len()).enumerate().filter(|(_, bytes)| bytes == named);
    let pages: std::collections::BTreeSet<usize> = places.map(|(at, _)| at / PAGE).collect();
    let mut renewed = std::collections::BTreeSet::new();
    for page in pages {
        let mut bytes = whole.clone();
        bytes[page * PAGE + 16..][..16].fill(b'Q');
        std::fs::write(&path, bytes).unwrap();
        let tables = Arc::new(store::embedded::Database::open(&path).unwrap());
        let Ok(origin) = opened(tables.clone()) else { continue };
        let checked = origin.check(Repair::Yes).await.unwrap();
        let anew = |name: &str| {
            let place = format!("table {name}");
            let is_mended = |problem: &replica::Problem| problem.state == State::Mended;
            checked.problems.iter().any(|one| one.place == place && is_mended(one))
        };
        let anew = ["whole-entries-now", "whole-names-now"].into_iter().find(|name| anew(name));
        let Some(anew) = anew else { continue };
        renewed.insert(anew);
        assert_eq!(origin.check(Repair::No).await.unwrap().left, 0, "{anew}");
        let seen = ["whole-entries-now", "whole-names-now"].map(|table| rows_of(&*tables, table));
        assert!(seen == wanted, "{anew}");
    }
    assert_eq!(renewed.len(), 2, "{renewed:?}");
}
