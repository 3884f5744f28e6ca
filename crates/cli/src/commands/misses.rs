//! `farfs misses`.

use crate::exit::{self, Exit, fail};
use crate::keeping::Keep;
use crate::questions::{self, Question};
use crate::{mounts, output, show};
use anyhow::Result;
use std::path::PathBuf;

/// Show what programs wanted to read without a link and was not here
///
/// It tells what should be pinned (`farfs pin`) before the link goes again. The last thousand files
/// are remembered, until the volume is unmounted.
#[derive(clap::Args)]
#[command(after_help = exit::after(
    "farfs misses
     farfs misses --fetch
     farfs misses --forget ~/work/report.txt",
    &[Exit::NotFound],
))]
pub struct Misses {
    /// A mount point for all, or one of the files [default: the only mount]
    path: Option<PathBuf>,
    /// Fetch them in the background as soon as there is a link, and take them from the list
    #[arg(long, conflicts_with = "forget")]
    fetch: bool,
    /// Take them from the list
    #[arg(long)]
    forget: bool,
    /// For programs
    #[arg(long)]
    json: bool,
}

impl Misses {
    pub fn run(self) -> Result<()> {
        let path = self.path.as_deref().map(mounts::absolute).transpose()?;
        let mount = mounts::meant(path.as_deref())?;
        let mut misses = questions::misses(&mount)?;
        let file = match path.filter(|path| *path != mount.mountpoint) {
            Some(path) => Some((mounts::inode(&path)?, path)),
            None => None,
        };
        if let Some((file, path)) = &file {
            misses.retain(|miss| miss.file == *file);
            if misses.is_empty() {
                let what = format!("{} was not missed; see `farfs misses`", path.display());
                return Err(fail(Exit::NotFound, what));
            }
        }
        if self.fetch || self.forget {
            let file = file.map(|(file, _)| file);
            let settle = Keep::SettleMisses { file, fetch: self.fetch };
            return questions::tell(&mount, &Question::Keep(settle));
        }
        if self.json { output::json(&misses) } else { output::text(&show::misses(&misses)) }
    }
}
