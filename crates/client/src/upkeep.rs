//! What goes on beside the calls: syncing the log, checkpoints, looking after the cache.
//! Holds: the log is cut off only behind a checkpoint that is on the disk.
//! From: LBFS, "Implementation"; DESIGN, "The client".

use crate::client::{Client, error_of};
use crate::failures::of_log;
use crate::mode;
use crate::types::{Error, WantedMode};
use protocol::{Class, Request, Upstream};
use std::sync::atomic::Ordering;
use std::time::Duration;
use store::{Containers, Durability};
use world::Moment;

/// How long a change may stay out of a checkpoint: what a restart has to read from the log.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(5);
/// How long the log gathers what the replica above has on its disk, before it is synced here.
const SYNC_BEHIND: Duration = Duration::from_millis(200);
/// Between two syncs that nobody waits for: each takes processors and the disk from the calls.
const SYNCS_APART: Duration = Duration::from_millis(2);
/// How long a client that stops waits for the answer to its leave.
pub(crate) const LEAVE_WITHIN: Duration = Duration::from_secs(1);
/// How often the cache is measured, in checkpoints.
const MEASURE_EVERY: u32 = 6;
/// It is measured for one moment in so many at most, however many files it has.
const MEASURED_ONE_IN: u32 = 10;

/// When the cache was last kept to its size, and what that took: a million files are not looked
/// at over and over, least of all while nobody does anything.
#[derive(Default)]
struct Keeping {
    /// Calls until then, the moment at which it was done, and for how long.
    last: Option<(u64, Moment, Duration)>,
}

