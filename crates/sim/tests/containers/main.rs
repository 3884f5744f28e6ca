//! What is inside compressed containers travels only if it is nowhere at the other side, whatever
//! it is called there and in whatever it is packed.
#![allow(clippy::unwrap_used, reason = "a scenario that cannot go on is a failed test")]

mod known;
mod older;
mod packing;
mod pictures;
mod scene;
mod unknown;
