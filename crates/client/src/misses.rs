//! What programs wanted to read and could not, because it was not here and there was no link: it
//! says what should have been pinned, and can be fetched when there is one.
//! Holds: of the files that were missed last, a bounded number, for as long as this process runs.
//! From: partially connected operation, section 4.

use crate::client::{Client, error_of};
use crate::pending::paths_of;
use crate::pins::{lacks, lasts};
use crate::presence::Presence;
use crate::types::Error;
use model::{FileId, View};
use protocol::Upstream;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{MutexGuard, PoisonError};
use store::Containers;
use volume::partial::Tree;

/// Files that are remembered; those that were missed longest ago are forgotten.
const MISSES_MAX: usize = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Miss {
    /// Seconds since 1970.
    last: i64,
    times: u64,
}

#[derive(Default)]
pub(crate) struct Misses {
    files: BTreeMap<FileId, Miss>,
}

impl Misses {
    pub fn len(&self) -> u64 {
        self.files.len() as u64
    }

    fn note(&mut self, file: FileId, now: i64) {
        let miss = self.files.entry(file).or_insert(Miss { last: now, times: 0 });
        (miss.last, miss.times) = (now, miss.times + 1);
        if self.files.len() > MISSES_MAX {
            let others = self.files.iter().filter(|(other, _)| **other != file);
            let oldest = others.min_by_key(|(_, miss)| miss.last).map(|(file, _)| *file);
            oldest.map(|oldest| self.files.remove(&oldest));
        }
    }

    /// One, or all.
    fn take(&mut self, file: Option<FileId>) -> Vec<FileId> {
        match file {
            Some(file) => self.files.remove(&file).map(|_| file).into_iter().collect(),
            None => std::mem::take(&mut self.files).into_keys().collect(),
        }
    }
}

/// A file that was missed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MissShown {
    pub file: u64,
    /// From the root of the volume. None: it has no name, or none that is known here.
    pub path: Option<String>,
    pub size: u64,
    /// What is not here of it now. It may have come since.
    pub lacking_bytes: u64,
    /// How long that takes at the measured rate. None: nothing is known of the link.
    pub lasts_secs: Option<u64>,
    /// Since it was missed last, and how often it was.
    pub age_secs: u64,
    pub times: u64,
}

impl<U: Upstream, C: Containers> Client<U, C> {
    pub(crate) fn misses(&self) -> MutexGuard<'_, Misses> {
        self.inner.keeping.misses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A program has been told that contents are not here.
    pub(crate) fn note_out_of_reach(&self, file: FileId) {
        let now = self.inner.world.clock.time().secs;
        self.misses().note(file, now);
    }

    /// What was missed, the last first.
    pub fn misses_report(&self) -> Result<Vec<MissShown>, Error> {
        let mut files: Vec<(FileId, Miss)> =
            self.misses().files.iter().map(|(file, miss)| (*file, *miss)).collect();
        files.sort_by_key(|(file, miss)| (std::cmp::Reverse(miss.last), *file));
        let now = self.inner.world.clock.time().secs;
        let link = self.inner.upstream.quality();
        let read = self.inner.tables.read().map_err(error_of)?;
        let tree = Tree::new(&*read, 0);
        let named: Vec<FileId> = files.iter().map(|(file, _)| *file).collect();
        let mut paths = paths_of(&tree, &named)?;
        let mut shown = Vec::new();
        for (file, miss) in files {
            let Ok(Some(node)) = tree.node(file) else { continue };
            let row = Presence::load(&*read, file).map_err(error_of)?;
            let lacking_bytes = lacks(&node, row.as_ref());
            shown.push(MissShown {
                file: file.0,
                path: paths.remove(&file),
                size: node.contents.size,
                lacking_bytes,
                lasts_secs: lasts(lacking_bytes, link.likely_down(), link.round_trip),
                age_secs: u64::try_from(now - miss.last).unwrap_or(0),
                times: miss.times,
            });
        }
        Ok(shown)
    }

    /// Forgets what was missed, one file or all; with `fetch`, it is fetched in the background as
    /// soon as there is a link. Gives how many files that were.
    pub fn settle_misses(&self, file: Option<FileId>, fetch: bool) -> u64 {
        let files = self.misses().take(file);
        let count = files.len() as u64;
        if fetch {
            self.bring_once(files);
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_misses_that_are_longest_ago_are_forgotten() {
        let mut misses = Misses::default();
        for file in 0..MISSES_MAX as u64 {
            misses.note(FileId(file), file as i64);
        }
        misses.note(FileId(0), 5_000);
        misses.note(FileId(9_999), 4_000);
        assert_eq!(misses.len(), MISSES_MAX as u64);
        assert_eq!(misses.files.get(&FileId(0)), Some(&Miss { last: 5_000, times: 2 }));
        assert_eq!(misses.files.get(&FileId(1)), None);
        assert_eq!(misses.take(Some(FileId(1))), []);
        assert_eq!(misses.take(Some(FileId(9_999))), [FileId(9_999)]);
        assert_eq!(misses.take(None).len(), MISSES_MAX - 1);
        assert_eq!(misses.len(), 0);
    }
}
