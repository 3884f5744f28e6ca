//! Containers in memory: sparse files in pages.
//! Holds: each file keeps what a disk would have, and what was done since its last sync, in order.

mod left;

use self::left::Left;
use super::Keep;
use crate::container::{Container, Containers, Key, Step};
use crate::error::{Result, StoreError};
use crate::files::locked;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

pub const PAGE_BYTES: u64 = 4096;

/// Changes kept apart per file; older ones count as written back, as the kernel would.
const UNSYNCED_MAX: usize = 1024;

/// Files whose removal a power cut may undo.
const REMOVED_MAX: usize = 64;

#[derive(Clone, Default)]
pub struct MemoryContainers(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    now: BTreeMap<Key, MemoryContainer>,
    /// Removed since, in order; a power cut may bring them back.
    removed: VecDeque<(Key, MemoryContainer)>,
}

#[derive(Clone)]
pub struct MemoryContainer(Arc<Mutex<Opened>>);

#[derive(Clone, Default)]
struct Opened {
    now: File,
    durable: File,
    /// What turns `durable` into `now`.
    unsynced: VecDeque<Change>,
    /// The directory leads to it after a power cut.
    entry_durable: bool,
    /// Pages that the disk has lost: they cannot be read before they are written anew.
    lost: BTreeSet<u64>,
}

#[derive(Clone, Default)]
struct File {
    length: u64,
    /// Pages that hold data, by number.
    pages: BTreeMap<u64, Arc<[u8]>>,
    /// For which room is set aside, whether they hold data or not: numbers, in order and apart.
    room: Vec<Range<u64>>,
}

#[derive(Clone)]
enum Change {
    Write { offset: u64, bytes: Arc<[u8]> },
    SetLength(u64),
    Punch { offset: u64, length: u64 },
    SetAside { offset: u64, length: u64 },
}

