//! `farfs conflicts`.

use crate::config;
use crate::conflicts::{self, Listed, Merging, Outcome, Place, Which};
use crate::data::MAIN_VOLUME;
use crate::exit::{self, Exit, fail};
use crate::mounts::Entry;
use crate::output;
use crate::past::Asked;
use crate::{questions, units};
use anyhow::Result;
use clap::Subcommand;
use protocol::past::{ConflictInfo, Conflicts as Told};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

/// List the conflicts of a volume, and see to them
///
/// Two changed the same without knowing of each other: what came first at the server has the name
/// ("theirs"), and what came second lies beside it under a name that says whose it is ("mine"),
/// wherever this is run. Without a link the list is as the server last told it. A conflict is listed until it is seen to; until then both versions and what
/// they began from are kept. `show` says what can be done: of a removal and contents there is one version,
/// which stays or goes; a directory that both have made is one, with what is in it. Of conflicts in
/// directories that you may not search no more is told than how many there are.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = exit::after(
    "farfs conflicts
     farfs conflicts show 3
     farfs conflicts diff 3
     farfs conflicts merge 3
     farfs conflicts merge 3 --tool 'meld %mine %base %theirs --output %out'
     farfs conflicts merge --all
     farfs conflicts keep-mine 3
     farfs conflicts undo
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
    /// Where it is not known what both began from, as of two files that were made under one name, a
    /// program can do it, with an empty file for that, and nothing else; of two of up to 64 MiB that say the
    /// same and have the same mode, owner and attributes, one is left without it.
    /// Where both changed the same lines nothing is done, unless --markers or --tool is given. What
    /// the name had stays among the versions (`farfs history`, `farfs restore`). Files whose names
    /// fit a pattern in the section `[mergers]` of the configuration file are merged by the program
    /// that it names.
    Merge(Merge),
    /// The version beside takes the name; what had it stays among the versions
    ///
    /// Of attributes: what the second has set is set. Of a removal and contents that one of the two
    /// had not seen: what the second did is done.
    KeepMine(Keep),
    /// The version with the name stays, and the one beside goes; it stays among the versions
    ///
    /// Of attributes: what the first has set is set. Of a removal and contents that one of the two
    /// had not seen: what the first did is done. Of a directory beside: only if it is empty.
    KeepTheirs(Keep),
    /// All stays as it is, and the conflict is listed no more
    KeepBoth(One),
    /// Take the last of these back: both versions are there again, and the conflict is listed
    ///
    /// Without a number or path one that cannot be taken back any more is passed over, and named.
    Undo(Undo),
}

#[derive(clap::Args)]
struct List {
    /// A mount point, or a path in the mount [default: the one around the working directory, or the only one]
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
    /// A mount point, or a path in the mount [default: the one around the working directory, or the only one]
    #[arg(long = "in", value_name = "PATH")]
    mountpoint: Option<PathBuf>,
}

#[derive(clap::Args)]
struct Keep {
    #[command(flatten)]
    one: One,
    /// Also if what has the name, or the attribute, was changed since
    #[arg(long)]
    force: bool,
}

#[derive(clap::Args)]
struct Undo {
    /// The number that the conflict had, or the path that it was about [default: the last that was
    /// seen to]
    what: Option<String>,
    /// A mount point, or a path in the mount [default: the one around the working directory, or the only one]
    #[arg(long = "in", value_name = "PATH")]
    mountpoint: Option<PathBuf>,
    /// Also if what has the name was changed since
    #[arg(long)]
    force: bool,
}

#[derive(clap::Args)]
struct Merge {
    /// The number that the list gives it
    #[arg(required_unless_present = "all")]
    number: Option<u64>,
    /// All that can be merged; what cannot be is left, and named, and so is that of which there is
    /// one version only
    #[arg(long, conflicts_with = "number")]
    all: bool,
    /// A mount point, or a path in the mount [default: the one around the working directory, or the only one]
    #[arg(long = "in", value_name = "PATH")]
    mountpoint: Option<PathBuf>,
    /// Write both where they differ, between marks, and leave the rest to an editor
    #[arg(long, conflicts_with = "tool")]
    markers: bool,
    /// A program that merges: its words, with the files for %base, %mine, %theirs and %out. It ends
    /// with 0 if %out has been written
    #[arg(long, value_name = "COMMAND")]
    tool: Option<String>,
    /// How long a program may take before it is killed, and comparing by lines before it is given up
    /// [default: 10min, but no end for --tool, which may ask at the terminal unless this is given]
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    tool_timeout: Option<Duration>,
}

impl Merge {
    fn run(self) -> Result<()> {
        let place = Place::of(self.mountpoint.as_deref())?;
        let merging = Merging {
            tool: self.tool,
            within: self.tool_timeout,
            markers: self.markers,
            mergers: config::mergers(&config::read()?),
        };
        let Some(number) = self.number else { return merge_all(&place, &merging) };
        tell(conflicts::merge(&place, &place.find_sent(number)?, &merging)?)
    }
}

