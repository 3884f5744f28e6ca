//! What was written to files that have been removed again, on a disk here that is full.
//! Holds: it goes only where nothing here shows the file any more, nobody has it open, and its store
//! has not left; what is on its way is waited for, for a while.
//! From: partially connected operation, 5.2.

use crate::client::{Client, error_of};
use crate::mode;
use crate::presence::Presence;
use crate::types::Error;
use model::{FileId, View};
use protocol::Upstream;
use std::time::Duration;
use store::container::Key;
use store::{Container, Containers};
use update_log::{Cancel, What};
use volume::partial::Tree;

/// Files with pending stores that are looked at. Those behind them come in their turn.
const LOOKED_AT_MAX: usize = 4096;
/// A first message takes no longer than a round trip and what goes along with it.
const ON_ITS_WAY_FOR: Duration = Duration::from_secs(2);

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Files that were removed here, and whose contents are pending all the same: others know of them,
    /// so that what was written was to be seen by who has another name for it.
    fn removed_and_pending(&self) -> Result<Vec<FileId>, Error> {
        if mode::waits_for_verdicts(self.connection().mode) {
            // Who removed it may be told that it was not removed.
            return Ok(Vec::new());
        }
        let read = self.inner.tables.read().map_err(error_of)?;
        let core = self.core();
        let files = self.files();
        let tree = Tree::new(&*read, 0);
        let may_be_gone = |file: &FileId| {
            let last = core.log.of_file(*file).next();
            last.is_some_and(|(_, what)| what == What::Else) && !files.is_open(*file)
        };
        let stored = core.log.stored_after(None).take(LOOKED_AT_MAX).filter(may_be_gone);
        Ok(stored.filter(|file| matches!(tree.node(*file), Ok(None))).collect())
    }

    /// Takes the stores of a file back, the last first. False: one has left.
    fn withdraw(&self, file: FileId) -> Result<bool, Error> {
        let mut core = self.core();
        while let Some(number) = core.log.pending_store(file) {
            let before = core.log.store_bytes();
            if core.log.cancel(number)? != Cancel::Cancelled {
                return Ok(false);
            }
            core.plans.remove(number);
            self.inner.counters.cancelling.count(1, before - core.log.store_bytes());
        }
        Ok(true)
    }

    /// On a full disk: what was removed here need not be kept to be sent. Says whether any of it went.
    pub(super) fn let_removed_go(&self) -> Result<bool, Error> {
        let _pressed = self.pressed();
        let mut withdrawn = Vec::new();
        for file in self.removed_and_pending()? {
            if self.withdraw(file)? {
                withdrawn.push(file);
            }
        }
        if withdrawn.is_empty() {
            return Ok(false);
        }
        self.inner.settled.notify_waiters();
        // A power cut must not bring back what says that it is kept.
        self.sync_log().map_err(error_of)?;
        let mut containers = Vec::new();
        for file in withdrawn {
            let row = {
                let read = self.inner.tables.read().map_err(error_of)?;
                Presence::load(&*read, file).map_err(error_of)?
            };
            let Some(row) = row else { continue };
            let key = Key { file: file.0, generation: row.generation };
            containers.push((key, self.inner.containers.open(key, false).map_err(error_of)?));
            self.discard_if_unused(file, &row, true);
        }
        self.empty_trash(0).map_err(error_of)?;
        for (key, container) in containers {
            let Some(container) = container else { continue };
            if self.inner.containers.open(key, false).map_err(error_of)?.is_none() {
                // Whoever is about to send it may have it open, and the disk would keep it.
                container.set_length(0).map_err(error_of)?;
            }
        }
        Ok(true)
    }

    /// After that: whether more of it goes once the answer comes to what is on its way.
    pub(crate) fn room_is_on_its_way(&self) -> bool {
        let (attached, replays) = {
            let connection = self.connection();
            (connection.attached, connection.replays())
        };
        attached && replays && self.removed_and_pending().is_ok_and(|files| !files.is_empty())
    }

    /// Waits for that answer.
    pub(crate) async fn room_comes(&self) -> Result<(), Error> {
        let settled = self.inner.settled.notified();
        tokio::pin!(settled);
        settled.as_mut().enable();
        if !self.room_is_on_its_way() {
            return Ok(());
        }
        self.inner.world.clock.within(ON_ITS_WAY_FOR, settled).await.ok_or(Error::DiskFull)
    }
}
