//! Listings that the kernel keeps for longer than what it was told with them.
//!
//! The kernel lists a directory that it has listed before by itself, for as long as it likes; what
//! it was told of the files in it counts until the lease ends. Whoever lists it after that and looks
//! at the files has it ask for each of them, one after the other. So it is had to forget the listing
//! then, and asks once for all.
//!
//! It also takes a directory's time of access to have moved whenever it was told a listing, and asks
//! for the directory when that is looked at next. Where most of what is in a directory are such, it
//! is had to forget the listing above them, and is told of all of them with that.
//! Holds: each listing is forgotten once, when what came with it has lost its worth.
//! Never: tells the kernel anything on a thread that answers requests.

use fuse::{INodeNo, Notifier};
use model::FileId;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Answers that a listing took, from which on it stays: the kernel lists such a directory far quicker
/// by itself, and who looks at each of so many files has to wait anyway.
const ANSWERS_MAX: u32 = 64;
/// Directories that are remembered. In others the kernel asks for each file.
const DIRECTORIES_MAX: usize = 65_536;
/// Directories in one that were listed, from which on it costs more to be asked for each than for
/// all that is there: a listing takes two answers, and the attributes of its own directory another.
const BELOW_MIN: u32 = 8;

/// A part of a listing, as the kernel is told it.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub(crate) directory: FileId,
    /// Of the first part: the directory above.
    pub(crate) begins_in: Option<FileId>,
    pub(crate) rows: usize,
}

#[derive(Clone, Copy)]
struct Listing {
    /// What the kernel was told with it counts until then.
    until: Instant,
    answers: u32,
    rows: usize,
    /// Directories in it that were listed since.
    below: u32,
}

impl Listing {
    /// Whether telling it again takes less than telling of each of the directories in it.
    fn is_overtaken(&self) -> bool {
        self.below >= BELOW_MIN && self.below as usize >= self.rows.div_ceil(2)
    }
}

/// What the kernel keeps, the first to be forgotten first.
#[derive(Default)]
struct Kept {
    by_directory: HashMap<FileId, Listing>,
    /// Each directory once.
    order: BTreeSet<(Instant, FileId)>,
    closed: bool,
}

impl Kept {
    /// An answer with a part of a listing.
    fn note(&mut self, part: Part, now: Instant, until: Instant) {
        let Part { directory, begins_in, rows } = part;
        let Some(above) = begins_in else {
            if let Some(listing) = self.by_directory.get_mut(&directory) {
                listing.answers = listing.answers.saturating_add(1);
                listing.rows = listing.rows.saturating_add(rows);
            }
            return;
        };
        if above != directory {
            self.note_below(above, now);
        }
        if self.by_directory.len() < DIRECTORIES_MAX || self.by_directory.contains_key(&directory) {
            self.keep(directory, Listing { until, answers: 1, rows, below: 0 });
        }
    }

    /// A directory in this one is being listed.
    fn note_below(&mut self, directory: FileId, now: Instant) {
        let Some(listing) = self.by_directory.get(&directory) else { return };
        let below = listing.below.saturating_add(1);
        let listing = Listing { below, ..*listing };
        let until = if listing.is_overtaken() { listing.until.min(now) } else { listing.until };
        self.keep(directory, Listing { until, ..listing });
    }

    fn keep(&mut self, directory: FileId, listing: Listing) {
        if let Some(before) = self.by_directory.insert(directory, listing) {
            self.order.remove(&(before.until, directory));
        }
        self.order.insert((listing.until, directory));
    }

    /// A directory whose listing is to be forgotten by now.
    fn take(&mut self, now: Instant) -> Option<FileId> {
        while let Some(&(until, directory)) = self.order.first()
            && until <= now
        {
            self.order.pop_first();
            let listing = self.by_directory.remove(&directory);
            if listing.is_some_and(|listing| listing.answers <= ANSWERS_MAX) {
                return Some(directory);
            }
        }
        None
    }

    fn next(&self) -> Option<Instant> {
        self.order.first().map(|(until, _)| *until)
    }
}

#[derive(Default)]
struct Shared {
    kept: Mutex<Kept>,
    changed: Condvar,
}

impl Shared {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone, Default)]
pub(crate) struct Listings(Arc<Shared>);

impl Listings {
    /// The kernel is told a part of a listing, with files of which it may believe what it is told
    /// for so long.
    pub(crate) fn note(&self, part: Part, keep: Duration) {
        let now = Instant::now();
        let Some(until) = now.checked_add(keep) else { return };
        let mut kept = self.0.kept();
        let before = kept.next();
        kept.note(part, now, until);
        let sooner = kept.next().is_some_and(|next| before.is_none_or(|before| next < before));
        drop(kept);
        if sooner {
            self.0.changed.notify_one();
        }
    }

