//! Copying from one open file to another.

use crate::client::Client;
use crate::types::{Handle, Step};
use protocol::Upstream;
use store::Containers;

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Copies a stretch from one open file to another; the bytes copied, at most 1 MiB.
    pub fn copy(
        &self,
        from: Handle,
        from_offset: u64,
        to: Handle,
        to_offset: u64,
        length: u64,
    ) -> Step<u64> {
        const STEP_BYTES_MAX: u64 = 1 << 20;
        let length = usize::try_from(length.min(STEP_BYTES_MAX)).unwrap_or(1 << 20);
        let bytes = self.read(from, from_offset, length)?;
        if !bytes.is_empty() {
            self.write(to, to_offset, &bytes)?;
        }
        Ok(bytes.len() as u64)
    }
}
