//! Carries the protocol over QUIC: keys and addresses, sessions, frames, the traffic classes and
//! their lottery, congestion control by delay, and how good the link is.
//! Holds: both sides have proved their keys before a message is looked at; events come in the
//! order in which they were sent; every queue, wait and message has a bound with a name.
//! Never: looks into a request further than its class; panics on what a peer sends.
//! From: partially connected operation, 5.1 (the lottery); DESIGN, "Trust" and "The client".

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this crate is the port to the network"
)]

mod address;
mod callers;
mod carry;
mod classes;
mod controller;
mod entered;
mod error;
mod frame;
mod hello;
mod keys;
mod limits;
mod listen;
mod live;
mod outbox;
mod quality;
mod regulate;
mod remote;
mod retry;
mod route;
mod silence;
mod tls;
mod transport;
mod turnstile;

pub use address::Address;
pub use classes::{ClassSet, Lottery};
pub use error::{AddressMistake, Error};
pub use frame::{MESSAGE_BYTES_MAX, fuzz_frame};
pub use hello::fuzz_hello;
pub use keys::{Fingerprint, Identity};
pub use limits::Limits;
pub use listen::Listener;
pub use regulate::{RATE_LEAST, Regulation, Tickets};
pub use remote::{Remote, RemoteConfig};
pub use transport::{Congestion, Packets};
