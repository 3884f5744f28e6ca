//! Standard output. A reader that has had enough (`farfs status | head`) is no error.

use anyhow::{Context, Result};
use serde::Serialize;
use std::io::{ErrorKind, Write};

pub fn text(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome.context("cannot write to standard output"),
    }
}

pub fn line(line: &str) -> Result<()> {
    text(&format!("{line}\n"))
}

/// For programs.
pub fn json(value: &impl Serialize) -> Result<()> {
    line(&serde_json::to_string_pretty(value)?)
}
