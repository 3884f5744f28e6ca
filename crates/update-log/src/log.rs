//! The log itself: what is pending, in order, and how far each has come.
//! Holds: in memory are the first updates, which leave next, and some bits and words of each of
//! the others, whose records are read from the journal when it is their turn.
//!
//! ```text
//! append -> Waiting -> Submitted -> (verdict) retired
//!              |  ^        |
//!              |  +--------+ the link was lost, or contents were missing
//!              +-> cancelled
//! ```

mod by_file;
mod numbers;
mod places;
mod reading;

pub use by_file::{What, subjects};
pub use reading::{Page, Recovered};

use crate::record::{Record, RecordError};
use by_file::ByFile;
use model::{FileId, Update};
use numbers::Numbers;
use places::Places;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use store::journal::Position;
use store::{Journal, StoreError};

/// Updates that are kept in memory, unless the caller says otherwise.
pub const NEAR_MAX: usize = 1024;

/// No log gets as far.
const NUMBER_MAX: u64 = 1 << 60;

#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the log of pending updates is damaged at record {position}: {source}")]
    Record { position: Position, source: RecordError },
    /// Nothing is known to be damaged.
    #[error(
        "a newer farfs wrote the log of pending updates (record {position} is of format {format}): \
         use that one"
    )]
    Newer { position: Position, format: u8 },
    /// What is missing may have been pending.
    #[error("the log of pending updates is damaged: it ends at record {last}, and there were {of}")]
    CutShort { last: Position, of: Position },
    #[error(
        "the log of pending updates is damaged: record {position} is update {number}, after {after}"
    )]
    Order { position: Position, number: u64, after: u64 },
    #[error("the log of pending updates is damaged: update {number} is pending, and is not in it")]
    Missing { number: u64 },
}

/// The pending updates of one replica.
pub struct UpdateLog {
    journal: Arc<dyn Journal>,
    pending: Numbers,
    by_file: ByFile,
    places: Places,
    /// Of pending stores, bytes of contents.
    store_bytes: u64,
    /// The first of what is pending.
    near: BTreeMap<u64, Near>,
    near_max: usize,
    /// What is pending from here on is not near; none: all of it is.
    far_from: Option<u64>,
    /// Of what is not near, the newest as they were written: what is removed soon after it was
    /// made is asked for. As many as may be near.
    recent: BTreeMap<u64, Update>,
    submitted: BTreeSet<u64>,
    /// Pending updates that are others than they were written as at first.
    rewritten: BTreeMap<u64, Update>,
    /// Pending stores that a program has made sure of, and the last number that there was then.
    sure: BTreeMap<u64, u64>,
    last_number: u64,
    last_position: Position,
}

