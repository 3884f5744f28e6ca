//! What others have had meanwhile counts as lost as soon as locks are leased again.

use crate::client::Client;
use crate::locks::Table;
use crate::ranks::Ranked;
use crate::types::{Error, Handle};
use protocol::Upstream;
use store::Containers;

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Without those that others have had, where that matters.
    pub(super) fn locks_as_they_count(&self) -> Ranked<'_, Table> {
        let mut locks = self.locks();
        if locks.any_overtaken() && self.leases_locks() {
            locks.lose_overtaken();
            self.inner.locks_wanted.notify_one();
        }
        locks
    }

    /// Through a handle whose locks were lost nothing is read or written: whoever does believes
    /// that it is alone.
    pub(crate) fn has_its_locks(&self, handle: Handle) -> Result<(), Error> {
        let locks = self.locks_as_they_count();
        if locks.any_lost() && locks.is_lost(handle) { Err(Error::LockLost) } else { Ok(()) }
    }
}
