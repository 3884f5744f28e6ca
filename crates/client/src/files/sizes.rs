//! Which size of a file the kernel goes by: it knows one of a file, whatever versions are open.
//! Holds: nothing is read through its cache while it may go by the size of another version.

use super::{Files, HandleState, OpenFile};
use model::{FileId, Stamp};
use std::time::Duration;
use store::{Container, Result as StoreResult};
use world::Moment;

/// How long a size that the kernel was told to forget may still be in use there.
const SIZE_SETTLES: Duration = Duration::from_secs(1);
/// ```text
///   Older --closed--> Forgotten <--carried out-- Doubtful <--another version-- (nothing)
///                         |  the kernel asks anew, and is told
///                         +---> Forgotten, told of the version
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SizeTold {
    /// It was told that of an older version, which somebody has open.
    Older,
    /// It is about to be told to forget the size that it has.
    Doubtful { since: Moment },
    /// It has been told, and told since of the size of a version, if it has asked.
    Forgotten { since: Moment, told: Option<Stamp> },
}

impl SizeTold {
    /// Whether the kernel may go by another size than that of the version.
    fn is_doubtful(self, version: Stamp, now: Moment) -> bool {
        match self {
            SizeTold::Forgotten { told: Some(told), .. } if told == version => false,
            told => told.counts(now),
        }
    }

    fn counts(self, now: Moment) -> bool {
        match self {
            SizeTold::Older => true,
            SizeTold::Doubtful { since } | SizeTold::Forgotten { since, .. } => {
                now.since(since) < SIZE_SETTLES
            }
        }
    }
}

impl<K: Container> Files<K> {
    /// The size that the kernel must be told while it caches an older version for somebody: it
    /// cuts, or fills up with zeros, whatever it caches to the one size that it knows of a file.
    /// What is opened beside that version is not cached, so its readers are not cut.
    pub fn size_cached(&mut self, file: FileId, current: Stamp) -> StoreResult<Option<u64>> {
        let shared = self.shared(file, current);
        let older = |open: &&OpenFile<K>| {
            open.cached_handles > 0
                && open.presence.version != current
                // What is written here and not stored bears an older stamp, and is current.
                && Some(open.presence.generation) != shared
        };
        let Some(open) = self.generations(file).find(older) else { return Ok(None) };
        let size = open.length_told()?;
        self.size_told.insert(file, SizeTold::Older);
        Ok(Some(size))
    }

    /// As `size_cached`, by one of the numbers by which the kernel has a file: it caches a version by
    /// each, and goes by its size there. `current`: the version that is, by the number by which the
    /// file is found.
    pub(crate) fn size_cached_by(
        &mut self,
        file: FileId,
        number: u64,
        current: Option<Stamp>,
    ) -> StoreResult<Option<u64>> {
        let has_a_size = |state: &&HandleState| !state.direct || state.lent;
        let states = self.handles_by(file, number).filter(has_a_size);
        let Some(state) = states.min_by_key(|state| state.lent).copied() else { return Ok(None) };
        let Some(open) = self.get(file, state.generation) else { return Ok(None) };
        let size = open.length_told()?;
        let is_older = |current| Some(state.generation) != self.shared(file, current);
        if current.is_some_and(is_older) && !state.lent {
            self.size_told.insert(file, SizeTold::Older);
        }
        Ok(Some(size))
    }

    /// The kernel finds a file by another number from now on, for which it has no pages that count and
    /// asks for the size.
    pub(crate) fn is_found_anew(&mut self, file: FileId, now: Moment) {
        self.shown.remove(&file);
        self.size_told.insert(file, SizeTold::Forgotten { since: now, told: None });
    }

    /// Whether the kernel may go by another size than that of the version.
    pub(super) fn size_is_in_doubt(&self, file: FileId, version: Stamp, now: Moment) -> bool {
        let gets = self.version_got(file, version);
        self.size_told.get(&file).is_some_and(|told| told.is_doubtful(gets, now))
    }

    /// Whether the kernel goes by the size of this version: nothing has put it in doubt, and it
    /// has the contents. So it is where what is written here hides what was stored before it.
    pub fn knows_size(&self, file: FileId, version: Stamp) -> bool {
        let has_it = self.shown_version(file) == Some(version) || self.shows_what_is_written(file);
        !self.size_told.contains_key(&file) && has_it
    }

