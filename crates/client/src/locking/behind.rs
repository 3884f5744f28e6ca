//! Whoever is about to lock a file goes on with its newest version first.
//! Holds: who has a lock reads what is known here of those who held it before; what was written here
//! meanwhile, under records that are held, is stored before that, and is not written over while it is.
//! Where that cannot be done the lock is given as it is, and what is written under it meets what others
//! have stored, as without locks.

use super::patience::LOOK_AGAIN_AFTER;
use crate::client::{Client, error_of};
use crate::locks::LockCall;
use crate::types::{Error, Handle, Stop};
use crate::waiters::Waiting;
use model::{FileId, LockKind};
use protocol::Upstream;
use store::Containers;

/// How often others may write, under their own records, before one gives it up.
const TRIES_MAX: usize = 64;
/// How often the kernel is told to forget the pages of an older version, if something is in its
/// way.
const FORGET_TRIES_MAX: usize = 4;

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Whether who locks it would read what is older than what is known here, and that can be mended.
    pub(super) fn is_behind(&self, call: &LockCall) -> Result<bool, Error> {
        let behind = self.behind(call.file, call.handle)?;
        let counts = !behind.written.is_empty() && self.stores_for(call);
        Ok(behind.clean || behind.pending || behind.pages || counts)
    }

    /// Whether what is written here is stored for a lock. A lock of the whole file is no word about who may
    /// write to which part of it, and who writes without any is not done before he closes it.
    fn stores_for(&self, call: &LockCall) -> bool {
        call.lock.kind == LockKind::Record && !self.locks().records_alone(call.file).is_empty()
    }

    /// Stores what was written here upon older versions, and goes on with the newest. False: it cannot be
    /// stored.
    pub(super) async fn goes_on_with_newest(&self, call: &LockCall) -> Result<bool, Error> {
        let clock = &self.inner.world.clock;
        let began = clock.moment();
        for _ in 0..TRIES_MAX {
            if !self.is_behind(call)? {
                return Ok(true);
            }
            // What comes of it is newer than what it was written upon.
            self.stores_have_arrived(call.file).await;
            if clock.moment().since(began) >= self.inner.settings.answer_within {
                return Ok(false);
            }
            if self.behind(call.file, call.handle)?.caches && !self.hands_on_pages(call.file).await
            {
                clock.sleep(LOOK_AGAIN_AFTER).await;
                continue;
            }
            let mut waiting = Vec::new();
            if self.stores_for(call) {
                for generation in self.behind(call.file, call.handle)?.written {
                    match self.store_version(call.file, generation).await {
                        // Until it is gone on with, nobody writes over it.
                        Ok(kept) => waiting.extend(kept),
                        // It is another program's, which is told when it closes it.
                        Err(error) => {
                            tracing::debug!(%error, file = %call.file, "it is locked as it is here");
                            return Ok(false);
                        }
                    }
                }
            }
            self.go_on_aside(call.file, Some(call.handle)).await?;
            drop(waiting);
            if !self.forgets_older_pages(call.file).await {
                clock.sleep(LOOK_AGAIN_AFTER).await;
            }
        }
        Ok(false)
    }

    /// Stores what was written to an open version, where cutting it holds up nobody else, and waits for
    /// the verdict. It is not written over as long as what it gives is kept.
    async fn store_version(
        &self,
        file: FileId,
        generation: u32,
    ) -> Result<Option<Waiting<'_, U, C>>, Error> {
        let began = self.inner.world.clock.moment();
        loop {
            let client = self.clone();
            let store = move || {
                let Some(grip) = client.grip_of(file, generation) else { return Ok(Ok(None)) };
                let stored = client.store(&grip, None);
                // Another lock has gone on with the newest, and who wrote to it, too.
                Ok(client.unless_closed(&grip, stored))
            };
            match self.off_the_runtime(store).await.map_err(error_of)? {
                Ok(None) => return Ok(None),
                Ok(Some(number)) => {
                    let kept = self.waiting(number);
                    self.settled(number).await?;
                    return Ok(Some(kept));
                }
                Err(Stop::Need(need)) => self.bounded(began, self.satisfy(need)).await?,
                Err(Stop::Error(error)) => return Err(error),
            }
        }
    }

    /// Goes on with the version that is current, where whoever writes may be waited for.
    async fn go_on_aside(&self, file: FileId, through: Option<Handle>) -> Result<(), Error> {
        let began = self.inner.world.clock.moment();
        loop {
            let client = self.clone();
            let go_on = move || Ok(client.go_on_with_current(file, through));
            match self.off_the_runtime(go_on).await.map_err(error_of)? {
                Ok(()) => return Ok(()),
                Err(Stop::Need(need)) => self.bounded(began, self.satisfy(need)).await?,
                Err(Stop::Error(error)) => return Err(error),
            }
        }
    }

    async fn hands_on_pages(&self, file: FileId) -> bool {
        let client = self.clone();
        self.off_the_runtime(move || Ok(client.hand_on_pages(file))).await.unwrap_or(false)
    }

    async fn forgets_older_pages(&self, file: FileId) -> bool {
        let client = self.clone();
        // Of what could not be forgotten the next try hears.
        self.off_the_runtime(move || Ok(client.forget_older_pages(file))).await.unwrap_or(false)
    }

    /// Programs here go on with what has come of a file by now.
    pub(super) async fn come_to_newest(
        &self,
        file: FileId,
        through: Option<Handle>,
    ) -> Result<(), Error> {
        self.go_on_aside(file, through).await?;
        for _ in 0..FORGET_TRIES_MAX {
            if self.forgets_older_pages(file).await {
                return Ok(());
            }
        }
        tracing::debug!(%file, "the kernel holds on to what was locked elsewhere meanwhile");
        Ok(())
    }
}
