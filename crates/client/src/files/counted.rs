//! What is known of a handle, and what the handles of an open version come to.

use super::OpenFile;
use crate::types::OpenFlags;
use model::FileId;

#[derive(Clone, Copy, Debug)]
pub(super) struct HandleState {
    pub file: FileId,
    pub generation: u32,
    pub flags: OpenFlags,
    pub direct: bool,
    /// Through the container that the kernel has been lent of this file.
    pub lent: bool,
    /// Writes through it do not pass here.
    pub unseen: bool,
    /// What is written through it the kernel's cache does not see, and it passes here.
    pub writes_around: bool,
    /// It is counted among those that may write.
    pub counts_as_writing: bool,
    /// Of a fetch, which goes on with the version that it began with.
    pub fetches: bool,
    /// The next read moves the time of access.
    pub counts: bool,
    /// By which number the kernel has it.
    pub number: u64,
    /// The kernel tells of each close, though it is only read through.
    pub tells: bool,
}

impl HandleState {
    /// For who brings contents, past what the kernel knows.
    pub fn of_fetch(file: FileId, generation: u32) -> HandleState {
        let flags = OpenFlags { read: true, ..OpenFlags::default() };
        HandleState {
            file,
            generation,
            flags,
            direct: true,
            lent: false,
            unseen: false,
            writes_around: false,
            counts_as_writing: false,
            fetches: true,
            counts: false,
            number: 0,
            tells: false,
        }
    }
}

impl<K> OpenFile<K> {
    pub(super) fn add(&mut self, state: &HandleState) {
        self.handles += 1;
        self.cached_handles += u32::from(!state.direct);
        self.around_handles += u32::from(state.writes_around);
        self.writing_handles += u32::from(state.counts_as_writing);
    }

    pub(super) fn take_off(&mut self, state: &HandleState) {
        self.handles -= 1;
        self.cached_handles -= u32::from(!state.direct);
        self.around_handles -= u32::from(state.writes_around);
        self.writing_handles -= u32::from(state.counts_as_writing);
    }
}
