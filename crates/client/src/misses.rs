//! What programs wanted to read and were not given: it was not here and there was no link, or it
//! would have taken longer to come than its policy allows. It says what should have been pinned, and
//! can be fetched.
//! Holds: of the files that were missed last, a bounded number, over a restart too.
//! From: partially connected operation, section 4.

mod shown;

pub use shown::{MissShown, Settling};

use crate::client::Client;
use crate::ranks::{self, Rank, Ranked};
use minicbor::{Decode, Encode};
use model::FileId;
use protocol::Upstream;
use std::collections::{BTreeMap, BTreeSet};
use store::{Containers, Durability, Read, StoreError};

/// Files that are remembered; those that were missed longest ago are forgotten.
const MISSES_MAX: usize = 1_000;
/// A file that is missed again and again is written down once in so many seconds.
const WRITTEN_EVERY_SECS: i64 = 10;
/// Of the name of a program, so much is kept; the kernel has no longer ones.
const PROGRAM_BYTES_MAX: usize = 64;
const MISSES: &str = "client-misses";
const FORMAT: u8 = 1;

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
struct Miss {
    /// Seconds since 1970.
    #[n(0)]
    last: i64,
    #[n(1)]
    times: u64,
    /// Who wanted it last.
    #[n(2)]
    program: Option<String>,
    /// It would have taken so many seconds, and was to be asked for. None: there was no link.
    #[n(3)]
    asks: Option<u64>,
    /// The user wants it fetched.
    #[n(4)]
    coming: bool,
}

#[derive(Default)]
pub(crate) struct Misses {
    files: BTreeMap<FileId, Miss>,
    /// The tables have these as they are, but for times that are not long ago.
    written: BTreeMap<FileId, i64>,
    /// Whoever opens one of these waits however long it takes.
    allowed: BTreeSet<FileId>,
}

/// What is to be written down of a file. None: it is not missed any more.
type Row = (FileId, Option<Vec<u8>>);

impl Misses {
    pub fn load(read: &dyn Read) -> Result<Misses, StoreError> {
        let mut misses = Misses::default();
        for (key, value) in read.scan(MISSES, &[], &u64::MAX.to_be_bytes(), MISSES_MAX)? {
            // It is a help, and nothing depends on it: what cannot be read is left out.
            let (Ok(key), Some((&FORMAT, row))) = (key.try_into(), value.split_first()) else {
                continue;
            };
            if let Ok(miss) = minicbor::decode::<Miss>(row) {
                let file = FileId(u64::from_be_bytes(key));
                misses.written.insert(file, miss.last);
                misses.files.insert(file, miss);
            }
        }
        Ok(misses)
    }

    /// Those that wait for the user.
    pub fn len(&self) -> u64 {
        self.files.values().filter(|miss| !miss.coming).count() as u64
    }

    /// Those that the user has asked for.
    pub fn coming(&self) -> Vec<FileId> {
        let coming = self.files.iter().filter(|(_, miss)| miss.coming);
        coming.map(|(file, _)| *file).collect()
    }

    pub fn is_allowed(&self, file: FileId) -> bool {
        self.allowed.contains(&file)
    }

    /// Gives what is to be written down of it, and of one that is forgotten for it.
    fn note(&mut self, file: FileId, now: i64, asks: Option<u64>) -> Vec<Row> {
        let new = Miss { last: now, times: 0, program: None, asks, coming: false };
        let miss = self.files.entry(file).or_insert(new);
        (miss.last, miss.times, miss.asks) = (now, miss.times.saturating_add(1), asks);
        let mut rows = Vec::new();
        if self.files.len() > MISSES_MAX {
            let others = self.files.iter().filter(|(other, _)| **other != file);
            // What was missed in time to come was so before the clock was set back.
            let oldest = others.min_by_key(|(_, miss)| (miss.last <= now, miss.last));
            let oldest = oldest.map(|(file, _)| *file);
            rows.extend(oldest.map(|oldest| self.forget(oldest)));
        }
        let last = self.written.get(&file);
        if last.is_none_or(|last| !(0..WRITTEN_EVERY_SECS).contains(&now.saturating_sub(*last))) {
            rows.extend(self.row(file));
        }
        rows
    }

