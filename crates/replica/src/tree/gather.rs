//! One go over all that was noted: looking at it, and settling what came and what went.
//! Holds: what cannot be looked at because its directory is no longer where it was stays noted
//! until that is found elsewhere or is gone; nothing is taken for removed before all was looked
//! at that was told of until then.

use super::barred::Way;
use super::commit::At;
use super::dirt::Since;
use super::keeper::Keeper;
use super::recover::Staging;
use super::rows;
use super::scan::{Look, STEPS_MAX};
use crate::error::{ReplicaError, Result};
use model::FileId;
use std::collections::{BTreeMap, BTreeSet};
use store::tree::Sort;

/// So often what was told of meanwhile is looked at, too, before what is missing is settled.
const PASSES_MAX: usize = 6;
/// Directories in directories that are followed.
const DEPTH_MAX: usize = 4096;

/// What could not be looked at: the directory is not where it was.
#[derive(Default)]
struct Astray {
    names: BTreeMap<At, Since>,
    /// Those that the names are in: there may be as many of both as are noted.
    directories: BTreeSet<FileId>,
    lists: BTreeSet<FileId>,
}

impl Astray {
    /// True: it is the first name of its directory.
    fn note(&mut self, at: At, since: Since) -> bool {
        let is_first = self.directories.insert(at.0);
        self.names.insert(at, since);
        is_first
    }
}

impl Keeper {
    /// Looks at all that was noted and is due.
    pub(super) fn take_in(&mut self) -> Result<()> {
        let mut moved = Vec::new();
        let mut astray = Astray::default();
        let now = self.inner.world.clock.moment();
        for _ in 0..PASSES_MAX {
            self.look_at_noted(&mut moved, &mut astray)?;
            // Where a file that was missed has gone is told of by now.
            self.take_events()?;
            let is_due = self.dirt.next().is_some_and(|due| due <= now);
            if !is_due && self.dirt.lists.is_empty() {
                break;
            }
        }
        // The last look at a name counts.
        let mut once = BTreeSet::new();
        moved.reverse();
        moved.retain(|look: &Look| once.insert(look.at.clone()));
        self.settle_staged(&moved, Staging::Moved)?;
        self.settle_arrivals(&moved)?;
        if self.settle_staged(&moved, Staging::Here)? {
            self.settle_arrivals(&moved)?;
        }
        if self.return_astray(astray)? {
            // What is missing elsewhere may have come to where nobody could look.
            for Look { at, since, .. } in moved {
                self.dirt.wait(at.0, at.1, since, since.due);
            }
            return Ok(());
        }
        self.settle_rest(moved)
    }

    fn look_at_noted(&mut self, moved: &mut Vec<Look>, astray: &mut Astray) -> Result<()> {
        let mut steps = Vec::new();
        let mut last: Option<(FileId, Way)> = None;
        for (at, since) in self.dirt.take(self.inner.world.clock.moment()) {
            if last.as_ref().is_none_or(|(directory, _)| *directory != at.0) {
                last = Some((at.0, self.way(at.0)?));
            }
            match &last {
                Some((directory, Way::Open(opened))) => {
                    let looked = self.look(opened, at, since, &mut steps, moved);
                    self.unless_barred(*directory, looked)?;
                }
                Some((_, Way::Barred)) => {}
                _ => {
                    let directory = at.0;
                    if astray.note(at, since) {
                        self.note_way(directory)?;
                    }
                }
            }
            if steps.len() >= STEPS_MAX {
                self.flush(&mut steps)?;
            }
        }
        self.flush(&mut steps)?;
        self.root_changed()?;
        while let Some(directory) = self.dirt.lists.pop_first() {
            if !self.list(directory, moved)? {
                self.note_way(directory)?;
                astray.lists.insert(directory);
            }
        }
        Ok(())
    }

    /// What was astray is noted again, unless its directory is gone with all that was in it.
    /// True: some of it can be looked at by now.
    fn return_astray(&mut self, astray: Astray) -> Result<bool> {
        let mut found = false;
        if !astray.names.is_empty() || !astray.lists.is_empty() {
            self.doubts();
        }
        for (at, since) in astray.names {
            match self.way(at.0)? {
                Way::Open(_) => found = true,
                Way::Astray if self.note_way(at.0)? => {}
                Way::Astray | Way::Barred => continue,
            }
            self.dirt.wait(at.0, at.1, since, since.due);
        }
        for directory in astray.lists {
            match self.way(directory)? {
                Way::Open(_) => found = true,
                Way::Astray if self.note_way(directory)? => {}
                Way::Astray | Way::Barred => continue,
            }
            self.dirt.lists.insert(directory);
        }
        Ok(found)
    }

    /// A directory is not where it was: the name on its way that is another's by now is looked
    /// at. False: there is nothing to wait for.
    pub(super) fn note_way(&mut self, directory: FileId) -> Result<bool> {
        let now = self.inner.world.clock.moment();
        let mut below = directory;
        for _ in 0..DEPTH_MAX {
            let read = self.inner.tables.read()?;
            let known = rows::known(&*read, self.volume.id, below)?;
            drop(read);
            let Some((above, name)) = known.and_then(|known| known.names.into_iter().next()) else {
                return Ok(false);
            };
            let opened = match self.way(above)? {
                Way::Open(opened) => opened,
                Way::Astray => {
                    below = above;
                    continue;
                }
                Way::Barred => {
                    self.bar(directory)?;
                    return Ok(false);
                }
            };
            let stat = opened.stat(name.as_bytes()).map_err(ReplicaError::from);
            let Some(stat) = self.unless_barred(directory, stat)? else { return Ok(false) };
            if let Some(stat) = stat.filter(|stat| stat.sort == Sort::Directory)
                && stat.device != opened.own_stat()?.device
            {
                // Another file system hides it.
                return Ok(false);
            }
            self.dirt.note(above, name, false, now);
            return Ok(true);
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Name;

    #[test]
    fn of_each_directory_that_is_astray_the_first_name_is_known_as_that() {
        let now = world::World::simulated(0, 1).clock.moment();
        let since = Since { at: now, whole: true, due: now };
        let mut astray = Astray::default();
        let mut first =
            |directory, name| astray.note((FileId(directory), Name::new(name).unwrap()), since);
        assert!(first(7, "b") && first(5, "b"));
        assert!(!first(7, "a") && !first(7, "b") && !first(5, "a"));
        assert_eq!((astray.names.len(), astray.directories.len()), (4, 2));
    }
}
