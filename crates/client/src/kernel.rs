//! The kernel's side of a mount: whom to tell what it must forget, and what it wrote by itself.

use crate::files::Closing;
use crate::types::Kernel;
use std::sync::{Arc, OnceLock};

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
