//! Open files of the reference: each side's versions and handles.

mod unborn;

use super::{Node, Reference, Step};
use crate::contents::stretch;
use crate::operation::{Fault, Outcome, Path, SLOTS, Shown};
use client::{Allocate, OpenFlags};
use model::{Kind, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What one client's programs have open.
#[derive(Clone, Default, PartialEq)]
pub(super) struct Side {
    versions: BTreeMap<u64, Version>,
    slots: [Option<Slot>; SLOTS],
    last: u64,
    /// Of the versions, those that nobody has open and that may be stored yet, or not.
    left_over: BTreeSet<u64>,
}

#[derive(Clone, Copy, PartialEq)]
struct Slot {
    version: u64,
    read: bool,
    write: bool,
    append: bool,
}

/// One version of a file that is open, with what was written to it since.
#[derive(Clone, PartialEq)]
pub(super) struct Version {
    pub file: u64,
    number: u64,
    pub contents: Arc<Vec<u8>>,
    written: bool,
    /// Cut to nothing, and not written to since.
    only_cut: bool,
    /// Set at this side since it last wrote.
    pub mtime: Option<Time>,
    /// The file as it was when its last name went.
    gone: Option<Node>,
    /// It never had a name.
    unborn: bool,
}

impl Side {
    pub fn has_open(&self, file: u64) -> bool {
        self.versions.values().any(|version| version.file == file)
    }

    /// What this side has written to a file and not yet stored.
    pub fn written(&self, file: u64) -> Option<&Version> {
        self.versions.values().find(|version| version.file == file && version.written)
    }

    pub fn writes_to_the_past(&self, nodes: &BTreeMap<u64, Node>) -> bool {
        self.versions.values().any(|version| {
            let now = nodes.get(&version.file);
            version.written && now.is_some_and(|now| now.version != version.number)
        })
    }

    /// Who has it open keeps the file though its last name has gone.
    pub fn keep(&mut self, file: u64, node: &Node) {
        for version in self.versions.values_mut().filter(|version| version.file == file) {
            let mtime = if version.written { version.mtime } else { node.mtime };
            version.gone = Some(Node { mtime, ..node.clone() });
        }
    }

    pub fn open_slots(&self) -> impl Iterator<Item = usize> + '_ {
        (0..SLOTS).filter(|slot| self.slots[*slot].is_some())
    }

    fn slot(&self, slot: usize) -> Step<Slot> {
        self.slots.get(slot).copied().flatten().ok_or(Fault::BadHandle)
    }

    /// The slots that may write a version.
    fn writers(&self, number: u64) -> usize {
        let writes = |slot: &&Slot| slot.version == number && slot.write;
        self.slots.iter().flatten().filter(writes).count()
    }

    fn release(&mut self, slot: usize) {
        self.slots[slot] = None;
        let in_use = |number| self.slots.iter().flatten().any(|slot| slot.version == number);
        let is_idle = |number: &u64| !in_use(*number) && !self.left_over.contains(number);
        let idle: Vec<u64> = self.versions.keys().copied().filter(is_idle).collect();
        for number in idle {
            self.versions.remove(&number);
        }
    }
}

impl Reference {
    pub fn open_slots(&self, side: usize) -> Vec<usize> {
        self.sides[side].open_slots().collect()
    }

    /// The slots that have open what is not current any more.
    pub fn past_slots(&self, side: usize) -> Vec<usize> {
        let is_past = |slot: &usize| {
            self.version(side, *slot).is_ok_and(|version| {
                self.nodes.get(&version.file).is_none_or(|now| now.version != version.number)
            })
        };
        self.sides[side].open_slots().filter(is_past).collect()
    }

    /// Whether a slot's file was cut to nothing and not written to since.
    pub fn is_only_cut(&self, side: usize, slot: usize) -> bool {
        self.version(side, slot).is_ok_and(|version| version.only_cut)
    }

    pub(super) fn create(
        &mut self,
        side: usize,
        path: &Path,
        mode: u16,
        slot: usize,
    ) -> Step<Outcome> {
        self.free(side, slot)?;
        let file = self.make(path, Kind::File, mode, None)?;
        let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
        self.open_file(side, file, slot, flags)?;
        Ok(Outcome::Shown(self.shown(side, file)?))
    }