impl Keeping {
    fn is_due(&self, calls: u64, now: Moment) -> bool {
        self.last.is_none_or(|(before, done, took)| {
            calls != before && now.since(done) >= took * MEASURED_ONE_IN
        })
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Syncs the log at once, and again as soon as the disk has had a moment for the calls: one
    /// sync for all that has gathered. Who waits for the disk syncs by himself.
    pub(crate) async fn run_syncs(&self) {
        while !self.is_stopping() {
            tokio::select! {
                biased;
                () = self.inner.sync_wanted.notified() => {}
                () = self.until_stopping() => break,
            }
            if self.leaves_before_sync() {
                self.inner.world.clock.sleep(SYNC_BEHIND).await;
            }
            let client = self.clone();
            let synced = self.off_the_runtime(move || client.sync_log()).await;
            if let Err(error) = synced {
                tracing::error!(%error, "the log could not be synced to the disk");
                self.inner.world.clock.sleep(Duration::from_secs(1)).await;
            }
            self.inner.world.clock.sleep(SYNCS_APART).await;
        }
    }

    /// All that is pending is waited for until the replica above has it, and safe there.
    fn leaves_before_sync(&self) -> bool {
        let waits = {
            let connection = self.connection();
            connection.attached && mode::waits_for_verdicts(connection.mode)
        };
        let core = self.core();
        waits && core.log.numbers_from(0).all(|number| core.waiters.is_awaited(number))
    }

    /// Runs what waits for the disk where it holds up nobody, if there is such a place.
    pub(crate) async fn off_the_runtime<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, store::StoreError> + Send + 'static,
    ) -> Result<T, store::StoreError> {
        use tokio::runtime::{Handle, RuntimeFlavor};
        match Handle::current().runtime_flavor() {
            RuntimeFlavor::MultiThread => match tokio::task::spawn_blocking(work).await {
                Ok(outcome) => outcome,
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    // The runtime ends, and whoever waits ends with it.
                    Err(_cancelled) => std::future::pending().await,
                },
            },
            _ => work(),
        }
    }

    pub(crate) async fn run_upkeep(&self) {
        let (mut round, mut keeping) = (0u32, Keeping::default());
        while !self.is_stopping() {
            tokio::select! {
                biased;
                () = self.until_stopping() => break,
                () = self.inner.checkpoint_wanted.notified() => {}
                () = self.inner.world.clock.sleep(CHECKPOINT_EVERY) => {}
            }
            if !self.may_replay() {
                self.look_through().await;
            }
            let client = self.clone();
            let fetched = self.inner.fetched.swap(false, Ordering::AcqRel);
            let outcome = if fetched || self.core().unsaved || self.has_accesses() {
                let work = move || Ok(client.checkpoint_with_room());
                self.off_the_runtime(work).await.unwrap_or(Ok(()))
            } else {
                Ok(())
            };
            if let Err(error) = outcome {
                tracing::error!(%error, "the cache could not be written to the disk");
            }
            let client = self.clone();
            if let Err(error) = self.off_the_runtime(move || client.trim_trash()).await {
                tracing::warn!(%error, "what was kept for a while could not be removed");
            }
            if round.is_multiple_of(MEASURE_EVERY)
                && let Err(error) = self.keep_to_size_if_due(&mut keeping).await
            {
                tracing::warn!(%error, "the cache could not be kept to its size");
            }
            round = round.wrapping_add(1);
        }
    }

    /// Puts the tables on the disk, and lets the log drop what is in them.
    pub(crate) fn checkpoint(&self) -> Result<(), Error> {
        // What is saved as settled must not be shown as pending.
        self.catch_up()?;
        // Most of it before anybody has to wait for a lock.
        self.sync_contents().map_err(error_of)?;
        let applied = {
            let mut core = self.core();
            core.meta.applied = core.log.last_position();
            core.meta.hides = (!core.hidden.is_none()).then_some(true);
            let bound = self.next_bound(&core);
            core.meta.may_leave = Some(bound);
            core.meta.current = self.known_current();
            // Whichever of the two the disk has if this fails, nothing leaves beyond it.
            core.may_leave = core.may_leave.least(bound);
            let files = self.files();
            let mut write = self.inner.tables.write().map_err(error_of)?;
            // The log tells more of these than their rows do.
            for (file, presence) in files.grounded() {
                presence.save_in_place(&mut *write, file).map_err(error_of)?;
            }
            drop(files);
            self.save_late(&core, &mut *write).map_err(error_of)?;
            let accesses = self.save_accesses(&mut *write)?;
            core.meta.save(&mut *write).map_err(error_of)?;
            self.begin_noting_anew();
            // Nobody can write to the tables now, so this is all that they speak of.
            self.sync_log().map_err(error_of)?;
            write.commit(Durability::Now).map_err(error_of)?;
            self.accesses_saved(&accesses);
            self.late_saved();
            core.unsaved = false;
            core.may_leave = bound;
            core.meta.applied
        };
        let mut core = self.core();
        // A new segment of it is a file more, for which the disk may have none.
        core.log.truncate(applied).map_err(of_log)
    }

    async fn keep_to_size_if_due(&self, keeping: &mut Keeping) -> Result<(), Error> {
        let clock = &self.inner.world.clock;
        let (calls, begun) = (self.inner.counters.calls.load(Ordering::Relaxed), clock.moment());
        if !keeping.is_due(calls, begun) {
            return Ok(());
        }
        let client = self.clone();
        let kept = self.off_the_runtime(move || Ok(client.keep_to_size())).await;
        kept.map_err(error_of).flatten()?;
        let done = clock.moment();
        keeping.last = Some((calls, done, done.since(begun)));
        Ok(())
    }

    /// Tells the replica above that nobody has to wait for this client any more.
    pub(crate) async fn leave(&self) {
        let current = self.known_current();
        let attached = {
            let mut connection = self.connection();
            connection.current = current;
            connection.end_lease();
            std::mem::take(&mut connection.attached)
        };
        if attached {
            let asked = self.inner.upstream.ask(Class::Interactive, Request::Leave);
            // Without an answer the lease ends by itself.
            let left = self.inner.world.clock.within(LEAVE_WITHIN, asked).await;
            tracing::debug!(answered = left.is_some(), "left");
        }
    }

    /// Stops: what is pending is sent for at most `patience`, and kept if that is too short.
    /// Gives the number of updates that are still pending, with those that are to come of what could
    /// not be stored.
    pub async fn shut_down(&self, patience: Duration) -> u64 {
        self.store_left_over_within(patience).await;
        self.hurry();
        let emptied = async {
            loop {
                let settled = self.inner.settled.notified();
                tokio::pin!(settled);
                settled.as_mut().enable();
                if self.core().log.pending_len() == 0 {
                    return;
                }
                settled.await;
            }
        };
        let replays = {
            let connection = self.connection();
            connection.attached && connection.replays()
                || matches!(connection.wanted, WantedMode::Auto) && !patience.is_zero()
        };
        if replays {
            // Too little time is no failure: the log keeps what is pending.
            let _ = self.inner.world.clock.within(patience, emptied).await;
        }
        self.leave().await;
        self.inner.stopping.store(true, Ordering::Release);
        self.note_spent_at_end();
        if let Err(error) = self.checkpoint_with_room() {
            tracing::error!(%error, "the last checkpoint failed; the log has everything");
        }
        let left_over = self.files().left_over().len() as u64;
        self.core().log.pending_len() as u64 + left_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use world::World;

    #[test]
    fn the_cache_is_looked_at_when_somebody_did_something_and_not_all_the_time() {
        let now = World::simulated(0, 1).clock.moment();
        let took = Duration::from_secs(3);
        let mut keeping = Keeping::default();
        assert!(keeping.is_due(7, now));
        keeping.last = Some((7, now, took));
        let later = now + took * MEASURED_ONE_IN;
        assert!(!keeping.is_due(7, later), "nobody has done anything");
        assert!(keeping.is_due(8, later));
        assert!(!keeping.is_due(8, now + took), "it takes long");
    }
}
