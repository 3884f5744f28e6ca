//! How long an update stays before it is sent, that it may be cancelled meanwhile.
//! Holds: what somebody waits for, or has hurried, leaves at once.
//! From: partially connected operation, 5.2 ("Delayed writes").

use crate::client::{Client, Core};
use model::{Update, birth_of};
use protocol::Upstream;
use std::time::Duration;
use store::Containers;

impl<U: Upstream, C: Containers> Client<U, C> {
    /// How long the first update still stays, that it may be cancelled meanwhile.
    pub(crate) fn delays(&self) -> Option<Duration> {
        let delay = self.inner.settings.replay_delay;
        if delay.is_zero() || crate::mode::waits_for_verdicts(self.connection().mode) {
            return None;
        }
        let core = self.core();
        let first = core.log.first_number()?;
        if first <= core.hurried || core.waiters.any_awaited() {
            return None;
        }
        let first = core.log.get(first).ok().flatten()?;
        let rest = replay::stays_for(first.at, self.inner.world.clock.time(), delay);
        (!rest.is_zero()).then_some(rest)
    }

    /// Whether all of these are old enough to leave.
    pub(crate) fn is_old_enough(&self, updates: &[Update]) -> bool {
        let delay = self.inner.settings.replay_delay;
        let core = self.core();
        if delay.is_zero() || core.waiters.any_awaited() {
            return true;
        }
        updates.iter().all(self.may_leave_now(&core))
    }

    /// Whether an update is old enough, or hurried.
    fn may_leave_now(&self, core: &Core) -> impl Fn(&Update) -> bool + use<U, C> {
        let (delay, hurried) = (self.inner.settings.replay_delay, core.hurried);
        let now = self.inner.world.clock.time();
        move |update| {
            update.stamp.number <= hurried || replay::stays_for(update.at, now, delay).is_zero()
        }
    }

    /// Of a batch, what is old enough to leave.
    pub(crate) fn old_enough(&self, core: &Core, taken: &mut Vec<Update>) {
        let delay = self.inner.settings.replay_delay;
        if delay.is_zero() || core.waiters.any_awaited() {
            return;
        }
        let may = self.may_leave_now(core);
        let old = taken.iter().take_while(|update| may(update)).count();
        let cut = match birth_of(taken, old) {
            _ if old == 0 => 0,
            // What is made goes with what it holds.
            0 => old + 1,
            begins => begins,
        };
        taken.truncate(cut);
    }
}
