//! Fetching what somebody waits for, as much at once as the answers to one question name.

use super::Target;
use crate::client::Client;
use crate::portions::Portions;
use crate::types::Error;
use model::FileId;
use protocol::{Range, Upstream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use store::Containers;

/// So much of a file is asked for at once, if more is wanted: an answer names 30,000 chunks at most, and
/// they have 2 KiB at the least.
pub(crate) const STEP_BYTES: u64 = 32 << 20;

/// What to fetch, the size of the file, and the stretch.
type Wanted<K> = (Target<K>, u64, Range);

impl<U: Upstream, C: Containers> Client<U, C> {
    pub(crate) async fn fetch_now(
        &self,
        file: FileId,
        generation: u32,
        offset: u64,
        length: u64,
    ) -> Result<(), Error> {
        self.join_ahead(file).await;
        // A call without a handle, such as truncate(2), does not keep the file open while it waits.
        let _held = self.hold(file, generation)?;
        let mut before = None;
        loop {
            // Another version is current by now: the call looks again.
            let Some(fetching) = self.not_coming(file, generation, offset, length).await else {
                return Ok(());
            };
            let _alone = fetching.write().await;
            if let Some(wanting) = self.wanted_of_ground(file, generation, offset, length) {
                return self.get_of_ground(file, generation, wanting).await;
            }
            let Some((target, size, range)) = self.target(file, generation, offset, length)? else {
                return Ok(());
            };
            // Nothing came, or it has left already: the call looks again.
            if before.is_some_and(|before| range.offset <= before) {
                return Ok(());
            }
            let mine = Some((file, generation));
            self.make_room_to_come(range.length, mine).await;
            if before.replace(range.offset).is_none() {
                self.inner.counters.misses.fetch_add(1, Ordering::Relaxed);
                self.note_miss(file);
            }
            self.fetch_range(&target, size, range).await?;
            if length <= STEP_BYTES {
                return Ok(());
            }
            // What has come stays until all of it has.
            self.awaits(file, offset, length);
        }
    }

    /// Waits as long as what is lacking is on its way unasked. None: it has come, or the version is
    /// not open any more.
    async fn not_coming(
        &self,
        file: FileId,
        generation: u32,
        offset: u64,
        length: u64,
    ) -> Option<Arc<tokio::sync::RwLock<()>>> {
        let look = || -> Option<Result<Arc<tokio::sync::RwLock<()>>, Arc<tokio::sync::Notify>>> {
            let files = self.files();
            let open = files.get(file, generation)?;
            if open.presence.has(offset, length) && open.presence.dirty.is_none() {
                return None;
            }
            Some(match open.coming.brings(offset, length) {
                Some(came) => Err(came),
                None => Ok(open.fetching.clone()),
            })
        };
        loop {
            let came = match look()? {
                Ok(fetching) => return Some(fetching),
                Err(came) => came,
            };
            let some = came.notified();
            tokio::pin!(some);
            some.as_mut().enable();
            if look()?.is_err() {
                some.await;
            }
        }
    }

    /// What to fetch, widened to what is worth a round trip. None: it is here already.
    fn target(
        &self,
        file: FileId,
        generation: u32,
        offset: u64,
        length: u64,
    ) -> Result<Option<Wanted<C::Container>>, Error> {
        let secret = self.secret().0;
        let portions = Portions::of(&self.inner.upstream.quality()).within(self.window_most());
        let mut files = self.files();
        let open = files.get_mut(file, generation).ok_or(Error::BadHandle)?;
        if open.presence.has(offset, length) {
            return Ok(None);
        }
        let size = open.presence.contents.size;
        let range = if size <= portions.whole {
            Range { offset: 0, length: size }
        } else if length > STEP_BYTES {
            let end = offset.saturating_add(length).min(size);
            let from = open.presence.here_until(offset).max(offset);
            Range { offset: from, length: STEP_BYTES.min(end.saturating_sub(from)) }
        } else {
            let window = open.widen(&portions, offset);
            Range { offset, length: length.max(window).min(size - offset) }
        };
        Ok(Some((Target::of(file, open, secret), size, range)))
    }
}
