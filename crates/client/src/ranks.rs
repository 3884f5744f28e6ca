//! The order in which a thread takes the locks of a client. Where debug assertions are on, whoever
//! takes one out of its turn panics: so every test is one of the order, though it has one thread and
//! nobody to wait for. Elsewhere nothing is noted.
//! Holds: a thread takes a lock only while all that it has come before it, whoever's they are. No two
//! threads wait for each other then.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A lock, or what is locked in that way, in the order in which they are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// What the kernel has written to a file.
    Landing,
    /// What it has written and waits for something.
    Late,
    /// Of a file: its container is written to, or must stand still.
    Still,
    /// Of a file: the first write to its container.
    Opening,
    /// Room in the cache.
    Making,
    /// Of a file: what of it is cut before it is closed.
    Growing,
    Core,
    Files,
    /// The one who writes to the tables, until that is committed or dropped.
    Tables,
    Known,
    Locks,
    Connection,
    Syncing,
    /// This and all that follow come last: none is taken while one of them is had.
    Accesses,
    Ahead,
    Awaited,
    Closing,
    Early,
    Flights,
    Following,
    Full,
    Giving,
    Kin,
    Listings,
    Looked,
    Misses,
    Noted,
    Numbers,
    Onward,
    Pins,
    Policies,
    Pressed,
    Seen,
    Sent,
    Trash,
    Unreadable,
    Unsynced,
}

const LAST: Rank = Rank::Accesses;

impl Rank {
    fn comes_before(self, other: Rank) -> bool {
        self < other.min(LAST)
    }
}

thread_local! {
    static HELD: RefCell<Vec<Rank>> = const { RefCell::new(Vec::new()) };
}

/// This thread has a lock until this is dropped.
pub(crate) struct Held {
    rank: Rank,
    _of_this_thread: PhantomData<*const ()>,
}

impl Drop for Held {
    fn drop(&mut self) {
        if cfg!(debug_assertions) {
            // A thread that ends has nothing left to take.
            let _ = HELD.try_with(|held| {
                let mut held = held.borrow_mut();
                if let Some(at) = held.iter().rposition(|rank| *rank == self.rank) {
                    held.remove(at);
                }
            });
        }
    }
}

/// Before a lock is waited for.
pub(crate) fn take(rank: Rank) -> Held {
    if cfg!(debug_assertions) && !std::thread::panicking() {
        let out_of_turn =
            HELD.with_borrow(|held| held.iter().copied().find(|had| !had.comes_before(rank)));
        if let Some(had) = out_of_turn {
            panic!("{rank:?} is taken by a thread that has {had:?}, which comes after it");
        }
    }
    taken(rank)
}

/// Of a lock that was to be had without waiting, and so at any time.
pub(crate) fn taken(rank: Rank) -> Held {
    if cfg!(debug_assertions) {
        HELD.with_borrow_mut(|held| held.push(rank));
    }
    Held { rank, _of_this_thread: PhantomData }
}

/// What is locked.
pub(crate) struct Guard<G> {
    guard: G,
    _held: Held,
}

pub(crate) type Ranked<'a, T> = Guard<MutexGuard<'a, T>>;
pub(crate) type Reading<'a, T> = Guard<RwLockReadGuard<'a, T>>;
pub(crate) type Writing<'a, T> = Guard<RwLockWriteGuard<'a, T>>;

impl<G: Deref> Deref for Guard<G> {
    type Target = G::Target;

    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for Guard<G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

pub(crate) fn lock<T>(rank: Rank, mutex: &Mutex<T>) -> Ranked<'_, T> {
    let held = take(rank);
    Guard { guard: mutex.lock().unwrap_or_else(PoisonError::into_inner), _held: held }
}

pub(crate) fn read<T>(rank: Rank, lock: &RwLock<T>) -> Reading<'_, T> {
    let held = take(rank);
    Guard { guard: lock.read().unwrap_or_else(PoisonError::into_inner), _held: held }
}

pub(crate) fn write<T>(rank: Rank, lock: &RwLock<T>) -> Writing<'_, T> {
    let held = take(rank);
    Guard { guard: lock.write().unwrap_or_else(PoisonError::into_inner), _held: held }
}

/// None: somebody has it.
pub(crate) fn try_write<T>(rank: Rank, lock: &RwLock<T>) -> Option<Writing<'_, T>> {
    Some(Guard { guard: lock.try_write().ok()?, _held: taken(rank) })
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;
    use crate::marred::{Marred, Watched};
    use std::sync::Arc;
    use store::memory::MemoryTables;
    use store::{Durability, Tables};

    fn tables() -> Watched {
        Watched::new(Arc::new(MemoryTables::default()), Arc::new(Marred::default()))
    }

    #[test]
    fn locks_are_taken_in_order_and_again_when_they_were_let_go() {
        let (core, files, kin) = (Mutex::new(1), Mutex::new(2), Mutex::new(3));
        let tables = tables();
        for _ in 0..2 {
            let mut held = lock(Rank::Core, &core);
            *held += 1;
            let files = lock(Rank::Files, &files);
            tables.write().unwrap().commit(Durability::Later).unwrap();
            let write = tables.write().unwrap();
            // It may go before what was taken after it.
            drop(files);
            assert_eq!(*lock(Rank::Kin, &kin), 3);
            assert_eq!(*lock(Rank::Kin, &kin), 3);
            drop(write);
        }
        assert_eq!(*lock(Rank::Core, &core), 3);
        HELD.with_borrow(|held| assert!(held.is_empty()));
    }

    #[test]
    fn what_is_to_be_had_at_once_is_taken_out_of_turn() {
        let (still, making) = (RwLock::new(()), Mutex::new(()));
        let _making = lock(Rank::Making, &making);
        let had = try_write(Rank::Still, &still);
        assert!(had.is_some() && try_write(Rank::Still, &still).is_none());
    }

    #[test]
    #[should_panic(expected = "Files is taken by a thread that has Tables")]
    fn what_is_open_is_not_taken_by_who_writes_to_the_tables() {
        let (files, tables) = (Mutex::new(()), tables());
        let _write = tables.write().unwrap();
        lock(Rank::Files, &files);
    }

    #[test]
    #[should_panic(expected = "Core is taken by a thread that has Files")]
    fn the_core_is_not_taken_by_who_has_what_is_open() {
        let (core, files) = (Mutex::new(()), Mutex::new(()));
        let _files = lock(Rank::Files, &files);
        lock(Rank::Core, &core);
    }

    #[test]
    #[should_panic(expected = "Tables is taken by a thread that has Tables")]
    fn nobody_waits_for_himself() {
        let tables = tables();
        let _one = tables.write().unwrap();
        let _other = tables.write();
    }

    #[test]
    #[should_panic(expected = "Pins is taken by a thread that has Ahead")]
    fn of_those_that_come_last_there_is_one_at_a_time() {
        let (ahead, pins) = (Mutex::new(()), Mutex::new(()));
        let _ahead = lock(Rank::Ahead, &ahead);
        lock(Rank::Pins, &pins);
    }
}
