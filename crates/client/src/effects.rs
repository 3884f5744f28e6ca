//! What an update does to the tree as it is known here, before the origin has said so.
//! Holds: what the origin would refuse is refused before anything is logged; a store never is; a name
//! that something pending took away does not show because the rest of that is not known here.
//! From: DESIGN, "The client".

use crate::client::stop;
use crate::types::{Error, Step};
use model::{Change, Effects, FileId, Name, Node, Problem, Update, View, judge};
use protocol::Objection;
use std::borrow::Cow;
use volume::partial::{Missing, Tree};

/// What an update does here. A store is never turned away: if somebody else has stored or
/// removed the file meanwhile, it is for the origin to keep both.
pub(crate) fn effects_here(
    update: &Update,
    tree: &Tree<'_>,
) -> Result<Result<Effects, Problem>, Missing> {
    let unborn = update.makes();
    let outcome = judge(update, &BeforeBirth { tree, unborn })?;
    match (&update.change, outcome) {
        (
            Change::Store { file, contents, mtime, .. },
            Err(Problem::ContentsChanged { found, .. }),
        ) => {
            let change =
                Change::Store { file: *file, expects: found, contents: *contents, mtime: *mtime };
            judge(&Update { change, ..update.clone() }, tree)
        }
        (Change::Store { .. }, Err(Problem::NoFile(_))) => Ok(Ok(Effects::default())),
        (
            Change::SetAttributes { file, set, .. },
            Err(Problem::AttributesChanged { found, .. }),
        ) => {
            // What of it meets what others set is for the origin to say: here the later shows.
            let change = Change::SetAttributes { file: *file, expects: found, set: set.clone() };
            judge(&Update { change, ..update.clone() }, tree)
        }
        (_, outcome) => Ok(outcome),
    }
}

/// What a program asks for does here, if it may be done.
pub(crate) fn effects_asked(update: &Update, tree: &Tree<'_>) -> Step<Effects> {
    if let Some(objection) = crate::past::objection(update, tree).map_err(stop)? {
        return Err(Error::Objection(objection).into());
    }
    let effects = effects_here(update, tree)
        .map_err(stop)?
        .map_err(|problem| Error::Objection(objection(&problem)))?;
    crate::xattrs::fit(update, &effects)?;
    Ok(effects)
}

/// What an update that is pending does here. The name that it gives shows, also where the replica above has
/// something of that name by now, or may have: it was free when it was given, and what becomes of the two is for that
/// to say.
pub(crate) fn effects_of_pending(
    update: &Update,
    tree: &Tree<'_>,
) -> Result<Result<Effects, Problem>, Missing> {
    let outcome = effects_here(update, tree);
    let free = match &update.change {
        Change::Make { parent, name, .. } | Change::Link { parent, name, .. } => (*parent, name),
        Change::Rename { to, to_name, exchange: false, .. } => (*to, to_name),
        _ => return outcome,
    };
    let replaces = matches!(update.change, Change::Rename { over: Some(_), .. });
    match &outcome {
        Err(Missing::Entry(directory, name)) if (*directory, name) == free => {}
        // What it was to replace bears that name no more, and stays.
        Ok(Err(Problem::NameChanged { name, .. })) if replaces && name == free.1 => {}
        Ok(Err(_)) if !replaces => {}
        _ => return outcome,
    }
    // What something else that is pending shows there stays.
    if tree.entry_shown_by(free.0, free.1)?.0.is_some() {
        return outcome;
    }
    let view = BeforeBirth { tree, unborn: update.makes() };
    match judge(&replacing_nothing(update), &WithFree { view, free }) {
        Ok(Ok(effects)) => Ok(Ok(effects)),
        _ => outcome,
    }
}

fn replacing_nothing(update: &Update) -> Cow<'_, Update> {
    let mut update = Cow::Borrowed(update);
    if let Change::Rename { over: Some(_), .. } = update.change
        && let Change::Rename { over, expects, .. } = &mut update.to_mut().change
    {
        (*over, *expects) = (None, None);
    }
    update
}

/// A store into a file that is not there shows nothing.
pub(crate) fn shows_nothing(update: &Update, effects: &Effects) -> bool {
    matches!(update.change, Change::Store { .. }) && *effects == Effects::default()
}

