//! Chunks that a volume's versions name and the store has lost: noted when that is met, asked of
//! the devices with the answers that they get anyway, and forgotten when they have come back.
//! Holds: what is noted was missing, and is asked for until it is here or nothing names it; what
//! comes is a chunk like any other, named by its bytes, and on the disk before it is forgotten
//! that it was missing.
//! From: LBFS, which trusts no chunk that it has not hashed: so it may come from anybody.
//!
//! ```text
//!   met missing ──→ noted ──asked for──→ given back ──synced──→ forgotten
//!                     └──────── nothing names it any more ─────────↑
//! ```

mod find;
mod keep;

pub(crate) use find::{Lacking, Look};

use crate::error::Result;
use crate::volumes::{blob_name, locked, parse_blob_name};
use minicbor::{Decode, Encode};
use model::{ChunkName, FileId, Stamp};
use protocol::WantedOf;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Mutex;
use store::{Read, Write};
use volume::whole::{VolumeId, decode, encode};

pub(crate) const WANTED: &str = "origin-wanted";

/// Chunks of one volume that are noted at a time. A check notes more when these have come.
const NOTED_MAX: usize = 1 << 16;

/// A chunk that is missing, under its blob's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub(crate) struct WantedRow {
    /// Seconds since 1970.
    #[n(0)]
    pub since: i64,
    /// A version that needs it; there may be others.
    #[n(1)]
    pub file: FileId,
    #[n(2)]
    pub version: Stamp,
    /// It is of the recipe: what hangs below it was not looked at.
    #[n(3)]
    pub is_recipe: bool,
}

/// What is missing of one volume: the same as in the table.
#[derive(Debug, Default)]
pub(crate) struct Wanted(Mutex<Noted>);

#[derive(Debug, Default)]
struct Noted {
    rows: BTreeMap<ChunkName, WantedRow>,
    /// Counts what was ever noted, so that a round can tell whether there is something new.
    notes: u64,
}

/// How far one session has been asked. Each chunk is asked for once in a session: what a client
/// has not, it will not have later, unless it was noted meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Round {
    after: Option<ChunkName>,
    /// As many had been noted when the round began.
    notes: u64,
    /// Something was noted behind the point where it had arrived: another round follows.
    ended: bool,
}

impl Wanted {
    pub fn load(read: &dyn Read, volume: VolumeId) -> Result<Wanted> {
        let (from, to) = volume.range();
        let mut rows = BTreeMap::new();
        for (key, value) in read.scan(WANTED, &from, &to, NOTED_MAX)? {
            // What does not read is told of by a check, and found again by who misses it.
            let row = decode(|| "a chunk that is wanted".into(), &value);
            if let (Some((_, chunk)), Ok(row)) = (parse_blob_name(&key), row) {
                rows.insert(chunk, row);
            }
        }
        let notes = rows.len() as u64;
        Ok(Wanted(Mutex::new(Noted { rows, notes })))
    }

    pub fn len(&self) -> usize {
        locked(&self.0).rows.len()
    }

    pub fn has(&self, chunk: &ChunkName) -> bool {
        locked(&self.0).rows.contains_key(chunk)
    }

    pub fn row(&self, chunk: &ChunkName) -> Option<WantedRow> {
        locked(&self.0).rows.get(chunk).copied()
    }

    /// Those of the versions of which nothing is noted any more.
    pub fn without_rows(
        &self,
        versions: impl Iterator<Item = (FileId, Stamp)>,
    ) -> BTreeSet<(FileId, Stamp)> {
        let mut without: BTreeSet<_> = versions.collect();
        for row in locked(&self.0).rows.values() {
            without.remove(&(row.file, row.version));
        }
        without
    }

    /// All that are noted.
    pub fn chunks(&self) -> Vec<ChunkName> {
        locked(&self.0).rows.keys().copied().collect()
    }

    /// Notes them, as far as there is room. Gives back what was not noted before.
    pub fn note(
        &self,
        missing: impl IntoIterator<Item = (ChunkName, WantedRow)>,
    ) -> Vec<(ChunkName, WantedRow)> {
        let mut noted = locked(&self.0);
        let mut fresh = Vec::new();
        for (chunk, row) in missing {
            if noted.rows.len() < NOTED_MAX && !noted.rows.contains_key(&chunk) {
                noted.rows.insert(chunk, row);
                noted.notes += 1;
                fresh.push((chunk, row));
            }
        }
        fresh
    }

    pub fn forget(&self, chunks: &[ChunkName]) {
        let mut noted = locked(&self.0);
        for chunk in chunks {
            noted.rows.remove(chunk);
        }
    }

    /// What a session is asked for next, at most so many chunks, and how far it has come then.
    pub fn next(&self, round: &mut Round, chunks_max: usize) -> Vec<(ChunkName, WantedRow)> {
        locked(&self.0).next(round, chunks_max)
    }
}

impl Noted {
    fn next(&self, round: &mut Round, chunks_max: usize) -> Vec<(ChunkName, WantedRow)> {
        if round.ended {
            if round.notes == self.notes {
                return Vec::new();
            }
            *round = Round::default();
        }
        if round.after.is_none() {
            round.notes = self.notes;
        }
        let from = round.after.map_or(Bound::Unbounded, Bound::Excluded);
        let rest = self.rows.range((from, Bound::Unbounded));
        let asked: Vec<(ChunkName, WantedRow)> =
            rest.take(chunks_max).map(|(chunk, row)| (*chunk, *row)).collect();
        round.after = asked.last().map(|(chunk, _)| *chunk).or(round.after);
        round.ended = asked.len() < chunks_max;
        asked
    }
}

