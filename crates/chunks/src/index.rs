//! Where on this machine a chunk was last seen: name to places in cached files.
//! Holds: it is never trusted. Whoever finds a place reads it and hashes it again; a wrong entry
//! costs that read, and is forgotten when it is met. So it needs no crash precautions.
//! From: LBFS, "Implementation details"; the sweep is its background thread.

use model::{CHUNK_NAME_BYTES, ChunkName, FileId};
use store::{Read, StoreError, Write};

const TABLE: &str = "chunk-index";

/// The newest places are kept, so many for each chunk: one is often overwritten soon.
pub const PLACES_MAX: usize = 2;

const PLACE_BYTES: usize = 24;

/// A stretch of a cached file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    pub file: FileId,
    /// Of the cached file's container: it changes when the file is replaced.
    pub generation: u32,
    pub offset: u64,
    pub length: u32,
}

/// Where the chunk may be, the newest place first.
pub fn find(tables: &dyn Read, name: &ChunkName) -> Result<Vec<Place>, StoreError> {
    let row = tables.get(TABLE, &name.0)?;
    Ok(row.map(|bytes| decode(&bytes)).unwrap_or_default())
}

/// The chunk was seen here.
pub fn note(tables: &mut dyn Write, name: &ChunkName, place: Place) -> Result<(), StoreError> {
    let mut places = find(tables, name)?;
    if places.first() == Some(&place) {
        return Ok(());
    }
    places.retain(|known| *known != place);
    places.insert(0, place);
    places.truncate(PLACES_MAX);
    tables.put(TABLE, &name.0, &encode(&places))
}

/// The chunk is not here.
pub fn forget(tables: &mut dyn Write, name: &ChunkName, place: &Place) -> Result<(), StoreError> {
    let mut places = find(tables, name)?;
    places.retain(|known| known != place);
    replace(tables, &name.0, &places)
}

/// Forgets places in files that are gone, in at most `rows_max` rows beginning with `from`.
/// Returns where to go on, or none when all has been looked at.
pub fn sweep(
    tables: &mut dyn Write,
    from: Option<ChunkName>,
    rows_max: usize,
    mut alive: impl FnMut(FileId, u32) -> bool,
) -> Result<Option<ChunkName>, StoreError> {
    let first = from.map_or([0; CHUNK_NAME_BYTES], |name| name.0);
    // Longer than every name, so it comes after all of them.
    let end = [0xff; CHUNK_NAME_BYTES + 1];
    let rows = tables.scan(TABLE, &first, &end, rows_max)?;
    let complete = rows.len() < rows_max;
    let last = rows.last().and_then(|(key, _)| <[u8; CHUNK_NAME_BYTES]>::try_from(&key[..]).ok());
    for (key, value) in rows {
        let places = decode(&value);
        let kept: Vec<Place> =
            places.iter().copied().filter(|place| alive(place.file, place.generation)).collect();
        if kept.is_empty() || kept != places {
            replace(tables, &key, &kept)?;
        }
    }
    Ok(last.filter(|_| !complete).and_then(successor))
}

fn replace(tables: &mut dyn Write, key: &[u8], places: &[Place]) -> Result<(), StoreError> {
    match places {
        [] => tables.delete(TABLE, key),
        _ => tables.put(TABLE, key, &encode(places)),
    }
}

/// The next name, if there is one.
fn successor(mut name: [u8; CHUNK_NAME_BYTES]) -> Option<ChunkName> {
    for byte in name.iter_mut().rev() {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            return Some(ChunkName(name));
        }
    }
    None
}

fn encode(places: &[Place]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(places.len() * PLACE_BYTES);
    for place in places {
        bytes.extend(place.file.0.to_be_bytes());
        bytes.extend(place.generation.to_be_bytes());
        bytes.extend(place.offset.to_be_bytes());
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
    Place { file: FileId(long(0)), generation: short(8), offset: long(12), length: short(20) }
}

#[cfg(test)]
mod tests;
