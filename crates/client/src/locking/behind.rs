//! Whoever is about to lock a file goes on with its newest version first.
//! Holds: who has a lock reads what is known here of those who held it before; what was written here
//! meanwhile, under other records, is stored before that, and is not written over while it is.

use crate::client::Client;
use crate::locks::LockCall;
use crate::needs::complete;
use crate::types::Error;
use model::LockKind;
use protocol::Upstream;
use store::Containers;

/// How often others may write, under their own records, before one gives it up.
const TRIES_MAX: usize = 64;

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Whether who locks it would read what is older than what is known here, and that can be mended.
    pub(super) fn is_behind(&self, call: &LockCall) -> Result<bool, Error> {
        let behind = self.behind(call.file)?;
        // A lock of the whole file is no word about who may write to which part of it.
        let counts = call.lock.kind == LockKind::Record && !behind.written.is_empty();
        Ok(behind.clean || counts)
    }

    /// Stores what was written here upon older versions, and goes on with the newest.
    pub(super) async fn goes_on_with_newest(&self, call: &LockCall) -> Result<(), Error> {
        for _ in 0..TRIES_MAX {
            if !self.is_behind(call)? {
                return Ok(());
            }
            let written = self.behind(call.file)?.written;
            let mut waiting = Vec::new();
            for generation in written.into_iter().filter(|_| call.lock.kind == LockKind::Record) {
                let Some(grip) = self.grip_of(call.file, generation) else { continue };
                let stored = complete(self, |client| client.store(&grip, None)).await?;
                let Some(number) = stored else { continue };
                // Until it is gone on with, nobody writes over it.
                waiting.push(self.waiting(number));
                self.settled(number).await?;
            }
            self.go_on_with_current(call.file, Some(call.handle))?;
        }
        Err(Error::OlderLentOut)
    }
}
