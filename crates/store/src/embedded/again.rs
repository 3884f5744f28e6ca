//! How redb is opened again after a failure.
//! Holds: of a commit that said that it failed, all is seen or nothing, with the young rows that went
//! with it; which of the two it is changes only with another commit.

use super::base::{Base, close_redb, open_redb};
use super::young::Young;
use super::{Database, State, log};
use crate::error::{Result, StoreError};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

impl Database {
    /// Opens redb again if an earlier failure made it give up.
    pub(super) fn usable(&self) -> Result<()> {
        if !self.failed.load(Ordering::Acquire) {
            return Ok(());
        }
        // Never waits: a thread that writes may be the one that reads.
        let Ok(mut state) = self.state.try_lock() else { return Err(self.gave_up("try again")) };
        self.open_again(&mut state)
    }

    fn gave_up(&self, what_to_do: &str) -> StoreError {
        StoreError::Database {
            place: self.path.display().to_string(),
            what: format!("an earlier write failed; {what_to_do}"),
        }
    }

    /// What the disk has is the last durable commit. If redb's memory alone has later ones,
    /// opening again would take them back behind their readers' backs; then only a new process
    /// may. What is young is in our own memory, and stays, unless the commit that failed has it.
    pub(super) fn open_again(&self, state: &mut State) -> Result<()> {
        if !self.failed.load(Ordering::Acquire) {
            return Ok(());
        }
        if state.undurable {
            return Err(self.gave_up("make sure that the disk has room and start farfs again"));
        }
        let mut shown = self.level.write().unwrap_or_else(PoisonError::into_inner);
        // A reader of redb's state holds it open.
        let Some(level) = Arc::get_mut(&mut shown) else { return Err(self.gave_up("try again")) };
        // What lies under the name of ours may be another one.
        self.look()?;
        level.base = None;
        let again = self.blame.clone().during(|| {
            close_redb(&self.path, state.redb.take());
            open_redb(&self.path, &self.beneath, self.cache_bytes)
        });
        let again = again.map_err(|error| self.words.advise(error))?;
        let found = self.guarded(|| {
            let base = Base::of(&self.path, &again)?;
            let flushed = log::number(&base, self.place(), log::FLUSHED)?;
            Ok((base, flushed))
        });
        let (base, flushed) = match found {
            Ok(found) => found,
            Err(error) => {
                self.blame.clone().during(|| close_redb(&self.path, Some(again)));
                return Err(error);
            }
        };
        if state.doubtful.take().is_some_and(|number| flushed == Some(number)) {
            // Above its rows the young ones would be the older ones.
            level.young = Young::default();
        }
        level.base = Some(base);
        state.redb = Some(again);
        self.failed.store(false, Ordering::Release);
        Ok(())
    }
}
