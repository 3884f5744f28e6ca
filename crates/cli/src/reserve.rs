//! Room that is kept aside on the disk of a server's data, for what frees more of it: on a disk
//! that is entirely full, deleting needs a little.
//! Holds: it is used for what frees room, and to let in who may do that.

use anyhow::Result;
use replica::ReplicaError;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use store::reserve::{FileReserve, Portion};
use store::{Reserve as _, StoreError};

pub const NAME: &str = "reserve";
/// The rows of many thousand chunks that go.
const PORTION: Portion = Portion { bytes: 4 << 20, one_in: 6 };

/// The reserve of one data directory.
#[derive(Clone, Debug)]
pub struct Reserve(Arc<FileReserve>);

impl Reserve {
    pub fn of(directory: &Path) -> Reserve {
        Reserve(Arc::new(FileReserve::at(&directory.join(NAME), PORTION)))
    }

    /// Sets it aside, if that was not done and there is room.
    pub fn keep(&self) {
        self.0.take_back();
    }

    /// For the origin, which lets devices in with it, and removes what they remove.
    pub fn shared(&self) -> Arc<dyn store::Reserve> {
        self.0.clone()
    }

    /// Does what frees room: where there is none at all, with the reserve.
    pub fn free<T>(&self, work: impl Fn() -> Result<T>) -> Result<T> {
        let outcome = match work() {
            Err(error) if is_full(&error) && self.0.give_up() => work(),
            outcome => outcome,
        };
        self.keep();
        outcome
    }
}

fn is_full(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let of_replica = cause.downcast_ref::<ReplicaError>().is_some_and(ReplicaError::is_full);
        let of_store = matches!(cause.downcast_ref::<StoreError>(), Some(StoreError::Full(_)));
        let of_system = cause.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        of_replica || of_store || of_system == Some(ErrorKind::StorageFull)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn full() -> anyhow::Error {
        ReplicaError::from(StoreError::Full("tables".into())).into()
    }

    #[test]
    fn whatever_has_no_room_is_known_by_its_cause() {
        let io = std::io::Error::from(ErrorKind::StorageFull);
        for error in [full(), StoreError::Full("tables".into()).into(), io.into()] {
            assert!(is_full(&error) && is_full(&error.context("cannot open the store")));
        }
        assert!(!is_full(&std::io::Error::from(ErrorKind::NotFound).into()));
    }

    #[test]
    fn it_is_used_for_a_full_disk_and_set_aside_again() {
        let directory = tempfile::tempdir().unwrap();
        let (reserve, path) = (Reserve::of(directory.path()), directory.path().join(NAME));
        reserve.keep();
        assert_eq!(path.metadata().unwrap().len(), PORTION.bytes);
        let tries = Cell::new(0);
        let outcome = reserve.free(|| {
            tries.set(tries.get() + 1);
            if path.exists() { Err(full()) } else { Ok(tries.get()) }
        });
        assert_eq!(outcome.unwrap(), 2);
        assert!(path.exists(), "there is room again");
    }

    #[test]
    fn it_is_not_used_for_what_fails_otherwise_and_tried_once() {
        let directory = tempfile::tempdir().unwrap();
        let reserve = Reserve::of(directory.path());
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
