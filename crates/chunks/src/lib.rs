//! Contents by chunk: cut by content, name by keyed hash, describe by a tree of recipes, find
//! where they are already, and decide which must travel.
//! Holds: the same contents, cutter and secret always give the same recipe, however they were
//! read; every chunk is checked against its name before it is used; whatever bytes come from disk
//! or peers, a decoder answers with an error and takes no more memory than it was allowed.
//! Never: touches the network, the clock or a file; knows what a directory is.
//! From: LBFS; the tree of recipes is beyond it.

mod against;
pub mod cut;
pub mod delta;
mod describe;
mod error;
mod fingerprint;
mod fuzz;
pub mod index;
pub mod inside;
pub mod payload;
pub mod recipe;
pub mod sketch;
mod spread;
mod three_way;
pub mod transfer;

pub use against::{
    pack_after, pack_against, stretch_of, target_bytes, unpack_after, unpack_against,
    unpack_assembled,
};
pub use cut::{CHUNK_BYTES_MAX, Cut, Cutting};
pub use describe::{
    Described, Found, Growing, Lacks, PartOf, Short, describe, describe_again, describe_bytes,
    describe_on, describe_part,
};
pub use error::{ChunksError, Result};
pub use fingerprint::Secret;
pub use fuzz::{
    fuzz_against, fuzz_assembled, fuzz_cover, fuzz_cut, fuzz_deflate, fuzz_delta,
    fuzz_delta_encode, fuzz_index, fuzz_inside, fuzz_payload, fuzz_recipe,
};
pub use payload::{Squeeze, Unpacked, pack, pack_for, unpack};
pub use recipe::{
    Builder, Cover, Placed, Recipe, Tree, build, counts_holes, cover, decode, differing, lacking,
};
pub use spread::{Look, Swept, clear_names, sweep_names};
pub use three_way::{Merged, Sides, Source, merge};
