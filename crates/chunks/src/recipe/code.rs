//! One recipe chunk as bytes. The layout is in docs/FORMATS.md, "Recipe chunks".
//! Holds: a recipe has one encoding, and only that one is decoded.

use super::{DEPTH_MAX, ENTRIES_MAX, FILE_BYTES_MAX, RECIPE_BYTES_MAX};
use crate::cut::CHUNK_BYTES_MAX;
use crate::error::{ChunksError, Result};
use model::{CHUNK_NAME_BYTES, ChunkName, Piece};

const VERSION: u8 = 1;
/// Version and depth.
pub(super) const HEADER_BYTES: usize = 2;
/// A varint takes at most so many bytes.
const VARINT_BYTES_MAX: usize = 10;
pub(super) const ENTRY_BYTES_MAX: usize = VARINT_BYTES_MAX + CHUNK_NAME_BYTES;

/// The lowest bit of an entry's first number.
const CHUNK: u64 = 0;
const ZEROS: u64 = 1;

/// A recipe chunk, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// 1: the pieces are data and zeros. d: they are recipe chunks of depth d - 1.
    pub depth: u8,
    pub pieces: Vec<Piece>,
}

impl Recipe {
    /// Bytes of the file that hang below.
    pub fn length(&self) -> u64 {
        self.pieces.iter().map(Piece::length).sum()
    }
}

/// The bytes of a recipe chunk. The caller keeps the bounds that `decode` checks.
pub fn encode(depth: u8, pieces: &[Piece]) -> Vec<u8> {
    assert!((1..=DEPTH_MAX).contains(&depth), "a recipe chunk's depth is in bounds");
    assert!((1..=ENTRIES_MAX).contains(&pieces.len()), "a recipe chunk's entries are in bounds");
    let mut bytes = Vec::with_capacity(HEADER_BYTES + pieces.len() * (4 + CHUNK_NAME_BYTES));
    bytes.extend([VERSION, depth]);
    for piece in pieces {
        match piece {
            Piece::Chunk { name, length } => {
                write_varint(&mut bytes, length << 1 | CHUNK);
                bytes.extend(name.0);
            }
            Piece::Zeros { length } => write_varint(&mut bytes, length << 1 | ZEROS),
        }
    }
    bytes
}

/// Errors: `BadRecipe`, for all that `encode` does not write.
pub fn decode(bytes: &[u8]) -> Result<Recipe> {
    if bytes.len() > RECIPE_BYTES_MAX {
        return Err(bad("a recipe chunk is too long"));
    }
    let [version, depth, rest @ ..] = bytes else {
        return Err(bad("a recipe chunk is too short"));
    };
    if *version != VERSION {
        return Err(ChunksError::BadRecipe(format!(
            "its format is {version}, and this program knows {VERSION}"
        )));
    }
    if !(1..=DEPTH_MAX).contains(depth) {
        return Err(ChunksError::BadRecipe(format!("a depth of {depth}")));
    }
    let mut rest = rest;
    let mut pieces = Vec::new();
    let mut total = 0u64;
    while !rest.is_empty() {
        if pieces.len() == ENTRIES_MAX {
            return Err(bad("a recipe chunk has too many entries"));
        }
        let piece = read_piece(&mut rest, *depth)?;
        // Both are at most FILE_BYTES_MAX, so the sum fits.
        total += piece.length();
        if total > FILE_BYTES_MAX {
            return Err(bad("a file that is too long"));
        }
        pieces.push(piece);
    }
    if pieces.is_empty() {
        return Err(bad("a recipe chunk without entries"));
    }
    Ok(Recipe { depth: *depth, pieces })
}

fn read_piece(rest: &mut &[u8], depth: u8) -> Result<Piece> {
    let number = read_varint(rest)?;
    let (length, tag) = (number >> 1, number & 1);
    if length == 0 {
        return Err(bad("an empty piece"));
    }
    if tag == ZEROS {
        if depth > 1 {
            return Err(bad("zeros above the lowest recipe chunks"));
        }
        return Ok(Piece::Zeros { length });
    }
    if depth == 1 && length > CHUNK_BYTES_MAX as u64 {
        return Err(bad("a chunk that is too large"));
    }
    let (name, after) =
        rest.split_first_chunk().ok_or_else(|| bad("a chunk's name that is cut off"))?;
    *rest = after;
    Ok(Piece::Chunk { name: ChunkName(*name), length })
}

