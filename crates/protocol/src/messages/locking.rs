//! Locks of the processes of one client, as the replica above has to know them.

use super::States;
use minicbor::{Decode, Encode};
use model::{FileId, Lock};

/// Stretches of one file that a client may tell of at once.
pub const LOCKS_TOLD_MAX: usize = 1024;
/// Stretches that it may wish for at once.
pub const LOCKS_WISHED_MAX: usize = 8;
/// Files of which a client claims locks when it attaches.
pub const FILES_CLAIMED_MAX: usize = 4096;
/// Stretches of all of them: a message has room for so many.
pub const LOCKS_CLAIMED_MAX: usize = 64 * LOCKS_TOLD_MAX;

/// What the processes of a client hold of a file, all together: nothing beyond it counts as held
/// any more.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Held {
    #[n(0)]
    pub file: FileId,
    /// At most `LOCKS_TOLD_MAX`, with what is wished for.
    #[n(1)]
    pub locks: Vec<Lock>,
}

/// What a client asks of the locks of a file.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Locking {
    #[n(0)]
    pub held: Held,
    /// What it wants to hold beside that: all of it, or nothing. At most `LOCKS_WISHED_MAX`.
    #[n(1)]
    pub wished: Vec<Lock>,
    #[n(2)]
    pub aim: LockAim,
}

/// What a client is after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum LockAim {
    /// To hold what it wishes for, now or not at all.
    #[n(0)]
    Try,
    /// To hold it, and it waits if somebody is in the way.
    #[n(1)]
    Wait,
    /// To know who would be in the way.
    #[n(2)]
    Look,
}

/// What came of it, as of the moment of the answer.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Locked {
    #[n(0)]
    pub outcome: LockOutcome,
    /// The file as it is now: what whoever held the lock before has stored.
    #[n(1)]
    pub states: States,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum LockOutcome {
    /// The client holds what it held and what it wished for.
    #[n(0)]
    Given,
    /// As `Given`; and until it is told of the file, no other client holds anything of it, so that
    /// it need not ask for what its processes lock or unlock.
    #[n(1)]
    GivenWhole,
    /// Somebody else is in the way, by this lock. A notice tells when it is worth asking again.
    #[n(2)]
    InTheWay(#[n(0)] Lock),
    /// It is not known yet: another client has the file for itself, or others come first, or the
    /// replica above has just started. A notice tells when it is worth asking again.
    #[n(3)]
    NotYet,
    /// What the client holds cannot be: its lease had ended, and somebody else has locked it since.
    #[n(4)]
    Lost,
    /// Too many locks are held.
    #[n(5)]
    TooMany,
}
