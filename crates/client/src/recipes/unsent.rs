//! Recipes of pending stores whose own are not kept otherwise: by them it is known of each chunk what it
//! should be, when the disk has altered the container before it was sent.
//! Holds: these are hints, as those that are kept. Whoever takes one checks it against its name.

use super::find;
use chunks::{Described, Placed, Secret, Tree, cover};
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use model::{ChunkName, Contents, FileId};
use protocol::Range;
use std::collections::BTreeMap;
use store::{Read, StoreError, Write};

/// By file: the recipe of its last store that was not kept otherwise.
const UNSENT: &str = "client-unsent";
const FORMAT: u8 = 1;
/// Of a file with more pieces it is not looked what they should be: these take some 50 MB.
const PIECES_MAX: usize = 1 << 20;

#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(array)]
pub(super) struct Row {
    /// Of the update that stored it.
    #[n(0)]
    pub(super) number: u64,
    #[n(1)]
    pub(super) chunks: Vec<ByteVec>,
}

impl Row {
    /// None: it is one chunk.
    pub(super) fn of(number: u64, tree: &Tree) -> Option<Row> {
        let chunks = tree.chunks.iter().map(|(_, bytes)| bytes.clone().into());
        (!tree.chunks.is_empty()).then(|| Row { number, chunks: chunks.collect() })
    }

    pub(super) fn bytes(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.len()).sum()
    }
}

/// The store of this number is pending no more.
pub(crate) fn forget_unsent(
    write: &mut dyn Write,
    file: FileId,
    number: u64,
) -> Result<(), StoreError> {
    match load(&*write, file)? {
        Some(row) if row.number == number => remove_unsent(write, file),
        _ => Ok(()),
    }
}

/// Whether something is kept that belongs to another store than this one, which is pending.
pub(crate) fn is_left_over(
    read: &dyn Read,
    file: FileId,
    pending: Option<u64>,
) -> Result<bool, StoreError> {
    match load(read, file)? {
        Some(row) => Ok(Some(row.number) != pending),
        // What cannot be read says nothing.
        None => Ok(read.get(UNSENT, &file.0.to_be_bytes())?.is_some()),
    }
}

pub(crate) fn remove_unsent(write: &mut dyn Write, file: FileId) -> Result<(), StoreError> {
    write.delete(UNSENT, &file.0.to_be_bytes())
}

/// A pending store of `file` which `bore` one of these numbers bears another from here on, as one of
/// the file `named`.
pub(crate) fn rename_unsent(
    write: &mut dyn Write,
    (file, named): (FileId, FileId),
    bore: impl Fn(u64) -> bool,
    number: u64,
) -> Result<(), StoreError> {
    match load(&*write, file)? {
        Some(row) if bore(row.number) => save(write, named, &Row { number, ..row }),
        _ => Ok(()),
    }
}

/// All pieces of a store as it was cut, and its recipe, if all of that is here.
pub(crate) fn as_stored(
    read: &dyn Read,
    file: FileId,
    contents: &Contents,
    secret: &Secret,
) -> Result<Option<Described>, StoreError> {
    let unsent = kept(read, file, secret)?;
    let (mut chunks, mut lacks) = (BTreeMap::new(), false);
    let all = Range { offset: 0, length: contents.size };
    let found = cover(secret, contents, all, PIECES_MAX, |name| {
        let bytes = match unsent.get(name) {
            _ if lacks => None,
            Some(bytes) => Some(bytes.to_vec()),
            None => find(read, file, name)?,
        };
        let bytes = bytes.filter(|bytes| secret.check(name, bytes).is_ok());
        lacks |= bytes.is_none();
        chunks.extend(bytes.iter().map(|bytes| (*name, bytes.clone())));
        Ok(bytes)
    });
    // What makes no sense says nothing.
    let Ok(found) = found else { return Ok(None) };
    if !found.missing.is_empty() || found.next.is_some() {
        return Ok(None);
    }
    let tree = Tree { contents: *contents, chunks: chunks.into_iter().collect() };
    let described = Described { tree, pieces: found.pieces, features: Vec::new() };
    Ok(described.has_all_pieces().then_some(described))
}

/// The pieces of a stretch of a store as it was cut, from the one on in which it begins, if the recipe of
/// these is here.
pub(crate) fn pieces_as_stored(
    read: &dyn Read,
    file: FileId,
    contents: &Contents,
    secret: &Secret,
    stretch: Range,
) -> Result<Option<Vec<Placed>>, StoreError> {
    let unsent = kept(read, file, secret)?;
    let found = cover(secret, contents, stretch, PIECES_MAX, |name| {
        let bytes = match unsent.get(name) {
            Some(bytes) => Some(bytes.to_vec()),
            None => find(read, file, name)?,
        };
        Ok(bytes.filter(|bytes| secret.check(name, bytes).is_ok()))
    });
    // What makes no sense says nothing.
    let Ok(found) = found else { return Ok(None) };
    let is_known = found.missing.is_empty() && found.next.is_none();
    Ok(is_known.then_some(found.pieces))
}

