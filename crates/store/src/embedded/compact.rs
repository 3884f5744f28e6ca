//! Giving back to the disk what a database has free within its file.
//! Holds: no row is lost, whatever fails and whenever the process ends: redb moves pages in
//! transactions of its own. It takes a bounded time, since it is not begun where there is much to
//! move.
//! Never: waits for a reader.

use super::base::Base;
use super::errors::{other, storage, transaction_error};
use super::young::Puts;
use super::{Database, State};
use crate::error::Result;
use crate::table::Durability;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

/// With more rows it is not even looked how much is free: it takes reading them all.
const ROWS_MAX: u64 = 4 << 20;
/// No more is moved than this.
const MOVED_BYTES_MAX: u64 = 512 << 20;
const SECTOR_BYTES: u64 = 512;

/// Whether a file of which so much is in use is worth it: most of it is free, and at least so much.
fn is_worth(taken: u64, used: u64, free_bytes_min: u64) -> bool {
    let free = taken.saturating_sub(used);
    free >= free_bytes_min && free > taken / 2 && used <= MOVED_BYTES_MAX
}

impl Database {
    /// What the file takes of the disk.
    pub(super) fn file_bytes(&self) -> Result<u64> {
        let found = self.beneath.metadata(&self.path)?;
        Ok(found.len().min(found.blocks() * SECTOR_BYTES))
    }

    /// Gives what is free to the disk, where that is most of the file and at least
    /// `free_bytes_min`. Returns the bytes; none where it is not worth it, or somebody reads.
    pub(super) fn compact(&self, free_bytes_min: u64) -> Result<u64> {
        let taken = self.file_bytes()?;
        if taken < free_bytes_min || self.beneath.is_only_read() {
            return Ok(0);
        }
        let mut state = crate::files::locked(&self.state);
        self.open_again(&mut state)?;
        self.look()?;
        self.find_room(&mut state, 0)?;
        if state.undurable || self.level().young.versions() > 0 {
            self.flush(&mut state, &Puts::new(), Durability::Now)?;
        }
        let used = self.used_bytes(&state)?;
        if !used.is_some_and(|used| is_worth(taken, used, free_bytes_min)) {
            return Ok(0);
        }
        let moved = self.move_pages(&mut state);
        // After a failure redb refuses everything until then.
        self.open_again(&mut state)?;
        Ok(if moved? { taken.saturating_sub(self.file_bytes()?) } else { 0 })
    }

    /// Bytes of the pages that rows are in. None: there are too many rows to look.
    fn used_bytes(&self, state: &State) -> Result<Option<u64>> {
        let Some(redb) = &state.redb else { return Err(self.closed()) };
        let path = &self.path;
        self.guarded(|| {
            if Base::of(path, redb)?.rows_len(path)? > ROWS_MAX {
                return Ok(None);
            }
            let transaction = redb.begin_write().map_err(|e| transaction_error(path, e))?;
            let found = transaction.stats().map_err(|e| storage(path, e))?;
            transaction.abort().map_err(|e| storage(path, e))?;
            let pages = (found.leaf_pages() + found.branch_pages()) * found.page_size() as u64;
            // Of long rows, a page has many.
            Ok(Some(pages.max(found.stored_bytes() + found.metadata_bytes())))
        })
    }

