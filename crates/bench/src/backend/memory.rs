//! A file system in memory, through FUSE, by this same program. It shows what the way through FUSE takes
//! by itself, without the kernel's writeback cache.

use super::{Backend, Mounted};
use crate::mounts;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub struct Memory {
    root: PathBuf,
    mount: Option<Mounted>,
}

impl Memory {
    pub fn start(directory: &Path) -> Result<Self> {
        let root = directory.join("mnt");
        fs::create_dir_all(&root).with_context(|| format!("cannot make {}", root.display()))?;
        let program = std::env::current_exe().context("this program cannot be found")?;
        let mut command = Command::new(program);
        command.arg("memory").arg(&root);
        let mount = Mounted::start(&mut command, &root, &directory.join("memory.log"))?;
        Ok(Self { root, mount: Some(mount) })
    }
}

impl Backend for Memory {
    fn root(&self) -> &Path {
        &self.root
    }

    /// It is nowhere safer than where it is.
    fn settle(&mut self, _within: Duration) -> Result<()> {
        Ok(())
    }

    /// What is in its memory it cannot forget, because it has nothing else: it stays mounted, and only
    /// the kernel forgets what it has of it.
    fn make_cold(&mut self) -> Result<()> {
        mounts::drop_caches(&self.root)
    }

    fn abort(&mut self) {
        if let Some(mount) = self.mount.take() {
            mount.abort();
        }
    }
}
