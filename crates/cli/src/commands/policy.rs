//! `farfs policy` and `farfs refresh`.

use crate::exit::{self, Exit, fail};
use crate::keeping::{AskAbove, Keep};
use crate::mounts::Entry;
use crate::past::Written;
use crate::questions::{self, Question};
use crate::{mounts, output, paths, show};
use anyhow::Result;
use client::Consistency;
use protocol::Mode;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often it is looked how much has come.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// Say which version of a file is good enough on this machine, and what has to be asked for
///
/// It counts for a file, or for all below a directory and what is made there later; the nearest one
/// above a file counts, also over unmounting and starting again, and on this machine alone. It is of
/// what bears the name, also after a program has saved by rename. Without a wish, it shows what
/// counts.
#[derive(clap::Args)]
#[command(after_help = exit::after(
    "farfs policy ~/work/photos
     farfs policy ~/work/tools bounded 3600
     farfs policy ~/work/data manual
     farfs policy ~/work/data inherit
     farfs policy ~/work --ask-above 30
     farfs policy --list
     farfs policy --stale ~/work",
    &[Exit::NotFound],
))]
pub struct Policy {
    /// A file or directory in a mount; with --list or --stale, a mount point [default: the only
    /// mount]
    #[arg(required_unless_present_any = ["list", "stale"])]
    path: Option<PathBuf>,
    /// Which version is good enough
    #[arg(conflicts_with_all = ["list", "stale"])]
    consistency: Option<Wish>,
    /// Of `bounded`: so long after it was known to be current
    #[arg(requires = "consistency", value_name = "SECONDS")]
    seconds: Option<u32>,
    /// Contents that are not here and would take more seconds to come are not fetched: the open
    /// fails, and `farfs misses` names the file. `none`: they are; `inherit`: as above
    #[arg(long, value_name = "SECONDS", conflicts_with_all = ["list", "stale"])]
    ask_above: Option<AskAbove>,
    /// Show all policies of the mount
    #[arg(long)]
    list: bool,
    /// Show the files that changed elsewhere and show as they were
    #[arg(long, conflicts_with = "list")]
    stale: bool,
    /// For programs
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Wish {
    /// The current one, as ever
    Strict,
    /// Where the link is weak (in every mode but connected), the one that is here, if it was current
    /// less than so many seconds ago; the current one is fetched when the link has nothing better
    /// to do
    Bounded,
    /// The one that is here, until `farfs refresh`
    Manual,
    /// What counts for the directory that it is in
    Inherit,
}

/// Bring what changed elsewhere, and shows as it was by its policy, up to date
///
/// The current versions are fetched in the background, and each shows when all of it is here. This
/// waits for them; whoever interrupts it does not stop them.
#[derive(clap::Args)]
#[command(after_help = exit::after(
    "farfs refresh ~/work/data/table
     farfs refresh --recursive ~/work/data",
    &[Exit::NotFound, Exit::Unreachable, Exit::Pending],
))]
pub struct Refresh {
    /// A file, or a directory for the files in it
    path: PathBuf,
    /// Of a directory, all that is below it
    #[arg(long, short)]
    recursive: bool,
}

impl Policy {
    pub fn run(self) -> Result<()> {
        let path = self.path.as_deref().map(paths::opened).transpose()?;
        if self.list || self.stale {
            return self.tell_all(&mounts::meant(path.as_deref())?);
        }
        let Some(path) = path else {
            return Err(fail(Exit::Usage, "name a file or directory"));
        };
        let mount = mounts::holding(&path)?;
        questions::status(&mount)?;
        let file = questions::file_or_left(&mount, &path)?;
        let place = mounts::called(&mount, &path)?.map(|place| Written::of(&place));
        let wish = self.consistency.map(|wish| wished(wish, self.seconds)).transpose()?;
        if let Some(consistency) = wish {
            let set = Keep::SetConsistency { file, place: place.clone(), consistency };
            questions::tell(&mount, &Question::Keep(set))?;
        }
        if let Some(secs) = self.ask_above {
            let set = Keep::SetAskAbove { file, place, secs };
            questions::tell(&mount, &Question::Keep(set))?;
        }
        if wish.is_some() || self.ask_above.is_some() {
            return Ok(());
        }
        let policy = questions::policy(&mount, file)?;
        match self.json {
            true => output::json(&policy),
            false => output::text(&show::policy(&policy, &path.display().to_string())),
        }
    }

    fn tell_all(&self, mount: &Entry) -> Result<()> {
        let report = questions::policies(mount)?;
        match (self.json, self.stale) {
            (true, false) => output::json(&report.policies),
            (true, true) => output::json(&report.stale),
            (false, false) => output::text(&show::policies(&report)),
            (false, true) => output::text(&show::stale(&report)),
        }
    }
}

/// None: as above.
fn wished(wish: Wish, seconds: Option<u32>) -> Result<Option<Consistency>> {
    match (wish, seconds) {
        (Wish::Bounded, Some(seconds)) => Ok(Some(Consistency::Bounded(seconds))),
        (Wish::Bounded, None) => {
            Err(fail(Exit::Usage, "say for how long, as in `farfs policy PATH bounded 3600`"))
        }
        (_, Some(_)) => Err(fail(Exit::Usage, "only `bounded` takes a number of seconds")),
        (Wish::Strict, None) => Ok(Some(Consistency::Strict)),
        (Wish::Manual, None) => Ok(Some(Consistency::Manual)),
        (Wish::Inherit, None) => Ok(None),
    }
}

impl Refresh {
    pub fn run(self) -> Result<()> {
        let path = paths::opened(&self.path)?;
        let mount = mounts::holding(&path)?;
        questions::status(&mount)?;
        let file = mounts::inode(&path)?;
        let recursive = self.recursive;
        questions::tell(&mount, &Question::Keep(Keep::Refresh { file, recursive }))?;
        wait_for_all(&mount, &path)
    }
}

fn without_room(files: usize) -> String {
    format!(
        "the cache has no room for {}: make some with `farfs unpin`, or mount with a larger \
         --cache-size; it is tried again by itself",
        crate::units::count(files as u64, "file")
    )
}

fn wait_for_all(mount: &Entry, path: &Path) -> Result<()> {
    let mut before = None;
    loop {
        let report = questions::policies(mount)?;
        let coming: Vec<_> = report.stale.iter().filter(|stale| stale.coming).collect();
        let left = coming.len();
        if left == 0 {
            return Ok(());
        }
        if coming.iter().all(|stale| stale.no_room) {
            return Err(fail(Exit::Pending, without_room(left)));
        }
        if before != Some(left) {
            let files = crate::units::count(left as u64, "file");
            let path = path.display().to_string();
            output::tell(format_args!("{}: {files} to come", output::name(&path)));
            before = Some(left);
        }
        let status = questions::status(mount)?;
        if status.mode == Mode::Disconnected {
            let what = "there is no link: it comes as soon as there is one";
            return Err(fail(Exit::Unreachable, what));
        }
        if status.paused {
            return Err(fail(Exit::Pending, "it comes after `farfs resume`"));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
