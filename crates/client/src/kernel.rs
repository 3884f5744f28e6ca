//! The kernel's side of a mount: whom to tell what it must forget, and what it wrote by itself.

use crate::client::Client;
use crate::files::Closing;
use crate::types::Kernel;
use model::FileId;
use protocol::Upstream;
use std::sync::{Arc, OnceLock};
use store::Containers;

#[derive(Default)]
pub(crate) struct TheKernel {
    told: OnceLock<Arc<dyn Kernel>>,
    /// What it wrote by itself and was closed.
    pub closing: Closing,
}

impl TheKernel {
    /// None: nothing is mounted.
    pub fn get(&self) -> Option<&Arc<dyn Kernel>> {
        self.told.get()
    }

    /// The first one stays.
    pub fn set(&self, kernel: Arc<dyn Kernel>) {
        // A second mount of one client would be the caller's mistake, and harmless.
        let _ = self.told.set(kernel);
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// What the kernel knows of a file's attributes it asks for when they are wanted next.
    pub fn forget_attributes(&self, file: FileId) {
        if let Some(kernel) = self.inner.kernel.get()
            && !kernel.forget_node(file, false)
        {
            tracing::debug!(%file, "the kernel may show its size and times as they were");
        }
    }
}
