//! What the kernel asks for, from the bytes of a request.
//! Holds: whatever the bytes are, there is an answer; the layouts are those of `linux/fuse.h`.

use crate::bytes::Left;
use crate::words::{FileHandle, INodeNo, LockOwner, Moment, OpenFlags, RenameFlags, WriteFlags};
use std::ffi::OsStr;

/// `struct fuse_in_header`.
pub(crate) const HEAD_BYTES: usize = 40;
/// The lock is one of flock(2).
const LOCK_FLOCK: u32 = 1;

/// Who asks, and about which file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What is asked for, as `linux/fuse.h` numbers it.
    pub(crate) opcode: u32,
    pub(crate) unique: u64,
    pub(crate) ino: INodeNo,
    /// What the kernel calls it, if that is another number.
    number: INodeNo,
    uid: u32,
    gid: u32,
    pid: u32,
}

impl Request {
    pub fn uid(&self) -> u32 {
        self.uid
    }

    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// Of all requests that are under way, this one's number.
    pub fn unique(&self) -> u64 {
        self.unique
    }

    /// By which number the kernel knows the file.
    pub fn number(&self) -> INodeNo {
        self.number
    }

    /// The same request, of the file that bears the number.
    pub(crate) fn about(&self, file: INodeNo) -> Request {
        Request { ino: file, ..*self }
    }

    /// The thread that waits for the answer; 0 if there is none.
    pub fn pid(&self) -> u32 {
        self.pid
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    Now,
    At(Moment),
}

/// Attributes to set; those that are None stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<SetTime>,
    pub mtime: Option<SetTime>,
    /// By an open file.
    pub handle: Option<FileHandle>,
}

/// A lock of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockAsked {
    pub handle: FileHandle,
    pub owner: LockOwner,
    /// Of flock(2), which is of the whole file; otherwise of fcntl(2).
    pub flock: bool,
    /// The first byte and the last.
    pub start: u64,
    pub end: u64,
    /// As fcntl(2) has it: `F_RDLCK`, `F_WRLCK`, `F_UNLCK`.
    pub kind: i32,
    pub pid: u32,
}

/// A new file, open from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Creating<'a> {
    pub name: &'a OsStr,
    pub flags: i32,
    pub mode: u32,
    pub umask: u32,
}

