//! Storing what was written and not stored, and nobody will close any more: after a kill, or a close
//! that failed.
//! Holds: it is cut beside everything else. A file may be so large that it takes minutes, in which a
//! mount comes up, leases are renewed and notices are acknowledged. Until it is stored it shows as
//! it was written, and counts as pending.

use crate::client::Client;
use crate::types::{Error, Need, Stop};
use protocol::Upstream;
use std::time::Duration;
use store::Containers;

/// How often it is looked for.
const LOOKED_FOR_EVERY: Duration = Duration::from_secs(5);

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Stores what is left over, at once and whenever there may be more of it.
    pub(crate) async fn run_left_over(&self) {
        while !self.is_stopping() {
            // With a session it is known whether it had been stored before.
            let session = self.inner.session_changed.notified();
            tokio::pin!(session);
            session.as_mut().enable();
            self.get_what_left_over_lacks().await;
            tokio::select! {
                biased;
                () = self.until_stopping() => break,
                () = session => {}
                () = self.inner.world.clock.sleep(LOOKED_FOR_EVERY) => {}
            }
        }
    }

    /// A crash may have undone what was known of a file that was being written to.
    async fn get_what_left_over_lacks(&self) {
        let lacking = self.store_left_over_aside().await;
        if lacking.is_empty() || !self.connection().attached {
            return;
        }
        for need in lacking {
            match self.satisfy(need.clone()).await {
                Ok(()) => {}
                Err(Error::Stale) => {
                    if let Err(error) = self.give_up_ground(&need) {
                        tracing::warn!(%error, "what was written could not be stored by itself");
                        return;
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "what was written cannot be stored yet");
                    return;
                }
            }
        }
        self.store_left_over_aside().await;
    }

    /// As `store_left_over`, where it holds up nobody.
    pub(crate) async fn store_left_over_aside(&self) -> Vec<Need> {
        if self.files().left_over_surely().is_empty() {
            return Vec::new();
        }
        let client = self.clone();
        let stored = self.off_the_runtime(move || Ok(client.store_left_over())).await;
        // It says itself what it could not store.
        stored.unwrap_or_default()
    }

    /// Stores what nobody has open any more and could not be stored when it was closed. Gives back
    /// what that lacks.
    fn store_left_over(&self) -> Vec<Need> {
        let mut lacking = Vec::new();
        // Bound first: the lock must not be held through the loop.
        let left_over = self.files().left_over_surely();
        for (file, generation) in left_over {
            let Some(grip) = self.grip_of(file, generation) else { continue };
            match self.store_unattended(&grip) {
                Ok(()) => self.files().close_left_over(file, generation),
                Err(Stop::Need(need)) => lacking.push(need),
                Err(Stop::Error(error)) => {
                    tracing::warn!(%file, %error, "what was written is kept and not stored yet");
                }
            }
        }
        lacking
    }
}
