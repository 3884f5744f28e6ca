//! What the papers measured, measured again: their shapes, and their words beside ours.

pub mod lbfs;
pub mod partially;
