//! `bench memory`: the file system in memory that others are compared with, by itself.

use crate::{memory, mounts};
use anyhow::{Context, Result};
use bench::undo;
use clap::Args;
use std::path::PathBuf;

/// Mount a file system in memory until it is unmounted
#[derive(Args)]
pub struct Memory {
    /// Where to mount it
    #[arg(value_name = "DIR")]
    mountpoint: PathBuf,
}

impl Memory {
    pub fn run(self) -> Result<()> {
        let shown = || format!("cannot find {}", self.mountpoint.display());
        let point = self.mountpoint.canonicalize().with_context(shown)?;
        let mounted = point.clone();
        // By a signal. Else it is gone by then.
        let _undo = undo::later(move || {
            if mounts::is_mounted(&mounted) {
                mounts::unmount(&mounted);
            }
        });
        memory::serve(&point)
    }
}
