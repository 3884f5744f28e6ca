//! What may be lent for who may not lend by himself, and the words for it.
//! Holds: nothing goes to the kernel that its owner has not opened to read and to write, nor what may
//! forbid by itself what his descriptor allows, as a sealed memory file does.
//! From: the kernel's `fs/fuse/passthrough.c`: a file that is lent is opened anew, in whichever way the
//! program opens that of the mount, and nobody is asked whether that is allowed.

use rustix::fs::{FileType, OFlags, Stat, fcntl_getfl, fstat, fstatfs};
use rustix::io::Errno;
use std::os::fd::AsFd;

/// `/dev/fuse` has these numbers in every Linux (`Documentation/admin-guide/devices.txt`).
const DEVICE: (u32, u32) = (10, 229);

/// File systems on disks, by their numbers in `statfs` (`linux/magic.h`, and of ZFS and bcachefs their
/// own): all others may have rules that the kernel asks for by the descriptor that a program has.
const ON_DISKS: [u64; 7] = [
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683e, // btrfs
    0xf2f5_2010, // F2FS
    0xca45_1a4e, // bcachefs
    0x2fc1_2fc1, // ZFS
    0x3153_464a, // JFS
];

/// What is asked of the helper. Descriptors go with it: the mount's device first, then the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Whether it may lend at all.
    MayYou,
    Lend,
    TakeBack(u32),
}

/// Bytes of a question, and of an answer.
pub(crate) const QUESTION_BYTES: usize = 5;
pub(crate) const ANSWER_BYTES: usize = 4;

impl Asked {
    pub fn bytes(self) -> [u8; QUESTION_BYTES] {
        let (word, number) = match self {
            Asked::MayYou => (0, 0),
            Asked::Lend => (1, 0),
            Asked::TakeBack(number) => (2, number),
        };
        let [a, b, c, d] = number.to_ne_bytes();
        [word, a, b, c, d]
    }

    pub fn of(bytes: &[u8]) -> Option<Asked> {
        let &[word, a, b, c, d] = bytes else { return None };
        match word {
            0 => Some(Asked::MayYou),
            1 => Some(Asked::Lend),
            2 => Some(Asked::TakeBack(u32::from_ne_bytes([a, b, c, d]))),
            _ => None,
        }
    }

    /// Descriptors that belong to it.
    pub fn descriptors(self) -> usize {
        match self {
            Asked::MayYou => 0,
            Asked::Lend => 2,
            Asked::TakeBack(_) => 1,
        }
    }
}

/// A number that the kernel gave, or 0, or why not.
pub(crate) fn answer_of(outcome: rustix::io::Result<i32>) -> [u8; ANSWER_BYTES] {
    outcome.unwrap_or_else(|errno| -errno.raw_os_error()).to_ne_bytes()
}

pub(crate) fn outcome_of(answer: [u8; ANSWER_BYTES]) -> rustix::io::Result<i32> {
    match i32::from_ne_bytes(answer) {
        number @ 0.. => Ok(number),
        errno => Err(Errno::from_raw_os_error(errno.checked_neg().unwrap_or(libc::EIO))),
    }
}

/// A file that may go to the kernel for the user `uid`. Errors: EACCES if it is no ordinary file of his,
/// EBADF if it is not open to read and to write, EXDEV if it lies on no disk.
pub(crate) fn is_lendable(file: impl AsFd, uid: u32) -> rustix::io::Result<()> {
    let (stat, flags, on) = (fstat(&file)?, fcntl_getfl(&file)?, fstatfs(&file)?);
    judge(&stat, flags, uid)?;
    let on = u64::try_from(on.f_type).unwrap_or(0);
    if ON_DISKS.contains(&(on & 0xffff_ffff)) { Ok(()) } else { Err(Errno::XDEV) }
}

fn judge(stat: &Stat, flags: OFlags, uid: u32) -> rustix::io::Result<()> {
    // Who could only append to it (chattr +a) opened it so, and cannot change that.
    let both_ways = flags & OFlags::ACCMODE == OFlags::RDWR;
    let freely = both_ways && !flags.intersects(OFlags::APPEND | OFlags::PATH);
    let ordinary = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if !ordinary || stat.st_uid != uid {
        return Err(Errno::ACCESS);
    }
    if freely { Ok(()) } else { Err(Errno::BADF) }
}

/// A mount's end at the daemon.
pub(crate) fn is_device(device: impl AsFd) -> rustix::io::Result<()> {
    let stat = fstat(&device)?;
    let numbers = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
    let is_it = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
    if is_it && numbers == DEVICE { Ok(()) } else { Err(Errno::NOTTY) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn what_is_asked_is_what_was_sent_and_nothing_else_is_taken() {
        for asked in [Asked::MayYou, Asked::Lend, Asked::TakeBack(u32::MAX)] {
            assert_eq!(Asked::of(&asked.bytes()), Some(asked));
        }
        for bytes in [&[][..], &[1], &[3, 0, 0, 0, 0], &[1, 0, 0, 0, 0, 0]] {
            assert_eq!(Asked::of(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn an_answer_is_a_number_or_an_error() {
        for outcome in [Ok(0), Ok(7), Err(Errno::PERM)] {
            assert_eq!(outcome_of(answer_of(outcome)), outcome);
        }
        assert_eq!(outcome_of(i32::MIN.to_ne_bytes()), Err(Errno::IO));
    }

    #[test]
    fn a_file_is_lent_that_its_owner_has_opened_to_read_and_to_write() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "x").unwrap();
        let open = |options: &mut std::fs::OpenOptions| options.open(&path).unwrap();
        let both = open(File::options().read(true).write(true));
        let uid = fstat(&both).unwrap().st_uid;
        let by = |file: &File, uid| judge(&fstat(file).unwrap(), fcntl_getfl(file).unwrap(), uid);
        assert_eq!(by(&both, uid), Ok(()));
        assert_eq!(is_lendable(&both, uid + 1), Err(Errno::ACCESS), "of somebody else");
        for options in [
            File::options().read(true),
            File::options().write(true),
            File::options().read(true).append(true),
        ] {
            assert_eq!(is_lendable(open(options), uid), Err(Errno::BADF), "{options:?}");
        }
        let path_alone = rustix::fs::open(&path, OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
        assert_eq!(is_lendable(&path_alone, uid), Err(Errno::BADF));
        let directory = File::open(folder.path()).unwrap();
        assert_eq!(is_lendable(&directory, uid), Err(Errno::ACCESS));
    }

    #[test]
    fn a_memory_file_which_may_be_sealed_is_not_lent() {
        let flags = rustix::fs::MemfdFlags::ALLOW_SEALING | rustix::fs::MemfdFlags::CLOEXEC;
        let memory = rustix::fs::memfd_create("memory", flags).unwrap();
        let uid = fstat(&memory).unwrap().st_uid;
        assert_eq!(is_lendable(&memory, uid), Err(Errno::XDEV));
    }

    #[test]
    fn the_device_is_known_by_its_numbers() {
        let open = |path| File::open(path).unwrap();
        assert_eq!(is_device(open("/dev/null")), Err(Errno::NOTTY));
        assert_eq!(is_device(open("/proc/self/status")), Err(Errno::NOTTY));
        if let Ok(device) = File::options().read(true).write(true).open("/dev/fuse") {
            assert_eq!(is_device(device), Ok(()));
        }
    }
}
