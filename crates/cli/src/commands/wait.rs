//! `farfs wait`.

use crate::exit::{self, Exit, fail};
use crate::mounts::{self, Entry};
use crate::questions::{self, Question};
use crate::show;
use crate::units::Patience;
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Wait until everything has been sent
///
/// Of a file: until that file's changes are at the server. Of a mount point or directory: until
/// nothing of the mount is pending. After that the machine can be switched off for good. If the
/// disk of this machine has not kept what was written, this ends with an error that says so, once.
#[derive(clap::Args)]
#[command(after_help = exit::after(
    "farfs wait
     farfs wait --timeout 10m ~/work
     farfs wait ~/work/report.txt && echo it is safe",
    &[Exit::Damaged, Exit::NotFound, Exit::Pending],
))]
pub struct Wait {
    /// A mount point or a path in a mount [default: the only mount]
    path: Option<PathBuf>,
    /// How long to wait
    #[arg(long, value_name = "TIME", default_value = "60s")]
    timeout: Patience,
}

impl Wait {
    pub fn run(self) -> Result<()> {
        let path = self.path.as_deref().map(mounts::absolute).transpose()?;
        let mount = mounts::meant(path.as_deref())?;
        sent(&mount, path.as_deref(), self.timeout.0)?;
        tell_of_damage(&mount, path.as_deref())
    }
}

/// Waits until nothing of the mount is pending.
pub fn until_sent(mount: &Entry, within: Duration) -> Result<()> {
    sent(mount, None, within)
}

fn sent(mount: &Entry, path: Option<&Path>, within: Duration) -> Result<()> {
    questions::tell(mount, &Question::Hurry)?;
    let until = Instant::now() + within;
    loop {
        let Some(pending) = pending(mount, path)? else { return Ok(()) };
        if Instant::now() >= until {
            return Err(fail(Exit::Pending, format!("not yet at the server: {pending}")));
        }
        std::thread::sleep(LOOK_EVERY);
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

/// What is pending, in words.
fn pending(mount: &Entry, path: Option<&Path>) -> Result<Option<String>> {
    if let Some(file) = file_meant(path) {
        let explained =
            questions::explain(mount, mounts::inode(file)?, file.display().to_string())?;
        let waiting = explained.pending;
        return Ok((!waiting.is_empty()).then(|| waiting.join("; ")));
    }
    let status = questions::status(mount)?;
    Ok((status.pending.updates > 0).then(|| show::pending(&status.pending)))
}
