//! The four kinds of stores of a faulty disk: each asks the machine, then does what the store in
//! memory does.

use super::{Machine, full};
use crate::blob::{Blobs, Damage, Listed};
use crate::container::{Container, Containers, Key, Step};
use crate::error::{Result, StoreError};
use crate::journal::{Journal, Position};
use crate::memory::{MemoryBlobs, MemoryContainer, MemoryContainers, MemoryJournal, MemoryTables};
use crate::reserve::Reserve;
use crate::table::{Before, Durability, Read, Row, Tables, Write};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// With fewer than this to come, a disk is short of containers.
const CONTAINERS_FEW: usize = 2;

#[derive(Clone)]
pub struct FaultyTables {
    store: MemoryTables,
    machine: Arc<Machine>,
    before: Before,
}

impl FaultyTables {
    pub(super) fn new(store: MemoryTables, machine: Arc<Machine>) -> FaultyTables {
        FaultyTables { store, machine, before: Before::default() }
    }
}

impl Tables for FaultyTables {
    fn read(&self) -> Result<Box<dyn Read + '_>> {
        self.machine.reads()?;
        Ok(Box::new(Reading { inner: self.store.read()?, machine: &self.machine }))
    }

    fn write(&self) -> Result<Box<dyn Write + '_>> {
        self.machine.reads()?;
        let (inner, machine, before) = (self.store.write()?, &*self.machine, &self.before);
        Ok(Box::new(Writing { inner, machine, before, bytes: 0 }))
    }

    fn room(&self) -> Result<u64> {
        self.machine.room()
    }

    fn before(&self) -> Before {
        self.before.clone()
    }
}

struct Reading<'a> {
    inner: Box<dyn Read + 'a>,
    machine: &'a Machine,
}

struct Writing<'a> {
    inner: Box<dyn Write + 'a>,
    machine: &'a Machine,
    before: &'a Before,
    /// Of the keys and values that were put.
    bytes: usize,
}

impl Read for Reading<'_> {
    fn get(&self, table: &'static str, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.machine.reads()?;
        self.inner.get(table, key)
    }

    fn scan(
        &self,
        table: &'static str,
        from: &[u8],
        to: &[u8],
        rows_max: usize,
    ) -> Result<Vec<Row>> {
        self.machine.reads()?;
        self.inner.scan(table, from, to, rows_max)
    }

    fn last(&self, table: &'static str, from: &[u8], to: &[u8]) -> Result<Option<Row>> {
        self.machine.reads()?;
        self.inner.last(table, from, to)
    }
}

impl Read for Writing<'_> {
    fn get(&self, table: &'static str, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.machine.reads()?;
        self.inner.get(table, key)
    }

    fn scan(
        &self,
        table: &'static str,
        from: &[u8],
        to: &[u8],
        rows_max: usize,
    ) -> Result<Vec<Row>> {
        self.machine.reads()?;
        self.inner.scan(table, from, to, rows_max)
    }

    fn last(&self, table: &'static str, from: &[u8], to: &[u8]) -> Result<Option<Row>> {
        self.machine.reads()?;
        self.inner.last(table, from, to)
    }
}

impl Write for Writing<'_> {
    fn put(&mut self, table: &'static str, key: &[u8], value: &[u8]) -> Result<()> {
        self.machine.reads()?;
        self.bytes += key.len() + value.len();
        self.inner.put(table, key, value)
    }

    fn delete(&mut self, table: &'static str, key: &[u8]) -> Result<()> {
        self.machine.reads()?;
        self.inner.delete(table, key)
    }

    fn commit(self: Box<Self>, durability: Durability) -> Result<()> {
        let Writing { inner, machine, before, bytes } = *self;
        let durability = if machine.flushes() { Durability::Now } else { durability };
        if durability == Durability::Now {
            before.does()?;
        }
        match durability {
            Durability::Now => machine.syncs(bytes, || inner.commit(durability)),
            Durability::Later => machine.writes(bytes, || inner.commit(durability)),
        }
    }
}

#[derive(Clone)]
pub struct FaultyBlobs {
    store: MemoryBlobs,
    machine: Arc<Machine>,
}

impl FaultyBlobs {
    pub(super) fn new(store: MemoryBlobs, machine: Arc<Machine>) -> FaultyBlobs {
        FaultyBlobs { store, machine }
    }
}

