//! Ordered tables of bytes with serializable transactions.
//! Holds: a reader sees one commit and nothing after it; one writer at a time; a transaction
//! that is dropped leaves nothing.

use crate::error::Result;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// When a commit is safe from a power cut. All are atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Before `commit` returns.
    Now,
    /// With the next commit that is durable now, or before, where memory or the disk has little room
    /// left. A crash before that undoes it.
    Later,
}

/// What is done before anything that was committed comes to the disk, whoever has it come there.
#[derive(Clone, Default)]
pub struct Before(Arc<Mutex<Option<Work>>>);

type Work = Arc<dyn Fn() -> Result<()> + Send + Sync>;

impl Before {
    /// In the place of what was said before.
    pub fn is(&self, work: impl Fn() -> Result<()> + Send + Sync + 'static) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(work));
    }

    pub(crate) fn does(&self) -> Result<()> {
        let work = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        work.map_or(Ok(()), |work| work())
    }
}

impl fmt::Debug for Before {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Before")
    }
}

/// Tables are named by static strings; a table comes into being when it is first written.
pub trait Tables: Send + Sync + 'static {
    /// A view of the last commit.
    fn read(&self) -> Result<Box<dyn Read + '_>>;
    /// Waits for other writers.
    fn write(&self) -> Result<Box<dyn Write + '_>>;
    /// Bytes of the disk that holds them that commits may still take, pages and all. `u64::MAX`
    /// where nothing bounds them.
    fn room(&self) -> Result<u64>;

    /// Bytes of a disk that they take; none where they are in memory.
    fn taken(&self) -> Result<u64> {
        Ok(0)
    }

    /// Gives back to the disk what is free within them, where that is most of them and at least
    /// `free_bytes_min`. Returns the bytes. Everybody else waits meanwhile; who has a view open
    /// makes it a matter of another time.
    fn give_back(&self, free_bytes_min: u64) -> Result<u64> {
        let _ = free_bytes_min;
        Ok(0)
    }

    /// Where it is said what is to be done before anything that was committed comes to the disk: where that
    /// fails it does not come there. It may not write to these tables.
    fn before(&self) -> Before;

    /// How often something that another program had removed was put there anew.
    fn put_anew(&self) -> u64 {
        0
    }
}

pub type Row = (Vec<u8>, Vec<u8>);

pub trait Read {
    fn get(&self, table: &'static str, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Rows with `from <= key < to`, in order of keys, at most `rows_max`.
    fn scan(
        &self,
        table: &'static str,
        from: &[u8],
        to: &[u8],
        rows_max: usize,
    ) -> Result<Vec<Row>>;

    /// The last row with `from <= key < to`.
    fn last(&self, table: &'static str, from: &[u8], to: &[u8]) -> Result<Option<Row>>;
}

/// After every key, and rows that go at once, where a table is cleared.
const BEYOND: [u8; 1024] = [0xff; 1024];
const CLEARED_AT_ONCE: usize = 1000;

/// Sees its own writes.
pub trait Write: Read {
    fn put(&mut self, table: &'static str, key: &[u8], value: &[u8]) -> Result<()>;
    fn delete(&mut self, table: &'static str, key: &[u8]) -> Result<()>;

    /// Takes every row of some tables away, where the store can do it also those that cannot be read.
    /// It is the first that a transaction does.
    fn clear(&mut self, tables: &[&'static str]) -> Result<()> {
        for table in tables {
            loop {
                let rows = self.scan(table, &[], &BEYOND, CLEARED_AT_ONCE)?;
                if rows.is_empty() {
                    break;
                }
                for (key, _) in rows {
                    self.delete(table, &key)?;
                }
            }
        }
        Ok(())
    }

    fn commit(self: Box<Self>, durability: Durability) -> Result<()>;
}
