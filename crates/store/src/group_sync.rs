//! One sync for all who wait.
//! Holds: `upto` returns only when a sync that began after the wanted write has succeeded; once a
//! sync has failed, every later one fails, because the kernel then forgets which bytes it owes.

use crate::error::{Result, StoreError};
use crate::files::locked;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};

pub struct GroupSync {
    place: PathBuf,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    synced: u64,
    running: bool,
    failed: bool,
}

impl GroupSync {
    pub fn new(place: &Path, synced: u64) -> GroupSync {
        GroupSync {
            place: place.to_path_buf(),
            state: Mutex::new(State { synced, ..State::default() }),
            changed: Condvar::new(),
        }
    }

    /// Writes are counted; all up to this one are safe.
    pub fn synced(&self) -> u64 {
        locked(&self.state).synced
    }

    /// Safe by other means than `upto`.
    pub fn note(&self, synced: u64) {
        let mut state = locked(&self.state);
        state.synced = state.synced.max(synced);
    }

    /// A sync outside `upto` failed.
    pub fn note_failure(&self) {
        locked(&self.state).failed = true;
    }

    /// Returns when all writes up to `wanted` are safe. `sync` syncs and says how many writes had
    /// been made when it began; one caller runs it for all who wait.
    pub fn upto(&self, wanted: u64, sync: impl FnOnce() -> Result<u64>) -> Result<()> {
        let mut state = locked(&self.state);
        loop {
            if state.failed {
                return Err(self.failed_before());
            }
            if state.synced >= wanted {
                return Ok(());
            }
            if !state.running {
                break;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.running = true;
        drop(state);
        let outcome = sync();
        let mut state = locked(&self.state);
        state.running = false;
        match &outcome {
            Ok(synced) => state.synced = state.synced.max(*synced),
            Err(_) => state.failed = true,
        }
        self.changed.notify_all();
        outcome.map(|_| ())
    }

    fn failed_before(&self) -> StoreError {
        StoreError::Io {
            place: self.place.display().to_string(),
            source: std::io::Error::other(
                "an earlier sync failed, so what was written since may not be on the disk; \
                 check the disk and start farfs again",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn those_who_wait_share_one_sync() {
        let group = GroupSync::new(Path::new("x"), 0);
        let written = AtomicU64::new(0);
        let syncs = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let mine = written.fetch_add(1, Ordering::SeqCst) + 1;
                        group
                            .upto(mine, || {
                                let upto = written.load(Ordering::SeqCst);
                                syncs.fetch_add(1, Ordering::SeqCst);
                                std::thread::sleep(std::time::Duration::from_millis(1));
                                Ok(upto)
                            })
                            .unwrap();
                        assert!(group.synced() >= mine);
                    }
                });
            }
        });
        assert!(syncs.load(Ordering::SeqCst) < 160, "{syncs:?} syncs for 160 writes");
    }

    #[test]
    fn after_a_failed_sync_nothing_counts_as_safe() {
        let group = GroupSync::new(Path::new("x"), 0);
        assert!(group.upto(1, || Err(StoreError::Crashed)).is_err());
        assert!(group.upto(1, || Ok(1)).is_err());
    }
}
