//! `farfs conflicts`.

use crate::conflicts::{self, Listed, Place};
use crate::data::MAIN_VOLUME;
use crate::exit::{self, Exit};
use crate::output;
use crate::past::Asked;
use anyhow::Result;
use clap::Subcommand;
use std::io::IsTerminal;
use std::path::PathBuf;

/// List the conflicts of a volume, and see to them
///
/// Two changed the same without knowing of each other: what came first at the server has the name
/// ("theirs"), and what came second lies beside it under a name that says whose it is ("mine"),
/// wherever this is run. A conflict is listed until it is seen to; until then both versions and what
/// they began from are kept.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = exit::after(
    "farfs conflicts
     farfs conflicts show 3
     farfs conflicts diff 3
     farfs conflicts merge 3
     farfs conflicts merge 3 --tool 'meld %mine %base %theirs --output %out'
     farfs conflicts keep-mine 3
     farfs conflicts --data /srv/farfs --volume main    (at the server)",
    &[Exit::Unreachable, Exit::Busy, Exit::Damaged, Exit::NotFound, Exit::Pending],
))]
pub struct Conflicts {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    list: List,
}

#[derive(Subcommand)]
enum Action {
    /// List the conflicts of a volume
    List(List),
    /// Show both sides of a conflict, what they began from, and what can be done
    Show(One),
    /// Show what the version beside has that the one with the name has not, by lines
    Diff(One),
    /// Put both together by lines, with what they began from; the version beside goes
    ///
    /// Where both changed the same lines nothing is done, unless --markers or --tool is given. What
    /// the name had stays among the versions (`farfs history`, `farfs restore`).
    Merge(Merge),
    /// The version beside takes the name; what had it stays among the versions
    KeepMine(KeepMine),
    /// The version with the name stays, and the one beside goes; it stays among the versions
    KeepTheirs(One),
    /// Both stay as they are, as two files, and the conflict is listed no more
    KeepBoth(One),
}

#[derive(clap::Args)]
struct List {
    /// A mount point, or a path in the mount [default: the only mount]
    #[arg(conflicts_with = "data")]
    mountpoint: Option<PathBuf>,
    /// The server's data directory, where this is run on the server
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The volume, with --data
    #[arg(long, value_name = "NAME", default_value = MAIN_VOLUME, requires = "data")]
    volume: String,
    /// For programs
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct One {
    /// The number that the list gives it
    number: u64,
    /// A mount point, or a path in the mount [default: the only mount]
    #[arg(long = "in", value_name = "PATH")]
    mountpoint: Option<PathBuf>,
}

#[derive(clap::Args)]
struct KeepMine {
    #[command(flatten)]
    one: One,
    /// Also if what has the name was changed since
    #[arg(long)]
    force: bool,
}

#[derive(clap::Args)]
struct Merge {
    #[command(flatten)]
    one: One,
    /// Write both where they differ, between marks, and leave the rest to an editor
    #[arg(long, conflicts_with = "tool")]
    markers: bool,
    /// A program that merges: its words, with the files for %base, %mine, %theirs and %out. It ends
    /// with 0 if %out has been written
    #[arg(long, value_name = "COMMAND")]
    tool: Option<String>,
}

impl Conflicts {
    pub fn run(self) -> Result<()> {
        match self.action {
            None => self.list.run(),
            Some(Action::List(list)) => list.run(),
            Some(Action::Show(one)) => {
                let (place, conflict) = one.find()?;
                output::text(&conflicts::shown(&place, &conflict))
            }
            Some(Action::Diff(one)) => {
                let (place, conflict) = one.find()?;
                output::text(&conflicts::difference(&place, &conflict)?)
            }
            Some(Action::Merge(merge)) => {
                let (place, conflict) = merge.one.find()?;
                conflicts::merge(&place, &conflict, merge.tool.as_deref(), merge.markers)
            }
            Some(Action::KeepMine(one)) => {
                let (place, conflict) = one.one.find()?;
                conflicts::keep_mine(&place, &conflict, one.force)
            }
            Some(Action::KeepTheirs(one)) => {
                let (place, conflict) = one.find()?;
                conflicts::keep_theirs(&place, &conflict)
            }
            Some(Action::KeepBoth(one)) => {
                let (place, conflict) = one.find()?;
                place.settle(&conflict)
            }
        }
    }
}

impl List {
    fn run(self) -> Result<()> {
        let asked = match self.data {
            Some(data) => Asked::Server { data, volume: self.volume },
            None => Asked::Mount(conflicts::mount(self.mountpoint.as_deref())?),
        };
        let all = conflicts::all(&asked)?;
        if self.json {
            return output::json(&all.iter().map(Listed::of).collect::<Vec<_>>());
        }
        if all.is_empty() && std::io::stdout().is_terminal() {
            return output::text("there are no conflicts\n");
        }
        output::text(&all.iter().map(|one| conflicts::line(one) + "\n").collect::<String>())
    }
}

impl One {
    fn find(&self) -> Result<(Place, protocol::past::ConflictInfo)> {
        let place = Place::of(self.mountpoint.as_deref())?;
        let conflict = place.find(self.number)?;
        Ok((place, conflict))
    }
}
