//! Contents that the server may not have and of which no record of the log tells: what the tables
//! say of them, and what the cache holds though nothing is said of it.
//! Holds: what the tables say the server has, and the cache has as they say, is not among it.
//! Never: changes anything; takes a row that cannot be read for one that says nothing is pending.

use super::{Said, Unsent, cancelled};
use crate::meta::Meta;
use crate::pending::paths;
use crate::plan::describe_container;
use crate::presence::Presence;
use crate::trash::GENERATION_MIN;
use crate::types::Error;
use chunks::{Growing, Secret};
use model::{Change, FileId};
use std::collections::{BTreeMap, BTreeSet};
use store::container::Key;
use store::journal::Position;
use store::{Container, Containers, Read, StoreError};
use update_log::Record;
use volume::partial::Tree;

const PAGE_FILES: usize = 1024;
/// A stretch of data is wider than what was written, by the file system's blocks.
const BLOCK_BYTES: u64 = 4096;

/// What is known of such contents, the surest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Told {
    /// By the tables they were written, and not stored.
    Written,
    /// By the tables the update of this number stored them, and is not known as taken.
    Stored(u64),
    /// By the tables the server has contents of the file, and these are others.
    Changed,
    /// Neither the tables nor the log tell of them.
    Nothing,
}

/// Contents that the server may not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unlogged {
    pub file: FileId,
    /// From the root of the volume. None: no name can be found.
    pub path: Option<String>,
    pub key: Key,
    /// Whether they are in the cache.
    pub is_there: bool,
    pub told: Told,
    /// Some of it is as it is at the server, and not here. None: that is not known.
    pub is_part: Option<bool>,
}

/// What may be pending, the surest first, and what of the cache cannot be read.
#[derive(Debug)]
pub struct LeftOver {
    pub files: Vec<Unlogged>,
    pub unreadable: Vec<StoreError>,
}

/// What was read of the log.
#[derive(Clone, Copy, Debug)]
pub struct LogRead<'a> {
    pub records: &'a [(Position, Vec<u8>)],
    /// No record that there was is missing.
    pub is_whole: bool,
}

impl LogRead<'_> {
    /// Records that are as they were written, and say nothing that is known here.
    pub fn unreadable(&self) -> Vec<Position> {
        let records = self.records.iter();
        let unreadable = records.filter(|(_, record)| Record::decode(record).is_err());
        unreadable.map(|(position, _)| *position).collect()
    }
}

/// The last record of the log that the tables have. None: they are not those of a mount that was
/// let in, and say nothing of what is pending.
pub fn applied(read: &dyn Read) -> Result<Option<Position>, StoreError> {
    let meta = Meta::load(read)?;
    Ok(meta.replica.map(|_| meta.applied))
}

/// What may be pending besides `logged`, which the log tells of. `read`: the tables, if they can be
/// read.
pub fn unlogged<C: Containers>(
    read: Option<&dyn Read>,
    log: LogRead<'_>,
    logged: &[Unsent],
    containers: &C,
) -> Result<LeftOver, Error> {
    let judge = Judge::new(read, log);
    let taken: BTreeSet<Key> = logged.iter().filter_map(|file| file.key).collect();
    let files: BTreeSet<FileId> = logged.iter().map(|file| file.file).collect();
    let (mut there, unreadable) = containers.readable_keys();
    there.sort_unstable();
    let mut all = Vec::new();
    for key in &there {
        // Nothing in the trash is needed by anybody, and a log that is whole tells all of its files.
        let is_told = judge.log_is_whole && files.contains(&FileId(key.file));
        if key.generation >= GENERATION_MIN || taken.contains(key) || is_told {
            continue;
        }
        let Some((told, is_part)) = judge.of(*key, containers) else { continue };
        let file = FileId(key.file);
        all.push(Unlogged { file, path: None, key: *key, is_there: true, told, is_part });
    }
    for (file, row) in judge.rows() {
        let key = Key { file: file.0, generation: row.generation };
        let is_here = there.binary_search(&key).is_ok() || files.contains(&file);
        let Some(told) = judge.is_pending(file, &row).filter(|_| !is_here) else { continue };
        if row.dirty.is_none() && row.contents.size == 0 {
            continue;
        }
        let is_part = Some(!row.is_whole());
        all.push(Unlogged { file, path: None, key, is_there: false, told, is_part });
    }
    let files: Vec<FileId> = all.iter().map(|it| it.file).collect();
    let paths = paths(&files, judge.names, |files| {
        let names = read.and_then(|read| Tree::new(read, 0).names_of(files).ok());
        Ok(names.unwrap_or_default())
    })?;
    for found in &mut all {
        found.path = paths.get(&found.file).cloned();
    }
    all.sort_by_key(|found| (found.told, found.key));
    Ok(LeftOver { files: all, unreadable })
}

