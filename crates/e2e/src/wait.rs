//! Waits, each with a bound and with words for the one who reads the failure.

use std::sync::mpsc;
use std::thread::sleep;
use std::time::{Duration, Instant};

const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Waits until `holds`, and returns how long that took.
///
/// # Panics
/// If it does not hold within `bound`.
#[track_caller]
pub fn eventually(bound: Duration, what: &str, mut holds: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    loop {
        if holds() {
            return start.elapsed();
        }
        assert!(start.elapsed() < bound, "not within {bound:?}: {what}");
        sleep(LOOK_EVERY);
    }
}

/// Does something that might hang, in a thread of its own.
///
/// # Panics
/// If it has not ended within `bound`, or if it panics.
#[track_caller]
pub fn within<T: Send + 'static>(
    bound: Duration,
    what: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let _ = sender.send(work());
    });
    match receiver.recv_timeout(bound) {
        Ok(value) => value,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs, longer than {bound:?}: {what}"),
        Err(mpsc::RecvTimeoutError::Disconnected) => panic!("it panicked: {what}"),
    }
}

/// What it gave and how long it took.
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let value = work();
    (value, start.elapsed())
}
