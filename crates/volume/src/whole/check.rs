//! Whether the tables of a volume agree with one another, and what of them can be made to.
//! Holds: what is mended follows from rows that are sound: tables of what is now from the last
//! versions, counts from what is counted. Nothing that only one row says is ever removed.

use super::error::Result;
use super::record::{ContentsRecord, EntryRecord, Head, LogRecord, NodeRecord, decode, encode};
use super::usage::Tally;
use super::{VolumeId, Whole, Writer, keys, table};
use minicbor::Decode;
use model::{Contents, FileId, Kind, Name, Node, Seq, Stamp, View};
use protocol::Verdict;
use store::{Read, Row, Write};

/// Rows that are read at once.
const ROWS_MAX: usize = 1000;
/// Directories within one another, at most.
const DEPTH_MAX: usize = 100_000;

/// Something that is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Which row, file or name.
    pub place: String,
    pub what: String,
    pub mend: Option<Mend>,
}

/// What makes a fault good: a row as it follows from the others, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mend {
    table: &'static str,
    key: Vec<u8>,
    value: Option<Vec<u8>>,
}

impl Mend {
    pub(super) fn new(table: &'static str, key: Vec<u8>, value: Option<Vec<u8>>) -> Mend {
        Mend { table, key, value }
    }

    /// Of a table that others repeat: it comes first, because counts are made from such tables.
    pub fn is_of_a_repetition(&self) -> bool {
        [table::ENTRIES_NOW, table::NAMES_NOW].contains(&self.table)
    }

    pub fn carry_out(&self, write: &mut dyn Write) -> Result<()> {
        match &self.value {
            Some(value) => write.put(self.table, &self.key, value)?,
            None => write.delete(self.table, &self.key)?,
        }
        Ok(())
    }
}

/// Goes through every row of the volume and tells of every fault.
pub fn check(read: &dyn Read, volume: VolumeId, tell: &mut dyn FnMut(Fault)) {
    let view = Whole::now(read, volume);
    let mut check = Check { read, volume, view, all_was_read: true, tell };
    let Some(head) = check.head() else { return };
    check.decodes::<Writer>(table::WRITERS);
    check.decodes::<Verdict>(table::VERDICTS);
    check.decodes::<Seq>(table::TIMES);
    check.runs();
    check.log(head.position);
    check.snapshots(head.position);
    check.contents(head.position);
    check.entries(head.position);
    check.entries_now();
    check.names_now();
    let tally = check.nodes(head.position);
    // What could not be read is not gone.
    if check.all_was_read {
        let faults = tally.faults(read, volume, &head);
        for Fault { place, what, mend } in
            check.sound(&format!("usage in {volume}"), faults).unwrap_or_default()
        {
            check.fault_with(place, what, mend);
        }
    }
}

/// A version of a file's contents, with the stamp that it bears.
type Version = (FileId, Stamp, Contents);

/// Every version of every file's contents, with the stamp that it bears. A page of up to a bounded
/// number, and where to go on.
pub fn versions_of_contents(
    read: &dyn Read,
    volume: VolumeId,
    from: Option<Vec<u8>>,
) -> Result<(Vec<Version>, Option<Vec<u8>>)> {
    let (first, end) = volume.range();
    let rows = read.scan(table::CONTENTS, &from.unwrap_or(first), &end, ROWS_MAX)?;
    let next = (rows.len() == ROWS_MAX).then(|| after(&rows)).flatten();
    let mut versions = Vec::with_capacity(rows.len());
    for (key, value) in &rows {
        // What does not read is told of by `check`.
        let record = decode::<ContentsRecord>(|| format!("contents of {volume}"), value);
        if let (Some((file, stamp)), Ok(record)) = (keys::file_and_stamp(key), record) {
            versions.push((file, stamp, record.contents));
        }
    }
    Ok((versions, next))
}

/// A path that leads to the file now, for people; what is known of it if none does.
pub fn path_of(read: &dyn Read, volume: VolumeId, file: FileId) -> String {
    let view = Whole::now(read, volume);
    let mut parts = Vec::new();
    let mut at = file;
    while at != FileId::ROOT && parts.len() < DEPTH_MAX {
        let Some((above, name)) = view.names(at, 1).ok().and_then(|names| names.into_iter().next())
        else {
            parts.push(format!("(file {at}, which has no name now)"));
            break;
        };
        parts.push(name.to_string());
        at = above;
    }
    parts.reverse();
    format!("/{}", parts.join("/"))
}