    pub(super) fn open(
        &mut self,
        side: usize,
        path: &Path,
        slot: usize,
        flags: OpenFlags,
    ) -> Step<()> {
        self.free(side, slot)?;
        let file = self.ordinary(path)?;
        self.open_file(side, file, slot, flags)?;
        if flags.truncate && flags.write { self.truncate(side, slot, 0) } else { Ok(()) }
    }

    fn free(&self, side: usize, slot: usize) -> Step<()> {
        // The program has no room for another open file.
        self.sides[side].slot(slot).map_or(Ok(()), |_| Err(Fault::BadHandle))
    }

    fn ordinary(&self, path: &Path) -> Step<u64> {
        let file = self.find(path)?;
        match self.node(file)?.kind {
            Kind::File => Ok(file),
            Kind::Directory => Err(Fault::IsADirectory),
            _ => Err(Fault::Invalid),
        }
    }

    fn open_file(&mut self, side: usize, file: u64, slot: usize, flags: OpenFlags) -> Step<()> {
        let node = self.node(file)?;
        let (number, contents) = (node.version, node.contents.clone());
        let side = &mut self.sides[side];
        let shared = side.versions.iter().rev().find(|(_, version)| {
            version.file == file && (version.written || version.number == number)
        });
        let version = match shared {
            Some((version, _)) => *version,
            None => {
                side.last += 1;
                let version = Version {
                    file,
                    number,
                    contents,
                    written: false,
                    only_cut: false,
                    mtime: None,
                    gone: None,
                    unborn: false,
                };
                side.versions.insert(side.last, version);
                side.last
            }
        };
        side.left_over.remove(&version);
        side.slots[slot] =
            Some(Slot { version, read: flags.read, write: flags.write, append: flags.append });
        Ok(())
    }

    pub(super) fn version(&self, side: usize, slot: usize) -> Step<&Version> {
        let slot = self.sides[side].slot(slot)?;
        self.sides[side].versions.get(&slot.version).ok_or(Fault::BadHandle)
    }

    pub(super) fn writable(&self, side: usize, slot: usize) -> Step<&Version> {
        if !self.sides[side].slot(slot)?.write {
            return Err(Fault::BadHandle);
        }
        self.version(side, slot)
    }

    /// What is written through it goes to the end, wherever it was meant for.
    fn appends(&self, side: usize, slot: usize) -> bool {
        self.sides[side].slot(slot).is_ok_and(|slot| slot.append)
    }

    fn alter(&mut self, side: usize, slot: usize, change: impl FnOnce(&mut Vec<u8>)) -> Step<()> {
        self.writable(side, slot)?;
        let number = self.sides[side].slot(slot)?.version;
        let version = self.sides[side].versions.get_mut(&number).ok_or(Fault::BadHandle)?;
        change(Arc::make_mut(&mut version.contents));
        version.written = true;
        version.only_cut = false;
        version.mtime = None;
        if let Some(gone) = &mut version.gone {
            gone.mtime = None;
        }
        Ok(())
    }

    pub(super) fn write(
        &mut self,
        side: usize,
        slot: usize,
        offset: u64,
        length: usize,
        version: u64,
    ) -> Step<()> {
        let appends = self.appends(side, slot);
        self.alter(side, slot, |contents| {
            let from = if appends { contents.len() } else { offset as usize };
            contents.resize(contents.len().max(from + length), 0);
            contents[from..from + length].copy_from_slice(&stretch(version, length));
        })
    }

    pub(super) fn truncate(&mut self, side: usize, slot: usize, size: u64) -> Step<()> {
        let only_cut = {
            let version = self.writable(side, slot)?;
            size == 0 && (!version.written || version.only_cut)
        };
        self.alter(side, slot, |contents| contents.resize(size as usize, 0))?;
        let number = self.sides[side].slot(slot)?.version;
        if let Some(version) = self.sides[side].versions.get_mut(&number) {
            version.only_cut = only_cut;
        }
        Ok(())
    }

