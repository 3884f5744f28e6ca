//! How far a command has come that takes a while.

use std::io::{IsTerminal, Write};

/// A line on a terminal that is written over.
#[derive(Clone, Copy)]
pub struct Progress {
    what: &'static str,
    shown: bool,
}

impl Progress {
    pub fn new(what: &'static str, wanted: bool) -> Progress {
        Progress { what, shown: wanted && std::io::stderr().is_terminal() }
    }

    pub fn tell(&mut self, text: &str) {
        if self.shown {
            over(&format!("{}: {text}", self.what));
        }
    }

    pub fn end(&mut self) {
        if self.shown {
            over("");
        }
    }
}

/// Nobody is owed a progress line.
fn over(line: &str) {
    let _ = write!(std::io::stderr(), "\r\x1b[K{line}");
}
