//! What is pending of a part of a mount, as `farfs log` and `farfs wait` mean it.

use crate::mounts::{self, Entry};
use crate::questions;
use anyhow::Result;
use client::PendingLog;
use std::path::{Path, PathBuf};

/// Of a directory all is asked for, and what is not below it left out.
const LOOKED_AT_MAX: usize = 100_000;

/// A part of a mount.
pub enum Part {
    All,
    /// With its number: it may get another name meanwhile.
    File(u64),
    /// All below, from the root of the volume.
    Directory(PathBuf),
}

impl Part {
    /// What a path means in a mount that holds it.
    pub fn of(mount: &Entry, path: Option<&Path>) -> Result<Part> {
        let Some(path) = path else { return Ok(Part::All) };
        let below = path.strip_prefix(&mount.mountpoint).unwrap_or(Path::new(""));
        if below.as_os_str().is_empty() {
            return Ok(Part::All);
        }
        let number = mounts::inode(path)?;
        let is_directory = std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir());
        Ok(if is_directory { Part::Directory(below.to_owned()) } else { Part::File(number) })
    }

    /// What is pending of it, of at most so many files.
    pub fn log(&self, mount: &Entry, files_max: usize) -> Result<PendingLog> {
        match self {
            Part::All => questions::log(mount, None, files_max),
            Part::File(number) => questions::log(mount, Some(*number), files_max),
            Part::Directory(below) => {
                let log = questions::log(mount, None, LOOKED_AT_MAX)?;
                Ok(below_alone(log, below, files_max))
            }
        }
    }
}

/// What is pending of files at or below a directory; of those without a name nobody knows where
/// they belong, and they count.
fn below_alone(mut log: PendingLog, below: &Path, files_max: usize) -> PendingLog {
    let is_meant =
        |path: &Option<String>| path.as_ref().is_none_or(|path| Path::new(path).starts_with(below));
    log.files.retain(|file| is_meant(&file.path));
    log.updates = log.files.iter().map(|file| file.updates).sum::<u64>() + log.files_more;
    log.bytes = log.files.iter().map(|file| file.bytes).sum();
    log.sent = log.files.iter().map(|file| file.sent).sum();
    log.upto = log.files.iter().map(|file| file.upto).max().unwrap_or(0);
    log.files_more += log.files.len().saturating_sub(files_max) as u64;
    log.files.truncate(files_max);
    log
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::PendingFile;

    fn file(path: Option<&str>) -> PendingFile {
        PendingFile {
            file: 1,
            path: path.map(str::to_owned),
            updates: 2,
            bytes: 10,
            sent: 0,
            oldest_secs: 0,
            newest: String::new(),
            on_its_way: false,
            waits_for: client::WaitsFor::Turn,
            upto: path.map_or(0, |path| path.len() as u64),
        }
    }

    #[test]
    fn of_a_directory_what_is_below_counts_and_what_has_no_name() {
        let files = vec![
            file(Some("a/b")),
            file(Some("ab/c")),
            file(Some("a")),
            file(None),
            file(Some("")),
        ];
        let log = PendingLog { files, updates: 10, bytes: 50, ..PendingLog::default() };
        let told = below_alone(log, Path::new("a"), 2);
        assert_eq!((told.updates, told.bytes, told.upto), (6, 30, 3));
        assert_eq!((told.files.len(), told.files_more), (2, 1));
        assert_eq!(told.files[1].path.as_deref(), Some("a"));
    }
}
