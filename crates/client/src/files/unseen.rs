//! What the kernel writes by itself into a container that it has been lent: nobody here sees it.
//! Holds: the log knows of it before the kernel gets the container; nothing is stored of it while
//! the kernel may write; once closed it is stored before the next change of the volume is logged,
//! so that updates have the order in which they were made.
//! From: the kernel's `fs/fuse/passthrough.c`; DESIGN, "The client".
//!
//! ```text
//!   at rest --opened to write--> unseen --last close of a writer--> closed --nobody has it mapped,
//!      ^                            ^--------opened to write----------'  |   and it is stored, or
//!      '-----------------------------------------------------------------'   found not written to
//! ```

use super::closed::{Place, RELEASED_WITHIN};
use super::first::Extent;
use super::privileged::Watched;
use super::{Files, Grip, OpenFile};
use crate::client::{Client, failed};
use crate::early::is_fast;
use crate::mode;
use crate::numbers::Inode;
use crate::ranks::{self, Rank};
use crate::room::Wanted;
use crate::types::{Durability, Handle, Step};
use model::{FileId, Time};
use protocol::Upstream;
use std::ops::RangeInclusive;
use std::time::Duration;
use store::{Container, Containers, Result as StoreResult};

/// Smaller files are sent as what they add to the version before, of which what is written over
/// has to be kept: by the daemon. Larger ones would hold up the next change for too long.
pub(super) const BYTES: RangeInclusive<u64> = 16 << 20..=1 << 30;
/// Who opens a file to write waits so long for those who read it until just before.
const READ_NO_MORE_WITHIN: Duration = Duration::from_millis(5);
/// What is mapped, or grows while nobody here sees it, is looked at so often.
const LOOKED_AT_NOW_AND_THEN: Duration = Duration::from_millis(100);
/// How often what is mapped to write is written, while others read the container.
const HANDED_ON_EVERY: Duration = Duration::from_secs(1);
/// With less on the disk, what the cache can do without goes.
const FREE_BYTES_MIN: u64 = 1 << 30;
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
    pub(super) privileges: Watched,
}

impl Unseen {
    fn new(changed: Option<(i64, u32)>, now: Time) -> Unseen {
        Unseen {
            lent_as_of: changed.filter(|at| is_past(*at, now)),
            told_at: changed,
            privileges: Watched::default(),
        }
    }
}

fn is_past((secs, nanos): (i64, u32), now: Time) -> bool {
    let since_1970 = |secs: i64, nanos: u32| i128::from(secs) * 1_000_000_000 + i128::from(nanos);
    since_1970(now.secs, now.nanos) - since_1970(secs, nanos) >= GRAIN_NANOS
}

/// Whether what was closed can be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    /// Somebody has it mapped, or the kernel is about to let go of it.
    Mapped,
    /// Somebody writes to it again, and will close it.
    Open,
}

impl<K: Container> OpenFile<K> {
    /// The kernel wrote to it by itself, and nobody has it open to write any more.
    pub(super) fn is_closed_unseen(&self) -> bool {
        self.unseen.is_some() && self.writing_handles == 0
    }

