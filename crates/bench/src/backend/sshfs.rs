//! sshfs, over an sshd of its own.

use super::{Backend, Mounted, ssh};
use crate::mounts;
use crate::process::{Process, tail};
use anyhow::{Context, Result};
use bench::{End, Link};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub struct Sshfs {
    directory: PathBuf,
    root: PathBuf,
    near: End,
    far: End,
    // Dropped in this order: the client, then the server.
    mount: Option<Mounted>,
    _server: Process,
}

impl Sshfs {
    pub fn start(directory: &Path, link: &Link, compressed: bool) -> Result<Self> {
        ssh::check("sshfs", &["sshfs"])?;
        let root = directory.join("mnt");
        for name in ["export", "mnt"] {
            let path = directory.join(name);
            fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        }
        let server = ssh::serve(directory, link, compressed)?;
        let (near, far) = (link.near().clone(), link.far().clone());
        let directory = directory.to_owned();
        let mut sshfs = Self { directory, root, near, far, mount: None, _server: server };
        sshfs.mount()?;
        Ok(sshfs)
    }

    fn mount(&mut self) -> Result<()> {
        let log = self.directory.join("sshfs.log");
        let export = self.directory.join("export");
        let mut command = self.near.command("sshfs");
        command
            .arg("-f")
            .args(["-o", &format!("ssh_command={}", ssh::command(&self.directory))])
            .arg(format!("root@{}:{}", self.far.address(), export.display()))
            .arg(&self.root);
        let mount = Mounted::start(&mut command, &self.root, &log)?;
        // The mount answers only once the connection is made.
        fs::metadata(&self.root)
            .with_context(|| format!("sshfs does not answer: {}", tail(&log)))?;
        self.mount = Some(mount);
        Ok(())
    }
}

impl Backend for Sshfs {
    fn root(&self) -> &Path {
        &self.root
    }

    fn settle(&mut self, _within: Duration) -> Result<()> {
        // The server has what was closed; what is left is what the kernel holds back.
        mounts::sync(&self.root)
    }

    fn make_cold(&mut self) -> Result<()> {
        self.mount = None;
        self.mount()
    }

    /// It makes them, and gives each name an inode number of its own, which git does not accept.
    fn has_hard_links(&self) -> bool {
        false
    }

    fn abort(&mut self) {
        if let Some(mount) = self.mount.take() {
            mount.abort();
        }
    }
}
