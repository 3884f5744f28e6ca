//! Where the streams of a large container are, read piece by piece: of a zip by its directory.
//! Holds: what is named lies inside the file, in order; nothing here is believed, whether there is
//! a stream shows when it is unpacked.

use super::picture::{self, Frames};
use super::{Left, Reader};
use crate::delta::containers;
use crate::error::Result;
use std::ops::Range;

/// Streams of one region, at most.
const SPOTS_MAX: usize = 1 << 16;

/// Bytes in which a directory's end is looked for, and that the directory has at most.
const TAIL_BYTES: u64 = 66 << 10;
const DIRECTORY_BYTES_MAX: u64 = 16 << 20;
const DIRECTORY_END: &[u8] = b"PK\x05\x06";
const DIRECTORY_END_BYTES: usize = 22;
/// In front of the end: where the end of zip64 is, and that.
const LOCATOR: &[u8] = b"PK\x06\x07";
const LOCATOR_BYTES: usize = 20;
const LARGE_END: &[u8] = b"PK\x06\x06";
const LARGE_END_BYTES: usize = 56;
/// The field of an entry that has what is beyond 32 bits, and what says so.
const LARGE_FIELD: u16 = 1;
const BEYOND: u64 = 0xffff_ffff;
const ENTRY: &[u8] = b"PK\x01\x02";
const ENTRY_BYTES: usize = 46;
const MEMBER_BYTES: usize = 30;

/// A head of gzip's is looked for in so many bytes.
const HEAD_BYTES: usize = 4 << 10;

/// Files without a directory are read as a whole to find streams, up to so many bytes.
const WHOLE_BYTES_MAX: u64 = 16 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// A member as it is.
    Stored,
    Deflated,
    /// The same, and others may follow behind it.
    Gzip,
}

/// Where a stream may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) start: u64,
    pub(super) method: Method,
    /// Its lengths, as far as the container says them.
    pub(super) packed: Option<u64>,
    pub(super) plain: Option<u64>,
    /// What stands between its pieces, if it has several.
    pub(super) frames: Frames,
}

#[derive(Debug, Default)]
pub(super) struct Spots {
    pub(super) spots: Vec<Spot>,
    pub(super) encrypted: usize,
    /// Packed in a way that is not known here.
    pub(super) odd: usize,
}

/// The spots of a region, in order. Errors: those of `read`.
pub(super) fn spots(
    size: u64,
    region: &Range<u64>,
    read: &mut Reader<'_>,
) -> Result<std::result::Result<Spots, Left>> {
    let head = read(0, HEAD_BYTES)?;
    if !containers::is_known(&head) {
        return Ok(Err(Left::Unknown));
    }
    if containers::is_gzip(&head) {
        if region.end - region.start < size {
            return Ok(Err(Left::TooLarge));
        }
        let spots = gzip_at(size, 0, read)?.into_iter().collect();
        return Ok(Ok(Spots { spots, ..Spots::default() }));
    }
    if containers::is_zip(&head)
        && let Some(found) = by_directory(size, region, read)?
    {
        return Ok(Ok(found));
    }
    if picture::is_picture(&head) {
        if region.end - region.start < size {
            return Ok(Err(Left::TooLarge));
        }
        let spot = picture::find(size, read)?.map(|found| Spot {
            start: found.span.start,
            method: Method::Deflated,
            packed: None,
            plain: None,
            frames: found.frames,
        });
        return Ok(Ok(Spots { spots: spot.into_iter().collect(), ..Spots::default() }));
    }
    if size > WHOLE_BYTES_MAX {
        return Ok(Err(Left::TooLarge));
    }
    let file = read(0, size as usize)?;
    let place = |place: containers::Place| match &place.pieces[..] {
        [piece] => Some(Spot {
            start: piece.start as u64,
            method: Method::Deflated,
            packed: place.exact.then_some(piece.len() as u64),
            plain: None,
            frames: Frames::default(),
        }),
        _ => None,
    };
    let spots = containers::places(&file).into_iter().filter_map(place).collect();
    Ok(Ok(Spots { spots, ..Spots::default() }))
}

/// Another member of a gzip file, behind the checksum and the length of the one that ends here.
pub(super) fn gzip_behind(size: u64, end: u64, read: &mut Reader<'_>) -> Result<Option<Spot>> {
    const CHECK_BYTES: u64 = 8;
    gzip_at(size, end + CHECK_BYTES, read)
}

fn gzip_at(size: u64, at: u64, read: &mut Reader<'_>) -> Result<Option<Spot>> {
    if at >= size {
        return Ok(None);
    }
    let head = read(at, HEAD_BYTES)?;
    let start = containers::gzip(&head, 0).and_then(|place| Some(place.pieces.first()?.start));
    let spot = |start: usize| Spot {
        start: at + start as u64,
        method: Method::Gzip,
        packed: None,
        plain: None,
        frames: Frames::default(),
    };
    Ok(start.map(spot).filter(|spot| spot.start < size))
}

