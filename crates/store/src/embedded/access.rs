//! How rows are read and put: what a transaction has put, above the young rows, above redb's.

use super::base::{Base, Flush};
use super::young::{self, Commit, Merged, Put, Puts, Way};
use super::{Database, Level, State};
use crate::error::Result;
use crate::table::{Durability, Read, Row, Write};
use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard};

impl Level {
    fn get(&self, database: &Database, at: Commit, table: &str, key: &[u8]) -> Result<Put> {
        if let Some(put) = self.young.at(at).get(table, key) {
            return Ok(put.map(<[u8]>::to_vec));
        }
        let base = self.base(database)?;
        database.guarded(|| base.get(database.place(), table, key))
    }

    /// The rows that `puts` leave of the young ones and of redb's.
    fn rows(
        &self,
        (database, at): (&Database, Commit),
        puts: Option<&BTreeMap<Vec<u8>, Put>>,
        stretch: Stretch<'_>,
        rows_max: usize,
    ) -> Result<Vec<Row>> {
        let Stretch { table, from, to, way } = stretch;
        let base = self.base(database)?;
        let view = self.young.at(at);
        database.guarded(|| {
            let old = base.range(database.place(), table, from, to, way)?;
            let young = view.range(table, from, to);
            let puts = puts
                .filter(|_| from < to)
                .map(|rows| rows.range::<[u8], _>(young::stretch(from, to)));
            let puts =
                puts.into_iter().flatten().map(|(key, put)| (key.as_slice(), put.as_deref()));
            match way {
                Way::Up => {
                    let rows = Merged::new(puts, Merged::new(young, old, way), way);
                    rows.take(rows_max).collect()
                }
                Way::Down => {
                    let rows = Merged::new(puts.rev(), Merged::new(young.rev(), old, way), way);
                    rows.take(rows_max).collect()
                }
            }
        })
    }

    fn base(&self, database: &Database) -> Result<&Base> {
        self.base.as_ref().ok_or_else(|| database.closed())
    }
}

#[derive(Clone, Copy)]
struct Stretch<'a> {
    table: &'a str,
    from: &'a [u8],
    to: &'a [u8],
    way: Way,
}

pub struct Reading<'a> {
    pub(super) database: &'a Database,
    pub(super) level: Arc<Level>,
    pub(super) at: Commit,
}

impl Read for Reading<'_> {
    fn get(&self, table: &'static str, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.level.get(self.database, self.at, table, key)
    }

    fn scan(
        &self,
        table: &'static str,
        from: &[u8],
        to: &[u8],
        rows_max: usize,
    ) -> Result<Vec<Row>> {
        let stretch = Stretch { table, from, to, way: Way::Up };
        self.level.rows((self.database, self.at), None, stretch, rows_max)
    }

    fn last(&self, table: &'static str, from: &[u8], to: &[u8]) -> Result<Option<Row>> {
        let stretch = Stretch { table, from, to, way: Way::Down };
        Ok(self.level.rows((self.database, self.at), None, stretch, 1)?.pop())
    }
}

/// ```text
///   puts (memory) --too many--> held (redb's transaction, as yet open) --commit--> redb
///      \------------------------------commit------> young rows, or redb
/// ```
pub struct Writing<'a> {
    database: &'a Database,
    state: MutexGuard<'a, State>,
    puts: Puts,
    /// Keys and values of `puts`, about.
    bytes: u64,
    /// Of a long transaction, what was put before.
    held: Option<Flush<'a>>,
}

