//! `farfs invite`.

use crate::data::MAIN_VOLUME;
use crate::exit::{self, Exit};
use crate::orders::{self, Order};
use crate::units::Patience;
use anyhow::Result;
use std::path::PathBuf;

/// Invite one device to a volume
///
/// Prints the URL that `farfs mount` takes on that device. It is good once: give it to nobody
/// else. It works while the server runs and while it does not.
#[derive(clap::Args)]
#[command(after_help = exit::after(
    "farfs invite --data /srv/farfs
     farfs invite --data /srv/farfs --volume docs --read-only --expires-in 7d",
    &[Exit::Busy, Exit::Damaged, Exit::NotFound],
))]
pub struct Invite {
    /// The server's data directory
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// What the device may mount
    #[arg(long, value_name = "NAME", default_value = MAIN_VOLUME)]
    volume: String,
    /// The device may read and not write
    #[arg(long)]
    read_only: bool,
    /// How long the invitation is good if it is not used [default: for ever]
    #[arg(long, value_name = "TIME")]
    expires_in: Option<Patience>,
}

impl Invite {
    pub fn run(self) -> Result<()> {
        let order = Order::Invite {
            volume: self.volume,
            read_only: self.read_only,
            lasts: self.expires_in.map(|time| time.0),
        };
        orders::print(&orders::give(&self.data, &order)?)
    }
}
