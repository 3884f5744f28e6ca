//! The contents of one version of a file, by name: what a recipe is made of.
//! From: LBFS, "Dividing files into chunks"; the tree of recipes is beyond it.

use minicbor::{Decode, Decoder, Encode, Encoder};
use std::fmt;

/// Bytes of a chunk's name: BLAKE3 keyed with the volume's secret, cut to 192 bits.
pub const CHUNK_NAME_BYTES: usize = 24;

/// The name of a chunk: the keyed hash of its bytes. Means nothing outside its volume.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkName(pub [u8; CHUNK_NAME_BYTES]);

impl fmt::Debug for ChunkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for ChunkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().take(8).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl<C> Encode<C> for ChunkName {
    fn encode<W: minicbor::encode::Write>(
        &self,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        e.bytes(&self.0)?.ok()
    }
}

impl<'b, C> Decode<'b, C> for ChunkName {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, minicbor::decode::Error> {
        let bytes = d.bytes()?;
        let name = bytes.try_into().map_err(|_| {
            minicbor::decode::Error::message("a chunk name that is not 24 bytes long")
        })?;
        Ok(ChunkName(name))
    }
}

/// Where the recipe of some contents begins. At depth 0 the name is that of the only data chunk;
/// at depth d it is that of a recipe chunk whose pieces are of depth d - 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(array)]
pub struct Root {
    #[n(0)]
    pub name: ChunkName,
    #[n(1)]
    pub depth: u8,
}

/// What a file holds. `root` is none for an empty file, and in listings, which leave it out
/// because only who opens the file needs it.
#[derive(Clone, Copy, Eq, Debug, Default, Encode, Decode)]
#[cbor(array)]
pub struct Contents {
    #[n(0)]
    pub size: u64,
    #[n(1)]
    pub root: Option<Root>,
    /// Of the size, the bytes of stretches of zeros, which take no room. None: there are none, or
    /// whoever wrote this did not count them yet.
    #[n(2)]
    pub holes: Option<u64>,
}

/// The holes follow from the root, and who does not count them means the same contents.
impl PartialEq for Contents {
    fn eq(&self, other: &Contents) -> bool {
        (self.size, self.root) == (other.size, other.root)
    }
}

impl Contents {
    pub const EMPTY: Contents = Contents { size: 0, root: None, holes: None };

    /// Bytes that are no hole.
    pub fn data(&self) -> u64 {
        self.size.saturating_sub(self.holes.unwrap_or(0))
    }
}

/// One stretch of a file, in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Piece {
    /// A chunk and its length in bytes; in a recipe chunk, the length of all that hangs below it.
    Chunk { name: ChunkName, length: u64 },
    /// A stretch of zeros, which no chunk stands for.
    Zeros { length: u64 },
}

impl Piece {
    pub fn length(&self) -> u64 {
        match self {
            Piece::Chunk { length, .. } | Piece::Zeros { length } => *length,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was written before holes were counted is read, and what has none is written as ever.
    #[test]
    fn holes_are_told_where_there_are_some_and_make_no_other_contents() {
        let before = Contents { size: 100, root: None, holes: None };
        let sparse = Contents { holes: Some(70), ..before };
        let golden =
            [(vec![0x81, 0x18, 100], before), (vec![0x83, 0x18, 100, 0xf6, 0x18, 70], sparse)];
        for (bytes, contents) in golden {
            assert_eq!(minicbor::to_vec(contents).unwrap(), bytes);
            let read: Contents = minicbor::decode(&bytes).unwrap();
            assert_eq!((read.size, read.root, read.holes), (100, None, contents.holes));
        }
        assert_eq!(before, sparse);
        assert_eq!((before.data(), sparse.data()), (100, 30));
        assert_eq!(Contents { holes: Some(101), ..before }.data(), 0, "a lie is no panic");
    }
}
