//! Contents as what they add to contents that the receiver has: a few kilobytes for an object file
//! that was compiled again, where cutting into chunks finds nothing that is as it was.
//! Holds: `decode` gives exactly as many bytes as were asked for or an error, whatever arrives, in
//! memory and time bounded by the lengths it was given; the same arguments give the same result.
//! Never: is trusted. A delta makes bytes, and the receiver hashes them into chunks as any others.
//! From: beyond LBFS, which sends a changed chunk whole.

mod prefix;

use crate::error::{ChunksError, Result};
use crate::payload;

/// Base and target of one delta have at most so many bytes each; what is larger is coded stretch
/// by stretch.
pub const DELTA_BYTES_MAX: usize = 32 << 20;

/// Fewer bytes are not worth a delta: naming the base costs as much.
pub const DELTA_BYTES_MIN: usize = 64;

/// A delta of at most one byte in so many of the target is taken without asking what the target
/// would take by itself.
const CHEAP_ONE_IN: usize = 32;

/// How a target was coded. The numbers are those of the wire, and never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Codec {
    /// A Zstandard frame that may refer to the base as to bytes before its own.
    Prefix = 1,
}

impl Codec {
    /// None for a number that this farfs does not know.
    pub fn from_number(number: u8) -> Option<Codec> {
        match number {
            1 => Some(Codec::Prefix),
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

/// The smallest coding of `target` for a receiver that has `base`; none where the target by
/// itself, compressed, takes as few bytes, and where either is too large for one delta.
pub fn encode(base: &[u8], target: &[u8]) -> Option<Coded> {
    let possible = (1..=DELTA_BYTES_MAX).contains(&base.len())
        && (DELTA_BYTES_MIN..=DELTA_BYTES_MAX).contains(&target.len());
    if !possible {
        return None;
    }
    let bytes = prefix::encode(base, target)?;
    let cheap = bytes.len() <= target.len() / CHEAP_ONE_IN;
    (cheap || bytes.len() < payload::compressed_len(target))
        .then_some(Coded { codec: Codec::Prefix, bytes })
}

/// The target of `target_len` bytes that was coded against `base`.
/// Errors: `BadDelta`.
pub fn decode(codec: Codec, base: &[u8], bytes: &[u8], target_len: usize) -> Result<Vec<u8>> {
    if base.len() > DELTA_BYTES_MAX || target_len > DELTA_BYTES_MAX {
        return Err(bad(&format!("base or target has more than {DELTA_BYTES_MAX} bytes")));
    }
    match codec {
        Codec::Prefix => prefix::decode(base, bytes, target_len),
    }
}

fn bad(what: &str) -> ChunksError {
    ChunksError::BadDelta(what.to_owned())
}

#[cfg(test)]
mod tests;
