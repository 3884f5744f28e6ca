//! A stretch that is given up amid a longer one leaves two.

use super::{HELD_MAX, LockCall, Scope, Table};
use model::LockKind;

impl Table {
    /// Whether it would leave more than can be told, were a stretch given up.
    pub fn leaves_too_many(&self, call: &LockCall, kinds: &[LockKind], scope: Scope) -> bool {
        let Some(of_file) = self.files.get(&call.file) else { return false };
        let mut held = of_file.held.of(call.owner).into_iter().flat_map(|held| held.iter());
        let full = scope != Scope::Here && of_file.held.len() >= HELD_MAX;
        full && held.any(|held| {
            let amid = held.first < call.lock.first && call.lock.last < held.last;
            amid && kinds.contains(&held.kind)
        })
    }
}
