//! Why a request is not done.

use minicbor::{Decode, Encode};
use model::{FileId, Stamp};

/// Why a request cannot be done.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, thiserror::Error)]
pub enum Refusal {
    #[n(0)]
    #[error("the session has not been attached")]
    NotAttached,
    #[n(1)]
    #[error("file {0} is not there any more")]
    NoFile(#[n(0)] FileId),
    #[n(2)]
    #[error("{0} is not a directory")]
    NotADirectory(#[n(0)] FileId),
    /// The version is not kept any more, or never was.
    #[n(3)]
    #[error("version {1} of file {0} is not kept here")]
    NoVersion(#[n(0)] FileId, #[n(1)] Stamp),
    #[n(4)]
    #[error("this device may only read the volume")]
    ReadOnly,
    #[n(5)]
    #[error("the server's disk is full")]
    NoSpace,
    #[n(6)]
    #[error("the request makes no sense: {0}")]
    Malformed(#[n(0)] String),
    /// The server's trouble, not the asker's: it has it in its log.
    #[n(7)]
    #[error("the server could not do it: {0}")]
    Failed(#[n(0)] String),
    #[n(8)]
    #[error("the volume has been removed")]
    NoVolume,
    /// The first update would store more than a quota allows. Nothing was taken.
    #[n(9)]
    #[error("the volume's quota, or that of the file's owner, is used up")]
    OverQuota,
}
