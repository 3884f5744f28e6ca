//! The log of a database: commits that are durable and not yet in redb's pages. One record is
//! one append and one sync, where redb writes every page on the way to each row.
//! Layout: docs/FORMATS.md, "Tables".

use super::base::{Base, Place};
use super::errors::damaged_file;
use super::young::Put;
use crate::error::{Result, StoreError};
use crate::files;
use crate::journal::{AsItIs, FileJournal, Journal, Position, is_of_newer, salvage};
use crate::overlay::unmended;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// A commit that is longer goes to redb at once.
pub const RECORD_BYTES_MAX: u64 = 256 << 10;

const FORMAT: u8 = 1;

/// The length that stands for a deletion.
const DELETED: u32 = u32::MAX;

/// Where redb notes how much of the log it has. While the row is there, so must be the log.
pub const TABLE: &str = "store-log";
pub const APPLIED: &[u8] = b"applied";

/// In the same table, the number of the last flush.
pub const FLUSHED: &[u8] = b"flushed";

/// In the same table, while the log is being given up: the number under which it is put aside.
pub const GIVING_UP: &[u8] = b"giving-up";

pub struct Log {
    directory: PathBuf,
    journal: FileJournal,
    /// A sync has failed: no later one would be worth anything.
    spoilt: AtomicBool,
}

/// What a journal says one can do about it, one cannot do about this one.
fn without_advice(error: StoreError) -> StoreError {
    match error {
        StoreError::Damaged { place, what } => {
            let what = what.split(';').next().unwrap_or_default().to_owned();
            StoreError::Damaged { place, what }
        }
        other => other,
    }
}

/// Of a log that is needed.
fn explained(directory: &Path, error: StoreError) -> StoreError {
    match error {
        StoreError::Damaged { .. } if is_of_newer(directory) => newer(directory),
        error => without_advice(error),
    }
}

fn newer(directory: &Path) -> StoreError {
    StoreError::Database {
        place: directory.display().to_string(),
        what: "it was written by a newer farfs; use that version".to_owned(),
    }
}

/// One row of a record.
pub type Logged = (String, Vec<u8>, Put);

impl Log {
    /// `applied` is the last record that redb has; None: it was closed in order, and has all.
    pub fn open(directory: &Path, applied: Option<Position>) -> Result<Log> {
        if applied.is_some() {
            is_there(directory)?;
        }
        let journal = match FileJournal::open(directory) {
            Err(error @ StoreError::Damaged { .. }) if applied.is_none() => {
                tracing::warn!(
                    error = %without_advice(error),
                    "the log of the tables is damaged; they have all that was in it: it is made \
                     anew, nothing is lost, and nothing is to be done"
                );
                std::fs::remove_dir_all(directory).map_err(|e| files::failed(directory, e))?;
                FileJournal::open(directory)
            }
            opened => opened,
        };
        let journal = journal.map_err(|error| explained(directory, error))?;
        let spoilt = AtomicBool::new(false);
        Ok(Log { directory: directory.to_path_buf(), journal, spoilt })
    }

    /// The commits behind `applied`, in their order.
    pub fn commits(&self, applied: Position) -> Result<Vec<Vec<Logged>>> {
        let records = self.journal.records();
        let records = records.map_err(|error| explained(&self.directory, error))?;
        commits(&self.directory, records, applied, self.last())
    }

    /// The last position that was given.
    pub fn last(&self) -> Position {
        self.journal.next() - 1
    }

    /// Durable when it returns. An error leaves it open whether it is.
    pub fn append(&self, record: &[u8]) -> Result<()> {
        self.journal.append(record)?;
        self.journal.sync().inspect_err(|_| self.spoilt.store(true, Ordering::Release))
    }

    /// From now on no sync succeeds.
    #[cfg(test)]
    pub fn fail_syncs(&self) {
        self.journal.fail_syncs();
    }

    pub fn is_spoilt(&self) -> bool {
        self.spoilt.load(Ordering::Acquire)
    }

    pub fn put_anew(&self) -> u64 {
        self.journal.put_anew()
    }

    pub fn retire(&self, upto: Position) -> Result<()> {
        self.journal.retire(upto)
    }
}

/// The commits behind `applied` of a log that is only read, and what opening it would mend, in words.
pub fn look(directory: &Path, applied: Position) -> Result<(Vec<Vec<Logged>>, Option<String>)> {
    is_there(directory)?;
    let found = FileJournal::read_as_it_is(directory);
    let AsItIs { records, next, torn } = found.map_err(|error| explained(directory, error))?;
    let torn = torn.map(|(path, bytes)| unmended::torn(&path, bytes as u64));
    Ok((commits(directory, records, applied, next - 1)?, torn))
}

/// What can still be had of a log that is damaged.
#[derive(Default)]
pub struct Left {
    /// The commits behind `applied`, in their order, up to the first that is not whole.
    pub commits: Vec<Vec<Logged>>,
    /// There were records up to this one at least. None: nothing says so.
    pub known: Option<Position>,
}

