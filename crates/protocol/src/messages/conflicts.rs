//! What met what, and who sees to it.
//! From: DESIGN, "Conflicts".

use super::past::{By, Looks};
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use model::{Name, Seq, Stamp, Time};

/// Bytes of contents in one answer, at most.
pub const BASE_BYTES_MAX: u64 = 256 << 10;
/// How long a claim to a conflict holds if nothing more is heard of it.
pub const CLAIM_SECS: u64 = 300;
/// How the name begins under which what is merged comes to the server, beside the file; the rest is
/// the conflict's number.
pub const STAGED: &str = ".farfs-merge-";
/// Conflicts in one answer, at most.
pub const CONFLICTS_TOLD_MAX: u32 = 1000;

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
    /// A change of names that was not possible any more: it is not done.
    #[n(9)]
    NotDone,
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
    /// Those up to there of which who asks is told nothing. None: there are none.
    #[n(2)]
    pub hidden: Option<Vec<HiddenConflict>>,
}

/// One that lies where who asks may not search.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct HiddenConflict {
    #[n(0)]
    pub number: u64,
    /// The first directory on the way there that is in the way, as people write it.
    #[n(1)]
    pub directory: String,
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
    /// How the file was that both began from, if it is kept.
    #[n(11)]
    pub base_looks: Option<Looks>,
    /// The device that is about to see to it.
    #[n(12)]
    pub claimed_by: Option<String>,
    /// The version of what has the name now. None: nothing does, or it is about attributes.
    #[n(13)]
    pub now: Option<Stamp>,
}

/// Some conflicts that have been seen to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct SettledConflicts {
    #[n(0)]
    pub conflicts: Vec<SettledInfo>,
    /// There are more behind the last one.
    #[n(1)]
    pub more: bool,
    /// As of `Conflicts`.
    #[n(2)]
    pub hidden: Option<Vec<HiddenConflict>>,
}

/// A conflict that has been seen to.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct SettledInfo {
    /// Where what came second was is `aside`, whether or not it is there.
    #[n(0)]
    pub conflict: ConflictInfo,
    /// The position before anything was done about it.
    #[n(1)]
    pub before: Seq,
    /// By the origin's clock.
    #[n(2)]
    pub at: Time,
    /// Who has seen to it. None: whoever is at the origin.
    #[n(3)]
    pub device: Option<String>,
    /// The contents that bore the name when it was seen to. None: nothing did.
    #[n(4)]
    pub left: Option<Stamp>,
}

/// That one is about to see to a conflict, so that nobody else does; or that one is not.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Claim {
    #[n(0)]
    pub number: u64,
    /// Drawn by whoever asks, who asks again with the same.
    #[n(1)]
    pub token: u64,
    /// False: it is given back.
    #[n(2)]
    pub holds: bool,
    /// The version of what has the name, as the asker goes by it. None: by none.
    #[n(3)]
    pub seen: Option<Stamp>,
    /// Who asks. None: he may know of every one.
    #[n(4)]
    pub by: Option<By>,
}