impl File {
    fn apply(&mut self, change: &Change) {
        match change {
            Change::Write { offset, bytes } => self.write(*offset, bytes),
            Change::SetLength(length) => self.set_length(*length),
            Change::Punch { offset, length } => {
                let end = offset.saturating_add(*length);
                self.clear(*offset, end);
                self.give_back(offset.div_ceil(PAGE_BYTES)..end / PAGE_BYTES);
            }
            Change::SetAside { offset, length } => self.set_aside(*offset, *length),
        }
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let within = (at % PAGE_BYTES) as usize;
            let (here, next) = rest.split_at(rest.len().min(PAGE_BYTES as usize - within));
            let page = page_mut(&mut self.pages, at / PAGE_BYTES);
            page[within..within + here.len()].copy_from_slice(here);
            at += here.len() as u64;
            rest = next;
        }
        if !bytes.is_empty() {
            self.length = self.length.max(at);
        }
    }

    fn set_length(&mut self, length: u64) {
        if length < self.length {
            // What is cut off must read as zeros if the file grows again.
            self.clear(length, self.length.next_multiple_of(PAGE_BYTES));
        }
        if length <= self.length {
            self.give_back(length.div_ceil(PAGE_BYTES)..u64::MAX);
        }
        self.length = length;
    }

    fn set_aside(&mut self, offset: u64, length: u64) {
        if length == 0 {
            return;
        }
        let mut pages = offset / PAGE_BYTES..offset.saturating_add(length).div_ceil(PAGE_BYTES);
        self.room.retain(|room| {
            let apart = room.end < pages.start || pages.end < room.start;
            if !apart {
                pages = pages.start.min(room.start)..pages.end.max(room.end);
            }
            apart
        });
        let at = self.room.partition_point(|room| room.start < pages.start);
        self.room.insert(at, pages);
    }

    fn give_back(&mut self, pages: Range<u64>) {
        // Of a stretch within one page.
        if pages.is_empty() {
            return;
        }
        let around = |room: &Range<u64>| {
            [room.start..room.end.min(pages.start), room.start.max(pages.end)..room.end]
        };
        self.room = self.room.iter().flat_map(around).filter(|room| !room.is_empty()).collect();
    }

    /// Bytes for which no room is set aside.
    fn lacking(&self, offset: u64, length: u64) -> u64 {
        let end = offset.saturating_add(length);
        let within = |room: &Range<u64>| {
            let (from, to) = (room.start * PAGE_BYTES, room.end.saturating_mul(PAGE_BYTES));
            to.min(end).saturating_sub(from.max(offset))
        };
        length - self.room.iter().map(within).sum::<u64>()
    }

    fn allocated(&self) -> u64 {
        let empty = |room: &Range<u64>| {
            room.end - room.start - self.pages.range(room.clone()).count() as u64
        };
        let pages = self.pages.len() as u64 + self.room.iter().map(empty).sum::<u64>();
        pages.saturating_mul(PAGE_BYTES)
    }

    /// Whole pages become holes, parts of pages zeros.
    fn clear(&mut self, from: u64, to: u64) {
        let touched: Vec<u64> =
            self.pages.range(from / PAGE_BYTES..to.div_ceil(PAGE_BYTES)).map(|(n, _)| *n).collect();
        for number in touched {
            let start = number * PAGE_BYTES;
            if from <= start && to >= start + PAGE_BYTES {
                self.pages.remove(&number);
            } else {
                let page = page_mut(&mut self.pages, number);
                let first = from.saturating_sub(start) as usize;
                let last = (to - start).min(PAGE_BYTES) as usize;
                page[first..last].fill(0);
            }
        }
    }

    fn read(&self, offset: u64, length: usize) -> Vec<u8> {
        let count = self.length.saturating_sub(offset).min(length as u64);
        let mut bytes = vec![0; count as usize];
        let end = offset.saturating_add(count);
        for (number, page) in self.pages.range(offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES)) {
            let start = number * PAGE_BYTES;
            let from = start.max(offset);
            let to = (start + PAGE_BYTES).min(end);
            if from < to {
                bytes[(from - offset) as usize..(to - offset) as usize]
                    .copy_from_slice(&page[(from - start) as usize..(to - start) as usize]);
            }
        }
        bytes
    }

    fn data(&self, offset: u64, length: u64) -> Vec<(u64, u64)> {
        let end = offset.saturating_add(length).min(self.length);
        let mut stretches: Vec<(u64, u64)> = Vec::new();
        for number in self.pages.range(offset / PAGE_BYTES..).map(|(number, _)| *number) {
            let from = (number * PAGE_BYTES).max(offset);
            let to = ((number + 1) * PAGE_BYTES).min(end);
            if from >= to {
                break;
            }
            match stretches.last_mut() {
                Some((start, length)) if *start + *length == from => *length = to - *start,
                _ => stretches.push((from, to - from)),
            }
        }
        stretches
    }
}

fn page_mut(pages: &mut BTreeMap<u64, Arc<[u8]>>, number: u64) -> &mut [u8] {
    Arc::make_mut(pages.entry(number).or_insert_with(|| Arc::new([0; PAGE_BYTES as usize])))
}

impl Opened {
    /// Whether all can be read that begins and ends here.
    fn has(&self, from: u64, to: u64) -> Result<()> {
        let pages = from / PAGE_BYTES..to.min(self.now.length).div_ceil(PAGE_BYTES);
        if pages.is_empty() || self.lost.range(pages).next().is_none() {
            return Ok(());
        }
        let source = std::io::Error::from_raw_os_error(libc::EIO);
        Err(StoreError::Io { place: "a container".into(), source })
    }

    /// What is written in the place of a lost page is there; of one that is written in part, the
    /// rest has to be read.
    fn renew(&mut self, from: u64, to: u64) -> Result<()> {
        let whole = from.div_ceil(PAGE_BYTES)..to / PAGE_BYTES;
        for edge in [from, to].into_iter().filter(|edge| edge % PAGE_BYTES != 0) {
            self.has(edge, edge + 1)?;
        }
        self.lost.retain(|page| !whole.contains(page));
        Ok(())
    }

    fn change(&mut self, change: Change) {
        self.now.apply(&change);
        self.unsynced.push_back(change);
        while self.unsynced.len() > UNSYNCED_MAX {
            self.write_back_oldest();
        }
    }

    fn write_back_oldest(&mut self) -> bool {
        match self.unsynced.pop_front() {
            Some(change) => {
                self.durable.apply(&change);
                true
            }
            None => false,
        }
    }

