//! Published test suites, run on mounts and on the disk below them: what the disk passes, a mount
//! must pass.

mod cases;
pub mod fsx;
pub mod languages;
pub mod loads;
pub mod pjdfstest;
pub mod postgres;
mod report;
mod silence;
pub mod sqlite;

use crate::loopback::{Client, Origin};
use crate::machine;
use crate::workdir::WorkDir;
use anyhow::{Context, Result, bail, ensure};
pub use report::{Report, Section};
use silence::Silence;
pub use silence::Turns;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// For what is pending when a suite ends.
const SETTLED_WITHIN: Duration = Duration::from_secs(300);

/// The mode of a mount that has no link.
const DISCONNECTED: &str = "disconnected";

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
    mounted: Option<(Client, Origin)>,
}

impl Stage<'_> {
    /// Does it on the disk first, and then in each mode on a new volume.
    pub fn on_each<T>(
        &self,
        mut work: impl FnMut(&mut Place) -> Result<T>,
    ) -> Result<Vec<(String, T)>> {
        let mut done = Vec::new();
        for mode in std::iter::once(None).chain(self.modes.iter().map(Some)) {
            let mut place = match mode {
                None => self.disk()?,
                Some(mode) => self.mount(mode)?,
            };
            println!("on {} ...", place.name);
            let outcome = work(&mut place).with_context(|| format!("on {}", place.name))?;
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
        Ok(Place { name, path, elsewhere, beside, mounted: None })
    }

    fn mount(&self, mode: &str) -> Result<Place> {
        let beside = self.part(mode)?;
        let origin = Origin::start(&self.farfs, &beside.join("origin"), None)?;
        // Suites do things as other users.
        let client = Client::with(&origin, &beside, mode, &["--allow-other"])?;
        let path = made(client.point.join("tests"))?;
        let elsewhere = made(beside.join("elsewhere"))?;
        let name = format!("FarFS, {mode}");
        Ok(Place { name, path, elsewhere, beside, mounted: Some((client, origin)) })
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

impl Place {
    pub fn is_mount(&self) -> bool {
        self.mounted.is_some()
    }

    /// With SIGKILL, and whatever it was doing.
    pub fn kill_mount(&self) -> Result<()> {
        let (client, _) = self.mounted.as_ref().context("nothing is mounted")?;
        kill(client.status()?.pid.try_into().context("a process has too large a number")?)
    }

    /// From now on the server is silent and answers in turns. None: on the disk.
    pub fn silence(&self, turns: Turns) -> Result<Option<Silence>> {
        let silence = |(client, origin): &(Client, Origin)| {
            let asker = client.asker();
            let is_missed = move || asker.status().is_ok_and(|status| status.mode == DISCONNECTED);
            Silence::of(origin.pid, turns, is_missed)
        };
        self.mounted.as_ref().map(silence).transpose()
    }

    /// A second mount, made for it, shows the same contents of the files once all is at the server.
    pub fn agrees_elsewhere(&self, files: &[PathBuf]) -> Result<()> {
        let Some((client, origin)) = &self.mounted else { return Ok(()) };
        client.settle(SETTLED_WITHIN)?;
        let other = Client::new(origin, &self.beside.join("other"), "connected")?;
        let read =
            |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
        for file in files {
            let path = file.strip_prefix(&client.point).context("it is not of the mount")?;
            let (here, there) = (read(file)?, read(&other.point.join(path))?);
            ensure!(here == there, "another mount shows other contents of {}", path.display());
        }
        Ok(())
    }

    /// With what was kept by the one that was killed.
    pub fn mount_again(&mut self) -> Result<()> {
        self.mounted.as_mut().context("nothing is mounted")?.0.mount()
    }
}

fn kill(pid: i32) -> Result<()> {
    use rustix::process::{Pid, Signal, kill_process};
    let named = Pid::from_raw(pid).context("there is no process 0")?;
    kill_process(named, Signal::KILL).with_context(|| format!("cannot kill {pid}"))
}

/// Names a test that did not pass.
fn show(name: &str, case: &cases::Case) {
    if case.outcome != cases::Outcome::Passed {
        println!("  {name}: {}", case.said);
    }
}

/// A suite's name, and its version if it says one.
fn titled(name: &str, program: &Path) -> String {
    let said = report::version(program);
    let number = |word: &&str| word.contains('.') && word.chars().any(|c| c.is_ascii_digit());
    match said.split_whitespace().find(number) {
        Some(word) => {
            format!("{name} {}", word.trim_start_matches(|c: char| !c.is_ascii_digit()))
        }
        None => name.into(),
    }
}

/// The program of a suite, or how to get it.
pub fn find(name: &str, named: Option<&Path>, how: &str) -> Result<PathBuf> {
    if let Some(path) = named {
        return path.canonicalize().with_context(|| format!("there is no {}", path.display()));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let cargo = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo/bin"));
    // The programs of a server lie together there, and elsewhere only some of them.
    let folders = servers().into_iter().chain(std::env::split_paths(&path)).chain(cargo);
    match folders.map(|folder| folder.join(name)).find(|program| program.is_file()) {
        Some(program) => Ok(program),
        None => bail!("there is no {name}: get it (`{how} {name}`), or name it with --suite"),
    }
}

/// Where distributions put the programs of PostgreSQL, the newest first.
fn servers() -> Vec<PathBuf> {
    let entries = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders: Vec<_> = entries.map(|entry| entry.path().join("bin")).collect();
    folders.sort();
    folders.reverse();
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite_that_is_not_installed_is_said_how_to_get() {
        let error = find("no-such-suite", None, "cargo install").unwrap_err().to_string();
        assert!(error.contains("cargo install no-such-suite"), "{error}");
        assert!(find("sh", None, "").unwrap().ends_with("sh"));
        assert!(find("sh", Some(Path::new("/no/such")), "").is_err());
    }
}
