//! One open file of a tree.

use super::stat::{self, Stat};
use crate::error::Result;
use crate::faulty::Faults;
use crate::files;
use rustix::fs::{AtFlags, SeekFrom};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

#[derive(Debug)]
pub struct TreeFile {
    file: File,
    path: PathBuf,
    faults: Faults,
}

impl TreeFile {
    pub(super) fn new(fd: OwnedFd, path: PathBuf, faults: Faults) -> TreeFile {
        TreeFile { file: fd.into(), path, faults }
    }

    pub fn stat(&self) -> Result<Stat> {
        stat::look(&self.file, b"", AtFlags::EMPTY_PATH).map_err(|errno| self.failed(errno))
    }

    /// What programs have written into their mappings of it is on the disk. So the next that they
    /// write there changes its times, which it does not as long as the disk has to be written.
    pub fn settle(&self) -> Result<()> {
        match rustix::fs::fdatasync(&self.file) {
            // A file system that cannot do it has nothing to write.
            Ok(()) | Err(Errno::INVAL | Errno::ROFS | Errno::OPNOTSUPP) => Ok(()),
            Err(errno) => Err(self.failed(errno)),
        }
    }

    /// Fewer bytes than asked for only at the end of the file.
    pub fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>> {
        files::read_at(&self.file, &self.path, offset, length)
    }

    /// The first byte at or after `offset` that is not in a hole. None: there is none.
    pub fn data_after(&self, offset: u64) -> Result<Option<u64>> {
        match rustix::fs::seek(&self.file, SeekFrom::Data(offset)) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NXIO) => Ok(None),
            // A file system that knows no holes has none.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(Some(offset)),
            Err(errno) => Err(self.failed(errno)),
        }
    }

    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let write = || self.file.write_all_at(bytes, offset);
        self.faults
            .changes(bytes.len(), || write().map_err(|error| files::failed(&self.path, error)))
    }

    pub fn set_length(&self, length: u64) -> Result<()> {
        let set = || self.file.set_len(length);
        self.faults.changes(0, || set().map_err(|error| files::failed(&self.path, error)))
    }

    /// Safe from a power cut when this returns.
    pub fn sync(&self) -> Result<()> {
        let sync = || self.file.sync_all();
        self.faults.changes(0, || sync().map_err(|error| files::failed(&self.path, error)))
    }

    fn failed(&self, errno: Errno) -> crate::StoreError {
        files::failed(&self.path, errno.into())
    }
}
