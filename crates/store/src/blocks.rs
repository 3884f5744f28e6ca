//! Reading what a failing disk still has: block by block, and from the disk itself, since the kernel
//! fails to read into its cache also what lies around a block that is lost.
//! Holds: of a disk that reads nothing at all, for it may be unplugged, nothing counts as lost.

use crate::error::Result;
use crate::files;
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// What is lost together. What is read from the disk itself lies at multiples of it, there and in
/// memory.
pub const BLOCK_BYTES: usize = 4096;
/// Where it is looked whether the disk reads anything: blocks of the file, and other files beside it.
const LOOKS_MAX: u64 = 8;

/// A stretch of whole blocks, not from what the kernel has of it. Fewer bytes than asked for only at
/// the end of the file.
pub fn read_apart(file: &File, path: &Path, offset: u64, length: usize) -> Result<Vec<u8>> {
    let again = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    // Not every file system can.
    let Ok(direct) = rustix::fs::open(again, flags, Mode::empty()) else {
        return files::read_at(file, path, offset, length);
    };
    let mut room = vec![0; length + BLOCK_BYTES];
    let from = room.as_ptr().align_offset(BLOCK_BYTES);
    let bytes = &mut room[from..from + length];
    match read_some(&File::from(direct), path, bytes, offset) {
        Ok(count) => Ok(bytes[..count].to_vec()),
        Err(source) if source.kind() == ErrorKind::InvalidInput => {
            files::read_at(file, path, offset, length)
        }
        Err(source) => Err(files::failed(path, source)),
    }
}

/// What is there of a stretch, with zeros for the blocks that are lost. Errors: the disk reads
/// nothing, or it is another one.
pub fn read_what_is_there(file: &File, path: &Path, offset: u64, length: usize) -> Result<Vec<u8>> {
    let error = match files::read_at(file, path, offset, length) {
        Err(error) if error.is_unreadable() => error,
        read => return read,
    };
    let end = files::length(file, path)?.min(offset.saturating_add(length as u64));
    let (mut bytes, mut lost) = (Vec::new(), 0);
    let first = offset - offset % BLOCK_BYTES as u64;
    for at in (first..end).step_by(BLOCK_BYTES) {
        let mut block = match read_apart(file, path, at, BLOCK_BYTES) {
            Ok(block) => block,
            Err(error) if error.is_unreadable() => {
                lost += 1;
                Vec::new()
            }
            Err(error) => return Err(error),
        };
        block.resize(BLOCK_BYTES, 0);
        bytes.extend(block);
    }
    if lost > 0 && !reads_something(file, path) {
        return Err(error);
    }
    if lost > 0 {
        tracing::error!(path = %path.display(), offset, lost, "the disk has lost blocks of a file");
    }
    bytes.truncate((end - first) as usize);
    bytes.drain(..((offset - first) as usize).min(bytes.len()));
    Ok(bytes)
}

/// Whether anything can be read of the disk that a file is on.
fn reads_something(file: &File, path: &Path) -> bool {
    let blocks = files::length(file, path).unwrap_or(0).div_ceil(BLOCK_BYTES as u64);
    let step = blocks.div_ceil(LOOKS_MAX).max(1);
    let reads = |file: &File, path: &Path, block: u64| {
        read_apart(file, path, block * BLOCK_BYTES as u64, BLOCK_BYTES)
            .is_ok_and(|bytes| !bytes.is_empty())
    };
    let last = blocks.checked_sub(1);
    if (0..blocks).step_by(step as usize).chain(last).any(|block| reads(file, path, block)) {
        return true;
    }
    let Some(Ok(beside)) = path.parent().map(std::fs::read_dir) else { return false };
    let others = beside.flatten().map(|entry| entry.path()).filter(|other| other != path);
    others.take(LOOKS_MAX as usize).any(|other| {
        let opened = crate::ordinary::open(&other, File::options().read(true));
        opened.is_ok_and(|file| reads(&file, &other, 0))
    })
}

/// Every read at an offset comes through here, or through `append_some`.
pub fn read_some(file: &File, path: &Path, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    #[cfg(test)]
    lost::look(path, offset, bytes.len())?;
    #[cfg(not(test))]
    let _ = path;
    file.read_at(bytes, offset)
}

/// As `read_some`, behind what there is of `bytes`: as many as there is room for.
pub fn append_some(
    file: &File,
    path: &Path,
    bytes: &mut Vec<u8>,
    offset: u64,
) -> io::Result<usize> {
    #[cfg(test)]
    lost::look(path, offset, bytes.capacity() - bytes.len())?;
    #[cfg(not(test))]
    let _ = path;
    Ok(rustix::io::pread(file, rustix::buffer::spare_capacity(bytes), offset)?)
}

/// Tests say what a disk has lost.
#[cfg(test)]
pub mod lost {
    use super::BLOCK_BYTES;
    use std::cell::RefCell;
    use std::io;
    use std::ops::Range;
    use std::path::{Path, PathBuf};

    thread_local! {
        static LOST: RefCell<Vec<(PathBuf, Range<u64>)>> = const { RefCell::new(Vec::new()) };
    }

    /// This thread cannot read these blocks of a file, or of what is below a directory, any more.
    pub fn lose(path: &Path, blocks: Range<u64>) {
        LOST.with_borrow_mut(|lost| lost.push((path.to_path_buf(), blocks)));
    }

    pub fn find_again() {
        LOST.with_borrow_mut(Vec::clear);
    }

    pub(super) fn look(path: &Path, offset: u64, length: usize) -> io::Result<()> {
        let blocks = offset / BLOCK_BYTES as u64
            ..offset.saturating_add(length as u64).div_ceil(BLOCK_BYTES as u64);
        let is_lost = |(file, lost): &(PathBuf, Range<u64>)| {
            path.starts_with(file) && lost.start < blocks.end && blocks.start < lost.end
        };
        match LOST.with_borrow(|lost| lost.iter().any(is_lost)) {
            true => Err(io::Error::from_raw_os_error(libc::EIO)),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_is_zeros_and_a_disk_that_reads_nothing_has_lost_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let whole: Vec<u8> = (0..30_000_u32).map(|at| at as u8 | 1).collect();
        std::fs::write(&path, &whole).unwrap();
        let file = File::open(&path).unwrap();
        let read = |offset, length| read_what_is_there(&file, &path, offset, length);
        assert_eq!(read(100, 1_000_000).unwrap(), whole[100..]);
        lost::lose(&path, 2..3);
        let mut left = whole.clone();
        left[8192..12_288].fill(0);
        assert!(files::read_at(&file, &path, 8000, 200).unwrap_err().is_unreadable());
        assert_eq!(
            read(8000, 200).unwrap(),
            whole[8000..8192].iter().chain(&[0; 8]).copied().collect::<Vec<_>>()
        );
        assert_eq!(read(100, 1_000_000).unwrap(), left[100..]);
        assert_eq!(read(12_288, 10).unwrap(), whole[12_288..12_298]);
        assert_eq!(read(40_000, 10).unwrap(), []);
        lost::lose(&path, 0..100);
        assert!(read(0, 10).unwrap_err().is_unreadable());
        std::fs::write(directory.path().join("other"), b"readable").unwrap();
        assert_eq!(read(0, 10).unwrap(), [0; 10], "the disk is there");
        lost::lose(directory.path(), 0..100);
        assert!(read(0, 10).unwrap_err().is_unreadable());
        lost::find_again();
        assert_eq!(read(0, 30_000).unwrap(), whole);
    }
}