    /// Who wanted a file that was just missed.
    fn note_program(&mut self, file: FileId, program: &str) -> Option<Row> {
        let miss = self.files.get_mut(&file)?;
        if miss.program.as_deref() == Some(program) {
            return None;
        }
        let end = program.floor_char_boundary(PROGRAM_BYTES_MAX);
        miss.program = Some(program[..end].to_owned());
        self.row(file)
    }

    fn row(&mut self, file: FileId) -> Option<Row> {
        let miss = self.files.get(&file)?;
        self.written.insert(file, miss.last);
        let mut row = vec![FORMAT];
        // A vector takes every byte.
        let _ = minicbor::encode(miss, &mut row);
        Some((file, Some(row)))
    }

    fn forget(&mut self, file: FileId) -> Row {
        self.files.remove(&file);
        self.written.remove(&file);
        (file, None)
    }

    /// It has come, or cannot.
    fn came(&mut self, file: FileId, is_here: bool) -> Option<Row> {
        let miss = self.files.get_mut(&file).filter(|miss| miss.coming)?;
        if is_here {
            return Some(self.forget(file));
        }
        miss.coming = false;
        self.row(file)
    }

    /// What becomes of one, or of all. Gives the files, and what is to be written down.
    fn settle(&mut self, file: Option<FileId>, how: Settling) -> (Vec<FileId>, Vec<Row>) {
        let all = self.files.keys().copied();
        let files: Vec<FileId> = all.filter(|one| file.is_none_or(|file| file == *one)).collect();
        let mut rows = Vec::new();
        for file in &files {
            match how {
                Settling::Forget => rows.push(self.forget(*file)),
                Settling::Allow => {
                    rows.push(self.forget(*file));
                    self.allowed.insert(*file);
                    if self.allowed.len() > MISSES_MAX {
                        let other = self.allowed.iter().find(|other| *other != file).copied();
                        other.map(|other| self.allowed.remove(&other));
                    }
                }
                Settling::Fetch => {
                    if let Some(miss) = self.files.get_mut(file) {
                        miss.coming = true;
                    }
                    rows.extend(self.row(*file));
                }
            }
        }
        (files, rows)
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    pub(crate) fn misses(&self) -> Ranked<'_, Misses> {
        ranks::lock(Rank::Misses, &self.inner.keeping.misses)
    }

    /// A program has been told that contents are not here.
    pub(crate) fn note_out_of_reach(&self, file: FileId) {
        self.note_missed(file, None);
    }

    /// The same, as they would have taken so many seconds to come.
    pub(crate) fn note_missed(&self, file: FileId, asks: Option<u64>) {
        let now = self.inner.world.clock.time().secs;
        let rows = self.misses().note(file, now, asks);
        self.write_misses(rows);
    }

    /// The name of the program that was told that a file is not here.
    pub fn note_program(&self, file: FileId, program: &str) {
        let row = self.misses().note_program(file, program);
        self.write_misses(row);
    }

    /// What was asked for has come, or cannot come now.
    pub(crate) fn missed_came(&self, file: FileId, is_here: bool) {
        let row = self.misses().came(file, is_here);
        self.write_misses(row);
    }

    /// What the user wants of what was missed, of one file or of all. Gives how many files that
    /// were.
    pub fn settle_misses(&self, file: Option<FileId>, how: Settling) -> u64 {
        let (files, rows) = self.misses().settle(file, how);
        self.write_misses(rows);
        let count = files.len() as u64;
        if how == Settling::Fetch {
            self.bring_once(files);
        }
        count
    }

