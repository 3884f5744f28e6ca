//! `farfs pin`, `farfs unpin` and `farfs pins`.

use crate::exit::{self, Exit, fail};
use crate::keeping::Keep;
use crate::past::Written;
use crate::questions::{self, Question};
use crate::{mounts, output, paths, show};
use anyhow::Result;
use std::path::PathBuf;

/// Files that are shown unless another number is wished.
const SHOWN: usize = 100;

/// Keep a file, or all that is below a directory, in the cache of this mount
///
/// It is fetched in the background, where it yields to all else, and follows what others change. It
/// does not leave the cache until `farfs unpin`, also over unmounting and starting again. A pin is
/// of what bears the name: of the new file, when a program saves by writing one and renaming it over
/// the old; when the file is renamed, the pin goes along. `farfs pins` says how much of it is here.
#[derive(clap::Args)]
#[command(after_help = exit::after(
    "farfs pin ~/work/report.txt
     farfs pin --recursive ~/work/thesis
     farfs pin --recursive --priority 10 ~/work/urgent",
    &[Exit::NotFound],
))]
pub struct Pin {
    /// A file or directory in a mount
    path: PathBuf,
    /// Of a directory, all that is below it, and what is made there later
    #[arg(long, short)]
    recursive: bool,
    /// What has a higher one is fetched first
    #[arg(long, default_value_t = 0, value_name = "N")]
    priority: u32,
}

/// Let the cache do without what was pinned, when it needs the room
#[derive(clap::Args)]
#[command(after_help = exit::after(
    "farfs unpin ~/work/thesis",
    &[Exit::NotFound],
))]
pub struct Unpin {
    /// A file or directory that `farfs pins` names
    path: PathBuf,
}

/// Show what is pinned, how much of it is here, and how long the rest will take
#[derive(clap::Args)]
#[command(after_help = exit::after(
    "farfs pins
     farfs pins --missing ~/work
     farfs pins --json",
    &[Exit::NotFound, Exit::Missing],
))]
pub struct Pins {
    /// A mount point, or a path in the mount [default: the one around the working directory, or the only one]
    mountpoint: Option<PathBuf>,
    /// Name the files of which something is not here, and end with exit code 9 if there are any
    #[arg(long)]
    missing: bool,
    /// Name so many files at most
    #[arg(long, default_value_t = SHOWN, value_name = "N")]
    most: usize,
    /// For programs
    #[arg(long)]
    json: bool,
}

impl Pin {
    pub fn run(self) -> Result<()> {
        let path = paths::opened(&self.path)?;
        let mount = mounts::holding(&path)?;
        questions::status(&mount)?;
        let file = mounts::inode(&path)?;
        let is_directory = std::fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_dir());
        let place = mounts::called(&mount, &path)?.map(|place| Written::of(&place));
        let (priority, recursive) = (self.priority, self.recursive);
        questions::tell(&mount, &Question::Keep(Keep::Pin { file, place, priority, recursive }))?;
        if is_directory && !recursive {
            output::tell("only the directory itself is pinned; --recursive takes what is in it");
        }
        if let Some(warning) = show::pins_too_large(&questions::pins(&mount, 0)?) {
            output::tell(warning);
        }
        Ok(())
    }
}

impl Unpin {
    pub fn run(self) -> Result<()> {
        let path = paths::opened(&self.path)?;
        let mount = mounts::holding(&path)?;
        questions::status(&mount)?;
        let file = questions::file_or_left(&mount, &path)?;
        let pins = questions::pins(&mount, 0)?;
        if !pins.pins.iter().any(|pin| pin.file == file) {
            let what = format!("{} is not pinned itself; see `farfs pins`", path.display());
            return Err(fail(Exit::NotFound, what));
        }
        questions::tell(&mount, &Question::Keep(Keep::Unpin { file }))
    }
}

impl Pins {
    pub fn run(self) -> Result<()> {
        let path = self.mountpoint.as_deref().map(mounts::absolute).transpose()?;
        let mount = mounts::meant(path.as_deref())?;
        let report = questions::pins(&mount, if self.missing { self.most } else { 0 })?;
        match self.json {
            true => output::json(&report)?,
            false => output::text(&show::pins(&report))?,
        }
        let lacks = report.lacking_bytes > 0 || report.unknown > 0;
        match self.missing && lacks {
            true => Err(fail(Exit::Missing, "not all that is pinned is here yet")),
            false => Ok(()),
        }
    }
}
