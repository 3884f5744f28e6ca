//! Programs that run beside: started, and ended when dropped.

use anyhow::{Context, Result};
use bench::link::namespace::end;
use bench::undo::{self, Undo};
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

/// What a program printed, as much of its end as a message shows.
const TAIL_BYTES_MAX: usize = 2_000;

/// A program that runs until this is dropped.
#[derive(Debug)]
pub struct Process {
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
        let undo = undo::later(move || {
            end(&[child.id() as i32]);
            let _ = child.wait();
        });
        Ok(Self { _undo: undo })
    }
}

/// The end of a log, for a message.
pub fn tail(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let from = text.len().saturating_sub(TAIL_BYTES_MAX);
    String::from_utf8_lossy(&text[from..]).trim().to_owned()
}
