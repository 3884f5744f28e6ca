//! Programs that run beside: started, and ended when dropped.

use anyhow::{Context, Result, ensure};
use bench::link::namespace::end;
use bench::undo::{self, Undo};
use std::fs::File;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What was not done when its time was over.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("more than {} s", .0.as_secs())]
pub struct TooLong(pub Duration);

/// What a program printed, as much of its end as a message shows.
const TAIL_BYTES_MAX: usize = 2_000;

/// A program that runs until this is dropped.
#[derive(Debug)]
pub struct Process {
    pid: u32,
    _undo: Undo,
}

impl Process {
    /// Starts it with its messages, and its output unless it is piped, in a log.
    pub fn start(command: &mut Command, log: &Path) -> Result<Self> {
        let messages =
            File::create(log).with_context(|| format!("cannot make {}", log.display()))?;
        let output = messages.try_clone().context("cannot copy a descriptor")?;
        let mut child = command
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(messages)
            .spawn()
            .with_context(|| format!("cannot start {command:?}"))?;
        let pid = child.id();
        let undo = undo::later(move || {
            end(&[child.id() as i32]);
            let _ = child.wait();
        });
        Ok(Self { pid, _undo: undo })
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }
}

/// Runs a program to its end, or ends it when its time is over.
pub fn run_within(command: &mut Command, log: &Path, within: Duration) -> Result<()> {
    let status = end_within(command, log, within)?;
    ensure!(status.success(), "{command:?} failed ({status}): {}", tail(log));
    Ok(())
}

/// As `run_within`, for a program whose failure is an answer.
pub fn end_within(command: &mut Command, log: &Path, within: Duration) -> Result<ExitStatus> {
    let messages = File::create(log).with_context(|| format!("cannot make {}", log.display()))?;
    let output = messages.try_clone().context("cannot copy a descriptor")?;
    let child = command.stdin(Stdio::null()).stdout(output).stderr(messages).spawn();
    let mut child = child.with_context(|| format!("cannot start {command:?}"))?;
    let start = Instant::now();
    loop {
        match child.try_wait().context("cannot wait for a program")? {
            Some(status) => return Ok(status),
            None if start.elapsed() >= within => {
                end(&[child.id() as i32]);
                let _ = child.wait();
                return Err(TooLong(within).into());
            }
            None => std::thread::sleep(LOOK_EVERY),
        }
    }
}

/// The end of a log, for a message.
pub fn tail(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let from = text.len().saturating_sub(TAIL_BYTES_MAX);
    String::from_utf8_lossy(&text[from..]).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_takes_too_long_is_ended_and_one_that_fails_is_quoted() {
        let log = std::env::temp_dir().join(format!("bench-process-{}", std::process::id()));
        let run = |script: &str, within| {
            run_within(Command::new("sh").args(["-c", script]), &log, within).unwrap_err()
        };
        let late = run("exec sleep 1000", Duration::ZERO);
        assert!(late.is::<TooLong>(), "{late:#}");
        let failed = run("echo no luck; exit 3", Duration::from_secs(1000)).to_string();
        assert!(failed.contains("no luck"), "{failed}");
        std::fs::remove_file(log).unwrap();
    }
}
