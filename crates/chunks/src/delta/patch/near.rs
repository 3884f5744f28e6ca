//! Which stretches of a base are nearly the target's: long exact matches are found by the sorted
//! suffixes of the base, and each is widened to both sides as long as at least half of the bytes
//! agree.
//! Holds: the steps cover the target from its start to its end, in order.

use divsufsort::sort_in_place;

/// A match that leads elsewhere must agree in so many bytes more than going on as before.
const BETTER_BY: usize = 8;

/// Longer matches are found piece by piece, so that a comparison has a bound.
const COMPARED_MAX: usize = 4096;

/// Bytes compared, for each byte of the target, before the search gives up.
const LABOUR_PER_BYTE: usize = 512;
const LABOUR_MIN: usize = 1 << 20;

/// The target's bytes from `target` on are `near` bytes much like the base's from `base` on, and
/// then `fresh` new ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) target: usize,
    pub(super) base: usize,
    pub(super) near: usize,
    pub(super) fresh: usize,
}

/// None where it would take too long.
pub(super) fn steps(base: &[u8], target: &[u8]) -> Option<Vec<Step>> {
    let mut suffixes = Suffixes::of(base, target.len());
    let mut steps = Vec::new();
    let mut last = Anchor { target: 0, base: 0 };
    let mut scan = 0;
    while last.target < target.len() {
        let (at, place) = next_anchor(&mut suffixes, target, last, scan)?;
        let (step, anchor) = between(base, target, last, place, at);
        steps.push(step);
        last = anchor;
        scan = at.end;
    }
    // An empty step would say nothing: where the first match is, the step after it says too.
    steps.retain(|step| step.near + step.fresh > 0);
    Some(steps)
}

/// Positions that belong together.
#[derive(Clone, Copy, Debug)]
struct Anchor {
    target: usize,
    base: usize,
}

/// A match in the target.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    start: usize,
    end: usize,
}

/// The next stretch of the target, from `scan` on, that matches elsewhere in the base much better
/// than beside `last`; an empty one at the end, if there is none.
fn next_anchor(
    suffixes: &mut Suffixes<'_>,
    target: &[u8],
    last: Anchor,
    scan: usize,
) -> Option<(Stretch, usize)> {
    let base = suffixes.base;
    let agrees = |at: usize| base.get(last.base + (at - last.target)) == Some(&target[at]);
    let mut scan = scan;
    // Bytes of the match that going on beside the last one would give too, and up to where they
    // were counted.
    let (mut beside, mut counted) = (0usize, scan);
    while scan < target.len() {
        let (place, length) = suffixes.longest(&target[scan..])?;
        while counted < scan + length {
            beside += usize::from(agrees(counted));
            counted += 1;
        }
        if length > beside + BETTER_BY {
            return Some((Stretch { start: scan, end: scan + length }, place));
        }
        if length == beside && length > 0 {
            // It is the same stretch: pass over it.
            scan += length;
            (beside, counted) = (0, scan);
            continue;
        }
        if counted > scan {
            beside -= usize::from(agrees(scan));
        } else {
            counted = scan + 1;
        }
        scan += 1;
    }
    Some((Stretch { start: target.len(), end: target.len() }, base.len()))
}

/// The step from the last anchor to the next match, each widened towards the other; and where the
/// next step begins.
fn between(base: &[u8], target: &[u8], last: Anchor, place: usize, at: Stretch) -> (Step, Anchor) {
    let gap = at.start - last.target;
    let forth = &base[last.base..];
    let mut near =
        best_length((0..gap.min(forth.len())).map(|n| forth[n] == target[last.target + n]));
    let found = at.start < at.end;
    let back_max = if found { gap.min(place) } else { 0 };
    let mut back = best_length((1..=back_max).map(|n| base[place - n] == target[at.start - n]));
    if near + back > gap {
        // Both claim the same bytes: split where most agree.
        let overlap = near + back - gap;
        let (from, to) = (last.target + near - overlap, near - overlap);
        let (mut score, mut best, mut split) = (0i64, 0, 0);
        for n in 0..overlap {
            let byte = target[from + n];
            score += i64::from(byte == base[last.base + to + n]);
            score -= i64::from(byte == base[place - back + n]);
            if score > best {
                (best, split) = (score, n + 1);
            }
        }
        near -= overlap - split;
        back -= split;
    }
    let step = Step { target: last.target, base: last.base, near, fresh: gap - near - back };
    (step, Anchor { target: at.start - back, base: place - back })
}

/// The length at which the bytes that agree exceed those that do not by the most.
fn best_length(agree: impl Iterator<Item = bool>) -> usize {
    let (mut score, mut best, mut length) = (0i64, 0, 0);
    for (n, agrees) in agree.enumerate() {
        score += if agrees { 1 } else { -1 };
        if score > best {
            (best, length) = (score, n + 1);
        }
    }
    length
}