impl<'a> Writing<'a> {
    pub(super) fn begin(database: &'a Database, state: MutexGuard<'a, State>) -> Writing<'a> {
        Writing { database, state, puts: Puts::new(), bytes: 0, held: None }
    }

    fn rows(&self, stretch: Stretch<'_>, rows_max: usize) -> Result<Vec<Row>> {
        let puts = self.puts.get(stretch.table);
        if let Some(held) = &self.held {
            let Stretch { table, from, to, way } = stretch;
            let puts = puts
                .filter(|_| from < to)
                .map(|rows| rows.range::<[u8], _>(young::stretch(from, to)));
            let puts =
                puts.into_iter().flatten().map(|(key, put)| (key.as_slice(), put.as_deref()));
            let place = self.database.place();
            return self
                .database
                .guarded(|| held.rows(place, (table, from, to, way), puts, rows_max));
        }
        let level = self.database.level();
        level.rows((self.database, level.young.last()), puts, stretch, rows_max)
    }

    fn add(&mut self, table: &'static str, key: &[u8], put: Put) -> Result<()> {
        self.bytes += (key.len() + put.as_ref().map_or(0, Vec::len)) as u64;
        self.puts.entry(table).or_default().insert(key.to_vec(), put);
        if self.bytes > self.database.held_bytes_max { self.hold() } else { Ok(()) }
    }

    /// Gives what was put to redb, in a transaction that goes on.
    fn hold(&mut self) -> Result<()> {
        let held = self.held.as_ref().map_or(0, Flush::held_bytes);
        self.database.find_room_held(&mut self.state, self.bytes, held)?;
        let mut flush = match self.held.take() {
            Some(flush) => flush,
            None => self.database.begin_flush(&mut self.state, &[])?,
        };
        let (puts, bytes) = (std::mem::take(&mut self.puts), std::mem::take(&mut self.bytes));
        self.database.guarded(|| flush.hold(&puts, bytes))?;
        self.held = Some(flush);
        Ok(())
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            // What is not committed is undone.
            let undone = self.database.guarded(|| {
                drop(held);
                Ok(())
            });
            if let Err(error) = undone {
                tracing::warn!(%error, "a transaction was not undone in order");
            }
        }
    }
}

impl Read for Writing<'_> {
    fn get(&self, table: &'static str, key: &[u8]) -> Result<Option<Vec<u8>>> {
        if let Some(put) = self.puts.get(table).and_then(|rows| rows.get(key)) {
            return Ok(put.clone());
        }
        if let Some(held) = &self.held {
            return self.database.guarded(|| held.get(self.database.place(), table, key));
        }
        let level = self.database.level();
        level.get(self.database, level.young.last(), table, key)
    }

    fn scan(
        &self,
        table: &'static str,
        from: &[u8],
        to: &[u8],
        rows_max: usize,
    ) -> Result<Vec<Row>> {
        self.rows(Stretch { table, from, to, way: Way::Up }, rows_max)
    }

    fn last(&self, table: &'static str, from: &[u8], to: &[u8]) -> Result<Option<Row>> {
        Ok(self.rows(Stretch { table, from, to, way: Way::Down }, 1)?.pop())
    }
}

impl Write for Writing<'_> {
    fn put(&mut self, table: &'static str, key: &[u8], value: &[u8]) -> Result<()> {
        self.add(table, key, Some(value.to_vec()))
    }

    fn delete(&mut self, table: &'static str, key: &[u8]) -> Result<()> {
        self.add(table, key, None)
    }

    /// What was put before does not count on rows of these tables.
    fn clear(&mut self, tables: &[&'static str]) -> Result<()> {
        if !self.puts.is_empty() {
            self.hold()?;
        }
        if self.held.is_none() {
            self.held = Some(self.database.begin_flush(&mut self.state, tables)?);
        }
        // It stays held: what fails is undone as all that is not committed.
        let Some(flush) = &mut self.held else { return Ok(()) };
        self.database.guarded(|| tables.iter().try_for_each(|table| flush.put_aside(table)))
    }

    fn commit(mut self: Box<Self>, durability: Durability) -> Result<()> {
        let puts = std::mem::take(&mut self.puts);
        match self.held.take() {
            None => self.database.commit(&mut self.state, puts, durability),
            Some(held) => self.database.commit_held(&mut self.state, held, &puts, durability),
        }
    }
}
