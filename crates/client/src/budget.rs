//! How much may go over the link in a month, where it costs money.
//! Holds: what somebody waits for is fetched, and notices come, whatever has been spent; what
//! nobody waits for stops, reading ahead first. Bytes are those on the wire, in both directions. A
//! month that a wrong clock begins ends with it, and a clock that is set back begins no budget.
//! From: partially connected operation, section 5.2 ("networks with a per-packet cost").

use crate::client::Client;
use minicbor::{Decode, Encode};
use model::Time;
use protocol::{BudgetStatus, Upstream};
use store::Containers;

/// Nothing is fetched ahead any more once so much of the budget is spent: the rest is for what was
/// asked for.
const AHEAD_UP_TO: (u64, u64) = (4, 5);
/// What was spent since it was last written down may be lost with the power.
const NOTED_EVERY: u64 = 256 << 10;

/// What has gone over the link in a month.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Spent {
    /// Years since year 0 times twelve, and the month from 0 on: in UTC.
    #[n(0)]
    pub month: u32,
    #[n(1)]
    pub bytes: u64,
    /// The user has said that it may go on for the rest of this month.
    #[n(2)]
    pub waived: bool,
    /// Of the month that the clock showed before.
    #[n(3)]
    pub before: Option<Before>,
}

/// What had gone over the link in a month when the clock showed another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Before {
    #[n(0)]
    pub month: u32,
    #[n(1)]
    pub bytes: u64,
    #[n(2)]
    pub waived: bool,
}

/// What may still go over the link besides what somebody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Left {
    Nothing,
    /// What is pending.
    Replay,
    All,
}

/// The month of a moment, as `Spent` has it.
fn month_of(now: Time) -> u32 {
    let (year, month, _) = now.date();
    u32::try_from(year * 12 + i64::from(month) - 1).unwrap_or(0)
}

/// What was spent in the month that the clock shows. A later month than the one that it showed begins
/// with nothing; the one before that goes on where it was; and in any other, to which the clock was set
/// back, what was spent counts on. One month is remembered besides: after two wrong ones in a row what was
/// spent in the right one may be forgotten.
fn in_month(spent: Spent, month: u32) -> Spent {
    if month == spent.month {
        return spent;
    }
    let before = Before { month: spent.month, bytes: spent.bytes, waived: spent.waived };
    let before = Some(before).filter(|before| before.month > 0);
    match spent.before {
        Some(Before { month: again, bytes, waived }) if again == month => {
            Spent { month, bytes, waived, before }
        }
        _ if month > spent.month => Spent { month, before, ..Spent::default() },
        _ => Spent { month, before, ..spent },
    }
}

/// With so many more bytes, at this moment.
fn spend(spent: Spent, bytes: u64, now: Time) -> Spent {
    let spent = in_month(spent, month_of(now));
    Spent { bytes: spent.bytes.saturating_add(bytes), ..spent }
}

fn left(spent: Spent, budget: Option<u64>) -> Left {
    let Some(budget) = budget.filter(|_| !spent.waived) else { return Left::All };
    let (part, of) = AHEAD_UP_TO;
    if spent.bytes >= budget {
        Left::Nothing
    } else if spent.bytes / part >= budget / of {
        Left::Replay
    } else {
        Left::All
    }
}

/// What this mount keeps to, and has spent.
#[derive(Debug)]
pub(crate) struct Purse {
    /// Bytes in a month. None: as many as there are.
    budget: Option<u64>,
    spent: Spent,
    /// Of what has gone over the link since the mount, this has been counted.
    counted: u64,
    /// Bytes that the tables do not know of yet.
    unnoted: u64,
}

impl Purse {
    pub fn new(budget: Option<u64>, spent: Option<Spent>) -> Purse {
        Purse { budget, spent: spent.unwrap_or_default(), counted: 0, unnoted: 0 }
    }

    pub fn left(&self) -> Left {
        left(self.spent, self.budget)
    }

    /// Bytes cost money.
    pub fn has_budget(&self) -> bool {
        self.budget.is_some()
    }

