//! What a caller of the client gives and gets.

use crate::headway::Headway;
use crate::locks::Process;
use model::{FileId, Kind, Name, Node, Time};
use protocol::past::By;
use protocol::{Objection, Refusal};
use std::fmt;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The outcome of one try of a call: done, or stopped for want of something.
pub type Step<T> = Result<T, Stop>;

/// Why a call did not go through at once.
#[derive(Debug)]
pub enum Stop {
    /// Something is not here: `Client::satisfy` it and try again.
    Need(Need),
    Error(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Error(error)
    }
}

/// What a call lacks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// The lease of all callbacks has run out.
    Lease,
    /// The attributes of a file.
    Node(FileId),
    /// The same for a listing, which can do without where nobody can tell them.
    Listed(FileId),
    /// What one name of a directory is.
    Entry(FileId, Name),
    /// All entries of a directory.
    Directory(FileId),
    /// A stretch of a file's contents.
    Contents { file: FileId, generation: u32, offset: u64, length: u64 },
    /// A stretch that is here and cannot be read.
    Readable { file: FileId, generation: u32, offset: u64, length: u64 },
    /// That the container of a version is as the version is: the disk here has lost something of it.
    Sound { file: FileId, generation: u32 },
    /// Stretches, (offset, end), of the version that a file was written upon: of some the recipe,
    /// of others the bytes too.
    Ground { file: FileId, generation: u32, recipe: Vec<(u64, u64)>, bytes: Vec<(u64, u64)> },
    /// Where the holes of a file are, from an offset on.
    Holes { file: FileId, generation: u32, offset: u64 },
    /// Where the recipe of a file begins.
    Root { file: FileId, generation: u32 },
    /// The volume itself: this client has never been attached.
    Volume,
    /// Totals for `statfs`.
    Totals,
    /// What pending updates rest on that a crash undid, so that they do not show.
    Pending,
    /// That nobody waits any more for the store of this number, which would be written over.
    Verdict(u64),
    /// A descriptor of this process.
    Descriptor,
}

impl Need {
    /// The open version of which something is lacking.
    pub(crate) fn version(&self) -> Option<(FileId, u32)> {
        match self {
            Need::Contents { file, generation, .. }
            | Need::Readable { file, generation, .. }
            | Need::Ground { file, generation, .. }
            | Need::Holes { file, generation, .. }
            | Need::Root { file, generation }
            | Need::Sound { file, generation } => Some((*file, *generation)),
            _ => None,
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Need::Lease => write!(f, "the lease has run out"),
            Need::Node(file) | Need::Listed(file) => {
                write!(f, "the attributes of file {file} are not here")
            }
            Need::Entry(directory, name) => {
                write!(f, "what {name} in directory {directory} is, is not known here")
            }
            Need::Directory(directory) => {
                write!(f, "the names in directory {directory} are not here")
            }
            Need::Contents { file, offset, length, .. } => {
                write!(f, "{length} bytes from {offset} on of file {file} are not here")
            }
            Need::Readable { file, offset, length, .. } => {
                write!(f, "{length} bytes from {offset} on of file {file} cannot be read")
            }
            Need::Sound { file, .. } => {
                write!(f, "what is here of file {file} is not as it was stored")
            }
            Need::Ground { file, .. } => {
                write!(f, "parts of what file {file} was written upon are not here")
            }
            Need::Holes { file, offset, .. } => {
                write!(f, "where the holes of file {file} are from {offset} on is not known here")
            }
            Need::Root { file, .. } => {
                write!(f, "what file {file} is made of is not known here")
            }
            Need::Volume => write!(f, "this mount has never been attached to its volume"),
            Need::Totals => write!(f, "how full the volume is, is not known here"),
            Need::Pending => write!(f, "what was changed here rests on what a crash took away"),
            Need::Verdict(number) => {
                write!(f, "update {number}, which is waited for, would be written over")
            }
            Need::Descriptor => write!(f, "this process has no descriptor left"),
        }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stop::Need(need) => need.fmt(f),
            Stop::Error(error) => error.fmt(f),
        }
    }
}

