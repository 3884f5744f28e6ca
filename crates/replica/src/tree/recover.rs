//! What a crash left half done in the tree is written down before anything else changes.
//! Holds: a row says so while the volume is put out; nothing is committed in between, so what a
//! crash leaves half done is on its way to how the volume is until somebody commits again.
//! Never: is what this server has done itself taken for the work of a program.

use super::keeper::{Keeper, MARK_NAME};
use super::outlet::LINKS_MAX;
use super::rows::{self, Known, STAGE, Staged};
use crate::error::Result;
use model::{FileId, Kind, Name, View};
use std::time::Duration;
use store::tree::{Directory, Sort, Stat};
use store::{Durability, Read};
use tracing::info;
use volume::whole::{VolumeId, Whole};
use world::Moment;

/// The row stays for so long after the last change, so that it is not written for each.
const REST: Duration = Duration::from_secs(1);
/// Directories within directories that were made and filled.
const ROUNDS_MAX: usize = 64;

/// When the tree was changed last, if the row says that it is being changed.
#[derive(Debug, Default)]
pub(super) struct Underway(Option<Moment>);

impl Keeper {
    /// The tree is about to be changed.
    pub(super) fn note_underway(&mut self) -> Result<()> {
        let now = self.inner.world.clock.moment();
        if self.underway.0.replace(now).is_none() {
            let mut write = self.inner.tables.write()?;
            write.put(rows::UNDERWAY, &key(self.volume.id), &[])?;
            write.commit(Durability::Now)?;
        }
        Ok(())
    }

    /// After a while in which nothing was done a crash leaves nothing half done.
    pub(super) fn end_underway(&mut self) -> Result<()> {
        let due = self.underway_due();
        if due.is_some_and(|due| due <= self.inner.world.clock.moment()) && self.is_settled() {
            self.underway = Underway::default();
            let mut write = self.inner.tables.write()?;
            write.delete(rows::UNDERWAY, &key(self.volume.id))?;
            write.commit(Durability::Later)?;
        }
        Ok(())
    }

    /// When the row can go.
    pub(super) fn underway_due(&self) -> Option<Moment> {
        self.underway.0.map(|last| last + REST)
    }

