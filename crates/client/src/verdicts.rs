//! Waiting for what the replica above says of an update.
//! Holds: a wait ends with the verdict, or once nothing that is pending has moved for as long as
//! the link may take for a step; who is told nothing, or an error, finds nothing in the kernel
//! that rests on it.

use crate::client::Client;
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
        let verdict = self.verdict(number);
        tokio::pin!(verdict);
        let outcome = loop {
            let progress = self.inner.progress.load(Ordering::Relaxed);
            let within = self.step_within(number);
            match self.inner.world.clock.within(within, &mut verdict).await {
                Some(outcome) => break outcome,
                None if self.inner.progress.load(Ordering::Relaxed) == progress => {
                    break Err(Error::TimedOut(within));
                }
                None => {}
            }
        };
        answer.told = outcome.is_ok();
        if let Err(Error::Objection(_)) = &outcome {
            self.not_born(number);
        }
        outcome
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
            {
                let mode = self.connection().mode;
                let mut core = self.core();
                if let Some(objection) = core.refusals.remove(&number) {
                    return Err(Error::Objection(objection));
                }
                if !core.log.is_pending(number) || !mode::waits_for_verdicts(mode) {
                    return core.told_with(number).map_or(Ok(()), |why| Err(Error::Objection(why)));
                }
            }
            settled.await;
        }
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
