//! Listings that the kernel keeps for longer than what it was told with them.
//!
//! The kernel lists a directory that it has listed before by itself, for as long as it likes; what
//! it was told of the files in it counts until the lease ends. Whoever lists it after that and looks
//! at the files has it ask for each of them, one after the other. So it is had to forget the listing
//! then, and asks once for all.
//! Holds: each listing is forgotten once, when what came with it has lost its worth.
//! Never: tells the kernel anything on a thread that answers requests.

use fuse::{INodeNo, Notifier};
use model::FileId;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Answers that a listing took, from which on it stays: the kernel lists such a directory far quicker
/// by itself, and who looks at each of so many files has to wait anyway.
const ANSWERS_MAX: u32 = 64;
/// Directories that are remembered. In others the kernel asks for each file.
const DIRECTORIES_MAX: usize = 65_536;

#[derive(Clone, Copy)]
struct Listing {
    /// What the kernel was told with it counts until then.
    until: Instant,
    answers: u32,
}

/// What the kernel keeps, the first to be forgotten first.
#[derive(Default)]
struct Kept {
    by_directory: HashMap<FileId, Listing>,
    /// Each directory once; it may have been listed again since.
    order: VecDeque<(Instant, FileId)>,
    closed: bool,
}

impl Kept {
    /// An answer with a part of a listing. `begins`: the first of it.
    fn note(&mut self, directory: FileId, begins: bool, until: Instant) {
        if !begins {
            if let Some(listing) = self.by_directory.get_mut(&directory) {
                listing.answers = listing.answers.saturating_add(1);
            }
            return;
        }
        if self.by_directory.len() >= DIRECTORIES_MAX && !self.by_directory.contains_key(&directory)
        {
            return;
        }
        if self.by_directory.insert(directory, Listing { until, answers: 1 }).is_none() {
            self.order.push_back((until, directory));
        }
    }

    /// A directory whose listing is to be forgotten by now.
    fn take(&mut self, now: Instant) -> Option<FileId> {
        while let Some((_, directory)) = self.order.pop_front_if(|(until, _)| *until <= now) {
            let Some(listing) = self.by_directory.get(&directory).copied() else { continue };
            if listing.until > now {
                self.order.push_back((listing.until, directory));
                continue;
            }
            self.by_directory.remove(&directory);
            if listing.answers <= ANSWERS_MAX {
                return Some(directory);
            }
        }
        None
    }

    fn next(&self) -> Option<Instant> {
        self.order.front().map(|(until, _)| *until)
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
    pub(crate) fn note(&self, directory: FileId, begins: bool, keep: Duration) {
        let Some(until) = Instant::now().checked_add(keep) else { return };
        let mut kept = self.0.kept();
        let slept = kept.order.is_empty();
        kept.note(directory, begins, until);
        drop(kept);
        if slept {
            self.0.changed.notify_one();
        }
    }

    /// Has the kernel forget, on a thread of its own, until it is closed.
    pub(crate) fn start(&self, notifier: Notifier) -> io::Result<()> {
        let listings = self.clone();
        let thread = std::thread::Builder::new().name("farfs-listings".into());
        thread.spawn(move || {
            while let Some(directory) = listings.wait() {
                if let Err(error) = notifier.forget_inode(INodeNo(directory.0), true) {
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

    #[test]
    fn a_listing_is_forgotten_once_when_what_came_with_it_is_old() {
        let (mut kept, begun) = (Kept::default(), Instant::now());
        kept.note(FileId(7), true, begun + 3 * SECOND);
        kept.note(FileId(8), true, begun + 4 * SECOND);
        kept.note(FileId(7), false, begun + 3 * SECOND);
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
        kept.note(FileId(7), true, begun + SECOND);
        kept.note(FileId(7), true, begun + 5 * SECOND);
        assert_eq!(kept.take(begun + 2 * SECOND), None);
        assert_eq!(kept.take(begun + 5 * SECOND), Some(FileId(7)));
        assert_eq!(kept.take(begun + 9 * SECOND), None);
    }

    #[test]
    fn a_long_listing_stays_and_so_many_are_remembered() {
        let (mut kept, now) = (Kept::default(), Instant::now());
        for part in 0..=ANSWERS_MAX {
            kept.note(FileId(7), part == 0, now);
        }
        assert_eq!((kept.take(now), kept.next()), (None, None));
        for directory in 0..DIRECTORIES_MAX as u64 + 5 {
            kept.note(FileId(directory), true, now);
        }
        assert_eq!(kept.by_directory.len(), DIRECTORIES_MAX);
        let taken = std::iter::from_fn(|| kept.take(now)).count();
        assert_eq!(taken, DIRECTORIES_MAX);
    }
}
