//! Reading the tree: as it is now, or as it was at a position.

use super::error::{Error, Result};
use super::record::{ContentsRecord, EntryRecord, Head, NodeRecord, decode};
use super::{VolumeId, keys, table};
use model::{Contents, FileId, Name, Node, Seq, Stamp, View};
use store::Read;

/// A reading of a volume.
#[derive(Clone, Copy)]
pub struct Whole<'a> {
    pub(super) read: &'a dyn Read,
    pub(super) volume: VolumeId,
    /// None: as it is now.
    as_of: Option<Seq>,
}

/// A node as of the update at `seq`, the last that touched it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeVersion {
    pub seq: Seq,
    pub node: Option<Node>,
    /// Of a node that is gone, the last name that it had.
    pub was: Option<(FileId, Name)>,
}

/// A name as of the update at `seq`, the last that touched it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryVersion {
    pub seq: Seq,
    pub file: Option<FileId>,
}

/// Some entries of a directory, in the order of names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    pub entries: Vec<(Name, FileId)>,
    /// No entry comes after the last one.
    pub complete: bool,
}

impl<'a> Whole<'a> {
    /// The volume as it is now.
    pub fn now(read: &'a dyn Read, volume: VolumeId) -> Whole<'a> {
        Whole { read, volume, as_of: None }
    }

    /// The volume as it was when `seq` was its last update.
    pub fn as_of(read: &'a dyn Read, volume: VolumeId, seq: Seq) -> Whole<'a> {
        Whole { read, volume, as_of: Some(seq) }
    }

    /// The same volume as it was when `seq` was its last update.
    pub fn at_position(&self, seq: Seq) -> Whole<'a> {
        Whole { as_of: Some(seq), ..*self }
    }

    pub fn volume(&self) -> VolumeId {
        self.volume
    }

    /// The position of the last update that was committed.
    pub fn position(&self) -> Result<Seq> {
        Ok(self.head()?.position)
    }

    /// Files of any kind that there are now.
    pub fn files(&self) -> Result<u64> {
        Ok(self.head()?.files)
    }

    pub(super) fn head(&self) -> Result<Head> {
        let key = keys::volume(self.volume);
        let bytes = self.read.get(table::HEAD, &key)?.ok_or(Error::NoVolume)?;
        decode(|| format!("head of {}", self.volume), &bytes)
    }

    /// The last version of a node, a version without a node if it is gone; none if there never
    /// was one.
    pub fn node_version(&self, file: FileId) -> Result<Option<NodeVersion>> {
        if let Some(seen) = self.seen(file)? {
            let node = self.seen_node(&seen)?;
            return Ok(node.map(|node| NodeVersion {
                seq: Seq::START,
                node: Some(node),
                was: None,
            }));
        }
        let from = keys::file(self.volume, file);
        let to = match self.as_of {
            Some(Seq(seq)) if seq < u64::MAX => keys::file_at(self.volume, file, Seq(seq + 1)),
            _ => keys::after_file(self.volume, file),
        };
        self.last_node(file, &from, &to)
    }

    /// The last node that a file had before it went away.
    pub fn node_before(&self, file: FileId, seq: Seq) -> Result<Option<Node>> {
        Ok(self.node_version_before(file, seq)?.and_then(|version| version.node))
    }

    /// The last version of a node before a position.
    pub fn node_version_before(&self, file: FileId, before: Seq) -> Result<Option<NodeVersion>> {
        let from = keys::file(self.volume, file);
        let to = keys::file_at(self.volume, file, before);
        self.last_node(file, &from, &to)
    }

    /// The last version of a name before a position; none if none is kept.
    pub fn entry_version_before(
        &self,
        directory: FileId,
        name: &Name,
        before: Seq,
    ) -> Result<Option<EntryVersion>> {
        let from = keys::entry(self.volume, directory, name);
        let to = keys::entry_at(self.volume, directory, name, before);
        self.last_entry(directory, name, &from, &to)
    }

    fn last_entry(
        &self,
        directory: FileId,
        name: &Name,
        from: &[u8],
        to: &[u8],
    ) -> Result<Option<EntryVersion>> {
        let Some((key, bytes)) = self.read.last(table::ENTRIES, from, to)? else {
            return Ok(None);
        };
        let place = || format!("entry {name} in {directory} of {}", self.volume);
        let EntryRecord { file } = decode(place, &bytes)?;
        Ok(Some(EntryVersion { seq: seq_of(&key, place)?, file }))
    }

    fn last_node(&self, file: FileId, from: &[u8], to: &[u8]) -> Result<Option<NodeVersion>> {
        let Some((key, bytes)) = self.read.last(table::NODES, from, to)? else {
            return Ok(None);
        };
        let place = || format!("node {file} of {}", self.volume);
        let NodeRecord { node, was } = decode(place, &bytes)?;
        Ok(Some(NodeVersion { seq: seq_of(&key, place)?, node, was }))
    }

    /// The last version of a name; at the start and without a file if nothing ever bore it.
    pub fn entry_version(&self, directory: FileId, name: &Name) -> Result<EntryVersion> {
        if let Some(seen) = self.seen(directory)? {
            return Ok(EntryVersion { seq: Seq::START, file: self.seen_entry(&seen, name)? });
        }
        let from = keys::entry(self.volume, directory, name);
        let to = match self.as_of {
            Some(Seq(seq)) if seq < u64::MAX => {
                keys::entry_at(self.volume, directory, name, Seq(seq + 1))
            }
            _ => keys::after_entry(self.volume, directory, name),
        };
        let last = self.last_entry(directory, name, &from, &to)?;
        Ok(last.unwrap_or(EntryVersion { seq: Seq::START, file: None }))
    }

    /// Entries that come after `after`, at most `entries_max`.
    pub fn entries(
        &self,
        directory: FileId,
        after: Option<&Name>,
        entries_max: usize,
    ) -> Result<Page> {
        if let Some(seen) = self.seen(directory)? {
            return self.seen_entries(&seen, after, entries_max);
        }
        let from = match after {
            Some(name) => keys::after_entry(self.volume, directory, name),
            None => keys::file(self.volume, directory),
        };
        match self.as_of {
            None => self.entries_now(directory, &from, entries_max),
            Some(_) => self.entries_then(directory, from, entries_max),
        }
    }

    fn entries_now(&self, directory: FileId, from: &[u8], entries_max: usize) -> Result<Page> {
        let to = keys::after_file(self.volume, directory);
        let rows_max = entries_max.saturating_add(1);
        let rows = self.read.scan(table::ENTRIES_NOW, from, &to, rows_max)?;
        let mut page = Page { complete: rows.len() <= entries_max, ..Page::default() };
        for (key, value) in rows.into_iter().take(entries_max) {
            let place = || format!("an entry of directory {directory} of {}", self.volume);
            let name = keys::name_in_entry(&key).ok_or_else(|| bad_key(place()))?;
            let EntryRecord { file } = decode(place, &value)?;
            page.entries.push((name, file.ok_or_else(|| bad_key(place()))?));
        }
        Ok(page)
    }

    /// Goes from name to name through all versions. Costs as much as names ever were there.
    fn entries_then(
        &self,
        directory: FileId,
        mut from: Vec<u8>,
        entries_max: usize,
    ) -> Result<Page> {
        let to = keys::after_file(self.volume, directory);
        let mut page = Page::default();
        loop {
            let next = self.read.scan(table::ENTRIES, &from, &to, 1)?;
            let Some((key, _)) = next.into_iter().next() else {
                page.complete = true;
                return Ok(page);
            };
            let without_seq = &key[..key.len().saturating_sub(8)];
            let name = keys::name_in_entry(without_seq).ok_or_else(|| {
                bad_key(format!("an entry of directory {directory} of {}", self.volume))
            })?;
            from = keys::after_entry(self.volume, directory, &name);
            if let Some(file) = self.entry_version(directory, &name)?.file {
                if page.entries.len() == entries_max {
                    return Ok(page);
                }
                page.entries.push((name, file));
            }
        }
    }

    /// Names that a file bears now, at most `names_max`.
    pub fn names(&self, file: FileId, names_max: usize) -> Result<Vec<(FileId, Name)>> {
        let from = keys::file(self.volume, file);
        let to = keys::after_file(self.volume, file);
        let rows = self.read.scan(table::NAMES_NOW, &from, &to, names_max)?;
        rows.iter()
            .map(|(key, _)| {
                keys::name_in_name_of(key)
                    .ok_or_else(|| bad_key(format!("a name of file {file} of {}", self.volume)))
            })
            .collect()
    }

    /// The contents that bear the stamp, and the update since which they do.
    pub fn contents(&self, file: FileId, version: Stamp) -> Result<Option<(Contents, Seq)>> {
        if let Some(seen) = self.seen(file)? {
            return self.seen_contents(&seen, version);
        }
        let key = keys::contents(self.volume, file, version);
        let Some(bytes) = self.read.get(table::CONTENTS, &key)? else { return Ok(None) };
        let place = || format!("contents {version} of file {file} of {}", self.volume);
        let ContentsRecord { contents, since } = decode(place, &bytes)?;
        Ok(Some((contents, since)))
    }
}

impl View for Whole<'_> {
    type Error = Error;

    fn node(&self, file: FileId) -> Result<Option<Node>> {
        Ok(self.node_version(file)?.and_then(|version| version.node))
    }

    fn entry(&self, directory: FileId, name: &Name) -> Result<Option<FileId>> {
        if self.as_of.is_some() || directory.is_past() {
            return Ok(self.entry_version(directory, name)?.file);
        }
        let key = keys::entry(self.volume, directory, name);
        let Some(bytes) = self.read.get(table::ENTRIES_NOW, &key)? else { return Ok(None) };
        let place = || format!("entry {name} in {directory} of {}", self.volume);
        let EntryRecord { file } = decode(place, &bytes)?;
        Ok(file)
    }

    fn is_empty(&self, directory: FileId) -> Result<bool> {
        Ok(self.entries(directory, None, 1)?.entries.is_empty())
    }
}

fn seq_of(key: &[u8], place: impl Fn() -> String) -> Result<Seq> {
    keys::last_number(key).map(Seq).ok_or_else(|| bad_key(place()))
}

fn bad_key(place: String) -> Error {
    Error::Damaged { place, what: "its key is not one that is written".into() }
}
