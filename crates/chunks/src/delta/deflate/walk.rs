//! A stream read block by block, however long it is: a part of it is in memory at a time.
//! Holds: what is in memory is bounded by the buffer, the window and one block.

use super::blocks::Blocks;
use crate::error::Result;
use std::ops::{ControlFlow, Range};

/// Plain bytes that a block may refer to.
pub(crate) const WINDOW_BYTES: usize = 1 << 15;

/// Packed bytes that are read at once: few at first, as most streams are short. What is left when
/// the next are read is half of them at most, so a block may have half of the most.
const FIRST_BYTES: usize = 32 << 10;
const BUFFER_BYTES: usize = 2 << 20;
/// Plain bytes of one block, at most.
const BLOCK_PLAIN_MAX: usize = 8 << 20;

/// Where one can begin to read in the middle of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    /// Bits of the stream, and plain bytes, that are before.
    pub(crate) bit: u64,
    pub(crate) plain: u64,
    pub(crate) window: Vec<u8>,
}

/// A block as it is met.
pub(crate) struct Block<'a> {
    /// Bits of the stream.
    pub(crate) bits: Range<u64>,
    /// Where its plain bytes begin in the stream's.
    pub(crate) offset: u64,
    /// The last plain bytes before it.
    pub(crate) window: &'a [u8],
    pub(crate) plain: &'a [u8],
}

/// Reads a stream of at most `most` bytes that begins at `start` in a file, from a checkpoint on,
/// until it ends or `each` has enough. Gives where it ends, in bits, filled up to whole bytes; none
/// if nobody has said that it is enough and it does not end, and for what is no stream or has
/// blocks that are too large. `read` gives so many bytes of the file from an offset on, or those up
/// to its end. Errors: those of `read`.
pub(crate) fn walk(
    read: &mut dyn FnMut(u64, usize) -> Result<Vec<u8>>,
    (start, most): (u64, u64),
    from: &Checkpoint,
    each: &mut dyn FnMut(&Block<'_>) -> ControlFlow<()>,
) -> Result<Option<u64>> {
    let (mut at, mut offset, mut window) = (from.bit, from.plain, from.window.clone());
    let mut tokens = Vec::new();
    let mut buffer = FIRST_BYTES;
    loop {
        let first = at / 8;
        let left = usize::try_from(most.saturating_sub(first)).unwrap_or(usize::MAX);
        let packed = read(start.saturating_add(first), buffer.min(left))?;
        let more = packed.len() == buffer && buffer < left;
        let Some(mut blocks) = Blocks::at(&packed, (at % 8) as u32, window, 0) else {
            return Ok(None);
        };
        loop {
            let begins = blocks.position();
            if more && begins > buffer / 2 * 8 {
                break;
            }
            blocks.drain(WINDOW_BYTES, BLOCK_PLAIN_MAX);
            let before = blocks.plain.len();
            tokens.clear();
            if blocks.next(&mut tokens).is_none() {
                if !more || buffer == BUFFER_BYTES {
                    return Ok(None);
                }
                // It may be longer than what was read.
                blocks.plain.truncate(before);
                break;
            }
            let ended = blocks.ended();
            let ends = if ended { blocks.packed_len().map(|bytes| bytes * 8) } else { None };
            if ended && ends.is_none() {
                return Ok(None);
            }
            let ends = first * 8 + ends.unwrap_or_else(|| blocks.position()) as u64;
            let (window, plain) = blocks.plain.split_at(before);
            let bits = first * 8 + begins as u64..ends;
            let block = Block { bits, offset, window, plain };
            let enough = each(&block).is_break();
            if enough || ended {
                return Ok(Some(ends));
            }
            offset += plain.len() as u64;
            at = ends;
        }
        let from = blocks.plain.len().saturating_sub(WINDOW_BYTES);
        window = blocks.plain.split_off(from);
        buffer = BUFFER_BYTES;
    }
}
