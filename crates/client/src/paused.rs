//! Nothing is sent, or fetched ahead, for as long as the user wants.
//! Holds: what somebody waits for is fetched all the same, and callbacks go on; what is pending
//! stays pending, also over a new mount, until the user resumes.
//! From: partially connected operation, section 5: replay "at the user's option".

use crate::budget::Left;
use crate::client::Client;
use crate::connection::Connection;
use crate::mode;
use crate::types::Error;
use protocol::Upstream;
use store::Containers;

impl Connection {
    /// Pending updates may leave.
    pub fn replays(&self) -> bool {
        mode::replays(self.mode) && !self.holds_back()
    }

    /// What is being written may leave before it is closed.
    pub fn sends_early(&self) -> bool {
        self.replays() && !self.full && self.stays().is_zero()
    }

    /// What nobody waits for stays here, whatever the mode.
    pub fn holds_back(&self) -> bool {
        self.paused || self.purse.left() == Left::Nothing
    }

    /// What may be wanted later may be fetched.
    pub fn fetches_ahead(&self) -> bool {
        !self.paused && self.purse.left() == Left::All
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Holds back all that nobody waits for, or goes on with it, for the rest of this month also
    /// beyond the budget. That it is so is on the disk when
    /// this returns.
    pub fn pause(&self, paused: bool) -> Result<(), Error> {
        {
            let mut core = self.core();
            core.meta.paused = paused.then_some(true);
            core.unsaved = true;
        }
        self.connection().paused = paused;
        if !paused {
            self.waive_budget();
        }
        tracing::info!(paused, "what is pending is held back, or goes on");
        self.choose_mode();
        self.inner.settled.notify_waiters();
        self.inner.replay_wanted.notify_one();
        self.inner.ahead_wanted.notify_one();
        self.inner.giving_wanted.notify_one();
        self.with_room(|| self.checkpoint())
    }
}
