//! The kernel's side of a file system in a program: requests as they are read from `/dev/fuse`,
//! answers as they are written to it.
//! Holds: every request is answered once, with an error if whoever has it to answer lets it go; a
//! request that cannot be read is answered with an error, and never ends the mount.
//! Never: knows what a file is, waits for an answer.
//! From: the kernel's `linux/fuse.h`, protocol 7.45; `Documentation/filesystems/fuse`.

#![allow(
    clippy::disallowed_methods,
    reason = "a door to the kernel: it opens /dev/fuse, runs fusermount3 and the helper that lends, and looks for a moment"
)]

mod answer;
mod asked;
mod bytes;
mod device;
mod dispatch;
mod lendable;
mod lending;
mod mounting;
mod notice;
mod opcode;
mod opening;
pub mod privileged;
mod session;
mod words;

pub use answer::{
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyLock, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyStatx, ReplyWrite, ReplyXattr,
};
pub use asked::{LockAsked, Request, SetAttributes, SetTime};
pub use dispatch::Filesystem;
pub use lending::{Lender, LentFile};
pub use mounting::{How, in_path};
pub use notice::Notifier;
pub use opening::Agreed;
pub use privileged::Privileged;
pub use session::{Idle, Session, Settings, holds_up_all, takes_requests};
pub use words::{
    Errno, FileAttr, FileHandle, FileType, FopenFlags, INodeNo, InitFlags, LockOwner, OpenFlags,
    RenameFlags, Totals, WriteFlags,
};
