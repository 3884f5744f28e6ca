//! Which pending updates no longer matter, and which say less than they could.
//! Holds: what is left comes to the same names, contents and attributes as all of it, and each of it
//! finds what it expects; times of directories are those of the last change in them that is left. A
//! directory lets in whom it let in, whatever is done meanwhile.
//! What may not be touched, because it is on its way or somebody waits for it, is not touched.
//! From: partially connected operation, 5.2; the authors' "Peephole Log Optimization" (their
//! reference 8).
//!
//! | of these, in order | is left |
//! | --- | --- |
//! | all of a file that was made here, and its removal | nothing |
//! | the same, where the file had taken the name of another by a rename | the removal of that other |
//! | the same, where it goes because another that was made here is renamed over it | that rename, over what was there before |
//! | attributes of a file, and at once others | one update with both, unless it may be a directory that was used between them |
//! | an extended attribute, and at once another value of it | the latter |
//! | a rename of a file, and a rename of that, at once if it may be a directory | one rename, or none if it goes back |

use model::{AttributeChange, Change, FileId, Kind, Name, Stamp, Update};
use std::collections::{BTreeMap, BTreeSet};

/// A name in a directory.
type Place = (FileId, Name);
/// What a rename or a removal makes go away: a file, and the contents that its writer saw.
type Doomed = (FileId, Option<Stamp>);

/// What is to be done with a log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moot {
    /// Numbers of updates that need not leave, in order.
    pub cancelled: Vec<u64>,
    /// Updates in the place of those that bear the same stamps, in order.
    pub rewritten: Vec<Update>,
}

impl Moot {
    pub fn is_empty(&self) -> bool {
        self.cancelled.is_empty() && self.rewritten.is_empty()
    }
}

/// What of `pending`, all that is pending in order or the first of it, is moot. `may`: whether the
/// update of this number may be cancelled or rewritten.
pub fn moot(pending: &[Update], may: impl Fn(u64) -> bool) -> Moot {
    let mut log = Log {
        may: pending.iter().map(|update| may(update.stamp.number)).collect(),
        pending,
        cancelled: BTreeSet::new(),
        rewritten: BTreeMap::new(),
        files: BTreeMap::new(),
        names: BTreeSet::new(),
        uses: BTreeMap::new(),
        last_at: BTreeMap::new(),
        removed: BTreeMap::new(),
    };
    for at in 0..pending.len() {
        log.look(at);
    }
    let number = |at: &usize| pending[*at].stamp.number;
    let rewritten = log.rewritten.into_iter().filter(|(at, _)| !log.cancelled.contains(at));
    Moot {
        cancelled: log.cancelled.iter().map(number).collect(),
        rewritten: rewritten.map(|(_, update)| update).collect(),
    }
}

/// What is known of a file by the updates that were looked at.
#[derive(Default)]
struct File {
    /// It was made by one of them: nobody else knows of it before that is taken.
    made: Option<Kind>,
    /// What made it has not left either: nobody can have moved it or taken it away.
    alone: bool,
    /// Something was done to it that no rule knows.
    odd: bool,
    /// Updates about it that are left, by their places in the log.
    updates: Vec<usize>,
    /// How many of the names that these updates gave it are left.
    names: usize,
    /// What it took the names of by renames.
    over: Vec<(Place, Doomed)>,
}

#[derive(Default)]
struct Uses {
    /// So many of them are left.
    left: usize,
    /// The last of all.
    last: usize,
}

struct Log<'a> {
    pending: &'a [Update],
    may: Vec<bool>,
    cancelled: BTreeSet<usize>,
    rewritten: BTreeMap<usize, Update>,
    files: BTreeMap<FileId, File>,
    /// Names that these updates gave files and have not taken away. In one set: one for each file
    /// takes several times as much memory.
    names: BTreeSet<(FileId, Place)>,
    /// Which updates name a directory as the place of a name.
    uses: BTreeMap<FileId, Uses>,
    /// Which update touched a name last.
    last_at: BTreeMap<Place, usize>,
    /// Which update took a file's name away last.
    removed: BTreeMap<FileId, usize>,
}

