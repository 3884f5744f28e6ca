//! When files were last read here, as `relatime` has it on a local disk.
//! Holds: a time of access is this machine's; the replica above is told of it with other attributes
//! that are set, and never for its own sake. Nobody waits for it, and it is in memory until the
//! next checkpoint.
//! Never: changes the time of change, or what an update expects to find.

use crate::client::{Client, error_of};
use crate::ranks::{self, Rank, Ranked};
use crate::types::{Error, Opened};
use model::{FileId, Node, Time, View};
use protocol::Upstream;
use std::collections::BTreeMap;
use store::{Containers, Durability, Write};
use volume::partial::{self, Tree};

/// A time of access moves when it is so old, whatever has happened to the file: what Linux takes.
const OLD_SECS: i64 = 24 * 60 * 60;
/// Times of access that are not in the tables yet. Beyond that they stay as they are until the
/// next checkpoint.
const MOVED_MAX: usize = 65_536;

/// Files that were read since the last checkpoint.
#[derive(Default)]
pub(crate) struct Accesses {
    moved: BTreeMap<FileId, Moved>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moved {
    /// The time that showed before.
    seen: Time,
    at: Time,
}

impl Accesses {
    /// False if there are too many already.
    fn note(&mut self, file: FileId, seen: Time, at: Time) -> bool {
        if self.moved.len() >= MOVED_MAX && !self.moved.contains_key(&file) {
            return false;
        }
        match self.moved.get_mut(&file) {
            // The tables still have what showed before the first of them.
            Some(moved) if moved.at == seen => moved.at = at,
            _ => drop(self.moved.insert(file, Moved { seen, at })),
        }
        true
    }

    fn show(&self, file: FileId, node: &mut Node) {
        if let Some(moved) = self.moved.get(&file)
            && moved.seen == node.atime
        {
            node.atime = moved.at;
        }
    }
}

/// Whether reading a file moves its time of access: if it was changed since it was last read, or
/// was read long ago.
fn moves(node: &Node, now: Time) -> bool {
    let is_old = now.secs.saturating_sub(node.atime.secs) >= OLD_SECS;
    node.atime != now && (node.atime <= node.mtime || node.atime <= node.ctime || is_old)
}

impl<U: Upstream, C: Containers> Client<U, C> {
    fn accesses(&self) -> Ranked<'_, Accesses> {
        ranks::lock(Rank::Accesses, &self.inner.accesses)
    }

    /// What is read through what was opened just now moves the time of access of its file: with
    /// the first read, or at once where the kernel may answer from what it has cached or been lent.
    pub fn note_reads(&self, opened: &Opened) {
        let Ok((grip, flags)) = self.files().grip(opened.handle) else { return };
        if !flags.read || !self.access_is_due(grip.file) {
            return;
        }
        if !opened.keep_cache && (opened.lent.is_none() || opened.direct) {
            self.files().first_read_counts(opened.handle);
            return;
        }
        self.accessed(grip.file);
        if let Some(kernel) = self.inner.kernel.get() {
            kernel.forget_node(grip.file, false);
        }
    }

    /// A file, directory or link was read. The kernel knows, and will ask for its attributes.
    pub fn accessed(&self, file: FileId) {
        let now = self.inner.world.clock.time();
        if let Some(node) = self.shown_here(file)
            && moves(&node, now)
            && !self.accesses().note(file, node.atime, now)
        {
            self.inner.checkpoint_wanted.notify_one();
        }
    }

    fn access_is_due(&self, file: FileId) -> bool {
        let now = self.inner.world.clock.time();
        self.shown_here(file).is_some_and(|node| moves(&node, now))
    }

    /// A file as it shows, whatever the lease. None: it is not known, or never changes.
    fn shown_here(&self, file: FileId) -> Option<Node> {
        if file.is_past() {
            return None;
        }
        let mut files = self.files();
        let node = self.node_here(file).ok()?;
        self.found(&mut files, file, node).ok().map(|found| found.node)
    }

    pub(crate) fn show_access(&self, file: FileId, node: &mut Node) {
        self.accesses().show(file, node);
    }

