//! Room that is kept aside on the disk of an origin.
//! Holds: it is used where there is none besides, and for nothing but what lets somebody in, or
//! removes something; what adds to the store begins only while it is whole, and none of it is used.

use crate::error::Result;
use crate::origin::Inner;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, TryLockError};
use store::{Reserve, StoreError};

/// What is full, in the words of an error.
const PLACE: &str = "the server's data";

#[derive(Default)]
pub(crate) struct Reserved {
    reserve: OnceLock<Arc<dyn Reserve>>,
    /// Used by one at a time, as what one gives back another may have taken; looked at by any number,
    /// none of which may find that another looks and take that for its use.
    using: RwLock<()>,
}

impl Reserved {
    pub fn give(&self, reserve: Arc<dyn Reserve>) {
        // A second one would be the caller's mistake, and harmless.
        let _ = self.reserve.set(reserve);
    }

    /// Whether what adds to the store may begin.
    pub fn is_kept(&self) -> bool {
        let Some(reserve) = self.reserve.get() else { return true };
        // Who uses it would lose it to this look.
        match self.using.try_read() {
            Ok(_one_of_many) => reserve.is_kept(),
            Err(TryLockError::Poisoned(_)) => reserve.is_kept(),
            Err(TryLockError::WouldBlock) => false,
        }
    }

    /// Does this; if the disk is full, once more with what is kept aside.
    pub fn used<T>(&self, work: impl Fn() -> Result<T>) -> Result<T> {
        match (work(), self.reserve.get()) {
            (Err(error), Some(reserve)) if error.is_full() => {
                let _one = self.using.write().unwrap_or_else(PoisonError::into_inner);
                reserve.lend();
                let outcome = work();
                reserve.take_back();
                outcome
            }
            (outcome, _) => outcome,
        }
    }
}

impl Inner {
    /// What adds to the store leaves the room that removing and tidying up need. What the disk has
    /// for everybody counts here, and not what it keeps for a few, into which those may go.
    pub fn has_room_for_more(&self) -> Result<()> {
        let more = self.reserved.is_kept() && self.tables.room()? > 0;
        if more { Ok(()) } else { Err(StoreError::Full(PathBuf::from(PLACE)).into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[derive(Default)]
    struct Aside(AtomicBool);

    impl Reserve for Aside {
        fn is_kept(&self) -> bool {
            self.take_back();
            true
        }

        fn lend(&self) {
            self.0.store(true, Ordering::Release);
        }

        fn take_back(&self) {
            self.0.store(false, Ordering::Release);
        }
    }

    /// A reserve at which another one looks while somebody does.
    #[derive(Default)]
    struct LookedAt {
        reserved: Reserved,
        by_another: OnceLock<bool>,
    }

    struct Looks(Arc<LookedAt>, AtomicBool);

    impl Reserve for Looks {
        fn is_kept(&self) -> bool {
            if !self.1.swap(true, Ordering::AcqRel) {
                let looked = std::thread::scope(|scope| {
                    scope.spawn(|| self.0.reserved.is_kept()).join().unwrap()
                });
                self.0.by_another.set(looked).unwrap();
            }
            true
        }

        fn lend(&self) {}

        fn take_back(&self) {}
    }

    #[test]
    fn who_looks_while_another_looks_finds_it_whole() {
        let looked_at = Arc::new(LookedAt::default());
        looked_at.reserved.give(Arc::new(Looks(Arc::clone(&looked_at), AtomicBool::new(false))));
        assert!(looked_at.reserved.is_kept());
        assert_eq!(looked_at.by_another.get(), Some(&true));
    }

    #[test]
    fn what_is_used_is_not_taken_back_by_who_looks_whether_it_is_whole() {
        let (reserved, aside) = (Reserved::default(), Arc::new(Aside::default()));
        assert!(reserved.is_kept(), "nothing is kept aside here");
        reserved.give(aside.clone());
        assert!(reserved.is_kept());
        let outcome = reserved.used(|| {
            if !aside.0.load(Ordering::Acquire) {
                return Err(StoreError::Full(PathBuf::from(PLACE)).into());
            }
            assert!(!reserved.is_kept());
            Ok(aside.0.load(Ordering::Acquire))
        });
        assert!(outcome.unwrap() && reserved.is_kept());
        assert!(!aside.0.load(Ordering::Acquire));
    }
}
