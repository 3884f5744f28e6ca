//! Deltas that are assembled of many parts: contents that are here under whatever name, bytes of
//! versions, and what is packed in them.
//! Holds: what a message may have unpacked is bounded; the parts are not hashed, what comes of them
//! is. One of these is worked on at a time, as it takes more memory than others.
//! From: beyond LBFS, which finds chunks in files as they are.

use crate::deltas::bytes_of;
use crate::error::Result;
use crate::origin::Inner;
use crate::volumes::{Volume, locked};
use crate::within::{Budget, chunks_within, said_within};
use chunks::delta::{PARTS_BYTES_MAX, PARTS_MAX, Part, parts_of};
use chunks::inside::{Looked, Outcome, Segment};
use chunks::payload::PAYLOAD_CHUNKS_MAX;
use chunks::{ChunksError, Placed, inside, unpack_assembled};
use model::{ChunkName, Contents, FileId, Piece, Stamp};
use protocol::{Base, CODED_BYTES_MAX, Delta, FIND_NAMES_MAX, KnownInside, Range, Refusal};
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex};
use volume::whole::{VolumeId, Whole};

/// Plain bytes that are unpacked for one delta, at most.
const UNPACKED_BYTES_MAX: u64 = 512 << 20;
/// What is read of a version at once, and its pieces: chunks of 2 KiB at the least.
const READ_BYTES_MAX: usize = 16 << 20;
const PIECES_MAX: usize = 2 * (READ_BYTES_MAX / 2048);

