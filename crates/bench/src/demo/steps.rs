//! The steps of the demonstration, timed and counted while one line shows how far they are.

use super::HOME_MAX;
use crate::backend::farfs::Mount;
use crate::show::Line;
use crate::table::{bytes, seconds};
use anyhow::{Context, Result, anyhow};
use bench::Link;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime};

const SHOW_EVERY: Duration = Duration::from_millis(100);

/// What a step cost.
pub struct Step {
    pub what: String,
    /// How long the user waited.
    pub took: Duration,
    /// How long until everything was at the server; none if nothing was written.
    pub home: Option<Duration>,
    pub bytes: u64,
}

pub struct Steps<'a> {
    link: &'a Link,
    pub done: Vec<Step>,
}

impl<'a> Steps<'a> {
    pub fn new(link: &'a Link) -> Self {
        Self { link, done: Vec::new() }
    }

    /// What has to be done once.
    pub fn first(&mut self, what: &str, work: impl FnOnce() -> Result<()> + Send) -> Result<()> {
        self.step(what, self.link, work, None)
    }

    /// Work whose results are awaited at the server.
    pub fn write(
        &mut self,
        what: &str,
        mount: &Mount,
        work: &(dyn Fn() -> Result<()> + Sync),
    ) -> Result<()> {
        self.step(what, self.link, work, Some(mount))
    }

    /// Somebody else's work, over another link.
    pub fn read(
        &mut self,
        what: &str,
        link: &Link,
        work: impl FnOnce() -> Result<()> + Send,
    ) -> Result<()> {
        self.step(what, link, work, None)
    }

    /// Work without a link.
    pub fn offline(&mut self, what: &str, work: impl FnOnce() -> Result<()> + Send) -> Result<()> {
        self.step(what, self.link, work, None)
    }

    fn step(
        &mut self,
        what: &str,
        link: &Link,
        work: impl FnOnce() -> Result<()> + Send,
        awaited: Option<&Mount>,
    ) -> Result<()> {
        let before = link.counters().bytes();
        let start = Instant::now();
        shown(what, link, work).with_context(|| what.to_owned())?;
        let took = start.elapsed();
        let mut home = None;
        if let Some(mount) = awaited {
            let waiting = format!("{what}: done, on its way to the server");
            shown(&waiting, link, || mount.settle(HOME_MAX)).with_context(|| what.to_owned())?;
            home = Some(start.elapsed());
        }
        let bytes_over = link.counters().bytes() - before;
        let mut line = format!("{what:32} {:>8}", seconds(took.as_secs_f64()));
        if let Some(home) = home {
            line += &format!(", at the server after {:>8}", seconds(home.as_secs_f64()));
        }
        println!("{line}, {} over the link", bytes(bytes_over));
        self.done.push(Step { what: what.into(), took, home, bytes: bytes_over });
        Ok(())
    }
}

/// Does the work in a thread while a line shows time and bytes.
fn shown(what: &str, link: &Link, work: impl FnOnce() -> Result<()> + Send) -> Result<()> {
    let line = Line::new(what);
    let before = link.counters().bytes();
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || sender.send(work()));
        loop {
            match receiver.recv_timeout(SHOW_EVERY) {
                Ok(result) => return result,
                Err(RecvTimeoutError::Timeout) => line.look(Some((link, before))),
                Err(RecvTimeoutError::Disconnected) => return Err(anyhow!("it panicked")),
            }
        }
    })
}

/// The files of a tree at a moment, by the times and sizes that change when they do.
pub struct Snapshot(BTreeMap<PathBuf, (Option<SystemTime>, u64)>);

impl Snapshot {
    pub fn empty() -> Self {
        Self(BTreeMap::new())
    }

    /// A tree that is not there is empty.
    pub fn of(tree: &Path) -> Self {
        let mut files = BTreeMap::new();
        gather(tree, tree, &mut files);
        Self(files)
    }

    /// The files that are not as they were, by their paths in the tree.
    pub fn changed(&self, tree: &Path) -> Result<Vec<PathBuf>> {
        let now = Self::of(tree);
        let new = now.0.into_iter().filter(|(path, state)| self.0.get(path) != Some(state));
        Ok(new.map(|(path, _)| path).collect())
    }
}

fn gather(tree: &Path, directory: &Path, files: &mut BTreeMap<PathBuf, (Option<SystemTime>, u64)>) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let Ok(metadata) = entry.metadata() else { continue };
        let path = entry.path();
        if metadata.is_dir() {
            gather(tree, &path, files);
        } else if let Ok(name) = path.strip_prefix(tree) {
            files.insert(name.to_owned(), (metadata.modified().ok(), metadata.len()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_that_changed_are_copied_again() {
        let tree = std::env::temp_dir().join(format!("bench-snapshot-{}", std::process::id()));
        fs::create_dir_all(tree.join("deep")).unwrap();
        fs::write(tree.join("same"), "1").unwrap();
        fs::write(tree.join("deep/other"), "1").unwrap();
        let before = Snapshot::of(&tree);
        fs::write(tree.join("deep/other"), "22").unwrap();
        fs::write(tree.join("new"), "3").unwrap();
        let changed = before.changed(&tree).unwrap();
        assert_eq!(changed, [PathBuf::from("deep/other"), "new".into()]);
        assert_eq!(Snapshot::empty().changed(&tree).unwrap().len(), 3);
        fs::remove_dir_all(tree).unwrap();
    }
}
