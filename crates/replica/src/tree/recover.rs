//! What a crash left half done in the tree, and is as the volume has it or on its way there, is
//! written down before anything else changes.
//! Holds: a row says so while the volume is put out; nothing is committed in between, so what a
//! crash leaves half done is on its way to how the volume is until somebody commits again.
//! What is missing, or is otherwise, may be a program's: that is left to the first look at everything.

use super::commit::{Agree, At, Step};
use super::keeper::{Keeper, MARK_NAME};
use super::outlet::LINKS_MAX;
use super::rows::{self, Known, STAGE, Staged};
use super::scan::Look;
use super::stage::mode_without_list;
use crate::error::Result;
use minicbor::bytes::ByteVec;
use model::{FileId, Kind, Name, Node, SET_IDS, Stamp, View};
use std::collections::BTreeMap;
use std::time::Duration;
use store::tree::{Directory, Sort, Stat};
use store::{Durability, Read, Write};
use tracing::{debug, info, warn};
use volume::whole::{VolumeId, Whole};
use world::Moment;

/// The row stays for so long after the last change, so that it is not written for each.
const REST: Duration = Duration::from_secs(1);
/// Directories within directories that were made and filled.
const ROUNDS_MAX: usize = 64;

type Attributes = BTreeMap<ByteVec, ByteVec>;

/// Whether what is seen was made ready before a crash, and where it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Staging {
    Not,
    Here,
    /// Under another name than it was put.
    Moved,
}

impl Keeper {
    /// The tree is about to be changed.
    pub(super) fn note_underway(&mut self) -> Result<()> {
        if self.underway.is_none() {
            let mut write = self.inner.tables.write()?;
            write.put(rows::UNDERWAY, &key(self.volume.id), &[])?;
            write.commit(Durability::Now)?;
        }
        self.underway = Some(self.inner.world.clock.moment());
        Ok(())
    }

    /// After a while in which nothing was done a crash leaves nothing half done.
    pub(super) fn end_underway(&mut self) {
        let now = self.inner.world.clock.moment();
        if self.underway_due().is_none_or(|due| due > now) || !self.is_settled() {
            return;
        }
        self.underway = match self.delete_underway() {
            Ok(()) => None,
            Err(error) => {
                // While it stays, the next start looks at the tree first, and that is all.
                debug!(volume = self.volume.name, %error, "what says that the tree is changed stays");
                Some(now)
            }
        };
    }

    fn delete_underway(&self) -> Result<()> {
        let mut write = self.inner.tables.write()?;
        write.delete(rows::UNDERWAY, &key(self.volume.id))?;
        Ok(write.commit(Durability::Now)?)
    }

    /// When the row can go.
    pub(super) fn underway_due(&self) -> Option<Moment> {
        self.underway.map(|last| last + REST)
    }

    /// At the start: what is not as it was agreed on, and is as the volume has it, is agreed on. What
    /// is otherwise, or is missing, may be a program's, and is left to the first look at everything.
    pub(super) fn recover_or_say(&mut self) {
        self.recovers = true;
        if let Err(error) = self.recover() {
            let volume = &self.volume.name;
            warn!(volume, %error, "what was under way in the tree could not be looked at first");
        }
        self.recovers = false;
    }

