//! Having the volume for oneself, and what is to be done when somebody else comes.
//! Holds: that somebody comes is acknowledged only when the mode waits for verdicts and all that
//! was done before has arrived; or when the mode does not wait for verdicts all the same.

use crate::client::Client;
use crate::mode;
use protocol::{Notice, Upstream};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use store::Containers;
use tokio::sync::oneshot;
use world::Moment;

/// Whoever comes waits no longer for what is pending.
const SENT_WITHIN: Duration = Duration::from_secs(8);

/// Acknowledgements that are due.
#[derive(Default)]
pub(crate) struct Company(Mutex<Vec<Due>>);

struct Due {
    /// When the updates up to this number have arrived.
    last: u64,
    /// Then at the latest.
    at: Moment,
    done: oneshot::Sender<()>,
}

impl Company {
    fn due(&self) -> MutexGuard<'_, Vec<Due>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session is over, and nobody waits over it.
    pub fn forget(&self) {
        self.due().clear();
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// A notice has been taken in: goes by what it says of company, and acknowledges it.
    pub(crate) fn acknowledge(&self, notice: &Notice, done: oneshot::Sender<()>) {
        if let Some(alone) = notice.alone {
            self.connection().alone = alone;
            self.choose_mode();
        }
        if notice.alone != Some(false) {
            // The other side may have gone meanwhile; then nobody waits.
            let _ = done.send(());
            return;
        }
        self.settle_closed_aside();
        // Who makes an update from now on waits for its verdict.
        let last = self.core().log.last_number();
        let at = self.inner.world.clock.moment() + SENT_WITHIN;
        self.inner.company.due().push(Due { last, at, done });
        self.acknowledge_company();
    }

    /// Acknowledges company if all that was done alone has arrived, or that takes too long.
    pub(crate) fn acknowledge_company(&self) {
        let waits = mode::waits_for_verdicts(self.connection().mode);
        let first = self.core().log.first_number();
        let now = self.inner.world.clock.moment();
        // What is locked here others must not get.
        let owes = waits && self.owes_locks();
        let mut due = self.inner.company.due();
        let (over, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut *due).into_iter().partition(|one| {
                let arrived = !owes && first.is_none_or(|first| first > one.last);
                !waits || one.at <= now || arrived
            });
        *due = rest;
        for one in over {
            let _ = one.done.send(());
        }
    }

    /// Whether the replica above has no room for what is pending.
    pub(crate) fn note_full(&self, full: bool) {
        let changed = std::mem::replace(&mut self.connection().full, full) != full;
        if changed {
            self.choose_mode();
        }
    }
}
