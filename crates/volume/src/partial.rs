//! The part of a volume that a client has: what the replica above last said of each node and
//! entry, and over it what pending updates made of them.
//! Holds: what the replica above says replaces only what it said before (by `Seq`); what is
//! pending hides it until the last pending update that touched it is retired.
//! Never: forgets a pending change on its own.

mod accessed;
mod change;
mod decoded;
mod fuzz;
mod held;
mod rows;
mod set_back;

pub use accessed::{forget_accessed, note_accessed};
pub use change::{
    Changed, apply_local, forget_gone, forget_local, forget_local_of, has_no_name_but,
    patch_cancelled_store, pending_growths, show_by_others, take_listing, take_listing_but,
    take_states, take_states_but,
};
pub use fuzz::fuzz_rows;
pub use held::{Held, Hold, let_go};
pub use rows::{Accessed, RowError, Touched};
pub use set_back::{files_beyond, set_back, told};

use model::{FileId, Name, Node, Stamp, View};
use rows::{DirectoryRow, EntryRow, NodeRow};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use store::{Read, StoreError};

pub(crate) const NODES: &str = "partial-nodes";
pub(crate) const ENTRIES: &str = "partial-entries";
pub(crate) const DIRECTORIES: &str = "partial-directories";

/// The most entries of one directory that are read in one go.
const SCAN_ROWS_MAX: usize = 4096;

/// The most entries that are looked at for the name of a file.
const LOOKED_AT_MAX: usize = 1 << 20;

/// What is not known here, or cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Missing {
    #[error("the attributes of {0} are not known here")]
    Node(FileId),
    #[error("the name {1} in {0} is not known here")]
    Entry(FileId, Name),
    #[error("the entries of {0} are not known here")]
    Directory(FileId),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Row(#[from] RowError),
}

impl Missing {
    /// The file of which something has to be asked. None: asking would not help.
    pub fn file(&self) -> Option<FileId> {
        match self {
            Missing::Node(file) | Missing::Entry(file, _) | Missing::Directory(file) => Some(*file),
            Missing::Store(_) | Missing::Row(_) => None,
        }
    }
}

/// Some entries of a directory, in the order of names.
#[derive(Debug)]
pub struct Stretch {
    pub entries: Vec<(Name, FileId)>,
    /// Read for it: names that show nothing count too.
    pub rows: usize,
    /// So many were to be read, and there may be others behind.
    pub more: bool,
}

/// A reading of the partial tree.
pub struct Tree<'a> {
    read: &'a dyn Read,
    /// What was said in an earlier epoch has to be said anew before it counts.
    epoch: u32,
    /// Files are as programs here see them.
    with_accesses: bool,
    /// The node that was read last: who makes a change, who judges it and who counts what it takes
    /// ask for the same one after the other.
    last: RefCell<Option<(FileId, Option<Node>)>>,
    merged: Option<&'a Merged>,
}

/// Directories that were made here, each with the one of another that it is by now. Who has one yet means that
/// one, once it is gone here.
pub type Merged = HashMap<FileId, FileId>;

