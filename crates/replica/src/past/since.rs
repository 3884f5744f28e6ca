//! Whether all that became of the sides of a conflict since a position is what seeing to it does.
//! Holds: in doubt it is not, and then what is taken back is less.

use crate::error::Result;
use crate::take::Conflict;
use model::{FileId, Name, Node, Seq};
use protocol::past::STAGED;
use volume::whole::Whole;

/// Versions that are looked at.
const VERSIONS_MAX: usize = 1000;

/// Whether both names had since then, whenever they had anything, what one of the two had then or what was
/// merged of both.
pub(super) fn is_its_own(
    view: &Whole<'_>,
    number: u64,
    conflict: &Conflict,
    then: Seq,
) -> Result<bool> {
    let aside = conflict.aside.as_ref().map(|(_, directory, name)| (*directory, name));
    let names = [Some((conflict.directory, &conflict.name)), aside];
    let names: Vec<_> = names.into_iter().flatten().collect();
    let mut known = Vec::new();
    for at in &names {
        known.extend(had(view, *at, then)?);
    }
    if let Ok(staged) = Name::new(format!("{STAGED}{number}").as_bytes()) {
        known.extend(had(view, (conflict.directory, &staged), then)?);
        let merged = bore(view, (conflict.directory, &staged), then)?;
        known.extend(merged.into_iter().flatten());
    }
    let is_known = |node: &Node| known.iter().any(|known| is_alike(known, node));
    for at in names {
        let Some(bore) = bore(view, at, then)? else { return Ok(false) };
        if !bore.iter().all(is_known) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether what lay beside then does so no more: without the position of then it is not had back.
pub(super) fn is_gone(view: &Whole<'_>, conflict: &Conflict, then: Seq) -> Result<bool> {
    let Some((_, directory, name)) = &conflict.aside else { return Ok(false) };
    let at = (*directory, name);
    Ok(had(view, at, then)?.is_some() && had(view, at, view.position()?)?.is_none())
}

fn is_alike(one: &Node, other: &Node) -> bool {
    let what = |node: &Node| (node.kind, node.contents, node.target.clone());
    what(one) == what(other)
}

/// What bore a name then.
pub(super) fn had(
    view: &Whole<'_>,
    (directory, name): (FileId, &Name),
    then: Seq,
) -> Result<Option<Node>> {
    let entry = view.entry_version_before(directory, name, then.next())?;
    let Some(file) = entry.and_then(|entry| entry.file) else { return Ok(None) };
    Ok(view.node_version_before(file, then.next())?.and_then(|version| version.node))
}

/// All that came to bear a name after a position, and what became of it. None: that is too much to look at.
fn bore(
    view: &Whole<'_>,
    (directory, name): (FileId, &Name),
    after: Seq,
) -> Result<Option<Vec<Node>>> {
    let (mut bore, mut until, mut left) = (Vec::new(), Seq(u64::MAX), VERSIONS_MAX);
    while until > after {
        let Some(entry) = view.entry_version_before(directory, name, until)? else { break };
        let mut upto = until;
        while let Some(file) = entry.file {
            let Some(version) = view.node_version_before(file, upto)? else { break };
            // So it was already.
            if version.seq <= after && entry.seq <= after {
                break;
            }
            bore.extend(version.node);
            left -= 1;
            if left == 0 {
                return Ok(None);
            }
            // So it came.
            if version.seq <= entry.seq {
                break;
            }
            upto = version.seq;
        }
        left -= 1;
        if left == 0 {
            return Ok(None);
        }
        until = entry.seq;
    }
    Ok(Some(bore))
}
