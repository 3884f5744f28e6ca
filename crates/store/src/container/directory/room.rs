//! Whether contents have room: on the disk, and in one file of it.

use super::{OrdinaryFile, reserve_of};
use crate::container::Container;
use crate::container::mapped::lacking;
use crate::error::{Result, StoreError};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

impl OrdinaryFile {
    /// Contents leave room on the disk for what is said about them: a full disk must not keep
    /// anybody from removing what has filled it.
    pub(super) fn leave_room(&self, more: u64) -> Result<()> {
        self.leave_one_in(1, more)
    }

    /// What can be had again leaves half of that.
    pub(super) fn leave_half(&self, more: u64) -> Result<()> {
        self.leave_one_in(2, more)
    }

    fn leave_one_in(&self, parts: u64, more: u64) -> Result<()> {
        if more == 0 {
            return Ok(());
        }
        let disk = rustix::fs::fstatvfs(&self.0.file).map_err(|errno| self.failed(errno))?;
        let left = reserve_of(disk.f_blocks * disk.f_frsize) / parts;
        if disk.f_bavail * disk.f_frsize < left.saturating_add(more) {
            return Err(self.failed(Errno::NOSPC));
        }
        Ok(())
    }

    /// The same for what is written here. What lies where room was set aside, or something is
    /// written already, takes none: whoever set it aside was told that it is his.
    pub(super) fn leave_room_besides(&self, offset: u64, length: u64) -> Result<()> {
        match self.leave_room(length) {
            Err(StoreError::Full(_)) => {
                self.leave_room(lacking(&self.0.file, offset, offset.saturating_add(length)))
            }
            outcome => outcome,
        }
    }

    /// Whether no file here can end at `end`. The disk is asked for a hole where there is nothing yet: it
    /// changes nothing, and is refused for this alone.
    pub(super) fn is_beyond_any_file(&self, end: u64) -> Result<bool> {
        if end <= self.length()? {
            return Ok(false);
        }
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&self.0.file, hole, end - 1, 1) == Err(Errno::FBIG))
    }
}
