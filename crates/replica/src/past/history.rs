//! The versions of what bears a path, or bore it: the newest first.
//! Holds: whoever saves a file by putting another one in its place has one history all the same;
//! where a name began with a rename, the history goes on under the name before, and with what had
//! borne this one earlier and was removed.

use super::rights::hidden;
use crate::catalog::{self, DeviceId};
use crate::error::Result;
use crate::origin::Inner;
use crate::volumes::Volume;
use model::{Change, FileId, Kind, Name, Node, ReplicaId, Seq, Time};
use protocol::past::Version;
use protocol::past::{
    By, Changed, Found, History, Looks, NotFound, PATH_NAMES_MAX, VERSIONS_TOLD_MAX,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use volume::whole::{EntryVersion, Logged, Whole};

/// Rows that are looked at for one answer, at most.
const ROWS_MAX: usize = 100_000;
/// Names that a file had before, as far as they are followed.
const MOVES_MAX: usize = 64;
/// Directories in directories whose names are told of.
const DEPTH_MAX: usize = 1024;

/// A name in a directory.
pub(super) type At = (FileId, Name);

/// One version.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub since: Seq,
    /// None: nothing bore the name.
    pub was: Option<(FileId, Node)>,
    pub changes: Vec<Changed>,
}

pub(super) fn history(
    inner: &Inner,
    volume: &Volume,
    (path, by): (&[Name], Option<&By>),
    before: Option<Seq>,
    versions_max: u32,
) -> Result<Found> {
    let read = inner.tables.read()?;
    let view = Whole::now(&*read, volume.id);
    if let Some(by) = by
        && let Some(directory) = hidden(&view, by, path, Seq(u64::MAX))?
    {
        return Ok(Found::Not(NotFound::Hidden(directory)));
    }
    let wanted = versions_max.clamp(1, VERSIONS_TOLD_MAX) as usize;
    let Some(walk) = Walk::of(view, path, before)? else {
        return Ok(Found::Not(NotFound::NoPath(shown(path))));
    };
    let mut items = walk.collect_up_to(wanted + 1)?;
    if items.is_empty() && before.is_none() {
        return Ok(Found::Not(NotFound::NoPath(shown(path))));
    }
    let more = items.len() > wanted;
    items.truncate(wanted);
    let names = devices(inner, volume, &view)?;
    let versions = items.into_iter().map(|item| version(&view, &names, item));
    Ok(Found::History(History { versions: versions.collect::<Result<_>>()?, more }))
}

/// A path as people write it.
pub(super) fn shown(path: &[Name]) -> String {
    match path {
        [] => "/".into(),
        path => path.iter().map(|name| format!("/{name}")).collect(),
    }
}

/// The directory and the name that a path leads to by what is there, or was there last. None: one
/// of its directories is not known at all. The root has no name.
pub(super) fn resolve(view: &Whole<'_>, path: &[Name]) -> Result<Option<Option<At>>> {
    if path.len() > PATH_NAMES_MAX {
        return Ok(None);
    }
    let Some((last, above)) = path.split_last() else { return Ok(Some(None)) };
    let mut directory = FileId::ROOT;
    for name in above {
        match last_file(view, directory, name, Seq(u64::MAX))? {
            Some(file) => directory = file,
            None => return Ok(None),
        }
    }
    Ok(Some(Some((directory, last.clone()))))
}

/// The file that bore a name just before a position, or else the one before.
pub(super) fn last_file(
    view: &Whole<'_>,
    directory: FileId,
    name: &Name,
    mut before: Seq,
) -> Result<Option<FileId>> {
    for _ in 0..ROWS_MAX {
        match view.entry_version_before(directory, name, before)? {
            None => return Ok(None),
            Some(EntryVersion { file: Some(file), .. }) => return Ok(Some(file)),
            Some(EntryVersion { seq, .. }) => before = seq,
        }
    }
    Ok(None)
}

/// Goes back through the versions of a path.
pub(super) struct Walk<'a> {
    view: Whole<'a>,
    /// None: the root, which bears no name.
    at: Option<At>,
    /// What comes at this position or later was told of. The names are followed through it: a file
    /// may have borne another one then.
    before: Seq,
    /// What comes at this position or later was gone through.
    until: Seq,
    rows: usize,
}

