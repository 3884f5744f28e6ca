//! Epochs: what was learnt in an earlier one must be inspected before it counts.
//! Holds: no row outlives a crash with the number of an epoch that the next process would give to one
//! of its own.

use crate::client::{Client, Core, error_of};
use crate::meta::Meta;
use crate::types::Error;
use protocol::{States, Upstream};
use std::sync::atomic::Ordering;
use store::{Containers, Durability};

/// How the replica above came to say something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// What the epoch began with, or what was asked for since.
    Asked,
    Unasked,
}

impl Told {
    /// The epoch in which it counts. What is told unasked and is no newer than what the epoch began
    /// with was on its way by then: it may have changed, and nobody tells of that.
    pub fn epoch(self, core: &Core, states: &States) -> u32 {
        let nodes = states.nodes.iter().map(|state| state.seq);
        let oldest = nodes.chain(states.entries.iter().map(|state| state.seq)).min();
        let is_older = oldest.is_some_and(|seq| seq <= core.epoch_since);
        let is_late = self == Told::Unasked && is_older;
        core.meta.epoch.saturating_sub(u32::from(is_late))
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// The epoch in which that counts which is asked for now, however late its answer comes.
    pub(crate) fn asking(&self) -> u32 {
        self.inner.epoch.load(Ordering::Acquire)
    }

    /// Nothing that was learnt before counts. The number is in the tables before any row that bears
    /// it; the rest of what a checkpoint keeps waits for that.
    pub(crate) fn begin_epoch(&self, core: &mut Core) -> Result<(), Error> {
        core.meta.epoch += 1;
        core.unsaved = true;
        self.inner.epoch.store(core.meta.epoch, Ordering::Release);
        let _pressed = self.pressed();
        let mut write = self.inner.tables.write().map_err(error_of)?;
        let kept = Meta::load(&*write).map_err(error_of)?;
        // What counts from here on was told in the last of these runs.
        let (epoch, runs) = (core.meta.epoch, core.meta.runs.clone());
        Meta { epoch, runs, ..kept }.save(&mut *write).map_err(error_of)?;
        write.commit(Durability::Later).map_err(error_of)
    }
}
