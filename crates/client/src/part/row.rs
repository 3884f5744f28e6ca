//! What a pending store adds to its ground, so that it can be sent after a restart.

use crate::presence::{Dirty, Ground, Presence};
use minicbor::bytes::ByteVec;
use model::{ChunkName, Contents, FileId};
use store::{Read, StoreError, Write};
use update_log::Record;

const PARTS: &str = "client-parts";

/// What one store has made anew: as the record of the log has it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PartRow {
    pub generation: u32,
    /// Of the update.
    pub number: u64,
    pub contents: Contents,
    /// Offset, length and name.
    pub pieces: Vec<(u64, u64, ChunkName)>,
    pub recipe: Vec<ByteVec>,
}

impl PartRow {
    pub fn record(&self, file: FileId) -> Record {
        let PartRow { generation, number, contents, pieces, recipe } = self.clone();
        Record::Part { file, generation, number, contents, pieces, recipe }
    }

    /// That of a store, if it rests on a ground.
    pub fn load(
        read: &dyn Read,
        file: FileId,
        number: u64,
        contents: &Contents,
    ) -> Result<Option<PartRow>, StoreError> {
        let row = load(read, file)?;
        Ok(row.filter(|row| row.number == number && row.contents == *contents))
    }

    pub fn save(&self, write: &mut dyn Write, file: FileId) -> Result<(), StoreError> {
        write.put(PARTS, &file.0.to_be_bytes(), &self.record(file).encode())
    }
}

fn load(read: &dyn Read, file: FileId) -> Result<Option<PartRow>, StoreError> {
    let Some(bytes) = read.get(PARTS, &file.0.to_be_bytes())? else { return Ok(None) };
    let damaged = |what: String| StoreError::Damaged { place: PARTS.into(), what };
    match Record::decode(&bytes) {
        Ok(Record::Part { generation, number, contents, pieces, recipe, .. }) => {
            Ok(Some(PartRow { generation, number, contents, pieces, recipe }))
        }
        Ok(_) => Err(damaged("a row is of another kind".into())),
        Err(error) => Err(damaged(error.to_string())),
    }
}

/// A store is pending no more. Says whether it rested on a ground.
pub(crate) fn forget_part(
    write: &mut dyn Write,
    file: FileId,
    number: u64,
) -> Result<bool, StoreError> {
    let is_its = match load(&*write, file) {
        // Nobody can tell whose it was, and nothing that is judged waits for it.
        Err(StoreError::Damaged { .. }) => false,
        row => row?.is_some_and(|row| row.number == number),
    };
    if is_its {
        write.delete(PARTS, &file.0.to_be_bytes())?;
    }
    Ok(is_its)
}

/// That of a pending store which `bore` one of these numbers, and bears another from here on.
pub(crate) fn part_anew(
    read: &dyn Read,
    file: FileId,
    bore: impl Fn(u64) -> bool,
    number: u64,
) -> Result<Option<PartRow>, StoreError> {
    let row = load(read, file)?.filter(|row| bore(row.number));
    Ok(row.map(|row| PartRow { number, ..row }))
}

/// Nothing bears this id any more.
pub(crate) fn remove_part(write: &mut dyn Write, file: FileId) -> Result<(), StoreError> {
    write.delete(PARTS, &file.0.to_be_bytes())
}

/// What the log says of a container that rests on a ground, said to the tables once more.
pub(crate) fn redo_part(write: &mut dyn Write, record: &Record) -> Result<(), StoreError> {
    match record {
        Record::OpenedPart {
            file,
            generation,
            expects,
            uid,
            version,
            contents,
            reach,
            ranges,
            of,
        } => {
            let found = Presence::of_generation(&*write, *file, *generation)?;
            let had_row = found.is_some();
            let row = found.unwrap_or_else(|| Presence::new(*generation, *expects, *contents, 0));
            let ground = Ground { reach: *reach, of: *of, ..Ground::new(*version, *contents) };
            let dirty = Some(Dirty::new(*expects, *uid));
            let (ranges, ground) = (ranges.clone(), Some(ground));
            let mut row = Presence { dirty, ranges, ground, ..row };
            row.doubt();
            // Where a newer one was stored since, the log says of it anew that it is written to.
            if had_row { row.save_in_place(write, *file) } else { row.save(write, *file) }
        }
        Record::Here { file, generation, from, to } => {
            change_row(write, (*file, *generation), |row| row.write(*from, *to))
        }
        Record::Reach { file, generation, reach } => {
            change_row(write, (*file, *generation), |row| row.cut(*reach))
        }
        Record::Part { file, generation, number, contents, pieces, recipe } => {
            let (pieces, recipe) = (pieces.clone(), recipe.clone());
            let (generation, number, contents) = (*generation, *number, *contents);
            PartRow { generation, number, contents, pieces, recipe }.save(write, *file)
        }
        _ => Ok(()),
    }
}

fn change_row(
    write: &mut dyn Write,
    (file, generation): (FileId, u32),
    change: impl FnOnce(&mut Presence),
) -> Result<(), StoreError> {
    let is_it = |row: &Presence| row.dirty.is_some() && row.ground.is_some();
    let row = Presence::of_generation(&*write, file, generation)?;
    let Some(mut row) = row.filter(is_it) else { return Ok(()) };
    change(&mut row);
    row.save_in_place(write, file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Root;
    use store::Tables;
    use store::memory::MemoryTables;

    const FILE: FileId = FileId(5);

    #[test]
    fn a_row_is_of_one_store_and_goes_with_it() {
        let root = Root { name: ChunkName([0xab; 24]), depth: 1 };
        let contents = Contents { size: 100, root: Some(root), holes: None };
        let pieces = vec![(0, 10, ChunkName([0xcd; 24]))];
        let recipe = vec![vec![1, 2].into()];
        let row = PartRow { generation: 2, number: 9, contents, pieces, recipe };
        let tables = MemoryTables::default();
        let mut write = tables.write().unwrap();
        row.save(&mut *write, FILE).unwrap();
        assert_eq!(PartRow::load(&*write, FILE, 9, &contents).unwrap(), Some(row.clone()));
        assert_eq!(PartRow::load(&*write, FILE, 8, &contents).unwrap(), None);
        assert_eq!(PartRow::load(&*write, FILE, 9, &Contents::EMPTY).unwrap(), None);
        assert!(!forget_part(&mut *write, FILE, 8).unwrap());
        let anew = |write: &dyn Write, bore: u64| {
            part_anew(write, FILE, |number| number == bore, 20).unwrap()
        };
        assert_eq!(anew(&*write, 8), None);
        let moved = anew(&*write, 9);
        assert_eq!(moved, Some(PartRow { number: 20, ..row }));
        moved.unwrap().save(&mut *write, FILE).unwrap();
        assert!(PartRow::load(&*write, FILE, 20, &contents).unwrap().is_some());
        assert!(forget_part(&mut *write, FILE, 20).unwrap());
        assert_eq!(PartRow::load(&*write, FILE, 20, &contents).unwrap(), None);
    }

    #[test]
    fn a_row_that_is_damaged_is_said_to_be() {
        let tables = MemoryTables::default();
        let mut write = tables.write().unwrap();
        let closed = Record::Closed { file: FILE }.encode();
        for bytes in [&[][..], &[9, 1], &[1, 0xff], &closed] {
            write.put(PARTS, &FILE.0.to_be_bytes(), bytes).unwrap();
            let error = PartRow::load(&*write, FILE, 9, &Contents::EMPTY).unwrap_err();
            assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
        }
    }
}
