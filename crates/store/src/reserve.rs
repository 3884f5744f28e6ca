//! Room that is kept aside on a disk for what must be written when the disk is full: that
//! something was not done after all, and what somebody else has done.
//! Holds: it is let go of only while it is lent, and taken again as far as there is room.

use crate::error::Result;
use crate::files;
use crate::ordinary::{self, Strange};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// With less than one part in so many of it, it is no reserve.
const LEAST_ONE_IN: u64 = 4;

/// Of what was lent, so much is left to the file system when the rest is set aside again.
const LEFT_BYTES: u64 = 128 << 10;

const TIDYING_ONE_IN: u64 = 24;
/// A commit of the tables and one of the index, and pieces of packs.
const TIDYING_BYTES_MIN: u64 = 2 << 20;
/// The pages of a large index on the way to a thousand of its rows, several times.
const TIDYING_BYTES_MAX: u64 = 16 << 20;

/// Room kept aside.
pub trait Reserve: Send + Sync + 'static {
    /// Whether there is enough aside, after trying to set it aside where there is not. New work
    /// begins only where this holds.
    fn is_kept(&self) -> bool;

    /// Makes room of it, if the disk has less than that besides, or can have no file besides.
    fn lend(&self);

    /// Sets it aside again.
    fn take_back(&self);
}

/// A disk that has room always, as memory does.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoReserve;

impl Reserve for NoReserve {
    fn is_kept(&self) -> bool {
        true
    }

    fn lend(&self) {}

    fn take_back(&self) {}
}

/// The size of the disk that holds the path.
pub fn disk_bytes(path: &Path) -> Result<u64> {
    Ok(files::Disk::of(path)?.total)
}

/// Of a disk of so many bytes, what contents and other programs leave to tidying up, which is
/// what makes room.
pub fn tidying_bytes(total: u64) -> u64 {
    (total / TIDYING_ONE_IN).clamp(TIDYING_BYTES_MIN, TIDYING_BYTES_MAX)
}

/// How much is set aside.
#[derive(Clone, Copy, Debug)]
pub struct Portion {
    pub bytes: u64,
    /// And no more than one part in so many of what is free: a small disk needs what it has.
    pub one_in: u64,
}

/// A file whose blocks are the reserve, and so is its inode.
#[derive(Debug)]
pub struct FileReserve {
    path: PathBuf,
    portion: Portion,
    kept: AtomicBool,
    /// Bytes that were aside when it was last given up: so much may be set aside again, however
    /// little is free.
    lent: AtomicU64,
}

impl FileReserve {
    /// The reserve at `path`, for which nothing is set aside yet.
    pub fn at(path: &Path, portion: Portion) -> FileReserve {
        let (kept, lent) = (AtomicBool::new(false), AtomicU64::new(0));
        FileReserve { path: path.to_path_buf(), portion, kept, lent }
    }

    /// The same, and sets it aside.
    pub fn open(path: &Path, portion: Portion) -> FileReserve {
        let reserve = FileReserve::at(path, portion);
        reserve.take_back();
        reserve
    }

    /// Makes room of it, however much there is besides. False: nothing was aside.
    pub fn give_up(&self) -> bool {
        self.kept.store(false, Ordering::Release);
        let there = self.there();
        match std::fs::remove_file(&self.path) {
            Ok(()) => {
                self.lent.store(there, Ordering::Release);
                tracing::warn!(
                    path = %self.path.display(),
                    "the disk is full: what is kept aside is used"
                );
                true
            }
            Err(error) => {
                tracing::debug!(path = %self.path.display(), %error, "nothing is kept aside");
                false
            }
        }
    }

    fn set_aside(&self) -> rustix::io::Result<bool> {
        let there = self.there();
        let Portion { bytes, one_in } = self.portion;
        if there >= bytes {
            return Ok(true);
        }
        let enough = there >= bytes / LEAST_ONE_IN;
        let Some(free) = self.free()? else { return Ok(true) };
        // Some of what was lent has been written. It may lie in what the disk keeps from others.
        let lent = self.lent.load(Ordering::Acquire);
        let usable = match files::usable_up_to(self.directory(), lent.saturating_add(LEFT_BYTES)) {
            Ok(usable) if lent > 0 => usable,
            _ => free,
        };
        let lent = lent.min(usable.saturating_sub(LEFT_BYTES));
        let wanted = bytes.min(there.saturating_add((free / one_in).max(lent)));
        if wanted <= there || wanted < bytes / LEAST_ONE_IN {
            return Ok(enough);
        }
        let file = self.file()?;
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, wanted) {
            Ok(()) => Ok(true),
            Err(Errno::NOSPC) => Ok(enough),
            Err(errno) => Err(errno),
        }
    }

    /// What else bears the name is put aside.
    fn file(&self) -> rustix::io::Result<File> {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = match ordinary::open(&self.path, &mut options) {
            Err(error) if Strange::of(&error).is_some() => ordinary::put_aside(&self.path)
                .and_then(|()| ordinary::open(&self.path, &mut options)),
            opened => opened,
        };
        file.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }

    fn directory(&self) -> &Path {
        self.path.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }

    fn there(&self) -> u64 {
        rustix::fs::lstat(&self.path).map_or(0, |stat| stat.st_size.unsigned_abs())
    }

    /// None: the file system does not count what it has.
    fn free(&self) -> rustix::io::Result<Option<u64>> {
        let disk = rustix::fs::statvfs(self.directory())?;
        Ok((disk.f_blocks > 0).then(|| disk.f_bavail.saturating_mul(disk.f_frsize)))
    }
}

