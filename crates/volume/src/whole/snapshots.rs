//! Snapshots: positions that have a name and are held.
//! Holds: what a snapshot shows is what was current at its position, whatever comes after; making
//! or removing one is an update of the directory that they are found in, so whoever has that
//! cached is told as of any other.
//! Never: copies anything.
//! From: DESIGN, "The one idea": a snapshot is a position in the log.

use super::commit::{Committer, Made};
use super::error::{Error, Result};
use super::record::{LogRecord, decode, encode};
use super::{VolumeId, Whole, keys, table};
use minicbor::{Decode, Encode};
use model::{
    Change, Contents, FileId, Kind, Name, Node, Past, Seq, SnapshotId, Stamp, Time, Update, View,
    snapshots_name,
};
use std::collections::BTreeSet;
use store::Read;

/// Snapshots that one volume has at once, at most.
pub const SNAPSHOTS_MAX: usize = 1000;
/// Whoever may read the volume may look at them, and nobody changes them.
const MODE: u16 = 0o555;

/// A position that is held, and what is said of it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Snapshot {
    #[n(0)]
    pub number: SnapshotId,
    #[n(1)]
    pub name: Name,
    /// It shows what was current when this was the last update.
    #[n(2)]
    pub position: Seq,
    /// By the origin's clock.
    #[n(3)]
    pub at: Time,
    /// The device that asked for it; none: it was made at the origin.
    #[n(4)]
    pub device: Option<String>,
    #[n(5)]
    pub uid: u32,
    /// By which whoever asked for it knows it again.
    #[n(6)]
    pub token: u64,
}

/// All snapshots of a volume, the oldest first.
pub fn snapshots(read: &dyn Read, volume: VolumeId) -> Result<Vec<Snapshot>> {
    let (from, to) = volume.range();
    let rows = read.scan(table::SNAPSHOTS, &from, &to, SNAPSHOTS_MAX)?;
    rows.iter().map(|(_, value)| decode(|| format!("a snapshot of {volume}"), value)).collect()
}

/// The positions at which everything is held.
pub fn snapshot_positions(read: &dyn Read, volume: VolumeId) -> Result<BTreeSet<Seq>> {
    Ok(snapshots(read, volume)?.into_iter().map(|snapshot| snapshot.position).collect())
}

impl Committer<'_> {
    /// Gives a name to how the volume is now. The caller has seen to it that the name is free.
    pub fn add_snapshot(
        &mut self,
        name: Name,
        at: Time,
        (device, uid): (Option<String>, u32),
        token: u64,
    ) -> Result<(Snapshot, Made)> {
        let number = self.fresh_snapshot()?;
        let position = self.position();
        let snapshot = Snapshot { number, name, position, at, device, uid, token };
        let volume = self.volume();
        let key = keys::snapshot(volume, number);
        self.write().put(table::SNAPSHOTS, &key, &encode(&snapshot))?;
        let (parent, name) = (FileId::SNAPSHOTS, snapshot.name.clone());
        let file = snapshot_root(number)?;
        let change = Change::Link { parent, name, file };
        let made = self.note_snapshot(&snapshot, at, change)?;
        Ok((snapshot, made))
    }

    /// The name is free from now on, and what the position held may go.
    pub fn remove_snapshot(&mut self, snapshot: &Snapshot, at: Time) -> Result<Made> {
        let key = keys::snapshot(self.volume(), snapshot.number);
        self.write().delete(table::SNAPSHOTS, &key)?;
        let (parent, name) = (FileId::SNAPSHOTS, snapshot.name.clone());
        let change =
            Change::Unlink { parent, name, file: snapshot_root(snapshot.number)?, expects: None };
        self.note_snapshot(snapshot, at, change)
    }

    fn note_snapshot(&mut self, of: &Snapshot, at: Time, change: Change) -> Result<Made> {
        let update = Update { stamp: Stamp::default(), uid: of.uid, at, change };
        let (nodes, entries) =
            (vec![FileId::SNAPSHOTS], vec![(FileId::SNAPSHOTS, of.name.clone())]);
        self.log(LogRecord { update, nodes, entries })
    }
}

fn snapshot_root(number: SnapshotId) -> Result<FileId> {
    FileId::ROOT.in_snapshot(number).ok_or(Error::NoneLeft("numbers of snapshots"))
}

/// What a number of the past stands for, as it is read.
pub(super) enum Seen<'a> {
    Control,
    Snapshots,
    /// The file as it was then, in a reading of that position.
    Then(SnapshotId, Whole<'a>, FileId),
    /// Nothing, or what a snapshot showed that is not there any more.
    Nothing,
}

impl<'a> Whole<'a> {
    /// A snapshot that there is.
    pub fn snapshot(&self, number: SnapshotId) -> Result<Option<Snapshot>> {
        let key = keys::snapshot(self.volume, number);
        let Some(bytes) = self.read.get(table::SNAPSHOTS, &key)? else { return Ok(None) };
        let place = || format!("{number} of {}", self.volume);
        decode(place, &bytes).map(Some)
    }

