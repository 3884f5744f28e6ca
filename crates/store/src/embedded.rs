//! Tables in one file of this machine, kept by redb.
//! Holds: every row carries a checksum of its key and value, so that damage is met as an error
//! and never as a wrong row; a full disk costs the transaction and nothing else.
//! Never: goes back to an older state while the process runs.
//!
//! A commit with `Durability::Later` lives in memory until the next with `Durability::Now` (or
//! until the database is closed in order): the death of the process undoes it too.

use crate::error::{Result, StoreError};
use crate::files;
use crate::table::{Durability, Read, Row, Tables, Write};
use errors::{guarded, open_error, other, storage, table_error, transaction_error};
use redb::{ReadableDatabase, ReadableTable};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

mod errors;
mod words;

pub use errors::is_guarded;
pub use words::Words;

/// Pages kept in memory unless the caller says otherwise.
pub const CACHE_BYTES: usize = 64 << 20;

/// A commit is refused when the disk has less than this, besides what the commit brings: redb
/// gives up for good where a write fails, and takes with it what only memory has.
const ROOM_BYTES_MIN: u64 = 2 << 20;

/// How much of the disk a byte that was put may take, with the pages around it.
const ROOM_FACTOR: u64 = 4;

const CHECKSUM_BYTES: usize = 4;

type Definition<'a> = redb::TableDefinition<'a, &'static [u8], &'static [u8]>;
type OpenTable = redb::ReadOnlyTable<&'static [u8], &'static [u8]>;

pub struct Database {
    path: PathBuf,
    words: Words,
    cache_bytes: usize,
    /// None after it was closed to be opened again, and could not be.
    redb: RwLock<Option<redb::Database>>,
    /// redb refuses everything after input or output has failed once, until it is opened again.
    failed: AtomicBool,
    /// Commits that only memory has.
    undurable: AtomicBool,
    /// Keys and values in them.
    undurable_bytes: AtomicU64,
}

impl Database {
    /// Makes it if it is missing. After a crash this checks every page, which takes about a
    /// second for ten million rows.
    pub fn open(path: &Path) -> Result<Database> {
        Database::open_with_cache(path, CACHE_BYTES)
    }

    pub fn open_with_cache(path: &Path, cache_bytes: usize) -> Result<Database> {
        Database::open_with(path, cache_bytes, Words::default())
    }

    /// `words` are what people are told if it is damaged.
    pub fn open_with(path: &Path, cache_bytes: usize, words: Words) -> Result<Database> {
        let is_new = !path.exists();
        let redb = open_redb(path, cache_bytes).map_err(|error| words.advise(error))?;
        if let (true, Some(parent)) = (is_new, path.parent().filter(|p| !p.as_os_str().is_empty()))
        {
            files::sync_directory(parent)?;
        }
        Ok(Database {
            path: path.to_path_buf(),
            words,
            cache_bytes,
            redb: RwLock::new(Some(redb)),
            failed: AtomicBool::new(false),
            undurable: AtomicBool::new(false),
            undurable_bytes: AtomicU64::new(0),
        })
    }

    /// Reads every page and every row. Ok(false): it was damaged, and could be mended.
    pub fn check(path: &Path) -> Result<bool> {
        let mut redb = open_redb(path, CACHE_BYTES)?;
        let sound = guarded(path, || redb.check_integrity().map_err(|e| open_error(path, e)))?;
        drop(redb);
        let database = Database::open(path)?;
        let reading = database.begin_read()?;
        let names: Vec<String> = guarded(path, || {
            let tables = reading.transaction.list_tables().map_err(|e| storage(path, e))?;
            Ok(tables.map(|table| redb::TableHandle::name(&table).to_string()).collect())
        })?;
        for name in names {
            reading.check_rows(&name)?;
        }
        Ok(sound)
    }