/// A base with its suffixes in order.
struct Suffixes<'a> {
    base: &'a [u8],
    sorted: Vec<i32>,
    /// Where suffixes that begin with two bytes begin in `sorted`, by these bytes.
    begins: Vec<u32>,
    /// Bytes that may yet be compared.
    labour: usize,
}

impl<'a> Suffixes<'a> {
    fn of(base: &'a [u8], target_len: usize) -> Suffixes<'a> {
        let mut sorted = vec![0; base.len()];
        sort_in_place(base, &mut sorted);
        let mut begins = vec![0u32; (1 << 16) + 1];
        for pair in base.windows(2) {
            begins[usize::from(u16::from_be_bytes([pair[0], pair[1]])) + 1] += 1;
        }
        // The last byte alone sorts before all pairs that begin with it.
        if let Some(last) = base.last() {
            begins[usize::from(*last) << 8] += 1;
        }
        for n in 1..begins.len() {
            begins[n] += begins[n - 1];
        }
        let labour = LABOUR_MIN.max(target_len.saturating_mul(LABOUR_PER_BYTE));
        Suffixes { base, sorted, begins, labour }
    }

    /// Where the base has the longest beginning of `wanted`, of at most `COMPARED_MAX` bytes, and
    /// its length. None once the labour is done.
    fn longest(&mut self, wanted: &[u8]) -> Option<(usize, usize)> {
        let [first, second, ..] = wanted else { return Some((0, 0)) };
        let pair = usize::from(u16::from_be_bytes([*first, *second]));
        let (mut low, mut high) = (self.begins[pair] as usize, self.begins[pair + 1] as usize);
        let wanted = &wanted[..wanted.len().min(COMPARED_MAX)];
        let mut best = (0, 0);
        while low < high {
            let middle = low.midpoint(high);
            let place = self.sorted[middle] as usize;
            let suffix = &self.base[place..];
            let length = common(suffix, wanted);
            self.labour = self.labour.checked_sub(length + 1)?;
            if length > best.1 {
                best = (place, length);
            }
            match (suffix.get(length), wanted.get(length)) {
                (_, None) => break,
                (Some(have), Some(want)) if have > want => high = middle,
                _ => low = middle + 1,
            }
        }
        Some(best)
    }
}

/// How many bytes two begin with in common.
fn common(one: &[u8], other: &[u8]) -> usize {
    let eights = one.as_chunks::<8>().0.iter().zip(other.as_chunks::<8>().0);
    let same = 8 * eights.take_while(|(a, b)| a == b).count();
    same + one[same..].iter().zip(&other[same..]).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What `longest` must find, one place after the other.
    fn longest_by_looking(base: &[u8], wanted: &[u8]) -> usize {
        (0..base.len()).map(|place| common(&base[place..], wanted)).max().unwrap_or(0)
    }

    #[test]
    fn a_search_that_takes_too_long_is_given_up() {
        let base = vec![0; 10_000];
        let mut suffixes = Suffixes::of(&base, 10);
        suffixes.labour = 100;
        assert_eq!(suffixes.longest(&[0; 300]), None);
    }

    #[test]
    fn a_byte_more_in_the_middle_takes_two_steps() {
        let base: Vec<u8> = (0..2000u32).map(|n| (n * n / 7) as u8).collect();
        let target = [&base[..1000], b"x", &base[1000..]].concat();
        let steps = steps(&base, &target).unwrap();
        assert_eq!(steps.len(), 2, "{steps:?}");
        assert_eq!(steps.iter().map(|step| step.fresh).sum::<usize>(), 1);
    }

    proptest! {
        #[test]
        fn prop_the_longest_match_is_found(
            base in prop::collection::vec(0..3u8, 0..300),
            wanted in prop::collection::vec(0..4u8, 0..40),
        ) {
            let (place, length) = Suffixes::of(&base, 100_000).longest(&wanted).unwrap();
            let looked = longest_by_looking(&base, &wanted);
            // Less than two bytes are not looked for.
            prop_assert_eq!(length, if looked < 2 { 0 } else { looked });
            prop_assert_eq!(&base[place..place + length], &wanted[..length]);
        }

        #[test]
        fn prop_steps_cover_the_target(
            base in prop::collection::vec(0..6u8, 0..300),
            target in prop::collection::vec(0..6u8, 0..300),
        ) {
            let mut at = 0;
            for step in steps(&base, &target).unwrap() {
                prop_assert_eq!(step.target, at);
                prop_assert!(step.base + step.near <= base.len());
                at += step.near + step.fresh;
            }
            prop_assert_eq!(at, target.len());
        }
    }
}
