//! Names of which the kernel was told that nothing bears them, for as long as it keeps that.
//! Holds: as many as `ABSENT_MAX` of them, and the latest; its time-outs stand still in suspend as
//! these do.

use model::{FileId, Name};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const ABSENT_MAX: usize = 8192;

#[derive(Clone, Debug, Default)]
pub(crate) struct Absent(Arc<Mutex<VecDeque<(Instant, FileId, Name)>>>);

impl Absent {
    /// Before the kernel is told, which keeps it for so long.
    pub(crate) fn add(&self, directory: FileId, name: &Name, keep: Duration, now: Instant) {
        if keep.is_zero() {
            return;
        }
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while names.front().is_some_and(|(until, ..)| *until <= now) || names.len() >= ABSENT_MAX {
            names.pop_front();
        }
        names.push_back((now + keep, directory, name.clone()));
    }

    pub(crate) fn take(&self) -> impl Iterator<Item = (FileId, Name)> {
        let names = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        names.into_iter().map(|(_, directory, name)| (directory, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: Duration = Duration::from_secs(20);

    #[test]
    fn what_the_kernel_keeps_is_remembered_and_nothing_else() {
        let (absent, now) = (Absent::default(), Instant::now());
        let name = |number: usize| Name::new(number.to_string()).unwrap();
        let add = |number, keep, now| absent.add(FileId(7), &name(number), keep, now);
        add(1, KEPT, now);
        add(2, Duration::ZERO, now);
        add(3, KEPT, now + KEPT / 2);
        add(4, KEPT, now + KEPT);
        let taken: Vec<_> = absent.take().collect();
        assert_eq!(taken, [3, 4].map(|number| (FileId(7), name(number))));
        for number in 0..ABSENT_MAX + 5 {
            add(number, KEPT, now);
        }
        assert_eq!(absent.take().next(), Some((FileId(7), name(5))));
        assert_eq!(absent.take().count(), 0);
    }
}
