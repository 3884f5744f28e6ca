//! Room that is kept aside on the disk of a server's data, for what frees more of it: on a disk
//! that is entirely full, deleting needs a little.
//! Holds: nobody else's work is ever done with it.

use crate::data::Data;
use anyhow::Result;
use replica::ReplicaError;
use rustix::fs::{CWD, FallocateFlags, Mode, OFlags};
use std::path::{Path, PathBuf};

const NAME: &str = "reserve";
/// The rows of many thousand chunks that go.
const BYTES: u64 = 4 << 20;
/// It is set aside where so many times as much is free: a small disk needs what it has.
const TIMES_FREE: u64 = 8;

/// The reserve of one data directory.
#[derive(Clone, Debug)]
pub struct Reserve(PathBuf);

impl Reserve {
    pub fn of(data: &Data) -> Reserve {
        Reserve(data.directory.join(NAME))
    }

    /// Sets it aside, if that was not done and there is room.
    pub fn keep(&self) {
        if let Err(error) = set_aside(&self.0) {
            tracing::debug!(path = %self.0.display(), %error, "no room is kept aside");
        }
    }

    /// Does what frees room: where there is none at all, with the reserve.
    pub fn free<T>(&self, work: impl Fn() -> Result<T>) -> Result<T> {
        let outcome = match work() {
            Err(error) if is_full(&error) && self.give_up() => {
                tracing::warn!("the disk is full: what is kept aside is used to free some of it");
                work()
            }
            outcome => outcome,
        };
        self.keep();
        outcome
    }

    fn give_up(&self) -> bool {
        std::fs::remove_file(&self.0).is_ok()
    }
}

fn set_aside(path: &Path) -> rustix::io::Result<()> {
    let there = rustix::fs::stat(path).is_ok_and(|stat| stat.st_size.unsigned_abs() >= BYTES);
    let disk = rustix::fs::statvfs(path.parent().unwrap_or(Path::new(".")))?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if there || free < BYTES * TIMES_FREE {
        return Ok(());
    }
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(CWD, path, flags, Mode::RUSR | Mode::WUSR)?;
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, BYTES)
}

fn is_full(error: &anyhow::Error) -> bool {
    let full = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<ReplicaError>().is_some_and(ReplicaError::is_full)
    };
    error.chain().any(full)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use store::StoreError;

    fn full() -> anyhow::Error {
        ReplicaError::from(StoreError::Full("tables".into())).into()
    }

    #[test]
    fn it_is_used_for_a_full_disk_and_set_aside_again() {
        let directory = tempfile::tempdir().unwrap();
        let reserve = Reserve(directory.path().join(NAME));
        reserve.keep();
        assert_eq!(reserve.0.metadata().unwrap().len(), BYTES);
        let tries = Cell::new(0);
        let outcome = reserve.free(|| {
            tries.set(tries.get() + 1);
            if reserve.0.exists() { Err(full()) } else { Ok(tries.get()) }
        });
        assert_eq!(outcome.unwrap(), 2);
        assert!(reserve.0.exists(), "there is room again");
    }

    #[test]
    fn it_is_not_used_for_what_fails_otherwise_and_tried_once() {
        let directory = tempfile::tempdir().unwrap();
        let reserve = Reserve(directory.path().join(NAME));
        reserve.keep();
        let tries = Cell::new(0);
        let fails = |with: fn() -> anyhow::Error| {
            tries.set(0);
            let outcome: Result<()> = reserve.free(|| {
                tries.set(tries.get() + 1);
                Err(with())
            });
            assert!(outcome.is_err());
            tries.get()
        };
        assert_eq!(fails(|| anyhow::anyhow!("something else")), 1);
        assert_eq!(fails(full), 2);
    }
}
