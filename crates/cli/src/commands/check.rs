//! `farfs check`.

use crate::data;
use crate::exit::{self, Exit};
use crate::orders::{self, Order};
use anyhow::Result;
use std::path::PathBuf;

/// Check a server's store whole: tables, names, links, versions, chunks
///
/// Reads everything there is, and says of everything that is wrong which file it is about and what
/// to do. With --repair, which needs the server stopped, the index of the chunks and what follows
/// from other rows are made again, and what is sound in a damaged pack is written anew. Chunks that
/// are damaged count as missing: devices that have them in their caches are asked for them when they
/// attach or renew their leases, within seconds where they are in use and the server runs. Check
/// again then to see what is left.
#[derive(clap::Args)]
#[command(after_help = exit::after(
    "farfs check --data /srv/farfs
     farfs check --data /srv/farfs --repair",
    &[Exit::Busy, Exit::Damaged, Exit::NotFound],
))]
pub struct Check {
    /// The server's data directory
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Mend what can be mended
    #[arg(long)]
    repair: bool,
}

impl Check {
    pub fn run(self) -> Result<()> {
        if self.repair {
            data::exists(&self.data)?;
            data::rebuild_index(&self.data)?;
        }
        orders::print(&orders::give(&self.data, &Order::Check { repair: self.repair })?)
    }
}
