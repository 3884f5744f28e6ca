#![no_main]
//! Segments of a journal, opened after whatever happened to them. Their checksums mostly fit, so
//! that the input reaches what lies behind the checksums. Layout: docs/FORMATS.md, "Journal".

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use std::path::Path;
use store::Journal;
use store::journal::{FileJournal, salvage};

/// No journal gets as far, and one that does may not open again.
const POSITION_MAX: u64 = 1 << 61;

#[derive(Arbitrary, Debug)]
struct Segment {
    /// In the name of the file.
    named: u64,
    head: Head,
    parts: Vec<Part>,
    /// Bytes that a crash took from the end.
    torn: u8,
}

#[derive(Arbitrary, Debug)]
enum Head {
    AsNamed,
    Other { format: u16, first: u64 },
    Bytes(Vec<u8>),
}

#[derive(Arbitrary, Debug)]
enum Part {
    Next { record: Vec<u8>, behind: u8 },
    Any { format: u16, position: u64, synced: u64, record: Vec<u8> },
    Bytes(Vec<u8>),
}

impl Segment {
    fn bytes(&self, first: u64) -> Vec<u8> {
        let mut bytes = match &self.head {
            Head::AsNamed => header(1, first),
            Head::Other { format, first } => header(*format, *first),
            Head::Bytes(bytes) => bytes.clone(),
        };
        let mut next = first;
        for part in &self.parts {
            match part {
                Part::Next { record, behind } => {
                    let synced = next.saturating_sub(1 + u64::from(*behind));
                    bytes.extend(sealed(1, next, synced, record));
                    next = next.wrapping_add(1);
                }
                Part::Any { format, position, synced, record } => {
                    bytes.extend(sealed(*format, *position, *synced, record));
                }
                Part::Bytes(some) => bytes.extend(some),
            }
        }
        bytes.truncate(bytes.len().saturating_sub(usize::from(self.torn)));
        bytes
    }

    /// The position that follows the parts that count on.
    fn next(&self, first: u64) -> u64 {
        let records = self.parts.iter().filter(|part| matches!(part, Part::Next { .. }));
        first.wrapping_add(records.count() as u64)
    }
}

fn header(format: u16, first: u64) -> Vec<u8> {
    let mut header = b"FarFSjnl".to_vec();
    header.extend(format.to_le_bytes());
    header.extend([0; 2]);
    header.extend(first.to_le_bytes());
    header.extend(crc32c::crc32c(&header).to_le_bytes());
    header
}

fn sealed(format: u16, position: u64, synced: u64, record: &[u8]) -> Vec<u8> {
    let mut rest = (record.len() as u32).to_le_bytes().to_vec();
    rest.extend(format.to_le_bytes());
    rest.extend([0; 2]);
    rest.extend(position.to_le_bytes());
    rest.extend(synced.to_le_bytes());
    rest.extend(record);
    [&crc32c::crc32c(&rest).to_le_bytes(), rest.as_slice()].concat()
}

/// What is opened takes another record, and has all of them when it is opened again.
fn use_it(directory: &Path) {
    let Ok(journal) = FileJournal::open_with_segments(directory, 600) else { return };
    let mut records = journal.records().expect("what opened is whole");
    if let Ok(position) = journal.append(b"one more") {
        journal.sync().expect("there is room");
        records.push((position, b"one more".to_vec()));
    }
    drop(journal);
    if records.last().is_some_and(|(position, _)| *position > POSITION_MAX) {
        return;
    }
    let journal = FileJournal::open_with_segments(directory, 600).expect("it opened before");
    assert_eq!(journal.records().expect("what opened is whole"), records);
    journal.retire(u64::MAX).expect("segments can be removed");
}

libfuzzer_sys::fuzz_target!(|segments: Vec<Segment>| {
    let directory = fuzz::scratch();
    let mut next = 1;
    for segment in segments.iter().take(4) {
        // Zero stands for the segment that belongs here.
        let first = if segment.named == 0 { next } else { segment.named - 1 };
        next = segment.next(first);
        let path = directory.path().join(format!("{first:016x}.journal"));
        std::fs::write(path, segment.bytes(first)).expect("there is room for small files");
    }
    let salvaged = salvage(directory.path()).expect("salvage passes over every damage");
    assert!(salvaged.records.len() <= segments.iter().map(|s| s.parts.len()).sum::<usize>() + 99);
    use_it(directory.path());
});
