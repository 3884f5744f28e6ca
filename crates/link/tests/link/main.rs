//! Sessions over loopback, from hello to farewell, with a small service in memory.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests of the port to the network"
)]

mod admission;
mod nonsense;
mod relay;
mod service;
mod sessions;
mod stranger;
mod traffic;
