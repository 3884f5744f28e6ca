//! Deflate streams as their plain bytes and what it takes to make the very same stream of these:
//! where its blocks end, and where its compressor said something else than zlib would have. Of a
//! compressor of zlib's kind that is next to nothing; of others it is a part of the stream, and of
//! some it is too much.
//! Holds: what `rebuild` makes is never longer than was said; its time is bounded by the lengths of
//! what it is given.
//! From: the idea is that of preflate (Steinke); formats are RFC 1951's.

mod bits;
mod blocks;
mod part;
mod predict;
mod trees;
mod walk;

use super::bad;
use super::varint::{self, Numbers};
use crate::error::{ChunksError, Result};
use bits::{BitReader, BitWriter};
use blocks::{Blocks, Kind, MATCH_MAX, MATCH_MIN, TOKENS_MAX, Token, write_tokens};
use predict::{LEVELS, Manner, Predictor};
use std::ops::Range;
use trees::{DISTANCES, END_OF_BLOCK, LITERALS, Lengths};

pub(super) use part::Ends;
pub(crate) use part::Part;
pub(crate) use walk::{Block, Checkpoint, WINDOW_BYTES, walk};

/// Tokens by which the compressor's manner is found out.
const SAMPLE_TOKENS: usize = 1 << 14;

/// A stream of which more than one guess in so many fails is left as it is.
const MISSES_ONE_IN: usize = 5;

/// What makes the stream again may have one byte for so many of the stream, and some more.
const CORRECTIONS_ONE_IN: usize = 3;
const CORRECTIONS_FREE: usize = 256;

/// Blocks that `rebuild` makes for so many bytes of the stream, at most: a block takes ten bits.
const BLOCKS_PER_BYTE: usize = 1;

/// A manner that fails once in so many guesses at most is not compared with others.
const HINT_MISSES_ONE_IN: usize = 64;

/// Whole blocks are made, and may have so many bytes more than were asked for.
const BEYOND_BYTES_MAX: usize = 1 << 20;

/// A stream, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Apart {
    pub(super) plain: Vec<u8>,
    pub(super) corrections: Vec<u8>,
}

/// The plain bytes of the stream at the front of `packed`, and the length of the stream; none if
/// there is no such stream, or the plain bytes are more than `plain_max`.
pub(super) fn inflate(packed: &[u8], plain_max: usize) -> Option<(Vec<u8>, usize)> {
    let mut blocks = Blocks::new(packed, plain_max);
    let mut tokens = Vec::new();
    while !blocks.ended() {
        tokens.clear();
        blocks.next(&mut tokens)?;
    }
    let packed_len = blocks.packed_len()?;
    Some((blocks.plain, packed_len))
}

/// Takes a stream apart whose plain bytes are known; none if it would not pay.
pub(super) fn take_apart(packed: &[u8], plain: Vec<u8>) -> Option<Apart> {
    let part = Part::whole(packed, &plain);
    let (corrections, _) = corrections(&part, manner(&part, None)?)?;
    Some(Apart { plain, corrections })
}

/// What makes blocks of a stream again, and whether the last of them ends it; none if it would not
/// pay. `hint` is the number of the manner of others in the same file, and becomes theirs.
pub(crate) fn take_part_apart(part: &Part<'_>, hint: &mut Option<u8>) -> Option<(Vec<u8>, bool)> {
    let manner = manner(part, hint.and_then(Manner::from_number))?;
    let apart = corrections(part, manner)?;
    *hint = Some(manner.number());
    Some(apart)
}

