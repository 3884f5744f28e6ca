//! What becomes of an update: taken as it is, kept aside, or refused.
//! Holds: contents that were stored are never refused for what they met, but for those of a file that
//! was to be made with them and whose writer is told; a committed version keeps its name, and what
//! comes second gets another beside it.
//! Never: writes anything but the origin's counter of files.
//! From: DESIGN, "Conflicts".

use super::aside::{Mark, free_name, nearest, unnamed};
use super::conflict::{Clash, Conflict, began_from};
use super::records::{self, Laid, Met, Prepared};
use super::redirect::Redirect;
use super::revive::{not_done, revive};
use super::settings;
use super::unseen::{replaces_unseen, unseen_change};
use crate::error::Result;
use model::{
    Change, Contents, Effects, FileId, Kind, Name, Node, Problem, Seq, Stamp, Time, Update, View,
    judge,
};
use protocol::Objection;
use volume::whole::{Committer, Whole, Writer};

/// What a decision is made from.
pub(super) struct Desk<'a, 'w> {
    pub committer: &'a mut Committer<'w>,
    pub writer: &'a Writer,
    /// Somebody waits, and is told of a problem.
    pub strict: bool,
    pub device: &'a str,
    /// Of a store under records that its writer holds.
    pub prepared: Option<&'a Prepared>,
    /// Which file's contents its writer meant, whichever has them now.
    pub meant: Option<FileId>,
    /// Where the volume was when the updates came with which this one did.
    pub came_at: Seq,
}

#[derive(Debug)]
pub(super) enum Decision {
    Take(Effects),
    /// Done, and laid over what others have made of the rest.
    Lay(Box<Laid>),
    /// It meets what it was not prepared for.
    Unprepared,
    /// Done, but not as it was meant.
    Keep(Box<Kept>),
    /// Not done. A conflict is recorded if the user should know.
    Refuse(Objection, Option<Box<Conflict>>),
}

impl Decision {
    /// What it changes, if it changes anything.
    pub fn effects(&self) -> Option<&Effects> {
        match self {
            Decision::Take(effects) => Some(effects),
            Decision::Lay(laid) => Some(&laid.effects),
            Decision::Keep(kept) => Some(&kept.effects),
            Decision::Unprepared | Decision::Refuse(..) => None,
        }
    }
}

#[derive(Debug)]
pub(super) struct Kept {
    pub effects: Effects,
    pub conflict: Conflict,
    pub redirects: Vec<Redirect>,
}

pub(super) fn decide(desk: &mut Desk<'_, '_>, update: &Update) -> Result<Decision> {
    let problem = match judge(update, &desk.view())? {
        Ok(_) | Err(Problem::AttributesChanged { .. }) if settings::is_late(desk, update)? => {
            return settings::decide(desk, update);
        }
        // Somebody who waits looks at what is there now.
        Ok(effects) if desk.strict => return Ok(Decision::Take(effects)),
        Ok(effects) => {
            return Ok(match unseen_change(desk, update)? {
                Some(found) => replaces_unseen(desk, update, found)?,
                None => Decision::Take(effects),
            });
        }
        Err(problem) => problem,
    };
    if let Change::Store { file, expects, contents, mtime } = &update.change {
        let stored = Stored { file: *file, expects: *expects, contents: *contents, mtime: *mtime };
        return stored.decide(desk, update, &problem);
    }
    if desk.strict {
        return Ok(refuse(&problem));
    }
    if let Some(revived) = revive(desk, update)? {
        return Ok(revived);
    }
    let decision = match (&update.change, &problem) {
        (Change::Make { .. }, _) => make(desk, update, &problem),
        (Change::Link { parent, name, file }, Problem::NameTaken { by, .. }) if by != file => {
            beside(desk, update, *parent, *parent, name, Clash::Name, &problem)
        }
        (Change::Rename { exchange: false, .. }, _) => rename(desk, update, &problem),
        _ => Ok(refuse(&problem)),
    };
    Ok(match decision? {
        Decision::Refuse(why, None) => {
            Decision::Refuse(why, not_done(&desk.view(), update, &problem)?)
        }
        decision => decision,
    })
}

impl Desk<'_, '_> {
    pub(super) fn view(&self) -> Whole<'_> {
        self.committer.view()
    }
}

