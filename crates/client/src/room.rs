//! How much the cache holds, and room for more of it.
//! Holds: the cache is above its size for a moment only, but for what is not at the origin; what
//! is made room for costs in proportion to what leaves, not to what is there.
//! Never: lets go of what is not at the origin.
//! From: LBFS, "Implementation"; DESIGN, "The client".

mod awaited;
mod choose;
mod few;
mod leave;
mod look;
mod stretches;

pub(crate) use stretches::{Stretches, Touched, both, without};

use crate::client::{Client, error_of};
use crate::presence::Presence;
use crate::ranks::{self, Rank, Ranked};
use crate::types::{Error, Stop};
use awaited::Awaited;
use choose::{Closed, choose, in_order};
use look::{NANOS, Seen};
use model::{FileId, Time};
use protocol::Upstream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use store::container::{Key, Sizes};
use store::{Container, Containers, Result as StoreResult, StoreError};
use tokio::sync::Notify;
use world::Moment;

/// Files larger than the cache that are remembered.
const LARGE_MAX: usize = 64;
/// Room is made for what is wanted and for one part in so many of the cache, so that it is not
/// made for each byte.
const BESIDES_ONE_IN: u64 = 8;
/// However large the cache is, no more is fetched ahead of a reader.
const WINDOW_BYTES_MAX: u64 = 8 << 20;
/// A disk that is full is made free for so much.
const FREED_BYTES_MIN: u64 = 8 << 20;
/// What was chosen may turn out to be in use: how often one chooses anew.
const ROUNDS_MAX: usize = 4;
/// A disk that is full of what was just removed has room soon after.
const GIVEN_BACK_WITHIN: Duration = Duration::from_millis(100);
/// A file of which less is here has no holes worth a look.
const SPARSE_BYTES_MIN: u64 = 1 << 20;

#[derive(Default)]
pub(crate) struct Room {
    /// Of files that are not being written to. Between two looks at all of them, an estimate.
    files: AtomicU64,
    bytes: AtomicU64,
    /// All that has left since the start.
    left: AtomicU64,
    seen: Mutex<Seen>,
    awaited: Mutex<Awaited>,
    /// Room is made by one at a time.
    making: Mutex<()>,
    /// When all hints went last, for want of room.
    pub forgotten: Mutex<Option<Moment>>,
    /// There may be too much.
    pub wanted: Notify,
    /// Somebody has asked how much there is, and it takes long to find out.
    look_wanted: Notify,
}

impl Room {
    pub fn add(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn sub(&self, bytes: u64) {
        let less = |held: u64| Some(held.saturating_sub(bytes));
        // It always gives a value.
        let _ = self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    fn leave(&self, bytes: u64) {
        self.sub(bytes);
        self.left.fetch_add(bytes, Ordering::Relaxed);
    }

    fn file_leaves(&self, bytes: u64) {
        let less = |files: u64| Some(files.saturating_sub(1));
        // It always gives a value.
        let _ = self.files.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        self.leave(bytes);
    }

    fn awaited(&self) -> Ranked<'_, Awaited> {
        ranks::lock(Rank::Awaited, &self.awaited)
    }

    /// A call has come for what it waited for.
    pub fn came_for(&self, file: FileId, offset: u64, length: u64) {
        self.awaited().taken(file, offset, offset.saturating_add(length));
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn seen(&self) -> Ranked<'_, Seen> {
        ranks::lock(Rank::Seen, &self.seen)
    }
}

/// What is wanted of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// That so many bytes go into it beside the others.
    Room(u64),
    /// That so many bytes go onto the disk, which is full, however small the cache is.
    Disk(u64),
}

/// The version that whoever makes room is filling: nobody else fills it meanwhile.
pub(crate) type Mine = (FileId, u32);

/// What a call that met a full disk ends with.
pub(crate) trait MayBeFull {
    fn is_full(&self) -> bool;
}

impl MayBeFull for StoreError {
    fn is_full(&self) -> bool {
        matches!(self, StoreError::Full(_))
    }
}

impl MayBeFull for Error {
    fn is_full(&self) -> bool {
        matches!(self, Error::DiskFull)
    }
}