    /// Somebody may have it mapped who could write to it. Whoever has it open as well, to read it,
    /// cannot be told from him.
    pub(super) fn may_be_written(&self) -> bool {
        self.unseen.is_some() && self.is_mappable && !self.container.is_alone().unwrap_or(true)
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
    /// Whether the kernel may be writing to this container just now, for whoever has it open to
    /// write, or mapped.
    pub(crate) fn kernel_writes(&self, file: FileId, generation: u32) -> bool {
        self.unseen_state((file, generation)) != State::Free
    }

    pub(crate) fn kernel_writes_to(&self, file: FileId) -> bool {
        self.lent.get(&file).is_some_and(|out| self.kernel_writes(file, out.generation))
    }

    fn unseen_state(&self, (file, generation): Place) -> State {
        let lent = self.lent.get(&file).filter(|out| out.generation == generation);
        match self.get(file, generation) {
            _ if lent.is_some_and(|out| out.writers > 0) => State::Open,
            Some(open) if open.may_be_written() => State::Mapped,
            _ => State::Free,
        }
    }

    /// A container that the kernel may be writing to.
    fn written_unseen(&self) -> Option<&OpenFile<K>> {
        let (file, out) = self.lent.iter().find(|(_, out)| out.writers > 0)?;
        self.get(*file, out.generation)
    }

    /// The kernel is about to get a container to write to. One that was not clean has been written
    /// to by way of the daemon, and is to be stored whatever the kernel does.
    fn begin_unseen(&mut self, place: Place, (is_clean, uid): (bool, u32), now: Time) {
        let Some(open) = self.open.get_mut(&place) else { return };
        if let Some(unseen) = &mut open.unseen {
            return unseen.privileges.is_written_by(uid);
        }
        // What is written is told by the disk from now on, and what was kept for a delta, or cut,
        // is not kept up.
        (open.mtime, open.changed) = (None, None);
        (open.since, open.front, open.images) = (None, None, None);
        let mut unseen = Unseen::new(open.container.changed_at().unwrap_or(None), now);
        unseen.lent_as_of = unseen.lent_as_of.filter(|_| is_clean);
        unseen.privileges.is_written_by(uid);
        open.unseen = Some(unseen);
    }
}

/// Whether a file of so many bytes may be lent to who writes it.
pub(super) fn takes_unseen(container: &impl Container, size: u64) -> bool {
    // Nothing makes room while the kernel writes, but what looks now and then.
    let needed = size.saturating_mul(2).saturating_add(FREE_BYTES_MIN);
    BYTES.contains(&size) && container.free_bytes().is_ok_and(|free| free >= needed)
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Whether the kernel may get a file to write to, for all that is not told by the file itself.
    /// What it writes is stored with the last close, so only where no call waits for verdicts; and
    /// what was written over is not known, so only where the link is too fast for deltas to pay.
    /// Quotas are judged as it is written, by the daemon.
    pub(super) fn may_write_unseen(&self, file: FileId, reads: bool) -> bool {
        // With each close, what was written is to be on the disk here.
        let syncs = self.inner.settings.durability == Durability::Sync;
        if syncs || self.has_quota() || self.inner.kernel.get().is_none() {
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
        // The version before may be being cut just now. From here on, as this handle counts, none is.
        let _still = ranks::read(Rank::Still, &grip.still);
        let _opening = ranks::lock(Rank::Opening, &grip.opening);
        let is_clean = !self.is_dirty(&grip);
        let all = Extent::Stretch(0, grip.container.length().map_err(failed)?);
        if is_clean {
            // It may be anywhere, and little.
            self.want_sound(&grip, false)?;
            self.begin_first_change(&grip, uid, all)?;
        } else {
            self.begin_to_write_over(&grip, all)?;
        }
        let now = self.inner.world.clock.time();
        self.files().begin_unseen((grip.file, grip.generation), (is_clean, uid), now);
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
            let now = self.inner.world.clock.moment();
            self.inner.kernel.closing.change(|closed| {
                closed.flushed.insert(handle, now);
            });
        }
        writes
    }

    /// The last descriptor of a handle is closed, of a file that is to be looked `after`.
    pub(super) fn is_released(&self, handle: Handle, after: bool) {
        if !after {
            return;
        }
        let closing = &self.inner.kernel.closing;
        closing.change(|closed| {
            closed.flushed.remove(&handle);
        });
        closing.changed.notify_all();
        closing.wanted.notify_one();
    }

    /// Nobody has it open to write any more: it is stored soon, and before the next change.
    pub(super) fn store_soon(&self, file: FileId, generation: u32) {
        self.inner.kernel.closing.change(|closed| {
            closed.due.insert((file, generation));
        });
    }

    /// Before a file is opened, `to_write` by an inode: what was closed of it is stored, and taken
    /// back from the kernel.
    pub(super) fn settle_closed_one(&self, file: FileId, to_write: Option<Inode>) {
        let closing = &self.inner.kernel.closing;
        if closing.has(file) {
            self.settle_closed(None);
        }
        let clock = &self.inner.world.clock;
        let begun = clock.moment();
        let is_out = || self.files().take_back(Some(file));
        while is_out() && clock.moment().since(begun) < RELEASED_WITHIN {
            closing.wait_a_moment();
        }
        // Of who only read it, the kernel has said already that he has closed it, if he has; but
        // that may be heard of by another thread just now.
        let is_read = || {
            let mut files = self.files();
            files.take_back(Some(file));
            to_write.is_some_and(|inode| files.is_in_the_way(file, inode.number))
        };
        while is_read() && clock.moment().since(begun) < READ_NO_MORE_WITHIN {
            closing.wait_a_moment();
        }
    }

    /// Stores what was closed, but for the one that the caller is about to store. What cannot be
    /// stored now is kept, and tried again by upkeep.
    pub(crate) fn settle_closed(&self, but: Option<(FileId, u32)>) {
        let (closing, clock) = (&self.inner.kernel.closing, &self.inner.world.clock);
        for place in closing.take(but, || clock.moment()) {
            let begun = clock.moment();
            let mut state = self.files().unseen_state(place);
            // The kernel lets go of a container a moment after it has said so.
            while state == State::Mapped && clock.moment().since(begun) < RELEASED_WITHIN {
                closing.wait_a_moment();
                state = self.files().unseen_state(place);
            }
            self.settle_place(place, state);
            closing.is_stored(place);
        }
    }

    /// For who must not hold up others meanwhile, if there is such a place.
    pub(crate) fn settle_closed_aside(&self) {
        use tokio::runtime::{Handle, RuntimeFlavor};
        match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
            Ok(RuntimeFlavor::MultiThread) => {
                tokio::task::block_in_place(|| self.settle_closed(None));
            }
            _ => self.settle_closed(None),
        }
    }

