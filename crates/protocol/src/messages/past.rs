//! Earlier states of a volume: snapshots, the versions of a file, and bringing one back.
//! From: DESIGN, "Updates": the origin can answer as of any position that is still needed.

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use model::{BadSnapshotName, Kind, Name, ReplicaId, Seq, SnapshotId, Stamp, Time};

/// Versions in one answer, at most.
pub const VERSIONS_TOLD_MAX: u32 = 1000;
/// Conflicts in one answer, at most.
pub const CONFLICTS_TOLD_MAX: u32 = 1000;
/// Names of a path, at most: of 4,096 bytes every other one is a slash.
pub const PATH_NAMES_MAX: usize = 2048;

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
    },
    /// A conflict has been seen to, and is listed no more.
    #[n(6)]
    Settle {
        #[n(0)]
        number: u64,
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

/// What met what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Clash {
    /// Two stored new contents of one file: the second are a file of their own now.
    #[n(0)]
    Contents,
    /// Contents were stored into a file that somebody removed: it is back.
    #[n(1)]
    Removed,
    /// Two things were to bear one name: the second bears another.
    #[n(2)]
    Name,
    /// Something was made in a directory that is gone: it is in the nearest that is left.
    #[n(3)]
    Directory,
    /// Two made one directory: it is one.
    #[n(4)]
    Merged,
    /// A file was to be replaced or removed that somebody had changed meanwhile: it stays.
    #[n(5)]
    Replaced,
    /// A directory would have come to lie in itself: it stays where it is.
    #[n(6)]
    Cycle,
    /// It was accepted while others used up a quota: it is there, beyond that.
    #[n(7)]
    Overrun,
    /// Two set the same attribute to different values: the file has what the second set.
    #[n(8)]
    Attributes,
}

/// One attribute that two have set.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Setting {
    #[n(0)]
    pub what: Attribute,
    /// What it was before both. None: that is not known any more.
    #[n(1)]
    pub was: Option<Value>,
    /// What came first at the origin, and what came second.
    #[n(2)]
    pub theirs: Value,
    #[n(3)]
    pub mine: Value,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub enum Attribute {
    /// The low 12 bits of `st_mode`.
    #[n(0)]
    Mode,
    #[n(1)]
    Owner,
    #[n(2)]
    Group,
    /// An extended attribute, by name; an access list is one.
    #[n(3)]
    Xattr(#[n(0)] ByteVec),
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Value {
    /// There was no such attribute.
    #[n(0)]
    Absent,
    #[n(1)]
    Number(#[n(0)] u32),
    #[n(2)]
    Bytes(#[n(0)] ByteVec),
}

/// Some conflicts, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Conflicts {
    #[n(0)]
    pub conflicts: Vec<ConflictInfo>,
    /// There are more behind the last one.
    #[n(1)]
    pub more: bool,
}

/// One conflict, as it is now. What came first has the name; what came second is beside it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct ConflictInfo {
    #[n(0)]
    pub number: u64,
    #[n(1)]
    pub clash: Clash,
    /// The path that it was about, by where its directory is now. None: that is gone.
    #[n(2)]
    pub path: Option<Vec<Name>>,
    /// Where what came second is now. None: it is nowhere by itself, or not any more.
    #[n(3)]
    pub aside: Option<Vec<Name>>,
    /// The device that came second, by the name it gives itself.
    #[n(4)]
    pub device: String,
    #[n(5)]
    pub at: Time,
    /// The update that came second, what it found, and what both began from.
    #[n(6)]
    pub update: Stamp,
    #[n(7)]
    pub found: Option<Stamp>,
    #[n(8)]
    pub base: Option<Stamp>,
    /// The position from which on the file had the contents that both began from, if they are kept.
    #[n(9)]
    pub base_since: Option<Seq>,
    /// Of attributes, what each of the two set. None: it is about something else.
    #[n(10)]
    pub settings: Option<Vec<Setting>>,
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
    #[error("the tree cannot have it: {0}")]
    Refused(#[n(0)] String),
    #[n(13)]
    #[error(
        "there is no conflict {0}: somebody has seen to it, or there never was one; `farfs conflicts` \
         lists those that there are"
    )]
    NoConflict(#[n(0)] u64),
}

impl NotFound {
    pub fn bad_name(name: &str, why: BadSnapshotName) -> NotFound {
        NotFound::BadName(name.to_owned(), why.to_string())
    }
}
