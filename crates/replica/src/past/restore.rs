//! Bringing an earlier state back: what was is made again, or becomes the newest version.
//! Holds: contents are named and do not travel; what is replaced stays among the versions; a
//! directory is brought back a bounded number of updates at a time, and what came into it since
//! stays. Asked for once more after it was interrupted, it does the rest.

mod attributes;
mod meant;

use super::history::{path_of, shown};
use super::rights::{SEARCH, WRITE, group_within, hidden, may, settable};
use super::{Told, commit};
use crate::error::Result;
use crate::origin::Inner;
use crate::take::exceeds;
use crate::volumes::Volume;
use meant::{file_then, position_meant, version_of};
use model::{
    Change, FileId, Kind, Name, Node, Quota, ReplicaId, Seq, Stamp, Time, Update, View,
    control_name, judge,
};
use protocol::past::{By, Found, NotFound, PATH_NAMES_MAX, Restore, Restored, Then};
use std::collections::BTreeMap;
use volume::whole::{Committer, Touched, Whole};

/// Files in one transaction, about.
const FILES_MAX: usize = 500;
/// Entries of a directory that are read at once.
const ENTRIES_MAX: usize = 500;
/// Names of a file that are looked at for one that is left.
const NAMES_MAX: usize = 1000;
/// Files with more than one name that are remembered, so that they have them again.
const LINKED_MAX: usize = 1_000_000;

/// A restoration under way.
pub(super) struct Restoring {
    /// The position that it goes by.
    then: Seq,
    by: By,
    /// What is of another kind now is replaced, unless the one or the other is a directory.
    over_others: bool,
    now: Time,
    left: Vec<Item>,
    /// What is brought back as a whole, and the path that it gets.
    whole: (FileId, Vec<Name>),
    /// What files with several names were made as.
    linked: BTreeMap<FileId, FileId>,
    quota: Option<Quota>,
    done: Restored,
    touched: Touched,
}

enum Item {
    /// A file of then, and where it is to be.
    Put { file: FileId, node: Node, to: (FileId, Name), path: Vec<Name> },
    /// What was in a directory, after a name.
    Within { file: FileId, now: FileId, after: Option<Name>, path: Vec<Name> },
    /// The attributes of a directory, when all is in it.
    Seal { node: Node, now: FileId, made: bool, path: Vec<Name> },
}

/// Why a piece of work ended without being done.
enum Stop {
    Not(NotFound),
    Failed(crate::ReplicaError),
}

impl<E: Into<crate::ReplicaError>> From<E> for Stop {
    fn from(error: E) -> Stop {
        Stop::Failed(error.into())
    }
}

type Step<T> = std::result::Result<T, Stop>;

fn not<T>(why: NotFound) -> Step<T> {
    Err(Stop::Not(why))
}

/// What an outcome is to whoever asked.
fn told<T>(outcome: Step<T>) -> Result<std::result::Result<T, NotFound>> {
    match outcome {
        Ok(value) => Ok(Ok(value)),
        Err(Stop::Not(why)) => Ok(Err(why)),
        Err(Stop::Failed(error)) => Err(error),
    }
}

/// Finds what is meant. Changes nothing.
pub(super) fn begin(
    inner: &Inner,
    volume: &Volume,
    asked: &Restore,
) -> Result<std::result::Result<Restoring, NotFound>> {
    told(find(inner, volume, asked))
}

