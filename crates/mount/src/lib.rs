//! FUSE: shows a client to the kernel, and tells the kernel what to forget.
//!
//! A request is tried at once on the thread that read it. What would have to wait for the link
//! goes on as a task, so that no thread of ours is ever held by the link, and is answered with
//! EINTR when the waiting process is to end.
//! Holds: every request is answered once; errno is chosen in one file, `errno`.
//! Never: decides what a file holds, or which version is shown; that is the client's.
#![allow(
    clippy::disallowed_methods,
    reason = "the door to the kernel: it reads /proc, probes /dev/fuse and runs fusermount3"
)]

mod absent;
mod attributes;
mod calls;
mod contents;
mod directory;
mod driver;
mod errno;
mod fuse;
mod holders;
mod kernel;
mod lending;
mod listings;
mod locks;
mod mounted;
mod options;
mod privileges;
mod readahead;
mod replies;
mod signals;
mod table;
mod tmpfile;
mod users;
mod watch;
mod xattrs;

pub use mounted::{Mounted, mount};
pub use options::{KernelFlag, MountError, MountOptions, Passthrough};
pub use users::users;
