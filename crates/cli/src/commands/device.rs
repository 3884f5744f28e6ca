//! `farfs device`.

use crate::exit::{self, Exit};
use crate::orders::{self, Order};
use anyhow::Result;
use clap::Subcommand;
use std::path::PathBuf;

/// List the devices that a server knows, and remove one
#[derive(clap::Args)]
#[command(after_help = exit::after(
    "farfs device list --data /srv/farfs
     farfs device remove --data /srv/farfs 96553a36",
    &[Exit::Busy, Exit::Damaged, Exit::NotFound],
))]
pub struct Device {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List devices: id, volume, what they may do, since when, name
    List {
        /// The server's data directory
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
    },
    /// Let a device in no more
    Remove {
        /// The server's data directory
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
        /// Its id, or so much of its beginning that no other has it; or its name
        device: String,
    },
}

impl Device {
    pub fn run(self) -> Result<()> {
        let (data, order) = match self.command {
            Command::List { data } => (data, Order::ListDevices),
            Command::Remove { data, device } => (data, Order::RemoveDevice { device }),
        };
        orders::print(&orders::give(&data, &order)?)
    }
}
