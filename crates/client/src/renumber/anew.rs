//! Which names what is pending bears from here on, and bore before.
//! Layout: docs/FORMATS.md, "client-renumbered".

use minicbor::{Decode, Encode};
use model::{FileId, IdOutOfRange, ReplicaId, Stamp, Update};
use std::collections::BTreeMap;
use store::{Read, StoreError, Write};

const TABLE: &str = "client-renumbered";
const PAGE_ROWS: usize = 1024;

/// What bears another name from here on: files, and updates by their numbers.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Anew {
    replica: ReplicaId,
    number: u64,
    counter: u64,
    /// Files that pending updates make.
    made: Vec<(FileId, FileId)>,
    /// The same, and those that an earlier try has given new ids.
    ids: BTreeMap<FileId, FileId>,
    numbers: BTreeMap<Stamp, Stamp>,
}

#[derive(Encode, Decode)]
enum Row {
    #[n(0)]
    File(#[n(0)] FileId, #[n(1)] FileId),
    #[n(1)]
    Update(#[n(0)] Stamp, #[n(1)] Stamp),
}

impl Anew {
    /// Behind this, which an earlier try has named. `last`: the number of the last update. `counter`: that
    /// of the next file.
    pub fn next(&self, replica: ReplicaId, last: u64, counter: u64) -> Anew {
        let numbers = self.numbers.values().map(|stamp| stamp.number);
        let ids = self.ids.values().filter(|id| id.replica() == replica);
        let number = numbers.max().map_or(last, |used| used.max(last));
        let counter =
            ids.map(|id| id.counter() + 1).max().map_or(counter, |next| next.max(counter));
        Anew { replica, number, counter, ..Anew::default() }
    }

    /// One that is pending, in turn.
    pub fn add(&mut self, update: &Update) -> Result<(), IdOutOfRange> {
        self.number += 1;
        self.numbers.insert(update.stamp, Stamp::new(self.replica, self.number));
        if let Some(file) = update.makes() {
            let id = FileId::new(self.replica, self.counter)?;
            self.counter += 1;
            self.made.push((file, id));
            self.ids.insert(file, id);
        }
        Ok(())
    }

    /// Together with what an earlier try has named, of which part may bear those names already.
    pub fn after(mut self, earlier: &Anew) -> Anew {
        for (old, new) in &earlier.ids {
            let latest = self.ids.get(new).or(self.ids.get(old)).copied().unwrap_or(*new);
            self.ids.entry(*old).or_insert(latest);
            if latest != *new {
                self.ids.entry(*new).or_insert(latest);
            }
        }
        for (old, new) in &earlier.numbers {
            let latest = self.numbers.get(new).or(self.numbers.get(old)).copied();
            for stamp in [*old, *new] {
                self.numbers.entry(stamp).or_insert(latest.unwrap_or(*new));
            }
        }
        self.made.sort_unstable();
        self
    }

    /// The id of a file that a pending update makes.
    pub fn id(&self, file: FileId) -> Option<FileId> {
        let found = self.made.binary_search_by_key(&file, |(old, _)| *old).ok()?;
        self.made.get(found).map(|(_, new)| *new)
    }

    /// What something that names a file names from here on.
    pub fn named(&self, file: FileId) -> FileId {
        self.ids.get(&file).copied().unwrap_or(file)
    }

    pub fn stamp(&self, stamp: Stamp) -> Option<Stamp> {
        self.numbers.get(&stamp).copied()
    }

    /// Ids that lead to no file from here on.
    pub fn given_up(&self) -> impl Iterator<Item = FileId> {
        self.ids.keys().copied()
    }

    /// Files whose ids an earlier try has replaced already.
    pub fn given_up_before(&self) -> impl Iterator<Item = FileId> {
        self.ids.keys().copied().filter(|file| self.id(*file).is_none())
    }

    pub fn counter(&self) -> u64 {
        self.counter
    }

    pub fn numbers(&self) -> impl Iterator<Item = (Stamp, Stamp)> {
        self.numbers.iter().map(|(old, new)| (*old, *new))
    }

    /// What was written down by a try that did not come to its end.
    pub fn load(read: &dyn Read) -> Result<Anew, StoreError> {
        let mut anew = Anew::default();
        each(read, |row| match row {
            Row::File(old, new) => drop(anew.ids.insert(old, new)),
            Row::Update(old, new) => drop(anew.numbers.insert(old, new)),
        })?;
        Ok(anew)
    }

    /// A try has not come to its end: what is pending may bear one name here and another there.
    pub fn is_unfinished(read: &dyn Read) -> Result<bool, StoreError> {
        Ok(!read.scan(TABLE, &[], &u64::MAX.to_be_bytes(), 1)?.is_empty())
    }

    /// Instead of what was written down before.
    pub fn save(&self, write: &mut dyn Write) -> Result<(), StoreError> {
        Anew::forget(write)?;
        let files = self.ids.iter().map(|(old, new)| Row::File(*old, *new));
        let updates = self.numbers().map(|(old, new)| Row::Update(old, new));
        for (number, row) in (0_u64..).zip(files.chain(updates)) {
            let row = minicbor::to_vec(&row).expect("a vector takes every byte");
            write.put(TABLE, &number.to_be_bytes(), &row)?;
        }
        Ok(())
    }

    pub fn forget(write: &mut dyn Write) -> Result<(), StoreError> {
        loop {
            let rows = write.scan(TABLE, &[], &u64::MAX.to_be_bytes(), PAGE_ROWS)?;
            if rows.is_empty() {
                return Ok(());
            }
            rows.iter().try_for_each(|(key, _)| write.delete(TABLE, key))?;
        }
    }
}

fn each(read: &dyn Read, mut take: impl FnMut(Row)) -> Result<(), StoreError> {
    let mut from = Vec::new();
    loop {
        let rows = read.scan(TABLE, &from, &u64::MAX.to_be_bytes(), PAGE_ROWS)?;
        let Some((last, _)) = rows.last() else { return Ok(()) };
        from.clone_from(last);
        from.push(0);
        for (_, row) in &rows {
            take(minicbor::decode(row).map_err(|source| StoreError::Damaged {
                place: TABLE.into(),
                what: source.to_string(),
            })?);
        }
    }
}
