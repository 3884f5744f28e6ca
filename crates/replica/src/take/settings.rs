//! Two who set the attributes of one file without knowing of each other.
//! Holds: what only one of them set is as that one set it; of what both set the file has what came
//! second, and both values are listed with what it was before; times alone are never listed.
//! From: DESIGN, "Updates": an attribute update expects the stamp of the attributes that it saw.

use super::conflict::{Clash, Conflict};
use super::decide::{Decision, Desk, Kept, conflict};
use crate::error::Result;
use minicbor::bytes::ByteVec;
use model::{
    ACL_ACCESS, Acl, AttributeChange, Change, Effects, FileId, Name, Node, ReplicaId, Seq, Stamp,
    Update, View, judge,
};
use protocol::Objection;
use protocol::past::{Attribute, Setting, Value};
use volume::whole::{NodeVersion, Whole};

/// Versions of a file among which the one is looked for that the writer saw.
const VERSIONS_MAX: usize = 10_000;
/// Of a mode, what an access list tells too.
const PERMISSION_BITS: u16 = 0o777;

/// Whether the update sets attributes which somebody has set since its writer saw them. Somebody who
/// waits sets extended attributes over what is there, as processes of one machine do.
pub(super) fn is_late(desk: &Desk<'_, '_>, update: &Update) -> Result<bool> {
    let (file, expects) = match &update.change {
        Change::SetAttributes { file, expects, .. } => (*file, *expects),
        Change::SetXattr { file, expects: Some(expects), .. }
        | Change::RemoveXattr { file, expects: Some(expects), .. }
            if !desk.strict =>
        {
            (*file, *expects)
        }
        _ => return Ok(false),
    };
    Ok(desk.view().node(file)?.is_some_and(|node| node.attributes_stamp != expects))
}

pub(super) fn decide(desk: &Desk<'_, '_>, update: &Update) -> Result<Decision> {
    let Some((file, expects)) = expectation(&update.change) else {
        return Ok(Decision::Refuse(Objection::Invalid, None));
    };
    let view = desk.view();
    let Some(there) = view.node(file)? else {
        return Ok(Decision::Refuse(Objection::NoEntry, None));
    };
    let tracks = tracks(&view, update, (file, expects), &there)?;
    let (change, settings) = meet(&update.change, &tracks, &there);
    if desk.strict && !settings.is_empty() {
        return Ok(Decision::Refuse(Objection::Changed, None));
    }
    // Whoever waits is told of what is there now, and meant what was set in any case.
    let change = if desk.strict { set_at(&update.change, &there) } else { change };
    let Some(change) = change else { return Ok(Decision::Take(Effects::default())) };
    let mut effects = match judge(&Update { change, ..update.clone() }, &view)? {
        Ok(effects) => effects,
        Err(_) => return Ok(Decision::Refuse(Objection::Changed, None)),
    };
    if let (true, Some(Some(node))) = (tracks.are_mixed, effects.nodes.get_mut(&file)) {
        // Its writer has not seen all of what is there now: who goes by the stamp of the update has
        // not, and who goes by this one has.
        node.attributes_stamp = Stamp::new(ReplicaId::ORIGIN, desk.committer.position().next().0);
    }
    if settings.is_empty() {
        return Ok(Decision::Take(effects));
    }
    let (directory, name) = named(&view, file)?;
    let conflict = Conflict {
        found: Some(there.attributes_stamp),
        base: Some(expects),
        settings: Some(settings),
        ..conflict(Clash::Attributes, update, file, directory, &name)
    };
    Ok(Decision::Keep(Box::new(Kept { effects, conflict, redirects: Vec::new() })))
}

/// One of a file's names, or a word for one that has none.
pub(super) fn named(view: &Whole<'_>, file: FileId) -> Result<(FileId, Name)> {
    let found = view.names(file, 1)?.into_iter().next();
    let nameless = || (FileId::ROOT, Name::new("?").expect("a question mark is a name"));
    Ok(found.unwrap_or_else(nameless))
}

fn expectation(change: &Change) -> Option<(FileId, Stamp)> {
    match change {
        Change::SetAttributes { file, expects, .. } => Some((*file, *expects)),
        Change::SetXattr { file, expects, .. } | Change::RemoveXattr { file, expects, .. } => {
            Some((*file, (*expects)?))
        }
        _ => None,
    }
}