/// A stretch of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub handle: FileHandle,
    pub offset: u64,
    pub size: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asked<'a> {
    Init(Offered),
    Destroy,
    /// Whoever waits for the request of this number was sent a signal.
    Interrupt(u64),
    Lookup(&'a OsStr),
    Forget(Vec<(INodeNo, u64)>),
    GetAttr,
    /// The same with the time of birth, which only those ask for who want it.
    Statx,
    SetAttr(SetAttributes),
    ReadLink,
    MkNod {
        name: &'a OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
    },
    MkDir {
        name: &'a OsStr,
        mode: u32,
        umask: u32,
    },
    Unlink(&'a OsStr),
    RmDir(&'a OsStr),
    Symlink {
        name: &'a OsStr,
        target: &'a OsStr,
    },
    Rename {
        name: &'a OsStr,
        to: INodeNo,
        to_name: &'a OsStr,
        flags: RenameFlags,
    },
    Link {
        file: INodeNo,
        name: &'a OsStr,
    },
    Open(OpenFlags),
    Create(Creating<'a>),
    TmpFile(Creating<'a>),
    Read(Stretch),
    Write {
        stretch: Stretch,
        flags: WriteFlags,
        bytes: &'a [u8],
    },
    Flush {
        handle: FileHandle,
        owner: LockOwner,
    },
    Release(FileHandle),
    Fsync(FileHandle),
    FsyncDir,
    ReadDir(Stretch),
    ReadDirPlus(Stretch),
    StatFs,
    SetXattr {
        name: &'a OsStr,
        value: &'a [u8],
        flags: i32,
    },
    GetXattr {
        name: &'a OsStr,
        size: u32,
    },
    ListXattr {
        size: u32,
    },
    RemoveXattr(&'a OsStr),
    GetLock(LockAsked),
    SetLock {
        lock: LockAsked,
        waits: bool,
    },
    Ioctl,
    Allocate {
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
    },
    Seek {
        handle: FileHandle,
        offset: u64,
        whence: i32,
    },
    Copy {
        from: (FileHandle, u64),
        to: (INodeNo, FileHandle, u64),
        length: u64,
    },
    /// What is not done here, by its number.
    Unknown(u32),
}

/// What the kernel is and can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offered {
    pub major: u32,
    pub minor: u32,
    pub readahead_bytes_max: u32,
    pub flags: u64,
}

/// Bytes that are no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bad {
    /// Not even to be answered.
    NoHead,
    Short(Request),
}

pub(crate) fn read(bytes: &[u8]) -> Result<(Request, Asked<'_>), Bad> {
    let request = head(&mut Left(bytes)).ok_or(Bad::NoHead)?;
    let body = Left(bytes.get(HEAD_BYTES..).unwrap_or_default());
    match asked(&request, body) {
        Some(asked) => Ok((request, asked)),
        None => Err(Bad::Short(request)),
    }
}

fn head(left: &mut Left<'_>) -> Option<Request> {
    left.skip(4)?;
    let opcode = left.u32()?;
    let (unique, ino) = (left.u64()?, INodeNo(left.u64()?));
    let (uid, gid, pid) = (left.u32()?, left.u32()?, left.u32()?);
    left.skip(4)?;
    Some(Request { opcode, unique, ino, number: ino, uid, gid, pid })
}

/// None: the request is shorter than it should be.
fn asked<'a>(request: &Request, mut left: Left<'a>) -> Option<Asked<'a>> {
    let (opcode, left) = (request.opcode, &mut left);
    Some(match opcode {
        1 => Asked::Lookup(left.name()?),
        2 => Asked::Forget(vec![(request.ino, left.u64()?)]),
        3 => Asked::GetAttr,
        4 => Asked::SetAttr(set_attributes(left)?),
        5 => Asked::ReadLink,
        6 => Asked::Symlink { name: left.name()?, target: left.name()? },
        8 | 9 => make(opcode, left)?,
        10 => Asked::Unlink(left.name()?),
        11 => Asked::RmDir(left.name()?),
        12 | 45 => rename(opcode, left)?,
        13 => Asked::Link { file: INodeNo(left.u64()?), name: left.name()? },
        14 => Asked::Open(OpenFlags(left.u32()?.cast_signed())),
        15 => Asked::Read(stretch(left)?),
        16 => write(left)?,
        17 => Asked::StatFs,
        18 => Asked::Release(FileHandle(left.u64()?)),
        20 => Asked::Fsync(FileHandle(left.u64()?)),
        21 => set_xattr(left)?,
        22 => {
            let size = left.u32()?;
            left.skip(4)?;
            Asked::GetXattr { name: left.name()?, size }
        }
        23 => Asked::ListXattr { size: left.u32()? },
        24 => Asked::RemoveXattr(left.name()?),
        25 => flush(left)?,
        26 => Asked::Init(offered(left)?),
        28 => Asked::ReadDir(stretch(left)?),
        30 => Asked::FsyncDir,
        31 => Asked::GetLock(lock(left)?),
        32 => Asked::SetLock { lock: lock(left)?, waits: false },
        33 => Asked::SetLock { lock: lock(left)?, waits: true },
        35 => Asked::Create(creating(left)?),
        36 => Asked::Interrupt(left.u64()?),
        38 => Asked::Destroy,
        39 => Asked::Ioctl,
        42 => Asked::Forget(forgotten(left)?),
        43 => allocate(left)?,
        44 => Asked::ReadDirPlus(stretch(left)?),
        46 => Asked::Seek {
            handle: FileHandle(left.u64()?),
            offset: left.u64()?,
            whence: left.u32()?.cast_signed(),
        },
        47 => Asked::Copy {
            from: (FileHandle(left.u64()?), left.u64()?),
            to: (INodeNo(left.u64()?), FileHandle(left.u64()?), left.u64()?),
            length: left.u64()?,
        },
        51 => Asked::TmpFile(creating(left)?),
        52 => Asked::Statx,
        other => Asked::Unknown(other),
    })
}

fn set_attributes(left: &mut Left<'_>) -> Option<SetAttributes> {
    let valid = left.u32()?;
    left.skip(4)?;
    let (handle, size) = (FileHandle(left.u64()?), left.u64()?);
    left.skip(8)?;
    let secs = (left.u64()?.cast_signed(), left.u64()?.cast_signed());
    left.skip(8)?;
    let nanos = (left.u32()?, left.u32()?);
    left.skip(4)?;
    let mode = left.u32()?;
    left.skip(4)?;
    let (uid, gid) = (left.u32()?, left.u32()?);
    let has = |bit: u32| valid & (1 << bit) != 0;
    let time = |bit, now, at| match (has(bit), has(now)) {
        (false, _) => None,
        (true, true) => Some(SetTime::Now),
        (true, false) => Some(SetTime::At(at)),
    };
    Some(SetAttributes {
        mode: has(0).then_some(mode),
        uid: has(1).then_some(uid),
        gid: has(2).then_some(gid),
        size: has(3).then_some(size),
        atime: time(4, 7, (secs.0, nanos.0)),
        mtime: time(5, 8, (secs.1, nanos.1)),
        handle: has(6).then_some(handle),
    })
}

fn make<'a>(opcode: u32, left: &mut Left<'a>) -> Option<Asked<'a>> {
    let mode = left.u32()?;
    if opcode == 9 {
        let umask = left.u32()?;
        return Some(Asked::MkDir { name: left.name()?, mode, umask });
    }
    let (rdev, umask) = (left.u32()?, left.u32()?);
    left.skip(4)?;
    Some(Asked::MkNod { name: left.name()?, mode, umask, rdev })
}

