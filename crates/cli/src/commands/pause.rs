//! `farfs pause` and `farfs resume`.

use crate::exit::{self, Exit};
use crate::mounts;
use crate::questions::{self, Question};
use anyhow::Result;
use std::path::PathBuf;

/// Send nothing, and fetch nothing ahead, until `farfs resume`
///
/// What is changed meanwhile waits in the local log, and nobody waits for it. What is read and is not
/// cached is fetched all the same, and what others change is seen. It stays so over unmounting and
/// starting again. Nobody else sees what is changed here until it is sent.
#[derive(clap::Args)]
#[command(after_help = exit::after(
    "farfs pause
     farfs pause ~/work",
    &[Exit::NotFound],
))]
pub struct Pause {
    /// A mount point, or a path in the mount [default: the one around the working directory, or the only one]
    mountpoint: Option<PathBuf>,
}

/// Go on sending, and fetching ahead, after `farfs pause`
#[derive(clap::Args)]
#[command(after_help = exit::after(
    "farfs resume
     farfs resume ~/work",
    &[Exit::NotFound],
))]
pub struct Resume {
    /// A mount point, or a path in the mount [default: the one around the working directory, or the only one]
    mountpoint: Option<PathBuf>,
}

impl Pause {
    pub fn run(self) -> Result<()> {
        set(self.mountpoint, true)
    }
}

impl Resume {
    pub fn run(self) -> Result<()> {
        set(self.mountpoint, false)
    }
}

fn set(mountpoint: Option<PathBuf>, paused: bool) -> Result<()> {
    let path = mountpoint.as_deref().map(mounts::absolute).transpose()?;
    questions::tell(&mounts::meant(path.as_deref())?, &Question::Pause(paused))
}
