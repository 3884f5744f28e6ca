//! What is read from the journal: all of it at the start, piece by piece, and later what is not in
//! memory.

use super::{LogError, NUMBER_MAX, Near, UpdateLog};
use crate::log::by_file::ByFile;
use crate::log::numbers::Numbers;
use crate::log::places::Places;
use crate::record::{Record, RecordError};
use model::{Change, ReplicaId, Stamp, Update};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use store::Journal;
use store::journal::{Position, READ_BYTES};

/// Bytes of records that are read at once in search of one update, and to go on from it.
const SEARCH_BYTES: usize = 4 << 10;
const PAGE_BYTES: usize = 128 << 10;

/// What a log held when it was opened, beyond what is pending.
#[derive(Debug, Default)]
pub struct Recovered {
    /// Of the files that updates of this log made, pending or not, by replica: the last counter.
    pub made: BTreeMap<ReplicaId, u64>,
    /// Updates that were taken back behind the checkpoint: what they did may still be in the
    /// tables.
    pub cancelled: Vec<u64>,
}

struct Decoded {
    records: Vec<(Position, Record)>,
    last: Position,
}

/// Some records, in order.
#[derive(Debug)]
pub struct Page {
    pub records: Vec<Record>,
    /// The position of the last of them, and of what was passed over behind it.
    pub last: Position,
}

impl UpdateLog {
    /// Reads the journal. Updates up to `settled` are done with; records up to `applied` are in
    /// the tables already. So many updates are kept in memory.
    pub fn open(
        journal: Arc<dyn Journal>,
        settled: u64,
        applied: Position,
        near_max: usize,
    ) -> Result<(UpdateLog, Recovered), LogError> {
        let mut log = UpdateLog {
            journal,
            pending: Numbers::default(),
            by_file: ByFile::default(),
            places: Places::default(),
            store_bytes: 0,
            near: BTreeMap::new(),
            near_max,
            far_from: None,
            recent: BTreeMap::new(),
            submitted: BTreeSet::new(),
            rewritten: BTreeMap::new(),
            sure: BTreeMap::new(),
            last_number: settled,
            last_position: 0,
        };
        let mut recovered = Recovered::default();
        // The log is on the disk before the tables say what was in it.
        let last = log.journal.next() - 1;
        if last < applied {
            return Err(LogError::CutShort { last, of: applied });
        }
        let mut before = 0;
        while let Some(Decoded { records, last }) =
            log.decoded(log.last_position + 1, READ_BYTES)?
        {
            for (position, record) in records {
                if let Record::Update(update) = &record {
                    let number = update.stamp.number;
                    if number <= before || number >= NUMBER_MAX {
                        return Err(LogError::Order { position, number, after: before });
                    }
                    before = number;
                }
                log.read_back(position, record, (settled, applied), &mut recovered)?;
            }
            log.last_position = last;
        }
        log.last_position = log.last_position.max(applied);
        Ok((log, recovered))
    }

    fn read_back(
        &mut self,
        position: Position,
        record: Record,
        (settled, applied): (u64, Position),
        recovered: &mut Recovered,
    ) -> Result<(), LogError> {
        match record {
            Record::Update(update) => {
                let number = update.stamp.number;
                self.last_number = self.last_number.max(number);
                if let Some(file) = update.makes() {
                    let last = recovered.made.entry(file.replica()).or_default();
                    *last = file.counter().max(*last);
                }
                if number > settled {
                    self.put(Near { update, position });
                }
            }
            Record::Cancelled { number } => {
                if let Some(update) = self.get(number)? {
                    self.take(&update);
                    if position > applied {
                        recovered.cancelled.push(number);
                    }
                }
            }
            Record::Moot { cancelled, rewritten } => {
                for number in cancelled {
                    if let Some(update) = self.get(number)? {
                        self.take(&update);
                        if position > applied {
                            recovered.cancelled.push(number);
                        }
                    }
                }
                for update in rewritten {
                    let number = update.stamp.number;
                    if let Some(old) = self.get(number)? {
                        self.replace(&old, update);
                        if position > applied {
                            recovered.cancelled.push(number);
                        }
                    }
                }
            }
            Record::Sure { number } if self.pending.contains(number) => {
                self.sure.entry(number).or_insert(self.last_number);
            }
            _ => {}
        }
        Ok(())
    }

    /// Records behind `after`, less what was cancelled and what is settled: some of them. None:
    /// there are no more.
    pub fn page(&self, after: Position) -> Result<Option<Page>, LogError> {
        let Some(Decoded { records, last }) = self.decoded(after + 1, PAGE_BYTES)? else {
            return Ok(None);
        };
        let counts = |record: &Record| match record {
            Record::Update(update) => self.pending.contains(update.stamp.number),
            _ => true,
        };
        let as_it_is = |record: Record| match record {
            Record::Update(update) => Record::Update(self.as_rewritten(update)),
            record => record,
        };
        let records = records.into_iter().map(|(_, record)| record).filter(counts);
        let records = records.map(as_it_is).collect();
        Ok(Some(Page { records, last }))
    }

