//! `farfs snapshot`.

use crate::exit::{self, Exit};
use crate::past::{self, Asked};
use crate::units::{self, Patience};
use crate::{output, owner};
use anyhow::Result;
use clap::Subcommand;
use protocol::past::{Found, Past, SnapshotInfo};
use serde::Serialize;
use std::path::PathBuf;

/// Make, list and remove snapshots of a volume
///
/// A snapshot is the volume as it is when it is made: it takes no room until something changes,
/// and what it shows never changes. It is found in a mount as .farfs/snapshots/NAME in the root,
/// a directory that listings do not show.
#[derive(clap::Args)]
#[command(after_help = exit::after(
    "farfs snapshot create ~/work before-the-move
     ls ~/work/.farfs/snapshots/before-the-move
     farfs snapshot list ~/work
     farfs snapshot remove ~/work before-the-move
     farfs snapshot create --data /srv/farfs main weekly    (at the server)",
    &[Exit::Unreachable, Exit::NotFound, Exit::Pending],
))]
pub struct Snapshot {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make a snapshot of how the volume is now
    ///
    /// Of a mount: what was done in it before is sent first, so that the snapshot has it. What
    /// other devices have not sent yet is not in it, nor what is being written to a file that was
    /// not closed or synced.
    Create {
        #[command(flatten)]
        place: Place,
        /// What it is called: up to 128 bytes, without `/` and `@`
        name: String,
        /// How long to go on sending what is not yet at the server
        #[arg(long, value_name = "TIME", default_value = "60s")]
        timeout: Patience,
        /// Do not wait: the snapshot shows what is at the server by now
        #[arg(long, conflicts_with = "timeout")]
        now: bool,
    },
    /// List the snapshots, the oldest first
    List {
        #[command(flatten)]
        place: Place,
        /// For programs
        #[arg(long)]
        json: bool,
    },
    /// Remove a snapshot: what it alone kept goes with the next tidying of the store
    Remove {
        #[command(flatten)]
        place: Place,
        /// The snapshot
        name: String,
    },
}

#[derive(clap::Args)]
struct Place {
    /// A mount point; with --data, the volume's name
    place: PathBuf,
    /// The server's data directory, where this is run on the server
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

impl Place {
    fn asked(&self) -> Result<Asked> {
        Asked::of(&self.place, self.data.as_deref())
    }
}

impl Snapshot {
    pub fn run(self) -> Result<()> {
        let uid = owner::Owner::caller().uid;
        match self.command {
            Command::Create { place, name, timeout, now } => {
                let asked = place.asked()?;
                if !now {
                    asked.send_first(timeout.0)?;
                }
                let token = token();
                done(&asked.ask(&Past::Snapshot { name, uid, token })?)
            }
            Command::List { place, json } => match place.asked()?.ask(&Past::Snapshots)? {
                Found::Snapshots(list) if json => {
                    output::json(&list.iter().map(Listed::of).collect::<Vec<_>>())
                }
                Found::Snapshots(list) => {
                    output::text(&list.iter().map(|one| line(one) + "\n").collect::<String>())
                }
                Found::Not(why) => Err(past::not(&why)),
                _ => Err(past::unexpected()),
            },
            Command::Remove { place, name } => {
                done(&place.asked()?.ask(&Past::Forget { name, uid })?)
            }
        }
    }
}

/// Drawn anew each time, so that one that is asked for again is told from another of its name.
fn token() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

fn done(found: &Found) -> Result<()> {
    match found {
        Found::Snapshot(_) => Ok(()),
        Found::Not(why) => Err(past::not(why)),
        _ => Err(past::unexpected()),
    }
}

fn line(snapshot: &SnapshotInfo) -> String {
    let by = match &snapshot.device {
        Some(device) => format!("by {device}"),
        None => "at the server".to_owned(),
    };
    let at = units::show_time(snapshot.at);
    let user = owner::user_name(snapshot.uid);
    format!(
        "{}  {at}  {by}, {user}  v{}",
        output::name(&snapshot.name.to_string()),
        snapshot.position.0
    )
}

#[derive(Serialize)]
struct Listed {
    name: String,
    number: u32,
    /// The position in the volume's log that it shows.
    version: String,
    /// Seconds after 1970.
    made_at: i64,
    device: Option<String>,
    uid: u32,
}

impl Listed {
    fn of(snapshot: &SnapshotInfo) -> Listed {
        Listed {
            name: snapshot.name.to_string(),
            number: snapshot.number.0,
            version: format!("v{}", snapshot.position.0),
            made_at: snapshot.at.secs,
            device: snapshot.device.clone(),
            uid: snapshot.uid,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Name, Seq, SnapshotId, Time};

    #[test]
    fn a_snapshot_is_told_in_one_line() {
        let snapshot = SnapshotInfo {
            number: SnapshotId(3),
            name: Name::new(*b"weekly").unwrap(),
            position: Seq(77),
            at: Time { secs: 951_782_399, nanos: 0 },
            device: Some("laptop".into()),
            uid: 4_000_000_000,
        };
        let expected = "weekly  2000-02-28 23:59:59 UTC  by laptop, user 4000000000  v77";
        assert_eq!(line(&snapshot), expected);
        let at_server = SnapshotInfo { device: None, ..snapshot };
        assert!(line(&at_server).contains("  at the server, "), "{}", line(&at_server));
    }
}
