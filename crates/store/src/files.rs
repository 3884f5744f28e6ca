//! What every back end on files needs: errors that name the place, directories made durable,
//! reads and writes at an offset, and a lock against a second process.

use crate::blocks;
use crate::error::{Result, StoreError};
use crate::ordinary::{self, Strange};
use rustix::fs::{CWD, FallocateFlags, Mode, OFlags};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Slices that Linux takes in one call.
const PARTS_MAX: usize = 1024;

/// What a disk is asked for, when it does not give all: so many of these parts.
const LESSER: [u64; 6] = [16, 15, 14, 12, 8, 4];
const PARTS: u64 = 16;

/// A disk on which something was not written, and which has bytes, lacks files where it can have
/// fewer than this: others may have let one go since.
const FILES_FEW: u64 = 8;

/// The file whose lock says that a process has the directory in use.
pub const LOCK_FILE: &str = "lock";

pub fn failed(path: &Path, source: std::io::Error) -> StoreError {
    if let Some(what) = Strange::of(&source) {
        return StoreError::Strange { place: path.display().to_string(), what };
    }
    match source.kind() {
        // The files of a store are small, so that one that is too large has met a limit that
        // somebody set, and waits for room as on a full disk. Of contents it is another thing.
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
            StoreError::Full(path.to_path_buf())
        }
        _ => StoreError::Io { place: path.display().to_string(), source },
    }
}

pub fn damaged(path: &Path, offset: u64, what: impl Into<String>) -> StoreError {
    StoreError::Damaged { place: format!("{} at byte {offset}", path.display()), what: what.into() }
}

/// Makes the directory and what leads to it, and its entry durable.
pub fn make_directory(path: &Path) -> Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    std::fs::create_dir_all(path).map_err(|source| no_directory(path, source))?;
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => sync_directory(parent),
        _ => Ok(()),
    }
}

/// Of a directory that cannot be used: what stands in its place is named, if it is that.
pub fn no_directory(path: &Path, source: io::Error) -> StoreError {
    is_directory(path).err().unwrap_or_else(|| failed(path, source))
}

/// False: there is nothing. Errors: something else stands in its place.
pub fn is_directory(path: &Path) -> Result<bool> {
    match Strange::for_directory(path) {
        Some((place, what)) => {
            Err(StoreError::Strange { place: place.display().to_string(), what })
        }
        None => Ok(path.is_dir()),
    }
}

/// The entries of the directory are safe from a power cut when this returns.
pub fn sync_directory(path: &Path) -> Result<()> {
    let directory = ordinary::when_there_is_one(|| File::open(path));
    let directory = directory.map_err(|source| failed(path, source))?;
    directory.sync_all().map_err(|source| failed(path, source))
}

/// Descriptors that this process may have. It can be told otherwise at any time.
pub fn descriptors_max() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Held for as long as the file that comes back is open.
pub fn lock_directory(path: &Path) -> Result<File> {
    let file_path = path.join(LOCK_FILE);
    let file = open(&file_path, true)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::Busy(path.to_path_buf())),
        Err(TryLockError::Error(source)) => Err(failed(&file_path, source)),
    }
}

/// What the disk that holds the path has free for everybody.
pub fn free_bytes(path: &Path) -> Result<u64> {
    Ok(Disk::of(path)?.free)
}

/// What the disk is known to give us, of which `wanted` would do. What it keeps from others, as
/// ext4 does for root, may be ours: whether it is, it shows when it is asked for that much.
pub fn usable_bytes(directory: &Path, wanted: u64) -> Result<u64> {
    let disk = Disk::of(directory)?;
    let is_more = disk.is_worth_asking(wanted) && gives(directory, wanted);
    Ok(if is_more { wanted } else { disk.free })
}

/// The same of up to `wanted`, where what is left of it would do. A disk says of more than it gives
/// that it is unused: so it is asked for less and less.
pub fn usable_up_to(directory: &Path, wanted: u64) -> Result<u64> {
    let disk = Disk::of(directory)?;
    let most = wanted.min(disk.unused);
    let lesser = LESSER.iter().map(|parts| most / PARTS * parts);
    let mut asked = lesser.take_while(|bytes| *bytes > disk.free);
    Ok(asked.find(|bytes| gives(directory, *bytes)).unwrap_or(disk.free))
}

/// The room of a disk, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Disk {
    pub total: u64,
    /// For everybody.
    pub free: u64,
    /// What is kept from most is among it.
    pub unused: u64,
    /// Files that it can have besides those that it has. None: it does not count them.
    pub files_left: Option<u64>,
}

impl Disk {
    pub fn of(path: &Path) -> Result<Disk> {
        let disk = rustix::fs::statvfs(path).map_err(|errno| failed(path, errno.into()))?;
        let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
        let (total, free) = (bytes(disk.f_blocks), bytes(disk.f_bavail));
        let files_left = (disk.f_files > 0).then_some(disk.f_favail);
        Ok(Disk { total, free, unused: bytes(disk.f_bfree), files_left })
    }

    /// Whether it has so many bytes, and can hardly have another file.
    pub fn lacks_files(&self, bytes: u64) -> bool {
        self.free >= bytes && self.files_left.is_some_and(|left| left < FILES_FEW)
    }

