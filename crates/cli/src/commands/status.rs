//! `farfs status`.

use crate::exit::{self, Exit, OrExit, fail};
use crate::mounts::{self, Entry};
use crate::orders::{self, Order};
use crate::tree_status::TreeStatus;
use crate::{output, questions, show};
use anyhow::Result;
use protocol::Status;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Show mounts: mode, link, cache, and what is not yet at the server
///
/// With --json: an object for the mount that was named, or else a list of objects, one for each
/// mount. With --data: the directories that a server of this machine keeps in step with its volumes
/// (`farfs serve --tree`), whether they can be changed, and what is not carried over, and why.
#[derive(clap::Args)]
#[command(after_help = exit::after(
    "farfs status
     farfs status ~/work --json
     farfs status --data /srv/farfs",
    &[Exit::NotFound],
))]
pub struct Show {
    /// A mount point, or a path in the mount [default: all mounts]
    mountpoint: Option<PathBuf>,
    /// Show the directories of a server's volumes, by its data directory
    #[arg(long, value_name = "DIR", conflicts_with = "mountpoint")]
    data: Option<PathBuf>,
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
        if let Some(data) = &self.data {
            return show_trees(data, self.json);
        }
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
                        output::tell(exit::words(&before));
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

fn show_trees(data: &Path, json: bool) -> Result<()> {
    let answer = orders::give(data, &Order::ListTrees)?;
    let trees: Result<Vec<TreeStatus>, _> =
        answer.iter().map(|line| serde_json::from_str(line)).collect();
    let trees = trees.or_exit(Exit::Failure, "the server is of another version; start it again")?;
    if json {
        return output::json(&trees);
    }
    if trees.is_empty() {
        return output::text("no volume is kept in step with a directory\n");
    }
    output::text(&trees.iter().map(TreeStatus::text).collect::<String>())
}

/// Mounts that no entry was found for: most often their process has died.
fn show_dead(live: &[Entry]) -> usize {
    let dead = mounts::unlisted_mountpoints(live);
    dead.iter().for_each(|mountpoint| output::tell(mounts::unlisted(mountpoint)));
    dead.len()
}
