//! `farfs mode`.

use crate::exit::{self, Exit};
use crate::questions::{self, Question};
use crate::wishes::ModeName;
use crate::{mounts, output, show};
use anyhow::Result;
use std::path::PathBuf;

/// Show or set how a mount works with the link
///
/// A mode that is set holds until the volume is unmounted; auto goes by the link again: connected while it
/// is near, fast enough and loses little, and somebody else uses the volume; else partial. Without a mode,
/// what it is, why, and the last changes are shown.
#[derive(clap::Args)]
#[command(after_help = exit::after(
    "farfs mode ~/work
     farfs mode ~/work fetch-only
     farfs mode ~/work auto",
    &[Exit::NotFound],
))]
pub struct Mode {
    /// A mount point, or a path in the mount
    mountpoint: PathBuf,
    /// The mode to set; without it, the mode is shown
    #[arg(value_enum)]
    mode: Option<ModeName>,
}

impl Mode {
    pub fn run(self) -> Result<()> {
        let mount = mounts::holding(&self.mountpoint)?;
        if let Some(mode) = self.mode {
            return questions::tell(&mount, &Question::Mode(mode));
        }
        output::line(&show::mode_with_changes(&questions::status(&mount)?))
    }
}
