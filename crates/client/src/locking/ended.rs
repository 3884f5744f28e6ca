//! Looks whether who is in the way has ended, where nothing tells of it.

use crate::client::Client;
use crate::locks::{LockCall, Owner, Taker};
use crate::types::Handle;
use model::FileId;
use protocol::Upstream;
use std::collections::BTreeSet;
use std::time::Duration;
use store::Containers;

/// Who waits for a process that may end untold looks as often.
pub(super) const LOOK_AT_HOLDERS_EVERY: Duration = Duration::from_millis(250);

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Gives up what these hold of a file who have ended. Says whether anything was held.
    pub(super) fn give_up_of_the_ended(&self, file: FileId, owners: &BTreeSet<Owner>) -> bool {
        let seen = self.locks().to_be_seen(file, owners);
        let Some(kernel) = self.inner.kernel.get().filter(|_| !seen.is_empty()) else {
            return false;
        };
        let mut any = false;
        for (owner, process) in seen.into_iter().filter(|(_, one)| kernel.has_ended(*one)) {
            let mut locks = self.locks();
            if locks.ended(file, owner, process) {
                tracing::debug!(%file, process = process.number, "a process ended that had locks");
                self.gave_up(&locks, file);
                any = true;
            }
        }
        any
    }

    /// A process may have the number of an owner that has ended: what that held is not his.
    pub(super) fn begins_anew(&self, call: &LockCall) {
        let owner = BTreeSet::from([call.owner]);
        let before = self.locks().to_be_seen(call.file, &owner);
        if before.iter().any(|(_, process)| call.taker != Taker::Seen(*process)) {
            self.give_up_of_the_ended(call.file, &owner);
        }
    }

    /// Of these files others want something.
    pub(super) fn give_up_for_others(&self, files: &[FileId]) {
        for file in files {
            let owners = self.locks().owners(*file);
            self.give_up_of_the_ended(*file, &owners);
        }
    }

    /// Whether who is in the way may end untold.
    pub(super) fn may_end_untold(&self, file: FileId, owners: &BTreeSet<Owner>) -> bool {
        !self.locks().to_be_seen(file, owners).is_empty()
    }

    /// Nobody has the handle any more.
    pub(crate) fn let_go_of_locks(&self, file: FileId, handle: Handle) {
        // Whoever opens it meanwhile waits, and locks after that.
        let files = self.files();
        let is_open = files.generations(file).any(|open| open.handles > 0);
        let mut locks = self.locks();
        if !is_open {
            locks.is_closed(file);
        }
        drop(files);
        if locks.released(file, handle) {
            self.gave_up(&locks, file);
        }
    }

    /// Whether each close through a handle is told.
    pub fn tells_of_closes(&self, handle: Handle) -> bool {
        self.files().tells_of_closes(handle)
    }
}
