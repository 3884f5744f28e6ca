//! Contents as what they add to contents that the receiver has: a few kilobytes for an object file
//! that was compiled again, where cutting into chunks finds nothing that is as it was.
//! Holds: `decode` gives exactly as many bytes as were asked for or an error, whatever arrives, in
//! memory and time bounded by the lengths it was given; the same arguments give the same result.
//! Never: is trusted. A delta makes bytes, and the receiver hashes them into chunks as any others.
//! From: beyond LBFS, which sends a changed chunk whole.

mod assembled;
mod deflate;
mod patch;
mod prefix;
mod unpacked;
mod varint;
mod windows;

use crate::error::{ChunksError, Result};
use crate::payload;

pub(crate) use assembled::decode as make_assembled;
pub(crate) use assembled::encode as assemble;
pub(crate) use assembled::{Given, INNER_BYTES_MAX, MADE_BYTES_MAX, RUNS_MAX, Run};
pub use assembled::{PARTS_BYTES_MAX, PARTS_MAX, Part, parts_of};
pub(crate) use deflate::{Block, Checkpoint, Part as StreamPart, WINDOW_BYTES};
pub(crate) use deflate::{take_part_apart, walk};
pub(crate) use unpacked::containers;
pub use windows::{Common, WINDOW_BASE_BYTES_MAX, WINDOW_BYTES_MAX, Window, windows};

/// Base and target of one delta have at most so many bytes each; what is larger is coded stretch
/// by stretch.
pub const DELTA_BYTES_MAX: usize = 32 << 20;

/// Fewer bytes are not worth a delta: naming the base costs as much.
pub const DELTA_BYTES_MIN: usize = 64;

/// A delta of at most one byte in so many of the target is taken without asking what the target
/// would take by itself.
const CHEAP_ONE_IN: usize = 32;

/// A delta of so few bytes is not tried to be made smaller still.
const PATCH_GAIN_MIN: usize = 256;

/// Up to so many bytes are tried as a patch, whatever they are, if they are not text.
const PATCH_ANY_BYTES_MAX: usize = 1 << 20;
const KIND_SAMPLE_BYTES: usize = 4096;

/// How a target was coded. The numbers are those of the wire, and never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Codec {
    /// A Zstandard frame that may refer to the base as to bytes before its own.
    Prefix = 1,
    /// Stretches that are nearly the base's, and what to add to their bytes.
    Patch = 2,
    /// The plain bytes of compressed containers, coded in one of the other ways, and what packs
    /// them again.
    Unpacked = 3,
    /// The plain bytes of containers, after parts of many versions and contents.
    Assembled = 4,
}

impl Codec {
    /// None for a number that this farfs does not know.
    pub fn from_number(number: u8) -> Option<Codec> {
        match number {
            1 => Some(Codec::Prefix),
            2 => Some(Codec::Patch),
            3 => Some(Codec::Unpacked),
            4 => Some(Codec::Assembled),
            _ => None,
        }
    }

    pub fn number(self) -> u8 {
        self as u8
    }
}

/// A target, for a receiver that has the base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coded {
    pub codec: Codec,
    pub bytes: Vec<u8>,
}

/// What a processor may do for a delta.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Find what both have in common as they are, in a small part of the time of the others.
    Quick,
    /// Whatever may make it small.
    Usual,
    /// Only what unpacks both: where that leads to nothing, the caller has something better to do.
    Unpack,
}

/// The smallest coding of `target` for a receiver that has `base`; none where the target by
/// itself, compressed, takes as few bytes, and where either is too large for one delta.
pub fn encode(base: &[u8], target: &[u8]) -> Option<Coded> {
    encode_with(Effort::Usual, base, target)
}

/// As `encode`, with no more than this effort.
pub fn encode_with(effort: Effort, base: &[u8], target: &[u8]) -> Option<Coded> {
    explain_with(effort, base, target).coded
}

/// Whether contents that begin so are a compressed container, of which a stretch in the middle
/// cannot be unpacked: its delta is made of all of it.
pub fn is_packed(contents: &[u8]) -> bool {
    unpacked::is_known(contents)
}

/// What a compressed container holds, unpacked, as far as that is at most so many bytes; none
/// where it is none.
pub(crate) fn plain_of(contents: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
    if is_packed(contents) { unpacked::plain_of(contents, bytes_max) } else { None }
}

/// What became of a target, and why: for people who ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    pub coded: Option<Coded>,
    /// What each codec that was tried would take, in bytes.
    pub tried: Vec<(Codec, usize)>,
    /// What the target takes by itself; none where the delta was so small that nobody asked.
    pub alone: Option<usize>,
    pub why: Why,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It takes the fewest bytes.
    Smallest,
    /// By itself the target takes no more.
    NothingGained,
    /// The target is so small that naming a base costs as much.
    TooSmall,
    /// There are no bytes to begin with.
    NoBase,
    /// Base or target is too large for one delta.
    TooLarge,
}

/// The coding of a `target` that came after contents of many kinds, `before`, by the codec that
/// finds what it has in common with any of them. None where it saves nothing.
pub fn encode_after(before: &[u8], target: &[u8]) -> Option<Coded> {
    let fits = before.len() <= DELTA_BYTES_MAX && target.len() <= DELTA_BYTES_MAX;
    if before.is_empty() || target.len() < DELTA_BYTES_MIN || !fits {
        return None;
    }
    let bytes = prefix::encode_after(before, target)?;
    (bytes.len() < target.len()).then_some(Coded { codec: Codec::Prefix, bytes })
}

