//! What the handles of an open version come to.

use super::{HandleState, OpenFile};

impl HandleState {
    /// What is written through it the kernel's cache does not see, and it passes here.
    fn writes_around(&self) -> bool {
        self.direct && self.flags.write && !self.lent
    }
}

impl<K> OpenFile<K> {
    pub(super) fn add(&mut self, state: &HandleState) {
        self.handles += 1;
        self.cached_handles += u32::from(!state.direct);
        self.around_handles += u32::from(state.writes_around());
        self.writing_handles += u32::from(state.counts_as_writing);
    }

    pub(super) fn take_off(&mut self, state: &HandleState) {
        self.handles -= 1;
        self.cached_handles -= u32::from(!state.direct);
        self.around_handles -= u32::from(state.writes_around());
        self.writing_handles -= u32::from(state.counts_as_writing);
    }
}
