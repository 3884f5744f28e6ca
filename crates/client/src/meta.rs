//! What a client knows of itself and of its volume. One row; layout: docs/FORMATS.md.

use crate::budget::Spent;
use crate::carried::Carried;
use crate::life::Drawn;
use crate::soundness::Pass;
use minicbor::{Decode, Encode};
use model::{Allowance, ReplicaId, Seq};
use protocol::{Access, Cutter, Run};
use std::collections::BTreeSet;
use store::{Read, StoreError, Write};

const META: &str = "client-meta";
const KEY: &[u8] = b"meta";
const FORMAT: u8 = 1;

#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Meta {
    /// Given by the origin at the first attach.
    #[n(0)]
    pub replica: Option<ReplicaId>,
    #[n(1)]
    pub secret: [u8; 32],
    #[n(2)]
    pub cutter: Cutter,
    #[n(3)]
    pub access: Access,
    /// Position up to which this client has seen what others did.
    #[n(4)]
    pub seen: Seq,
    /// What was learnt in an earlier epoch must be inspected before it counts.
    #[n(5)]
    pub epoch: u32,
    /// Verdicts of updates up to this number have arrived.
    #[n(6)]
    pub settled: u64,
    /// Records of the journal up to this position are in the tables.
    #[n(7)]
    pub applied: u64,
    /// The counter of the next file made here.
    #[n(8)]
    pub counter: u64,
    /// Updates up to this number had been taken at the last attach: what they did is part of what
    /// the replica above said then, though their verdicts may be still to come.
    #[n(9)]
    pub taken: Option<u64>,
    /// As `taken`, beyond that: what was taken ahead of its turn, in order. None: nothing was.
    #[n(20)]
    pub ahead: Option<Vec<u64>>,
    /// Updates beyond the settled ones whose verdicts have arrived.
    #[n(21)]
    pub passed: Option<BTreeSet<u64>>,
    /// Some of what is pending is not in the tables, because what it rests on was not known.
    #[n(10)]
    pub hides: Option<bool>,
    /// Nothing beyond this has left without being in the log on the disk.
    #[n(11)]
    pub may_leave: Option<Bound>,
    /// Of these updates some may have been taken that the log has lost with the power; to be found
    /// out at the next attach.
    #[n(12)]
    pub lost: Option<Lost>,
    /// What the volume may have, and has, as last said.
    #[n(13)]
    pub allowance: Option<Allowance>,
    /// The user wants nothing to be sent, or fetched ahead.
    #[n(14)]
    pub paused: Option<bool>,
    /// What has gone over the link this month.
    #[n(15)]
    pub spent: Option<Spent>,
    /// What the link carried when that was last measured.
    #[n(16)]
    pub carried: Option<Carried>,
    /// When what is cached was last known to be current. Seconds since 1970. None: nobody knows.
    #[n(22)]
    pub current: Option<i64>,
    /// How far the cache was read through. None: it is new.
    #[n(23)]
    pub pass: Option<Pass>,
    /// By which the replica above tells this client from one that began with a copy of this.
    #[n(24)]
    pub life: Option<Drawn>,
    /// The runs of the replica above, as it last said. None: it did not say.
    #[n(25)]
    pub runs: Option<Vec<Run>>,
}

/// A bound of the numbers of updates and of the counters of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Bound {
    /// The last number.
    #[n(0)]
    pub number: u64,
    /// The first counter that is beyond.
    #[n(1)]
    pub counter: u64,
}

/// Numbers above `after`, up to `upto`, and those of `torn`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Lost {
    #[n(0)]
    pub after: u64,
    #[n(1)]
    pub upto: u64,
    /// This client was started once more before it could ask.
    #[n(2)]
    pub again: bool,
    /// Stores that are in the log, and whose contents the container has lost.
    #[n(3)]
    pub torn: Vec<u64>,
}