/// In the words of the protocol: by the version that needs them.
fn by_version(asked: Vec<(ChunkName, WantedRow)>) -> Vec<WantedOf> {
    let mut versions: BTreeMap<(FileId, Stamp), Vec<ChunkName>> = BTreeMap::new();
    for (chunk, row) in asked {
        versions.entry((row.file, row.version)).or_default().push(chunk);
    }
    let of = |((file, version), chunks)| WantedOf { file, version, chunks };
    versions.into_iter().map(of).collect()
}

fn put_row(
    write: &mut dyn Write,
    volume: VolumeId,
    chunk: &ChunkName,
    row: &WantedRow,
) -> Result<()> {
    Ok(write.put(WANTED, &blob_name(volume, chunk), &encode(row))?)
}

fn delete_row(write: &mut dyn Write, volume: VolumeId, chunk: &ChunkName) -> Result<()> {
    Ok(write.delete(WANTED, &blob_name(volume, chunk))?)
}

/// Removes rows of a volume that is to go, at most `rows_max`. False: none was left.
pub(crate) fn purge_wanted(
    write: &mut dyn Write,
    volume: VolumeId,
    rows_max: usize,
) -> Result<bool> {
    let (from, to) = volume.range();
    let rows = write.scan(WANTED, &from, &to, rows_max)?;
    for (key, _) in &rows {
        write.delete(WANTED, key)?;
    }
    Ok(!rows.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::ReplicaId;

    fn chunk(number: u8) -> ChunkName {
        ChunkName([number; 24])
    }

    fn row(file: u64) -> WantedRow {
        let version = Stamp::new(ReplicaId(3), 4);
        WantedRow { since: 1, file: FileId(file), version, is_recipe: true }
    }

    fn noted(numbers: impl IntoIterator<Item = u8>) -> Wanted {
        let wanted = Wanted::default();
        wanted.note(numbers.into_iter().map(|number| (chunk(number), row(7))));
        wanted
    }

    fn asked(wanted: &Wanted, round: &mut Round) -> Vec<u8> {
        wanted.next(round, 3).iter().map(|(chunk, _)| chunk.0[0]).collect()
    }

    #[test]
    fn a_session_is_asked_for_everything_once_a_few_at_a_time() {
        let wanted = noted(1..=7);
        let mut round = Round::default();
        assert_eq!(asked(&wanted, &mut round), [1, 2, 3]);
        assert_eq!(asked(&wanted, &mut round), [4, 5, 6]);
        assert_eq!(asked(&wanted, &mut round), [7]);
        assert_eq!(asked(&wanted, &mut round), []);
        assert_eq!(asked(&wanted, &mut Round::default()), [1, 2, 3], "another session");
    }

    #[test]
    fn what_is_noted_later_is_asked_for_in_a_round_of_its_own() {
        let wanted = noted([5]);
        let mut round = Round::default();
        assert_eq!(asked(&wanted, &mut round), [5]);
        wanted.note([(chunk(2), row(8)), (chunk(5), row(8))]);
        assert_eq!(asked(&wanted, &mut round), [2, 5]);
        assert_eq!(asked(&wanted, &mut round), []);
        // What comes while a round is under way, and lies behind it, as well.
        let wanted = noted(4..=9);
        let mut round = Round::default();
        assert_eq!(asked(&wanted, &mut round), [4, 5, 6]);
        wanted.note([(chunk(1), row(8))]);
        assert_eq!(asked(&wanted, &mut round), [7, 8, 9]);
        wanted.forget(&[4, 5, 6, 7, 8, 9].map(chunk));
        assert_eq!(asked(&wanted, &mut round), []);
        assert_eq!(asked(&wanted, &mut round), [1]);
        assert_eq!(asked(&wanted, &mut round), []);
    }

    #[test]
    fn no_more_is_noted_than_there_is_room_for() {
        let wanted = Wanted::default();
        let name = |number: u32| {
            let mut bytes = [0; 24];
            bytes[..4].copy_from_slice(&number.to_be_bytes());
            ChunkName(bytes)
        };
        let most = NOTED_MAX as u32;
        assert_eq!(wanted.note((0..most + 9).map(|n| (name(n), row(7)))).len(), NOTED_MAX);
        wanted.forget(&[name(0)]);
        assert_eq!(wanted.note([(name(most), row(7)), (name(most + 1), row(7))]).len(), 1);
        assert_eq!(wanted.len(), NOTED_MAX);
    }

    #[test]
    fn the_layout_of_a_row_is_pinned() {
        let bytes = encode(&row(5));
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        expect_test::expect!["01f58e022d840105820304f5"].assert_eq(&hex);
    }

    #[test]
    fn rows_are_read_back_for_their_volume_alone() {
        use store::{Durability, Tables};
        let tables = store::memory::MemoryTables::new();
        let mut write = tables.write().unwrap();
        put_row(&mut *write, VolumeId(1), &chunk(1), &row(5)).unwrap();
        put_row(&mut *write, VolumeId(2), &chunk(2), &row(6)).unwrap();
        write.put(WANTED, &blob_name(VolumeId(1), &chunk(3)), b"damaged").unwrap();
        write.commit(Durability::Now).unwrap();
        let wanted = Wanted::load(&*tables.read().unwrap(), VolumeId(1)).unwrap();
        assert_eq!(wanted.chunks(), [chunk(1)]);
        assert_eq!(wanted.row(&chunk(1)), Some(row(5)));
        let mut write = tables.write().unwrap();
        while purge_wanted(&mut *write, VolumeId(1), 1).unwrap() {}
        write.commit(Durability::Now).unwrap();
        let read = tables.read().unwrap();
        assert_eq!(read.scan(WANTED, &[], &[0xff; 30], 9).unwrap().len(), 1);
    }
}
