//! Files and stretches of files leave the cache.
//! Holds: what leaves is not present any more, durably, before its bytes go, so that no crash
//! shows zeros in their place; who has read from a stretch that went meanwhile reads again.
//! Never: lets go of what is pending, written to, or not the version that the origin has; nor of
//! what somebody may write to, unless it is larger than the cache.

use super::choose::{Closed, Open, Stretch, Victim, in_order};
use super::stretches::{Stretches, both, by_granule, granule_bytes, without};
use super::{Mine, NANOS, nanos};
use crate::client::{Client, error_of};
use crate::files::{Held, OpenFile};
use crate::presence::Presence;
use crate::ranks::{self, Rank};
use crate::types::Error;
use model::{FileId, Stamp, View};
use protocol::Upstream;
use std::sync::atomic::Ordering;
use store::container::Key;
use store::{Container, Containers, Durability};
use tokio::sync::OwnedRwLockWriteGuard;
use volume::partial::Tree;

/// Stretches that are about to leave. Nobody else fills the file meanwhile.
struct Leaving<'a, U: Upstream, C: Containers> {
    file: FileId,
    generation: u32,
    version: Stamp,
    stretches: Stretches,
    _alone: Option<OwnedRwLockWriteGuard<()>>,
    _held: Held<'a, U, C>,
}

/// Whether a container is still the version of which stretches began to leave.
fn is_still<K>(open: &OpenFile<K>, version: Stamp) -> bool {
    open.is_clean() && open.presence.version == version
}

/// Whether the bytes of these stretches can go: nobody has written to the container since they began
/// to leave, though it be stored by now, nor filled them again.
fn may_go<K>(open: &OpenFile<K>, version: Stamp, stretches: &Stretches) -> bool {
    is_still(open, version) && both(&open.presence.ranges, stretches).is_empty()
}

impl<U: Upstream, C: Containers> Client<U, C> {
    pub(crate) fn granule_bytes(&self) -> u64 {
        granule_bytes(self.inner.settings.cache_bytes_max)
    }

    /// A stretch of an open file is used now.
    pub(crate) fn touch<K>(&self, open: &mut OpenFile<K>, offset: u64, length: u64) {
        let now = nanos(self.inner.world.clock.time());
        open.touched.note(offset, length, self.granule_bytes(), now);
    }

    /// What may leave of the files that are open.
    pub(super) fn open_stretches(&self) -> Result<Vec<Open>, Error> {
        let granule = self.granule_bytes();
        let clock = &self.inner.world.clock;
        let (now, time) = (clock.moment(), nanos(clock.time()));
        let mut found = Vec::new();
        let read = self.inner.tables.read().map_err(error_of)?;
        let files = self.files();
        for (file, open) in files.clean() {
            let presence = &open.presence;
            let is_large = self.is_large(presence);
            // The kernel would read zeros.
            if files.is_lent(file, presence.generation) || self.is_pinned(&*read, file)? {
                continue;
            }
            // Whoever may write to it may need all of it, with a link or without.
            if open.is_for_writing() && !is_large {
                continue;
            }
            let mut data = Stretches::new();
            for &(from, to) in &presence.ranges {
                let here = open.container.data(from, to - from).map_err(error_of)?;
                data.extend(here.into_iter().map(|(start, length)| (start, start + length)));
            }
            let data = self.inner.room.awaited().others(file, data, now);
            let used = presence.used.saturating_mul(NANOS);
            let stretches = by_granule(&data, granule).into_iter().map(|(from, to)| {
                let used = open.touched.at(from, granule).unwrap_or(used);
                Stretch { used: in_order(used, time), from, to }
            });
            found.push(Open {
                file,
                generation: presence.generation,
                is_large,
                stretches: stretches.collect(),
            });
        }
        Ok(found)
    }

    /// Gives the bytes that have left.
    pub(super) fn carry_out(&self, victims: Vec<Victim>, mine: Option<Mine>) -> Result<u64, Error> {
        let before = self.inner.room.left.load(Ordering::Relaxed);
        let mut leaving = Vec::new();
        for victim in victims {
            match victim {
                Victim::Whole(closed) => {
                    self.let_file_leave(&closed)?;
                }
                Victim::End(file, bytes) => leaving.extend(self.end_leaves(file, bytes, mine)?),
                Victim::Stretches { file, generation, stretches } => {
                    leaving.extend(self.begin_to_leave((file, generation), stretches, mine)?);
                }
            }
        }
        self.let_stretches_leave(leaving)?;
        Ok(self.inner.room.left.load(Ordering::Relaxed) - before)
    }