impl Default for Meta {
    fn default() -> Meta {
        Meta {
            replica: None,
            secret: [0; 32],
            cutter: Cutter::Gear,
            access: Access::ReadWrite,
            seen: Seq::START,
            epoch: 1,
            settled: 0,
            applied: 0,
            counter: 1,
            taken: None,
            ahead: None,
            passed: None,
            hides: None,
            may_leave: None,
            lost: None,
            allowance: None,
            paused: None,
            spent: None,
            carried: None,
            current: None,
            pass: None,
            life: None,
            runs: None,
        }
    }
}

/// Which updates are part of what the replica above has said, whatever of them is pending here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// All up to this number. None: it has said nothing yet.
    pub upto: Option<u64>,
    /// Beyond it these, in order.
    pub ahead: Vec<u64>,
}

impl Taken {
    pub fn has(&self, number: u64) -> bool {
        self.upto.is_some_and(|upto| number <= upto) || self.ahead.binary_search(&number).is_ok()
    }
}

impl Meta {
    /// Whether what the replica above said includes what this update did.
    pub fn is_taken(&self, number: u64) -> bool {
        self.taken.is_some_and(|taken| number <= taken)
            || self.ahead.as_ref().is_some_and(|ahead| ahead.binary_search(&number).is_ok())
    }

    /// What of the pending updates is part of what the replica above says.
    pub fn taken_now(&self) -> Taken {
        Taken { upto: self.taken, ahead: self.ahead.clone().unwrap_or_default() }
    }

    pub fn set_taken(&mut self, taken: Taken) {
        self.taken = taken.upto;
        self.ahead = (!taken.ahead.is_empty()).then_some(taken.ahead);
    }

    pub fn load(read: &dyn Read) -> Result<Meta, StoreError> {
        match read.get(META, KEY)? {
            None => Ok(Meta::default()),
            Some(bytes) => Meta::decode(&bytes),
        }
    }

