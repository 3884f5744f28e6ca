//! Stores that the replica above has no room for, of files that have lost their last name since: nobody
//! could read what they bring.
//! Holds: what may have been taken is not touched; all else that was done to such a file is sent, its
//! removal too, which is judged by what was there before those stores.

use crate::client::{Client, Core, error_of};
use crate::failures::of_missing;
use crate::types::Error;
use crate::undo::of_log;
use model::{Change, FileId, Update, View};
use protocol::Upstream;
use replay::stores_of_gone;
use std::collections::BTreeSet;
use store::Containers;
use volume::partial::{self, Touched, Tree};

/// Of a file to which more was done what is pending is sent as it is.
const UPDATES_MAX: usize = 4096;

impl<U: Upstream, C: Containers> Client<U, C> {
    /// There is no room above. Says whether what is pending first is not sent any more.
    pub(crate) async fn give_up_removed(&self) -> bool {
        let client = self.clone();
        let given_up = self.off_the_runtime(move || Ok(client.give_up_stores())).await;
        match given_up.map_err(error_of).and_then(|outcome| outcome) {
            Ok(given_up) => given_up,
            Err(error) => {
                tracing::warn!(%error, "what is pending of removed files could not be cancelled");
                false
            }
        }
    }

    fn give_up_stores(&self) -> Result<bool, Error> {
        let (first, last) = {
            let core = self.core();
            (core.log.first_number(), core.log.last_number())
        };
        if !self.inner.full.has_news(last) {
            return Ok(false);
        }
        let mut is_all = true;
        for file in self.gone_with_stores()? {
            is_all &= self.give_up_stores_of(file)?;
        }
        if is_all {
            // Else what stands in the way may be over by the next time.
            self.inner.full.looked(last);
        }
        self.inner.settled.notify_waiters();
        let is_first = self.core().log.first_number() != first;
        if is_first {
            self.inner.full.gave_up();
        }
        Ok(is_first)
    }

    /// Files that have pending stores and no name.
    fn gone_with_stores(&self) -> Result<Vec<FileId>, Error> {
        let stored: Vec<FileId> = self.core().log.stored_after(None).collect();
        let read = self.inner.tables.read().map_err(error_of)?;
        let tree = Tree::new(&*read, 0);
        // What is not known here has not been removed here.
        let is_gone = |file: &FileId| matches!(tree.node(*file), Ok(None));
        Ok(stored.into_iter().filter(is_gone).collect())
    }

    fn give_up_stores_of(&self, file: FileId) -> Result<bool, Error> {
        let _pressed = self.pressed();
        let changed = {
            let mut core = self.core();
            let core = &mut *core;
            let numbers: Vec<u64> =
                core.log.of_file(file).map(|(number, _)| number).take(UPDATES_MAX + 1).collect();
            if core.behind || numbers.len() > UPDATES_MAX {
                return Ok(false);
            }
            let pending = numbers.into_iter().rev().map(|number| core.log.get(number));
            let pending: Vec<Update> =
                pending.filter_map(Result::transpose).collect::<Result<_, _>>().map_err(of_log)?;
            let moot = stores_of_gone(file, &pending, |update| core.may_give_up(update));
            let Some(moot) = moot else { return Ok(false) };
            // In a file that others have named anew what was stored here is to be there.
            let names = pending.iter().flat_map(|update| Touched::by(update).entries).collect();
            let read = self.inner.tables.read().map_err(error_of)?;
            if !partial::has_no_name_but(&*read, file, &names).map_err(of_missing)? {
                return Ok(false);
            }
            drop(read);
            let rewritten = moot.rewritten.iter().map(|update| update.stamp.number);
            let numbers: BTreeSet<u64> = moot.cancelled.iter().copied().chain(rewritten).collect();
            self.cancel_these(core, &pending, &moot, &numbers)?
        };
        self.forget(&changed);
        tracing::info!(%file, "what the server had no room for was removed, and is not sent");
        Ok(true)
    }
}

impl Core {
    /// Whoever waits for a removal learns the same of it, whatever it expects.
    fn may_give_up(&self, update: &Update) -> bool {
        let number = update.stamp.number;
        match update.change {
            Change::Store { .. } => self.may_cancel(number),
            _ => self.may_rewrite(number),
        }
    }
}