    pub(super) fn allocate(
        &mut self,
        side: usize,
        slot: usize,
        offset: u64,
        length: u64,
        how: Allocate,
    ) -> Step<()> {
        let (from, to) = (offset as usize, (offset + length) as usize);
        self.alter(side, slot, |contents| {
            if matches!(how, Allocate::Extend | Allocate::Zero) {
                contents.resize(contents.len().max(to), 0);
            }
            if matches!(how, Allocate::Punch | Allocate::Zero | Allocate::ZeroWithin) {
                let size = contents.len();
                contents[from.min(size)..to.min(size)].fill(0);
            }
        })
    }

    pub(super) fn copy(
        &mut self,
        side: usize,
        (from, from_offset): (usize, u64),
        (to, to_offset): (usize, u64),
        length: u64,
    ) -> Step<Outcome> {
        let source = self.readable(side, from)?;
        let same = self.writable(side, to)?.file == source.file;
        if same {
            return Err(Fault::Invalid);
        }
        let bytes = part(&source.contents, from_offset, length as usize).to_vec();
        if self.appends(side, to) {
            return Err(Fault::BadHandle);
        }
        if bytes.is_empty() {
            return Ok(Outcome::Copied(0));
        }
        let at = to_offset as usize;
        self.alter(side, to, |contents| {
            contents.resize(contents.len().max(at + bytes.len()), 0);
            contents[at..at + bytes.len()].copy_from_slice(&bytes);
        })?;
        Ok(Outcome::Copied(bytes.len() as u64))
    }

    fn readable(&self, side: usize, slot: usize) -> Step<&Version> {
        if !self.sides[side].slot(slot)?.read {
            return Err(Fault::BadHandle);
        }
        self.version(side, slot)
    }

    pub(super) fn read(
        &self,
        side: usize,
        slot: usize,
        offset: u64,
        length: usize,
    ) -> Step<Outcome> {
        let version = self.readable(side, slot)?;
        Ok(Outcome::Bytes(part(&version.contents, offset, length).to_vec()))
    }

    pub(super) fn seek_data(&self, side: usize, slot: usize, offset: u64) -> Step<Outcome> {
        let contents = &self.version(side, slot)?.contents;
        let rest = part(contents, offset, contents.len());
        let place = rest.iter().position(|byte| *byte != 0);
        Ok(Outcome::Place(place.map(|place| offset + place as u64)))
    }

    pub(super) fn stat_open(&self, side: usize, slot: usize) -> Step<Outcome> {
        let version = self.version(side, slot)?;
        let shown = match &version.gone {
            None => self.shown(side, version.file)?,
            Some(node) => Shown {
                file: version.file,
                kind: node.kind,
                mode: node.mode,
                uid: node.uid,
                gid: node.gid,
                links: 0,
                size: version.contents.len() as u64,
                mtime: node.mtime,
            },
        };
        Ok(Outcome::Shown(shown))
    }

    /// Closing a copy of a descriptor: what was written becomes the file's contents, for
    /// everybody. What was only cut to nothing does so with the last copy: a shell that redirects
    /// closes one before the program writes.
    pub(super) fn flush(&mut self, side: usize, slot: usize) -> Step<()> {
        let only_cut = self.version(side, slot)?.only_cut;
        let slot = self.sides[side].slot(slot)?;
        if slot.write && !only_cut {
            self.store(side, slot.version);
        }
        Ok(())
    }

    /// fsync(2), through a descriptor of any kind.
    pub(super) fn sync(&mut self, side: usize, slot: usize) -> Step<()> {
        let number = self.sides[side].slot(slot)?.version;
        self.store(side, number);
        Ok(())
    }

    /// The times of a file are set: of what is being written too.
    pub(super) fn set_time(&mut self, side: usize, file: u64, time: Time) -> Step<()> {
        let open = self.sides[side].versions.values_mut();
        for version in open.filter(|version| version.file == file) {
            version.mtime = Some(time);
        }
        self.node_mut(file)?.mtime = Some(time);
        Ok(())
    }

