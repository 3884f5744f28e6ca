//! The one program, `farfs`: reads the command line, carries out one command, and says how it
//! ended.
//! Never: decides what a file system does; it wires a link into a client or a replica.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the program stands at the edge: it opens directories, sockets and processes"
)]
// These end the program where nobody reads: `output` does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod arguments;
mod background;
mod commands;
mod config;
mod conflicts;
mod connection;
mod control;
mod daemon;
mod data;
mod driver;
mod exit;
mod guard;
mod keeping;
mod last_words;
mod limits;
mod lock;
mod logging;
mod metrics;
mod mounts;
mod orders;
mod output;
mod owner;
mod past;
mod paths;
mod pending;
mod places;
mod plan;
mod private;
mod processes;
mod progress;
mod questions;
mod quota;
mod recovery;
mod reserve;
mod show;
mod state;
mod stores;
mod tables;
mod threads;
mod tree_status;
mod trees;
mod units;
mod upkeep;
mod uplink;
mod wishes;

use std::process::ExitCode;

fn main() -> ExitCode {
    processes::share_heaps();
    logging::panics_are_logged();
    match arguments::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::tell(exit::words(&error));
            ExitCode::from(exit::code(&error) as u8)
        }
    }
}
