//! What may have changed in a tree and has not been looked at, and when it may be.

use model::{FileId, Name, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use world::Moment;

/// A file system's clock moves in steps; what changes twice within one looks the same.
const STEP: Duration = Duration::from_millis(50);
/// Where it tells whole seconds, or, as FAT, every other.
const STEP_OF_SECONDS: Duration = Duration::from_millis(2050);
/// A file that nobody is known to have closed counts as whole after so long without a change.
const QUIET: Duration = Duration::from_secs(2);
/// A file that is written to without end is taken in so often.
const WRITING_MAX: Duration = Duration::from_secs(10);
/// Names that are noted one by one; beyond, everything is looked at.
const NAMES_MAX: usize = 100_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Since {
    /// When it was first noted.
    pub at: Moment,
    /// Whoever wrote it has closed it.
    pub whole: bool,
    /// Not to be looked at before.
    pub due: Moment,
}

#[derive(Debug, Default)]
pub(super) struct Dirt {
    names: BTreeMap<(FileId, Name), Since>,
    /// Directories whose names have to be listed.
    pub lists: BTreeSet<FileId>,
    /// Too much was noted, or something was lost.
    pub everything: bool,
}

impl Dirt {
    pub fn note(&mut self, directory: FileId, name: Name, whole: bool, now: Moment) {
        if self.names.len() >= NAMES_MAX {
            self.everything = true;
            self.names.clear();
        }
        let fresh = Since { at: now, whole, due: now };
        let since = self.names.entry((directory, name)).or_insert(fresh);
        since.whole |= whole;
        since.due = now;
    }

    /// It cannot be taken in before `due`; what is known of it stays.
    pub fn wait(&mut self, directory: FileId, name: Name, since: Since, due: Moment) {
        let waiting = Since { due, ..since };
        let noted = self.names.entry((directory, name)).or_insert(waiting);
        noted.at = noted.at.min(since.at);
    }

    /// What can be looked at now.
    pub fn take(&mut self, now: Moment) -> Vec<((FileId, Name), Since)> {
        let due: Vec<_> = self
            .names
            .iter()
            .filter(|(_, since)| since.due <= now)
            .map(|(at, _)| at.clone())
            .collect();
        let taken =
            due.into_iter().filter_map(|at| self.names.remove(&at).map(|since| (at, since)));
        taken.collect()
    }

    /// When there is something to look at.
    pub fn next(&self) -> Option<Moment> {
        self.names.values().map(|since| since.due).min()
    }

    pub fn is_clean(&self) -> bool {
        self.names.is_empty() && self.lists.is_empty() && !self.everything
    }
}

/// How much longer a file must be left alone that was last changed at `ctime`; none: it can be
/// taken in now.
pub(super) fn rest(ctime: Time, now: Time, whole: bool, noted_for: Duration) -> Option<Duration> {
    let nanos = |time: Time| i128::from(time.secs) * 1_000_000_000 + i128::from(time.nanos);
    // A clock that was set back says nothing.
    let Ok(age) = u64::try_from(nanos(now) - nanos(ctime)) else { return None };
    let age = Duration::from_nanos(age);
    let step = if tells_seconds(ctime) { STEP_OF_SECONDS } else { STEP };
    let wanted = if whole || noted_for >= WRITING_MAX { step } else { QUIET.max(step) };
    if age >= wanted || (noted_for >= WRITING_MAX + QUIET) {
        return None;
    }
    Some(wanted - age)
}

/// A time of a file system that tells whole seconds, for all that can be seen: ext4 with inodes of
/// 128 bytes, FAT.
fn tells_seconds(time: Time) -> bool {
    time.nanos == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time { secs: 1000, nanos: 500 };

    fn ago(millis: u32) -> Time {
        Time {
            secs: 999 - i64::from(millis / 1000),
            nanos: 1_000_000_500 - millis % 1000 * 1_000_000 - 1,
        }
    }

    #[test]
    fn a_closed_file_is_taken_in_at_once_and_an_open_one_when_it_rests() {
        let none = Duration::ZERO;
        assert_eq!(rest(ago(60), NOW, true, none), None);
        assert!(rest(ago(10), NOW, true, none).is_some_and(|left| left <= STEP));
        assert!(rest(ago(60), NOW, false, none).is_some_and(|left| left > STEP));
        assert_eq!(rest(ago(3000), NOW, false, none), None);
    }

    #[test]
    fn a_file_that_is_always_written_to_is_taken_in_in_the_end() {
        assert_eq!(rest(ago(60), NOW, false, WRITING_MAX), None);
        assert_eq!(rest(ago(1), NOW, false, WRITING_MAX + QUIET), None);
    }

    #[test]
    fn where_times_are_whole_seconds_a_closed_file_rests_until_a_change_would_be_seen() {
        let rests = |secs| rest(Time { secs, nanos: 0 }, NOW, true, Duration::ZERO);
        assert!(rests(1000).is_some_and(|left| left > Duration::from_secs(2)));
        assert!(rests(998).is_some_and(|left| left <= STEP));
        assert_eq!(rests(997), None);
    }

    #[test]
    fn a_time_to_come_holds_nothing_up() {
        assert_eq!(rest(Time { secs: 2000, nanos: 0 }, NOW, false, Duration::ZERO), None);
    }
}
