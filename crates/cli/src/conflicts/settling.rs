//! Keeping one side, both, or both as one.

use super::attributes::{self, Side};
use super::{Merging, Place, path_of, version_of};
use crate::exit::{Exit, fail};
use anyhow::{Context, Result};
use protocol::past::{Clash, ConflictInfo};
use std::fs;
use std::io::Write;
use std::path::Path;

/// `force`: of attributes, also if they were set otherwise since.
pub fn keep_theirs(place: &Place, conflict: &ConflictInfo, force: bool) -> Result<()> {
    if conflict.settings.is_some() {
        return attributes::keep(place, conflict, Side::Theirs, force);
    }
    if let Some(one) = one_side(conflict) {
        return keep_of_one(place, conflict, one == Side::Theirs, force);
    }
    if conflict.aside.is_none() {
        // It was not done, or is as the other one had it: that stays.
        return place.settled_by(conflict, None, || Ok(()));
    }
    let (_, mine) = place.sides(conflict)?;
    if fs::symlink_metadata(&mine)?.is_dir() {
        return Err(fail(
            Exit::Failure,
            format!("{} is a directory: move or remove what is in it first", mine.display()),
        ));
    }
    place.settled_by(conflict, None, || remove(&mine))
}

/// `force`: also if what has the name was changed since the conflict.
pub fn keep_mine(place: &Place, conflict: &ConflictInfo, force: bool) -> Result<()> {
    if conflict.settings.is_some() {
        return attributes::keep(place, conflict, Side::Mine, force);
    }
    if let Some(one) = one_side(conflict) {
        return keep_of_one(place, conflict, one == Side::Mine, force);
    }
    let (theirs, mine) = place.sides_or_free(conflict)?;
    let seen = version_of(&theirs);
    if let (false, Some(found), Some(now)) = (force, conflict.found, seen)
        && found != now
    {
        let (path, number) = (theirs.display(), conflict.number);
        return Err(fail(
            Exit::Failure,
            format!(
                "{path} was changed since: `farfs conflicts merge {number}` puts both together, \
                 `keep-mine {number} --force` replaces what is there now"
            ),
        ));
    }
    place.settled_by(conflict, seen, || {
        fs::rename(&mine, &theirs)
            .with_context(|| format!("cannot rename {} to {}", mine.display(), theirs.display()))
    })
}

/// Of a conflict between contents and a removal: whose the contents are, which have the name.
pub(super) fn one_side(conflict: &ConflictInfo) -> Option<Side> {
    match (conflict.clash, &conflict.aside) {
        (Clash::Replaced, None) => Some(Side::Theirs),
        (Clash::Removed, None) => Some(Side::Mine),
        _ => None,
    }
}

/// The contents stay, or the removal is done after all; `force`: also if they were changed since.
fn keep_of_one(place: &Place, conflict: &ConflictInfo, stays: bool, force: bool) -> Result<()> {
    if stays {
        return place.settled_by(conflict, None, || Ok(()));
    }
    let path = place.bearer(conflict)?;
    let seen = version_of(&path);
    let then = match conflict.clash {
        Clash::Removed => Some(conflict.update),
        _ => conflict.found,
    };
    if let (false, Some(then), Some(now)) = (force, then, seen)
        && then != now
    {
        let path = path.display();
        let what = format!("{path} was changed since: --force removes what is there now");
        return Err(fail(Exit::Failure, what));
    }
    place.settled_by(conflict, seen, || match fs::symlink_metadata(&path) {
        // It is as it was to be.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        _ => remove(&path),
    })
}

pub fn keep_both(place: &Place, conflict: &ConflictInfo) -> Result<()> {
    place.settled_by(conflict, None, || Ok(()))
}

/// The merged contents take the name, and what lies beside it goes.
pub fn merge(place: &Place, conflict: &ConflictInfo, merging: &Merging) -> Result<()> {
    let number = conflict.number;
    if conflict.settings.is_some() {
        let what = format!(
            "conflict {number} is about attributes: `farfs conflicts show {number}` shows them, and \
             keep-mine or keep-theirs sets them"
        );
        return Err(fail(Exit::Failure, what));
    }
    let (theirs, mine) = place.sides(conflict)?;
    let read =
        |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let seen = version_of(&theirs);
    let before = (read(&theirs)?, read(&mine)?);
    let base = place.base(conflict)?;
    let path = conflict.path.as_deref().map(path_of).unwrap_or_default();
    let merged = merging.merged(conflict, &path, base, (&theirs, &mine))?;
    place.settled_by(conflict, seen, || {
        if (read(&theirs)?, read(&mine)?) != before {
            let what =
                format!("conflict {number}: a side was changed while it was merged; merge again");
            return Err(fail(Exit::Failure, what));
        }
        // The same file: with its owner, its attributes and its other names.
        fs::OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(&theirs)
            .and_then(|mut file| file.write_all(&merged).and_then(|()| file.sync_all()))
            .with_context(|| format!("cannot write {}", theirs.display()))?;
        remove(&mine)
    })
}

fn remove(path: &Path) -> Result<()> {
    fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))
}
