//! Looking at all that the cache holds, and what is known of it between two looks.
//! Holds: nobody who asks how much there is waits for a look at more than some files; of many they
//! are told what the last look found, and the next one is made beside.

use super::LARGE_MAX;
use super::choose::Closed;
use crate::client::{Client, error_of};
use crate::presence::Presence;
use crate::types::Error;
use model::{FileId, View};
use protocol::Upstream;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::atomic::Ordering;
use std::time::Duration;
use store::Containers;
use volume::partial::Tree;
use world::Moment;

/// All files are looked at for one moment in so many at most.
const LOOKED_ONE_IN: u32 = 10;
/// The same where the disk is full, and nothing is known that could leave: a call fails else.
const PRESSED_ONE_IN: u32 = 2;
/// All are looked at again before something leaves if that was longer ago.
const LOOKED_FOR: Duration = Duration::from_secs(10);
/// A number that somebody asks for is no older, if it is found quickly.
const KNOWN_FOR: Duration = Duration::from_secs(2);
/// Files that are looked at in one reading.
const PAGE_FILES: usize = 1024;
/// Whoever asks how much there is waits while so many files are looked at.
const QUICK_FILES: u64 = 4 * PAGE_FILES as u64;
/// Of the files that nobody has open, so many are remembered that were used longest ago. When they
/// have left, all are looked at again.
const CLOSED_MAX: usize = 1 << 16;
pub(super) const NANOS: i64 = 1_000_000_000;

/// What a look at all files has found.
#[derive(Default)]
pub(super) struct Seen {
    /// When it ended, and what it took.
    pub last: Option<(Moment, Duration)>,
    /// Nobody had them open then; used longest ago first.
    pub closed: VecDeque<Closed>,
    /// Larger than the cache.
    pub large: BTreeMap<FileId, Closed>,
}

/// Whether to look before it is said how much there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    No,
    First,
    /// It would take long: what is known is said, and it is looked meanwhile.
    Beside,
}

impl Seen {
    pub fn may_look_again(&self, now: Moment) -> bool {
        self.last.is_none_or(|(at, took)| now.since(at) >= took * LOOKED_ONE_IN)
    }

    /// Whether to look before something leaves, of a disk that is full or a cache that is.
    fn is_due(&self, now: Moment, is_full: bool) -> bool {
        let Some((at, took)) = self.last else { return true };
        match self.closed.is_empty() {
            true if is_full => now.since(at) >= took * PRESSED_ONE_IN,
            true => self.may_look_again(now),
            false => now.since(at) >= LOOKED_FOR && self.may_look_again(now),
        }
    }

    /// `files`, `bytes`: as is known.
    fn before_telling(&self, now: Moment, files: u64, bytes: u64) -> Look {
        // No file, and bytes all the same: one has come since.
        let unlike = files == 0 && bytes > 0;
        let old = self.last.is_none_or(|(at, _)| now.since(at) >= KNOWN_FOR);
        match (old || unlike) && self.may_look_again(now) {
            false => Look::No,
            true if files <= QUICK_FILES => Look::First,
            true => Look::Beside,
        }
    }
}

/// A look that goes on.
#[derive(Default)]
struct Looking {
    files: u64,
    bytes: u64,
    /// Rows that were looked at.
    rows: u64,
    after: Option<FileId>,
    closed: BinaryHeap<Closed>,
    large: BTreeMap<FileId, Closed>,
}

