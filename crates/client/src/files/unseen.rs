//! What the kernel writes by itself into a container that it has been lent: nobody here sees it.
//! Holds: the log knows of it before the kernel gets the container; nothing is stored of it while
//! the kernel may write; once closed it is stored before the next change of the volume is logged,
//! so that updates have the order in which they were made.
//! From: the kernel's `fs/fuse/passthrough.c`; DESIGN, "The client".
//!
//! ```text
//!   at rest --opened to write--> unseen --last close of a writer--> closed --stored, or found
//!      ^                                                              |      not written to
//!      '--------------------------------------------------------------'
//! ```

use super::first::Extent;
use super::{Files, Grip, OpenFile};
use crate::client::{Client, failed};
use crate::early::is_fast;
use crate::mode;
use crate::presence::Presence;
use crate::types::{Handle, Step};
use model::{FileId, Time};
use protocol::Upstream;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use store::{Container, Containers, Result as StoreResult};
use tokio::sync::Notify;

/// Smaller files are sent as what they add to the version before, of which what is written over
/// has to be kept: by the daemon. Larger ones would hold up the next change for too long.
const BYTES: RangeInclusive<u64> = 16 << 20..=1 << 30;
/// Files that are remembered as written to and closed, and nothing else.
const PLAIN_MAX: usize = 4096;
/// The kernel tells of the last close when the program that closed has gone on already. A change
/// waits so long for what was closed before it; longer only where a copy of the descriptor is left.
const RELEASED_WITHIN: Duration = Duration::from_millis(20);
/// What was last changed so long before is told by the time of the next change, whatever the
/// grain of the disk's clock.
const GRAIN_NANOS: i128 = 50_000_000;

/// Of a container that the kernel writes to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unseen {
    /// When it had last changed before it was lent, if a later change is certain to differ.
    lent_as_of: Option<(i64, u32)>,
    /// When it had last changed when its time of change was last set or told.
    told_at: Option<(i64, u32)>,
}

impl Unseen {
    fn new(changed: Option<(i64, u32)>, now: Time) -> Unseen {
        Unseen { lent_as_of: changed.filter(|at| is_past(*at, now)), told_at: changed }
    }
}

fn is_past((secs, nanos): (i64, u32), now: Time) -> bool {
    let since_1970 = |secs: i64, nanos: u32| i128::from(secs) * 1_000_000_000 + i128::from(nanos);
    since_1970(now.secs, now.nanos) - since_1970(secs, nanos) >= GRAIN_NANOS
}

/// Files of which programs have done nothing but write and close them. Who syncs or locks wants
/// each version of the file, which a container that the kernel writes to cannot give.
#[derive(Default)]
pub(crate) struct Plain(BTreeSet<FileId>);

impl Plain {
    fn insert(&mut self, file: FileId) {
        if self.0.len() >= PLAIN_MAX && !self.0.contains(&file) {
            self.0.pop_first();
        }
        self.0.insert(file);
    }
}

/// What was closed and is to be stored.
#[derive(Default)]
pub(crate) struct Closing {
    state: Mutex<Closed>,
    is_any: AtomicBool,
    released: Condvar,
    pub wanted: Notify,
}

#[derive(Default)]
struct Closed {
    files: BTreeSet<(FileId, u32)>,
    /// A descriptor of these was closed, maybe the last.
    flushed: BTreeSet<Handle>,
}

