//! Where a chunk was last seen inside a container: name to places in versions of files.
//! Holds: it is never trusted, as the index of chunks is not. A wrong entry costs a look.
//! From: LBFS's index, one level down.

use super::{Inside, chunks_of};
use crate::spread::{self, Look, Swept, Worth};
use model::{ChunkName, FileId, ReplicaId, Stamp};
use protocol::{Base, Range};
use store::{Read, StoreError, Write};

const TABLE: &str = "inside-index";

/// The newest places are kept, so many for each chunk.
pub const PLACES_MAX: usize = 2;

const PLACE_BYTES: usize = 48;

/// A stretch of what is inside a version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    pub file: FileId,
    pub version: Stamp,
    /// Of the stream, in the file.
    pub start: u64,
    /// Bytes of the stream in the file; 0 where it is not packed.
    pub packed: u64,
    /// In the stream's plain bytes.
    pub offset: u64,
    pub length: u32,
}

impl Place {
    /// Where it ends in the stream's plain bytes.
    pub fn plain_end(&self) -> u64 {
        self.offset.saturating_add(u64::from(self.length))
    }

    /// The deflate stream; none where it is stored as it is.
    pub fn stream(&self) -> Option<Base> {
        let stretch = Range { offset: self.start, length: self.packed };
        let Place { file, version, .. } = *self;
        (self.packed > 0).then_some(Base { file, version, stretch })
    }
}

/// One of the indexes of a store: what stands in front of the names in its keys.
#[derive(Clone, Copy, Debug)]
pub struct Index<'p>(pub &'p [u8]);

/// Where the chunks are that are inside a version of a file.
pub fn places(
    (file, version): (FileId, Stamp),
    inside: &Inside,
) -> impl Iterator<Item = (ChunkName, Place)> + '_ {
    inside.streams.iter().flat_map(move |stream| {
        let packed = if stream.is_deflated() { stream.end() - stream.start } else { 0 };
        let start = stream.start;
        stream.members.iter().flat_map(move |member| {
            chunks_of(member).map(move |(offset, name, length)| {
                let offset = member.offset + offset;
                let length = u32::try_from(length).expect("no chunk is longer than 1 MiB");
                (name, Place { file, version, start, packed, offset, length })
            })
        })
    })
}

impl Index<'_> {
    fn key(&self, name: &ChunkName) -> Vec<u8> {
        [self.0, &name.0].concat()
    }

    /// Where the chunk may be, the newest place first.
    pub fn find(&self, tables: &dyn Read, name: &ChunkName) -> Result<Vec<Place>, StoreError> {
        let row = tables.get(TABLE, &self.key(name))?;
        Ok(row.map(|bytes| decode(&bytes)).unwrap_or_default())
    }

    /// The chunk is in this place. True: it had none before.
    pub fn note(
        &self,
        tables: &mut dyn Write,
        name: &ChunkName,
        place: Place,
    ) -> Result<bool, StoreError> {
        let mut places = self.find(tables, name)?;
        let is_new = places.is_empty();
        if places.first() != Some(&place) {
            let version = (place.file, place.version);
            places.retain(|known| (known.file, known.version) != version);
            places.insert(0, place);
            places.truncate(PLACES_MAX);
            tables.put(TABLE, &self.key(name), &encode(&places))?;
        }
        Ok(is_new)
    }

    /// The chunk is not in this version, or the version is not here.
    pub fn forget(
        &self,
        tables: &mut dyn Write,
        name: &ChunkName,
        (file, version): (FileId, Stamp),
    ) -> Result<(), StoreError> {
        let mut places = self.find(tables, name)?;
        places.retain(|known| (known.file, known.version) != (file, version));
        replace(tables, &self.key(name), &places)
    }

    /// Removes the row of a chunk. False: it has none.
    pub fn remove(&self, tables: &mut dyn Write, name: &ChunkName) -> Result<bool, StoreError> {
        let key = self.key(name);
        let there = tables.get(TABLE, &key)?.is_some();
        if there {
            tables.delete(TABLE, &key)?;
        }
        Ok(there)
    }

    /// Forgets places in versions that are gone, and some of the others where there are too many
    /// rows.
    pub fn sweep(
        &self,
        tables: &mut dyn Write,
        look: Look,
        mut alive: impl FnMut(FileId, Stamp) -> bool,
    ) -> Result<Swept, StoreError> {
        spread::sweep(tables, (TABLE, self.0), look, |_, _, value| {
            let places = decode(value);
            let alive = |place: &&Place| alive(place.file, place.version);
            let kept: Vec<Place> = places.iter().filter(alive).copied().collect();
            Ok(match &kept[..] {
                [] => Worth::Nothing,
                _ if kept == places => Worth::All,
                _ => Worth::Shorter(encode(&kept)),
            })
        })
    }

    /// Removes rows, at most `rows_max`. Gives how many.
    pub fn clear(&self, tables: &mut dyn Write, rows_max: usize) -> Result<usize, StoreError> {
        spread::clear(tables, (TABLE, self.0), rows_max)
    }
}

