//! What the kernel says of one file.

use rustix::fs::{AtFlags, FileType, Mode, StatxFlags, StatxTimestamp};
use rustix::io::Errno;
use std::os::fd::AsFd;

/// Seconds since 1970, and nanoseconds.
pub type Instant = (i64, u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    CharDevice,
    BlockDevice,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    pub ino: u64,
    /// When it was made, where the file system says so: numbers of files are used again.
    pub born: Option<Instant>,
    pub device: u64,
    pub sort: Sort,
    /// The low 12 bits of `st_mode`.
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub links: u32,
    pub rdev: u64,
    pub mtime: Instant,
    pub ctime: Instant,
}

impl Stat {
    /// The root of another file system, which does not say how it looks.
    pub(super) fn of_mounted() -> Stat {
        Stat {
            ino: 0,
            born: None,
            device: u64::MAX,
            sort: Sort::Directory,
            mode: 0,
            uid: 0,
            gid: 0,
            size: 0,
            links: 1,
            rdev: 0,
            mtime: (0, 0),
            ctime: (0, 0),
        }
    }
}

/// Errors: as the kernel gives them.
pub(super) fn look(at: impl AsFd, name: &[u8], flags: AtFlags) -> Result<Stat, Errno> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let found = rustix::fs::statx(at, name, flags, wanted)?;
    let instant = |time: StatxTimestamp| (time.tv_sec, time.tv_nsec);
    let raw = u32::from(found.stx_mode);
    let has_birth = found.stx_mask & StatxFlags::BTIME.bits() != 0;
    let sort = match FileType::from_raw_mode(raw) {
        FileType::Directory => Sort::Directory,
        FileType::Symlink => Sort::Symlink,
        FileType::Fifo => Sort::Fifo,
        FileType::Socket => Sort::Socket,
        FileType::CharacterDevice => Sort::CharDevice,
        FileType::BlockDevice => Sort::BlockDevice,
        FileType::RegularFile | FileType::Unknown => Sort::File,
    };
    Ok(Stat {
        ino: found.stx_ino,
        born: has_birth.then(|| instant(found.stx_btime)),
        device: rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor),
        sort,
        mode: Mode::from_raw_mode(raw).bits() as u16 & 0o7777,
        uid: found.stx_uid,
        gid: found.stx_gid,
        size: found.stx_size,
        links: found.stx_nlink,
        rdev: rustix::fs::makedev(found.stx_rdev_major, found.stx_rdev_minor),
        mtime: instant(found.stx_mtime),
        ctime: instant(found.stx_ctime),
    })
}
