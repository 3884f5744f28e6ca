//! Sees to it that tests which mount leave nothing running and nothing mounted.
//!
//! Holds: only what the watched tests made is ended or unmounted. Their processes carry a mark in
//! the environment that children inherit, and their mounts lie below a folder made for them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

const MARK: &str = "FARFS_TEST_RUN";

/// How long a process has to end by itself once the tests are over.
const GRACE: Duration = Duration::from_secs(2);

/// A running watch over one run of tests.
pub struct Watch {
    mark: String,
    folder: PathBuf,
}

impl Watch {
    pub fn begin() -> Result<Watch> {
        let mark = std::process::id().to_string();
        let folder = std::env::temp_dir().join(format!("farfs-test-{mark}"));
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("{} cannot be made", folder.display()))?;
        Ok(Watch { mark, folder })
    }

    /// What the tests must be started with to be seen.
    pub fn variables(&self) -> [(&'static str, PathBuf); 2] {
        [(MARK, PathBuf::from(&self.mark)), ("TMPDIR", self.folder.clone())]
    }

    /// Ends and unmounts what is left, and fails if there was something.
    pub fn end(self) -> Result<()> {
        if !processes(&self.mark).is_empty() {
            std::thread::sleep(GRACE);
        }
        let running = processes(&self.mark);
        for (pid, _) in &running {
            // It may have ended meanwhile: then there is nothing to do.
            let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
        }
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mounted = mounts_below(&table, &self.folder);
        // The innermost first.
        for place in mounted.iter().rev() {
            let _ = Command::new("umount").arg("-l").arg(place).status();
        }
        // With a mount still in it the folder stays, and the finding below says so.
        let _ = std::fs::remove_dir_all(&self.folder);
        if running.is_empty() && mounted.is_empty() {
            return Ok(());
        }
        let running: Vec<String> =
            running.iter().map(|(pid, name)| format!("process {pid} ({name})")).collect();
        let mounted: Vec<String> =
            mounted.iter().map(|place| format!("mount {}", place.display())).collect();
        bail!("the tests left behind, now ended: {}", [running, mounted].concat().join(", "))
    }
}

/// Processes that carry the mark, with their names.
fn processes(mark: &str) -> Vec<(u32, String)> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        if carries(&environment, mark) {
            let name = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            found.push((pid, name.trim().to_owned()));
        }
    }
    found
}

/// Whether an environment, as the kernel shows it, has the mark of this run.
fn carries(environment: &[u8], mark: &str) -> bool {
    let wanted = format!("{MARK}={mark}");
    environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
}

/// The mounts of a mountinfo table that lie below a folder, in the order they were made.
fn mounts_below(table: &str, folder: &Path) -> Vec<PathBuf> {
    table
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(|place| PathBuf::from(place.replace("\\040", " ")))
        .filter(|place| place.starts_with(folder))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_another_run_is_not_ours() {
        assert!(carries(b"HOME=/\0FARFS_TEST_RUN=17\0", "17"));
        assert!(!carries(b"HOME=/\0FARFS_TEST_RUN=171\0", "17"));
        assert!(!carries(b"", "17"));
    }

    #[test]
    fn only_mounts_below_the_folder_are_ours() {
        let table = "22 1 0:20 / /tmp/farfs-test-1/a rw - fuse farfs rw\n\
                     23 1 0:21 / /tmp/farfs-test-12/b rw - fuse farfs rw\n\
                     24 1 0:22 / /tmp/farfs-test-1/a\\040b rw - fuse farfs rw\n\
                     short line\n";
        let found = mounts_below(table, Path::new("/tmp/farfs-test-1"));
        let wanted = ["/tmp/farfs-test-1/a", "/tmp/farfs-test-1/a b"].map(PathBuf::from);
        assert_eq!(found, wanted);
    }

    #[test]
    fn what_a_test_leaves_running_is_ended_and_reported() {
        let watch = Watch::begin().expect("the temporary folder can be made");
        let mut left = Command::new("sleep")
            .arg("600")
            .envs(watch.variables())
            .spawn()
            .expect("sleep can be started");
        // The kernel shows a new program's environment a moment after it has begun.
        let mark = watch.mark.clone();
        let began = std::time::Instant::now();
        while processes(&mark).is_empty() && began.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let error = watch.end().expect_err("a process was left").to_string();
        assert!(error.contains(&format!("process {} (sleep)", left.id())), "{error}");
        assert!(!left.wait().expect("it was ours to wait for").success());
    }
}