/// The judgement on the update with another change, or the problem that it had before.
fn as_changed(
    desk: &Desk<'_, '_>,
    update: &Update,
    change: Change,
    problem: &Problem,
) -> Result<Decision> {
    let update = Update { change, ..update.clone() };
    Ok(match judge(&update, &desk.view())? {
        Ok(effects) => Decision::Take(effects),
        Err(_) => refuse(problem),
    })
}

/// A file was to be made.
fn make(desk: &Desk<'_, '_>, update: &Update, problem: &Problem) -> Result<Decision> {
    let Change::Make { parent, name, file, kind, .. } = &update.change else {
        return Ok(refuse(problem));
    };
    match problem {
        Problem::NameTaken { by, .. } => {
            let there = desk.view().node(*by)?;
            let both =
                *kind == Kind::Directory && there.is_some_and(|node| node.kind == Kind::Directory);
            if both {
                return Ok(merge(update, *parent, name, *file, *by));
            }
            beside(desk, update, *parent, *parent, name, Clash::Name, problem)
        }
        Problem::NoFile(gone) | Problem::NotADirectory(gone) if gone == parent => {
            let left = nearest(&desk.view(), *parent)?;
            beside(desk, update, *parent, left, name, Clash::Directory, problem)
        }
        _ => Ok(refuse(problem)),
    }
}

/// Two made one directory: what is made in the second is made in the first.
fn merge(update: &Update, parent: FileId, name: &Name, file: FileId, by: FileId) -> Decision {
    let mut effects = Effects::default();
    effects.nodes.insert(file, None);
    let aside = Some((by, parent, name.clone()));
    let conflict = conflict(Clash::Merged, update, file, parent, name);
    Decision::Keep(Box::new(Kept {
        effects,
        conflict: Conflict { aside, ..conflict },
        redirects: vec![Redirect::Merged { directory: file, to: by }],
    }))
}

/// A name was to be given that is not free, or whose directory is gone: it is given in `to`,
/// under a name beside it.
pub(super) fn beside(
    desk: &Desk<'_, '_>,
    update: &Update,
    directory: FileId,
    to: FileId,
    name: &Name,
    clash: Clash,
    problem: &Problem,
) -> Result<Decision> {
    let free = free_name(&desk.view(), to, name, mark(desk, update))?;
    let mut change = update.change.clone();
    let (base_file, base) = began_from(&update.change).unzip();
    let file = match &mut change {
        Change::Make { parent, name, file, .. } | Change::Link { parent, name, file } => {
            (*parent, *name) = (to, free.clone());
            *file
        }
        Change::Rename { to: parent, to_name, file, over, .. } => {
            (*parent, *to_name, *over) = (to, free.clone(), None);
            *file
        }
        _ => return Ok(refuse(problem)),
    };
    let second = Update { change, ..update.clone() };
    let Ok(effects) = judge(&second, &desk.view())? else { return Ok(refuse(problem)) };
    let found = match problem {
        Problem::NameTaken { by, .. } | Problem::NameChanged { now: Some(by), .. } => {
            desk.view().node(*by)?.map(|node| node.contents_stamp)
        }
        Problem::ContentsChanged { found, .. } => Some(*found),
        _ => None,
    };
    let aside = (file, to, free.clone());
    let conflict = conflict(clash, update, file, directory, name);
    let later = Redirect::Name { file, directory, name: name.clone(), to: (to, free) };
    Ok(Decision::Keep(Box::new(Kept {
        effects,
        conflict: Conflict { found, aside: Some(aside), base, base_file, ..conflict },
        redirects: vec![later],
    })))
}

/// A file was to be moved.
fn rename(desk: &Desk<'_, '_>, update: &Update, problem: &Problem) -> Result<Decision> {
    let Change::Rename { from, from_name, to, to_name, file, .. } = &update.change else {
        return Ok(refuse(problem));
    };
    let is_there = desk.view().entry(*from, from_name)? == Some(*file);
    match problem {
        Problem::Cycle(_) => {
            let conflict = conflict(Clash::Cycle, update, *file, *to, to_name);
            Ok(Decision::Refuse(Objection::Cycle, Some(Box::new(conflict))))
        }
        Problem::NameTaken { .. } | Problem::NameChanged { now: Some(_), .. } if is_there => {
            beside(desk, update, *to, *to, to_name, Clash::Name, problem)
        }
        // What was to be replaced is gone, and the name is free.
        Problem::NameChanged { now: None, .. } if is_there => {
            let mut change = update.change.clone();
            if let Change::Rename { over, .. } = &mut change {
                *over = None;
            }
            as_changed(desk, update, change, problem)
        }
        _ => Ok(refuse(problem)),
    }
}

