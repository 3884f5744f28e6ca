//! bindfs: a directory of the local disk, through FUSE. It hands every call on to that and keeps nothing,
//! so that it shows what the way through FUSE costs by itself.

use super::{Backend, mounted};
use crate::mounts;
use crate::process::Process;
use anyhow::{Context, Result};
use bench::undo::{self, Undo};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub struct Bindfs {
    directory: PathBuf,
    root: PathBuf,
    // Dropped in this order: unmounted, then ended.
    mount: Option<(Undo, Process)>,
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
        let process = Process::start(&mut command, &log)
            .context("bindfs cannot be started; it is in the package bindfs of Debian")?;
        let root = self.root.clone();
        let undo = undo::later(move || mounts::unmount(&root));
        mounted(&self.root, "bindfs", &log)?;
        self.mount = Some((undo, process));
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
        // Without its process, a mount answers every call with an error.
        if let Some((undo, process)) = self.mount.take() {
            drop(process);
            drop(undo);
        }
    }
}
