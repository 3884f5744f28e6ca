//! Files that a power cut or a bad disk has changed: no panic, no wrong contents, and either
//! what was written or an error that says where.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]
#![allow(clippy::disallowed_methods, reason = "damages the store's files behind its back")]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use store::embedded::{Database, Panicked, Settings, Words};
use store::journal::{FileJournal, salvage};
use store::packs::Packs;
use store::{Blobs, Durability, Journal, Row, StoreError, Tables, Write};
use tempfile::TempDir;

/// Damages are tried at every so many bytes of the larger files; a prime, so that they meet every
/// place within a page.
const SPARSE_STEP: usize = 1013;

/// In memory where there is such a place: thousands of small stores are synced here.
fn tempdir() -> std::io::Result<TempDir> {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }
}

fn record(number: u64) -> Vec<u8> {
    format!("record {number} {}", "x".repeat(number as usize % 23)).into_bytes()
}

fn journal_with(directory: &Path, records: u64, sync_each: u64) {
    let journal = FileJournal::open_with_segments(directory, 600).unwrap();
    for number in 1..=records {
        assert_eq!(journal.append(&record(number)).unwrap(), number);
        if number % sync_each == 0 {
            journal.sync().unwrap();
        }
    }
}

fn files(directory: &Path, ending: &str) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().ends_with(ending))
        .collect();
    paths.sort();
    paths
}

fn copy(from: &Path) -> TempDir {
    let to = tempdir().unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.path().join(entry.file_name())).unwrap();
    }
    to
}

/// Opens a journal that was tampered with; its records must be what was appended, from the first.
fn reopened(directory: &Path) -> Result<usize, StoreError> {
    let journal = FileJournal::open_with_segments(directory, 600)?;
    let records = journal.records()?;
    for (index, (position, bytes)) in records.iter().enumerate() {
        assert_eq!(*position, index as u64 + 1);
        assert_eq!(*bytes, record(*position));
    }
    // It goes on from there.
    let next = records.len() as u64 + 1;
    assert_eq!(journal.append(&record(next))?, next);
    drop(journal);
    let again = FileJournal::open_with_segments(directory, 600)?;
    assert_eq!(again.records()?.len() as u64, next);
    Ok(records.len())
}

/// Every file of a directory.
fn contents(directory: &Path) -> Vec<(std::ffi::OsString, Vec<u8>)> {
    let read = |path: PathBuf| (path.file_name().unwrap().to_owned(), std::fs::read(path).unwrap());
    files(directory, "").into_iter().map(read).collect()
}

/// A journal whose mark has not reached the disk: it says nothing of what was synced.
fn journal_without_mark(records: u64, synced_each: u64) -> TempDir {
    let directory = tempdir().unwrap();
    journal_with(directory.path(), records, synced_each);
    std::fs::remove_file(directory.path().join("synced")).unwrap();
    directory
}

