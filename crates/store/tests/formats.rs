//! Files of every format that was ever released still read, and what is written today is byte
//! for byte what docs/FORMATS.md says.
//! After a deliberate change of a format: `UPDATE_FORMATS=1 cargo test -p store --test formats`
//! writes the file of the present format anew; those of older formats stay.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]
#![allow(clippy::disallowed_methods, reason = "compares the store's files with kept ones")]

use std::path::{Path, PathBuf};
use store::embedded::Database;
use store::journal::FileJournal;
use store::packs::Packs;
use store::{Blobs, Durability, Journal, Tables};
use tempfile::tempdir;

fn kept(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats").join(name)
}

/// What is written today against what was kept.
fn check_written(written: &Path, name: &str) {
    let bytes = std::fs::read(written).unwrap();
    if std::env::var_os("UPDATE_FORMATS").is_some() {
        std::fs::write(kept(name), &bytes).unwrap();
    }
    assert_eq!(bytes, std::fs::read(kept(name)).unwrap(), "{name} is written differently");
}

const SEGMENT: &str = "0000000000000001.journal";
const PACK: &str = "00000001.pack";

#[test]
fn the_journal_of_format_1_is_read_and_written() {
    let directory = tempdir().unwrap();
    let records: [&[u8]; 3] = [b"first", b"", b"third, appended after a sync"];
    {
        let journal = FileJournal::open(directory.path()).unwrap();
        journal.append(records[0]).unwrap();
        journal.append(records[1]).unwrap();
        journal.sync().unwrap();
        journal.append(records[2]).unwrap();
    }
    check_written(&directory.path().join(SEGMENT), "journal-1");
    let again = tempdir().unwrap();
    std::fs::copy(kept("journal-1"), again.path().join(SEGMENT)).unwrap();
    let read = FileJournal::open(again.path()).unwrap().records().unwrap();
    assert_eq!(read, [1, 2, 3].map(|n| (n, records[n as usize - 1].to_vec())));
}

#[test]
fn the_pack_of_format_1_is_read_and_written() {
    let directory = tempdir().unwrap();
    {
        let packs = Packs::open(directory.path()).unwrap();
        packs.put(b"name", b"bytes").unwrap();
        packs.put(&[0xab; 32], b"").unwrap();
        packs.put(b"gone", b"bytes that were deleted").unwrap();
        packs.delete(b"gone").unwrap();
    }
    check_written(&directory.path().join(PACK), "pack-1");
    let again = tempdir().unwrap();
    std::fs::copy(kept("pack-1"), again.path().join(PACK)).unwrap();
    let packs = Packs::open(again.path()).unwrap();
    assert_eq!(packs.get(b"name").unwrap(), Some(b"bytes".to_vec()));
    assert_eq!(packs.get(&[0xab; 32]).unwrap(), Some(Vec::new()));
    assert_eq!(packs.get(b"gone").unwrap(), None);
}

/// The pages are redb's affair; a row's checksum is ours.
#[test]
fn a_row_is_its_value_and_a_checksum() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("tables");
    {
        let tables = Database::open(&path).unwrap();
        let mut write = tables.write().unwrap();
        write.put("rows", b"123", b"456789").unwrap();
        write.commit(Durability::Now).unwrap();
    }
    let database = redb::Database::open(&path).unwrap();
    let read = redb::ReadableDatabase::begin_read(&database).unwrap();
    let definition = redb::TableDefinition::<&[u8], &[u8]>::new("rows");
    let row = read.open_table(definition).unwrap().get(&b"123"[..]).unwrap().unwrap();
    // The check value of CRC-32C over "123456789", which every description of it gives.
    assert_eq!(row.value(), [b"456789", &0xe306_9283_u32.to_le_bytes()[..]].concat());
}
