//! What a kill or a power cut leaves of containers, of which one may have several names.

use super::MemoryContainer;
use std::collections::BTreeMap;
use std::sync::Arc;

/// By where each was.
#[derive(Default)]
pub(super) struct Left(BTreeMap<usize, MemoryContainer>);

impl Left {
    pub fn of(
        &mut self,
        container: &MemoryContainer,
        left: impl FnOnce() -> MemoryContainer,
    ) -> MemoryContainer {
        let place = Arc::as_ptr(&container.0).addr();
        self.0.entry(place).or_insert_with(left).clone()
    }
}
