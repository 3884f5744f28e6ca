//! What a program does to a file system, and what it gets.

use client::{Allocate, OpenFlags, RenameFlag, XattrFlag};
use model::{Kind, Name, Time};
use std::fmt;

/// Open files that one client's programs keep across operations.
pub const SLOTS: usize = 4;

/// From the top of the tree, or of a client's own part of it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Path(pub Vec<Name>);

impl Path {
    /// `text` with slashes; empty for the top.
    pub fn new(text: &str) -> Path {
        let names = text.split('/').filter(|part| !part.is_empty());
        Path(names.map(|part| Name::new(part).expect("a part without slashes")).collect())
    }

    pub fn join(&self, below: &Path) -> Path {
        Path(self.0.iter().chain(&below.0).cloned().collect())
    }

    /// Where the last name stands. None for the top, which has no name.
    pub fn split(&self) -> Option<(Path, &Name)> {
        let (last, above) = self.0.split_last()?;
        Some((Path(above.to_vec()), last))
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|name| write!(f, "/{name}"))
    }
}

/// A system call, or as much of one as a file system sees. `slot` is where the open file is kept.
#[derive(Clone, Debug)]
pub enum Operation {
    Make {
        path: Path,
        kind: Kind,
        mode: u16,
        target: Option<Vec<u8>>,
    },
    /// Exclusively; stays open for reading and writing.
    Create {
        path: Path,
        mode: u16,
        slot: usize,
    },
    /// A file without a name, in this directory; open for reading and writing.
    CreateUnborn {
        directory: Path,
        mode: u16,
        slot: usize,
    },
    /// One more name for a file that is open, the first if it has none.
    Bear {
        slot: usize,
        to: Path,
    },
    Open {
        path: Path,
        slot: usize,
        flags: OpenFlags,
    },
    Write {
        slot: usize,
        offset: u64,
        length: usize,
        version: u64,
    },
    Append {
        slot: usize,
        length: usize,
        version: u64,
    },
    Truncate {
        slot: usize,
        size: u64,
    },
    Allocate {
        slot: usize,
        offset: u64,
        length: u64,
        how: Allocate,
    },
    Copy {
        from: usize,
        from_offset: u64,
        to: usize,
        to_offset: u64,
        length: u64,
    },
    Read {
        slot: usize,
        offset: u64,
        length: usize,
    },
    SeekData {
        slot: usize,
        offset: u64,
    },
    StatOpen {
        slot: usize,
    },
    Flush {
        slot: usize,
    },
    Sync {
        slot: usize,
    },
    Close {
        slot: usize,
    },
    /// By path, without an open file.
    Cut {
        path: Path,
        size: u64,
    },
    /// Open, read all, close.
    Fetch {
        path: Path,
    },
    Link {
        from: Path,
        to: Path,
    },
    Unlink {
        path: Path,
    },
    RemoveDirectory {
        path: Path,
    },
    Rename {
        from: Path,
        to: Path,
        flag: RenameFlag,
    },
    SetMode {
        path: Path,
        mode: u16,
    },
    SetOwner {
        path: Path,
        uid: u32,
        gid: u32,
    },
    SetTime {
        path: Path,
        secs: i64,
    },
    Stat {
        path: Path,
    },
    /// `page` entries at a time.
    List {
        path: Path,
        page: usize,
    },
    ReadLink {
        path: Path,
    },
    Parent {
        path: Path,
    },
    SetXattr {
        path: Path,
        name: Vec<u8>,
        value: Vec<u8>,
        flag: XattrFlag,
    },
    RemoveXattr {
        path: Path,
        name: Vec<u8>,
    },
    Xattr {
        path: Path,
        name: Vec<u8>,
    },
    Xattrs {
        path: Path,
    },
    Totals,
}

