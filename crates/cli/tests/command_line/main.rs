//! The command line as a user meets it, without a mount: each test runs the built program in
//! directories of its own.
//! Holds: no run of the program outlives its test or its time.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "tests run programs on files of their own"
)]

mod help;
mod keys;
mod mounting;
mod program;
mod salvaging;
mod serving;
