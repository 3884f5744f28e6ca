//! Chunks on their way: one after another, compressed as one stream. Compressed one by one they
//! would take half as much again.
//! Holds: whatever arrives, no more memory is taken for it than the caller allows.
//! From: LBFS, "LBFS overview": conventionally compresses remaining traffic.

use crate::error::{ChunksError, Result};
use protocol::{PAYLOAD_BYTES_MAX, Payload};
use std::borrow::Cow;
use zstd::zstd_safe;

/// Levels by bytes before compression, where a byte counts: few are worth much effort.
const LEVELS: [(usize, i32); 3] = [(32 << 10, 12), (256 << 10, 9), (usize::MAX, 6)];

/// Levels by bytes a second of the link, from where on less effort brings the bytes over sooner.
/// Of 9 kB of program text, level 12 makes 3.00 kB in 1.4 ms, 6 makes 3.04 in 0.3, 3 makes 3.19 in
/// 0.14, 1 makes 3.28 in 0.08: the same again is saved on the link at about 40 kB, 0.8 MB and
/// 1.5 MB a second. Bytes count somewhat more than time.
const QUICK_LEVELS: [(u64, i32); 3] = [(16 << 20, 1), (2 << 20, 3), (256 << 10, 6)];

/// What a byte less is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Squeeze {
    /// As much as the processor can do.
    Hard,
    /// What this level does.
    Quick(i32),
}

impl Squeeze {
    /// For a link of so many bytes a second; one that is not known counts as slow.
    pub fn for_rate(rate: Option<u64>) -> Squeeze {
        let quick = |rate: u64| QUICK_LEVELS.iter().find(|(from, _)| rate >= *from);
        rate.and_then(quick).map_or(Squeeze::Hard, |(_, level)| Squeeze::Quick(*level))
    }

    fn level(self, bytes: usize) -> i32 {
        let of_bytes = || LEVELS.iter().find(|(upto, _)| bytes <= *upto);
        match self {
            Squeeze::Hard => of_bytes().map_or(0, |(_, level)| *level),
            Squeeze::Quick(level) => level,
        }
    }
}

/// Chunks in one payload, at most.
pub const PAYLOAD_CHUNKS_MAX: usize = 1 << 14;

/// Fewer bytes are compressed without trying a sample first.
const SAMPLED_BYTES_MIN: usize = 32 << 10;
const SAMPLES: usize = 8;
const SAMPLE_BYTES: usize = 1 << 10;

/// Compression must save one byte in so many, or the bytes go as they are.
const WORTH_ONE_IN: usize = 32;

/// A payload of these chunks: none is empty, and there are at most `PAYLOAD_CHUNKS_MAX`, or
/// nobody will unpack it.
pub fn pack(chunks: &[&[u8]]) -> Payload {
    pack_for(chunks, Squeeze::Hard)
}

/// As `pack`, where a byte is worth this.
pub fn pack_for(chunks: &[&[u8]], squeeze: Squeeze) -> Payload {
    let lengths = lengths_of(chunks);
    let plain = chunks.concat();
    match compressed(&plain, squeeze) {
        Some(bytes) => Payload { lengths, bytes: bytes.into(), plain: false },
        None => Payload { lengths, bytes: plain.into(), plain: true },
    }
}

/// The chunks of a payload whose chunks have `bytes_max` bytes together, at most.
/// Errors: `BadPayload`.
pub fn unpack(payload: &Payload, bytes_max: usize) -> Result<Vec<Vec<u8>>> {
    let unpacked = Unpacked::of(payload, bytes_max)?;
    Ok(unpacked.chunks().into_iter().map(<[u8]>::to_vec).collect())
}

/// A payload's chunks, one after another: where they are not compressed, those of the payload.
pub struct Unpacked<'p> {
    lengths: &'p [u32],
    bytes: Cow<'p, [u8]>,
}

