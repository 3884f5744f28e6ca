//! Contents that were replaced, removed or written over, kept for a while: the next version is
//! sent, or fetched, as what it adds to them, and their chunks need not be fetched again.
//! Holds: nothing in here is needed by anybody. What is pending or open is never put here; who
//! uses what is here checks what comes of it; it is bounded, first in, first out, and gives way
//! before anything else in the cache does.
//! From: LBFS, "Server implementation", which keeps its trash at the server.

use crate::client::{Client, Core};
use crate::files::Files;
use crate::presence::{NO_VERSION, Presence};
use crate::ranks::{self, Rank, Ranked};
use chunks::index::Place;
use minicbor::{Decode, Encode};
use model::{FileId, Name, Stamp};
use protocol::Upstream;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use store::container::Key;
use store::{Containers, Durability, Read, StoreError};
use world::Moment;

const TRASH: &str = "client-trash";
const FORMAT: u8 = 1;
/// Containers in the trash bear generations from this on; others never come so far.
pub(crate) const GENERATION_MIN: u32 = 1 << 31;
const KEPT_MAX: usize = 4096;
/// Of the cache's size, the trash takes one byte in so many at most.
const CACHE_ONE_IN: u64 = 4;
const KEPT_BYTES_MAX: u64 = 1 << 30;
/// So much more of either may be there until upkeep takes it away: whoever removes a file does not
/// wait for the disk to let go of another one.
const KEPT_OVER: usize = KEPT_MAX;
const BYTES_OVER_ONE_IN: u64 = 4;
/// The largest file that is copied before it is written over, where the file system cannot let two
/// files share bytes.
const COPY_BYTES_MAX: u64 = 8 << 20;
/// A file that is written over again and again is copied no more often: an older version does.
const COPY_EVERY: Duration = Duration::from_secs(10);

/// One version of a file, in the trash.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(array)]
pub(crate) struct Kept {
    #[n(0)]
    pub file: FileId,
    /// Of the container that it was in: places in the chunk index speak of that.
    #[n(1)]
    pub generation: u32,
    #[n(2)]
    pub version: Stamp,
    #[n(3)]
    pub size: u64,
    /// Stretches that are here: (offset, end), in order, apart from each other.
    #[n(4)]
    pub ranges: Vec<(u64, u64)>,
    /// The directory and the name that the file lost, if it has.
    #[n(5)]
    pub name: Option<(FileId, Name)>,
}

impl Kept {
    fn bytes(&self) -> u64 {
        self.ranges.iter().map(|(from, to)| to.saturating_sub(*from)).sum()
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![FORMAT];
        minicbor::encode(self, &mut bytes).expect("a vector takes every byte");
        bytes
    }

    /// None: damaged, and so as good as not there.
    pub fn decode(bytes: &[u8]) -> Option<Kept> {
        let (&FORMAT, rest) = bytes.split_first()? else { return None };
        let kept: Kept = minicbor::decode(rest).ok()?;
        crate::presence::are_apart(&kept.ranges).then_some(kept)
    }
}

/// What is in the trash, by number, the oldest first.
#[derive(Default)]
pub(crate) struct Trash {
    kept: BTreeMap<u64, Kept>,
    of_file: BTreeMap<FileId, BTreeSet<u64>>,
    copied: BTreeMap<FileId, Moment>,
    bytes: u64,
    last: u64,
}

impl Trash {
    pub fn load(read: &dyn Read) -> Result<Trash, StoreError> {
        let mut trash = Trash::default();
        let rows = read.scan(TRASH, &[], &[0xff; 9], usize::MAX)?;
        for (key, value) in rows {
            let Ok(key) = <[u8; 8]>::try_from(&key[..]) else { continue };
            let number = u64::from_be_bytes(key);
            trash.last = trash.last.max(number);
            if let Some(kept) = Kept::decode(&value) {
                trash.insert(number, kept);
            }
        }
        Ok(trash)
    }

