//! `farfs conflicts`.

use crate::data::MAIN_VOLUME;
use crate::exit::{self, Exit};
use crate::orders::{self, Order};
use anyhow::Result;
use std::path::PathBuf;

/// List the conflicts of a volume: what was kept aside, whose it is, and what it met
#[derive(clap::Args)]
#[command(after_help = exit::after(
    "farfs conflicts --data /srv/farfs --volume main",
    &[Exit::Busy, Exit::Damaged, Exit::NotFound],
))]
pub struct Conflicts {
    /// The server's data directory
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// The volume
    #[arg(long, value_name = "NAME", default_value = MAIN_VOLUME)]
    volume: String,
}

impl Conflicts {
    pub fn run(self) -> Result<()> {
        let order = Order::ListConflicts { volume: self.volume };
        orders::print(&orders::give(&self.data, &order)?)
    }
}
