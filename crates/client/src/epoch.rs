//! Epochs: what was learnt in an earlier one must be inspected before it counts.
//! Holds: no row outlives a crash with the number of an epoch that the next process would give to one
//! of its own.

use crate::client::{Client, Core, error_of};
use crate::meta::Meta;
use crate::types::Error;
use protocol::Upstream;
use std::sync::atomic::Ordering;
use store::{Containers, Durability};

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Nothing that was learnt before counts. The number is in the tables before any row that bears
    /// it; the rest of what a checkpoint keeps waits for that.
    pub(crate) fn begin_epoch(&self, core: &mut Core) -> Result<(), Error> {
        core.meta.epoch += 1;
        core.unsaved = true;
        self.inner.epoch.store(core.meta.epoch, Ordering::Release);
        let _pressed = self.pressed();
        let mut write = self.inner.tables.write().map_err(error_of)?;
        let kept = Meta::load(&*write).map_err(error_of)?;
        Meta { epoch: core.meta.epoch, ..kept }.save(&mut *write).map_err(error_of)?;
        write.commit(Durability::Later).map_err(error_of)
    }
}
