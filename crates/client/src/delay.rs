//! How long an update stays before it is sent, that it may be cancelled meanwhile.
//! Holds: what somebody waits for, or has hurried, leaves at once; so does everything where the mode
//! has calls wait for verdicts.
//! From: partially connected operation, 5.2 ("Delayed writes").

use crate::client::{Client, Core};
use crate::connection::Connection;
use crate::mode;
use model::{Update, birth_of};
use protocol::{DelayStatus, Upstream};
use std::time::Duration;
use store::Containers;

/// Where bytes cost money and nobody has said how long: most files live shorter than that, and of what
/// is written anew a third or more is written over by then (the paper, 5.2).
pub(crate) const DELAY_ON_BUDGET: Duration = Duration::from_secs(180);

/// As the user has said it, or else by whether the link has a budget.
fn stays(said: Option<Duration>, has_budget: bool) -> Duration {
    said.unwrap_or(if has_budget { DELAY_ON_BUDGET } else { Duration::ZERO })
}

impl Connection {
    /// How long what nobody waits for stays now.
    pub fn stays(&self) -> Duration {
        match mode::waits_for_verdicts(self.mode) {
            true => Duration::ZERO,
            false => stays(self.replay_delay, self.purse.has_budget()),
        }
    }

    /// It stays though nobody has said so.
    pub fn stays_for_budget(&self) -> bool {
        self.replay_delay.is_none() && self.purse.has_budget()
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// How long what nobody waits for is to stay. None: as is right for the budget.
    pub fn set_replay_delay(&self, delay: Option<Duration>) {
        self.connection().replay_delay = delay;
        self.inner.replay_wanted.notify_one();
        self.inner.early_wanted.notify_one();
    }

    pub(crate) fn delay_status(&self) -> DelayStatus {
        let connection = self.connection();
        let delay = stays(connection.replay_delay, connection.purse.has_budget());
        let millis = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        DelayStatus { millis, for_budget: connection.stays_for_budget() }
    }

    pub(crate) fn stays(&self) -> Duration {
        self.connection().stays()
    }

    /// How long the first update still stays, that it may be cancelled meanwhile.
    pub(crate) fn delays(&self) -> Option<Duration> {
        let delay = self.stays();
        if delay.is_zero() {
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
        let delay = self.stays();
        let core = self.core();
        if delay.is_zero() || core.waiters.any_awaited() {
            return true;
        }
        updates.iter().all(self.may_leave_now(&core, delay))
    }

    /// Whether an update is old enough, or hurried.
    pub(crate) fn may_leave_now(
        &self,
        core: &Core,
        delay: Duration,
    ) -> impl Fn(&Update) -> bool + use<U, C> {
        let hurried = core.hurried;
        let now = self.inner.world.clock.time();
        move |update| {
            update.stamp.number <= hurried || replay::stays_for(update.at, now, delay).is_zero()
        }
    }

    /// Of a batch, what is old enough to leave, if all is to stay for `delay`.
    pub(crate) fn old_enough(&self, core: &Core, delay: Duration, taken: &mut Vec<Update>) {
        if delay.is_zero() || core.waiters.any_awaited() {
            return;
        }
        let may = self.may_leave_now(core, delay);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::Meta;
    use crate::types::WantedMode;
    use protocol::Mode;
    use world::World;

    #[test]
    fn where_bytes_cost_money_what_nobody_waits_for_stays_unless_another_time_was_said() {
        let minute = Duration::from_secs(60);
        for (said, budget, mode, expected) in [
            (None, None, Mode::Partial, Duration::ZERO),
            (None, Some(1 << 30), Mode::Partial, DELAY_ON_BUDGET),
            (None, Some(1 << 30), Mode::Connected, Duration::ZERO),
            (Some(Duration::ZERO), Some(1 << 30), Mode::Partial, Duration::ZERO),
            (Some(minute), Some(1 << 30), Mode::Partial, minute),
            (Some(minute), None, Mode::FetchOnly, minute),
        ] {
            let now = World::simulated(0, 1).clock.moment();
            let wishes = (WantedMode::Fixed(mode), budget);
            let connection =
                Connection { replay_delay: said, ..Connection::new(wishes, now, &Meta::default()) };
            assert_eq!(connection.stays(), expected, "{said:?}, {budget:?}, {mode:?}");
            assert_eq!(connection.stays_for_budget(), said.is_none() && budget.is_some());
        }
    }
}