fn corrections(part: &Part<'_>, manner: Manner) -> Option<(Vec<u8>, bool)> {
    let Part { packed, plain, .. } = *part;
    let room = packed.len() / CORRECTIONS_ONE_IN + CORRECTIONS_FREE;
    let mut predictor = part.predictor(manner);
    let mut stream = part.stream()?;
    // Whatever is odd about the stream, it is used only if its tokens make the same bits. That
    // they can be guessed again needs no trial: guesses follow from what is the same here.
    let mut again = BitWriter::new(packed.len());
    again.put(u32::from(*packed.first()?) & ((1 << part.bit) - 1), part.bit)?;
    let (mut heads, mut misses, mut right) = (Vec::new(), Vec::new(), 0);
    let (mut count, mut tokens) = (0, Vec::new());
    while !stream.ended() && part.blocks.is_none_or(|blocks| count < blocks) {
        tokens.clear();
        let kind = stream.next(&mut tokens)?;
        count += 1;
        let start = predictor.position();
        again.put(u32::from(stream.ended()), 1)?;
        if let Kind::Stored { length } = kind {
            varint::put(&mut heads, (length as u64) << 2);
            predictor.pass(length)?;
            put_stored(&mut again, &plain[start..start + length])?;
            continue;
        }
        for token in &tokens {
            let guessed = predictor.guess();
            if guessed == *token {
                right += 1;
            } else {
                put_miss(&mut misses, right, *token);
                right = 0;
            }
            predictor.accept(*token, guessed)?;
        }
        let lengths = put_head((&mut heads, &mut again), packed, &kind, &tokens, &plain[start..])?;
        write_tokens(&mut again, &lengths, &tokens, &plain[start..])?;
        if heads.len() + misses.len() > room {
            return None;
        }
    }
    let mut corrections = vec![manner.number()];
    varint::put(&mut corrections, count as u64);
    varint::put(&mut corrections, heads.len() as u64);
    corrections.extend([heads, misses].concat());
    let whole_bytes = again.position() / 8;
    let (made, ended) = (again.finish()?, stream.ended());
    let same = match ended {
        true => made == packed,
        // The rest of the last byte belongs to the block behind.
        false => made.get(..whole_bytes) == packed.get(..whole_bytes),
    };
    (same && predictor.position() == plain.len()).then_some((corrections, ended))
}

/// The stream of these plain bytes, which has `packed_len` bytes.
/// Errors: `BadDelta`.
pub(super) fn rebuild(plain: &[u8], corrections: &[u8], packed_len: usize) -> Result<Vec<u8>> {
    let ends = Ends { last: true, ..Ends::default() };
    let packed = rebuild_blocks(&ends, plain, corrections, packed_len)?;
    if packed.len() == packed_len { Ok(packed) } else { Err(wrong()) }
}

/// The first `packed_len` bytes of blocks of a stream.
/// Errors: `BadDelta`.
pub(super) fn rebuild_part(
    ends: &Ends,
    plain: &[u8],
    corrections: &[u8],
    packed_len: usize,
) -> Result<Vec<u8>> {
    if ends.dictionary > plain.len() || ends.bit >= u8::BITS {
        return Err(wrong());
    }
    let most = packed_len.saturating_add(BEYOND_BYTES_MAX);
    let mut packed = rebuild_blocks(ends, plain, corrections, most)?;
    if packed.len() < packed_len {
        return Err(wrong());
    }
    packed.truncate(packed_len);
    Ok(packed)
}

fn wrong() -> ChunksError {
    bad("the plain bytes do not make the stream")
}

fn rebuild_blocks(
    ends: &Ends,
    plain: &[u8],
    corrections: &[u8],
    packed_len: usize,
) -> Result<Vec<u8>> {
    let mut numbers = Numbers { rest: corrections };
    let manner = numbers.count(usize::from(u8::MAX))? as u8;
    let manner = Manner::from_number(manner).ok_or_else(wrong)?;
    let count = numbers.count(packed_len.saturating_mul(BLOCKS_PER_BYTE))?;
    let heads = numbers.count(corrections.len())?;
    let mut heads = Numbers { rest: numbers.bytes(heads)? };
    let mut misses = Misses::new(numbers.rest)?;
    let mut predictor = Predictor::behind(ends.dictionary, plain, manner);
    let mut bits = BitWriter::new(packed_len);
    let before = u32::from(ends.bits) & ((1 << ends.bit) - 1);
    bits.put(before, ends.bit).ok_or_else(wrong)?;
    let mut tokens = Vec::new();
    for n in 1..=count {
        let head = Head::read(&mut heads)?;
        bits.put(u32::from(ends.last && n == count), 1).ok_or_else(wrong)?;
        let start = predictor.position();
        if let Head::Stored { length } = head {
            predictor.pass(length).ok_or_else(wrong)?;
            put_stored(&mut bits, &plain[start..start + length]).ok_or_else(wrong)?;
            continue;
        }
        tokens.clear();
        for _ in 0..head.tokens() {
            if predictor.position() == plain.len() {
                return Err(wrong());
            }
            let guessed = predictor.guess();
            let token = misses.or(guessed)?;
            predictor.accept(token, guessed).ok_or_else(wrong)?;
            tokens.push(token);
        }
        let lengths = head.put(&mut bits, &tokens, &plain[start..]).ok_or_else(wrong)?;
        write_tokens(&mut bits, &lengths, &tokens, &plain[start..]).ok_or_else(wrong)?;
    }
    let packed = bits.finish().ok_or_else(wrong)?;
    if predictor.position() == plain.len() { Ok(packed) } else { Err(wrong()) }
}

