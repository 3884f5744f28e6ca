//! Locks that somebody else has had since the lease ended: through their handles nothing is read or
//! written any more, as whoever does believes that it is alone.

use super::Table;
use crate::types::Handle;
use model::{FileId, LockTable};
use std::collections::BTreeSet;

impl Table {
    pub fn is_lost(&self, handle: Handle) -> bool {
        self.lost.contains(&handle)
    }

    pub fn any_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Whether something is lost as soon as locks are leased.
    pub fn any_overtaken(&self) -> bool {
        self.any_overtaken
    }

    /// Locks are leased: what others have had meanwhile is lost.
    pub fn lose_overtaken(&mut self) {
        self.any_overtaken = false;
        let overtaken = self.files.iter().filter(|(_, of_file)| of_file.overtaken);
        let overtaken: Vec<FileId> = overtaken.map(|(file, _)| *file).collect();
        overtaken.into_iter().for_each(|file| self.lose(file));
    }

    /// Somebody else has, or has had, what processes here held.
    pub(super) fn lose(&mut self, file: FileId) {
        let Some(of_file) = self.files.get_mut(&file) else { return };
        tracing::warn!(%file, "locks were lost: the lease had ended, and another device has, or has had, the same");
        for (owner, by) in &of_file.by {
            if of_file.held.of(*owner).is_some() {
                self.lost.extend(&by.handles);
            }
        }
        self.lost_files.insert(file);
        of_file.held = LockTable::default();
        of_file.by.clear();
        of_file.forget_lost();
        of_file.overtaken = false;
        of_file.news.notify_waiters();
    }

    /// Files of which the kernel is to forget what it has, so that it asks.
    pub fn take_lost_files(&mut self) -> BTreeSet<FileId> {
        std::mem::take(&mut self.lost_files)
    }
}
