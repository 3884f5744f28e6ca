//! The messages. Fields are numbered: a number is never used again for something else, and a
//! field that is added is optional, so that an older peer passes it over.
//! From: LBFS, "LBFS protocol"; AFS callbacks; DESIGN, "Updates" and "Contents".

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use model::{Allowance, ChunkName, FileId, Name, Node, ReplicaId, Seq, Stamp, Update};

mod attach;
mod carried;
mod class;
mod conflicts;
mod gathered;
mod locking;
pub mod past;
mod refusal;
mod runs;
mod verdict;
mod wanted;

pub use attach::{Attach, Life, PATIENCE_FILES_MAX, Patience};
pub use class::Class;
pub use gathered::{GATHERED_FILES_MAX, Gathered, Portion, Sequel, Sought, Wish};
pub use locking::{
    FILES_CLAIMED_MAX, Held, LOCKS_CLAIMED_MAX, LOCKS_TOLD_MAX, LOCKS_WISHED_MAX, LockAim,
    LockOutcome, Locked, Locking,
};
pub use refusal::Refusal;
pub use runs::{Heard, RUNS_MAX, Run};
pub use verdict::{Objection, Submitted, Verdict};
pub use wanted::{WANTED_CHUNKS_MAX, Wanted, WantedOf};

pub use carried::{
    BASE_BYTES_MAX, Base, CODED_BYTES_MAX, DELTAS_MAX, Delta, Fetched, KnownInside,
    PAYLOAD_BYTES_MAX, Payload, Range,
};

