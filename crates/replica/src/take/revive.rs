//! Changes of names that met others, and what is told of those that cannot be done any more.
//! Holds: a file that its writer gave a name is there, though somebody removed it meanwhile; what a
//! writer has done to names and is not done is listed, unless the same has come of it.
//! From: DESIGN, "Conflicts": concurrent removal and update: the update wins.

use super::aside::{free_name, nearest};
use super::conflict::{Clash, Conflict};
use super::decide::{Decision, Desk, Kept, conflict, mark};
use super::redirect::Redirect;
use crate::error::Result;
use model::{Change, Effects, FileId, Kind, Name, Node, Problem, Update, View};
use volume::whole::Whole;

/// Versions of a name among which the one is looked for that a file had it in.
const VERSIONS_MAX: usize = 1000;

/// A file that is gone gets the name that its writer gave it. None: it is no such case, or nothing of
/// it is kept.
pub(super) fn revive(desk: &Desk<'_, '_>, update: &Update) -> Result<Option<Decision>> {
    let (file, to, name) = match &update.change {
        Change::Link { parent, name, file } => (*file, *parent, name),
        Change::Rename { to, to_name, file, exchange: false, .. } => (*file, *to, to_name),
        _ => return Ok(None),
    };
    let view = desk.view();
    let Some(node) = gone(&view, file)? else { return Ok(None) };
    let left = nearest(&view, to)?;
    let is_free = left == to && view.entry(to, name)?.is_none();
    let given =
        if is_free { name.clone() } else { free_name(&view, left, name, mark(desk, update))? };
    let found = Some(node.contents_stamp);
    let mut effects = Effects::default();
    effects.nodes.insert(file, Some(Node { links: 1, ctime: update.at, ..node }));
    if let Some(above) = view.node(left)? {
        let above = Node { mtime: update.at, ctime: update.at, ..above };
        effects.nodes.insert(left, Some(above));
    }
    effects.entries.insert((left, given.clone()), Some(file));
    let told = conflict(Clash::Removed, update, file, to, name);
    let mut kept = Kept { effects, conflict: Conflict { found, ..told }, redirects: Vec::new() };
    if !is_free {
        kept.conflict.aside = Some((file, left, given.clone()));
        let (name, to_given) = (name.clone(), (left, given));
        kept.redirects.push(Redirect::Name { file, directory: to, name, to: to_given });
    }
    Ok(Some(Decision::Keep(Box::new(kept))))
}

/// How a file was that is gone, if it was no directory and what was in it is kept.
fn gone(view: &Whole<'_>, file: FileId) -> Result<Option<Node>> {
    let Some(version) = view.node_version(file)?.filter(|version| version.node.is_none()) else {
        return Ok(None);
    };
    let before = view.node_before(file, version.seq)?;
    let Some(node) = before.filter(|node| node.kind != Kind::Directory) else { return Ok(None) };
    let is_kept = node.kind != Kind::File || view.contents(file, node.contents_stamp)?.is_some();
    Ok(is_kept.then_some(node))
}

/// What is told of a change of names that is not done. None: there is nothing to tell.
pub(super) fn not_done(
    view: &Whole<'_>,
    update: &Update,
    problem: &Problem,
) -> Result<Option<Box<Conflict>>> {
    let (file, directory, name) = match &update.change {
        Change::Link { parent, name, file } => {
            if view.entry(*parent, name)? == Some(*file) {
                return Ok(None);
            }
            (*file, *parent, name)
        }
        Change::Unlink { parent, name, file, .. } => {
            let is_full = matches!(problem, Problem::NotEmpty(_));
            if !is_full && was_removed(view, *parent, name, *file)? {
                return Ok(None);
            }
            (*file, *parent, name)
        }
        Change::Rename { from, from_name, to, to_name, file, over, exchange, .. } => {
            let expected = if *exchange { *over } else { None };
            let is_so = view.entry(*to, to_name)? == Some(*file)
                && view.entry(*from, from_name)? == expected;
            if is_so {
                return Ok(None);
            }
            (*file, *to, to_name)
        }
        _ => return Ok(None),
    };
    // Where the directory is gone, people look in what is left.
    let directory = nearest(view, directory)?;
    Ok(Some(Box::new(conflict(Clash::NotDone, update, file, directory, name))))
}

/// Whether a name of a file is gone because somebody removed it, or all of the file is. Where nothing
/// is kept of that name, nobody can say so.
fn was_removed(view: &Whole<'_>, directory: FileId, name: &Name, file: FileId) -> Result<bool> {
    if view.node(file)?.is_none() {
        return Ok(true);
    }
    let mut since = view.entry_version(directory, name)?.seq;
    for _ in 0..VERSIONS_MAX {
        let Some(before) = view.entry_version_before(directory, name, since)? else { break };
        if before.file == Some(file) {
            return Ok(view.logged(since)?.is_some_and(|last| match last.update.change {
                Change::Unlink { file: removed, .. } => removed == file,
                _ => false,
            }));
        }
        since = before.seq;
    }
    Ok(false)
}