fn find(inner: &Inner, volume: &Volume, asked: &Restore) -> Step<Restoring> {
    let read = inner.tables.read()?;
    let view = Whole::now(&*read, volume.id);
    let to = asked.to.as_ref().unwrap_or(&asked.path);
    if to.len().max(asked.path.len()) > PATH_NAMES_MAX {
        return not(NotFound::NoPath(shown(to)));
    }
    let by = By { uid: asked.uid, gid: asked.gid, groups: asked.groups.clone() };
    let then = position_meant(&view, &*read, volume, &asked.then)?;
    let is_kept = match view.is_kept(then)? {
        Some(is_kept) => is_kept,
        None => {
            let row = inner.row(&*read, &volume.name)?;
            then >= inner.holds(&*read, &row)?.contents_floor
        }
    };
    if !is_kept && !matches!(asked.then, Then::Version(_)) {
        return not(NotFound::TooEarly);
    }
    is_reached(&view, &by, (asked, to), then)?;
    let (file, node) = match &asked.then {
        Then::Version(seq) => match version_of(view, &asked.path, *seq)? {
            Some(Some(found)) => found,
            // An older program knows no such answer.
            Some(None) if by.groups.is_some() => return not(NotFound::Removed(shown(&asked.path))),
            _ if is_kept => file_then(&view, then, &asked.path)?,
            _ => return not(NotFound::NotThen(shown(&asked.path))),
        },
        _ => file_then(&view, then, &asked.path)?,
    };
    if node.kind == Kind::Directory && !is_kept {
        return not(NotFound::TooEarly);
    }
    let now = inner.world.clock.time();
    let mut restoring = Restoring {
        quota: volume.quota(),
        then,
        by,
        over_others: asked.over_others == Some(true),
        now,
        left: Vec::new(),
        whole: (file, to.clone()),
        linked: BTreeMap::new(),
        done: Restored { directories: Some(0), ..Restored::default() },
        touched: Touched::default(),
    };
    if let Some(first) = to.first() {
        not_hiding(&view, (FileId::ROOT, first))?;
    }
    let Some((name, above)) = to.split_last() else {
        let now = FileId::ROOT;
        restoring.fits(&node, view.node(now)?.as_ref(), to)?;
        let (after, path) = (None, Vec::new());
        restoring.left.push(Item::Seal { node, now, made: false, path: Vec::new() });
        restoring.left.push(Item::Within { file, now, after, path });
        return Ok(restoring);
    };
    let directory = match file_then(&view, Seq(u64::MAX), above) {
        Ok((directory, node)) if node.kind == Kind::Directory => {
            restoring.may_write(&node, above)?;
            directory
        }
        Ok(_) | Err(Stop::Not(_)) => return not(NotFound::NoDirectory(shown(to))),
        Err(failed) => return Err(failed),
    };
    let (to, path) = ((directory, name.clone()), to.clone());
    restoring.left.push(Item::Put { file, node, to, path });
    Ok(restoring)
}

/// Whether who asks may search what led there then, and what leads to where it is to be.
fn is_reached(view: &Whole<'_>, by: &By, (asked, to): (&Restore, &[Name]), then: Seq) -> Step<()> {
    let now = Seq(u64::MAX);
    let until = if matches!(asked.then, Then::Version(_)) { now } else { then.next() };
    for (path, until) in [(&asked.path[..], until), (to, now)] {
        if let Some(directory) = hidden(view, by, path, until)? {
            return not(NotFound::NotYours(directory));
        }
    }
    Ok(())
}

/// What bears the name by which snapshots are found hides them: nothing gets it that has not had it.
fn not_hiding(view: &Whole<'_>, (directory, name): (FileId, &Name)) -> Step<()> {
    let leads_back = directory == FileId::ROOT && *name == control_name();
    if leads_back && view.entry(directory, name)?.is_none() {
        let why = format!("{name} is where snapshots are found, which nothing changes");
        return not(NotFound::Refused(why));
    }
    Ok(())
}

impl Restoring {
    /// A piece of the work, in a transaction. True: there is more.
    pub fn turn(
        &mut self,
        inner: &Inner,
        volume: &Volume,
    ) -> Result<(std::result::Result<bool, NotFound>, Option<Told>)> {
        let mut why = None;
        let (_, told) = commit(inner, volume, |committer| {
            let mut files = 0;
            while files < FILES_MAX {
                let Some(item) = self.left.pop() else { break };
                match told(self.work(committer, item))? {
                    Ok(()) => files += 1,
                    Err(not) => {
                        why = Some(not);
                        break;
                    }
                }
            }
            // What was found to be impossible leaves nothing of this piece behind.
            let touched = std::mem::take(&mut self.touched);
            let touched = if why.is_some() { Touched::default() } else { touched };
            Ok((Found::Restored(self.done), touched))
        })?;
        Ok((why.map_or(Ok(!self.left.is_empty()), Err), told))
    }

    pub fn done(&self) -> Restored {
        self.done
    }