    /// The version that whoever opens the file gets the container of, where the tree shows `current`.
    /// What is written upon a version that was not sent yet takes that back: the tree shows the one
    /// before it again, and the kernel has the same container all along.
    fn version_got(&self, file: FileId, current: Stamp) -> Stamp {
        let shared = self.shared(file, current).and_then(|generation| self.get(file, generation));
        shared.map_or(current, OpenFile::version)
    }

    /// Whether whoever opens the file gets what is being written here, whatever is said of what is
    /// stored. What was stored and is written over may be said to be there now.
    fn shows_what_is_written(&self, file: FileId) -> bool {
        self.newest(file).is_some_and(|(_, open)| open.presence.dirty.is_some())
    }

    /// The kernel has asked, and is told of the version. It asks before it opens a file of which
    /// it was told to forget what it knew.
    pub fn tell_size(&mut self, file: FileId, version: Stamp) {
        let version = self.version_got(file, version);
        if let Some(SizeTold::Forgotten { told, .. }) = self.size_told.get_mut(&file) {
            *told = Some(version);
        }
    }

    /// What was written here upon `before` is stored as `now`. The kernel has made every change of
    /// the size itself, so what it was told of the one holds of the other.
    pub(super) fn size_goes_on(&mut self, file: FileId, before: Stamp, now: Stamp) {
        if let Some(SizeTold::Forgotten { told, .. }) = self.size_told.get_mut(&file)
            && *told == Some(before)
        {
            *told = Some(now);
        }
    }

    /// Files of which the kernel may go by the size of another version, until it has been told to
    /// forget it and has asked anew, or for a while: what it reads meanwhile through its cache
    /// would be cut, or filled up with zeros, to that size.
    pub fn doubt_sizes(&mut self, files: &[FileId], now: Moment) {
        for file in files {
            if !self.shows_what_is_written(*file) {
                self.note_size(*file, SizeTold::Doubtful { since: now });
            }
        }
        self.size_told.retain(|_, told| told.counts(now));
    }

    /// The kernel was told to forget the size, and has, if that was `carried_out`.
    pub fn forget_size(&mut self, file: FileId, carried_out: bool, now: Moment) {
        let since = now;
        self.note_size(
            file,
            match carried_out {
                true => SizeTold::Forgotten { since, told: None },
                false => SizeTold::Doubtful { since },
            },
        );
    }

    fn note_size(&mut self, file: FileId, now: SizeTold) {
        let told = self.size_told.entry(file).or_insert(now);
        if *told != SizeTold::Older {
            *told = now;
        }
    }

    /// Whether nobody has the older version cached any more whose size the kernel was told, by the
    /// number by which it finds the file.
    pub(super) fn size_may_settle(&self, file: FileId, number: u64) -> bool {
        self.size_told.get(&file) == Some(&SizeTold::Older)
            && self.handles_by(file, number).all(|state| state.direct)
    }