    fn insert(&mut self, number: u64, kept: Kept) {
        self.bytes += kept.bytes();
        self.of_file.entry(kept.file).or_default().insert(number);
        self.kept.insert(number, kept);
    }

    fn take(&mut self, number: u64) -> Option<Kept> {
        let kept = self.kept.remove(&number)?;
        self.bytes -= kept.bytes();
        if let Some(numbers) = self.of_file.get_mut(&kept.file) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.of_file.remove(&kept.file);
                self.copied.remove(&kept.file);
            }
        }
        Some(kept)
    }

    /// Makes room for one more version. Gives back its number and what has to go for it; none if
    /// it would be too much by itself.
    fn admit(&mut self, kept: Kept, bytes_max: u64) -> Option<(u64, Vec<(u64, Kept)>)> {
        let bytes = kept.bytes();
        if bytes == 0 || bytes > bytes_max {
            return None;
        }
        self.last += 1;
        let number = self.last;
        // Of one file the newest does.
        let mut gone: Vec<u64> =
            self.of_file.get(&kept.file).into_iter().flatten().copied().collect();
        let most = bytes_max + bytes_max / BYTES_OVER_ONE_IN;
        let (mut left, mut count) = (self.bytes + bytes, self.kept.len() + 1 - gone.len());
        left -= gone.iter().map(|number| self.kept[number].bytes()).sum::<u64>();
        for (oldest, kept) in &self.kept {
            if left <= most && count <= KEPT_MAX + KEPT_OVER {
                break;
            }
            if !gone.contains(oldest) {
                left -= kept.bytes();
                count -= 1;
                gone.push(*oldest);
            }
        }
        let gone = gone.into_iter().filter_map(|old| Some((old, self.take(old)?))).collect();
        self.insert(number, kept);
        Some((number, gone))
    }

    /// Takes the oldest until so much is left at most.
    fn take_beyond(&mut self, bytes_max: u64, kept_max: usize) -> Vec<(u64, Kept)> {
        let mut gone = Vec::new();
        while (self.bytes > bytes_max || self.kept.len() > kept_max)
            && let Some(number) = self.kept.keys().next().copied()
        {
            gone.extend(self.take(number).map(|kept| (number, kept)));
        }
        gone
    }

    /// The newest version of a file, or the one that is asked for.
    pub fn find(&self, file: FileId, version: Option<Stamp>) -> Option<(Key, Kept)> {
        let numbers = self.of_file.get(&file)?.iter().rev();
        let mut kept = numbers.filter_map(|number| Some((*number, self.kept.get(number)?)));
        let (number, kept) =
            kept.find(|(_, kept)| version.is_none_or(|version| version == kept.version))?;
        Some((key(number, file), kept.clone()))
    }

    /// Where the chunks may be now that were in this container.
    pub fn containers_of(&self, file: FileId, generation: u32) -> Vec<Key> {
        let numbers = self.of_file.get(&file).into_iter().flatten();
        let of =
            |number: &&u64| self.kept.get(number).is_some_and(|kept| kept.generation == generation);
        numbers.filter(of).map(|number| key(*number, file)).collect()
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// The container of a version in the trash.
fn key(number: u64, file: FileId) -> Key {
    let low = u32::try_from(number % u64::from(GENERATION_MIN)).expect("it was cut to 31 bits");
    Key { file: file.0, generation: GENERATION_MIN | low }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// The containers in which places may be: a version may have gone into the trash since.
    pub(crate) fn where_now(&self, places: &[Place]) -> Vec<(Key, Place)> {
        let mut found = Vec::new();
        for place in places {
            let key = Key { file: place.file.0, generation: place.generation };
            found.push((key, *place));
            let in_trash = self.trash().containers_of(place.file, place.generation);
            found.extend(in_trash.into_iter().map(|key| (key, *place)));
        }
        found
    }

    pub(crate) fn trash(&self) -> Ranked<'_, Trash> {
        ranks::lock(Rank::Trash, &self.inner.trash)
    }

    fn trash_bytes_max(&self) -> u64 {
        (self.inner.settings.cache_bytes_max / CACHE_ONE_IN).min(KEPT_BYTES_MAX)
    }

    /// What a version would be in the trash.
    fn as_kept(&self, file: FileId, presence: &Presence) -> Kept {
        Kept {
            file,
            generation: presence.generation,
            version: presence.version,
            size: presence.contents.size,
            ranges: presence.ranges.clone(),
            name: self.kin().lost_name(file),
        }
    }

    /// Puts a container that nobody needs any more into the trash, if it is worth that. Says
    /// whether it has gone there; the caller removes it otherwise. Nobody has it open, and nothing
    /// that is in it is pending: the caller has seen to that, and holds what keeps it so.
    pub(crate) fn set_aside(
        &self,
        _core: &Core,
        _files: &Files<C::Container>,
        file: FileId,
        presence: &Presence,
    ) -> Result<bool, StoreError> {
        if presence.dirty.is_some() || presence.version == NO_VERSION {
            return Ok(false);
        }
        let from = Key { file: file.0, generation: presence.generation };
        Ok(self.keep_itself(file, presence, from)?.is_some())
    }

    fn keep_itself(
        &self,
        file: FileId,
        presence: &Presence,
        from: Key,
    ) -> Result<Option<u64>, StoreError> {
        let containers = &self.inner.containers;
        let back = |to| containers.rename(to, from).map(drop);
        self.keep(file, presence, (|to| containers.rename(from, to), back))
    }

    /// The container is about to be cut to nothing or written over: keeps a copy of it.
    pub(crate) fn keep_before_change(
        &self,
        file: FileId,
        presence: &Presence,
    ) -> Result<(), StoreError> {
        let from = Key { file: file.0, generation: presence.generation };
        let now = self.inner.world.clock.moment();
        let lately = |at: &Moment| now.since(*at) < COPY_EVERY;
        if self.trash().copied.get(&file).is_some_and(lately) {
            return Ok(());
        }
        let containers = &self.inner.containers;
        let copy = |to| containers.copy(from, to, COPY_BYTES_MAX);
        match self.keep(file, presence, (copy, |to| containers.remove(to))) {
            Ok(Some(_)) => {
                self.trash().copied.insert(file, now);
                Ok(())
            }
            // What there is no room for is not kept.
            Ok(None) | Err(StoreError::Full(_)) => Ok(()),
            // Nor what cannot be read.
            Err(error) if error.is_unreadable() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Keeps the container of a version of which nothing is needed, and gives the empty one that is
    /// in its place. None: it is not kept, and is where it was.
    pub(crate) fn keep_and_replace(
        &self,
        file: FileId,
        presence: &Presence,
    ) -> Result<Option<C::Container>, StoreError> {
        let own = Key { file: file.0, generation: presence.generation };
        let number = match self.keep_itself(file, presence, own) {
            Ok(Some(number)) => number,
            Ok(None) | Err(StoreError::Full(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let fresh = self.inner.containers.open(own, true);
        if !matches!(fresh, Ok(Some(_))) {
            // Whoever writes to it next must not write to what is kept.
            self.trash().take(number);
            self.inner.containers.rename(key(number, file), own)?;
        }
        match fresh {
            Err(StoreError::Full(_)) => Ok(None),
            fresh => fresh,
        }
    }

    /// Gives the number under which it is kept. `bring` brings it there, and `back` undoes that.
    fn keep(
        &self,
        file: FileId,
        presence: &Presence,
        (bring, back): (
            impl FnOnce(Key) -> Result<bool, StoreError>,
            impl FnOnce(Key) -> Result<(), StoreError>,
        ),
    ) -> Result<Option<u64>, StoreError> {
        let kept = self.as_kept(file, presence);
        let row = kept.encode();
        let Some((number, gone)) = self.trash().admit(kept, self.trash_bytes_max()) else {
            return Ok(None);
        };
        let brought = bring(key(number, file));
        let there = matches!(brought, Ok(true));
        if !there {
            self.trash().take(number);
        }
        // Before the rows: these are not counted any more, and nobody would come back for them.
        for (number, kept) in &gone {
            if let Err(error) = self.inner.containers.remove(key(*number, kept.file)) {
                tracing::warn!(%error, file = %kept.file, "an old version stays until the next start");
            }
        }
        if let Err(error) = self.note_kept(there.then_some((number, row)), &gone) {
            if there {
                self.trash().take(number);
                back(key(number, file))?;
            }
            return Err(error);
        }
        brought.map(|there| there.then_some(number))
    }

    fn note_kept(
        &self,
        kept: Option<(u64, Vec<u8>)>,
        gone: &[(u64, Kept)],
    ) -> Result<(), StoreError> {
        let mut write = self.inner.tables.write()?;
        if let Some((number, row)) = kept {
            write.put(TRASH, &number.to_be_bytes(), &row)?;
        }
        for (number, _) in gone {
            write.delete(TRASH, &number.to_be_bytes())?;
        }
        write.commit(Durability::Later)
    }

    /// Takes the oldest out of the trash until `bytes_max` are left. Says whether anything went.
    pub(crate) fn empty_trash(&self, bytes_max: u64) -> Result<bool, StoreError> {
        self.cut_trash(bytes_max, usize::MAX)
    }

    /// Takes so many out of the trash, if there are as many. Says whether any went.
    pub(crate) fn let_oldest_trash_go(&self, count: usize) -> Result<bool, StoreError> {
        let kept = self.trash().kept.len();
        self.cut_trash(u64::MAX, kept.saturating_sub(count))
    }

    /// Takes out of the trash what is in it beyond its bounds.
    pub(crate) fn trim_trash(&self) -> Result<bool, StoreError> {
        self.cut_trash(self.trash_bytes_max(), KEPT_MAX)
    }

    fn cut_trash(&self, bytes_max: u64, kept_max: usize) -> Result<bool, StoreError> {
        let gone = self.trash().take_beyond(bytes_max, kept_max);
        // The containers first: on a full disk the tables may have no room to say so.
        for (number, kept) in &gone {
            self.inner.containers.remove(key(*number, kept.file))?;
        }
        if !gone.is_empty() {
            let mut write = self.inner.tables.write()?;
            for (number, _) in &gone {
                write.delete(TRASH, &number.to_be_bytes())?;
            }
            write.commit(Durability::Later)?;
        }
        Ok(!gone.is_empty())
    }

    /// After a crash: a version without its container is forgotten. Gives back the containers that
    /// are in the trash.
    pub(crate) fn recover_trash(&self, there: &[Key]) -> Result<BTreeSet<Key>, StoreError> {
        let mut trash = self.trash();
        let mut lost = Vec::new();
        let mut keys = BTreeSet::new();
        for (number, kept) in &trash.kept {
            let key = key(*number, kept.file);
            if there.binary_search(&key).is_ok() {
                keys.insert(key);
            } else {
                lost.push(*number);
            }
        }
        for number in &lost {
            trash.take(*number);
        }
        let named: Vec<_> =
            trash.kept.values().filter_map(|kept| Some((kept.name.clone()?, kept.file))).collect();
        drop(trash);
        for (name, file) in named {
            self.kin().loses(name, file);
        }
        if !lost.is_empty() {
            let mut write = self.inner.tables.write()?;
            for number in &lost {
                write.delete(TRASH, &number.to_be_bytes())?;
            }
            write.commit(Durability::Later)?;
        }
        Ok(keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::ReplicaId;
    use store::Tables;
    use store::memory::MemoryTables;

    fn kept(file: u64, number: u64, bytes: u64) -> Kept {
        Kept {
            file: FileId(file),
            generation: 2,
            version: Stamp::new(ReplicaId(3), number),
            size: bytes,
            ranges: vec![(0, bytes)],
            name: None,
        }
    }

    #[test]
    fn the_oldest_go_first_and_the_newest_of_a_file_stays() {
        let mut trash = Trash::default();
        assert!(trash.admit(kept(1, 1, 40), 80).unwrap().1.is_empty());
        assert!(trash.admit(kept(2, 2, 40), 80).unwrap().1.is_empty());
        assert!(trash.admit(kept(4, 5, 20), 80).unwrap().1.is_empty(), "a quarter more is borne");
        let (_, gone) = trash.admit(kept(3, 3, 10), 80).unwrap();
        assert_eq!(gone.iter().map(|(_, kept)| kept.file.0).collect::<Vec<_>>(), [1]);
        let (_, gone) = trash.admit(kept(3, 4, 10), 80).unwrap();
        assert_eq!(gone, [(4, kept(3, 3, 10))]);
        assert_eq!(trash.bytes(), 70);
        assert!(trash.find(FileId(3), Some(Stamp::new(ReplicaId(3), 3))).is_none());
        assert_eq!(trash.find(FileId(3), None).unwrap().1, kept(3, 4, 10));
        assert_eq!(trash.containers_of(FileId(2), 2).len(), 1);
        assert_eq!(trash.containers_of(FileId(2), 1), []);
    }

    #[test]
    fn what_is_beyond_the_bounds_is_taken_away_the_oldest_first() {
        let mut trash = Trash::default();
        for file in 1..=5 {
            trash.admit(kept(file, file, 20), 80).unwrap();
        }
        assert_eq!(trash.bytes(), 100);
        let numbers = |gone: Vec<(u64, Kept)>| gone.iter().map(|(n, _)| *n).collect::<Vec<_>>();
        assert_eq!(numbers(trash.take_beyond(80, 9)), [1]);
        assert_eq!(numbers(trash.take_beyond(80, 2)), [2, 3]);
        assert_eq!(numbers(trash.take_beyond(80, 2)), []);
        assert_eq!(trash.bytes(), 40);
        assert_eq!(numbers(trash.take_beyond(0, 2)), [4, 5]);
    }

    #[test]
    fn what_is_empty_or_larger_than_all_the_room_is_not_kept() {
        let mut trash = Trash::default();
        trash.admit(kept(1, 1, 40), 100).unwrap();
        assert!(trash.admit(kept(2, 2, 101), 100).is_none());
        assert!(trash.admit(kept(2, 2, 0), 100).is_none());
        assert!(trash.find(FileId(1), None).is_some(), "and nothing goes for it");
    }

    /// The bytes of a row never change their meaning.
    #[test]
    fn a_golden_row_still_reads() {
        let name = Some((FileId::ROOT, Name::new(*b"doc").unwrap()));
        let row = Kept { name, ..kept(5, 9, 100) };
        let golden = [
            &[1, 0x86, 5, 2, 0x82, 3, 9, 0x18, 100, 0x81, 0x82, 0, 0x18, 100][..],
            &[0x82, 1, 0x43, b'd', b'o', b'c'],
        ]
        .concat();
        assert_eq!(row.encode(), golden);
        assert_eq!(Kept::decode(&golden), Some(row));
    }

    #[test]
    fn a_row_that_is_damaged_is_as_good_as_none() {
        let backwards = Kept { ranges: vec![(9, 3)], ..kept(5, 9, 100) }.encode();
        let whole = kept(5, 9, 100).encode();
        let tables = MemoryTables::default();
        let mut write = tables.write().unwrap();
        for (number, row) in
            [&[][..], &[2, 0x80], &[1, 0xff], &backwards, &whole].iter().enumerate()
        {
            write.put(TRASH, &(number as u64 + 1).to_be_bytes(), row).unwrap();
        }
        write.put(TRASH, b"no number", &whole).unwrap();
        let trash = Trash::load(&*write).unwrap();
        assert_eq!(trash.kept.keys().collect::<Vec<_>>(), [&5]);
        assert_eq!(trash.last, 5);
    }
}