#[test]
fn what_was_synced_and_is_not_there_any_more_is_told_and_nothing_is_changed() {
    let original = tempdir().unwrap();
    journal_with(original.path(), 30, 7);
    let newest = files(original.path(), ".journal").pop().unwrap();
    let whole = std::fs::read(&newest).unwrap();
    let (mut told, mut cut) = (0, 0);
    for length in 24..=whole.len() {
        let copied = copy(original.path());
        std::fs::write(copied.path().join(newest.file_name().unwrap()), &whole[..length]).unwrap();
        match reopened(copied.path()) {
            Ok(count) => {
                assert!(count >= 28, "{count} records, and 28 had been synced");
                cut += 1;
            }
            Err(StoreError::Damaged { .. }) => {
                let there = contents(copied.path());
                std::fs::remove_file(copied.path().join("synced")).unwrap();
                // Whoever else knows of them is believed as the mark is.
                assert!(FileJournal::open_knowing(copied.path(), 28).is_err());
                let left = contents(copied.path());
                let kept = there.iter().filter(|(name, _)| name != "synced");
                assert!(kept.eq(left.iter()), "nothing is changed");
                let last = reopened(copied.path()).unwrap() as u64;
                let missing = salvage(copied.path()).unwrap().missing(28);
                assert!(last < 28 && missing.iter().all(|(from, _)| *from == last + 2));
                told += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(told > 0 && cut > 0, "{told} told, {cut} cut");
}

#[test]
fn a_journal_cut_anywhere_is_a_prefix_of_what_was_appended() {
    let original = journal_without_mark(30, 7);
    let newest = files(original.path(), ".journal").pop().unwrap();
    let whole = std::fs::read(&newest).unwrap();
    let mut last = 0;
    for length in 24..=whole.len() {
        let copied = copy(original.path());
        std::fs::write(copied.path().join(newest.file_name().unwrap()), &whole[..length]).unwrap();
        let count = reopened(copied.path()).unwrap();
        assert!(count >= last, "a longer file has no fewer records");
        last = count;
    }
    assert_eq!(last, 30);
}

#[test]
fn a_segment_whose_making_was_interrupted_costs_nothing() {
    let original = journal_without_mark(30, 7);
    let newest = files(original.path(), ".journal").pop().unwrap();
    let first = u64::from_str_radix(newest.file_stem().unwrap().to_str().unwrap(), 16).unwrap();
    for length in 0..=24 {
        for fill in [None, Some(0)] {
            let copied = copy(original.path());
            let path = copied.path().join(newest.file_name().unwrap());
            let mut bytes = std::fs::read(&path).unwrap();
            bytes.truncate(length);
            bytes.iter_mut().for_each(|byte| *byte = fill.unwrap_or(*byte));
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(reopened(copied.path()).unwrap() as u64, first - 1);
        }
    }
}

#[test]
fn a_flipped_bit_in_a_journal_is_told_or_ends_it() {
    let original = tempdir().unwrap();
    journal_with(original.path(), 30, 1);
    let segments = files(original.path(), ".journal");
    assert!(segments.len() > 2);
    for (index, segment) in segments.iter().enumerate() {
        let is_newest = index + 1 == segments.len();
        for offset in 0..std::fs::metadata(segment).unwrap().len() as usize {
            let copied = copy(original.path());
            let path = copied.path().join(segment.file_name().unwrap());
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[offset] ^= 0x10;
            std::fs::write(&path, bytes).unwrap();
            let salvaged = salvage(copied.path()).unwrap();
            assert!(salvaged.records.len() >= 29, "salvage loses one record at most");
            assert!(salvaged.records.iter().all(|(number, bytes)| *bytes == record(*number)));
            match reopened(copied.path()) {
                Ok(count) => assert!(is_newest && count == 29, "{count} at {offset} of {index}"),
                Err(StoreError::Damaged { place, .. }) => {
                    assert!(place.contains(path.to_str().unwrap()), "{place}");
                }
                Err(other) => panic!("{other}"),
            }
        }
    }
}

#[test]
fn what_a_power_cut_left_in_disorder_behind_the_last_sync_is_cut_off() {
    let original = tempdir().unwrap();
    {
        let journal = FileJournal::open(original.path()).unwrap();
        for number in 1..=10 {
            journal.append(&record(number)).unwrap();
        }
        journal.sync().unwrap();
        for number in 11..=20 {
            journal.append(&record(number)).unwrap();
        }
    }
    let path = files(original.path(), ".journal").pop().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let unsynced = bytes.windows(10).position(|window| window == b"record 12 ").unwrap();
    for offset in unsynced..bytes.len() {
        let copied = copy(original.path());
        let mut zeroed = bytes.clone();
        let end = zeroed.len().min(offset + 40);
        zeroed[offset..end].fill(0);
        std::fs::write(copied.path().join(path.file_name().unwrap()), zeroed).unwrap();
        let count = reopened(copied.path()).unwrap();
        assert!((11..20).contains(&count), "{count} records after zeros at {offset}");
    }
}

#[test]
fn a_missing_segment_is_told() {
    let original = tempdir().unwrap();
    journal_with(original.path(), 40, 7);
    let segments = files(original.path(), ".journal");
    assert!(segments.len() > 3);
    std::fs::remove_file(&segments[1]).unwrap();
    assert!(matches!(FileJournal::open(original.path()), Err(StoreError::Damaged { .. })));
}

#[test]
fn a_journal_that_is_emptied_or_gone_is_told_and_left_as_it_is() {
    for way in ["gone", "emptied", "garbage"] {
        let directory = tempdir().unwrap();
        journal_with(directory.path(), 3, 3);
        let segment = files(directory.path(), ".journal").remove(0);
        match way {
            "gone" => std::fs::remove_file(&segment).unwrap(),
            "emptied" => std::fs::write(&segment, b"").unwrap(),
            _ => std::fs::write(&segment, [7; 99]).unwrap(),
        }
        for mark in [true, false] {
            if !mark {
                std::fs::remove_file(directory.path().join("synced")).unwrap();
            }
            let there = contents(directory.path());
            let opened = FileJournal::open_knowing(directory.path(), if mark { 0 } else { 3 });
            assert!(matches!(opened, Err(StoreError::Damaged { .. })), "{way}");
            assert_eq!(contents(directory.path()), there, "{way}");
            let salvaged = salvage(directory.path()).unwrap();
            assert!(salvaged.records.is_empty() && !salvaged.is_there);
            assert_eq!(salvaged.missing(3), [(1, 3)], "{way}");
        }
    }
    let nowhere = tempdir().unwrap().path().join("log");
    assert!(FileJournal::open_knowing(&nowhere, 1).is_err());
    assert!(!nowhere.exists());
    assert!(salvage(&nowhere).unwrap().missing(0).is_empty());
}

#[test]
fn of_a_journal_that_is_whole_nothing_is_missing_also_when_its_beginning_was_retired() {
    let directory = tempdir().unwrap();
    journal_with(directory.path(), 40, 7);
    let missing = |known| salvage(directory.path()).unwrap().missing(known);
    assert!(salvage(directory.path()).unwrap().is_there);
    assert_eq!(missing(40), []);
    assert_eq!(missing(42), [(41, 42)]);
    FileJournal::open_with_segments(directory.path(), 600).unwrap().retire(30).unwrap();
    assert_eq!(missing(40), []);
    std::fs::remove_file(&files(directory.path(), ".journal")[1]).unwrap();
    assert_eq!(missing(40).len(), 1);
}

#[test]
fn a_segment_that_cannot_be_is_told_and_passed_over_by_salvage() {
    for first in [0, 1 << 63, u64::MAX] {
        let directory = tempdir().unwrap();
        journal_with(directory.path(), 3, 1);
        let name = format!("{first:016x}.journal");
        let real = files(directory.path(), ".journal").remove(0);
        std::fs::copy(real, directory.path().join(&name)).unwrap();
        let error = reopened(directory.path()).unwrap_err();
        assert!(error.to_string().contains(&name), "{error}");
        let salvaged = salvage(directory.path()).unwrap();
        assert_eq!(salvaged.records.len(), 3);
        assert_eq!(salvaged.damage.len(), 1);
    }
}

#[test]
fn a_store_in_use_is_busy_for_others() {
    let directory = tempdir().unwrap();
    let _journal = FileJournal::open(&directory.path().join("journal")).unwrap();
    let _packs = Packs::open(&directory.path().join("packs")).unwrap();
    let _tables = Database::open(&directory.path().join("tables")).unwrap();
    let busy = |outcome: Option<StoreError>| matches!(outcome, Some(StoreError::Busy(_)));
    assert!(busy(FileJournal::open(&directory.path().join("journal")).err()));
    assert!(busy(Packs::open(&directory.path().join("packs")).err()));
    assert!(busy(Database::open(&directory.path().join("tables")).err()));
}

const BLOBS: u8 = 40;

fn blob(number: u8) -> Vec<u8> {
    vec![number; 20 + usize::from(number) * 3]
}

fn packs_with_blobs(directory: &Path) {
    let packs = Packs::open_with_packs(directory, 1000).unwrap();
    for number in 0..BLOBS {
        packs.put(&[number], &blob(number)).unwrap();
    }
    packs.delete(&[3]).unwrap();
    packs.sync().unwrap();
}

/// Opens packs that were tampered with, and returns how many blobs are still there.
fn whole_blobs(directory: &Path) -> usize {
    let packs = Packs::open_with_packs(directory, 1000).unwrap();
    let mut whole = 0;
    for number in 0..BLOBS {
        match packs.get(&[number]).unwrap() {
            Some(bytes) => {
                assert_eq!(bytes, blob(number));
                whole += 1;
            }
            None => {
                // It can be put again.
                packs.put(&[number], &blob(number)).unwrap();
                assert_eq!(packs.get(&[number]).unwrap(), Some(blob(number)));
            }
        }
    }
    whole
}

#[test]
fn a_damaged_pack_costs_the_blob_that_is_damaged() {
    let original = tempdir().unwrap();
    packs_with_blobs(original.path());
    assert_eq!(whole_blobs(copy(original.path()).path()), usize::from(BLOBS) - 1);
    for keep_index in [true, false] {
        for pack in files(original.path(), ".pack") {
            let length = std::fs::metadata(&pack).unwrap().len() as usize;
            for offset in (0..length).step_by(7) {
                let copied = copy(original.path());
                let path = copied.path().join(pack.file_name().unwrap());
                let mut bytes = std::fs::read(&path).unwrap();
                bytes[offset] ^= 0x41;
                std::fs::write(&path, bytes).unwrap();
                if !keep_index {
                    std::fs::remove_file(copied.path().join("index.redb")).unwrap();
                }
                // With the deletion itself damaged, its blob may be there again.
                let whole = whole_blobs(copied.path());
                assert!((38..=40).contains(&whole), "{whole} blobs, byte {offset} of {pack:?}");
            }
        }
    }
}

#[test]
fn what_is_no_record_is_told_with_its_place() {
    let original = tempdir().unwrap();
    {
        let packs = Packs::open_with_packs(original.path(), 1000).unwrap();
        (0..BLOBS).for_each(|number| packs.put(&[number], &blob(number)).unwrap());
        assert_eq!(packs.damage().unwrap(), []);
    }
    let pack = files(original.path(), ".pack").remove(0);
    let length = std::fs::metadata(&pack).unwrap().len() as usize;
    for offset in (0..length).step_by(11) {
        let mut bytes = std::fs::read(&pack).unwrap();
        bytes[offset] ^= 0x41;
        let copied = copy(original.path());
        std::fs::write(copied.path().join(pack.file_name().unwrap()), bytes).unwrap();
        let packs = Packs::open_with_packs(copied.path(), 1000).unwrap();
        let found = packs.damage().unwrap();
        for damage in &found {
            let stretch = damage.offset..damage.offset + damage.bytes;
            assert!(stretch.contains(&(offset as u64)), "byte {offset}, and told is {damage:?}");
            assert!(damage.place.ends_with("00000001.pack"));
        }
        // Damage within a blob's bytes shows when the blob is read.
        let lost = (0..BLOBS).filter(|n| packs.get(&[*n]).unwrap().is_none()).count();
        assert!(found.len() + lost > 0, "byte {offset} is noticed");
        let kept = |packs: &Packs| -> Vec<u8> {
            (0..BLOBS).filter(|n| packs.get(&[*n]).unwrap() == Some(blob(*n))).collect()
        };
        let before = kept(&packs);
        packs.renew_damaged().unwrap();
        assert_eq!(packs.damage().unwrap(), [], "byte {offset}");
        assert_eq!(kept(&packs), before);
        drop(packs);
        let packs = Packs::open_with_packs(copied.path(), 1000).unwrap();
        assert_eq!((packs.damage().unwrap(), kept(&packs)), (vec![], before), "byte {offset}");
    }
}

#[test]
fn a_pack_cut_anywhere_keeps_the_blobs_before_the_cut() {
    let original = tempdir().unwrap();
    packs_with_blobs(original.path());
    let newest = files(original.path(), ".pack").pop().unwrap();
    let bytes = std::fs::read(&newest).unwrap();
    let mut last = 0;
    for length in (0..=bytes.len()).step_by(5) {
        let copied = copy(original.path());
        std::fs::write(copied.path().join(newest.file_name().unwrap()), &bytes[..length]).unwrap();
        let whole = whole_blobs(copied.path());
        // The deletion is the last record: without it the blob is back.
        assert!(whole + 1 >= last, "{whole} after {last}");
        last = whole;
        assert_eq!(whole_blobs(copied.path()), usize::from(BLOBS), "what was put again stays");
    }
}

#[test]
fn a_damaged_index_is_made_again() {
    let original = tempdir().unwrap();
    packs_with_blobs(original.path());
    let length = std::fs::metadata(original.path().join("index.redb")).unwrap().len() as usize;
    for offset in (0..length).step_by(length / 300) {
        let copied = copy(original.path());
        let path = copied.path().join("index.redb");
        let mut bytes = std::fs::read(&path).unwrap();
        let end = length.min(offset + 500);
        bytes[offset..end].iter_mut().for_each(|byte| *byte ^= 0xa5);
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(whole_blobs(copied.path()), usize::from(BLOBS) - 1, "at {offset}");
    }
    let copied = copy(original.path());
    std::fs::write(copied.path().join("index.redb"), b"not a database").unwrap();
    assert_eq!(whole_blobs(copied.path()), usize::from(BLOBS) - 1);
}

/// Changes rows of the index behind the store's back.
fn with_index(directory: &Path, change: impl FnOnce(&mut dyn Write)) {
    let database = Database::open(&directory.join("index.redb")).unwrap();
    let mut write = database.write().unwrap();
    change(&mut *write);
    write.commit(Durability::Now).unwrap();
}

fn rows(write: &dyn Write, table: &'static str) -> Vec<Row> {
    write.scan(table, &[], &[0xff; 65], 99).unwrap()
}

/// A way in which a row of the index can be wrong and read all the same.
type Wrong = (&'static str, fn(&mut dyn Write));

/// Every way, of every kind of row.
const WRONG: [Wrong; 14] = [
    ("a blob's row is lost", |write| write.delete("blobs", &[7]).unwrap()),
    ("all blobs' rows are lost", |write| {
        rows(write, "blobs").iter().for_each(|row| write.delete("blobs", &row.0).unwrap());
    }),
    ("a row leads to nobody's blob", |write| {
        let another = rows(write, "blobs").remove(0).1;
        write.put("blobs", b"nobody's", &another).unwrap();
    }),
    ("two rows have changed places", |write| {
        let [one, other] = [[7], [8]].map(|name| write.get("blobs", &name).unwrap().unwrap());
        write.put("blobs", &[7], &other).unwrap();
        write.put("blobs", &[8], &one).unwrap();
    }),
    ("a row leads to another pack", |write| flip(write, "blobs", &[7], 0)),
    ("a row leads to another offset", |write| flip(write, "blobs", &[7], 4)),
    ("a row has another length", |write| flip(write, "blobs", &[7], 12)),
    ("a row is too short", |write| write.put("blobs", &[7], &[1, 2, 3]).unwrap()),
    ("less of a pack is indexed than is", |write| flip(write, "packs", &[0, 0, 0, 1], 0)),
    ("a pack that is alive may go", |write| flip(write, "packs", &[0, 0, 0, 1], 16)),
    ("less of a pack is dead than is", |write| flip(write, "packs", &[0, 0, 0, 1], 8)),
    ("a pack's row is lost", |write| write.delete("packs", &[0, 0, 0, 1]).unwrap()),
    ("there is a pack too many", |write| {
        let state = write.get("packs", &[0, 0, 0, 1]).unwrap().unwrap();
        write.put("packs", &[0, 0, 0, 99], &state).unwrap();
    }),
    ("a row is of the time before rows were added up", |write| {
        let state = write.get("packs", &[0, 0, 0, 1]).unwrap().unwrap();
        write.put("packs", &[0, 0, 0, 1], &state[..17]).unwrap();
    }),
];

fn flip(write: &mut dyn Write, table: &'static str, key: &[u8], at: usize) {
    let mut value = write.get(table, key).unwrap().unwrap();
    value[at] ^= 1;
    write.put(table, key, &value).unwrap();
}

#[test]
fn a_wrong_row_of_the_index_of_whatever_kind_costs_time_alone() {
    let original = tempdir().unwrap();
    packs_with_blobs(original.path());
    for (how, wrong) in WRONG {
        let copied = copy(original.path());
        with_index(copied.path(), wrong);
        let packs = Packs::open_with_packs(copied.path(), 1000).unwrap();
        assert!(!packs.has(b"nobody's").unwrap(), "{how}");
        while packs.reclaim(1).unwrap().is_some() {}
        drop(packs);
        assert_eq!(whole_blobs(copied.path()), usize::from(BLOBS) - 1, "{how}");
    }
}

#[test]
fn an_index_that_counts_too_much_as_dead_is_made_again() {
    let directory = tempdir().unwrap();
    packs_with_blobs(directory.path());
    with_index(directory.path(), |write| {
        for (key, mut state) in rows(write, "packs") {
            state[8..16].fill(0xff);
            write.put("packs", &key, &state).unwrap();
        }
    });
    let packs = Packs::open_with_packs(directory.path(), 1000).unwrap();
    assert!(packs.bytes() > 0, "what is alive counts");
    packs.delete(&[5]).unwrap();
    while packs.reclaim(50).unwrap().is_some() {}
    drop(packs);
    assert_eq!(whole_blobs(directory.path()), usize::from(BLOBS) - 2);
}

#[test]
fn the_highest_number_of_a_pack_leaves_none_for_the_next_and_is_told() {
    let directory = tempdir().unwrap();
    let name = "ffffffff.pack";
    std::fs::write(directory.path().join(name), []).unwrap();
    let packs = Packs::open_with_packs(directory.path(), 1000).unwrap();
    let refused = (0..BLOBS).find_map(|number| packs.put(&[number], &blob(number)).err());
    assert!(refused.unwrap().to_string().contains(name));
}

#[test]
fn a_killed_process_loses_no_blob_whatever_the_index_missed() {
    let original = tempdir().unwrap();
    let packs = Packs::open_with_packs(original.path(), 5000).unwrap();
    for number in 0..BLOBS {
        packs.put(&[number], &blob(number)).unwrap();
        // What is in the files now is what a kill would leave.
        let copied = copy(original.path());
        let after = Packs::open_with_packs(copied.path(), 5000).unwrap();
        for earlier in 0..=number {
            assert_eq!(after.get(&[earlier]).unwrap(), Some(blob(earlier)));
        }
    }
    packs.delete(&[1]).unwrap();
    let copied = copy(original.path());
    assert!(!Packs::open_with_packs(copied.path(), 5000).unwrap().has(&[1]).unwrap());
}

fn value(number: u32) -> Vec<u8> {
    number.to_be_bytes().repeat(1 + number as usize % 60)
}

const ROWS: u32 = 300;

fn tables_with_rows(path: &Path) {
    let tables = Database::open(path).unwrap();
    for batch in 0..ROWS / 50 {
        let mut write = tables.write().unwrap();
        for number in batch * 50..(batch + 1) * 50 {
            write.put("rows", &number.to_be_bytes(), &value(number)).unwrap();
        }
        write.commit(Durability::Now).unwrap();
    }
}

/// Reads and writes tables that were tampered with: rows that come back are as they were put.
fn use_tables(path: &Path) -> Result<usize, StoreError> {
    let tables = Database::open(path)?;
    let rows = tables.read()?.scan("rows", &[], &[0xff; 5], usize::MAX)?;
    for (key, bytes) in &rows {
        let number = u32::from_be_bytes(key.as_slice().try_into().unwrap());
        assert_eq!(*bytes, value(number));
    }
    for number in 0..ROWS {
        if let Some(bytes) = tables.read()?.get("rows", &number.to_be_bytes())? {
            assert_eq!(bytes, value(number));
        }
    }
    let mut write = tables.write()?;
    write.put("rows", &0_u32.to_be_bytes(), &value(0))?;
    write.delete("rows", &1_u32.to_be_bytes())?;
    write.put("more", b"key", b"value")?;
    write.commit(Durability::Now)?;
    Ok(rows.len())
}

#[test]
fn damaged_tables_give_an_error_or_what_was_written() {
    let original = tempdir().unwrap();
    let path = original.path().join("tables");
    tables_with_rows(&path);
    let whole = std::fs::read(&path).unwrap();
    let used = whole.iter().rposition(|byte| *byte != 0).unwrap();
    let (mut told, mut fine) = (0, 0);
    let damaged = original.path().join("damaged");
    for offset in (0..used).step_by(SPARSE_STEP) {
        let mut bytes = whole.clone();
        bytes[offset] ^= 0x24;
        std::fs::write(&damaged, bytes).unwrap();
        match use_tables(&damaged) {
            Ok(_) => fine += 1,
            Err(StoreError::Damaged { place, .. }) => {
                assert!(place.contains("damaged"));
                told += 1;
            }
            Err(StoreError::Database { .. } | StoreError::Io { .. }) => told += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert!(told > 0 && fine > 0, "{told} told, {fine} fine");
}

#[test]
fn tables_that_were_cut_short_give_an_error_or_what_was_written() {
    let original = tempdir().unwrap();
    let path = original.path().join("tables");
    tables_with_rows(&path);
    let whole = std::fs::read(&path).unwrap();
    let cut = original.path().join("cut");
    for length in (1..whole.len()).step_by(whole.len() / 150) {
        std::fs::write(&cut, &whole[..length]).unwrap();
        if let Ok(rows) = use_tables(&cut) {
            assert_eq!(rows, ROWS as usize, "cut at {length}");
        }
    }
}

#[test]
fn a_killed_process_keeps_durable_commits_and_loses_later_ones_whole() {
    let original = tempdir().unwrap();
    let path = original.path().join("tables");
    let tables = Database::open(&path).unwrap();
    let commit = |key: &[u8], durability| {
        let mut write = tables.write().unwrap();
        write.put("rows", key, b"a").unwrap();
        write.put("rows", &[key, b"2"].concat(), b"b").unwrap();
        write.commit(durability).unwrap();
    };
    let left = || {
        let copied = copy(original.path());
        let tables = Database::open(&copied.path().join("tables")).unwrap();
        let rows = tables.read().unwrap().scan("rows", b"", b"\xff", 100).unwrap();
        rows.into_iter().map(|(key, _)| String::from_utf8(key).unwrap()).collect::<Vec<_>>()
    };
    commit(b"now", Durability::Now);
    commit(b"later", Durability::Later);
    assert_eq!(left(), ["now", "now2"]);
    commit(b"then", Durability::Now);
    assert_eq!(left(), ["later", "later2", "now", "now2", "then", "then2"]);
}

#[test]
fn what_is_no_database_is_said_to_be_none() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("tables");
    std::fs::write(&path, "a text that somebody put there".repeat(1000)).unwrap();
    let error = Database::open(&path).err().expect("it is no database").to_string();
    assert!(error.contains(path.to_str().unwrap()), "{error}");
    assert!(Database::open(directory.path()).is_err(), "a directory is none either");
}

#[test]
fn a_check_reads_every_row() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("tables");
    tables_with_rows(&path);
    assert!(Database::check(&path).unwrap());
    let mut bytes = std::fs::read(&path).unwrap();
    let row = bytes.windows(8).position(|window| window == [0, 0, 0, 77, 0, 0, 0, 77]).unwrap();
    bytes[row + 8] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert!(!matches!(Database::check(&path), Ok(true)));
}

#[test]
fn a_panic_that_damage_makes_is_known_as_the_stores_own() {
    static GUARDED: AtomicUsize = AtomicUsize::new(0);
    static OTHERS: AtomicUsize = AtomicUsize::new(0);
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if matches!(Panicked::of(panic), Panicked::Caught) {
            GUARDED.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let place = panic.location().map_or("", |location| location.file());
        OTHERS.fetch_add(usize::from(place.contains("redb")), Ordering::Relaxed);
        before(panic);
    }));
    let original = tempdir().unwrap();
    let path = original.path().join("tables");
    tables_with_rows(&path);
    let whole = std::fs::read(&path).unwrap();
    let used = whole.iter().rposition(|byte| *byte != 0).unwrap();
    let damaged = original.path().join("damaged");
    for shift in 0..40 {
        let mut bytes = whole.clone();
        (4096 + shift..used).step_by(61).for_each(|offset| bytes[offset] ^= 0x24);
        std::fs::write(&damaged, bytes).unwrap();
        assert!(use_tables(&damaged).is_err());
    }
    assert!(GUARDED.load(Ordering::Relaxed) > 0, "the damage is of a kind that makes panics");
    assert_eq!(OTHERS.load(Ordering::Relaxed), 0);
}

#[test]
fn a_damaged_row_is_named_with_what_to_do() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("tables");
    tables_with_rows(&path);
    let mut bytes = std::fs::read(&path).unwrap();
    let row = bytes.windows(8).position(|window| window == [0, 0, 0, 77, 0, 0, 0, 77]).unwrap();
    bytes[row + 8] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let words = Words {
        advice: "ask Ada".into(),
        describe: |table, key| (table == "rows").then(|| format!("number {}", key[3])),
        ..Words::default()
    };
    let tables = Database::open_as(&path, Settings { words, ..Settings::default() }).unwrap();
    let said = tables.read().unwrap().get("rows", &[0, 0, 0, 77]).unwrap_err().to_string();
    let what = "row 0000004d of table rows (number 77) is not what was written; ask Ada";
    assert_eq!(said, format!("{} is damaged: {what}", path.display()));
}

#[test]
fn contents_of_packs_that_are_gone_or_short_are_told_of_until_the_index_is_forgotten() {
    let original = tempdir().unwrap();
    {
        let packs = Packs::open_with_packs(original.path(), 1000).unwrap();
        (0..BLOBS).for_each(|number| packs.put(&[number], &blob(number)).unwrap());
    }
    let packs = files(original.path(), ".pack");
    let lost = |directory: &Path| Packs::open_with_packs(directory, 1000).unwrap().lost().unwrap();
    assert_eq!(lost(original.path()), None);
    for pack in [packs.first().unwrap(), packs.last().unwrap()] {
        for emptied in [true, false] {
            let copied = copy(original.path());
            let path = copied.path().join(pack.file_name().unwrap());
            if emptied {
                std::fs::write(&path, []).unwrap();
            } else {
                std::fs::remove_file(&path).unwrap();
            }
            let said = lost(copied.path()).expect("it is told of");
            let missing = usize::from(BLOBS) - whole_blobs(copied.path());
            assert!(missing > 0 && said.starts_with(&format!("{missing} chunks of ")), "{said}");
            assert!(said.ends_with(pack.file_name().unwrap().to_str().unwrap()), "{said}");
            assert_eq!(lost(copied.path()), Some(said), "the next one is told, too");
            Packs::forget_index(copied.path()).unwrap();
            assert_eq!(lost(copied.path()), None);
        }
    }
    // What nobody knew of is not lost: a pack that is longer than the index says, or torn behind.
    let copied = copy(original.path());
    let newest = copied.path().join(packs.last().unwrap().file_name().unwrap());
    let mut bytes = std::fs::read(&newest).unwrap();
    bytes.extend([1, 2, 3]);
    std::fs::write(&newest, bytes).unwrap();
    assert_eq!(lost(copied.path()), None);
}