/// What a client asks of the replica above it.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub enum Request {
    /// The first request of a session.
    #[n(0)]
    Attach(#[n(0)] Attach),
    /// Prolongs the lease of all callbacks and brings what changed after `seen`.
    #[n(1)]
    Renew {
        #[n(0)]
        seen: Seq,
    },
    /// The entries of a directory with their attributes; grants callbacks on all that it names.
    #[n(2)]
    List {
        #[n(0)]
        directory: FileId,
        /// Goes on after this name, where an earlier answer stopped.
        #[n(1)]
        after: Option<Name>,
        /// About so many entries at most.
        #[n(2)]
        entries_max: u32,
        /// With the directories below it, breadth first, as far as `entries_max` goes.
        #[n(3)]
        deep: bool,
        /// Directories to list too, after those below, as far as there is room: whoever walks a
        /// tree comes to them next.
        #[n(4)]
        also: Option<Vec<FileId>>,
    },
    /// The present state of nodes and entries; grants callbacks on them.
    #[n(3)]
    Inspect {
        #[n(0)]
        nodes: Vec<FileId>,
        #[n(1)]
        entries: Vec<(FileId, Name)>,
    },
    /// GETHASH: the recipe chunks that cover `range` of a version, the root first, parents before
    /// children; or the contents themselves, if there are at most `eager_bytes` of them.
    #[n(4)]
    Recipe {
        #[n(0)]
        file: FileId,
        /// None is the current version.
        #[n(1)]
        version: Option<Stamp>,
        #[n(2)]
        range: Range,
        #[n(3)]
        eager_bytes: u64,
        /// What the client has that may be like the contents, for a delta.
        #[n(4)]
        base: Option<Base>,
    },
    /// READ: the bytes of stretches of a version. Each is a whole number of chunks.
    #[n(5)]
    Read {
        #[n(0)]
        file: FileId,
        #[n(1)]
        version: Stamp,
        #[n(2)]
        ranges: Vec<Range>,
        /// What the client has that may be like these stretches, for a delta.
        #[n(3)]
        base: Option<Base>,
        /// The base is all of a compressed container: a delta of all chunks of the version will do
        /// in place of one of these, if they are at most `CODED_BYTES_MAX` together.
        #[n(4)]
        packed: Option<bool>,
        /// What the client has of what is inside, by the answer to `Inside`: the chunks may come
        /// assembled of it, with others that lie between them.
        #[n(5)]
        inside: Option<KnownInside>,
    },
    /// TMPWRITE: chunks that coming updates need, or that are wanted.
    #[n(6)]
    Put {
        #[n(0)]
        payload: Payload,
        /// More of them, each against what the replica above has.
        #[n(1)]
        deltas: Option<Vec<Delta>>,
    },
    /// CONDWRITE and COMMITTMP: updates, in the order of their stamps.
    #[n(7)]
    Submit(#[n(0)] Submit),
    /// Bytes and files that the volume has and may have.
    #[n(8)]
    Measure,
    /// The client stops, and believes nothing that it has cached until it attaches again: nobody
    /// has to wait for it.
    #[n(9)]
    Leave,
    /// Several files at once, as one stream. Only where `Attached` says that it is answered.
    #[n(10)]
    Gather {
        /// At most `GATHERED_FILES_MAX`.
        #[n(0)]
        files: Vec<Wish>,
        /// About so many bytes of contents at most, before compression; of the first file more.
        #[n(1)]
        bytes_max: u64,
        #[n(2)]
        sought: Sought,
        /// Whole versions that the client has, in the order in which a sequel begins with them:
        /// at most `GATHERED_FILES_MAX`, of `BASE_BYTES_MAX` together.
        #[n(3)]
        held: Option<Vec<(FileId, Stamp)>>,
    },
    /// Locks of a file. Only where `Attached` says that they are known there.
    #[n(11)]
    Lock(#[n(0)] Locking),
    /// Which of these chunks are there, recipe chunks and others: at most `FIND_NAMES_MAX`. Only
    /// where `Attached` says that deltas are assembled.
    #[n(12)]
    Find {
        #[n(0)]
        names: Vec<ChunkName>,
    },
    /// What stands inside a stretch of a version that is a compressed container. Only where
    /// `Attached` says that deltas are assembled.
    #[n(13)]
    Inside {
        #[n(0)]
        file: FileId,
        #[n(1)]
        version: Stamp,
        #[n(2)]
        stretch: Range,
    },
    /// Earlier states. Only where `Attached` says that they are known there.
    #[n(14)]
    Past(#[n(0)] past::Past),
    /// Answered when everybody who asked to be told has taken in all that was committed before, or
    /// has no lease any more. Only where `Attached` says that it is known.
    #[n(17)]
    Told,
    /// Of which files others need not wait until this client has been told. Only where `Attached`
    /// says that it is heeded.
    #[n(20)]
    Patience(#[n(0)] Patience),
}

/// Names in one question, at most.
pub const FIND_NAMES_MAX: usize = 1 << 14;

#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Submit {
    /// Verdicts up to this number have arrived and need not be kept.
    #[n(0)]
    pub settled: u64,
    /// Somebody waits: an update that meets a change is refused, not kept aside.
    #[n(1)]
    pub strict: bool,
    #[n(2)]
    pub updates: Vec<Update>,
    /// Chunks that the updates need, sent before it is known whether they are missing.
    #[n(3)]
    pub payload: Option<Payload>,
    /// More of them, each against what the replica above has.
    #[n(4)]
    pub deltas: Option<Vec<Delta>>,
    /// Chunks that are missing are looked for inside containers there, and for each byte that is
    /// found so many may be unpacked. None: they are not. Only where `Attached` says that deltas
    /// are assembled.
    #[n(5)]
    pub seek: Option<u32>,
    /// These are taken before updates with lower numbers, which are not passed over by that: for
    /// those there is no room, or what they store takes long. Only where `Attached` says that it is
    /// known: removals of names, or anything.
    #[n(6)]
    pub ahead: Option<bool>,
    /// Of files that are stored, the records that processes of the client hold with nobody else: what
    /// was written under them meets no change of others that lies beside it. None: there are none.
    #[n(7)]
    pub under: Option<Vec<Held>>,
}

/// What the replica above answers.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub enum Response {
    #[n(0)]
    Attached(#[n(0)] Attached),
    #[n(1)]
    Renewed {
        #[n(0)]
        tail: Tail,
        /// None: nothing is missing above, or an older replica does not say.
        #[n(1)]
        wanted: Option<Wanted>,
        /// What the volume may have, and has. None: there is no quota.
        #[n(2)]
        allowance: Option<Allowance>,
        /// Conflicts of the volume that are listed. None: an older replica does not say.
        #[n(3)]
        conflicts: Option<u64>,
    },
    #[n(2)]
    Listing(#[n(0)] Listing),
    #[n(3)]
    Inspected(#[n(0)] States),
    #[n(4)]
    Recipe(#[n(0)] Fetched),
    #[n(5)]
    Bytes(#[n(0)] Payload),
    #[n(6)]
    Stored {
        /// Bases of deltas that cannot be used here: what was coded against them is not stored.
        #[n(0)]
        useless: Option<Vec<(FileId, Stamp)>>,
        /// Of the chunks that came by themselves, so many were here before; absent if none was.
        #[n(1)]
        known: Option<u32>,
    },
    #[n(7)]
    Submitted(#[n(0)] Submitted),
    #[n(8)]
    Measured(#[n(0)] Totals),
    /// The request cannot be done; the session goes on.
    #[n(9)]
    Refused(#[n(0)] Refusal),
    #[n(10)]
    Left,
    /// In place of `Bytes`, where the client offered a base: the same chunks.
    #[n(11)]
    Delta(#[n(0)] Delta),
    #[n(12)]
    Gathered(#[n(0)] Gathered),
    #[n(13)]
    Locked(#[n(0)] Locked),
    /// A bit for each name, the lowest of a byte first: whether the chunk was there.
    #[n(14)]
    Found(#[n(0)] ByteVec),
    /// Names of chunks, of 24 bytes each; none where it is no container. At most
    /// `FIND_NAMES_MAX`.
    #[n(15)]
    Inside(#[n(0)] ByteVec),
    #[n(16)]
    Past(#[n(0)] past::Found),
    /// Everybody has been told of what was committed up to here.
    #[n(19)]
    Told(#[n(0)] Seq),
    #[n(22)]
    Heeded,
}

#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Attached {
    /// The id to make updates with. Another than was asked with if this client was set back to
    /// an earlier state: then what is pending must be numbered anew.
    #[n(0)]
    pub replica: ReplicaId,
    /// The highest number taken from this replica id.
    #[n(1)]
    pub taken: u64,
    /// The key that names chunks in this volume.
    #[n(2)]
    pub secret: [u8; 32],
    #[n(3)]
    pub cutter: Cutter,
    /// Callbacks hold so long after the request was sent.
    #[n(4)]
    pub lease_secs: u32,
    #[n(5)]
    pub access: Access,
    #[n(6)]
    pub tail: Tail,
    /// `Gather` is answered. None: the replica above does not know it.
    #[n(7)]
    pub gathers: Option<bool>,
    /// As in `Renewed`.
    #[n(8)]
    pub wanted: Option<Wanted>,
    /// Files of which locks that were claimed are lost. None: the replica above knows no locks.
    #[n(9)]
    pub locks_lost: Option<Vec<FileId>>,
    /// Deltas that are assembled of many parts are understood. None: the replica above does not
    /// know them.
    #[n(10)]
    pub assembles: Option<bool>,
    /// `Past` is answered, and files of snapshots have numbers. None: the replica above knows none.
    #[n(11)]
    pub looks_back: Option<bool>,
    /// As in `Renewed`.
    #[n(12)]
    pub allowance: Option<Allowance>,
    /// `ahead` of a `Submit` is known. None: it is not.
    #[n(13)]
    pub takes_ahead: Option<bool>,
    /// `Told` is answered. None: it is not known.
    #[n(16)]
    pub tells: Option<bool>,
    /// As in `Renewed`.
    #[n(17)]
    pub conflicts: Option<u64>,
    /// Updates beyond `taken` that were taken ahead of their turn.
    #[n(20)]
    pub ahead: Option<Vec<u64>>,
    /// `ahead` of a `Submit` is known of any updates. None: at most of removals.
    #[n(21)]
    pub takes_any_ahead: Option<bool>,
    /// `Patience` is heeded. None: it is not known.
    #[n(22)]
    pub heeds: Option<bool>,
    /// The last runs of the replica above, oldest first. None: it does not say.
    #[n(23)]
    pub runs: Option<Vec<Run>>,
    /// Of what this client was told the replica above has no more than up to here: it was set back.
    /// Absent: it has all of it, or cannot tell.
    #[n(24)]
    pub in_common: Option<Seq>,
}

/// How a volume's contents are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Cutter {
    #[n(0)]
    Gear,
    /// LBFS's 48-byte window.
    #[n(1)]
    Rabin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Access {
    #[n(0)]
    ReadWrite,
    #[n(1)]
    ReadOnly,
}

/// What changed after the position that the asker had seen.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub enum Tail {
    #[n(0)]
    Changes(#[n(0)] Notice),
    /// Too much, or not known any more: everything cached must be inspected before it is used.
    #[n(1)]
    TooFar(#[n(0)] Seq),
}

/// The present state of what changed, up to a position. An empty one only moves the position.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct Notice {
    #[n(0)]
    pub upto: Seq,
    #[n(1)]
    pub states: States,
    /// Whether nobody else may use the volume from now on. That somebody is about to is
    /// acknowledged when what is pending has arrived, if the client waits for verdicts then.
    /// None: as before.
    #[n(2)]
    pub alone: Option<bool>,
    /// Files of whose locks there is news: who has one for itself tells what its processes hold of
    /// it, and who waits for a lock of one asks again. None: there is none.
    #[n(3)]
    pub locks: Option<Vec<FileId>>,
}

#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct States {
    #[n(0)]
    pub nodes: Vec<NodeState>,
    #[n(1)]
    pub entries: Vec<EntryState>,
}

impl States {
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.entries.is_empty()
    }
}

/// A node as of the position `seq`. None: it is gone, or never was.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct NodeState {
    #[n(0)]
    pub file: FileId,
    #[n(1)]
    pub seq: Seq,
    #[n(2)]
    pub node: Option<Node>,
}

/// A name as of the position `seq`. None: nothing bears it.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct EntryState {
    #[n(0)]
    pub directory: FileId,
    #[n(1)]
    pub name: Name,
    #[n(2)]
    pub seq: Seq,
    #[n(3)]
    pub file: Option<FileId>,
}

/// Directories with the nodes of all they name. The nodes leave out the roots of contents.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Listing {
    /// The position that all of it shows.
    #[n(0)]
    pub as_of: Seq,
    /// The directory asked for first; those after it are whole.
    #[n(1)]
    pub directories: Vec<Listed>,
    /// Nodes of the directories and of their entries, each once. What the replica has of an entry whose
    /// node is not among them is damaged.
    #[n(2)]
    pub nodes: Vec<NodeState>,
}

#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Listed {
    #[n(0)]
    pub directory: FileId,
    /// In the order of names, bytewise.
    #[n(1)]
    pub entries: Vec<(Name, FileId)>,
    /// No entry comes after the last one.
    #[n(2)]
    pub complete: bool,
}

/// What `statfs` shows. Bytes and counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Totals {
    #[n(0)]
    pub bytes: u64,
    #[n(1)]
    pub bytes_free: u64,
    #[n(2)]
    pub files: u64,
    #[n(3)]
    pub files_free: u64,
}

#[cfg(test)]
mod tests;