impl Blobs for FaultyBlobs {
    fn put(&self, name: &[u8], bytes: &[u8]) -> Result<()> {
        self.machine.writes(bytes.len(), || self.store.put(name, bytes))
    }

    fn get(&self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.machine.reads()?;
        self.store.get(name)
    }

    fn has(&self, name: &[u8]) -> Result<bool> {
        self.machine.reads()?;
        self.store.has(name)
    }

    fn delete(&self, name: &[u8]) -> Result<()> {
        self.machine.writes(0, || self.store.delete(name))
    }

    /// Where they were is to be forgotten on the disk, which takes a little of it.
    fn let_go(&self, names: &[&[u8]]) -> Result<()> {
        names.iter().try_for_each(|name| self.machine.writes(1, || self.store.delete(name)))
    }

    fn sync(&self) -> Result<()> {
        self.machine.syncs(0, || self.store.sync())
    }

    fn bytes(&self) -> u64 {
        self.store.bytes()
    }

    fn room(&self) -> Result<u64> {
        self.machine.room()
    }

    fn list(&self, after: &[u8], names_max: usize) -> Result<Vec<Listed>> {
        self.machine.reads()?;
        self.store.list(after, names_max)
    }

    fn reclaim(&self, dead_percent: u8) -> Result<Option<u64>> {
        self.machine.writes(0, || self.store.reclaim(dead_percent))
    }

    fn damage(&self) -> Result<Vec<Damage>> {
        self.machine.reads()?;
        self.store.damage()
    }

    fn renew_damaged(&self) -> Result<()> {
        self.machine.writes(0, || self.store.renew_damaged())
    }
}

#[derive(Clone)]
pub struct FaultyJournal {
    store: MemoryJournal,
    machine: Arc<Machine>,
}

impl FaultyJournal {
    pub(super) fn new(store: MemoryJournal, machine: Arc<Machine>) -> FaultyJournal {
        FaultyJournal { store, machine }
    }
}

impl Journal for FaultyJournal {
    fn append(&self, record: &[u8]) -> Result<Position> {
        let torn = |cut| self.store.tear(record, cut);
        self.machine.writes_or(record.len(), || self.store.append(record), torn)
    }

    fn next(&self) -> Position {
        self.store.next()
    }

    fn sync(&self) -> Result<()> {
        self.machine.syncs(0, || self.store.sync())
    }

    fn read(&self, from: Position, bytes_max: usize) -> Result<Vec<(Position, Vec<u8>)>> {
        self.machine.reads()?;
        self.store.read(from, bytes_max)
    }

    fn retire(&self, upto: Position) -> Result<()> {
        self.machine.writes(0, || self.store.retire(upto))
    }
}

/// What a machine's disk keeps aside.
#[derive(Clone)]
pub struct FaultyReserve {
    machine: Arc<Machine>,
}

impl FaultyReserve {
    pub(super) fn new(machine: Arc<Machine>) -> FaultyReserve {
        FaultyReserve { machine }
    }
}

impl Reserve for FaultyReserve {
    fn is_kept(&self) -> bool {
        self.machine.keeps_reserve()
    }

    fn lend(&self) {
        self.machine.lends_reserve();
    }

    fn take_back(&self) {
        self.machine.keeps_reserve();
    }
}

#[derive(Clone)]
pub struct FaultyContainers {
    store: MemoryContainers,
    machine: Arc<Machine>,
}

impl FaultyContainers {
    pub(super) fn new(store: MemoryContainers, machine: Arc<Machine>) -> FaultyContainers {
        FaultyContainers { store, machine }
    }

    /// How many more there can be.
    fn left(&self) -> Result<usize> {
        let Some(most) = self.machine.containers_max() else { return Ok(usize::MAX) };
        Ok(most.saturating_sub(self.store.keys()?.len()))
    }

    fn make(&self, key: Key) -> Result<Option<MemoryContainer>> {
        if self.left()? == 0 {
            return Err(full());
        }
        self.machine.writes(0, || self.store.open(key, true))
    }
}

impl Containers for FaultyContainers {
    type Container = FaultyContainer;

    fn open(&self, key: Key, create: bool) -> Result<Option<FaultyContainer>> {
        self.machine.reads()?;
        let opened = match self.store.open(key, false)? {
            None if create => self.make(key)?,
            opened => opened,
        };
        Ok(opened.map(|inner| FaultyContainer { inner, machine: self.machine.clone() }))
    }

