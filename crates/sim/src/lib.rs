//! Clients, an origin and the network between them in one process, under one seed.
//! Holds: everything follows from the seed: time, chance, the order of tasks, what crashes and
//! what the disk keeps; the same seed gives the same run, byte for byte.
//! Never: reads a clock, starts a thread, or opens a file.

pub mod check;
pub mod contents;
pub mod crowd;
mod exact;
pub mod failing;
mod fault;
pub mod machine;
pub mod network;
pub mod operation;
mod past;
pub mod perform;
pub mod reference;
pub mod run;
pub mod tally;
pub mod trace;
pub mod tree;
pub mod workload;