/// The manner in which a stream was compressed, as far as its beginning tells; none if zlib would
/// have said most of it in another way.
fn manner(part: &Part<'_>, hint: Option<Manner>) -> Option<Manner> {
    let mut stream = part.stream()?;
    let (mut tokens, mut seen) = (Vec::new(), 0);
    let mut stored = false;
    let more = |seen| part.blocks.is_none_or(|blocks| seen < blocks);
    while !stream.ended() && more(seen) && tokens.len() < SAMPLE_TOKENS {
        seen += 1;
        // Tokens in front of stored bytes cannot be told apart from those behind them.
        stored |= matches!(stream.next(&mut tokens)?, Kind::Stored { length: 1.. });
        if stored {
            break;
        }
    }
    let usual = Manner { level: 6, wide: false, filtered: false };
    if stored || tokens.is_empty() {
        return Some(usual);
    }
    tokens.truncate(SAMPLE_TOKENS);
    let missed = |manner: Manner| {
        let mut predictor = part.predictor(manner);
        let mut missed = 0;
        for token in &tokens {
            let guessed = predictor.guess();
            missed += usize::from(guessed != *token);
            predictor.accept(*token, guessed)?;
        }
        Some(missed)
    };
    if let Some(hint) = hint
        && missed(hint)? <= tokens.len() / HINT_MISSES_ONE_IN
    {
        return Some(hint);
    }
    let mut best = (missed(usual)?, usual);
    let consider = |best: &mut (usize, Manner), manner: Manner| {
        if best.0 > 0 {
            let missed = missed(manner)?;
            if missed < best.0 {
                *best = (missed, manner);
            }
        }
        Some(())
    };
    for level in LEVELS.rev() {
        consider(&mut best, Manner { level, ..usual })?;
    }
    let level = best.1.level;
    for (wide, filtered) in [(true, false), (false, true), (true, true)] {
        consider(&mut best, Manner { level, wide, filtered })?;
    }
    (best.0 <= tokens.len() / MISSES_ONE_IN).then_some(best.1)
}

fn put_miss(misses: &mut Vec<u8>, right: u64, token: Token) {
    varint::put(misses, right);
    match token {
        Token::Literal => varint::put(misses, 0),
        Token::Match { length, distance } => {
            varint::put(misses, u64::from(length) - MATCH_MIN as u64 + 1);
            varint::put(misses, u64::from(distance));
        }
    }
}

/// What replaces guesses.
struct Misses<'a> {
    numbers: Numbers<'a>,
    /// Guesses that are right, before the next that is not; none after the last.
    right: Option<u64>,
}

impl<'a> Misses<'a> {
    fn new(bytes: &'a [u8]) -> Result<Misses<'a>> {
        let mut misses = Misses { numbers: Numbers { rest: bytes }, right: None };
        misses.next()?;
        Ok(misses)
    }

    fn next(&mut self) -> Result<()> {
        let more = !self.numbers.rest.is_empty();
        self.right = if more { Some(self.numbers.number()?) } else { None };
        Ok(())
    }

    /// The guess, or what came instead.
    fn or(&mut self, guessed: Token) -> Result<Token> {
        match &mut self.right {
            None => return Ok(guessed),
            Some(right @ 1..) => {
                *right -= 1;
                return Ok(guessed);
            }
            Some(0) => {}
        }
        let token = match self.numbers.count(MATCH_MAX - MATCH_MIN + 1)? {
            0 => Token::Literal,
            length => {
                let distance = self.numbers.count(1 << 15)?;
                if distance == 0 {
                    return Err(bad("a match with itself"));
                }
                Token::Match { length: (length + MATCH_MIN - 1) as u16, distance: distance as u16 }
            }
        };
        self.next()?;
        Ok(token)
    }
}

/// What a block is, as the corrections say it.
enum Head<'a> {
    Stored {
        length: usize,
    },
    Fixed {
        tokens: usize,
    },
    /// With the codes that zlib would use.
    Usual {
        tokens: usize,
    },
    /// With the head as it stood in the stream, of so many bits.
    Given {
        tokens: usize,
        head: &'a [u8],
        count: usize,
    },
}

