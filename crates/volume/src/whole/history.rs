//! The log of a volume: what was done, in which order, and what it touched.

use super::error::{Error, Result};
use super::record::{LogRecord, decode};
use super::{Whole, keys, table};
use model::{FileId, Name, Seq, Update};
use std::collections::BTreeSet;

/// Records that are read from the log in one go.
const LOG_ROWS_MAX: usize = 1024;

/// One committed update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    pub seq: Seq,
    pub update: Update,
    pub nodes: Vec<FileId>,
    pub entries: Vec<(FileId, Name)>,
}

/// What was touched, each key once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    pub nodes: BTreeSet<FileId>,
    pub entries: BTreeSet<(FileId, Name)>,
}

impl Touched {
    pub fn len(&self) -> usize {
        self.nodes.len() + self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn add(&mut self, other: &Touched) {
        self.nodes.extend(&other.nodes);
        self.entries.extend(other.entries.iter().cloned());
    }
}

impl Whole<'_> {
    /// Committed updates after a position, at most `records_max`.
    pub fn log(&self, after: Seq, records_max: usize) -> Result<Vec<Logged>> {
        let from = keys::log(self.volume, after.next());
        let to = self.volume.range().1;
        let rows = self.read.scan(table::LOG, &from, &to, records_max)?;
        rows.iter()
            .map(|(key, value)| {
                let place = || format!("log of {} after {after}", self.volume);
                let seq = keys::last_number(key).map(Seq).ok_or_else(|| Error::Damaged {
                    place: place(),
                    what: "its key is not one that is written".into(),
                })?;
                let LogRecord { update, nodes, entries } = decode(place, value)?;
                Ok(Logged { seq, update, nodes, entries })
            })
            .collect()
    }

    /// The update of one position, if it is in the log.
    pub fn logged(&self, seq: Seq) -> Result<Option<Logged>> {
        let records = self.log(Seq(seq.0.saturating_sub(1)), 1)?;
        Ok(records.into_iter().next().filter(|record| record.seq == seq))
    }

    /// Whether all that was current at a position is kept. None: nothing was ever pruned as far as
    /// is known.
    pub fn is_kept(&self, position: Seq) -> Result<Option<bool>> {
        let head = self.head()?;
        if position > head.position {
            return Ok(Some(false));
        }
        if super::snapshot_positions(self.read, self.volume)?.contains(&position) {
            return Ok(Some(true));
        }
        Ok(head.pruned.map(|pruned| position >= pruned))
    }

    /// The keys of everything that was touched after a position and that `wanted` wants; none if
    /// that is more than `keys_max`, lies more than `records_max` updates back, or is not in the
    /// log any more.
    pub fn touched_after(
        &self,
        after: Seq,
        keys_max: usize,
        records_max: u64,
        wanted: impl Fn(FileId) -> bool,
    ) -> Result<Option<Touched>> {
        let position = self.position()?;
        if position.0.saturating_sub(after.0) > records_max {
            return Ok(None);
        }
        let mut touched = Touched::default();
        let mut from = after;
        if after < position && self.log(after, 1)?.first().is_none_or(|l| l.seq != after.next()) {
            return Ok(None);
        }
        while from < position {
            let records = self.log(from, LOG_ROWS_MAX)?;
            let Some(last) = records.last() else { break };
            from = last.seq;
            for record in records {
                touched.nodes.extend(record.nodes.into_iter().filter(|file| wanted(*file)));
                let entries = record.entries.into_iter();
                touched.entries.extend(entries.filter(|(directory, _)| wanted(*directory)));
            }
            if touched.len() > keys_max {
                return Ok(None);
            }
        }
        Ok(Some(touched))
    }
}