impl Closing {
    fn change(&self, change: impl FnOnce(&mut Closed)) {
        let mut state = self.lock();
        change(&mut state);
        let is_any = !state.files.is_empty() || !state.flushed.is_empty();
        self.is_any.store(is_any, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Closed> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has(&self, file: FileId) -> bool {
        self.is_any.load(Ordering::Acquire)
            && self.lock().files.range((file, 0)..=(file, u32::MAX)).next().is_some()
    }

    /// What is to be stored, once it is told of which files the last descriptor is closed.
    fn due(&self) -> Vec<(FileId, u32)> {
        if !self.is_any.load(Ordering::Acquire) {
            return Vec::new();
        }
        let waits = |closed: &mut Closed| !closed.flushed.is_empty();
        let waited = self.released.wait_timeout_while(self.lock(), RELEASED_WITHIN, waits);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        self.change(|closed| closed.flushed.clear());
        self.lock().files.iter().copied().collect()
    }
}

impl<K: Container> OpenFile<K> {
    /// What its row says of who stored it.
    pub(crate) fn is_known_as_plain(&self) -> Option<bool> {
        let size = self.container.length().unwrap_or(0);
        (self.is_plain && takes_unseen(size)).then_some(true)
    }

    /// The time of its last change and of the last write, as they are known here or, of what is
    /// not seen here, on the disk.
    pub(crate) fn times(&self) -> StoreResult<(Option<Time>, Option<Time>)> {
        let Some(unseen) = self.unseen else { return Ok((self.mtime, self.changed)) };
        let at = self.container.changed_at()?;
        Ok(match at {
            Some((secs, nanos)) if at != unseen.told_at => {
                let at = Time { secs, nanos };
                (Some(at), Some(self.changed.map_or(at, |changed| changed.max(at))))
            }
            _ => (self.mtime, self.changed),
        })
    }

    /// Its time was set: what was written before does not count any more.
    pub(super) fn time_was_set(&mut self, mtime: Time) {
        self.mtime = Some(mtime);
        if let Some(unseen) = &mut self.unseen {
            unseen.told_at = self.container.changed_at().unwrap_or(None);
        }
    }
}

impl<K: Container> Files<K> {
    /// Somebody has synced it, or locked a part of it.
    pub(crate) fn is_not_plain(&mut self, file: FileId) {
        self.plain.0.remove(&file);
        let versions = self.open.range_mut((file, 0)..=(file, u32::MAX));
        for (_, open) in versions {
            open.is_plain = false;
            open.presence.plain = None;
        }
    }

    /// A program that could write to it has closed it.
    pub(super) fn closed_by_writer(&mut self, file: FileId, generation: u32) {
        let Some(open) = self.get(file, generation) else { return };
        let fits = takes_unseen(open.presence.contents.size);
        if fits && open.is_plain && open.unlinked.is_none() {
            self.plain.insert(file);
        }
    }

    pub(super) fn is_plain(&self, file: FileId, presence: &Presence) -> bool {
        presence.plain == Some(true) || self.plain.0.contains(&file)
    }

    /// Whether the kernel may be writing to this container just now.
    pub(crate) fn kernel_writes(&self, file: FileId, generation: u32) -> bool {
        let lent = self.lent.get(&file);
        lent.is_some_and(|out| out.generation == generation && out.writers > 0)
    }

    /// Whether the kernel may be writing to any.
    pub(crate) fn kernel_writes_any(&self) -> bool {
        self.lent.values().any(|out| out.writers > 0)
    }

    /// The kernel is about to get a container to write to.
    pub(super) fn begin_unseen(&mut self, file: FileId, generation: u32, now: Time) {
        let Some(open) = self.open.get_mut(&(file, generation)) else { return };
        if open.unseen.is_some() {
            return;
        }
        // What is written is told by the disk from now on, and what was kept for a delta, or cut,
        // is not kept up.
        (open.mtime, open.changed) = (None, None);
        (open.since, open.front, open.images) = (None, None, None);
        open.unseen = Some(Unseen::new(open.container.changed_at().unwrap_or(None), now));
    }
}

/// Whether a file of so many bytes may be lent to who writes it.
pub(super) fn takes_unseen(size: u64) -> bool {
    BYTES.contains(&size)
}

/// Whether one that is now of so many bytes may have been: it may have grown.
pub(crate) fn may_have_been_lent(size: u64) -> bool {
    size >= *BYTES.start()
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Whether the kernel may get a file to write to, for all that is not told by the file itself.
    /// What it writes is stored with the last close, so only where no call waits for verdicts; and
    /// what was written over is not known, so only where the link is too fast for deltas to pay.
    /// Quotas are judged as it is written, by the daemon.
    pub(super) fn may_write_unseen(&self, file: FileId, reads: bool) -> bool {
        if self.has_quota() || self.inner.kernel.get().is_none() {
            return false;
        }
        let waits = mode::waits_for_verdicts(self.connection().mode);
        // A version that is pending is given up where it is written over: it must not be for who
        // may only be reading.
        let pending = || reads && self.core().log.pending_store(file).is_some();
        !waits && is_fast(&self.inner.upstream.quality()) && !pending()
    }

    /// Before the kernel gets a container to write to: the log learns of it.
    pub(super) fn begin_to_lend(&self, handle: Handle, uid: u32) -> Step<()> {
        let grip = {
            let files = self.files();
            if !files.writes_unseen(handle) {
                return Ok(());
            }
            files.grip(handle)?.0
        };
        let _opening = grip.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_dirty(&grip) {
            let size = grip.container.length().map_err(failed)?;
            self.begin_first_change(&grip, uid, Extent::Stretch(0, size))?;
        }
        let now = self.inner.world.clock.time();
        self.files().begin_unseen(grip.file, grip.generation, now);
        Ok(())
    }

    /// Whether nothing was written to a container that the kernel could write to, by the time of
    /// its last change.
    pub(crate) fn is_as_it_was_lent(&self, grip: &Grip<C::Container>) -> Step<bool> {
        let files = self.files();
        let Some(open) = files.get(grip.file, grip.generation) else { return Ok(false) };
        let Some(before) = open.unseen.and_then(|unseen| unseen.lent_as_of) else {
            return Ok(false);
        };
        // What was pending when it was opened is in the log no more.
        if open.overtook || open.changed.is_some() {
            return Ok(false);
        }
        Ok(open.container.changed_at().map_err(failed)? == Some(before))
    }

    /// A descriptor was closed through which the kernel may have written: says whether it is so.
    pub(super) fn is_flushed_unseen(&self, handle: Handle) -> bool {
        let writes = self.files().writes_unseen(handle);
        if writes {
            self.inner.kernel.closing.change(|closed| {
                closed.flushed.insert(handle);
            });
        }
        writes
    }

    /// The last descriptor of a handle is closed.
    pub(super) fn is_released(&self, handle: Handle) {
        self.inner.kernel.closing.change(|closed| {
            closed.flushed.remove(&handle);
        });
        self.inner.kernel.closing.released.notify_all();
    }

    /// Nobody has it open to write any more: it is stored soon, and before the next change.
    pub(super) fn store_soon(&self, file: FileId, generation: u32) {
        self.inner.kernel.closing.change(|closed| {
            closed.files.insert((file, generation));
        });
        self.inner.kernel.closing.wanted.notify_one();
    }

    /// Stores a file at once that is about to be stored.
    pub(super) fn settle_closed_one(&self, file: FileId) {
        if self.inner.kernel.closing.has(file) {
            self.settle_closed(None);
        }
    }

    /// Stores what was closed, but for the one that the caller is about to store. What cannot be
    /// stored now is kept, and tried again by upkeep.
    pub(crate) fn settle_closed(&self, but: Option<(FileId, u32)>) {
        for (file, generation) in self.inner.kernel.closing.due() {
            if but == Some((file, generation)) {
                continue;
            }
            if let Some(grip) = self.grip_of(file, generation)
                && let Err(stop) = self.store_now_unattended(&grip)
            {
                tracing::warn!(%file, %stop, "what was written is kept and not stored yet");
            }
            self.inner.kernel.closing.change(|closed| {
                closed.files.remove(&(file, generation));
            });
            self.files().close_left_over(file, generation);
            // Company may have been kept waiting.
            self.choose_mode();
        }
    }

    /// Stores what the kernel wrote by itself, until `shut_down`.
    pub(crate) async fn run_closing(&self) {
        while !self.is_stopping() {
            tokio::select! {
                biased;
                () = self.inner.kernel.closing.wanted.notified() => {}
                () = self.until_stopping() => break,
            }
            let client = self.clone();
            let settle = move || {
                client.settle_closed(None);
                Ok(())
            };
            if let Err(error) = self.off_the_runtime(settle).await {
                tracing::error!(%error, "what was closed could not be stored");
            }
        }
    }
}
