//! Which reads move the time of access.

use super::Files;
use crate::types::Handle;

impl<K> Files<K> {
    pub fn first_read_counts(&mut self, handle: Handle) {
        if let Some(state) = self.handles.get_mut(&handle.0) {
            state.counts = true;
        }
    }

    /// Whether a read moves the time of access: once for each time that was asked for.
    pub(super) fn read_counts(&mut self, handle: Handle) -> bool {
        self.handles.get_mut(&handle.0).is_some_and(|state| std::mem::take(&mut state.counts))
    }
}