impl<'a> Walk<'a> {
    pub fn of(view: Whole<'a>, path: &[Name], before: Option<Seq>) -> Result<Option<Walk<'a>>> {
        if path.iter().any(|name| name.as_bytes().is_empty()) {
            return Ok(None);
        }
        let until = Seq(u64::MAX);
        let before = before.unwrap_or(until);
        Ok(resolve(&view, path)?.map(|at| Walk { view, at, before, until, rows: 0 }))
    }

    /// The next versions back, at most so many, and fewer only at the end.
    pub fn collect_up_to(mut self, items_max: usize) -> Result<Vec<Item>> {
        let mut items = Vec::new();
        let Some(at) = self.at.take() else {
            self.versions_of(FileId::ROOT, None, &mut items, items_max)?;
            return Ok(items);
        };
        // Where a name began with a rename, the history goes on under the name before, and so it does
        // with what had borne this one earlier.
        let mut left = vec![(at, self.until)];
        let mut moved = BTreeSet::new();
        while let Some((at, until)) = left.pop() {
            self.until = until;
            items.append(&mut self.collect_of(at, items_max, (&mut left, &mut moved))?);
        }
        items.sort_by_key(|item| Reverse(item.since));
        items.dedup_by_key(|item| item.since);
        items.truncate(items_max);
        Ok(items)
    }

    /// The same of one name, and of those before it. `left`: names that others bore earlier than those that
    /// have `moved` to them.
    fn collect_of(
        &mut self,
        mut at: At,
        items_max: usize,
        (left, moved): (&mut Vec<(At, Seq)>, &mut BTreeSet<FileId>),
    ) -> Result<Vec<Item>> {
        let (mut items, mut moves) = (Vec::new(), 0);
        while items.len() < items_max && self.goes_on() {
            let Some(entry) = self.view.entry_version_before(at.0, &at.1, self.until)? else {
                break;
            };
            let is_told = entry.seq < self.before;
            let Some(file) = entry.file else {
                let changes = vec![Changed::Removed];
                items.extend(is_told.then_some(Item { since: entry.seq, was: None, changes }));
                self.until = entry.seq;
                continue;
            };
            if is_told {
                self.versions_of(file, Some(entry.seq), &mut items, items_max)?;
            }
            if items.len() >= items_max {
                break;
            }
            let (item, from) = self.arrival(&at, entry.seq, file)?;
            items.extend(item.filter(|_| is_told));
            self.until = entry.seq;
            if let Some(from) = from.filter(|_| moves < MOVES_MAX) {
                moves += 1;
                moved.insert(file);
                let other = last_file(&self.view, at.0, &at.1, entry.seq)?;
                let to = std::mem::replace(&mut at, from);
                if other.is_some_and(|other| !moved.contains(&other)) && left.len() < MOVES_MAX {
                    left.push((to, entry.seq));
                }
            }
        }
        Ok(items)
    }

    fn goes_on(&mut self) -> bool {
        self.rows += 1;
        self.rows < ROWS_MAX
    }

    /// The versions of a file after it came to the name.
    fn versions_of(
        &mut self,
        file: FileId,
        since: Option<Seq>,
        items: &mut Vec<Item>,
        items_max: usize,
    ) -> Result<()> {
        let mut upto = self.until.min(self.before);
        while items.len() < items_max && self.goes_on() {
            let Some(version) = self.view.node_version_before(file, upto)? else { break };
            if since.is_some_and(|since| version.seq <= since) {
                break;
            }
            upto = version.seq;
            let before = self.view.node_version_before(file, version.seq)?;
            let Some(node) = version.node else { continue };
            let changes = match &before {
                None => vec![if version.seq == Seq::START { Changed::Made } else { Changed::Kept }],
                Some(before) => before
                    .node
                    .as_ref()
                    .map_or(vec![Changed::Made], |before| differences(before, &node)),
            };
            if !changes.is_empty() {
                items.push(Item { since: version.seq, was: Some((file, node)), changes });
            }
        }
        Ok(())
    }

    /// How a file came to the name, if anything is kept of that; and the name that it had before, if
    /// nothing bore this one.
    fn arrival(&self, at: &At, seq: Seq, file: FileId) -> Result<(Option<Item>, Option<At>)> {
        let there = self.view.node_version_before(file, seq.next())?;
        let before = self.view.node_version_before(file, seq)?;
        let existed = before.as_ref().is_some_and(|version| version.node.is_some());
        let other = self.view.entry_version_before(at.0, &at.1, seq)?.and_then(|entry| entry.file);
        let from = self.view.logged(seq)?.and_then(|logged| came_from(&logged, at, file));
        let mut changes = Vec::new();
        if other.is_some_and(|other| other != file) {
            changes.push(Changed::Replaced);
        }
        match (&from, existed) {
            (Some(from), _) => changes.push(Changed::Moved(path_of(&self.view, from)?)),
            (None, true) => changes.push(Changed::Links),
            (None, false) if there.as_ref().is_some_and(|there| there.seq == seq) => {
                changes.push(Changed::Made);
            }
            (None, false) => changes.push(Changed::Kept),
        }
        let is_known = there.is_some() || from.is_some();
        let was = there.and_then(|there| there.node).map(|node| (file, node));
        let goes_on = from.filter(|_| other.is_none());
        Ok((is_known.then_some(Item { since: seq, was, changes }), goes_on))
    }
}

/// The path of a name by where its directory is now.
pub(super) fn path_of(view: &Whole<'_>, at: &At) -> Result<Vec<Name>> {
    let mut path = vec![at.1.clone()];
    let mut directory = at.0;
    while directory != FileId::ROOT && path.len() < DEPTH_MAX {
        let Some((above, name)) = view.names(directory, 1)?.into_iter().next() else {
            break;
        };
        path.push(name);
        directory = above;
    }
    path.reverse();
    Ok(path)
}

/// The name that a rename took a file from.
fn came_from(logged: &Logged, at: &At, file: FileId) -> Option<At> {
    let Change::Rename { from, from_name, to, to_name, file: moved, over, exchange, .. } =
        &logged.update.change
    else {
        return None;
    };
    let (one, other) = ((*from, from_name.clone()), (*to, to_name.clone()));
    if other == *at && *moved == file {
        return Some(one);
    }
    (*exchange && one == *at && *over == Some(file)).then_some(other)
}

/// What a version differs in from the one before. When it was read, or what was done to names in a
/// directory, is not told of.
fn differences(before: &Node, now: &Node) -> Vec<Changed> {
    let mut changes = Vec::new();
    let is_directory = now.kind == Kind::Directory;
    let mut note = |differs: bool, change: Changed| {
        if differs {
            changes.push(change);
        }
    };
    let stored = before.contents_stamp != now.contents_stamp;
    note(stored, Changed::Contents);
    note(before.mode != now.mode, Changed::Mode);
    note((before.uid, before.gid) != (now.uid, now.gid), Changed::Owner);
    note(before.mtime != now.mtime && !stored && !is_directory, Changed::Times);
    note(before.xattrs != now.xattrs, Changed::Xattrs);
    note(before.links != now.links && !is_directory, Changed::Links);
    changes
}

/// The names of the devices by the replicas that they are or were.
struct Devices(BTreeMap<DeviceId, String>);

fn devices(inner: &Inner, volume: &Volume, view: &Whole<'_>) -> Result<Devices> {
    let read = inner.tables.read()?;
    debug_assert_eq!(view.volume(), volume.id);
    let row = inner.row(&*read, &volume.name)?;
    let devices = catalog::devices(&*read, &row)?.into_iter();
    Ok(Devices(devices.map(|device| (device.id, device.name)).collect()))
}

impl Devices {
    fn of(&self, view: &Whole<'_>, replica: ReplicaId) -> Result<Option<String>> {
        let writer = view.writer(replica)?;
        let id = writer.and_then(|writer| <[u8; 32]>::try_from(&writer.device[..]).ok());
        Ok(id.and_then(|id| self.0.get(&DeviceId(id)).cloned()))
    }
}

fn version(view: &Whole<'_>, devices: &Devices, item: Item) -> Result<Version> {
    let Item { since, was, changes } = item;
    let logged = view.logged(since)?.map(|logged| (logged.update.at, logged.update.stamp.replica));
    let guessed = || {
        let node = was.as_ref().map(|(_, node)| node);
        let by = node.map(|node| match changes.contains(&Changed::Contents) {
            true => node.contents_stamp.replica,
            false => node.attributes_stamp.replica,
        });
        (node.map_or(Time::default(), |node| node.ctime), by.unwrap_or(ReplicaId::ORIGIN))
    };
    let (at, by) = logged.unwrap_or_else(guessed);
    let looks = match &was {
        Some((file, node)) => Some(looks(view, *file, node)?),
        None => None,
    };
    Ok(Version { since, at, by, device: devices.of(view, by)?, changes, looks })
}

pub(super) fn looks(view: &Whole<'_>, file: FileId, node: &Node) -> Result<Looks> {
    let pruned = node.kind == Kind::File && view.contents(file, node.contents_stamp)?.is_none();
    let Node { kind, mode, uid, gid, mtime, .. } = *node;
    Ok(Looks { kind, size: node.size(), mode, uid, gid, mtime, pruned })
}
