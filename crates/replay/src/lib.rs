//! What becomes of a log before it is replayed: what need not leave, and when the rest may.
//! Never: touches a disk, a network or a clock; times arrive as arguments.
//! From: partially connected operation, sections 5 and 5.2.

mod cancel;
mod due;
mod pass;
#[cfg(test)]
mod tests;

pub use cancel::{Moot, moot};
pub use due::{is_to_be_looked_through, stays_for};
pub use pass::{Held, unit_at};
