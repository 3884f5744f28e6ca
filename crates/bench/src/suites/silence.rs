//! A server that is not heard of now and then, as behind a link that is cut and restored.

use anyhow::{Context, Result};
use bench::undo::{self, Undo};
use rustix::process::{Pid, Signal, kill_process};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long it says nothing, and how long it answers in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turns {
    pub silent: Duration,
    pub heard: Duration,
}

/// How often the process was stopped, and how often it was missed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub silences: u64,
    pub missed: u64,
}

/// Stops a process for a while, lets it run for a while, and again, until this is dropped.
pub struct Silence {
    end: Option<Sender<()>>,
    turns: Option<JoinHandle<Count>>,
    _undo: Undo,
}

impl Silence {
    /// At the end of each silence `is_missed` is asked whether anybody has noticed.
    pub fn of(
        pid: u32,
        turns: Turns,
        is_missed: impl Fn() -> bool + Send + 'static,
    ) -> Result<Self> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).context("it has no number")?;
        // Who is stopped does not end either.
        let undo = undo::later(move || {
            let _ = kill_process(pid, Signal::CONT);
        });
        let (end, ended) = mpsc::channel();
        let turns = std::thread::spawn(move || {
            let mut count = Count::default();
            let goes_on = |each| ended.recv_timeout(each) == Err(RecvTimeoutError::Timeout);
            while goes_on(turns.heard) && kill_process(pid, Signal::STOP).is_ok() {
                count.silences += 1;
                let more = goes_on(turns.silent);
                count.missed += u64::from(is_missed());
                if kill_process(pid, Signal::CONT).is_err() || !more {
                    break;
                }
            }
            count
        });
        Ok(Self { end: Some(end), turns: Some(turns), _undo: undo })
    }

    /// Ends it.
    pub fn over(mut self) -> Count {
        self.finish()
    }

    fn finish(&mut self) -> Count {
        self.end = None;
        self.turns.take().and_then(|turns| turns.join().ok()).unwrap_or_default()
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        self.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn state(pid: u32) -> String {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        text.rsplit(')').next().unwrap().split_whitespace().next().unwrap().into()
    }

    #[test]
    fn who_was_stopped_runs_again_when_it_is_over() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let each = Duration::from_millis(1);
        let silence =
            Silence::of(child.id(), Turns { silent: each, heard: each }, || true).unwrap();
        while state(child.id()) != "T" {
            std::thread::yield_now();
        }
        let count = silence.over();
        assert!(count.silences > 0 && count.missed == count.silences, "{count:?}");
        assert_ne!(state(child.id()), "T");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
