//! How rows are read and put: what a transaction has put, above the young rows, above redb's.

use super::base::Base;
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

pub struct Writing<'a> {
    pub(super) database: &'a Database,
    pub(super) state: MutexGuard<'a, State>,
    pub(super) puts: Puts,
}

impl Writing<'_> {
    fn rows(&self, stretch: Stretch<'_>, rows_max: usize) -> Result<Vec<Row>> {
        let level = self.database.level();
        let puts = self.puts.get(stretch.table);
        level.rows((self.database, level.young.last()), puts, stretch, rows_max)
    }
}

impl Read for Writing<'_> {
    fn get(&self, table: &'static str, key: &[u8]) -> Result<Option<Vec<u8>>> {
        if let Some(put) = self.puts.get(table).and_then(|rows| rows.get(key)) {
            return Ok(put.clone());
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
        self.puts.entry(table).or_default().insert(key.to_vec(), Some(value.to_vec()));
        Ok(())
    }

    fn delete(&mut self, table: &'static str, key: &[u8]) -> Result<()> {
        self.puts.entry(table).or_default().insert(key.to_vec(), None);
        Ok(())
    }

    fn commit(mut self: Box<Self>, durability: Durability) -> Result<()> {
        let puts = std::mem::take(&mut self.puts);
        self.database.commit(&mut self.state, puts, durability)
    }
}
