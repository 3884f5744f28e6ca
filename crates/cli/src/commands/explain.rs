//! `farfs explain`.

use crate::exit::{self, Exit};
use crate::{mounts, output, paths, questions, show};
use anyhow::Result;
use std::path::PathBuf;

/// Say where a file's contents are, which version it is, how far its changes have come, and why
#[derive(clap::Args)]
#[command(after_help = exit::after(
    "farfs explain ~/work/report.txt",
    &[Exit::NotFound, Exit::Unreachable],
))]
pub struct Explain {
    /// A file or directory in a mount
    path: PathBuf,
    /// For programs
    #[arg(long)]
    json: bool,
}

impl Explain {
    pub fn run(self) -> Result<()> {
        let path = paths::opened(&self.path)?;
        let mount = mounts::holding(&path)?;
        // A process that does not answer would hold up whoever looks at the file, too.
        questions::status(&mount)?;
        let explained =
            questions::explain(&mount, mounts::inode(&path)?, path.display().to_string())?;
        if self.json {
            output::json(&explained)
        } else {
            output::text(&show::explanation(&explained))
        }
    }
}
