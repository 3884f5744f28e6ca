//! What can still be had of a state directory whose log is damaged: the contents that were not yet
//! sent, under the names that they had.
//! Holds: nothing of the directory is changed.

mod compared;
mod unlogged;

pub use compared::Compared;
pub use unlogged::{LeftOver, LogRead, Told, Unlogged, applied, unlogged};

use crate::meta::Meta;
use crate::pending::paths;
use crate::presence::Presence;
use crate::trash::GENERATION_MIN;
use crate::types::Error;
use compared::{Comparer, Stored};
use model::{Change, FileId, Name};
use std::collections::{BTreeMap, BTreeSet};
use store::container::Key;
use store::{Containers, Read};
use update_log::Record;
use volume::partial::Tree;

/// A file of which something had not been sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsent {
    pub file: FileId,
    /// From the root of the volume. None: it has no name any more, or none that can be found.
    pub path: Option<String>,
    /// Where its contents are. None: they are not there.
    pub key: Option<Key>,
    /// Some of it is as it is at the server, and not here.
    pub is_part: bool,
    pub compared: Compared,
}

/// What there is in a log and a cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Salvaged {
    pub files: Vec<Unsent>,
    /// Records that are whole, and that this program cannot read.
    pub unread: usize,
}

/// What the records that are whole say of files with contents that were not sent.
#[derive(Debug, Default, PartialEq, Eq)]
struct Said {
    /// With contents that were stored and not sent.
    files: BTreeMap<FileId, Stored>,
    /// Written to, and not stored.
    open: BTreeSet<FileId>,
    names: BTreeMap<FileId, (FileId, Name)>,
    /// These have lost a name, and were given none since.
    nameless: BTreeSet<FileId>,
    generations: BTreeMap<FileId, u32>,
    parts: BTreeSet<FileId>,
}

/// `is_settled`: whether the server has judged the update of this number.
fn said(records: &[Record], is_settled: impl Fn(u64) -> bool) -> Said {
    let cancelled: BTreeSet<u64> = records.iter().flat_map(cancelled).copied().collect();
    let (mut said, mut made) = (Said::default(), BTreeMap::new());
    for record in records {
        match record {
            Record::Update(update) => {
                let number = update.stamp.number;
                made.extend(update.makes().map(|file| (number, file)));
                said.name(&update.change);
                let Change::Store { file, contents, .. } = update.change else { continue };
                said.open.remove(&file);
                if !is_settled(number) && !cancelled.contains(&number) {
                    said.files.insert(file, Stored { number, contents });
                }
            }
            Record::Opened { file, generation, .. } => {
                said.open.insert(*file);
                said.generations.insert(*file, *generation);
                said.parts.remove(file);
            }
            // The record that opened it may be one of those that cannot be read.
            Record::OpenedPart { file, generation, .. }
            | Record::Here { file, generation, .. }
            | Record::Reach { file, generation, .. }
            | Record::Part { file, generation, .. } => {
                said.open.insert(*file);
                said.generations.insert(*file, *generation);
                said.parts.insert(*file);
            }
            Record::Closed { file } => drop(said.open.remove(file)),
            // Nothing of what was written to these is wanted.
            Record::Moot { cancelled, .. } => {
                cancelled.iter().filter_map(|number| made.get(number)).for_each(|file| {
                    said.open.remove(file);
                });
            }
            _ => {}
        }
    }
    said
}

/// Updates that a record takes back.
fn cancelled(record: &Record) -> &[u64] {
    match record {
        Record::Cancelled { number } => std::slice::from_ref(number),
        Record::Moot { cancelled, .. } => cancelled,
        _ => &[],
    }
}

impl Said {
    fn name(&mut self, change: &Change) {
        match change {
            Change::Make { parent, name, file, .. } | Change::Link { parent, name, file } => {
                self.gives(*file, (*parent, name));
            }
            Change::Unlink { parent, name, file, .. } => self.takes(*file, (*parent, name)),
            Change::Rename { to, to_name, file, over, exchange: false, .. } => {
                over.iter().for_each(|over| self.takes(*over, (*to, to_name)));
                self.gives(*file, (*to, to_name));
            }
            Change::Rename { from, from_name, to, to_name, file, over, .. } => {
                over.iter().for_each(|over| self.gives(*over, (*from, from_name)));
                self.gives(*file, (*to, to_name));
            }
            _ => {}
        }
    }

    fn gives(&mut self, file: FileId, (directory, name): (FileId, &Name)) {
        self.names.insert(file, (directory, name.clone()));
        self.nameless.remove(&file);
    }

    fn takes(&mut self, file: FileId, (directory, name): (FileId, &Name)) {
        let is_it = |it: &(FileId, Name)| it.0 == directory && it.1 == *name;
        if self.names.get(&file).is_none_or(is_it) {
            self.names.remove(&file);
            self.nameless.insert(file);
        }
    }
}

