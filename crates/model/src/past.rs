//! The numbers of files as snapshots show them, and the directories in which snapshots are found.
//! Holds: the number follows from the snapshot and the file alone, so it is the same everywhere;
//! no two are the same, and none is that of a file of the volume.

use crate::{COUNTER_MAX, FileId, Name, ReplicaId};
use minicbor::{Decode, Encode};
use std::fmt;

/// What no file of a volume has in its number.
const FLAG: u64 = 1 << 63;
/// How the 60 bits below the flag and the layout's number are shared out: to the snapshot, the
/// replica that made the file, and its counter. The first that has room for all three is taken.
const LAYOUTS: [(u32, u32, u32); 8] = [
    (20, 10, 30),
    (14, 16, 30),
    (12, 10, 38),
    (20, 16, 24),
    (10, 10, 40),
    (26, 6, 28),
    (12, 23, 25),
    (10, 16, 34),
];
const PAYLOAD_BITS: u32 = 60;
/// What the directories have in the place of a file's counter, of no snapshot.
const CONTROL: u64 = 1;
const SNAPSHOTS: u64 = 2;
/// The longest name of a snapshot, in bytes.
const SNAPSHOT_NAME_BYTES_MAX: usize = 128;

/// A snapshot of a volume, by its number: from 1 up, and never given again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Encode, Decode)]
#[cbor(transparent)]
pub struct SnapshotId(#[n(0)] pub u32);

impl fmt::Display for SnapshotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "snapshot {}", self.0)
    }
}

/// What a number stands for that is not of a file of the volume as it is now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Past {
    /// `.farfs`, in the root and not listed there.
    Control,
    /// `.farfs/snapshots`.
    Snapshots,
    /// A file as a snapshot shows it.
    Of(SnapshotId, FileId),
}

impl FileId {
    /// The directory `.farfs`.
    pub const CONTROL: FileId = FileId(FLAG | CONTROL);
    /// The directory `.farfs/snapshots`.
    pub const SNAPSHOTS: FileId = FileId(FLAG | SNAPSHOTS);

    /// The number of this file as a snapshot shows it. None: the three together are too large,
    /// which takes thousands of snapshots, of devices and billions of files.
    pub fn in_snapshot(self, snapshot: SnapshotId) -> Option<FileId> {
        if self.is_past() {
            return None;
        }
        let parts = [u64::from(snapshot.0), u64::from(self.replica().0), self.counter()];
        let fits = |bits: u32, part: u64| part >> bits == 0;
        LAYOUTS.iter().zip(0_u64..).find_map(|((s, r, c), layout)| {
            let all = fits(*s, parts[0]) && fits(*r, parts[1]) && fits(*c, parts[2]);
            all.then(|| {
                let payload = parts[0] << (r + c) | parts[1] << c | parts[2];
                FileId(FLAG | layout << PAYLOAD_BITS | payload)
            })
        })
    }

    /// Whether it is not the number of a file of the volume as it is now.
    pub fn is_past(self) -> bool {
        self.0 & FLAG != 0
    }

    /// None: it is a file of the volume as it is now, or no number that stands for anything.
    pub fn past(self) -> Option<Past> {
        match self {
            FileId::CONTROL => return Some(Past::Control),
            FileId::SNAPSHOTS => return Some(Past::Snapshots),
            _ if !self.is_past() => return None,
            _ => {}
        }
        let (_, r, c) = LAYOUTS[((self.0 & !FLAG) >> PAYLOAD_BITS) as usize];
        let below = |bits: u32, part: u64| part & ((1 << bits) - 1);
        let payload = below(PAYLOAD_BITS, self.0);
        let replica = ReplicaId(u32::try_from(below(r, payload >> c)).ok()?);
        let snapshot = SnapshotId(u32::try_from(payload >> (r + c)).ok()?);
        let file = FileId::new(replica, below(c, payload).min(COUNTER_MAX)).ok()?;
        // Each has one number, and every other one means nothing.
        let is_its = snapshot.0 > 0 && file.in_snapshot(snapshot) == Some(self);
        is_its.then_some(Past::Of(snapshot, file))
    }
}

/// What leads from the root to the snapshots.
pub fn control_name() -> Name {
    Name::new(*b".farfs").expect("it is a name")
}

pub fn snapshots_name() -> Name {
    Name::new(*b"snapshots").expect("it is a name")
}

