//! Waiting for what the replica above says of an update.
//! Holds: a wait ends with the verdict, or once nothing that is pending has moved for as long as
//! the link may take for a step; who is told nothing, or an error, finds nothing in the kernel
//! that rests on it; a store that is waited for is not written over before that.

use crate::client::{Client, Core};
use crate::mode;
use crate::pace::step_within;
use crate::replay_log::stale_by;
use crate::types::Error;
use protocol::Upstream;
use std::sync::atomic::Ordering;
use std::time::Duration;
use store::Containers;

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Waits for the verdict of an update, where the mode asks for that, as long as what is
    /// pending moves on.
    pub async fn settled(&self, number: u64) -> Result<(), Error> {
        let mut answer = Answer { client: self, number, told: false };
        let _waiting = self.waiting(number);
        let outcome = match self.while_it_moves(number, self.verdict(number)).await {
            Ok(outcome) => outcome,
            Err(within) => self.verdict_so_far(number).unwrap_or(Err(Error::TimedOut(within))),
        };
        answer.told = outcome.is_ok();
        if let Err(Error::Objection(_)) = &outcome {
            self.not_born(number);
        }
        outcome
    }

    /// Waits until a store may be written over: until nobody waits for it, or it has taken whoever
    /// does too long.
    pub(crate) async fn unwaited(&self, number: u64) {
        let unwaited = async {
            loop {
                let freed = self.core().waiters.freed();
                let (freed, settled) = (freed.notified(), self.inner.settled.notified());
                tokio::pin!(freed, settled);
                freed.as_mut().enable();
                settled.as_mut().enable();
                if !self.is_kept(&self.core(), number) {
                    return;
                }
                tokio::select! {
                    biased;
                    () = freed => {}
                    () = settled => {}
                }
            }
        };
        if self.while_it_moves(number, unwaited).await.is_err() {
            self.core().waiters.release(number);
        }
    }

    /// Whether a pending store is not to be written over: somebody waits until its contents are
    /// above, and they would be nowhere.
    pub(crate) fn is_kept(&self, core: &Core, number: u64) -> bool {
        let waits = mode::waits_for_verdicts(self.connection().mode);
        waits && core.log.is_pending(number) && core.waiters.keeps(number)
    }

    /// The work that an update is waited for with, as long as what is pending moves on. Otherwise how
    /// long nothing moved.
    async fn while_it_moves<T>(
        &self,
        number: u64,
        work: impl Future<Output = T>,
    ) -> Result<T, Duration> {
        tokio::pin!(work);
        loop {
            let progress = self.inner.progress.load(Ordering::Relaxed);
            let within = self.step_within(number);
            match self.inner.world.clock.within(within, &mut work).await {
                Some(outcome) => return Ok(outcome),
                None if self.inner.progress.load(Ordering::Relaxed) == progress => {
                    return Err(within);
                }
                None => {}
            }
        }
    }

    /// How long the link may take for one step towards the verdict of an update.
    fn step_within(&self, number: u64) -> Duration {
        let longest = { self.core().plans.longest_upto(number) };
        step_within(
            self.inner.upstream.quality().rate_up,
            longest,
            self.inner.settings.answer_within,
        )
    }

    async fn verdict(&self, number: u64) -> Result<(), Error> {
        loop {
            let settled = self.inner.settled.notified();
            tokio::pin!(settled);
            settled.as_mut().enable();
            if let Some(verdict) = self.verdict_so_far(number) {
                return verdict;
            }
            settled.await;
        }
    }

    /// What whoever waits for an update is told. None: they have to wait.
    fn verdict_so_far(&self, number: u64) -> Option<Result<(), Error>> {
        let waits = mode::waits_for_verdicts(self.connection().mode);
        let mut core = self.core();
        if core.waiters.is_renamed(number) {
            return Some(Err(Error::Stale));
        }
        if let Some(objection) = core.refusals.remove(&number) {
            return Some(Err(Error::Objection(objection)));
        }
        if waits && core.waiters.is_overtaken(number) {
            return Some(Err(Error::TimedOut(self.inner.settings.answer_within)));
        }
        if waits && core.log.is_pending(number) {
            return None;
        }
        Some(core.told_with(number).map_or(Ok(()), |why| Err(Error::Objection(why))))
    }
}

/// Somebody's wait for a verdict, however it ends.
struct Answer<'a, U: Upstream, C: Containers> {
    client: &'a Client<U, C>,
    number: u64,
    told: bool,
}

impl<U: Upstream, C: Containers> Drop for Answer<'_, U, C> {
    /// Who is told of an error, or is not told at all, takes it that nothing was done, and so does
    /// the kernel: it would go on finding the file of a rename under the old name. What is pending
    /// is done here, and the kernel has to look anew.
    fn drop(&mut self) {
        if self.told {
            return;
        }
        let pending = {
            let core = self.client.core();
            core.log.get(self.number)
        };
        match pending {
            Ok(pending) => self.client.forget(&pending.as_ref().map(stale_by).unwrap_or_default()),
            Err(error) => tracing::error!(%error, "the kernel may show what is not so any more"),
        }
    }
}
