//! What became of an update.

use super::States;
use minicbor::{Decode, Encode};
use model::{Allowance, ChunkName, FileId, Name, Seq, Stamp};

/// What became of an update.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Verdict {
    #[n(0)]
    Taken(#[n(0)] Seq),
    /// It met a change that it did not expect: both are kept. What it made bears another name.
    #[n(1)]
    KeptAside {
        #[n(0)]
        seq: Seq,
        #[n(1)]
        directory: FileId,
        #[n(2)]
        name: Name,
        /// A directory that was to be made is this one, which was there: what is made in the one is made in
        /// the other.
        #[n(3)]
        merged: Option<FileId>,
    },
    /// It was not done, and nothing was lost by that.
    #[n(2)]
    Refused(#[n(0)] Objection),
}

/// Why an update was not done, as far as the application has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, thiserror::Error)]
#[cbor(index_only)]
pub enum Objection {
    #[n(0)]
    #[error("no such file or directory")]
    NoEntry,
    #[n(1)]
    #[error("the name exists already")]
    Exists,
    #[n(2)]
    #[error("not a directory")]
    NotADirectory,
    #[n(3)]
    #[error("is a directory")]
    IsADirectory,
    #[n(4)]
    #[error("directory not empty")]
    NotEmpty,
    #[n(5)]
    #[error("the directory would come to lie in itself")]
    Cycle,
    #[n(6)]
    #[error("too many links")]
    TooManyLinks,
    #[n(7)]
    #[error("changed by somebody else meanwhile")]
    Changed,
    #[n(8)]
    #[error("not permitted")]
    NotPermitted,
    #[n(9)]
    #[error("read-only for this device")]
    ReadOnly,
    #[n(10)]
    #[error("no space left at the origin")]
    NoSpace,
    #[n(11)]
    #[error("no such attribute")]
    NoAttribute,
    #[n(12)]
    #[error("not valid")]
    Invalid,
    #[n(13)]
    #[error("the quota is used up")]
    OverQuota,
}

/// What became of updates that were sent together.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Submitted {
    /// One for each update up to the first whose contents are missing.
    #[n(0)]
    pub verdicts: Vec<Verdict>,
    /// Chunks without which the update after the last verdict cannot be taken, and those that
    /// the updates after it lack as far as can be seen.
    #[n(1)]
    pub missing: Vec<ChunkName>,
    /// The state of all that the updates touched, conflicts included.
    #[n(2)]
    pub states: States,
    /// Bases of deltas that cannot be used here: what was coded against them is not stored.
    #[n(3)]
    pub useless: Option<Vec<(FileId, Stamp)>>,
    /// As in `Renewed`, the updates that were judged included.
    #[n(4)]
    pub allowance: Option<Allowance>,
}