fn rename<'a>(opcode: u32, left: &mut Left<'a>) -> Option<Asked<'a>> {
    let to = INodeNo(left.u64()?);
    let mut flags = RenameFlags::empty();
    if opcode == 45 {
        flags = RenameFlags::from_bits_retain(left.u32()?);
        left.skip(4)?;
    }
    Some(Asked::Rename { name: left.name()?, to, to_name: left.name()?, flags })
}

fn creating<'a>(left: &mut Left<'a>) -> Option<Creating<'a>> {
    let (flags, mode, umask) = (left.u32()?.cast_signed(), left.u32()?, left.u32()?);
    left.skip(4)?;
    Some(Creating { name: left.name()?, flags, mode, umask })
}

fn stretch(left: &mut Left<'_>) -> Option<Stretch> {
    Some(Stretch { handle: FileHandle(left.u64()?), offset: left.u64()?, size: left.u32()? })
}

fn write<'a>(left: &mut Left<'a>) -> Option<Asked<'a>> {
    let stretch = stretch(left)?;
    let mut flags = WriteFlags::from_bits_retain(left.u32()?);
    // Who has locks on it.
    left.skip(8)?;
    let open = left.u32()?.cast_signed();
    flags.set(WriteFlags::APPENDS, open & libc::O_APPEND != 0);
    // O_SYNC contains it.
    flags.set(WriteFlags::SYNCS, open & libc::O_DSYNC != 0);
    left.skip(4)?;
    let bytes = left.bytes(usize::try_from(stretch.size).ok()?)?;
    Some(Asked::Write { stretch, flags, bytes })
}

fn set_xattr<'a>(left: &mut Left<'a>) -> Option<Asked<'a>> {
    let (size, flags) = (left.u32()?, left.u32()?.cast_signed());
    let name = left.name()?;
    Some(Asked::SetXattr { name, value: left.bytes(usize::try_from(size).ok()?)?, flags })
}

