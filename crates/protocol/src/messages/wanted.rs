//! Chunks that the replica above has lost, and asks those below it for.

use minicbor::{Decode, Encode};
use model::{ChunkName, FileId, Stamp};

/// Chunks that one answer asks for at most: over the slowest link they hold up little.
pub const WANTED_CHUNKS_MAX: usize = 64;

/// What the replica above lacks. Nobody has to have it, nor to give it back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Wanted {
    /// Chunks that are missing there, asked for in this answer or not.
    #[n(0)]
    pub missing: u64,
    /// Versions that need some of them: at most `WANTED_CHUNKS_MAX` chunks, all together.
    #[n(1)]
    pub versions: Vec<WantedOf>,
}

/// Chunks, of data or of the recipe, that a version needs. Others may have them as well.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct WantedOf {
    #[n(0)]
    pub file: FileId,
    #[n(1)]
    pub version: Stamp,
    #[n(2)]
    pub chunks: Vec<ChunkName>,
}
