//! Locks that are about to go: of flock(2), and of an open file description. The kernel tells of the
//! last close of a description when whoever closed it has gone on, and takes it for given up.

use super::{By, Owner, Table};
use crate::types::Handle;
use model::FileId;
use std::collections::BTreeSet;
use std::time::Duration;
use world::Moment;

/// So soon after the close of a descriptor the kernel tells that it was the last.
pub(crate) const RELEASED_WITHIN: Duration = Duration::from_millis(100);

/// And so soon after a close of which it does not tell.
pub(crate) const RELEASED_UNTOLD_WITHIN: Duration = Duration::from_millis(20);

impl Table {
    /// A descriptor of a handle is closed.
    pub fn one_closed(&mut self, file: FileId, handle: Handle, now: Moment) {
        let Some(of_file) = self.files.get_mut(&file) else { return };
        let its = of_file.by.values_mut().filter(|by| by.handles.contains(&handle));
        its.for_each(|by| by.closed = Some(now));
    }

    /// Whether all that these owners hold may be about to be given up, as far as is known `now`.
    pub fn may_be_released(&self, file: FileId, owners: &BTreeSet<Owner>, now: Moment) -> bool {
        let Some(of_file) = self.files.get(&file) else { return false };
        let lately = |by: &By| by.closed.is_some_and(|at| now.since(at) < RELEASED_WITHIN);
        owners.iter().all(|owner| of_file.by.get(owner).is_some_and(lately))
    }

    /// Those who hold what they hold through a handle alone.
    pub(super) fn over_with(&self, file: FileId, handle: Handle) -> Vec<Owner> {
        let Some(of_file) = self.files.get(&file) else { return Vec::new() };
        let alone = BTreeSet::from([handle]);
        let over = of_file.by.iter().filter(|(_, by)| by.handles == alone);
        over.map(|(owner, _)| *owner).collect()
    }

    /// Whether something that nobody else may hold is given up when a handle is closed.
    pub fn releases_exclusive(&self, file: FileId, handle: Handle) -> bool {
        let over = self.over_with(file, handle);
        over.into_iter().any(|owner| self.holds_exclusively(file, owner))
    }

    /// Through which these owners hold what they hold.
    pub fn handles_of(&self, file: FileId, owners: &BTreeSet<Owner>) -> Vec<Handle> {
        let Some(of_file) = self.files.get(&file) else { return Vec::new() };
        let their = owners.iter().filter_map(|owner| of_file.by.get(owner));
        their.flat_map(|by| by.handles.iter().copied()).collect()
    }
}