impl Looking {
    fn close(&mut self, one: Closed) {
        self.closed.push(one);
        if self.closed.len() > CLOSED_MAX {
            self.closed.pop();
        }
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Looks at all files: how much is here, what leaves first, and what nobody needs.
    pub(super) fn look(&self) -> Result<(), Error> {
        self.look_at(u64::MAX).map(drop)
    }

    /// The same where that is due. Says whether it was.
    pub(super) fn look_if_due(&self, is_full: bool) -> Result<bool, Error> {
        let is_due = self.inner.room.seen().is_due(self.inner.world.clock.moment(), is_full);
        if is_due {
            self.look()?;
        }
        Ok(is_due)
    }

    /// The same of a cache of not more than about so many files. False: there are more.
    fn look_at(&self, files_max: u64) -> Result<bool, Error> {
        let clock = &self.inner.world.clock;
        let begun = clock.moment();
        let mut looking = Looking::default();
        let room = &self.inner.room;
        while self.look_at_page(&mut looking)? {
            if looking.rows >= files_max {
                if room.seen().last.is_none() {
                    // As much as is known.
                    room.files.fetch_max(looking.files, Ordering::Relaxed);
                }
                return Ok(false);
            }
        }
        let Looking { files, bytes, closed, large, .. } = looking;
        room.files.store(files, Ordering::Relaxed);
        room.bytes.store(bytes, Ordering::Relaxed);
        let now = clock.moment();
        let closed = closed.into_sorted_vec().into();
        *room.seen() = Seen { last: Some((now, now.since(begun))), closed, large };
        Ok(true)
    }

    /// False: there was nothing more to look at.
    fn look_at_page(&self, looking: &mut Looking) -> Result<bool, Error> {
        let read = self.inner.tables.read().map_err(error_of)?;
        let page = Presence::page(&*read, looking.after, PAGE_FILES).map_err(error_of)?;
        let Some((last, _)) = page.last() else { return Ok(false) };
        looking.after = Some(*last);
        looking.rows += page.len() as u64;
        let tree = Tree::new(&*read, 0);
        for (file, presence) in &page {
            if presence.dirty.is_some() {
                continue;
            }
            let gone = matches!(tree.node(*file), Ok(None));
            let holds_bytes = !presence.ranges.is_empty();
            if gone && self.known().gone(*file).is_none() {
                self.discard_if_unused(*file, presence, true);
            }
            if !holds_bytes {
                continue;
            }
            let one = Closed {
                used: self.last_used(presence),
                file: *file,
                bytes: self.bytes_here(*file, presence).map_err(error_of)?,
            };
            looking.files += 1;
            looking.bytes += one.bytes;
            let is_pending = self.core().log.pending_store(*file).is_some();
            if is_pending || self.files().is_open(*file) || self.is_pinned(&*read, *file)? {
                continue;
            }
            if self.is_large(presence) && looking.large.len() < LARGE_MAX {
                looking.large.insert(*file, one);
            }
            looking.close(one);
        }
        Ok(true)
    }

    /// For whoever has asked how much there is, and was not made to wait for it.
    pub(super) async fn look_aside(&self) {
        if !self.inner.room.seen().may_look_again(self.inner.world.clock.moment()) {
            return;
        }
        let client = self.clone();
        let looked = self.off_the_runtime(move || Ok(client.look())).await;
        if let Err(error) = looked.map_err(error_of).flatten() {
            tracing::warn!(%error, "the cache could not be measured");
        }
    }

    /// Files and bytes in the cache, as the last look at all of them and what came since say.
    /// None: there was no such look yet.
    pub(crate) fn held_if_known(&self) -> Option<(u64, u64)> {
        let room = &self.inner.room;
        room.seen().last?;
        let kept_aside = self.trash().bytes();
        let open = self.files();
        let written = open.written_bytes().ok()?;
        let files = room.files.load(Ordering::Relaxed) + open.written() as u64;
        Some((files, room.bytes() + written + kept_aside))
    }

    /// Files and bytes in the cache, with what is being written.
    pub(crate) fn held_now(&self) -> (u64, u64) {
        let now = self.inner.world.clock.moment();
        let room = &self.inner.room;
        let files = || room.files.load(Ordering::Relaxed);
        let look = room.seen().before_telling(now, files(), room.bytes());
        let is_known = match look {
            Look::No => Ok(true),
            Look::First => self.look_at(QUICK_FILES),
            Look::Beside => Ok(false),
        };
        match is_known {
            Ok(true) => {}
            Ok(false) => room.look_wanted.notify_one(),
            Err(error) => tracing::warn!(%error, "the cache could not be measured"),
        }
        let open = self.files();
        let written = open.written_bytes().unwrap_or_else(|error| {
            tracing::warn!(%error, "what is being written could not be measured");
            0
        });
        (files() + open.written() as u64, room.bytes() + written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use world::World;

    #[test]
    fn on_a_full_disk_of_which_nothing_can_leave_it_is_looked_again_sooner_and_not_all_the_time() {
        let now = World::simulated(0, 1).clock.moment();
        assert!(Seen::default().is_due(now, false));
        let took = Duration::from_secs(2);
        let nothing = Seen { last: Some((now, took)), ..Seen::default() };
        let soon = now + took * PRESSED_ONE_IN;
        assert!(!nothing.is_due(now + took, true) && nothing.is_due(soon, true));
        assert!(!nothing.is_due(soon, false) && nothing.is_due(now + took * LOOKED_ONE_IN, false));
        let one = Closed { used: 0, file: FileId(7), bytes: 1 };
        let some = Seen { closed: VecDeque::from([one]), ..nothing };
        assert!(!some.is_due(soon, true) && !some.is_due(now + LOOKED_FOR, true));
        assert!(some.is_due(now + took * LOOKED_ONE_IN, true));
    }

    #[test]
    fn who_asks_waits_for_a_look_at_few_files_and_for_none_at_many() {
        let now = World::simulated(0, 1).clock.moment();
        let never = Seen::default();
        assert_eq!(never.before_telling(now, 0, 0), Look::First);
        assert_eq!(never.before_telling(now, QUICK_FILES + 1, 9), Look::Beside);
        let took = Duration::from_secs(1);
        let seen = Seen { last: Some((now, took)), ..Seen::default() };
        let later = now + KNOWN_FOR;
        assert_eq!(seen.before_telling(later, 7, 9), Look::No, "it has just taken long");
        let later = now + took * LOOKED_ONE_IN;
        assert_eq!(seen.before_telling(later, QUICK_FILES, 9), Look::First);
        assert_eq!(seen.before_telling(later, QUICK_FILES + 1, 9), Look::Beside);
        let seen = Seen { last: Some((now, Duration::ZERO)), ..Seen::default() };
        assert_eq!(seen.before_telling(now, 7, 9), Look::No);
        assert_eq!(seen.before_telling(now, 0, 9), Look::First, "one has come since");
    }
}