    /// The volume as the snapshot shows it.
    pub fn at_snapshot(&self, snapshot: &Snapshot) -> Whole<'a> {
        self.at_position(snapshot.position)
    }

    /// None: it is a file of the volume itself.
    pub(super) fn seen(&self, file: FileId) -> Result<Option<Seen<'a>>> {
        if !file.is_past() {
            return Ok(None);
        }
        Ok(Some(match file.past() {
            Some(Past::Control) => Seen::Control,
            Some(Past::Snapshots) => Seen::Snapshots,
            Some(Past::Of(number, file)) => match self.snapshot(number)? {
                Some(snapshot) => Seen::Then(number, self.at_snapshot(&snapshot), file),
                None => Seen::Nothing,
            },
            None => Seen::Nothing,
        }))
    }

    pub(super) fn seen_node(&self, seen: &Seen<'_>) -> Result<Option<Node>> {
        match seen {
            Seen::Control => self.directory_of_snapshots(FileId::ROOT, 1),
            Seen::Snapshots => {
                let links = snapshots(self.read, self.volume)?.len();
                self.directory_of_snapshots(FileId::CONTROL, links)
            }
            Seen::Then(number, then, file) => {
                let Some(mut node) = then.node(*file)? else { return Ok(None) };
                node.parent = match node.parent {
                    Some(_) if *file == FileId::ROOT => Some(FileId::SNAPSHOTS),
                    Some(parent) => Some(shown(parent, *number)?),
                    None => None,
                };
                Ok(Some(node))
            }
            Seen::Nothing => Ok(None),
        }
    }

    fn directory_of_snapshots(&self, parent: FileId, below: usize) -> Result<Option<Node>> {
        let last = snapshots(self.read, self.volume)?.pop();
        let at = last.map_or(Time::default(), |last| last.at);
        let Some(root) = Whole::now(self.read, self.volume).node(FileId::ROOT)? else {
            return Ok(None);
        };
        let node = Node::root_directory(root.uid, root.gid, at);
        let links = u32::try_from(2 + below).unwrap_or(u32::MAX);
        Ok(Some(Node { mode: MODE, links, parent: Some(parent), born: None, ..node }))
    }

    pub(super) fn seen_entry(&self, seen: &Seen<'_>, name: &Name) -> Result<Option<FileId>> {
        match seen {
            Seen::Control => Ok((*name == snapshots_name()).then_some(FileId::SNAPSHOTS)),
            Seen::Snapshots => {
                let found = self.snapshot_named(name)?;
                found.map(|found| snapshot_root(found.number)).transpose()
            }
            Seen::Then(number, then, directory) => {
                let file = then.entry(*directory, name)?;
                file.map(|file| shown(file, *number)).transpose()
            }
            Seen::Nothing => Ok(None),
        }
    }

    /// A snapshot by its name.
    pub fn snapshot_named(&self, name: &Name) -> Result<Option<Snapshot>> {
        let all = snapshots(self.read, self.volume)?;
        Ok(all.into_iter().find(|snapshot| snapshot.name == *name))
    }

    /// All that comes after a name, or as much of it as there is room for.
    pub(super) fn seen_entries(
        &self,
        seen: &Seen<'_>,
        after: Option<&Name>,
        entries_max: usize,
    ) -> Result<super::Page> {
        let mut entries = match seen {
            Seen::Control => vec![(snapshots_name(), FileId::SNAPSHOTS)],
            Seen::Snapshots => {
                let all = snapshots(self.read, self.volume)?.into_iter();
                all.map(|one| Ok((one.name, snapshot_root(one.number)?))).collect::<Result<_>>()?
            }
            Seen::Then(number, then, directory) => {
                let mut page = then.entries(*directory, after, entries_max)?;
                for (_, file) in &mut page.entries {
                    *file = shown(*file, *number)?;
                }
                return Ok(page);
            }
            Seen::Nothing => Vec::new(),
        };
        entries.retain(|(name, _): &(Name, FileId)| after.is_none_or(|after| name > after));
        entries.sort_unstable();
        let complete = entries.len() <= entries_max;
        entries.truncate(entries_max);
        Ok(super::Page { entries, complete })
    }

    pub(super) fn seen_contents(
        &self,
        seen: &Seen<'_>,
        version: Stamp,
    ) -> Result<Option<(Contents, Seq)>> {
        match seen {
            Seen::Then(_, then, file) => then.contents(*file, version),
            _ => Ok(None),
        }
    }
}

fn shown(file: FileId, number: SnapshotId) -> Result<FileId> {
    file.in_snapshot(number).ok_or(Error::NoNumber(file, number))
}

/// What is wrong with the snapshots of a volume, of which each must read as of its position.
pub(super) fn faults(read: &dyn Read, volume: VolumeId, position: Seq) -> Vec<(String, String)> {
    let mut faults = Vec::new();
    let (from, to) = volume.range();
    let rows = match read.scan(table::SNAPSHOTS, &from, &to, SNAPSHOTS_MAX) {
        Ok(rows) => rows,
        Err(error) => return vec![(format!("snapshots of {volume}"), error.to_string())],
    };
    let mut names = BTreeSet::new();
    for (key, value) in rows {
        let place = format!("a snapshot of {volume}");
        let snapshot: Snapshot = match decode(|| place.clone(), &value) {
            Ok(snapshot) => snapshot,
            Err(error) => {
                faults.push((place, error.to_string()));
                continue;
            }
        };
        let place = format!("snapshot {:?} of {volume}", snapshot.name);
        let mut fault = |what: &str| faults.push((place.clone(), what.to_owned()));
        if key != keys::snapshot(volume, snapshot.number) {
            fault("its key is of another one");
        }
        if snapshot.position > position {
            fault("it is of a position after the last");
        }
        if !names.insert(snapshot.name.clone()) {
            fault("another one has the same name");
        }
        let then = Whole::as_of(read, volume, snapshot.position);
        match then.node(FileId::ROOT) {
            Ok(Some(root)) if root.kind == Kind::Directory => {}
            Ok(_) => fault("what it showed is not kept"),
            Err(error) => fault(&error.to_string()),
        }
    }
    faults
}
