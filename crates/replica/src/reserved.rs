//! Room that is kept aside on the disk of an origin.
//! Holds: it is used where there is none besides, and for nothing but what lets somebody in, or
//! removes something.

use crate::error::Result;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use store::Reserve;

#[derive(Default)]
pub(crate) struct Reserved {
    reserve: OnceLock<Arc<dyn Reserve>>,
    /// Used by one at a time: what one gives back another may have taken.
    using: Mutex<()>,
}

impl Reserved {
    pub fn give(&self, reserve: Arc<dyn Reserve>) {
        // A second one would be the caller's mistake, and harmless.
        let _ = self.reserve.set(reserve);
    }

    /// Does this; if the disk is full, once more with what is kept aside.
    pub fn used<T>(&self, work: impl Fn() -> Result<T>) -> Result<T> {
        match (work(), self.reserve.get()) {
            (Err(error), Some(reserve)) if error.is_full() => {
                let _one = self.using.lock().unwrap_or_else(PoisonError::into_inner);
                reserve.lend();
                let outcome = work();
                reserve.take_back();
                outcome
            }
            (outcome, _) => outcome,
        }
    }
}
