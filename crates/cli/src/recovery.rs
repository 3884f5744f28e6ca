//! Saying that a start goes on: what a kill has left may take long to be looked through.
//! Holds: it is said only as long as there is headway. So a start that works is waited for however long it
//! takes, and one that hangs is not.

use client::Headway;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// What whoever waits is told.
pub const WORDS: &str =
    "what was written before the last stop is being looked through; this may take some minutes";
/// A start without any headway is given up after so long, beyond the bound for the server.
pub const WITHOUT_HEADWAY: Duration = Duration::from_secs(120);
/// Headway is looked for so often.
const LOOKED_AT_EVERY: Duration = Duration::from_secs(1);

/// Tells of headway until it is dropped.
pub struct Telling {
    ends: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Telling {
    pub fn of(headway: Headway, tell: impl FnMut() + Send + 'static) -> Telling {
        let (ends, ended) = channel();
        let work = move || tell_of(&headway, &ended, LOOKED_AT_EVERY, tell);
        let thread = Builder::new().name("recovery".into()).spawn(work);
        // Nobody is told, and who waits gives up as if there were no headway.
        let thread =
            thread.inspect_err(|error| tracing::warn!(%error, "no thread says how far this is"));
        Telling { ends: Some(ends), thread: thread.ok() }
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        drop(self.ends.take());
        // What it says is not to be mixed with what is said next.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn tell_of(headway: &Headway, ended: &Receiver<()>, every: Duration, mut tell: impl FnMut()) {
    let mut before = 0;
    while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
        let made = headway.made();
        if made != before {
            tell();
        }
        before = made;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_while_there_is_headway_and_not_otherwise() {
        let (headway, every) = (Headway::default(), Duration::from_millis(5));
        let (ends, ended) = channel();
        let (told, tellings) = channel();
        let work = {
            let headway = headway.clone();
            move || tell_of(&headway, &ended, every, || told.send(()).unwrap_or_default())
        };
        let thread = std::thread::spawn(work);
        for _ in 0..3 {
            headway.step();
            assert!(tellings.recv_timeout(Duration::from_secs(60)).is_ok());
        }
        assert!(tellings.recv_timeout(every * 10).is_err(), "it hangs");
        drop(ends);
        thread.join().unwrap();
    }
}
