//! Taking back that a conflict was seen to.
//! Holds: what is there now stays among the versions; where it was changed since, nothing is done
//! unasked; interrupted, the same once more does the rest.

use super::ways::one_side;
use super::{Place, SENT_WITHIN, attributes, path_of, version_there};
use crate::commands::wait;
use crate::exit::{Exit, fail};
use crate::owner::Owner;
use crate::past;
use anyhow::Result;
use model::{Name, Seq};
use protocol::past::{CONFLICTS_TOLD_MAX, Found, NotFound, Past, Restore, SettledInfo, Then};
use std::fs;
use std::path::Path;

/// Which of those that have been seen to.
pub enum Which {
    Last,
    Number(u64),
    /// The last about this path within the volume.
    Path(Vec<Name>),
}

/// Both sides are where they were, and the conflict is listed anew: its number. `force`: also if what
/// has the name was changed since.
pub fn undo(place: &Place, which: &Which, force: bool) -> Result<u64> {
    wait::until_sent(&place.mount, SENT_WITHIN)?;
    let settled = match (chosen(all(place)?, which), which) {
        // It was taken back, and the answer was lost.
        (Err(_), Which::Number(number)) if place.find(*number).is_ok() => return Ok(*number),
        (chosen, _) => chosen?,
    };
    let number = settled.conflict.number;
    if settled.conflict.settings.is_some() {
        attributes::put_back(place, &settled.conflict)?;
        wait::until_sent(&place.mount, SENT_WITHIN)?;
    } else {
        put_back(place, &settled, force)?;
    }
    match place.asked.ask(&Past::Reopen { number })? {
        Found::Reopened(number) => Ok(number),
        Found::Not(why) => Err(past::not(&why)),
        _ => Err(past::unexpected()),
    }
}

fn all(place: &Place) -> Result<Vec<SettledInfo>> {
    let mut all: Vec<SettledInfo> = Vec::new();
    loop {
        let after = all.last().map_or(0, |last| last.conflict.number);
        let ask = Past::Settled { after, conflicts_max: CONFLICTS_TOLD_MAX };
        match place.asked.ask(&ask)? {
            Found::SettledConflicts(told) => {
                let goes_on = told.more && !told.conflicts.is_empty();
                all.extend(told.conflicts);
                if !goes_on {
                    return Ok(all);
                }
            }
            Found::Not(why) => return Err(past::not(&why)),
            _ => return Err(past::unexpected()),
        }
    }
}

fn chosen(all: Vec<SettledInfo>, which: &Which) -> Result<SettledInfo> {
    let fits = |settled: &SettledInfo| match which {
        Which::Last => true,
        Which::Number(number) => settled.conflict.number == *number,
        Which::Path(path) => settled.conflict.path.as_ref() == Some(path),
    };
    let last = all.into_iter().filter(fits).max_by_key(|settled| (settled.at, settled.before));
    last.ok_or_else(|| match which {
        Which::Number(number) => past::not(&NotFound::NotSettled(*number)),
        Which::Last => fail(Exit::NotFound, "no conflict has been seen to"),
        Which::Path(path) => {
            let path = path_of(path);
            fail(Exit::NotFound, format!("no conflict about {path} has been seen to"))
        }
    })
}

fn put_back(place: &Place, settled: &SettledInfo, force: bool) -> Result<()> {
    let conflict = &settled.conflict;
    let Some(path) = &conflict.path else { return Ok(()) };
    let Some(aside) = &conflict.aside else {
        let was_removed = settled.left.is_none();
        let is_there = fs::symlink_metadata(place.path(path)).is_ok();
        return match was_removed && !is_there && one_side(conflict).is_some() {
            true => restore(place, path, settled.before, false),
            // It stayed, or something else has the name by now.
            false => Ok(()),
        };
    };
    if fs::symlink_metadata(place.path(aside)).is_ok() {
        // Both were kept.
        return Ok(());
    }
    let at = place.path(path);
    let kind = fs::symlink_metadata(&at).ok().map(|looked| looked.file_type());
    let is_changed = version_there(&at, conflict) != settled.left;
    if !force && is_changed {
        let (path, number) = (path_of(path), conflict.number);
        let what = format!(
            "{path} was changed since: `farfs conflicts undo {number} --force` brings back what was \
             there before, and leaves what is there now among the versions"
        );
        return Err(fail(Exit::Failure, what));
    }
    // What a directory holds is no side of it, and goes on as people have it.
    if is_changed || !kind.is_some_and(|kind| kind.is_dir()) {
        restore(place, path, settled.before, true)?;
    }
    restore(place, aside, settled.before, false)?;
    // What is done next here goes by what is there now.
    let _ = fs::symlink_metadata(place.path(aside));
    Ok(())
}

/// `may_lack`: that nothing was there is no error.
fn restore(place: &Place, path: &[Name], then: Seq, may_lack: bool) -> Result<()> {
    let Owner { uid, gid } = Owner::caller();
    let (path, then, to) = (path.to_vec(), Then::Version(then), None);
    let groups = Owner::groups_of_caller();
    match place.asked.ask(&Past::Restore(Restore { path, then, to, uid, gid, groups }))? {
        Found::Restored(_) => Ok(()),
        Found::Not(NotFound::NotThen(_) | NotFound::Removed(_)) if may_lack => Ok(()),
        Found::Not(why) => Err(past::not(&why)),
        _ => Err(past::unexpected()),
    }
}

/// A number, or else a path.
impl Which {
    pub fn of(place: &Place, text: Option<&str>) -> Result<Which> {
        let Some(text) = text else { return Ok(Which::Last) };
        match text.parse() {
            Ok(number) => Ok(Which::Number(number)),
            Err(_) => Ok(Which::Path(place.asked.names(Path::new(text))?)),
        }
    }
}
