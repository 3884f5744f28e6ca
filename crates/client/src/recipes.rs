//! Recipe chunks of large files that were fetched or stored here: of the next version only those
//! are asked for that are not among them.
//! Holds: these are hints. Whoever takes one checks it against its name.
//! From: LBFS, "Read protocol"; that recipes are a tree of chunks is beyond it.

mod late;
mod unsent;

pub(crate) use late::Late;
pub(crate) use unsent::{
    as_stored, forget_unsent, is_left_over, pieces_as_stored, remove_unsent, rename_unsent,
};

use model::{ChunkName, Contents, FileId};
use store::{Read, StoreError, Write};

/// By file and name: the chunk.
const RECIPES: &str = "client-recipes";
/// Of files up to so many bytes a recipe is not worth keeping: it comes with the answer.
pub(crate) const FILE_BYTES_MIN: u64 = 1 << 20;
const ROWS_MAX: usize = 1024;

pub(crate) fn is_kept(contents: &Contents) -> bool {
    contents.size >= FILE_BYTES_MIN
}

pub(crate) fn keep<'a>(
    write: &mut dyn Write,
    file: FileId,
    contents: &Contents,
    chunks: impl IntoIterator<Item = (&'a ChunkName, &'a [u8])>,
) -> Result<(), StoreError> {
    if !is_kept(contents) {
        return Ok(());
    }
    chunks.into_iter().try_for_each(|(name, bytes)| write.put(RECIPES, &key(file, name), bytes))
}

pub(crate) fn find(
    read: &dyn Read,
    file: FileId,
    name: &ChunkName,
) -> Result<Option<Vec<u8>>, StoreError> {
    read.get(RECIPES, &key(file, name))
}

pub(crate) fn has(read: &dyn Read, file: FileId, name: &ChunkName) -> Result<bool, StoreError> {
    Ok(find(read, file, name)?.is_some())
}

pub(crate) fn has_any(read: &dyn Read, file: FileId) -> Result<bool, StoreError> {
    let (from, to) = range(file);
    Ok(!read.scan(RECIPES, &from, &to, 1)?.is_empty())
}

/// Those go that `wanted` does not name.
pub(crate) fn retain(
    write: &mut dyn Write,
    file: FileId,
    wanted: impl Fn(&ChunkName) -> bool,
) -> Result<(), StoreError> {
    let (mut from, to) = range(file);
    loop {
        let rows = write.scan(RECIPES, &from, &to, ROWS_MAX)?;
        let Some((last, _)) = rows.last() else { return Ok(()) };
        from = [&last[..], &[0]].concat();
        for (key, _) in &rows {
            let name = key.get(8..).and_then(|name| name.try_into().ok()).map(ChunkName);
            if !name.is_some_and(|name| wanted(&name)) {
                write.delete(RECIPES, key)?;
            }
        }
    }
}

fn key(file: FileId, name: &ChunkName) -> Vec<u8> {
    [&file.0.to_be_bytes()[..], &name.0].concat()
}

fn range(file: FileId) -> (Vec<u8>, Vec<u8>) {
    (file.0.to_be_bytes().to_vec(), (file.0.saturating_add(1)).to_be_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::memory::MemoryTables;
    use store::{Durability, Tables};

    fn name(byte: u8) -> ChunkName {
        ChunkName([byte; 24])
    }

    #[test]
    fn of_a_large_file_they_are_kept_until_they_are_not_wanted() {
        let tables = MemoryTables::default();
        let large = Contents { size: FILE_BYTES_MIN, root: None, holes: None };
        let small = Contents { size: FILE_BYTES_MIN - 1, root: None, holes: None };
        let chunks: Vec<(ChunkName, Vec<u8>)> = (0..3).map(|n| (name(n), vec![n; 9])).collect();
        let chunks = || chunks.iter().map(|(name, bytes)| (name, &bytes[..]));
        let mut write = tables.write().unwrap();
        for file in [6, 7, 8] {
            keep(&mut *write, FileId(file), &large, chunks()).unwrap();
        }
        keep(&mut *write, FileId(9), &small, chunks()).unwrap();
        retain(&mut *write, FileId(7), |found| *found == name(1)).unwrap();
        retain(&mut *write, FileId(8), |_| false).unwrap();
        write.commit(Durability::Later).unwrap();
        let read = tables.read().unwrap();
        let found = |file, byte| find(&*read, FileId(file), &name(byte)).unwrap();
        assert_eq!((found(7, 0), found(7, 1)), (None, Some(vec![1; 9])));
        assert_eq!(found(6, 2), Some(vec![2; 9]));
        let any = |file| has_any(&*read, FileId(file)).unwrap();
        assert_eq!([6, 7, 8, 9].map(any), [true, true, false, false]);
    }
}
