//! Clears away what runs that were killed have left: by the mark in the environment of the
//! processes that they started, and by the names of their folders.
//! Never: touches what belongs to a run that still goes on.

use crate::world::{FOLDER, MARK};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Before the first world of a run.
pub fn after_dead_runs() {
    for (pid, environment) in processes() {
        if run_of(&environment).is_some_and(is_dead) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    let folder = std::env::temp_dir();
    for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let run = name.to_str().and_then(|name| name.strip_prefix(FOLDER)?.split('-').next());
        if run.and_then(|run| run.parse().ok()).is_some_and(is_dead) {
            clear(&entry.path());
        }
    }
}

/// Every process with its environment, where that may be read.
fn processes() -> Vec<(Pid, Vec<u8>)> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter_map(|entry| {
        let pid = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
        Some((pid, std::fs::read(entry.path().join("environ")).ok()?))
    });
    processes.collect()
}

/// Whether one of the arguments of a process is a path in the folder.
fn names(command_line: &[u8], folder: &Path) -> bool {
    let mut arguments = command_line.split(|byte| *byte == 0).map(OsStr::from_bytes);
    arguments.any(|argument| Path::new(argument).starts_with(folder))
}

fn run_of(environment: &[u8]) -> Option<i32> {
    let prefix = format!("{MARK}=");
    let marked = environment.split(|byte| *byte == 0);
    let mut values = marked.filter_map(|variable| variable.strip_prefix(prefix.as_bytes()));
    std::str::from_utf8(values.next()?).ok()?.parse().ok()
}

fn is_dead(run: i32) -> bool {
    Pid::from_raw(run).is_none_or(|pid| test_kill_process(pid).is_err())
}

/// Ends what runs for a folder, unmounts what is mounted below it, the newest first, and removes
/// it. Daemons have left the test's process behind; what they mount tells whose they are.
pub fn clear(folder: &Path) {
    for (pid, environment) in processes() {
        let arguments = std::fs::read(format!("/proc/{}/cmdline", pid.as_raw_pid()));
        let names_it = arguments.is_ok_and(|line| names(&line, folder));
        if run_of(&environment).is_some() && names_it {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    for place in mounts_below(&table, folder).iter().rev() {
        // By force: what hangs in it goes on, with an error.
        let _ = unmount(place, UnmountFlags::DETACH | UnmountFlags::FORCE);
    }
    // What cannot be removed is seen by whoever counts leftovers.
    let _ = std::fs::remove_dir_all(folder);
}

/// In the order in which they were mounted.
fn mounts_below(table: &str, folder: &Path) -> Vec<PathBuf> {
    let places = table.lines().filter_map(|line| line.split(' ').nth(4));
    let places = places.map(|place| PathBuf::from(place.replace("\\040", " ")));
    places.filter(|place| place.starts_with(folder)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_processes_of_dead_runs_are_found_by_their_mark() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert_eq!(run_of(format!("A=b\0{MARK}=17\0").as_bytes()), Some(17));
        assert_eq!(run_of(b"A=b\0"), None);
        assert!(!is_dead(own));
    }

    #[test]
    fn a_process_is_a_folder_s_if_an_argument_lies_in_it() {
        assert!(names(b"farfs\0daemon\0/t/a/m\0", Path::new("/t/a")));
        assert!(!names(b"farfs\0daemon\0/t/ab/m\0", Path::new("/t/a")));
    }

    #[test]
    fn mounts_below_a_folder_are_found_in_their_order() {
        let table = "1 1 0:1 / /t/a/m rw - fuse x rw\n2 1 0:2 / /t/ab rw - tmpfs x rw\n\
                     3 1 0:3 / /t/a/m/n\\040o rw - tmpfs x rw\n";
        let found = mounts_below(table, Path::new("/t/a"));
        assert_eq!(found, ["/t/a/m", "/t/a/m/n o"].map(PathBuf::from));
    }
}
