//! Which stretch of a large base goes with which stretch of its target, so that neither end holds
//! more than a stretch of either.
//! Holds: the targets cover all that is lacking, in order and apart; no stretch is longer than its
//! bound, and none leaves its file.

use std::ops::Range;

/// A target has at most so many bytes, a base twice as many.
pub const WINDOW_BYTES_MAX: u64 = 4 << 20;
pub const WINDOW_BASE_BYTES_MAX: u64 = 2 * WINDOW_BYTES_MAX;

/// Stretches that are closer are coded together; what is between them the receiver has.
const APART_BYTES_MIN: u64 = 64 << 10;

/// So much of the base is taken on both sides of where the target seems to come from.
const MARGIN_BYTES: u64 = 512 << 10;

/// A stretch that base and target have in common, such as a chunk of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Common {
    pub base: u64,
    pub target: u64,
    pub length: u64,
}

/// One delta to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    pub base: Range<u64>,
    pub target: Range<u64>,
}

/// Windows for what is `lacking` of a target, given what is known to be `common`; both in the
/// target's order. Bases are empty where the target lies beyond all of a base without anything in
/// common.
pub fn windows(base_len: u64, lacking: &[Range<u64>], common: &[Common]) -> Vec<Window> {
    let mut targets: Vec<Range<u64>> = Vec::new();
    for stretch in lacking {
        let mut start = stretch.start;
        if let Some(last) = targets.last_mut() {
            let near = start.saturating_sub(last.end) < APART_BYTES_MIN;
            let end = stretch.end.min(last.start + WINDOW_BYTES_MAX);
            if near && end > start {
                last.end = end;
                start = end;
            }
        }
        while start < stretch.end {
            let end = stretch.end.min(start + WINDOW_BYTES_MAX);
            targets.push(start..end);
            start = end;
        }
    }
    let with_base =
        |target: Range<u64>| Window { base: base_for(base_len, &target, common), target };
    targets.into_iter().map(with_base).collect()
}

/// What lies in the base between the last stretch in common before the target and the first after
/// it, with a margin.
fn base_for(base_len: u64, target: &Range<u64>, common: &[Common]) -> Range<u64> {
    let behind = common.partition_point(|known| known.target < target.start);
    let before = behind.checked_sub(1).map(|n| common[n]);
    let after = common[behind..].iter().find(|known| known.target >= target.end);
    // Without anything in common, the same place in the file is as good a guess as any.
    let from =
        before.map_or(target.start, |known| known.base.saturating_add(target.start - known.target));
    let length = target.end - target.start;
    let to = after
        .map(|known| known.base.saturating_sub(known.target - target.end))
        .filter(|to| (from..from.saturating_add(WINDOW_BYTES_MAX)).contains(to))
        .unwrap_or(from.saturating_add(length));
    let start = from.saturating_sub(MARGIN_BYTES).min(base_len);
    let end = to.saturating_add(MARGIN_BYTES).min(base_len);
    start..end.min(start + WINDOW_BASE_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::slice::from_ref;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_byte_at_the_start_of_a_large_file_takes_the_start_of_its_base() {
        let common = [Common { base: 9000, target: 9001, length: 8000 }];
        let windows = windows(1 << 30, from_ref(&(0..9001)), &common);
        assert_eq!(windows, [Window { base: 0..9000 + MARGIN_BYTES, target: 0..9001 }]);
    }

    #[test]
    fn a_stretch_that_moved_is_looked_for_where_it_came_from() {
        let common = [
            Common { base: 0, target: 50 * MIB, length: 5000 },
            Common { base: 9 * MIB, target: 59 * MIB, length: 5000 },
        ];
        let lacking = 58 * MIB..58 * MIB + 100;
        let windows = windows(100 * MIB, from_ref(&lacking), &common);
        let base = 8 * MIB - MARGIN_BYTES..8 * MIB + 100 + MARGIN_BYTES;
        assert_eq!(windows, [Window { base, target: 58 * MIB..58 * MIB + 100 }]);
    }

    #[test]
    fn what_is_close_together_is_coded_together() {
        let windows = windows(MIB, &[10..20, 500..600, MIB - 1..MIB], &[]);
        let targets: Vec<_> = windows.into_iter().map(|window| window.target).collect();
        assert_eq!(targets, [10..600, MIB - 1..MIB]);
    }

    proptest! {
        #[test]
        fn prop_all_that_is_lacking_is_covered_within_the_bounds(
            base_len in 0..40 * MIB,
            gaps in prop::collection::vec((0..9 * MIB, 1..9 * MIB), 0..8),
            moves in prop::collection::vec((0..9 * MIB, 0..40 * MIB), 0..8),
        ) {
            let mut at = 0;
            let lacking: Vec<_> = gaps.into_iter().map(|(gap, length)| {
                let start = at + gap;
                at = start + length;
                start..at
            }).collect();
            let mut at = 0;
            let common: Vec<_> = moves.into_iter().map(|(gap, base)| {
                at += gap;
                Common { base, target: at, length: 1 }
            }).collect();
            let windows = windows(base_len, &lacking, &common);
            for pair in windows.windows(2) {
                prop_assert!(pair[0].target.end <= pair[1].target.start);
            }
            for window in &windows {
                prop_assert!(window.base.start <= window.base.end && window.base.end <= base_len);
                prop_assert!(window.base.end - window.base.start <= WINDOW_BASE_BYTES_MAX);
                prop_assert!(window.target.end - window.target.start <= WINDOW_BYTES_MAX);
            }
            for stretch in lacking {
                let covered: u64 = windows.iter().map(|window| {
                    let start = window.target.start.max(stretch.start);
                    window.target.end.min(stretch.end).saturating_sub(start)
                }).sum();
                prop_assert_eq!(covered, stretch.end - stretch.start);
            }
        }
    }
}