fn tell(outcome: Outcome) -> Result<()> {
    match outcome {
        Outcome::Done => Ok(()),
        Outcome::WasDone(why) => output::text(&format!("{why}\n")),
    }
}

/// One that cannot be merged does not hold up the others.
fn merge_all(place: &Place, merging: &Merging) -> Result<()> {
    let (mut merged, mut left) = (0, 0);
    let all = place.all_sent()?;
    for conflict in all.conflicts {
        let number = conflict.number;
        if let Some(why) = conflicts::not_merged(place, &conflict, merging) {
            left += 1;
            output::text(&format!("{number}  skipped: {why}\n"))?;
            continue;
        }
        match conflicts::merge(place, &conflict, merging) {
            Ok(Outcome::Done) => {
                merged += 1;
                output::text(&format!("{number}  merged\n"))?;
            }
            Ok(Outcome::WasDone(why)) => output::text(&format!("{number}  not merged: {why}\n"))?,
            Err(error) => {
                left += 1;
                output::text(&format!("{number}  not merged: {error:#}\n"))?;
            }
        }
    }
    if let Some(not_shown) = conflicts::not_shown(all.hidden.as_deref()) {
        left += all.hidden.map_or(0, |hidden| hidden.len());
        output::line(&not_shown)?;
    }
    if left > 0 {
        let what = format!("{merged} merged, {left} not: see to these one by one");
        return Err(fail(Exit::Failure, what));
    }
    Ok(())
}

impl Undo {
    fn run(self) -> Result<()> {
        let is_path = self.what.as_ref().is_some_and(|what| what.parse::<u64>().is_err());
        let path = self.what.as_ref().filter(|_| is_path).map(PathBuf::from);
        let place = Place::of(self.mountpoint.or(path).as_deref())?;
        let which = Which::of(&place, self.what.as_deref())?;
        let undone = conflicts::undo(&place, &which, self.force)?;
        for passed in undone.passed {
            output::line(&passed)?;
        }
        output::line(&format!("conflict {} is listed", undone.number))
    }
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
            Some(Action::Merge(merge)) => merge.run(),
            Some(Action::KeepMine(keep)) => {
                let (place, conflict) = keep.one.find_sent()?;
                tell(conflicts::keep_mine(&place, &conflict, keep.force)?)
            }
            Some(Action::KeepTheirs(keep)) => {
                let (place, conflict) = keep.one.find_sent()?;
                tell(conflicts::keep_theirs(&place, &conflict, keep.force)?)
            }
            Some(Action::KeepBoth(one)) => {
                let (place, conflict) = one.find_sent()?;
                tell(conflicts::keep_both(&place, &conflict)?)
            }
            Some(Action::Undo(undo)) => undo.run(),
        }
    }
}

impl List {
    fn run(self) -> Result<()> {
        let asked = match &self.data {
            Some(data) => Asked::Server { data: data.clone(), volume: self.volume.clone() },
            None => Asked::Mount(conflicts::mount(self.mountpoint.as_deref())?),
        };
        match (conflicts::all(&asked), &asked) {
            (Err(error), Asked::Mount(mount)) if exit::code(&error) == Exit::Unreachable => {
                self.tell_as_it_was(mount, error)
            }
            (all, _) => self.tell(&all?),
        }
    }

    /// What was last told, and then that it is no more than that.
    fn tell_as_it_was(&self, mount: &Entry, error: anyhow::Error) -> Result<()> {
        let Some((ago, all)) = questions::conflicts_told(mount)? else { return Err(error) };
        self.tell(&all)?;
        let was = format!("this is what the server said {} ago", units::show_secs(ago));
        Err(error.context(was))
    }

    fn tell(&self, all: &Told) -> Result<()> {
        let not_shown = conflicts::not_shown(all.hidden.as_deref());
        let all = &all.conflicts;
        if self.json {
            output::json(&all.iter().map(Listed::of).collect::<Vec<_>>())?;
            not_shown.iter().for_each(output::tell);
            return Ok(());
        }
        if all.is_empty() && not_shown.is_none() && std::io::stdout().is_terminal() {
            return output::text("there are no conflicts\n");
        }
        let lines = all.iter().map(conflicts::line).chain(not_shown);
        output::text(&lines.map(|line| line + "\n").collect::<String>())
    }
}

impl One {
    /// To be seen to.
    fn find_sent(&self) -> Result<(Place, ConflictInfo)> {
        let place = Place::of(self.mountpoint.as_deref())?;
        let conflict = place.find_sent(self.number)?;
        Ok((place, conflict))
    }

    fn find(&self) -> Result<(Place, ConflictInfo)> {
        let place = Place::of(self.mountpoint.as_deref())?;
        let conflict = place.find(self.number)?;
        Ok((place, conflict))
    }
}
