//! The conflicts of a volume, as who sees to them wants to know of them.
//! From: DESIGN, "Conflicts".

use super::history::looks;
use super::rights;
use super::since::{had, is_gone, is_its_own};
use crate::deltas::bytes_of;
use crate::error::Result;
use crate::origin::Inner;
use crate::take::{
    self, Claimed, Clash, Conflict, Settled, conflicts_after, settled_after, settled_of,
};
use crate::volumes::Volume;
use model::{ACL_ACCESS, FileId, Kind, Name, Node, Seq, Stamp, Time, View};
use protocol::Range;
use protocol::past::{
    BASE_BYTES_MAX, By, CLAIM_SECS, CONFLICTS_TOLD_MAX, Claim, ConflictInfo, Conflicts, Found,
    HiddenConflict, NotFound, PATH_NAMES_MAX, Setting, SettledConflicts, SettledInfo, Value,
};
use store::Durability;
use volume::whole::Whole;

/// Values of attributes in one answer, about.
const ANSWER_BYTES_MAX: usize = 256 << 10;
/// In the place of a device's name.
const AT_THE_SERVER: &str = "the server";
/// In the place of a directory's path.
const REMOVED: &str = "a directory that was removed";
/// Versions of a file among which the base is looked for.
const VERSIONS_MAX: usize = 10_000;

pub(super) fn list(
    inner: &Inner,
    volume: &Volume,
    after: u64,
    conflicts_max: u32,
    by: Option<&By>,
) -> Result<Found> {
    let read = inner.tables.read()?;
    let view = Whole::now(&*read, volume.id);
    let wanted = conflicts_max.clamp(1, CONFLICTS_TOLD_MAX) as usize;
    let mut found = conflicts_after(&*read, volume.id, after, wanted + 1)?;
    let more = keep_what_fits(&mut found, wanted, |conflict| conflict);
    let now = inner.world.clock.time();
    let (found, hidden) = parted(&view, by, found, |conflict| conflict)?;
    let conflicts = found.into_iter().map(|(number, conflict)| info(&view, number, conflict, now));
    let conflicts = conflicts.collect::<Result<_>>()?;
    Ok(Found::Conflicts(Conflicts { conflicts, more, hidden }))
}

/// By number: what may be told of, and where the others lie.
type Parted<T> = (Vec<(u64, T)>, Option<Vec<HiddenConflict>>);

fn parted<T>(
    view: &Whole<'_>,
    by: Option<&By>,
    found: Vec<(u64, T)>,
    conflict: impl Fn(&T) -> &Conflict,
) -> Result<Parted<T>> {
    let (mut told, mut hidden) = (Vec::new(), Vec::new());
    for (number, one) in found {
        match hidden_from(view, by, conflict(&one))? {
            Some(directory) => hidden.push(HiddenConflict { number, directory }),
            None => told.push((number, one)),
        }
    }
    Ok((told, (!hidden.is_empty()).then_some(hidden)))
}

/// The first directory that who asks may not search on the way to the name, to the one that the other
/// was given, or to where that is by now. None: he may know of it.
fn hidden_from(view: &Whole<'_>, by: Option<&By>, conflict: &Conflict) -> Result<Option<String>> {
    let Some(by) = by.filter(|by| by.uid != 0) else { return Ok(None) };
    let mut paths = Vec::new();
    match beside(view, conflict.directory, &conflict.name)? {
        Some(path) => paths.push(path),
        // Where it was is not known any more: it counts as what it was last.
        None if rights::may_search(view, by, conflict.directory)? => {}
        None => return Ok(Some(REMOVED.into())),
    }
    paths.extend(path_of(view, conflict)?);
    if let Some(aside) = &conflict.aside {
        paths.extend(beside(view, aside.1, &aside.2)?);
        paths.extend(aside_of(view, conflict.clash, aside)?);
    }
    for path in paths {
        if let Some(directory) = rights::hidden(view, by, &path, Seq(u64::MAX))? {
            return Ok(Some(directory));
        }
    }
    Ok(None)
}

/// The same as an answer.
fn refused(view: &Whole<'_>, by: Option<&By>, conflict: &Conflict) -> Result<Option<Found>> {
    let hidden = hidden_from(view, by, conflict)?;
    Ok(hidden.map(|directory| Found::Not(NotFound::Hidden(directory))))
}