    /// Has the kernel forget, on a thread of its own, until it is closed.
    pub(crate) fn start(&self, notifier: Notifier) -> io::Result<()> {
        let listings = self.clone();
        let thread = std::thread::Builder::new().name("farfs-listings".into());
        thread.spawn(move || {
            while let Some(directory) = listings.wait() {
                if let Err(error) = notifier.forget_inode(INodeNo(directory.0), Some(0)) {
                    tracing::debug!(%directory, %error, "the kernel keeps its listing");
                }
            }
        })?;
        Ok(())
    }

    /// Lets the thread and the device go.
    pub(crate) fn close(&self) {
        *self.0.kept() = Kept { closed: true, ..Kept::default() };
        self.0.changed.notify_all();
    }

    /// The next directory whose listing is to be forgotten. None: there will be none.
    fn wait(&self) -> Option<FileId> {
        let mut kept = self.0.kept();
        loop {
            if kept.closed {
                return None;
            }
            let now = Instant::now();
            if let Some(directory) = kept.take(now) {
                return Some(directory);
            }
            let waiting = match kept.next() {
                Some(until) => self
                    .0
                    .changed
                    .wait_timeout(kept, until.saturating_duration_since(now))
                    .map(|(kept, _)| kept)
                    .map_err(|poisoned| poisoned.into_inner().0),
                None => self.0.changed.wait(kept).map_err(PoisonError::into_inner),
            };
            kept = waiting.unwrap_or_else(|kept| kept);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    impl Kept {
        /// Told at once; what was told counts until then.
        fn listed(&mut self, directory: u64, until: Instant) {
            let begins_in = Some(FileId::ROOT);
            let part = Part { directory: FileId(directory), begins_in, rows: 5 };
            self.note(part, until, until);
        }
    }

    #[test]
    fn a_listing_is_forgotten_once_when_what_came_with_it_is_old() {
        let (mut kept, begun) = (Kept::default(), Instant::now());
        kept.listed(7, begun + 3 * SECOND);
        kept.listed(8, begun + 4 * SECOND);
        let more = Part { directory: FileId(7), begins_in: None, rows: 5 };
        kept.note(more, begun, begun + 9 * SECOND);
        assert_eq!(kept.take(begun + 2 * SECOND), None);
        assert_eq!(kept.take(begun + 3 * SECOND), Some(FileId(7)));
        assert_eq!(kept.take(begun + 3 * SECOND), None);
        assert_eq!(kept.next(), Some(begun + 4 * SECOND));
        assert_eq!(kept.take(begun + 9 * SECOND), Some(FileId(8)));
        assert_eq!((kept.take(begun + 9 * SECOND), kept.next()), (None, None));
    }

    #[test]
    fn what_was_listed_again_is_forgotten_later() {
        let (mut kept, begun) = (Kept::default(), Instant::now());
        kept.listed(7, begun + SECOND);
        kept.listed(7, begun + 5 * SECOND);
        assert_eq!(kept.take(begun + 2 * SECOND), None);
        assert_eq!(kept.take(begun + 5 * SECOND), Some(FileId(7)));
        assert_eq!(kept.take(begun + 9 * SECOND), None);
    }

    #[test]
    fn a_long_listing_stays_and_so_many_are_remembered() {
        let (mut kept, now) = (Kept::default(), Instant::now());
        kept.listed(7, now);
        for _ in 0..ANSWERS_MAX {
            kept.note(Part { directory: FileId(7), begins_in: None, rows: 5 }, now, now);
        }
        assert_eq!((kept.take(now), kept.next()), (None, None));
        for directory in 0..DIRECTORIES_MAX as u64 + 5 {
            kept.listed(directory + 10, now);
        }
        assert_eq!(kept.by_directory.len(), DIRECTORIES_MAX);
        let taken = std::iter::from_fn(|| kept.take(now)).count();
        assert_eq!(taken, DIRECTORIES_MAX);
    }

    /// Lists a directory of `rows`, then so many in it. Says after how many of them the kernel is to
    /// forget the one above.
    fn forgotten_after(rows: usize, below: u64) -> Option<u64> {
        let (mut kept, now) = (Kept::default(), Instant::now());
        let (above, until) = (FileId(7), now + 25 * SECOND);
        kept.note(Part { directory: above, begins_in: Some(above), rows }, now, until);
        let mut taken = (1..=below).map(|number| {
            let directory = FileId(100 + number);
            kept.note(Part { directory, begins_in: Some(above), rows: 3 }, now, until);
            (number, kept.take(now))
        });
        let forgotten = taken.find(|(_, taken)| *taken == Some(above));
        assert!(taken.all(|(_, taken)| taken.is_none()), "it is forgotten once");
        forgotten.map(|(number, _)| number)
    }

    #[test]
    fn what_holds_directories_is_forgotten_once_most_of_them_were_listed() {
        assert_eq!(forgotten_after(100, 80), Some(50));
        assert_eq!(forgotten_after(201, 100), None);
        assert_eq!(forgotten_after(9, 9), Some(BELOW_MIN.into()));
    }
}
