//! Zstandard with the base as the bytes before the target.
//! Holds: decoding writes into the target's bytes and nowhere else, so that what a frame says of
//! its window takes no memory.

use super::bad;
use crate::error::Result;
use zstd::zstd_safe::{self, CCtx, CParameter, DCtx};

/// Levels by the bytes of base and target together: up to so many bytes the level is worth its
/// time on any link on which a delta is.
const LEVELS: [(usize, i32); 3] = [(1 << 20, 15), (8 << 20, 9), (usize::MAX, 3)];

/// What leaves so few bytes at a level that takes a tenth of the time is not tried at another: they
/// fit into one packet with what travels beside them.
const LEVEL_QUICK: i32 = 2;
const QUICK_BYTES: usize = 1 << 10;
/// Fewer bytes, base and target together, take no time at any level.
const QUICK_MIN: usize = 256 << 10;

/// Base and target together have at most 2 to the power of this many bytes.
const WINDOW_LOG_MAX: u32 = 28;
const WINDOW_LOG_MIN: u32 = 10;

/// From so many bytes on, matches far away are looked for by fingerprints of long stretches.
const LONG_DISTANCE_MIN: usize = 1 << 20;

/// Of a base that is many times as long as the target: higher levels take longer to look through
/// it than a slow link takes for what they save.
const LEVEL_AFTER: i32 = 6;

/// None where the compressor fails.
pub(super) fn encode(base: &[u8], target: &[u8]) -> Option<Vec<u8>> {
    let together = base.len() + target.len();
    let level = LEVELS.iter().find(|(upto, _)| together <= *upto).map(|(_, level)| *level)?;
    if level > LEVEL_QUICK && together >= QUICK_MIN {
        let quick = encode_quick(base, target)?;
        if quick.len() <= QUICK_BYTES {
            return Some(quick);
        }
    }
    encode_at(level, base, target)
}

/// As `encode`, in the least time.
pub(super) fn encode_quick(base: &[u8], target: &[u8]) -> Option<Vec<u8>> {
    encode_at(LEVEL_QUICK, base, target)
}

/// As `encode`, in a time that many bytes of all kinds are worth.
pub(super) fn encode_after(before: &[u8], target: &[u8]) -> Option<Vec<u8>> {
    encode_at(LEVEL_AFTER, before, target)
}

fn encode_at(level: i32, base: &[u8], target: &[u8]) -> Option<Vec<u8>> {
    let together = base.len() + target.len();
    let window = together.next_power_of_two().ilog2().clamp(WINDOW_LOG_MIN, WINDOW_LOG_MAX);
    let mut context = CCtx::create();
    context.set_parameter(CParameter::CompressionLevel(level)).ok()?;
    context.set_parameter(CParameter::WindowLog(window)).ok()?;
    let far = together >= LONG_DISTANCE_MIN;
    context.set_parameter(CParameter::EnableLongDistanceMatching(far)).ok()?;
    context.set_parameter(CParameter::ContentSizeFlag(false)).ok()?;
    context.ref_prefix(base).ok()?;
    let mut bytes = Vec::with_capacity(zstd_safe::compress_bound(target.len()));
    context.compress2(&mut bytes, target).ok()?;
    Some(bytes)
}

/// Errors: `BadDelta`.
pub(super) fn decode(base: &[u8], bytes: &[u8], target_len: usize) -> Result<Vec<u8>> {
    let named = |code| bad(zstd_safe::get_error_name(code));
    if zstd_safe::find_frame_compressed_size(bytes).map_err(named)? != bytes.len() {
        return Err(bad("something after the compressed delta"));
    }
    let mut context = DCtx::create();
    context.ref_prefix(base).map_err(named)?;
    let mut target = Vec::with_capacity(target_len);
    context.decompress(&mut target, bytes).map_err(named)?;
    if target.len() != target_len {
        return Err(bad(&format!("{} bytes instead of {target_len}", target.len())));
    }
    Ok(target)
}
