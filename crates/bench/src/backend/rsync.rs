//! `rsync -az` over ssh: work is done on the local disk, and pushed when it is done.
//! Holds: a push is one connection, and ends with its time.

use super::{Backend, ssh};
use crate::mounts;
use crate::process::{Process, run_within};
use anyhow::{Context, Result};
use bench::{End, Link};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub struct Rsync {
    directory: PathBuf,
    root: PathBuf,
    near: End,
    far: End,
    _server: Process,
}

impl Rsync {
    pub fn start(directory: &Path, link: &Link) -> Result<Self> {
        ssh::check("rsync -z", &["rsync"])?;
        let root = directory.join("local");
        for path in [&root, &directory.join("export")] {
            std::fs::create_dir_all(path)
                .with_context(|| format!("cannot make {}", path.display()))?;
        }
        // What rsync compresses, ssh need not.
        let server = ssh::serve(directory, link, false)?;
        let (near, far) = (link.near().clone(), link.far().clone());
        Ok(Self { directory: directory.to_owned(), root, near, far, _server: server })
    }
}

impl Backend for Rsync {
    fn root(&self) -> &Path {
        &self.root
    }

    fn settle(&mut self, within: Duration) -> Result<()> {
        let export = self.directory.join("export");
        let mut command = self.near.command("rsync");
        command
            .args(["-az", "--delete", "-e", &ssh::command(&self.directory)])
            .arg(format!("{}/", self.root.display()))
            .arg(format!("root@{}:{}/", self.far.address(), export.display()));
        run_within(&mut command, &self.directory.join("rsync.log"), within)
    }

    /// There is nothing to forget: whoever works with it has a whole copy.
    fn make_cold(&mut self) -> Result<()> {
        mounts::sync(&self.root)
    }

    fn abort(&mut self) {
        bench::link::namespace::end(&self.near.pids());
    }
}
