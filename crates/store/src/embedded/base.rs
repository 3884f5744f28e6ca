//! What redb has of a database: its rows as the last flush left them, and how a flush gets there.
//! Holds: every row carries a checksum of its key and value, so that damage is met as an error
//! and never as a wrong row.

use super::beneath::Beneath;
use super::errors::{open_error, other, storage, table_error, transaction_error};
use super::kept::Backend;
use super::young::{Merged, Puts, Way, stretch};
use super::{Words, guarded};
use crate::error::{Result, StoreError};
use crate::overlay::Shared;
use crate::table::{Durability, Row};
use redb::{ReadableDatabase, ReadableTable, ReadableTableMetadata};
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

const CHECKSUM_BYTES: usize = 4;

type Slice = &'static [u8];
type Definition<'a> = redb::TableDefinition<'a, Slice, Slice>;
type Guards<'a> = (redb::AccessGuard<'a, Slice>, redb::AccessGuard<'a, Slice>);
type Opened = std::result::Result<redb::Database, redb::DatabaseError>;
type OpenTable = redb::ReadOnlyTable<Slice, Slice>;

/// Where rows are read, for what is said of a damaged one.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    pub path: &'a Path,
    pub words: &'a Words,
}

/// One state of redb. While it is there, redb keeps the pages of that state.
pub struct Base {
    transaction: redb::ReadTransaction,
    /// Tables met so far; None: it does not exist.
    tables: RwLock<Vec<(String, Option<Arc<OpenTable>>)>>,
}

impl Base {
    pub fn of(path: &Path, redb: &redb::Database) -> Result<Base> {
        let transaction = redb.begin_read().map_err(|e| transaction_error(path, e))?;
        Ok(Base { transaction, tables: RwLock::default() })
    }

    pub fn table_names(&self, path: &Path) -> Result<Vec<String>> {
        let tables = self.transaction.list_tables().map_err(|e| storage(path, e))?;
        Ok(tables.map(|table| redb::TableHandle::name(&table).to_string()).collect())
    }

    pub fn has_rows(&self, path: &Path, table: &str) -> Result<bool> {
        let Some(table) = self.table(path, table)? else { return Ok(false) };
        table.is_empty().map(|is_empty| !is_empty).map_err(|e| storage(path, e))
    }

    pub fn get(&self, place: Place<'_>, table: &str, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let Some(open) = self.table(place.path, table)? else { return Ok(None) };
        let found = open.get(key).map_err(|e| storage(place.path, e))?;
        let found =
            found.map(|guard| unsealed(place, table, key, guard.value()).map(<[u8]>::to_vec));
        found.transpose()
    }

    /// `from <= key < to`, row by row.
    pub fn range(
        &self,
        place: Place<'_>,
        table: &str,
        from: &[u8],
        to: &[u8],
        way: Way,
    ) -> Result<impl Iterator<Item = Result<Row>>> {
        let open = if from < to { self.table(place.path, table)? } else { None };
        let range = open.map(|open| open.range::<&[u8]>(stretch(from, to))).transpose();
        let mut range = range.map_err(|e| storage(place.path, e))?;
        Ok(std::iter::from_fn(move || {
            let range = range.as_mut()?;
            let row = match way {
                Way::Up => range.next(),
                Way::Down => range.next_back(),
            };
            Some(row?.map_err(|e| storage(place.path, e)).and_then(|(key, value)| {
                let bytes = unsealed(place, table, key.value(), value.value())?.to_vec();
                Ok((key.value().to_vec(), bytes))
            }))
        }))
    }

    /// Rows of all tables.
    pub fn rows_len(&self, path: &Path) -> Result<u64> {
        let names = self.table_names(path)?;
        let tables = names.iter().map(|name| self.table(path, name));
        tables.flat_map(Result::transpose).try_fold(0u64, |rows, table| {
            let more = table?.len().map_err(|e| storage(path, e))?;
            Ok(rows.saturating_add(more))
        })
    }

    pub fn check_rows(&self, place: Place<'_>, name: &str) -> Result<()> {
        let Some(table) = self.table(place.path, name)? else { return Ok(()) };
        for row in table.iter().map_err(|e| storage(place.path, e))? {
            let (key, value) = row.map_err(|e| storage(place.path, e))?;
            unsealed(place, name, key.value(), value.value())?;
        }
        Ok(())
    }

    fn table(&self, path: &Path, name: &str) -> Result<Option<Arc<OpenTable>>> {
        let find = |tables: &[(String, Option<Arc<OpenTable>>)]| {
            tables.iter().find(|(known, _)| known == name).map(|(_, open)| open.clone())
        };
        if let Some(known) = find(&self.tables.read().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(known);
        }
        let open = match self.transaction.open_table(Definition::new(name)) {
            Ok(table) => Some(Arc::new(table)),
            Err(redb::TableError::TableDoesNotExist(_)) => None,
            Err(error) => return Err(table_error(path, error)),
        };
        let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have been here meanwhile; one entry more does no harm.
        tables.push((name.to_owned(), open.clone()));
        Ok(open)
    }
}

/// One transaction of redb, as yet open.
pub struct Flush<'a> {
    path: &'a Path,
    transaction: redb::WriteTransaction,
    /// Keys and values that were put with `hold`.
    held_bytes: u64,
}

