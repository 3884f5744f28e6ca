//! Back ends against the plainest model of each, over random calls.

#![allow(clippy::disallowed_methods, reason = "removes an index behind the store's back")]
#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use store::container::{DirectoryContainers, Key};
use store::embedded::{Database, Settings};
use store::journal::FileJournal;
use store::memory::{MemoryContainers, MemoryTables};
use store::packs::Packs;
use store::{Blobs, Container, Containers, Durability, Journal, Tables};
use tempfile::tempdir;

const NAMES: [&str; 2] = ["first", "second"];

#[derive(Clone, Debug)]
enum TableCall {
    Put(usize, Vec<u8>, Vec<u8>),
    Delete(usize, Vec<u8>),
    Scan(usize, Vec<u8>, Vec<u8>, usize),
    Commit(bool),
    Abort,
    Reopen,
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    vec(0..4_u8, 0..4)
}

fn table_call() -> impl Strategy<Value = TableCall> {
    prop_oneof![
        6 => (0..2_usize, key(), vec(any::<u8>(), 0..20)).prop_map(|(t, k, v)| TableCall::Put(t, k, v)),
        3 => (0..2_usize, key()).prop_map(|(t, k)| TableCall::Delete(t, k)),
        4 => (0..2_usize, key(), key(), 0..6_usize).prop_map(|(t, a, b, n)| TableCall::Scan(t, a, b, n)),
        2 => any::<bool>().prop_map(TableCall::Commit),
        1 => Just(TableCall::Abort),
        1 => Just(TableCall::Reopen),
    ]
}

type Model = [BTreeMap<Vec<u8>, Vec<u8>>; 2];

