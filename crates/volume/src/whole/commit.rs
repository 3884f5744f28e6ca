//! Writing the effects of updates, in the caller's transaction.

use super::error::{Error, Result};
use super::record::{ContentsRecord, EntryRecord, Head, LogRecord, NodeRecord, encode};
use super::usage::{self, count_usage};
use super::{VolumeId, Whole, keys, table};
use model::{
    COUNTER_MAX, Effects, FileId, Growths, Kind, Name, Node, REPLICA_MAX, ReplicaId, Seq,
    SnapshotId, Update, Usage, View,
};
use store::{Read, Write};

/// Makes a volume that has a root directory and nothing else.
pub fn create(write: &mut dyn Write, volume: VolumeId, root: Node) -> Result<()> {
    let record = NodeRecord { node: Some(root), was: None };
    let key = keys::file_at(volume, FileId::ROOT, Seq::START);
    write.put(table::NODES, &key, &encode(&record))?;
    let head = Head {
        position: Seq::START,
        files: 1,
        next_replica: ReplicaId::ORIGIN.0 + 1,
        next_file: FileId::ROOT.counter() + 1,
        next_snapshot: None,
        pruned: None,
        bytes: None,
    };
    write.put(table::HEAD, &keys::volume(volume), &encode(&head))?;
    count_usage(write, volume)
}

/// What is made of one volume within one transaction. `finish` writes where it then stands.
pub struct Committer<'a> {
    write: &'a mut dyn Write,
    volume: VolumeId,
    head: Head,
    head_before: Head,
    /// What files count for since it was written, by user.
    growths: Growths,
}

/// A committed update and the keys of what it touched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    pub seq: Seq,
    pub nodes: Vec<FileId>,
    pub entries: Vec<(FileId, Name)>,
}

impl<'a> Committer<'a> {
    pub fn begin(write: &'a mut dyn Write, volume: VolumeId) -> Result<Committer<'a>> {
        let head = Whole::now(&*write, volume).head()?;
        Ok(Committer { write, volume, head, head_before: head, growths: Growths::default() })
    }

    /// The volume with all that was applied so far. Its position is that of `position` here.
    pub fn view(&self) -> Whole<'_> {
        Whole::now(&*self.write, self.volume)
    }

    pub fn volume(&self) -> VolumeId {
        self.volume
    }

    pub fn position(&self) -> Seq {
        self.head.position
    }

    /// For rows that belong to the same transaction.
    pub fn write(&mut self) -> &mut dyn Write {
        &mut *self.write
    }

    pub fn read(&self) -> &dyn Read {
        &*self.write
    }

    /// A replica id that was never given away.
    pub fn fresh_replica(&mut self) -> Result<ReplicaId> {
        // The highest is nobody's: mounts number by it what the kernel is to take for another file.
        if self.head.next_replica >= REPLICA_MAX {
            return Err(Error::NoneLeft("replica ids"));
        }
        let replica = ReplicaId(self.head.next_replica);
        self.head.next_replica += 1;
        Ok(replica)
    }

    /// The id of a file that the origin itself makes.
    pub fn fresh_file(&mut self) -> Result<FileId> {
        if self.head.next_file > COUNTER_MAX {
            return Err(Error::NoneLeft("file ids"));
        }
        let file = FileId::new(ReplicaId::ORIGIN, self.head.next_file)
            .map_err(|_| Error::NoneLeft("file ids"))?;
        self.head.next_file += 1;
        Ok(file)
    }

    /// A number that no snapshot of the volume ever had.
    pub(super) fn fresh_snapshot(&mut self) -> Result<SnapshotId> {
        let number = SnapshotId(self.head.next_snapshot.unwrap_or(1));
        if FileId::ROOT.in_snapshot(number).is_none() {
            return Err(Error::NoneLeft("numbers of snapshots"));
        }
        self.head.next_snapshot = Some(number.0 + 1);
        Ok(number)
    }

    /// What all files count for now, and what those of each of these users do, in bytes.
    pub fn usage(&self, users: impl Iterator<Item = u32>) -> Result<(Usage, Vec<u64>)> {
        let growth = self.growths.total();
        let bytes = i128::from(self.head.bytes.unwrap_or(0)) + growth.bytes;
        let total = Usage { bytes: usage::clamped(bytes), files: self.head.files };
        let of = |uid: u32| -> Result<u64> {
            let used = self.view().usage_of(uid)?;
            Ok(usage::clamped(i128::from(used.bytes) + self.growths.of(uid).bytes))
        };
        Ok((total, users.map(of).collect::<Result<_>>()?))
    }

    /// By how much usage grows by these effects.
    pub fn growths(&self, effects: &Effects) -> Result<Growths> {
        let mut growths = Growths::default();
        for (file, node) in &effects.nodes {
            growths.note(self.view().node(*file)?.as_ref(), node.as_ref());
        }
        Ok(growths)
    }

