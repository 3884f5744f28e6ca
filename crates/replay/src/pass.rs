//! Which pending updates may leave before others, of which the contents take long.
//! Holds: what goes ahead and what stays behind come to the same as all of it in order, but for
//! times of directories; what was made after a program had made sure of contents that stay behind
//! (fsync(2)) stays behind them.
//! From: beyond partially connected operation, which replays its log in order; that order holds where
//! a program has asked for it: POSIX, fsync().

use model::{Change, FileId, Name, Update};
use std::collections::BTreeSet;

/// What stays behind, as far as it concerns what comes after it.
#[derive(Clone, Debug, Default)]
pub struct Held {
    /// Files that it changes.
    changes: BTreeSet<FileId>,
    /// Directories that it expects to be there, and to let it do what it does.
    uses: BTreeSet<FileId>,
    names: BTreeSet<(FileId, Name)>,
    /// It moves something from one directory to another: whether a move is possible depends on all
    /// moves before it.
    moves: bool,
    /// What bears a higher number counts on it.
    upto: Option<u64>,
}

/// What an update is about.
struct About<'a> {
    changes: Vec<FileId>,
    uses: Vec<FileId>,
    names: Vec<(FileId, &'a Name)>,
    moves: bool,
}

impl About<'_> {
    fn of(update: &Update) -> About<'_> {
        let nothing = About { changes: vec![], uses: vec![], names: vec![], moves: false };
        match &update.change {
            Change::Make { parent, name, file, .. }
            | Change::Link { parent, name, file }
            | Change::Unlink { parent, name, file, .. } => About {
                changes: vec![*file],
                uses: vec![*parent],
                names: vec![(*parent, name)],
                ..nothing
            },
            Change::Rename { from, from_name, to, to_name, file, over, whiteout, .. } => {
                let whiteout = whiteout.map(|whiteout| whiteout.file);
                About {
                    changes: [Some(*file), *over, whiteout].into_iter().flatten().collect(),
                    uses: vec![*from, *to],
                    names: vec![(*from, from_name), (*to, to_name)],
                    moves: from != to,
                }
            }
            Change::Store { file, .. }
            | Change::SetAttributes { file, .. }
            | Change::SetXattr { file, .. }
            | Change::RemoveXattr { file, .. } => About { changes: vec![*file], ..nothing },
        }
    }
}

impl Held {
    /// The update stays behind. `sure_at`: the number of the last update that there was when a
    /// program first made sure of what this one stores.
    pub fn hold(&mut self, update: &Update, sure_at: Option<u64>) {
        let About { changes, uses, names, moves } = About::of(update);
        self.changes.extend(changes);
        self.uses.extend(uses);
        self.names.extend(names.into_iter().map(|(directory, name)| (directory, name.clone())));
        self.moves |= moves;
        self.upto = [self.upto, sure_at].into_iter().flatten().min();
    }

    /// Whether the update may go ahead of all that stays behind.
    pub fn lets(&self, update: &Update) -> bool {
        if self.ends_before(update.stamp.number) {
            return false;
        }
        let About { changes, uses, names, moves } = About::of(update);
        let meets =
            changes.iter().any(|file| self.changes.contains(file) || self.uses.contains(file))
                || uses.iter().any(|file| self.changes.contains(file))
                || names.into_iter().any(|(directory, name)| {
                    // Rows are few, and names short: a key to look with costs no more.
                    self.names.contains(&(directory, name.clone()))
                })
                || (moves && self.moves);
        !meets
    }

    /// Nothing of this number or a higher one goes ahead.
    pub fn ends_before(&self, number: u64) -> bool {
        self.upto.is_some_and(|upto| number > upto)
    }
}

/// How many updates from `at` on go together: what makes a file goes with what fills it.
pub fn unit_at(updates: &[Update], at: usize) -> usize {
    let Some(Change::Make { file, .. }) = updates.get(at).map(|update| &update.change) else {
        return 1;
    };
    let fills = |update: &&Update| update.change.fills() == Some(*file);
    1 + updates[at + 1..].iter().take_while(fills).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::*;
    use model::{Kind, Stamp};
    use proptest::prelude::*;

    /// What goes ahead if this stays behind, and what stays behind in the end.
    fn parted(
        pending: &[Update],
        stays: impl Fn(&Update) -> bool,
        sure_at: impl Fn(&Update) -> Option<u64>,
    ) -> (Vec<Update>, Vec<Update>) {
        let (mut held, mut ahead, mut behind) = (Held::default(), Vec::new(), Vec::new());
        for update in pending {
            if !stays(update) && held.lets(update) {
                ahead.push(update.clone());
            } else {
                held.hold(update, sure_at(update));
                behind.push(update.clone());
            }
        }
        (ahead, behind)
    }

    #[test]
    fn what_has_to_do_with_a_file_that_stays_behind_stays_with_it() {
        let (large, small, directory) = (file(1), file(2), file(3));
        let pending = log(vec![
            store(large, Stamp::default(), 1 << 30),
            store(small, Stamp::default(), 10),
            rename((ROOT, 1), (ROOT, 2), large, None),
            make(ROOT, 3, directory, Kind::Directory),
            make(directory, 1, file(4), Kind::File),
            make(ROOT, 1, file(5), Kind::File),
            make(ROOT, 2, file(6), Kind::File),
            unlink(ROOT, 2, large),
            mode(small, Stamp::default(), 0o600),
        ]);
        let is_large = |update: &Update| update.stamp.number == 1;
        let (ahead, behind) = parted(&pending, is_large, |_| None);
        let numbers = |updates: &[Update]| -> Vec<u64> {
            updates.iter().map(|update| update.stamp.number).collect()
        };
        assert_eq!(numbers(&ahead), [2, 4, 5, 9]);
        assert_eq!(numbers(&behind), [1, 3, 6, 7, 8]);
        // A program made sure of the large file when there were three updates.
        let (ahead, _) = parted(&pending, is_large, |update| is_large(update).then_some(3));
        assert_eq!(numbers(&ahead), [2]);
    }

    #[test]
    fn a_file_goes_with_what_fills_it() {
        let f = file(1);
        let pending = log(vec![
            make(ROOT, 0, f, Kind::File),
            store(f, Stamp::default(), 10),
            mode(f, Stamp::default(), 0o600),
            unlink(ROOT, 1, file(9)),
        ]);
        assert_eq!((unit_at(&pending, 0), unit_at(&pending, 1), unit_at(&pending, 3)), (3, 1, 1));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn prop_in_another_order_it_comes_to_the_same(
            draws in draws(),
            stays in prop::collection::btree_set(1_u64..60, 1..5),
        ) {
            let base = beginning();
            let (tree, pending) = done(&base, &draws);
            let stays = |update: &Update| stays.contains(&update.stamp.number);
            let (ahead, behind) = parted(&pending, stays, |_| None);
            let mut after = base;
            for update in ahead.iter().chain(&behind) {
                prop_assert!(
                    after.take(update),
                    "{}\nof {}\nand {}", told(std::slice::from_ref(update)), told(&ahead), told(&behind)
                );
            }
            prop_assert_eq!(after.settled(), tree.settled(), "{}\nand {}", told(&ahead), told(&behind));
        }
    }
}