/// As `encode`, with what was tried.
pub fn explain(base: &[u8], target: &[u8]) -> Explained {
    explain_with(Effort::Usual, base, target)
}

fn explain_with(effort: Effort, base: &[u8], target: &[u8]) -> Explained {
    let plain = |why| Explained { coded: None, tried: Vec::new(), alone: None, why };
    if base.is_empty() {
        return plain(Why::NoBase);
    }
    if target.len() < DELTA_BYTES_MIN {
        return plain(Why::TooSmall);
    }
    if base.len() > DELTA_BYTES_MAX || target.len() > DELTA_BYTES_MAX {
        return plain(Why::TooLarge);
    }
    let codings = codings_with(effort, base, target);
    let tried = codings.iter().map(|(codec, bytes)| (*codec, bytes.len())).collect();
    let best = codings.into_iter().min_by_key(|(_, bytes)| bytes.len());
    let Some((codec, bytes)) = best else {
        return plain(Why::NothingGained);
    };
    let cheap = bytes.len() <= target.len() / CHEAP_ONE_IN;
    let alone = (!cheap).then(|| payload::compressed_len(target));
    if alone.is_some_and(|alone| alone <= bytes.len()) {
        return Explained { coded: None, tried, alone, why: Why::NothingGained };
    }
    Explained { coded: Some(Coded { codec, bytes }), tried, alone, why: Why::Smallest }
}

/// The ways that are worth trying, with an effort.
fn codings_with(effort: Effort, base: &[u8], target: &[u8]) -> Vec<(Codec, Vec<u8>)> {
    if effort == Effort::Quick {
        let quick = prefix::encode_quick(base, target);
        return quick.into_iter().map(|bytes| (Codec::Prefix, bytes)).collect();
    }
    let unpacked = unpacked::encode(base, target).map(|bytes| (Codec::Unpacked, bytes));
    // What could be unpacked changed as a whole: there is no more to find in it as it is.
    let small =
        unpacked.as_ref().is_some_and(|(_, bytes)| bytes.len() <= target.len() / CHEAP_ONE_IN);
    let as_it_is = !small && effort == Effort::Usual;
    let mut codings = if as_it_is { codings(base, target) } else { Vec::new() };
    codings.extend(unpacked);
    codings
}

/// The ways to code bytes as they are that are worth trying.
fn codings(base: &[u8], target: &[u8]) -> Vec<(Codec, Vec<u8>)> {
    let prefix = prefix::encode(base, target);
    // Where that leaves next to nothing, there is nothing to gain.
    let left = prefix.as_ref().is_none_or(|bytes| bytes.len() > PATCH_GAIN_MIN);
    let patch =
        if left && shifts(base) && shifts(target) { patch::encode(base, target) } else { None };
    let prefix = prefix.map(|bytes| (Codec::Prefix, bytes));
    prefix.into_iter().chain(patch.map(|bytes| (Codec::Patch, bytes))).collect()
}

/// The smaller of them.
fn inner(base: &[u8], target: &[u8]) -> Option<(Codec, Vec<u8>)> {
    codings(base, target).into_iter().min_by_key(|(_, bytes)| bytes.len())
}

/// Whether these bytes are of a kind in which a small change moves numbers everywhere: programs
/// and object files by what they begin with, and whatever else is not text, if it is small.
fn shifts(bytes: &[u8]) -> bool {
    const PROGRAMS: [&[u8]; 7] = [
        b"\x7fELF",
        b"!<arch>\n",
        b"MZ",
        b"\0asm",
        b"\xca\xfe\xba\xbe",
        b"\xcf\xfa\xed\xfe",
        b"\xce\xfa\xed\xfe",
    ];
    let program = PROGRAMS.iter().any(|magic| bytes.starts_with(magic));
    let binary = bytes.iter().take(KIND_SAMPLE_BYTES).any(|byte| *byte == 0);
    program || (binary && bytes.len() <= PATCH_ANY_BYTES_MAX)
}

/// The target of `target_len` bytes that was coded against `base`.
/// Errors: `BadDelta`.
pub fn decode(codec: Codec, base: &[u8], bytes: &[u8], target_len: usize) -> Result<Vec<u8>> {
    if base.len() > DELTA_BYTES_MAX || target_len > DELTA_BYTES_MAX {
        return Err(bad(&format!("base or target has more than {DELTA_BYTES_MAX} bytes")));
    }
    match codec {
        Codec::Prefix => prefix::decode(base, bytes, target_len),
        Codec::Patch => patch::decode(base, bytes, target_len),
        Codec::Unpacked => unpacked::decode(base, bytes, target_len),
        Codec::Assembled => Err(bad("parts in place of a base")),
    }
}

fn bad(what: &str) -> ChunksError {
    ChunksError::BadDelta(what.to_owned())
}

/// Whether the bytes are a deflate stream that can be taken apart, and what comes back if so.
pub(crate) fn deflate_again(packed: &[u8], plain_max: usize) -> Option<Vec<u8>> {
    let (plain, length) = deflate::inflate(packed, plain_max)?;
    let apart = deflate::take_apart(&packed[..length], plain)?;
    deflate::rebuild(&apart.plain, &apart.corrections, length).ok()
}

/// A stream made of arbitrary plain bytes and corrections.
pub(crate) fn deflate_from(plain: &[u8], corrections: &[u8], packed_len: usize) -> Option<Vec<u8>> {
    deflate::rebuild(plain, corrections, packed_len).ok()
}

#[cfg(test)]
mod tests;