    fn recover(&mut self) -> Result<()> {
        if !is_underway(&*self.inner.tables.read()?, self.volume.id)? {
            return Ok(());
        }
        let now = self.inner.world.clock.moment();
        self.underway = Some(now);
        self.compare_all()?;
        let names = self.behind.entries.clone();
        info!(volume = self.volume.name, names = names.len(), "what was under way is looked at");
        for (directory, name) in names {
            self.dirt.note(directory, name, false, now);
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

    /// Something was made ready before a crash, and came to the name of another file that may be
    /// elsewhere by now, which has to be found first.
    pub(super) fn stands_for_another(&self, look: &Look) -> Result<bool> {
        let (Some(stat), Some((bearer, _))) = (&look.stat, &look.known) else { return Ok(false) };
        let read = self.inner.tables.read()?;
        let staged = rows::staged(&*read, self.volume.id, stat)?;
        Ok(staged.is_some_and(|staged| staged.file != *bearer))
    }

    /// Where something is now that was made ready before a crash.
    pub(super) fn staging(&self, look: &Look) -> Result<Staging> {
        let Some(stat) = &look.stat else { return Ok(Staging::Not) };
        let read = self.inner.tables.read()?;
        let id = self.volume.id;
        let Some(staged) = rows::staged(&*read, id, stat)? else { return Ok(Staging::Not) };
        let before = rows::known(&*read, id, staged.file)?;
        let has_moved =
            before.is_some_and(|known| !known.names.is_empty() && !known.names.contains(&look.at));
        Ok(if has_moved { Staging::Moved } else { Staging::Here })
    }

    /// Something was made ready here before a crash, and was put where it belongs.
    pub(super) fn was_staged(&mut self, look: &Look, steps: &mut Vec<Step>) -> Result<Staging> {
        let Some(stat) = &look.stat else { return Ok(Staging::Not) };
        let read = self.inner.tables.read()?;
        let id = self.volume.id;
        let Some(staged) = rows::staged(&*read, id, stat)? else { return Ok(Staging::Not) };
        let before = rows::known(&*read, id, staged.file)?;
        drop(read);
        let mut known = staged.known;
        if known.holds_the_same(stat) {
            let now = self.link_rest(&look.at, &known, before.as_ref())?;
            known = known.moved(&now.unwrap_or(*stat), true);
        } else {
            self.dirt.note(look.at.0, look.at.1.clone(), false, look.since.at);
        }
        let (at, file) = (look.at.clone(), staged.file);
        if self.staging(look)? == Staging::Moved {
            // It came to its own name, and a program has moved it since.
            steps.push(Step::agree(Agree::Looks { file, known: Box::new(known) }));
            return Ok(Staging::Moved);
        }
        steps.push(Step::agree(Agree::Is { at, file, known: Box::new(known) }));
        Ok(Staging::Here)
    }

    /// What was made ready before a crash is known where it was seen: what had moved on from its
    /// name, or what came to a name that another had left. True: there was some.
    pub(super) fn settle_staged(&mut self, looks: &[Look], staging: Staging) -> Result<bool> {
        let mut found = Vec::new();
        for look in looks {
            let Some(stat) = &look.stat else { continue };
            let read = self.inner.tables.read()?;
            let is_known = rows::numbered(&*read, self.volume.id, stat)?.is_some();
            drop(read);
            if !is_known && self.staging(look)? == staging {
                self.was_staged(look, &mut found)?;
            }
        }
        let any = !found.is_empty();
        self.flush(&mut found)?;
        Ok(any)
    }

    /// What is seen is not as it was. If a device has set its attributes, and each is as it was before
    /// or as it is to be, a crash came between: it gets all of them again.
    pub(super) fn half_dressed(
        &mut self,
        opened: &Directory,
        look: &Look,
        steps: &mut Vec<Step>,
    ) -> Result<()> {
        let (Some(stat), Some((file, known))) = (look.stat, look.known.clone()) else {
            return Ok(());
        };
        let read = self.inner.tables.read()?;
        let node = Whole::now(&*read, self.volume.id).node(file)?;
        drop(read);
        let xattrs = self.xattrs_now(opened, &look.at.1, &known, &stat)?;
        if node.is_some_and(|node| is_between(&known, &node, &stat, xattrs.as_ref())) {
            let known = Known { attributes_stamp: Stamp::default(), xattrs, ..known.looks(&stat) };
            steps.push(Step::agree(Agree::Looks { file, known: Box::new(known) }));
            self.behind.nodes.insert(file);
        }
        Ok(())
    }

    /// Setting attributes failed in the midst of it, and is tried again.
    pub(super) fn note_half_dressed(
        &mut self,
        write: &mut dyn Write,
        opened: &Directory,
        at: Option<&At>,
        (file, known, node): (FileId, &Known, &Node),
    ) -> Result<()> {
        let (stat, xattrs) = match at {
            None => (Some(opened.own_stat()?), known.xattrs.clone()),
            Some((_, name)) => match opened.stat(name.as_bytes())? {
                Some(stat) => (Some(stat), self.xattrs_now(opened, name, known, &stat)?),
                None => (None, None),
            },
        };
        let Some(stat) = stat.filter(|stat| is_between(known, node, stat, xattrs.as_ref())) else {
            return Ok(());
        };
        // Its times do not tell what was written to it meanwhile.
        let (attributes_stamp, ctime) = (Stamp::default(), None);
        let now = Known { attributes_stamp, ctime, xattrs, ..known.looks(&stat) };
        if let Some(at) = at {
            self.dirt.note(at.0, at.1.clone(), true, self.inner.world.clock.moment());
        }
        rows::put_known(write, self.volume.id, file, &now)
    }

    pub(super) fn half_dressed_root(
        &mut self,
        known: &Known,
        node: &Node,
        stat: &Stat,
    ) -> Result<()> {
        if !is_between(known, node, stat, known.xattrs.as_ref()) {
            return Ok(());
        }
        let (file, known) = (FileId::ROOT, known.looks(stat));
        let known = Box::new(Known { attributes_stamp: Stamp::default(), ..known });
        self.behind.nodes.insert(file);
        self.flush(&mut vec![Step::agree(Agree::Looks { file, known })])
    }

    /// What failures left in the stage goes, or is kept beside, when nothing is on its way any more.
    pub(super) fn clear_litter(&mut self) -> Result<()> {
        if self.littered && self.is_settled() {
            self.clear_stage()?;
            self.littered = false;
        }
        Ok(())
    }

    /// What an earlier life, or a failure, left in the stage: known files go, what nobody knows is
    /// kept, and what was on its way from the only name that it has goes on from here.
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
            // Its file was parked here, and has its new version: it waits for its name.
            let is_parked = rows::named(&*read, self.volume.id, STAGE, &name)?;
            let staged = staged.filter(|staged| is_parked != Some(staged.file));
            drop(read);
            match staged {
                _ if name.as_bytes() == MARK_NAME => {}
                Some(staged) => ready.push((name, stat, staged)),
                None => self.clear(&stage, &name, &stat)?,
            }
        }
        // When it is known what of their files is here, too.
        for (name, stat, staged) in ready {
            if self.stands_for_what_left(&staged)? {
                self.in_transit.insert(staged.file);
            }
            self.remove(&stage, &name, &stat)?;
        }
        Ok(())
    }

