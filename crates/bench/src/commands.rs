//! The commands, one to a file.

pub mod demo;
pub mod link;
pub mod memory;
pub mod papers;
pub mod run;
pub mod scale;
pub mod suites;
