//! Taking back that a conflict was seen to.
//! Holds: what is there now stays among the versions; where it was changed since, nothing is done
//! unasked; interrupted, the same once more does the rest.

use super::ways::one_side;
use super::{Place, SENT_WITHIN, attributes, hidden, is_gone, last, path_of, version_there};
use crate::commands::wait;
use crate::exit::{Exit, fail};
use crate::owner::Owner;
use crate::past;
use anyhow::Result;
use model::{Name, Seq};
use protocol::past::{
    CONFLICTS_TOLD_MAX, ConflictInfo, Found, HiddenConflict, NotFound, Past, Restore, Restored,
    SettledConflicts, SettledInfo, Then,
};
use std::cmp::Reverse;
use std::fs;
use std::path::Path;

const NONE: &str = "no conflict has been seen to";

/// Which of those that have been seen to.
#[derive(Debug, PartialEq, Eq)]
pub enum Which {
    Last,
    Number(u64),
    /// The last about this path within the volume.
    Path(Vec<Name>),
}

/// One is listed anew.
#[derive(Debug)]
pub struct Undone {
    pub number: u64,
    /// Later ones that cannot be taken back, for people.
    pub passed: Vec<String>,
}

/// What came of taking one back.
enum Back {
    Done,
    /// What has the name was changed since: nothing is done unasked.
    Changed(String),
    /// Nothing was done, and nothing would be by the same once more.
    Cannot(anyhow::Error),
}

/// Both sides are where they were, and the conflict is listed anew. `force`: also if what has the name was
/// changed since.
pub fn undo(place: &Place, which: &Which, force: bool) -> Result<Undone> {
    wait::until_sent(&place.mount, SENT_WITHIN)?;
    let chosen = match (chosen(all(place)?, which), which) {
        // It was taken back, and the answer was lost.
        (Err(_), Which::Number(number)) if place.find(*number).is_ok() => {
            return Ok(Undone { number: *number, passed: Vec::new() });
        }
        (chosen, _) => chosen?,
    };
    let (mut passed, mut first) = (Vec::new(), None);
    let mut left = chosen.iter().peekable();
    while let Some(settled) = left.next() {
        let number = settled.conflict.number;
        match taken_back(place, settled, force)? {
            Back::Done => {
                reopen(place, number)?;
                return Ok(Undone { number, passed });
            }
            Back::Changed(why) => {
                let before = left.peek().map(|before| before.conflict.number);
                let before = before.map(|before| {
                    format!("; the one before it is taken back by `farfs conflicts undo {before}`")
                });
                return Err(fail(Exit::Failure, why + &before.unwrap_or_default()));
            }
            Back::Cannot(why) => {
                passed.push(format!("passed over: conflict {number}: {why:#}"));
                first.get_or_insert_with(|| why.context(format!("conflict {number}")));
            }
        }
    }
    // Of those that are meant none can be.
    Err(first.unwrap_or_else(|| fail(Exit::NotFound, NONE)))
}

fn reopen(place: &Place, number: u64) -> Result<()> {
    let by = place.asked.by();
    match place.asked.ask(&Past::Reopen { number, by })? {
        Found::Reopened(_) => Ok(()),
        Found::Not(why) => Err(past::not(&why)),
        _ => Err(past::unexpected()),
    }
}

fn all(place: &Place) -> Result<SettledConflicts> {
    let (mut all, mut after) = (SettledConflicts::default(), 0);
    loop {
        let (conflicts_max, by) = (CONFLICTS_TOLD_MAX, place.asked.by());
        match place.asked.ask(&Past::Settled { after, conflicts_max, by })? {
            Found::SettledConflicts(told) => {
                let hidden = told.hidden.unwrap_or_default();
                let last = last(told.conflicts.last().map(|one| one.conflict.number), &hidden);
                all.conflicts.extend(told.conflicts);
                all.hidden.get_or_insert_default().extend(hidden);
                match last.filter(|_| told.more) {
                    Some(last) => after = last,
                    None => return Ok(all),
                }
            }
            Found::Not(why) => return Err(past::not(&why)),
            _ => return Err(past::unexpected()),
        }
    }
}

