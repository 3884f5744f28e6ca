//! One file per command.

pub mod check;
pub mod completions;
pub mod conflicts;
pub mod device;
pub mod explain;
pub mod gc;
pub mod history;
pub mod invite;
pub mod limit;
pub mod log;
pub mod man;
pub mod metrics;
pub mod misses;
pub mod mode;
pub mod mount;
pub mod mount_farfs;
pub mod pause;
pub mod pin;
pub mod policy;
pub mod restore;
pub mod serve;
pub mod snapshot;
pub mod status;
pub mod umount;
pub mod volume;
pub mod wait;
