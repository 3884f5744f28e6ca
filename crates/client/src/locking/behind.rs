//! Whoever is about to lock a file goes on with its newest version first.
//! Holds: who has a lock reads what is known here of those who held it before; what was written here
//! meanwhile, under other records, is stored before that, and is not written over while it is.

use super::LOOK_AGAIN_AFTER;
use crate::client::{Client, error_of};
use crate::locks::LockCall;
use crate::types::{Error, Handle, Stop};
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
        let behind = self.behind(call.file)?;
        // A lock of the whole file is no word about who may write to which part of it.
        let counts = call.lock.kind == LockKind::Record && !behind.written.is_empty();
        Ok(behind.clean || behind.pending || behind.pages || counts)
    }

    /// Stores what was written here upon older versions, and goes on with the newest.
    pub(super) async fn goes_on_with_newest(&self, call: &LockCall) -> Result<(), Error> {
        for _ in 0..TRIES_MAX {
            if !self.is_behind(call)? {
                return Ok(());
            }
            // What comes of it is newer than what it was written upon.
            self.stores_have_arrived(call.file).await;
            let written = self.behind(call.file)?.written;
            let mut waiting = Vec::new();
            for generation in written.into_iter().filter(|_| call.lock.kind == LockKind::Record) {
                let Some(number) = self.store_version(call.file, generation).await? else {
                    continue;
                };
                // Until it is gone on with, nobody writes over it.
                waiting.push(self.waiting(number));
                self.settled(number).await?;
            }
            self.go_on_aside(call.file, Some(call.handle)).await?;
            drop(waiting);
            if !self.forgets_older_pages(call.file).await {
                self.inner.world.clock.sleep(LOOK_AGAIN_AFTER).await;
            }
        }
        Err(Error::OlderLentOut)
    }

    /// Stores what was written to an open version, where cutting it holds up nobody else.
    async fn store_version(&self, file: FileId, generation: u32) -> Result<Option<u64>, Error> {
        let began = self.inner.world.clock.moment();
        loop {
            let client = self.clone();
            let store = move || {
                let grip = client.grip_of(file, generation);
                Ok(grip.map_or(Ok(None), |grip| client.store(&grip, None)))
            };
            match self.off_the_runtime(store).await.map_err(error_of)? {
                Ok(number) => return Ok(number),
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

    async fn forgets_older_pages(&self, file: FileId) -> bool {
        let client = self.clone();
        let forget = move || Ok(client.forget_older_pages(file));
        // Of what could not be forgotten the next try hears.
        self.off_the_runtime(forget).await.unwrap_or(false)
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
