//! Rows of versions that are written to, where that of another version of the file has taken their
//! place.
//! Holds: each version that is written to and not stored has one row, the file's or one of these.

use super::{PRESENCE, Presence, damaged};
use model::FileId;
use store::{Read, StoreError, Write};

const DISPLACED: &str = "client-displaced";
const KEY_BYTES: usize = 12;
/// Versions of one file that are written to at once: each is open in some program.
const VERSIONS_MAX: usize = 1024;

fn key(file: FileId, generation: u32) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    key[..8].copy_from_slice(&file.0.to_be_bytes());
    key[8..].copy_from_slice(&generation.to_be_bytes());
    key
}

fn rows(rows: Vec<(Vec<u8>, Vec<u8>)>) -> Result<Vec<(FileId, Presence)>, StoreError> {
    rows.into_iter()
        .map(|(key, row)| {
            let file = key.first_chunk::<8>().ok_or_else(|| damaged("a key is not an id"))?;
            Ok((FileId(u64::from_be_bytes(*file)), Presence::decode(&row)?))
        })
        .collect()
}

impl Presence {
    /// The file's row from here on. One of another version that is written to is kept beside it.
    pub fn save(&self, write: &mut dyn Write, file: FileId) -> Result<(), StoreError> {
        let before = match Presence::load(&*write, file) {
            // It is written over, as if it were not there.
            Err(StoreError::Damaged { .. }) => None,
            before => before?,
        };
        let gives_way = |row: &Presence| row.generation != self.generation && row.dirty.is_some();
        if let Some(before) = before.filter(gives_way) {
            write.put(DISPLACED, &key(file, before.generation), &before.encode())?;
        }
        self.replace(write, file)
    }

    /// More or less of a version is here than before, or something else was written to it. Where another one
    /// has become the file's row since, as it was stored or opened, that stays: one that is written to keeps
    /// a row beside it, and any other is read by who has it open, and by nobody else.
    pub fn save_in_place(&self, write: &mut dyn Write, file: FileId) -> Result<(), StoreError> {
        let row = match Presence::load(&*write, file) {
            Err(StoreError::Damaged { .. }) => None,
            row => row?,
        };
        let is_it = row.is_none_or(|row| row.generation == self.generation);
        match self.dirty {
            _ if is_it => self.replace(write, file),
            Some(_) => write.put(DISPLACED, &key(file, self.generation), &self.encode()),
            None => Presence::forget_displaced(write, file, self.generation),
        }
    }

    /// As `save`, and nothing is kept of what was there.
    pub fn replace(&self, write: &mut dyn Write, file: FileId) -> Result<(), StoreError> {
        // None of its own version has a row beside it.
        if write.get(DISPLACED, &key(file, self.generation))?.is_some() {
            Presence::forget_displaced(write, file, self.generation)?;
        }
        write.put(PRESENCE, &file.0.to_be_bytes(), &self.encode())
    }

    /// A generation that no row of the file has.
    pub fn next_generation(read: &dyn Read, file: FileId) -> Result<u32, StoreError> {
        let row = Presence::load(read, file)?;
        let all = Presence::displaced(read, file)?.into_iter().chain(row);
        Ok(all.map(|row| row.generation).max().map_or(0, |last| last.wrapping_add(1)))
    }

    /// The versions of a file that are written to, besides that of its row.
    pub fn displaced(read: &dyn Read, file: FileId) -> Result<Vec<Presence>, StoreError> {
        let (from, to) = (key(file, 0), key(file, u32::MAX));
        let found = rows(read.scan(DISPLACED, &from, &to, VERSIONS_MAX)?)?;
        Ok(found.into_iter().map(|(_, row)| row).collect())
    }

    /// The row of one container of a file, if it is written to or the file's row.
    pub fn of_generation(
        read: &dyn Read,
        file: FileId,
        generation: u32,
    ) -> Result<Option<Presence>, StoreError> {
        let row = Presence::load(read, file)?.filter(|row| row.generation == generation);
        if row.is_some() {
            return Ok(row);
        }
        let displaced = read.get(DISPLACED, &key(file, generation))?;
        displaced.map(|row| Presence::decode(&row)).transpose()
    }

    /// Those of every file, from `after` on, at most `rows_max`.
    pub fn page_displaced(
        read: &dyn Read,
        after: Option<(FileId, u32)>,
        rows_max: usize,
    ) -> Result<Vec<(FileId, Presence)>, StoreError> {
        let from = after
            .map_or([0; KEY_BYTES], |(file, generation)| key(file, generation.saturating_add(1)));
        rows(read.scan(DISPLACED, &from, &[0xff; KEY_BYTES], rows_max)?)
    }

    /// What was written to one of them is not stored any more.
    pub fn forget_displaced(
        write: &mut dyn Write,
        file: FileId,
        generation: u32,
    ) -> Result<(), StoreError> {
        write.delete(DISPLACED, &key(file, generation))
    }

