//! `farfs volume`.

use crate::data::Data;
use crate::exit::{self, Exit, fail};
use crate::orders::{self, How, Order};
use crate::owner::Owner;
use crate::quota::{self, Bound};
use crate::units::{BadUnit, Patience};
use anyhow::Result;
use clap::{ArgGroup, Subcommand};
use replica::ReplicaError;
use std::path::PathBuf;
use std::time::Duration;

/// Make, list, set and remove the volumes of a server
#[derive(clap::Args)]
#[command(after_help = exit::after(
    "farfs volume create --data /srv/farfs docs
     farfs volume create --data /srv/farfs --owner 1000:1000 ann
     farfs volume list --data /srv/farfs
     farfs volume set --data /srv/farfs --retention 90d docs
     farfs volume set --data /srv/farfs --quota 10G --quota-files 1000000 docs
     farfs volume set --data /srv/farfs --quota-user 1000=2G --quota-user 1001=none docs
     farfs volume remove --data /srv/farfs --yes docs",
    &[Exit::Busy, Exit::Damaged, Exit::NotFound],
))]
pub struct Volume {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make an empty volume
    Create {
        /// The server's data directory; it is made if it is missing
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
        /// Who owns the root directory, also by names, USER:GROUP [default: the caller]
        #[arg(long, value_name = "UID:GID")]
        owner: Option<Owner>,
        /// How files are cut into chunks; for as long as the volume lives
        #[arg(long, value_enum, value_name = "RULE", default_value = "gear")]
        cutter: How,
        /// What the volume is called: it is in the URLs of its invitations
        name: String,
    },
    /// List the volumes, what is in them, and their quotas
    List {
        /// The server's data directory
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
    },
    /// Set how long a volume keeps old versions, and how much it may have
    #[command(group = ArgGroup::new("what").required(true).multiple(true))]
    Set {
        /// The server's data directory
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
        /// How long, such as 7d; 0 keeps none but what snapshots show; `default` is 30d
        #[arg(long, value_name = "TIME", value_parser = kept, group = "what")]
        keep_versions: Option<Kept>,
        /// The same as --keep-versions
        // No alias: what is wrong with it is told of the word that was typed.
        #[arg(long, value_name = "TIME", value_parser = kept, group = "what")]
        #[arg(conflicts_with = "keep_versions")]
        retention: Option<Kept>,
        /// How many bytes its files may have, such as 10G; holes do not count; `none` for as many
        /// as there is room for
        #[arg(long, value_name = "SIZE", value_parser = quota::bytes, group = "what")]
        quota: Option<Bound>,
        /// How many files, directories and links it may have, or `none`
        #[arg(long, value_name = "NUMBER", value_parser = quota::files, group = "what")]
        quota_files: Option<Bound>,
        /// How many bytes the files of a user may have, by number or name; may be said again
        #[arg(long, value_name = "USER=SIZE", value_parser = quota::user, group = "what")]
        quota_user: Vec<(u32, Bound)>,
        /// The volume
        name: String,
    },
    /// Remove a volume with all that is in it
    Remove {
        /// The server's data directory
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
        /// Do not ask: nothing of the volume can be had back
        #[arg(long)]
        yes: bool,
        /// The volume
        name: String,
    },
}

/// None: as long as by default.
#[derive(Clone, Copy, Debug)]
struct Kept(Option<Duration>);

fn kept(text: &str) -> Result<Kept, String> {
    if text == "default" {
        return Ok(Kept(None));
    }
    let time: Patience = text.parse().map_err(|error: BadUnit| error.to_string())?;
    Ok(Kept(Some(time.0)))
}

impl Volume {
    pub fn run(self) -> Result<()> {
        let (data, order) = match self.command {
            Command::Create { data, owner, cutter, name } => {
                let Owner { uid, gid } = owner.unwrap_or_else(Owner::caller);
                // Dropped at once: it only makes what is missing.
                drop(Data::open_or_create(&data)?);
                (data, Order::CreateVolume { name, uid, gid, cutter })
            }
            Command::List { data } => (data, Order::ListVolumes),
            Command::Set {
                data,
                keep_versions,
                retention,
                quota,
                quota_files,
                quota_user,
                name,
            } => {
                let quota = quota::Wish { bytes: quota, files: quota_files, users: quota_user };
                if let Some(Kept(kept)) = keep_versions.or(retention) {
                    let order = Order::KeepVersions { name: name.clone(), kept };
                    orders::print(&orders::give(&data, &order)?)?;
                }
                if quota.is_none() {
                    return Ok(());
                }
                (data, Order::SetQuota { name, quota })
            }
            Command::Remove { yes: false, name, data } => {
                let volumes = orders::give(&data, &Order::ListVolumes)?;
                if !volumes.iter().any(|line| line.split_whitespace().next() == Some(&name)) {
                    return Err(ReplicaError::NoVolume(name).into());
                }
                return Err(fail(
                    Exit::Usage,
                    format!("this removes {name:?} with all its files for good; say --yes"),
                ));
            }
            Command::Remove { data, name, .. } => (data, Order::RemoveVolume { name }),
        };
        orders::print(&orders::give(&data, &order)?)
    }
}
