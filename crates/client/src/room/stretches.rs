//! Stretches of files: what lies in both of two, what is left of one without another, and when
//! each was used last.

use std::collections::BTreeMap;

/// Stretches as (offset, end), in order and apart from each other.
pub(crate) type Stretches = Vec<(u64, u64)>;

/// Granules whose use is remembered. Of others it is that of the whole file.
const TOUCHED_MAX: usize = 1 << 17;

/// A cache has so many granules at least, within these bounds.
const GRANULES_MIN: u64 = 64;
const GRANULE_BYTES_MIN: u64 = 4 << 10;
const GRANULE_BYTES_MAX: u64 = 1 << 20;

/// What is used and let go of as one: a power of two, and whole blocks of the disk.
pub(crate) fn granule_bytes(cache_bytes_max: u64) -> u64 {
    let most = (cache_bytes_max / GRANULES_MIN).clamp(GRANULE_BYTES_MIN, GRANULE_BYTES_MAX);
    1 << most.ilog2()
}

/// What is left of stretches without `from..to`.
pub(crate) fn without(stretches: &[(u64, u64)], from: u64, to: u64) -> Stretches {
    let around = |&(start, end): &(u64, u64)| [(start, end.min(from)), (start.max(to), end)];
    let whole = |stretch: &(u64, u64)| stretch.1 <= from || to <= stretch.0;
    let mut left = Stretches::with_capacity(stretches.len() + 1);
    for stretch in stretches {
        if from >= to || whole(stretch) {
            left.push(*stretch);
        } else {
            left.extend(around(stretch).into_iter().filter(|(start, end)| start < end));
        }
    }
    left
}

/// What lies in both.
pub(crate) fn both(one: &[(u64, u64)], other: &[(u64, u64)]) -> Stretches {
    let (mut one, mut other) = (one.iter().peekable(), other.iter().peekable());
    let mut found = Stretches::new();
    while let (Some(&&left), Some(&&right)) = (one.peek(), other.peek()) {
        let common = (left.0.max(right.0), left.1.min(right.1));
        if common.0 < common.1 {
            found.push(common);
        }
        if left.1 <= right.1 {
            one.next();
        } else {
            other.next();
        }
    }
    found
}

/// Cut where granules meet.
pub(crate) fn by_granule(stretches: &[(u64, u64)], granule: u64) -> Stretches {
    let mut cut = Stretches::new();
    for &(from, to) in stretches {
        let mut at = from;
        while at < to {
            let end = (at / granule + 1).saturating_mul(granule).min(to);
            cut.push((at, end));
            at = end;
        }
    }
    cut
}

/// When the stretches of an open file were used last, in nanoseconds since 1970.
#[derive(Default)]
pub(crate) struct Touched(BTreeMap<u64, i64>);

impl Touched {
    pub fn note(&mut self, offset: u64, length: u64, granule: u64, now: i64) {
        if length == 0 {
            return;
        }
        let last = offset.saturating_add(length - 1) / granule;
        for number in offset / granule..=last {
            if self.0.len() < TOUCHED_MAX || self.0.contains_key(&number) {
                self.0.insert(number, now);
            }
        }
    }

    pub fn at(&self, offset: u64, granule: u64) -> Option<i64> {
        self.0.get(&(offset / granule)).copied()
    }

    /// A stretch is not here any more.
    pub fn forget(&mut self, from: u64, to: u64, granule: u64) {
        let numbers: Vec<u64> =
            self.0.range(from / granule..to.div_ceil(granule)).map(|(number, _)| *number).collect();
        numbers.iter().for_each(|number| {
            self.0.remove(number);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presence::are_apart;
    use proptest::prelude::*;

    const END: u64 = 200;

    fn stretches() -> impl Strategy<Value = Stretches> {
        proptest::collection::vec(any::<bool>(), END as usize).prop_map(|bits| of(&bits))
    }

    /// The naive form: for each byte whether it is in.
    fn bits(stretches: &[(u64, u64)]) -> Vec<bool> {
        (0..END).map(|at| stretches.iter().any(|(from, to)| (*from..*to).contains(&at))).collect()
    }

    fn of(bits: &[bool]) -> Stretches {
        let mut found = Stretches::new();
        for (at, _) in bits.iter().enumerate().filter(|(_, bit)| **bit) {
            let at = at as u64;
            match found.last_mut() {
                Some((_, to)) if *to == at => *to = at + 1,
                _ => found.push((at, at + 1)),
            }
        }
        found
    }

    proptest! {
        #[test]
        fn prop_stretches_are_sets_of_bytes(
            one in stretches(), other in stretches(), from in 0..END, to in 0..END,
        ) {
            let left = without(&one, from, to);
            let expected: Vec<bool> = bits(&one)
                .iter()
                .enumerate()
                .map(|(at, bit)| *bit && !(from..to).contains(&(at as u64)))
                .collect();
            prop_assert_eq!(bits(&left), expected);
            prop_assert!(are_apart(&left));
            let common: Vec<bool> =
                bits(&one).into_iter().zip(bits(&other)).map(|(a, b)| a && b).collect();
            prop_assert_eq!(bits(&both(&one, &other)), common);
            let cut = by_granule(&one, 16);
            prop_assert!(cut.iter().all(|(from, to)| from < to && from / 16 == (to - 1) / 16));
            prop_assert_eq!(bits(&cut), bits(&one));
        }
    }

    #[test]
    fn a_granule_is_whole_blocks_and_a_small_part_of_the_cache() {
        assert_eq!(granule_bytes(0), GRANULE_BYTES_MIN);
        assert_eq!(granule_bytes(3 << 20), 32 << 10);
        assert_eq!(granule_bytes(u64::MAX), GRANULE_BYTES_MAX);
    }

    #[test]
    fn what_was_let_go_of_has_no_time_of_use_any_more() {
        let mut touched = Touched::default();
        touched.note(10, 30, 16, 5);
        touched.note(16, 1, 16, 9);
        assert_eq!([0, 16, 32, 48].map(|at| touched.at(at, 16)), [Some(5), Some(9), Some(5), None]);
        touched.forget(16, 32, 16);
        assert_eq!([0, 16, 32].map(|at| touched.at(at, 16)), [Some(5), None, Some(5)]);
    }
}
