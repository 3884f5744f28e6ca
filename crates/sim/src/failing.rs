//! Tables of which a read fails once, as where a disk gives an error and works again.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use store::{Durability, Read, Result, Row, StoreError, Tables, Write};

/// No read is to fail.
const NONE: u64 = u64::MAX;

/// Which read is the next to fail. Clones are the same.
#[derive(Clone)]
pub struct ReadFault(Arc<AtomicU64>);

impl Default for ReadFault {
    fn default() -> ReadFault {
        ReadFault(Arc::new(AtomicU64::new(NONE)))
    }
}

impl ReadFault {
    /// So many reads succeed; the one after fails, and those that follow do not.
    pub fn after(&self, reads: u64) {
        self.0.store(reads, Ordering::Relaxed);
    }

    /// None fails from now on. Says whether one had failed.
    pub fn end(&self) -> bool {
        self.0.swap(NONE, Ordering::Relaxed) == NONE
    }

    fn reads(&self) -> Result<()> {
        let left = self.0.load(Ordering::Relaxed);
        if left == NONE {
            return Ok(());
        }
        self.0.store(left.checked_sub(1).unwrap_or(NONE), Ordering::Relaxed);
        match left {
            0 => Err(StoreError::Io { place: "tables".into(), source: io::ErrorKind::Other.into() }),
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
}

impl<T: Read + ?Sized> Read for Within<'_, T> {
    fn get(&self, table: &'static str, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.fault.reads()?;
        self.inner.get(table, key)
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
