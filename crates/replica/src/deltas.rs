//! Deltas: undone as they arrive, made where the asker has something like what it asks for.
//! Holds: a delta of which nothing comes is no error, and its base is named to the sender; what
//! comes of one is a chunk like any other, named here, from its bytes; no more than `TURNS` are
//! worked on at a time, each with a base and a target of bounded length.
//! From: beyond LBFS, which sends a changed chunk whole.

use crate::error::{ReplicaError, Result};
use crate::examine::put_chunks;
use crate::origin::Inner;
use crate::parts::assembled;
use crate::upkeep::Promise;
use crate::volumes::{Volume, locked};
use chunks::delta::{Codec, Effort};
use chunks::{ChunksError, Secret, pack_after, pack_against, target_bytes, unpack_against};
use model::{ChunkName, Contents, FileId, Piece, Stamp};
use protocol::{
    BASE_BYTES_MAX, Base, CODED_BYTES_MAX, DELTAS_MAX, Delta, GATHERED_FILES_MAX, Range, Refusal,
    Sequel,
};
use std::sync::{Mutex, MutexGuard, TryLockError};
use store::StoreError;
use volume::whole::Whole;

/// Deltas that are worked on at once, all sessions together.
const TURNS: usize = 4;
/// Bytes of bases that one message may name, all its deltas together.
pub(crate) const BASES_BYTES_MAX: u64 = 16 * BASE_BYTES_MAX;
/// No file is cut into smaller chunks, but for its last one.
const CHUNK_BYTES_LEAST: usize = 2048;

/// Who works on a delta has one of these.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    usual: [Mutex<()>; TURNS],
    /// Who assembles has this one, and nobody else does.
    large: Mutex<()>,
}

impl Turns {
    /// One that is free.
    fn free(&self) -> Option<MutexGuard<'_, ()>> {
        self.usual.iter().find_map(|turn| match turn.try_lock() {
            Ok(turn) => Some(turn),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        })
    }

    /// The one for what takes more memory, when it is free.
    pub(crate) fn large(&self) -> MutexGuard<'_, ()> {
        locked(&self.large)
    }

    /// One that is free, or will be.
    fn wait(&self) -> MutexGuard<'_, ()> {
        self.free().unwrap_or_else(|| locked(&self.usual[0]))
    }
}

/// Keeps the chunks of deltas. Gives back the bases that were of no use.
pub(crate) fn put_deltas(
    inner: &Inner,
    volume: &Volume,
    promise: &Promise,
    deltas: &[Delta],
) -> Result<Vec<(FileId, Stamp)>, Refusal> {
    check_sizes(deltas)?;
    let mut useless = Vec::new();
    for delta in deltas {
        let reading =
            |error: ReplicaError| inner.refuse(&error, volume, "read what a delta is against");
        let chunks = match Codec::from_number(delta.codec) {
            Some(Codec::Assembled) => {
                let _turn = inner.turns.large();
                assembled(inner, volume, delta).map_err(reading)?
            }
            _ => {
                let _turn = inner.turns.wait();
                match base_bytes(inner, volume, &delta.base).map_err(reading)? {
                    Some(base) => unpack_against(&volume.secret, delta, &base, CODED_BYTES_MAX)
                        .map_err(|error| Refusal::Malformed(error.to_string()))?,
                    None => None,
                }
            }
        };
        match chunks {
            Some(chunks) => {
                let chunks: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
                put_chunks(inner, volume, promise, &chunks)?;
            }
            None => useless.push((delta.base.file, delta.base.version)),
        }
    }
    useless.dedup();
    Ok(useless)
}

/// What a message may ask for in work.
fn check_sizes(deltas: &[Delta]) -> Result<(), Refusal> {
    let malformed = |what: String| Err(Refusal::Malformed(what));
    if deltas.len() > DELTAS_MAX {
        return malformed(format!("{} deltas at once, of {DELTAS_MAX}", deltas.len()));
    }
    let (mut room, mut bases) = (CODED_BYTES_MAX, 0u64);
    for delta in deltas {
        match target_bytes(delta, room) {
            Ok(bytes) => room -= bytes,
            Err(error) => return malformed(error.to_string()),
        }
        bases = bases.saturating_add(delta.base.stretch.length);
        if bases > BASES_BYTES_MAX {
            return malformed(format!("deltas against more than {BASES_BYTES_MAX} bytes"));
        }
    }
    Ok(())
}