impl Log<'_> {
    fn update(&self, at: usize) -> &Update {
        self.rewritten.get(&at).unwrap_or(&self.pending[at])
    }

    fn file(&mut self, file: FileId) -> &mut File {
        self.files.entry(file).or_default()
    }

    fn give_name(&mut self, file: FileId, place: Place) {
        if self.names.insert((file, place)) {
            self.file(file).names += 1;
        }
    }

    fn take_name(&mut self, file: FileId, place: Place) {
        if self.names.remove(&(file, place)) {
            self.file(file).names -= 1;
        }
    }

    fn look(&mut self, at: usize) {
        self.note_uses(at, &self.pending[at]);
        match self.pending[at].change.clone() {
            Change::Make { parent, name, file, kind, .. } => {
                let alone = self.may[at];
                let made = self.file(file);
                made.made = Some(kind);
                made.alone = alone;
                made.updates.push(at);
                self.give_name(file, (parent, name));
            }
            Change::Link { parent, name, file } => {
                self.file(file).updates.push(at);
                self.give_name(file, (parent, name));
            }
            Change::Unlink { parent, name, file, .. } => self.unlink(at, file, &(parent, name)),
            Change::Rename { exchange: true, file, over, .. } => self.odd(at, file, over),
            Change::Rename { whiteout: Some(_), file, over, .. } => self.odd(at, file, over),
            Change::Rename { file, over, .. } if over == Some(file) => self.odd(at, file, over),
            Change::Rename { from, from_name, to, to_name, file, over, expects, .. } => {
                let over = over.map(|over| (over, expects));
                self.rename(at, file, over, ((from, from_name), (to, to_name)));
            }
            Change::SetAttributes { file, .. } => {
                self.merge_attributes(at, file);
                self.file(file).updates.push(at);
            }
            Change::SetXattr { file, .. } => {
                self.replace_xattr(at, file);
                self.file(file).updates.push(at);
            }
            Change::Store { file, .. } | Change::RemoveXattr { file, .. } => {
                self.file(file).updates.push(at);
            }
        }
        let both = [&self.pending[at], self.update(at)].map(places);
        for place in both.into_iter().flatten() {
            self.last_at.insert(place, at);
        }
    }

    fn note_uses(&mut self, at: usize, update: &Update) {
        for (directory, _) in places(update) {
            let uses = self.uses.entry(directory).or_default();
            (uses.left, uses.last) = (uses.left + 1, at);
        }
    }

    fn odd(&mut self, at: usize, file: FileId, over: Option<FileId>) {
        for file in std::iter::once(file).chain(over) {
            let odd = self.file(file);
            odd.odd = true;
            odd.updates.push(at);
            self.removed.insert(file, at);
        }
    }

    fn unlink(&mut self, at: usize, file: FileId, place: &Place) {
        self.removed.insert(file, at);
        self.file(file).updates.push(at);
        self.take_name(file, place.clone());
        let Some(before) = self.gone(file, place, at) else { return };
        self.cancel_all(file, at);
        match before {
            None => self.cancel(at),
            Some((other, expects)) => {
                let update = self.update(at).clone();
                let (parent, name) = place.clone();
                let change = Change::Unlink { parent, name, file: other, expects };
                self.rewrite(at, Update { change, ..update });
                self.file(other).updates.push(at);
            }
        }
    }

    fn rename(&mut self, at: usize, file: FileId, over: Option<Doomed>, way: (Place, Place)) {
        let (from, to) = way;
        let mut over = over;
        if let Some((replaced, _)) = over {
            self.removed.insert(replaced, at);
            self.take_name(replaced, to.clone());
            // Renamed over another name of itself, nothing would be done.
            let is_itself = |before: &Option<Doomed>| before.is_some_and(|(it, _)| it == file);
            let gone = self.gone(replaced, &to, at).filter(|before| !is_itself(before));
            // A rename that others can keep from being done leaves what it was to replace.
            let is_done = self.files.get(&file).is_some_and(|moved| moved.alone);
            match gone.filter(|_| is_done) {
                Some(before) => {
                    self.cancel_all(replaced, at);
                    self.rewrite_rename(at, &from, before);
                    over = before;
                }
                None => {
                    // It has other names, is not this log's alone, or may be left: this rename is
                    // another file's.
                    let stays = self.file(replaced);
                    stays.updates.push(at);
                    stays.odd = true;
                }
            }
            if let Some((before, _)) = over.filter(|(before, _)| *before != replaced) {
                self.file(before).updates.push(at);
            }
        }
        if !self.follow_on(at, file, over, (&from, &to)) {
            let moved = self.file(file);
            moved.updates.push(at);
            moved.over.extend(over.map(|over| (to.clone(), over)));
        }
        let moved = self.file(file);
        // The name that it took may be another's by the time that it goes.
        moved.odd |= moved.over.iter().any(|(taken, _)| *taken == from);
        self.take_name(file, from);
        self.give_name(file, to);
    }

    /// A file has lost its last name at `place` by the update `at`: what had that name before it, if
    /// all that was done to the file may be cancelled. None: it may not.
    fn gone(&self, file: FileId, place: &Place, at: usize) -> Option<Option<Doomed>> {
        let gone = self.files.get(&file)?;
        let may = |at: &usize| self.may[*at];
        let is_free = gone.made.is_some()
            && !gone.odd
            && gone.names == 0
            && self.may[at]
            && gone.updates.iter().all(may)
            && self.uses.get(&file).is_none_or(|uses| uses.left == 0);
        if !is_free {
            return None;
        }
        match gone.over.as_slice() {
            [] => Some(None),
            [(taken, other)] if taken == place => Some(Some(*other)),
            _ => None,
        }
    }

    /// Cancels all that was done to a file, but for the update `last`.
    fn cancel_all(&mut self, file: FileId, last: usize) {
        let Some(gone) = self.files.remove(&file) else { return };
        for at in gone.updates.into_iter().filter(|at| *at != last) {
            self.cancel(at);
        }
    }

    fn cancel(&mut self, at: usize) {
        if !self.cancelled.insert(at) {
            return;
        }
        let update = self.update(at).clone();
        self.unuse(&update);
        for file in subjects(&update) {
            if let Some(file) = self.files.get_mut(&file) {
                file.updates.retain(|other| *other != at);
            }
        }
    }

    fn unuse(&mut self, update: &Update) {
        for (directory, _) in places(update) {
            if let Some(uses) = self.uses.get_mut(&directory) {
                uses.left = uses.left.saturating_sub(1);
            }
        }
    }

    fn rewrite(&mut self, at: usize, update: Update) {
        let before = self.update(at).clone();
        self.unuse(&before);
        self.note_uses(at, &update);
        self.rewritten.insert(at, update);
    }

    fn rewrite_rename(&mut self, at: usize, from: &Place, doomed: Option<Doomed>) {
        let mut update = self.update(at).clone();
        if let Change::Rename { from: directory, from_name, over, expects, .. } = &mut update.change
        {
            (*directory, *from_name) = from.clone();
            *over = doomed.map(|(file, _)| file);
            *expects = doomed.and_then(|(_, expects)| expects);
        }
        self.rewrite(at, update);
    }

    /// A rename of what was just renamed: one will do. True: that has been seen to, and `at` is
    /// among the updates of the file, or cancelled.
    fn follow_on(
        &mut self,
        at: usize,
        file: FileId,
        over: Option<Doomed>,
        (from, to): (&Place, &Place),
    ) -> bool {
        let Some(before) = self.last_of(file).filter(|before| self.may_both(*before, at)) else {
            return false;
        };
        let Change::Rename {
            from: directory,
            from_name,
            to: middle,
            to_name,
            file: moved,
            over: None,
            exchange: false,
            whiteout: None,
            ..
        } = self.update(before).change.clone()
        else {
            return false;
        };
        let first = (directory, from_name);
        let is_plain = match self.files.get(&file).and_then(|file| file.made) {
            Some(kind) => kind != Kind::Directory,
            // It may be a directory, into which others have come since, or into what it left; and who
            // may see what lies in it goes by where it is itself.
            None => before + 1 == at,
        };
        let follows = moved == file
            && (middle, to_name) == *from
            && self.last_at.get(&first) == Some(&before)
            && self.last_at.get(from) == Some(&before)
            && self.removed.get(&directory).is_none_or(|removed| *removed < before);
        if !is_plain || !follows {
            return false;
        }
        if first == *to {
            if over.is_some() {
                return false;
            }
            self.cancel(before);
            self.cancel(at);
            return true;
        }
        self.cancel(before);
        self.rewrite_rename(at, &first, over);
        let moved = self.file(file);
        moved.updates.push(at);
        moved.over.extend(over.map(|over| (to.clone(), over)));
        true
    }

    fn merge_attributes(&mut self, at: usize, file: FileId) {
        let Some(before) = self.last_of(file).filter(|before| self.may_both(*before, at)) else {
            return;
        };
        let (first, mut then) = (self.update(before).clone(), self.update(at).clone());
        let Change::SetAttributes { expects: base, set: earlier, .. } = first.change else {
            return;
        };
        let Change::SetAttributes { expects, set, .. } = &mut then.change else { return };
        // Who gives a file away loses bits of its mode by that, in the order in which it is done.
        let gives = [&earlier, &*set].iter().any(|set| set.uid.is_some() || set.gid.is_some());
        if *expects != first.stamp || gives || self.is_between(before, at, file, &earlier) {
            return;
        }
        *expects = base;
        set.mode = set.mode.or(earlier.mode);
        set.atime = set.atime.or(earlier.atime);
        set.mtime = set.mtime.or(earlier.mtime);
        self.cancel(before);
        self.rewrite(at, then);
    }

    /// What was set of a directory counts for what is done between two updates: who may go in, and
    /// what times it has since.
    fn is_between(&self, before: usize, at: usize, file: FileId, set: &AttributeChange) -> bool {
        let made = self.files.get(&file).and_then(|file| file.made);
        if made.is_some_and(|kind| kind != Kind::Directory) {
            return false;
        }
        // What lies deeper in it does not name it.
        let lets_in = set.mode.is_some() && before + 1 < at;
        lets_in || self.uses.get(&file).is_some_and(|uses| uses.last > before)
    }

    fn replace_xattr(&mut self, at: usize, file: FileId) {
        let Some(before) = self.last_of(file).filter(|before| self.may_both(*before, at)) else {
            return;
        };
        let (first, mut then) = (self.update(before).clone(), self.update(at).clone());
        let Change::SetXattr { name: earlier, expects: base, .. } = first.change else { return };
        let Change::SetXattr { name: later, expects, .. } = &mut then.change else { return };
        // Those of the system change the mode too.
        if earlier != *later || later.starts_with(b"system.") {
            return;
        }
        // What the first had seen; a record of an earlier version says nothing of it.
        *expects = expects.and(base);
        self.cancel(before);
        self.rewrite(at, then);
    }

    /// The last update about a file that is left.
    fn last_of(&self, file: FileId) -> Option<usize> {
        self.files.get(&file)?.updates.last().copied()
    }

    /// Both may be touched, and are one user's.
    fn may_both(&self, before: usize, at: usize) -> bool {
        self.may[before] && self.may[at] && self.update(before).uid == self.update(at).uid
    }
}

/// The names that an update takes or gives.
fn places(update: &Update) -> Vec<Place> {
    match &update.change {
        Change::Make { parent, name, .. }
        | Change::Link { parent, name, .. }
        | Change::Unlink { parent, name, .. } => vec![(*parent, name.clone())],
        Change::Rename { from, from_name, to, to_name, .. } => {
            vec![(*from, from_name.clone()), (*to, to_name.clone())]
        }
        _ => Vec::new(),
    }
}

/// The files that an update is about.
fn subjects(update: &Update) -> Vec<FileId> {
    match &update.change {
        Change::Make { file, .. }
        | Change::Link { file, .. }
        | Change::Unlink { file, .. }
        | Change::Store { file, .. }
        | Change::SetAttributes { file, .. }
        | Change::SetXattr { file, .. }
        | Change::RemoveXattr { file, .. } => vec![*file],
        Change::Rename { file, over, .. } => std::iter::once(*file).chain(*over).collect(),
    }
}

#[cfg(test)]
mod tests;