    /// Writes what the update does, as `model::judge` said, at the next position.
    pub fn apply(&mut self, update: &Update, effects: &Effects) -> Result<Made> {
        let seq = self.head.position.next();
        for (file, node) in &effects.nodes {
            self.put_node(seq, *file, node.as_ref(), effects)?;
        }
        for ((directory, name), file) in &effects.entries {
            self.put_entry(seq, *directory, name, *file)?;
        }
        self.log(LogRecord {
            update: update.clone(),
            nodes: effects.nodes.keys().copied().collect(),
            entries: effects.entries.keys().cloned().collect(),
        })
    }

    /// Writes the record of the next position.
    pub(super) fn log(&mut self, record: LogRecord) -> Result<Made> {
        let seq = self.head.position.next();
        self.write.put(table::LOG, &keys::log(self.volume, seq), &encode(&record))?;
        self.head.position = seq;
        let LogRecord { nodes, entries, .. } = record;
        Ok(Made { seq, nodes, entries })
    }

    /// Writes where the volume stands, if it moved.
    pub fn finish(mut self) -> Result<Seq> {
        self.put_usage()?;
        if self.head != self.head_before {
            self.write.put(table::HEAD, &keys::volume(self.volume), &encode(&self.head))?;
        }
        Ok(self.head.position)
    }

    fn put_usage(&mut self) -> Result<()> {
        let growths = std::mem::take(&mut self.growths);
        let Some(bytes) = self.head.bytes else { return Ok(()) };
        self.head.bytes = Some(usage::clamped(i128::from(bytes) + growths.total().bytes));
        for (uid, growth) in growths.users() {
            let used = self.view().usage_of(uid)?;
            usage::put(self.write, self.volume, uid, usage::grown(used, growth))?;
        }
        Ok(())
    }

    fn put_node(
        &mut self,
        seq: Seq,
        file: FileId,
        node: Option<&Node>,
        effects: &Effects,
    ) -> Result<()> {
        let before = self.view().node(file)?;
        match (&before, node) {
            (None, Some(_)) => self.head.files += 1,
            (Some(_), None) => self.head.files = self.head.files.saturating_sub(1),
            _ => {}
        }
        self.growths.note(before.as_ref(), node);
        // Entries are written after nodes, so the view still shows the name that goes away.
        let was = if node.is_none() { self.name_that_goes(file, effects)? } else { None };
        let record = NodeRecord { node: node.cloned(), was };
        let key = keys::file_at(self.volume, file, seq);
        self.write.put(table::NODES, &key, &encode(&record))?;
        let Some(node) = node.filter(|node| node.kind == Kind::File) else { return Ok(()) };
        if before.is_none_or(|before| before.contents_stamp != node.contents_stamp) {
            self.put_contents(seq, file, node)?;
        }
        Ok(())
    }

    /// What a file had before it was removed, and has again, it has had since then: a snapshot of
    /// that time shows it.
    fn put_contents(&mut self, seq: Seq, file: FileId, node: &Node) -> Result<()> {
        let there = self.view().contents(file, node.contents_stamp)?;
        let since = there.map_or(seq, |(_, since)| since);
        let record = ContentsRecord { contents: node.contents, since };
        let key = keys::contents(self.volume, file, node.contents_stamp);
        Ok(self.write.put(table::CONTENTS, &key, &encode(&record))?)
    }

    fn name_that_goes(&self, file: FileId, effects: &Effects) -> Result<Option<(FileId, Name)>> {
        for ((directory, name), now) in &effects.entries {
            if *now != Some(file) && self.view().entry(*directory, name)? == Some(file) {
                return Ok(Some((*directory, name.clone())));
            }
        }
        Ok(None)
    }

    fn put_entry(
        &mut self,
        seq: Seq,
        directory: FileId,
        name: &Name,
        file: Option<FileId>,
    ) -> Result<()> {
        let value = encode(&EntryRecord { file });
        let now = keys::entry(self.volume, directory, name);
        if let Some(before) = self.view().entry(directory, name)? {
            let key = keys::name_of(self.volume, before, directory, name);
            self.write.delete(table::NAMES_NOW, &key)?;
        }
        match file {
            Some(file) => {
                self.write.put(table::ENTRIES_NOW, &now, &value)?;
                let key = keys::name_of(self.volume, file, directory, name);
                self.write.put(table::NAMES_NOW, &key, &[])?;
            }
            None => self.write.delete(table::ENTRIES_NOW, &now)?,
        }
        let key = keys::entry_at(self.volume, directory, name, seq);
        self.write.put(table::ENTRIES, &key, &value)?;
        Ok(())
    }
}
