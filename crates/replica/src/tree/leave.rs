//! Takes files from the names that they have in the tree.
//! Holds: nothing goes that is not as it was agreed on; what changed in that very moment is kept
//! beside. The tables tell of each name that was left as soon as it was.

use super::commit::At;
use super::keeper::Keeper;
use super::outlet::LINKS_MAX;
use super::place::{DEPTH_MAX, Hand};
use super::rows::{self, Known, STAGE, Staged};
use super::stage::stage_name;
use crate::error::Result;
use model::{FileId, Kind, Name, View};
use std::io::ErrorKind;
use store::tree::{Directory, How};
use store::{Read, Write};
use tracing::warn;
use volume::whole::Whole;

/// A directory that cannot be removed so often stays; what is known of it is not looked at for that.
pub(super) const REMOVALS_MAX: u32 = 12;

impl Keeper {
    /// What was replaced lies in the stage: it goes if it is what was agreed on.
    pub(super) fn displaced(
        &mut self,
        read: &dyn Read,
        stage: &Directory,
        name: &Name,
        at: &At,
        known: &Known,
    ) -> Result<()> {
        let stat = stage.stat(name.as_bytes())?;
        match stat {
            Some(stat) if known.holds_the_same(&stat) => Ok(stage.unlink(name.as_bytes())?),
            Some(_) => self.rescue(read, name, at),
            None => Ok(()),
        }
    }

    /// The same where it can be written down that nobody needs it, if it cannot go now.
    pub(super) fn set_aside(
        &mut self,
        write: &mut dyn Write,
        stage: &Directory,
        name: &Name,
        at: &At,
        (file, known): (FileId, &Known),
    ) -> Result<()> {
        let done = self.displaced(write, stage, name, at, known);
        if done.is_err()
            && let Some(stat) = stage.stat(name.as_bytes())?
            && stat.links == 1
            && known.holds_the_same(&stat)
        {
            let staged = Staged { file, known: Known { names: Vec::new(), ..known.clone() } };
            rows::put_staged(write, self.volume.id, &staged)?;
        }
        done
    }

    /// The file loses the name: it goes, or moves to where the volume has it, or waits for that.
    pub(super) fn take_away(
        &mut self,
        write: &mut dyn Write,
        hand: &mut Hand,
        at: &At,
        file: FileId,
        known: &Known,
        depth: usize,
    ) -> Result<bool> {
        let id = self.volume.id;
        let Some(opened) = self.opened(write, hand, at.0)? else { return Ok(false) };
        if Whole::now(&*write, id).node(file)?.is_some() && known.names.len() == 1 {
            return self.move_on(write, hand, at, file, known, depth);
        }
        if known.kind == Kind::Directory {
            return self.remove_directory(write, hand, at, file, &opened, depth);
        }
        let Some(stage) = self.opened(write, hand, STAGE)? else { return Ok(false) };
        let name = stage_name("new-g", file.0);
        if at.0 == STAGE {
            opened.unlink(at.1.as_bytes())?;
            rows::drop_name(write, id, file, at)?;
        } else {
            self.make_way(write, &stage, &name)?;
            stage.rename_from(name.as_bytes(), &opened, at.1.as_bytes(), How::New)?;
            rows::drop_name(write, id, file, at)?;
            self.set_aside(write, &stage, &name, at, (file, known))?;
        }
        self.refresh(write, hand, file)?;
        Ok(true)
    }

    /// A name of several went: the time of change of the others with it.
    fn refresh(&mut self, write: &mut dyn Write, hand: &mut Hand, file: FileId) -> Result<()> {
        let id = self.volume.id;
        let Some(known) = rows::known(&*write, id, file)? else { return Ok(()) };
        let Some(at) = known.names.first().cloned() else { return Ok(()) };
        let Some(opened) = self.opened(write, hand, at.0)? else { return Ok(()) };
        match opened.stat(at.1.as_bytes())? {
            Some(stat) => rows::put_known(write, id, file, &known.moved(&stat, true)),
            None => Ok(()),
        }
    }

    /// The file is wanted under other names: there now, or later, and out of the way until then.
    fn move_on(
        &mut self,
        write: &mut dyn Write,
        hand: &mut Hand,
        at: &At,
        file: FileId,
        known: &Known,
        depth: usize,
    ) -> Result<bool> {
        let id = self.volume.id;
        for to in Whole::now(&*write, id).names(file, LINKS_MAX)? {
            // Its new directory may be the one that is to take this name.
            let free = rows::path(&*write, id, to.0)?.is_some()
                && rows::named(&*write, id, to.0, &to.1)?.is_none();
            if free && to != *at && depth < DEPTH_MAX {
                self.place_entry(write, hand, &to, depth + 1)?;
            } else {
                self.behind.entry(to);
            }
        }
        if rows::named(&*write, id, at.0, &at.1)? != Some(file) {
            return Ok(true);
        }
        if at.0 == STAGE {
            return Ok(false);
        }
        let (Some(opened), Some(stage)) =
            (self.opened(write, hand, at.0)?, self.opened(write, hand, STAGE)?)
        else {
            return Ok(false);
        };
        let parked = (STAGE, stage_name("park-", file.0));
        self.make_way(write, &stage, &parked.1)?;
        stage.rename_from(parked.1.as_bytes(), &opened, at.1.as_bytes(), How::New)?;
        let mut known = known.clone();
        known.names.retain(|name| name != at);
        known.names.push(parked.clone());
        // At once: it is there, whatever becomes of the rest.
        rows::put_known(write, id, file, &known)?;
        if let Some(stat) = stage.stat(parked.1.as_bytes())? {
            rows::put_known(write, id, file, &known.moved(&stat, true))?;
        }
        for name in Whole::now(&*write, id).names(file, LINKS_MAX)? {
            self.behind.entry(name);
        }
        Ok(true)
    }

    fn remove_directory(
        &mut self,
        write: &mut dyn Write,
        hand: &mut Hand,
        at: &At,
        file: FileId,
        opened: &Directory,
        depth: usize,
    ) -> Result<bool> {
        let id = self.volume.id;
        let below = rows::names(&*write, id, file, None, LINKS_MAX)?;
        for (name, _) in below {
            self.place_entry(write, hand, &(file, name), depth + 1)?;
        }
        hand.opened.remove(&file);
        match opened.remove_directory(at.1.as_bytes()) {
            Ok(()) => {
                self.unemptied.remove(&file);
                rows::drop_name(write, id, file, at)?;
                Ok(true)
            }
            Err(error) if error.kind() == Some(ErrorKind::DirectoryNotEmpty) => {
                self.hinders(error.to_string());
                let tries = self.unemptied.entry(file).or_default();
                *tries += 1;
                let tries = *tries;
                if tries <= REMOVALS_MAX {
                    self.dirt.lists.insert(file);
                }
                let is_known = !rows::names(&*write, id, file, None, 1)?.is_empty();
                if tries > REMOVALS_MAX && !is_known {
                    self.unemptied.remove(&file);
                    warn!(volume = self.volume.name, %error, "a directory of the tree stays");
                    rows::drop_name(write, id, file, at)?;
                    let now = self.inner.world.clock.moment();
                    self.dirt.note(at.0, at.1.clone(), true, now);
                    self.doubts();
                    return Ok(true);
                }
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }
}
