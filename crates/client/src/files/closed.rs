//! What was closed of what the kernel writes by itself, and is to be stored before the next change.
//! Holds: what somebody stores just now is told of to all who come meanwhile, so that they wait for it.

use crate::ranks::{self, Rank, Ranked};
use crate::types::Handle;
use model::FileId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use world::Moment;

/// The kernel tells of the last close when the program that closed has gone on already. A change
/// waits so long for what was closed before it; longer only where a copy of the descriptor is left.
pub(super) const RELEASED_WITHIN: Duration = Duration::from_millis(20);
/// How often it is looked whether it has.
const LOOKED_AT_EVERY: Duration = Duration::from_millis(1);

/// What was closed and is to be stored.
#[derive(Default)]
pub(crate) struct Closing {
    state: Mutex<Closed>,
    is_any: AtomicBool,
    pub(super) changed: Condvar,
    pub wanted: Notify,
}

#[derive(Default)]
pub(super) struct Closed {
    pub due: BTreeSet<Place>,
    /// By so many just now, of whom one does it and the others wait for him.
    storing: BTreeMap<Place, usize>,
    /// Somebody has them mapped, and may write to them.
    pub mapped: BTreeSet<Place>,
    /// A descriptor of these was closed, maybe the last, at that moment.
    pub flushed: BTreeMap<Handle, Moment>,
}

/// A file, and which of its containers.
pub(super) type Place = (FileId, u32);

impl Closing {
    pub(super) fn change(&self, change: impl FnOnce(&mut Closed)) {
        let mut state = self.lock();
        change(&mut state);
        let is_any =
            !state.due.is_empty() || !state.storing.is_empty() || !state.flushed.is_empty();
        self.is_any.store(is_any, Ordering::Release);
    }

    pub(super) fn lock(&self) -> Ranked<'_, Closed> {
        ranks::lock(Rank::Closing, &self.state)
    }

    pub(super) fn has(&self, file: FileId) -> bool {
        let of_file = (file, 0)..=(file, u32::MAX);
        self.is_any.load(Ordering::Acquire) && {
            let state = self.lock();
            let is_due = state.due.range(of_file.clone()).next().is_some();
            is_due || state.storing.range(of_file).next().is_some()
        }
    }

    /// A moment for the kernel to go on.
    pub(super) fn wait_a_moment(&self) {
        let _held = ranks::take(Rank::Closing);
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.changed.wait_timeout(state, LOOKED_AT_EVERY));
    }

    /// What is to be stored, or is being stored, once it is told of which files the last descriptor
    /// is closed. The caller stores all of it.
    pub(super) fn take(&self, but: Option<Place>, now: impl Fn() -> Moment) -> Vec<Place> {
        if !self.is_any.load(Ordering::Acquire) {
            return Vec::new();
        }
        let begun = now();
        loop {
            let now = now();
            self.change(|closed| {
                closed.flushed.retain(|_, at| now.since(*at) < RELEASED_WITHIN);
            });
            // Copies of a descriptor may be closed without end, as by a shell whose programs have it.
            if self.lock().flushed.is_empty() || now.since(begun) >= RELEASED_WITHIN {
                break;
            }
            self.wait_a_moment();
        }
        let mut places = Vec::new();
        self.change(|closed| {
            let kept = but.filter(|place| closed.due.remove(place));
            let due = std::mem::replace(&mut closed.due, kept.into_iter().collect());
            for place in due {
                closed.storing.entry(place).or_insert(0);
            }
            for (place, many) in closed.storing.iter_mut().filter(|(place, _)| Some(**place) != but)
            {
                *many += 1;
                places.push(*place);
            }
        });
        places
    }

    /// One of those is through with it.
    pub(super) fn is_stored(&self, place: Place) {
        self.change(|closed| {
            closed.storing.entry(place).and_modify(|left| *left -= 1);
            closed.storing.retain(|_, left| *left > 0);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use world::World;

    #[test]
    fn what_several_store_is_told_of_until_all_of_them_are_through() {
        let closing = Closing::default();
        let now = World::simulated(0, 1).clock.moment();
        let take = |but| closing.take(but, || now);
        let (one, other) = ((FileId(7), 0), (FileId(8), 0));
        let closes = |place| {
            closing.change(|closed| {
                closed.due.insert(place);
            });
        };
        assert!(take(None).is_empty() && !closing.has(one.0));
        closes(one);
        assert_eq!(take(Some(one)), [], "he stores it himself");
        assert_eq!(take(None), [one]);
        assert_eq!(take(None), [one], "who comes then waits for it");
        closing.is_stored(one);
        // It was opened and closed again.
        closes(one);
        closes(other);
        assert_eq!(take(None), [one, other]);
        closing.is_stored(one);
        assert!(closing.has(one.0), "the last who took it has not stored it yet");
        assert_eq!(take(Some(one)), [other]);
        for place in [one, other, other] {
            closing.is_stored(place);
        }
        assert!(!closing.has(one.0) && !closing.has(other.0) && take(None).is_empty());
    }
}
