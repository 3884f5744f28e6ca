//! The contents of several files in one exchange.
//! From: beyond LBFS, which reads one file at a time.

use super::carried::{Base, Delta, Payload, Range};
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use model::{Contents, FileId, Stamp};

/// Files in one request, at most.
pub const GATHERED_FILES_MAX: usize = 256;

/// A version of a file, as one of several that are asked for together.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Wish {
    #[n(0)]
    pub file: FileId,
    #[n(1)]
    pub version: Stamp,
    /// What the client has that may be like it, for a delta.
    #[n(2)]
    pub base: Option<Base>,
    /// Where the client has the recipe: the stretches that it lacks, each whole chunks. None: all.
    #[n(3)]
    pub ranges: Option<Vec<Range>>,
}

/// What is wanted of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Sought {
    #[n(0)]
    Contents,
    /// Only what they consist of: the client may have most of it.
    #[n(1)]
    Recipes,
}

/// The answer for the first files of a request, as many as there was room for.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Gathered {
    /// In the order in which they were asked for.
    #[n(0)]
    pub portions: Vec<Portion>,
    /// The chunks of all portions that came plain, one file after another, as one stream.
    #[n(1)]
    pub payload: Payload,
    /// The same in place of `payload`, which is empty, where the client named versions that it has.
    #[n(2)]
    pub sequel: Option<Sequel>,
}

/// Chunks one after another, as what they add to whole versions that both sides have, one after
/// another.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Sequel {
    /// Length of each chunk.
    #[n(0)]
    pub lengths: Vec<u32>,
    /// The number of the codec, as in a delta.
    #[n(1)]
    pub codec: u8,
    #[n(2)]
    pub bytes: ByteVec,
    /// As in a delta.
    #[n(3)]
    pub check: u64,
}

/// What came of one file.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub enum Portion {
    /// All that was asked for of it: the next so many chunks of the payload.
    #[n(0)]
    Plain {
        #[n(0)]
        contents: Contents,
        #[n(1)]
        chunks: u32,
    },
    /// The same against the base that was offered.
    #[n(1)]
    Delta {
        #[n(0)]
        contents: Contents,
        #[n(1)]
        delta: Delta,
    },
    /// Recipe chunks, encoded, the root first, parents before children; none where the contents
    /// are one chunk.
    #[n(2)]
    Recipe {
        #[n(0)]
        contents: Contents,
        #[n(1)]
        recipe: Vec<ByteVec>,
    },
    /// Nothing: the version is not kept, or is not to be had in this way. It may be asked for
    /// alone.
    #[n(3)]
    Nothing,
}