/// Of a pending update whose effects rest on what is not known here: what it says of names itself. A
/// program must not go by a name that it has taken away. What it says is not done where something
/// that is known stands in its way.
pub(crate) fn names_alone(update: &Update, tree: &Tree<'_>) -> Result<Effects, Missing> {
    let mut effects = Effects::default();
    match &update.change {
        Change::Unlink { parent, name, file, .. } => {
            if may_name(tree, *parent, name, Some(*file))? {
                effects.entries.insert((*parent, name.clone()), None);
            }
        }
        Change::Rename { from, from_name, to, to_name, file, over, exchange, whiteout, .. } => {
            if *over != Some(*file)
                && may_name(tree, *from, from_name, Some(*file))?
                && may_name(tree, *to, to_name, *over)?
            {
                let whiteout = whiteout.as_ref().map(|whiteout| whiteout.file);
                let left = if *exchange { *over } else { whiteout };
                effects.entries.insert((*from, from_name.clone()), left);
                effects.entries.insert((*to, to_name.clone()), Some(*file));
            }
        }
        // These take no name away, and count names of a file that are not all known.
        Change::Make { .. }
        | Change::Link { .. }
        | Change::Store { .. }
        | Change::SetAttributes { .. }
        | Change::SetXattr { .. }
        | Change::RemoveXattr { .. } => {}
    }
    Ok(effects)
}

/// Whether a name is what an update expects, as far as it is known here.
fn may_name(
    tree: &Tree<'_>,
    directory: FileId,
    name: &Name,
    expects: Option<FileId>,
) -> Result<bool, Missing> {
    match tree.entry(directory, name) {
        Ok(now) => Ok(now == expects),
        Err(missing) if missing.file().is_some() => Ok(true),
        Err(missing) => Err(missing),
    }
}

/// A tree in which one id has never been used. This client alone gives it, so nobody has to be
/// asked whether it is free.
pub(crate) struct BeforeBirth<'a> {
    pub tree: &'a Tree<'a>,
    pub unborn: Option<FileId>,
}

impl View for BeforeBirth<'_> {
    type Error = Missing;

    fn node(&self, file: FileId) -> Result<Option<Node>, Missing> {
        match self.tree.node(file) {
            Err(Missing::Node(_)) if self.unborn == Some(file) => Ok(None),
            known => known,
        }
    }

    fn entry(&self, directory: FileId, name: &Name) -> Result<Option<FileId>, Missing> {
        self.tree.entry(directory, name)
    }

    fn is_empty(&self, directory: FileId) -> Result<bool, Missing> {
        self.tree.is_empty(directory)
    }
}

/// A tree in which a name is free.
struct WithFree<'a> {
    view: BeforeBirth<'a>,
    free: (FileId, &'a Name),
}

impl View for WithFree<'_> {
    type Error = Missing;

    fn node(&self, file: FileId) -> Result<Option<Node>, Missing> {
        self.view.node(file)
    }

    fn entry(&self, directory: FileId, name: &Name) -> Result<Option<FileId>, Missing> {
        if (directory, name) == self.free { Ok(None) } else { self.view.entry(directory, name) }
    }

    fn is_empty(&self, directory: FileId) -> Result<bool, Missing> {
        self.view.is_empty(directory)
    }
}

/// What an application is told of a problem.
pub(crate) fn objection(problem: &Problem) -> Objection {
    match problem {
        Problem::NoFile(_) => Objection::NoEntry,
        Problem::NotADirectory(_) => Objection::NotADirectory,
        Problem::IsADirectory(_) => Objection::IsADirectory,
        Problem::NameTaken { .. } | Problem::IdTaken(_) => Objection::Exists,
        Problem::NameChanged { now: None, .. } => Objection::NoEntry,
        Problem::NameChanged { .. }
        | Problem::ContentsChanged { .. }
        | Problem::AttributesChanged { .. } => Objection::Changed,
        Problem::NotEmpty(_) => Objection::NotEmpty,
        Problem::Cycle(_) => Objection::Cycle,
        Problem::TooManyLinks(_) => Objection::TooManyLinks,
        Problem::NoXattr(_) => Objection::NoAttribute,
        Problem::NotAFile(_) => Objection::Invalid,
    }
}