/// Little end first, seven bits a byte.
fn write_varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn read_varint(rest: &mut &[u8]) -> Result<u64> {
    let mut number = 0u64;
    for place in 0..VARINT_BYTES_MAX {
        let (byte, after) = rest.split_first().ok_or_else(|| bad("a number that is cut off"))?;
        *rest = after;
        let bits = u64::from(byte & 0x7f);
        let shift = 7 * place as u32;
        if bits << shift >> shift != bits {
            return Err(bad("a number that is too large"));
        }
        number |= bits << shift;
        if byte & 0x80 == 0 {
            if *byte == 0 && place > 0 {
                return Err(bad("a number that is written longer than it is"));
            }
            return Ok(number);
        }
    }
    Err(bad("a number that is too long"))
}

fn bad(what: &str) -> ChunksError {
    ChunksError::BadRecipe(what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn chunk(fill: u8, length: u64) -> Piece {
        Piece::Chunk { name: ChunkName([fill; CHUNK_NAME_BYTES]), length }
    }

    fn refused(bytes: &[u8]) -> String {
        match decode(bytes) {
            Err(ChunksError::BadRecipe(what)) => what,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_layout_is_pinned() {
        let mut golden = vec![1, 1];
        golden.extend([0x80, 0x80, 0x01]);
        golden.extend([0xab; 24]);
        golden.extend([0x81, 0x80, 0x10]);
        golden.push(0x02);
        golden.extend([0xcd; 24]);
        let pieces = vec![chunk(0xab, 8192), Piece::Zeros { length: 131_072 }, chunk(0xcd, 1)];
        assert_eq!(encode(1, &pieces), golden);
        assert_eq!(decode(&golden).unwrap(), Recipe { depth: 1, pieces });
    }

    #[test]
    fn what_is_not_written_is_not_read() {
        assert_eq!(refused(&[]), "a recipe chunk is too short");
        assert_eq!(refused(&[1]), "a recipe chunk is too short");
        assert_eq!(refused(&[1, 1]), "a recipe chunk without entries");
        assert_eq!(refused(&[9, 1, 3]), "its format is 9, and this program knows 1");
        assert_eq!(refused(&[1, 0, 3]), "a depth of 0");
        assert_eq!(refused(&[1, 17, 3]), "a depth of 17");
        assert_eq!(refused(&[1, 1, 1]), "an empty piece");
        assert_eq!(refused(&[1, 1, 2, 7, 7]), "a chunk's name that is cut off");
        assert_eq!(refused(&[1, 1, 0x83]), "a number that is cut off");
        assert_eq!(refused(&[1, 1, 0x83, 0]), "a number that is written longer than it is");
        assert_eq!(refused(&[1, 2, 3]), "zeros above the lowest recipe chunks");
        let mut long = vec![1, 1];
        long.extend([0xff; 9]);
        long.push(2);
        assert_eq!(refused(&long), "a number that is too large");
        long[11] = 1;
        long.push(3);
        assert_eq!(refused(&long), "a file that is too long");
        let large = encode(1, &[chunk(1, CHUNK_BYTES_MAX as u64 + 1)]);
        assert_eq!(refused(&large), "a chunk that is too large");
        let mut many = encode(1, &[Piece::Zeros { length: 1 }; ENTRIES_MAX]);
        many.push(3);
        assert_eq!(refused(&many), "a recipe chunk has too many entries");
        assert_eq!(refused(&[1; RECIPE_BYTES_MAX + 1]), "a recipe chunk is too long");
    }

    proptest! {
        #[test]
        fn prop_arbitrary_bytes_are_refused_or_are_what_encode_writes(
            head in prop_oneof![Just(vec![]), Just(vec![1, 1]), Just(vec![1, 2])],
            tail in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let bytes = [head, tail].concat();
            if let Ok(recipe) = decode(&bytes) {
                prop_assert_eq!(encode(recipe.depth, &recipe.pieces), bytes);
            }
        }

        #[test]
        fn prop_what_is_encoded_is_decoded(
            entries in prop::collection::vec((any::<bool>(), any::<[u8; 24]>(), 1..=1u64 << 20), 1..=256),
        ) {
            let pieces: Vec<Piece> = entries
                .into_iter()
                .map(|(zeros, name, length)| match zeros {
                    true => Piece::Zeros { length },
                    false => Piece::Chunk { name: ChunkName(name), length },
                })
                .collect();
            let recipe = decode(&encode(1, &pieces)).unwrap();
            prop_assert_eq!(recipe, Recipe { depth: 1, pieces });
        }
    }
}
