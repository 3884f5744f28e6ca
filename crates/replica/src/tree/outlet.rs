//! From the volume into the tree: which of its files are not as the volume has them.
//! Holds: it goes by what both sides are, not by what was done, so it can be done again.

use super::commit::At;
use super::keeper::{Behind, Keeper};
use super::place::Hand;
use super::rows;
use super::undone::{Noting, is_kept};
use crate::error::{ReplicaError, Result};
use model::{FileId, View};
use store::StoreError;
use tracing::{info, warn};
use volume::whole::Whole;

/// Records of the log that are followed at once.
const RECORDS_MAX: usize = 1000;
/// Names, or files, that are put out in one transaction.
const PIECE_MAX: usize = 128;
/// Names of the tables that are compared at once.
const NAMES_MAX: usize = 1000;
/// So often what is left behind is tried whenever anything is done.
const HOPES_MAX: u32 = 13;
/// Reasons that are told of.
const HINDERED_MAX: usize = 10;
/// Names that one file has, as far as they are looked up at once.
pub(super) const LINKS_MAX: usize = 1024;

impl Keeper {
    /// Carries over what was committed since the last time, and what was left then.
    pub(super) fn let_out(&mut self) -> Result<()> {
        let now = self.inner.world.clock.moment();
        // While a large file is read or written, rounds follow each other at once.
        let is_busy = self.large.is_busy() || self.outgoing.is_busy();
        let (least, most) = self.retries();
        let rest = if self.is_hindered() { most } else { least };
        let is_early = (is_busy || self.is_hindered()) && now.since(self.tried) < rest;
        let left = if is_early { self.behind.take() } else { Behind::default() };
        if !is_early {
            self.tried = now;
            self.stirred = false;
            self.hindered.clear();
        }
        self.let_out_noted()?;
        if left.is_empty() {
            self.stuck = if self.behind.is_empty() { 0 } else { self.stuck.saturating_add(1) };
            if self.stuck >= HOPES_MAX {
                // What was tried, and taken back, is no reason to try again.
                let stirred = self.stirred;
                self.take_events()?;
                self.stirred = stirred;
            }
        }
        if self.behind.is_empty() {
            self.unemptied.clear();
        }
        self.behind.add(left);
        let nothing_left = self.behind.is_empty() && !self.outgoing.is_busy();
        if nothing_left && std::mem::replace(&mut self.full, false) {
            info!(volume = self.volume.name, "the tree's disk has room again");
        }
        Ok(())
    }

    pub(super) fn let_out_noted(&mut self) -> Result<()> {
        loop {
            let more = self.follow_log()?;
            let behind = self.behind.take();
            if !behind.is_empty() {
                self.put_out(behind)?;
            }
            if !more {
                return Ok(());
            }
        }
    }

    /// True: there is more in the log.
    fn follow_log(&mut self) -> Result<bool> {
        let read = self.inner.tables.read()?;
        let records = Whole::now(&*read, self.volume.id).log(self.upto, RECORDS_MAX)?;
        drop(read);
        let Some((first, last)) = records.first().zip(records.last()) else { return Ok(false) };
        // What is not in the log any more is found by comparing.
        self.new |= first.seq > self.upto.next();
        self.upto = last.seq;
        let more = records.len() == RECORDS_MAX;
        for mut record in records {
            // Snapshots are not in the tree.
            record.entries.retain(|(directory, _)| !directory.is_past());
            record.nodes.retain(|file| !file.is_past());
            record.entries.into_iter().for_each(|at| self.behind.entry(at));
            self.behind.nodes.extend(record.nodes);
        }
        Ok(more)
    }

