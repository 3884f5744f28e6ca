//! Two narrow seams, and what the client needs besides: ordered tables with transactions, blobs
//! by name, a journal, and containers (one ordinary local file for each cached file).
//! Holds: what a commit, a sync or an append promised is there after a crash; every back end
//! passes `conformance`.
//! Never: knows what a file system is.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this crate is the port to the disk"
)]

pub mod conformance;
pub mod container;
pub mod embedded;
pub mod faulty;
pub mod journal;
pub mod memory;
pub mod ordinary;
pub mod overlay;
pub mod packs;
pub mod reserve;
pub mod table;
pub mod tree;

pub use container::{Container, Containers};
pub use journal::Journal;
pub use overlay::Writes;
pub use reserve::Reserve;
pub use table::{Before, Durability, Read, Row, Tables, Write};

mod blob;
mod blocks;
mod error;
mod files;
mod group_sync;
mod kept;

pub use blob::{Blobs, Damage, Listed};
pub use error::{Result, StoreError};
pub use files::{is_directory, make_directory, no_directory};