    fn is_worth_asking(&self, wanted: u64) -> bool {
        self.free < wanted && wanted <= self.unused
    }
}

/// Has so much set aside for a file without a name, which goes at once.
fn gives(directory: &Path, bytes: u64) -> bool {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, directory, flags, Mode::RUSR | Mode::WUSR);
    let set_aside =
        file.and_then(|file| rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes));
    set_aside.is_ok()
}

pub fn open(path: &Path, create: bool) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(create).truncate(false);
    ordinary::open(path, &mut options).map_err(|source| failed(path, source))
}

pub fn length(file: &File, path: &Path) -> Result<u64> {
    Ok(file.metadata().map_err(|source| failed(path, source))?.len())
}

/// Writes all of `bytes`; if it cannot, the file ends at `offset` again.
pub fn append_at(file: &File, path: &Path, offset: u64, bytes: &[u8]) -> Result<()> {
    cut_off_half(file, path, offset, file.write_all_at(bytes, offset))
}

/// Appends all of these, one after another, in as few calls as the kernel takes.
pub fn append_all_at(file: &File, path: &Path, offset: u64, parts: &[&[u8]]) -> Result<()> {
    let written = parts.chunks(PARTS_MAX).try_fold(offset, |mut at, some| {
        let mut slices: Vec<IoSlice<'_>> = some.iter().map(|part| IoSlice::new(part)).collect();
        let mut left = &mut slices[..];
        IoSlice::advance_slices(&mut left, 0);
        while !left.is_empty() {
            match rustix::io::pwritev(file, left, at) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    at += count as u64;
                    IoSlice::advance_slices(&mut left, count);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(at)
    });
    cut_off_half(file, path, offset, written.map(drop))
}

fn cut_off_half(file: &File, path: &Path, offset: u64, written: io::Result<()>) -> Result<()> {
    written.map_err(|source| {
        if let Err(cut) = file.set_len(offset) {
            // The next append writes over what is left, and a reader's checksum rejects it.
            tracing::warn!(path = %path.display(), %cut, "half an append could not be cut off");
        }
        failed(path, source)
    })
}

/// Fewer bytes than asked for only at the end of the file.
pub fn read_at(file: &File, path: &Path, offset: u64, length: usize) -> Result<Vec<u8>> {
    // Not zeroed before: of a large file that would be a third pass over all of its bytes.
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        let at = offset + bytes.len() as u64;
        match blocks::append_some(file, path, &mut bytes, at) {
            Ok(0) => break,
            Ok(_) => {}
            Err(source) if source.kind() == ErrorKind::Interrupted => {}
            Err(source) => return Err(failed(path, source)),
        }
    }
    // There may be more room than was asked for.
    bytes.truncate(length);
    Ok(bytes)
}

/// Removing what is missing is done. A directory, which nobody of us has made, is put aside.
pub fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(source) if source.kind() == ErrorKind::NotFound => Ok(()),
        Err(source) if source.kind() == ErrorKind::IsADirectory => ordinary::put_aside(path),
        removed => removed,
    }
    .map_err(|source| failed(path, source))
}

/// The names in a directory that are text; the stores give their files no others.
pub fn names(path: &Path) -> Result<Vec<String>> {
    let entries = ordinary::when_there_is_one(|| std::fs::read_dir(path));
    let entries = entries.map_err(|source| no_directory(path, source))?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|source| failed(path, source))?;
        names.extend(entry.file_name().into_string());
    }
    Ok(names)
}

/// Files of the directory named by a number and an ending, in order of the numbers.
pub fn numbered(directory: &Path, ending: &str) -> Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for name in names(directory)? {
        let number = name.strip_suffix(ending).and_then(|hex| u64::from_str_radix(hex, 16).ok());
        found.extend(number.map(|number| (number, directory.join(&name))));
    }
    found.sort_unstable();
    Ok(found)
}

/// A thread that panicked while it held the lock left the value as it was between two steps; all
/// values that are locked here are consistent then.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_lacks_files_where_it_has_bytes_and_counts_few() {
        let disk = |files_left| Disk { total: 100, free: 10, unused: 15, files_left };
        assert!(disk(Some(0)).lacks_files(10) && !disk(Some(0)).lacks_files(11));
        assert!(!disk(Some(FILES_FEW)).lacks_files(10) && !disk(None).lacks_files(10));
    }

    #[test]
    fn what_a_disk_keeps_from_others_is_asked_for_only_where_it_would_do() {
        let disk = Disk { total: 100, free: 10, unused: 15, files_left: None };
        let asked = [9, 10, 11, 15, 16].map(|wanted| disk.is_worth_asking(wanted));
        assert_eq!(asked, [false, false, true, true, false]);
    }

    #[test]
    fn a_disk_gives_what_it_has_and_nothing_is_left_of_the_asking() {
        let directory = tempfile::tempdir().unwrap();
        let disk = Disk::of(directory.path()).unwrap();
        assert!(!gives(directory.path(), disk.total.saturating_mul(2)));
        assert!(usable_bytes(directory.path(), u64::MAX).unwrap() <= disk.total);
        assert_eq!(names(directory.path()).unwrap(), Vec::<String>::new());
    }
}
