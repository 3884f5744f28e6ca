//! What was put into the tree in a transaction of the tables that failed: the tree has it, and the
//! tables do not tell of it.
//! Holds: it is written down before anything else is looked at, by a process that lives on because
//! it knows what it did. Who comes later, or to a tree that was away, believes it of what is there as
//! it was put; devices may have done more by then, so the volume does not tell.
//!
//! ```text
//!   put out --tables or disk fail--> undone --both are well, and can be changed--> written down
//!                                       '--a start, or the tree is back--> written down, if it is so
//! ```

use super::commit::At;
use super::keeper::Keeper;
use super::rows::{self, Known, UndoneFiles as Files, UndoneRow};
use crate::error::{ReplicaError, Result};
use model::FileId;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use store::tree::Tree;
use store::{Durability, Read, Tables, Write};
use tracing::{info, warn};
use volume::whole::VolumeId;

#[derive(Debug)]
pub(super) struct Undone {
    files: Files,
    /// The tree may have lost it since.
    is_unsure: bool,
    /// The tree has been synced since.
    is_synced: bool,
}

impl Undone {
    /// What an earlier life left. What cannot be read of it is passed over: without it, what is in the
    /// tree is judged as it is seen.
    pub fn found(read: &dyn Read, volume: VolumeId) -> Result<Option<Undone>> {
        let files = rows::undone(read, volume)?;
        let undone = |files| Undone { files, is_unsure: true, is_synced: false };
        Ok(files.map(undone))
    }
}

/// A transaction, and of which files it says how they are known.
pub(super) struct Noting<'a> {
    write: Box<dyn Write + 'a>,
    volume: VolumeId,
    known: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// A call on it has failed.
    broken: Cell<bool>,
}

impl<'a> Noting<'a> {
    pub fn begin(tables: &'a dyn Tables, volume: VolumeId) -> Result<Noting<'a>> {
        let (write, broken) = (tables.write()?, Cell::new(false));
        Ok(Noting { write, volume, known: BTreeMap::new(), broken })
    }

    /// The tables have failed at something: rows that belong together may be there in part.
    pub fn is_broken(&self) -> bool {
        self.broken.get()
    }

    fn tried<T>(&self, done: store::Result<T>) -> store::Result<T> {
        done.inspect_err(|_| self.broken.set(true))
    }

    /// Errors: with what was not written down.
    pub fn end(self, done: Result<()>) -> Result<(), (ReplicaError, Files)> {
        let Noting { write, volume, known, .. } = self;
        let done = match done {
            Ok(()) => write.commit(Durability::Now).map_err(ReplicaError::from),
            failed => {
                drop(write);
                failed
            }
        };
        done.map_err(|error| (error, rows::known_of(volume, &known).unwrap_or_default()))
    }

    fn note(&mut self, table: &'static str, key: &[u8], value: Option<&[u8]>) {
        if table == rows::KNOWN {
            self.known.insert(key.to_vec(), value.map(<[u8]>::to_vec));
        }
    }
}

impl Read for Noting<'_> {
    fn get(&self, table: &'static str, key: &[u8]) -> store::Result<Option<Vec<u8>>> {
        self.tried(self.write.get(table, key))
    }

    fn scan(
        &self,
        table: &'static str,
        from: &[u8],
        to: &[u8],
        rows_max: usize,
    ) -> store::Result<Vec<store::Row>> {
        self.tried(self.write.scan(table, from, to, rows_max))
    }

    fn last(
        &self,
        table: &'static str,
        from: &[u8],
        to: &[u8],
    ) -> store::Result<Option<store::Row>> {
        self.tried(self.write.last(table, from, to))
    }
}

impl Write for Noting<'_> {
    fn put(&mut self, table: &'static str, key: &[u8], value: &[u8]) -> store::Result<()> {
        self.note(table, key, Some(value));
        let done = self.write.put(table, key, value);
        self.tried(done)
    }

    fn delete(&mut self, table: &'static str, key: &[u8]) -> store::Result<()> {
        self.note(table, key, None);
        let done = self.write.delete(table, key);
        self.tried(done)
    }

    fn commit(self: Box<Self>, durability: Durability) -> store::Result<()> {
        self.write.commit(durability)
    }
}

impl Keeper {
    /// A transaction failed in which the tree was changed.
    pub(super) fn undo(&mut self, files: Files) {
        if files.is_empty() {
            return;
        }
        if let Err(error) = self.keep_undone(&files) {
            let volume = &self.volume.name;
            warn!(volume, %error, "what was put into the tree is known to this process alone");
        }
        // What made it read-only may have taken that away.
        let is_unsure = self.tree.is_read_only();
        self.undone = Some(Undone { files, is_unsure, is_synced: false });
    }

    /// For who comes later: it may be the tree's disk alone that failed.
    fn keep_undone(&self, files: &Files) -> Result<()> {
        let mut write = self.inner.tables.write()?;
        for (file, known) in files {
            let row = UndoneRow { known: known.clone() };
            rows::put_undone(&mut *write, self.volume.id, *file, &row)?;
        }
        Ok(write.commit(Durability::Now)?)
    }

    /// Another tree is in the place of that which was changed, if it was one.
    pub(super) fn doubt_undone(&mut self) {
        if let Some(undone) = &mut self.undone {
            (undone.is_unsure, undone.is_synced) = (true, false);
        }
    }

