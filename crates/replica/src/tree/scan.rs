//! Looking at a tree: what is there, against what was agreed on.

use super::barred::Way;
use super::commit::{Agree, At, Step};
use super::dirt::Since;
use super::intake::{has_xattrs_of, own_xattrs};
use super::keeper::Keeper;
use super::recover::Staging;
use super::rows::{self, Known, STAGE_NAME};
use crate::error::Result;
use model::{FileId, Kind, Name};
use std::collections::BTreeSet;
use store::tree::{Directory, Event, Sort, Stat};
use tracing::warn;

/// Names that are read from the tables at once.
const NAMES_MAX: usize = 1000;
/// Steps that are committed together.
pub(super) const STEPS_MAX: usize = 200;

/// What was seen under a name.
#[derive(Clone, Debug)]
pub(super) struct Look {
    pub at: At,
    pub known: Option<(FileId, Known)>,
    pub stat: Option<Stat>,
    pub since: Since,
}

/// What a look means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sight {
    Same,
    /// Something that was nowhere in the tree before.
    Fresh,
    /// The same file, changed.
    Changed,
    /// A file has come or gone, and may have gone somewhere else, or come from there.
    Moved,
}

/// `elsewhere`: the file that is seen is known under other names.
pub(super) fn sight(known: Option<&Known>, stat: Option<&Stat>, elsewhere: bool) -> Sight {
    match (known, stat) {
        (None, None) => Sight::Same,
        (Some(known), Some(stat)) if known.is_as_was(stat) => Sight::Same,
        (Some(known), Some(stat)) if known.is(stat) => Sight::Changed,
        (None, Some(_)) if !elsewhere => Sight::Fresh,
        _ => Sight::Moved,
    }
}

/// Whether steps that are not committed yet tell of the file: what they make of it is not in the
/// tables, and another of its names must not be taken for another file.
fn tells_of(steps: &[Step], stat: &Stat) -> bool {
    steps.iter().any(|step| match &step.agree {
        Agree::Is { known, .. } | Agree::Looks { known, .. } => known.is(stat),
        _ => false,
    })
}

impl Keeper {
    /// Notes what others did since the last time.
    pub(super) fn take_events(&mut self) -> Result<()> {
        let now = self.inner.world.clock.moment();
        for event in self.watch.events()? {
            self.stirred = true;
            match event {
                Event::Name { watch, name, whole } => {
                    let directory = self.watched.get(&watch).copied();
                    if let (Some(directory), Ok(name)) = (directory, Name::new(name))
                        && !is_stage(directory, &name)
                    {
                        self.dirt.note(directory, name, whole, now);
                    }
                }
                Event::Itself { watch, whole } => {
                    if let Some(file) = self.watched.get(&watch).copied() {
                        self.note_names(file, whole)?;
                    }
                }
                Event::Gone { watch } => {
                    if let Some(file) = self.watched.remove(&watch) {
                        self.listed.remove(&file);
                    }
                    self.patrol.linked.remove(&watch);
                }
                Event::Lost => {
                    warn!(
                        volume = self.volume.name,
                        "events of the tree were lost: looking at all"
                    );
                    self.dirt.everything = true;
                    self.doubts();
                }
            }
        }
        Ok(())
    }

    /// A file is to be looked at under the names that it had.
    pub(super) fn note_file(&mut self, file: FileId) -> Result<Vec<At>> {
        self.note_names(file, false)
    }

    fn note_names(&mut self, file: FileId, whole: bool) -> Result<Vec<At>> {
        let now = self.inner.world.clock.moment();
        if file == FileId::ROOT {
            self.root_noted = true;
            return Ok(Vec::new());
        }
        let read = self.inner.tables.read()?;
        let known = rows::known(&*read, self.volume.id, file)?;
        drop(read);
        let names = known.map_or(Vec::new(), |known| known.names);
        for (directory, name) in &names {
            self.dirt.note(*directory, name.clone(), whole, now);
        }
        Ok(names)
    }

    /// The directory as it was agreed on. None: it is not there any more.
    pub(super) fn directory(&self, directory: FileId) -> Result<Option<Directory>> {
        let read = self.inner.tables.read()?;
        self.directory_in(&*read, directory)
    }

