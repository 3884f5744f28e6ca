//! How many stretches are held of a file, and told.
//! Holds: what is told is all that is held, and no more stretches than can be told. It is more than is held
//! where that is too many stretches, which come only of a file of which all is leased, and of locking where
//! locks hold here alone.

use super::{LAST, LockCall, OfFile, Scope, Table};
use model::{Lock, LockKind, Locks};
use protocol::{LOCKS_TOLD_MAX, LOCKS_WISHED_MAX};

/// Stretches of a file that processes hold, where some of it is leased to others: all together they
/// are told as twice as many at most.
const HELD_MAX: usize = LOCKS_TOLD_MAX / 2 - 8;
/// Stretches that are told of a file, with room for what is wished for.
pub(super) const TOLD_MAX: usize = LOCKS_TOLD_MAX - LOCKS_WISHED_MAX;
/// What is given up amid a stretch leaves two.
const MORE_AT_ONCE: usize = 1;
/// The same where all of it is leased, of which nothing is told, or one stretch.
const HELD_ALONE_MAX: usize = 16_384;

impl OfFile {
    /// What is held here, as the replica above is told it: all of the file, where that is too many
    /// stretches.
    pub(super) fn together(&self) -> Locks {
        let mut held = self.held.together();
        if held.len() > TOLD_MAX {
            return self.all_of_it();
        }
        let record = held.iter().find(|lock| lock.kind == LockKind::Record).copied();
        if let (true, Some(record)) = (self.for_one, record) {
            held.put(self.to_ask_for(record));
        }
        held
    }

    /// One stretch in the place of all of a kind, as strong as the strongest.
    fn all_of_it(&self) -> Locks {
        let mut all = Locks::default();
        for kind in [LockKind::Record, LockKind::Whole] {
            let held = self.held.holders().flat_map(|(_, held)| held.iter());
            let held: Vec<&Lock> = held.filter(|lock| lock.kind == kind).collect();
            if let Some(last) = held.iter().map(|lock| lock.last).max() {
                let exclusive = held.iter().any(|lock| lock.exclusive);
                all.put(Lock { kind, exclusive, first: 0, last: last.max(LAST) });
            }
        }
        all
    }

    /// Whether processes hold as many stretches as they may where locks are leased, for one more lock
    /// that is as strong as this.
    pub(super) fn is_full(&self, exclusive: bool) -> bool {
        let held = self.held.len();
        held >= HELD_MAX && (held >= HELD_ALONE_MAX || !self.has_all(exclusive))
    }

    /// Whether all of it is leased, as strongly as the strongest that is held.
    fn has_all(&self, exclusive: bool) -> bool {
        let mut held = self.held.holders().flat_map(|(_, held)| held.iter());
        let exclusive = exclusive || held.any(|lock| lock.exclusive);
        self.covers(&Lock { kind: LockKind::Record, exclusive, first: 0, last: LAST })
    }

    /// Whether nothing more can be given up amid a longer stretch.
    fn is_cut_up(&self) -> bool {
        match self.has_all(false) {
            true => self.held.len() >= HELD_ALONE_MAX,
            // By each of them: what one has, another shares, and may give up.
            false => self.held.len() + MORE_AT_ONCE > TOLD_MAX,
        }
    }
}

impl Table {
    /// Whether it would leave more than may be, were a stretch given up amid a longer one.
    pub fn leaves_too_many(&self, call: &LockCall, kinds: &[LockKind], scope: Scope) -> bool {
        let Some(of_file) = self.files.get(&call.file) else { return false };
        let mut held = of_file.held.of(call.owner).into_iter().flat_map(|held| held.iter());
        let full = scope != Scope::Here && of_file.is_cut_up();
        full && held.any(|held| {
            let amid = held.first < call.lock.first && call.lock.last < held.last;
            amid && kinds.contains(&held.kind)
        })
    }
}