/// Of two who see to a conflict at the same time one is told so before it has changed anything.
pub(super) fn claim(
    inner: &Inner,
    volume: &Volume,
    asked: &Claim,
    device: Option<String>,
) -> Result<Found> {
    let number = asked.number;
    let _turn = volume.turn();
    let mut write = inner.tables.write()?;
    let Some(mut conflict) = take::conflict_of(&*write, volume.id, number)? else {
        return Ok(Found::Not(NotFound::NoConflict(number)));
    };
    let view = Whole::now(&*write, volume.id);
    if let Some(refused) = refused(&view, asked.by.as_ref(), &conflict)? {
        return Ok(refused);
    }
    let now = inner.world.clock.time();
    if let Some(why) = in_the_way(number, &conflict, Some(asked.token), now) {
        return Ok(Found::Not(why));
    }
    if let Some(seen) = asked.seen.filter(|_| asked.holds)
        && bearer(&view, &conflict)?.is_some_and(|node| node.contents_stamp != seen)
    {
        return Ok(Found::Not(NotFound::ChangedSince(number)));
    }
    let mine = conflict.claim.as_ref().filter(|claim| claim.token == asked.token);
    let before = match mine {
        Some(mine) if is_kept(&view, number, &conflict, mine.before)? => mine.before,
        _ => view.position()?,
    };
    let until = Time { secs: now.secs.saturating_add_unsigned(CLAIM_SECS), ..now };
    let device = device.unwrap_or_else(|| AT_THE_SERVER.into());
    let claimed = Claimed { token: asked.token, device, until, before };
    conflict.claim = asked.holds.then_some(claimed);
    take::put(&mut *write, volume.id, number, &conflict)?;
    write.commit(Durability::Now)?;
    Ok(Found::Claimed(number))
}

/// What was done about it since the first time it was claimed is taken back with the rest, and
/// nothing that somebody has stored since, as long as both sides are there without that.
fn is_kept(view: &Whole<'_>, number: u64, conflict: &Conflict, before: Seq) -> Result<bool> {
    Ok(is_its_own(view, number, conflict, before)? || is_gone(view, conflict, before)?)
}

/// Whether another than the one with the token is about to see to it.
fn in_the_way(number: u64, conflict: &Conflict, token: Option<u64>, now: Time) -> Option<NotFound> {
    let claim = conflict.claim.as_ref().filter(|claim| Some(claim.token) != token)?;
    let left = u64::try_from(claim.until.secs - now.secs).unwrap_or(0);
    (left > 0).then(|| NotFound::Claimed(number, claim.device.clone(), left))
}

/// The file that bears the name now.
fn bearer(view: &Whole<'_>, conflict: &Conflict) -> Result<Option<Node>> {
    match view.entry(conflict.directory, &conflict.name)? {
        Some(file) => Ok(view.node(file)?),
        None => Ok(None),
    }
}

pub(super) fn settle(
    inner: &Inner,
    volume: &Volume,
    (number, by): (u64, Option<&By>),
    token: Option<u64>,
    device: Option<String>,
) -> Result<Found> {
    let _turn = volume.turn();
    let mut write = inner.tables.write()?;
    let Some(mut conflict) = take::conflict_of(&*write, volume.id, number)? else {
        let settled = settled_of(&*write, volume.id, number)?;
        let by = settled.and_then(|settled| settled.conflict.claim).map(|claim| claim.token);
        // Its answer was lost, and it asks again.
        let again = token.is_some() && by == token;
        return Ok(match again {
            true => Found::Settled(number),
            false => Found::Not(NotFound::NoConflict(number)),
        });
    };
    let view = Whole::now(&*write, volume.id);
    if let Some(refused) = refused(&view, by, &conflict)? {
        return Ok(refused);
    }
    let at = inner.world.clock.time();
    if let Some(why) = in_the_way(number, &conflict, token, at) {
        return Ok(Found::Not(why));
    }
    conflict.claim = conflict.claim.take().filter(|claim| Some(claim.token) == token);
    let before = match &conflict.claim {
        Some(claim) => claim.before,
        None => view.position()?,
    };
    let now = bearer(&view, &conflict)?;
    let left = match is_its_own(&view, number, &conflict, before)? {
        // Taken back, what somebody has stored since the claim would be gone: who does that is asked.
        false if now.is_some() => had(&view, (conflict.directory, &conflict.name), before)?,
        _ => now,
    };
    let left = left.map(|node| node.contents_stamp);
    let settled = Settled { conflict, before, at, device, left };
    take::settle(&mut *write, volume.id, number, &settled)?;
    write.commit(Durability::Now)?;
    Ok(Found::Settled(number))
}

