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
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[cbor(array)]
pub struct Contents {
    #[n(0)]
    pub size: u64,
    #[n(1)]
    pub root: Option<Root>,
}

impl Contents {
    pub const EMPTY: Contents = Contents { size: 0, root: None };
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