/// Those that are meant, the last one first: one, or where none is named all.
fn chosen(all: SettledConflicts, which: &Which) -> Result<Vec<SettledInfo>> {
    let fits = |settled: &SettledInfo| match which {
        Which::Last => true,
        Which::Number(number) => settled.conflict.number == *number,
        Which::Path(path) => settled.conflict.path.as_ref() == Some(path),
    };
    let mut chosen: Vec<SettledInfo> = all.conflicts.into_iter().filter(fits).collect();
    chosen.sort_by_key(|settled| Reverse((settled.at, settled.before, settled.conflict.number)));
    if *which != Which::Last {
        chosen.truncate(1);
    }
    if !chosen.is_empty() {
        return Ok(chosen);
    }
    let hides = |one: &&HiddenConflict| match which {
        Which::Last => false,
        Which::Number(number) => one.number == *number,
        Which::Path(path) => {
            let above = one.directory.trim_end_matches('/');
            format!("/{}", path_of(path)).starts_with(&format!("{above}/"))
        }
    };
    if let Some(one) = all.hidden.iter().flatten().find(hides) {
        return Err(hidden(one.number, &one.directory));
    }
    Err(match which {
        Which::Number(number) => past::not(&NotFound::NotSettled(*number)),
        Which::Last => fail(Exit::NotFound, NONE),
        Which::Path(path) => {
            let path = path_of(path);
            fail(Exit::NotFound, format!("no conflict about {path} has been seen to"))
        }
    })
}

fn taken_back(place: &Place, settled: &SettledInfo, force: bool) -> Result<Back> {
    let conflict = &settled.conflict;
    place.may_look(conflict)?;
    if conflict.settings.is_none() {
        return put_back(place, settled, force);
    }
    let is_there = match &conflict.path {
        Some(path) => !is_gone(&place.path(path))?,
        None => false,
    };
    if !is_there {
        let why = "the file whose attributes it is about is gone";
        return Ok(Back::Cannot(fail(Exit::NotFound, why)));
    }
    attributes::put_back(place, conflict)?;
    wait::until_sent(&place.mount, SENT_WITHIN)?;
    Ok(Back::Done)
}

fn put_back(place: &Place, settled: &SettledInfo, force: bool) -> Result<Back> {
    let conflict = &settled.conflict;
    let Some(path) = &conflict.path else { return Ok(Back::Done) };
    let Some(aside) = &conflict.aside else {
        let was_removed = settled.left.is_none();
        let is_there = fs::symlink_metadata(place.path(path)).is_ok();
        return match was_removed && !is_there && one_side(conflict).is_some() {
            true => Ok(match restore(place, path, settled.before)? {
                Ok(_) => Back::Done,
                Err(why) => not_back(conflict, &why)?,
            }),
            // It stayed, or something else has the name by now.
            false => Ok(Back::Done),
        };
    };
    if fs::symlink_metadata(place.path(aside)).is_ok() {
        // Both were kept.
        return Ok(Back::Done);
    }
    let at = place.path(path);
    let kind = fs::symlink_metadata(&at).ok().map(|looked| looked.file_type());
    let is_changed = version_there(&at, conflict) != settled.left;
    if !force && is_changed {
        let (path, number) = (path_of(path), conflict.number);
        return Ok(Back::Changed(format!(
            "{path} was changed since: `farfs conflicts undo {number} --force` brings back what was \
             there before, and leaves what is there now among the versions"
        )));
    }
    let mut is_begun = false;
    // What a directory holds is no side of it, and goes on as people have it.
    if is_changed || !kind.is_some_and(|kind| kind.is_dir()) {
        match restore(place, path, settled.before)? {
            Ok(done) => is_begun = done.made + done.changed > 0,
            // Nothing was there.
            Err(NotFound::NotThen(_) | NotFound::Removed(_)) => {}
            Err(why) => return not_back(conflict, &why),
        }
    }
    match restore(place, aside, settled.before)? {
        Ok(_) => {}
        Err(why) if is_begun => return Err(past::not(&why)),
        Err(why) => return not_back(conflict, &why),
    }
    // What is done next here goes by what is there now.
    let _ = fs::symlink_metadata(place.path(aside));
    Ok(Back::Done)
}

