//! Tables of which a read fails once, as where a disk gives an error and works again; or at which
//! somebody else does something just then.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use store::{Before, Durability, Read, Result, Row, StoreError, Tables, Write};

/// No read is to fail.
const NONE: u64 = u64::MAX;

type Other = (&'static str, Box<dyn FnOnce() + Send>);

/// Which read is the next to fail. Clones are the same.
#[derive(Clone, Default)]
pub struct ReadFault(Arc<State>);

struct State {
    left: AtomicU64,
    other: Mutex<Option<Other>>,
}

impl Default for State {
    fn default() -> State {
        State { left: AtomicU64::new(NONE), other: Mutex::default() }
    }
}

impl ReadFault {
    /// So many reads succeed; the one after fails, and those that follow do not.
    pub fn after(&self, reads: u64) {
        self.0.left.store(reads, Ordering::Relaxed);
    }

    /// None fails from now on. Says whether one had failed.
    pub fn end(&self) -> bool {
        self.0.left.swap(NONE, Ordering::Relaxed) == NONE
    }

    /// When a row of this table has been read next, and before the reader goes on, somebody else does
    /// `what`.
    pub fn meanwhile(&self, table: &'static str, what: impl FnOnce() + Send + 'static) {
        *self.other() = Some((table, Box::new(what)));
    }

    /// Whether nobody else is still to do something.
    pub fn has_been_done(&self) -> bool {
        self.other().is_none()
    }

    fn other(&self) -> std::sync::MutexGuard<'_, Option<Other>> {
        self.0.other.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_read(&self, table: &str) {
        let other = self.other().take_if(|(of, _)| *of == table);
        if let Some((_, what)) = other {
            what();
        }
    }

    fn reads(&self) -> Result<()> {
        let left = self.0.left.load(Ordering::Relaxed);
        if left == NONE {
            return Ok(());
        }
        self.0.left.store(left.checked_sub(1).unwrap_or(NONE), Ordering::Relaxed);
        match left {
            0 => {
                Err(StoreError::Io { place: "tables".into(), source: io::ErrorKind::Other.into() })
            }
            _ => Ok(()),
        }
    }
}

/// Tables of which a read may fail.
pub struct FailingReads<T> {
    pub tables: T,
    pub fault: ReadFault,
}

struct Within<'a, T: ?Sized> {
    inner: Box<T>,
    fault: &'a ReadFault,
}

impl<T: Tables> Tables for FailingReads<T> {
    fn read(&self) -> Result<Box<dyn Read + '_>> {
        Ok(Box::new(Within { inner: self.tables.read()?, fault: &self.fault }))
    }

    fn write(&self) -> Result<Box<dyn Write + '_>> {
        Ok(Box::new(Within { inner: self.tables.write()?, fault: &self.fault }))
    }

    fn room(&self) -> Result<u64> {
        self.tables.room()
    }

    fn before(&self) -> Before {
        self.tables.before()
    }
}

impl<T: Read + ?Sized> Read for Within<'_, T> {
    fn get(&self, table: &'static str, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.fault.reads()?;
        let row = self.inner.get(table, key)?;
        self.fault.has_read(table);
        Ok(row)
    }

    fn scan(
        &self,
        table: &'static str,
        from: &[u8],
        to: &[u8],
        rows_max: usize,
    ) -> Result<Vec<Row>> {
        self.fault.reads()?;
        self.inner.scan(table, from, to, rows_max)
    }

    fn last(&self, table: &'static str, from: &[u8], to: &[u8]) -> Result<Option<Row>> {
        self.fault.reads()?;
        self.inner.last(table, from, to)
    }
}

impl<T: Write + ?Sized> Write for Within<'_, T> {
    fn put(&mut self, table: &'static str, key: &[u8], value: &[u8]) -> Result<()> {
        self.inner.put(table, key, value)
    }

    fn delete(&mut self, table: &'static str, key: &[u8]) -> Result<()> {
        self.inner.delete(table, key)
    }

    fn commit(self: Box<Self>, durability: Durability) -> Result<()> {
        self.inner.commit(durability)
    }
}
