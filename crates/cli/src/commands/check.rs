//! `farfs check`.

use crate::data;
use crate::exit::{self, Exit, fail};
use crate::orders::{self, Order};
use crate::upkeep::Findings;
use anyhow::Result;
use std::path::PathBuf;

/// Check a server's store whole: tables, names, links, versions, chunks
///
/// Reads everything there is, and says of everything that is wrong which file it is about and what
/// to do: a line each on standard output, and a summary at the end.
///
/// With --repair, which needs the server stopped, these are mended: the index of the chunks, rows
/// that follow from other rows (references, counts), and damaged packs, of which what is sound is
/// written anew. Chunks that are damaged count as missing: devices that have them in their caches
/// are asked for them when they attach or renew their leases, within seconds where they are in use
/// and the server runs. Check again then to see what is left.
///
/// Only a backup brings back the rest: damaged rows of tables.redb that nothing else says (names,
/// attributes, versions, volumes, devices), a lost tables.redb or server.pem, and chunks that no
/// device has. Keep a copy of the directory as it is, and put all of a backup of one moment back.
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
        let answer = orders::give(&self.data, &Order::Check { repair: self.repair })?;
        let Some(findings) = read(&answer) else { return orders::print(&answer) };
        orders::print(&findings.lines)?;
        match findings.left {
            Some(left) => Err(fail(Exit::Damaged, format!("{}: {left}", self.data.display()))),
            None => Ok(()),
        }
    }
}

/// None: a server that has been running since before findings were told apart answers in lines.
fn read(answer: &[String]) -> Option<Findings> {
    match answer {
        [line] => serde_json::from_str(line).ok(),
        _ => None,
    }
}
