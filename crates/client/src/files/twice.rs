//! What the kernel has cached of a file that it will read from the container from now on.
//! Holds: only what nobody reads through that cache is dropped, and only where whoever opens the file
//! next to read it is lent the container.
//! From: the kernel's `fs/fuse/iomode.c`: an inode by which a container is lent has no pages of its own.
//!
//! What a program writes by way of the daemon is in memory twice: as pages of the kernel's for the
//! mount, and as those of the container. Whoever opens a large file next is lent the container, and
//! waits while the kernel drops the first: 60 ms for 256 MiB.

use super::lending::READ_BYTES_MIN;
use super::{Files, OpenFile};
use crate::client::Client;
use crate::types::OpenFlags;
use model::FileId;
use protocol::Upstream;
use store::{Container, Containers};

impl<K: Container> OpenFile<K> {
    /// When one is closed who only wrote to it, by way of the kernel's cache. Who reads it as well is
    /// likely to go on with what is cached.
    pub(super) fn is_cached_twice(&self) -> bool {
        self.cached_handles == 0
            && self.unlinked.is_none()
            && self.is_unshared()
            && self.presence.is_whole()
            && self.container.length().is_ok_and(|length| length >= READ_BYTES_MIN)
    }
}

impl<K: Container> Files<K> {
    /// Those of which nobody uses that cache.
    fn take_cached_twice(&mut self) -> Vec<FileId> {
        let mut files = std::mem::take(&mut self.twice);
        files.retain(|file| self.all_generations(*file).all(|open| open.cached_handles == 0));
        files.into_iter().collect()
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    pub(super) fn drop_what_is_cached_twice(&self) {
        let files = self.files().take_cached_twice();
        let Some(kernel) = self.inner.kernel.get() else { return };
        let reads = OpenFlags { read: true, ..OpenFlags::default() };
        for file in files {
            if self.lends(file, reads).to_readers && kernel.takes_none().is_none() {
                kernel.forget_node(file, true);
            }
        }
    }
}