impl Unpacked<'_> {
    /// As `unpack`.
    pub fn of(payload: &Payload, bytes_max: usize) -> Result<Unpacked<'_>> {
        let total = total_of(&payload.lengths, bytes_max)?;
        let bytes = match payload.plain {
            true => Cow::Borrowed(payload.bytes.as_slice()),
            false => Cow::Owned(decompressed(&payload.bytes, total)?),
        };
        check_total(total, &bytes)?;
        Ok(Unpacked { lengths: &payload.lengths, bytes })
    }

    pub fn chunks(&self) -> Vec<&[u8]> {
        slices(self.lengths, &self.bytes)
    }
}

/// The bytes that contents take by themselves, in payloads as large as a message takes.
pub(crate) fn compressed_len(contents: &[u8]) -> usize {
    contents
        .chunks(PAYLOAD_BYTES_MAX)
        .map(|some| compressed(some, Squeeze::Hard).map_or(some.len(), |c| c.len()))
        .sum()
}

pub(crate) fn lengths_of(chunks: &[&[u8]]) -> Vec<u32> {
    let length = |chunk: &&[u8]| u32::try_from(chunk.len());
    chunks.iter().map(|chunk| length(chunk).expect("a chunk has at most CHUNK_BYTES_MAX")).collect()
}

/// The bytes of all chunks together. Errors: `BadPayload`.
pub(crate) fn total_of(lengths: &[u32], bytes_max: usize) -> Result<usize> {
    if lengths.len() > PAYLOAD_CHUNKS_MAX {
        return Err(bad("too many chunks"));
    }
    let mut total = 0usize;
    for length in lengths {
        if *length == 0 {
            return Err(bad("an empty chunk"));
        }
        total = total
            .checked_add(*length as usize)
            .filter(|total| *total <= bytes_max)
            .ok_or_else(|| bad(&format!("more than {bytes_max} bytes")))?;
    }
    Ok(total)
}

pub(crate) fn split(lengths: &[u32], total: usize, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
    check_total(total, bytes)?;
    Ok(slices(lengths, bytes).into_iter().map(<[u8]>::to_vec).collect())
}

fn check_total(total: usize, bytes: &[u8]) -> Result<()> {
    if bytes.len() == total {
        return Ok(());
    }
    Err(bad(&format!("{} bytes for chunks of {total}", bytes.len())))
}

/// Of bytes that are as long as all chunks.
fn slices<'b>(lengths: &[u32], mut bytes: &'b [u8]) -> Vec<&'b [u8]> {
    let mut chunks = Vec::with_capacity(lengths.len());
    for length in lengths {
        let (chunk, after) = bytes.split_at(*length as usize);
        chunks.push(chunk);
        bytes = after;
    }
    chunks
}

/// None, if that does not save enough.
fn compressed(plain: &[u8], squeeze: Squeeze) -> Option<Vec<u8>> {
    let enough = |from: usize| from - from / WORTH_ONE_IN;
    if plain.len() >= SAMPLED_BYTES_MIN {
        let sample = sample(plain);
        if zstd::bulk::compress(&sample, 1).ok()?.len() > enough(sample.len()) {
            return None;
        }
    }
    let level = squeeze.level(plain.len());
    // A compressor that fails leaves the bytes as they are, which is no error.
    zstd::bulk::compress(plain, level).ok().filter(|bytes| bytes.len() < enough(plain.len()))
}

/// Stretches of the bytes, evenly spread.
fn sample(plain: &[u8]) -> Vec<u8> {
    let apart = (plain.len() - SAMPLE_BYTES) / (SAMPLES - 1);
    (0..SAMPLES).flat_map(|n| &plain[n * apart..][..SAMPLE_BYTES]).copied().collect()
}

fn decompressed(bytes: &[u8], total: usize) -> Result<Vec<u8>> {
    let frame = zstd_safe::find_frame_compressed_size(bytes)
        .map_err(|code| bad(zstd_safe::get_error_name(code)))?;
    if frame != bytes.len() {
        return Err(bad("something after the compressed chunks"));
    }
    zstd::bulk::decompress(bytes, total).map_err(|error| bad(&error.to_string()))
}

fn bad(what: &str) -> ChunksError {
    ChunksError::BadPayload(what.to_owned())
}

#[cfg(test)]
mod tests;
