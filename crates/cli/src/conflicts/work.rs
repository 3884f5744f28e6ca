//! Where both sides are put together: copies in a directory that is its user's alone.
//! Holds: dropped, nothing of it is left.

use anyhow::{Context, Result};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Directories that are tried for one that nobody has made yet.
const TRIES_MAX: u32 = 100;

pub(super) struct Work {
    directory: PathBuf,
    /// How names end: programs look at that.
    end: String,
}

impl Work {
    /// For a file that is to be merged.
    pub fn of(path: &Path) -> Result<Work> {
        let end = path.extension().map(|end| format!(".{}", end.to_string_lossy()));
        Ok(Work { directory: private_directory()?, end: end.unwrap_or_default() })
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}{}", self.end))
    }

    /// What both are together.
    pub fn merged(&self) -> PathBuf {
        self.file("merged")
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // What is left of it is in nobody's way.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// What is copied there may be nobody else's to read.
fn private_directory() -> Result<PathBuf> {
    let name = |attempt: u32| {
        let name = format!("farfs-merge-{}-{attempt}", std::process::id());
        std::env::temp_dir().join(name)
    };
    let mut last = None;
    for directory in (0..TRIES_MAX).map(name) {
        match fs::DirBuilder::new().mode(0o700).create(&directory) {
            Ok(()) => return Ok(directory),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                last = Some((directory, error));
            }
            Err(error) => {
                return Err(error).with_context(|| format!("cannot make {}", directory.display()));
            }
        }
    }
    let (directory, error) = last.context("no directory was tried")?;
    Err(error).with_context(|| format!("cannot make {}", directory.display()))
}