impl Operation {
    /// Whether anything may be different after it.
    pub fn changes(&self) -> bool {
        !matches!(
            self,
            Operation::Read { .. }
                | Operation::SeekData { .. }
                | Operation::StatOpen { .. }
                | Operation::Fetch { .. }
                | Operation::Stat { .. }
                | Operation::List { .. }
                | Operation::ReadLink { .. }
                | Operation::Parent { .. }
                | Operation::Xattr { .. }
                | Operation::Xattrs { .. }
                | Operation::Totals
        )
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use Operation as O;
        match self {
            O::Make { path, kind, .. } => write!(f, "make {kind:?} {path}"),
            O::Create { path, slot, .. } => write!(f, "create {path} as [{slot}]"),
            O::CreateUnborn { directory, slot, .. } => {
                write!(f, "create without a name in {directory} as [{slot}]")
            }
            O::Bear { slot, to } => write!(f, "link [{slot}] {to}"),
            O::Open { path, slot, flags } => {
                let flags = [
                    (flags.read, "read"),
                    (flags.write, "write"),
                    (flags.truncate, "truncate"),
                    (flags.append, "append"),
                ];
                write!(f, "open {path} as [{slot}] for")?;
                flags.iter().filter(|(on, _)| *on).try_for_each(|(_, what)| write!(f, " {what}"))
            }
            O::Write { slot, offset, length, version } => {
                write!(f, "write [{slot}] v{version} {offset}+{length}")
            }
            O::Append { slot, length, version } => {
                write!(f, "append [{slot}] v{version} +{length}")
            }
            O::Truncate { slot, size } => write!(f, "truncate [{slot}] to {size}"),
            O::Allocate { slot, offset, length, how } => {
                write!(f, "allocate [{slot}] {offset}+{length} {how:?}")
            }
            O::Copy { from, from_offset, to, to_offset, length } => {
                write!(f, "copy [{from}] {from_offset}+{length} to [{to}] {to_offset}")
            }
            O::Read { slot, offset, length } => write!(f, "read [{slot}] {offset}+{length}"),
            O::SeekData { slot, offset } => write!(f, "seek data [{slot}] from {offset}"),
            O::StatOpen { slot } => write!(f, "stat [{slot}]"),
            O::Flush { slot } => write!(f, "flush [{slot}]"),
            O::Sync { slot } => write!(f, "sync [{slot}]"),
            O::Close { slot } => write!(f, "close [{slot}]"),
            O::Cut { path, size } => write!(f, "truncate {path} to {size}"),
            O::Fetch { path } => write!(f, "fetch {path}"),
            O::Link { from, to } => write!(f, "link {from} {to}"),
            O::Unlink { path } => write!(f, "unlink {path}"),
            O::RemoveDirectory { path } => write!(f, "rmdir {path}"),
            O::Rename { from, to, flag } => write!(f, "rename {from} {to} {flag:?}"),
            O::SetMode { path, mode } => write!(f, "chmod {mode:o} {path}"),
            O::SetOwner { path, uid, gid } => write!(f, "chown {uid}:{gid} {path}"),
            O::SetTime { path, secs } => write!(f, "touch {secs} {path}"),
            O::Stat { path } => write!(f, "stat {path}"),
            O::List { path, page } => write!(f, "list {path} by {page}"),
            O::ReadLink { path } => write!(f, "readlink {path}"),
            O::Parent { path } => write!(f, "parent of {path}"),
            O::SetXattr { path, name, value, flag } => write!(
                f,
                "setxattr {path} {} ({} bytes) {flag:?}",
                String::from_utf8_lossy(name),
                value.len()
            ),
            O::RemoveXattr { path, name } => {
                write!(f, "removexattr {path} {}", String::from_utf8_lossy(name))
            }
            O::Xattr { path, name } => {
                write!(f, "getxattr {path} {}", String::from_utf8_lossy(name))
            }
            O::Xattrs { path } => write!(f, "listxattr {path}"),
            O::Totals => write!(f, "statfs"),
        }
    }
}

/// What `stat` shows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shown {
    pub file: u64,
    pub kind: Kind,
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub links: u32,
    pub size: u64,
    /// None where it cannot be foretold.
    pub mtime: Option<Time>,
}

/// What an operation gave.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    Done,
    Shown(Shown),
    /// In the order of names.
    Names(Vec<(Name, Shown)>),
    Bytes(Vec<u8>),
    Copied(u64),
    /// SEEK_DATA: a place that only zeros come before; none if there is none.
    Place(Option<u64>),
    /// In their order.
    Keys(Vec<Vec<u8>>),
    File(u64),
    Failed(Fault),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Done => f.write_str("done"),
            Outcome::Shown(shown) => write!(f, "{shown}"),
            Outcome::Names(names) => {
                f.write_str("[")?;
                names.iter().try_for_each(|(name, shown)| write!(f, " {name}: {shown};"))?;
                f.write_str(" ]")
            }
            Outcome::Bytes(bytes) => f.write_str(&crate::contents::describe(bytes)),
            Outcome::Copied(bytes) => write!(f, "{bytes} bytes copied"),
            Outcome::Place(place) => write!(f, "{place:?}"),
            Outcome::Keys(keys) => {
                keys.iter().try_for_each(|key| write!(f, "{} ", String::from_utf8_lossy(key)))
            }
            Outcome::File(file) => write!(f, "file {file:x}"),
            Outcome::Failed(fault) => write!(f, "{fault:?}"),
        }
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} {:x} {:o} {}:{} x{} {} bytes",
            self.kind, self.file, self.mode, self.uid, self.gid, self.links, self.size
        )
    }
}

/// Why an operation failed, as far as programs can tell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    NoEntry,
    Exists,
    NotADirectory,
    IsADirectory,
    NotEmpty,
    Cycle,
    TooManyLinks,
    Changed,
    NotPermitted,
    ReadOnly,
    NoSpace,
    OverQuota,
    NoAttribute,
    AttributeExists,
    Invalid,
    BadHandle,
    Stale,
    DiskFull,
    Unreachable,
    TimedOut,
    Retry,
    /// It was done here, and nobody knows yet whether the origin takes it.
    NoVerdict,
    Other(String),
}

impl Fault {
    /// The link was needed and not there.
    pub fn is_of_link(&self) -> bool {
        matches!(self, Fault::Unreachable | Fault::TimedOut | Fault::Retry)
    }

    /// A disk was full, here or at the origin, or a quota used up.
    pub fn is_of_room(&self) -> bool {
        matches!(self, Fault::NoSpace | Fault::DiskFull | Fault::OverQuota)
    }
}