/// The files of which something had not been sent, by the records of a log that are whole. `read`:
/// the tables, if they can be read.
pub fn unsent<C: Containers>(
    read: Option<&dyn Read>,
    records: &[Vec<u8>],
    containers: &C,
) -> Result<Salvaged, Error> {
    let all = records.len();
    let records: Vec<Record> = records.iter().filter_map(|it| Record::decode(it).ok()).collect();
    let unread = all - records.len();
    let meta = read.and_then(|read| Meta::load(read).ok()).unwrap_or_default();
    let ahead = |number| meta.passed.as_ref().is_some_and(|passed| passed.contains(&number));
    let said = said(&records, |number| number <= meta.settled || ahead(number));
    let files: BTreeSet<FileId> = said.files.keys().chain(&said.open).copied().collect();
    let files: Vec<FileId> = files.into_iter().collect();
    let comparer = Comparer::new(read, &records, containers, &meta);
    let paths = paths(&files, said.names, |files| {
        let names = read.and_then(|read| Tree::new(read, 0).names_of(files).ok());
        Ok(names.unwrap_or_default())
    })?;
    let mut found = Vec::new();
    for file in files {
        let row = read.and_then(|read| Presence::load(read, file).ok().flatten());
        // Why they cannot be read, `unlogged` tells.
        let mut there = containers.list_of(file.0).unwrap_or_default();
        // What is in the trash was let go of.
        there.retain(|key| key.generation < GENERATION_MIN);
        let generation = row.as_ref().map(|row| row.generation);
        let generation = said.generations.get(&file).copied().or(generation);
        let key = there.iter().find(|key| Some(key.generation) == generation);
        let key = key.or(there.iter().max_by_key(|key| key.generation)).copied();
        // What was removed goes from the cache soon; the record that names it anew may be damaged.
        if key.is_none() && said.nameless.contains(&file) && !paths.contains_key(&file) {
            continue;
        }
        let is_part =
            said.parts.contains(&file) || row.as_ref().is_some_and(|row| row.ground.is_some());
        let stored = said.files.get(&file).filter(|_| !said.open.contains(&file)).copied();
        let (key, compared) = match (key, stored) {
            (Some(key), Some(stored)) => holding(&comparer, key, &there, stored, is_part),
            (key, _) => (key, Compared::Unstored),
        };
        found.push(Unsent { file, path: paths.get(&file).cloned(), key, is_part, compared });
        // Other versions that were written to at the same time.
        let others = read.and_then(|read| Presence::displaced(read, file).ok()).unwrap_or_default();
        for row in others.iter().chain(&row).filter(|row| row.dirty.is_some()) {
            let other = there.iter().find(|key| key.generation == row.generation).copied();
            if other.is_some() && other != key {
                let (path, is_part) = (paths.get(&file).cloned(), row.ground.is_some());
                let compared = Compared::Unstored;
                found.push(Unsent { file, path, key: other, is_part, compared });
            }
        }
    }
    Ok(Salvaged { files: found, unread })
}

