//! Mounts that others made, looked at and taken away.

use anyhow::{Context, Result};
use bench::command;
use rustix::fs::{Mode, OFlags};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The mounts at or below a directory, the deepest last.
pub fn below(directory: &Path) -> Vec<PathBuf> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut found: Vec<_> =
        points(&table).into_iter().filter(|point| point.starts_with(directory)).collect();
    found.sort();
    found
}

pub fn is_mounted(point: &Path) -> bool {
    below(point).iter().any(|found| found == point)
}

/// The fifth field of each line, with its octal escapes read.
fn points(table: &str) -> Vec<PathBuf> {
    let fields = table.lines().filter_map(|line| line.split(' ').nth(4));
    let unescape =
        |field: &str| field.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\");
    fields.map(|field| unescape(field).into()).collect()
}

/// Takes a mount away; where somebody still uses it, out of sight.
pub fn unmount(point: &Path) {
    if command::run(Command::new("umount").arg(point)).is_err() && is_mounted(point) {
        let _ = command::run(Command::new("umount").arg("-l").arg(point));
    }
}

/// Hands everything that was written to the file system behind a directory.
pub fn sync(directory: &Path) -> Result<()> {
    let shown = || format!("cannot sync {}", directory.display());
    let opened = rustix::fs::open(directory, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .with_context(shown)?;
    rustix::fs::syncfs(&opened).with_context(shown)
}

/// The same, and the kernel drops what it has cached of every file system.
pub fn drop_caches(directory: &Path) -> Result<()> {
    sync(directory)?;
    std::fs::write("/proc/sys/vm/drop_caches", "3").context("cannot drop the kernel's caches")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_table_is_read_with_its_escapes() {
        let table = "22 1 0:21 / /sys rw - sysfs sysfs rw\n\
                     90 1 0:50 / /mnt/a\\040b rw,nosuid shared:1 - fuse.sshfs x rw\n";
        assert_eq!(points(table), [PathBuf::from("/sys"), "/mnt/a b".into()]);
        assert!(is_mounted(Path::new("/proc")));
        assert!(!is_mounted(Path::new("/proc/self")));
    }
}
