//! The log itself: what is pending, in order, and how far each has come.
//!
//! ```text
//! append -> Waiting -> Submitted -> (verdict) retired
//!              |  ^        |
//!              |  +--------+ the link was lost, or contents were missing
//!              +-> cancelled
//! ```

use crate::record::{Record, RecordError};
use model::{Change, FileId, Stamp, Update};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use store::journal::Position;
use store::{Journal, StoreError};

#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the log of pending updates is damaged at record {position}: {source}")]
    Record { position: Position, source: RecordError },
    /// What is missing may have been pending.
    #[error("the log of pending updates is damaged: it ends at record {last}, and there were {of}")]
    CutShort { last: Position, of: Position },
}

/// The pending updates of one replica.
pub struct UpdateLog {
    journal: Arc<dyn Journal>,
    pending: BTreeMap<u64, Entry>,
    /// The stores among them, by file.
    stores: BTreeSet<(FileId, u64)>,
    last_number: u64,
    last_position: Position,
}

struct Entry {
    update: Update,
    position: Position,
    submitted: bool,
}

/// What a log held when it was opened, beyond what is pending.
#[derive(Debug, Default)]
pub struct Recovered {
    /// Records after the checkpoint, in order, less what was cancelled and what is settled.
    pub replayed: Vec<Record>,
    /// Files made by an update of this log, pending or not.
    pub files_made: Vec<FileId>,
    /// Updates that were taken back: what they did may still be in the tables.
    pub cancelled: Vec<Update>,
}

/// Updates to send, and whether there are more behind them.
#[derive(Debug)]
pub struct Batch {
    pub updates: Vec<Update>,
    pub more: bool,
}

/// What became of the wish to cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancel {
    Cancelled,
    /// It is on its way: its verdict must be waited for.
    OnItsWay,
    NotPending,
}

impl UpdateLog {
    /// Reads the journal. Updates up to `settled` are done with; records up to `applied` are in
    /// the tables already.
    pub fn open(
        journal: Arc<dyn Journal>,
        settled: u64,
        applied: Position,
    ) -> Result<(UpdateLog, Recovered), LogError> {
        let mut log = UpdateLog {
            journal,
            pending: BTreeMap::new(),
            stores: BTreeSet::new(),
            last_number: settled,
            last_position: 0,
        };
        let mut recovered = Recovered::default();
        // The log is on the disk before the tables say what was in it.
        let last = log.journal.next() - 1;
        if last < applied {
            return Err(LogError::CutShort { last, of: applied });
        }
        for (position, bytes) in log.journal.records()? {
            let record =
                Record::decode(&bytes).map_err(|source| LogError::Record { position, source })?;
            log.last_position = position;
            log.read_back(position, record, settled, applied, &mut recovered);
        }
        log.last_position = log.last_position.max(applied);
        Ok((log, recovered))
    }

    fn read_back(
        &mut self,
        position: Position,
        record: Record,
        settled: u64,
        applied: Position,
        recovered: &mut Recovered,
    ) {
        match &record {
            Record::Update(update) => {
                let number = update.stamp.number;
                self.last_number = self.last_number.max(number);
                if let Change::Make { file, .. } = &update.change {
                    recovered.files_made.push(*file);
                }
                if number <= settled {
                    return;
                }
                self.put(Entry { update: update.clone(), position, submitted: false });
            }
            Record::Cancelled { number } => {
                recovered.cancelled.extend(self.take(*number).map(|entry| entry.update));
                recovered.replayed.retain(|earlier| {
                    !matches!(earlier, Record::Update(update) if update.stamp.number == *number)
                });
            }
            _ => {}
        }
        if position > applied {
            recovered.replayed.push(record);
        }
    }

    /// The number for the next update.
    pub fn next_number(&self) -> u64 {
        self.last_number + 1
    }

    pub fn last_number(&self) -> u64 {
        self.last_number
    }

    /// Numbers up to this one are not given any more: they may be in use.
    pub fn skip_to(&mut self, number: u64) {
        self.last_number = self.last_number.max(number);
    }

    pub fn last_position(&self) -> Position {
        self.last_position
    }

    /// Appends an update, which bears `next_number`. It survives the process when this returns.
    pub fn append(&mut self, update: Update) -> Result<(), LogError> {
        let number = update.stamp.number;
        assert!(number > self.last_number, "numbers only grow");
        let position = self.journal.append(&Record::Update(update.clone()).encode())?;
        self.last_number = number;
        self.last_position = position;
        self.put(Entry { update, position, submitted: false });
        Ok(())
    }

    /// Notes something besides an update.
    pub fn note(&mut self, record: &Record) -> Result<(), LogError> {
        self.last_position = self.journal.append(&record.encode())?;
        Ok(())
    }

    pub fn sync(&self) -> Result<(), LogError> {
        Ok(self.journal.sync()?)
    }

    /// The journal, for syncing without a lock on the log.
    pub fn journal(&self) -> Arc<dyn Journal> {
        self.journal.clone()
    }