/// Why a snapshot cannot have a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSnapshotName {
    #[error("a name has 1 to {SNAPSHOT_NAME_BYTES_MAX} bytes")]
    Length,
    #[error("a name has no '/', no '@' and no control characters")]
    Letter,
    #[error("a name does not begin with '.' or '-'")]
    Begins,
    #[error("v with digits after it is what versions are called")]
    Version,
}

/// The name of a snapshot, if it may be one: `PATH@NAME` must say what is meant.
pub fn snapshot_name(text: &str) -> Result<Name, BadSnapshotName> {
    let bad_letter = |c: char| c.is_control() || matches!(c, '/' | '@');
    let digits = text.strip_prefix('v').filter(|digits| !digits.is_empty());
    if text.is_empty() || text.len() > SNAPSHOT_NAME_BYTES_MAX {
        return Err(BadSnapshotName::Length);
    }
    if text.contains(bad_letter) {
        return Err(BadSnapshotName::Letter);
    }
    if text.starts_with(['.', '-']) {
        return Err(BadSnapshotName::Begins);
    }
    if digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit())) {
        return Err(BadSnapshotName::Version);
    }
    Name::new(text.as_bytes()).map_err(|_| BadSnapshotName::Letter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::REPLICA_MAX;
    use proptest::prelude::*;

    fn file(replica: u32, counter: u64) -> FileId {
        FileId::new(ReplicaId(replica), counter).unwrap()
    }

    #[test]
    fn a_file_of_the_volume_is_never_one_of_the_past() {
        for at in [FileId::ROOT, file(0, 0), file(REPLICA_MAX, COUNTER_MAX)] {
            assert!(!at.is_past());
            assert_eq!(at.past(), None);
        }
        assert_eq!(FileId::CONTROL.past(), Some(Past::Control));
        assert_eq!(FileId::SNAPSHOTS.past(), Some(Past::Snapshots));
        assert_eq!(FileId::SNAPSHOTS.in_snapshot(SnapshotId(1)), None);
    }

    #[test]
    fn the_numbers_are_pinned() {
        let root = FileId::ROOT.in_snapshot(SnapshotId(1)).unwrap();
        assert_eq!(root.0, 0x8000_0100_0000_0001);
        let far = file(70_000, 5).in_snapshot(SnapshotId(2)).unwrap();
        assert_eq!(far.past(), Some(Past::Of(SnapshotId(2), file(70_000, 5))));
        assert_eq!(far.0 >> 60, 0b1110);
        assert_eq!(file(REPLICA_MAX, COUNTER_MAX).in_snapshot(SnapshotId(1)), None);
    }

    #[test]
    fn names_that_could_mean_something_else_are_refused() {
        let refused = ["", "a/b", "a@b", ".", "..", ".x", "-x", "v1", "v007", "a\n"];
        assert!(refused.iter().all(|name| snapshot_name(name).is_err()));
        assert!(snapshot_name(&"x".repeat(129)).is_err());
        let fine = ["v", "v1a", "2026-11-20", "before the move", "7", "ü"];
        assert!(fine.iter().all(|name| snapshot_name(name).is_ok()));
    }

    proptest! {
        #[test]
        fn prop_what_a_number_was_made_of_comes_back(
            snapshot in 1_u32..1 << 27, s in 0_u32..27,
            replica in 0..=REPLICA_MAX, r in 0_u32..23,
            counter in 0..=COUNTER_MAX, c in 0_u32..40,
        ) {
            let of = (SnapshotId((snapshot >> s).max(1)), file(replica >> r, counter >> c));
            if let Some(number) = of.1.in_snapshot(of.0) {
                prop_assert!(number.is_past());
                prop_assert_eq!(number.past(), Some(Past::Of(of.0, of.1)));
            }
        }

        #[test]
        fn prop_a_number_that_means_something_is_the_only_one_that_does(bits in any::<u64>()) {
            if let Some(Past::Of(snapshot, file)) = FileId(bits).past() {
                prop_assert_eq!(file.in_snapshot(snapshot), Some(FileId(bits)));
            }
        }

        #[test]
        fn prop_usual_volumes_have_room(
            snapshot in 1_u32..1 << 14, replica in 0_u32..1 << 10, counter in 0_u64..1 << 30,
        ) {
            prop_assert!(file(replica, counter).in_snapshot(SnapshotId(snapshot)).is_some());
        }
    }
}
