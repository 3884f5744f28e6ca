//! Ids of new files.
//! From: DESIGN, "Words": `FileId`.

use crate::types::Error;
use model::{FileId, ReplicaId, Time};

/// Gives ids to new files.
pub(crate) struct Ids {
    pub replica: ReplicaId,
    pub counter: u64,
    /// When the change was made, if not just now.
    pub at: Option<Time>,
}

impl Ids {
    pub fn next(&mut self) -> Result<FileId, Error> {
        let id = FileId::new(self.replica, self.counter)
            .map_err(|error| Error::Failed(error.to_string()))?;
        self.counter += 1;
        Ok(id)
    }
}
