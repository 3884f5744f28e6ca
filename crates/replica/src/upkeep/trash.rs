//! Chunks that nothing names any more and that are often useful again: which of them go, and the
//! rows that say since when each is there.
//! From: LBFS, "Implementation": a trash of bounded size, first in, first out.

use crate::error::Result;
use minicbor::{Decode, Encode};
use std::collections::BTreeMap;
use store::{Read, Write};
use volume::whole::{VolumeId, decode, encode};

pub(crate) const TRASH: &str = "origin-trash";

/// A chunk in the trash, under its blob's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub(crate) struct TrashRow {
    /// Seconds since 1970. All that a cycle finds has one time.
    #[n(0)]
    pub since: i64,
    #[n(1)]
    pub bytes: u64,
}

pub(super) fn rows(
    read: &dyn Read,
    after: &[u8],
    to: &[u8],
    rows_max: usize,
) -> Result<Vec<(Vec<u8>, TrashRow)>> {
    let from = [after, &[0]].concat();
    let rows = read.scan(TRASH, &from, to, rows_max)?;
    let row = |(name, value): (Vec<u8>, Vec<u8>)| {
        let row = decode(|| "a chunk in the trash".into(), &value)?;
        Ok((name, row))
    };
    rows.into_iter().map(row).collect()
}

pub(super) fn put(write: &mut dyn Write, name: &[u8], row: TrashRow) -> Result<()> {
    Ok(write.put(TRASH, name, &encode(&row))?)
}

/// Removes rows of a volume that is to go, at most `rows_max`. False: none was left.
pub(crate) fn forget_trash(
    write: &mut dyn Write,
    volume: VolumeId,
    rows_max: usize,
) -> Result<bool> {
    let (from, to) = volume.range();
    let rows = write.scan(TRASH, &from, &to, rows_max)?;
    for (key, _) in &rows {
        write.delete(TRASH, key)?;
    }
    Ok(!rows.is_empty())
}

/// What is to leave the trash: all that came before a time, and of what came then so many bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Due {
    pub before: i64,
    pub bytes_then: u64,
}

impl Due {
    pub const EVERYTHING: Due = Due { before: i64::MAX, bytes_then: 0 };

    /// Whether a chunk is to go, of whose time so many bytes have gone already.
    pub fn takes(&self, row: &TrashRow, gone_then: u64) -> bool {
        row.since < self.before || (row.since == self.before && gone_then < self.bytes_then)
    }
}

/// First in, first out: the oldest go until no more than `bytes_max` are left, but none that came
/// after `youngest`. `bytes_at` has the bytes that came at each time.
pub(crate) fn due(bytes_at: &BTreeMap<i64, u64>, bytes_max: u64, youngest: i64) -> Due {
    let total = bytes_at.values().fold(0u64, |sum, bytes| sum.saturating_add(*bytes));
    let mut over = total.saturating_sub(bytes_max);
    for (since, bytes) in bytes_at.range(..=youngest) {
        if over <= *bytes {
            return Due { before: *since, bytes_then: over };
        }
        over -= bytes;
    }
    Due { before: youngest.saturating_add(1), bytes_then: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_first_and_no_more_than_must() {
        let trash = BTreeMap::from([(10, 100), (20, 50), (30, 70)]);
        let gone = |bytes_max, youngest| {
            let due = due(&trash, bytes_max, youngest);
            trash
                .iter()
                .map(|(since, bytes)| {
                    // A byte at a time.
                    let row = TrashRow { since: *since, bytes: 1 };
                    (0..*bytes).filter(|gone| due.takes(&row, *gone)).count() as u64
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(gone(220, 99), [0, 0, 0]);
        assert_eq!(gone(200, 99), [20, 0, 0]);
        assert_eq!(gone(120, 99), [100, 0, 0]);
        assert_eq!(gone(71, 99), [100, 49, 0]);
        assert_eq!(gone(0, 99), [100, 50, 70]);
        assert_eq!(gone(0, 20), [100, 50, 0], "what is too young stays");
        assert_eq!(gone(0, 5), [0, 0, 0]);
    }

    #[test]
    fn the_layout_of_a_row_is_pinned() {
        let row = encode(&TrashRow { since: 1, bytes: 2 });
        let hex: String = row.iter().map(|byte| format!("{byte:02x}")).collect();
        expect_test::expect!["01b12cf3a3820102"].assert_eq(&hex);
    }
}
