//! Writes that programs are told of as done in the kernel's cache, and that have not come to the
//! container yet.
//! Holds: what fills the kernel's cache from a container has in it the writes that were taken before:
//! if the kernel drops a page whose write is on its way, it does not read it as it was before.

use model::FileId;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

/// Few files share a lock: one that is written to while it is stored holds up who reads the other.
const LOCKS: usize = 4096;

pub(crate) struct Landing(Box<[RwLock<()>]>);

impl Default for Landing {
    fn default() -> Landing {
        Landing((0..LOCKS).map(|_| RwLock::default()).collect())
    }
}

impl Landing {
    fn of(&self, file: FileId) -> &RwLock<()> {
        &self.0[(file.0 % LOCKS as u64) as usize]
    }

    /// A write was taken, and has landed when this is dropped.
    pub fn write(&self, file: FileId) -> RwLockReadGuard<'_, ()> {
        self.of(file).read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the writes have landed that were taken before.
    pub fn have_landed(&self, file: FileId) {
        drop(self.of(file).write().unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::time::Duration;

    #[test]
    fn who_reads_waits_for_the_writes_of_that_file_that_came_before() {
        let (landing, (sender, read)) = (Landing::default(), channel());
        std::thread::scope(|scope| {
            let (one, other) = (landing.write(FileId(5)), landing.write(FileId(5)));
            landing.have_landed(FileId(6));
            scope.spawn(|| {
                landing.have_landed(FileId(5));
                sender.send(()).unwrap();
            });
            drop(one);
            let soon = Duration::from_millis(50);
            assert_eq!(read.recv_timeout(soon), Err(RecvTimeoutError::Timeout));
            drop(other);
            read.recv().unwrap();
        });
    }
}
