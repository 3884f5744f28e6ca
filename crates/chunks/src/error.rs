//! What can go wrong with chunks.

use model::ChunkName;
use store::StoreError;

#[derive(Debug, thiserror::Error)]
pub enum ChunksError {
    /// Whoever made or kept the recipe is at fault; another source may have a good one.
    #[error("the recipe makes no sense: {0}; fetch it again from another place")]
    BadRecipe(String),
    /// Bytes that are not those of the chunk they were given for.
    #[error("the bytes given for chunk {0} are not that chunk's; fetch it again")]
    WrongBytes(ChunkName),
    /// What a peer sent as chunks cannot be taken apart.
    #[error("the chunks that arrived make no sense: {0}; ask for them again")]
    BadPayload(String),
    /// What a peer sent as a delta does not make what it was said to; the contents can be had
    /// without one.
    #[error("the delta that arrived makes no sense: {0}; ask for the contents themselves")]
    BadDelta(String),
    /// Somebody wrote to the file while it was being cut.
    #[error("the file had {stated} bytes, and then {found}, while it was cut; cut it again")]
    SizeChanged { stated: u64, found: u64 },
    #[error(transparent)]
    Store(#[from] StoreError),
}

pub type Result<T, E = ChunksError> = std::result::Result<T, E>;
