//! One process per directory: a lock that the kernel gives up when the process ends.
//! Holds: who has a `Lock` is the only farfs process in that directory.

use crate::exit::{Exit, fail};
use anyhow::{Context, Error, Result};
use rustix::fs::FlockOperation;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use store::ordinary;

const NAME: &str = "lock";

/// Dropped, it is free again.
#[derive(Debug)]
pub struct Lock {
    /// None: there is no file, and none can be made.
    _file: Option<File>,
}

impl Lock {
    /// With its file, of a directory that is not used any more.
    pub fn remove(self, directory: &Path) {
        // Who finds it later takes it for free, as it is.
        let _ = std::fs::remove_file(directory.join(NAME));
    }
}

/// None: another process has it.
pub fn try_lock(directory: &Path) -> Result<Option<Lock>> {
    let path = directory.join(NAME);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let mut file = ordinary::open(&path, &mut options)
        .with_context(|| format!("cannot open {}", path.display()))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
        Err(error) => {
            return Err(error).with_context(|| format!("cannot lock {}", path.display()));
        }
    }
    // Only for the message that another process shows; the lock itself is the kernel's, and there
    // where the disk has no room for a number.
    let noted = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    if let Err(error) = noted {
        tracing::debug!(%error, "who has the directory is not noted");
    }
    Ok(Some(Lock { _file: Some(file) }))
}

/// The same where nothing can be written: beside others who only look, and with nobody else. None:
/// somebody has it.
pub fn try_look(directory: &Path) -> Result<Option<Lock>> {
    let path = directory.join(NAME);
    let file = match ordinary::open(&path, OpenOptions::new().read(true)) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Ok(Some(Lock { _file: None }));
        }
        Err(error) => return Err(error).with_context(|| format!("cannot open {}", path.display())),
    };
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(Some(Lock { _file: Some(file) })),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot lock {}", path.display())),
    }
}

pub fn lock(directory: &Path) -> Result<Lock> {
    try_lock(directory)?.ok_or_else(|| in_use(directory, ""))
}

/// What is said of a directory that another process has. `more`: what else is to be said of it.
pub fn in_use(directory: &Path, more: &str) -> Error {
    let holder = holder(directory).map_or(String::new(), |pid| format!(" (process {pid})"));
    let directory = directory.display();
    fail(Exit::Busy, format!("{directory} is in use by another farfs process{holder}{more}"))
}

/// Who wrote its id into the lock last.
fn holder(directory: &Path) -> Option<u32> {
    let mut text = String::new();
    let file = ordinary::open(&directory.join(NAME), OpenOptions::new().read(true));
    file.ok()?.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_lock_is_refused_until_the_first_is_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let first = lock(directory.path()).unwrap();
        let error = lock(directory.path()).unwrap_err();
        assert_eq!(crate::exit::code(&error), Exit::Busy);
        assert!(error.to_string().contains(&std::process::id().to_string()));
        drop(first);
        // A child that another test has begun may have it until it becomes another program.
        let again = (0..100).find_map(|_| {
            lock(directory.path())
                .map_err(|_| std::thread::sleep(std::time::Duration::from_millis(20)))
                .ok()
        });
        assert!(again.is_some());
    }

    #[test]
    fn who_only_looks_keeps_others_away_and_is_kept_away_but_not_from_who_looks_too() {
        let directory = tempfile::tempdir().unwrap();
        assert!(try_look(directory.path()).unwrap().is_some());
        assert!(!directory.path().join(NAME).exists(), "nothing is made");
        let used = lock(directory.path()).unwrap();
        assert!(try_look(directory.path()).unwrap().is_none());
        drop(used);
        let looks = || try_look(directory.path()).unwrap();
        let first = (0..100).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            looks()
        });
        assert!(first.is_some() && looks().is_some());
        assert!(try_lock(directory.path()).unwrap().is_none());
    }
}
