//! The sessions that a listener carries.
//! Holds: of one mount there is one, and of one device there are so many at most; a new one takes the place
//! of the oldest. So whoever is let in leaves room for others, and what died unheard takes none for good.

use crate::transport::code;
use quinn::Connection;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A session that lives, and which mount of which device it serves.
#[derive(Debug)]
pub(crate) struct Entry {
    pub device: Vec<u8>,
    pub instance: u64,
    pub connection: Connection,
}

impl Entry {
    fn is_of_mount(&self, of: &Entry) -> bool {
        self.device == of.device && self.instance == of.instance
    }

    fn is_open(&self) -> bool {
        self.connection.close_reason().is_none()
    }
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// In the order in which they began.
    sessions: BTreeMap<u64, Entry>,
}

#[derive(Debug, Default)]
pub(crate) struct Entered(Mutex<State>);

/// One of them, until this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    entered: Arc<Entered>,
    number: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.entered.state().sessions.remove(&self.number);
    }
}

impl Entered {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn count(&self) -> usize {
        self.state().sessions.len()
    }

    /// Takes the session in, in place of an earlier one of the same mount, and of the oldest ones of a
    /// device that has as many as it may.
    pub fn enter(self: &Arc<Self>, entry: Entry, of_device_max: usize) -> Place {
        let mut state = self.state();
        for earlier in state.sessions.values().filter(|earlier| earlier.is_of_mount(&entry)) {
            earlier.connection.close(code::REPLACED, b"a newer session takes its place");
        }
        let is_of_device = |other: &&Entry| other.device == entry.device && other.is_open();
        let of_device: Vec<&Entry> = state.sessions.values().filter(is_of_device).collect();
        let too_many = (of_device.len() + 1).saturating_sub(of_device_max);
        for earlier in of_device.into_iter().take(too_many) {
            earlier.connection.close(code::REPLACED, b"this device has too many sessions");
        }
        let number = state.next;
        state.next += 1;
        state.sessions.insert(number, entry);
        drop(state);
        Place { entered: self.clone(), number }
    }
}
