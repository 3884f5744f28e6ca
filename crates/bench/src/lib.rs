//! Measuring from outside: a link that is as slow, far and lossy as one likes, on one machine.
//! Tests and the `bench` program run real processes at its two ends.
//! Holds: whatever was made on the machine is undone when the program ends, however it ends.
//! Never: knows anything of FarFS but the names of its program's commands.
//! From: Fluid Replication, 5 (trace modulation); LBFS, Evaluation.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a program that measures starts processes, reads the clock and touches the disk"
)]

pub mod command;
pub mod error;
pub mod link;
pub mod profile;
pub mod random;
pub mod undo;

pub use error::{Error, Result};
pub use link::{End, Link, Traffic};
pub use profile::{Lane, Profile};
