#![no_main]
//! Packs and rows of their index, opened after whatever happened to them. Checksums mostly fit, so
//! that the input reaches what lies behind them. Layout: docs/FORMATS.md, "Packs".

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use std::path::Path;
use store::embedded::Database;
use store::packs::Packs;
use store::{Blobs, Durability, Tables};

const PACK_BYTES: u64 = 400;

#[derive(Arbitrary, Debug)]
struct Input {
    packs: Vec<Pack>,
    /// None: there is no index.
    index: Option<Rows>,
}

#[derive(Arbitrary, Debug)]
struct Pack {
    /// In the name of the file; zero stands for the pack that belongs here.
    named: u32,
    /// Damaged, if it is there.
    head: Option<Vec<u8>>,
    parts: Vec<Part>,
    /// Bytes that a crash took from the end.
    torn: u8,
}

#[derive(Arbitrary, Debug)]
enum Part {
    Record {
        kind: u8,
        name: Name,
        bytes: Vec<u8>,
    },
    /// Says another length than its own.
    Lying {
        name: Name,
        length: u32,
        bytes: Vec<u8>,
    },
    Bytes(Vec<u8>),
}

/// A few names, so that records meet, and any other.
#[derive(Arbitrary, Debug)]
enum Name {
    Few(u8),
    Any(Vec<u8>),
}

#[derive(Arbitrary, Debug)]
struct Rows {
    places: Vec<(Name, u32, u64, u32)>,
    states: Vec<(u32, u64, u64, bool)>,
    other: Vec<(bool, Vec<u8>, Vec<u8>)>,
}

impl Name {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Name::Few(number) => vec![number % 4],
            Name::Any(bytes) => bytes.clone(),
        }
    }
}

impl Pack {
    fn bytes(&self, number: u32) -> Vec<u8> {
        let mut bytes = self.head.clone().unwrap_or_else(header);
        for part in &self.parts {
            let offset = bytes.len() as u64;
            match part {
                Part::Record { kind, name, bytes: blob } => {
                    let length = blob.len() as u32;
                    let name = name.bytes();
                    bytes.extend(record((number, offset), 1 + kind % 2, &name, length, blob));
                }
                Part::Lying { name, length, bytes: blob } => {
                    bytes.extend(record((number, offset), 1, &name.bytes(), *length, blob));
                }
                Part::Bytes(some) => bytes.extend(some),
            }
        }
        bytes.truncate(bytes.len().saturating_sub(usize::from(self.torn)));
        bytes
    }
}

fn header() -> Vec<u8> {
    let mut header = b"FarFSpak\x01\0\0\0".to_vec();
    header.extend(crc32c::crc32c(&header).to_le_bytes());
    header
}

fn record(at: (u32, u64), kind: u8, name: &[u8], length: u32, blob: &[u8]) -> Vec<u8> {
    let mut record = b"FPk1".to_vec();
    record.extend([kind, name.len() as u8, 0, 0]);
    record.extend(length.to_le_bytes());
    record.extend(crc32c::crc32c(blob).to_le_bytes());
    let sealed = [&at.0.to_le_bytes()[..], &at.1.to_le_bytes(), &record, name].concat();
    record.extend(crc32c::crc32c(&sealed).to_le_bytes());
    [&record, name, blob].concat()
}

fn write_index(directory: &Path, rows: &Rows) -> store::Result<()> {
    let database = Database::open_with_cache(&directory.join("index.redb"), 1 << 20)?;
    let mut write = database.write()?;
    for (name, pack, offset, length) in rows.places.iter().take(16) {
        let row = [&pack.to_le_bytes()[..], &offset.to_le_bytes(), &length.to_le_bytes()].concat();
        write.put("blobs", &name.bytes(), &row)?;
    }
    for (pack, upto, dead, retired) in rows.states.iter().take(16) {
        let row = [&upto.to_le_bytes()[..], &dead.to_le_bytes(), &[u8::from(*retired)]].concat();
        write.put("packs", &pack.to_be_bytes(), &row)?;
    }
    for (of_blobs, key, value) in rows.other.iter().take(16) {
        write.put(if *of_blobs { "blobs" } else { "packs" }, key, value)?;
    }
    write.commit(Durability::Later)
}

/// A blob is there as it was put, or not at all; and another can be put.
fn use_it(directory: &Path) -> store::Result<()> {
    let packs = Packs::open_with_packs(directory, PACK_BYTES)?;
    for name in 0..4 {
        packs.has(&[name])?;
        packs.get(&[name])?;
    }
    packs.bytes();
    // A row for a blob that is not there is found out by `get` alone.
    packs.get(b"another")?;
    packs.put(b"another", b"blob")?;
    packs.delete(&[0])?;
    while packs.reclaim(1)?.is_some() {}
    assert_eq!(packs.get(b"another")?.as_deref(), Some(&b"blob"[..]));
    assert_eq!(packs.get(&[0])?, None);
    packs.sync()?;
    drop(packs);
    let packs = Packs::open_with_packs(directory, PACK_BYTES).expect("it opened before");
    assert_eq!(packs.get(b"another")?.as_deref(), Some(&b"blob"[..]));
    Ok(())
}

libfuzzer_sys::fuzz_target!(|input: Input| {
    let directory = fuzz::scratch();
    let mut next = 1_u32;
    for pack in input.packs.iter().take(4) {
        let number = if pack.named == 0 { next } else { pack.named - 1 };
        next = number.wrapping_add(1);
        let path = directory.path().join(format!("{number:08x}.pack"));
        std::fs::write(path, pack.bytes(number)).expect("there is room for small files");
    }
    if let Some(rows) = &input.index {
        // The tables refuse some keys; without those rows the index is as good.
        let _ = write_index(directory.path(), rows);
    }
    let _ = use_it(directory.path());
});