    /// A file leaves that nobody has used since it was looked at. False: it stays.
    pub(super) fn let_file_leave(&self, closed: &Closed) -> Result<bool, Error> {
        {
            let mut seen = self.inner.room.seen();
            seen.large.remove(&closed.file);
            // It was chosen from the front.
            if seen.closed.front() == Some(closed) {
                seen.closed.pop_front();
            }
        }
        let core = self.core();
        let files = self.files();
        let now = self.inner.world.clock.moment();
        if self.inner.room.awaited().is_any_of(closed.file, now)
            || files.is_open(closed.file)
            || core.log.pending_store(closed.file).is_some()
        {
            return Ok(false);
        }
        let mut write = self.inner.tables.write().map_err(error_of)?;
        let row = Presence::load(&*write, closed.file).map_err(error_of)?;
        let unused = |row: &Presence| row.dirty.is_none() && self.last_used(row) == closed.used;
        if self.is_pinned(&*write, closed.file)? {
            return Ok(false);
        }
        let Some(presence) = row.filter(unused) else { return Ok(false) };
        // The row stays, for the generation that it counts: a crash may undo this, and then no
        // other container may bear the name of the one that the row speaks of.
        let evicted = Presence {
            generation: presence.generation.wrapping_add(1),
            ranges: Vec::new(),
            ground: None,
            ..presence.clone()
        };
        evicted.save(&mut *write, closed.file).map_err(error_of)?;
        write.commit(Durability::Later).map_err(error_of)?;
        let key = Key { file: closed.file.0, generation: presence.generation };
        let bytes = self.bytes_here(closed.file, &presence).map_err(error_of)?;
        self.inner.containers.remove(key).map_err(error_of)?;
        self.inner.room.file_leaves(bytes);
        Ok(true)
    }

