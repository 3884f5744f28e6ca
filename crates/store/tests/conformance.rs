//! Every back end passes the same tests.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use store::container::DirectoryContainers;
use store::embedded::{Database, Settings};
use store::faulty::Disk;
use store::journal::FileJournal;
use store::memory::{MemoryBlobs, MemoryContainers, MemoryJournal, MemoryTables};
use store::packs::Packs;
use store::{Journal, Result, conformance};
use tempfile::tempdir;

#[test]
fn tables_in_a_file_conform() -> Result<()> {
    let directory = tempdir().unwrap();
    conformance::tables(|| Database::open(&directory.path().join("tables")).unwrap())
}

#[test]
fn tables_whose_transactions_are_held_by_the_file_conform() -> Result<()> {
    let directory = tempdir().unwrap();
    let settings = Settings { held_bytes_max: 10, ..Settings::default() };
    let path = directory.path().join("tables");
    conformance::tables(|| Database::open_as(&path, settings.clone()).unwrap())
}

#[test]
fn tables_in_memory_conform() -> Result<()> {
    let tables = MemoryTables::new();
    conformance::tables(|| tables.clone())
}

#[test]
fn tables_on_a_faulty_disk_conform() -> Result<()> {
    let disk = Disk::new(1);
    conformance::tables(|| disk.tables("tables"))
}

#[test]
fn packs_conform_whatever_their_size() -> Result<()> {
    for pack_bytes in [100, 10_000, store::packs::PACK_BYTES] {
        let directory = tempdir().unwrap();
        conformance::blobs(|| Packs::open_with_packs(directory.path(), pack_bytes).unwrap())?;
    }
    Ok(())
}

#[test]
fn blobs_in_memory_conform() -> Result<()> {
    let blobs = MemoryBlobs::new();
    conformance::blobs(|| blobs.clone())
}

#[test]
fn blobs_on_a_faulty_disk_conform() -> Result<()> {
    let disk = Disk::new(1);
    conformance::blobs(|| disk.blobs("blobs"))
}

#[test]
fn a_journal_is_read_in_steps_of_any_size_and_none_is_left_out() -> Result<()> {
    let directory = tempdir().unwrap();
    let journal = FileJournal::open_with_segments(directory.path(), 70_000)?;
    // Some longer than what is read at once.
    let record = |number: u64| vec![number as u8; if number % 500 == 7 { 40_000 } else { 30 }];
    for number in 1..=4000 {
        assert_eq!(journal.append(&record(number))?, number);
    }
    for bytes_max in [0, 31, 1000, 20_000, 65_000, usize::MAX] {
        let mut from = if bytes_max < 1000 { 3900 } else { 1 };
        while from <= 4000 {
            let read = journal.read(from, bytes_max)?;
            assert!(!read.is_empty(), "{from} by {bytes_max}");
            for (position, bytes) in read {
                assert_eq!((position, &bytes), (from, &record(from)), "by {bytes_max}");
                from += 1;
            }
        }
    }
    assert_eq!(journal.read(4001, 1000)?, []);
    Ok(())
}

#[test]
fn journals_in_files_conform_whatever_their_segments() -> Result<()> {
    for segment_bytes in [1, 300, store::journal::SEGMENT_BYTES] {
        let directory = tempdir().unwrap();
        conformance::journal(|| {
            FileJournal::open_with_segments(directory.path(), segment_bytes).unwrap()
        })?;
    }
    Ok(())
}

#[test]
fn journals_in_memory_conform() -> Result<()> {
    let journal = MemoryJournal::new();
    conformance::journal(|| journal.clone())
}

#[test]
fn journals_on_a_faulty_disk_conform() -> Result<()> {
    let disk = Disk::new(1);
    conformance::journal(|| disk.journal("journal"))
}

#[test]
fn containers_in_a_directory_conform() -> Result<()> {
    let directory = tempdir().unwrap();
    conformance::containers(|| DirectoryContainers::open(directory.path()).unwrap())
}

#[test]
fn containers_in_memory_conform() -> Result<()> {
    let containers = MemoryContainers::new();
    conformance::containers(|| containers.clone())
}

#[test]
fn containers_on_a_faulty_disk_conform() -> Result<()> {
    let disk = Disk::new(1);
    conformance::containers(|| disk.containers("containers"))
}
