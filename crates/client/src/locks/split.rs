//! How many stretches are held of a file, and told: one that is given up amid a longer one leaves two.
//! Holds: what is told is all that is held, and no more than can be told.

use super::{Leased, LockCall, OfFile, Scope, Table};
use model::{LockKind, Locks};
use protocol::LOCKS_TOLD_MAX;

/// Stretches of a file that processes hold, where some of it is leased to others: all together they
/// are told as twice as many at most.
pub(super) const HELD_MAX: usize = LOCKS_TOLD_MAX / 2 - 2;
/// The same where all of it is leased: when others want some, more is told than is held.
const HELD_ALONE_MAX: usize = 16_384;

impl OfFile {
    /// What is held here, as the replica above is told it: more, where that is too many stretches.
    pub(super) fn together(&self) -> Locks {
        let mut held = self.held.together();
        let record = held.iter().find(|lock| lock.kind == LockKind::Record).copied();
        if let (true, Some(record)) = (self.for_one, record) {
            held.put(self.to_ask_for(record));
        }
        held.in_at_most(HELD_MAX, |stretch| self.covers(stretch))
    }

    /// Whether processes hold as many stretches as they may, where locks are leased.
    pub(super) fn is_full(&self) -> bool {
        let most = match &self.leased {
            Leased::Whole => HELD_ALONE_MAX,
            Leased::These(_) => HELD_MAX,
        };
        self.held.len() >= most
    }
}

impl Table {
    /// Whether it would leave more than is kept count of, were a stretch given up.
    pub fn leaves_too_many(&self, call: &LockCall, kinds: &[LockKind], scope: Scope) -> bool {
        let Some(of_file) = self.files.get(&call.file) else { return false };
        let mut held = of_file.held.of(call.owner).into_iter().flat_map(|held| held.iter());
        let full = scope != Scope::Here && of_file.held.len() >= HELD_ALONE_MAX;
        full && held.any(|held| {
            let amid = held.first < call.lock.first && call.lock.last < held.last;
            amid && kinds.contains(&held.kind)
        })
    }
}
