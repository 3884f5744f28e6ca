//! Other programs, run to their end, with their own words where they fail.

use crate::{Error, Result};
use std::process::{Command, Output, Stdio};

/// Of what a failing program printed, the end is kept.
const SAID_LINES_MAX: usize = 12;

/// Runs a command and returns what it printed.
pub fn run(command: &mut Command) -> Result<String> {
    let output = output(command)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(Error::Command { command: shown(command), said: said(&output) })
}

/// `run` for a line without quotes in it.
pub fn run_line(line: &str) -> Result<String> {
    run(&mut from_line(line))
}

fn from_line(line: &str) -> Command {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    command
}

fn output(command: &mut Command) -> Result<Output> {
    command
        .stdin(Stdio::null())
        .output()
        .map_err(|source| Error::Start { command: shown(command), source })
}

fn shown(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy()];
    words.extend(command.get_args().map(|word| word.to_string_lossy()));
    words.join(" ")
}

fn said(output: &Output) -> String {
    let mut text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if text.is_empty() {
        text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    }
    let lines: Vec<_> = text.lines().collect();
    let end = lines[lines.len().saturating_sub(SAID_LINES_MAX)..].join("\n");
    if end.is_empty() { output.status.to_string() } else { format!("{end} ({})", output.status) }
}

/// Whether a program can be found.
pub fn exists(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let extra = ["/usr/sbin", "/sbin"].map(std::path::PathBuf::from);
    std::env::split_paths(&path).chain(extra).any(|dir| dir.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_program_is_quoted() {
        let error = run(Command::new("sh").args(["-c", "echo all is lost >&2; exit 3"]));
        let words = error.unwrap_err().to_string();
        assert!(words.contains("all is lost") && words.contains("exit status: 3"), "{words}");
    }

    #[test]
    fn a_missing_program_is_named() {
        assert!(!exists("no-such-program-here"));
        let words = run_line("no-such-program-here --now").unwrap_err().to_string();
        assert!(words.contains("no-such-program-here --now"), "{words}");
    }
}
