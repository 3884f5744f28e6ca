//! Listing a directory: the order of its entries, and going on where a reader stopped.

use super::For;
use crate::client::Client;
use crate::ranks::{self, Rank};
use crate::types::{DirectoryEntry, Error, Listed, Need, Step, Stop};
use model::{FileId, Kind, Name, View};
use protocol::{Objection, Upstream};
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};
use store::Containers;
use volume::partial::Missing;

/// Directories whose order of reading is kept in memory.
const LISTINGS_MAX: usize = 64;
/// Entries of all of them together, but for a directory that has more by itself.
const ENTRIES_MAX: usize = 1 << 20;
/// Cookies below this are left to the caller, for "." and "..".
const COOKIE_MIN: u64 = 16;

/// One directory: what is in it, by ascending cookie. The names lie one behind the other, as a
/// directory may have a million.
#[derive(Default)]
pub(crate) struct Order {
    places: Vec<Place>,
    /// The same by ascending id, when somebody has asked for it.
    by_id: OnceLock<Vec<FileId>>,
    /// Each behind its length.
    names: Vec<u8>,
    /// Of some names it is not known what they are, and nobody could be asked.
    lacks: bool,
}

#[derive(Clone, Copy)]
struct Place {
    cookie: u64,
    file: FileId,
    /// Where the name begins.
    at: u32,
    kind: Option<Kind>,
}

/// The order in which directories are being read, the oldest first.
#[derive(Default)]
pub(crate) struct Listings {
    kept: VecDeque<(FileId, Arc<Order>)>,
}

impl Order {
    /// False: there are more bytes of names than fit.
    fn push(&mut self, name: &Name, file: FileId, kind: Option<Kind>) -> bool {
        let Ok(at) = u32::try_from(self.names.len()) else { return false };
        self.places.push(Place { cookie: cookie(name), file, at, kind });
        let bytes = name.as_bytes();
        // A name has 255 bytes at most.
        self.names.push(bytes.len() as u8);
        self.names.extend(bytes);
        true
    }

    #[cfg(test)]
    pub fn of(entries: &[(Name, FileId)]) -> Order {
        let mut order = Order::default();
        for (name, file) in entries {
            assert!(order.push(name, *file, Some(Kind::File)));
        }
        order.sort()
    }

    /// When all are there.
    fn sort(mut self) -> Order {
        self.places.shrink_to_fit();
        self.names.shrink_to_fit();
        let names = &self.names;
        self.places.sort_unstable_by(|a, b| {
            let by_name = || name_at(names, a.at).cmp(name_at(names, b.at));
            a.cookie.cmp(&b.cookie).then_with(by_name)
        });
        self
    }

    /// What comes after a cookie.
    fn after(&self, cookie: u64) -> impl Iterator<Item = Listed> {
        self.places[self.begins_after(cookie)..].iter().filter_map(
            |Place { cookie, file, at, kind }| {
                // What was a name is one.
                let name = Name::new(name_at(&self.names, *at)).ok()?;
                Some(Listed { cookie: *cookie, name, file: *file, kind: *kind })
            },
        )
    }

    fn begins_after(&self, cookie: u64) -> usize {
        self.places.partition_point(|place| place.cookie <= cookie)
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// The files that come after a cookie.
    pub fn files_after(&self, cookie: u64) -> impl Iterator<Item = FileId> {
        self.places[self.begins_after(cookie)..].iter().map(|place| place.file)
    }

    /// How many entries a reader goes on from one cookie to another that comes behind it.
    pub fn steps(&self, from: u64, to: u64) -> Option<usize> {
        self.begins_after(to).checked_sub(self.begins_after(from))
    }

    /// As `files_after`, where they are read by ascending id.
    pub fn files_after_id(&self, file: FileId) -> impl Iterator<Item = FileId> {
        let by_id = self.by_id();
        by_id[by_id.partition_point(|other| *other <= file)..].iter().copied()
    }

    /// As `steps`, where they are read by ascending id.
    pub fn steps_by_id(&self, from: FileId, to: FileId) -> Option<usize> {
        let place = |file: FileId| self.by_id().partition_point(|other| *other <= file);
        place(to).checked_sub(place(from))
    }

    fn by_id(&self) -> &[FileId] {
        self.by_id.get_or_init(|| {
            let mut files: Vec<FileId> = self.places.iter().map(|place| place.file).collect();
            files.sort_unstable();
            files
        })
    }
}

fn name_at(names: &[u8], at: u32) -> &[u8] {
    let (length, rest) = names[at as usize..].split_first().unwrap_or((&0, &[]));
    &rest[..usize::from(*length)]
}

impl Listings {
    fn get(&self, directory: FileId) -> Option<Arc<Order>> {
        let found = self.kept.iter().find(|(kept, _)| *kept == directory);
        found.map(|(_, order)| order.clone())
    }

