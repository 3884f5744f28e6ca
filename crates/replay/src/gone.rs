//! Which pending stores of a file need not leave once it has lost its last name, where there is no
//! room for them above.
//! Holds: all else that was done to the file leaves, and its removals expect what the first of those
//! stores expected: whoever judges them sees what others have stored since then.

use crate::cancel::Moot;
use model::{Change, FileId, Stamp, Update};
use std::collections::BTreeMap;

/// What is moot of all that is pending of a file that has no name any more, in order. `may`: whether
/// an update may be cancelled or rewritten. None: nothing of it.
pub fn stores_of_gone(
    file: FileId,
    pending: &[Update],
    may: impl Fn(&Update) -> bool,
) -> Option<Moot> {
    let expected: BTreeMap<Stamp, Stamp> = pending
        .iter()
        .filter_map(|update| match &update.change {
            Change::Store { file: stored, expects, .. } if *stored == file => {
                Some((update.stamp, *expects))
            }
            _ => None,
        })
        .collect();
    let last = expected.last_key_value().map(|(stamp, _)| *stamp)?;
    let removes = |update: &&Update| expectation(file, update).is_some();
    // Nobody else has taken the name away, nor is it to be stored after that.
    pending.iter().rfind(removes).filter(|removal| removal.stamp > last)?;
    let mut moot = Moot::default();
    for update in pending {
        let is_store = expected.contains_key(&update.stamp);
        let before = match expectation(file, update) {
            Some(Some(seen)) if expected.contains_key(&seen) => Some(before_all(seen, &expected)),
            _ => None,
        };
        if (is_store || before.is_some()) && !may(update) {
            return None;
        }
        if is_store {
            moot.cancelled.push(update.stamp.number);
        }
        if let Some(before) = before {
            moot.rewritten.push(expecting(update, before));
        }
    }
    Some(moot)
}

/// What an update that takes a name from the file expects of its contents. None: it takes none.
fn expectation(file: FileId, update: &Update) -> Option<Option<Stamp>> {
    match &update.change {
        Change::Unlink { file: doomed, expects, .. } if *doomed == file => Some(*expects),
        Change::Rename { file: moved, over: Some(doomed), exchange: false, expects, .. }
            if *doomed == file && *moved != file =>
        {
            Some(*expects)
        }
        _ => None,
    }
}

/// What was there before these stores, each of which is of a higher number than what it expects of them.
fn before_all(seen: Stamp, expected: &BTreeMap<Stamp, Stamp>) -> Stamp {
    let earlier = |at: &Stamp| expected.get(at).copied().filter(|before| before != at);
    std::iter::successors(Some(seen), earlier).take(expected.len() + 1).last().unwrap_or(seen)
}

fn expecting(update: &Update, before: Stamp) -> Update {
    let mut rewritten = update.clone();
    if let Change::Unlink { expects, .. } | Change::Rename { expects, .. } = &mut rewritten.change {
        *expects = Some(before);
    }
    rewritten
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::*;
    use model::{Kind, ReplicaId};

    const ROOT: FileId = FileId::ROOT;

    fn others() -> Stamp {
        Stamp::new(ReplicaId(3), 4)
    }

    fn seeing(seen: Stamp, mut change: Change) -> Change {
        if let Change::Unlink { expects, .. } | Change::Rename { expects, .. } = &mut change {
            *expects = Some(seen);
        }
        change
    }

    /// What is cancelled, and what is rewritten, with what it expects then.
    type Done = (Vec<u64>, Vec<(u64, Stamp)>);

    fn done(pending: &[Update], may: impl Fn(u64) -> bool) -> Option<Done> {
        let moot = stores_of_gone(file(1), pending, |update| may(update.stamp.number))?;
        let rewritten = moot.rewritten.iter().map(|update| {
            let expects = expectation(file(1), update).flatten().unwrap();
            (update.stamp.number, expects)
        });
        Some((moot.cancelled.clone(), rewritten.collect()))
    }

    #[test]
    fn stores_of_a_file_that_was_removed_go_and_its_removal_expects_what_was_there_before() {
        let f = file(1);
        let removed = [
            seeing(stamp(3), unlink(ROOT, 1, f)),
            seeing(stamp(3), rename((ROOT, 2), (ROOT, 1), file(2), Some(f))),
        ];
        for removal in removed {
            let pending = [
                update(1, store(f, others(), 10)),
                update(2, mode(f, Stamp::default(), 0o600)),
                update(3, store(f, stamp(1), 20)),
                update(4, removal),
            ];
            let all = Some((vec![1, 3], vec![(4, others())]));
            assert_eq!(done(&pending, |_| true), all);
            assert_eq!(done(&pending, |number| number != 3), None, "it is on its way");
            assert_eq!(done(&pending, |number| number != 4), None, "the removal is");
            assert_eq!(done(&pending, |number| number != 2), all);
            assert_eq!(done(&pending[..3], |_| true), None, "somebody else has removed it");
        }
    }

    #[test]
    fn a_later_store_that_took_the_place_of_an_earlier_one_expects_what_that_expected() {
        let f = file(1);
        let pending = [
            update(1, make(ROOT, 1, f, Kind::File)),
            update(2, store(f, stamp(1), 10)),
            update(3, store(f, stamp(1), 20)),
            update(4, seeing(stamp(3), unlink(ROOT, 1, f))),
        ];
        assert_eq!(done(&pending, |_| true), Some((vec![2, 3], vec![(4, stamp(1))])));
    }

    #[test]
    fn who_removed_what_he_saw_of_others_goes_on_expecting_that() {
        let f = file(1);
        let saw =
            |seen| [update(2, store(f, stamp(1), 10)), update(3, seeing(seen, unlink(ROOT, 1, f)))];
        assert_eq!(done(&saw(others()), |_| true), Some((vec![2], vec![])));
        let pending =
            [update(2, seeing(stamp(1), unlink(ROOT, 1, f))), update(3, store(f, stamp(1), 10))];
        assert_eq!(done(&pending, |_| true), None, "it is stored after that");
    }
}
