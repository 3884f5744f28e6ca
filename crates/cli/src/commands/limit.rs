//! `farfs limit`.

use crate::exit::{self, Exit};
use crate::limits::{Limits, Most, Shares, Stay};
use crate::questions::{self, Question};
use crate::{mounts, output, show};
use anyhow::Result;
use std::path::PathBuf;

/// Show or set how much of the link a mount may use
///
/// Rates are bytes a second on the wire, about, of this mount alone. Who waits for something is held
/// up by a limit too; what goes first is drawn by lottery as ever. What is set holds until the volume
/// is unmounted; `farfs mount --limit-up` and its like, or the configuration file, set it for good.
/// When the month's budget is spent, what nobody waits for is held back until the next month, or
/// `farfs resume`; reading ahead ends at four fifths of it. And where there is one, what nobody waits for
/// stays for 3 minutes before it is sent, unless another time is set: much of what programs write is
/// removed or written over by then, and costs nothing.
#[derive(clap::Args)]
#[command(after_help = exit::after(
    "farfs limit
     farfs limit ~/work --up 50K --down 400K
     farfs limit ~/work --up none
     farfs limit ~/work --budget 5G
     farfs limit ~/work --replay-delay 10min
     farfs limit ~/work --tickets 8:3:3",
    &[Exit::NotFound],
))]
pub struct Limit {
    /// A mount point, or a path in the mount [default: the one around the working directory, or the only one]
    mountpoint: Option<PathBuf>,
    /// Send at most so many bytes a second; `none` lifts the limit
    #[arg(long, value_name = "RATE")]
    up: Option<Most>,
    /// Receive at most so many bytes a second; `none` lifts the limit
    #[arg(long, value_name = "RATE")]
    down: Option<Most>,
    /// Tickets in the lottery of names and what is waited for, of fetches, and of what is sent in the
    /// background
    #[arg(long, value_name = "N:N:N[:N]")]
    tickets: Option<Shares>,
    /// Bytes that may go over the link in a calendar month, both ways; `none` for any number
    #[arg(long, value_name = "SIZE")]
    budget: Option<Most>,
    /// Send what nobody waits for no sooner than so long after it was done; `farfs wait` and
    /// `farfs umount` send it at once. `auto`: 3min where there is a budget, else 0s
    #[arg(long, value_name = "TIME")]
    replay_delay: Option<Stay>,
}

impl Limit {
    pub fn run(self) -> Result<()> {
        let Limit { up, down, tickets, budget, replay_delay, .. } = self;
        let limits = Limits { up, down, tickets, budget, replay_delay }.checked()?;
        let path = self.mountpoint.as_deref().map(mounts::absolute).transpose()?;
        let mount = mounts::meant(path.as_deref())?;
        if limits.is_nothing() {
            return output::text(&show::limits(&questions::status(&mount)?));
        }
        questions::tell(&mount, &Question::Limit(limits))
    }
}
