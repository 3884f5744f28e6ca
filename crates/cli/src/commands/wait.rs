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
/// nothing of the mount is pending. After that the machine can be switched off for good.
#[derive(clap::Args)]
#[command(after_help = exit::after(
    "farfs wait
     farfs wait --timeout 10m ~/work
     farfs wait ~/work/report.txt && echo it is safe",
    &[Exit::NotFound, Exit::Pending],
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
        questions::tell(&mount, &Question::Hurry)?;
        let until = Instant::now() + self.timeout.0;
        loop {
            let Some(pending) = pending(&mount, path.as_deref())? else { return Ok(()) };
            if Instant::now() >= until {
                return Err(fail(Exit::Pending, format!("not yet at the server: {pending}")));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

/// What is pending, in words.
fn pending(mount: &Entry, path: Option<&Path>) -> Result<Option<String>> {
    let file = path.filter(|path| std::fs::symlink_metadata(path).is_ok_and(|m| m.is_file()));
    if let Some(file) = file {
        let explained =
            questions::explain(mount, mounts::inode(file)?, file.display().to_string())?;
        let waiting = explained.pending;
        return Ok((!waiting.is_empty()).then(|| waiting.join("; ")));
    }
    let status = questions::status(mount)?;
    Ok((status.pending.updates > 0).then(|| show::pending(&status.pending)))
}
