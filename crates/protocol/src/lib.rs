//! What one replica, or a client, asks of the replica above it: messages, the `Upstream` and
//! `Service` traits that carry them, versions of the protocol, and the status snapshot.
//! Holds: every message can be encoded and decoded; unknown fields are passed over.
//! Never: knows how messages travel, or what is done with them.

mod messages;
mod status;
mod upstream;
mod version;

pub use messages::{
    Access, Attach, Attached, BASE_BYTES_MAX, Base, CODED_BYTES_MAX, Class, Cutter, DELTAS_MAX,
    Delta, EntryState, FILES_CLAIMED_MAX, FIND_NAMES_MAX, Fetched, GATHERED_FILES_MAX, Gathered,
    Heard, Held, KnownInside, LOCKS_CLAIMED_MAX, LOCKS_TOLD_MAX, LOCKS_WISHED_MAX, Life, Listed,
    Listing, LockAim, LockOutcome, Locked, Locking, NodeState, Notice, Objection,
    PATIENCE_FILES_MAX, PAYLOAD_BYTES_MAX, Patience, Payload, Portion, RUNS_MAX, Range, Refusal,
    Request, Response, Run, Sequel, Sought, States, Submit, Submitted, Tail, Totals, Verdict,
    WANTED_CHUNKS_MAX, Wanted, WantedOf, Wish, past,
};
pub use status::{
    BudgetStatus, CacheStatus, CancelledStatus, ClassBytes, Damage, DelayStatus, LinkEstimate,
    LinkStatus, MendedStatus, Mode, ModeChange, PassthroughStatus, Pending, PinsStatus,
    PrefetchStatus, Reach, ReachTimes, Replayed, Status, WantedStatus,
};
pub use upstream::{
    Caller, Downstream, Event, HOUSE, LinkCounts, LinkQuality, Service, Session, Traffic,
    TurnedAway, Unreachable, Upstream, likely_rate,
};
pub use version::{VERSION_MAX, VERSION_MIN, Version, Versions};