    /// So much has gone over the link since the mount. Says what is to be written down, if it is
    /// time for that.
    fn count(&mut self, wire: u64, now: Time) -> Option<Spent> {
        let before = self.spent.month;
        let more = wire.saturating_sub(self.counted);
        self.counted = wire;
        self.spent = spend(self.spent, more, now);
        self.unnoted += more;
        let due = self.unnoted >= NOTED_EVERY || self.spent.month != before;
        due.then(|| {
            self.unnoted = 0;
            self.spent
        })
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Counts what has gone over the link.
    pub(crate) fn note_spent(&self) {
        let traffic = self.inner.upstream.traffic();
        let wire = traffic.wire_sent + traffic.wire_received;
        let now = self.inner.world.clock.time();
        let (before, after, noted) = {
            let purse = &mut self.connection().purse;
            let before = purse.left();
            let noted = purse.count(wire, now);
            (before, purse.left(), noted)
        };
        if let Some(spent) = noted {
            let mut core = self.core();
            core.meta.spent = Some(spent);
            core.unsaved = true;
        }
        if before != after {
            tracing::warn!(left = ?after, "the month's budget of the link");
            self.budget_changed();
        }
    }

    /// Bytes that may go over the link in a month. None: as many as there are.
    pub fn set_budget(&self, budget: Option<u64>) {
        self.connection().purse.budget = budget;
        self.budget_changed();
    }

    /// For the rest of the month it goes on though the budget is spent.
    pub(crate) fn waive_budget(&self) {
        let spent = {
            let purse = &mut self.connection().purse;
            if purse.left() == Left::All {
                return;
            }
            purse.spent.waived = true;
            purse.spent
        };
        let mut core = self.core();
        core.meta.spent = Some(spent);
        core.unsaved = true;
    }

    fn budget_changed(&self) {
        self.choose_mode();
        self.inner.settled.notify_waiters();
        self.inner.replay_wanted.notify_one();
        self.inner.ahead_wanted.notify_one();
    }

    /// What was spent and is not noted yet is noted by the last checkpoint.
    pub(crate) fn note_spent_at_end(&self) {
        self.note_spent();
        let spent = self.connection().purse.spent;
        self.core().meta.spent = Some(spent);
    }

    pub(crate) fn budget_status(&self) -> BudgetStatus {
        let connection = self.connection();
        let Purse { budget, spent, .. } = connection.purse;
        BudgetStatus { bytes_max: budget, spent: spent.bytes, waived: spent.waived }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DAY: i64 = 86_400;
    /// 2026-11-30, in the afternoon.
    const LAST_OF_NOVEMBER: Time = Time { secs: 20_787 * DAY + 50_000, nanos: 0 };

    fn days_later(days: i64) -> Time {
        Time { secs: LAST_OF_NOVEMBER.secs + days * DAY, ..LAST_OF_NOVEMBER }
    }

    #[test]
    fn a_month_begins_with_nothing_spent_and_a_clock_set_back_begins_none() {
        assert_eq!(LAST_OF_NOVEMBER.date(), (2026, 11, 30));
        let november = spend(Spent::default(), 100, LAST_OF_NOVEMBER);
        assert_eq!((november.month, november.bytes), (2026 * 12 + 10, 100));
        let waived = Spent { waived: true, ..november };
        let december = spend(waived, 7, days_later(1));
        assert_eq!((december.month, december.bytes), (november.month + 1, 7));
        assert!(!december.waived);
        // It goes on where it was.
        let again = spend(december, 1, LAST_OF_NOVEMBER);
        assert_eq!((again.bytes, again.waived), (101, true));
        let again = spend(again, 1, days_later(1));
        assert_eq!((again.bytes, again.waived), (8, false));
    }

    #[test]
    fn months_that_a_wrong_clock_shows_neither_last_nor_bring_a_budget() {
        let years = |years: i64| days_later(years * 365);
        let spend_each = |times: &[(u64, Time)]| {
            times
                .iter()
                .fold(Spent::default(), |spent, (bytes, at)| spend(spent, *bytes, *at))
                .bytes
        };
        let now = LAST_OF_NOVEMBER;
        // Ahead by ten years for a while: this month goes on, and the next one is a new one.
        let ahead = [(100, now), (10, years(10)), (1, now), (7, days_later(1))];
        assert_eq!(spend_each(&ahead[..3]), 101);
        assert_eq!(spend_each(&ahead), 7);
        // The clock was ahead from the beginning.
        let begun_ahead = [(100, years(10)), (1, now), (7, days_later(1)), (5, days_later(35))];
        assert_eq!(spend_each(&begun_ahead[..2]), 101);
        assert_eq!(spend_each(&begun_ahead[..3]), 7);
        assert_eq!(spend_each(&begun_ahead), 5);
        // Two wrong months in a row, and what was spent before them is forgotten.
        let twice = [(100, now), (10, years(10)), (20, years(20)), (1, now)];
        assert_eq!(spend_each(&twice), 21);
        // A machine that begins in 1970 each time, until it has been told the time.
        let then = Time::default();
        let boots = [(100, now), (2, then), (100, now), (2, then), (100, now), (7, days_later(1))];
        assert_eq!(spend_each(&boots[..5]), 300);
        assert_eq!(spend_each(&boots), 7);
    }

    #[test]
    fn reading_ahead_stops_first_and_what_is_pending_last() {
        let spent = |bytes| Spent { bytes, ..Spent::default() };
        assert_eq!(left(spent(u64::MAX), None), Left::All);
        assert_eq!(left(spent(799), Some(1000)), Left::All);
        assert_eq!(left(spent(800), Some(1000)), Left::Replay);
        assert_eq!(left(spent(1000), Some(1000)), Left::Nothing);
        let waived = Spent { waived: true, ..spent(2000) };
        assert_eq!(left(waived, Some(1000)), Left::All);
    }

    #[test]
    fn what_is_spent_is_counted_once_and_written_down_now_and_then() {
        let mut purse = Purse::new(Some(1 << 20), None);
        assert!(purse.count(0, LAST_OF_NOVEMBER).is_some(), "a month has begun");
        assert_eq!(purse.count(1000, LAST_OF_NOVEMBER), None);
        let noted = purse.count(300_000, LAST_OF_NOVEMBER).unwrap();
        assert_eq!(noted.bytes, 300_000);
        let mut again = Purse::new(Some(1 << 20), Some(noted));
        // A new process counts from nothing.
        again.count(5, LAST_OF_NOVEMBER);
        assert_eq!(again.spent.bytes, 300_005);
    }

    proptest! {
        #[test]
        fn prop_the_more_is_spent_the_less_is_left(a: u64, b: u64, budget: u64) {
            let left_of = |bytes| left(Spent { bytes, ..Spent::default() }, Some(budget));
            prop_assert!(left_of(a.max(b)) <= left_of(a.min(b)));
        }
    }
}
