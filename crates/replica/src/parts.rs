//! Deltas that are assembled of many parts: contents that are here under whatever name, bytes of
//! versions, and what is packed in them.
//! Holds: what a message may have unpacked is bounded; the parts are not hashed, what comes of them
//! is. One of these is worked on at a time, as it takes more memory than others.
//! From: beyond LBFS, which finds chunks in files as they are.

use crate::deltas::bytes_of;
use crate::error::Result;
use crate::origin::Inner;
use crate::volumes::Volume;
use chunks::delta::{PARTS_BYTES_MAX, Part, parts_of};
use chunks::{ChunksError, Placed, inside, unpack_assembled};
use model::{ChunkName, Contents, Piece};
use protocol::{Base, CODED_BYTES_MAX, Delta, FIND_NAMES_MAX, Range, Refusal};
use std::collections::BTreeMap;
use volume::whole::Whole;

/// Plain bytes that are unpacked for one delta, at most.
const UNPACKED_BYTES_MAX: u64 = 512 << 20;
/// Pieces of one stream: chunks of 2 KiB at the least.
const STREAM_PIECES_MAX: usize = 2 * (inside::STREAM_BYTES_MAX as usize / 2048);

/// Which of these chunks are here, a bit for each. They stay for a while.
pub(crate) fn find(
    inner: &Inner,
    volume: &Volume,
    names: &[ChunkName],
) -> Result<std::result::Result<Vec<u8>, Refusal>> {
    if names.len() > FIND_NAMES_MAX {
        let what = format!("{} names at once, of {FIND_NAMES_MAX}", names.len());
        return Ok(Err(Refusal::Malformed(what)));
    }
    let promise = inner.upkeep.promises.current();
    let mut bits = vec![0; names.len().div_ceil(8)];
    for (at, name) in names.iter().enumerate() {
        promise.note(volume.id, name);
        if inner.blobs.has(&volume.blob(name))? {
            bits[at / 8] |= 1 << (at % 8);
        }
    }
    Ok(Ok(bits))
}