/// Which of these chunks are here, a bit for each: by themselves, and these stay for a while, or, as
/// far as is known, inside a container.
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
    let within = said_within(&*inner.tables.read()?, volume, names)?;
    let mut bits = vec![0; names.len().div_ceil(8)];
    for ((at, name), within) in names.iter().enumerate().zip(within) {
        promise.note(volume.id, name);
        if within || inner.blobs.has(&volume.blob(name))? {
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

type Which = (VolumeId, FileId, Stamp, u64);

/// What was last seen inside versions.
#[derive(Default)]
pub(crate) struct Seen(Mutex<Looked<Which>>);

/// Names of what stands inside a stretch of a version, one after another; none where it is no
/// container.
pub(crate) fn names_inside(
    inner: &Inner,
    volume: &Volume,
    (file, version): (FileId, Stamp),
    stretch: Range,
) -> Result<std::result::Result<Vec<u8>, Refusal>> {
    let _turn = inner.turns.large();
    let contents = contents_of(inner, volume, &Base { file, version, stretch })?;
    let Some(contents) = contents else { return Ok(Err(Refusal::NoVersion(file, version))) };
    let looked = look(inner, volume, (file, version), &contents, stretch)?;
    let names = match looked.as_ref() {
        Ok(inside) => inside.names_near(&range_of(stretch), FIND_NAMES_MAX),
        Err(_) => Vec::new(),
    };
    Ok(Ok(names.iter().flat_map(|name| name.0).collect()))
}

fn range_of(stretch: Range) -> std::ops::Range<u64> {
    stretch.offset..stretch.offset.saturating_add(stretch.length)
}

fn look(
    inner: &Inner,
    volume: &Volume,
    (file, version): (FileId, Stamp),
    contents: &Contents,
    stretch: Range,
) -> Result<Outcome> {
    let region = inside::region_of(contents.size, stretch.offset);
    let which = (volume.id, file, version, region.start);
    if let Some(found) = locked(&inner.seen.0).find(&which) {
        return Ok(found);
    }
    let found = Version { inner, volume, contents: *contents };
    let mut read = |from: u64, length: usize| found.read(from, length);
    let looked = inside::look(&volume.secret, volume.cutter, (contents.size, region), &mut read)?;
    let looked = Arc::new(looked);
    locked(&inner.seen.0).keep(which, looked.clone());
    Ok(looked)
}

/// All chunks from the first to the last of these stretches of a version, assembled for who has
/// `known` of what is inside. None where they are better sent by themselves.
pub(crate) fn assembled_for(
    inner: &Inner,
    volume: &Volume,
    (file, version): (FileId, Stamp),
    (contents, ranges): (&Contents, &[Range]),
    known: &KnownInside,
) -> Result<Option<Delta>> {
    let _turn = inner.turns.large();
    let start = ranges.iter().map(|range| range.offset).min().unwrap_or(0);
    let ends = ranges.iter().map(|range| range.offset.saturating_add(range.length));
    let end = ends.max().unwrap_or(start);
    if end - start > CODED_BYTES_MAX as u64 / 2 {
        return Ok(None);
    }
    let looked = look(inner, volume, (file, version), contents, known.stretch)?;
    let Ok(inside) = looked.as_ref() else { return Ok(None) };
    let names = inside.names_near(&range_of(known.stretch), FIND_NAMES_MAX);
    let bit = |at: usize| known.bits.get(at / 8).is_some_and(|byte| byte >> (at % 8) & 1 == 1);
    let has: HashSet<&ChunkName> =
        names.iter().enumerate().filter(|(at, _)| bit(*at)).map(|(_, name)| name).collect();
    let stretch = Range { offset: start, length: end - start };
    let found = Version { inner, volume, contents: *contents };
    let Some(lengths) = found.lengths(stretch)? else { return Ok(None) };
    let mut read = |from: u64, length: usize| found.read(from, length);
    let Some(segment) = inside.segment(&(start..end), &mut read)? else { return Ok(None) };
    let parts = parts_among(inner, volume, &segment, &has)?;
    let parts: Vec<(Part, &[u8])> =
        parts.iter().map(|(part, bytes)| (*part, bytes.as_slice())).collect();
    let target = found.read(start, (end - start) as usize)?;
    if target.len() as u64 != end - start || parts.is_empty() {
        return Ok(None);
    }
    let base = Base { file, version, stretch };
    let delta = segment.assemble(&volume.secret, base, (&target, lengths), &parts);
    Ok(delta.filter(|delta| delta.bytes.len() <= target.len() / 8 * 7))
}

/// The chunks of a segment that somebody has.
fn parts_among(
    inner: &Inner,
    volume: &Volume,
    segment: &Segment,
    has: &HashSet<&ChunkName>,
) -> Result<Vec<(Part, Vec<u8>)>> {
    let (mut parts, mut seen, mut room) = (Vec::new(), HashSet::new(), PARTS_BYTES_MAX);
    for held in segment.held.iter().filter(|held| !held.is_member) {
        let Some(root) = held.contents.root else { continue };
        let fits = held.contents.size <= room && parts.len() < PARTS_MAX;
        if !has.contains(&root.name) || !fits || !seen.insert(root.name) {
            continue;
        }
        let bytes = match held.is_whole() {
            true => Some(segment.bytes()[held.at.clone()].to_vec()),
            // The rest of it may be here as a chunk of a file.
            false => inner.sound(volume, &root.name)?,
        };
        if let Some(bytes) = bytes.filter(|bytes| bytes.len() as u64 == held.contents.size) {
            room -= held.contents.size;
            parts.push((Part::Contents(held.contents), bytes));
        }
    }
    Ok(parts)
}

/// The bytes of all parts, one after another; none if one of them is not here.
pub(crate) fn reference(inner: &Inner, volume: &Volume, parts: &[Part]) -> Result<Option<Vec<u8>>> {
    let mut room = UNPACKED_BYTES_MAX;
    let mut unpacked = match unpacked(inner, volume, parts, &mut room)? {
        Some(unpacked) => unpacked,
        None => return Ok(None),
    };
    let mut within = within(inner, volume, parts, room)?;
    let total: u64 = parts.iter().map(Part::length).sum();
    let mut reference = Vec::with_capacity(total.min(PARTS_BYTES_MAX) as usize);
    for (at, part) in parts.iter().enumerate() {
        let bytes = match part {
            Part::Contents(contents) => {
                let whole = Range { offset: 0, length: contents.size };
                match contents.root.and_then(|root| within.remove(&root.name)) {
                    Some(bytes) => Some(bytes).filter(|b| b.len() as u64 == contents.size),
                    None => bytes_of(inner, volume, contents, whole, PARTS_BYTES_MAX)?,
                }
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

/// Parts that are one chunk which is not here by itself, as far as they are inside containers.
fn within(
    inner: &Inner,
    volume: &Volume,
    parts: &[Part],
    unpacked: u64,
) -> Result<BTreeMap<ChunkName, Vec<u8>>> {
    let mut names = Vec::new();
    for part in parts {
        let Part::Contents(Contents { root: Some(root), .. }) = part else { continue };
        if root.depth == 0 && !inner.blobs.has(&volume.blob(&root.name))? {
            names.push(root.name);
        }
    }
    chunks_within(
        inner,
        volume,
        &names,
        Budget { found: PARTS_BYTES_MAX, unpacked, for_each: None },
    )
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
    room: &mut u64,
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
    let mut found = BTreeMap::new();
    for (stream, asked) in streams.into_values() {
        let stretches: Vec<_> = asked.iter().map(|(_, range)| range.clone()).collect();
        let Some(plain) = plain_of(inner, volume, &stream, &stretches, room)? else {
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
    let version = Version { inner, volume, contents };
    let mut read = |from: u64, length: usize| version.read(from, length.min((end - from) as usize));
    Ok(inside::plain_of(offset..end, stretches, room, &mut read)?)
}

/// A version, read piece by piece.
pub(crate) struct Version<'a> {
    pub inner: &'a Inner,
    pub volume: &'a Volume,
    pub contents: Contents,
}

impl Version<'_> {
    /// The pieces that have a stretch; none where the recipe is not all here, or makes no sense.
    fn pieces(&self, from: u64, length: u64) -> chunks::Result<Option<Vec<Placed>>> {
        let stretch = Range { offset: from, length };
        let fetch = |name: &ChunkName| self.inner.blobs.get(&self.volume.blob(name));
        let (secret, most) = (&self.volume.secret, PIECES_MAX);
        match chunks::cover(secret, &self.contents, stretch, most, fetch) {
            Ok(cover) if cover.missing.is_empty() && cover.next.is_none() => Ok(Some(cover.pieces)),
            Err(ChunksError::Store(error)) => Err(error.into()),
            Ok(_) | Err(_) => Ok(None),
        }
    }

    /// The lengths of the chunks of a stretch; none where it is not whole chunks alone.
    fn lengths(&self, stretch: Range) -> chunks::Result<Option<Vec<u32>>> {
        let Some(pieces) = self.pieces(stretch.offset, stretch.length)? else { return Ok(None) };
        let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else { return Ok(None) };
        let length = |placed: &Placed| match placed.piece {
            Piece::Chunk { length, .. } => u32::try_from(length).ok(),
            Piece::Zeros { .. } => None,
        };
        let lengths = pieces.iter().map(length).collect::<Option<Vec<u32>>>();
        let end = stretch.offset.saturating_add(stretch.length);
        let whole = first.offset == stretch.offset && last.end() == end;
        Ok(lengths.filter(|lengths| whole && lengths.len() <= PAYLOAD_CHUNKS_MAX))
    }

    /// So many bytes from an offset of the file on, or as many as are here.
    pub fn read(&self, from: u64, length: usize) -> chunks::Result<Vec<u8>> {
        let to = from.saturating_add(length as u64);
        let pieces = self.pieces(from, length as u64)?.unwrap_or_default();
        let mut bytes = Vec::with_capacity(length.min(READ_BYTES_MAX));
        for placed in pieces {
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
