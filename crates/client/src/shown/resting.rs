//! What is pending and rests on updates that were turned down, or on what the replica above says now
//! of some files, as far as it goes by files and names: with very many pending updates it is a few
//! that have to be shown anew, and not all.
//! Holds: of these files and names the same shows as if all that is pending were shown anew, if all
//! of it showed before; what else rests on what was turned down shows until its own verdict; where
//! that cannot be held, or more rests on it than is quickly found, it is said, and all is shown anew.

use super::Error;
use super::Unshown;
use crate::effects::{effects_of_pending, shows_nothing};
use crate::meta::Taken;
use model::{Change, Effects, FileId, Kind, Name, Problem, Update, View};
use std::collections::{BTreeMap, BTreeSet};
use store::{Read, Write};
use update_log::{UpdateLog, subjects};
use volume::partial::{self, Missing, Touched, Tree};

/// When more rests on what was turned down, all is shown anew.
const UPDATES_MAX: usize = 4096;
/// Updates that are looked at between the one that was turned down and the one by which a name shows:
/// what had the name meanwhile is not in any index.
const BETWEEN_MAX: usize = 1024;

/// The files and names that updates touched which were turned down, and that others touched which
/// touch the same; and those others, which are pending.
#[derive(Default)]
pub(super) struct Resting {
    files: BTreeSet<FileId>,
    entries: BTreeSet<(FileId, Name)>,
    updates: BTreeMap<u64, Update>,
    /// Were to be made by what was turned down.
    unmade: BTreeSet<FileId>,
    /// Nothing was turned down: what meets a problem meets what the replica above says by now.
    is_news: bool,
}

impl Resting {
    /// What rests on `gone`, which is pending no more. None: what is pending has to be looked at
    /// as a whole.
    pub fn on(read: &dyn Read, log: &UpdateLog, gone: &[Update]) -> Result<Option<Resting>, Error> {
        let tree = Tree::new(read, 0);
        let numbers: BTreeSet<u64> = gone.iter().map(|update| update.stamp.number).collect();
        let unmade = gone.iter().filter_map(Update::makes).collect();
        let resting = Resting { unmade, ..Resting::default() };
        for update in gone {
            // What earlier updates that are pending did to it does not show by itself.
            for file in Touched::by(update).nodes {
                let shown_by = tree.shown_by(file).map_err(failed)?;
                if !is_subject(update, file) && shown_by.is_some_and(|by| numbers.contains(&by)) {
                    return Ok(None);
                }
            }
        }
        resting.gather(&tree, log, gone.to_vec())
    }

    /// What is pending of these files, and rests on that. None: as above.
    pub fn of(
        read: &dyn Read,
        log: &UpdateLog,
        files: &[FileId],
    ) -> Result<Option<Resting>, Error> {
        let mut resting = Resting { is_news: true, ..Resting::default() };
        let mut left = Vec::new();
        for file in files {
            for (number, _) in log.of_file(*file).take(UPDATES_MAX) {
                left.extend(resting.take(log, number)?);
            }
        }
        resting.gather(&Tree::new(read, 0), log, left)
    }

    /// With all that touches what these touch.
    fn gather(
        mut self,
        tree: &Tree<'_>,
        log: &UpdateLog,
        mut left: Vec<Update>,
    ) -> Result<Option<Resting>, Error> {
        while let Some(update) = left.pop() {
            let mut files: Vec<FileId> = subjects(&update).map(|(file, _)| file).collect();
            for (directory, name) in Touched::by(&update).entries {
                let (by, said) = tree.entry_shown_by(directory, &name).map_err(failed)?;
                files.extend(said);
                if self.entries.insert((directory, name.clone()))
                    && let Some(by) = by
                {
                    let Some(between) = between(log, update.stamp.number, by) else {
                        return Ok(None);
                    };
                    for number in between {
                        left.extend(self.take_of_name(log, number, (directory, &name))?);
                    }
                    left.extend(self.take(log, by)?);
                }
            }
            for file in files {
                if !self.files.insert(file) {
                    continue;
                }
                // Its names are touched by others, and rest on it.
                if is_directory(tree, file)? {
                    return Ok(None);
                }
                let numbers: Vec<u64> =
                    log.of_file(file).map(|(number, _)| number).take(UPDATES_MAX).collect();
                for number in numbers {
                    left.extend(self.take(log, number)?);
                }
            }
            let makes_directory =
                matches!(update.change, Change::Make { kind: Kind::Directory, .. });
            if makes_directory || self.updates.len() >= UPDATES_MAX {
                return Ok(None);
            }
        }
        Ok(Some(self))
    }

    /// An update is among them. None: it was before, or is not pending.
    fn take(&mut self, log: &UpdateLog, number: u64) -> Result<Option<Update>, Error> {
        if self.updates.contains_key(&number) {
            return Ok(None);
        }
        let update = log.get(number)?;
        self.updates.extend(update.clone().map(|update| (number, update)));
        Ok(update)
    }

