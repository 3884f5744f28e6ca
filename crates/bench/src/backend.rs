//! The file systems that are compared, as a workload sees them: a directory, a way to have it cold,
//! and a way to know that everything is where it is safe.

pub mod bindfs;
pub mod farfs;
pub mod local;
pub mod memory;
pub mod rsync;
mod ssh;
pub mod sshfs;

use crate::mounts;
use crate::process::{Process, tail};
use anyhow::{Result, bail};
use bench::Link;
use bench::undo::{self, Undo};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The handshake of ssh is a few kilobytes, which a modem takes its time for.
const MOUNTING_MAX: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// One file system, set up and mounted until it is dropped.
pub trait Backend {
    /// Where to work.
    fn root(&self) -> &Path;

    /// Returns when all that was done is at the origin.
    fn settle(&mut self, within: Duration) -> Result<()>;

    /// Forgets everything that this side has cached, as if mounted on another machine.
    fn make_cold(&mut self) -> Result<()>;

    /// Begins anew on the same machine, with what is cached there, over the link as it is now: what
    /// was found out of another link is forgotten.
    fn resume(&mut self) -> Result<()> {
        Ok(())
    }

    /// Works with the link in another way from now on.
    fn set_mode(&mut self, mode: &str) -> Result<()> {
        bail!("there is no mode {mode}")
    }

    /// Whether two names can be one file.
    fn has_hard_links(&self) -> bool {
        true
    }

    /// Lets every call that is under way or yet to come fail soon. For a run that took too long.
    fn abort(&mut self);
}

/// A program that has mounted. Dropped in this order: unmounted, then ended.
struct Mounted {
    undo: Undo,
    process: Process,
}

impl Mounted {
    /// Returns when the program has mounted, which says in `log` what it does.
    fn start(command: &mut Command, root: &Path, log: &Path) -> Result<Self> {
        let process = Process::start(command, log)?;
        let point = root.to_owned();
        let undo = undo::later(move || mounts::unmount(&point));
        let start = Instant::now();
        while !mounts::is_mounted(root) {
            if start.elapsed() > MOUNTING_MAX {
                bail!("{command:?} did not mount: {}", tail(log));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(Self { undo, process })
    }

    /// Without its process, a mount answers every call with an error.
    fn abort(self) {
        drop(self.process);
        drop(self.undo);
    }
}

/// What can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum System {
    Farfs,
    /// FarFS in connected mode: `close` returns when the server has it
    FarfsConnected,
    /// A directory on the local disk, whatever its file system is
    Ext4,
    /// The same directory through FUSE, which hands every call on and keeps nothing: what FUSE costs
    Bindfs,
    /// Files in memory through FUSE: what the way through the kernel takes by itself
    Memory,
    Sshfs,
    /// sshfs with the compression of ssh
    #[value(alias = "sshfs-z")]
    SshfsC,
    /// Work on the local disk, and `rsync -az` to the server when it is done
    RsyncZ,
}

/// How FarFS is run.
#[derive(Clone, Debug)]
pub struct FarfsOptions {
    pub program: PathBuf,
    pub mode: Option<String>,
}

impl System {
    pub fn name(self) -> &'static str {
        match self {
            Self::Farfs => "farfs",
            Self::Ext4 => "ext4",
            Self::Bindfs => "bindfs",
            Self::Memory => "memory",
            Self::Sshfs => "sshfs",
            Self::FarfsConnected => "farfs connected",
            Self::SshfsC => "sshfs -C",
            Self::RsyncZ => "rsync -z",
        }
    }

    pub fn is_farfs(self) -> bool {
        matches!(self, Self::Farfs | Self::FarfsConnected)
    }

    pub fn has_link(self) -> bool {
        !matches!(self, Self::Ext4 | Self::Bindfs | Self::Memory)
    }

    /// Sets it up below `directory`, which is empty, between the ends of the link.
    pub fn start(
        self,
        directory: &Path,
        link: Option<&Link>,
        farfs: &FarfsOptions,
    ) -> Result<Box<dyn Backend>> {
        Ok(match (self, link) {
            (Self::Ext4, _) => Box::new(local::Local::start(directory)?),
            (Self::Bindfs, _) => Box::new(bindfs::Bindfs::start(directory)?),
            (Self::Memory, _) => Box::new(memory::Memory::start(directory)?),
            (Self::Sshfs, Some(link)) => Box::new(sshfs::Sshfs::start(directory, link, false)?),
            (Self::SshfsC, Some(link)) => Box::new(sshfs::Sshfs::start(directory, link, true)?),
            (Self::Farfs, Some(link)) => Box::new(farfs::Farfs::start(directory, link, farfs)?),
            (Self::FarfsConnected, Some(link)) => {
                let connected =
                    FarfsOptions { mode: Some("connected".into()), program: farfs.program.clone() };
                Box::new(farfs::Farfs::start(directory, link, &connected)?)
            }
            (Self::RsyncZ, Some(link)) => Box::new(rsync::Rsync::start(directory, link)?),
            (_, None) => bail!("{} needs a link", self.name()),
        })
    }
}
