//! Which files programs only write and close, and which they share: who syncs a file, or locks it,
//! wants each version of it, which what the kernel writes by itself cannot give.

use super::unseen::BYTES;
use super::{Files, OpenFile};
use crate::presence::Presence;
use model::FileId;
use std::collections::BTreeSet;
use store::Container;

/// Files that are remembered as written to and closed, and nothing else.
const PLAIN_MAX: usize = 4096;

/// Files of which programs have done nothing but write and close them. Who syncs or locks wants
/// each version of the file, which a container that the kernel writes to cannot give.
#[derive(Default)]
pub(crate) struct Plain(BTreeSet<FileId>);

impl Plain {
    fn insert(&mut self, file: FileId) {
        if self.0.len() >= PLAIN_MAX && !self.0.contains(&file) {
            self.0.pop_first();
        }
        self.0.insert(file);
    }
}

impl<K: Container> OpenFile<K> {
    /// What its row says of who stored it.
    pub(crate) fn is_known_as_plain(&self) -> Option<bool> {
        let size = self.container.length().unwrap_or(0);
        BYTES.contains(&size).then_some(self.is_plain)
    }

    /// Nobody is known to have synced it, or locked a part of it, when it was last stored here or
    /// while it is open.
    pub(super) fn is_unshared(&self) -> bool {
        self.is_plain && self.presence.plain != Some(false)
    }
}

impl<K: Container> Files<K> {
    /// Somebody has synced it, or locked a part of it.
    pub(crate) fn is_not_plain(&mut self, file: FileId) {
        self.plain.0.remove(&file);
        let versions = self.open.range_mut((file, 0)..=(file, u32::MAX));
        for (_, open) in versions {
            open.is_plain = false;
            open.presence.plain = Some(false);
        }
    }

    /// A program that could write to it has closed it.
    pub(super) fn closed_by_writer(&mut self, file: FileId, generation: u32) {
        let Some(open) = self.get(file, generation) else { return };
        let fits = BYTES.contains(&open.presence.contents.size);
        if fits && open.is_plain && open.unlinked.is_none() {
            self.plain.insert(file);
        }
    }

    pub(super) fn is_plain(&self, file: FileId, presence: &Presence) -> bool {
        presence.plain == Some(true) || self.plain.0.contains(&file)
    }
}
