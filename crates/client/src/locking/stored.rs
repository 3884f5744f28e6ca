//! What was written under a lock is stored when it is given up.

use crate::client::Client;
use crate::locks::{LockCall, Owner};
use crate::types::{Caller, Done, Handle, Step};
use model::{Change, FileId, Update};
use protocol::{Held, Upstream};
use std::collections::BTreeSet;
use store::Containers;

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Before a lock is given up that others could not share, or shared with them: stores what was
    /// written under it.
    pub fn before_unlock(&self, caller: Caller, call: &LockCall) -> Step<Done<()>> {
        if self.leased_alone(call.file, call.owner) {
            return self.store_written(caller, call.handle);
        }
        Ok(Done { value: (), wait: None })
    }

    /// Whether an owner holds something of a file that nobody else may hold, on any machine.
    pub(crate) fn leased_alone(&self, file: FileId, owner: Owner) -> bool {
        let exclusive = self.locks().holds_exclusively(file, owner);
        exclusive && self.leases_locks()
    }

    /// The same of what is given up when a handle is closed.
    pub(crate) fn gives_up_alone(&self, file: FileId, handle: Handle) -> bool {
        let exclusive = self.locks().releases_exclusive(file, handle);
        exclusive && self.leases_locks()
    }

    /// Of what is about to be sent, the records that are held here with nobody else.
    pub(crate) fn held_under(&self, updates: &[Update]) -> Option<Vec<Held>> {
        if !self.leases_locks() {
            return None;
        }
        let stored = updates.iter().filter_map(|update| match update.change {
            Change::Store { file, .. } => Some(file),
            _ => None,
        });
        let files: BTreeSet<FileId> = stored.collect();
        let locks = self.locks();
        let held = files.into_iter().map(|file| Held { file, locks: locks.records_alone(file) });
        let held: Vec<Held> = held.filter(|held| !held.locks.is_empty()).collect();
        (!held.is_empty()).then_some(held)
    }

    /// What was stored under a lock is there before anybody is told that the lock is free.
    pub(super) async fn stores_have_arrived(&self, file: FileId) {
        if !self.leases_locks() {
            return;
        }
        let arrived = async {
            loop {
                let settled = self.inner.settled.notified();
                tokio::pin!(settled);
                settled.as_mut().enable();
                if !self.is_being_stored(file) {
                    return;
                }
                settled.await;
            }
        };
        // What takes longer is not waited for: then others wait as long as the lease lasts.
        let within = self.inner.settings.answer_within;
        if self.inner.world.clock.within(within, arrived).await.is_none() {
            tracing::debug!(%file, "a lock is given up before what was stored has arrived");
        }
    }
    /// Whether something of the file is on its way, or about to be.
    fn is_being_stored(&self, file: FileId) -> bool {
        if self.core().log.pending_store(file).is_some() {
            return true;
        }
        let files = self.files();
        files.is_to_be_stored_unseen(file) && !files.kernel_writes_to(file)
    }
}
