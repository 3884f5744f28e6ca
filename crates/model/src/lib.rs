//! What a file system is here: ids, names, attributes, and the `Update`, one change to a volume.
//! Holds: `judge` decides what an update does from what it finds, and from nothing else, so every
//! replica that finds the same decides the same.
//! Never: touches clock, chance, disk or network.

mod acl;
mod attributes;
mod contents;
mod ids;
mod judge;
mod locks;
mod name;
mod past;
mod quota;
mod update;

pub use acl::{ACL_ACCESS, ACL_DEFAULT, Acl};
pub use attributes::{CAPABILITY, Kind, Node, SET_IDS, Time};
pub use contents::{CHUNK_NAME_BYTES, ChunkName, Contents, Piece, Root};
pub use ids::{COUNTER_MAX, FileId, IdOutOfRange, REPLICA_MAX, ReplicaId, Seq, Stamp};
pub use judge::{Effects, Problem, View, judge};
pub use locks::{Lock, LockKind, LockTable, Locks, Waits};
pub use name::{BadName, NAME_BYTES_MAX, Name};
pub use past::{BadSnapshotName, Past, SnapshotId, control_name, snapshot_name, snapshots_name};
pub use quota::{Allowance, Growth, Growths, Quota, USER_QUOTAS_MAX, Usage, UserQuota};
pub use update::{AttributeChange, Change, Update, Whiteout, birth_of};