/// The chunks of an assembled delta; none where nothing comes of it.
pub(crate) fn assembled(
    inner: &Inner,
    volume: &Volume,
    delta: &Delta,
) -> Result<Option<Vec<Vec<u8>>>> {
    let Ok(parts) = parts_of(&delta.bytes) else { return Ok(None) };
    let Some(reference) = reference(inner, volume, &parts)? else { return Ok(None) };
    match unpack_assembled(&volume.secret, delta, &reference, CODED_BYTES_MAX) {
        Ok(chunks) => Ok(chunks),
        Err(ChunksError::BadPayload(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The bytes of all parts, one after another; none if one of them is not here.
pub(crate) fn reference(inner: &Inner, volume: &Volume, parts: &[Part]) -> Result<Option<Vec<u8>>> {
    let mut unpacked = match unpacked(inner, volume, parts)? {
        Some(unpacked) => unpacked,
        None => return Ok(None),
    };
    let total: u64 = parts.iter().map(Part::length).sum();
    let mut reference = Vec::with_capacity(total.min(PARTS_BYTES_MAX) as usize);
    for (at, part) in parts.iter().enumerate() {
        let bytes = match part {
            Part::Contents(contents) => {
                let whole = Range { offset: 0, length: contents.size };
                bytes_of(inner, volume, contents, whole, PARTS_BYTES_MAX)?
            }
            Part::Bytes(base) => match contents_of(inner, volume, base)? {
                Some(contents) => {
                    bytes_of(inner, volume, &contents, base.stretch, PARTS_BYTES_MAX)?
                }
                None => None,
            },
            Part::Plain { .. } => unpacked.remove(&at),
        };
        match bytes {
            Some(bytes) => reference.extend(bytes),
            None => return Ok(None),
        }
    }
    Ok(Some(reference))
}

fn contents_of(inner: &Inner, volume: &Volume, base: &Base) -> Result<Option<Contents>> {
    let tables = inner.tables.read()?;
    let found = Whole::now(&*tables, volume.id).contents(base.file, base.version)?;
    Ok(found.map(|(contents, _)| contents))
}

/// The plain parts, by their places among all. Each stream is gone through once.
fn unpacked(
    inner: &Inner,
    volume: &Volume,
    parts: &[Part],
) -> Result<Option<BTreeMap<usize, Vec<u8>>>> {
    type Asked = (Base, Vec<(usize, std::ops::Range<u64>)>);
    let mut streams: BTreeMap<_, Asked> = BTreeMap::new();
    for (at, part) in parts.iter().enumerate() {
        let Part::Plain { stream, stretch } = part else { continue };
        let Some(end) = stretch.offset.checked_add(stretch.length) else { return Ok(None) };
        let key = (stream.file, stream.version, stream.stretch.offset, stream.stretch.length);
        let asked = streams.entry(key).or_insert((*stream, Vec::new()));
        asked.1.push((at, stretch.offset..end));
    }
    let (mut found, mut room) = (BTreeMap::new(), UNPACKED_BYTES_MAX);
    for (stream, asked) in streams.into_values() {
        let stretches: Vec<_> = asked.iter().map(|(_, range)| range.clone()).collect();
        let Some(plain) = plain_of(inner, volume, &stream, &stretches, &mut room)? else {
            return Ok(None);
        };
        found.extend(asked.into_iter().map(|(at, _)| at).zip(plain));
    }
    Ok(Some(found))
}

fn plain_of(
    inner: &Inner,
    volume: &Volume,
    stream: &Base,
    stretches: &[std::ops::Range<u64>],
    room: &mut u64,
) -> Result<Option<Vec<Vec<u8>>>> {
    let Range { offset, length } = stream.stretch;
    let Some(contents) = contents_of(inner, volume, stream)? else { return Ok(None) };
    let Some(end) = offset.checked_add(length).filter(|end| *end <= contents.size) else {
        return Ok(None);
    };
    let Some(version) = Version::of(inner, volume, &contents, stream.stretch)? else {
        return Ok(None);
    };
    let mut read = |from: u64, length: usize| version.read(from, length.min((end - from) as usize));
    Ok(inside::plain_of(offset..end, stretches, room, &mut read)?)
}

/// A stretch of a version, read piece by piece.
pub(crate) struct Version<'a> {
    inner: &'a Inner,
    volume: &'a Volume,
    pieces: Vec<Placed>,
}

impl<'a> Version<'a> {
    /// None where its recipe is not all here, or it has too many pieces.
    pub(crate) fn of(
        inner: &'a Inner,
        volume: &'a Volume,
        contents: &Contents,
        stretch: Range,
    ) -> Result<Option<Version<'a>>> {
        let fetch = |name: &ChunkName| inner.blobs.get(&volume.blob(name));
        let found = chunks::cover(&volume.secret, contents, stretch, STREAM_PIECES_MAX, fetch);
        match found {
            Ok(cover) if cover.missing.is_empty() && cover.next.is_none() => {
                Ok(Some(Version { inner, volume, pieces: cover.pieces }))
            }
            Err(ChunksError::Store(error)) => Err(error.into()),
            // A recipe that makes no sense is as good as none.
            Ok(_) | Err(_) => Ok(None),
        }
    }

    /// So many bytes from an offset of the file on, or as many as are here.
    pub(crate) fn read(&self, from: u64, length: usize) -> chunks::Result<Vec<u8>> {
        let to = from.saturating_add(length as u64);
        let first = self.pieces.partition_point(|placed| placed.end() <= from);
        let mut bytes = Vec::with_capacity(length.min(4 << 20));
        for placed in self.pieces.iter().skip(first).take_while(|placed| placed.offset < to) {
            let start = from.saturating_sub(placed.offset) as usize;
            let end = (placed.end().min(to) - placed.offset) as usize;
            match placed.piece {
                Piece::Zeros { .. } => bytes.resize(bytes.len() + end - start, 0),
                Piece::Chunk { name, .. } => {
                    let chunk = self.inner.blobs.get(&self.volume.blob(&name))?;
                    match chunk.as_ref().and_then(|chunk| chunk.get(start..end)) {
                        Some(part) => bytes.extend_from_slice(part),
                        None => break,
                    }
                }
            }
        }
        Ok(bytes)
    }
}
