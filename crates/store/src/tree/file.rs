//! One open file of a tree.

use super::stat::{self, Stat};
use crate::error::Result;
use crate::faulty::Faults;
use crate::files;
use rustix::fs::{AtFlags, FallocateFlags, SeekFrom};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::thread::{Builder, Scope, ScopedJoinHandle};

/// Zeros that are written at a time where the file system cannot punch holes.
const ZEROS_BYTES: usize = 64 << 10;
/// Syncs that wait for the disk at once.
const SYNCS_AT_ONCE: usize = 16;

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

    /// Holds from now on what another file holds, and shares the disk's blocks with it until one of
    /// both is written to. False: the file system cannot do that, and nothing was changed.
    pub fn share(&self, other: &TreeFile) -> Result<bool> {
        let shared = || match rustix::fs::ioctl_ficlone(&self.file, &other.file) {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::NOTTY | Errno::INVAL | Errno::XDEV | Errno::NOSYS) => {
                Ok(false)
            }
            Err(errno) => Err(self.failed(errno)),
        };
        self.faults.changes(0, shared)
    }

    /// A stretch is zeros from now on, and takes no room where that can be had. The length stays.
    pub fn punch(&self, offset: u64, length: u64) -> Result<()> {
        if length == 0 {
            return Ok(());
        }
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let punched = || match rustix::fs::fallocate(&self.file, mode, offset, length) {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP) => self.write_zeros(offset, length),
            Err(errno) => Err(self.failed(errno)),
        };
        self.faults.changes(0, punched)
    }

    fn write_zeros(&self, offset: u64, length: u64) -> Result<()> {
        let end = offset.saturating_add(length).min(self.stat()?.size);
        let mut at = offset;
        while at < end {
            let some = (end - at).min(ZEROS_BYTES as u64);
            let zeros = &[0; ZEROS_BYTES][..some as usize];
            let written = self.file.write_all_at(zeros, at);
            written.map_err(|error| files::failed(&self.path, error))?;
            at += some;
        }
        Ok(())
    }

    pub fn set_length(&self, length: u64) -> Result<()> {
        let set = || self.file.set_len(length);
        self.faults.changes(0, || set().map_err(|error| files::failed(&self.path, error)))
    }

    /// Safe from a power cut when this returns.
    pub fn sync(&self) -> Result<()> {
        let sync = || self.file.sync_all();
        self.faults.syncs(|| sync().map_err(|error| files::failed(&self.path, error)))
    }

    /// Syncs each of these. A disk takes hardly longer for many at once than for one, and where they
    /// come one after another whoever waits for the last waits for all.
    pub fn sync_each(files: &[TreeFile]) -> Vec<Result<()>> {
        if files.len() < 2 || !files.iter().all(|file| file.faults.is_none()) {
            return files.iter().map(TreeFile::sync).collect();
        }
        sync_with(files, |scope, work| Builder::new().spawn_scoped(scope, work))
    }

    fn failed(&self, errno: Errno) -> crate::StoreError {
        files::failed(&self.path, errno.into())
    }
}

/// A thread that does a part of it. Of one that cannot be had, somebody else does the part.
type Spawn = for<'scope, 'env> fn(
    &'scope Scope<'scope, 'env>,
    Work<'scope>,
) -> io::Result<ScopedJoinHandle<'scope, Vec<Result<()>>>>;
type Work<'scope> = Box<dyn FnOnce() -> Vec<Result<()>> + Send + 'scope>;

fn sync_with(files: &[TreeFile], spawn: Spawn) -> Vec<Result<()>> {
    let sync_some = |some: &[TreeFile]| some.iter().map(TreeFile::sync).collect::<Vec<_>>();
    std::thread::scope(|scope| {
        let share = files.len().div_ceil(SYNCS_AT_ONCE);
        let parts = files.chunks(share).map(|some| {
            let thread = spawn(scope, Box::new(move || sync_some(some)));
            (some, thread)
        });
        let parts: Vec<_> = parts.collect();
        let ended = parts.into_iter().flat_map(|(some, thread)| match thread {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(_) => sync_some(some),
        });
        ended.collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_there_are_too_few_threads_all_is_synced_all_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let root =
            super::super::Tree::open(folder.path()).unwrap().directory(b"").unwrap().unwrap();
        let files: Vec<_> =
            (0..9).map(|n| root.create(format!("{n}").as_bytes()).unwrap()).collect();
        let refused: Spawn = |_, _| Err(io::ErrorKind::WouldBlock.into());
        let synced = sync_with(&files, refused);
        assert!(synced.len() == files.len() && synced.iter().all(Result::is_ok), "{synced:?}");
    }

    use super::super::Tree;

    #[test]
    fn what_is_punched_is_zeros_and_the_length_stays() {
        let folder = tempfile::tempdir().unwrap();
        let root = Tree::open(folder.path()).unwrap().directory(b"").unwrap().unwrap();
        let file = root.create(b"a").unwrap();
        file.write(0, &[7; 20_000]).unwrap();
        file.punch(10, 15_000).unwrap();
        file.punch(19_990, 5_000).unwrap();
        file.write_zeros(17_000, 1).unwrap();
        let mut expected = vec![7; 20_000];
        expected[10..15_010].fill(0);
        expected[19_990..].fill(0);
        expected[17_000] = 0;
        assert_eq!(file.read(0, 30_000).unwrap(), expected);
    }

    #[test]
    fn a_file_that_shares_anothers_blocks_holds_the_same_or_is_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let root = Tree::open(folder.path()).unwrap().directory(b"").unwrap().unwrap();
        let (one, other) = (root.create(b"a").unwrap(), root.create(b"b").unwrap());
        one.write(0, &[7; 20_000]).unwrap();
        other.write(0, b"before").unwrap();
        match other.share(&one).unwrap() {
            true => {
                assert_eq!(other.read(0, 30_000).unwrap(), [7; 20_000]);
                other.write(5, b"x").unwrap();
                assert_eq!(one.read(0, 30_000).unwrap(), [7; 20_000], "they are two files");
            }
            false => assert_eq!(other.read(0, 30_000).unwrap(), b"before"),
        }
    }
}
