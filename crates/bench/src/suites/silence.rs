//! A server that is not heard of now and then, as behind a link that is cut and restored.

use anyhow::{Context, Result};
use bench::undo::{self, Undo};
use rustix::process::{Pid, Signal, kill_process};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

/// Stops a process for a while, lets it run for as long, and again, until this is dropped.
pub struct Silence {
    end: Option<Sender<()>>,
    turns: Option<JoinHandle<u64>>,
    _undo: Undo,
}

impl Silence {
    pub fn of(pid: u32, each: Duration) -> Result<Self> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).context("it has no number")?;
        // Who is stopped does not end either.
        let undo = undo::later(move || {
            let _ = kill_process(pid, Signal::CONT);
        });
        let (end, ended) = mpsc::channel();
        let turns = std::thread::spawn(move || {
            let mut silences = 0;
            let goes_on = || ended.recv_timeout(each) == Err(RecvTimeoutError::Timeout);
            while goes_on() && kill_process(pid, Signal::STOP).is_ok() {
                silences += 1;
                let more = goes_on();
                if kill_process(pid, Signal::CONT).is_err() || !more {
                    break;
                }
            }
            silences
        });
        Ok(Self { end: Some(end), turns: Some(turns), _undo: undo })
    }

    /// Ends it. Gives how often the process was stopped.
    pub fn over(mut self) -> u64 {
        self.finish()
    }

    fn finish(&mut self) -> u64 {
        self.end = None;
        self.turns.take().and_then(|turns| turns.join().ok()).unwrap_or(0)
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
        let silence = Silence::of(child.id(), Duration::from_millis(1)).unwrap();
        while state(child.id()) != "T" {
            std::thread::yield_now();
        }
        assert!(silence.over() > 0);
        assert_ne!(state(child.id()), "T");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
