//! A file system as plainly as it can be written: whole contents in memory, one tree for all.
//! What each client's programs have open is a `Side`: writes show at their own side at once, and
//! at the others when the file is closed.
//! Holds: what POSIX says of each call, and close-to-open between the sides.
//! Never: knows of a cache, a log or a network.

use crate::operation::{Fault, Operation, Outcome, Path, Shown};
use client::{RenameFlag, XattrFlag};
use model::{Kind, Name, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

mod files;
mod names;
mod tree;

use files::Side;

/// The user of every program here.
pub const UID: u32 = 1000;
pub const GID: u32 = 1000;
/// The top of the tree.
const TOP: u64 = 1;

type Step<T> = Result<T, Fault>;

#[derive(Clone, PartialEq)]
pub struct Reference {
    nodes: BTreeMap<u64, Node>,
    sides: Vec<Side>,
    last: u64,
}

#[derive(Clone, PartialEq)]
struct Node {
    kind: Kind,
    mode: u16,
    uid: u32,
    gid: u32,
    target: Option<Vec<u8>>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    contents: Arc<Vec<u8>>,
    /// Counts the stores.
    version: u64,
    /// None where the clock decided.
    mtime: Option<Time>,
    /// Names that lead to it; of a directory, what is in it decides.
    links: u32,
    parent: u64,
    entries: BTreeMap<Name, u64>,
    /// A crash has left contents that nobody can foretell.
    torn: bool,
}

impl Node {
    fn new(kind: Kind, mode: u16, target: Option<Vec<u8>>, parent: u64) -> Node {
        Node {
            kind,
            mode,
            uid: UID,
            gid: GID,
            target,
            xattrs: BTreeMap::new(),
            contents: Arc::default(),
            version: 0,
            mtime: None,
            links: 1,
            parent,
            entries: BTreeMap::new(),
            torn: false,
        }
    }
}

impl Reference {
    /// An empty tree whose top is `mode`, with so many sides.
    pub fn new(sides: usize, mode: u16) -> Reference {
        let top = Node::new(Kind::Directory, mode, None, TOP);
        let sides = (0..sides).map(|_| Side::default()).collect();
        Reference { nodes: BTreeMap::from([(TOP, top)]), sides, last: TOP }
    }

    /// Does what a program at `side` asks.
    pub fn perform(&mut self, side: usize, operation: &Operation) -> Outcome {
        self.attempt(side, operation).unwrap_or_else(Outcome::Failed)
    }

    fn attempt(&mut self, side: usize, operation: &Operation) -> Step<Outcome> {
        use Operation as O;
        let done = |()| Outcome::Done;
        match operation {
            O::Make { path, kind, mode, target } => {
                let file = self.make(path, *kind, *mode, target.clone())?;
                Ok(Outcome::Shown(self.shown(side, file)?))
            }
            O::Create { path, mode, slot } => self.create(side, path, *mode, *slot),
            O::CreateUnborn { directory, mode, slot } => {
                self.create_unborn(side, directory, *mode, *slot)
            }
            O::Bear { slot, to } => self.bear(side, *slot, to),
            O::Open { path, slot, flags } => self.open(side, path, *slot, *flags).map(done),
            O::Write { slot, offset, length, version } => {
                self.write(side, *slot, *offset, *length, *version).map(done)
            }
            O::Append { slot, length, version } => {
                let size = self.writable(side, *slot)?.contents.len() as u64;
                self.write(side, *slot, size, *length, *version).map(done)
            }
            O::Truncate { slot, size } => self.truncate(side, *slot, *size).map(done),
            O::Allocate { slot, offset, length, how } => {
                self.allocate(side, *slot, *offset, *length, *how).map(done)
            }
            O::Copy { from, from_offset, to, to_offset, length } => {
                self.copy(side, (*from, *from_offset), (*to, *to_offset), *length)
            }
            O::Read { slot, offset, length } => self.read(side, *slot, *offset, *length),
            O::SeekData { slot, offset } => self.seek_data(side, *slot, *offset),
            O::StatOpen { slot } => self.stat_open(side, *slot),
            O::Flush { slot } => self.flush(side, *slot).map(done),
            O::Sync { slot } => self.sync(side, *slot).map(done),
            O::Close { slot } => self.close(side, *slot).map(done),
            O::Cut { path, size } => self.cut(side, path, *size).map(done),
            O::Fetch { path } => self.fetch(side, path),
            operation => self.attempt_by_name(side, operation),
        }
    }

    /// What is asked of names, of attributes and of directories.
    fn attempt_by_name(&mut self, side: usize, operation: &Operation) -> Step<Outcome> {
        use Operation as O;
        let done = |()| Outcome::Done;
        match operation {
            O::Link { from, to } => self.link(side, from, to),
            O::Unlink { path } => self.unlink(path, false).map(done),
            O::RemoveDirectory { path } => self.unlink(path, true).map(done),
            O::Rename { from, to, flag: RenameFlag::Exchange } => self.exchange(from, to).map(done),
            O::Rename { from, to, flag } => self.rename(from, to, *flag).map(done),
            O::SetMode { path, mode } => self.set(side, path, |node| node.mode = *mode),
            O::SetOwner { path, uid, gid } => {
                self.set(side, path, |node| (node.uid, node.gid) = (*uid, *gid))
            }
            O::SetTime { path, secs } => {
                let file = self.find(path)?;
                self.set_time(side, file, Time { secs: *secs, nanos: 0 })?;
                Ok(Outcome::Shown(self.shown(side, file)?))
            }
            O::Stat { path } => Ok(Outcome::Shown(self.shown(side, self.find(path)?)?)),
            O::List { path, .. } => self.list(side, path),
            O::ReadLink { path } => {
                let node = self.node(self.find(path)?)?;
                node.target.clone().map(Outcome::Bytes).ok_or(Fault::Invalid)
            }
            O::Parent { path } => {
                let file = self.directory(path)?;
                Ok(Outcome::File(self.node(file)?.parent))
            }
            O::SetXattr { path, name, value, flag } => {
                self.set_xattr(path, name, value, *flag).map(done)
            }
            O::RemoveXattr { path, name } => {
                let node = self.node_mut(self.find(path)?)?;
                node.xattrs.remove(name).map(|_| Outcome::Done).ok_or(Fault::NoAttribute)
            }
            O::Xattr { path, name } => {
                let node = self.node(self.find(path)?)?;
                node.xattrs.get(name).cloned().map(Outcome::Bytes).ok_or(Fault::NoAttribute)
            }
            O::Xattrs { path } => {
                let node = self.node(self.find(path)?)?;
                Ok(Outcome::Keys(node.xattrs.keys().cloned().collect()))
            }
            O::Totals => Ok(Outcome::Done),
            _ => Err(Fault::Invalid),
        }
    }

    fn set(&mut self, side: usize, path: &Path, set: impl FnOnce(&mut Node)) -> Step<Outcome> {
        let file = self.find(path)?;
        set(self.node_mut(file)?);
        Ok(Outcome::Shown(self.shown(side, file)?))
    }

    fn set_xattr(&mut self, path: &Path, name: &[u8], value: &[u8], flag: XattrFlag) -> Step<()> {
        let node = self.node_mut(self.find(path)?)?;
        match (flag, node.xattrs.contains_key(name)) {
            (XattrFlag::Create, true) => return Err(Fault::AttributeExists),
            (XattrFlag::Replace, false) => return Err(Fault::NoAttribute),
            _ => {}
        }
        node.xattrs.insert(name.to_vec(), value.to_vec());
        Ok(())
    }

    /// What `stat` shows at a side.
    fn shown(&self, side: usize, file: u64) -> Step<Shown> {
        let node = self.node(file)?;
        let below = node
            .entries
            .values()
            .filter(|file| self.nodes.get(file).is_some_and(|node| node.kind == Kind::Directory));
        let is_directory = node.kind == Kind::Directory;
        let written = self.sides.get(side).and_then(|side| side.written(file));
        let size = match (node.kind, &node.target, written) {
            (Kind::Directory, ..) => 4096,
            (_, Some(target), _) => target.len() as u64,
            (_, _, Some(written)) => written.contents.len() as u64,
            _ => node.contents.len() as u64,
        };
        Ok(Shown {
            file,
            kind: node.kind,
            mode: node.mode,
            uid: node.uid,
            gid: node.gid,
            links: if is_directory { 2 + below.count() as u32 } else { node.links },
            size,
            mtime: written.map_or(node.mtime, |written| written.mtime),
        })
    }

    /// Contents that an operation of this side would store, by file.
    pub fn would_store(&self, side: usize, operation: &Operation) -> BTreeMap<u64, Arc<Vec<u8>>> {
        let mut after = self.clone();
        after.perform(side, operation);
        let stored = after.nodes.iter().filter(|(file, node)| {
            self.nodes.get(file).map_or(0, |before| before.version) != node.version
        });
        stored.map(|(file, node)| (*file, node.contents.clone())).collect()
    }

    /// The file that a slot has open.
    pub fn open_file_of(&self, side: usize, slot: usize) -> Option<u64> {
        self.version(side, slot).ok().map(|version| version.file)
    }

    /// The length of what a slot has open.
    pub fn size_of(&self, side: usize, slot: usize) -> Option<u64> {
        self.version(side, slot).ok().map(|version| version.contents.len() as u64)
    }

    fn node(&self, file: u64) -> Step<&Node> {
        self.nodes.get(&file).ok_or(Fault::NoEntry)
    }

    fn node_mut(&mut self, file: u64) -> Step<&mut Node> {
        self.nodes.get_mut(&file).ok_or(Fault::NoEntry)
    }

    /// Whether the outcome follows from POSIX and close-to-open alone: no two sides write one
    /// file, none writes to a version that is not the newest, and what one side has open no other
    /// takes the last name of.
    pub fn foretells(&self, side: usize, operation: &Operation) -> bool {
        let mut after = self.clone();
        after.perform(side, operation);
        let gone = self.nodes.keys().filter(|file| !after.nodes.contains_key(file));
        let gone: BTreeSet<u64> = gone.copied().collect();
        let elsewhere = |file: &u64| {
            let others = self.sides.iter().enumerate().filter(|(other, _)| *other != side);
            others.into_iter().any(|(_, other)| other.has_open(*file))
        };
        if gone.iter().any(elsewhere) {
            return false;
        }
        after.nodes.keys().all(|file| {
            let writers = after.sides.iter().filter(|side| side.written(*file).is_some()).count();
            writers <= 1
        }) && after.sides.iter().all(|side| !side.writes_to_the_past(&after.nodes))
            && !self.loses_a_write(&after, side)
    }

    /// A store of this operation would meet another side's unsaved writing.
    fn loses_a_write(&self, after: &Reference, side: usize) -> bool {
        after.nodes.iter().any(|(file, node)| {
            let stored = self.nodes.get(file).is_some_and(|before| before.version != node.version);
            let others = after.sides.iter().enumerate().filter(|(other, _)| *other != side);
            stored && others.into_iter().any(|(_, other)| other.written(*file).is_some())
        })
    }
}
