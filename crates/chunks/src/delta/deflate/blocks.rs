//! A deflate stream taken apart: its blocks, what stands in each, and the plain bytes.
//! Holds: the plain bytes are at most as many as allowed, and blocks no more than such streams
//! have, so that a stream of empty blocks does not take for ever.
//! From: RFC 1951.

use super::bits::{BitReader, BitWriter};
use super::trees::{DISTANCES, Decoder, END_OF_BLOCK, Lengths, codes};
use std::ops::Range;

/// Blocks of a stream at most: so many, and one for so many plain bytes.
const BLOCKS_FREE: usize = 256;
const BLOCK_PLAIN_BYTES: usize = 512;

/// Tokens of one block that are understood, at most.
pub(super) const TOKENS_MAX: usize = 1 << 20;

pub(super) const MATCH_MIN: usize = 3;
pub(super) const MATCH_MAX: usize = 258;

/// Lengths and distances are in classes: the first of each, and the bits that say which it is.
const LENGTH_CLASSES: [(u16, u8); 29] = [
    (3, 0),
    (4, 0),
    (5, 0),
    (6, 0),
    (7, 0),
    (8, 0),
    (9, 0),
    (10, 0),
    (11, 1),
    (13, 1),
    (15, 1),
    (17, 1),
    (19, 2),
    (23, 2),
    (27, 2),
    (31, 2),
    (35, 3),
    (43, 3),
    (51, 3),
    (59, 3),
    (67, 4),
    (83, 4),
    (99, 4),
    (115, 4),
    (131, 5),
    (163, 5),
    (195, 5),
    (227, 5),
    (258, 0),
];

/// What a block says next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Literal,
    Match { length: u16, distance: u16 },
}

impl Token {
    /// Plain bytes.
    pub(super) fn length(self) -> usize {
        match self {
            Token::Literal => 1,
            Token::Match { length, .. } => usize::from(length),
        }
    }
}

/// How a block is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Stored {
        length: usize,
    },
    Fixed,
    /// With where its head stands, in bits of the stream.
    Dynamic {
        lengths: Lengths,
        head: Range<usize>,
    },
}

/// Symbol of a length, and what is said beyond it, and in how many bits.
pub(super) fn length_symbol(length: u16) -> (usize, u32, u32) {
    let class = LENGTH_CLASSES.partition_point(|(first, _)| *first <= length) - 1;
    let (first, bits) = LENGTH_CLASSES[class];
    (257 + class, u32::from(length - first), u32::from(bits))
}

/// The same of a distance.
pub(super) fn distance_symbol(distance: u16) -> (usize, u32, u32) {
    let before = u32::from(distance) - 1;
    if before < 4 {
        return (before as usize, 0, 0);
    }
    let bits = before.ilog2() - 1;
    let class = 2 * bits + (before >> bits);
    (class as usize, before & ((1 << bits) - 1), bits)
}

fn distance_class(class: usize) -> (u32, u32) {
    if class < 4 {
        return (class as u32 + 1, 0);
    }
    let bits = (class as u32 - 2) / 2;
    (((2 + (class as u32 & 1)) << bits) + 1, bits)
}

/// Reads a stream block by block.
pub(super) struct Blocks<'a> {
    bits: BitReader<'a>,
    pub(super) plain: Vec<u8>,
    plain_max: usize,
    seen: usize,
    drained: usize,
    ended: bool,
}

impl<'a> Blocks<'a> {
    pub(super) fn new(packed: &'a [u8], plain_max: usize) -> Blocks<'a> {
        let bits = BitReader::new(packed);
        Blocks { bits, plain: Vec::new(), plain_max, seen: 0, drained: 0, ended: false }
    }

    /// From a block on that begins so many bits into the bytes, behind these plain bytes.
    pub(super) fn at(
        packed: &'a [u8],
        bit: u32,
        before: Vec<u8>,
        plain_max: usize,
    ) -> Option<Blocks<'a>> {
        let mut blocks = Blocks { plain: before, ..Blocks::new(packed, plain_max) };
        blocks.bits.take(bit)?;
        Some(blocks)
    }

    /// Where the next block begins, in bits.
    pub(super) fn position(&self) -> usize {
        self.bits.position()
    }

    /// Forgets the plain bytes but the last `keep` of them; the next block may have `block_max`.
    pub(super) fn drain(&mut self, keep: usize, block_max: usize) {
        let gone = self.plain.len().saturating_sub(keep);
        self.plain.drain(..gone);
        self.drained += gone;
        self.plain_max = self.plain.len().saturating_add(block_max);
    }

    /// Whether the last block has been read.
    pub(super) fn ended(&self) -> bool {
        self.ended
    }

