//! Stretches of a container that are to read as zeros, where the file system can do that by itself and
//! where it cannot.

use super::OrdinaryFile;
use crate::container::Container;
use crate::error::Result;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

/// Zeros written at a time where the file system cannot punch holes.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

impl OrdinaryFile {
    /// In this way where the file system can.
    pub(super) fn clear(&self, how: FallocateFlags, offset: u64, length: u64) -> Result<()> {
        let how = how | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.0.file, how, offset, length) {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP) => self.write_zeros(offset, length),
            Err(errno) => Err(self.failed(errno)),
        }
    }

    fn write_zeros(&self, offset: u64, length: u64) -> Result<()> {
        let mut at = offset;
        let end = offset.saturating_add(length).min(self.length()?);
        while at < end {
            let count = (end - at).min(ZEROS.len() as u64);
            self.write(at, &ZEROS[..count as usize])?;
            at += count;
        }
        Ok(())
    }
}