/// These chunks against what the asker has; none where they are better sent by themselves, as far
/// as the effort shows, and where others have all turns.
pub(crate) fn delta_of(
    inner: &Inner,
    volume: &Volume,
    base: Option<Base>,
    chunks: &[Vec<u8>],
    effort: Effort,
) -> Result<Option<Delta>> {
    let Some(base) = base else { return Ok(None) };
    let Some(_turn) = inner.turns.free() else { return Ok(None) };
    let Some(bytes) = base_bytes(inner, volume, &base)? else { return Ok(None) };
    let chunks: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
    Ok(pack_against(&volume.secret, (base, &bytes), &chunks, effort))
}

/// These chunks after whole versions that the asker has; none where they are better sent by
/// themselves, where a version is not here, and where others have all turns.
pub(crate) fn sequel_of(
    inner: &Inner,
    volume: &Volume,
    held: &[(FileId, Stamp)],
    chunks: &[&[u8]],
) -> Result<Option<Sequel>> {
    if held.is_empty() || chunks.is_empty() || held.len() > GATHERED_FILES_MAX {
        return Ok(None);
    }
    let Some(_turn) = inner.turns.free() else { return Ok(None) };
    let mut before = Vec::new();
    for (file, version) in held {
        let contents = {
            let tables = inner.tables.read()?;
            Whole::now(&*tables, volume.id).contents(*file, *version)?
        };
        let size = contents.map_or(0, |(contents, _)| contents.size);
        if size.saturating_add(before.len() as u64) > BASE_BYTES_MAX {
            return Ok(None);
        }
        let whole = Range { offset: 0, length: size };
        let base = Base { file: *file, version: *version, stretch: whole };
        let Some(bytes) = base_bytes(inner, volume, &base)? else { return Ok(None) };
        before.extend(bytes);
    }
    Ok(pack_after(&volume.secret, &before, chunks))
}

/// The bytes of a stretch of a version; none if it is not all here, or there is no such stretch.
/// They are not hashed: who uses them checks what comes of it.
fn base_bytes(inner: &Inner, volume: &Volume, base: &Base) -> Result<Option<Vec<u8>>> {
    if !(1..=BASE_BYTES_MAX).contains(&base.stretch.length) {
        return Ok(None);
    }
    let contents = {
        let tables = inner.tables.read()?;
        Whole::now(&*tables, volume.id).contents(base.file, base.version)?
    };
    let Some((contents, _)) = contents else { return Ok(None) };
    bytes_of(inner, volume, &contents, base.stretch, BASE_BYTES_MAX)
}

/// The bytes of a stretch of contents, of at most so many; none if it is not all here, or there is
/// no such stretch.
pub(crate) fn bytes_of(
    inner: &Inner,
    volume: &Volume,
    contents: &Contents,
    stretch: Range,
    bytes_max: u64,
) -> Result<Option<Vec<u8>>> {
    let fetch = |name: &ChunkName| inner.blobs.get(&volume.blob(name));
    Ok(bytes_with(&volume.secret, contents, stretch, bytes_max, fetch)?)
}

/// The same of chunks that `fetch` gives.
pub(crate) fn bytes_with(
    secret: &Secret,
    contents: &Contents,
    stretch: Range,
    bytes_max: u64,
    fetch: impl Fn(&ChunkName) -> std::result::Result<Option<Vec<u8>>, StoreError>,
) -> chunks::Result<Option<Vec<u8>>> {
    let Range { offset: from, length } = stretch;
    if !(1..=bytes_max).contains(&length) {
        return Ok(None);
    }
    let Some(to) = from.checked_add(length).filter(|to| *to <= contents.size) else {
        return Ok(None);
    };
    let pieces_max = 2 * (bytes_max as usize / CHUNK_BYTES_LEAST);
    let cover = match chunks::cover(secret, contents, stretch, pieces_max, &fetch) {
        Ok(cover) => cover,
        Err(error @ ChunksError::Store(_)) => return Err(error),
        // A recipe that makes no sense is as good as none.
        Err(_) => return Ok(None),
    };
    if !cover.missing.is_empty() || cover.next.is_some() {
        return Ok(None);
    }
    let mut bytes = Vec::with_capacity(length as usize);
    for placed in &cover.pieces {
        let first = from.saturating_sub(placed.offset) as usize;
        let last = (placed.end().min(to) - placed.offset) as usize;
        match placed.piece {
            Piece::Zeros { .. } => bytes.resize(bytes.len() + last - first, 0),
            Piece::Chunk { name, .. } => {
                let chunk = fetch(&name)?;
                let Some(part) = chunk.as_ref().and_then(|chunk| chunk.get(first..last)) else {
                    return Ok(None);
                };
                bytes.extend_from_slice(part);
            }
        }
    }
    Ok((bytes.len() as u64 == length).then_some(bytes))
}