    /// The kernel has been told to ask for the size anew.
    pub(super) fn settle_size(&mut self, file: FileId, carried_out: bool, now: Moment) {
        self.size_told.remove(&file);
        self.forget_size(file, carried_out, now);
        self.doubt_sizes(&[], now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presence::{Dirty, Presence};
    use model::{Contents, ReplicaId};
    use store::Containers;
    use store::container::Key;
    use store::memory::MemoryContainers;
    use world::World;

    const FILE: FileId = FileId(7);

    fn version(number: u64) -> Stamp {
        Stamp::new(ReplicaId(3), number)
    }

    #[test]
    fn a_size_is_in_doubt_until_the_kernel_has_forgotten_it_and_asked_anew() {
        let now = World::simulated(0, 1).clock.moment();
        let mut files = Files::<<MemoryContainers as store::Containers>::Container>::default();
        files.doubt_sizes(&[FILE], now);
        files.tell_size(FILE, version(2));
        assert!(files.size_is_in_doubt(FILE, version(2), now), "it has not been told to forget");
        files.forget_size(FILE, false, now);
        files.tell_size(FILE, version(2));
        assert!(files.size_is_in_doubt(FILE, version(2), now), "it has not forgotten yet");
        files.forget_size(FILE, true, now);
        assert!(files.size_is_in_doubt(FILE, version(2), now), "it has not asked");
        files.tell_size(FILE, version(2));
        assert!(!files.size_is_in_doubt(FILE, version(2), now));
        assert!(files.size_is_in_doubt(FILE, version(3), now), "it was told of another version");
        files.doubt_sizes(&[FILE], now);
        assert!(files.size_is_in_doubt(FILE, version(2), now), "there is a newer one");
        assert!(!files.size_is_in_doubt(FILE, version(2), now + SIZE_SETTLES), "in the end");
    }

    #[test]
    fn what_is_said_beneath_what_is_being_written_puts_nothing_in_doubt() {
        let now = World::simulated(0, 1).clock.moment();
        let container = MemoryContainers::default().open(Key { file: FILE.0, generation: 0 }, true);
        let mut presence = Presence::new(0, version(2), Contents::EMPTY, 0);
        presence.dirty = Some(Dirty::new(version(1), 0));
        let mut files = Files::<<MemoryContainers as store::Containers>::Container>::default();
        files.open.insert((FILE, 0), OpenFile::new(container.unwrap().unwrap(), presence));
        files.doubt_sizes(&[FILE], now);
        assert!(!files.size_is_in_doubt(FILE, version(3), now));
        assert!(files.knows_size(FILE, version(1)), "it was patched to be upon that");
        files.open.get_mut(&(FILE, 0)).unwrap().presence.dirty = None;
        files.doubt_sizes(&[FILE], now);
        assert!(files.size_is_in_doubt(FILE, version(3), now));
        assert!(!files.knows_size(FILE, version(2)));
    }

    #[test]
    fn the_size_of_what_the_kernel_has_is_known_unless_another_version_is_said_to_be_there() {
        let now = World::simulated(0, 1).clock.moment();
        let mut files = Files::<<MemoryContainers as store::Containers>::Container>::default();
        assert!(!files.knows_size(FILE, version(2)), "it has not opened it");
        files.shown(FILE, 0, version(2));
        assert!(files.knows_size(FILE, version(2)));
        assert!(!files.knows_size(FILE, version(3)), "it has another one");
        files.doubt_sizes(&[FILE], now);
        assert!(!files.knows_size(FILE, version(2)));
    }

    /// Else what is opened within that moment is not cached, and cannot be mapped shared.
    #[test]
    fn what_is_stored_here_upon_a_version_that_the_kernel_knows_is_not_in_doubt() {
        let now = World::simulated(0, 1).clock.moment();
        let mut files = Files::<<MemoryContainers as store::Containers>::Container>::default();
        files.forget_size(FILE, true, now);
        files.size_goes_on(FILE, version(2), version(3));
        assert!(files.size_is_in_doubt(FILE, version(3), now), "it has not asked");
        files.tell_size(FILE, version(2));
        files.size_goes_on(FILE, version(2), version(3));
        assert!(!files.size_is_in_doubt(FILE, version(3), now));
        files.size_goes_on(FILE, version(2), version(4));
        assert!(files.size_is_in_doubt(FILE, version(4), now), "that went on from another one");
        files.doubt_sizes(&[FILE], now);
        files.size_goes_on(FILE, version(3), version(5));
        assert!(files.size_is_in_doubt(FILE, version(5), now), "another one is there");
    }

    #[test]
    fn what_takes_back_a_version_that_was_not_sent_puts_nothing_in_doubt() {
        let now = World::simulated(0, 1).clock.moment();
        let container = MemoryContainers::default().open(Key { file: FILE.0, generation: 0 }, true);
        let presence = Presence::new(0, version(3), Contents::EMPTY, 0);
        let mut files = Files::<<MemoryContainers as store::Containers>::Container>::default();
        files.open.insert((FILE, 0), OpenFile::new(container.unwrap().unwrap(), presence));
        files.forget_size(FILE, true, now);
        files.tell_size(FILE, version(3));
        // Written upon before it was sent: the tree shows the version before it.
        files.open.get_mut(&(FILE, 0)).unwrap().presence.dirty = Some(Dirty::new(version(2), 0));
        assert!(!files.size_is_in_doubt(FILE, version(2), now));
        files.tell_size(FILE, version(2));
        files.open.get_mut(&(FILE, 0)).unwrap().presence =
            Presence::new(0, version(4), Contents::EMPTY, 0);
        files.size_goes_on(FILE, version(3), version(4));
        assert!(!files.size_is_in_doubt(FILE, version(4), now));
        assert!(files.size_is_in_doubt(FILE, version(5), now), "that is of another container");
    }
}
