//! `farfs wait`.

use crate::exit::{self, Exit, fail};
use crate::mounts::{self, Entry};
use crate::paths;
use crate::pending::Part;
use crate::progress::Progress;
use crate::questions::{self, Question};
use crate::show;
use crate::units::Patience;
use anyhow::Result;
use client::PendingLog;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A long log is not read over and over: at most one moment in so many goes by it.
const LOOKS_ONE_IN: u32 = 10;
/// How often a terminal is told how much is left.
const TELL_EVERY: Duration = Duration::from_millis(500);

/// Wait until everything has been sent
///
/// Of a file: until that file's changes are at the server. Of a directory: until those of all
/// below it are. Of a mount point: until nothing of the mount is pending. After that the machine can
/// be switched off for good. If the disk of this machine has not kept what was written, this ends
/// with an error that says so, once. A terminal is shown how much is left.
#[derive(clap::Args)]
#[command(after_help = exit::after(
    "farfs wait
     farfs wait --timeout 10m ~/work
     farfs wait ~/work/report.txt && echo it is safe
     farfs wait --until visible ~/work/report.txt ~/work/figures",
    &[Exit::Unreachable, Exit::Damaged, Exit::NotFound, Exit::Pending],
))]
pub struct Wait {
    /// Mount points or paths in mounts [default: the one around the working directory, or the only one]
    paths: Vec<PathBuf>,
    /// What to wait for
    #[arg(long, value_enum, default_value = "home")]
    until: Until,
    /// How long to wait
    #[arg(long, value_name = "TIME", default_value = "60s")]
    timeout: Patience,
    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
}

/// How far changes are to have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Until {
    /// On this machine's disk
    Logged,
    /// On another machine
    Safe,
    /// At the server, and everybody who has it mounted has been told
    Visible,
    /// At the server
    Home,
}

impl Wait {
    pub fn run(self) -> Result<()> {
        let until = Instant::now() + self.timeout.0;
        let progress = Progress::new("waiting", !self.quiet);
        if self.paths.is_empty() {
            return self.one(None, until, progress);
        }
        self.paths.iter().try_for_each(|path| self.one(Some(path), until, progress))
    }

    fn one(&self, path: Option<&PathBuf>, until: Instant, progress: Progress) -> Result<()> {
        let path = path.map(|path| paths::opened(path)).transpose()?;
        let mount = mounts::meant(path.as_deref())?;
        if self.until == Until::Logged {
            return by(&mount, &Question::Logged, until, "on this machine's disk");
        }
        // With one server, what is on another machine is at home.
        sent(&mount, path.as_deref(), until, progress)?;
        if self.until == Until::Visible {
            let far = "seen by everybody who is connected, though at the server";
            by(&mount, &Question::Visible, until, far)?;
        }
        tell_of_damage(&mount, path.as_deref())
    }
}

/// Waits for what the mount's process does, and no longer than is wanted.
fn by(mount: &Entry, question: &Question, until: Instant, far: &str) -> Result<()> {
    match questions::tell_by(mount, question, until)? {
        true => Ok(()),
        false => Err(fail(Exit::Pending, format!("not yet {far}: time is up"))),
    }
}

/// Waits until nothing of the mount is pending.
pub fn until_sent(mount: &Entry, within: Duration) -> Result<()> {
    sent(mount, None, Instant::now() + within, Progress::new("waiting", false))
}

fn sent(mount: &Entry, path: Option<&Path>, until: Instant, mut progress: Progress) -> Result<()> {
    questions::tell(mount, &Question::Hurry)?;
    let part = Part::of(mount, path)?;
    let mut told = None::<Instant>;
    loop {
        let begun = Instant::now();
        let Some(pending) = pending(mount, &part)? else {
            progress.end();
            return Ok(());
        };
        let now = Instant::now();
        if now >= until {
            progress.end();
            return Err(fail(Exit::Pending, format!("not yet at the server: {}", why(&pending))));
        }
        if told.is_none_or(|told| now.duration_since(told) >= TELL_EVERY) {
            progress.tell(&why(&pending));
            told = Some(now);
        }
        std::thread::sleep(LOOK_EVERY.max((now - begun) * LOOKS_ONE_IN).min(until - now));
    }
}

/// An error if contents that were waited for have not been kept, and nobody was told yet.
fn tell_of_damage(mount: &Entry, path: Option<&Path>) -> Result<()> {
    let file = file_meant(path).map(mounts::inode).transpose()?;
    let mut damage = questions::status(mount)?.damage;
    damage.retain(|damage| !damage.told && file.is_none_or(|file| file == damage.file));
    if damage.is_empty() {
        return Ok(());
    }
    questions::tell(mount, &Question::Told { file })?;
    let sentences: Vec<_> = damage.iter().map(ToString::to_string).collect();
    Err(fail(Exit::Damaged, format!("damaged: {}", sentences.join("; "))))
}

/// None: all of the mount is meant.
fn file_meant(path: Option<&Path>) -> Option<&Path> {
    path.filter(|path| std::fs::symlink_metadata(path).is_ok_and(|m| m.is_file()))
}

/// What is pending, if anything is.
fn pending(mount: &Entry, part: &Part) -> Result<Option<PendingLog>> {
    // What was closed and is not stored yet is no update, and is told of by the status alone.
    if matches!(part, Part::All) {
        let pending = questions::status(mount)?.pending;
        if pending.updates == 0 {
            return Ok(None);
        }
        let log = part.log(mount, 0)?;
        let updates = pending.updates.max(log.updates);
        return Ok(Some(PendingLog { updates, ..log }));
    }
    Ok(Some(part.log(mount, 1)?).filter(|log| log.updates > 0))
}

/// How much is left, how long that may take, and what is in its way.
fn why(log: &PendingLog) -> String {
    let mut text = show::left(log);
    if let Some(why) = &log.held_back {
        text.push_str(&format!("; held back: {why}"));
    }
    text
}