    /// A name of the stage is needed: what a failure has left there goes, or is kept beside if it may
    /// be a program's.
    pub(super) fn make_way(
        &mut self,
        read: &dyn Read,
        stage: &Directory,
        name: &Name,
    ) -> Result<()> {
        let Some(stat) = stage.stat(name.as_bytes())? else { return Ok(()) };
        let known = rows::numbered(read, self.volume.id, &stat)?.map(|(_, known)| known);
        let staged = rows::staged(read, self.volume.id, &stat)?.map(|staged| staged.known);
        match known.into_iter().chain(staged).any(|known| known.holds_the_same(&stat)) {
            true => Ok(stage.unlink(name.as_bytes())?),
            false => self.rescue_into_root(stage, name, name),
        }
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
        if let Some((file, known)) = known.as_ref()
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

    /// Whether what was made ready may have come to the names of its file, and been on its way from
    /// there: nothing else of the file is left where it was.
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

    /// A file that the volume still has, and the tree has here alone, whatever other names it has
    /// outside: it is parked. False: it is not so.
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
            let is_newer =
                rows::staged(&*write, id, &stat)?.is_some_and(|staged| staged.file == file);
            if is_newer || known.is(&stat) {
                return Ok(false);
            }
        }
        let mut parked = known.moved(stat, true);
        parked.names = vec![(STAGE, name.clone())];
        rows::put_known(&mut *write, id, file, &parked)?;
        write.commit(Durability::Now)?;
        names.into_iter().for_each(|name| self.behind.entry(name));
        Ok(true)
    }
}

/// Whether a device has set attributes of a file, and each is as it was known or as the volume has it.
fn is_between(known: &Known, node: &Node, stat: &Stat, xattrs: Option<&Attributes>) -> bool {
    if known.attributes_stamp == node.attributes_stamp && known.xattrs == node.xattrs {
        return false;
    }
    // A directory's size and time tell of what is in it.
    let holds_the_same = known.kind == Kind::Directory
        || (known.size == stat.size && [known.mtime, node.mtime].contains(&rows::time(stat.mtime)));
    let permissions = |mode: u16| mode & !SET_IDS;
    // Changing the owner takes the set-id bits away.
    let has_mode = [known.mode, node.mode, mode_without_list(node)]
        .into_iter()
        .any(|mode| permissions(mode) == permissions(stat.mode))
        && stat.mode & SET_IDS & !(known.mode | node.mode) == 0;
    let value = |of: Option<&Attributes>, name: &ByteVec| of.and_then(|of| of.get(name)).cloned();
    let (before, after) = (known.xattrs.as_ref(), node.xattrs.as_ref());
    let mut names = [before, after, xattrs].into_iter().flatten().flatten().map(|(name, _)| name);
    known.is(stat)
        && holds_the_same
        && [known.uid, node.uid].contains(&stat.uid)
        && [known.gid, node.gid].contains(&stat.gid)
        && has_mode
        && names
            .all(|name| [value(before, name), value(after, name)].contains(&value(xattrs, name)))
}

fn key(volume: VolumeId) -> [u8; 4] {
    volume.0.to_be_bytes()
}

fn is_underway(read: &dyn Read, volume: VolumeId) -> Result<bool> {
    Ok(read.get(rows::UNDERWAY, &key(volume))?.is_some())
}