pub(super) fn settled(
    inner: &Inner,
    volume: &Volume,
    after: u64,
    conflicts_max: u32,
    by: Option<&By>,
) -> Result<Found> {
    let read = inner.tables.read()?;
    let view = Whole::now(&*read, volume.id);
    let wanted = conflicts_max.clamp(1, CONFLICTS_TOLD_MAX) as usize;
    let mut found = settled_after(&*read, volume.id, after, wanted + 1)?;
    let more = keep_what_fits(&mut found, wanted, |settled| &settled.conflict);
    let (found, hidden) = parted(&view, by, found, |settled| &settled.conflict)?;
    let info = |(number, settled): (u64, Settled)| -> Result<SettledInfo> {
        let Settled { mut conflict, before, at, device, left } = settled;
        conflict.claim = None;
        let aside = match &conflict.aside {
            Some((_, directory, name)) => beside(&view, *directory, name)?,
            None => None,
        };
        let conflict = ConflictInfo { aside, ..info(&view, number, conflict, at)? };
        Ok(SettledInfo { conflict, before, at, device, left })
    };
    let conflicts = found.into_iter().map(info).collect::<Result<_>>()?;
    Ok(Found::SettledConflicts(SettledConflicts { conflicts, more, hidden }))
}

/// What was taken back is where it was: what bears the names now are the sides of it.
pub(super) fn reopen(
    inner: &Inner,
    volume: &Volume,
    number: u64,
    by: Option<&By>,
) -> Result<Found> {
    let _turn = volume.turn();
    let mut write = inner.tables.write()?;
    let Some(settled) = settled_of(&*write, volume.id, number)? else {
        // An answer was lost, and who asks again has what was wanted.
        let is_listed = take::conflict_of(&*write, volume.id, number)?.is_some();
        return Ok(match is_listed {
            true => Found::Reopened(number),
            false => Found::Not(NotFound::NotSettled(number)),
        });
    };
    let mut conflict = settled.conflict;
    conflict.claim = None;
    let view = Whole::now(&*write, volume.id);
    if let Some(refused) = refused(&view, by, &conflict)? {
        return Ok(refused);
    }
    if let Some((file, directory, name)) = &mut conflict.aside
        && let Some(now) = view.entry(*directory, name)?
    {
        *file = now;
    }
    if conflict.settings.is_none()
        && let Some(node) = bearer(&view, &conflict)?
    {
        conflict.found = Some(node.contents_stamp);
    }
    take::reopen(&mut *write, volume.id, number, &conflict)?;
    write.commit(Durability::Now)?;
    Ok(Found::Reopened(number))
}

/// Contents that both sides began from, from an offset on. Who may not read the file gets nothing.
pub(super) fn base(
    inner: &Inner,
    volume: &Volume,
    number: u64,
    offset: u64,
    by: &By,
) -> Result<Found> {
    let read = inner.tables.read()?;
    let view = Whole::now(&*read, volume.id);
    let Some(conflict) = take::conflict_of(&*read, volume.id, number)? else {
        return Ok(Found::Not(NotFound::NoConflict(number)));
    };
    if let Some(refused) = refused(&view, Some(by), &conflict)? {
        return Ok(refused);
    }
    let word = conflict.name.to_string();
    let kept = base_of(&view, &conflict)?;
    let Some((file, _, node)) = kept else { return Ok(Found::Not(NotFound::Pruned(word))) };
    if !may_read(&node, by.uid, by.gid) {
        return Ok(Found::Not(NotFound::NotYours(word)));
    }
    let Some((contents, _)) = view.contents(file, node.contents_stamp)? else {
        return Ok(Found::Not(NotFound::Pruned(word)));
    };
    let length = contents.size.saturating_sub(offset).min(BASE_BYTES_MAX);
    if length == 0 {
        return Ok(Found::Base(Vec::new().into()));
    }
    let bytes = bytes_of(inner, volume, &contents, Range { offset, length }, BASE_BYTES_MAX)?;
    Ok(match bytes {
        Some(bytes) => Found::Base(bytes.into()),
        None => Found::Not(NotFound::Pruned(word)),
    })
}

/// By the file's mode; where it has an access list too, by what that leaves to nobody else's list.
fn may_read(node: &Node, uid: u32, gid: u32) -> bool {
    if uid == 0 || uid == node.uid {
        return true;
    }
    let has_list = node.acl(ACL_ACCESS).is_some();
    !has_list && node.mode & if gid == node.gid { 0o040 } else { 0o004 } != 0
}

/// True: there is more than one answer has.
fn keep_what_fits<T>(
    found: &mut Vec<(u64, T)>,
    wanted: usize,
    conflict: impl Fn(&T) -> &Conflict,
) -> bool {
    let mut bytes = 0;
    let fits = found.iter().take(wanted).take_while(|(_, one)| {
        let before = bytes;
        bytes += values_bytes(conflict(one));
        before == 0 || bytes <= ANSWER_BYTES_MAX
    });
    let told = fits.count();
    let more = found.len() > told;
    found.truncate(told);
    more
}