/// Why the server has done nothing of it: whether it would do as little the next time.
fn not_back(conflict: &ConflictInfo, why: &NotFound) -> Result<Back> {
    match why {
        NotFound::OtherKind(path) => {
            let number = conflict.number;
            let what = format!(
                "{path} is something of another kind now, and a directory is neither replaced nor put \
                 in the place of anything: move away what is there, and `farfs conflicts undo {number} \
                 --force` brings back what was there before"
            );
            Ok(Back::Cannot(fail(Exit::Failure, what)))
        }
        NotFound::NoPath(_)
        | NotFound::NotThen(_)
        | NotFound::Removed(_)
        | NotFound::Pruned(_)
        | NotFound::TooEarly
        | NotFound::NoDirectory(_)
        | NotFound::NotYours(_) => Ok(Back::Cannot(past::not(why))),
        why => Err(past::not(why)),
    }
}

/// What is there of another kind is replaced, too.
fn restore(
    place: &Place,
    path: &[Name],
    then: Seq,
) -> Result<std::result::Result<Restored, NotFound>> {
    let Owner { uid, gid } = Owner::caller();
    let (path, then, to) = (path.to_vec(), Then::Version(then), None);
    let (groups, over_others) = (Owner::groups_of_caller(), Some(true));
    let restore = Restore { path, then, to, uid, gid, groups, over_others };
    match place.asked.ask(&Past::Restore(restore))? {
        Found::Restored(done) => Ok(Ok(done)),
        Found::Not(why) => Ok(Err(why)),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conflicts::listed::tests::conflict;
    use crate::exit;
    use model::{Seq, Time};

    fn settled(number: u64, secs: i64, name: &str) -> SettledInfo {
        let path = Some(vec![Name::new(b"docs").unwrap(), Name::new(name.as_bytes()).unwrap()]);
        let (before, at) = (Seq(number), Time { secs, nanos: 0 });
        let conflict = ConflictInfo { number, path, ..conflict() };
        SettledInfo { conflict, before, at, device: None, left: None }
    }

    fn told() -> SettledConflicts {
        let conflicts = vec![settled(2, 9, "a"), settled(3, 7, "b"), settled(5, 8, "a")];
        let hidden = HiddenConflict { number: 4, directory: "/shut".into() };
        SettledConflicts { conflicts, more: false, hidden: Some(vec![hidden]) }
    }

    fn of_path(text: &str) -> Which {
        Which::Path(text.split('/').map(|name| Name::new(name.as_bytes()).unwrap()).collect())
    }

    #[test]
    fn the_last_that_was_seen_to_comes_first_and_of_one_that_is_named_no_other() {
        for (which, expected) in
            [(Which::Last, &[2, 5, 3][..]), (Which::Number(3), &[3]), (of_path("docs/a"), &[2])]
        {
            let chosen = chosen(told(), &which).unwrap();
            let numbers: Vec<u64> = chosen.iter().map(|one| one.conflict.number).collect();
            assert_eq!(numbers, expected, "{which:?}");
        }
    }

    #[test]
    fn of_one_that_lies_where_one_may_not_search_it_is_said_and_of_none_that_there_is_none() {
        for (which, code, part) in [
            (Which::Number(4), Exit::Failure, "what is in /shut is not told"),
            (of_path("shut/a"), Exit::Failure, "what is in /shut is not told"),
            (Which::Number(6), Exit::Failure, "conflict 6 was not seen to"),
            (of_path("shutters/a"), Exit::NotFound, "no conflict about shutters/a"),
        ] {
            let error = chosen(told(), &which).unwrap_err();
            assert_eq!(exit::code(&error), code, "{error:#}");
            assert!(format!("{error:#}").contains(part), "{error:#}");
        }
        let all = SettledConflicts { conflicts: Vec::new(), ..told() };
        let error = chosen(all, &Which::Last).unwrap_err();
        assert_eq!(error.to_string(), NONE);
    }

    /// What time does not change is passed over, and what may be otherwise the next time is not.
    #[test]
    fn what_the_server_would_refuse_again_cannot_be_taken_back() {
        let name = || "/docs/a".to_owned();
        for why in [
            NotFound::OtherKind(name()),
            NotFound::Pruned(name()),
            NotFound::NotYours(name()),
            NotFound::NoDirectory(name()),
        ] {
            let back = not_back(&conflict(), &why).unwrap();
            let Back::Cannot(told) = back else { panic!("{why:?}") };
            assert!(told.to_string().contains("/docs/a"), "{told}");
        }
        let full = NotFound::Refused("a quota would be exceeded".into());
        assert!(not_back(&conflict(), &full).is_err());
    }
}
