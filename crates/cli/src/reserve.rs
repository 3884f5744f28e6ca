//! Room that is kept aside on the disk of a server's data, for what frees more of it: on a disk
//! that is entirely full, deleting needs a little.
//! Holds: it is used for what frees room, and to let in who may do that; what devices remove leaves
//! alone what tidying up needs; while any of it is used, nothing is added to the store.

use anyhow::Result;
use client::ClientError;
use replica::ReplicaError;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use store::reserve::{FileReserve, Portion, disk_bytes, tidying_bytes};
use store::{Reserve as _, StoreError};

pub const NAME: &str = "reserve";
pub const TIDYING_NAME: &str = "reserve.tidying";
/// The rows of many thousand files that go.
const PORTION: Portion = Portion { bytes: 4 << 20, one_in: 6 };

/// The reserve of one data directory.
#[derive(Clone, Debug)]
pub struct Reserve(Arc<Both>);

#[derive(Debug)]
struct Both {
    /// For devices: what they remove, and to let them in.
    devices: FileReserve,
    /// For who orders the server to make room.
    tidying: FileReserve,
    /// Orders under way that use what there is of both.
    orders: AtomicUsize,
    /// One of them at a time.
    using: Mutex<()>,
}

impl Reserve {
    pub fn of(directory: &Path) -> Reserve {
        let total = disk_bytes(directory).unwrap_or(0);
        let tidying = Portion { bytes: tidying_bytes(total), ..PORTION };
        Reserve(Arc::new(Both {
            devices: FileReserve::at(&directory.join(NAME), PORTION),
            tidying: FileReserve::at(&directory.join(TIDYING_NAME), tidying),
            orders: AtomicUsize::new(0),
            using: Mutex::default(),
        }))
    }

    /// Sets it aside, if that was not done and there is room.
    pub fn keep(&self) {
        self.0.take_back();
    }

    /// For the origin, which lets devices in with it, and removes what they remove.
    pub fn shared(&self) -> Arc<dyn store::Reserve> {
        self.0.clone()
    }

    /// Does what frees room, and sets aside again what may be.
    pub fn free<T>(&self, work: impl Fn() -> Result<T>) -> Result<T> {
        let outcome = self.with_room(work);
        self.keep();
        outcome
    }

    /// Where there is no room at all, does it with what is kept aside for tidying up, and where that
    /// is not enough, with what is kept aside for devices. What it leaves of that is set aside again.
    pub fn with_room<T>(&self, work: impl Fn() -> Result<T>) -> Result<T> {
        let mut outcome = work();
        if outcome.as_ref().is_err_and(is_full) {
            let _one = self.0.using.lock().unwrap_or_else(PoisonError::into_inner);
            self.0.orders.fetch_add(1, Ordering::AcqRel);
            for reserve in [&self.0.tidying, &self.0.devices] {
                if outcome.as_ref().is_err_and(is_full) && reserve.give_up() {
                    outcome = work();
                }
            }
            self.0.orders.fetch_sub(1, Ordering::AcqRel);
            self.keep();
        }
        outcome
    }
}

impl Both {
    fn is_used(&self) -> bool {
        self.orders.load(Ordering::Acquire) > 0
    }
}

impl store::Reserve for Both {
    fn is_kept(&self) -> bool {
        !self.is_used() && self.devices.is_kept() && self.tidying.is_kept()
    }

    fn lend(&self) {
        self.devices.lend();
    }

    fn take_back(&self) {
        if !self.is_used() {
            self.tidying.take_back();
            self.devices.take_back();
        }
    }
}

/// Whether it is a disk without room that is in the way.
pub fn is_full(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let of_replica = cause.downcast_ref::<ReplicaError>().is_some_and(ReplicaError::is_full);
        let of_client = cause.downcast_ref::<ClientError>().is_some_and(ClientError::is_full);
        let of_store = matches!(cause.downcast_ref::<StoreError>(), Some(StoreError::Full(_)));
        let of_system = cause.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        of_replica || of_client || of_store || of_system == Some(ErrorKind::StorageFull)
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
    fn it_is_used_for_a_full_disk_a_part_at_a_time_and_set_aside_again() {
        let directory = tempfile::tempdir().unwrap();
        let reserve = Reserve::of(directory.path());
        let (devices, tidying) = (directory.path().join(NAME), directory.path().join(TIDYING_NAME));
        reserve.keep();
        assert_eq!(devices.metadata().unwrap().len(), PORTION.bytes);
        for enough in [&tidying, &devices] {
            let tries = Cell::new(0);
            let outcome = reserve.free(|| {
                tries.set(tries.get() + 1);
                assert_eq!(
                    reserve.shared().is_kept(),
                    tries.get() == 1,
                    "in use from the second on"
                );
                if enough.exists() { Err(full()) } else { Ok(tries.get()) }
            });
            assert_eq!(outcome.unwrap(), if enough == &tidying { 2 } else { 3 });
            assert!(devices.exists() && tidying.exists(), "there is room again");
            assert!(reserve.shared().is_kept());
        }
    }

    #[test]
    fn what_devices_remove_leaves_alone_what_tidying_up_needs() {
        let directory = tempfile::tempdir().unwrap();
        let reserve = Reserve::of(directory.path());
        reserve.keep();
        assert!(reserve.0.devices.give_up());
        assert!(directory.path().join(TIDYING_NAME).exists());
        reserve.shared().take_back();
        assert!(directory.path().join(NAME).exists());
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
        assert_eq!(fails(full), 3);
    }
}
