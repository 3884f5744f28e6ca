//! `farfs status`.

use crate::exit::{self, Exit, fail};
use crate::mounts::{self, Entry};
use crate::{output, questions, show};
use anyhow::Result;
use protocol::Status;
use serde::Serialize;
use std::path::PathBuf;

/// Show mounts: mode, link, cache, and what is not yet at the server
///
/// With --json: an object for the mount that was named, or else a list of objects, one for each
/// mount.
#[derive(clap::Args)]
#[command(after_help = exit::after(
    "farfs status
     farfs status ~/work --json",
    &[Exit::NotFound],
))]
pub struct Show {
    /// A mount point, or a path in the mount [default: all mounts]
    mountpoint: Option<PathBuf>,
    /// For programs
    #[arg(long)]
    json: bool,
}

/// What programs read: all of the status, and at the top what they ask for most.
#[derive(Serialize)]
struct Machine<'a> {
    pending_updates: u64,
    #[serde(flatten)]
    status: &'a Status,
}

impl Machine<'_> {
    fn new(status: &Status) -> Machine<'_> {
        Machine { pending_updates: status.pending.updates, status }
    }
}

impl Show {
    pub fn run(self) -> Result<()> {
        let one = self.mountpoint.as_deref().map(mounts::holding).transpose()?;
        if let (Some(entry), true) = (&one, self.json) {
            return output::json(&Machine::new(&questions::status(entry)?));
        }
        let all = one.is_none();
        let entries: Vec<Entry> = one.map_or_else(mounts::live, |entry| vec![entry]);
        let (mut statuses, mut silent) = (Vec::new(), None);
        for entry in &entries {
            match questions::status(entry) {
                Ok(status) => statuses.push(status),
                Err(error) => {
                    // The last is said at the end.
                    if let Some(before) = silent.replace(error) {
                        eprintln!("farfs: {}", exit::words(&before));
                    }
                }
            }
        }
        if self.json {
            let list: Vec<_> = statuses.iter().map(Machine::new).collect();
            output::json(&list)?;
        } else {
            let texts: Vec<_> = statuses.iter().map(show::status).collect();
            output::text(&texts.join("\n"))?;
        }
        let dead = if all { show_dead(&entries) } else { 0 };
        match silent {
            Some(error) => Err(error),
            None if entries.is_empty() && dead == 0 => {
                Err(fail(Exit::NotFound, "no farfs volume is mounted"))
            }
            None => Ok(()),
        }
    }
}

/// Mounts that no entry was found for: most often their process has died.
fn show_dead(live: &[Entry]) -> usize {
    let dead: Vec<_> = mounts::own_farfs_mountpoints()
        .into_iter()
        .filter(|mountpoint| live.iter().all(|entry| entry.mountpoint != *mountpoint))
        .collect();
    for mountpoint in &dead {
        eprintln!("farfs: {}", mounts::unlisted(mountpoint));
    }
    dead.len()
}