fn within(model: &Model, table: usize, from: &[u8], to: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let rows = model[table].iter().filter(|(key, _)| from <= &key[..] && &key[..] < to);
    rows.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn agree(read: &dyn store::Read, model: &Model, call: &TableCall) -> Result<(), TestCaseError> {
    if let TableCall::Scan(table, from, to, rows_max) = call {
        let rows = within(model, *table, from, to);
        prop_assert_eq!(read.last(NAMES[*table], from, to).unwrap(), rows.last().cloned());
        prop_assert_eq!(
            read.scan(NAMES[*table], from, to, *rows_max).unwrap(),
            &rows[..rows.len().min(*rows_max)]
        );
        prop_assert_eq!(read.get(NAMES[*table], from).unwrap(), model[*table].get(from).cloned());
    }
    Ok(())
}

fn run_tables<T: Tables>(open: impl Fn() -> T, calls: &[TableCall]) -> Result<(), TestCaseError> {
    let mut committed = Model::default();
    let mut rest = calls;
    while !rest.is_empty() {
        let tables = open();
        loop {
            let mut model = committed.clone();
            let mut write = tables.write().unwrap();
            let mut end = &TableCall::Abort;
            while let Some((call, after)) = rest.split_first() {
                rest = after;
                match call {
                    TableCall::Put(table, key, value) => {
                        write.put(NAMES[*table], key, value).unwrap();
                        model[*table].insert(key.clone(), value.clone());
                    }
                    TableCall::Delete(table, key) => {
                        write.delete(NAMES[*table], key).unwrap();
                        model[*table].remove(key);
                    }
                    TableCall::Scan(..) => {
                        agree(write.as_ref(), &model, call)?;
                        agree(tables.read().unwrap().as_ref(), &committed, call)?;
                    }
                    TableCall::Commit(_) | TableCall::Abort | TableCall::Reopen => {
                        end = call;
                        break;
                    }
                }
            }
            match end {
                TableCall::Commit(now) => {
                    let durability = if *now { Durability::Now } else { Durability::Later };
                    write.commit(durability).unwrap();
                    committed = model;
                }
                _ => drop(write),
            }
            if rest.is_empty() || matches!(end, TableCall::Reopen) {
                break;
            }
        }
    }
    Ok(())
}

#[derive(Clone, Debug)]
enum BlobCall {
    Put(u8, usize),
    PutAll(Vec<(u8, usize)>),
    Delete(u8),
    Get(u8),
    Sync,
    Reclaim(u8),
    Reopen,
    LoseIndex,
}

fn blob_call() -> impl Strategy<Value = BlobCall> {
    prop_oneof![
        8 => (any::<u8>(), 0..600_usize).prop_map(|(n, l)| BlobCall::Put(n % 24, l)),
        4 => prop::collection::vec((any::<u8>(), 0..600_usize), 0..12).prop_map(|some| {
            BlobCall::PutAll(some.into_iter().map(|(n, l)| (n % 24, l)).collect())
        }),
        6 => any::<u8>().prop_map(|n| BlobCall::Delete(n % 24)),
        4 => any::<u8>().prop_map(|n| BlobCall::Get(n % 24)),
        1 => Just(BlobCall::Sync),
        2 => (0..100_u8).prop_map(BlobCall::Reclaim),
        1 => Just(BlobCall::Reopen),
        1 => Just(BlobCall::LoseIndex),
    ]
}

/// A row in the index that another index would not have.
fn note_in(index: &Path) {
    let database = Database::open(index).unwrap();
    let mut write = database.write().unwrap();
    write.put("note", b"kept", b"").unwrap();
    write.commit(Durability::Now).unwrap();
}

fn has_note(index: &Path) -> bool {
    let database = Database::open(index).unwrap();
    database.read().unwrap().get("note", b"kept").unwrap().is_some()
}

#[derive(Clone, Debug)]
enum FileCall {
    Write(u64, Vec<u8>),
    SetLength(u64),
    Punch(u64, u64),
    Allocate(u64, u64),
    SetAside(u64, u64),
    Zero(u64, u64),
    Read(u64, usize),
}

fn file_call() -> impl Strategy<Value = FileCall> {
    let offset = || 0..20_000_u64;
    prop_oneof![
        4 => (offset(), vec(1..=255_u8, 0..6000)).prop_map(|(o, b)| FileCall::Write(o, b)),
        2 => offset().prop_map(FileCall::SetLength),
        2 => (offset(), offset()).prop_map(|(o, l)| FileCall::Punch(o, l)),
        1 => (offset(), offset()).prop_map(|(o, l)| FileCall::Allocate(o, l)),
        1 => (offset(), offset()).prop_map(|(o, l)| FileCall::SetAside(o, l)),
        1 => (offset(), offset()).prop_map(|(o, l)| FileCall::Zero(o, l)),
        3 => (offset(), 0..9000_usize).prop_map(|(o, l)| FileCall::Read(o, l)),
    ]
}

fn run_file(container: &impl Container, calls: &[FileCall]) -> Result<(), TestCaseError> {
    let mut model: Vec<u8> = Vec::new();
    for call in calls {
        match call {
            FileCall::Write(offset, bytes) => {
                container.write(*offset, bytes).unwrap();
                let end = *offset as usize + bytes.len();
                if !bytes.is_empty() {
                    model.resize(model.len().max(end), 0);
                    model[*offset as usize..end].copy_from_slice(bytes);
                }
            }
            FileCall::SetLength(length) => {
                container.set_length(*length).unwrap();
                model.resize(*length as usize, 0);
            }
            FileCall::SetAside(offset, length) => {
                container.set_aside(*offset, *length).unwrap();
            }
            FileCall::Punch(offset, length) | FileCall::Zero(offset, length) => {
                match call {
                    FileCall::Zero(..) => container.zero(*offset, *length).unwrap(),
                    _ => container.punch(*offset, *length).unwrap(),
                }
                let end = model.len().min((offset + length) as usize);
                let from = end.min(*offset as usize);
                model[from..end].fill(0);
            }
            FileCall::Allocate(offset, length) => {
                container.allocate(*offset, *length).unwrap();
                if *length > 0 {
                    model.resize(model.len().max((offset + length) as usize), 0);
                }
            }
            FileCall::Read(offset, length) => {
                let from = model.len().min(*offset as usize);
                let to = model.len().min(*offset as usize + length);
                prop_assert_eq!(container.read(*offset, *length).unwrap(), &model[from..to]);
            }
        }
    }
    prop_assert_eq!(container.length().unwrap(), model.len() as u64);
    let stretches = container.data(0, u64::MAX / 4).unwrap();
    for (index, byte) in model.iter().enumerate() {
        let at = index as u64;
        let is_data =
            stretches.iter().any(|(start, length)| (*start..start + length).contains(&at));
        prop_assert!(is_data || *byte == 0, "byte {} lies in a hole: {:?}", at, stretches);
    }
    prop_assert_eq!(container.read(0, 100_000).unwrap(), model);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn prop_tables_in_a_file_are_sorted_maps(calls in vec(table_call(), 1..60)) {
        let directory = tempdir().unwrap();
        let path = directory.path().join("tables");
        run_tables(|| Database::open(&path).unwrap(), &calls)?;
    }

    #[test]
    fn prop_tables_that_are_flushed_now_and_then_are_sorted_maps(
        calls in vec(table_call(), 1..200),
        young_rows_max in 1..12_usize,
        is_logged: bool,
        held_bytes_max in prop_oneof![Just(u64::MAX), 0..60_u64],
    ) {
        let directory = tempdir().unwrap();
        let (path, log) = (directory.path().join("tables"), directory.path().join("log"));
        let log = Some(log.as_path()).filter(|_| is_logged);
        let settings = Settings { log, young_rows_max, held_bytes_max, ..Settings::default() };
        run_tables(|| Database::open_as(&path, settings.clone()).unwrap(), &calls)?;
    }

    #[test]
    fn prop_tables_in_memory_are_sorted_maps(calls in vec(table_call(), 1..200)) {
        let tables = MemoryTables::new();
        run_tables(|| tables.clone(), &calls)?;
    }

    #[test]
    fn prop_packs_are_a_map(calls in vec(blob_call(), 1..120)) {
        let directory = tempdir().unwrap();
        let open = || Packs::open_with_packs(directory.path(), 1500).unwrap();
        let mut packs = Some(open());
        let mut model: HashMap<u8, Vec<u8>> = HashMap::new();
        for call in calls {
            let blobs = packs.as_ref().expect("it is opened again below");
            match call {
                BlobCall::Put(name, length) => {
                    // The bytes follow from the name, as they do in real use, and from the length
                    // only when the name is new.
                    let bytes = vec![name; length];
                    blobs.put(&[name; 3], &bytes).unwrap();
                    model.entry(name).or_insert(bytes);
                }
                BlobCall::PutAll(some) => {
                    let some: Vec<([u8; 3], Vec<u8>)> =
                        some.into_iter().map(|(name, length)| ([name; 3], vec![name; length])).collect();
                    let together: Vec<(&[u8], &[u8])> =
                        some.iter().map(|(name, bytes)| (&name[..], &bytes[..])).collect();
                    blobs.put_all(&together).unwrap();
                    for (name, bytes) in some {
                        model.entry(name[0]).or_insert(bytes);
                    }
                }
                BlobCall::Delete(name) => {
                    blobs.delete(&[name; 3]).unwrap();
                    model.remove(&name);
                }
                BlobCall::Get(name) => {
                    prop_assert_eq!(blobs.get(&[name; 3]).unwrap(), model.get(&name).cloned());
                    prop_assert_eq!(blobs.has(&[name; 3]).unwrap(), model.contains_key(&name));
                }
                BlobCall::Sync => blobs.sync().unwrap(),
                BlobCall::Reclaim(percent) => { blobs.reclaim(percent).unwrap(); }
                BlobCall::Reopen | BlobCall::LoseIndex => {
                    drop(packs.take());
                    let index = directory.path().join("index.redb");
                    if matches!(call, BlobCall::LoseIndex) {
                        std::fs::remove_file(index).unwrap();
                        packs = Some(open());
                        continue;
                    }
                    // What was made by the store itself adds up, and is not made again.
                    note_in(&index);
                    drop(open());
                    prop_assert!(has_note(&index));
                    packs = Some(open());
                }
            }
        }
        let blobs = packs.expect("it was opened again");
        for name in 0..24 {
            prop_assert_eq!(blobs.get(&[name; 3]).unwrap(), model.get(&name).cloned());
        }
        let mut listed = Vec::new();
        while let Some((name, bytes)) = {
            let after = listed.last().map_or(Vec::new(), |(name, _): &(u8, usize)| vec![*name; 3]);
            blobs.list(&after, 1).unwrap().pop()
        } {
            listed.push((name[0], bytes as usize));
        }
        let mut expected: Vec<_> = model.iter().map(|(name, b)| (*name, b.len())).collect();
        expected.sort_unstable();
        prop_assert_eq!(listed, expected);
        prop_assert_eq!(blobs.damage().unwrap(), []);
        let alive: u64 = model.values().map(|bytes| bytes.len() as u64).sum();
        prop_assert!(blobs.bytes() >= alive);
    }

    #[test]
    fn prop_a_journal_keeps_all_that_is_not_retired(
        calls in vec((0..12_u8, vec(any::<u8>(), 0..90)), 1..100)
    ) {
        let directory = tempdir().unwrap();
        let open = || FileJournal::open_with_segments(directory.path(), 400).unwrap();
        let mut journal = Some(open());
        let mut appended: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut retired = 0;
        for (kind, record) in calls {
            let open_journal = journal.as_ref().expect("it is opened again below");
            match kind {
                0 => { drop(journal.take()); journal = Some(open()); }
                1 => {
                    retired = (appended.len() as u64).min(retired + record.len() as u64 / 8);
                    open_journal.retire(retired).unwrap();
                }
                2 => open_journal.sync().unwrap(),
                _ => {
                    let position = open_journal.append(&record).unwrap();
                    prop_assert_eq!(position, appended.len() as u64 + 1);
                    appended.push((position, record));
                }
            }
        }
        let journal = journal.expect("it was opened again");
        let kept = journal.records().unwrap();
        prop_assert!(kept.len() >= appended.len() - retired as usize);
        prop_assert!(appended.ends_with(&kept));
        for (at, (position, _)) in kept.iter().enumerate() {
            let read = journal.read(*position, 100).unwrap();
            prop_assert!(!read.is_empty() && kept[at..].starts_with(&read));
        }
    }

    #[test]
    fn prop_a_container_is_an_array_of_bytes(calls in vec(file_call(), 1..40)) {
        let directory = tempdir().unwrap();
        let key = Key { file: 5, generation: 1 };
        let on_disk = DirectoryContainers::open(directory.path()).unwrap();
        run_file(&on_disk.open(key, true).unwrap().expect("made"), &calls)?;
        let in_memory = MemoryContainers::new();
        run_file(&in_memory.open(key, true).unwrap().expect("made"), &calls)?;
    }
}