fn flush<'a>(left: &mut Left<'a>) -> Option<Asked<'a>> {
    let handle = FileHandle(left.u64()?);
    left.skip(8)?;
    Some(Asked::Flush { handle, owner: LockOwner(left.u64()?) })
}

fn offered(left: &mut Left<'_>) -> Option<Offered> {
    let (major, minor) = (left.u32()?, left.u32()?);
    let (readahead_bytes_max, low) = (left.u32()?, left.u32()?);
    // Older kernels end here.
    let high = left.u32().unwrap_or(0);
    let flags = u64::from(high) << 32 | u64::from(low);
    Some(Offered { major, minor, readahead_bytes_max, flags })
}

fn lock(left: &mut Left<'_>) -> Option<LockAsked> {
    let (handle, owner) = (FileHandle(left.u64()?), LockOwner(left.u64()?));
    let (start, end) = (left.u64()?, left.u64()?);
    let (kind, pid, flags) = (left.u32()?.cast_signed(), left.u32()?, left.u32()?);
    Some(LockAsked { handle, owner, flock: flags & LOCK_FLOCK != 0, start, end, kind, pid })
}

fn forgotten(left: &mut Left<'_>) -> Option<Vec<(INodeNo, u64)>> {
    let count = left.u32()?;
    left.skip(4)?;
    (0..count).map(|_| Some((INodeNo(left.u64()?), left.u64()?))).collect()
}