    /// The same, if it touches this name.
    fn take_of_name(
        &mut self,
        log: &UpdateLog,
        number: u64,
        (directory, name): (FileId, &Name),
    ) -> Result<Option<Update>, Error> {
        let touches = |update: &Update| {
            Touched::by(update).entries.iter().any(|(at, other)| *at == directory && other == name)
        };
        match log.get(number)?.is_some_and(|update| touches(&update)) {
            true => self.take(log, number),
            false => Ok(None),
        }
    }

    pub fn files(&self) -> impl Iterator<Item = FileId> {
        self.files.iter().copied()
    }

    /// Whether one of them is gone above and shows only by what is pending, which brings it back: shown anew
    /// it would not.
    pub fn has_what_is_gone_above(&self, read: &dyn Read) -> Result<bool, Error> {
        let tree = Tree::new(read, 0);
        let made: BTreeSet<FileId> = self.updates.values().filter_map(Update::makes).collect();
        for file in self.files.difference(&made) {
            let is_said = tree.said(*file).map_err(failed)?.is_some();
            if !is_said && matches!(tree.node(*file), Ok(Some(_))) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Shows them anew, and gives back which cannot be shown. `taken`: these updates are part of what the
    /// replica above said. None: one meets what none of them has done; nothing of this may be committed.
    pub fn show(
        mut self: Resting,
        write: &mut dyn Write,
        taken: &Taken,
        epoch: u32,
    ) -> Result<Option<Unshown>, Error> {
        let mut unshown = Unshown::default();
        let touched = Touched {
            nodes: self.files.iter().copied().collect(),
            entries: self.entries.iter().cloned().collect(),
        };
        partial::forget_local(write, u64::MAX, &touched).map_err(failed)?;
        for (number, update) in std::mem::take(&mut self.updates) {
            if taken.has(number) {
                continue;
            }
            let tree = Tree::new(&*write as &dyn Read, 0);
            let effects = match effects_of_pending(&update, &tree) {
                Ok(Ok(effects)) => effects,
                Ok(Err(problem)) if self.is_news || self.is_due(&update, &problem) => {
                    self.unmade.extend(update.makes());
                    unshown.rests(&update);
                    continue;
                }
                Ok(Err(_)) => return Ok(None),
                Err(missing) if missing.file().is_some() => return Ok(None),
                Err(missing) => return Err(failed(missing)),
            };
            if shows_nothing(&update, &effects) {
                unshown.rests(&update);
            }
            let effects = self.of_these(effects, &tree, number)?;
            partial::apply_local(write, number, &effects, epoch).map_err(failed)?;
        }
        Ok(Some(unshown))
    }

    /// A problem that an update meets because of what was turned down.
    fn is_due(&self, update: &Update, problem: &Problem) -> bool {
        let own = |file: &FileId| is_subject(update, *file);
        let unmade = subjects(update).any(|(file, _)| self.unmade.contains(&file));
        unmade
            || match problem {
                Problem::AttributesChanged { file, .. }
                | Problem::NoXattr(file)
                | Problem::NoFile(file) => own(file),
                _ => false,
            }
    }

    /// What a later update made of a directory shows already.
    fn of_these(
        &self,
        mut effects: Effects,
        tree: &Tree<'_>,
        number: u64,
    ) -> Result<Effects, Error> {
        let mut later = BTreeSet::new();
        for file in effects.nodes.keys().filter(|file| !self.files.contains(file)) {
            if tree.shown_by(*file).map_err(failed)?.is_some_and(|by| by >= number) {
                later.insert(*file);
            }
        }
        effects.nodes.retain(|file, _| !later.contains(file));
        Ok(effects)
    }
}

/// What is pending between two updates. None: it is too much to look at.
fn between(log: &UpdateLog, from: u64, to: u64) -> Option<Vec<u64>> {
    let numbers = log.numbers_from(from.saturating_add(1)).take_while(|number| *number < to);
    let numbers: Vec<u64> = numbers.take(BETWEEN_MAX + 1).collect();
    (numbers.len() <= BETWEEN_MAX).then_some(numbers)
}

fn is_subject(update: &Update, file: FileId) -> bool {
    subjects(update).any(|(subject, _)| subject == file)
}

fn is_directory(tree: &Tree<'_>, file: FileId) -> Result<bool, Error> {
    let shown = match tree.node(file) {
        Ok(node) => node,
        Err(missing) if missing.file().is_some() => None,
        Err(missing) => return Err(failed(missing)),
    };
    let said = tree.said(file).map_err(failed)?;
    Ok(shown.into_iter().chain(said).any(|node| node.kind == Kind::Directory))
}

fn failed(missing: Missing) -> Error {
    Error::Failed(missing.to_string())
}

#[cfg(test)]
mod tests;
