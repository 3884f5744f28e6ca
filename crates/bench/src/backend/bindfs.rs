//! bindfs: a directory of the local disk, through FUSE. It hands every call on to that and keeps nothing,
//! so that it shows what the way through FUSE costs by itself.

use super::{Backend, Mounted};
use crate::mounts;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub struct Bindfs {
    directory: PathBuf,
    root: PathBuf,
    mount: Option<Mounted>,
}

impl Bindfs {
    pub fn start(directory: &Path) -> Result<Self> {
        let root = directory.join("mnt");
        for name in ["bound", "mnt"] {
            let path = directory.join(name);
            fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        }
        let mut bindfs = Self { directory: directory.to_owned(), root, mount: None };
        bindfs.mount()?;
        Ok(bindfs)
    }

    fn mount(&mut self) -> Result<()> {
        let log = self.directory.join("bindfs.log");
        let mut command = Command::new("bindfs");
        command.arg("-f").arg(self.directory.join("bound")).arg(&self.root);
        let mount = Mounted::start(&mut command, &self.root, &log)
            .context("bindfs is in Debian's package of that name")?;
        self.mount = Some(mount);
        Ok(())
    }
}

impl Backend for Bindfs {
    fn root(&self) -> &Path {
        &self.root
    }

    fn settle(&mut self, _within: Duration) -> Result<()> {
        mounts::sync(&self.directory)
    }

    fn make_cold(&mut self) -> Result<()> {
        self.mount = None;
        mounts::drop_caches(&self.directory)?;
        self.mount()
    }

    fn abort(&mut self) {
        if let Some(mount) = self.mount.take() {
            mount.abort();
        }
    }
}
