//! One snapshot of a mount, for the terminal, the status page and programs.

use serde::{Deserialize, Serialize};

/// How a client works with the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// An update is done when the replica above has taken it.
    Connected,
    /// An update is done when it is in the log; replay goes on in the background.
    Partial,
    /// Updates are held; misses are fetched.
    FetchOnly,
    /// There is no link, or it is not to be used.
    Disconnected,
}

/// That a mount went from one mode to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModeChange {
    /// Seconds since 1970.
    pub at_secs: i64,
    pub from: Mode,
    pub to: Mode,
    /// In words for the user.
    pub why: String,
}

/// How far an update has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reach {
    Logged,
    Safe,
    Visible,
    Home,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    pub volume: String,
    pub server: String,
    pub mountpoint: String,
    pub state_directory: String,
    pub pid: u32,
    pub mode: Mode,
    /// What the user asked for: a mode, or `auto`.
    pub mode_wanted: String,
    /// Why it is that mode, in words for the user.
    #[serde(default)]
    pub mode_why: String,
    /// The last changes, the newest last.
    #[serde(default)]
    pub mode_changes: Vec<ModeChange>,
    /// The server has said that nobody else uses the volume.
    #[serde(default)]
    pub alone: bool,
    /// Locks hold among all connected mounts of the volume, and not on this one alone.
    #[serde(default)]
    pub locks_shared: bool,
    pub read_only: bool,
    /// Nothing that nobody waits for goes over the link, by the user's wish.
    #[serde(default)]
    pub paused: bool,
    /// What may go over the link in a month.
    #[serde(default)]
    pub budget: BudgetStatus,
    /// How long what nobody waits for stays.
    #[serde(default)]
    pub replay_delay: DelayStatus,
    pub replica: Option<u32>,
    /// Position in the origin's log up to which this client has seen what others did.
    pub seen: u64,
    pub link: LinkStatus,
    pub cache: CacheStatus,
    pub pending: Pending,
    #[serde(default)]
    pub replayed: Replayed,
    /// How long updates took to come how far.
    #[serde(default)]
    pub reached: Vec<ReachTimes>,
    /// Updates that no longer mattered and were not sent.
    #[serde(default)]
    pub cancelled: CancelledStatus,
    pub traffic: Vec<ClassBytes>,
    pub wire_bytes_sent: u64,
    pub wire_bytes_received: u64,
    /// What was fetched before anybody asked for it.
    #[serde(default)]
    pub prefetch: PrefetchStatus,
    /// What the kernel reads by itself.
    #[serde(default)]
    pub passthrough: PassthroughStatus,
    /// What the user wants to have here.
    #[serde(default)]
    pub pins: PinsStatus,
    /// Files that programs wanted and that were not here: there was no link, or it would have taken
    /// longer than their policy allows.
    #[serde(default)]
    pub misses: u64,
    /// Files that changed elsewhere and show as they were, by their policy.
    #[serde(default)]
    pub stale: u64,
    /// Updates that met somebody else's and were kept aside since the mount.
    pub conflicts: u64,
    /// Conflicts of the volume that are listed, as the server last said. None: it has not.
    #[serde(default)]
    pub conflicts_listed: Option<u64>,
    /// Contents that this machine's disk did not keep, the oldest first.
    #[serde(default)]
    pub damage: Vec<Damage>,
    /// What the cache held and was not as the server has it, since the mount.
    #[serde(default)]
    pub mended: MendedStatus,
    /// Rows and pages of the state directory that were found to be damaged since the mount.
    #[serde(default)]
    pub state_damage: Vec<String>,
    /// Why what is kept in the state directory can be neither read nor written now.
    #[serde(default)]
    pub state_trouble: Option<String>,
    /// How often records of the log were found to be gone since the mount, and were written anew.
    #[serde(default)]
    pub log_put_anew: u64,
    /// The same of the tables.
    #[serde(default)]
    pub tables_put_anew: u64,
    /// Chunks that the server has lost.
    #[serde(default)]
    pub wanted: WantedStatus,
}

/// What was found to be something else than the server has, and was mended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MendedStatus {
    pub times: u64,
    pub bytes: u64,
    /// The last file, from the root of the volume.
    pub last: Option<String>,
}

/// What is pinned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinsStatus {
    pub pins: u64,
    /// The cache has no room for all of it.
    pub full: bool,
}

/// What may go over the link in a month, and has: bytes on the wire, in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetStatus {
    /// None: as many as there are.
    pub bytes_max: Option<u64>,
    pub spent: u64,
    /// The user has said that it may go on beyond that this month.
    pub waived: bool,
}

/// How long what nobody waits for stays before it is sent, that it may be cancelled meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelayStatus {
    pub millis: u64,
    /// Nobody has said so: the link has a budget.
    pub for_budget: bool,
}

/// Cached files that the kernel reads without asking.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassthroughStatus {
    /// Why there are none, if there are none at all.
    pub off: Option<String>,
    /// Files that are open so now.
    pub files: u64,
}

/// Chunks that the server has lost, as it said last, and what of them came from here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedStatus {
    /// Chunks that are missing there.
    pub missing: u64,
    /// Chunks that were given back from here since the mount.
    pub given: u64,
    /// Files that lack some, as far as this device was asked for them: their paths from the root.
    pub files: Vec<String>,
    /// There are more of these.
    pub more: bool,
}