/// About, and of values of attributes alone: all else is small.
fn values_bytes(conflict: &Conflict) -> usize {
    let bytes = |value: &Value| match value {
        Value::Bytes(bytes) => bytes.len(),
        Value::Absent | Value::Number(_) => 0,
    };
    let of = |setting: &Setting| {
        setting.was.as_ref().map_or(0, bytes) + bytes(&setting.theirs) + bytes(&setting.mine)
    };
    conflict.settings.iter().flatten().map(of).sum::<usize>().max(1)
}

fn info(view: &Whole<'_>, number: u64, conflict: Conflict, now: Time) -> Result<ConflictInfo> {
    let path = path_of(view, &conflict)?;
    let aside = match &conflict.aside {
        Some(aside) => aside_of(view, conflict.clash, aside)?,
        None => None,
    };
    let kept = base_of(view, &conflict)?;
    let base_since = kept.as_ref().map(|(_, since, _)| *since);
    let base_looks = match kept {
        Some((file, _, node)) => Some(looks(view, file, &node)?),
        None => None,
    };
    let now_there = match conflict.settings {
        None => bearer(view, &conflict)?,
        Some(_) => None,
    };
    let Conflict { clash, device, at, update, found, base, settings, claim, .. } = conflict;
    let claimed_by = claim.filter(|claim| claim.until > now).map(|claim| claim.device);
    Ok(ConflictInfo {
        number,
        clash,
        path,
        aside,
        device,
        at,
        update,
        found,
        base,
        base_since,
        settings,
        base_looks,
        claimed_by,
        now: now_there.map(|node| node.contents_stamp),
    })
}

/// Where what has the name is, or was to be; of attributes, the file itself.
fn path_of(view: &Whole<'_>, conflict: &Conflict) -> Result<Option<Vec<Name>>> {
    if conflict.settings.is_some() {
        return names_of(view, conflict.file);
    }
    beside(view, conflict.directory, &conflict.name)
}

/// The path of a name in a directory, by where that is now.
fn beside(view: &Whole<'_>, directory: FileId, name: &Name) -> Result<Option<Vec<Name>>> {
    let path = names_of(view, directory)?;
    Ok(path.map(|path| path.into_iter().chain([name.clone()]).collect()))
}

/// The names that lead to a file now, one way. None: it has none any more.
fn names_of(view: &Whole<'_>, file: FileId) -> Result<Option<Vec<Name>>> {
    let (mut names, mut at) = (Vec::new(), file);
    while at != FileId::ROOT {
        if view.node(at)?.is_none() || names.len() >= PATH_NAMES_MAX {
            return Ok(None);
        }
        let Some((above, name)) = view.names(at, 1)?.into_iter().next() else { return Ok(None) };
        names.push(name);
        at = above;
    }
    names.reverse();
    Ok(Some(names))
}

/// Where what came second is by now: what bears the name that it was given, which may have been put
/// there since; else, under any name of its, that itself.
fn aside_of(
    view: &Whole<'_>,
    clash: Clash,
    (file, directory, name): &(FileId, FileId, Name),
) -> Result<Option<Vec<Name>>> {
    if view.entry(*directory, name)?.is_some() {
        return beside(view, *directory, name);
    }
    match (names_of(view, *file)?, clash) {
        (Some(names), _) => Ok(Some(names)),
        // With nothing beside it would be told as if what has the name had met a removal.
        (None, Clash::Removed | Clash::Replaced) => beside(view, *directory, name),
        (None, _) => Ok(None),
    }
}

/// What both sides of a conflict about contents began from: the file, the version, and how it was.
fn base_of(view: &Whole<'_>, conflict: &Conflict) -> Result<Option<(FileId, Seq, Node)>> {
    let Some((file, base)) = conflict.began_from().filter(|_| conflict.settings.is_none()) else {
        return Ok(None);
    };
    let kept = version_with(view, file, base)?.filter(|(_, node)| node.kind == Kind::File);
    Ok(kept.map(|(since, node)| (file, since, node)))
}

/// A version of a file that had the contents of a stamp.
fn version_with(view: &Whole<'_>, file: FileId, contents: Stamp) -> Result<Option<(Seq, Node)>> {
    let mut before = Seq(u64::MAX);
    for _ in 0..VERSIONS_MAX {
        let Some(version) = view.node_version_before(file, before)? else { return Ok(None) };
        if let Some(node) = version.node.filter(|node| node.contents_stamp == contents) {
            return Ok(Some((version.seq, node)));
        }
        before = version.seq;
    }
    Ok(None)
}