/// A zip's directory; none where there is none that makes sense.
fn directory(size: u64, read: &mut Reader<'_>) -> Result<Option<Vec<u8>>> {
    let from = size.saturating_sub(TAIL_BYTES);
    let tail = read(from, (size - from) as usize)?;
    let end = (0..tail.len().saturating_sub(DIRECTORY_END_BYTES - 1))
        .rev()
        .find(|at| tail[*at..].starts_with(DIRECTORY_END));
    let Some(end) = end else { return Ok(None) };
    let (length, start) = match end.checked_sub(LOCATOR_BYTES).map(|at| &tail[at..]) {
        Some(locator) if locator.starts_with(LOCATOR) => {
            let at = longer(locator, 8).min(size);
            let large = read(at, LARGE_END_BYTES)?;
            if large.len() < LARGE_END_BYTES || !large.starts_with(LARGE_END) {
                return Ok(None);
            }
            (longer(&large, 40), longer(&large, 48))
        }
        _ => (long(&tail[end..], 12), long(&tail[end..], 16)),
    };
    if start.checked_add(length).is_none_or(|end| end > size) || length > DIRECTORY_BYTES_MAX {
        return Ok(None);
    }
    read(start, length as usize).map(Some)
}

/// By a zip's directory; none where there is none.
fn by_directory(size: u64, region: &Range<u64>, read: &mut Reader<'_>) -> Result<Option<Spots>> {
    let Some(directory) = directory(size, read)? else { return Ok(None) };
    let mut found = Spots::default();
    let mut rest = &directory[..];
    let mut entries = Vec::new();
    while rest.starts_with(ENTRY) && rest.len() >= ENTRY_BYTES {
        let behind = [28, 30, 32].iter().map(|at| short(rest, *at) as usize).sum::<usize>();
        let (packed, plain, head) = numbers(rest);
        let near = head < region.end
            && region.start < head.saturating_add(packed).saturating_add(MEMBER_BYTES as u64);
        match (short(rest, 10), short(rest, 8) & 1) {
            _ if !near || packed == 0 => {}
            (_, 1) => found.encrypted += 1,
            (0, _) => entries.push((head, Method::Stored, packed, plain)),
            (8, _) => entries.push((head, Method::Deflated, packed, plain)),
            _ => found.odd += 1,
        }
        rest = rest.get(ENTRY_BYTES + behind..).unwrap_or_default();
    }
    entries.sort_unstable_by_key(|(head, ..)| *head);
    entries.truncate(SPOTS_MAX);
    for (head, method, packed, plain) in entries {
        // What stands behind a member's name is not the same as in the directory.
        let member = read(head, MEMBER_BYTES)?;
        if member.len() < MEMBER_BYTES || !containers::is_zip(&member) {
            found.odd += 1;
            continue;
        }
        let names = u64::from(short(&member, 26)) + u64::from(short(&member, 28));
        let start = head + MEMBER_BYTES as u64 + names;
        if start.checked_add(packed).is_some_and(|end| end <= size) {
            let (packed, plain) = (Some(packed), Some(plain));
            let frames = Frames::default();
            found.spots.push(Spot { start, method, packed, plain, frames });
        }
    }
    Ok(Some(found))
}

/// Packed and plain bytes of an entry's member, and where its head is.
fn numbers(entry: &[u8]) -> (u64, u64, u64) {
    let (mut packed, mut plain, mut head) = (long(entry, 20), long(entry, 24), long(entry, 42));
    let mut fields = entry.get(ENTRY_BYTES + short(entry, 28) as usize..).unwrap_or_default();
    fields = &fields[..fields.len().min(short(entry, 30) as usize)];
    while fields.len() >= 4 {
        let length = short(fields, 2) as usize;
        let field = fields.get(4..4 + length).unwrap_or_default();
        if short(fields, 0) == LARGE_FIELD {
            // Those alone that did not fit stand here, in this order.
            let mut at = 0;
            for number in [&mut plain, &mut packed, &mut head] {
                if *number == BEYOND && field.len() >= at + 8 {
                    *number = longer(field, at);
                    at += 8;
                }
            }
            break;
        }
        fields = fields.get(4 + length..).unwrap_or_default();
    }
    (packed, plain, head)
}

/// Numbers with the lowest byte first, of bytes that are there.
fn short(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u16::from_le_bytes(*bytes))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    let bytes = bytes.get(at..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u64::from(u32::from_le_bytes(*bytes)))
}

fn longer(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u64::from_le_bytes(*bytes))
}
