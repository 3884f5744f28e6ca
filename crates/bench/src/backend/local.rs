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

    fn make_cold(&mut self) -> Result<()> {
        mounts::drop_caches(&self.root)
    }

    fn abort(&mut self) {}
}