fn replace(tables: &mut dyn Write, key: &[u8], places: &[Place]) -> Result<(), StoreError> {
    match places {
        [] => tables.delete(TABLE, key),
        _ => tables.put(TABLE, key, &encode(places)),
    }
}

fn encode(places: &[Place]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(places.len() * PLACE_BYTES);
    for place in places {
        bytes.extend(place.file.0.to_be_bytes());
        bytes.extend(place.version.replica.0.to_be_bytes());
        for number in [place.version.number, place.start, place.packed, place.offset] {
            bytes.extend(number.to_be_bytes());
        }
        bytes.extend(place.length.to_be_bytes());
    }
    bytes
}

/// What is damaged is as good as not there.
pub(crate) fn decode(bytes: &[u8]) -> Vec<Place> {
    let (places, rest) = bytes.as_chunks::<PLACE_BYTES>();
    if !rest.is_empty() || places.len() > PLACES_MAX {
        return Vec::new();
    }
    places.iter().map(decode_place).collect()
}

fn decode_place(bytes: &[u8; PLACE_BYTES]) -> Place {
    let long = |at: usize| u64::from_be_bytes(std::array::from_fn(|i| bytes[at + i]));
    let short = |at: usize| u32::from_be_bytes(std::array::from_fn(|i| bytes[at + i]));
    Place {
        file: FileId(long(0)),
        version: Stamp::new(ReplicaId(short(8)), long(12)),
        start: long(20),
        packed: long(28),
        offset: long(36),
        length: short(44),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{gzip, look_at, text};
    use super::*;
    use store::memory::MemoryTables;
    use store::{Durability, Tables};

    #[test]
    fn the_layout_is_pinned() {
        let place = place_in((FileId(1), Stamp::new(ReplicaId(2), 3)));
        let bytes = encode(&[place]);
        let mut golden = vec![0; PLACE_BYTES];
        for (at, value) in [(7, 1), (11, 2), (19, 3), (27, 4), (35, 5), (43, 6), (47, 7)] {
            golden[at] = value;
        }
        assert_eq!(bytes, golden);
        assert_eq!(decode(&bytes), [place]);
        assert_eq!(decode(&bytes[1..]), []);
        assert_eq!(decode(&[0; 3 * PLACE_BYTES]), []);
    }

    #[test]
    fn what_was_seen_inside_is_found_until_its_version_is_gone() {
        let tables = MemoryTables::new();
        let inside = look_at(&gzip(&text(1, 60_000), 6)).unwrap();
        let names: Vec<_> = chunks_of(&inside.streams[0].members[0]).map(|(_, n, _)| n).collect();
        let version = |number| (FileId(9), Stamp::new(ReplicaId(1), number));
        let (index, others) = (Index(b"mine"), [Index(b""), Index(b"min"), Index(b"minf")]);
        let mut write = tables.write().unwrap();
        for number in 1..=3 {
            for (name, place) in places(version(number), &inside) {
                assert_eq!(index.note(&mut *write, &name, place).unwrap(), number == 1);
            }
        }
        others[2].note(&mut *write, &names[0], place_in(version(7))).unwrap();
        write.commit(Durability::Later).unwrap();
        let numbers = |index: Index<'_>, name| {
            let found = index.find(&*tables.read().unwrap(), name).unwrap();
            found.iter().map(|place| place.version.number).collect::<Vec<_>>()
        };
        assert!(names.len() > 3 && names.iter().all(|name| numbers(index, name) == [3, 2]));
        assert!(others.iter().all(|other| numbers(*other, &names[1]).is_empty()));
        let mut write = tables.write().unwrap();
        index.forget(&mut *write, &names[0], version(3)).unwrap();
        let (mut from, mut rounds, mut left) = (None, 0, 0);
        loop {
            let alive = |_, version: Stamp| version.number != 2;
            let look = Look { from, rows_max: 3, most: None };
            let swept = index.sweep(&mut *write, look, alive).unwrap();
            (from, rounds, left) = (swept.next, rounds + 1, left + swept.left);
            if from.is_none() {
                break;
            }
        }
        write.commit(Durability::Later).unwrap();
        assert!(rounds > 1 && left >= names.len() - 1, "{left} rows in {rounds} rounds");
        assert_eq!(numbers(index, &names[0]), [0u64; 0]);
        assert!(names[1..].iter().all(|name| numbers(index, name) == [3]));
        assert_eq!(numbers(others[2], &names[0]), [7], "another index is another's affair");

        let mut write = tables.write().unwrap();
        while index.clear(&mut *write, 2).unwrap() > 0 {}
        write.commit(Durability::Later).unwrap();
        assert!(names.iter().all(|name| numbers(index, name).is_empty()));
        assert_eq!(numbers(others[2], &names[0]), [7]);
    }

    fn place_in((file, version): (FileId, Stamp)) -> Place {
        Place { file, version, start: 4, packed: 5, offset: 6, length: 7 }
    }
}