    fn put_out(&mut self, behind: Behind) -> Result<()> {
        for piece in behind.entries.chunks(PIECE_MAX) {
            let files = self.borne(piece)?;
            let ready = self.make_ready(&files)?;
            let mut hand = Hand::new(ready);
            self.with_tables(&mut hand, |keeper, write, hand| {
                for at in piece {
                    if keeper.waits_for_writing(&*write, at)? {
                        continue;
                    }
                    let done = keeper.place_entry(write, hand, at, 0);
                    if !keeper.went_well(write, done)? {
                        keeper.behind.entry(at.clone());
                    }
                }
                Ok(())
            })?;
        }
        let nodes: Vec<FileId> = behind.nodes.into_iter().collect();
        for piece in nodes.chunks(PIECE_MAX) {
            let ready = self.make_ready(piece)?;
            let waiting: Vec<FileId> =
                piece.iter().copied().filter(|file| self.outgoing.has(*file)).collect();
            let mut hand = Hand::new(ready);
            self.with_tables(&mut hand, |keeper, write, hand| {
                for file in piece.iter().filter(|file| !waiting.contains(file)) {
                    let done = keeper.place_node(write, hand, *file);
                    if !keeper.went_well(write, done)? {
                        keeper.behind.nodes.insert(*file);
                    }
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Files that bear these names in the volume.
    fn borne(&self, piece: &[At]) -> Result<Vec<FileId>> {
        let read = self.inner.tables.read()?;
        let view = Whole::now(&*read, self.volume.id);
        let mut files = Vec::new();
        for (directory, name) in piece {
            files.extend(view.entry(*directory, name)?);
        }
        files.sort_unstable();
        files.dedup();
        Ok(files)
    }

    /// Nothing is committed meanwhile, so what is put out is how the volume is then.
    fn with_tables(
        &mut self,
        hand: &mut Hand,
        work: impl FnOnce(&mut Keeper, &mut Noting<'_>, &mut Hand) -> Result<()>,
    ) -> Result<()> {
        self.note_underway()?;
        let inner = self.inner.clone();
        let mut write = Noting::begin(&*inner.tables, self.volume.id)?;
        let was_read_only = self.tree.is_read_only();
        // What the tables tell of must be on the disk.
        let done = work(self, &mut write, hand).and_then(|()| hand.sync(&self.tree));
        // Where nothing could be changed, nothing was.
        let done = done.and_then(|()| if was_read_only { Ok(()) } else { is_kept(&self.tree) });
        if let Err((error, files)) = write.end(done) {
            self.undo(files);
            return Err(error);
        }
        self.drop_unplaced(hand)
    }

    /// What one file fails at in the tree does not hold up the others. Errors: the tables fail.
    fn went_well(&mut self, write: &Noting<'_>, done: Result<bool>) -> Result<bool> {
        match done {
            Ok(done) => Ok(done),
            Err(error) if write.is_broken() => Err(error),
            Err(
                error @ (ReplicaError::Store(StoreError::Io { .. } | StoreError::Full(_))
                | ReplicaError::BadTree(..)),
            ) => {
                self.say_failure(&error);
                if !error.is_full() {
                    self.hinders(error.to_string());
                }
                self.littered = true;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// What was left behind will not get on before something else is done in the tree, for all that
    /// is known: it is tried now and then.
    pub(super) fn is_hindered(&self) -> bool {
        self.stuck >= HOPES_MAX && !self.stirred && !self.full && !self.read_only
    }

    /// Why something cannot be put out now.
    pub(super) fn hinders(&mut self, why: String) {
        if self.hindered.len() < HINDERED_MAX && !self.hindered.contains(&why) {
            self.hindered.push(why);
        }
    }

    /// A full disk is told of once, until there is room again, and not for every file.
    pub(super) fn say_failure(&mut self, error: &ReplicaError) {
        let volume = &self.volume.name;
        if error.is_full() {
            if !std::mem::replace(&mut self.full, true) {
                warn!(volume, %error, "what devices did waits until the tree's disk has room");
            }
        } else if self.stuck < 2 {
            warn!(volume, %error, "could not be put into the tree yet");
        }
    }

    /// Notes all in which the volume and the tree, as it was agreed on, differ.
    pub(super) fn compare_all(&mut self) -> Result<()> {
        let mut below = vec![FileId::ROOT];
        while let Some(directory) = below.pop() {
            self.compare_directory(directory, &mut below)?;
        }
        let mut after = None;
        loop {
            let inner = self.inner.clone();
            let read = inner.tables.read()?;
            let page = rows::all_names(&*read, self.volume.id, after.take(), NAMES_MAX)?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            after = Some(last.clone());
            let view = Whole::now(&*read, self.volume.id);
            for (at, file) in page {
                if view.entry(at.0, &at.1)? != Some(file) {
                    for name in view.names(file, LINKS_MAX)? {
                        self.behind.entry(name);
                    }
                    self.behind.entry(at);
                }
            }
        }
    }

    fn compare_directory(&mut self, directory: FileId, below: &mut Vec<FileId>) -> Result<()> {
        let mut after = None;
        loop {
            let inner = self.inner.clone();
            let read = inner.tables.read()?;
            let id = self.volume.id;
            let view = Whole::now(&*read, id);
            let page = view.entries(directory, after.as_ref(), NAMES_MAX)?;
            self.compare_node(&*read, directory)?;
            for (name, file) in &page.entries {
                if rows::named(&*read, id, directory, name)? != Some(*file) {
                    self.behind.entry((directory, name.clone()));
                }
                self.compare_node(&*read, *file)?;
                let node = view.node(*file)?;
                if node.is_some_and(|node| node.kind == model::Kind::Directory) {
                    below.push(*file);
                }
            }
            match page.entries.last() {
                Some((last, _)) if !page.complete => after = Some(last.clone()),
                _ => return Ok(()),
            }
        }
    }

    fn compare_node(&mut self, read: &dyn store::Read, file: FileId) -> Result<()> {
        let node = Whole::now(read, self.volume.id).node(file)?;
        let known = rows::known(read, self.volume.id, file)?;
        let (Some(node), Some(known)) = (node, known) else { return Ok(()) };
        if node.contents_stamp != known.contents_stamp
            || node.attributes_stamp != known.attributes_stamp
            || node.xattrs != known.xattrs
        {
            self.behind.nodes.insert(file);
        }
        Ok(())
    }
}
