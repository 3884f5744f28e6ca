//! A value that others wait for.
//! Holds: who waits is woken in the order in which they came, so that a simulation is the same
//! whenever it is repeated; tokio's `watch` draws that order from chance of its own.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The value's owner. When it goes, nobody waits any more.
#[derive(Debug)]
pub(crate) struct Level<T>(Arc<Shared<T>>);

/// One who waits for the value.
#[derive(Debug)]
pub(crate) struct Watcher<T>(Arc<Shared<T>>);

#[derive(Debug)]
struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Notify,
}

#[derive(Debug)]
struct State<T> {
    value: T,
    watchers: usize,
    over: bool,
}

impl<T> Shared<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Level<T> {
    pub fn new(value: T) -> Level<T> {
        let state = Mutex::new(State { value, watchers: 0, over: false });
        Level(Arc::new(Shared { state, changed: Notify::new() }))
    }

    /// Changes the value. `change` says whether it did.
    pub fn change(&self, change: impl FnOnce(&mut T) -> bool) {
        let changed = change(&mut self.0.state().value);
        if changed {
            self.0.changed.notify_waiters();
        }
    }

    pub fn is(&self, so: impl FnOnce(&T) -> bool) -> bool {
        so(&self.0.state().value)
    }

    pub fn watch(&self) -> Watcher<T> {
        self.0.state().watchers += 1;
        Watcher(self.0.clone())
    }

    pub fn is_watched(&self) -> bool {
        self.0.state().watchers > 0
    }
}

impl<T> Drop for Level<T> {
    fn drop(&mut self) {
        self.0.state().over = true;
        self.0.changed.notify_waiters();
    }
}

impl<T> Watcher<T> {
    /// Waits until the value is as wanted, or its owner has gone.
    pub async fn until(&self, wanted: impl Fn(&T) -> bool) {
        loop {
            let changed = self.0.changed.notified();
            tokio::pin!(changed);
            // From here on no change is missed.
            changed.as_mut().enable();
            {
                let state = self.0.state();
                if state.over || wanted(&state.value) {
                    return;
                }
            }
            changed.await;
        }
    }
}

impl<T> Drop for Watcher<T> {
    fn drop(&mut self) {
        self.0.state().watchers -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fewer than the runtime polls in one go.
    const WAITERS: usize = 32;

    #[test]
    fn who_waits_is_woken_in_the_order_in_which_they_came() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let level = Level::new(0);
            let woken = Arc::new(Mutex::new(Vec::new()));
            let mut tasks = tokio::task::JoinSet::new();
            for number in 0..WAITERS {
                let (watcher, woken) = (level.watch(), woken.clone());
                tasks.spawn(async move {
                    watcher.until(|value| *value == 1).await;
                    woken.lock().unwrap().push(number);
                });
            }
            tokio::task::yield_now().await;
            level.change(|value| {
                *value = 1;
                true
            });
            while tasks.join_next().await.is_some() {}
            assert_eq!(*woken.lock().unwrap(), (0..WAITERS).collect::<Vec<_>>());
            assert!(!level.is_watched());
        });
    }

    #[test]
    fn nobody_waits_for_a_value_whose_owner_has_gone() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let level = Level::new(0);
            let watcher = level.watch();
            assert!(level.is_watched());
            let waits = tokio::spawn(async move { watcher.until(|value| *value == 1).await });
            tokio::task::yield_now().await;
            drop(level);
            waits.await.unwrap();
        });
    }
}