struct Check<'a> {
    read: &'a dyn Read,
    volume: VolumeId,
    view: Whole<'a>,
    /// Nothing follows from rows that are missing, once some could not be read.
    all_was_read: bool,
    tell: &'a mut dyn FnMut(Fault),
}

impl Check<'_> {
    fn fault(&mut self, place: impl Into<String>, what: impl Into<String>) {
        self.fault_with(place.into(), what.into(), None);
    }

    fn fault_with(&mut self, place: String, what: String, mend: Option<Mend>) {
        let mend = mend.filter(|_| self.all_was_read);
        (self.tell)(Fault { place, what, mend });
    }

    /// What the work gives, or none and the fault that it met.
    fn sound<T>(&mut self, place: &str, outcome: Result<T>) -> Option<T> {
        outcome.map_err(|error| self.fault(place, error.to_string())).ok()
    }

    /// Every row of a table. Behind one that the store cannot read nothing is looked at.
    fn each(&mut self, name: &'static str, mut look: impl FnMut(&mut Self, &[u8], &[u8])) {
        let (mut from, end) = self.volume.range();
        loop {
            let rows = self.read.scan(name, &from, &end, ROWS_MAX).map_err(Into::into);
            let Some(rows) = self.sound(&format!("table {name} of {}", self.volume), rows) else {
                self.all_was_read = false;
                return;
            };
            let Some(next) = after(&rows) else { return };
            for (key, value) in &rows {
                look(self, key, value);
            }
            from = next;
        }
    }

    fn row<T: for<'b> Decode<'b, ()>>(&mut self, place: &str, value: &[u8]) -> Option<T> {
        let row = self.sound(place, decode(|| place.to_owned(), value));
        self.all_was_read &= row.is_some();
        row
    }

    fn head(&mut self) -> Option<Head> {
        let head = self.view.head();
        self.sound(&format!("head of {}", self.volume), head)
    }

    fn decodes<T: for<'b> Decode<'b, ()>>(&mut self, name: &'static str) {
        self.each(name, |check, key, value| {
            check.row::<T>(&format!("row {} of {name}", hex(key)), value);
        });
    }

    fn seq(&mut self, place: &str, key: &[u8], position: Seq) -> Option<Seq> {
        let seq = keys::last_number(key).map(Seq);
        match seq {
            Some(seq) if seq <= position => return Some(seq),
            Some(seq) => self.fault(place, format!("it is of {seq}, after the last {position}")),
            None => self.fault(place, "its key is not one that is written"),
        }
        None
    }

    /// In place of one that is lost any may have been drawn: devices do not take it for a set-back.
    fn runs(&mut self) {
        self.each(table::RUNS, |check, key, value| {
            let place = format!("row {} of {}", hex(key), table::RUNS);
            if let Err(error) = decode::<u64>(|| place.clone(), value) {
                let value = Some(encode(&super::runs::LOST));
                let mend = Mend { table: table::RUNS, key: key.to_vec(), value };
                check.fault_with(place, error.to_string(), Some(mend));
            }
        });
    }

    fn snapshots(&mut self, position: Seq) {
        for (place, what) in super::snapshots::faults(self.read, self.volume, position) {
            self.fault(place, what);
        }
    }

    fn log(&mut self, position: Seq) {
        let mut last: Option<Seq> = None;
        self.each(table::LOG, |check, key, value| {
            let place = format!("log row {} of {}", hex(key), check.volume);
            check.row::<LogRecord>(&place, value);
            let Some(seq) = check.seq(&place, key, position) else { return };
            if last.is_some_and(|last| last.next() != seq) {
                check.fault(&place, "updates before it are missing");
            }
            last = Some(seq);
        });
        if last.is_some_and(|last| last != position) {
            self.fault(format!("log of {}", self.volume), "its last updates are missing");
        }
    }

    fn contents(&mut self, position: Seq) {
        self.each(table::CONTENTS, |check, key, value| {
            let place = format!("contents row {} of {}", hex(key), check.volume);
            if keys::file_and_stamp(key).is_none() {
                check.fault(&place, "its key is not one that is written");
            }
            let record: Option<ContentsRecord> = check.row(&place, value);
            if record.is_some_and(|record| record.since > position) {
                check.fault(&place, "it is of a position after the last");
            }
        });
    }

    /// The last version of a name is what the name is now.
    fn entries(&mut self, position: Seq) {
        self.each(table::ENTRIES, |check, key, value| {
            let place = format!("name row {} of {}", hex(key), check.volume);
            let record: Option<EntryRecord> = check.row(&place, value);
            let (Some(_), Some(record)) = (check.seq(&place, key, position), record) else {
                return;
            };
            let now = &key[..key.len() - 8];
            let mut later = now.to_vec();
            later.extend(u64::MAX.to_be_bytes());
            later.push(0);
            let last = check.read.last(table::ENTRIES, now, &later).map_err(Into::into);
            let Some(Some((last, _))) = check.sound(&place, last) else { return };
            if last != key || record.file.is_none() {
                return;
            }
            let there = check.read.get(table::ENTRIES_NOW, now).map_err(Into::into);
            if check.sound(&place, there).is_some_and(|there| there.as_deref() != Some(value)) {
                let value = Some(value.to_vec());
                let mend = Mend { table: table::ENTRIES_NOW, key: now.to_vec(), value };
                let what = "the table of names that there are now says otherwise";
                check.fault_with(place, what.into(), Some(mend));
            }
        });
    }

    fn entries_now(&mut self) {
        self.each(table::ENTRIES_NOW, |check, key, value| {
            let place = format!("present name row {} of {}", hex(key), check.volume);
            let named = keys::file_in(key).zip(keys::name_in_entry(key));
            let Some((directory, name)) = named else {
                return check.fault(&place, "its key is not one that is written");
            };
            let place = format!("{}/{name}", path_of(check.read, check.volume, directory));
            let version = check.view.entry_version(directory, &name);
            let Some(version) = check.sound(&place, version) else { return };
            let record: Option<EntryRecord> = check.row(&place, value);
            let Some(file) = record.and_then(|record| record.file) else {
                let value = version.file.map(|file| encode(&EntryRecord { file: Some(file) }));
                let mend = Mend { table: table::ENTRIES_NOW, key: key.to_vec(), value };
                return check.fault_with(place, "it leads nowhere".into(), Some(mend));
            };
            if version.file.is_none() {
                let mend = Mend { table: table::ENTRIES_NOW, key: key.to_vec(), value: None };
                let what = "it was removed, and is among the names that there are now";
                return check.fault_with(place, what.into(), Some(mend));
            }
            check.entry(&place, directory, &name, file);
        });
    }

    /// Both ends of a name are there, and the file knows that it bears it.
    fn entry(&mut self, place: &str, directory: FileId, name: &Name, file: FileId) {
        let node = self.view.node(file);
        if let Some(None) = self.sound(place, node) {
            self.fault(place, format!("it leads to file {file}, which is not there"));
        }
        let above = self.view.node(directory);
        let above = self.sound(place, above).flatten();
        if above.is_none_or(|above| above.kind != Kind::Directory) {
            self.fault(place, format!("it lies in {directory}, which is no directory"));
        }
        let key = keys::name_of(self.volume, file, directory, name);
        let known = self.read.get(table::NAMES_NOW, &key).map_err(Into::into);
        if let Some(None) = self.sound(place, known) {
            let mend = Mend { table: table::NAMES_NOW, key, value: Some(Vec::new()) };
            let what = format!("the names of file {file} lack it");
            self.fault_with(place.into(), what, Some(mend));
        }
    }

    fn names_now(&mut self) {
        self.each(table::NAMES_NOW, |check, key, _| {
            let place = format!("row {} of names that files bear in {}", hex(key), check.volume);
            let parsed = keys::file_in(key).zip(keys::name_in_name_of(key));
            let Some((file, (directory, name))) = parsed else {
                return check.fault(&place, "its key is not one that is written");
            };
            let entry = check.view.entry_version(directory, &name);
            if check.sound(&place, entry).is_some_and(|there| there.file != Some(file)) {
                let mend = Mend { table: table::NAMES_NOW, key: key.to_vec(), value: None };
                let what = format!("file {file} does not bear {name} in {directory}");
                check.fault_with(place, what, Some(mend));
            }
        });
    }

    /// Every node that there is now; gives back what they count for.
    fn nodes(&mut self, position: Seq) -> Tally {
        let mut tally = Tally::default();
        let mut last: Option<(Vec<u8>, NodeRecord)> = None;
        self.each(table::NODES, |check, key, value| {
            let place = format!("node row {} of {}", hex(key), check.volume);
            let record: Option<NodeRecord> = check.row(&place, value);
            check.seq(&place, key, position);
            let Some(record) = record else { return };
            let before = last.take().filter(|(before, _)| before[..12] != key[..12.min(key.len())]);
            if let Some((key, NodeRecord { node: Some(node), .. })) = before {
                tally.add(&node);
                check.node(&key, &node);
            }
            if key.len() == NODE_KEY_BYTES {
                last = Some((key.to_vec(), record));
            }
        });
        if let Some((key, NodeRecord { node: Some(node), .. })) = last {
            tally.add(&node);
            self.node(&key, &node);
        }
        tally
    }

    fn node(&mut self, key: &[u8], node: &Node) {
        let Some(file) = keys::file_in(key) else { return };
        let place = format!("{} (file {file})", path_of(self.read, self.volume, file));
        let names = self.view.names(file, (node.links as usize).saturating_add(1).max(2));
        let Some(names) = self.sound(&place, names) else { return };
        if names.is_empty() && file != FileId::ROOT {
            return self.fault(place, "no name leads to it");
        }
        let links = if node.kind == Kind::Directory {
            self.directory(&place, file, node, &names)
        } else {
            self.current_contents(&place, file, node);
            names.len() as u64
        };
        if links != u64::from(node.links) {
            let fixed = Node { links: u32::try_from(links).unwrap_or(u32::MAX), ..node.clone() };
            let value = Some(encode(&NodeRecord { node: Some(fixed), was: None }));
            let mend = Mend { table: table::NODES, key: key.to_vec(), value };
            let what = format!("it counts {} links, and has {links}", node.links);
            self.fault_with(place, what, Some(mend));
        }
    }

    fn current_contents(&mut self, place: &str, file: FileId, node: &Node) {
        if node.kind != Kind::File {
            return;
        }
        let found = self.view.contents(file, node.contents_stamp);
        let Some(found) = self.sound(place, found) else { return };
        if found.is_none_or(|(contents, _)| contents != node.contents) {
            self.fault(place, "its contents are not among those that are kept");
        }
    }

    /// Gives back how many links it should have.
    fn directory(
        &mut self,
        place: &str,
        file: FileId,
        node: &Node,
        names: &[(FileId, Name)],
    ) -> u64 {
        if file != FileId::ROOT {
            if names.len() > 1 {
                self.fault(place, "a directory has more than one name");
            }
            if names.first().map(|(above, _)| *above) != node.parent {
                self.fault(place, "it says that it is in another directory");
            }
        }
        let mut above = file;
        let mut steps = 0;
        while above != FileId::ROOT && steps < DEPTH_MAX {
            let next = self.view.node(above).ok().flatten().and_then(|node| node.parent);
            let Some(next) = next.filter(|next| *next != file) else { break };
            (above, steps) = (next, steps + 1);
        }
        if above != FileId::ROOT {
            self.fault(place, "the directories above it do not lead to the root");
        }
        2 + self.directories_in(place, file)
    }

    fn directories_in(&mut self, place: &str, directory: FileId) -> u64 {
        let (mut count, mut after) = (0, None);
        loop {
            let page = self.view.entries(directory, after.as_ref(), ROWS_MAX);
            let Some(page) = self.sound(place, page) else { return count };
            let nodes = page.entries.iter().filter_map(|(_, file)| self.view.node(*file).ok()?);
            count += nodes.filter(|node| node.kind == Kind::Directory).count() as u64;
            after = page.entries.into_iter().next_back().map(|(name, _)| name);
            if page.complete || after.is_none() {
                return count;
            }
        }
    }
}

/// Of the volume, the file and the position.
const NODE_KEY_BYTES: usize = 20;

/// The first key after those of the rows.
fn after(rows: &[Row]) -> Option<Vec<u8>> {
    rows.last().map(|(key, _)| [key, &[0][..]].concat())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