    /// Takes an update back, if it cannot have left.
    pub fn cancel(&mut self, number: u64) -> Result<Cancel, LogError> {
        match self.pending.get(&number) {
            None => Ok(Cancel::NotPending),
            Some(entry) if entry.submitted => Ok(Cancel::OnItsWay),
            Some(_) => {
                self.note(&Record::Cancelled { number })?;
                self.take(number);
                Ok(Cancel::Cancelled)
            }
        }
    }

    /// Takes a store back that the next store of the same file takes the place of, also if it may
    /// have left: the origin lets the later of two stores of one writer that expect the same
    /// contents replace the earlier.
    pub fn overtake(&mut self, number: u64) -> Result<(), LogError> {
        self.note(&Record::Cancelled { number })?;
        self.take(number);
        Ok(())
    }

    /// The first updates that are pending, at most `updates_max`.
    pub fn batch(&self, updates_max: usize) -> Batch {
        let updates: Vec<_> =
            self.pending.values().take(updates_max).map(|entry| entry.update.clone()).collect();
        let more = updates.len() < self.pending.len();
        Batch { updates, more }
    }

    /// From now on these may have reached the replica above.
    pub fn submitted(&mut self, numbers: &[u64]) {
        self.mark(numbers, true);
    }

    /// The replica above has said that it did not take these: they wait again.
    pub fn returned(&mut self, numbers: &[u64]) {
        self.mark(numbers, false);
    }

    fn mark(&mut self, numbers: &[u64], submitted: bool) {
        for number in numbers {
            if let Some(entry) = self.pending.get_mut(number) {
                entry.submitted = submitted;
            }
        }
    }

    /// The verdict has come: the update is pending no more.
    pub fn retire(&mut self, number: u64) -> Option<Update> {
        self.take(number).map(|entry| entry.update)
    }

    /// What was retired and could not be told of on the disk is pending after all, and on its way.
    pub fn put_back(&mut self, retired: Vec<Update>) {
        for update in retired {
            // The journal keeps everything for as long as it is pending.
            let entry = Entry { update, position: 0, submitted: true };
            self.pending.insert(entry.update.stamp.number, entry);
        }
    }

    /// Every pending update, in order.
    pub fn pending(&self) -> impl DoubleEndedIterator<Item = &Update> {
        self.pending.values().map(|entry| &entry.update)
    }

    pub fn get(&self, number: u64) -> Option<&Update> {
        self.pending.get(&number).map(|entry| &entry.update)
    }

    pub fn is_pending(&self, number: u64) -> bool {
        self.pending.contains_key(&number)
    }

    /// It may have reached the replica above, and its answer has not come.
    pub fn is_submitted(&self, number: u64) -> bool {
        self.pending.get(&number).is_some_and(|entry| entry.submitted)
    }

    pub fn pending_len(&self) -> usize {
        self.pending.len()
    }

    /// Whether contents are pending.
    pub fn has_stores(&self) -> bool {
        !self.stores.is_empty()
    }

    /// The last pending store of a file. The replay asks for every file, so it does not go by how
    /// much is pending.
    pub fn pending_store(&self, file: FileId) -> Option<(u64, Stamp)> {
        let (_, number) = self.stores.range((file, 0)..=(file, u64::MAX)).next_back()?;
        match self.get(*number)?.change {
            Change::Store { expects, .. } => Some((*number, expects)),
            _ => None,
        }
    }

    /// Lets the journal drop what neither a pending update nor the checkpoint needs.
    pub fn truncate(&self, applied: Position) -> Result<(), LogError> {
        let kept = self.pending.values().map(|entry| entry.position).min();
        let upto = kept.map_or(applied, |position| applied.min(position.saturating_sub(1)));
        Ok(self.journal.retire(upto)?)
    }

    /// Gives every pending update a new stamp, for a client that was set back to an earlier
    /// state. `rewrite` makes the new update from the old one.
    pub fn renumber(&mut self, mut rewrite: impl FnMut(&Update) -> Update) -> Result<(), LogError> {
        let old: Vec<u64> = self.pending.keys().copied().collect();
        for number in old {
            let Some(entry) = self.take(number) else { continue };
            let update = rewrite(&entry.update);
            self.note(&Record::Cancelled { number })?;
            let position = self.journal.append(&Record::Update(update.clone()).encode())?;
            self.last_position = position;
            self.last_number = self.last_number.max(update.stamp.number);
            self.put(Entry { update, position, submitted: false });
        }
        self.sync()
    }

    fn put(&mut self, entry: Entry) {
        let number = entry.update.stamp.number;
        if let Change::Store { file, .. } = entry.update.change {
            self.stores.insert((file, number));
        }
        self.pending.insert(number, entry);
    }

    fn take(&mut self, number: u64) -> Option<Entry> {
        let entry = self.pending.remove(&number)?;
        if let Change::Store { file, .. } = entry.update.change {
            self.stores.remove(&(file, number));
        }
        Some(entry)
    }
}

#[cfg(test)]
mod tests;