    /// The bytes of the whole stream, when it has ended; none if its last bits are not zeros.
    pub(super) fn packed_len(&mut self) -> Option<usize> {
        self.bits.align()?;
        Some(self.bits.position() / 8)
    }

    /// The next block, its tokens put behind those that are there; none if it makes no sense or
    /// goes beyond what is allowed.
    pub(super) fn next(&mut self, tokens: &mut Vec<Token>) -> Option<Kind> {
        self.seen += 1;
        let made = self.drained + self.plain.len();
        if self.seen > BLOCKS_FREE + made / BLOCK_PLAIN_BYTES {
            return None;
        }
        self.ended = self.bits.take(1)? == 1;
        match self.bits.take(2)? {
            0 => {
                self.bits.align()?;
                let length = self.bits.take(16)?;
                if self.bits.take(16)? != !length & 0xffff {
                    return None;
                }
                let bytes = self.bits.bytes(length as usize)?;
                if self.plain.len() + bytes.len() > self.plain_max {
                    return None;
                }
                self.plain.extend_from_slice(bytes);
                Some(Kind::Stored { length: bytes.len() })
            }
            1 => {
                self.tokens(&Lengths::fixed(), tokens)?;
                Some(Kind::Fixed)
            }
            2 => {
                let start = self.bits.position();
                let lengths = Lengths::read(&mut self.bits)?;
                let head = start..self.bits.position();
                self.tokens(&lengths, tokens)?;
                Some(Kind::Dynamic { lengths, head })
            }
            _ => None,
        }
    }

    fn tokens(&mut self, lengths: &Lengths, tokens: &mut Vec<Token>) -> Option<()> {
        let literals = Decoder::new(&lengths.literals)?;
        let distances = Decoder::new(&lengths.distances)?;
        for _ in 0..=TOKENS_MAX {
            let symbol = literals.symbol(&mut self.bits)?;
            if symbol == END_OF_BLOCK {
                return Some(());
            }
            if symbol < END_OF_BLOCK {
                if self.plain.len() >= self.plain_max {
                    return None;
                }
                self.plain.push(symbol as u8);
                tokens.push(Token::Literal);
                continue;
            }
            let (first, bits) = *LENGTH_CLASSES.get(symbol - 257)?;
            let length = first + self.bits.take(u32::from(bits))? as u16;
            let class = distances.symbol(&mut self.bits)?;
            if class >= DISTANCES {
                return None;
            }
            let (first, bits) = distance_class(class);
            let distance = first + self.bits.take(bits)?;
            let start = self.plain.len().checked_sub(distance as usize)?;
            if self.plain.len() + usize::from(length) > self.plain_max {
                return None;
            }
            for at in start..start + usize::from(length) {
                self.plain.push(self.plain[at]);
            }
            tokens.push(Token::Match { length, distance: distance as u16 });
        }
        None
    }
}

/// Writes the tokens of a block, whose literals are in `plain`, and its end.
pub(super) fn write_tokens(
    bits: &mut BitWriter,
    lengths: &Lengths,
    tokens: &[Token],
    plain: &[u8],
) -> Option<()> {
    let (literals, distances) = (codes(&lengths.literals), codes(&lengths.distances));
    // A symbol without a code makes no stream.
    let put = |bits: &mut BitWriter, codes: &[u32], lengths: &[u8], symbol: usize| {
        let length = *lengths.get(symbol)?;
        if length == 0 { None } else { bits.put(codes[symbol], u32::from(length)) }
    };
    let mut at = 0;
    for token in tokens {
        match token {
            Token::Literal => {
                put(bits, &literals, &lengths.literals, usize::from(*plain.get(at)?))?;
            }
            Token::Match { length, distance } => {
                let (symbol, beyond, count) = length_symbol(*length);
                put(bits, &literals, &lengths.literals, symbol)?;
                bits.put(beyond, count)?;
                let (symbol, beyond, count) = distance_symbol(*distance);
                put(bits, &distances, &lengths.distances, symbol)?;
                bits.put(beyond, count)?;
            }
        }
        at += token.length();
    }
    put(bits, &literals, &lengths.literals, END_OF_BLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_distance_has_the_symbol_that_it_is_read_from() {
        for length in 3..=258 {
            let (symbol, beyond, bits) = length_symbol(length);
            let (first, class_bits) = LENGTH_CLASSES[symbol - 257];
            assert_eq!((u32::from(first) + beyond, bits), (length.into(), class_bits.into()));
        }
        for distance in 1..=32768 {
            let (symbol, beyond, bits) = distance_symbol(distance);
            assert!(symbol < DISTANCES && beyond < 1 << bits);
            assert_eq!(distance_class(symbol), (u32::from(distance) - beyond, bits));
        }
    }
}
