//! Contents in messages: stretches, chunks by themselves, and chunks as deltas.

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use model::{Contents, FileId, Stamp};

/// The most bytes of contents, before compression, in one message.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;

/// The most bytes of a version that a delta may be against.
pub const BASE_BYTES_MAX: u64 = 4 << 20;

/// The most bytes of contents that the deltas of one message may stand for. One delta alone stands
/// for more than `PAYLOAD_BYTES_MAX` where contents can only be unpacked as a whole.
pub const CODED_BYTES_MAX: usize = 4 << 20;

/// Deltas in one message, at most.
pub const DELTAS_MAX: usize = 256;

/// A stretch of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Range {
    #[n(0)]
    pub offset: u64,
    #[n(1)]
    pub length: u64,
}

/// Chunks one after another, as one stream.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Payload {
    /// Length of each chunk, before compression.
    #[n(0)]
    pub lengths: Vec<u32>,
    /// Zstandard, one frame over all chunks; or the bytes as they are, if `plain`.
    #[n(1)]
    pub bytes: ByteVec,
    #[n(2)]
    pub plain: bool,
}

/// A stretch of a version of a file that both sides have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Base {
    #[n(0)]
    pub file: FileId,
    #[n(1)]
    pub version: Stamp,
    /// At most `BASE_BYTES_MAX` long, and within the version.
    #[n(2)]
    pub stretch: Range,
}

/// Chunks one after another, as what they add to a base.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Delta {
    #[n(0)]
    pub base: Base,
    /// Length of each chunk.
    #[n(1)]
    pub lengths: Vec<u32>,
    /// The number of the codec. A receiver that does not know it has no use for the base.
    #[n(2)]
    pub codec: u8,
    #[n(3)]
    pub bytes: ByteVec,
    /// The first eight bytes of the name that all the chunks together would have as one. If they
    /// come out otherwise, the two sides do not have the same base.
    #[n(4)]
    pub check: u64,
}

/// What the receiver has of what is inside a stretch of a container.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct KnownInside {
    /// The stretch that was asked about.
    #[n(0)]
    pub stretch: Range,
    /// A bit for each name of the answer, the lowest of a byte first.
    #[n(1)]
    pub bits: ByteVec,
}

#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Fetched {
    #[n(0)]
    pub version: Stamp,
    #[n(1)]
    pub contents: Contents,
    /// Recipe chunks, encoded, the root first, parents before children. None where all the
    /// contents come as chunks: who has them can make it.
    #[n(2)]
    pub recipe: Vec<ByteVec>,
    /// All the contents, where they were few enough.
    #[n(3)]
    pub bytes: Option<Payload>,
    /// All the contents, in place of `bytes`, where the client offered a base.
    #[n(4)]
    pub delta: Option<Delta>,
    /// The version begins as a compressed container does: it is worth to ask what is inside. None:
    /// it does not, or an older replica does not say.
    #[n(5)]
    pub packed: Option<bool>,
}
