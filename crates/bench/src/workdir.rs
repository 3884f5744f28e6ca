//! The directory in which one run of the program works, removed with everything mounted in it.
//! Holds: those of processes that died without removing theirs are removed by the next.

use crate::mounts;
use anyhow::{Context, Result};
use bench::undo::{self, Undo};
use std::fs;
use std::path::{Path, PathBuf};

const PREFIX: &str = "farfs-bench-";
/// Of what is smaller there are only so many.
const LARGE_BYTES: u64 = 1 << 20;

pub struct WorkDir {
    pub path: PathBuf,
    _undo: Undo,
}

impl WorkDir {
    /// `within` is on the disk that is measured. Its name is short, as sockets are made in it.
    pub fn make(within: &Path) -> Result<Self> {
        // First the processes that may still write into what is removed then.
        bench::link::namespace::sweep();
        sweep(within);
        let path = within.join(format!("{PREFIX}{}", std::process::id()));
        let undo = undo::later({
            let path = path.clone();
            move || remove(&path)
        });
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self { path, _undo: undo })
    }

    /// A directory of its own for one part of the work.
    pub fn part(&self, name: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        remove(&path);
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(path)
    }

    /// The same for something that is measured. What was there before gives its room back at once, and its
    /// inodes at the end: for some minutes an ext4 without a journal goes past each that was removed
    /// whenever it makes a file, and whoever was measured second would take ten times as long for small files.
    pub fn part_to_measure(&self, name: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        if path.exists() {
            unmount_below(&path);
            give_room_back(&path);
            let aside = (0..)
                .map(|number| self.path.join(format!("{name}-{number}")))
                .find(|aside| !aside.exists())
                .expect("numbers do not end");
            fs::rename(&path, &aside).with_context(|| format!("cannot move {}", path.display()))?;
        }
        self.part(name)
    }
}

fn unmount_below(directory: &Path) {
    for point in mounts::below(directory).into_iter().rev() {
        mounts::unmount(&point);
    }
}

/// Cuts what is large to nothing. What cannot be is left for the end.
fn give_room_back(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.is_dir() {
            give_room_back(&entry.path());
        } else if metadata.is_file() && metadata.len() >= LARGE_BYTES {
            let _ = fs::OpenOptions::new().write(true).truncate(true).open(entry.path());
        }
    }
}

/// Unmounts first: what is mounted is not ours to delete.
pub fn remove(directory: &Path) {
    unmount_below(directory);
    if mounts::below(directory).is_empty() {
        let _ = fs::remove_dir_all(directory);
    }
}

fn sweep(within: &Path) {
    let Ok(entries) = fs::read_dir(within) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix(PREFIX).and_then(|pid| pid.parse::<u32>().ok());
        if owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            remove(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_work_directory_goes_when_it_is_dropped_and_so_do_those_of_the_dead() {
        let within = std::env::temp_dir().join(format!("bench-workdir-{}", std::process::id()));
        // No process has a number as large as this one.
        let stale = within.join(format!("{PREFIX}4294967295"));
        fs::create_dir_all(stale.join("left")).unwrap();
        let work = WorkDir::make(&within).unwrap();
        assert!(!stale.exists());
        let part = work.part("part").unwrap();
        fs::write(part.join("file"), "x").unwrap();
        let path = work.path.clone();
        let measured = work.part_to_measure("run").unwrap();
        fs::write(measured.join("large"), vec![1; LARGE_BYTES as usize]).unwrap();
        fs::write(measured.join("small"), "x").unwrap();
        let again = work.part_to_measure("run").unwrap();
        assert_eq!((&again, fs::read_dir(&again).unwrap().count()), (&measured, 0));
        let bytes = |name| path.join("run-0").join(name).metadata().unwrap().len();
        assert_eq!((bytes("large"), bytes("small")), (0, 1));
        drop(work);
        assert!(!path.exists());
        fs::remove_dir_all(within).unwrap();
    }
}
