//! Answers to requests.
//! Holds: each is given once; a request that is let go without one is answered with EIO.

use crate::bytes::{Laid, listed_bytes};
use crate::device::Device;
use crate::words::{Errno, FileAttr, FileHandle, FopenFlags, Totals, kept};
use std::ffi::OsStr;
use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

/// `struct fuse_out_header`.
const HEAD_BYTES: usize = 16;
/// Of a file in a listing with attributes, before its entry.
const PLUS_BYTES: usize = 128;

/// A request that waits for its answer.
#[derive(Debug)]
pub(crate) struct Reply {
    device: Arc<Device>,
    unique: u64,
    answered: bool,
}

impl Reply {
    pub fn to(device: &Arc<Device>, unique: u64) -> Reply {
        Reply { device: Arc::clone(device), unique, answered: false }
    }

    pub fn error(self, errno: Errno) {
        self.send(-errno.code(), &[]);
    }

    pub fn ok(self, answer: &[u8]) {
        self.send(0, answer);
    }

    fn send(mut self, error: i32, answer: &[u8]) {
        self.answered = true;
        self.tell(error, answer);
    }

    fn tell(&self, error: i32, answer: &[u8]) {
        let length = (HEAD_BYTES + answer.len()) as u32;
        let head = Laid::default().u32(length).u32(error.cast_unsigned()).u64(self.unique);
        match self.device.write(&[IoSlice::new(&head.0), IoSlice::new(answer)]) {
            Ok(()) => {}
            // Who asked has been interrupted, or the mount is gone.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
            Err(error) => tracing::warn!(%error, "the kernel does not take an answer"),
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if !self.answered {
            tracing::warn!("a request was let go without an answer");
            self.tell(-libc::EIO, &[]);
        }
    }
}

macro_rules! replies {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        $(
            $(#[$doc])*
            #[derive(Debug)]
            pub struct $name(pub(crate) Reply);

            impl $name {
                pub fn error(self, errno: Errno) {
                    self.0.error(errno);
                }
            }
        )*
    };
}

replies!(
    ReplyAttr,
    ReplyCreate,
    ReplyData,
    ReplyEmpty,
    ReplyEntry,
    ReplyLock,
    ReplyLseek,
    ReplyOpen,
    ReplyStatfs,
    ReplyStatx,
    ReplyWrite,
    ReplyXattr,
);

impl ReplyEmpty {
    pub fn ok(self) {
        self.0.ok(&[]);
    }
}

impl ReplyData {
    pub fn data(self, bytes: &[u8]) {
        self.0.ok(bytes);
    }
}

impl ReplyAttr {
    /// `keep`: for how long the kernel need not ask again.
    pub fn attr(self, keep: &Duration, attr: &FileAttr) {
        let (secs, nanos) = kept(*keep);
        self.0.ok(&Laid::answer().u64(secs).u32(nanos).u32(0).attributes(attr).0);
    }
}

impl ReplyStatx {
    /// As `ReplyAttr::attr`, with the time of birth: `struct fuse_statx_out`.
    pub fn attr(self, keep: &Duration, attr: &FileAttr) {
        let (secs, nanos) = kept(*keep);
        self.0.ok(&Laid::answer().u64(secs).u32(nanos).u32(0).zeros(16).statx(attr).0);
    }
}

impl ReplyEntry {
    pub fn entry(self, keep: &Duration, attr: &FileAttr) {
        self.0.ok(&Laid::answer().entry(*keep, attr).0);
    }
}

/// `behind`: the number of the file that the kernel reads and writes in its place.
fn opened(laid: Laid, handle: FileHandle, flags: FopenFlags, behind: i32) -> Laid {
    laid.u64(handle.0).u32(flags.bits()).u32(behind.cast_unsigned())
}

impl ReplyOpen {
    pub fn opened(self, handle: FileHandle, flags: FopenFlags) {
        self.0.ok(&opened(Laid::answer(), handle, flags, 0).0);
    }

    /// As `opened`. The kernel reads and maps another file in its place: the one that was lent to
    /// it under this number.
    pub fn opened_behind(self, handle: FileHandle, flags: FopenFlags, number: i32) {
        let flags = flags | FopenFlags::FOPEN_PASSTHROUGH;
        self.0.ok(&opened(Laid::answer(), handle, flags, number).0);
    }
}

impl ReplyCreate {
    pub fn created(self, keep: &Duration, attr: &FileAttr, handle: FileHandle, flags: FopenFlags) {
        self.0.ok(&opened(Laid::answer().entry(*keep, attr), handle, flags, 0).0);
    }
}

impl ReplyWrite {
    /// Bytes.
    pub fn written(self, count: u32) {
        self.0.ok(&Laid::answer().u32(count).u32(0).0);
    }
}

impl ReplyStatfs {
    pub fn totals(self, totals: &Totals) {
        self.0.ok(&Laid::answer().totals(totals).0);
    }
}

impl ReplyXattr {
    pub fn size(self, bytes: u32) {
        self.0.ok(&Laid::answer().u32(bytes).u32(0).0);
    }

