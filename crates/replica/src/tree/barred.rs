//! Directories of the tree that the server may not open, or not look into.
//! Holds: what is in them stays in the volume as it was seen last, and counts neither as changed
//! nor as removed; all else goes on. When one may be opened again, it is listed, and so are the
//! others that were barred: what was told of them meanwhile was not looked at.

use super::keeper::Keeper;
use super::rows;
use crate::error::{ReplicaError, Result};
use model::FileId;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::time::Duration;
use store::tree::Directory;
use tracing::{info, warn};
use world::Moment;

/// They are tried so often, beside when somebody is seen to change their permissions.
const RETRY: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Barred {
    /// With their paths below the root.
    directories: BTreeMap<FileId, String>,
    /// Those of which it was said.
    told: BTreeSet<String>,
    changed: bool,
    due: Moment,
}

impl Barred {
    pub fn none(now: Moment) -> Barred {
        Barred {
            directories: BTreeMap::new(),
            told: BTreeSet::new(),
            changed: false,
            due: now + RETRY,
        }
    }

    /// When they are tried again.
    pub fn due(&self) -> Option<Moment> {
        (!self.directories.is_empty()).then_some(self.due)
    }

    /// It is open, or not there any more. False: it was not barred.
    pub fn forget(&mut self, directory: FileId) -> bool {
        let was_barred = self.directories.remove(&directory).is_some();
        self.changed |= was_barred;
        was_barred
    }

    /// The paths of those that lie in no other.
    fn topmost(&self) -> BTreeSet<String> {
        let mut paths: Vec<&String> = self.directories.values().collect();
        paths.sort_unstable();
        let mut topmost: BTreeSet<String> = BTreeSet::new();
        for path in paths {
            let above = path.match_indices('/').map(|(at, _)| &path[..at]);
            if !above.into_iter().any(|above| topmost.contains(above)) {
                topmost.insert(path.clone());
            }
        }
        topmost
    }
}

/// A directory, as far as it can be reached.
pub(super) enum Way {
    Open(Directory),
    /// It is not where it was.
    Astray,
    /// The server may not open it, or one above it.
    Barred,
}

impl Keeper {
    /// The directory where it was agreed on.
    pub(super) fn way(&mut self, directory: FileId) -> Result<Way> {
        let opened = self.directory(directory);
        Ok(match self.unless_barred(directory, opened)? {
            Some(Some(opened)) => Way::Open(opened),
            Some(None) => Way::Astray,
            None => Way::Barred,
        })
    }

    /// None: the directory's permissions forbid it, and it is left out for now.
    pub(super) fn unless_barred<T>(
        &mut self,
        directory: FileId,
        done: Result<T>,
    ) -> Result<Option<T>> {
        match done {
            Ok(done) => Ok(Some(done)),
            Err(error) if is_barred(&error) => {
                self.bar(directory)?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// It is listed when it may be opened again.
    pub(super) fn bar(&mut self, directory: FileId) -> Result<()> {
        let read = self.inner.tables.read()?;
        let path = rows::path(&*read, self.volume.id, directory)?.unwrap_or_default();
        let path = String::from_utf8_lossy(&path).into_owned();
        let before = self.barred.directories.insert(directory, path.clone());
        self.barred.changed |= before.is_none_or(|before| before != path);
        Ok(())
    }

    /// A directory was listed. If it was barred, the others may be open by now, too.
    pub(super) fn unbar(&mut self, directory: FileId) {
        if self.barred.forget(directory) {
            self.stirred = true;
            self.dirt.lists.extend(self.barred.directories.keys());
        }
    }

    pub(super) fn try_barred_if_due(&mut self) {
        let now = self.inner.world.clock.moment();
        if self.barred.due().is_some_and(|due| due <= now) {
            self.barred.due = now + RETRY;
            self.dirt.lists.extend(self.barred.directories.keys());
        }
    }

    /// Says once of each which they are, and when it is over. None: nothing is new.
    pub(super) fn tell_barred(&mut self) -> Option<Vec<String>> {
        if !std::mem::take(&mut self.barred.changed) {
            return None;
        }
        let now = self.barred.topmost();
        let (volume, root) = (&self.volume.name, self.tree.path().display());
        for path in now.difference(&self.barred.told) {
            warn!(
                volume,
                path = format!("{root}/{path}"),
                "the server may not look into a directory of the tree: it is left out, and devices \
                 see it as it was; give the user that the server runs as leave to read and enter it"
            );
        }
        for path in self.barred.told.difference(&now) {
            let path = format!("{root}/{path}");
            info!(volume, path, "a directory of the tree is no longer left out");
        }
        self.barred.told.clone_from(&now);
        Some(now.into_iter().collect())
    }
}

/// Permissions forbid it.
pub(super) fn is_barred(error: &ReplicaError) -> bool {
    matches!(error, ReplicaError::Store(error) if error.kind() == Some(ErrorKind::PermissionDenied))
}

#[cfg(test)]
mod tests {
    use super::*;
    use world::Clock;

    #[test]
    fn of_directories_in_one_another_the_outermost_is_told() {
        let mut barred = Barred::none(Clock::simulated(0).moment());
        let paths = ["a/b/c", "a/b", "a/bc", "d/e/f/g", "d/e"];
        barred.directories = (1..).map(FileId).zip(paths.map(str::to_owned)).collect();
        let topmost: Vec<_> = barred.topmost().into_iter().collect();
        assert_eq!(topmost, ["a/b", "a/bc", "d/e"]);
    }
}
