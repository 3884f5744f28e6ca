//! Room on the disk here, and what is done when there is none.
//! Holds: nothing new begins unless what undoes it has room; that something was undone, or done by
//! others, is written with what is kept aside.

use crate::client::{Client, ClientError};
use crate::ranks::{self, Rank};
use crate::types::Error;
use protocol::Upstream;
use std::sync::{Arc, Mutex};
use store::{Containers, Reserve, StoreError};
use update_log::LogError;
use volume::partial::Missing;

pub(crate) struct Reserved {
    reserve: Arc<dyn Reserve>,
    /// Those who use what is kept aside.
    pressed: Mutex<usize>,
}

impl Reserved {
    pub fn new(reserve: Arc<dyn Reserve>) -> Reserved {
        Reserved { reserve, pressed: Mutex::new(0) }
    }
}

/// What is written while this lives may take what is kept aside.
pub(crate) struct Pressed<'a>(&'a Reserved);

impl Drop for Pressed<'_> {
    fn drop(&mut self) {
        let mut pressed = ranks::lock(Rank::Pressed, &self.0.pressed);
        *pressed -= 1;
        if *pressed == 0 {
            self.0.reserve.take_back();
        }
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// What follows must be written, or what shows and what is so differ.
    pub(crate) fn pressed(&self) -> Pressed<'_> {
        let reserved = &self.inner.reserved;
        let mut pressed = ranks::lock(Rank::Pressed, &reserved.pressed);
        *pressed += 1;
        // Another one may have used up what was lent before.
        reserved.reserve.lend();
        Pressed(reserved)
    }

    /// By a checkpoint it is known what the replica above has, and so what can leave the cache: on a
    /// full disk it is written with what is kept aside. Who calls this holds no locks.
    pub(crate) fn checkpoint_with_room(&self) -> Result<(), Error> {
        match self.checkpoint() {
            Err(Error::DiskFull) => {}
            outcome => return outcome,
        }
        self.with_room(|| {
            let _pressed = self.pressed();
            self.checkpoint()
        })
    }

    /// Whether something new may begin.
    pub(crate) fn has_room(&self) -> Result<(), Error> {
        let pressed = ranks::lock(Rank::Pressed, &self.inner.reserved.pressed);
        // Lent just now, and taken back soon.
        if *pressed > 0 || self.inner.reserved.reserve.is_kept() {
            return Ok(());
        }
        Err(Error::DiskFull)
    }
}

impl ClientError {
    /// The disk has no room for what was to be written.
    pub fn is_full(&self) -> bool {
        matches!(
            self,
            ClientError::Store(StoreError::Full(_))
                | ClientError::Log(LogError::Store(StoreError::Full(_)))
                | ClientError::Tree(Missing::Store(StoreError::Full(_)))
                | ClientError::Contents(chunks::ChunksError::Store(StoreError::Full(_)))
        )
    }
}