    /// The last bytes of a large file that nobody has open.
    fn end_leaves(
        &self,
        file: FileId,
        bytes: u64,
        mine: Option<Mine>,
    ) -> Result<Option<Leaving<'_, U, C>>, Error> {
        self.inner.room.seen().large.remove(&file);
        let row = {
            let read = self.inner.tables.read().map_err(error_of)?;
            Presence::load(&*read, file).map_err(error_of)?
        };
        if self.is_pinned_now(file)? {
            return Ok(None);
        }
        let Some(row) = row.filter(|row| row.dirty.is_none()) else { return Ok(None) };
        let key = Key { file: file.0, generation: row.generation };
        let Some(container) = self.inner.containers.open(key, false).map_err(error_of)? else {
            return Ok(None);
        };
        let granule = self.granule_bytes();
        let data = container.data(0, row.contents.size).map_err(error_of)?;
        let data: Stretches =
            data.into_iter().map(|(from, length)| (from, from + length)).collect();
        let now = self.inner.world.clock.moment();
        let here = self.inner.room.awaited().others(file, both(&row.ranges, &data), now);
        let mut chosen = Stretches::new();
        let mut left = bytes;
        for (from, to) in by_granule(&here, granule).into_iter().rev() {
            if left == 0 {
                break;
            }
            left = left.saturating_sub(to - from);
            chosen.push((from, to));
        }
        chosen.reverse();
        self.begin_to_leave((file, row.generation), chosen, mine)
    }

    /// The stretches do not count as present any more, for a checkpoint to say so durably. None:
    /// somebody is filling the file, or it may not leave.
    fn begin_to_leave(
        &self,
        (file, generation): (FileId, u32),
        stretches: Stretches,
        mine: Option<Mine>,
    ) -> Result<Option<Leaving<'_, U, C>>, Error> {
        // It stays the open file that it is until this is over.
        let Ok(held) = self.hold(file, generation) else { return Ok(None) };
        if stretches.is_empty() || held.generation() != Some(generation) {
            return Ok(None);
        }
        let alone = if mine == Some((file, generation)) {
            None
        } else {
            let fetching = self.files().get(file, generation).map(|open| open.fetching.clone());
            let Some(Ok(alone)) = fetching.map(|fetching| fetching.try_write_owned()) else {
                return Ok(None);
            };
            Some(alone)
        };
        let core = self.core();
        let mut files = self.files();
        if files.is_lent(file, generation) {
            return Ok(None);
        }
        let Some(open) = files.get_mut(file, generation).filter(|open| open.is_clean()) else {
            return Ok(None);
        };
        let mut write = self.inner.tables.write().map_err(error_of)?;
        let node = Tree::new(&*write, 0).node(file);
        let is_current =
            matches!(node, Ok(Some(node)) if node.contents_stamp == open.presence.version);
        let row = Presence::load(&*write, file).map_err(error_of)?;
        if !is_current
            || row.is_none_or(|row| row.generation != generation)
            || core.log.pending_store(file).is_some()
        {
            return Ok(None);
        }
        let mut presence = open.presence.clone();
        for &(from, to) in &stretches {
            presence.ranges = without(&presence.ranges, from, to);
            open.touched.forget(from, to, self.granule_bytes());
        }
        presence.save(&mut *write, file).map_err(error_of)?;
        write.commit(Durability::Later).map_err(error_of)?;
        open.presence = presence;
        // Before the first byte goes: who is reading now notices afterwards.
        open.left.fetch_add(1, Ordering::AcqRel);
        let version = open.presence.version;
        Ok(Some(Leaving { file, generation, version, stretches, _alone: alone, _held: held }))
    }

    /// What the disk has lost of an open file does not count as present any more, and becomes a hole.
    /// Whoever calls it keeps others from filling the file. False: it may not leave.
    pub(crate) fn let_lost_leave(
        &self,
        (file, generation): (FileId, u32),
        lost: Stretches,
    ) -> Result<bool, Error> {
        let mine = Some((file, generation));
        let begun = self.begin_to_leave((file, generation), lost.clone(), mine)?;
        let Some(leaving) = begun else { return Ok(false) };
        self.let_stretches_leave(vec![leaving])?;
        let files = self.files();
        let open = files.get(file, generation);
        Ok(open.is_some_and(|open| both(&open.presence.ranges, &lost).is_empty()))
    }

    fn let_stretches_leave(&self, leaving: Vec<Leaving<'_, U, C>>) -> Result<(), Error> {
        if leaving.is_empty() {
            return Ok(());
        }
        let said = self.checkpoint();
        for stretches in &leaving {
            if said.is_err() || !self.clear(stretches)? {
                self.stay_after_all(stretches)?;
            }
        }
        said
    }

    /// The bytes go. False: somebody is writing to the file by now, or has written to it: what he
    /// stored is in the same container.
    fn clear(&self, leaving: &Leaving<'_, U, C>) -> Result<bool, Error> {
        let open = self
            .files()
            .get(leaving.file, leaving.generation)
            .map(|open| (open.container.clone(), open.still.clone()));
        let Some((container, still)) = open else { return Ok(false) };
        let Some(_still) = ranks::try_write(Rank::Still, &still) else { return Ok(false) };
        // Who begins to write must wait from here on.
        let files = self.files();
        let open = files.get(leaving.file, leaving.generation);
        if !open.is_some_and(|open| may_go(open, leaving.version, &leaving.stretches)) {
            return Ok(false);
        }
        drop(files);
        // What it is by another name may be pending.
        let key = Key { file: leaving.file.0, generation: leaving.generation };
        if self.inner.containers.is_linked(key).unwrap_or(true) {
            return Ok(false);
        }
        let before = container.allocated().map_err(error_of)?;
        for &(from, to) in &leaving.stretches {
            container.punch(from, to - from).map_err(error_of)?;
        }
        let after = container.allocated().map_err(error_of)?;
        self.inner.room.leave(before.saturating_sub(after));
        Ok(true)
    }

    /// The bytes have not gone, so they are here.
    fn stay_after_all(&self, leaving: &Leaving<'_, U, C>) -> Result<(), Error> {
        let mut files = self.files();
        let open = files.get_mut(leaving.file, leaving.generation);
        let Some(open) = open.filter(|open| is_still(open, leaving.version)) else {
            return Ok(());
        };
        for &(from, to) in &leaving.stretches {
            open.presence.add(from, to - from);
        }
        let mut write = self.inner.tables.write().map_err(error_of)?;
        open.presence.save_in_place(&mut *write, leaving.file).map_err(error_of)?;
        write.commit(Durability::Later).map_err(error_of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presence::Dirty;
    use model::{Contents, ReplicaId};
    use store::memory::MemoryContainers;

    /// The one who writes meanwhile writes to the same container.
    #[test]
    fn what_was_written_and_stored_since_it_began_to_leave_does_not_go() {
        let version = |number| Stamp::new(ReplicaId(3), number);
        let container = MemoryContainers::default().open(Key { file: 7, generation: 0 }, true);
        let contents = Contents { size: 100, root: None, holes: None };
        let mut presence = Presence::new(0, version(1), contents, 0);
        presence.ranges = vec![(0, 50)];
        let mut open = OpenFile::new(container.unwrap().unwrap(), presence);
        let leaving = vec![(50, 100)];
        assert!(may_go(&open, version(1), &leaving));
        open.presence.ranges = vec![(0, 60)];
        assert!(!may_go(&open, version(1), &leaving), "some of it was fetched again");
        open.presence.ranges = vec![(0, 50)];
        open.presence.dirty = Some(Dirty::new(version(1), 0));
        assert!(!may_go(&open, version(1), &leaving));
        (open.presence.dirty, open.presence.version) = (None, version(2));
        assert!(!may_go(&open, version(1), &leaving), "it is stored, and the container is that");
        assert!(!is_still(&open, version(1)), "nor does what began to leave come back to it");
    }
}
