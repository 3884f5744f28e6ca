//! The hello, and whether its answer is waited for.
//! Holds: nothing is asked before the hello, and whoever has never been let in asks nothing before
//! the welcome.

use super::{FAREWELL_WAIT_MAX, Shared};
use crate::hello::Hello;
use crate::live::{self, Live, NoSession};
use crate::retry::HANDSHAKE_ROUND_TRIPS;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A session that is about to begin.
pub(super) struct Session {
    pub(super) live: Arc<Live>,
    pub(super) first: live::First,
    pub(super) saying: live::Saying,
    /// The server has let us in; else it is asked to.
    pub(super) welcomed: bool,
}

impl Shared {
    /// Says hello, and waits for the answer unless that is known from the last time.
    pub(super) async fn greeted(
        &self,
        live: Arc<Live>,
        saying: live::Saying,
    ) -> Result<Session, NoSession> {
        let waits = !self.welcomed.load(Ordering::Relaxed);
        let greeting = async {
            let mut first = live::greet(&live.wire, self.hello()).await?;
            if waits {
                self.welcome(&live, &mut first).await?;
            }
            Ok(first)
        };
        match greeting.await {
            Ok(first) => Ok(Session { live, first, saying, welcomed: waits }),
            Err(why) => {
                self.counters.ended(&live.wire.connection);
                live.end();
                let _ = self.within(FAREWELL_WAIT_MAX, live.told_of_end()).await;
                Err(why)
            }
        }
    }

    /// Waits until the server has let us in.
    pub(super) async fn welcome(
        &self,
        live: &Live,
        first: &mut live::First,
    ) -> Result<(), NoSession> {
        // A dead link is found out meanwhile; who lives may take a while. The handshake has measured the
        // link.
        let round_trips = live.wire.connection.rtt() * HANDSHAKE_ROUND_TRIPS;
        let patience = self.config.limits.handshake.max(round_trips);
        let answer = self.within(patience, live.hears_welcome(first)).await.flatten();
        live.welcomed(answer.unwrap_or_else(|| {
            Err(NoSession::Passing("the server does not answer the hello".to_owned()))
        })?);
        Ok(())
    }

    fn hello(&self) -> Hello {
        Hello {
            versions: self.config.versions,
            name: self.config.device_name.clone(),
            volume: self.config.address.volume.clone(),
            invitation: self.config.invitation.clone(),
            instance: self.instance,
        }
    }
}
