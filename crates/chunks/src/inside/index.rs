//! Where a chunk was last seen inside a container: name to places in versions of files.
//! Holds: it is never trusted, as the index of chunks is not. A wrong entry costs a look.
//! From: LBFS's index, one level down.

use super::{Inside, chunks_of};
use model::{CHUNK_NAME_BYTES, ChunkName, FileId, ReplicaId, Stamp};
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
    /// The deflate stream; none where it is stored as it is.
    pub fn stream(&self) -> Option<Base> {
        let stretch = Range { offset: self.start, length: self.packed };
        let Place { file, version, .. } = *self;
        (self.packed > 0).then_some(Base { file, version, stretch })
    }
}

/// Where the chunk may be, the newest place first.
pub fn find(tables: &dyn Read, name: &ChunkName) -> Result<Vec<Place>, StoreError> {
    let row = tables.get(TABLE, &name.0)?;
    Ok(row.map(|bytes| decode(&bytes)).unwrap_or_default())
}

/// What is inside this version of a file.
pub fn note(
    tables: &mut dyn Write,
    (file, version): (FileId, Stamp),
    inside: &Inside,
) -> Result<(), StoreError> {
    for stream in &inside.streams {
        let packed = if stream.is_deflated() { stream.packed } else { 0 };
        for member in &stream.members {
            for (offset, name, length) in chunks_of(member) {
                let (start, offset) = (stream.start, member.offset + offset);
                let length = u32::try_from(length).expect("no chunk is longer than 1 MiB");
                let place = Place { file, version, start, packed, offset, length };
                let mut places = find(tables, &name)?;
                if places.first() != Some(&place) {
                    places.retain(|known| (known.file, known.version) != (file, version));
                    places.insert(0, place);
                    places.truncate(PLACES_MAX);
                    tables.put(TABLE, &name.0, &encode(&places))?;
                }
            }
        }
    }
    Ok(())
}

/// The chunk is not in this version, or the version is not here.
pub fn forget(
    tables: &mut dyn Write,
    name: &ChunkName,
    (file, version): (FileId, Stamp),
) -> Result<(), StoreError> {
    let mut places = find(tables, name)?;
    places.retain(|known| (known.file, known.version) != (file, version));
    replace(tables, &name.0, &places)
}

/// Forgets places in versions that are gone, in at most `rows_max` rows beginning with `from`.
/// Returns where to go on, or none when all has been looked at.
pub fn sweep(
    tables: &mut dyn Write,
    from: Option<ChunkName>,
    rows_max: usize,
    mut alive: impl FnMut(FileId, Stamp) -> bool,
) -> Result<Option<ChunkName>, StoreError> {
    let first = from.map_or([0; CHUNK_NAME_BYTES], |name| name.0);
    let rows = tables.scan(TABLE, &first, &[0xff; CHUNK_NAME_BYTES + 1], rows_max.max(2))?;
    let complete = rows.len() < rows_max.max(2);
    let last = rows.last().and_then(|(key, _)| <[u8; CHUNK_NAME_BYTES]>::try_from(&key[..]).ok());
    for (key, value) in &rows {
        let mut places = decode(value);
        let before = places.len();
        places.retain(|place| alive(place.file, place.version));
        if places.len() != before || places.is_empty() {
            replace(tables, key, &places)?;
        }
    }
    // The last row is looked at once more, and nobody needs to know which name comes next.
    Ok(last.filter(|_| !complete).map(ChunkName))
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
        let version = Stamp::new(ReplicaId(2), 3);
        let place = Place { file: FileId(1), version, start: 4, packed: 5, offset: 6, length: 7 };
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
        let mut write = tables.write().unwrap();
        for number in 1..=3 {
            note(&mut *write, version(number), &inside).unwrap();
        }
        write.commit(Durability::Later).unwrap();
        let numbers = |name| {
            let found = find(&*tables.read().unwrap(), name).unwrap();
            found.iter().map(|place| place.version.number).collect::<Vec<_>>()
        };
        assert!(names.len() > 3 && names.iter().all(|name| numbers(name) == [3, 2]));
        let mut write = tables.write().unwrap();
        forget(&mut *write, &names[0], version(3)).unwrap();
        let (mut from, mut rounds) = (None, 0);
        loop {
            from = sweep(&mut *write, from, 3, |_, version| version.number != 2).unwrap();
            rounds += 1;
            if from.is_none() {
                break;
            }
        }
        write.commit(Durability::Later).unwrap();
        assert!(rounds > 1);
        assert_eq!(numbers(&names[0]), [0u64; 0]);
        assert!(names[1..].iter().all(|name| numbers(name) == [3]));
    }
}
