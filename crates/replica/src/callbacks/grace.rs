//! The time after a start in which clients may hold callbacks that nobody here knows of.
//! Holds: an earlier life of this origin gave no lease that outlasts it.

use super::level::Level;
use model::ReplicaId;
use std::collections::BTreeSet;
use world::{Clock, Moment};

#[derive(Debug)]
pub(crate) struct Grace {
    /// Clients that may hold a lease of an earlier life and have not attached since.
    unknown: Level<BTreeSet<ReplicaId>>,
    /// Those of the start.
    before: BTreeSet<ReplicaId>,
    until: Moment,
}

impl Grace {
    pub fn new(unknown: BTreeSet<ReplicaId>, until: Moment) -> Grace {
        Grace { before: unknown.clone(), unknown: Level::new(unknown), until }
    }

    /// The client has attached, so what it holds is known, or has changed its id.
    pub fn attached(&self, replica: ReplicaId) {
        self.unknown.change(|unknown| unknown.remove(&replica));
    }

    /// No client holds a lease that nobody here knows of.
    pub fn is_over(&self, now: Moment) -> bool {
        self.until <= now || self.unknown.is(BTreeSet::is_empty)
    }

    /// No lease of an earlier life can hold any more, whoever has attached since.
    pub fn is_past(&self, now: Moment) -> bool {
        self.before.is_empty() || self.until <= now
    }

    /// Whether a client's lease lasted, as far as is known, when the life before this one ended.
    pub fn lasted(&self, replica: ReplicaId) -> bool {
        self.before.contains(&replica)
    }

    /// Waits until everybody has attached or no lease can hold any more.
    pub async fn over(&self, clock: &Clock) {
        let now = clock.moment();
        if self.until <= now {
            return;
        }
        let unknown = self.unknown.watch();
        let left = self.until.since(now);
        // An end of the time is as good as everybody's return.
        let _ = clock.within(left, unknown.until(BTreeSet::is_empty)).await;
    }
}
