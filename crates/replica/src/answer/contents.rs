//! Recipes and chunks of a version of a file.
//! Holds: chunks are read by file, version and range, never by a bare name; a chunk goes out
//! only if its bytes bear its name.
//! From: LBFS, GETHASH and READ.

use crate::deltas::delta_of;
use crate::error::{ReplicaError, Result};
use crate::origin::Inner;
use crate::parts::assembled_for;
use crate::volumes::Volume;
use chunks::delta::{Effort, is_packed};
use chunks::payload::PAYLOAD_CHUNKS_MAX;
use chunks::{ChunksError, Placed, Squeeze};
use minicbor::bytes::ByteVec;
use model::{ChunkName, Contents, FileId, Kind, Piece, Stamp, View};
use protocol::{
    Base, CODED_BYTES_MAX, Delta, Fetched, KnownInside, PAYLOAD_BYTES_MAX, Payload, Range, Refusal,
};
use store::StoreError;
use volume::whole::Whole;

/// Pieces of a recipe in one answer. Who needs more asks for the rest of the range.
const PIECES_MAX: usize = 30_000;
/// Ranges in one request.
const RANGES_MAX: usize = 10_000;

/// All of a container as a delta has at most one byte for so many of it; otherwise what was asked
/// for may take less.
const UNPACKED_ONE_IN: u64 = 16;

/// What a recipe is asked for with.
pub(crate) struct RecipeWanted {
    pub file: FileId,
    pub version: Option<Stamp>,
    pub range: Range,
    pub eager_bytes: u64,
    pub base: Option<Base>,
    pub squeeze: Squeeze,
}

/// What stretches are asked for with.
pub(crate) struct ReadWanted {
    pub file: FileId,
    pub version: Stamp,
    pub ranges: Vec<Range>,
    pub offered: Offered,
    pub squeeze: Squeeze,
}

/// Chunks on their way to a client.
pub(crate) enum Sent {
    Plain(Payload),
    Delta(Delta),
}