impl<'a> Flush<'a> {
    pub fn begin(path: &'a Path, redb: &redb::Database) -> Result<Flush<'a>> {
        let transaction = redb.begin_write().map_err(|e| transaction_error(path, e))?;
        Ok(Flush { path, transaction, held_bytes: 0 })
    }

    /// In order of their keys, which spares redb searching.
    pub fn put<'r>(
        &mut self,
        table: &str,
        rows: impl Iterator<Item = (&'r [u8], Option<&'r [u8]>)>,
    ) -> Result<()> {
        let path = self.path;
        let mut open = self
            .transaction
            .open_table(Definition::new(table))
            .map_err(|e| table_error(path, e))?;
        for (key, value) in rows {
            match value {
                Some(value) => open.insert(key, sealed(key, value).as_slice()).map(drop),
                None => open.remove(key).map(drop),
            }
            .map_err(|e| storage(path, e))?;
        }
        Ok(())
    }

    /// From here on the table has no rows. What there was lies under another name, and takes its room:
    /// who gave it back would follow pages that may lead anywhere, and rows of others would go.
    pub fn put_aside(&mut self, table: &str) -> Result<()> {
        let mut number = 1;
        loop {
            let aside = format!("{table}.aside-{number}");
            let renamed =
                self.transaction.rename_table(Definition::new(table), Definition::new(&aside));
            match renamed {
                Err(redb::TableError::TableExists(_)) => number += 1,
                Ok(()) | Err(redb::TableError::TableDoesNotExist(_)) => return Ok(()),
                Err(error) => return Err(table_error(self.path, error)),
            }
        }
    }

    pub fn put_all(&mut self, puts: &Puts) -> Result<()> {
        puts.iter().try_for_each(|(table, rows)| {
            self.put(table, rows.iter().map(|(key, put)| (key.as_slice(), put.as_deref())))
        })
    }

    /// Rows of a transaction that goes on, and their bytes.
    pub fn hold(&mut self, puts: &Puts, bytes: u64) -> Result<()> {
        self.held_bytes += bytes;
        self.put_all(puts)
    }

    pub fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    pub fn get(&self, place: Place<'_>, table: &str, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let open = self.transaction.open_table(Definition::new(table));
        let open = open.map_err(|e| table_error(place.path, e))?;
        let found = open.get(key).map_err(|e| storage(place.path, e))?;
        let found =
            found.map(|guard| unsealed(place, table, key, guard.value()).map(<[u8]>::to_vec));
        found.transpose()
    }

    /// Rows with `from <= key < to` above which `puts` lie, at most `rows_max`.
    pub fn rows<'r>(
        &self,
        place: Place<'_>,
        (table, from, to, way): (&str, &[u8], &[u8], Way),
        puts: impl DoubleEndedIterator<Item = (&'r [u8], Option<&'r [u8]>)>,
        rows_max: usize,
    ) -> Result<Vec<Row>> {
        if from >= to {
            return Ok(Vec::new());
        }
        let open = self.transaction.open_table(Definition::new(table));
        let open = open.map_err(|e| table_error(place.path, e))?;
        let range = open.range::<&[u8]>(stretch(from, to)).map_err(|e| storage(place.path, e))?;
        let old = |row: std::result::Result<Guards<'_>, redb::StorageError>| {
            let (key, value) = row.map_err(|e| storage(place.path, e))?;
            let bytes = unsealed(place, table, key.value(), value.value())?.to_vec();
            Ok((key.value().to_vec(), bytes))
        };
        match way {
            Way::Up => Merged::new(puts, range.map(old), way).take(rows_max).collect(),
            Way::Down => {
                Merged::new(puts.rev(), range.rev().map(old), way).take(rows_max).collect()
            }
        }
    }

    pub fn commit(mut self, durability: Durability) -> Result<()> {
        let path = self.path;
        let durability = match durability {
            Durability::Now => redb::Durability::Immediate,
            Durability::Later => redb::Durability::None,
        };
        self.transaction.set_durability(durability).map_err(|e| other(path, &e))?;
        self.transaction.commit().map_err(|e| match e {
            redb::CommitError::Storage(error) => storage(path, error),
            error => other(path, &error),
        })
    }
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

fn unsealed<'a>(place: Place<'_>, table: &str, key: &[u8], sealed: &'a [u8]) -> Result<&'a [u8]> {
    match sealed.split_last_chunk::<CHECKSUM_BYTES>() {
        Some((value, found)) if *found == checksum(key, value) => Ok(value),
        _ => Err(StoreError::Damaged {
            place: place.path.display().to_string(),
            what: place.words.damaged_row(table, key),
        }),
    }
}

pub fn open_redb(path: &Path, beneath: &Beneath, cache_bytes: usize) -> Result<redb::Database> {
    guarded(path, || {
        let mut builder = redb::Builder::new();
        builder.set_cache_size(cache_bytes);
        let opened = match beneath {
            Beneath::File(kept) => create(&builder, Backend(kept.clone())),
            Beneath::Overlay(over) => builder.create_with_backend(Shared(over.clone())),
        };
        opened.map_err(|e| open_error(path, e))
    })
}

#[cfg(not(test))]
fn create(builder: &redb::Builder, file: Backend) -> Opened {
    builder.create_with_backend(file)
}

/// In a file that can fail.
#[cfg(test)]
fn create(builder: &redb::Builder, file: Backend) -> Opened {
    builder.create_with_backend(super::failing::Failing::new(file))
}

/// Closing writes, and so can fail; what is durable stays so.
pub fn close_redb(path: &Path, open: Option<redb::Database>) {
    let closed = guarded(path, || {
        drop(open);
        Ok(())
    });
    if let Err(error) = closed {
        tracing::warn!(%error, "the database was not closed in order");
    }
}
