//! Who has something of a mount in use, or has a copy of it, told from what /proc shows: by the number of its
//! device, for what was taken out of the tree has no path any more.
//! Never: asks the mounted file system, which might wait for the link.

use crate::table;
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Processes that have a file of the device open or mapped, or stand in one of its directories. The
/// device is `major:minor`. Who may not be looked at is passed over.
pub fn users(device: &str) -> impl Iterator<Item = u32> + use<> {
    let number = number(device);
    let is_user = move |pid: &u32| number.is_some_and(|number| uses(&process(*pid), number));
    pids().filter(|pid| *pid != std::process::id()).filter(is_user)
}

/// Whether a process has a mount table of its own in which the device is.
pub(crate) fn is_copied(device: &str) -> bool {
    let namespace = |pid: u32| std::fs::read_link(process(pid).join("ns/mnt")).ok();
    let mut seen: HashSet<PathBuf> = namespace(std::process::id()).into_iter().collect();
    pids().any(|pid| {
        namespace(pid).is_some_and(|namespace| seen.insert(namespace))
            && table::of(pid).is_ok_and(|table| table::is_mounted(&table, device))
    })
}

fn pids() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn process(pid: u32) -> PathBuf {
    format!("/proc/{pid}").into()
}

fn number(device: &str) -> Option<(u32, u32)> {
    let (major, minor) = device.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn uses(process: &Path, number: (u32, u32)) -> bool {
    let stands = ["cwd", "root", "exe"].iter().any(|link| is_on(&process.join(link), number));
    let has_open = || {
        let files = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        files.map(|file| file.path()).any(|file| is_on(&file, number))
    };
    let has_mapped =
        || std::fs::read_to_string(process.join("maps")).is_ok_and(|maps| is_mapped(&maps, number));
    stands || has_open() || has_mapped()
}

/// What is asked for no attribute and may not be asked tells its device all the same.
fn is_on(link: &Path, (major, minor): (u32, u32)) -> bool {
    statx(CWD, link, AtFlags::STATX_DONT_SYNC, StatxFlags::empty())
        .is_ok_and(|seen| (seen.stx_dev_major, seen.stx_dev_minor) == (major, minor))
}

/// Reads `/proc/PID/maps`, which has devices as hexadecimal numbers.
fn is_mapped(maps: &str, (major, minor): (u32, u32)) -> bool {
    let device = format!("{major:02x}:{minor:02x}");
    maps.lines().any(|line| line.split(' ').nth(3) == Some(&device))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn device_of(path: &Path) -> String {
        let seen = statx(CWD, path, AtFlags::empty(), StatxFlags::empty()).unwrap();
        format!("{}:{}", seen.stx_dev_major, seen.stx_dev_minor)
    }

    #[test]
    fn who_stands_somewhere_or_has_a_file_open_uses_the_device() {
        let device = device_of(Path::new("/proc"));
        let sleeping = || {
            let mut command = Command::new("sleep");
            command.arg("60").current_dir("/").stdin(Stdio::null());
            command
        };
        let mut stands = sleeping().current_dir("/proc").spawn().unwrap();
        let open = std::fs::File::open("/proc/self/status").unwrap();
        let mut reads = sleeping().stdin(open).spawn().unwrap();
        let mut neither = sleeping().spawn().unwrap();
        let found: Vec<u32> = users(&device).collect();
        for child in [&mut stands, &mut reads, &mut neither] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(found.contains(&stands.id()) && found.contains(&reads.id()), "{found:?}");
        assert!(!found.contains(&neither.id()), "{found:?}");
        assert_eq!(users("nonsense").count(), 0);
    }

    #[test]
    fn what_is_mapped_is_told_by_its_device() {
        let maps = "7f00-7f10 r--p 00000000 00:1f 12 /a b\n7f10-7f20 rw-p 00000000 fd:100 0\n";
        assert!(is_mapped(maps, (0, 31)) && is_mapped(maps, (253, 256)));
        assert!(!is_mapped(maps, (0, 3)) && !is_mapped("", (0, 31)));
    }
}