    fn remove(&self, key: Key) -> Result<()> {
        self.machine.writes(0, || self.store.remove(key))
    }

    fn rename(&self, from: Key, to: Key) -> Result<bool> {
        self.machine.writes(0, || self.store.rename(from, to))
    }

    fn copy_in_steps(&self, from: Key, to: Key, bytes_max: u64, step: Step<'_>) -> Result<bool> {
        let length = match self.store.open(from, false)? {
            Some(container) => container.length()?.min(bytes_max),
            None => 0,
        };
        let bytes = usize::try_from(length).unwrap_or(usize::MAX);
        self.machine.writes(bytes, || self.store.copy_in_steps(from, to, bytes_max, step))
    }

    fn link(&self, from: Key, to: Key) -> Result<bool> {
        self.machine.writes(0, || self.store.link(from, to))
    }

    fn is_linked(&self, key: Key) -> Result<bool> {
        self.machine.reads()?;
        self.store.is_linked(key)
    }

    fn list(&self) -> Result<Vec<(Key, u64)>> {
        self.machine.reads()?;
        self.store.list()
    }

    fn keys(&self) -> Result<Vec<Key>> {
        self.machine.reads()?;
        self.store.keys()
    }

    fn list_of(&self, file: u64) -> Result<Vec<Key>> {
        self.machine.reads()?;
        self.store.list_of(file)
    }

    fn lack_files(&self) -> Result<bool> {
        Ok(self.left()? < CONTAINERS_FEW)
    }

    fn sync_all(&self) -> Result<()> {
        self.machine.syncs(0, || self.store.sync_all())
    }
}

#[derive(Clone)]
pub struct FaultyContainer {
    inner: MemoryContainer,
    machine: Arc<Machine>,
}

impl FaultyContainer {
    /// Its disk loses the blocks of a stretch, which is not to be read before it is written anew; or
    /// finds them again.
    pub fn lose(&self, offset: u64, length: u64, lost: bool) {
        self.inner.lose(offset, offset + length, lost);
    }
}

impl Container for FaultyContainer {
    fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>> {
        self.machine.reads_bytes(|| self.inner.read(offset, length))
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let more = self.inner.lacking(offset, bytes.len() as u64);
        self.machine.writes(more, || self.inner.write(offset, bytes))
    }

    fn set_length(&self, length: u64) -> Result<()> {
        self.machine.writes(0, || self.inner.set_length(length))
    }

    fn length(&self) -> Result<u64> {
        self.machine.reads()?;
        self.inner.length()
    }

    fn punch(&self, offset: u64, length: u64) -> Result<()> {
        self.machine.writes(0, || self.inner.punch(offset, length))
    }

    fn zero(&self, offset: u64, length: u64) -> Result<()> {
        let more = self.inner.lacking(offset, length);
        self.machine.writes(more, || self.inner.zero(offset, length))
    }

    fn set_aside(&self, offset: u64, length: u64) -> Result<()> {
        let aside = |length| {
            let more = self.inner.lacking(offset, length);
            self.machine.writes(more, || self.inner.set_aside(offset, length))
        };
        let outcome = aside(length);
        if let Err(StoreError::Full(_)) = outcome {
            // As ext4 does: what there was room for stays.
            let _ = aside(length / 2);
        }
        outcome
    }

    fn allocate(&self, offset: u64, length: u64) -> Result<()> {
        let more = self.inner.lacking(offset, length);
        self.machine.writes(more, || self.inner.allocate(offset, length))
    }

    fn data(&self, offset: u64, length: u64) -> Result<Vec<(u64, u64)>> {
        self.machine.reads()?;
        self.inner.data(offset, length)
    }

    fn allocated(&self) -> Result<u64> {
        self.machine.reads()?;
        self.inner.allocated()
    }

    fn is_alone(&self) -> Result<bool> {
        self.inner.is_alone()
    }

    fn free_bytes(&self) -> Result<u64> {
        self.inner.free_bytes()
    }

    fn changed_at(&self) -> Result<Option<(i64, u32)>> {
        self.machine.reads()?;
        self.inner.changed_at()
    }

    fn sync(&self) -> Result<()> {
        self.machine.syncs(0, || self.inner.sync())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }
}
