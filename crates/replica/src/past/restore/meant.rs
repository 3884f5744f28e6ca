//! What a restoration means: which position, and which file as of then.

use super::{Step, not};
use crate::past::history::{Walk, shown};
use crate::volumes::Volume;
use model::{FileId, Name, Node, Seq, Time, View};
use protocol::past::{NotFound, Then};
use volume::whole::{Whole, position_at};

/// Records of the log that are looked through at once.
const RECORDS_MAX: usize = 1000;

/// The position that a restoration goes by.
pub(super) fn position_meant(
    view: &Whole<'_>,
    read: &dyn store::Read,
    of: &Volume,
    then: &Then,
) -> Step<Seq> {
    match then {
        Then::Version(seq) => Ok(*seq),
        Then::Time(time) => position_of(view, read, of, *time),
        Then::Snapshot(text) => {
            let named = Name::new(text.as_bytes()).ok();
            let found = named.map(|name| view.snapshot_named(&name)).transpose()?.flatten();
            match found {
                Some(snapshot) => Ok(snapshot.position),
                None => not(NotFound::NoSnapshot(text.clone())),
            }
        }
    }
}

/// What a path led to at a position.
pub(super) fn file_then(view: &Whole<'_>, then: Seq, path: &[Name]) -> Step<(FileId, Node)> {
    let then = view.at_position(then);
    let mut file = FileId::ROOT;
    for name in path {
        match then.entry(file, name)? {
            Some(below) => file = below,
            None => return not(NotFound::NotThen(shown(path))),
        }
    }
    match then.node(file)? {
        Some(node) => Ok((file, node)),
        None => not(NotFound::NotThen(shown(path))),
    }
}

/// The version of a path that `farfs history` tells of by this position; one without a file: it was
/// removed then.
pub(super) fn version_of(
    view: Whole<'_>,
    path: &[Name],
    seq: Seq,
) -> Step<Option<Option<(FileId, Node)>>> {
    let Some(walk) = Walk::of(view, path, Some(Seq(seq.0.saturating_add(1))))? else {
        return Ok(None);
    };
    let first = walk.collect_up_to(1)?.pop();
    Ok(first.filter(|item| item.since == seq).map(|item| item.was))
}

/// Where the volume stood at a time: by the marks of the origin's clock, and between two of them by
/// the clocks of those who made the updates.
fn position_of(view: &Whole<'_>, read: &dyn store::Read, volume: &Volume, time: Time) -> Step<Seq> {
    let mut at = position_at(read, volume.id, time.secs)?;
    loop {
        let records = view.log(at, RECORDS_MAX)?;
        let is_last = records.len() < RECORDS_MAX;
        for record in records {
            if record.seq != at.next() || record.update.at > time {
                return Ok(at);
            }
            at = record.seq;
        }
        if is_last {
            return Ok(at);
        }
    }
}
