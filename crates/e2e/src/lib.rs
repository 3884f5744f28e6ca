//! Real mounts and real processes: the built `farfs` program, watched from outside.
//!
//! ```text
//!  Mount (farfs mount) -- Relay (UDP, in this process) -- Server (farfs serve)
//! ```
//! Holds: whatever a test starts or mounts is gone when its `World` is, also after a panic; every
//! wait has a bound; a `World` whose programs said "panicked" fails its test.
//! Never: knows anything of FarFS but its commands, and the files and calls that programs see.
//!
//! A failure here is a failed test: so it panics with what happened, and returns no errors.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests of real processes start them, read the clock and touch the disk"
)]

pub mod contents;
pub mod disk;
pub mod kills;
pub mod machine;
pub mod mount;
pub mod process;
pub mod relay;
pub mod server;
mod sweep;
pub mod wait;
pub mod world;

pub use bench::Lane;
pub use disk::Disk;
pub use kills::kills;
pub use mount::Mount;
pub use process::{Process, Ran, run, run_within};
pub use relay::Relay;
pub use server::Server;
pub use wait::{eventually, timed, within};
pub use world::World;
