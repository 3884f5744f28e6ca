//! `farfs misses`.

use crate::exit::{self, Exit, fail};
use crate::keeping::Keep;
use crate::mounts::Entry;
use crate::questions::{self, Question};
use crate::{mounts, output, paths, show};
use anyhow::Result;
use client::{MissShown, Settling};
use std::path::PathBuf;

/// Show what programs wanted to read and was not here
///
/// There was no link, or it would have taken longer than `farfs policy --ask-above` allows. It
/// tells what should be pinned (`farfs pin`) before the link goes again. The last thousand files
/// are remembered. What is fetched stays in the list until it is here.
#[derive(clap::Args)]
#[command(after_help = exit::after(
    "farfs misses
     farfs misses --fetch
     farfs misses --allow ~/work/film.mkv
     farfs misses --forget ~/work/report.txt",
    &[Exit::NotFound],
))]
pub struct Misses {
    /// A mount point for all, or some of the files [default: the one around the working directory, or the only one]
    paths: Vec<PathBuf>,
    /// Fetch them in the background as soon as there is a link
    #[arg(long, conflicts_with_all = ["allow", "forget"])]
    fetch: bool,
    /// Let whoever opens them next wait, however long it takes, until the volume is unmounted
    #[arg(long, conflicts_with = "forget")]
    allow: bool,
    /// Take them from the list
    #[arg(long)]
    forget: bool,
    /// For programs
    #[arg(long)]
    json: bool,
}

impl Misses {
    pub fn run(self) -> Result<()> {
        let mut paths = Vec::new();
        for path in &self.paths {
            paths.push(paths::opened(path)?);
        }
        let mount = mounts::meant(paths.first().map(PathBuf::as_path))?;
        let mut misses = questions::misses(&mount)?;
        let files = match paths.as_slice() {
            [path] if *path == mount.mountpoint => None,
            [] => None,
            paths => Some(named(&mount, paths, &misses)?),
        };
        if let Some(files) = &files {
            misses.retain(|miss| files.contains(&miss.file));
        }
        let how = match (self.fetch, self.allow, self.forget) {
            (true, ..) => Settling::Fetch,
            (_, true, _) => Settling::Allow,
            (.., true) => Settling::Forget,
            _ if self.json => return output::json(&misses),
            _ => return output::text(&show::misses(&misses)),
        };
        let files = match files {
            Some(files) => files.into_iter().map(Some).collect(),
            None => vec![None],
        };
        for file in files {
            questions::tell(&mount, &Question::Keep(Keep::SettleMisses { file, how }))?;
        }
        Ok(())
    }
}

/// The files of some paths, each of which was missed.
fn named(mount: &Entry, paths: &[PathBuf], misses: &[MissShown]) -> Result<Vec<u64>> {
    let mut files = Vec::new();
    for path in paths {
        let shown = path.display();
        if !path.starts_with(&mount.mountpoint) {
            let what = format!("{shown} is not in {}", mount.mountpoint.display());
            return Err(fail(Exit::Usage, what));
        }
        let file = mounts::inode(path)?;
        if !misses.iter().any(|miss| miss.file == file) {
            let what = format!("{shown} was not missed; see `farfs misses`");
            return Err(fail(Exit::NotFound, what));
        }
        files.push(file);
    }
    Ok(files)
}