impl Reserve for FileReserve {
    fn is_kept(&self) -> bool {
        if !self.kept.load(Ordering::Acquire) {
            self.take_back();
        }
        self.kept.load(Ordering::Acquire)
    }

    fn lend(&self) {
        let has_room = |disk: files::Disk| {
            let has_files = disk.files_left.is_none_or(|left| left > 0);
            disk.total > 0 && disk.free >= self.portion.bytes && has_files
        };
        if !files::Disk::of(self.directory()).is_ok_and(has_room) {
            self.give_up();
        }
    }

    fn take_back(&self) {
        if self.kept.load(Ordering::Acquire) {
            return;
        }
        let kept = self.set_aside().unwrap_or_else(|errno| {
            // A file system that sets nothing aside has none that could be full of it.
            tracing::debug!(path = %self.path.display(), %errno, "no room is kept aside");
            errno != Errno::NOSPC
        });
        self.kept.store(kept, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORTION: Portion = Portion { bytes: 1 << 20, one_in: 2 };

    #[test]
    fn it_is_there_from_the_beginning_and_stays_where_there_is_room() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("reserve");
        let reserve = FileReserve::open(&path, PORTION);
        assert!(reserve.is_kept());
        assert_eq!(path.metadata().unwrap().len(), 1 << 20);
        reserve.lend();
        assert!(path.exists(), "the disk has room besides");
        reserve.take_back();
        assert!(reserve.is_kept());
        assert!(reserve.give_up() && !path.exists());
        assert!(!reserve.give_up(), "it is used already");
        assert!(reserve.is_kept() && path.exists(), "there is room for another");
    }

    #[test]
    fn of_a_small_disk_a_part_is_set_aside_and_of_a_very_small_one_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("reserve");
        let disk = rustix::fs::statvfs(directory.path()).unwrap();
        let free = disk.f_bavail * disk.f_frsize;
        // Of this disk one part in many is less than what is wanted.
        let one_in = (free >> 20).max(1);
        let wanted = |bytes| FileReserve::open(&path, Portion { bytes, one_in });
        wanted(8 << 20);
        assert!(!path.exists(), "less than a part of it is no reserve");
        wanted(3 << 20);
        let bytes = path.metadata().unwrap().len();
        assert!(((3 << 20) / LEAST_ONE_IN..3 << 20).contains(&bytes), "{bytes}");
    }

    #[test]
    fn what_was_lent_is_set_aside_again_however_little_is_free() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("reserve");
        let disk = rustix::fs::statvfs(directory.path()).unwrap();
        // Of what is free now one part in so many is what is wanted, and soon it is not.
        let free = disk.f_bavail * disk.f_frsize;
        let portion = Portion { bytes: 1 << 20, one_in: (free >> 20).max(1) };
        let reserve = FileReserve::open(&path, portion);
        let set_aside = path.metadata().map_or(0, |file| file.len());
        reserve.give_up();
        let reserve = FileReserve { portion: Portion { one_in: u64::MAX, ..portion }, ..reserve };
        reserve.take_back();
        assert_eq!(path.metadata().map_or(0, |file| file.len()), set_aside);
    }

    #[test]
    fn what_is_left_to_tidying_up_goes_by_the_disk() {
        let mib = |mib: u64| tidying_bytes(mib << 20) >> 20;
        assert_eq!([16, 48, 120, 300, 384, 1 << 20].map(mib), [2, 2, 5, 12, 16, 16]);
    }

    #[test]
    fn where_nothing_is_counted_work_goes_on() {
        let reserve = FileReserve::open(Path::new("/proc/self/reserve"), PORTION);
        assert!(reserve.is_kept());
    }
}