/// Contents that met something that they did not expect.
struct Stored {
    file: FileId,
    expects: Stamp,
    contents: Contents,
    mtime: Time,
}

impl Stored {
    fn decide(
        &self,
        desk: &mut Desk<'_, '_>,
        update: &Update,
        problem: &Problem,
    ) -> Result<Decision> {
        match problem {
            Problem::ContentsChanged { found, .. } => {
                let Some(node) = desk.view().node(self.file)? else { return Ok(refuse(problem)) };
                let Stored { file, contents, mtime, .. } = *self;
                let upon_it = Change::Store { file, expects: *found, contents, mtime };
                if self.follows_taken_back(desk, update, *found)? {
                    return as_changed(desk, update, upon_it, problem);
                }
                match Prepared::met(desk.prepared, update, *found) {
                    Met::Conflict => self.beside(desk, update, node, *found),
                    Met::Unprepared => Ok(Decision::Unprepared),
                    Met::Merged(merged) => {
                        let last = node.mtime.max(mtime);
                        Ok(Laid::of(as_changed(desk, update, upon_it, problem)?, merged, last))
                    }
                }
            }
            Problem::NoFile(_) => self.bring_back(desk, update),
            _ => Ok(refuse(problem)),
        }
    }

    /// What is found was stored by the same writer, who expected the same and took it back without
    /// knowing that it had arrived. It may itself have come instead of others.
    fn follows_taken_back(
        &self,
        desk: &Desk<'_, '_>,
        update: &Update,
        found: Stamp,
    ) -> Result<bool> {
        if found.replica != update.stamp.replica || found.number >= update.stamp.number {
            return Ok(false);
        }
        let files = (self.file, desk.meant.unwrap_or(self.file));
        Ok(records::expected_by(&desk.view(), files, found)? == Some(self.expects))
    }

    /// Two stored: the second contents become a file of their own, unless they are the same.
    fn beside(
        &self,
        desk: &mut Desk<'_, '_>,
        update: &Update,
        there: Node,
        found: Stamp,
    ) -> Result<Decision> {
        if there.contents == self.contents {
            let mut effects = Effects::default();
            effects.nodes.insert(self.file, Some(self.fill(there, update)));
            return Ok(Decision::Take(effects));
        }
        let name_there = desk.view().names(self.file, 1)?.into_iter().next();
        let (directory, name) = name_there.unwrap_or_else(|| (FileId::ROOT, unnamed(self.file)));
        let node = Node { attributes_stamp: update.stamp, ..there };
        self.keep_as(desk, update, node, directory, &name, Clash::Contents, Some(found))
    }

    /// The update wins over the removal: the file is back, under its last name if that is free.
    fn bring_back(&self, desk: &mut Desk<'_, '_>, update: &Update) -> Result<Decision> {
        let view = desk.view();
        let gone = view.node_version(self.file)?;
        let before = match &gone {
            Some(version) => view.node_before(self.file, version.seq)?,
            None => None,
        };
        let was = gone.and_then(|version| version.was);
        let (Some(before), Some((directory, name))) = (before, was) else {
            // It never was there: what was to make it was refused.
            let node = nobodys(update);
            let name = unnamed(self.file);
            return self.keep_as(desk, update, node, FileId::ROOT, &name, Clash::Removed, None);
        };
        if before.kind != Kind::File {
            return Ok(Decision::Refuse(Objection::NoEntry, None));
        }
        if desk.strict && self.contents.size == 0 {
            // It was emptied, as on a local disk, where that would be nowhere to be seen.
            return Ok(Decision::Take(Effects::default()));
        }
        let left = nearest(&view, directory)?;
        let found = Some(before.contents_stamp);
        if left != directory || view.entry(directory, &name)?.is_some() {
            return self.keep_as(desk, update, before, left, &name, Clash::Removed, found);
        }
        let effects = self.effects(&view, update, before, self.file, directory, &name)?;
        let conflict = conflict(Clash::Removed, update, self.file, directory, &name);
        let conflict = Conflict { found, base: Some(self.expects), ..conflict };
        Ok(Decision::Keep(Box::new(Kept { effects, conflict, redirects: Vec::new() })))
    }

