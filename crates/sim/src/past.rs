//! Which of the versions that programs have open are not current any more, and since when: the
//! origin keeps those for a time, and after that what is not cached of them is gone.

use crate::machine::VERSIONS_KEPT;
use crate::operation::{Fault, Operation, Outcome};
use std::collections::BTreeMap;
use world::Moment;

/// Of one client's programs, by slot.
#[derive(Default)]
pub struct Past {
    since: BTreeMap<usize, Moment>,
}

impl Past {
    /// After an operation that began at `began`: which slots have an older version open now.
    pub fn note(&mut self, slots: impl IntoIterator<Item = usize>, began: Moment) {
        let before = std::mem::take(&mut self.since);
        let since = |slot| (slot, before.get(&slot).copied().unwrap_or(began));
        self.since = slots.into_iter().map(since).collect();
    }

    /// Whether an operation did nothing because it needed what is not kept any more.
    pub fn excuses(&self, operation: &Operation, found: &Outcome, now: Moment) -> bool {
        let is_old = |slot: &usize| {
            self.since.get(slot).is_some_and(|since| now.since(*since) >= VERSIONS_KEPT)
        };
        *found == Outcome::Failed(Fault::Stale) && needed(operation).iter().any(is_old)
    }
}

/// The slots of whose contents an operation may need more than is cached.
fn needed(operation: &Operation) -> Vec<usize> {
    use Operation as O;
    match operation {
        O::Write { slot, .. }
        | O::Append { slot, .. }
        | O::Truncate { slot, .. }
        | O::Allocate { slot, .. }
        | O::Read { slot, .. }
        | O::SeekData { slot, .. } => vec![*slot],
        O::Copy { from, to, .. } => vec![*from, *to],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use world::World;

    fn stale(past: &Past, slot: usize, now: Moment) -> bool {
        let read = Operation::Read { slot, offset: 0, length: 1 };
        past.excuses(&read, &Outcome::Failed(Fault::Stale), now)
    }

    #[test]
    fn an_old_version_may_be_gone_after_its_time_and_not_before() {
        let replaced = World::simulated(0, 1).clock.moment();
        let mut past = Past::default();
        past.note([2], replaced);
        let later = replaced + VERSIONS_KEPT;
        past.note([1, 2], later);
        assert!(stale(&past, 2, later), "it was noted before");
        assert!(!stale(&past, 1, later) && !stale(&past, 0, later));
        assert!(!stale(&past, 2, replaced + (VERSIONS_KEPT - Duration::from_millis(1))));
        past.note([1], later);
        assert!(!stale(&past, 2, later), "it was closed");
    }

    #[test]
    fn nothing_else_is_excused() {
        let replaced = World::simulated(0, 1).clock.moment();
        let mut past = Past::default();
        past.note([2], replaced);
        let later = replaced + VERSIONS_KEPT;
        let close = Operation::Close { slot: 2 };
        assert!(!past.excuses(&close, &Outcome::Failed(Fault::Stale), later));
        let read = Operation::Read { slot: 2, offset: 0, length: 1 };
        assert!(!past.excuses(&read, &Outcome::Bytes(Vec::new()), later));
        assert!(!past.excuses(&read, &Outcome::Failed(Fault::NoEntry), later));
    }
}