/// What went wrong with a call, as far as a program can tell the difference.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Objection(Objection),
    #[error("it cannot be had without the server: {0}")]
    Unreachable(String),
    #[error(
        "it is not in the cache and would take {secs} s to come, more than the {limit} s of its \
         policy: `farfs misses --fetch` fetches it"
    )]
    TakesLong { secs: u64, limit: u32 },
    #[error("the server did not answer within {0:?}")]
    TimedOut(Duration),
    #[error("the name is longer than 255 bytes")]
    NameTooLong,
    #[error("the file would be larger than a file can be")]
    TooLarge,
    #[error("the handle is not open, or not for this")]
    BadHandle,
    #[error("not supported: {0}")]
    NotSupported(&'static str),
    #[error("the version that was open is not kept any more")]
    Stale,
    /// The next try finds it at rest, or what was written stored.
    #[error("a program wrote to the file while it was being sent")]
    Changing,
    #[error("the attribute does not fit the buffer or the limit")]
    AttributeTooLarge,
    #[error("the extended attribute exists already")]
    AttributeExists,
    #[error("the client's own disk is full")]
    DiskFull,
    #[error("the client may not have more files open at once")]
    TooManyOpen,
    /// The link was lost on the way; what was asked for may be asked for again.
    #[error("the link was lost before the server answered")]
    Retry,
    #[error("somebody else has locked it")]
    Locked,
    #[error("waiting for the lock would never end: whoever has it waits for this process")]
    Deadlock,
    #[error("too many locks are held of one file")]
    TooManyLocks,
    #[error(
        "the kernel reads it straight from the cache for other programs: look its path up once more"
    )]
    LentOut,
    #[error(
        "programs read it straight from the cache: it can be opened for reading and writing when they have closed it, or by its path"
    )]
    LentToReaders,
    #[error("programs read an older version of it straight from the cache: close it there first")]
    OlderLentOut,
    #[error(
        "programs write to it straight in the cache, where nobody takes setuid and setgid away: set \
         them when they have closed it"
    )]
    WrittenUnseen,
    /// Whoever held it does not know who has written since.
    #[error("a lock was lost, and another device has it: close the file and open it again")]
    LockLost,
    /// The server's trouble: it has it in its log.
    #[error("{0}")]
    Refused(Refusal),
    /// The disk here has lost a part of it. Logged where it happened.
    #[error("{0}")]
    Unreadable(String),
    /// Logged where it happened.
    #[error("{0}")]
    Failed(String),
}

/// A value, and the update whose verdict must be waited for before it may be told.
#[derive(Debug)]
pub struct Done<T> {
    pub value: T,
    /// Give it to `Client::settled`. None: nothing to wait for.
    pub wait: Option<u64>,
}

/// A file with what `stat` shows of it.
#[derive(Clone, Debug)]
pub struct Found {
    pub file: FileId,
    /// With the size and times of what is open and written here.
    pub node: Node,
}

/// Who calls, as the kernel tells.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    pub uid: u32,
    pub gid: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub u64);

#[derive(Clone, Copy, Debug, Default)]
pub struct OpenFlags {
    pub read: bool,
    pub write: bool,
    pub truncate: bool,
    pub append: bool,
}

#[derive(Debug)]
pub struct Opened {
    pub handle: Handle,
    /// What the kernel has cached of the contents is still right.
    pub keep_cache: bool,
    /// The kernel must not cache: another version of the file is open here too.
    pub direct: bool,
    /// The container that the kernel has been lent of this file. It reads and maps that itself;
    /// with `direct` it asks for what is read and written all the same.
    pub lent: Option<Arc<dyn Lent>>,
    /// Records of the file may be locked: each close is to be told.
    pub is_recorded: bool,
}

/// What a new file is to be.
#[derive(Clone, Debug)]
pub struct Making {
    pub kind: Kind,
    /// Permission bits, the umask applied.
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    /// Of a symbolic link, what it says.
    pub target: Option<Vec<u8>>,
    /// Of a device.
    pub rdev: Option<u64>,
}

/// Attributes to set; none stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Setting {
    pub mode: Option<u16>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<SetTime>,
    pub mtime: Option<SetTime>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    Now,
    At(Time),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameFlag {
    Replace,
    NoReplace,
    Exchange,
    /// The old name becomes a whiteout.
    Whiteout,
    WhiteoutNoReplace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrFlag {
    Either,
    Create,
    Replace,
}

/// A name in a directory, in the order of cookies, and what it is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Where a reader goes on after this entry: positive, below 2^63, the same while it lasts.
    pub cookie: u64,
    pub name: Name,
    pub file: FileId,
    /// None: what the server has of the file is damaged, so that nobody can tell.
    pub kind: Option<Kind>,
}

/// One entry of a directory, in the order of cookies.
#[derive(Clone, Debug)]
pub struct DirectoryEntry {
    /// Where a reader goes on after this entry: positive, below 2^63, the same while it lasts.
    pub cookie: u64,
    pub name: Name,
    /// The file, where nobody can tell what it is: what the server has of it is damaged.
    pub found: Result<Found, FileId>,
}

pub use replay::WantedMode;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The log is synced as fast as the disk can, without holding the caller.
    Prompt,
    /// An update is on the disk before the call returns.
    Sync,
}

