//! The order in which things reach the disk.
//! Holds: contents are on the disk before the log or the tables say durably that they are here; what
//! the tables say durably, the log has said durably before; the log says durably that a container changes before its old bytes do.
//! From: DESIGN, "The client": `Logged` means on the disk.

use crate::client::Client;
use crate::ranks::{self, Rank, Ranked};
use protocol::Upstream;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use store::container::Key;
use store::{Container, Containers, StoreError};

/// Containers that are synced one by one; of more, all of the disk's at once.
const ONE_BY_ONE_MAX: usize = 32;

/// Containers whose bytes may not be on the disk yet.
#[derive(Default)]
pub(crate) struct Unsynced {
    keys: Mutex<BTreeSet<Key>>,
    /// Containers of which the log has said durably, since the last checkpoint, that they change.
    noted: Mutex<BTreeSet<Key>>,
    /// How often the log could not be synced, and how many of those times a sync has begun after that
    /// has succeeded: what was said to fail is on no disk before.
    failures: AtomicU64,
    mended: AtomicU64,
    /// Held while containers are being synced: who comes meanwhile must wait for those too.
    syncing: Mutex<()>,
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// From now on the tables say nothing durably that the log does not, whenever they come to the disk.
    pub(crate) fn keep_the_order(&self) {
        let inner = Arc::downgrade(&self.inner);
        self.inner.tables.before().is(move || match inner.upgrade() {
            Some(inner) => Client { inner }.sync_log(),
            // Nothing is done any more of which they could tell.
            None => Ok(()),
        });
    }

    /// Bytes were written to a container, which nothing durable may speak of before they are on
    /// the disk.
    pub(crate) fn contents_written(&self, key: Key) {
        self.unsynced().insert(key);
    }

    /// All contents that were written are on the disk when this returns.
    pub(crate) fn sync_contents(&self) -> Result<(), StoreError> {
        let _syncing = ranks::lock(Rank::Syncing, &self.inner.unsynced.syncing);
        let keys = std::mem::take(&mut *self.unsynced());
        let outcome = self.sync_keys(&keys);
        if outcome.is_err() {
            self.unsynced().extend(keys);
        }
        outcome
    }

    /// All that is in the log is on the disk when this returns, with the contents that it names.
    pub(crate) fn sync_log(&self) -> Result<(), StoreError> {
        let reached = &self.inner.counters.reached;
        let appended = reached.before_sync();
        let unsynced = &self.inner.unsynced;
        let failures = unsynced.failures.load(Ordering::Acquire);
        let outcome = self.sync_contents().and_then(|()| self.inner.journal.sync());
        match outcome {
            Ok(()) => {
                reached.note_synced(&appended, self.inner.world.clock.moment());
                unsynced.mended.fetch_max(failures, Ordering::AcqRel);
            }
            Err(_) => {
                reached.note_sync_failed(appended);
                unsynced.failures.fetch_add(1, Ordering::AcqRel);
            }
        }
        outcome
    }

    /// Whoever closes what another call has put into the log, and could not sync, is not told that
    /// it is on the disk.
    pub(crate) fn sync_what_failed(&self) -> Result<(), StoreError> {
        let waits = self.inner.settings.durability == crate::Durability::Sync;
        let Unsynced { failures, mended, .. } = &self.inner.unsynced;
        if waits && mended.load(Ordering::Acquire) < failures.load(Ordering::Acquire) {
            return self.sync_log();
        }
        Ok(())
    }

    /// The contents of one container are on the disk when this returns.
    pub(crate) fn sync_before_change(
        &self,
        key: Key,
        container: &C::Container,
    ) -> Result<(), StoreError> {
        if self.unsynced().contains(&key) {
            container.sync()?;
        }
        Ok(())
    }

    /// The log has just been told that the container of `key` changes. The tables may say durably
    /// that it is a stored version, so the log must say durably that it is not. Once is enough
    /// until the next checkpoint: who reads the log back looks at what it was told of.
    pub(crate) fn sync_before_writing_over(&self, key: Key) -> Result<(), StoreError> {
        let noted = || ranks::lock(Rank::Noted, &self.inner.unsynced.noted);
        if !noted().contains(&key) {
            self.sync_log()?;
            noted().insert(key);
        }
        Ok(())
    }

    /// What the log was told before this is in the tables.
    pub(crate) fn begin_noting_anew(&self) {
        ranks::lock(Rank::Noted, &self.inner.unsynced.noted).clear();
    }

    fn sync_keys(&self, keys: &BTreeSet<Key>) -> Result<(), StoreError> {
        if keys.len() > ONE_BY_ONE_MAX {
            return self.inner.containers.sync_all();
        }
        for key in keys {
            // What was removed meanwhile is nobody's contents any more.
            if let Some(container) = self.inner.containers.open(*key, false)? {
                container.sync()?;
            }
        }
        Ok(())
    }

    fn unsynced(&self) -> Ranked<'_, BTreeSet<Key>> {
        ranks::lock(Rank::Unsynced, &self.inner.unsynced.keys)
    }
}
