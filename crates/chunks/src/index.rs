//! Where on this machine a chunk was last seen: name to places in cached files.
//! Holds: it is never trusted. Whoever finds a place reads it and hashes it again; a wrong entry
//! costs that read, and is forgotten when it is met. So it needs no crash precautions.
//! From: LBFS, "Implementation details"; the sweep is its background thread.

use crate::spread::{self, Look, Swept, Worth};
use model::{ChunkName, FileId};
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

/// The chunk was seen here. Gives where it was before, as `find`.
pub fn note(
    tables: &mut dyn Write,
    name: &ChunkName,
    place: Place,
) -> Result<Vec<Place>, StoreError> {
    let before = find(tables, name)?;
    if before.first() != Some(&place) {
        let others = before.iter().filter(|known| **known != place);
        let places: Vec<Place> =
            [&place].into_iter().chain(others).take(PLACES_MAX).copied().collect();
        tables.put(TABLE, &name.0, &encode(&places))?;
    }
    Ok(before)
}

/// The chunk is not here.
pub fn forget(tables: &mut dyn Write, name: &ChunkName, place: &Place) -> Result<(), StoreError> {
    let mut places = find(tables, name)?;
    places.retain(|known| known != place);
    replace(tables, &name.0, &places)
}

/// Forgets places in files that are gone, and some of the others where there are too many rows.
pub fn sweep(
    tables: &mut dyn Write,
    look: Look,
    mut alive: impl FnMut(FileId, u32) -> bool,
) -> Result<Swept, StoreError> {
    spread::sweep(tables, (TABLE, &[]), look, |_, _, value| {
        let places = decode(value);
        let alive = |place: &&Place| alive(place.file, place.generation);
        let kept: Vec<Place> = places.iter().filter(alive).copied().collect();
        Ok(match &kept[..] {
            [] => Worth::Nothing,
            _ if kept == places => Worth::All,
            _ => Worth::Shorter(encode(&kept)),
        })
    })
}

/// Removes rows, at most `rows_max`. Gives how many.
pub fn clear(tables: &mut dyn Write, rows_max: usize) -> Result<usize, StoreError> {
    spread::clear(tables, (TABLE, &[]), rows_max)
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