    fn work(&mut self, committer: &mut Committer<'_>, item: Item) -> Step<()> {
        match item {
            Item::Put { file, node, to, path } => self.put(committer, file, node, to, path),
            Item::Within { file, now, after, path } => {
                let then = committer.view().at_position(self.then);
                let page = then.entries(file, after.as_ref(), ENTRIES_MAX)?;
                if let (false, Some((last, _))) = (page.complete, page.entries.last()) {
                    let (after, path) = (Some(last.clone()), path.clone());
                    self.left.push(Item::Within { file, now, after, path });
                }
                for (name, file) in page.entries {
                    let node = committer.view().at_position(self.then).node(file)?;
                    let Some(node) = node else { continue };
                    let path = [&path[..], std::slice::from_ref(&name)].concat();
                    self.left.push(Item::Put { file, node, to: (now, name), path });
                }
                Ok(())
            }
            Item::Seal { node, now, made, path } => {
                let changed = self.attributes(committer, now, (&node, false), &path)?;
                if changed || made {
                    *self.done.directories.get_or_insert(0) += 1;
                }
                Ok(())
            }
        }
    }

    fn put(
        &mut self,
        committer: &mut Committer<'_>,
        file: FileId,
        node: Node,
        to: (FileId, Name),
        path: Vec<Name>,
    ) -> Step<()> {
        let there = committer.view().entry(to.0, &to.1)?;
        let there = match there {
            Some(there) => committer.view().node(there)?.map(|node| (there, node)),
            None => None,
        };
        self.fits(&node, there.as_ref().map(|(_, present)| present), &path)?;
        not_hiding(&committer.view(), (to.0, &to.1))?;
        let kept = node.kind != Kind::File || {
            committer.view().contents(file, node.contents_stamp)?.is_some()
        };
        if !kept {
            return not(NotFound::Pruned(restored_as(&path)));
        }
        if node.kind == Kind::Directory {
            let made = there.is_none();
            let now = match there {
                Some((now, _)) => now,
                None => self.make(committer, &node, to)?,
            };
            let (path_within, after) = (path.clone(), None);
            self.left.push(Item::Seal { node, now, made, path });
            self.left.push(Item::Within { file, now, after, path: path_within });
            return Ok(());
        }
        let special = |node: &Node| (node.kind, node.target.clone(), node.rdev);
        let is_same_special = |present: &Node| special(present) == special(&node);
        let (now, made) = match there {
            Some((now, present)) if is_same_special(&present) => (now, false),
            Some((now, _)) => {
                let (parent, name) = to.clone();
                self.apply(committer, Change::Unlink { parent, name, file: now, expects: None })?;
                (self.make(committer, &node, to)?, true)
            }
            None => match self.other_name_of(committer, file, &node)? {
                Some(linked) => {
                    let (parent, name) = to;
                    self.apply(committer, Change::Link { parent, name, file: linked })?;
                    self.count(true, false);
                    return Ok(());
                }
                None => (self.make(committer, &node, to)?, true),
            },
        };
        if node.links > 1 && self.linked.len() < LINKED_MAX {
            self.linked.insert(file, now);
        }
        let stored = self.contents(committer, now, &node)?;
        let changed = self.attributes(committer, now, (&node, stored), &path)?;
        self.count(made, stored || changed);
        Ok(())
    }

    /// A file that another of the names has got with this, or has had and gets with this.
    fn other_name_of(
        &self,
        committer: &Committer<'_>,
        file: FileId,
        node: &Node,
    ) -> Step<Option<FileId>> {
        if let Some(linked) = self.linked.get(&file) {
            return Ok(Some(*linked));
        }
        let (view, (whole, to)) = (committer.view(), &self.whole);
        let present = view.node(file)?.filter(|now| self.by.uid == 0 || self.by.uid == now.uid);
        if node.links < 2 || present.is_none() {
            return Ok(None);
        }
        let then = view.at_position(self.then);
        for at in view.names(file, NAMES_MAX)? {
            let path = path_of(&view, &at)?;
            let Some(below) = path.strip_prefix(&to[..]) else { continue };
            let mut was = Some(*whole);
            for name in below {
                was = was.map(|directory| then.entry(directory, name)).transpose()?.flatten();
            }
            if !below.is_empty() && was == Some(file) {
                return Ok(Some(file));
            }
        }
        Ok(None)
    }

    fn count(&mut self, made: bool, changed: bool) {
        let counter = match (made, changed) {
            (true, _) => &mut self.done.made,
            (false, true) => &mut self.done.changed,
            (false, false) => &mut self.done.same,
        };
        *counter += 1;
    }

