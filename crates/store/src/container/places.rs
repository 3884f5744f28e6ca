//! How many containers may be open at once: each takes a descriptor of this process.
//! Holds: who opens files leaves as many descriptors as it takes to go on with those that are open,
//! which is to write to them, sync, fetch and send them, and to say how it goes when asked.

use crate::files::descriptors_max;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Descriptors that are taken for a moment, at the same time at most: two each (a container and its
/// copy, or the directory of one that is synced) for eight calls of programs and eight tasks, or in
/// their place those who ask how it goes.
const FOR_A_MOMENT: u64 = 32;
/// All that a process may have besides containers that stay open, with those for a moment: the
/// kernel's device twice for each of eight threads, seventeen segments of the log, sixteen who ask,
/// and some thirty files, sockets and the like.
const BESIDES_MAX: u64 = 128;
/// Under a higher limit nothing is counted: there `BESIDES_MAX` is little.
const COUNTED_MAX: u64 = 4096;

const DESCRIPTORS: &str = "/proc/self/fd";

/// The containers that are open.
#[derive(Debug, Default)]
pub struct Places(Arc<AtomicU64>);

/// One that is open, while it lives.
#[derive(Debug)]
pub struct Place(Arc<AtomicU64>);

impl Places {
    pub fn take(&self) -> Place {
        self.0.fetch_add(1, Ordering::AcqRel);
        Place(Arc::clone(&self.0))
    }

    /// Whether one more may be opened to stay open.
    pub fn is_any(&self) -> bool {
        is_any(descriptors_max(), self.0.load(Ordering::Acquire), || in_use(Path::new(DESCRIPTORS)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Of the descriptors that may be had, containers have `open`, and all together `in_use`, if that can
/// be told: if not, it shows when it is opened.
fn is_any(limit: u64, open: u64, in_use: impl FnOnce() -> Option<u64>) -> bool {
    if limit.saturating_sub(open) > BESIDES_MAX {
        return true;
    }
    if limit > COUNTED_MAX {
        return false;
    }
    let Some(in_use) = in_use() else { return true };
    let own = in_use.saturating_sub(open);
    // Where there are very few, programs get half of them.
    let kept = FOR_A_MOMENT.min(limit.saturating_sub(own) / 2);
    in_use + kept < limit
}

/// The kernel says it as the directory's size, since Linux 6.2.
fn in_use(descriptors: &Path) -> Option<u64> {
    match std::fs::metadata(descriptors).ok()?.len() {
        0 => listed(descriptors),
        count => Some(count),
    }
}

fn listed(descriptors: &Path) -> Option<u64> {
    // With the one through which they are listed.
    match std::fs::read_dir(descriptors) {
        Ok(entries) => Some((entries.count() as u64).saturating_sub(1)),
        Err(error) if error.raw_os_error() == Some(libc::EMFILE) => Some(u64::MAX >> 1),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With so many of this process's own, how many can be opened.
    fn opened(limit: u64, own: u64) -> u64 {
        (0..limit).find(|open| !is_any(limit, *open, || Some(own + open))).unwrap_or(limit)
    }

    #[test]
    fn descriptors_are_left_for_what_is_open_and_where_there_are_few_half_of_them() {
        assert_eq!(opened(1024, 22), 1024 - 22 - FOR_A_MOMENT);
        assert_eq!(opened(256, 34), 256 - 34 - FOR_A_MOMENT);
        assert_eq!(opened(64, 22), 21);
        assert_eq!(opened(40, 34), 3);
        assert_eq!(opened(20, 22), 0);
        assert_eq!(opened(1 << 20, 22), (1 << 20) - BESIDES_MAX);
    }

    #[test]
    fn nothing_is_counted_where_there_are_many_and_nothing_refused_that_cannot_be_counted() {
        let counts = || unreachable!("it takes long");
        assert!(is_any(1024, 800, counts) && is_any(1 << 20, 1 << 19, counts));
        assert!(!is_any(1 << 20, (1 << 20) - 1, counts));
        assert!(is_any(64, 60, || None));
    }

    #[test]
    fn descriptors_are_counted_the_same_in_both_ways() {
        let own = Path::new(DESCRIPTORS);
        // Other tests open and close some meanwhile.
        let is_same = || listed(own).is_some_and(|listed| in_use(own) == Some(listed));
        assert!((0..10_000).any(|_| is_same()));
        assert_eq!(in_use(Path::new("/nowhere")), None);
    }

    #[test]
    fn a_container_has_its_place_for_as_long_as_it_is_open() {
        let places = Places::default();
        let two = [places.take(), places.take()];
        assert_eq!(places.0.load(Ordering::Acquire), 2);
        drop(two);
        assert_eq!(places.0.load(Ordering::Acquire), 0);
        assert!(places.is_any());
    }
}
