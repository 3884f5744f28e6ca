//! The whole tree of a volume, by version, as an origin keeps it.
//! Holds: an update, its effects and its position are written together; what was current at a
//! position that is kept can be read as it was then; the tables of current entries say the same
//! as the last versions.
//! Never: commits, or decides whether an update may be done.
//! From: DESIGN, "Updates": files and entries by version, so that any position can be answered.

mod check;
mod commit;
mod describe;
mod error;
mod fuzz;
mod history;
mod keys;
mod prune;
mod purge;
mod record;
mod renew;
mod runs;
mod snapshots;
mod times;
mod usage;
mod view;
mod writers;

pub use check::{Fault, Mend, check, path_of, versions_of_contents};
pub use commit::{Committer, Made, create};
pub use describe::describe;
pub use error::Error;
pub use fuzz::fuzz_records;
pub use history::{Logged, Touched};
pub use keys::VolumeId;
pub use prune::{Holds, PruneAt, Version, contents_page, needed, prune};
pub use purge::purge;
pub use record::{decode, encode};
pub use renew::{renew, unreadable};
pub use runs::{begin_run, in_common, last_runs};
pub use snapshots::{SNAPSHOTS_MAX, Snapshot, snapshot_positions, snapshots};
pub use times::{forget_times, is_before_last_mark, mark_time, position_at};
pub use usage::{count_usage, is_counted};
pub use view::{EntryVersion, NodeVersion, Page, Whole};
pub use writers::{KNOWN_MAX, Known, Writer};

/// What is written here by `whole`, and by nobody else.
mod table {
    pub const HEAD: &str = "whole-head";
    pub const NODES: &str = "whole-nodes";
    pub const ENTRIES: &str = "whole-entries";
    pub const ENTRIES_NOW: &str = "whole-entries-now";
    pub const NAMES_NOW: &str = "whole-names-now";
    pub const CONTENTS: &str = "whole-contents";
    pub const LOG: &str = "whole-log";
    pub const WRITERS: &str = "whole-writers";
    pub const VERDICTS: &str = "whole-verdicts";
    pub const TIMES: &str = "whole-times";
    pub const SNAPSHOTS: &str = "whole-snapshots";
    pub const USAGE: &str = "whole-usage";
    pub const RUNS: &str = "whole-runs";

    /// All of them, for a volume that goes away.
    pub const ALL: [&str; 13] = [
        HEAD,
        ENTRIES,
        ENTRIES_NOW,
        NAMES_NOW,
        LOG,
        WRITERS,
        VERDICTS,
        TIMES,
        SNAPSHOTS,
        USAGE,
        RUNS,
        NODES,
        CONTENTS,
    ];
}