    fn begin_read(&self) -> Result<Reading<'_>> {
        let open = self.usable()?;
        let transaction = self.guarded(|| {
            open_in(&open, &self.path)?.begin_read().map_err(|e| transaction_error(&self.path, e))
        })?;
        Ok(Reading { database: self, transaction, tables: RefCell::default(), _open: open })
    }

    /// The database, opened again if an earlier failure made redb give up.
    fn usable(&self) -> Result<RwLockReadGuard<'_, Option<redb::Database>>> {
        if self.failed.load(Ordering::Acquire) {
            self.open_again()?;
        }
        Ok(self.redb.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What the disk has is the last durable commit. If memory alone has later ones, opening again
    /// would take them back behind their readers' backs; then only a new process may.
    fn open_again(&self) -> Result<()> {
        let gave_up = |what: &str| StoreError::Database {
            place: self.path.display().to_string(),
            what: what.to_string(),
        };
        if self.undurable.load(Ordering::Acquire) {
            return Err(gave_up(
                "an earlier write failed; make sure that the disk has room and start farfs again",
            ));
        }
        // Never waits: a waiting writer would block a thread that reads within a read.
        let Ok(mut open) = self.redb.try_write() else {
            return Err(gave_up("an earlier write failed; try again"));
        };
        if self.failed.load(Ordering::Acquire) {
            close(&self.path, open.take());
            let again = open_redb(&self.path, self.cache_bytes);
            *open = Some(again.map_err(|error| self.words.advise(error))?);
            self.failed.store(false, Ordering::Release);
        }
        Ok(())
    }

    /// Notes when redb will refuse from now on; a damaged row alone does not make it.
    fn guarded<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let caught = errors::caught(work);
        if matches!(
            caught,
            None | Some(Err(StoreError::Full(_)
                | StoreError::Io { .. }
                | StoreError::Database { .. }))
        ) {
            self.failed.store(true, Ordering::Release);
        }
        let outcome = caught.unwrap_or_else(|| Err(errors::senseless(&self.path)));
        outcome.map_err(|error| self.words.advise(error))
    }

    fn place(&self, table: &'static str) -> Place<'_> {
        Place { path: &self.path, table, words: &self.words }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let open = self.redb.get_mut().unwrap_or_else(PoisonError::into_inner);
        close(&self.path, open.take());
    }
}

impl Tables for Database {
    fn read(&self) -> Result<Box<dyn Read + '_>> {
        Ok(Box::new(self.begin_read()?))
    }

    fn write(&self) -> Result<Box<dyn Write + '_>> {
        let open = self.usable()?;
        let transaction = self.guarded(|| {
            open_in(&open, &self.path)?.begin_write().map_err(|e| transaction_error(&self.path, e))
        })?;
        Ok(Box::new(Writing {
            database: self,
            transaction: Some(transaction),
            bytes: 0,
            _open: open,
        }))
    }

    /// What commits leave free is not room.
    fn room(&self) -> Result<u64> {
        Ok(files::free_bytes(&self.path)?.saturating_sub(ROOM_BYTES_MIN))
    }
}

struct Reading<'a> {
    database: &'a Database,
    transaction: redb::ReadTransaction,
    /// Tables met so far; None: it does not exist.
    tables: RefCell<Vec<(&'static str, Option<OpenTable>)>>,
    _open: RwLockReadGuard<'a, Option<redb::Database>>,
}

impl Reading<'_> {
    /// What `ask` finds in the table, or the default if there is none.
    fn in_table<T: Default>(
        &self,
        name: &'static str,
        ask: impl FnOnce(&OpenTable) -> Result<T>,
    ) -> Result<T> {
        self.database.guarded(|| {
            let mut tables = self.tables.borrow_mut();
            let index = match tables.iter().position(|(known, _)| *known == name) {
                Some(index) => index,
                None => {
                    tables.push((name, self.open_table(name)?));
                    tables.len() - 1
                }
            };
            tables[index].1.as_ref().map_or_else(|| Ok(T::default()), ask)
        })
    }

    fn open_table(&self, name: &str) -> Result<Option<OpenTable>> {
        match self.transaction.open_table(Definition::new(name)) {
            Ok(table) => Ok(Some(table)),
            Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
            Err(error) => Err(table_error(&self.database.path, error)),
        }
    }

    fn check_rows(&self, name: &str) -> Result<()> {
        let path = &self.database.path;
        let place = Place { path, table: name, words: &self.database.words };
        guarded(path, || {
            let Some(table) = self.open_table(name)? else { return Ok(()) };
            for row in table.iter().map_err(|e| storage(path, e))? {
                let (key, value) = row.map_err(|e| storage(path, e))?;
                unsealed(place, key.value(), value.value())?;
            }
            Ok(())
        })
    }
}

