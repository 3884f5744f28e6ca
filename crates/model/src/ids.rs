//! Identities: of files, replicas, updates, and positions in a log.

use minicbor::{Decode, Encode};
use std::fmt;

/// The highest replica id: 24 bits, of which the highest is kept for the files of snapshots.
pub const REPLICA_MAX: u32 = (1 << 23) - 1;
/// The highest counter of files that one replica can make: 40 bits.
pub const COUNTER_MAX: u64 = (1 << 40) - 1;

/// A number that does not fit the bits that an id has for it.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("replica {replica} or counter {counter} is out of range (23 and 40 bits)")]
pub struct IdOutOfRange {
    pub replica: u32,
    pub counter: u64,
}

/// Whoever makes updates: an origin (0), a WayStation or a client. 24 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Encode, Decode)]
#[cbor(transparent)]
pub struct ReplicaId(#[n(0)] pub u32);

impl ReplicaId {
    pub const ORIGIN: ReplicaId = ReplicaId(0);
}

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}", self.0)
    }
}

/// A file of a volume, the same number on every machine: 24 bits of the replica that made it,
/// 40 bits of that replica's counter. It is also the inode number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Encode, Decode)]
#[cbor(transparent)]
pub struct FileId(#[n(0)] pub u64);

impl FileId {
    pub const ROOT: FileId = FileId(1);

    pub fn new(replica: ReplicaId, counter: u64) -> Result<FileId, IdOutOfRange> {
        if replica.0 > REPLICA_MAX || counter > COUNTER_MAX {
            return Err(IdOutOfRange { replica: replica.0, counter });
        }
        Ok(FileId((u64::from(replica.0) << 40) | counter))
    }

    pub fn replica(self) -> ReplicaId {
        ReplicaId((self.0 >> 40) as u32)
    }

    pub fn counter(self) -> u64 {
        self.0 & COUNTER_MAX
    }
}

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}.{}", self.replica().0, self.counter())
    }
}

/// The identity of an update: the replica that made it and the number it gave, from 1 up.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Encode, Decode)]
#[cbor(array)]
pub struct Stamp {
    #[n(0)]
    pub replica: ReplicaId,
    #[n(1)]
    pub number: u64,
}

impl Stamp {
    pub fn new(replica: ReplicaId, number: u64) -> Stamp {
        Stamp { replica, number }
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.replica, self.number)
    }
}

/// The position of a committed update in the origin's log of one volume. 0 is before the first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Encode, Decode)]
#[cbor(transparent)]
pub struct Seq(#[n(0)] pub u64);

impl Seq {
    pub const START: Seq = Seq(0);

    pub fn next(self) -> Seq {
        Seq(self.0 + 1)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_file_one_of_the_origin() {
        assert_eq!(FileId::new(ReplicaId::ORIGIN, 1), Ok(FileId::ROOT));
    }

    #[test]
    fn an_id_gives_back_its_replica_and_counter() {
        let id = FileId::new(ReplicaId(REPLICA_MAX), COUNTER_MAX).expect("both are in range");
        assert_eq!((id.replica(), id.counter()), (ReplicaId(REPLICA_MAX), COUNTER_MAX));
        assert!(FileId::new(ReplicaId(REPLICA_MAX + 1), 0).is_err());
        assert!(FileId::new(ReplicaId(0), COUNTER_MAX + 1).is_err());
    }
}