    fn drop_order(&mut self, directory: FileId) {
        self.kept.retain(|(kept, _)| *kept != directory);
    }

    fn keep(&mut self, directory: FileId, order: Arc<Order>) {
        self.drop_order(directory);
        self.kept.push_back((directory, order));
        let entries = |kept: &VecDeque<(FileId, Arc<Order>)>| -> usize {
            kept.iter().map(|(_, order)| order.places.len()).sum()
        };
        while self.kept.len() > LISTINGS_MAX
            || (self.kept.len() > 1 && entries(&self.kept) > ENTRIES_MAX)
        {
            self.kept.pop_front();
        }
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Entries after a cookie (0: from the start), without "." and "..", as they were when the
    /// reading began. None left: the end.
    pub fn list_names(
        &self,
        directory: FileId,
        after_cookie: u64,
        entries_max: usize,
    ) -> Step<Vec<Listed>> {
        // What is kept of the order counts as long as what it was made of.
        self.epoch_that_counts()?;
        let order = self.order_of(directory, after_cookie == 0)?;
        let listed: Vec<Listed> = order.after(after_cookie).take(entries_max).collect();
        if listed.is_empty() {
            self.is_all(&order)?;
        }
        Ok(listed)
    }

    /// An error, in the place of the end, where names are lacking: who copies or removes what a directory
    /// has is not to take the others for all.
    fn is_all(&self, order: &Order) -> Step<()> {
        match order.lacks {
            true => Err(Error::Unreachable(self.connection().why_not().to_string()).into()),
            false => Ok(()),
        }
    }

    /// The same with attributes, and without what has gone since the reading began.
    pub fn list(
        &self,
        directory: FileId,
        after_cookie: u64,
        entries_max: usize,
    ) -> Step<Vec<DirectoryEntry>> {
        self.list_for(directory, after_cookie, entries_max, For::Program)
    }

    /// As `list`, for a kernel that has the files from then on, until each is `forgotten`.
    pub fn list_known(
        &self,
        directory: FileId,
        after_cookie: u64,
        entries_max: usize,
    ) -> Step<Vec<DirectoryEntry>> {
        self.list_for(directory, after_cookie, entries_max, For::Kernel)
    }

    fn list_for(
        &self,
        directory: FileId,
        after_cookie: u64,
        entries_max: usize,
        whom: For,
    ) -> Step<Vec<DirectoryEntry>> {
        let mut entries = Vec::new();
        let outcome = self.list_into(&mut entries, directory, after_cookie, entries_max, whom);
        if outcome.is_err() && whom == For::Kernel {
            let known = entries.iter().filter_map(|entry| entry.found.as_ref().ok());
            known.for_each(|found| self.forgotten(found.file, 1));
        }
        outcome.map(|()| entries)
    }

    fn list_into(
        &self,
        entries: &mut Vec<DirectoryEntry>,
        directory: FileId,
        after_cookie: u64,
        entries_max: usize,
        whom: For,
    ) -> Step<()> {
        let order = self.order_of(directory, after_cookie == 0)?;
        for Listed { cookie, name, file, .. } in order.after(after_cookie) {
            if entries.len() >= entries_max {
                break;
            }
            match self.find(directory, &name, whom) {
                Ok(Some(found)) => entries.push(DirectoryEntry { cookie, name, found: Ok(found) }),
                Err(Stop::Need(Need::Node(lacked))) if lacked == file => {
                    if !self.inner.untold.has(file) {
                        return Err(Stop::Need(Need::Listed(file)));
                    }
                    entries.push(DirectoryEntry { cookie, name, found: Err(file) });
                }
                // Gone since the reading began: passed over. Replaced: as it is now.
                Ok(None) | Err(Stop::Error(Error::Objection(Objection::NoEntry))) => {}
                Err(stop) => return Err(stop),
            }
        }
        if entries.is_empty() { self.is_all(&order) } else { Ok(()) }
    }

    /// Whoever can be asked soon is waited for.
    fn may_ask(&self) -> bool {
        let now = self.inner.world.clock.moment();
        let connection = self.connection();
        let is_away = |down| down >= self.inner.settings.answer_within;
        crate::mode::fetches(connection.mode) && !connection.down_for(now).is_some_and(is_away)
    }

    /// The order in which a directory was last read, if that is kept in memory.
    pub(crate) fn order_kept(&self, directory: FileId) -> Option<Arc<Order>> {
        ranks::lock(Rank::Listings, &self.inner.listings).get(directory)
    }

    fn order_of(&self, directory: FileId, anew: bool) -> Step<Arc<Order>> {
        let listings = || ranks::lock(Rank::Listings, &self.inner.listings);
        if anew {
            // Not two of them at once: both may be large.
            listings().drop_order(directory);
        } else if let Some(order) = listings().get(directory) {
            return Ok(order);
        }
        let mut fits = true;
        let asks = self.may_ask();
        let order = self.view(|tree| {
            let mut order = Order::default();
            // All nodes are needed soon: learn of a missing one before the first is shown.
            tree.each_entry(directory, |name, file| {
                let kind = match tree.node(file) {
                    Err(Missing::Node(_)) if self.inner.untold.has(file) => None,
                    // Others have made it since the names were last read.
                    Err(Missing::Node(_)) if !asks => {
                        order.lacks = true;
                        return Ok(());
                    }
                    node => match node? {
                        Some(node) => Some(node.kind),
                        None => return Ok(()),
                    },
                };
                fits &= order.push(&name, file, kind);
                Ok(())
            })?;
            Ok(order)
        });
        let order = order.map_err(|stop| match stop {
            Stop::Need(Need::Node(file)) => Stop::Need(Need::Listed(file)),
            stop => stop,
        })?;
        if !fits {
            return Err(Error::Failed(format!("directory {directory} has too many names")).into());
        }
        let order = Arc::new(order.sort());
        listings().keep(directory, order.clone());
        Ok(order)
    }
}

/// Where a name stands in the order of reading: the same on every reading, whatever else is
/// made or removed meanwhile.
pub(crate) fn cookie(name: &Name) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    (hasher.finish() >> 2).max(COOKIE_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn order(names: std::ops::Range<u32>) -> Arc<Order> {
        let name = |number: u32| Name::new(format!("entry {number}").repeat(20)).unwrap();
        let entries: Vec<_> = names.map(|number| (name(number), FileId(number.into()))).collect();
        Arc::new(Order::of(&entries))
    }

    #[test]
    fn every_name_stands_at_its_cookie_and_comes_once() {
        let order = order(0..1000);
        let all: Vec<_> = order.after(0).collect();
        assert!(all.is_sorted_by(|a, b| a.cookie < b.cookie));
        assert!(all.iter().all(|listed| listed.cookie == cookie(&listed.name)));
        let files: BTreeSet<_> = all.iter().map(|listed| listed.file).collect();
        assert_eq!((all.len(), files.len()), (1000, 1000));
        let rest: Vec<_> = order.after(all[400].cookie).collect();
        assert_eq!(rest, all[401..]);
        assert_eq!(order.after(all[999].cookie).count(), 0);
    }

    #[test]
    fn a_reader_by_cookie_or_by_id_is_followed_from_any_entry() {
        let order = order(0..1000);
        let files: Vec<FileId> = order.files_after(0).collect();
        let cookies: Vec<u64> = order.after(0).map(|listed| listed.cookie).collect();
        assert_eq!(order.files_after(cookies[400]).collect::<Vec<_>>(), files[401..]);
        assert_eq!(order.steps(cookies[400], cookies[407]), Some(7));
        assert_eq!(order.steps(cookies[407], cookies[400]), None);
        let by_id: Vec<FileId> = order.files_after_id(FileId(400)).collect();
        assert_eq!(by_id, (401..1000).map(FileId).collect::<Vec<_>>());
        assert_eq!(order.steps_by_id(FileId(400), FileId(407)), Some(7));
        assert_eq!(order.steps_by_id(FileId(407), FileId(400)), None);
    }

    #[test]
    fn so_many_directories_and_so_many_entries_are_kept() {
        let (mut listings, small) = (Listings::default(), order(0..3));
        for directory in 0..100 {
            listings.keep(FileId(directory), small.clone());
            listings.keep(FileId(directory), small.clone());
        }
        assert_eq!(listings.kept.len(), LISTINGS_MAX);
        assert!(listings.get(FileId(35)).is_none() && listings.get(FileId(36)).is_some());
        let place = Place { cookie: COOKIE_MIN, file: FileId(1), at: 0, kind: Some(Kind::File) };
        let places = vec![place; ENTRIES_MAX / 2 + 1];
        let half = Arc::new(Order { places, names: vec![0], ..Order::default() });
        listings.keep(FileId(200), half.clone());
        assert!(listings.get(FileId(99)).is_some());
        listings.keep(FileId(201), half.clone());
        assert!(listings.get(FileId(200)).is_none() && listings.get(FileId(201)).is_some());
        listings.drop_order(FileId(201));
        assert_eq!(listings.kept.len(), 0);
    }
}
