//! Files by which processes share memory, and what they protect by it: SQLite's, in wal mode.

use crate::client::Client;
use crate::locks;
use crate::types::Error;
use model::{FileId, Name, View};
use protocol::Upstream;
use std::sync::atomic::Ordering;
use store::Containers;
use volume::partial::Tree;

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Whether processes may share memory by a file, for all that is known of its name.
    pub(super) fn shares_memory(&self, file: FileId) -> bool {
        let Ok(read) = self.inner.tables.read() else { return true };
        let epoch = self.inner.epoch.load(Ordering::Acquire);
        let tree = Tree::new(&*read, epoch);
        let name = tree.name_of(file).ok().flatten();
        locks::shares_memory(name.as_ref().map(|(_, name)| name.as_bytes()))
    }

    /// Who waited for such memory had the log open already, as it was then.
    pub(super) async fn go_on_with_companions(&self, file: FileId) -> Result<(), Error> {
        if !self.locks().knows(file) {
            return Ok(());
        }
        for file in self.companions(file) {
            self.come_to_newest(file, None).await?;
        }
        Ok(())
    }

    /// The database, and the log of it, whose processes share memory by this file.
    fn companions(&self, file: FileId) -> Vec<FileId> {
        let Ok(read) = self.inner.tables.read() else { return Vec::new() };
        let tree = Tree::new(&*read, self.inner.epoch.load(Ordering::Acquire));
        let Some((directory, name)) = tree.name_of(file).ok().flatten() else { return Vec::new() };
        let names = locks::companions(name.as_bytes()).into_iter();
        let names = names.filter_map(|name| Name::new(name).ok());
        names.filter_map(|name| tree.entry(directory, &name).ok().flatten()).collect()
    }
}
