//! A file system without the kernel: caches a volume, logs what is changed here, keeps in step
//! with the replica above.
//! Holds: a call is tried at once and never waits; what it lacks is a value (`Need`), which who
//! may wait satisfies before the call is tried again.
//! Never: knows sockets, the kernel, errno or the terminal.
//! From: partially connected operation; LBFS; AFS callbacks.

mod accesses;
mod ahead;
mod alike;
mod asking;
mod assemble;
mod away;
mod base;
mod beyond;
mod budget;
mod carried;
mod client;
mod company;
mod connection;
mod contents;
mod damage;
mod delay;
mod durable;
mod early;
mod effects;
mod epoch;
mod facts;
mod failures;
mod fetch;
mod files;
mod following;
mod freeing;
mod full;
mod fuzz;
mod give;
mod headway;
mod hints;
mod home;
mod ids;
mod inside;
mod kernel;
mod kin;
mod known;
mod landing;
mod left_over;
mod life;
mod line;
mod locking;
mod locks;
mod lost;
mod marred;
mod meta;
mod misses;
mod mode;
mod moot;
mod names;
mod needs;
mod numbers;
mod onward;
mod pace;
mod parcel;
mod part;
mod parted;
mod passing;
mod past;
mod paused;
mod pending;
mod pins;
mod places;
mod plan;
mod policies;
mod portions;
mod presence;
mod quota;
mod ranks;
mod reached;
mod recipes;
mod recover;
mod renumber;
mod reopened;
mod replay_log;
mod reserved;
mod room;
mod rows;
mod salvage;
mod seek;
mod session;
mod set_back;
mod shown;
mod soundness;
mod status;
mod supply;
mod times_set;
mod together;
mod told;
mod trash;
mod types;
mod undo;
mod unreadable;
mod unsettled;
mod untold;
mod upkeep;
mod verdicts;
mod votes;
mod waiters;
mod worth;
mod xattrs;

/// Pending updates that are kept in memory, unless there is a reason for another number.
pub use plan::PLAN_CHUNKS_MAX;
pub use reopened::AGAIN_BYTES_MIN;
pub use update_log::NEAR_MAX as PENDING_NEAR_MAX;

pub use client::{Client, ClientError, Stores};
pub use facts::is_fact;
pub use files::Growing;
pub use following::Place;
pub use fuzz::fuzz_rows;
pub use headway::Headway;
pub use landing::{Late, Taken};
pub use locks::{LockCall, Owner, Process, Taker, Tried};
pub use misses::{MissShown, Settling};
pub use needs::complete;
pub use numbers::{Inode, Numbers};
pub use pending::{HeldBack, PendingFile, PendingLog, WaitsFor};
pub use pins::{Lacking, PinShown, PinsReport};
pub use policies::{Consistency, PolicyReport, PolicyShown, StaleShown};
pub use replay::LINK_GRACE;
pub use salvage::{
    Compared, LeftOver, LogRead, Salvaged, Told, Unlogged, Unsent, applied, unlogged, unsent,
};
pub use soundness::{ReadThrough, Wrong};
pub use types::{
    Allocate, Caller, DirectoryEntry, Done, Durability, Error, Explanation, Found, Handle, Kernel,
    Lent, Listed, Making, Need, OpenFlags, Opened, PASSES_FROM, RenameFlag, SetTime, Setting,
    Settings, Step, Stop, WantedMode, XattrFlag,
};