    /// False: somebody reads.
    fn move_pages(&self, state: &mut State) -> Result<bool> {
        let mut shown = self.level.write().unwrap_or_else(PoisonError::into_inner);
        // A reader of redb's state keeps its pages.
        let Some(level) = Arc::get_mut(&mut shown) else { return Ok(false) };
        let State { redb: Some(redb), .. } = state else { return Err(self.closed()) };
        level.base = None;
        let moved = self.guarded(|| {
            let moved = match redb.compact() {
                Ok(_) => true,
                // One that began before the last flush.
                Err(redb::CompactionError::TransactionInProgress) => false,
                Err(redb::CompactionError::Storage(error)) => {
                    return Err(storage(&self.path, error));
                }
                Err(error) => return Err(other(&self.path, &error)),
            };
            Ok((moved, Base::of(&self.path, redb)?))
        });
        match moved {
            Ok((moved, base)) => {
                level.base = Some(base);
                Ok(moved)
            }
            Err(error) => {
                self.failed.store(true, Ordering::Release);
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::failing;
    use super::*;
    use crate::table::Tables;
    use std::path::Path;
    use tempfile::tempdir;

    const ROWS: u32 = 6_000;
    /// One in so many stays.
    const STAYS_ONE_IN: u32 = 10;
    /// More calls than it makes.
    const CALLS_MAX: u64 = 20_000;

    fn filled(directory: &Path, with_log: bool) -> Database {
        let log = directory.join("log");
        let log = Some(log.as_path()).filter(|_| with_log);
        let settings = super::super::Settings { log, ..Default::default() };
        let tables = Database::open_as(&directory.join("tables"), settings).unwrap();
        let mut write = tables.write().unwrap();
        for number in 0..ROWS {
            write.put("rows", &number.to_be_bytes(), &[number as u8; 500]).unwrap();
        }
        write.commit(Durability::Now).unwrap();
        tables
    }

    fn thinned(tables: &Database) {
        let mut write = tables.write().unwrap();
        for number in (0..ROWS).filter(|number| number % STAYS_ONE_IN != 0) {
            write.delete("rows", &number.to_be_bytes()).unwrap();
        }
        write.commit(Durability::Later).unwrap();
    }

    fn has_everything(tables: &Database) {
        let read = tables.read().unwrap();
        let rows = read.scan("rows", &[], &[0xff; 8], usize::MAX).unwrap();
        assert_eq!(rows.len() as u32, ROWS / STAYS_ONE_IN);
        for (key, value) in rows {
            let number = u32::from_be_bytes(key.try_into().unwrap());
            assert!(number % STAYS_ONE_IN == 0 && value == [number as u8; 500]);
        }
    }

    #[test]
    fn it_is_worth_it_where_most_is_free_and_not_too_much_is_moved() {
        const MIB: u64 = 1 << 20;
        assert!(is_worth(40 * MIB, 10 * MIB, 16 * MIB));
        assert!(!is_worth(20 * MIB, 10 * MIB, MIB), "half of it is in use");
        assert!(!is_worth(20 * MIB, 5 * MIB, 16 * MIB), "it is not much");
        assert!(!is_worth(MIB, 2 * MIB, 0));
        assert!(!is_worth(u64::MAX, MOVED_BYTES_MAX + 1, 0), "it takes long");
    }

    #[test]
    fn what_is_free_goes_back_to_the_disk_and_every_row_stays() {
        for with_log in [false, true] {
            let directory = tempdir().unwrap();
            let tables = filled(directory.path(), with_log);
            assert_eq!(tables.give_back(1 << 10).unwrap(), 0, "all of it is in use");
            let before = tables.taken().unwrap();
            thinned(&tables);
            assert_eq!(tables.give_back(before * 9).unwrap(), 0, "it is too little");
            let reader = tables.read().unwrap();
            assert_eq!(tables.give_back(1 << 10).unwrap(), 0, "somebody reads");
            drop(reader);
            let given = tables.give_back(1 << 10).unwrap();
            let after = tables.taken().unwrap();
            assert!(given > 0 && after < before / 2, "{after} of {before}, {given} went");
            has_everything(&tables);
            let mut write = tables.write().unwrap();
            write.put("others", b"key", b"value").unwrap();
            write.commit(Durability::Now).unwrap();
            drop(tables);
            let log = directory.path().join("log");
            let log = Some(log.as_path()).filter(|_| with_log);
            let settings = super::super::Settings { log, ..Default::default() };
            let path = directory.path().join("tables");
            let tables = Database::open_as(&path, settings).unwrap();
            has_everything(&tables);
            assert!(tables.read().unwrap().get("others", b"key").unwrap().is_some());
            drop(tables);
            assert!(Database::check(&path).unwrap());
        }
    }

    #[test]
    fn whatever_fails_meanwhile_and_whenever_it_ends_every_row_stays() {
        let mut failures = 0;
        for calls in (0..).map(|step: u64| step * 41) {
            assert!(calls < CALLS_MAX);
            let directory = tempdir().unwrap();
            let tables = filled(directory.path(), false);
            thinned(&tables);
            failing::set(Some(calls));
            let outcome = tables.give_back(1 << 10);
            let all_was_done = failing::set(None).is_some();
            let killed = tempdir().unwrap();
            let copy = killed.path().join("tables");
            std::fs::copy(directory.path().join("tables"), &copy).unwrap();
            has_everything(&tables);
            // What was there before it is there, and what was deleted for later may be.
            let read = Database::open(&copy).unwrap();
            let rows = read.read().unwrap().scan("rows", &[], &[0xff; 8], usize::MAX).unwrap();
            assert!(rows.len() as u32 == ROWS / STAYS_ONE_IN || rows.len() as u32 == ROWS);
            if all_was_done {
                assert!(outcome.unwrap() > 0);
                break;
            }
            assert!(outcome.is_err(), "after {calls} calls");
            failures += 1;
            tables.give_back(1 << 10).unwrap();
            has_everything(&tables);
        }
        assert!(failures > 3, "{failures}");
    }
}