/// What the writer knew of what it sets.
struct Tracks {
    each: Vec<Track>,
    /// Somebody else has set attributes since.
    are_mixed: bool,
}

struct Track {
    what: Attribute,
    mine: Value,
    /// As the writer saw it, or last set it itself. None: nobody knows any more.
    was: Option<Value>,
    /// Somebody else has set it since, or may have.
    others: bool,
}

impl Track {
    /// The writer made a version itself.
    fn set_by(&mut self, change: &Change, node: &Node) {
        let is_set = wanted(change, node.mode).iter().any(|(what, _)| *what == self.what);
        self.was = is_set.then(|| value(node, &self.what));
    }

    /// Somebody else made a version upon an earlier one.
    fn passed(&mut self, earlier: Option<&Node>, node: &Node) {
        let is_same = |earlier: &Node| value(earlier, &self.what) == value(node, &self.what);
        self.others |= !earlier.is_some_and(is_same);
    }
}

/// Those of which is not known yet what the writer saw.
fn tracked(each: &mut [Track], note: impl FnMut(&mut Track)) {
    each.iter_mut().filter(|track| track.was.is_none()).for_each(note);
}

/// Goes back, version by version, to the one that the writer saw. One that it made itself upon another
/// that it saw, while others set something, bears a stamp of the origin's: it is known by the log.
fn tracks(
    view: &Whole<'_>,
    update: &Update,
    (file, expects): (FileId, Stamp),
    there: &Node,
) -> Result<Tracks> {
    let track = |(what, mine)| Track { what, mine, was: None, others: false };
    let mut each: Vec<Track> = wanted(&update.change, there.mode).into_iter().map(track).collect();
    let (mut target, mut are_mixed) = (expects, false);
    let Some(mut at) = view.node_version_before(file, Seq(u64::MAX))? else {
        return Ok(Tracks { each, are_mixed });
    };
    let mut seen = None;
    for _ in 0..VERSIONS_MAX {
        let Some(node) = at.node.take() else { break };
        if node.attributes_stamp == target {
            seen = Some(node);
            break;
        }
        let before = last_before(view, file, at.seq)?;
        let is_first = before.is_none();
        let set_here = before
            .as_ref()
            .and_then(|version| version.node.as_ref())
            .is_none_or(|before| before.attributes_stamp != node.attributes_stamp);
        if set_here && !is_first {
            let by = view.logged(at.seq)?.map(|logged| logged.update);
            let own = by.filter(|by| by.stamp.replica == update.stamp.replica);
            if let Some(own) = own {
                tracked(&mut each, |track| track.set_by(&own.change, &node));
                match expectation(&own.change) {
                    Some((_, upon)) if own.stamp == target => target = upon,
                    // What it was made upon is not said, and taken to be what was there.
                    None if own.stamp == target => {
                        seen = Some(node);
                        break;
                    }
                    _ => {}
                }
            } else {
                are_mixed = true;
                let earlier = before.as_ref().and_then(|version| version.node.as_ref());
                tracked(&mut each, |track| track.passed(earlier, &node));
            }
        }
        match before {
            Some(before) => at = before,
            None => {
                // A directory that two made bears the stamp of the one who came first: how that
                // made it is what both began from.
                let is_making = node.attributes_stamp == node.contents_stamp;
                seen = Some(node).filter(|_| is_making && target.replica == update.stamp.replica);
                break;
            }
        }
    }
    tracked(&mut each, |track| {
        track.was = seen.as_ref().map(|seen| value(seen, &track.what));
        // Where nobody knows what it was, somebody may have set it.
        track.others |= seen.is_none();
    });
    Ok(Tracks { each, are_mixed: are_mixed || seen.is_none() })
}

/// The version before one; it may have been removed, and brought back.
fn last_before(view: &Whole<'_>, file: FileId, mut seq: Seq) -> Result<Option<NodeVersion>> {
    loop {
        match view.node_version_before(file, seq)? {
            Some(version) if version.node.is_none() => seq = version.seq,
            found => return Ok(found),
        }
    }
}