    /// At the start: what is not as it was agreed on, and is as the volume has it, is agreed on.
    pub(super) fn recover(&mut self) -> Result<()> {
        if !is_underway(&*self.inner.tables.read()?, self.volume.id)? {
            return Ok(());
        }
        let now = self.inner.world.clock.moment();
        self.underway = Underway(Some(now));
        self.compare_all()?;
        let names = self.behind.entries.clone();
        info!(volume = self.volume.name, names = names.len(), "what was under way is looked at");
        for (directory, name) in names {
            self.dirt.note(directory, name, true, now);
        }
        for file in self.behind.nodes.clone() {
            self.note_file(file)?;
        }
        for _ in 0..ROUNDS_MAX {
            self.take_in()?;
            if self.dirt.lists.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// What an earlier life left in the stage: known files go, what nobody knows is kept, and what
    /// was on its way from the only name that it has goes on from here.
    pub(super) fn clear_stage(&mut self) -> Result<()> {
        let stage = self.stage()?;
        let mut ready = Vec::new();
        for bytes in stage.names()? {
            let Ok(name) = Name::new(bytes) else { continue };
            let Some(stat) = stage.stat(name.as_bytes())? else { continue };
            let read = self.inner.tables.read()?;
            let is_known = rows::numbered(&*read, self.volume.id, &stat)?.is_some();
            let staged = rows::staged(&*read, self.volume.id, &stat)?
                .filter(|staged| !is_known && staged.known.holds_the_same(&stat));
            drop(read);
            match staged {
                _ if name.as_bytes() == MARK_NAME => {}
                Some(staged) => ready.push((name, stat, staged)),
                None => self.clear(&stage, &name, &stat)?,
            }
        }
        // When it is known what of their files is here, too.
        for (name, stat, staged) in ready {
            let goes_on = is_alone(&stat)
                && self.stands_for_what_left(&staged)?
                && self.goes_on_from(staged.file, &staged.known, &name, &stat)?;
            if !goes_on {
                self.remove(&stage, &name, &stat)?;
            }
        }
        Ok(())
    }

    /// Something that was not made ready by an earlier life.
    fn clear(&mut self, stage: &Directory, name: &Name, stat: &Stat) -> Result<()> {
        let read = self.inner.tables.read()?;
        let id = self.volume.id;
        let here = rows::named(&*read, id, STAGE, name)?.is_some();
        // A directory's times tell of what is in it.
        let known = rows::numbered(&*read, id, stat)?
            .filter(|(_, known)| known.kind == Kind::Directory || known.holds_the_same(stat));
        drop(read);
        if here {
            return Ok(());
        }
        if let Some((file, known)) = known.as_ref().filter(|_| is_alone(stat))
            && self.goes_on_from(*file, known, name, stat)?
        {
            return Ok(());
        }
        match stat.sort {
            Sort::Directory => self.remove(stage, name, stat),
            _ if known.is_some() || name.as_bytes().starts_with(b"tmp-") => {
                self.remove(stage, name, stat)
            }
            _ => self.rescue_into_root(stage, name, name),
        }
    }

    fn remove(&mut self, stage: &Directory, name: &Name, stat: &Stat) -> Result<()> {
        if stat.sort != Sort::Directory {
            return Ok(stage.unlink(name.as_bytes())?);
        }
        // One that is not empty was moved here, and moves on.
        match stage.remove_directory(name.as_bytes()) {
            Ok(()) => Ok(()),
            Err(_) => self.rescue_into_root(stage, name, name),
        }
    }

    /// Whether what was made ready had come to the names of its file, and was on its way from there:
    /// nothing else of the file is left.
    fn stands_for_what_left(&self, staged: &Staged) -> Result<bool> {
        let read = self.inner.tables.read()?;
        let Some(before) = rows::known(&*read, self.volume.id, staged.file)? else {
            return Ok(false);
        };
        for at in &before.names {
            let Some(there) = self.directory_in(&*read, at.0)? else { return Ok(false) };
            if there.stat(at.1.as_bytes())?.is_some_and(|stat| before.is(&stat)) {
                return Ok(false);
            }
        }
        Ok(!before.names.is_empty())
    }

    /// A file that the volume still has, and the tree has here alone: it is parked. False: the volume
    /// has it no more.
    fn goes_on_from(
        &mut self,
        file: FileId,
        known: &Known,
        name: &Name,
        stat: &Stat,
    ) -> Result<bool> {
        let id = self.volume.id;
        let mut write = self.inner.tables.write()?;
        let view = Whole::now(&*write, id);
        if view.node(file)?.is_none() {
            return Ok(false);
        }
        let names = view.names(file, LINKS_MAX)?;
        for at in known.names.iter().chain(&names) {
            let Some(there) = self.directory_in(&*write, at.0)? else { continue };
            let Some(stat) = there.stat(at.1.as_bytes())? else { continue };
            // A newer version was put there, and this is the one before.
            if rows::staged(&*write, id, &stat)?.is_some_and(|staged| staged.file == file) {
                return Ok(false);
            }
        }
        let mut parked = known.moved(stat, true);
        parked.names = vec![(STAGE, name.clone())];
        rows::drop_staged(&mut *write, id, parked.ino)?;
        rows::put_known(&mut *write, id, file, &parked)?;
        write.commit(Durability::Now)?;
        names.into_iter().for_each(|name| self.behind.entry(name));
        Ok(true)
    }
}

/// No other name leads to it.
fn is_alone(stat: &Stat) -> bool {
    stat.sort == Sort::Directory || stat.links == 1
}

fn key(volume: VolumeId) -> [u8; 4] {
    volume.0.to_be_bytes()
}

fn is_underway(read: &dyn Read, volume: VolumeId) -> Result<bool> {
    Ok(read.get(rows::UNDERWAY, &key(volume))?.is_some())
}