impl Read for Reading<'_> {
    fn get(&self, table: &'static str, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.in_table(table, |open| get(self.database.place(table), open, key))
    }

    fn scan(
        &self,
        table: &'static str,
        from: &[u8],
        to: &[u8],
        rows_max: usize,
    ) -> Result<Vec<Row>> {
        self.in_table(table, |open| scan(self.database.place(table), open, from, to, rows_max))
    }

    fn last(&self, table: &'static str, from: &[u8], to: &[u8]) -> Result<Option<Row>> {
        self.in_table(table, |open| last(self.database.place(table), open, from, to))
    }
}

struct Writing<'a> {
    database: &'a Database,
    /// Some until it is committed or dropped.
    transaction: Option<redb::WriteTransaction>,
    /// Keys and values that were put.
    bytes: u64,
    _open: RwLockReadGuard<'a, Option<redb::Database>>,
}

impl Writing<'_> {
    fn in_table<T>(
        &self,
        name: &'static str,
        work: impl FnOnce(&mut redb::Table<'_, &'static [u8], &'static [u8]>) -> Result<T>,
    ) -> Result<T> {
        let path = &self.database.path;
        self.database.guarded(|| {
            let transaction = self.transaction.as_ref().expect("commit takes the whole Writing");
            let mut table =
                transaction.open_table(Definition::new(name)).map_err(|e| table_error(path, e))?;
            work(&mut table)
        })
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        if let Some(transaction) = self.transaction.take() {
            // What it had written is in nobody's way; redb finds it unused.
            let undone = self.database.guarded(|| {
                transaction.abort().map_err(|error| storage(&self.database.path, error))
            });
            if let Err(error) = undone {
                tracing::warn!(%error, "a transaction was not undone in order");
            }
        }
    }
}

impl Read for Writing<'_> {
    fn get(&self, table: &'static str, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.in_table(table, |open| get(self.database.place(table), open, key))
    }

    fn scan(
        &self,
        table: &'static str,
        from: &[u8],
        to: &[u8],
        rows_max: usize,
    ) -> Result<Vec<Row>> {
        self.in_table(table, |open| scan(self.database.place(table), open, from, to, rows_max))
    }

    fn last(&self, table: &'static str, from: &[u8], to: &[u8]) -> Result<Option<Row>> {
        self.in_table(table, |open| last(self.database.place(table), open, from, to))
    }
}

impl Write for Writing<'_> {
    fn put(&mut self, table: &'static str, key: &[u8], value: &[u8]) -> Result<()> {
        let sealed = sealed(key, value);
        self.bytes += (key.len() + sealed.len()) as u64;
        self.in_table(table, |open| {
            open.insert(key, sealed.as_slice())
                .map(drop)
                .map_err(|e| storage(&self.database.path, e))
        })
    }

    fn delete(&mut self, table: &'static str, key: &[u8]) -> Result<()> {
        self.in_table(table, |open| {
            open.remove(key).map(drop).map_err(|e| storage(&self.database.path, e))
        })
    }

    fn commit(mut self: Box<Self>, durability: Durability) -> Result<()> {
        let database = self.database;
        let bytes = self.bytes + database.undurable_bytes.load(Ordering::Acquire);
        if !has_room(files::free_bytes(&database.path)?, bytes) {
            return Err(StoreError::Full(database.path.clone()));
        }
        let mut transaction = self.transaction.take().expect("commit takes the whole Writing");
        let path = &database.path;
        if durability == Durability::Later {
            // Before the commit: whoever sees the commit must see that it is undurable.
            database.undurable.store(true, Ordering::Release);
        }
        database.guarded(|| {
            let durable = match durability {
                Durability::Now => redb::Durability::Immediate,
                Durability::Later => redb::Durability::None,
            };
            transaction.set_durability(durable).map_err(|e| other(path, &e))?;
            transaction.commit().map_err(|e| match e {
                redb::CommitError::Storage(error) => storage(path, error),
                error => other(path, &error),
            })?;
            let is_durable = durability == Durability::Now;
            database.undurable_bytes.store(if is_durable { 0 } else { bytes }, Ordering::Release);
            database.undurable.store(!is_durable, Ordering::Release);
            Ok(())
        })
    }
}

