//! How much of a volume's locks each client takes up: of one alone there is room for all others.

use model::ReplicaId;
use std::collections::BTreeMap;

/// Files of which one client holds, or waits for, anything.
pub(super) const FILES_OF_ONE_MAX: usize = 16_384;
/// Stretches of all files that one client holds.
pub(super) const STRETCHES_OF_ONE_MAX: usize = 262_144;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Shares(BTreeMap<ReplicaId, Share>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Share {
    pub files: usize,
    pub stretches: usize,
}

/// Of a file: those who hold, or wait for, anything, and how many stretches they hold.
pub(super) type Parts = BTreeMap<ReplicaId, usize>;

impl Shares {
    /// Whether a client may hold so many stretches of a file of which it has `had` so many, or nothing.
    pub fn have_room(&self, who: ReplicaId, had: Option<usize>, stretches: usize) -> bool {
        let share = self.0.get(&who).copied().unwrap_or_default();
        let others = share.stretches.saturating_sub(had.unwrap_or_default());
        let is_one_more = had.is_none() && share.files >= FILES_OF_ONE_MAX;
        !is_one_more && others + stretches <= STRETCHES_OF_ONE_MAX
    }

    /// What some have of a file was `before`, and is another now.
    pub fn change(&mut self, before: &Parts, now: &Parts) {
        for (who, stretches) in before {
            let Some(share) = self.0.get_mut(who) else { continue };
            share.files = share.files.saturating_sub(1);
            share.stretches = share.stretches.saturating_sub(*stretches);
        }
        for (who, stretches) in now {
            let share = self.0.entry(*who).or_default();
            share.files += 1;
            share.stretches += stretches;
        }
        for who in before.keys() {
            if self.0.get(who).is_some_and(|share| share.files == 0) {
                self.0.remove(who);
            }
        }
    }

    /// All that a client has is this from now on.
    pub fn set(&mut self, who: ReplicaId, share: Share) {
        match share.files {
            0 => drop(self.0.remove(&who)),
            _ => drop(self.0.insert(who, share)),
        }
    }
}
