//! Files that are made longer around the kernel's cache.
//! Holds: the kernel is told of no length beyond which a page that it has may have been read before it was
//! written. It counts what lies behind the end as read, too, and as zeros.
//! Never: holds a length back while a write waits, or from a kernel that has the file by several numbers: by
//! another one it may be made longer meanwhile, and a mapping of that would be cut.

use super::{Files, OpenFile};
use crate::client::{Client, failed};
use crate::types::{Error, Handle, Step};
use model::FileId;
use protocol::Upstream;
use store::{Container, Containers, Result as StoreResult};

/// The length that is told of, and how many writes have it told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeldBack {
    length: u64,
    writes: u32,
}

/// One more write begins where the file is so long.
fn begun(held: Option<HeldBack>, length: u64) -> HeldBack {
    match held {
        Some(held) => HeldBack { length: held.length.min(length), writes: held.writes + 1 },
        None => HeldBack { length, writes: 1 },
    }
}

/// One of them is over.
fn over(held: HeldBack) -> Option<HeldBack> {
    let writes = held.writes.saturating_sub(1);
    (writes > 0).then_some(HeldBack { writes, ..held })
}

/// A write that makes a file longer. Until this is dropped, the kernel is told of the length before it.
pub struct Growing<U: Upstream, C: Containers> {
    client: Client<U, C>,
    file: FileId,
    generation: u32,
    from: u64,
    was_cached: bool,
    /// The last handle that had been given then.
    last_handle: u64,
}

impl<U: Upstream, C: Containers> Growing<U, C> {
    /// Whether the kernel may have read the end of the file into its cache before this was written.
    pub fn may_be_cached(&self) -> bool {
        let files = self.client.files();
        let is_cached = files.is_cached(self.file, self.generation);
        // Who came meanwhile may have gone.
        self.was_cached || is_cached || files.last_handle != self.last_handle
    }

    /// It has been written: the kernel drops what it has of the end, and only then is told of the length. Never
    /// called by a thread that answers requests, since the kernel may wait for one of those.
    pub fn is_read_anew(self) {
        if let Some(kernel) = self.client.inner.kernel.get()
            && !kernel.forget_from(self.file, self.from)
        {
            tracing::debug!(file = %self.file, "the kernel may show zeros at its end for a while");
        }
    }
}

impl<U: Upstream, C: Containers> Drop for Growing<U, C> {
    fn drop(&mut self) {
        if let Some(open) = self.client.files().get_mut(self.file, self.generation) {
            open.held_back = open.held_back.and_then(over);
        }
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Whether somebody may write to a file around the kernel's cache. Of two answers about such a file the
    /// kernel may take in the older one last, which must not show to who has seen the other.
    pub fn is_written_around(&self, file: FileId) -> bool {
        self.files().all_generations(file).any(|open| open.around_handles > 0)
    }

    /// Before so many bytes are written through a handle. None: the kernel knows by itself how long the file
    /// becomes, or it becomes no longer.
    pub fn grows(&self, handle: Handle, offset: u64, bytes: u64) -> Step<Option<Growing<U, C>>> {
        if self.inner.kernel.get().is_none() {
            return Ok(None);
        }
        let mut files = self.files();
        let state = *files.handles.get(&handle.0).ok_or(Error::BadHandle)?;
        if !state.direct || self.numbers().has_several(state.file) {
            return Ok(None);
        }
        let (file, generation) = (state.file, state.generation);
        let (was_cached, last_handle) = (files.is_cached(file, generation), files.last_handle);
        let open = files.get_mut(file, generation).ok_or(Error::BadHandle)?;
        let from = open.container.length().map_err(failed)?;
        if !state.flags.append && offset.saturating_add(bytes) <= from {
            return Ok(None);
        }
        open.held_back = Some(begun(open.held_back, from));
        drop(files);
        let client = self.clone();
        Ok(Some(Growing { client, file, generation, from, was_cached, last_handle }))
    }
}

impl<K: Container> Files<K> {
    pub(crate) fn appends_directly(&self, handle: Handle) -> bool {
        self.handles.get(&handle.0).is_some_and(|state| state.direct && state.flags.append)
    }

    fn is_cached(&self, file: FileId, generation: u32) -> bool {
        self.get(file, generation).is_some_and(|open| open.cached_handles > 0)
    }
}

impl<K: Container> OpenFile<K> {
    /// The length that the kernel is told of.
    pub(super) fn length_told(&self) -> StoreResult<u64> {
        Ok(self.length_told_of(self.container.length()?))
    }

    /// The same, of a length that was looked at.
    pub(super) fn length_told_of(&self, length: u64) -> u64 {
        self.held_back.map_or(length, |held| length.min(held.length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_writes_the_least_length_is_told_until_the_last_is_over() {
        let one = begun(None, 16);
        assert_eq!(one, HeldBack { length: 16, writes: 1 });
        let two = begun(Some(one), 32);
        assert_eq!(over(two), Some(one));
        assert_eq!(begun(Some(two), 8), HeldBack { length: 8, writes: 3 });
        assert_eq!(over(one), None);
    }
}