struct Near {
    update: Update,
    position: Position,
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
        assert!((self.last_number + 1..NUMBER_MAX).contains(&number), "numbers only grow");
        let record = Record::Update(update);
        let position = self.journal.append(&record.encode())?;
        self.last_number = number;
        self.last_position = position;
        if let Record::Update(update) = record {
            self.put(Near { update, position });
        }
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
        if !self.is_pending(number) {
            return Ok(Cancel::NotPending);
        }
        if self.is_submitted(number) {
            return Ok(Cancel::OnItsWay);
        }
        self.overtake(number)?;
        Ok(Cancel::Cancelled)
    }

    /// Takes a store back that the next store of the same file takes the place of, also if it may
    /// have left: the origin lets the later of two stores of one writer that expect the same
    /// contents replace the earlier.
    pub fn overtake(&mut self, number: u64) -> Result<(), LogError> {
        // Read before it is noted, so that an error leaves log and memory the same.
        let update = self.get(number)?;
        self.note(&Record::Cancelled { number })?;
        if let Some(update) = update {
            self.take(&update);
        }
        Ok(())
    }

    /// Takes updates back, and has others in the place of those that bear the same stamps: all of it
    /// or nothing, also in a crash. All of them are pending, and none may have left. Gives back what
    /// they were.
    pub fn amend(
        &mut self,
        cancelled: &[u64],
        rewritten: Vec<Update>,
    ) -> Result<Vec<Update>, LogError> {
        let numbers = rewritten.iter().map(|update| update.stamp.number);
        let mut before = Vec::new();
        for number in cancelled.iter().copied().chain(numbers) {
            before.push(self.get(number)?.ok_or(LogError::Missing { number })?);
        }
        self.note(&Record::Moot { cancelled: cancelled.to_vec(), rewritten: rewritten.clone() })?;
        let (taken, replaced) = before.split_at(cancelled.len());
        taken.iter().for_each(|update| {
            self.take(update);
        });
        for (old, new) in replaced.iter().zip(rewritten) {
            self.replace(old, new);
        }
        Ok(before)
    }

    fn replace(&mut self, old: &Update, new: Update) {
        let number = new.stamp.number;
        self.by_file.remove(old);
        self.by_file.add(&new);
        if let Some(near) = self.near.get_mut(&number) {
            near.update = new.clone();
        }
        self.rewritten.insert(number, new);
    }

    /// The first updates that are pending, at most `updates_max`.
    pub fn batch(&mut self, updates_max: usize) -> Result<Batch, LogError> {
        if self.near.len() < updates_max {
            self.draw_near(updates_max)?;
        }
        let near = self.near.values().take(updates_max);
        let updates: Vec<_> = near.map(|near| near.update.clone()).collect();
        let more = updates.len() < self.pending.len();
        Ok(Batch { updates, more })
    }

    /// A program has made sure of what this update stores.
    pub fn make_sure(&mut self, number: u64) -> Result<(), LogError> {
        if self.is_pending(number) && !self.sure.contains_key(&number) {
            self.note(&Record::Sure { number })?;
            self.sure.insert(number, self.last_number);
        }
        Ok(())
    }

    /// The last number that there was when a program first made sure of what a pending update
    /// stores. None: no program has.
    pub fn sure_at(&self, number: u64) -> Option<u64> {
        self.sure.get(&number).copied()
    }

    /// From now on these may have reached the replica above.
    pub fn submitted(&mut self, numbers: &[u64]) {
        let pending = numbers.iter().filter(|number| self.pending.contains(**number));
        self.submitted.extend(pending);
    }

    /// The replica above has said that it did not take these: they wait again.
    pub fn returned(&mut self, numbers: &[u64]) {
        self.submitted.retain(|submitted| !numbers.contains(submitted));
    }

    /// The same of all behind this one.
    pub fn returned_after(&mut self, number: u64) {
        self.submitted.retain(|submitted| *submitted <= number);
    }

    /// The verdict has come: the update is pending no more. False: it was not.
    pub fn retire(&mut self, update: &Update) -> bool {
        self.take(update)
    }

    /// What was retired and could not be told of on the disk is pending after all, and on its way.
    pub fn put_back(&mut self, retired: Vec<Update>) {
        for update in retired {
            let number = update.stamp.number;
            // The journal keeps everything for as long as it is pending.
            let position = self.places.before(number);
            self.count(&update, position);
            self.submitted.insert(number);
            // What is near has no gaps: one that went ahead of others may stand among what is not.
            match self.far_from.is_some_and(|far| number >= far) {
                true => drop(self.rewritten.insert(number, update)),
                false => drop(self.near.insert(number, Near { update, position })),
            }
        }
    }

    /// Numbers of pending updates, from `from` on, in order.
    pub fn numbers_from(&self, from: u64) -> impl Iterator<Item = u64> {
        self.pending.from(from)
    }

    /// The number of the first that is pending.
    pub fn first_number(&self) -> Option<u64> {
        self.pending.first()
    }

    pub fn is_pending(&self, number: u64) -> bool {
        self.pending.contains(number)
    }

    /// It may have reached the replica above, and its answer has not come.
    pub fn is_submitted(&self, number: u64) -> bool {
        self.submitted.contains(&number)
    }

    pub fn pending_len(&self) -> usize {
        self.pending.len()
    }

    /// Whether contents are pending.
    pub fn has_stores(&self) -> bool {
        self.by_file.stores() > 0
    }

    /// Bytes of the contents that are pending, without their holes.
    pub fn store_bytes(&self) -> u64 {
        self.store_bytes
    }

    /// The number of the last pending store of a file. The replay asks for every file, so it does
    /// not go by how much is pending.
    pub fn pending_store(&self, file: FileId) -> Option<u64> {
        let mut updates = self.of_file(file);
        updates.find(|(_, what)| *what == What::Stores).map(|(number, _)| number)
    }

    /// Pending updates of a file itself, not of the names in a directory, the last first.
    pub fn of_file(&self, file: FileId) -> impl Iterator<Item = (u64, What)> {
        self.by_file.backwards(file)
    }

    /// Files beyond `after` whose contents are pending.
    pub fn stored_after(&self, after: Option<FileId>) -> impl Iterator<Item = FileId> {
        self.by_file.stored_after(after)
    }

    /// Lets the journal drop what neither a pending update nor the checkpoint needs.
    pub fn truncate(&mut self, applied: Position) -> Result<(), LogError> {
        let kept = self.pending.first().map(|number| match self.near.get(&number) {
            Some(near) => near.position,
            None => self.places.before(number),
        });
        let upto = kept.map_or(applied, |position| applied.min(position.saturating_sub(1)));
        self.journal.retire(upto)?;
        self.places.forget_before(self.pending.first().unwrap_or(self.last_number));
        Ok(())
    }

    /// Gives every pending update a new stamp, for a client that was set back to an earlier
    /// state. `rewrite` makes the new update from the old one. The old ones go when all of the new ones
    /// are there, and in one step, so that none comes before what it rests on. What fails, or a crash,
    /// leaves all of the old ones, or none; and of the new ones all, where there are no old ones.
    pub fn renumber(&mut self, rewrite: impl FnMut(&Update) -> Update) -> Result<(), LogError> {
        let last = self.last_number;
        let old: Vec<u64> = self.numbers_from(0).take_while(|number| *number <= last).collect();
        if old.is_empty() {
            return Ok(());
        }
        let moved = self.append_anew(last, rewrite).and_then(|()| self.amend(&old, Vec::new()));
        if let Err(error) = moved {
            let new: Vec<u64> = self.numbers_from(last + 1).collect();
            // Where that cannot be said either, who tries again does.
            let _ = new.into_iter().try_for_each(|number| self.overtake(number));
            return Err(error);
        }
        self.sync()
    }

    fn append_anew(
        &mut self,
        last: u64,
        mut rewrite: impl FnMut(&Update) -> Update,
    ) -> Result<(), LogError> {
        let mut from = 0;
        loop {
            let old = self.pending_from(from, NEAR_MAX)?;
            let Some(next) = old.last().map(|update| update.stamp.number + 1) else {
                return Ok(());
            };
            for update in old.into_iter().filter(|update| update.stamp.number <= last) {
                let was_sure = self.sure_at(update.stamp.number).is_some();
                self.append(rewrite(&update))?;
                if was_sure {
                    self.make_sure(self.last_number)?;
                }
            }
            if next > last {
                return Ok(());
            }
            from = next;
        }
    }

    fn put(&mut self, near: Near) {
        let number = near.update.stamp.number;
        self.count(&near.update, near.position);
        if self.far_from.is_none() && self.near.len() < self.near_max {
            self.near.insert(number, near);
        } else {
            self.far_from.get_or_insert(number);
            self.recent.insert(number, near.update);
            if self.recent.len() > self.near_max {
                self.recent.pop_first();
            }
        }
    }

    fn count(&mut self, update: &Update, position: Position) {
        let number = update.stamp.number;
        if self.pending.insert(number) {
            self.by_file.add(update);
            self.places.note(number, position);
            self.store_bytes = self.store_bytes.saturating_add(update.change.data());
        }
    }

    fn take(&mut self, update: &Update) -> bool {
        let number = update.stamp.number;
        self.near.remove(&number);
        self.recent.remove(&number);
        self.submitted.remove(&number);
        self.rewritten.remove(&number);
        self.sure.remove(&number);
        let was_pending = self.pending.remove(number);
        if was_pending {
            self.by_file.remove(update);
            self.store_bytes = self.store_bytes.saturating_sub(update.change.data());
        }
        was_pending
    }
}

#[cfg(test)]
mod tests;
