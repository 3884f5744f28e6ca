//! What is held by one of many, in little more than the time to sort it.

use super::{Lock, Locks};

/// All of these together; where they overlap, the stronger counts. None ends before it begins.
pub(super) fn united(mut locks: Vec<Lock>) -> Locks {
    locks.sort_unstable_by_key(|lock| (lock.kind, lock.first));
    let (alone, shared): (Vec<Lock>, Vec<Lock>) = locks.iter().partition(|lock| lock.exclusive);
    let alone = melted(&alone);
    let mut all = without(&melted(&shared), &alone);
    all.extend(alone);
    Locks::settled(all)
}

/// Neighbours that overlap or touch are one. They are in order, and alike but for their kind.
fn melted(locks: &[Lock]) -> Vec<Lock> {
    let mut melted: Vec<Lock> = Vec::with_capacity(locks.len());
    for lock in locks {
        match melted.last_mut() {
            Some(last) if last.kind == lock.kind && lock.first <= last.last.saturating_add(1) => {
                last.last = last.last.max(lock.last);
            }
            _ => melted.push(*lock),
        }
    }
    melted
}

/// What is left of stretches beside others. Both are in order, and overlap none of their own.
fn without(locks: &[Lock], others: &[Lock]) -> Vec<Lock> {
    let mut left = Vec::with_capacity(locks.len());
    let mut others = others.iter().peekable();
    for lock in locks {
        let mut rest = Some(*lock);
        while let (Some(now), Some(other)) = (rest, others.peek()) {
            if (other.kind, other.last) < (now.kind, now.first) {
                others.next();
                continue;
            }
            if other.kind != now.kind || other.first > now.last {
                break;
            }
            // What reaches beyond this one may meet the next.
            let [below, above] = now.without(other);
            left.extend(below);
            rest = above;
        }
        left.extend(rest);
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LockKind;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn prop_it_is_as_if_one_were_put_after_the_other_the_stronger_last(
            told in proptest::collection::vec(
                (any::<bool>(), any::<bool>(), 0_u64..60, 0_u64..9), 0..40
            ),
        ) {
            let lock = |(record, exclusive, first, more)| {
                let kind = if record { LockKind::Record } else { LockKind::Whole };
                Lock { kind, exclusive, first, last: first + more }
            };
            let told: Vec<Lock> = told.into_iter().map(lock).collect();
            let mut one_by_one = Locks::default();
            for exclusive in [false, true] {
                let some = told.iter().filter(|lock| lock.exclusive == exclusive);
                some.for_each(|lock| one_by_one.put(*lock));
            }
            prop_assert_eq!(united(told), one_by_one);
        }
    }

    #[test]
    fn what_ends_at_the_greatest_offset_is_united_too() {
        let all =
            |exclusive, first| Lock { kind: LockKind::Record, exclusive, first, last: u64::MAX };
        let both = united(vec![all(false, 0), all(true, 7)]);
        assert_eq!(both.to_vec(), [Lock { last: 6, ..all(false, 0) }, all(true, 7)]);
        assert_eq!(united(vec![all(true, 0), all(true, 7)]).to_vec(), [all(true, 0)]);
    }
}