    /// A pending update.
    pub fn get(&self, number: u64) -> Result<Option<Update>, LogError> {
        if !self.pending.contains(number) {
            return Ok(None);
        }
        if let Some(near) = self.near.get(&number) {
            return Ok(Some(near.update.clone()));
        }
        let written = match self.recent.get(&number) {
            Some(update) => Some(update.clone()),
            None => self.written(number)?,
        };
        match written {
            Some(update) => Ok(Some(self.as_rewritten(update))),
            None => Err(LogError::Missing { number }),
        }
    }

    /// What an update is now that was written so.
    fn as_rewritten(&self, update: Update) -> Update {
        self.rewritten.get(&update.stamp.number).cloned().unwrap_or(update)
    }

    /// The version that a pending store expects.
    pub fn expected_by(&self, number: u64) -> Result<Option<Stamp>, LogError> {
        Ok(self.get(number)?.and_then(|update| match update.change {
            Change::Store { expects, .. } => Some(expects),
            _ => None,
        }))
    }

    /// An update that is pending, or was when the journal was last cut off.
    pub fn written(&self, number: u64) -> Result<Option<Update>, LogError> {
        let mut from = self.places.before(number);
        while let Some(Decoded { records, last }) = self.decoded(from, SEARCH_BYTES)? {
            for (_, record) in records {
                match record {
                    Record::Update(update) if update.stamp.number == number => {
                        return Ok(Some(update));
                    }
                    Record::Update(update) if update.stamp.number > number => return Ok(None),
                    _ => {}
                }
            }
            from = last + 1;
        }
        Ok(None)
    }

    /// Pending updates from number `from` on, in order: some of them, at most `updates_max`, and
    /// one at least if there is one.
    pub fn pending_from(&self, from: u64, updates_max: usize) -> Result<Vec<Update>, LogError> {
        let Some(first) = self.pending.next(from) else { return Ok(Vec::new()) };
        if self.far_from.is_none_or(|far| first < far) {
            let near = self.near.range(first..).take(updates_max.max(1));
            return Ok(near.map(|(_, near)| near.update.clone()).collect());
        }
        let far = self.far(first, updates_max.max(1))?;
        Ok(far.into_iter().map(|near| near.update).collect())
    }

    /// Calls `each` with every pending update from `from` on.
    pub fn each_from<E: From<LogError>>(
        &self,
        mut from: u64,
        mut each: impl FnMut(&Update) -> Result<(), E>,
    ) -> Result<(), E> {
        loop {
            let page = self.pending_from(from, super::NEAR_MAX)?;
            let Some(last) = page.last() else { return Ok(()) };
            from = last.stamp.number + 1;
            page.iter().try_for_each(&mut each)?;
        }
    }

    /// Has as many of the first updates in memory as are asked for, and some more.
    pub(super) fn draw_near(&mut self, updates: usize) -> Result<(), LogError> {
        let wanted = self.near_max.max(updates);
        while let Some(far) = self.far_from {
            let Some(first) = self.pending.next(far) else {
                self.far_from = None;
                return Ok(());
            };
            if self.near.len() >= wanted {
                return Ok(());
            }
            let drawn = self.far(first, wanted - self.near.len())?;
            let last = drawn.last().map_or(first, |near| near.update.stamp.number);
            self.near.extend(drawn.into_iter().map(|near| (near.update.stamp.number, near)));
            self.far_from = Some(last + 1);
        }
        Ok(())
    }

    /// Pending updates from the pending one of this number on, out of the journal.
    fn far(&self, first: u64, updates_max: usize) -> Result<Vec<Near>, LogError> {
        let mut found = Vec::new();
        let mut from = self.places.before(first);
        while let Some(Decoded { records, last }) = self.decoded(from, PAGE_BYTES)? {
            for (position, record) in records {
                let Record::Update(update) = record else { continue };
                let number = update.stamp.number;
                if number > first && found.is_empty() {
                    return Err(LogError::Missing { number: first });
                }
                if number >= first && self.pending.contains(number) {
                    found.push(Near { update: self.as_rewritten(update), position });
                }
                if found.len() == updates_max {
                    return Ok(found);
                }
            }
            from = last + 1;
        }
        if found.is_empty() { Err(LogError::Missing { number: first }) } else { Ok(found) }
    }

    /// Records from a position on, about so many bytes of them. None: there are none.
    fn decoded(&self, from: Position, bytes_max: usize) -> Result<Option<Decoded>, LogError> {
        let read = self.journal.read(from, bytes_max)?;
        let Some(last) = read.last().map(|(position, _)| *position) else { return Ok(None) };
        let records = read.into_iter().map(|(position, bytes)| {
            let record = Record::decode(&bytes).map_err(|source| match source {
                RecordError::Format(format) => LogError::Newer { position, format },
                source => LogError::Record { position, source },
            })?;
            Ok((position, record))
        });
        Ok(Some(Decoded { records: records.collect::<Result<_, LogError>>()?, last }))
    }
}