    /// The synced contents with those changes since that `keep` agrees to.
    fn after_power_cut(&self, keep: &mut Keep<'_>) -> Opened {
        let mut durable = self.durable.clone();
        for change in self.unsynced.iter().filter(|_| keep()) {
            durable.apply(change);
        }
        let lost = self.lost.clone();
        Opened { now: durable.clone(), durable, entry_durable: true, lost, ..Opened::default() }
    }
}

impl State {
    fn remember(&mut self, key: Key, removed: MemoryContainer) {
        self.removed.push_back((key, removed));
        if self.removed.len() > REMOVED_MAX {
            self.removed.pop_front();
        }
    }
}

impl MemoryContainers {
    pub fn new() -> MemoryContainers {
        MemoryContainers::default()
    }

    /// All that was written; what was removed is gone.
    pub fn after_kill(&self) -> MemoryContainers {
        let state = locked(&self.0);
        let mut left = Left::default();
        let mut copied =
            |container: &MemoryContainer| left.of(container, || MemoryContainer::copied(container));
        let now = state.now.iter().map(|(key, container)| (*key, copied(container))).collect();
        let removed =
            state.removed.iter().map(|(key, container)| (*key, copied(container))).collect();
        MemoryContainers(Arc::new(Mutex::new(State { now, removed })))
    }

    /// What was synced; every write, every new file and every removal since then as `keep` says.
    pub fn after_power_cut(&self, keep: &mut Keep<'_>) -> MemoryContainers {
        let state = locked(&self.0);
        let (mut now, mut left) = (BTreeMap::new(), Left::default());
        // A later file of the same name takes the earlier one's place.
        for (key, container) in &state.removed {
            let opened = locked(&container.0);
            if opened.entry_durable && !keep() {
                let of = || MemoryContainer::of(opened.after_power_cut(keep));
                now.insert(*key, left.of(container, of));
            }
        }
        for (key, container) in &state.now {
            let opened = locked(&container.0);
            if opened.entry_durable || keep() {
                let of = || MemoryContainer::of(opened.after_power_cut(keep));
                now.insert(*key, left.of(container, of));
            }
        }
        MemoryContainers(Arc::new(Mutex::new(State { now, removed: VecDeque::new() })))
    }
}

impl Containers for MemoryContainers {
    type Container = MemoryContainer;

    fn open(&self, key: Key, create: bool) -> Result<Option<MemoryContainer>> {
        let mut state = locked(&self.0);
        if create {
            let made = || MemoryContainer::of(Opened::default());
            return Ok(Some(state.now.entry(key).or_insert_with(made).clone()));
        }
        Ok(state.now.get(&key).cloned())
    }

    fn remove(&self, key: Key) -> Result<()> {
        let mut state = locked(&self.0);
        if let Some(container) = state.now.remove(&key) {
            state.remember(key, container);
        }
        Ok(())
    }

    fn rename(&self, from: Key, to: Key) -> Result<bool> {
        let mut state = locked(&self.0);
        let Some(container) = state.now.remove(&from) else { return Ok(false) };
        // A power cut may bring the old name back, with what it leads to.
        state.remember(from, container.copied());
        if let Some(before) = state.now.insert(to, container) {
            state.remember(to, before);
        }
        Ok(true)
    }

    fn copy_in_steps(&self, from: Key, to: Key, bytes_max: u64, step: Step<'_>) -> Result<bool> {
        let mut state = locked(&self.0);
        let Some(container) = state.now.get(&from) else { return Ok(false) };
        let now = {
            let opened = locked(&container.0);
            opened.has(0, u64::MAX)?;
            opened.now.clone()
        };
        if now.length > bytes_max {
            return Ok(false);
        }
        let copy = MemoryContainer::of(Opened::default());
        for (number, page) in &now.pages {
            copy.write(number * PAGE_BYTES, page)?;
            step();
        }
        copy.set_length(now.length)?;
        if let Some(before) = state.now.insert(to, copy) {
            state.remember(to, before);
        }
        Ok(true)
    }

    fn link(&self, from: Key, to: Key) -> Result<bool> {
        let mut state = locked(&self.0);
        let Some(container) = state.now.get(&from).cloned() else { return Ok(false) };
        if let Some(before) = state.now.insert(to, container) {
            state.remember(to, before);
        }
        Ok(true)
    }