    fn make(
        &mut self,
        committer: &mut Committer<'_>,
        node: &Node,
        (parent, name): (FileId, Name),
    ) -> Step<FileId> {
        let file = committer.fresh_file()?;
        let Node { kind, uid, rdev, born, .. } = *node;
        let within = committer.view().node(parent)?;
        let (gid, mode) = settable(
            &self.by,
            node,
            within.map_or(self.by.gid, |directory| group_within(&self.by, &directory)),
        );
        let target = node.target.clone();
        let change = Change::Make { parent, name, file, kind, mode, uid, gid, target, rdev, born };
        self.apply(committer, change)?;
        Ok(file)
    }

    /// True: they are other ones than before.
    fn contents(&mut self, committer: &mut Committer<'_>, now: FileId, node: &Node) -> Step<bool> {
        let present = committer.view().node(now)?;
        let Some(present) = present.filter(|present| present.kind == Kind::File) else {
            return Ok(false);
        };
        if present.contents == node.contents {
            return Ok(false);
        }
        let (expects, contents, mtime) = (present.contents_stamp, node.contents, node.mtime);
        self.apply(committer, Change::Store { file: now, expects, contents, mtime })?;
        Ok(true)
    }

    /// True: some were others before. `stored`: the contents were, just before.
    fn attributes(
        &mut self,
        committer: &mut Committer<'_>,
        now: FileId,
        (node, stored): (&Node, bool),
        path: &[Name],
    ) -> Step<bool> {
        let there = |committer: &Committer<'_>| -> Step<Node> {
            match committer.view().node(now)? {
                Some(node) => Ok(node),
                None => not(NotFound::NotThen(shown(path))),
            }
        };
        let present = there(committer)?;
        let mut changes = attributes::of_xattrs(&self.by, now, (node, &present), stored);
        let mut changed = !changes.is_empty();
        for change in changes.drain(..) {
            self.apply(committer, change)?;
        }
        // A list of who may do what has changed the mode.
        let present = there(committer)?;
        if let Some(change) = attributes::of_looks(&self.by, now, (node, &present), stored) {
            self.apply(committer, change)?;
            changed = true;
        }
        Ok(changed)
    }

    /// An update of the origin's own: its number is its position, which no other one has.
    fn apply(&mut self, committer: &mut Committer<'_>, change: Change) -> Step<()> {
        let stamp = Stamp::new(ReplicaId::ORIGIN, committer.position().next().0);
        let update = Update { stamp, uid: self.by.uid, at: self.now, change };
        match judge(&update, &committer.view())? {
            Ok(effects) => {
                if let Some(quota) = &self.quota
                    && exceeds(committer, quota, &effects)?
                {
                    let why = "a quota of the volume, or of who owns it, would be exceeded; what was \
                               restored before that stays";
                    return not(NotFound::Refused(why.into()));
                }
                let made = committer.apply(&update, &effects)?;
                self.touched.nodes.extend(made.nodes);
                self.touched.entries.extend(made.entries);
                Ok(())
            }
            Err(problem) => not(NotFound::Refused(problem.to_string())),
        }
    }

    /// Whether what was may come to be where something else may be.
    fn fits(&self, node: &Node, present: Option<&Node>, path: &[Name]) -> Step<()> {
        self.owns(node, restored_as(path))?;
        let Some(present) = present else { return Ok(()) };
        self.owns(present, shown(path))?;
        let one_is_a_directory = [present.kind, node.kind].contains(&Kind::Directory);
        match present.kind == node.kind || self.over_others && !one_is_a_directory {
            true => Ok(()),
            false => not(NotFound::OtherKind(shown(path))),
        }
    }

    /// Who is not root brings back only what is the own.
    fn owns(&self, node: &Node, called: String) -> Step<()> {
        match self.by.uid == 0 || self.by.uid == node.uid {
            true => Ok(()),
            false => not(NotFound::NotYours(called)),
        }
    }

    fn may_write(&self, directory: &Node, path: &[Name]) -> Step<()> {
        match may(&self.by, directory, WRITE | SEARCH) {
            true => Ok(()),
            false => not(NotFound::NotYours(shown(path))),
        }
    }
}

/// The version that is brought back, for which its path may not be a name any more.
fn restored_as(to: &[Name]) -> String {
    format!("what would be restored as {}", shown(to))
}
