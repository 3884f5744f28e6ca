//! What becomes of a log before it is replayed, and by which mode: what need not leave, when the rest
//! may, and whether the link is good enough to wait for each change.
//! Never: touches a disk, a network or a clock; times arrive as arguments.
//! From: partially connected operation, sections 4, 5 and 5.2.

mod cancel;
mod due;
mod estimate;
mod flipflop;
mod gone;
mod grade;
mod mode;
mod pass;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod trace;

pub use cancel::{Moot, moot};
pub use due::{is_to_be_looked_through, stays_for};
pub use estimate::{Estimate, Figures, Sample, Sampler};
pub use flipflop::FlipFlop;
pub use gone::stores_of_gone;
pub use grade::{Grade, Judged, Lack, RETURNS_A_WHILE_MAX, grade_of, lack_of};
pub use mode::{
    LINK_GRACE, LinkView, WantedMode, Why, choose, fetches, replays, validates, waits_for_verdicts,
};
pub use pass::{Held, unit_at};
