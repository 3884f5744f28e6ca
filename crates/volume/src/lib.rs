//! The persistent tree of a volume: whole and by version at an origin, partial at a client.
//! Holds: an update and what it changes are one transaction.
//! Never: touches the network or the clock.

pub mod partial;
pub mod whole;