fn allocate<'a>(left: &mut Left<'a>) -> Option<Asked<'a>> {
    let (handle, offset, length) = (FileHandle(left.u64()?), left.u64()?, left.u64()?);
    Some(Asked::Allocate { handle, offset, length, mode: left.u32()?.cast_signed() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::Laid;
    use proptest::prelude::*;
    use std::os::unix::ffi::OsStrExt;

    /// A request of process 9 of user 1000 about file 5.
    fn request(opcode: u32, body: Laid) -> Vec<u8> {
        let length = (HEAD_BYTES + body.0.len()) as u32;
        let head = Laid::default().u32(length).u32(opcode).u64(77).u64(5);
        let mut laid = head.u32(1000).u32(100).u32(9).u32(0).0;
        laid.extend(body.0);
        laid
    }

    fn text(mut laid: Laid, text: &str) -> Laid {
        laid.0.extend(text.as_bytes());
        laid.zeros(1)
    }

    fn asked_by(opcode: u32, body: Laid, check: impl FnOnce(&Request, Asked<'_>)) {
        let bytes = request(opcode, body);
        let (request, asked) = read(&bytes).unwrap();
        check(&request, asked);
        // Cut off anywhere, it is answered with an error and not with a guess.
        for length in 0..HEAD_BYTES {
            assert_eq!(read(&bytes[..length]), Err(Bad::NoHead));
        }
    }

    #[test]
    fn the_head_says_who_asks_about_which_file() {
        asked_by(3, Laid::default().zeros(16), |request, asked| {
            assert_eq!((request.uid(), request.gid(), request.pid()), (1000, 100, 9));
            assert_eq!((request.ino, request.unique), (INodeNo(5), 77));
            assert_eq!(asked, Asked::GetAttr);
        });
    }

    #[test]
    fn names_come_one_after_the_other() {
        let body = text(text(Laid::default().u64(6).u32(2).u32(0), "from"), "to");
        asked_by(45, body, |_, asked| {
            let (name, to_name) = (OsStr::new("from"), OsStr::new("to"));
            let flags = RenameFlags::RENAME_EXCHANGE;
            assert_eq!(asked, Asked::Rename { name, to: INodeNo(6), to_name, flags });
        });
        let body = text(text(Laid::default(), "link"), "its/target");
        asked_by(6, body, |_, asked| {
            let (name, target) = (OsStr::new("link"), OsStr::new("its/target"));
            assert_eq!(asked, Asked::Symlink { name, target });
        });
    }

    #[test]
    fn what_is_written_comes_behind_forty_bytes() {
        let stretch = Stretch { handle: FileHandle(3), offset: 4096, size: 2 };
        let kills = WriteFlags::FUSE_WRITE_KILL_SUIDGID;
        let (appends, syncs) = (WriteFlags::APPENDS, WriteFlags::SYNCS);
        let cases = [
            (0, kills),
            (libc::O_APPEND, kills | appends),
            (libc::O_DSYNC, kills | syncs),
            (libc::O_SYNC | libc::O_APPEND, kills | appends | syncs),
        ];
        for (open, flags) in cases {
            let body = Laid::default().u64(3).u64(4096).u32(2).u32(4).zeros(8);
            let body = body.u32((libc::O_RDWR | open).cast_unsigned());
            let mut body = body.zeros(4);
            body.0.extend(b"ab");
            asked_by(16, body, |_, asked| {
                assert_eq!(asked, Asked::Write { stretch, flags, bytes: b"ab" });
            });
        }
    }

    #[test]
    fn of_attributes_those_that_are_marked_are_set() {
        // A mode, a time of change that is given, and a time of access that is now.
        let valid = 1 | 1 << 4 | 1 << 5 | 1 << 7;
        let times = Laid::default().u32(valid).u32(0).zeros(24).u64(0);
        let times = times.u64((-2_i64).cast_unsigned()).u64(0).u32(0).u32(5).u32(0);
        asked_by(4, times.u32(0o640).zeros(16), |_, asked| {
            let mtime = Some(SetTime::At((-2, 5)));
            let set = SetAttributes {
                mode: Some(0o640),
                atime: Some(SetTime::Now),
                mtime,
                ..SetAttributes::default()
            };
            assert_eq!(asked, Asked::SetAttr(set));
        });
    }

    #[test]
    fn a_lock_says_which_call_it_is_of() {
        let body = Laid::default().u64(1).u64(2).u64(3).u64(4).u32(1).u32(8).u32(1).u32(0);
        asked_by(33, body, |_, asked| {
            let lock = LockAsked {
                handle: FileHandle(1),
                owner: LockOwner(2),
                flock: true,
                start: 3,
                end: 4,
                kind: 1,
                pid: 8,
            };
            assert_eq!(asked, Asked::SetLock { lock, waits: true });
        });
    }

    #[test]
    fn many_files_are_forgotten_at_once() {
        let body = Laid::default().u32(2).u32(0).u64(8).u64(1).u64(9).u64(3);
        asked_by(42, body, |_, asked| {
            assert_eq!(asked, Asked::Forget(vec![(INodeNo(8), 1), (INodeNo(9), 3)]));
        });
        // More are announced than there are: no room is made for them first.
        let bytes = request(42, Laid::default().u32(u32::MAX).u32(0).u64(8).u64(1));
        assert!(matches!(read(&bytes), Err(Bad::Short(request)) if request.opcode == 42));
    }

    #[test]
    fn a_name_that_does_not_end_and_a_write_that_is_cut_off_are_no_requests() {
        let name = request(1, Laid(b"no end".to_vec()));
        assert!(matches!(read(&name), Err(Bad::Short(request)) if request.opcode == 1));
        let write = request(16, Laid::default().u64(3).u64(0).u32(9).zeros(20));
        assert!(matches!(read(&write), Err(Bad::Short(request)) if request.opcode == 16));
    }

    proptest! {
        #[test]
        fn prop_any_bytes_are_read_or_refused(opcode in 0_u32..60, body: Vec<u8>) {
            let bytes = request(opcode, Laid(body.clone()));
            match read(&bytes) {
                Ok((request, _)) => prop_assert_eq!(request.unique, 77),
                Err(bad) => prop_assert!(matches!(bad, Bad::Short(_)), "{:?}", bad),
            }
            let _ = read(&body);
        }

        #[test]
        fn prop_a_name_is_what_stands_before_its_nul(name in "[a-z]{1,255}") {
            let bytes = request(1, text(Laid::default(), &name));
            prop_assert_eq!(read(&bytes).unwrap().1, Asked::Lookup(OsStr::from_bytes(name.as_bytes())));
        }
    }
}
