//! How `farfs` ends: one table of exit codes, for programs that call it and for the help texts.

mod causes;

use anyhow::Error;
use std::fmt::{Display, Write};
use std::io::ErrorKind;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Failure = 1,
    Usage = 2,
    Unreachable = 3,
    TurnedAway = 4,
    Busy = 5,
    Damaged = 6,
    NotFound = 7,
    Pending = 8,
    Missing = 9,
}

const TABLE: [(Exit, &str); 9] = [
    (Exit::Failure, "it could not be done, for a reason that has no code of its own"),
    (Exit::Usage, "the command line or the configuration file is wrong"),
    (Exit::Unreachable, "there is no connection to the server, and without it it cannot be done"),
    (Exit::TurnedAway, "the server does not let this device in, or it is not the expected server"),
    (Exit::Busy, "the directory, mount point or file system is in use"),
    (Exit::Damaged, "what was stored on this machine's disk is damaged"),
    (Exit::NotFound, "there is no such mount, volume, device or directory"),
    (Exit::Pending, "time ran out while changes were still waiting to be sent"),
    (Exit::Missing, "not all that is pinned is here yet"),
];

/// For commands that can end in any way.
pub const ALL: [Exit; 9] = [
    Exit::Failure,
    Exit::Usage,
    Exit::Unreachable,
    Exit::TurnedAway,
    Exit::Busy,
    Exit::Damaged,
    Exit::NotFound,
    Exit::Pending,
    Exit::Missing,
];

impl Exit {
    #[cfg(test)]
    fn meaning(self) -> &'static str {
        TABLE.iter().find(|(exit, _)| *exit == self).map_or("", |(_, meaning)| meaning)
    }

    pub fn from_code(code: u8) -> Exit {
        TABLE.iter().map(|(exit, _)| *exit).find(|e| *e as u8 == code).unwrap_or(Exit::Failure)
    }
}

/// The end of a help text: examples, then the exit codes that this command can end with.
pub fn after(examples: &str, exits: &[Exit]) -> String {
    let mut text = String::from("Examples:\n");
    for line in examples.trim().lines() {
        let _ = writeln!(text, "  {}", line.trim());
    }
    text.push_str("\nExit codes:\n  0  done");
    for (exit, meaning) in TABLE {
        if matches!(exit, Exit::Failure | Exit::Usage) || exits.contains(&exit) {
            let _ = write!(text, "\n  {}  {meaning}", exit as u8);
        }
    }
    text
}

/// An error that knows how the program is to end.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
struct Coded {
    exit: Exit,
    message: String,
}

pub fn fail(exit: Exit, message: impl Display) -> Error {
    Error::new(Coded { exit, message: message.to_string() })
}

pub trait OrExit<T> {
    /// Puts a sentence and an exit code before the error.
    fn or_exit(self, exit: Exit, message: impl Display) -> Result<T, Error>;
}

impl<T, E: Into<Error>> OrExit<T> for Result<T, E> {
    fn or_exit(self, exit: Exit, message: impl Display) -> Result<T, Error> {
        self.map_err(|error| error.into().context(Coded { exit, message: message.to_string() }))
    }
}

/// Whether it is a file system that is mounted read-only that is in the way.
pub fn is_read_only(error: &Error) -> bool {
    of_system(error).any(|kind| kind == ErrorKind::ReadOnlyFilesystem)
}

/// The same, or that this user may not do it.
pub fn may_not(error: &Error) -> bool {
    is_read_only(error) || of_system(error).any(|kind| kind == ErrorKind::PermissionDenied)
}

fn of_system(error: &Error) -> impl Iterator<Item = ErrorKind> {
    error.chain().filter_map(|cause| Some(cause.downcast_ref::<std::io::Error>()?.kind()))
}

/// How the program ends after this error.
pub fn code(error: &Error) -> Exit {
    if let Some(coded) = error.downcast_ref::<Coded>() {
        return coded.exit;
    }
    error.chain().find_map(code_of_one).unwrap_or(Exit::Failure)
}

fn code_of_one(error: &(dyn std::error::Error + 'static)) -> Option<Exit> {
    if let Some(coded) = error.downcast_ref::<Coded>() {
        return Some(coded.exit);
    }
    causes::exit(error)
}

/// What a person reads: the error and what caused it, each once.
pub fn words(error: &Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        // Many errors print their cause themselves.
        if !text.contains(&cause) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&cause);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;
    use store::StoreError;

    #[test]
    fn the_code_is_found_below_what_was_said_on_top() {
        let error = fail(Exit::Busy, "in use");
        let wrapped = Err::<(), _>(error).context("cannot mount").expect_err("it is an error");
        assert_eq!(code(&wrapped), Exit::Busy);
        assert_eq!(words(&wrapped), "cannot mount: in use");
        let damaged = StoreError::Damaged { place: "x".into(), what: "y".into() };
        assert_eq!(code(&Error::new(damaged).context("cannot open")), Exit::Damaged);
        assert_eq!(code(&anyhow::anyhow!("other")), Exit::Failure);
    }

    #[test]
    fn every_code_comes_back_from_its_number() {
        for (exit, meaning) in TABLE {
            assert_eq!(Exit::from_code(exit as u8), exit);
            assert_eq!(exit.meaning(), meaning);
        }
    }
}