    /// The time of access that shows here and that the replica above has not been told of.
    pub(crate) fn access_untold(&self, file: FileId) -> Option<Time> {
        let read = self.inner.tables.read().ok()?;
        let told = Tree::new(&*read, 0).node(file).ok()??.atime;
        let mut shown = Tree::new(&*read, 0).with_accesses().node(file).ok()??;
        self.show_access(file, &mut shown);
        (shown.atime != told).then_some(shown.atime)
    }

    /// The time of access was set: what was noted before counts no more.
    pub(crate) fn access_was_set(&self, file: FileId) {
        self.accesses().moved.remove(&file);
        let forgotten = || {
            let mut write = self.inner.tables.write().map_err(error_of)?;
            let noted = partial::forget_accessed(&mut *write, file);
            if noted.map_err(|error| Error::Failed(error.to_string()))? {
                write.commit(Durability::Later).map_err(error_of)?;
            }
            Ok::<_, Error>(())
        };
        if let Err(error) = forgotten() {
            tracing::debug!(%error, %file, "an older time of access could not be forgotten");
        }
    }

    pub(crate) fn has_accesses(&self) -> bool {
        !self.accesses().moved.is_empty()
    }

    /// Writes what has been read since the last checkpoint. What this gives is in the tables once
    /// `write` is.
    pub(crate) fn save_accesses(
        &self,
        write: &mut dyn Write,
    ) -> Result<BTreeMap<FileId, Moved>, Error> {
        let moved = self.accesses().moved.clone();
        for (file, Moved { seen, at }) in &moved {
            partial::note_accessed(write, *file, *seen, *at)
                .map_err(|error| Error::Failed(error.to_string()))?;
        }
        Ok(moved)
    }

    pub(crate) fn accesses_saved(&self, saved: &BTreeMap<FileId, Moved>) {
        self.accesses().moved.retain(|file, moved| match saved.get(file) {
            None => true,
            Some(before) => {
                // Moved once more meanwhile: what showed before is now in the tables.
                let again = before.at != moved.at;
                moved.seen =
                    if again && before.seen == moved.seen { before.at } else { moved.seen };
                again
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId(7);

    fn at(secs: i64) -> Time {
        Time { secs, nanos: 5 }
    }

    fn node(atime: i64, mtime: i64, ctime: i64) -> Node {
        let node = Node::root_directory(0, 0, at(atime));
        Node { mtime: at(mtime), ctime: at(ctime), ..node }
    }

    #[test]
    fn reading_counts_after_a_change_and_once_a_day() {
        let now = at(1_000_000);
        assert!(moves(&node(10, 10, 5), now), "never read since it was written");
        assert!(moves(&node(10, 5, 10), now), "nor since its attributes were set");
        assert!(!moves(&node(999_000, 5, 6), now), "read a moment ago");
        let day = 1_000_000 - OLD_SECS;
        assert!(moves(&node(day, 5, 6), now) && !moves(&node(day + 1, 5, 6), now));
        assert!(!moves(&node(1_000_000, 1_000_000, 5), now), "it would not change");
        assert!(!moves(&node(2_000_000, 5, 6), now), "set to a time that is still to come");
    }

    #[test]
    fn what_was_noted_shows_until_the_time_is_set_anew() {
        let mut accesses = Accesses::default();
        assert!(accesses.note(FILE, at(1), at(2)));
        assert!(accesses.note(FILE, at(2), at(3)), "read again before it was saved");
        let shown = |atime| {
            let mut node = node(atime, 0, 0);
            accesses.show(FILE, &mut node);
            node.atime
        };
        assert_eq!((shown(1), shown(8)), (at(3), at(8)));
    }

    #[test]
    fn of_very_many_files_some_stay_as_they_are() {
        let mut accesses = Accesses::default();
        for file in 0..MOVED_MAX as u64 {
            assert!(accesses.note(FileId(file), at(1), at(2)));
        }
        assert!(!accesses.note(FileId(MOVED_MAX as u64), at(1), at(2)));
        assert!(accesses.note(FileId(0), at(2), at(3)), "this one takes no more room");
    }
}