impl<'a> Tree<'a> {
    /// Only what was learnt in `epoch` or later counts; 0 takes everything as it is.
    pub fn new(read: &'a dyn Read, epoch: u32) -> Tree<'a> {
        Tree { read, epoch, with_accesses: false, last: RefCell::default(), merged: None }
    }

    pub fn with_merged(self, merged: Option<&'a Merged>) -> Tree<'a> {
        Tree { merged, last: RefCell::default(), ..self }
    }

    /// What a file is by now: itself, but for a directory that is one with another.
    pub fn now(&self, file: FileId) -> Result<FileId, Missing> {
        let Some(to) = self.merged.and_then(|merged| merged.get(&file)) else { return Ok(file) };
        let row = self.row(file)?;
        let shown = match (&row.local, &row.up) {
            (Some(local), _) => local.node.is_some(),
            (None, up) => up.as_ref().is_some_and(|up| up.node.is_some()),
        };
        Ok(if shown { file } else { *to })
    }

    /// With the times of access that are known here alone. What an update does is decided without.
    pub fn with_accesses(self) -> Tree<'a> {
        Tree { with_accesses: true, last: RefCell::default(), ..self }
    }

    /// Whether all entries of the directory are known.
    pub fn is_complete(&self, directory: FileId) -> Result<bool, Missing> {
        let directory = self.now(directory)?;
        let Some(bytes) = self.read.get(DIRECTORIES, &rows::node_key(directory))? else {
            return Ok(false);
        };
        if DirectoryRow::decode(&bytes)?.epoch >= self.epoch {
            return Ok(true);
        }
        // What was made here and has not left is known to nobody else, whatever the epoch.
        let row = self.row(directory)?;
        Ok(row.up.is_none() && row.local.is_some())
    }

    /// All entries, in the order of names.
    pub fn entries(&self, directory: FileId) -> Result<Vec<(Name, FileId)>, Missing> {
        let mut found = Vec::new();
        self.each_entry(directory, |name, file| {
            found.push((name, file));
            Ok(())
        })?;
        Ok(found)
    }

    /// The same, one by one.
    pub fn each_entry(
        &self,
        directory: FileId,
        mut each: impl FnMut(Name, FileId) -> Result<(), Missing>,
    ) -> Result<(), Missing> {
        if !self.is_complete(directory)? {
            return Err(Missing::Directory(self.now(directory)?));
        }
        self.scan(directory, |name, file| each(name, file).map(|()| true))
    }

    /// The first entries that are known, whatever else there is.
    pub fn some_entries(
        &self,
        directory: FileId,
        entries_max: usize,
    ) -> Result<Vec<(Name, FileId)>, Missing> {
        let mut found = Vec::new();
        self.scan(directory, |name, file| {
            found.push((name, file));
            Ok(found.len() < entries_max)
        })?;
        Ok(found)
    }

    /// Entries that are known after a name (None: from the first), whatever else there is.
    pub fn stretch(
        &self,
        directory: FileId,
        after: Option<&Name>,
        rows_max: usize,
    ) -> Result<Stretch, Missing> {
        let directory = self.now(directory)?;
        let (first, to) = rows::entry_range(directory);
        let from = after.map_or(first, |name| rows::after(&rows::entry_key(directory, name)));
        let page = self.read.scan(ENTRIES, &from, &to, rows_max)?;
        let mut entries = Vec::new();
        for (key, value) in &page {
            if let Some(file) = EntryRow::decode(value)?.shown() {
                entries.push((rows::entry_name(key)?, file));
            }
        }
        Ok(Stretch { entries, rows: page.len(), more: page.len() >= rows_max })
    }

    /// What the replica above last said of a node, whatever is pending.
    pub fn said(&self, file: FileId) -> Result<Option<Node>, Missing> {
        let row = self.row(file)?;
        Ok(row.up.as_ref().and_then(|up| up.node.clone()))
    }

    /// The number of the last pending update that touched a node and shows.
    pub fn shown_by(&self, file: FileId) -> Result<Option<u64>, Missing> {
        Ok(self.row(file)?.local.as_ref().map(|local| local.number))
    }

    /// The same of an entry, and what the replica above last said that it names.
    pub fn entry_shown_by(
        &self,
        directory: FileId,
        name: &Name,
    ) -> Result<(Option<u64>, Option<FileId>), Missing> {
        let row = self.entry_row(directory, name)?;
        Ok((row.local.map(|local| local.number), row.up.and_then(|up| up.file)))
    }

    /// Whether taking this state in may show other contents of a file that is known. One that is
    /// older than what was said is passed over; and what is said of a store that was made here
    /// shows already.
    pub fn may_show_other_contents(&self, state: &protocol::NodeState) -> Result<bool, Missing> {
        let row = self.row(state.file)?;
        let up = row.up.as_ref().filter(|up| up.seq <= state.seq);
        let Some(up) = up else { return Ok(false) };
        let version = |node: &Node| node.contents_stamp;
        let Some(said) = up.node.as_ref().map(version) else { return Ok(false) };
        let local = row.local.as_ref();
        let shown = local.map_or(Some(said), |local| local.node.as_ref().map(version));
        let next = state.node.as_ref().map(version);
        // Upon a store that is on its way here, what was stored here before changes nothing.
        let goes_before = |next: Stamp, shown: Stamp| {
            local.is_some() && next.replica == shown.replica && next.number < shown.number
        };
        let overtaken = next.zip(shown).is_some_and(|(next, shown)| goes_before(next, shown));
        Ok(next != Some(said) && next != shown && !overtaken)
    }

    /// A directory and a name there under which the file is shown, looking through all entries
    /// that are known here. None: there is none, or there are too many to look at.
    pub fn name_of(&self, file: FileId) -> Result<Option<(FileId, Name)>, Missing> {
        let mut from = Vec::new();
        for _ in 0..LOOKED_AT_MAX / SCAN_ROWS_MAX {
            let page = self.read.scan(ENTRIES, &from, rows::ALL_ENTRIES, SCAN_ROWS_MAX)?;
            let Some((last, _)) = page.last() else { break };
            from = rows::after(last);
            for (key, value) in &page {
                if EntryRow::decode(value)?.shown() == Some(file) {
                    return Ok(Some((rows::entry_directory(key)?, rows::entry_name(key)?)));
                }
            }
        }
        Ok(None)
    }

    /// As `name_of`, of many files at once; those of which none is known here are left out.
    pub fn names_of(
        &self,
        files: &BTreeSet<FileId>,
    ) -> Result<BTreeMap<FileId, (FileId, Name)>, Missing> {
        let (mut from, mut names) = (Vec::new(), BTreeMap::new());
        for _ in 0..LOOKED_AT_MAX / SCAN_ROWS_MAX {
            if names.len() == files.len() {
                break;
            }
            let page = self.read.scan(ENTRIES, &from, rows::ALL_ENTRIES, SCAN_ROWS_MAX)?;
            let Some((last, _)) = page.last() else { break };
            from = rows::after(last);
            for (key, value) in &page {
                let shown = EntryRow::decode(value)?.shown().filter(|file| files.contains(file));
                let Some(file) = shown else { continue };
                names.insert(file, (rows::entry_directory(key)?, rows::entry_name(key)?));
            }
        }
        Ok(names)
    }

    fn entry_row(&self, directory: FileId, name: &Name) -> Result<EntryRow, Missing> {
        match self.read.get(ENTRIES, &rows::entry_key(directory, name))? {
            Some(bytes) => Ok(EntryRow::decode(&bytes)?),
            None => Ok(EntryRow::default()),
        }
    }

    fn row(&self, file: FileId) -> Result<Arc<NodeRow>, Missing> {
        match self.read.get(NODES, &rows::node_key(file))? {
            Some(bytes) => Ok(decoded::row(file, bytes)?),
            None => Ok(Arc::default()),
        }
    }

    /// Calls `each` with every entry until it says false.
    fn scan(
        &self,
        directory: FileId,
        mut each: impl FnMut(Name, FileId) -> Result<bool, Missing>,
    ) -> Result<(), Missing> {
        let (mut from, to) = rows::entry_range(self.now(directory)?);
        loop {
            let page = self.read.scan(ENTRIES, &from, &to, SCAN_ROWS_MAX)?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            from = rows::after(last);
            for (key, value) in &page {
                let row = EntryRow::decode(value)?;
                if let Some(file) = row.shown()
                    && !each(rows::entry_name(key)?, file)?
                {
                    return Ok(());
                }
            }
        }
    }
}

impl View for Tree<'_> {
    type Error = Missing;