/// The container that holds what was stored: another one than `key`, where that holds something else,
/// and several versions of the file were written to at once.
fn holding<C: Containers>(
    comparer: &Comparer<'_, C>,
    key: Key,
    there: &[Key],
    stored: Stored,
    is_part: bool,
) -> (Option<Key>, Compared) {
    let compared = comparer.of(key, stored, is_part);
    let holds = |other: &&Key| {
        **other != key && comparer.of(**other, stored, is_part) == Compared::AsWritten
    };
    if compared == Compared::Altered
        && let Some(other) = there.iter().find(holds)
    {
        return (Some(*other), Compared::AsWritten);
    }
    (Some(key), compared)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Contents, Kind, ReplicaId, Stamp, Time, Update};
    use store::memory::MemoryContainers;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn record(number: u64, change: Change) -> Record {
        let (stamp, at) = (Stamp::new(ReplicaId(1), number), Time::default());
        Record::Update(Update { stamp, uid: 0, at, change })
    }

    fn make(number: u64, file: u64, text: &str) -> Record {
        let (parent, name, kind) = (FileId::ROOT, name(text), Kind::File);
        let (target, rdev, born) = (None, None, None);
        let file = FileId(file);
        let make =
            Change::Make { parent, name, file, kind, mode: 0, uid: 0, gid: 0, target, rdev, born };
        record(number, make)
    }

    fn store(number: u64, file: u64) -> Record {
        let (expects, mtime) = (Stamp::default(), Time::default());
        let contents = Contents::EMPTY;
        record(number, Change::Store { file: FileId(file), expects, contents, mtime })
    }

    #[test]
    fn what_was_stored_and_neither_judged_nor_cancelled_is_unsent() {
        let records = [
            make(1, 7, "a"),
            store(2, 7),
            store(3, 8),
            store(4, 9),
            Record::Cancelled { number: 4 },
            record(
                5,
                Change::Rename {
                    from: FileId::ROOT,
                    from_name: name("a"),
                    to: FileId(3),
                    to_name: name("b"),
                    file: FileId(7),
                    over: None,
                    exchange: false,
                    whiteout: None,
                    expects: None,
                },
            ),
        ];
        let said = said(&records, |number| number == 3);
        let stored = Stored { number: 2, contents: Contents::EMPTY };
        assert_eq!(said.files, BTreeMap::from([(FileId(7), stored)]));
        assert_eq!(said.names[&FileId(7)], (FileId(3), name("b")));
    }

    #[test]
    fn what_was_made_and_removed_before_it_was_sent_is_not_unsent() {
        let moot = Record::Moot { cancelled: vec![1, 2, 3, 5], rewritten: Vec::new() };
        let (expects, uid) = (Stamp::default(), 0);
        let opened = |file| Record::Opened { file: FileId(file), generation: 0, expects, uid };
        let records = [make(1, 7, "a"), store(2, 7), make(3, 8, "b"), opened(8), make(4, 9, "c")];
        let records = [&records[..], &[opened(9), store(5, 9), moot, opened(9)]].concat();
        let said = said(&records, |_| false);
        assert_eq!(said.files, BTreeMap::new());
        assert_eq!(said.open, BTreeSet::from([FileId(9)]), "that one is still there");
    }

    #[test]
    fn nothing_that_is_unsent_is_in_the_trash() {
        let containers = MemoryContainers::default();
        for (file, generation) in [(7, GENERATION_MIN), (8, 3), (8, GENERATION_MIN + 1)] {
            containers.open(Key { file, generation }, true).unwrap();
        }
        let records: Vec<_> = [store(1, 7), store(2, 8)].iter().map(Record::encode).collect();
        let found = unsent(None, &records, &containers).unwrap().files;
        let found: Vec<_> = found.iter().map(|found| found.key).collect();
        assert_eq!(found, [None, Some(Key { file: 8, generation: 3 })]);
    }

    #[test]
    fn what_was_removed_or_replaced_has_no_name() {
        let unlink = |number, file, text| {
            let (parent, name, expects) = (FileId::ROOT, name(text), None);
            record(number, Change::Unlink { parent, name, file: FileId(file), expects })
        };
        let link = Change::Link { parent: FileId::ROOT, name: name("c"), file: FileId(8) };
        let over = Change::Rename {
            from: FileId::ROOT,
            from_name: name("b"),
            to: FileId::ROOT,
            to_name: name("a"),
            file: FileId(8),
            over: Some(FileId(7)),
            exchange: false,
            whiteout: None,
            expects: None,
        };
        let mut records = vec![make(1, 7, "a"), make(2, 8, "b"), record(3, over)];
        let of = |records: &[Record]| {
            let said = said(records, |_| false);
            (said.names.keys().map(|file| file.0).collect::<Vec<_>>(), said.nameless.len())
        };
        assert_eq!(of(&records), (vec![8], 1));
        records.extend([record(4, link), unlink(5, 8, "a")]);
        assert_eq!(of(&records), (vec![8], 1), "it has another");
        records.push(unlink(6, 8, "c"));
        assert_eq!(of(&records), (vec![], 2));
    }

    #[test]
    fn what_was_being_written_is_unsent_and_its_last_container_counts() {
        let (file, expects) = (FileId(7), Stamp::default());
        let opened = |generation| Record::Opened { file, generation, expects, uid: 0 };
        let part = Record::OpenedPart {
            file,
            generation: 3,
            expects,
            uid: 0,
            version: expects,
            contents: Contents::EMPTY,
            reach: 0,
            ranges: Vec::new(),
            of: None,
        };
        let all = said(&[opened(2), part.clone()], |_| false);
        assert_eq!((all.open.len(), all.generations[&file], all.parts.len()), (1, 3, 1));
        // The record that opened it cannot be read.
        let (generation, from, to) = (3, 0, 9);
        for record in [
            Record::Here { file, generation, from, to },
            Record::Reach { file, generation, reach: 9 },
            Record::Part {
                file,
                generation,
                number: 9,
                contents: Contents::EMPTY,
                pieces: Vec::new(),
                recipe: Vec::new(),
            },
        ] {
            let all = said(std::slice::from_ref(&record), |_| false);
            assert_eq!((all.open.len(), all.generations[&file], all.parts.len()), (1, 3, 1));
            let all = said(&[opened(2), record, store(9, 7)], |_| false);
            assert_eq!((all.open.len(), all.generations[&file], all.parts.len()), (0, 3, 1));
        }
        let all = said(&[part, opened(4)], |_| false);
        assert_eq!((all.generations[&file], all.parts.len()), (4, 0));
        // It was stored and sent, or given up.
        for ends in [store(9, 7), Record::Closed { file }] {
            let all = said(&[opened(4), ends], |_| true);
            assert!(all.open.is_empty() && all.files.is_empty());
        }
    }
}
