//! `farfs gc`.

use crate::exit::{self, Exit};
use crate::orders::{self, Order};
use anyhow::Result;
use std::path::PathBuf;

/// Give back the space of what a server no longer needs
///
/// Prunes versions that were replaced longer ago than their volume keeps them, puts chunks that
/// nothing names into the trash, empties it down to its size, and rewrites packs. A running server
/// does it by itself now and then; this does it at once, while it serves or while it does not.
#[derive(clap::Args)]
#[command(after_help = exit::after(
    "farfs gc --data /srv/farfs
     farfs gc --data /srv/farfs --dry-run
     farfs gc --data /srv/farfs --empty-trash
     farfs gc --data /srv/farfs --empty-trash --forget-sent",
    &[Exit::Busy, Exit::Damaged, Exit::NotFound],
))]
pub struct Gc {
    /// The server's data directory
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Change nothing: say what would be done
    #[arg(long)]
    dry_run: bool,
    /// Leave nothing in the trash but what a client was told lately to be there
    #[arg(long)]
    empty_trash: bool,
    /// With --empty-trash: not that either, which is for a full disk. What is being sent just now
    /// is sent again
    #[arg(long, requires = "empty_trash", conflicts_with = "dry_run")]
    forget_sent: bool,
}

impl Gc {
    pub fn run(self) -> Result<()> {
        let Gc { dry_run, empty_trash, forget_sent, .. } = self;
        let order = Order::Collect { dry_run, empty_trash, forget_sent };
        orders::print(&orders::give(&self.data, &order)?)
    }
}
