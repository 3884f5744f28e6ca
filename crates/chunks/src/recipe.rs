//! Recipes: the pieces of a file, in order, as a tree of recipe chunks that are cut by content
//! themselves, so that a small change of a large file is a small change of its recipe.
//! Holds: the same pieces and secret give the same tree; the length of every entry is that of all
//! that hangs below it; a tree is at most `DEPTH_MAX` deep.
//! Never: is believed: what is decoded is checked against its name, its depth and its length.
//! From: LBFS, GETHASH; the tree is beyond it.

mod build;
mod code;
mod compare;
mod holes;
mod walk;

pub use build::{Builder, Tree, build};
pub use code::{Recipe, decode, encode};
pub use compare::differing;
pub use holes::counts_holes;
pub use walk::{Cover, Placed, cover, lacking};

/// Recipe chunks between the root and the data, at most. Every recipe chunk but the last of its
/// depth has `ENTRIES_MIN` entries or more, so this is enough for every file.
pub const DEPTH_MAX: u8 = 16;

/// A recipe chunk ends only after so many entries.
pub const ENTRIES_MIN: usize = 16;
/// About what a recipe chunk has.
pub const ENTRIES_AVERAGE: usize = 64;
pub const ENTRIES_MAX: usize = 256;

/// No recipe chunk is longer.
pub const RECIPE_BYTES_MAX: usize = code::HEADER_BYTES + ENTRIES_MAX * code::ENTRY_BYTES_MAX;

/// No file is longer: offsets are signed in the kernel.
pub const FILE_BYTES_MAX: u64 = i64::MAX as u64;

#[cfg(test)]
mod tests;