impl MayBeFull for Stop {
    fn is_full(&self) -> bool {
        matches!(self, Stop::Error(error) if error.is_full())
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Keeps the cache to its size, and lets containers go that nobody needs.
    pub(crate) fn keep_to_size(&self) -> Result<(), Error> {
        self.look()?;
        self.make_room(Wanted::Room(0), None).map(|_| ())
    }

    /// Keeps the cache to its size soon after that is exceeded.
    pub(crate) async fn run_room(&self) {
        while !self.is_stopping() {
            // What was pending may leave then, also what is settled while room is being made.
            let settled = self.inner.settled.notified();
            tokio::pin!(settled);
            settled.as_mut().enable();
            self.make_room_aside(Wanted::Room(0), None).await;
            tokio::select! {
                biased;
                () = self.inner.room.wanted.notified() => {}
                () = self.inner.room.look_wanted.notified() => self.look_aside().await,
                () = settled => {}
                () = self.until_stopping() => break,
            }
        }
    }

    /// Before something is fetched: who fetches waits until there is room for it, or until
    /// nothing more can leave.
    pub(crate) async fn make_room_aside(&self, wanted: Wanted, mine: Option<Mine>) -> bool {
        if let Wanted::Room(bytes) = wanted
            && self.room_lacks(bytes).is_ok_and(|lacks| lacks == 0)
        {
            return false;
        }
        let client = self.clone();
        let made = self.off_the_runtime(move || Ok(client.make_room(wanted, mine))).await;
        match made.map_err(error_of).flatten() {
            Ok(made) => made,
            Err(error) => {
                tracing::warn!(%error, "the cache could not be kept to its size");
                false
            }
        }
    }

    /// Does what may find the disk full. If it is, what the cache can do without goes, and it is
    /// tried again. Who calls this holds no locks.
    pub(crate) fn with_room<T, E: MayBeFull>(
        &self,
        mut work: impl FnMut() -> Result<T, E>,
    ) -> Result<T, E> {
        let full = match work() {
            Err(error) if error.is_full() => error,
            outcome => return outcome,
        };
        // What was removed may be kept aside, and goes with that.
        let gave_way = [self.removed_gives_way(), self.trash_gives_way().map_err(error_of)];
        if gave_way.iter().any(|outcome| matches!(outcome, Ok(true))) {
            match work() {
                Err(error) if error.is_full() => {}
                outcome => return outcome,
            }
        }
        for error in gave_way.into_iter().filter_map(Result::err) {
            tracing::debug!(%error, "what nobody needs could not be let go of");
        }
        // Where a few files leave, since the disk can have no more of them, bytes may be short, too.
        for by_number in [self.lacks_files(), false] {
            let made = self.make_room(Wanted::Disk(FREED_BYTES_MIN), None);
            if !matches!(made, Ok(true)) {
                tracing::debug!(?made, "the disk is full, and nothing can leave the cache");
                break;
            }
            match work() {
                Err(error) if error.is_full() && by_number => {}
                outcome => return outcome,
            }
        }
        Err(full)
    }

    /// The bytes by which the cache would be too large with so many more.
    pub(crate) fn room_lacks(&self, more: u64) -> Result<u64, Error> {
        let written = self.files().written_bytes().map_err(error_of)?;
        let held = self.inner.room.bytes() + self.trash().bytes() + written;
        Ok(held.saturating_add(more).saturating_sub(self.inner.settings.cache_bytes_max))
    }

    /// The same for what is wanted. Where room is made at all, it is made for some more besides.
    fn to_leave(&self, wanted: Wanted) -> Result<u64, Error> {
        let cache_bytes_max = self.inner.settings.cache_bytes_max;
        match wanted {
            Wanted::Disk(bytes) => Ok(bytes.max(FREED_BYTES_MIN)),
            Wanted::Room(bytes) => {
                let more = bytes.min(cache_bytes_max);
                Ok(match self.room_lacks(more)? {
                    0 => 0,
                    _ => self.room_lacks(more.saturating_add(cache_bytes_max / BESIDES_ONE_IN))?,
                })
            }
        }
    }

    /// Lets go of what was used longest ago, until there is room for what is wanted. False:
    /// nothing left.
    pub(crate) fn make_room(&self, wanted: Wanted, mine: Option<Mine>) -> Result<bool, Error> {
        let room = &self.inner.room;
        let _one = ranks::lock(Rank::Making, &room.making);
        // On a disk without a byte left it could not be written down what leaves.
        let _pressed = matches!(wanted, Wanted::Disk(_)).then(|| self.pressed());
        let is_full = matches!(wanted, Wanted::Disk(_));
        if is_full && self.lacks_files() {
            return self.let_files_leave();
        }
        let mut to_leave = self.to_leave(wanted)?;
        if to_leave == 0 {
            return Ok(false);
        }
        // The trash gives way first.
        let trash = self.trash().bytes();
        let mut left = self.empty_trash(trash.saturating_sub(to_leave)).map_err(error_of)?;
        // More may have come into it meanwhile.
        to_leave = to_leave.saturating_sub(trash.saturating_sub(self.trash().bytes()));
        for _ in 0..ROUNDS_MAX {
            if to_leave == 0 {
                break;
            }
            if self.look_if_due(is_full)? {
                // The estimate may have been too high.
                if !is_full {
                    to_leave = self.to_leave(wanted)?;
                }
            }
            let freed = self.let_leave(to_leave, mine)?;
            if freed == 0 && is_full {
                // What is known stays, whatever is left of it: others may have been closed since.
                self.inner.room.seen().closed.clear();
            }
            left |= freed > 0;
            to_leave = to_leave.saturating_sub(freed);
        }
        if to_leave > 0 && is_full {
            left |= self.forget_hints()?;
        }
        Ok(left)
    }

    /// Chooses once, and has it leave. Gives the bytes.
    fn let_leave(&self, bytes: u64, mine: Option<Mine>) -> Result<u64, Error> {
        let open = self.open_stretches()?;
        let victims = {
            let seen = self.inner.room.seen();
            let large: Vec<Closed> = seen.large.values().copied().collect();
            let most = self.inner.settings.cache_bytes_max;
            choose(bytes, most, seen.closed.iter().copied(), &large, open)
        };
        self.carry_out(victims, mine)
    }

    /// When a file was used, in the order in which files leave.
    fn last_used(&self, presence: &Presence) -> i64 {
        let now = nanos(self.inner.world.clock.time());
        in_order(presence.used.saturating_mul(NANOS), now)
    }

    fn is_large(&self, presence: &Presence) -> bool {
        presence.contents.size > self.inner.settings.cache_bytes_max
    }

    /// Nobody has a file open any more. One that is larger than the cache need not stay.
    pub(crate) fn closed(&self, file: FileId, presence: &Presence) {
        if !self.is_large(presence) {
            return;
        }
        let used = self.last_used(presence);
        let Ok(bytes) = self.bytes_here(file, presence) else { return };
        let mut seen = self.inner.room.seen();
        if seen.large.len() < LARGE_MAX || seen.large.contains_key(&file) {
            seen.large.insert(file, Closed { used, file, bytes });
        }
    }

    /// So many bytes have come that may leave again.
    pub(crate) fn room_taken(&self, bytes: u64) {
        let room = &self.inner.room;
        room.add(bytes);
        if room.bytes() > self.inner.settings.cache_bytes_max {
            room.wanted.notify_one();
        }
    }

    /// Fetches what a call waits for. If the disk is full, what can be fetched again leaves.
    pub(crate) async fn fetch(
        &self,
        file: FileId,
        generation: u32,
        offset: u64,
        length: u64,
    ) -> Result<(), Error> {
        let awaits = || self.awaits(file, offset, length);
        awaits();
        let mut outcome = self.fetch_now(file, generation, offset, length).await;
        // What left may be taken by others who fetch, and a disk may give it back a little later.
        for _ in 0..ROUNDS_MAX {
            if !matches!(outcome, Err(Error::DiskFull)) {
                break;
            }
            // Nothing leaves for what cannot come.
            self.attached().await?;
            let most = length.min(FREED_BYTES_MIN);
            if !self.make_room_aside(Wanted::Disk(most + 2 * self.window_most()), None).await {
                self.inner.world.clock.sleep(GIVEN_BACK_WITHIN).await;
            }
            outcome = self.fetch_now(file, generation, offset, length).await;
        }
        awaits();
        if outcome.is_err() {
            // What is pending comes from nowhere.
            self.note_if_lost(file);
        }
        outcome
    }

    /// What somebody waits for stays for a while.
    pub(crate) fn awaits(&self, file: FileId, offset: u64, length: u64) {
        let now = self.inner.world.clock.moment();
        self.inner.room.awaited().note(file, offset, offset.saturating_add(length), now);
    }

    /// No more is fetched ahead of a reader.
    pub(crate) fn window_most(&self) -> u64 {
        (self.inner.settings.cache_bytes_max / BESIDES_ONE_IN).min(WINDOW_BYTES_MAX)
    }

    /// What a file that is not being written to takes of the disk. Holes are nothing.
    fn bytes_here(&self, file: FileId, presence: &Presence) -> StoreResult<u64> {
        let bytes = presence.bytes();
        if bytes < SPARSE_BYTES_MIN {
            return Ok(bytes);
        }
        let key = Key { file: file.0, generation: presence.generation };
        match self.inner.containers.open(key, false)? {
            Some(container) => Ok(bytes.min(container.allocated()?)),
            None => Ok(0),
        }
    }
}

/// What a container takes of the disk.
pub(crate) fn taken(container: &impl Container) -> StoreResult<u64> {
    // Of its last block, what is used.
    let Sizes { length, allocated } = container.sizes()?;
    Ok(allocated.min(length))
}

fn nanos(time: Time) -> i64 {
    time.secs.saturating_mul(NANOS).saturating_add(time.nanos.into())
}