    fn settle_place(&self, place: Place, state: State) {
        let (file, generation) = place;
        match state {
            // Its close comes here again.
            State::Open => return,
            State::Mapped => {
                self.inner.kernel.closing.lock().mapped.insert(place);
                return;
            }
            State::Free => {}
        }
        if let Some(grip) = self.grip_of(file, generation)
            && let Err(stop) = self.store_now_unattended(&grip)
        {
            tracing::warn!(%file, %stop, "what was written is kept and not stored yet");
        }
        self.files().close_left_over(file, generation);
        // It may be locked by others now.
        self.inner.settled.notify_waiters();
        self.inner.locks_wanted.notify_one();
    }

    /// Looks after what the kernel was lent, until `shut_down`: stores what was closed, and takes
    /// back what nobody has mapped any more.
    pub(crate) async fn run_closing(&self) {
        let closing = &self.inner.kernel.closing;
        let mut is_out = false;
        let mut handed_on_at = self.inner.world.clock.moment();
        while !self.is_stopping() {
            let looks = self.inner.world.clock.sleep(LOOKED_AT_NOW_AND_THEN);
            tokio::select! {
                biased;
                () = closing.wanted.notified() => {}
                () = looks, if is_out => {}
                () = self.until_stopping() => break,
            }
            let now = self.inner.world.clock.moment();
            let hands_on = now.since(handed_on_at) >= HANDED_ON_EVERY;
            if hands_on {
                handed_on_at = now;
            }
            let client = self.clone();
            let looked = self
                .off_the_runtime(move || {
                    if hands_on {
                        client.hand_on_what_is_mapped();
                    }
                    Ok(client.look_after_lent())
                })
                .await;
            is_out = looked.unwrap_or_else(|error| {
                tracing::error!(%error, "what was closed could not be stored");
                true
            });
        }
    }

    /// What programs write to mappings of a file that the kernel reads by another inode is made the
    /// file's, where those who read it see it.
    fn hand_on_what_is_mapped(&self) {
        let Some(kernel) = self.inner.kernel.get() else { return };
        let mapped = self.files().mapped_beside_lent();
        for file in mapped {
            kernel.forget_node(file, true);
        }
    }

    /// Says whether something is to be looked at again.
    fn look_after_lent(&self) -> bool {
        self.watch_privileges();
        self.settle_closed(None);
        let mapped = std::mem::take(&mut self.inner.kernel.closing.lock().mapped);
        for place in mapped {
            let state = self.files().unseen_state(place);
            self.settle_place(place, state);
        }
        self.drop_what_is_cached_twice();
        let free = {
            let mut files = self.files();
            files.take_back(None);
            if files.lent_len() == 0 {
                return false;
            }
            files.written_unseen().and_then(|open| open.container.free_bytes().ok())
        };
        if free.is_some_and(|free| free < FREE_BYTES_MIN)
            && let Err(error) = self.make_room(Wanted::Disk(FREE_BYTES_MIN), None)
        {
            tracing::debug!(%error, "nothing can leave the cache for what the kernel writes");
        }
        true
    }
}