    fn is_linked(&self, key: Key) -> Result<bool> {
        let state = locked(&self.0);
        let Some(container) = state.now.get(&key) else { return Ok(false) };
        Ok(state.now.values().filter(|other| Arc::ptr_eq(&other.0, &container.0)).count() > 1)
    }

    fn list(&self) -> Result<Vec<(Key, u64)>> {
        let state = locked(&self.0);
        let bytes = |container: &MemoryContainer| locked(&container.0).now.allocated();
        Ok(state.now.iter().map(|(key, container)| (*key, bytes(container))).collect())
    }

    fn sync_all(&self) -> Result<()> {
        let containers: Vec<MemoryContainer> = locked(&self.0).now.values().cloned().collect();
        containers.iter().try_for_each(Container::sync)
    }
}

impl MemoryContainer {
    fn of(opened: Opened) -> MemoryContainer {
        MemoryContainer(Arc::new(Mutex::new(opened)))
    }

    /// Bytes of the stretch for which no room is set aside.
    pub(crate) fn lacking(&self, offset: u64, length: u64) -> usize {
        usize::try_from(locked(&self.0).now.lacking(offset, length)).unwrap_or(usize::MAX)
    }

    /// The disk loses the pages of a stretch, or finds them again.
    pub fn lose(&self, from: u64, to: u64, lost: bool) {
        let mut opened = locked(&self.0);
        for page in from / PAGE_BYTES..to.div_ceil(PAGE_BYTES) {
            if lost {
                opened.lost.insert(page);
            } else {
                opened.lost.remove(&page);
            }
        }
    }

    fn copied(&self) -> MemoryContainer {
        MemoryContainer::of(locked(&self.0).clone())
    }
}

impl Container for MemoryContainer {
    fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>> {
        let opened = locked(&self.0);
        opened.has(offset, offset.saturating_add(length as u64))?;
        Ok(opened.now.read(offset, length))
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut opened = locked(&self.0);
        opened.renew(offset, offset.saturating_add(bytes.len() as u64))?;
        opened.change(Change::Write { offset, bytes: bytes.into() });
        Ok(())
    }

    fn set_length(&self, length: u64) -> Result<()> {
        let mut opened = locked(&self.0);
        opened.lost.retain(|page| *page < length.div_ceil(PAGE_BYTES));
        opened.change(Change::SetLength(length));
        Ok(())
    }

    fn length(&self) -> Result<u64> {
        Ok(locked(&self.0).now.length)
    }

    fn punch(&self, offset: u64, length: u64) -> Result<()> {
        let mut opened = locked(&self.0);
        opened.renew(offset, offset.saturating_add(length))?;
        opened.change(Change::Punch { offset, length });
        Ok(())
    }

    fn zero(&self, offset: u64, length: u64) -> Result<()> {
        let mut opened = locked(&self.0);
        opened.renew(offset, offset.saturating_add(length))?;
        opened.change(Change::Punch { offset, length });
        opened.change(Change::SetAside { offset, length });
        Ok(())
    }

    fn set_aside(&self, offset: u64, length: u64) -> Result<()> {
        locked(&self.0).change(Change::SetAside { offset, length });
        Ok(())
    }

    fn allocate(&self, offset: u64, length: u64) -> Result<()> {
        let mut opened = locked(&self.0);
        opened.change(Change::SetAside { offset, length });
        let end = offset.saturating_add(length);
        if length > 0 && end > opened.now.length {
            opened.change(Change::SetLength(end));
        }
        Ok(())
    }

    fn data(&self, offset: u64, length: u64) -> Result<Vec<(u64, u64)>> {
        Ok(locked(&self.0).now.data(offset, length))
    }

    fn allocated(&self) -> Result<u64> {
        Ok(locked(&self.0).now.allocated())
    }

    fn is_alone(&self) -> Result<bool> {
        Ok(true)
    }

    fn free_bytes(&self) -> Result<u64> {
        Ok(u64::MAX)
    }

    fn changed_at(&self) -> Result<Option<(i64, u32)>> {
        Ok(None)
    }

    fn sync(&self) -> Result<()> {
        let mut opened = locked(&self.0);
        while opened.write_back_oldest() {}
        opened.entry_durable = true;
        Ok(())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