/// Chunks of the recipe that was kept of the last store.
fn kept(
    read: &dyn Read,
    file: FileId,
    secret: &Secret,
) -> Result<BTreeMap<ChunkName, ByteVec>, StoreError> {
    let row = load(read, file)?.map_or(Vec::new(), |row| row.chunks);
    Ok(row.into_iter().map(|bytes| (secret.name(&bytes), bytes)).collect())
}

pub(super) fn save(write: &mut dyn Write, file: FileId, row: &Row) -> Result<(), StoreError> {
    let mut bytes = vec![FORMAT];
    minicbor::encode(row, &mut bytes).expect("a vector takes every byte");
    write.put(UNSENT, &file.0.to_be_bytes(), &bytes)
}

/// None, too: it cannot be read. It is a hint.
fn load(read: &dyn Read, file: FileId) -> Result<Option<Row>, StoreError> {
    let Some(bytes) = read.get(UNSENT, &file.0.to_be_bytes())? else { return Ok(None) };
    Ok(match bytes.split_first() {
        Some((&FORMAT, rest)) => minicbor::decode(rest).ok(),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use chunks::describe_bytes;
    use protocol::Cutter;
    use store::Tables;
    use store::memory::MemoryTables;

    const FILE: FileId = FileId(5);

    fn described(length: usize) -> (Secret, Described) {
        let mut bytes = vec![0; length];
        world::World::simulated(0, 1).entropy.fill(&mut bytes);
        let secret = Secret::new([7; 32]);
        let described = describe_bytes(&secret, Cutter::Gear, &bytes);
        (secret, described)
    }

    #[test]
    fn a_store_is_known_piece_by_piece_until_it_is_pending_no_more() {
        let (secret, described) = described(500_000);
        let contents = described.tree.contents;
        let tables = MemoryTables::default();
        let mut write = tables.write().unwrap();
        let stored = |write: &dyn Write, file, contents: &Contents| {
            as_stored(write, file, contents, &secret).unwrap()
        };
        assert!(stored(&*write, FILE, &contents).is_none());
        save(&mut *write, FILE, &Row::of(9, &described.tree).unwrap()).unwrap();
        let found = stored(&*write, FILE, &contents).unwrap();
        assert_eq!(found.pieces, described.pieces);
        assert!(described.pieces.len() > 1 && found.tree.contents == contents);
        let from = described.pieces[1].offset + 1;
        let stretch = Range { offset: from, length: described.pieces[1].piece.length() };
        let some = pieces_as_stored(&*write, FILE, &contents, &secret, stretch).unwrap().unwrap();
        assert_eq!(some, described.pieces[1..3]);
        let shorter = Contents { size: contents.size - 1, ..contents };
        assert!(stored(&*write, FILE, &shorter).is_none(), "it is another's");
        forget_unsent(&mut *write, FILE, 8).unwrap();
        let (named, bore) = (FileId(6), |number| number == 9);
        rename_unsent(&mut *write, (FILE, named), bore, 20).unwrap();
        forget_unsent(&mut *write, FILE, 9).unwrap();
        assert!(stored(&*write, FILE, &contents).is_none());
        assert!(pieces_as_stored(&*write, FILE, &contents, &secret, stretch).unwrap().is_none());
        assert!(stored(&*write, named, &contents).is_some());
        forget_unsent(&mut *write, named, 20).unwrap();
        assert!(stored(&*write, named, &contents).is_none());
    }

    #[test]
    fn what_is_one_chunk_needs_no_row_and_a_damaged_row_says_nothing() {
        let (secret, one) = described(100);
        let tables = MemoryTables::default();
        let mut write = tables.write().unwrap();
        assert_eq!(Row::of(9, &one.tree), None);
        let (_, before) = described(200_000);
        save(&mut *write, FILE, &Row::of(10, &before.tree).unwrap()).unwrap();
        let is_left = |write: &dyn Write, pending| is_left_over(write, FILE, pending).unwrap();
        assert!(!is_left(&*write, Some(10)) && is_left(&*write, Some(9)) && is_left(&*write, None));
        remove_unsent(&mut *write, FILE).unwrap();
        assert!(!is_left(&*write, None));
        let found = as_stored(&*write, FILE, &one.tree.contents, &secret).unwrap().unwrap();
        assert_eq!(found.pieces, one.pieces);
        let (_, many) = described(100_000);
        for bytes in [&[][..], &[9, 1], &[1, 0xff], &[1, 0x82, 9, 0x81, 0x41, 7]] {
            write.put(UNSENT, &FILE.0.to_be_bytes(), bytes).unwrap();
            let found = as_stored(&*write, FILE, &many.tree.contents, &secret).unwrap();
            assert!(found.is_none(), "{bytes:?}");
            assert!(is_left(&*write, Some(8)), "{bytes:?}");
        }
    }
}
