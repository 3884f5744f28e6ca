//! Files that the replica above lists by their names alone, as it cannot tell what they are: what it has
//! of them is damaged.
//! Holds: such a file is listed, so that the others in its directory are; whoever looks at it asks for it,
//! and gets the error.

use crate::client::Client;
use crate::types::Error;
use model::FileId;
use protocol::{Listing, Refusal, Upstream};
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use store::Containers;

/// Files that are remembered. Of more, a listing asks again.
const FILES_MAX: usize = 65_536;

#[derive(Default)]
pub(crate) struct Untold(Mutex<BTreeSet<FileId>>);

impl Untold {
    fn files(&self) -> MutexGuard<'_, BTreeSet<FileId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, file: FileId) {
        let mut files = self.files();
        if files.len() >= FILES_MAX {
            files.clear();
        }
        files.insert(file);
    }

    pub fn has(&self, file: FileId) -> bool {
        self.files().contains(&file)
    }

    /// A listing says of all that it names what they are, but of these.
    pub fn note_listing(&self, listing: &Listing) {
        let told: BTreeSet<FileId> = listing.nodes.iter().map(|state| state.file).collect();
        if !self.files().is_empty() {
            self.files().retain(|file| !told.contains(file));
        }
        let named = listing.directories.iter().flat_map(|listed| &listed.entries);
        for (_, file) in named.filter(|(_, file)| !told.contains(file)) {
            self.note(*file);
        }
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Asks for a file that is listed. That it cannot be told of is no reason not to list the others.
    pub(crate) async fn get_for_listing(&self, file: FileId) -> Result<(), Error> {
        match self.inspect(vec![file], Vec::new()).await {
            Err(Error::Refused(Refusal::Failed(_))) => {
                self.inner.untold.note(file);
                Ok(())
            }
            outcome => outcome,
        }
    }
}
