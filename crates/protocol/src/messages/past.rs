//! Earlier states of a volume: snapshots, the versions of a file, and bringing one back.
//! From: DESIGN, "Updates": the origin can answer as of any position that is still needed.

pub use super::conflicts::{
    Attribute, BASE_BYTES_MAX, CLAIM_SECS, CONFLICTS_TOLD_MAX, Claim, Clash, ConflictInfo,
    Conflicts, HiddenConflict, STAGED, Setting, SettledConflicts, SettledInfo, Value,
};
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use model::{BadSnapshotName, Kind, Name, ReplicaId, Seq, SnapshotId, Time};

/// Versions in one answer, at most.
pub const VERSIONS_TOLD_MAX: u32 = 1000;
/// Names of a path, at most: of 4,096 bytes every other one is a slash.
pub const PATH_NAMES_MAX: usize = 2048;

/// Groups of a user that are told; of who is in more it is as if none were.
pub const GROUPS_MAX: usize = 1024;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Past {
    #[n(0)]
    Snapshots,
    /// A name for how the volume is when this is answered.
    #[n(1)]
    Snapshot {
        #[n(0)]
        name: String,
        #[n(1)]
        uid: u32,
        /// Drawn by whoever asks: one that asks again after a lost answer is told of the same.
        #[n(2)]
        token: u64,
    },
    #[n(2)]
    Forget {
        #[n(0)]
        name: String,
        #[n(1)]
        uid: u32,
    },
    /// The versions that are kept of what bears a path, or bore it; the newest first.
    #[n(3)]
    History {
        #[n(0)]
        path: Vec<Name>,
        /// Goes on before this one, where an earlier answer stopped.
        #[n(1)]
        before: Option<Seq>,
        /// At most `VERSIONS_TOLD_MAX`.
        #[n(2)]
        versions_max: u32,
        /// None: it may know of every path.
        #[n(3)]
        by: Option<By>,
    },
    /// Contents and attributes as they were become the newest version.
    #[n(4)]
    Restore(#[n(0)] Restore),
    /// The conflicts that are listed, with numbers above `after`, the oldest first.
    #[n(5)]
    Conflicts {
        #[n(0)]
        after: u64,
        /// At most `CONFLICTS_TOLD_MAX`.
        #[n(1)]
        conflicts_max: u32,
        /// None: it may know of every one.
        #[n(2)]
        by: Option<By>,
    },
    /// A conflict has been seen to, and is listed no more.
    #[n(6)]
    Settle {
        #[n(0)]
        number: u64,
        /// By which it was claimed. None: it was not.
        #[n(1)]
        token: Option<u64>,
        /// As of `Conflicts`.
        #[n(2)]
        by: Option<By>,
    },
    #[n(7)]
    Claim(#[n(0)] Claim),
    /// Conflicts that have been seen to and can be had back, with numbers above `after`.
    #[n(8)]
    Settled {
        #[n(0)]
        after: u64,
        /// At most `CONFLICTS_TOLD_MAX`.
        #[n(1)]
        conflicts_max: u32,
        /// As of `Conflicts`.
        #[n(2)]
        by: Option<By>,
    },
    /// A conflict that had been seen to is listed anew.
    #[n(9)]
    Reopen {
        #[n(0)]
        number: u64,
        /// As of `Conflicts`.
        #[n(1)]
        by: Option<By>,
    },
    /// Some of the contents that both sides of a conflict began from.
    #[n(10)]
    Base {
        #[n(0)]
        number: u64,
        #[n(1)]
        offset: u64,
        /// Who asks.
        #[n(2)]
        uid: u32,
        #[n(3)]
        gid: u32,
        /// As of `By`.
        #[n(4)]
        groups: Option<Vec<u32>>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Restore {
    #[n(0)]
    pub path: Vec<Name>,
    #[n(1)]
    pub then: Then,
    /// Where it is to be. None: where it was.
    #[n(2)]
    pub to: Option<Vec<Name>>,
    /// Who asks.
    #[n(3)]
    pub uid: u32,
    #[n(4)]
    pub gid: u32,
    /// As of `By`.
    #[n(5)]
    pub groups: Option<Vec<u32>>,
    /// Also what is of another kind now is replaced, unless the one or the other is a directory. None:
    /// not, as by older programs.
    #[n(6)]
    pub over_others: Option<bool>,
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct By {
    #[n(0)]
    pub uid: u32,
    #[n(1)]
    pub gid: u32,
    /// The others that it is in, at most `GROUPS_MAX`. None: not told, as by older programs.
    #[n(2)]
    pub groups: Option<Vec<u32>>,
}

/// Which state is meant.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Then {
    /// When the update at this position was the last.
    #[n(0)]
    Version(#[n(0)] Seq),
    #[n(1)]
    Snapshot(#[n(0)] String),
    /// By the clocks of those who made the updates.
    #[n(2)]
    Time(#[n(0)] Time),
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Found {
    #[n(0)]
    Snapshots(#[n(0)] Vec<SnapshotInfo>),
    /// It was made, or removed.
    #[n(1)]
    Snapshot(#[n(0)] SnapshotInfo),
    #[n(2)]
    History(#[n(0)] History),
    #[n(3)]
    Restored(#[n(0)] Restored),
    #[n(4)]
    Not(#[n(0)] NotFound),
    #[n(5)]
    Conflicts(#[n(0)] Conflicts),
    /// The conflict of this number is listed no more.
    #[n(6)]
    Settled(#[n(0)] u64),
    #[n(7)]
    Claimed(#[n(0)] u64),
    #[n(8)]
    SettledConflicts(#[n(0)] SettledConflicts),
    /// It is listed by this number.
    #[n(9)]
    Reopened(#[n(0)] u64),
    /// What begins at the offset, at most `BASE_BYTES_MAX`; nothing at the end.
    #[n(10)]
    Base(#[n(0)] ByteVec),
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct SnapshotInfo {
    #[n(0)]
    pub number: SnapshotId,
    #[n(1)]
    pub name: Name,
    #[n(2)]
    pub position: Seq,
    /// By the origin's clock.
    #[n(3)]
    pub at: Time,
    /// The name of the device that asked for it. None: it was made at the origin.
    #[n(4)]
    pub device: Option<String>,
    #[n(5)]
    pub uid: u32,
}

/// The newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct History {
    #[n(0)]
    pub versions: Vec<Version>,
    /// There are more before the last one.
    #[n(1)]
    pub more: bool,
}

/// What was so from a position on.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Version {
    #[n(0)]
    pub since: Seq,
    /// By the clock of who made it.
    #[n(1)]
    pub at: Time,
    #[n(2)]
    pub by: ReplicaId,
    /// The name of its device, where that is known.
    #[n(3)]
    pub device: Option<String>,
    /// What changed with it.
    #[n(4)]
    pub changes: Vec<Changed>,
    /// How it was. None: nothing bore the name.
    #[n(5)]
    pub looks: Option<Looks>,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Looks {
    #[n(0)]
    pub kind: Kind,
    #[n(1)]
    pub size: u64,
    #[n(2)]
    pub mode: u16,
    #[n(3)]
    pub uid: u32,
    #[n(4)]
    pub gid: u32,
    #[n(5)]
    pub mtime: Time,
    /// The contents are not kept any more.
    #[n(6)]
    pub pruned: bool,
}

/// What a version differs in from the one before.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub enum Changed {
    #[n(0)]
    Made,
    #[n(1)]
    Contents,
    #[n(2)]
    Mode,
    #[n(3)]
    Owner,
    #[n(4)]
    Times,
    #[n(5)]
    Xattrs,
    /// It has more names, or fewer.
    #[n(6)]
    Links,
    /// It came from another path, as far as that is known.
    #[n(7)]
    Moved(#[n(0)] Vec<Name>),
    /// Another file took the name.
    #[n(8)]
    Replaced,
    #[n(9)]
    Removed,
    /// What comes before it is not kept.
    #[n(10)]
    Kept,
}

/// What was brought back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Restored {
    /// Files of any kind but directories that were made, and those that were changed.
    #[n(0)]
    pub made: u64,
    #[n(1)]
    pub changed: u64,
    /// What was as it was then already.
    #[n(2)]
    pub same: u64,
    /// Directories that were made or changed. None: an older origin counts them among the files.
    #[n(3)]
    pub directories: Option<u64>,
}

/// Why it is not done.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, thiserror::Error)]
pub enum NotFound {
    #[n(0)]
    #[error("there is a snapshot {0:?} already; `farfs snapshot remove` frees the name")]
    Exists(#[n(0)] String),
    #[n(1)]
    #[error("there is no snapshot {0:?}; `farfs snapshot list` shows those that there are")]
    NoSnapshot(#[n(0)] String),
    #[n(2)]
    #[error("the volume has {0} snapshots, as many as it may have; remove some first")]
    TooMany(#[n(0)] u64),
    #[n(3)]
    #[error("{0:?} is no name for a snapshot: {1}")]
    BadName(#[n(0)] String, #[n(1)] String),
    #[n(4)]
    #[error("nothing is known of {0}: no version of it is kept")]
    NoPath(#[n(0)] String),
    #[n(5)]
    #[error(
        "{0} was not there then; `farfs history` shows from when on it was, as far as that is kept"
    )]
    NotThen(#[n(0)] String),
    #[n(6)]
    #[error("the contents that {0} had then are not kept any more")]
    Pruned(#[n(0)] String),
    #[n(7)]
    #[error("{0} is something of another kind now; say with --to where to restore it")]
    OtherKind(#[n(0)] String),
    #[n(8)]
    #[error("the directory of {0} is not there: restore that, or say with --to where it is to be")]
    NoDirectory(#[n(0)] String),
    #[n(9)]
    #[error("{0} belongs to another user: copy it out of a snapshot, or restore it as root")]
    NotYours(#[n(0)] String),
    #[n(10)]
    #[error("nothing is kept of so long ago")]
    TooEarly,
    #[n(11)]
    #[error("{0} has more in it than can be restored at once; restore what is in it by itself")]
    TooMuch(#[n(0)] String),
    #[n(12)]
    #[error("it cannot be put there: {0}")]
    Refused(#[n(0)] String),
    #[n(13)]
    #[error(
        "there is no conflict {0}: somebody has seen to it, or there never was one; `farfs conflicts` \
         lists those that there are"
    )]
    NoConflict(#[n(0)] u64),
    #[n(14)]
    #[error("{1:?} is about to see to conflict {0}; if nothing comes of it, try again in {2} s")]
    Claimed(#[n(0)] u64, #[n(1)] String, #[n(2)] u64),
    #[n(15)]
    #[error("conflict {0}: somebody has changed what has the name just now; look at it again")]
    ChangedSince(#[n(0)] u64),
    #[n(16)]
    #[error("conflict {0} was not seen to, or so long ago that it cannot be had back")]
    NotSettled(#[n(0)] u64),
    #[n(17)]
    #[error("{0} was removed then; `farfs history` lists the versions before")]
    Removed(#[n(0)] String),
    #[n(18)]
    #[error("what is in {0} is not told to a user who may not search it")]
    Hidden(#[n(0)] String),
}

impl NotFound {
    pub fn bad_name(name: &str, why: BadSnapshotName) -> NotFound {
        NotFound::BadName(name.to_owned(), why.to_string())
    }
}
