//! The stream of a picture (PNG), which stands in many pieces: what is between two of them, a
//! checksum and the next one's head, is a frame.
//! Holds: pieces lie inside the file, in order; at most so many. Nothing here is believed.
//! From: PNG (RFC 2083), 3.2 and 4.1.3.

use super::Reader;
use crate::error::Result;
use std::ops::Range;

/// A checksum, a length, and the name of a piece.
pub(super) const FRAME_BYTES: u64 = 12;

/// Frames of one stream, at most: what says them has to fit where it stands.
const FRAMES_MAX: usize = 1 << 14;

const MAGIC: &[u8] = b"\x89PNG\r\n\x1a\n";
const PIECE: &[u8] = b"IDAT";
const HEAD_BYTES: u64 = 8;
const ZLIB_BYTES: u64 = 2;
/// In front of a stream: the head of its first piece, and zlib's.
const FRONT_BYTES: u64 = HEAD_BYTES + ZLIB_BYTES;
/// Other pieces in front of the first, at most.
const OTHERS_MAX: usize = 256;
const STEP_BYTES: usize = 64 << 10;

/// Where a picture's stream is, up to where its last piece ends.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) span: Range<u64>,
    pub(super) frames: Frames,
}

/// Bytes of a stream, in order, in front of which a frame stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Frames(Vec<u64>);

impl Frames {
    /// Where a byte of the stream stands in the file, from where the stream begins.
    pub(super) fn place(&self, byte: u64) -> u64 {
        byte + self.0.partition_point(|at| *at <= byte) as u64 * FRAME_BYTES
    }

    /// Where the stream's first bytes end in the file, without a frame behind them.
    pub(super) fn end(&self, length: u64) -> u64 {
        length + self.0.partition_point(|at| *at < length) as u64 * FRAME_BYTES
    }

    /// Bytes of the stream in front of a place in the file.
    pub(super) fn before(&self, place: u64) -> u64 {
        // Frames that begin in front of it, and what of the last of them does.
        let begins = |number: usize| self.0[number] + number as u64 * FRAME_BYTES;
        let (mut low, mut high) = (0, self.0.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            if begins(middle) < place { low = middle + 1 } else { high = middle }
        }
        match low.checked_sub(1) {
            None => place,
            Some(last) => {
                let behind = begins(last) + FRAME_BYTES;
                self.0[last] + place.saturating_sub(behind)
            }
        }
    }

    /// Those that stand between two bytes of the stream.
    pub(super) fn within(&self, from: u64, to: u64) -> &[u64] {
        let first = self.0.partition_point(|at| *at <= from);
        let behind = self.0.partition_point(|at| *at < to).max(first);
        &self.0[first..behind]
    }

    /// Only those of the first bytes.
    pub(super) fn cut_to(&mut self, length: u64) {
        self.0.retain(|at| *at < length);
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.len() * size_of::<u64>()
    }

    /// Bytes of the stream that begins at `start`, from a place on that is counted as if there were
    /// no frames. Errors: those of `read`.
    pub(super) fn read(
        &self,
        start: u64,
        from: u64,
        length: usize,
        read: &mut Reader<'_>,
    ) -> Result<Vec<u8>> {
        if self.0.is_empty() {
            return read(from, length);
        }
        let from = from.saturating_sub(start);
        let to = from.saturating_add(length as u64);
        let (first, last) = (self.place(from), self.end(to).max(self.place(from)));
        let all = read(start + first, (last - first) as usize)?;
        let mut bytes = Vec::with_capacity(length);
        let mut at = from;
        for end in self.within(from, to).iter().copied().chain([to]) {
            let begins = ((self.place(at) - first) as usize).min(all.len());
            let ends = ((self.place(at) - first + (end - at)) as usize).min(all.len());
            bytes.extend_from_slice(&all[begins..ends]);
            at = end;
        }
        Ok(bytes)
    }
}

pub(super) fn is_picture(head: &[u8]) -> bool {
    head.starts_with(MAGIC)
}

/// The stream of a picture; none where there is none that makes sense. Errors: those of `read`.
pub(super) fn find(size: u64, read: &mut Reader<'_>) -> Result<Option<Found>> {
    let mut at = MAGIC.len() as u64;
    for _ in 0..OTHERS_MAX {
        let head = read(at, FRONT_BYTES as usize)?;
        if let Some(length) = piece(&head) {
            let start = at + FRONT_BYTES;
            return frames(start, at + HEAD_BYTES + length, size, read);
        }
        let Some(length) = head.first_chunk().map(|length| u32::from_be_bytes(*length)) else {
            return Ok(None);
        };
        at += u64::from(length) + FRAME_BYTES;
        if at >= size {
            return Ok(None);
        }
    }
    Ok(None)
}

