//! Compressed containers: where one word changes, every byte behind it does. So the streams that
//! changed are unpacked on both sides, the difference is that of the plain bytes, and the receiver
//! packs again, bit for bit. What did not change stays packed, and costs nothing.
//! Holds: only what came out bit for bit here is sent so; decoding unpacks and packs no more bytes
//! than a delta may have.

pub(crate) mod containers;

use super::varint::{self, Numbers};
use super::{Codec, DELTA_BYTES_MAX, bad, deflate, patch, prefix};
use crate::error::Result;
use containers::{PIECES_MAX, Place, STREAMS_MAX};
use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;

/// Base and target have at most so many bytes: unpacked they are several times as large.
pub(super) const UNPACK_BYTES_MAX: usize = 16 << 20;

/// Places that turn out to be no stream, before one stops looking.
const MISTAKEN_MAX: usize = 16;

/// All that is said of streams has at most so many bytes.
const STREAMS_BYTES_MAX: usize = 8 << 20;

/// A stream in a file.
struct Stream {
    pieces: Vec<Range<usize>>,
    packed_len: usize,
    /// None as long as nobody needed it.
    plain: Option<Vec<u8>>,
}

pub(super) fn is_known(file: &[u8]) -> bool {
    containers::is_known(file)
}

/// What the streams of a file hold, one after the other, as far as that is at most so many bytes;
/// none where nothing is packed.
pub(super) fn plain_of(file: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
    if file.len() > UNPACK_BYTES_MAX {
        return None;
    }
    let mut all = Vec::new();
    for stream in streams(file) {
        let packed = joined(file, &stream.pieces);
        if let Some(plain) = plain(&stream, &packed, bytes_max - all.len()) {
            all.extend(plain);
        }
    }
    (!all.is_empty()).then_some(all)
}

/// None where there is nothing to unpack.
pub(super) fn encode(base: &[u8], target: &[u8]) -> Option<Vec<u8>> {
    if base.len() > UNPACK_BYTES_MAX || target.len() > UNPACK_BYTES_MAX {
        return None;
    }
    let targets = streams(target);
    if targets.is_empty() {
        return None;
    }
    let bases = streams(base);
    let there: HashSet<_> = bases.iter().map(|stream| joined(base, &stream.pieces)).collect();
    let here: HashSet<_> = targets.iter().map(|stream| joined(target, &stream.pieces)).collect();

    let mut described = Described::default();
    let mut inner =
        Inner { bytes: Vec::with_capacity(target.len()), file: target, done: 0, last: 0 };
    for stream in targets {
        let packed = joined(target, &stream.pieces);
        let room = DELTA_BYTES_MAX.checked_sub(inner.bytes.len() + target.len());
        let (Some(room), false) = (room, there.contains(&packed)) else { continue };
        let Some(plain) = plain(&stream, &packed, room) else { continue };
        if let Some(apart) = deflate::take_apart(&packed, plain) {
            let gap = inner.put(&stream.pieces, &apart.plain);
            described.target(gap, &stream.pieces, &apart);
        }
    }
    if described.targets == 0 {
        return None;
    }
    inner.bytes.extend_from_slice(&target[inner.done..]);

    let mut reference = base.to_vec();
    let mut last = 0;
    for stream in bases {
        let packed = joined(base, &stream.pieces);
        let room = DELTA_BYTES_MAX - reference.len();
        if here.contains(&packed) {
            continue;
        }
        if let Some(plain) = plain(&stream, &packed, room) {
            described.base(last, &stream.pieces, plain.len());
            last = stream.pieces.last().map_or(last, |piece| piece.end);
            reference.extend(plain);
        }
    }
    described.finish(&reference, &inner.bytes)
}

/// Errors: `BadDelta`.
pub(super) fn decode(base: &[u8], bytes: &[u8], target_len: usize) -> Result<Vec<u8>> {
    if base.len() > UNPACK_BYTES_MAX || target_len > UNPACK_BYTES_MAX {
        return Err(bad(&format!("base or target has more than {UNPACK_BYTES_MAX} bytes")));
    }
    let mut head = Numbers { rest: bytes };
    let said_len = head.count(STREAMS_BYTES_MAX)?;
    let said_bytes = head.count(bytes.len())?;
    let said = prefix::decode(&[], head.bytes(said_bytes)?, said_len)?;
    let codec = head.count(usize::from(u8::MAX))? as u8;
    let inner_len = head.count(DELTA_BYTES_MAX)?;

    let mut said = Numbers { rest: &said };
    let reference = unpack_base(base, &mut said)?;
    let inner = match Codec::from_number(codec) {
        Some(Codec::Prefix) => prefix::decode(&reference, head.rest, inner_len)?,
        Some(Codec::Patch) => patch::decode(&reference, head.rest, inner_len)?,
        _ => return Err(bad("a codec that does not go with unpacked bytes")),
    };
    drop(reference);
    pack_target(&inner, &mut said, target_len)
}

