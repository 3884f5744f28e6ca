//! What can go wrong with the whole tree.

use store::StoreError;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A record that is not what was written.
    #[error("the record {place} is damaged: {what}; restore the server's store from a backup")]
    Damaged { place: String, what: String },
    /// A record of a newer program.
    #[error(
        "the record {place} has format {found}, and this program reads up to {known}; use the newer farfs"
    )]
    TooNew { place: String, found: u8, known: u8 },
    /// The volume has no head: it was never made here, or has been removed.
    #[error("the volume is not in this store")]
    NoVolume,
    /// Every id that there can be has been given away.
    #[error("the volume has no {0} left to give away")]
    NoneLeft(&'static str),
    /// See `FileId::in_snapshot`.
    #[error("file {0} has no number in {1}: there have been too many snapshots, devices and files")]
    NoNumber(model::FileId, model::SnapshotId),
}

pub(super) type Result<T, E = Error> = std::result::Result<T, E>;
