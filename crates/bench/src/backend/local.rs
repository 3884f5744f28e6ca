//! A directory on the local disk: as fast as it gets, and nowhere else.

use super::Backend;
use crate::mounts;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub struct Local {
    root: PathBuf,
}

impl Local {
    pub fn start(directory: &Path) -> Result<Self> {
        let root = directory.join("local");
        std::fs::create_dir_all(&root)
            .with_context(|| format!("cannot make {}", root.display()))?;
        Ok(Self { root })
    }
}

impl Backend for Local {
    fn root(&self) -> &Path {
        &self.root
    }

    fn settle(&mut self, _within: Duration) -> Result<()> {
        mounts::sync(&self.root)
    }

    /// The kernel drops what it has cached of every file system.
    fn make_cold(&mut self) -> Result<()> {
        mounts::sync(&self.root)?;
        std::fs::write("/proc/sys/vm/drop_caches", "3").context("cannot drop the kernel's caches")
    }

    fn abort(&mut self) {}
}