/// Of a log that is damaged: with what the tables have, one state that there was. It is only read.
pub fn before_damage(directory: &Path, applied: Position) -> Result<Left> {
    let salvaged = salvage(directory)?;
    let begun = salvaged.begun.last().map_or(0, |first| first - 1);
    let there = salvaged.records.iter().map(|(position, _)| *position).max().unwrap_or(0);
    let mut commits = Vec::new();
    for (position, record) in &salvaged.records {
        let next = applied + 1 + commits.len() as u64;
        if *position < next {
            continue;
        }
        if *position > next || salvaged.doubtful.contains(position) {
            break;
        }
        let Some(commit) = decoded(directory, record)? else { break };
        commits.push(commit);
    }
    let known = salvaged.synced.max(begun).max(there);
    Ok(Left { commits, known: (known > 0).then_some(known) })
}

fn is_there(directory: &Path) -> Result<()> {
    if files::is_directory(directory)? {
        return Ok(());
    }
    Err(StoreError::Missing {
        place: directory.display().to_string(),
        what: "and what was last committed to the tables is in it alone".to_owned(),
    })
}

fn commits(
    directory: &Path,
    records: Vec<(Position, Vec<u8>)>,
    applied: Position,
    last: Position,
) -> Result<Vec<Vec<Logged>>> {
    let damaged = |what: String| files::damaged(directory, 0, what);
    let mut commits = Vec::new();
    let mut next = applied + 1;
    for (position, record) in records {
        if position < next {
            continue;
        }
        let commit = if position == next { decoded(directory, &record)? } else { None };
        commits.push(commit.ok_or_else(|| {
            damaged(format!("record {next} is needed, and {position} is what there is"))
        })?);
        next += 1;
    }
    if next != last + 1 {
        return Err(damaged(format!(
            "the tables have it up to record {applied}, which it does not go on from: the two are \
             not of the same moment"
        )));
    }
    Ok(commits)
}

pub fn encode<'a>(rows: impl Iterator<Item = (&'a str, &'a [u8], Option<&'a [u8]>)>) -> Vec<u8> {
    let mut record = vec![FORMAT];
    for (table, key, value) in rows {
        for bytes in [table.as_bytes(), key] {
            record.extend_from_slice(&length(bytes).to_le_bytes());
            record.extend_from_slice(bytes);
        }
        record.extend_from_slice(&value.map_or(DELETED, length).to_le_bytes());
        record.extend_from_slice(value.unwrap_or_default());
    }
    record
}

fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("a record is far shorter")
}

/// As `decode`, of a record that is whole. An error: it is of a newer farfs.
fn decoded(directory: &Path, record: &[u8]) -> Result<Option<Vec<Logged>>> {
    match record.first() {
        Some(format) if *format > FORMAT => Err(newer(directory)),
        _ => Ok(decode(record)),
    }
}

/// None: it was not made by `encode`.
pub fn decode(record: &[u8]) -> Option<Vec<Logged>> {
    let (&FORMAT, mut rest) = record.split_first()? else { return None };
    let mut rows = Vec::new();
    while !rest.is_empty() {
        let table = String::from_utf8(take(&mut rest)??).ok()?;
        let key = take(&mut rest)??;
        rows.push((table, key, take(&mut rest)?));
    }
    Some(rows)
}

fn take(rest: &mut &[u8]) -> Option<Put> {
    let (length, after) = rest.split_first_chunk()?;
    let length = u32::from_le_bytes(*length);
    *rest = after;
    if length == DELETED {
        return Some(None);
    }
    let (bytes, after) = rest.split_at_checked(length as usize)?;
    *rest = after;
    Some(Some(bytes.to_vec()))
}

pub fn encode_number(number: u64) -> [u8; 9] {
    let mut row = [FORMAT; 9];
    row[1..].copy_from_slice(&number.to_le_bytes());
    row
}

fn decode_number(row: &[u8]) -> Option<u64> {
    let (&FORMAT, number) = row.split_first()? else { return None };
    Some(u64::from_le_bytes(number.try_into().ok()?))
}

/// What redb says under one of the keys above.
pub fn number(base: &Base, place: Place<'_>, key: &[u8]) -> Result<Option<u64>> {
    let Some(row) = base.get(place, TABLE, key)? else { return Ok(None) };
    let number = decode_number(&row);
    let senseless = || damaged_file(place.path, "what it says of its log is nothing");
    number.map(Some).ok_or_else(senseless)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_record_is_laid_out_as_the_formats_say() {
        let rows = [("t", &b"key"[..], Some(&b"value"[..])), ("t", b"", None)];
        let wanted = b"\x01\x01\0\0\0t\x03\0\0\0key\x05\0\0\0value\
                       \x01\0\0\0t\0\0\0\0\xff\xff\xff\xff";
        assert_eq!(encode(rows.into_iter()), wanted);
        assert_eq!(encode_number(0x1234), *b"\x01\x34\x12\0\0\0\0\0\0");
        assert_eq!(decode_number(b"\x02\x34\x12\0\0\0\0\0\0"), None);
    }

    proptest! {
        #[test]
        fn prop_what_was_encoded_is_read_again(
            rows: Vec<(String, Vec<u8>, Option<Vec<u8>>)>,
        ) {
            let borrowed = rows.iter().map(|(t, k, v)| (t.as_str(), k.as_slice(), v.as_deref()));
            prop_assert_eq!(decode(&encode(borrowed)), Some(rows));
        }

        #[test]
        fn prop_every_byte_string_is_read_or_refused(bytes: Vec<u8>) {
            if let Some(rows) = decode(&bytes) {
                let again = rows.iter().map(|(t, k, v)| (t.as_str(), k.as_slice(), v.as_deref()));
                prop_assert_eq!(encode(again), bytes);
            }
        }
    }
}