/// Tells what the server has from what it may not have.
struct Judge<'a> {
    read: Option<&'a dyn Read>,
    meta: Meta,
    log_is_whole: bool,
    names: BTreeMap<FileId, (FileId, model::Name)>,
    /// Updates that were taken back.
    cancelled: BTreeSet<u64>,
    /// Behind what the tables have of the log: whether the file is written to and not stored.
    written: BTreeMap<FileId, bool>,
}

impl<'a> Judge<'a> {
    fn new(read: Option<&'a dyn Read>, log: LogRead<'_>) -> Judge<'a> {
        let meta = read.and_then(|read| Meta::load(read).ok());
        let meta = meta.filter(|meta| meta.replica.is_some());
        let read = read.filter(|_| meta.is_some());
        let meta = meta.unwrap_or_default();
        let (mut said, mut written) = (Said::default(), BTreeMap::new());
        let (mut taken_back, mut made) = (BTreeSet::new(), BTreeMap::new());
        let mut log_is_whole = log.is_whole;
        for (position, bytes) in log.records {
            let Ok(record) = Record::decode(bytes) else {
                log_is_whole = false;
                continue;
            };
            taken_back.extend(cancelled(&record).iter().copied());
            let is_behind = *position > meta.applied;
            match record {
                Record::Update(update) => {
                    made.extend(update.makes().map(|file| (update.stamp.number, file)));
                    said.name(&update.change);
                    if let (true, Change::Store { file, .. }) = (is_behind, update.change) {
                        written.insert(file, false);
                    }
                }
                Record::Closed { file } if is_behind => drop(written.insert(file, false)),
                Record::Moot { cancelled, .. } if is_behind => {
                    let made = cancelled.iter().filter_map(|number| made.get(number));
                    written.extend(made.map(|file| (*file, false)));
                }
                Record::Opened { file, .. } | Record::OpenedPart { file, .. } if is_behind => {
                    written.insert(file, true);
                }
                _ => {}
            }
        }
        Judge { read, meta, log_is_whole, names: said.names, cancelled: taken_back, written }
    }

    /// What is known of the contents, and whether only a part of them is here. None: the server has
    /// them, or they are left over and nobody's.
    fn of(&self, key: Key, containers: &impl Containers) -> Option<(Told, Option<bool>)> {
        let Some(read) = self.read else { return Some((Told::Nothing, None)) };
        let file = FileId(key.file);
        let row = match Presence::of_generation(read, file, key.generation) {
            Ok(row) => row,
            Err(_) => return Some((Told::Nothing, None)),
        };
        // Left from before the last start, or written since the tables were.
        let nobodys = (!self.log_is_whole).then_some((Told::Nothing, None));
        let Some(row) = row else { return nobodys };
        let told = match self.is_pending(file, &row) {
            Some(told) => told,
            None if self.log_is_whole => return None,
            None if self.is_as_said(key, &row, containers) => return None,
            None => Told::Changed,
        };
        Some((told, Some(!row.is_whole())))
    }

    /// Whether by the tables something of the file had not been sent.
    fn is_pending(&self, file: FileId, row: &Presence) -> Option<Told> {
        if row.dirty.is_some() {
            // The records behind the tables know better, if they are all there.
            let is_done = self.log_is_whole && self.written.get(&file) == Some(&false);
            return (!is_done).then_some(Told::Written);
        }
        let (meta, number) = (&self.meta, row.version.number);
        let is_judged = number <= meta.settled
            || meta.passed.as_ref().is_some_and(|passed| passed.contains(&number));
        let is_gone = self.log_is_whole && self.cancelled.contains(&number);
        let is_ours = Some(row.version.replica) == meta.replica;
        (is_ours && !is_judged && !is_gone).then_some(Told::Stored(number))
    }

    /// Whether a container holds what the server has, as far as can be told: records of what was
    /// written to it since may be missing.
    fn is_as_said(&self, key: Key, row: &Presence, containers: &impl Containers) -> bool {
        // What cannot be read cannot be copied either, and the server has what the row says.
        let Ok(Some(container)) = containers.open(key, false) else { return true };
        let Ok(length) = container.length() else { return true };
        if row.contents.root.is_some() && row.is_whole() {
            let growing = Growing::new(&Secret::new(self.meta.secret), self.meta.cutter);
            let described = describe_container(&container, growing, length, 0, |_| Ok(()));
            return described.is_ok_and(|it| it.tree.contents.root == row.contents.root);
        }
        if row.contents.size == 0 {
            return length == 0;
        }
        // Of a part there is no name to compare with. What is here beyond it was written, or fetched.
        let Ok(data) = container.data(0, length) else { return true };
        let mut beyond =
            data.iter().flat_map(|(offset, bytes)| row.absent(*offset, offset + bytes));
        length <= row.contents.size && beyond.all(|(from, to)| to - from < 2 * BLOCK_BYTES)
    }

    /// The rows of all files of which something is here, as far as they can be read.
    fn rows(&self) -> Vec<(FileId, Presence)> {
        let (mut rows, mut after) = (Vec::new(), None);
        let Some(read) = self.read else { return rows };
        while let Ok(page) = Presence::page(read, after, PAGE_FILES) {
            let Some((last, _)) = page.last() else { break };
            after = Some(*last);
            rows.extend(page);
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presence::Dirty;
    use model::{Contents, Kind, Name, ReplicaId, Stamp, Time, Update};
    use store::memory::{MemoryContainers, MemoryTables};
    use store::{Durability, Tables};

    const OURS: ReplicaId = ReplicaId(3);
    const SERVERS: Stamp = Stamp { replica: ReplicaId(0), number: 9 };

    struct State {
        tables: MemoryTables,
        containers: MemoryContainers,
        records: Vec<(Position, Vec<u8>)>,
        meta: Meta,
    }

    impl State {
        /// Updates up to 4, and 6, are settled; records up to 10 are in the tables.
        fn new() -> State {
            let passed = Some(BTreeSet::from([6]));
            let meta =
                Meta { replica: Some(OURS), settled: 4, applied: 10, passed, ..Meta::default() };
            let (tables, containers) = (MemoryTables::default(), MemoryContainers::default());
            let state = State { tables, containers, records: Vec::new(), meta };
            state.put(|write| state.meta.save(write).unwrap());
            state
        }

        fn put(&self, put: impl FnOnce(&mut dyn store::Write)) {
            let mut write = self.tables.write().unwrap();
            put(&mut *write);
            write.commit(Durability::Now).unwrap();
        }

        fn holds(&self, file: u64, generation: u32, bytes: &[u8]) -> Contents {
            let container = self.containers.open(Key { file, generation }, true).unwrap().unwrap();
            container.set_length(0).unwrap();
            container.write(0, bytes).unwrap();
            let growing = Growing::new(&Secret::new(self.meta.secret), self.meta.cutter);
            let size = bytes.len() as u64;
            describe_container(&container, growing, size, 0, |_| Ok(())).unwrap().tree.contents
        }

        /// A row of a file all of which is here.
        fn has(&self, file: u64, version: Stamp, dirty: bool) {
            let contents = self.holds(file, 0, format!("contents of {file}").as_bytes());
            let mut row = Presence::new(0, version, contents, 0);
            row.add_all();
            row.dirty = dirty.then(|| Dirty::new(version, 0));
            self.put(|write| row.save(write, FileId(file)).unwrap());
        }

        fn logs(&mut self, position: Position, record: &Record) {
            self.records.push((position, record.encode()));
        }

        fn found(&self, is_whole: bool, with_tables: bool) -> Vec<(u64, Told)> {
            let read = self.tables.read().unwrap();
            let log = LogRead { records: &self.records, is_whole };
            let records: Vec<_> = self.records.iter().map(|(_, record)| record.clone()).collect();
            let read = with_tables.then_some(&*read);
            let logged = super::super::unsent(read, &records, &self.containers).unwrap();
            let found = unlogged(read, log, &logged.files, &self.containers).unwrap().files;
            found.iter().map(|found| (found.file.0, found.told)).collect()
        }
    }

    #[test]
    fn what_the_tables_do_not_know_as_sent_is_found_whatever_is_left_of_the_log() {
        let state = State::new();
        state.has(20, SERVERS, false);
        state.has(21, SERVERS, true);
        state.has(22, Stamp::new(OURS, 4), false);
        state.has(23, Stamp::new(OURS, 5), false);
        state.has(24, Stamp::new(OURS, 6), false);
        let pending = vec![(21, Told::Written), (23, Told::Stored(5))];
        assert_eq!(state.found(false, true), pending);
        assert_eq!(state.found(true, true), pending);
        let nothing = (20..25).map(|file| (file, Told::Nothing)).collect::<Vec<_>>();
        assert_eq!(state.found(true, false), nothing, "who knows what the server has?");
    }

    #[test]
    fn of_what_nothing_is_said_only_a_log_that_is_whole_can_say_that_it_is_left_over() {
        let state = State::new();
        state.has(20, SERVERS, false);
        state.holds(20, 1, b"written since");
        state.holds(21, 0, b"made since");
        state.holds(22, GENERATION_MIN + 7, b"in the trash");
        assert_eq!(state.found(true, true), []);
        assert_eq!(state.found(false, true), [(20, Told::Nothing), (21, Told::Nothing)]);
        state.holds(20, 0, b"written over in place");
        let changed = [(20, Told::Changed), (20, Told::Nothing), (21, Told::Nothing)];
        assert_eq!(state.found(false, true), changed);
        state.put(|write| write.put("client-presence", &20_u64.to_be_bytes(), b"x").unwrap());
        let unknown = [20, 20, 21].map(|file| (file, Told::Nothing));
        assert_eq!(state.found(false, true), unknown, "a row that cannot be read");
    }

    #[test]
    fn what_was_written_to_a_part_since_the_tables_were_is_told_from_the_part() {
        let state = State::new();
        let size = 1 << 20;
        let contents = Contents { size, root: None, holes: None };
        let mut row = Presence::new(0, SERVERS, contents, 0);
        row.add(0, 4096);
        state.put(|write| row.save(write, FileId(20)).unwrap());
        state.holds(20, 0, &[1; 4096]);
        assert_eq!(state.found(false, true), []);
        let container = state.containers.open(Key { file: 20, generation: 0 }, false).unwrap();
        container.unwrap().write(65_536, &[2; 16_384]).unwrap();
        assert_eq!(state.found(false, true), [(20, Told::Changed)]);
        assert_eq!(state.found(true, true), []);
    }

    #[test]
    fn the_records_behind_the_tables_know_better_if_they_are_all_there() {
        let mut state = State::new();
        state.has(20, SERVERS, true);
        state.has(21, Stamp::new(OURS, 5), false);
        state.logs(11, &Record::Closed { file: FileId(20) });
        state.logs(12, &Record::Cancelled { number: 5 });
        assert_eq!(state.found(true, true), []);
        let pending = [(20, Told::Written), (21, Told::Stored(5))];
        assert_eq!(state.found(false, true), pending);
        state.records.push((13, b"no record".to_vec()));
        assert_eq!(state.found(true, true), pending);
        let log = LogRead { records: &state.records, is_whole: true };
        assert_eq!(log.unreadable(), [13]);
    }

    #[test]
    fn what_was_made_and_removed_before_it_was_sent_is_not_found_either() {
        let mut state = State::new();
        let (at, stamp) = (Time::default(), |number| Stamp::new(OURS, number));
        state.has(20, stamp(7), false);
        state.has(21, stamp(8), true);
        let make = |file| Change::Make {
            parent: FileId::ROOT,
            name: Name::new("a").unwrap(),
            file: FileId(file),
            kind: Kind::File,
            mode: 0o600,
            uid: 0,
            gid: 0,
            target: None,
            rdev: None,
            born: None,
        };
        // What the tables have of the log already is in it as well.
        for (number, file) in [(7, 20), (8, 21)] {
            let update = Update { stamp: stamp(number), uid: 0, at, change: make(file) };
            state.logs(number, &Record::Update(update));
        }
        let pending = vec![(20, Told::Stored(7)), (21, Told::Written)];
        let found = |state: &State| {
            let mut found = state.found(true, true);
            found.sort_unstable();
            found
        };
        assert_eq!(found(&state), pending);
        state.logs(11, &Record::Moot { cancelled: vec![7, 8], rewritten: Vec::new() });
        assert_eq!(found(&state), []);
        assert_eq!(state.found(false, true).len(), 2, "other records may be missing");
    }

    #[test]
    fn what_the_log_tells_of_is_not_found_twice_and_its_names_count() {
        let mut state = State::new();
        state.has(20, Stamp::new(OURS, 5), false);
        state.has(21, SERVERS, true);
        let (at, stamp) = (Time::default(), |number| Stamp::new(OURS, number));
        let contents = Contents { size: 14, root: None, holes: None };
        let file = FileId(20);
        let store = Change::Store { file, expects: SERVERS, contents, mtime: at };
        let (parent, name) = (FileId::ROOT, Name::new("b").unwrap());
        let link = Change::Link { parent, name, file: FileId(21) };
        for (number, change) in [(5, store), (7, link)] {
            let update = Update { stamp: stamp(number), uid: 0, at, change };
            state.logs(number, &Record::Update(update));
        }
        assert_eq!(state.found(true, true), [(21, Told::Written)]);
        let read = state.tables.read().unwrap();
        let log = LogRead { records: &state.records, is_whole: true };
        let found = unlogged(Some(&*read), log, &[], &state.containers).unwrap().files;
        let path = |told| found.iter().find(|found| found.told == told).unwrap().path.clone();
        assert_eq!(path(Told::Written).as_deref(), Some("b"));
        assert_eq!(path(Told::Stored(5)), None);
    }

    #[test]
    fn contents_that_are_gone_are_told_of() {
        let state = State::new();
        state.has(20, Stamp::new(OURS, 5), false);
        state.containers.remove(Key { file: 20, generation: 0 }).unwrap();
        let read = state.tables.read().unwrap();
        let log = LogRead { records: &[], is_whole: false };
        let found = unlogged(Some(&*read), log, &[], &state.containers).unwrap().files;
        assert!(matches!(&found[..], [Unlogged { is_there: false, told: Told::Stored(5), .. }]));
    }
}