    fn node(&self, file: FileId) -> Result<Option<Node>, Missing> {
        if let Some((_, node)) = self.last.borrow().as_ref().filter(|(last, _)| *last == file) {
            return Ok(node.clone());
        }
        let now = self.now(file)?;
        let row = self.row(now)?;
        let mut node = match (&row.local, &row.up) {
            (Some(local), _) => local.node.clone(),
            (None, Some(up)) if up.epoch >= self.epoch => up.node.clone(),
            _ => return Err(Missing::Node(now)),
        };
        if let (true, Some(accessed), Some(node)) = (self.with_accesses, row.accessed, &mut node) {
            accessed.show(node);
        }
        self.last.replace(Some((file, node.clone())));
        Ok(node)
    }

    fn entry(&self, directory: FileId, name: &Name) -> Result<Option<FileId>, Missing> {
        let directory = self.now(directory)?;
        let row = self.entry_row(directory, name)?;
        if let Some(local) = row.local {
            return Ok(local.file);
        }
        match row.up {
            Some(up) if up.epoch >= self.epoch => Ok(up.file),
            up if self.is_complete(directory)? => Ok(up.and_then(|up| up.file)),
            _ => Err(Missing::Entry(directory, name.clone())),
        }
    }

    fn is_empty(&self, directory: FileId) -> Result<bool, Missing> {
        if !self.is_complete(directory)? {
            return Err(Missing::Directory(self.now(directory)?));
        }
        let mut empty = true;
        self.scan(directory, |_, _| {
            empty = false;
            Ok(false)
        })?;
        Ok(empty)
    }
}

#[cfg(test)]
mod tests;