    pub(super) fn directory_in(
        &self,
        read: &dyn store::Read,
        directory: FileId,
    ) -> Result<Option<Directory>> {
        let Some(path) = rows::path(read, self.volume.id, directory)? else { return Ok(None) };
        let Some(opened) = self.tree.directory(&path)? else { return Ok(None) };
        if directory == FileId::ROOT || directory == rows::STAGE {
            return Ok(Some(opened));
        }
        let known = rows::known(read, self.volume.id, directory)?;
        let stat = opened.own_stat()?;
        Ok(known.filter(|known| known.is(&stat)).map(|_| opened))
    }

    /// Looks at a name, and sees to it that it is taken in now or later.
    pub(super) fn look(
        &mut self,
        opened: &Directory,
        at: At,
        since: Since,
        steps: &mut Vec<Step>,
        moved: &mut Vec<Look>,
    ) -> Result<()> {
        if is_stage(at.0, &at.1) {
            return Ok(());
        }
        let stat = opened.stat(at.1.as_bytes())?;
        if let Some(stat) = stat.filter(|stat| stat.sort == Sort::Directory)
            && stat.device != opened.own_stat()?.device
        {
            // Another file system is mounted there: what it hides is not gone.
            return Ok(());
        }
        let read = self.inner.tables.read()?;
        let id = self.volume.id;
        let known = match rows::named(&*read, id, at.0, &at.1)? {
            Some(file) => rows::known(&*read, id, file)?.map(|known| (file, known)),
            None => None,
        };
        let is_taken_in = stat.as_ref().is_some_and(|stat| tells_of(steps, stat));
        let elsewhere = match &stat {
            Some(stat) => is_taken_in || rows::numbered(&*read, id, stat)?.is_some(),
            None => false,
        };
        drop(read);
        let look = Look { at, known, stat, since };
        let known = look.known.as_ref().map(|(_, known)| known);
        let mut seen = sight(known, look.stat.as_ref(), elsewhere);
        if seen == Sight::Same && self.has_other_xattrs(opened, &look)? {
            seen = Sight::Changed;
        }
        if matches!(seen, Sight::Fresh | Sight::Moved) && !elsewhere {
            if self.stands_for_another(&look)? {
                moved.push(look);
                return Ok(());
            }
            match self.was_staged(&look, steps)? {
                Staging::Not => {}
                Staging::Here => return Ok(()),
                Staging::Moved => {
                    moved.push(look);
                    return Ok(());
                }
            }
        }
        match seen {
            Sight::Same => {
                self.list_if_new(&look);
                Ok(())
            }
            Sight::Fresh => self.fresh(opened, &look, steps),
            Sight::Changed if is_taken_in => {
                // Under another of its names: here it is looked at when that is committed.
                self.dirt.wait(look.at.0, look.at.1, since, since.due);
                Ok(())
            }
            Sight::Changed if self.recovers => self.half_dressed(opened, &look, steps),
            Sight::Changed => self.changed(opened, &look, steps),
            Sight::Moved => {
                moved.push(look);
                Ok(())
            }
        }
    }

    /// Looks at all that is in a directory, and is told of changes from then on.
    /// False: it is not where it was.
    pub(super) fn list(&mut self, directory: FileId, moved: &mut Vec<Look>) -> Result<bool> {
        let opened = match self.way(directory)? {
            Way::Open(opened) => opened,
            Way::Astray => {
                self.barred.forget(directory);
                return Ok(false);
            }
            Way::Barred => return Ok(true),
        };
        let listed = self.list_opened(directory, &opened, moved);
        if self.unless_barred(directory, listed)?.is_some() {
            self.listed.insert(directory);
            self.unbar(directory);
        }
        Ok(true)
    }

