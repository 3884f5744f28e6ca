//! More than is held, in fewer stretches.
//! Holds: what comes out covers what went in, and has no more stretches of a kind than it may, whatever
//! gaps that takes.

use super::{Lock, Locks};

impl Locks {
    /// The same in at most `most` stretches of each kind: gaps between neighbours are closed, first
    /// those of which `beside` has all, and of either sort the smallest first.
    #[must_use]
    pub fn in_at_most(&self, most: usize, beside: impl Fn(&Lock) -> bool) -> Locks {
        let kinds = self.0.chunk_by(|one, next| one.kind == next.kind);
        let mut fewer = Locks(kinds.flat_map(|kind| closed(kind, most, &beside)).collect());
        fewer.settle();
        fewer
    }
}

/// Stretches of one kind, in order.
fn closed(stretches: &[Lock], most: usize, beside: &impl Fn(&Lock) -> bool) -> Vec<Lock> {
    let over = stretches.len().saturating_sub(most.max(1));
    if over == 0 {
        return stretches.to_vec();
    }
    let gaps = stretches.windows(2).zip(1..);
    let mut gaps: Vec<_> = gaps
        .map(|(pair, next)| {
            (!beside(&joined(&pair[0], &pair[1])), pair[1].first - pair[0].last, next)
        })
        .collect();
    gaps.sort_unstable();
    let mut closes = vec![false; stretches.len()];
    gaps.iter().take(over).for_each(|(.., next)| closes[*next] = true);
    let mut fewer: Vec<Lock> = Vec::with_capacity(most);
    for (stretch, closes) in stretches.iter().zip(closes) {
        match fewer.last_mut() {
            Some(last) if closes => *last = joined(last, stretch),
            _ => fewer.push(*stretch),
        }
    }
    fewer
}

/// Both, and what is between them, as strongly as the stronger.
fn joined(one: &Lock, next: &Lock) -> Lock {
    Lock { exclusive: one.exclusive || next.exclusive, last: next.last, ..*one }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LockKind;
    use proptest::prelude::*;

    fn lock(exclusive: bool, first: u64, last: u64) -> Lock {
        Lock { kind: LockKind::Record, exclusive, first, last }
    }

    fn locks(of: &[Lock]) -> Locks {
        Locks::from_told(of).unwrap()
    }

    #[test]
    fn the_smallest_gaps_are_closed_first_and_what_is_had_besides_before_all_others() {
        let held =
            locks(&[lock(true, 0, 1), lock(true, 4, 5), lock(true, 7, 8), lock(false, 90, 99)]);
        assert_eq!(held.in_at_most(4, |_| false), held);
        let fewer = held.in_at_most(3, |_| false);
        assert_eq!(fewer, locks(&[lock(true, 0, 1), lock(true, 4, 8), lock(false, 90, 99)]));
        let had = |joint: &Lock| joint.first == 7;
        let fewer = held.in_at_most(3, had);
        assert_eq!(fewer, locks(&[lock(true, 0, 1), lock(true, 4, 5), lock(true, 7, 99)]));
        assert_eq!(held.in_at_most(1, |_| false), locks(&[lock(true, 0, 99)]));
    }

    #[test]
    fn each_kind_is_for_itself() {
        let flock = Lock { kind: LockKind::Whole, ..lock(false, 0, u64::MAX) };
        let held = locks(&[flock, lock(true, 0, 0), lock(true, 2, 2)]);
        assert_eq!(held.in_at_most(1, |_| true), locks(&[flock, lock(true, 0, 2)]));
    }

    proptest! {
        #[test]
        fn prop_all_is_covered_by_so_few(
            told in proptest::collection::vec((any::<bool>(), 0_u64..200, 0_u64..9), 0..60),
            most in 1_usize..20,
            salt in any::<u64>(),
        ) {
            let told: Vec<Lock> = told
                .into_iter()
                .map(|(exclusive, first, more)| lock(exclusive, first, first + more))
                .collect();
            let held = locks(&told);
            let fewer = held.in_at_most(most, |joint| (joint.first ^ salt) & 1 == 0);
            prop_assert!(fewer.len() <= most);
            prop_assert!(fewer.cover_all(&held));
            prop_assert_eq!(&locks(&fewer.to_vec()), &fewer, "as if it had been told so");
            prop_assert_eq!(fewer.in_at_most(most, |_| false), fewer.clone());
        }
    }
}