/// Contents that were written here, and were not what the cache held when they were to be sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damage {
    pub file: u64,
    /// From the root of the volume, where the name was known.
    pub path: Option<String>,
    /// The update that had stored them, `replica.number`.
    pub version: String,
    /// Seconds since 1970 when it was found.
    pub at_secs: i64,
    /// Bytes that were there and are stored in their place. None: nothing was there, and the file
    /// is as the server has it.
    pub stored_bytes: Option<u64>,
    /// Of these, those that the disk could not read: zeros are stored for them.
    #[serde(default)]
    pub zeros: u64,
    /// It was missed before it was to be sent: so many bytes of it are there, and not stored.
    #[serde(default)]
    pub unsent: bool,
    /// Somebody who waited for it was told.
    pub told: bool,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.path {
            Some(path) => write!(f, "the cache's copy of {path}")?,
            None => write!(f, "the cache's copy of file {}", self.file)?,
        }
        match self.stored_bytes {
            Some(bytes) if self.unsent => write!(
                f,
                " was cut short to {bytes} bytes: the rest of what was written (version {}) and was not \
                 sent is lost, but for what the server has of it already",
                self.version
            ),
            Some(bytes) if self.zeros > 0 => write!(
                f,
                " could not be read from the disk any more in parts (version {}); what was there, \
                 {bytes} bytes, was stored and sent with zeros for {} bytes that are lost",
                self.version, self.zeros
            ),
            Some(bytes) => write!(
                f,
                " did not hold what was written (version {}); what was there, {bytes} bytes, was \
                 stored and sent in its place",
                self.version
            ),
            None if self.unsent => write!(
                f,
                " is gone: what was written (version {}) and was not sent is lost, and nobody else is \
                 known to have it. Write it anew or remove it; if the cache was moved away, unmount, and \
                 put it back before the next mount",
                self.version
            ),
            None => write!(
                f,
                " is gone: what was written (version {}) is lost, and the file is as the server \
                 has it",
                self.version
            ),
        }
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LinkStatus {
    pub connected: bool,
    /// There is a session, and over it the volume cannot be used: `trouble` says why.
    #[serde(default)]
    pub refused: bool,
    /// Why not, in words for the user.
    pub trouble: Option<String>,
    pub round_trip_ms: Option<f64>,
    /// Seconds since it was measured.
    #[serde(default)]
    pub round_trip_age_secs: Option<f64>,
    pub round_trip_min_ms: Option<f64>,
    /// Bytes a second.
    pub rate_up: Option<u64>,
    pub rate_down: Option<u64>,
    /// What the choice of a mode goes by.
    #[serde(default)]
    pub estimate: LinkEstimate,
    /// Bytes a second that may go, if that is limited.
    #[serde(default)]
    pub limit_up: Option<u64>,
    #[serde(default)]
    pub limit_down: Option<u64>,
    /// Of interactive, demand and replay traffic.
    #[serde(default)]
    pub tickets: Option<String>,
}

/// What a link is taken to be like, chance left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkEstimate {
    pub round_trip_ms: Option<f64>,
    /// Bytes a second that it carries upwards, if it was in use enough to tell lately.
    pub rate_up: Option<u64>,
    /// Share of the packets sent that are lost.
    pub loss: Option<f64>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CacheStatus {
    pub files: u64,
    pub bytes: u64,
    pub bytes_max: u64,
    /// What the tables take of the disk, which does not count among these.
    #[serde(default)]
    pub tables_bytes: u64,
    pub hits: u64,
    pub misses: u64,
}

/// Contents that were fetched ahead since the mount, before compression.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrefetchStatus {
    pub files: u64,
    pub bytes: u64,
    /// Of these, what somebody has read.
    pub used_bytes: u64,
    /// What nobody has read so far.
    pub unused_bytes: u64,
    /// As much may wait to be read at once; it follows from how much of it was.
    pub window_bytes: u64,
}

/// What is not yet at the origin.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Pending {
    pub updates: u64,
    /// Bytes of contents that pending updates name.
    pub bytes: u64,
    pub oldest_secs: Option<u64>,
    /// Files open and written to, which become updates when they are closed.
    pub open_for_writing: u64,
    /// Why the server did not take what was last sent, in words for the user.
    #[serde(default)]
    pub trouble: Option<String>,
    /// Why nothing of it leaves just now, in words for the user.
    #[serde(default)]
    pub held_back: Option<String>,
}

/// Updates of the log that the server has judged since the mount, and how long each had stood there:
/// from when it was logged until its verdict was here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replayed {
    pub updates: u64,
    /// Of all of them together: divided by their number, the mean.
    pub waited_ms: u64,
    pub waited_most_ms: u64,
    /// Of them, those that went ahead of contents that took long.
    #[serde(default)]
    pub ahead: u64,
}

/// How long updates took from when they were logged until they had come so far, since the mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReachTimes {
    pub reach: Reach,
    /// Of `Visible` those that are known of: what nobody waits for is asked about here and there.
    pub updates: u64,
    /// Of all of them together, in microseconds.
    pub sum_us: u64,
    pub most_us: u64,
    /// How many took at most so many microseconds, and longer than the bound before.
    pub within: Vec<(u64, u64)>,
}

/// Updates of the log that were cancelled since the mount, and the contents that only they named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelledStatus {
    pub updates: u64,
    pub bytes: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClassBytes {
    pub class: String,
    pub sent: u64,
    pub received: u64,
}