    /// The same of all of a file.
    pub fn forget_all_displaced(write: &mut dyn Write, file: FileId) -> Result<(), StoreError> {
        for row in Presence::displaced(&*write, file)? {
            Presence::forget_displaced(write, file, row.generation)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presence::Dirty;
    use model::{Contents, ReplicaId, Stamp};
    use store::Tables;
    use store::memory::MemoryTables;

    const FILE: FileId = FileId(0x0102);

    fn stamp(number: u64) -> Stamp {
        Stamp::new(ReplicaId(3), number)
    }

    fn row(generation: u32, written: bool) -> Presence {
        let dirty = written.then(|| Dirty::new(stamp(1), 0));
        let version = stamp(u64::from(generation));
        Presence { dirty, ..Presence::new(generation, version, Contents::EMPTY, 5) }
    }

    /// The generations of the file's row and of those beside it.
    fn there(read: &dyn Read) -> (Option<u32>, Vec<u32>) {
        let row = Presence::load(read, FILE).unwrap().map(|row| row.generation);
        let beside = Presence::displaced(read, FILE).unwrap();
        (row, beside.iter().map(|row| row.generation).collect())
    }

    #[test]
    fn a_version_that_is_written_to_has_a_row_until_it_is_stored() {
        let tables = MemoryTables::default();
        let mut write = tables.write().unwrap();
        let write = &mut *write;
        row(1, false).save(write, FILE).unwrap();
        row(2, true).save(write, FILE).unwrap();
        assert_eq!(there(&*write), (Some(2), vec![]), "what is stored needs none");
        row(1, true).save(write, FILE).unwrap();
        assert_eq!(there(&*write), (Some(1), vec![2]));
        row(1, true).save(write, FILE).unwrap();
        row(3, true).save(write, FILE).unwrap();
        assert_eq!(there(&*write), (Some(3), vec![1, 2]));
        row(2, false).save(write, FILE).unwrap();
        assert_eq!(there(&*write), (Some(2), vec![1, 3]));
        for (generation, is_there) in [(1, true), (2, true), (3, true), (4, false)] {
            let found = Presence::of_generation(&*write, FILE, generation).unwrap();
            assert_eq!(found.map(|row| row.generation), is_there.then_some(generation));
        }
        Presence::forget_displaced(write, FILE, 1).unwrap();
        assert_eq!(there(&*write), (Some(2), vec![3]));
        Presence::forget_all_displaced(write, FILE).unwrap();
        assert_eq!(there(&*write), (Some(2), vec![]));
    }

    #[test]
    fn all_that_are_displaced_are_found_page_by_page() {
        let tables = MemoryTables::default();
        let mut write = tables.write().unwrap();
        for file in [FileId(1), FileId(2), FileId(u64::MAX)] {
            for generation in [0, 7] {
                row(generation, true).save(&mut *write, file).unwrap();
            }
            row(9, false).save(&mut *write, file).unwrap();
        }
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = Presence::page_displaced(&*write, after, 1).unwrap();
            let Some((file, row)) = page.into_iter().next() else { break };
            after = Some((file, row.generation));
            found.push((file.0, row.generation));
        }
        assert_eq!(found, [(1, 0), (1, 7), (2, 0), (2, 7), (u64::MAX, 0), (u64::MAX, 7)]);
    }

    #[test]
    fn a_row_that_is_gone_leaves_none_behind_beside_the_next_one() {
        let tables = MemoryTables::default();
        let mut write = tables.write().unwrap();
        let write = &mut *write;
        row(1, true).save(write, FILE).unwrap();
        row(2, true).save(write, FILE).unwrap();
        assert_eq!(Presence::next_generation(&*write, FILE).unwrap(), 3);
        Presence::remove(write, FILE).unwrap();
        row(1, false).save(write, FILE).unwrap();
        assert_eq!(there(&*write), (Some(1), vec![]));
        row(2, true).save(write, FILE).unwrap();
        row(1, true).save(write, FILE).unwrap();
        row(2, false).replace(write, FILE).unwrap();
        assert_eq!(there(&*write), (Some(2), vec![]), "nothing is kept of what was there");
    }

    #[test]
    fn what_is_fetched_of_an_older_version_does_not_take_the_row_of_a_newer_one() {
        let tables = MemoryTables::default();
        let mut write = tables.write().unwrap();
        let write = &mut *write;
        row(1, false).save_in_place(write, FILE).unwrap();
        assert_eq!(there(&*write), (Some(1), vec![]));
        for written in [false, true] {
            row(2, written).save(write, FILE).unwrap();
            row(1, false).save_in_place(write, FILE).unwrap();
            assert_eq!(Presence::load(&*write, FILE).unwrap(), Some(row(2, written)));
        }
        row(2, false).save_in_place(write, FILE).unwrap();
        assert_eq!(Presence::load(&*write, FILE).unwrap(), Some(row(2, false)));
        assert_eq!(there(&*write), (Some(2), vec![]));
        row(1, true).save_in_place(write, FILE).unwrap();
        assert_eq!(there(&*write), (Some(2), vec![1]), "it is written to");
        row(1, false).save_in_place(write, FILE).unwrap();
        assert_eq!(there(&*write), (Some(2), vec![]), "and no more");
    }

    #[test]
    fn a_damaged_row_is_written_over() {
        let tables = MemoryTables::default();
        let mut write = tables.write().unwrap();
        write.put(PRESENCE, &FILE.0.to_be_bytes(), b"?").unwrap();
        row(1, true).save(&mut *write, FILE).unwrap();
        assert_eq!(there(&*write), (Some(1), vec![]));
    }
}