/// The frames of a stream of which one knows where it is, if it is a picture's.
/// Errors: those of `read`.
pub(super) fn frames_of(stream: &Range<u64>, read: &mut Reader<'_>) -> Result<Frames> {
    let Some(at) = stream.start.checked_sub(FRONT_BYTES) else { return Ok(Frames::default()) };
    let front = read(at, FRONT_BYTES as usize)?;
    let zlib = front.last_chunk().is_some_and(|two: &[u8; 2]| is_zlib(*two));
    let Some(length) = piece(&front).filter(|_| zlib) else { return Ok(Frames::default()) };
    let end = at + HEAD_BYTES + length;
    if end >= stream.end {
        return Ok(Frames::default());
    }
    let found = frames(stream.start, end, stream.end, read)?;
    Ok(found.map(|found| found.frames).unwrap_or_default())
}

fn is_zlib([method, flags]: [u8; 2]) -> bool {
    method & 0xf == 8 && u16::from_be_bytes([method, flags]).is_multiple_of(31) && flags & 32 == 0
}

/// How long the piece is that begins so.
fn piece(head: &[u8]) -> Option<u64> {
    let length = u64::from(u32::from_be_bytes(*head.first_chunk()?));
    (head.get(4..8)? == PIECE && length >= ZLIB_BYTES).then_some(length)
}

/// From the first piece's end on, up to `most`.
fn frames(start: u64, end: u64, most: u64, read: &mut Reader<'_>) -> Result<Option<Found>> {
    let (mut end, mut frames) = (end.min(most), Vec::new());
    if end <= start {
        return Ok(None);
    }
    let (mut from, mut buffer) = (0, Vec::new());
    loop {
        let frame = end..end + FRAME_BYTES;
        if frame.end >= most || frames.len() == FRAMES_MAX {
            break;
        }
        if frame.start < from || frame.end > from + buffer.len() as u64 {
            (from, buffer) = (end, read(end, STEP_BYTES)?);
        }
        let at = (frame.start - from) as usize;
        let Some(head) = buffer.get(at + 4..at + FRAME_BYTES as usize) else { break };
        let length = head.first_chunk().map_or(0, |length| u64::from(u32::from_be_bytes(*length)));
        // Empty pieces would be two frames in one place.
        let next = frame.end + length;
        if &head[4..] != PIECE || length == 0 {
            break;
        }
        frames.push(end - start - frames.len() as u64 * FRAME_BYTES);
        end = next.min(most);
    }
    Ok(Some(Found { span: start..end, frames: Frames(frames) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn prop_places_and_bytes_of_a_stream_lead_to_each_other(
            lengths in prop::collection::vec(1u64..9, 1..6),
        ) {
            let mut ends = Vec::new();
            lengths.iter().for_each(|n| ends.push(ends.last().copied().unwrap_or(0) + n));
            let length = ends.pop().unwrap();
            let frames = Frames(ends);
            // Each byte of the file as the byte of the stream that it is, if it is one.
            let mut file = Vec::new();
            for byte in 0..length {
                if frames.0.contains(&byte) {
                    file.extend([None; FRAME_BYTES as usize]);
                }
                file.push(Some(byte));
            }
            prop_assert_eq!(frames.end(length), file.len() as u64);
            for (place, byte) in file.iter().enumerate() {
                let before = file[..place].iter().flatten().count() as u64;
                prop_assert_eq!(frames.before(place as u64), before);
                if let Some(byte) = byte {
                    prop_assert_eq!(frames.place(*byte), place as u64);
                }
            }
            let bytes: Vec<u8> = file.iter().map(|b| b.map_or(0xff, |b| b as u8)).collect();
            let mut read = |from: u64, length: usize| {
                let rest = bytes.get(from as usize..).unwrap_or_default();
                Ok(rest[..rest.len().min(length)].to_vec())
            };
            for from in 0..length {
                for some in 0..length + 2 {
                    let found = frames.read(0, from, some as usize, &mut read).unwrap();
                    let real = (from..(from + some).min(length)).map(|b| b as u8);
                    prop_assert_eq!(found, real.collect::<Vec<_>>());
                }
            }
        }
    }
}