#[derive(Clone, Debug)]
pub struct Settings {
    pub mode: WantedMode,
    pub durability: Durability,
    pub cache_bytes_max: u64,
    /// Files up to so many bytes are fetched whole before they are written to, and of larger ones
    /// only what is needed. None: by the link.
    pub whole_bytes_max: Option<u64>,
    /// Updates that are pending and kept in memory; the others are read from the log when it is
    /// their turn.
    pub pending_near_max: usize,
    /// Chunks of one file that are at hand while it is sent; where the others are is looked up.
    pub plan_chunks_max: usize,
    /// Files of so many bytes that are opened again are cut anew around what is written, and
    /// smaller ones whole.
    pub again_bytes_min: u64,
    /// Files of so many bytes are sent while they are written, whatever the link. None: large ones,
    /// where the link is fast.
    pub early_bytes_min: Option<u64>,
    /// A server that was set back is believed, though newer versions are cached here.
    pub accepts_set_back: bool,
    /// What nobody waits for leaves no sooner than so long after it was made. None: as is right for
    /// the budget.
    pub replay_delay: Option<Duration>,
    /// What takes the link longer than this is passed by what has nothing to do with it. None: all
    /// leaves in its order.
    pub passes_from: Option<Duration>,
    /// Bytes that may go over the link in a month, in both directions, before what nobody waits for
    /// is held back. None: as many as there are.
    pub budget: Option<u64>,
    /// How long a call may wait for the link before it fails.
    pub answer_within: Duration,
    /// Who may know of the conflicts that are asked for here unasked. None: he may know of all.
    pub on_behalf_of: Option<By>,
    /// For `status` alone.
    pub volume: String,
    pub server: String,
    pub mountpoint: PathBuf,
    pub state_directory: PathBuf,
    /// Opening a client makes it.
    pub headway: Headway,
}

/// Contents that take the link longer are passed by what has nothing to do with them, unless the
/// settings say otherwise: who looks at the other end notices about so much.
pub const PASSES_FROM: Duration = Duration::from_millis(300);

/// What the kernel must forget. The client tells; the mount carries out.
pub trait Kernel: Send + Sync + 'static {
    /// Attributes; with `contents`, cached pages too; of a directory, its cached entries. Says
    /// whether it has forgotten them: where something is in its way it does later.
    fn forget_node(&self, file: FileId, contents: bool) -> bool;
    /// Attributes, and the cached pages from this byte on.
    fn forget_from(&self, file: FileId, from: u64) -> bool;
    /// Attributes and cached pages of a file by all its numbers but this one. Nobody waits for it for
    /// long: others may be writing by those.
    fn forget_others(&self, file: FileId, number: u64) -> bool;
    /// The name, and what is kept of its directory: attributes and listings.
    fn forget_entry(&self, directory: FileId, name: &Name);
    /// What bears the name is asked for again; what is kept of its directory stays.
    fn forget_name(&self, directory: FileId, name: &Name);
    /// The same of all names of which it was told that nothing bears them.
    fn forget_absent(&self);
    /// Lends the kernel a container to read in the place of a file. None: it takes none.
    fn lend(&self, container: BorrowedFd<'_>) -> Option<Arc<dyn Lent>>;
    /// Why it takes none, if it takes none at all.
    fn takes_none(&self) -> Option<String>;
    /// Whether a process of this machine has surely ended.
    fn has_ended(&self, process: Process) -> bool;
}

/// A container that the kernel has been lent, until this is dropped.
pub trait Lent: fmt::Debug + Send + Sync {
    /// By which the kernel knows it.
    fn number(&self) -> i32;
}

/// `farfs explain`.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Explanation {
    pub path: String,
    pub file: u64,
    pub kind: String,
    pub size: u64,
    /// The update that stored the contents shown, `replica.number`. None: it is as it was when the
    /// volume was made.
    pub version: Option<String>,
    /// The version that is current at the origin as far as is known here.
    pub version_at_origin: Option<String>,
    pub bytes_here: u64,
    pub reach: protocol::Reach,
    /// Pending updates of this file, oldest first, in words.
    pub pending: Vec<String>,
    /// Which version is good enough here: `strict`, `bounded SECONDS` or `manual`.
    pub policy: String,
    /// It changed elsewhere, and what shows is good enough.
    pub stale: bool,
    /// Sentences for people: where the contents are, which version, why.
    pub why: Vec<String>,
}

/// What fallocate(2) is to do with a stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocate {
    /// Room is set aside, and nothing of it can be seen.
    Keep,
    /// The file grows to the end of the stretch, with room.
    Extend,
    /// The stretch becomes a hole.
    Punch,
    /// The stretch reads as zeros, with room set aside, and the file grows to its end.
    Zero,
    /// The same, and the length stays.
    ZeroWithin,
}