    fn write_misses(&self, rows: impl IntoIterator<Item = Row>) {
        let mut rows = rows.into_iter().peekable();
        if rows.peek().is_none() {
            return;
        }
        let written = || -> Result<(), StoreError> {
            let mut write = self.inner.tables.write()?;
            for (file, row) in rows {
                match row {
                    Some(row) => write.put(MISSES, &file.0.to_be_bytes(), &row)?,
                    None => write.delete(MISSES, &file.0.to_be_bytes())?,
                }
            }
            write.commit(Durability::Later)
        };
        if let Err(error) = written() {
            tracing::debug!(%error, "what was missed could not be written down");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::Tables;
    use store::memory::MemoryTables;

    #[test]
    fn the_misses_that_are_longest_ago_are_forgotten() {
        let mut misses = Misses::default();
        for file in 0..MISSES_MAX as u64 {
            misses.note(FileId(file), file as i64, None);
        }
        misses.note(FileId(0), 5_000, Some(40));
        let rows = misses.note(FileId(9_999), 6_000, None);
        assert_eq!(rows.iter().map(|(file, _)| file.0).collect::<Vec<_>>(), [1, 9_999]);
        assert_eq!(misses.len(), MISSES_MAX as u64);
        let first = misses.files.get(&FileId(0)).unwrap();
        assert_eq!((first.last, first.times, first.asks), (5_000, 2, Some(40)));
        assert_eq!(misses.files.get(&FileId(1)), None);
        assert_eq!(misses.settle(Some(FileId(1)), Settling::Forget).0, []);
        assert_eq!(misses.settle(Some(FileId(9_999)), Settling::Forget).0, [FileId(9_999)]);
        assert_eq!(misses.settle(None, Settling::Forget).0.len(), MISSES_MAX - 1);
        assert_eq!(misses.len(), 0);
    }

    #[test]
    fn what_was_missed_by_a_clock_that_was_set_back_since_makes_room_for_what_is_missed_now() {
        let mut misses = Misses::default();
        let (ahead, right) = (2_000_000_000, 1_800_000_000);
        for file in 0..MISSES_MAX as u64 {
            misses.note(FileId(file), ahead + file as i64, None);
        }
        for file in 0..MISSES_MAX as u64 {
            misses.note(FileId(10_000 + file), right + file as i64, None);
        }
        assert_eq!(misses.len(), MISSES_MAX as u64);
        assert!(misses.files.keys().all(|file| file.0 >= 10_000), "{:?}", misses.files.keys());
    }

    #[test]
    fn what_was_missed_is_read_as_it_was_written_and_not_written_at_every_miss() {
        let mut misses = Misses::default();
        let mut rows = misses.note(FileId(7), 100, Some(40));
        rows.extend(misses.note_program(FileId(7), "less"));
        assert_eq!(misses.note(FileId(7), 101, Some(39)).len(), 0);
        assert_eq!(misses.note_program(FileId(7), "less"), None);
        rows.extend(misses.settle(None, Settling::Fetch).1);
        let tables = MemoryTables::default();
        let mut write = tables.write().unwrap();
        for (file, row) in rows {
            write.put(MISSES, &file.0.to_be_bytes(), &row.unwrap()).unwrap();
        }
        write.put(MISSES, b"nonsense", &[9]).unwrap();
        write.commit(Durability::Now).unwrap();
        let mut read = Misses::load(&*tables.read().unwrap()).unwrap();
        assert_eq!(read.files, misses.files);
        assert_eq!(read.coming(), [FileId(7)]);
        assert_eq!((read.len(), read.came(FileId(7), true)), (0, Some((FileId(7), None))));
        assert!(read.files.is_empty());
    }

    /// The bytes of a row never change their meaning.
    #[test]
    fn a_golden_row_still_reads() {
        let mut misses = Misses::default();
        let rows = misses.note(FileId(7), 5, Some(40));
        let golden = vec![FORMAT, 0x85, 5, 1, 0xf6, 0x18, 40, 0xf4];
        assert_eq!(rows, [(FileId(7), Some(golden))]);
        let row = misses.note_program(FileId(7), "less");
        let golden = vec![FORMAT, 0x85, 5, 1, 0x64, b'l', b'e', b's', b's', 0x18, 40, 0xf4];
        assert_eq!(row, Some((FileId(7), Some(golden))));
    }

    #[test]
    fn what_is_allowed_is_missed_no_more_and_not_for_ever_more_files() {
        let mut misses = Misses::default();
        for file in 0..2 * MISSES_MAX as u64 {
            misses.note(FileId(file), 1, Some(40));
            misses.settle(Some(FileId(file)), Settling::Allow);
            assert!(misses.is_allowed(FileId(file)));
        }
        assert_eq!((misses.len(), misses.allowed.len()), (0, MISSES_MAX));
    }
}
