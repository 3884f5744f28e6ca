//! Tables that only repeat what others say, made anew where they cannot be read, and that of the runs.
//! Holds: the old rows go in the transaction that has the new ones, which follow from rows that all
//! read.

use super::error::Result;
use super::record::{EntryRecord, decode, encode};
use super::{VolumeId, keys, runs, table};
use model::Seq;
use store::{Read, Row, Write};

/// Rows that are read at once.
const ROWS_MAX: usize = 1000;
/// Of the last versions of names, which two of them repeat; of runs it can be said that they are lost.
const RENEWABLE: [&str; 3] = [table::ENTRIES_NOW, table::NAMES_NOW, table::RUNS];

/// Of the tables that can be made anew those of which the store cannot read every row.
pub fn unreadable(read: &dyn Read) -> Vec<&'static str> {
    let reads = |name| {
        let mut from = Vec::new();
        while let Ok(rows) = read.scan(name, &from, &end(), ROWS_MAX) {
            let Some(next) = after(&rows) else { return true };
            from = next;
        }
        false
    };
    RENEWABLE.into_iter().filter(|name| !reads(name)).collect()
}

/// Makes these tables anew, of all volumes. It is the first that the transaction does.
pub fn renew(write: &mut dyn Write, names: &[&'static str]) -> Result<()> {
    write.clear(names)?;
    if names.contains(&table::RUNS) {
        lose_runs(write)?;
    }
    if names == [table::RUNS] {
        return Ok(());
    }
    let mut last: Option<Row> = None;
    let mut from = Vec::new();
    loop {
        let rows = write.scan(table::ENTRIES, &from, &end(), ROWS_MAX)?;
        let Some(next) = after(&rows) else { break };
        from = next;
        for row in rows {
            if let Some(before) = last.replace(row.clone())
                && name_in(&before.0) != name_in(&row.0)
            {
                put(write, names, before)?;
            }
        }
    }
    last.map_or(Ok(()), |last| put(write, names, last))
}

fn lose_runs(write: &mut dyn Write) -> Result<()> {
    let mut from = Vec::new();
    loop {
        let rows = write.scan(table::HEAD, &from, &end(), ROWS_MAX)?;
        let Some(next) = after(&rows) else { return Ok(()) };
        from = next;
        for (key, _) in rows {
            if let Some(volume) = key.first_chunk().map(|number| u32::from_be_bytes(*number)) {
                let key = keys::run(VolumeId(volume), Seq::START);
                write.put(table::RUNS, &key, &encode(&runs::LOST))?;
            }
        }
    }
}

/// The last version of a name says what it is now.
fn put(write: &mut dyn Write, names: &[&'static str], (key, value): Row) -> Result<()> {
    let record: EntryRecord = decode(|| "the last version of a name".into(), &value)?;
    let now = name_in(&key);
    // What is wrong with a key is for `check` to tell.
    let (Some(file), Some(directory), Some(name)) =
        (record.file, keys::file_in(now), keys::name_in_entry(now))
    else {
        return Ok(());
    };
    if names.contains(&table::ENTRIES_NOW) {
        write.put(table::ENTRIES_NOW, now, &value)?;
    }
    let volume = now.first_chunk().map(|number| VolumeId(u32::from_be_bytes(*number)));
    if let Some(volume) = volume.filter(|_| names.contains(&table::NAMES_NOW)) {
        write.put(table::NAMES_NOW, &keys::name_of(volume, file, directory, &name), &[])?;
    }
    Ok(())
}

/// The key without the position.
fn name_in(key: &[u8]) -> &[u8] {
    &key[..key.len().saturating_sub(size_of::<u64>())]
}

/// After every volume.
fn end() -> Vec<u8> {
    VolumeId::NEVER.range().0
}

fn after(rows: &[Row]) -> Option<Vec<u8>> {
    rows.last().map(|(key, _)| [key, &[0][..]].concat())
}