impl<'a> Head<'a> {
    fn read(heads: &mut Numbers<'a>) -> Result<Head<'a>> {
        let number = heads.count(TOKENS_MAX * 4 + 3)?;
        let tokens = number >> 2;
        Ok(match number & 3 {
            0 if tokens <= usize::from(u16::MAX) => Head::Stored { length: tokens },
            1 => Head::Fixed { tokens },
            2 => Head::Usual { tokens },
            3 => {
                let count = heads.count(usize::from(u16::MAX))?;
                Head::Given { tokens, head: heads.bytes(count.div_ceil(8))?, count }
            }
            _ => return Err(bad("a stored block is too long")),
        })
    }

    fn tokens(&self) -> usize {
        match self {
            Head::Stored { .. } => 0,
            Head::Fixed { tokens } | Head::Usual { tokens } | Head::Given { tokens, .. } => *tokens,
        }
    }

    /// Writes the beginning of a block with tokens, and says how these are coded.
    fn put(&self, bits: &mut BitWriter, tokens: &[Token], plain: &[u8]) -> Option<Lengths> {
        match self {
            Head::Stored { .. } => None,
            Head::Fixed { .. } => {
                bits.put(1, 2)?;
                Some(Lengths::fixed())
            }
            Head::Usual { .. } => {
                bits.put(2, 2)?;
                let lengths = usual(tokens, plain);
                lengths.write(bits)?;
                Some(lengths)
            }
            Head::Given { head, count, .. } => {
                bits.put(2, 2)?;
                bits.copy(&mut BitReader::new(head), *count)?;
                Lengths::read(&mut BitReader::new(head))
            }
        }
    }
}

fn put_stored(bits: &mut BitWriter, bytes: &[u8]) -> Option<()> {
    bits.put(0, 2)?;
    bits.align()?;
    let length = u32::from(u16::try_from(bytes.len()).ok()?);
    bits.put(length, 16)?;
    bits.put(!length & 0xffff, 16)?;
    bits.bytes(bytes)
}

/// What `rebuild` is told of a block with tokens, and the beginning of the block as it stands
/// in the stream. Says how its tokens are coded.
fn put_head(
    (heads, again): (&mut Vec<u8>, &mut BitWriter),
    packed: &[u8],
    kind: &Kind,
    tokens: &[Token],
    plain: &[u8],
) -> Option<Lengths> {
    let number = (tokens.len() as u64) << 2;
    match kind {
        Kind::Stored { .. } => None,
        Kind::Fixed => {
            varint::put(heads, number | 1);
            again.put(1, 2)?;
            Some(Lengths::fixed())
        }
        Kind::Dynamic { lengths, head } => {
            let given = bits_of(packed, head)?;
            again.put(2, 2)?;
            again.copy(&mut BitReader::new(&given), head.len())?;
            let usual = usual(tokens, plain);
            let mut bits = BitWriter::new(given.len());
            let same = usual == *lengths
                && usual.write(&mut bits).is_some()
                && bits.position() == head.len()
                && bits.finish().is_some_and(|bits| bits == given);
            varint::put(heads, number | if same { 2 } else { 3 });
            if !same {
                varint::put(heads, head.len() as u64);
                heads.extend(given);
            }
            Some(lengths.clone())
        }
    }
}

/// Some bits of a stream, moved to the front.
fn bits_of(packed: &[u8], range: &Range<usize>) -> Option<Vec<u8>> {
    let mut from = BitReader::new(packed.get(range.start / 8..)?);
    from.take((range.start % 8) as u32)?;
    let mut bits = BitWriter::new(range.len().div_ceil(8));
    bits.copy(&mut from, range.len())?;
    bits.finish()
}

/// The codes that zlib would use for these tokens, whose literals are in `plain`.
fn usual(tokens: &[Token], plain: &[u8]) -> Lengths {
    let (mut literals, mut distances) = ([0; LITERALS], [0; DISTANCES]);
    literals[END_OF_BLOCK] = 1;
    let mut at = 0;
    for token in tokens {
        match token {
            Token::Literal => literals[usize::from(plain[at])] += 1,
            Token::Match { length, distance } => {
                literals[blocks::length_symbol(*length).0] += 1;
                distances[blocks::distance_symbol(*distance).0] += 1;
            }
        }
        at += token.length();
    }
    Lengths::of(&literals, &distances)
}

#[cfg(test)]
mod tests;
