//! Listing a directory: the order of its entries, and going on where a reader stopped.

use super::For;
use crate::client::Client;
use crate::types::{DirectoryEntry, Error, Step, Stop};
use model::{FileId, Name, View};
use protocol::{Objection, Upstream};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, PoisonError};
use store::Containers;

/// Directories whose order of reading is kept in memory.
const LISTINGS_MAX: usize = 64;
/// Cookies below this are left to the caller, for "." and "..".
const COOKIE_MIN: u64 = 16;

/// One directory: cookies with names, ascending.
type Order = Arc<Vec<(u64, Name)>>;

/// The order in which directories are being read: cookies with names, ascending.
#[derive(Default)]
pub(crate) struct Listings {
    by_directory: BTreeMap<FileId, Order>,
    order: std::collections::VecDeque<FileId>,
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Entries after a cookie (0: from the start), without "." and "..". None left: the end.
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
            entries.iter().for_each(|entry| self.forgotten(entry.found.file, 1));
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
        let start = order.partition_point(|(cookie, _)| *cookie <= after_cookie);
        for (cookie, name) in order.iter().skip(start) {
            if entries.len() >= entries_max {
                break;
            }
            match self.find(directory, name, whom) {
                Ok(Some(found)) => {
                    entries.push(DirectoryEntry { cookie: *cookie, name: name.clone(), found });
                }
                // Gone since the reading began: passed over. Replaced: as it is now.
                Ok(None) | Err(Stop::Error(Error::Objection(Objection::NoEntry))) => {}
                Err(stop) => return Err(stop),
            }
        }
        Ok(())
    }

    fn order_of(&self, directory: FileId, anew: bool) -> Step<Order> {
        let listings = || self.inner.listings.lock().unwrap_or_else(PoisonError::into_inner);
        if !anew && let Some(order) = listings().by_directory.get(&directory) {
            return Ok(order.clone());
        }
        let entries = self.view(|tree| {
            let entries = tree.entries(directory)?;
            // All nodes are needed soon: learn of a missing one before the first is shown.
            for (_, file) in &entries {
                tree.node(*file)?;
            }
            Ok(entries)
        })?;
        let mut order: Vec<_> =
            entries.into_iter().map(|(name, _)| (cookie(&name), name)).collect();
        order.sort_unstable();
        let order = Arc::new(order);
        let mut listings = listings();
        if listings.by_directory.insert(directory, order.clone()).is_none() {
            listings.order.push_back(directory);
        }
        if listings.order.len() > LISTINGS_MAX
            && let Some(oldest) = listings.order.pop_front()
        {
            listings.by_directory.remove(&oldest);
        }
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
