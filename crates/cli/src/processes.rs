//! Other processes, as /proc shows them.

use rustix::process::{Resource, Rlimit};
use std::path::{Path, PathBuf};

/// The most users of a file system that a message names.
const USERS_MAX: usize = 5;

/// As many open files as the system lets this process have: a cached file that is open takes one.
pub fn raise_open_files() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = rustix::process::setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "the number of open files stays limited");
    }
}

/// Heaps that threads share. Each would have its own, and none gives back what another could use:
/// after files by the hundred thousand that is most of the memory of a client or a server.
#[cfg(target_env = "gnu")]
const HEAPS: i32 = 2;

/// To be called before there are threads.
pub fn share_heaps() {
    #[cfg(target_env = "gnu")]
    #[allow(unsafe_code, reason = "there is no other way to say this to the C library")]
    // SAFETY: mallopt takes two numbers, keeps no pointer, and no other thread runs yet.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, HEAPS);
    }
}

/// When the process began, in ticks since the machine did. With its id it is that process and
/// no later one. None: there is none.
pub fn started(pid: u32) -> Option<u64> {
    start_field(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Field 22; the program's name, field 2, stands in brackets and may hold anything.
fn start_field(stat: &str) -> Option<u64> {
    let (before, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    // A dead process that nobody has waited for yet is no process.
    if before.is_empty() || matches!(fields.first(), Some(&("Z" | "X"))) {
        return None;
    }
    fields.get(19)?.parse().ok()
}

/// Processes that keep a file system busy: "bash (1234)".
pub fn using(mountpoint: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| *pid != std::process::id() && uses(*pid, mountpoint))
        .take(USERS_MAX)
        .map(|pid| {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            format!("{} ({pid})", name.trim())
        })
        .collect()
}

/// The links are read, never followed: nothing here waits for the file system itself.
fn uses(pid: u32, mountpoint: &Path) -> bool {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let below = |link: &Path| std::fs::read_link(link).is_ok_and(|to| to.starts_with(mountpoint));
    if ["cwd", "root", "exe"].iter().any(|link| below(&process.join(link))) {
        return true;
    }
    std::fs::read_dir(process.join("fd"))
        .is_ok_and(|files| files.flatten().any(|file| below(&file.path())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_hide_the_start() {
        let tail = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 777 20";
        assert_eq!(start_field(&format!("42 (a) b) {tail}")), Some(777));
        assert_eq!(start_field(&format!("42 (dead) {}", tail.replacen('S', "Z", 1))), None);
        assert_eq!(start_field("nonsense"), None);
    }

    #[test]
    fn this_process_has_a_start_and_one_that_cannot_be_has_none() {
        assert!(started(std::process::id()).is_some());
        assert_eq!(started(u32::MAX), None);
    }
}