fn has_room(free_bytes: u64, bytes: u64) -> bool {
    free_bytes >= bytes.saturating_mul(ROOM_FACTOR).saturating_add(ROOM_BYTES_MIN)
}

type Slice = &'static [u8];

/// Where rows are read, for what is said of a damaged one.
#[derive(Clone, Copy)]
struct Place<'a> {
    path: &'a Path,
    table: &'a str,
    words: &'a Words,
}

fn get(
    place: Place<'_>,
    table: &impl ReadableTable<Slice, Slice>,
    key: &[u8],
) -> Result<Option<Vec<u8>>> {
    let found = table.get(key).map_err(|e| storage(place.path, e))?;
    found.map(|guard| unsealed(place, key, guard.value()).map(<[u8]>::to_vec)).transpose()
}

fn scan(
    place: Place<'_>,
    table: &impl ReadableTable<Slice, Slice>,
    from: &[u8],
    to: &[u8],
    rows_max: usize,
) -> Result<Vec<Row>> {
    if from >= to {
        return Ok(Vec::new());
    }
    let rows = table.range::<&[u8]>(from..to).map_err(|e| storage(place.path, e))?;
    rows.take(rows_max).map(|row| owned(place, row)).collect()
}

fn last(
    place: Place<'_>,
    table: &impl ReadableTable<Slice, Slice>,
    from: &[u8],
    to: &[u8],
) -> Result<Option<Row>> {
    if from >= to {
        return Ok(None);
    }
    let mut rows = table.range::<&[u8]>(from..to).map_err(|e| storage(place.path, e))?;
    rows.next_back().map(|row| owned(place, row)).transpose()
}

type Guard<'a> = redb::AccessGuard<'a, Slice>;

fn owned(place: Place<'_>, row: Result<(Guard<'_>, Guard<'_>), redb::StorageError>) -> Result<Row> {
    let (key, value) = row.map_err(|e| storage(place.path, e))?;
    let bytes = unsealed(place, key.value(), value.value())?.to_vec();
    Ok((key.value().to_vec(), bytes))
}

fn checksum(key: &[u8], value: &[u8]) -> [u8; CHECKSUM_BYTES] {
    crc32c::crc32c_append(crc32c::crc32c(key), value).to_le_bytes()
}

fn sealed(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut sealed = Vec::with_capacity(value.len() + CHECKSUM_BYTES);
    sealed.extend_from_slice(value);
    sealed.extend_from_slice(&checksum(key, value));
    sealed
}

fn unsealed<'a>(place: Place<'_>, key: &[u8], sealed: &'a [u8]) -> Result<&'a [u8]> {
    match sealed.split_last_chunk::<CHECKSUM_BYTES>() {
        Some((value, found)) if *found == checksum(key, value) => Ok(value),
        _ => Err(StoreError::Damaged {
            place: place.path.display().to_string(),
            what: place.words.damaged_row(place.table, key),
        }),
    }
}

fn open_redb(path: &Path, cache_bytes: usize) -> Result<redb::Database> {
    guarded(path, || {
        redb::Builder::new()
            .set_cache_size(cache_bytes)
            .create(path)
            .map_err(|e| open_error(path, e))
    })
}

/// Closing writes, and so can fail; what is durable stays so.
fn close(path: &Path, open: Option<redb::Database>) {
    let closed = guarded(path, || {
        drop(open);
        Ok(())
    });
    if let Err(error) = closed {
        tracing::warn!(%error, "the database was not closed in order");
    }
}

fn open_in<'a>(open: &'a Option<redb::Database>, path: &Path) -> Result<&'a redb::Database> {
    open.as_ref().ok_or_else(|| StoreError::Database {
        place: path.display().to_string(),
        what: "it was closed after a failure; try again".to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_needs_room_for_what_it_brings_and_some_more() {
        assert!(has_room(ROOM_BYTES_MIN, 0));
        assert!(!has_room(ROOM_BYTES_MIN, 1));
        assert!(!has_room(u64::MAX - 1, u64::MAX));
        assert!(has_room(ROOM_BYTES_MIN + 4000, 1000));
    }
}