    pub fn data(self, bytes: &[u8]) {
        self.0.ok(bytes);
    }
}

impl ReplyLock {
    /// From the first byte to the last. `kind` as in `LockAsked`.
    pub fn locked(self, start: u64, end: u64, kind: i32, pid: u32) {
        self.0.ok(&Laid::answer().u64(start).u64(end).u32(kind.cast_unsigned()).u32(pid).0);
    }
}

impl ReplyLseek {
    pub fn offset(self, offset: i64) {
        self.0.ok(&Laid::answer().u64(offset.cast_unsigned()).0);
    }
}

/// A listing of so many bytes at most.
#[derive(Debug)]
pub struct ReplyDirectory {
    reply: Reply,
    laid: Laid,
    bytes_max: usize,
}

/// The same with attributes: the kernel has each file of it from then on.
#[derive(Debug)]
pub struct ReplyDirectoryPlus(ReplyDirectory);

impl ReplyDirectory {
    pub(crate) fn new(reply: Reply, bytes_max: u32) -> ReplyDirectory {
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        ReplyDirectory { reply, laid: Laid::default(), bytes_max }
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.laid.0.len() + bytes <= self.bytes_max
    }

    /// `position`: where a reader goes on after it. True: there is no room for it.
    pub fn add(&mut self, attr: &FileAttr, position: u64, name: &OsStr) -> bool {
        let fits = self.has_room(listed_bytes(name));
        if fits {
            self.laid = std::mem::take(&mut self.laid).listed(attr, position, name);
        }
        !fits
    }

    pub fn ok(self) {
        self.reply.ok(&self.laid.0);
    }

    pub fn error(self, errno: Errno) {
        self.reply.error(errno);
    }
}

impl ReplyDirectoryPlus {
    pub(crate) fn new(reply: Reply, bytes_max: u32) -> ReplyDirectoryPlus {
        ReplyDirectoryPlus(ReplyDirectory::new(reply, bytes_max))
    }

    /// As `ReplyDirectory::add`. `known`: the kernel has the file from then on; not one of the dots.
    pub fn add(
        &mut self,
        (attr, known): (&FileAttr, bool),
        position: u64,
        name: &OsStr,
        keep: Duration,
    ) -> bool {
        let fits = self.0.has_room(PLUS_BYTES + listed_bytes(name));
        if fits {
            let laid = std::mem::take(&mut self.0.laid);
            let laid = if known { laid.entry(keep, attr) } else { laid.zeros(PLUS_BYTES) };
            self.0.laid = laid.listed(attr, position, name);
        }
        !fits
    }

    pub fn ok(self) {
        self.0.ok();
    }

    pub fn error(self, errno: Errno) {
        self.0.error(errno);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::{FileType, INodeNo};
    use rustix::fd::OwnedFd;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    /// A device that is none, and where what is written to it comes out.
    fn device() -> (Arc<Device>, OwnedFd) {
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        (Arc::new(Device::of(ours)), theirs)
    }

    fn written(end: &OwnedFd) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        let count = rustix::io::read(end, &mut bytes).unwrap();
        bytes.truncate(count);
        bytes
    }

    #[test]
    fn a_request_that_is_let_go_is_answered_with_an_error() {
        let (device, end) = device();
        drop(ReplyEmpty(Reply::to(&device, 9)));
        let answer = written(&end);
        assert_eq!(answer[..4], 16_u32.to_ne_bytes());
        assert_eq!(answer[4..8], (-libc::EIO).to_ne_bytes());
        assert_eq!(answer[8..16], 9_u64.to_ne_bytes());
    }

    #[test]
    fn an_answer_is_given_once() {
        let (device, end) = device();
        ReplyData(Reply::to(&device, 9)).data(b"abc");
        ReplyEmpty(Reply::to(&device, 10)).error(Errno::ENOENT);
        assert_eq!(&written(&end)[16..], b"abc");
        assert_eq!(written(&end)[4..8], (-libc::ENOENT).to_ne_bytes());
    }

    #[test]
    fn what_is_lent_is_named_in_the_answer_to_an_open() {
        let (device, end) = device();
        let flags = FopenFlags::FOPEN_NOFLUSH;
        ReplyOpen(Reply::to(&device, 1)).opened_behind(FileHandle(5), flags, 9);
        let answer = written(&end);
        assert_eq!(answer[16..24], 5_u64.to_ne_bytes());
        assert_eq!(answer[24..28], (1_u32 << 5 | 1 << 7).to_ne_bytes());
        assert_eq!(answer[28..32], 9_i32.to_ne_bytes());
        ReplyOpen(Reply::to(&device, 1)).opened(FileHandle(5), flags);
        assert_eq!(written(&end)[24..32], [1 << 5, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_listing_takes_what_there_is_room_for() {
        let (device, end) = device();
        let (ino, kind) = (INodeNo(7), FileType::Directory);
        let attr = FileAttr { ino, number: ino, kind, perm: 0o755, nlink: 1, ..FileAttr::NOTHING };
        let mut reply = ReplyDirectory::new(Reply::to(&device, 1), 70);
        let full: Vec<bool> =
            ["a", "b", "c"].iter().map(|name| reply.add(&attr, 1, OsStr::new(name))).collect();
        assert_eq!(full, [false, false, true]);
        reply.ok();
        assert_eq!(written(&end).len(), 16 + 64);
        let mut reply = ReplyDirectoryPlus::new(Reply::to(&device, 1), 320);
        let mut add = |known| reply.add((&attr, known), 1, OsStr::new("a"), Duration::ZERO);
        assert_eq!([add(false), add(true), add(true)], [false, false, true]);
        reply.ok();
        let answer = written(&end);
        // The kernel has the second, and not the first.
        assert_eq!(answer[16..24], 0_u64.to_ne_bytes());
        assert_eq!(answer[16 + 160..16 + 168], 7_u64.to_ne_bytes());
    }
}
