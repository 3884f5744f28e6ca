//! Which gaps between stretches of a file are closed when there are too many of them, and which
//! stretches are left out.

use std::cmp::Reverse;

/// So many at once, so that not every write waits for one.
const GAPS_MAX: usize = 64;
/// What lacks in them all, unless one alone lacks more.
const BYTES_MAX: u64 = 4 << 20;

/// The gaps between neighbouring `stretches` in which the least lacks, where `here` is what is here.
/// Both are in order, each apart from the next.
pub(super) fn narrowest(stretches: &[(u64, u64)], here: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let gaps = stretches.windows(2).map(|both| (both[0].1, both[1].0));
    let mut gaps: Vec<(u64, (u64, u64))> = gaps.map(|gap| (lacking_in(gap, here), gap)).collect();
    gaps.sort_unstable();
    let mut bytes = 0;
    let fits = |(lacks, _): &(u64, (u64, u64))| {
        let is_first = bytes == 0;
        bytes += lacks;
        is_first || bytes <= BYTES_MAX
    };
    gaps.into_iter().take(GAPS_MAX).take_while(fits).map(|(_, gap)| gap).collect()
}

/// What of `here` still counts as here if there are to be so many stretches at most: all to which
/// something was `written`, and the widest of the rest. What is left out is fetched once more.
pub(super) fn widest(here: &[(u64, u64)], written: &[(u64, u64)], most: usize) -> Vec<(u64, u64)> {
    let is_written = |(from, to): &(u64, u64)| {
        let at = written.partition_point(|(_, end)| end <= from);
        written.get(at).is_some_and(|(start, _)| start < to)
    };
    let (mut kept, mut rest): (Vec<_>, Vec<_>) = here.iter().copied().partition(is_written);
    rest.sort_unstable_by_key(|(from, to)| Reverse(to - from));
    rest.truncate(most.saturating_sub(kept.len()));
    kept.extend(rest);
    kept.sort_unstable();
    kept
}

fn lacking_in((from, to): (u64, u64), here: &[(u64, u64)]) -> u64 {
    let first = here.partition_point(|(_, end)| *end <= from);
    let within = here[first..].iter().take_while(|(start, _)| *start < to);
    let is_here: u64 = within.map(|(start, end)| (*end).min(to) - (*start).max(from)).sum();
    to - from - is_here
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gaps_in_which_the_least_lacks_are_closed() {
        let written = [(0, 10), (100, 110), (150, 160), (1_000, 1_010)];
        let here = [(0, 10), (100, 160), (1_000, 1_010), (2_000, 3_000)];
        assert_eq!(narrowest(&written, &here)[..2], [(110, 150), (10, 100)]);
        assert_eq!(narrowest(&here, &here).len(), 3);
        assert_eq!(narrowest(&here[..1], &here), []);
    }

    #[test]
    fn what_was_written_to_is_kept_and_of_the_rest_the_widest() {
        let here = [(0, 10), (20, 25), (30, 50), (60, 61), (70, 80), (90, 91)];
        let written = [(23, 24), (60, 61)];
        assert_eq!(widest(&here, &written, 3), [(20, 25), (30, 50), (60, 61)]);
        assert_eq!(widest(&here, &written, 1), [(20, 25), (60, 61)]);
        assert_eq!(widest(&here, &[], 1), [(30, 50)]);
        assert_eq!(widest(&here, &[], 6), here);
    }

    #[test]
    fn so_much_is_lacking_in_those_that_are_closed_at_once_or_it_is_one() {
        let apart =
            |by: u64, count: u64| (0..count).map(|n| (n * by, n * by + 1)).collect::<Vec<_>>();
        let closed = |stretches: &[(u64, u64)]| narrowest(stretches, stretches).len();
        assert_eq!(closed(&apart(100, 1_000)), GAPS_MAX);
        assert_eq!(closed(&apart(1 << 20, 1_000)), 4);
        assert_eq!(closed(&apart(1 << 30, 1_000)), 1);
    }
}