/// The base, and behind it the plain bytes of the streams in it that were named.
fn unpack_base(base: &[u8], said: &mut Numbers<'_>) -> Result<Vec<u8>> {
    let wrong = || bad("a stream that is not in the base");
    let mut reference = base.to_vec();
    let mut at = 0usize;
    for _ in 0..said.count(STREAMS_MAX)? {
        let plain_len = said.count(DELTA_BYTES_MAX - reference.len())?;
        let mut pieces = Vec::new();
        for _ in 0..said.count(PIECES_MAX)? {
            let start = at + said.count(base.len() - at)?;
            at = start + said.count(base.len() - start)?;
            pieces.push(start..at);
        }
        let packed = joined(base, &pieces);
        let (plain, _) = deflate::inflate(&packed, plain_len).ok_or_else(wrong)?;
        if plain.len() != plain_len {
            return Err(wrong());
        }
        reference.extend(plain);
    }
    Ok(reference)
}

/// The target: the inner bytes with the streams that were named packed again.
fn pack_target(inner: &[u8], said: &mut Numbers<'_>, target_len: usize) -> Result<Vec<u8>> {
    let mut inner = Numbers { rest: inner };
    let mut target = Vec::with_capacity(target_len);
    for _ in 0..said.count(STREAMS_MAX)? {
        let gap = said.count(inner.rest.len())?;
        let plain_len = said.count(inner.rest.len())?;
        target.extend_from_slice(inner.bytes(gap)?);
        let plain = inner.bytes(plain_len)?;
        let mut room = target_len.checked_sub(target.len()).ok_or_else(|| bad("too many bytes"))?;
        let mut pieces = Vec::new();
        for n in 0..said.count(PIECES_MAX)? {
            let between = if n == 0 { 0 } else { said.count(room)? };
            let length = said.count(room - between)?;
            room -= between + length;
            pieces.push((between, length));
        }
        let corrections_len = said.count(said.rest.len())?;
        let corrections = said.bytes(corrections_len)?;
        let packed_len = pieces.iter().map(|(_, length)| length).sum();
        let packed = deflate::rebuild(plain, corrections, packed_len)?;
        let mut packed = Numbers { rest: &packed };
        for (between, length) in pieces {
            target.extend_from_slice(inner.bytes(between)?);
            target.extend_from_slice(packed.bytes(length)?);
        }
    }
    target.extend_from_slice(inner.rest);
    if target.len() == target_len { Ok(target) } else { Err(bad("another number of bytes")) }
}

/// The streams of a file, in order; as many as can be unpacked within what a delta may have, as
/// far as they have to be in order to know where they end.
fn streams(file: &[u8]) -> Vec<Stream> {
    let mut streams: Vec<Stream> = Vec::new();
    let (mut room, mut mistaken) = (DELTA_BYTES_MAX, 0);
    let mut waiting = containers::places(file);
    waiting.reverse();
    while let Some(place) = waiting.pop() {
        let end = streams.last().and_then(|stream| stream.pieces.last()).map_or(0, |p| p.end);
        if place.pieces.first().is_none_or(|piece| piece.start < end)
            || streams.len() == STREAMS_MAX
        {
            continue;
        }
        let Some(stream) = stream(file, place, room) else {
            mistaken += 1;
            if mistaken == MISTAKEN_MAX {
                break;
            }
            continue;
        };
        room -= stream.plain.as_ref().map_or(0, Vec::len);
        if let Some(end) = stream.pieces.last().map(|piece| piece.end) {
            // Another member of a gzip file, behind checksum and length.
            waiting.extend(containers::gzip(file, end + 8));
        }
        streams.push(stream);
    }
    streams
}

/// The stream that is in this place, if there is one.
fn stream(file: &[u8], place: Place, room: usize) -> Option<Stream> {
    if place.exact {
        let packed_len = place.pieces.iter().map(Range::len).sum();
        return Some(Stream { pieces: place.pieces, packed_len, plain: None });
    }
    let (plain, packed_len) = deflate::inflate(&joined(file, &place.pieces), room)?;
    let mut left = packed_len;
    let mut pieces = place.pieces;
    for piece in &mut pieces {
        piece.end = piece.end.min(piece.start + left);
        left -= piece.len();
    }
    pieces.retain(|piece| !piece.is_empty());
    (!pieces.is_empty()).then_some(Stream { pieces, packed_len, plain: Some(plain) })
}