    pub fn save(&self, write: &mut dyn Write) -> Result<(), StoreError> {
        write.put(META, KEY, &self.encode())
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![FORMAT];
        minicbor::encode(self, &mut bytes).expect("a vector takes every byte");
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Meta, StoreError> {
        let damaged = |what: String| StoreError::Damaged { place: META.into(), what };
        match bytes.split_first() {
            Some((&FORMAT, rest)) => {
                minicbor::decode(rest).map_err(|source| damaged(source.to_string()))
            }
            Some((format, _)) => Err(damaged(format!("it has format {format}"))),
            None => Err(damaged("it is empty".into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Quota, Usage};
    use store::memory::MemoryTables;
    use store::{Durability, Tables};

    fn meta() -> Meta {
        let mut secret = [0; 32];
        (secret[0], secret[31]) = (0xff, 7);
        Meta {
            replica: Some(ReplicaId(3)),
            secret,
            cutter: Cutter::Rabin,
            access: Access::ReadOnly,
            seen: Seq(300),
            epoch: 4,
            settled: 5,
            applied: 6,
            counter: 70_000,
            taken: None,
            ahead: None,
            passed: None,
            hides: None,
            may_leave: None,
            lost: None,
            allowance: None,
            paused: None,
            spent: None,
            carried: None,
            current: None,
            pass: None,
            life: None,
            runs: None,
        }
    }

    fn with_row(bytes: &[u8]) -> MemoryTables {
        let tables = MemoryTables::default();
        let mut write = tables.write().unwrap();
        write.put(META, KEY, bytes).unwrap();
        write.commit(Durability::Now).unwrap();
        tables
    }

    /// The bytes of the row never change their meaning.
    #[test]
    fn a_golden_row_still_reads() {
        let golden = [
            &[1, 0x89, 3, 0x98, 32, 0x18, 0xff][..],
            &[0; 30],
            &[7, 1, 1, 0x19, 0x01, 0x2c, 4, 5, 6, 0x1a, 0x00, 0x01, 0x11, 0x70],
        ]
        .concat();
        let tables = with_row(&golden);
        assert_eq!(Meta::load(&*tables.read().unwrap()).unwrap(), meta());
        let mut write = tables.write().unwrap();
        meta().save(&mut *write).unwrap();
        assert_eq!(write.get(META, KEY).unwrap(), Some(golden));
    }

    #[test]
    fn what_may_have_left_and_be_lost_is_in_the_row() {
        let may_leave = Some(Bound { number: 9, counter: 7 });
        let lost = Some(Lost { after: 5, upto: 9, again: true, torn: vec![4] });
        let meta = Meta { may_leave, lost, ..Meta::default() };
        let end = [0x82, 9, 7, 0x84, 5, 9, 0xf5, 0x81, 4];
        assert!(meta.encode().ends_with(&end), "{:x?}", meta.encode());
        assert_eq!(Meta::decode(&meta.encode()).unwrap(), meta);
    }

    #[test]
    fn what_the_link_carried_is_in_the_row() {
        let carried = Some(Carried { rate_down: 300, round_trip: 9 });
        let meta = Meta { carried, ..Meta::default() };
        assert!(meta.encode().ends_with(&[0x82, 0x19, 1, 0x2c, 9]), "{:x?}", meta.encode());
        assert_eq!(Meta::decode(&meta.encode()).unwrap(), meta);
    }

    #[test]
    fn the_runs_of_the_replica_above_are_in_the_row() {
        let runs = Some(vec![Run { from: Seq(2), drawn: 7 }]);
        let meta = Meta { runs, ..Meta::default() };
        assert!(meta.encode().ends_with(&[0xf6, 0x81, 0x82, 2, 7]), "{:x?}", meta.encode());
        assert_eq!(Meta::decode(&meta.encode()).unwrap(), meta);
    }

    #[test]
    fn when_what_is_cached_was_current_is_in_the_row_and_in_none_of_before() {
        // The last field before was the numbers passed.
        let before =
            [&[1, 0x96, 0xf6, 0x98, 32][..], &[0; 35], &[1, 0, 0, 1], &[0xf6; 12], &[0x81, 7]]
                .concat();
        let passed = Some(BTreeSet::from([7]));
        let meta = Meta { passed, ..Meta::default() };
        assert_eq!(meta.encode(), before);
        assert_eq!(Meta::decode(&before).unwrap(), meta);
        let meta = Meta { current: Some(300), ..meta };
        assert!(meta.encode().ends_with(&[0x81, 7, 0x19, 1, 0x2c]), "{:x?}", meta.encode());
        assert_eq!(Meta::decode(&meta.encode()).unwrap(), meta);
    }

    #[test]
    fn how_far_the_cache_was_read_through_is_in_the_row() {
        let meta = Meta { pass: Some(Pass { begun: 300, at: Some((7, 8)) }), ..Meta::default() };
        let end = [0xf6, 0x82, 0x19, 1, 0x2c, 0x82, 7, 8];
        assert!(meta.encode().ends_with(&end), "{:x?}", meta.encode());
        assert_eq!(Meta::decode(&meta.encode()).unwrap(), meta);
    }

    #[test]
    fn what_the_volume_may_have_is_in_the_row() {
        let quota = Quota { bytes: Some(9), files: None, users: None };
        let used = Usage { bytes: 8, files: 7 };
        let allowance = Allowance { quota, used, users: None, upto: Seq(6), taken: 5 };
        let meta = Meta { allowance: Some(allowance), ..Meta::default() };
        let end = [0x85, 0x81, 9, 0x82, 8, 7, 0xf6, 6, 5];
        assert!(meta.encode().ends_with(&end), "{:x?}", meta.encode());
        assert_eq!(Meta::decode(&meta.encode()).unwrap(), meta);
    }

    #[test]
    fn a_client_that_was_never_attached_has_no_row() {
        let tables = MemoryTables::default();
        assert_eq!(Meta::load(&*tables.read().unwrap()).unwrap(), Meta::default());
    }

    #[test]
    fn a_row_that_is_not_what_was_written_is_damage_and_never_a_new_client() {
        for bytes in [&[][..], &[2, 0x80], &[1, 0xff], &[1, 0x81, 0xf6]] {
            let tables = with_row(bytes);
            let error = Meta::load(&*tables.read().unwrap()).unwrap_err();
            assert!(matches!(error, StoreError::Damaged { .. }), "{bytes:?}: {error}");
        }
    }
}
