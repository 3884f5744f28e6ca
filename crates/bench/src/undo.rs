//! What must be undone however the program ends: return, error, panic or signal.
//! Holds: each deed is undone once, the newest first; after a signal nothing that was announced
//! here is left.
//! Never: undoes what was announced by another process (`link::namespace` sweeps after those).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

/// How long a signal waits for an undoing that has already begun elsewhere.
const UNDOING_MAX: Duration = Duration::from_secs(20);

type Deed = Box<dyn FnOnce() + Send>;

struct Deeds {
    next: u64,
    pending: Vec<(u64, Deed)>,
    undoing: usize,
}

static DEEDS: Mutex<Deeds> = Mutex::new(Deeds { next: 0, pending: Vec::new(), undoing: 0 });
static QUIET: Condvar = Condvar::new();
static ENDING: AtomicBool = AtomicBool::new(false);

/// Undoes one deed when it is dropped.
#[must_use = "what is dropped at once is undone at once"]
#[derive(Debug)]
pub struct Undo(u64);

/// Announces how to undo what was just done, or is about to be.
pub fn later(deed: impl FnOnce() + Send + 'static) -> Undo {
    let mut deeds = deeds();
    deeds.next += 1;
    let id = deeds.next;
    deeds.pending.push((id, Box::new(deed)));
    Undo(id)
}

impl Drop for Undo {
    fn drop(&mut self) {
        undo(|pending| pending.iter().position(|(id, _)| *id == self.0));
    }
}

/// Undoes everything, the newest first.
pub fn all() {
    while undo(|pending| pending.len().checked_sub(1)) {}
    let quiet = QUIET.wait_timeout_while(deeds(), UNDOING_MAX, |deeds| deeds.undoing > 0);
    drop(quiet);
}

fn undo(choose: impl FnOnce(&[(u64, Deed)]) -> Option<usize>) -> bool {
    let mut held = deeds();
    let Some(at) = choose(&held.pending) else { return false };
    let (_, deed) = held.pending.remove(at);
    held.undoing += 1;
    drop(held);
    // A deed may undo others; so it runs without the lock, and a panic in it stops no other.
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(deed));
    deeds().undoing -= 1;
    QUIET.notify_all();
    true
}

fn deeds() -> MutexGuard<'static, Deeds> {
    DEEDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on SIGINT, SIGTERM and SIGHUP undo everything and end the process.
pub fn on_signals() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        std::thread::spawn(|| {
            if let Some(number) = next_signal() {
                ENDING.store(true, Ordering::Release);
                eprintln!("\ncleaning up ...");
                all();
                std::process::exit(128 + number);
            }
        });
    });
}

/// Does not return once a signal has come: what fails from then on fails because everything is
/// being taken away, and is no result.
pub fn hold_if_ending() {
    while ENDING.load(Ordering::Acquire) {
        std::thread::park();
    }
}

/// None where no signal can be waited for; then they end the process as they always do.
fn next_signal() -> Option<i32> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().ok()?;
    runtime.block_on(async {
        let mut int = signal(SignalKind::interrupt()).ok()?;
        let mut term = signal(SignalKind::terminate()).ok()?;
        let mut hup = signal(SignalKind::hangup()).ok()?;
        tokio::select! {
            _ = int.recv() => Some(SignalKind::interrupt().as_raw_value()),
            _ = term.recv() => Some(SignalKind::terminate().as_raw_value()),
            _ = hup.recv() => Some(SignalKind::hangup().as_raw_value()),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn deeds_are_undone_once_and_the_newest_first() {
        let undone = Arc::new(Mutex::new(Vec::new()));
        let deed = |name: &'static str| {
            let undone = undone.clone();
            later(move || undone.lock().unwrap().push(name))
        };
        let (first, second, third) = (deed("first"), deed("second"), deed("third"));
        drop(second);
        all();
        drop((first, third));
        assert_eq!(*undone.lock().unwrap(), ["second", "third", "first"]);
    }
}