    /// The contents become a new file, under a name beside `name`.
    #[allow(clippy::too_many_arguments, reason = "each is another part of what is recorded")]
    fn keep_as(
        &self,
        desk: &mut Desk<'_, '_>,
        update: &Update,
        node: Node,
        directory: FileId,
        name: &Name,
        clash: Clash,
        found: Option<Stamp>,
    ) -> Result<Decision> {
        let file = desk.committer.fresh_file()?;
        let view = desk.view();
        let free = free_name(&view, directory, name, mark(desk, update))?;
        let effects = self.effects(&view, update, node, file, directory, &free)?;
        let aside = Some((file, directory, free));
        let conflict = conflict(clash, update, self.file, directory, name);
        Ok(Decision::Keep(Box::new(Kept {
            effects,
            conflict: Conflict { found, base: Some(self.expects), aside, ..conflict },
            redirects: vec![Redirect::Contents { stamp: update.stamp, to: file }],
        })))
    }

    /// A file with these contents and one name.
    fn effects(
        &self,
        view: &Whole<'_>,
        update: &Update,
        node: Node,
        file: FileId,
        directory: FileId,
        name: &Name,
    ) -> Result<Effects> {
        let mut effects = Effects::default();
        effects.nodes.insert(file, Some(Node { links: 1, ..self.fill(node, update) }));
        if let Some(above) = view.node(directory)? {
            let above = Node { mtime: update.at, ctime: update.at, ..above };
            effects.nodes.insert(directory, Some(above));
        }
        effects.entries.insert((directory, name.clone()), Some(file));
        Ok(effects)
    }

    fn fill(&self, node: Node, update: &Update) -> Node {
        Node {
            contents: self.contents,
            contents_stamp: update.stamp,
            mtime: self.mtime,
            ctime: update.at,
            ..node
        }
    }
}

/// A file of which nothing is known but who stored its contents.
fn nobodys(update: &Update) -> Node {
    Node {
        kind: Kind::File,
        mode: 0o600,
        parent: None,
        attributes_stamp: update.stamp,
        links: 1,
        born: None,
        ..Node::root_directory(update.uid, update.uid, update.at)
    }
}

pub(super) fn mark<'a>(desk: &Desk<'a, '_>, update: &Update) -> Mark<'a> {
    Mark { device: desk.device, at: update.at, stamp: update.stamp }
}

/// A conflict with what is known at once; the rest follows when it is recorded.
pub(super) fn conflict(
    clash: Clash,
    update: &Update,
    file: FileId,
    directory: FileId,
    name: &Name,
) -> Conflict {
    Conflict {
        clash,
        update: update.stamp,
        found: None,
        base: None,
        file,
        directory,
        name: name.clone(),
        aside: None,
        device: String::new(),
        at: Time::default(),
        seq: None::<Seq>,
        settings: None,
        claim: None,
        base_file: None,
    }
}

fn refuse(problem: &Problem) -> Decision {
    Decision::Refuse(objection(problem), None)
}

/// What a program is told of a problem.
fn objection(problem: &Problem) -> Objection {
    match problem {
        Problem::NoFile(_) | Problem::NameChanged { now: None, .. } => Objection::NoEntry,
        Problem::NotADirectory(_) => Objection::NotADirectory,
        Problem::IsADirectory(_) => Objection::IsADirectory,
        Problem::NameTaken { .. } | Problem::IdTaken(_) => Objection::Exists,
        Problem::NameChanged { now: Some(_), .. }
        | Problem::ContentsChanged { .. }
        | Problem::AttributesChanged { .. } => Objection::Changed,
        Problem::NotEmpty(_) => Objection::NotEmpty,
        Problem::Cycle(_) => Objection::Cycle,
        Problem::TooManyLinks(_) => Objection::TooManyLinks,
        Problem::NoXattr(_) => Objection::NoAttribute,
        Problem::NotAFile(_) => Objection::Invalid,
    }
}