/// What is left to set, with the stamp that is there, and what both have set to different values.
fn meet(change: &Change, tracks: &Tracks, there: &Node) -> (Option<Change>, Vec<Setting>) {
    let (mut settings, mut unchanged) = (Vec::new(), Vec::new());
    for Track { what, mine, was, others } in &tracks.each {
        let theirs = value(there, what);
        if !others || theirs == *mine || was.as_ref() == Some(&theirs) {
            continue;
        }
        // The mode that a list brings along is set in any case.
        let comes_along = *what == Attribute::Mode && matches!(change, Change::SetXattr { .. });
        if was.as_ref() == Some(mine) && !comes_along {
            // Who sets what was so already has changed nothing.
            unchanged.push(what.clone());
        } else {
            let (what, was, mine) = (what.clone(), was.clone(), mine.clone());
            settings.push(Setting { what, was, theirs, mine });
        }
    }
    let mut left = set_at(change, there);
    match &mut left {
        Some(Change::SetAttributes { set, .. }) => {
            set.mode.take_if(|_| unchanged.contains(&Attribute::Mode));
            set.uid.take_if(|_| unchanged.contains(&Attribute::Owner));
            set.gid.take_if(|_| unchanged.contains(&Attribute::Group));
            left.take_if(|_| is_nothing(change, &unchanged));
        }
        Some(Change::SetXattr { name, .. } | Change::RemoveXattr { name, .. }) => {
            let what = Attribute::Xattr(name.clone());
            left.take_if(|_| unchanged.contains(&what));
        }
        _ => {}
    }
    if left.is_none() {
        settings.clear();
    }
    (left, settings)
}

fn is_nothing(change: &Change, unchanged: &[Attribute]) -> bool {
    let Change::SetAttributes { set, .. } = change else { return false };
    let AttributeChange { mode, uid, gid, atime, mtime } = set;
    let set = usize::from(mode.is_some()) + usize::from(uid.is_some()) + usize::from(gid.is_some());
    atime.is_none() && mtime.is_none() && set == unchanged.len()
}

/// The change as one of what is there now. None: that is no change.
fn set_at(change: &Change, there: &Node) -> Option<Change> {
    let mut change = change.clone();
    match &mut change {
        Change::SetAttributes { expects, .. } => *expects = there.attributes_stamp,
        Change::RemoveXattr { name, .. } => there.xattr(name).map(|_| ())?,
        _ => {}
    }
    Some(change)
}

/// What a change sets, but for times; of a list of access rights the mode too, where the file had one
/// with the same further bits.
fn wanted(change: &Change, mode: u16) -> Vec<(Attribute, Value)> {
    match change {
        Change::SetAttributes { set, .. } => {
            let mode = set.mode.map(|mode| (Attribute::Mode, Value::Number(mode.into())));
            let owner = set.uid.map(|uid| (Attribute::Owner, Value::Number(uid)));
            let group = set.gid.map(|gid| (Attribute::Group, Value::Number(gid)));
            [mode, owner, group].into_iter().flatten().collect()
        }
        Change::SetXattr { name, value, .. } => {
            let list = if name.as_slice() == ACL_ACCESS { Acl::read(value) } else { None };
            let mine = match &list {
                Some(list) if list.is_mode_alone() => Value::Absent,
                _ => Value::Bytes(value.clone()),
            };
            let mode = list.map(|list| mode & !PERMISSION_BITS | list.mode());
            let mode = mode.map(|mode| (Attribute::Mode, Value::Number(mode.into())));
            [(Attribute::Xattr(name.clone()), mine)].into_iter().chain(mode).collect()
        }
        Change::RemoveXattr { name, .. } => vec![(Attribute::Xattr(name.clone()), Value::Absent)],
        _ => Vec::new(),
    }
}

fn value(node: &Node, what: &Attribute) -> Value {
    match what {
        Attribute::Mode => Value::Number(node.mode.into()),
        Attribute::Owner => Value::Number(node.uid),
        Attribute::Group => Value::Number(node.gid),
        Attribute::Xattr(name) => match node.xattr(name) {
            Some(value) => Value::Bytes(ByteVec::from(value.to_vec())),
            None => Value::Absent,
        },
    }
}
