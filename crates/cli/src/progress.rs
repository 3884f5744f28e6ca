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
            eprint!("\r\x1b[K{}: {text}", self.what);
            // Nobody is owed a progress line.
            let _ = std::io::stderr().flush();
        }
    }

    pub fn end(&mut self) {
        if self.shown {
            eprint!("\r\x1b[K");
        }
    }
}