    fn store(&mut self, side: usize, number: u64) {
        let Some(version) = self.sides[side].versions.get_mut(&number) else { return };
        if !version.written || version.gone.is_some() {
            return;
        }
        if let Some(node) = self.nodes.get_mut(&version.file) {
            node.contents = version.contents.clone();
            node.version += 1;
            node.torn = false;
            node.mtime = version.mtime;
            version.number = node.version;
            version.written = false;
            version.only_cut = false;
            self.sides[side].left_over.remove(&number);
        }
    }

    pub(super) fn close(&mut self, side: usize, slot: usize) -> Step<()> {
        let closed = self.sides[side].slot(slot)?;
        let only_cut = self.version(side, slot)?.only_cut;
        let last = self.sides[side].writers(closed.version) == 1;
        // What was only cut waits for the last who may write it.
        if closed.write && (last || !only_cut) {
            self.store(side, closed.version);
        }
        self.sides[side].release(slot);
        Ok(())
    }

    /// The slot is closed, and what was written to its version is stored by the next who closes
    /// it, or by nobody.
    pub fn abandon(&mut self, side: usize, slot: usize) {
        if self.sides[side].slot(slot).is_ok() {
            self.sides[side].release(slot);
        }
    }

    /// The slot is closed, and what was written to its version shows, and is not stored: whoever
    /// opens the file next has it, and may be refused it.
    pub fn leave_over(&mut self, side: usize, slot: usize) {
        let Ok(Slot { version, .. }) = self.sides[side].slot(slot) else { return };
        let side = &mut self.sides[side];
        if side.versions.get(&version).is_some_and(|version| version.written) {
            side.left_over.insert(version);
        }
        side.release(slot);
    }

    /// truncate(2): all that is written to the file at this side is stored with it.
    pub(super) fn cut(&mut self, side: usize, path: &Path, size: u64) -> Step<()> {
        let file = self.ordinary(path)?;
        if let Some(number) = self.cut_open(side, file, size) {
            self.store(side, number);
            return Ok(());
        }
        let node = self.node_mut(file)?;
        Arc::make_mut(&mut node.contents).resize(size as usize, 0);
        node.version += 1;
        node.mtime = None;
        Ok(())
    }

    /// The same where there was no room to store it: who has the file open may store it later.
    pub fn cut_unstored(&mut self, side: usize, path: &Path, size: u64) {
        if let Ok(file) = self.ordinary(path) {
            self.cut_open(side, file, size);
        }
    }

    /// Cuts the version that is open and current at this side.
    fn cut_open(&mut self, side: usize, file: u64, size: u64) -> Option<u64> {
        let number = *self.sides[side].versions.iter().rev().find_map(|(number, version)| {
            let current = version.written
                || self.nodes.get(&file).is_some_and(|node| node.version == version.number);
            (version.file == file && current).then_some(number)
        })?;
        let version = self.sides[side].versions.get_mut(&number)?;
        Arc::make_mut(&mut version.contents).resize(size as usize, 0);
        version.written = true;
        version.mtime = None;
        Some(number)
    }

    pub(super) fn fetch(&self, side: usize, path: &Path) -> Step<Outcome> {
        let file = self.ordinary(path)?;
        let written = self.sides[side].written(file).map(|version| &version.contents);
        let contents = written.unwrap_or(&self.node(file)?.contents);
        Ok(Outcome::Bytes(contents.to_vec()))
    }

    /// The side's process is killed: what was written is stored, and nothing is open any more.
    pub fn crash(&mut self, side: usize) {
        // Times that were set on what was being written are the process's own affair.
        for version in self.sides[side].versions.values_mut() {
            version.mtime = None;
        }
        let open: Vec<u64> = self.sides[side].versions.keys().copied().collect();
        for number in open {
            self.store(side, number);
        }
        self.sides[side] = Side::default();
    }

    /// The contents that a crash of this side would store.
    pub fn unsaved(&self, side: usize) -> Vec<Arc<Vec<u8>>> {
        let written = self.sides[side].versions.values().filter(|version| version.written);
        written.map(|version| version.contents.clone()).collect()
    }
}

fn part(bytes: &[u8], offset: u64, length: usize) -> &[u8] {
    let from = (offset as usize).min(bytes.len());
    &bytes[from..from.saturating_add(length).min(bytes.len())]
}