    /// At the start: what cannot be written down now is, before the first look at the tree.
    pub(super) fn redo_or_say(&mut self) {
        if let Err(error) = self.redo() {
            let volume = &self.volume.name;
            warn!(volume, %error, "what had been put into the tree cannot be written down yet");
        }
    }

    /// Writes down what was put into the tree and is not written down.
    pub(super) fn redo(&mut self) -> Result<()> {
        let Some(undone) = &mut self.undone else { return Ok(()) };
        // A name that the tables tell of must be on the disk.
        if !undone.is_synced {
            let synced = match self.tree.is_read_only() {
                true => Err(turned_read_only(&self.tree)),
                false => self.tree.sync().map_err(Into::into),
            };
            if let Err(error) = synced.and_then(|()| is_kept(&self.tree)) {
                // Where it can be changed again, that may be as it was before.
                undone.is_unsure |= self.tree.is_read_only();
                return Err(error);
            }
            undone.is_synced = true;
        }
        let (files, is_unsure) = (undone.files.clone(), undone.is_unsure);
        let all = files.len();
        let files = if is_unsure { self.still_there(files)? } else { files };
        let id = self.volume.id;
        let inner = self.inner.clone();
        let mut write = inner.tables.write()?;
        write_down(&mut *write, id, &files)?;
        rows::drop_all_undone(&mut *write, id)?;
        write.commit(Durability::Now)?;
        let (volume, there) = (&self.volume.name, files.len());
        info!(volume, all, there, "what had been put into the tree is written down");
        self.undone = None;
        Ok(())
    }

    /// Those that are in the tree as they were put there.
    fn still_there(&self, mut files: Files) -> Result<Files> {
        let id = self.volume.id;
        let now = self.inner.tables.read()?;
        // Of the root nothing but its looks could tell.
        files.retain(|(file, _)| *file != FileId::ROOT);
        let mut disbelieved = BTreeSet::new();
        loop {
            let mut write = self.inner.tables.write()?;
            let before = files.iter().map(|(file, _)| rows::known(&*write, id, *file));
            let before = before.collect::<Result<Vec<_>>>()?;
            write_down(&mut *write, id, &files)?;
            let all = files.len();
            let mut there = Vec::with_capacity(all);
            for ((file, left), before) in files.into_iter().zip(before) {
                let names = left.as_ref().map_or(&[][..], |left| &left.names[..]);
                // Else that file would lose the name by which it is known.
                let takes = takes_from(&*now, id, file, names, &disbelieved)?;
                if !takes && self.is_as_put(&*write, before.as_ref(), left.as_ref())? {
                    there.push((file, left));
                } else {
                    disbelieved.insert(file);
                }
            }
            if there.len() == all {
                return Ok(there);
            }
            // Some are in directories that are not where these say.
            files = there;
        }
    }

    /// A file is under its names as it was left, and no more under those that it had before.
    fn is_as_put(
        &self,
        read: &dyn Read,
        before: Option<&Known>,
        now: Option<&Known>,
    ) -> Result<bool> {
        for at in now.into_iter().flat_map(|now| &now.names) {
            if !self.leads_to(read, at, now, Known::is_as_left)? {
                return Ok(false);
            }
        }
        let stays = |at: &&At| now.is_some_and(|now| now.names.contains(at));
        for at in before.into_iter().flat_map(|before| &before.names).filter(|at| !stays(at)) {
            if self.leads_to(read, at, before, Known::is)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn leads_to(
        &self,
        read: &dyn Read,
        at: &At,
        known: Option<&Known>,
        is_it: fn(&Known, &store::tree::Stat) -> bool,
    ) -> Result<bool> {
        let Some(known) = known else { return Ok(false) };
        let found = self.directory_in(read, at.0).and_then(|opened| match opened {
            Some(opened) => Ok(opened.stat(at.1.as_bytes())?),
            None => Ok(None),
        });
        match found {
            Ok(stat) => Ok(stat.is_some_and(|stat| is_it(known, &stat))),
            Err(ReplicaError::Store(error))
                if error.kind() == Some(ErrorKind::PermissionDenied) =>
            {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

/// After a sync: a file system that its trouble has made read-only says that all of it is on the disk,
/// which it is not.
pub(super) fn is_kept(tree: &Tree) -> Result<()> {
    if tree.is_read_only() { Err(turned_read_only(tree)) } else { Ok(()) }
}

fn turned_read_only(tree: &Tree) -> ReplicaError {
    let path = tree.path().display().to_string();
    let what = "its file system is read-only, and what devices did and was put there may not be on \
                its disk: that waits, and all else, until it can be changed again; the system's \
                log may say why it cannot";
    ReplicaError::BadTree(path, what.into())
}

/// Whether one of the names is, as the tables tell now, that of another file among these.
fn takes_from(
    read: &dyn Read,
    volume: VolumeId,
    file: FileId,
    names: &[At],
    files: &BTreeSet<FileId>,
) -> Result<bool> {
    for at in names {
        let owner = rows::named(read, volume, at.0, &at.1)?;
        if owner.is_some_and(|owner| owner != file && files.contains(&owner)) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn write_down(write: &mut dyn Write, volume: VolumeId, files: &Files) -> Result<()> {
    for (file, known) in files {
        match known {
            Some(known) => {
                rows::drop_staged(write, volume, known.ino)?;
                rows::put_known(write, volume, *file, known)?;
            }
            None => {
                let names = rows::known(write, volume, *file)?.map(|known| known.names);
                for at in names.into_iter().flatten() {
                    rows::drop_name(write, volume, *file, &at)?;
                }
            }
        }
    }
    Ok(())
}