/// The plain bytes of a stream that is exactly as long as its pieces.
fn plain(stream: &Stream, packed: &[u8], room: usize) -> Option<Vec<u8>> {
    match &stream.plain {
        Some(plain) => (plain.len() <= room).then(|| plain.clone()),
        None => {
            let (plain, length) = deflate::inflate(packed, room)?;
            (length == stream.packed_len).then_some(plain)
        }
    }
}

fn joined<'a>(file: &'a [u8], pieces: &[Range<usize>]) -> Cow<'a, [u8]> {
    match pieces {
        [piece] => Cow::Borrowed(&file[piece.clone()]),
        pieces => {
            Cow::Owned(pieces.iter().flat_map(|piece| &file[piece.clone()]).copied().collect())
        }
    }
}

/// The target with plain bytes in the place of streams.
struct Inner<'a> {
    bytes: Vec<u8>,
    file: &'a [u8],
    /// Up to where the file is in the bytes.
    done: usize,
    /// Where the last stream's bytes end, without what is between its pieces.
    last: usize,
}

impl Inner<'_> {
    /// Adds what is before a stream, its plain bytes, and what is between its pieces; gives how
    /// many bytes are before it.
    fn put(&mut self, pieces: &[Range<usize>], plain: &[u8]) -> usize {
        let start = pieces.first().map_or(self.done, |piece| piece.start);
        self.bytes.extend_from_slice(&self.file[self.done..start]);
        let gap = self.bytes.len() - self.last;
        self.bytes.extend_from_slice(plain);
        self.done = start;
        for piece in pieces {
            self.bytes.extend_from_slice(&self.file[self.done.max(start)..piece.start]);
            self.done = piece.end;
        }
        self.last = self.bytes.len();
        gap
    }
}

/// What the receiver is told of streams.
#[derive(Default)]
struct Described {
    bases: u64,
    base: Vec<u8>,
    targets: u64,
    target: Vec<u8>,
}

impl Described {
    /// A stream of the base, by how far it is behind the last one.
    fn base(&mut self, last: usize, pieces: &[Range<usize>], plain_len: usize) {
        self.bases += 1;
        let mut last = last;
        varint::put(&mut self.base, plain_len as u64);
        varint::put(&mut self.base, pieces.len() as u64);
        for piece in pieces {
            varint::put(&mut self.base, (piece.start - last) as u64);
            varint::put(&mut self.base, piece.len() as u64);
            last = piece.end;
        }
    }

    /// A stream of the target, with so many bytes before it that are as they are.
    fn target(&mut self, gap: usize, pieces: &[Range<usize>], apart: &deflate::Apart) {
        self.targets += 1;
        varint::put(&mut self.target, gap as u64);
        varint::put(&mut self.target, apart.plain.len() as u64);
        varint::put(&mut self.target, pieces.len() as u64);
        let mut last = None;
        for piece in pieces {
            if let Some(last) = last {
                varint::put(&mut self.target, (piece.start - last) as u64);
            }
            varint::put(&mut self.target, piece.len() as u64);
            last = Some(piece.end);
        }
        varint::put(&mut self.target, apart.corrections.len() as u64);
        self.target.extend_from_slice(&apart.corrections);
    }

    fn finish(self, reference: &[u8], inner: &[u8]) -> Option<Vec<u8>> {
        let mut said = Vec::new();
        varint::put(&mut said, self.bases);
        said.extend(self.base);
        varint::put(&mut said, self.targets);
        said.extend(self.target);
        if said.len() > STREAMS_BYTES_MAX || inner.len() > DELTA_BYTES_MAX {
            return None;
        }
        let packed = prefix::encode(&[], &said)?;
        let (codec, coded) = super::inner(reference, inner)?;
        let mut bytes = Vec::with_capacity(packed.len() + coded.len() + 16);
        varint::put(&mut bytes, said.len() as u64);
        varint::put(&mut bytes, packed.len() as u64);
        bytes.extend(packed);
        bytes.push(codec.number());
        varint::put(&mut bytes, inner.len() as u64);
        bytes.extend(coded);
        Some(bytes)
    }
}

#[cfg(test)]
mod tests;
