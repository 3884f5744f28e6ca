//! Who waits for whom.
//! Holds: nobody begins to wait who would, through others, wait for itself.

use std::collections::{BTreeMap, BTreeSet};

/// Those who wait, and for whom. One who waits for several locks at once, by several threads,
/// waits for all of them.
#[derive(Clone, Debug)]
pub struct Waits<O>(BTreeMap<O, BTreeMap<u64, BTreeSet<O>>>);

impl<O> Default for Waits<O> {
    fn default() -> Self {
        Waits(BTreeMap::new())
    }
}

impl<O: Ord + Copy> Waits<O> {
    /// Notes that somebody waits, in the wait of this number, for these, and no others any more.
    /// False, and nothing is noted, if one of them waits for who asks: it would be for ever.
    pub fn begin(&mut self, who: O, number: u64, whom: BTreeSet<O>) -> bool {
        self.end(who, number);
        if self.lead_to(&whom, who) {
            return false;
        }
        self.0.entry(who).or_default().insert(number, whom);
        true
    }

    pub fn end(&mut self, who: O, number: u64) {
        if let Some(waits) = self.0.get_mut(&who) {
            waits.remove(&number);
            if waits.is_empty() {
                self.0.remove(&who);
            }
        }
    }

    /// Somebody has given something up: nobody is taken to wait for it before it is seen to be in the
    /// way again.
    pub fn let_go(&mut self, of: O) {
        let waits = self.0.values_mut().flat_map(BTreeMap::values_mut);
        waits.for_each(|whom| whom.retain(|one| *one != of));
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each of those who wait is looked at once.
    fn lead_to(&self, from: &BTreeSet<O>, to: O) -> bool {
        let mut seen = BTreeSet::new();
        let mut next: Vec<O> = from.iter().copied().collect();
        while let Some(one) = next.pop() {
            if one == to {
                return true;
            }
            if seen.insert(one) {
                let waits = self.0.get(&one).into_iter().flat_map(BTreeMap::values);
                next.extend(waits.flatten());
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn prop_nobody_ever_waits_for_itself(
            asked in prop::collection::vec((0_u8..5, 0_u8..5, 0_u64..2), 0..30),
        ) {
            let mut waits = Waits::default();
            for (who, whom, number) in asked {
                waits.begin(who, number, BTreeSet::from([whom]));
                for one in 0..5 {
                    let whom = waits.0.get(&one).into_iter().flat_map(BTreeMap::values);
                    let whom: BTreeSet<u8> = whom.flatten().copied().collect();
                    prop_assert!(!waits.lead_to(&whom, one));
                }
            }
        }
    }

    #[test]
    fn nobody_waits_for_what_was_just_given_up() {
        let mut waits = Waits::default();
        assert!(waits.begin(1, 0, BTreeSet::from([2, 3])));
        waits.let_go(2);
        assert!(waits.begin(2, 0, BTreeSet::from([1])));
        assert!(!waits.begin(3, 0, BTreeSet::from([2])), "the other one is in the way as before");
    }

    #[test]
    fn a_ring_of_three_who_wait_is_found_and_a_wait_that_is_over_does_not_count() {
        let mut waits = Waits::default();
        assert!(waits.begin(1, 0, BTreeSet::from([2])));
        assert!(waits.begin(2, 0, BTreeSet::from([3])));
        assert!(!waits.begin(3, 0, BTreeSet::from([1])));
        waits.end(1, 0);
        assert!(waits.begin(3, 0, BTreeSet::from([1])));
        waits.end(2, 0);
        waits.end(3, 0);
        assert!(waits.is_empty());
    }
}
