//! `farfs man`.

use crate::exit;
use anyhow::{Context, Result};
use std::path::PathBuf;

/// Write the man pages into a directory
#[derive(clap::Args)]
#[command(after_help = exit::after("farfs man /usr/local/share/man/man1", &[]))]
pub struct Man {
    /// It must exist
    directory: PathBuf,
}

impl Man {
    pub fn run(self, table: clap::Command) -> Result<()> {
        clap_mangen::generate_to(table, &self.directory)
            .with_context(|| format!("cannot write man pages to {}", self.directory.display()))
    }
}