/// The recipe chunks that cover a range, and the contents if there are few enough of them.
pub(crate) fn recipe(
    inner: &Inner,
    volume: &Volume,
    wanted: &RecipeWanted,
) -> Result<Result<Fetched, Refusal>> {
    let tables = inner.tables.read()?;
    let view = Whole::now(&*tables, volume.id);
    let (version, contents) = match version_of(&view, wanted.file, wanted.version)? {
        Ok(found) => found,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let fetched = fetch(inner, volume, wanted, (version, contents));
    inner.wanting(volume, (wanted.file, version), &contents, fetched).map(Ok)
}

fn fetch(
    inner: &Inner,
    volume: &Volume,
    wanted: &RecipeWanted,
    (version, contents): (Stamp, Contents),
) -> Result<Fetched> {
    let eager = contents.size <= wanted.eager_bytes.min(PAYLOAD_BYTES_MAX as u64);
    let range = if eager { Range { offset: 0, length: contents.size } } else { wanted.range };
    let cover = cover(inner, volume, &contents, range)?;
    let (mut bytes, mut delta, mut recipe) = (None, None, cover.recipe);
    let pieces: Vec<Piece> = cover.pieces.iter().map(|placed| placed.piece).collect();
    if eager && contents.size > 0 {
        if is_all_chunks(&pieces) {
            // Who has the contents makes the recipe of them.
            recipe.clear();
        }
        match send(inner, volume, &pieces, (wanted.base, wanted.squeeze))? {
            Sent::Plain(payload) => bytes = Some(payload),
            Sent::Delta(sent) => delta = Some(sent),
        }
    }
    let packed = begins_packed(inner, volume, &cover.pieces, range)?;
    Ok(Fetched { version, contents, recipe, bytes, delta, packed })
}

/// Whether contents begin as a compressed container does, if the range is at their beginning.
fn begins_packed(
    inner: &Inner,
    volume: &Volume,
    pieces: &[Placed],
    range: Range,
) -> Result<Option<bool>> {
    let first = pieces.first().filter(|placed| range.offset == 0 && placed.offset == 0);
    let Some(Piece::Chunk { name, .. }) = first.map(|placed| placed.piece) else { return Ok(None) };
    let chunk = inner.blobs.get(&volume.blob(&name))?;
    Ok(chunk.is_some_and(|chunk| is_packed(&chunk)).then_some(true))
}

/// What somebody has who asks for stretches.
pub(crate) struct Offered {
    pub base: Option<Base>,
    /// The base is all of a compressed container.
    pub packed: bool,
    pub inside: Option<KnownInside>,
}

/// The chunks of stretches of a version; or, for who has a base that is `packed`, all chunks of it
/// as a delta, where that is smaller; or assembled of what the asker has of what is inside.
pub(crate) fn read(
    inner: &Inner,
    volume: &Volume,
    wanted: &ReadWanted,
) -> Result<Result<Sent, Refusal>> {
    let ReadWanted { file, version, ref ranges, ref offered, squeeze } = *wanted;
    let tables = inner.tables.read()?;
    let view = Whole::now(&*tables, volume.id);
    let contents = match version_of(&view, file, Some(version))? {
        Ok((_, contents)) => contents,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let sent = || -> Result<Result<Sent, Refusal>> {
        let pieces = match pieces_of(inner, volume, file, &contents, ranges)? {
            Ok(pieces) => pieces,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let Offered { base, packed, inside } = offered;
        let (base, which) = (*base, (file, version));
        if *packed && let Some(delta) = unpacked(inner, volume, &contents, base)? {
            return Ok(Ok(Sent::Delta(delta)));
        }
        if let Some(known) = inside
            && let Some(delta) = assembled_for(inner, volume, which, (&contents, ranges), known)?
        {
            return Ok(Ok(Sent::Delta(delta)));
        }
        Ok(Ok(send(inner, volume, &pieces, (base, squeeze))?))
    };
    inner.wanting(volume, (file, version), &contents, sent())
}

/// All chunks of a compressed container, unpacked, where that takes few bytes.
fn unpacked(
    inner: &Inner,
    volume: &Volume,
    contents: &Contents,
    base: Option<Base>,
) -> Result<Option<Delta>> {
    if contents.size > CODED_BYTES_MAX as u64 {
        return Ok(None);
    }
    let whole = Range { offset: 0, length: contents.size };
    let pieces: Vec<Piece> =
        cover(inner, volume, contents, whole)?.pieces.iter().map(|placed| placed.piece).collect();
    if !is_all_chunks(&pieces) || pieces.len() > PAYLOAD_CHUNKS_MAX {
        return Ok(None);
    }
    let chunks = found(inner, volume, &pieces)?;
    let delta = delta_of(inner, volume, base, &chunks, Effort::Unpack)?;
    Ok(delta.filter(|delta| delta.bytes.len() as u64 <= contents.size / UNPACKED_ONE_IN))
}

/// The pieces of stretches, each of which must be whole chunks.
pub(super) fn pieces_of(
    inner: &Inner,
    volume: &Volume,
    file: FileId,
    contents: &Contents,
    ranges: &[Range],
) -> Result<Result<Vec<Piece>, Refusal>> {
    let pieces = together(ranges, |range, pieces_max| {
        Ok(cover_some(inner, volume, contents, range, pieces_max)?.pieces)
    })?;
    Ok(pieces.map_err(|what| Refusal::Malformed(format!("{what} of {file}"))))
}

/// The pieces of stretches, as far as they fit in an answer. `cover` gives those of one, and so many
/// at most. The error is what is wrong with the stretches.
fn together(
    ranges: &[Range],
    mut cover: impl FnMut(Range, usize) -> Result<Vec<Placed>>,
) -> Result<Result<Vec<Piece>, String>> {
    if ranges.len() > RANGES_MAX {
        return Ok(Err(format!("more than {RANGES_MAX} ranges")));
    }
    let mut pieces = Vec::new();
    let mut bytes = 0u64;
    for range in ranges {
        // Zeros are no bytes in the answer, and may be as many as whoever wrote the recipe likes.
        let room = PAYLOAD_CHUNKS_MAX - pieces.len();
        let found = cover(*range, room + 1)?;
        if found.len() > room {
            return Ok(Err(format!("more than {PAYLOAD_CHUNKS_MAX} pieces at once")));
        }
        let from = found.first().map(|placed| placed.offset);
        let to = found.last().map(Placed::end);
        if from != Some(range.offset) || to != range.offset.checked_add(range.length) {
            return Ok(Err(format!(
                "{} bytes from {} are not a whole number of chunks",
                range.length, range.offset
            )));
        }
        for placed in &found {
            if let Piece::Chunk { length, .. } = placed.piece {
                bytes = bytes.saturating_add(length);
            }
            pieces.push(placed.piece);
        }
        if bytes > PAYLOAD_BYTES_MAX as u64 {
            return Ok(Err(format!("more than {PAYLOAD_BYTES_MAX} bytes at once")));
        }
    }
    Ok(Ok(pieces))
}

/// Without zeros that no chunk stands for, the chunks are all of the contents.
pub(super) fn is_all_chunks(pieces: &[Piece]) -> bool {
    pieces.iter().all(|piece| matches!(piece, Piece::Chunk { .. }))
}

/// The contents that a file has, or had in that version.
pub(super) fn version_of(
    view: &Whole<'_>,
    file: FileId,
    version: Option<Stamp>,
) -> Result<Result<(Stamp, Contents), Refusal>> {
    if let Some(version) = version {
        // A version that is not current may still be open somewhere.
        let found = view.contents(file, version)?;
        return Ok(match found {
            Some((contents, _)) => Ok((version, contents)),
            None => Err(Refusal::NoVersion(file, version)),
        });
    }
    Ok(match view.node(file)? {
        Some(node) if node.kind == Kind::File => Ok((node.contents_stamp, node.contents)),
        Some(_) => Err(Refusal::Malformed(format!("{file} is no ordinary file"))),
        None => Err(Refusal::NoFile(file)),
    })
}

/// The pieces of a range, and the recipe chunks that were walked for it.
pub(super) struct Covered {
    pub pieces: Vec<Placed>,
    pub recipe: Vec<ByteVec>,
}

pub(super) fn cover(
    inner: &Inner,
    volume: &Volume,
    contents: &Contents,
    range: Range,
) -> Result<Covered> {
    cover_some(inner, volume, contents, range, PIECES_MAX)
}

fn cover_some(
    inner: &Inner,
    volume: &Volume,
    contents: &Contents,
    range: Range,
    pieces_max: usize,
) -> Result<Covered> {
    let mut recipe = Vec::new();
    let fetch = |name: &ChunkName| -> Result<Option<Vec<u8>>, StoreError> {
        let bytes = inner.sound(volume, name)?;
        recipe.extend(bytes.clone().map(ByteVec::from));
        Ok(bytes)
    };
    let cover = chunks::cover(&volume.secret, contents, range, pieces_max, fetch)?;
    match cover.missing.first() {
        Some(name) => Err(ReplicaError::Lost(volume.id, *name)),
        None => Ok(Covered { pieces: cover.pieces, recipe }),
    }
}

/// The chunks among the pieces, in the fewest bytes.
fn send(
    inner: &Inner,
    volume: &Volume,
    pieces: &[Piece],
    (base, squeeze): (Option<Base>, Squeeze),
) -> Result<Sent> {
    let found = found(inner, volume, pieces)?;
    if let Some(delta) = delta_of(inner, volume, base, &found, Effort::Usual)? {
        return Ok(Sent::Delta(delta));
    }
    let found: Vec<&[u8]> = found.iter().map(Vec::as_slice).collect();
    Ok(Sent::Plain(chunks::pack_for(&found, squeeze)))
}

/// The chunks among the pieces. Each has the length that the recipe gives it, or whoever wrote
/// the recipe lied; that bounds what is sent. Errors: `Lost`, after all have been looked at.
pub(super) fn found(inner: &Inner, volume: &Volume, pieces: &[Piece]) -> Result<Vec<Vec<u8>>> {
    let (mut found, mut lost) = (Vec::new(), None);
    for piece in pieces {
        let Piece::Chunk { name, length } = piece else { continue };
        let Some(bytes) = inner.sound(volume, name)? else {
            lost = lost.or(Some(*name));
            continue;
        };
        if bytes.len() as u64 != *length {
            let what = format!("{name} has {} bytes, and {length} were expected", bytes.len());
            return Err(ChunksError::BadRecipe(what).into());
        }
        found.push(bytes);
    }
    match lost {
        Some(name) => Err(ReplicaError::Lost(volume.id, name)),
        None => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pieces of a range of a file of zeros, each of which is one byte.
    fn zeros(range: Range, pieces_max: usize) -> Vec<Placed> {
        let piece = Piece::Zeros { length: 1 };
        let offsets = range.offset..range.offset + range.length;
        offsets.take(pieces_max).map(|offset| Placed { offset, piece }).collect()
    }

    #[test]
    fn the_pieces_of_all_stretches_fit_in_an_answer_whatever_they_are() {
        let most = PAYLOAD_CHUNKS_MAX as u64;
        let range = |length| Range { offset: 0, length };
        for (ranges, fits) in [
            (vec![range(most)], true),
            (vec![range(most / 2); 2], true),
            (vec![range(most), range(1)], false),
            (vec![range(most + 1)], false),
            (vec![range(30_000); RANGES_MAX], false),
            (vec![range(2); RANGES_MAX], false),
        ] {
            let mut looked_at = 0;
            let pieces = together(&ranges, |range, pieces_max| {
                let found = zeros(range, pieces_max);
                looked_at += found.len();
                Ok(found)
            });
            let pieces = pieces.unwrap();
            assert_eq!(pieces.is_ok(), fits, "{} ranges", ranges.len());
            assert!(looked_at <= PAYLOAD_CHUNKS_MAX + 1, "{looked_at} pieces");
        }
        assert_eq!(
            PAYLOAD_CHUNKS_MAX / chunks::transfer::BATCH_MAX,
            4,
            "who is honest asks for less"
        );
    }
}
