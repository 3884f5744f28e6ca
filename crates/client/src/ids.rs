//! Ids for what a change makes, and what lies below what is here alone of what it takes away.

use crate::client::error_of;
use crate::presence::Presence;
use crate::types::Error;
use model::{Change, FileId, ReplicaId, Stamp, Time};
use store::Read;
use update_log::{UpdateLog, What};

/// What a change that is being built may ask for.
pub(crate) struct Ids<'a> {
    replica: ReplicaId,
    counter: u64,
    /// When the change was made, if not just now.
    pub at: Option<Time>,
    /// What was done before.
    log: &'a UpdateLog,
    tables: &'a dyn Read,
}

impl<'a> Ids<'a> {
    pub fn new(
        replica: ReplicaId,
        counter: u64,
        (log, tables): (&'a UpdateLog, &'a dyn Read),
    ) -> Ids<'a> {
        Ids { replica, counter, at: None, log, tables }
    }

    /// Of the next file.
    pub fn counter(&self) -> u64 {
        self.counter
    }

    pub fn next(&mut self) -> Result<FileId, Error> {
        let id = FileId::new(self.replica, self.counter)
            .map_err(|error| Error::Failed(error.to_string()))?;
        self.counter += 1;
        Ok(id)
    }

    /// What a program has written to a file and not stored was written upon this, and hides what others
    /// have stored since. None: nobody here has written to it.
    pub fn below_unsaved(&self, file: FileId) -> Result<Option<Stamp>, Error> {
        let row = Presence::load(self.tables, file).map_err(error_of)?;
        Ok(row.and_then(|row| row.dirty).map(|dirty| dirty.expects))
    }

    /// The contents of a file that shows some, as far as others may have made them: what is pending
    /// here over them may be cancelled before it leaves.
    pub fn below_pending(&self, file: FileId, shown: Stamp) -> Result<Stamp, Error> {
        let mut stores = self.log.of_file(file).filter(|(_, what)| *what == What::Stores);
        let is_shown = |number| Stamp::new(self.replica, number) == shown;
        let Some(last) = stores.next().filter(|(number, _)| is_shown(*number)) else {
            return Ok(shown);
        };
        let (first, _) = stores.last().unwrap_or(last);
        let below = self.log.get(first)?.and_then(|store| match store.change {
            Change::Store { expects, .. } => Some(expects),
            _ => None,
        });
        Ok(below.unwrap_or(shown))
    }
}