    fn list_opened(
        &mut self,
        directory: FileId,
        opened: &Directory,
        moved: &mut Vec<Look>,
    ) -> Result<()> {
        // Before its names are read, so that none is missed.
        self.watch_directory(directory, opened)?;
        let now = self.inner.world.clock.moment();
        let since = Since { at: now, whole: false, due: now };
        let mut steps = Vec::new();
        let mut seen = BTreeSet::new();
        for name in opened.names()? {
            let Ok(name) = Name::new(name) else { continue };
            seen.insert(name.clone());
            self.look(opened, (directory, name), since, &mut steps, moved)?;
            if steps.len() >= STEPS_MAX {
                self.flush(&mut steps)?;
            }
        }
        self.flush(&mut steps)?;
        let mut after: Option<Name> = None;
        loop {
            let read = self.inner.tables.read()?;
            let page = rows::names(&*read, self.volume.id, directory, after.as_ref(), NAMES_MAX)?;
            drop(read);
            let Some((last, _)) = page.last() else { break };
            after = Some(last.clone());
            for (name, _) in page {
                if !seen.contains(&name) {
                    self.look(opened, (directory, name), since, &mut steps, moved)?;
                }
            }
        }
        self.flush(&mut steps)
    }

    /// Of a directory: its times do not tell.
    fn has_other_xattrs(&self, opened: &Directory, look: &Look) -> Result<bool> {
        let (Some((_, known)), Some(stat)) = (&look.known, &look.stat) else { return Ok(false) };
        if known.kind != Kind::Directory || !self.has_xattrs {
            return Ok(false);
        }
        let own = own_xattrs(opened, look.at.1.as_bytes(), stat)?;
        Ok(own.is_some_and(|own| !has_xattrs_of(known, own.as_ref())))
    }

    /// A directory that is known and was never listed is listed.
    fn list_if_new(&mut self, look: &Look) {
        if let Some((file, known)) = &look.known
            && known.kind == Kind::Directory
            && !self.listed.contains(file)
            && !self.unwatched
            // The first look at everything lists all.
            && !self.recovers
        {
            self.dirt.lists.insert(*file);
        }
    }

    fn watch_directory(&mut self, directory: FileId, opened: &Directory) -> Result<()> {
        match self.watch.add(opened)? {
            Some(watch) => {
                self.watched.insert(watch, directory);
            }
            None if !self.unwatched => {
                self.unwatched = true;
                let hint = "sysctl fs.inotify.max_user_watches=1000000";
                warn!(
                    volume = self.volume.name,
                    hint, "the machine watches no more directories: changes are found by looking"
                );
            }
            None => {}
        }
        Ok(())
    }
}

pub(super) fn is_stage(directory: FileId, name: &Name) -> bool {
    directory == FileId::ROOT && name.as_bytes() == STAGE_NAME
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(ino: u64, size: u64, changed: i64) -> Stat {
        Stat {
            ino,
            born: Some((1, ino as u32)),
            device: 1,
            sort: Sort::File,
            mode: 0o644,
            uid: 1,
            gid: 1,
            size,
            links: 1,
            rdev: 0,
            mtime: (5, 0),
            ctime: (changed, 0),
        }
    }

    #[test]
    fn a_look_tells_what_became_of_a_name() {
        let known = Known::seen(&stat(7, 3, 9));
        let check = |known, seen: Option<Stat>, elsewhere| sight(known, seen.as_ref(), elsewhere);
        assert_eq!(check(None, None, false), Sight::Same);
        assert_eq!(check(Some(&known), Some(stat(7, 3, 9)), true), Sight::Same);
        assert_eq!(check(Some(&known), Some(stat(7, 3, 10)), true), Sight::Changed);
        assert_eq!(check(Some(&known), Some(stat(8, 3, 9)), false), Sight::Moved);
        assert_eq!(check(Some(&known), None, false), Sight::Moved);
        assert_eq!(check(None, Some(stat(8, 3, 9)), false), Sight::Fresh);
        assert_eq!(check(None, Some(stat(7, 3, 9)), true), Sight::Moved);
    }

    #[test]
    fn a_number_that_is_used_again_is_another_file() {
        let known = Known::seen(&stat(7, 3, 9));
        let again = Stat { born: Some((2, 0)), ..stat(7, 3, 9) };
        assert_eq!(sight(Some(&known), Some(&again), false), Sight::Moved);
    }
}
