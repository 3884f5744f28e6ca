//! Published test suites, run on mounts and on the disk below them: what the disk passes, a mount
//! must pass.

pub mod fsx;
pub mod pjdfstest;
mod report;

use crate::loopback::{Client, Origin};
use crate::machine;
use crate::workdir::WorkDir;
use anyhow::{Context, Result, bail};
pub use report::{Report, Section};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What a suite is run with.
pub struct Stage<'a> {
    pub suite: PathBuf,
    pub farfs: PathBuf,
    pub directory: &'a WorkDir,
    pub modes: &'a [String],
    pub limit: Duration,
}

/// A directory of one file system, for one run.
pub struct Place {
    pub name: String,
    pub path: PathBuf,
    /// A directory of another file system.
    pub elsewhere: PathBuf,
    /// For what the suite writes beside.
    pub beside: PathBuf,
    _mounted: Option<(Client, Origin)>,
}

impl Stage<'_> {
    /// Does it on the disk first, and then in each mode on a new volume.
    pub fn on_each<T>(
        &self,
        mut work: impl FnMut(&Place) -> Result<T>,
    ) -> Result<Vec<(String, T)>> {
        let mut done = Vec::new();
        for mode in std::iter::once(None).chain(self.modes.iter().map(Some)) {
            let place = match mode {
                None => self.disk()?,
                Some(mode) => self.mount(mode)?,
            };
            println!("on {} ...", place.name);
            let outcome = work(&place).with_context(|| format!("on {}", place.name))?;
            bench::undo::hold_if_ending();
            done.push((place.name.clone(), outcome));
        }
        Ok(done)
    }

    fn disk(&self) -> Result<Place> {
        let beside = self.part("disk")?;
        let path = made(beside.join("tests"))?;
        // The program's own, so that a mount need not be made for it.
        let elsewhere = PathBuf::from("/dev/shm");
        let name = machine::Machine::this(&beside).file_system;
        Ok(Place { name, path, elsewhere, beside, _mounted: None })
    }

    fn mount(&self, mode: &str) -> Result<Place> {
        let beside = self.part(mode)?;
        let origin = Origin::start(&self.farfs, &beside.join("origin"), None)?;
        // Suites do things as other users.
        let client = Client::with(&origin, &beside, mode, &["--allow-other"])?;
        let path = made(client.point.join("tests"))?;
        let elsewhere = made(beside.join("elsewhere"))?;
        let name = format!("FarFS, {mode}");
        Ok(Place { name, path, elsewhere, beside, _mounted: Some((client, origin)) })
    }

    /// Everybody must be able to get at what lies in it.
    fn part(&self, name: &str) -> Result<PathBuf> {
        opened(&self.directory.path)?;
        let part = self.directory.part(name)?;
        opened(&part)?;
        Ok(part)
    }
}

fn made(path: PathBuf) -> Result<PathBuf> {
    fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
    opened(&path)?;
    Ok(path)
}

fn opened(path: &Path) -> Result<()> {
    fs::set_permissions(path, Permissions::from_mode(0o755))
        .with_context(|| format!("cannot set the mode of {}", path.display()))
}

/// The program of a suite, or how to get it.
pub fn find(name: &str, named: Option<&Path>) -> Result<PathBuf> {
    if let Some(path) = named {
        return path.canonicalize().with_context(|| format!("there is no {}", path.display()));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let cargo = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo/bin"));
    let found = std::env::split_paths(&path).chain(cargo).map(|folder| folder.join(name));
    match found.into_iter().find(|program| program.is_file()) {
        Some(program) => Ok(program),
        None => {
            bail!("there is no {name}: get it with `cargo install {name}`, or name it with --suite")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite_that_is_not_installed_is_said_how_to_get() {
        let error = find("no-such-suite", None).unwrap_err().to_string();
        assert!(error.contains("cargo install no-such-suite"), "{error}");
        assert!(find("sh", None).unwrap().ends_with("sh"));
        assert!(find("sh", Some(Path::new("/no/such"))).is_err());
    }
}
