//! Contents that an update would make go away, and that its writer had not seen.
//! Holds: they stay, and what was to take their place gets a name beside theirs.
//! From: DESIGN, "Conflicts".

use super::conflict::{Clash, Conflict};
use super::decide::{Decision, Desk, beside, conflict};
use crate::error::Result;
use model::{Change, FileId, Kind, Problem, Stamp, Update, View};
use protocol::Objection;
use volume::whole::Whole;

/// The stamp of contents that the update would make go away, and that its writer had not seen
/// when it made the update.
pub(super) fn unseen_change(desk: &Desk<'_, '_>, update: &Update) -> Result<Option<Stamp>> {
    let (doomed, expects) = match &update.change {
        Change::Rename { over: Some(over), file, exchange: false, expects, .. } if over != file => {
            (*over, *expects)
        }
        Change::Unlink { file, expects, .. } => (*file, *expects),
        _ => return Ok(None),
    };
    let view = desk.view();
    let Some(node) = view.node(doomed)? else { return Ok(None) };
    let stamp = node.contents_stamp;
    let is_own = stamp.replica == update.stamp.replica;
    if node.kind != Kind::File || node.links > 1 {
        return Ok(None);
    }
    if is_own && !was_meant_for_another(&view, doomed, stamp)? {
        return Ok(None);
    }
    if let Some(expects) = expects {
        return Ok((stamp != expects).then_some(stamp));
    }
    let seen = match is_own {
        // Where that came to be its writer heard with the verdict.
        true => Some(desk.came_at),
        false => desk.writer.had_seen(update.stamp.number),
    };
    let Some(seen) = seen else { return Ok(None) };
    let since = view.contents(doomed, stamp)?.map(|(_, since)| since);
    Ok(since.filter(|since| *since > seen).map(|_| stamp))
}

/// Whether its writer meant these contents of a file for another one: they were kept aside, or followed what
/// was.
fn was_meant_for_another(view: &Whole<'_>, file: FileId, stamp: Stamp) -> Result<bool> {
    let Some((_, since)) = view.contents(file, stamp)? else { return Ok(false) };
    let taken = view.logged(since)?.filter(|taken| taken.update.stamp == stamp);
    Ok(taken.is_some_and(|taken| match taken.update.change {
        Change::Store { file: meant, .. } => meant != file,
        _ => false,
    }))
}

/// The update wins over the removal: what was changed stays.
pub(super) fn replaces_unseen(
    desk: &Desk<'_, '_>,
    update: &Update,
    found: Stamp,
) -> Result<Decision> {
    match &update.change {
        Change::Rename { to, to_name, over: Some(over), .. } => {
            let problem = Problem::ContentsChanged { file: *over, found };
            beside(desk, update, *to, *to, to_name, Clash::Replaced, &problem)
        }
        Change::Unlink { parent, name, file, .. } => {
            let conflict = conflict(Clash::Replaced, update, *file, *parent, name);
            let conflict = Conflict { found: Some(found), ..conflict };
            Ok(Decision::Refuse(Objection::Changed, Some(Box::new(conflict))))
        }
        _ => Ok(Decision::Refuse(Objection::Changed, None)),
    }
}
