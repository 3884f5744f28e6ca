//! Containers as ordinary files, spread over 256 directories by the low byte of the file's id.
//! Holds: after `sync` the file is found again with its contents; a failed write is an error.
//! Layout: docs/FORMATS.md, "Containers".

use super::fan::{
    self, Place, directory_of, is_fan, is_missing, look_at, make_room_for, parse_name,
};
use super::pieces::pieces;
use super::places::{self, Places};
use super::{Container, Containers, Key, Sizes, Step};
use crate::blocks;
use crate::error::{Result, StoreError};
use crate::files::{self, locked};
use crate::kept::{self, Identity, identity, is_gone, moved, parent_of, parent_path};
use crate::ordinary;
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;
use std::fs::{File, Metadata};
use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

mod readable;
mod room;
mod zeros;

/// Bytes that are copied at once from one container to another.
const COPY_BYTES_MAX: usize = 1 << 20;

/// What `Metadata::blocks` counts in.
const BLOCK_BYTES: u64 = 512;
/// F_SETSIG of fcntl(2), on every Linux.
const SET_SIGNAL: libc::c_int = 10;

pub struct DirectoryContainers {
    directory: PathBuf,
    /// The directory in which that lies.
    home: Identity,
    places: Places,
    /// What was half written before was left by a process that has ended.
    opened: SystemTime,
}

impl DirectoryContainers {
    /// Makes the directory if it is missing.
    pub fn open(directory: &Path) -> Result<DirectoryContainers> {
        files::make_directory(directory)?;
        DirectoryContainers::look(directory)
    }

    fn path(&self, key: Key) -> PathBuf {
        self.directory
            .join(format!("{:02x}", key.file & 0xff))
            .join(format!("{:016x}.{}", key.file, key.generation))
    }

    /// Of one of the 256 directories, which need not be there.
    fn keys_in(&self, fan: &Path) -> Result<Vec<Key>> {
        if look_at(fan)? != Place::Directory {
            return Ok(Vec::new());
        }
        let is_path = |key: &Key, name: &str| self.path(*key) == fan.join(name);
        let names = files::names(fan)?;
        let halves = names.iter().filter_map(|name| kept::whole_of(name));
        halves
            .filter(|whole| parse_name(whole).is_some())
            .for_each(|whole| kept::forget_old_half(&fan.join(whole), self.opened));
        let keys = names.iter().filter_map(|name| parse_name(name).map(|key| (key, name)));
        Ok(keys.filter(|(key, name)| is_path(key, name)).map(|(key, _)| key).collect())
    }
}

impl Containers for DirectoryContainers {
    type Container = OrdinaryFile;

    fn open(&self, key: Key, create: bool) -> Result<Option<OrdinaryFile>> {
        let path = self.path(key);
        let mut options = File::options();
        options.read(true).write(true).create(create).truncate(false);
        let file = match ordinary::open(&path, &mut options) {
            // Of a disk that is mounted read-only what is there can be read.
            Err(source) if source.kind() == ErrorKind::ReadOnlyFilesystem && !create => {
                ordinary::open(&path, File::options().read(true))
                    .map_err(|source| files::failed(&path, source))?
            }
            Err(source) if is_missing(&source) => {
                if !create {
                    return directory_of(&path).map(|_| None);
                }
                // Directories are made with the first file that they hold.
                make_room_for(&path)?;
                files::open(&path, true)?
            }
            outcome => outcome.map_err(|source| files::failed(&path, source))?,
        };
        Ok(Some(OrdinaryFile::of(file, path, self.home, Some(self.places.take()))))
    }

    fn has_place(&self) -> bool {
        self.places.is_any()
    }

    fn remove(&self, key: Key) -> Result<()> {
        files::remove(&self.path(key))
    }

    fn rename(&self, from: Key, to: Key) -> Result<bool> {
        fan::rename(&self.path(from), &self.path(to))
    }

    fn copy_in_steps(&self, from: Key, to: Key, bytes_max: u64, step: Step<'_>) -> Result<bool> {
        let Some(source) = self.open(from, false)? else { return Ok(false) };
        let length = source.length()?;
        // What bears the name is not written over: somebody may have it open.
        self.remove(to)?;
        let Some(copy) = self.open(to, true)? else { return Ok(false) };
        let made = rustix::fs::ioctl_ficlone(&copy.0.file, &source.0.file).is_ok()
            || length <= bytes_max && copy.fill_from(&source, length, step)?;
        if !made {
            self.remove(to)?;
        }
        Ok(made)
    }

    fn link(&self, from: Key, to: Key) -> Result<bool> {
        self.remove(to)?;
        fan::link(&self.path(from), &self.path(to))
    }

    fn is_linked(&self, key: Key) -> Result<bool> {
        fan::is_linked(&self.path(key))
    }

    fn list(&self) -> Result<Vec<(Key, u64)>> {
        let mut found = Vec::new();
        for key in self.keys()? {
            let path = self.path(key);
            match std::fs::symlink_metadata(&path) {
                Ok(metadata) => found.push((key, metadata.blocks() * BLOCK_BYTES)),
                // It was removed since the directory was read.
                Err(source) if source.kind() == ErrorKind::NotFound => {}
                Err(source) => return Err(files::failed(&path, source)),
            }
        }
        Ok(found)
    }

    fn keys(&self) -> Result<Vec<Key>> {
        let mut found = Vec::new();
        for fan in files::names(&self.directory)?.into_iter().filter(|name| is_fan(name)) {
            found.extend(self.keys_in(&self.directory.join(fan))?);
        }
        Ok(found)
    }

    fn readable_keys(&self) -> (Vec<Key>, Vec<StoreError>) {
        self.readable()
    }

    fn list_of(&self, file: u64) -> Result<Vec<Key>> {
        let path = self.path(Key { file, generation: 0 });
        let fan = path.parent().expect("path puts each file into a directory");
        let keys = self.keys_in(fan)?.into_iter();
        Ok(keys.filter(|key| key.file == file).collect())
    }

    fn lack_files(&self) -> Result<bool> {
        let disk = files::Disk::of(&self.directory)?;
        Ok(disk.lacks_files(reserve_of(disk.total)))
    }

    fn sync_all(&self) -> Result<()> {
        let directory = ordinary::when_there_is_one(|| File::open(&self.directory))
            .map_err(|source| files::failed(&self.directory, source))?;
        rustix::fs::syncfs(&directory).map_err(|errno| files::failed(&self.directory, errno.into()))
    }
}

/// Of a disk's room, contents leave one byte in so many, and not more than this, to the tables
/// and the journal beside them.
const RESERVE_ONE_IN: u64 = 3;
const RESERVE_BYTES_MAX: u64 = 16 << 20;

/// What is left of a disk of so many bytes.
fn reserve_of(total: u64) -> u64 {
    (total / RESERVE_ONE_IN).min(RESERVE_BYTES_MAX)
}

/// One container: an open file, read and written at offsets only.
#[derive(Clone)]
pub struct OrdinaryFile(Arc<Opened>);

struct Opened {
    file: File,
    path: PathBuf,
    /// Where the directory of all containers lies.
    home: Identity,
    /// The directory was synced since this was opened.
    entry_synced: AtomicBool,
    /// What bears the name is a copy, as another program took this one away: what is written here is
    /// there with the next look.
    copied: AtomicBool,
    /// One copy at a time.
    looking: Mutex<()>,
    /// None: it is open for a moment.
    _place: Option<places::Place>,
}

impl OrdinaryFile {
    fn of(file: File, path: PathBuf, home: Identity, place: Option<places::Place>) -> OrdinaryFile {
        OrdinaryFile(Arc::new(Opened {
            file,
            path,
            home,
            entry_synced: AtomicBool::new(false),
            copied: AtomicBool::new(false),
            looking: Mutex::new(()),
            _place: place,
        }))
    }

    /// It lies where its name says, or that cannot be told.
    fn is_there(&self) -> Result<bool> {
        let open = self.metadata()?;
        Ok(match std::fs::symlink_metadata(&self.0.path) {
            Ok(found) => identity(&found) == identity(&open),
            Err(error) => !is_gone(&error),
        })
    }

    fn metadata(&self) -> Result<Metadata> {
        self.0.file.metadata().map_err(|source| files::failed(&self.0.path, source))
    }

    fn failed(&self, errno: Errno) -> StoreError {
        self.failed_with(errno.into())
    }

    /// Contents are as large as somebody wants them, which is no lack of room.
    fn failed_with(&self, source: std::io::Error) -> StoreError {
        match source.kind() {
            ErrorKind::FileTooLarge => StoreError::TooLarge(self.0.path.clone()),
            _ => files::failed(&self.0.path, source),
        }
    }

    /// Copies the first `length` bytes, the holes as holes, without taking them through this
    /// process where the kernel can. False: the source has become shorter.
    fn fill_from(&self, source: &OrdinaryFile, length: u64, told: Step<'_>) -> Result<bool> {
        self.leave_room(length)?;
        for (start, stretch) in source.data(0, length)? {
            let (mut at, end) = (start, start + stretch);
            while at < end {
                let step = usize::try_from(end - at).unwrap_or(usize::MAX).min(COPY_BYTES_MAX);
                let (mut off_in, mut off_out) = (at, at);
                let copied = rustix::fs::copy_file_range(
                    &source.0.file,
                    Some(&mut off_in),
                    &self.0.file,
                    Some(&mut off_out),
                    step,
                );
                let copied = match copied {
                    Ok(copied) => copied as u64,
                    // Not every file system can.
                    Err(_) => {
                        let bytes = source.read(at, step)?;
                        self.write(at, &bytes)?;
                        bytes.len() as u64
                    }
                };
                if copied == 0 {
                    return Ok(false);
                }
                at += copied;
                told();
            }
        }
        self.set_length(length)?;
        Ok(true)
    }

    /// None: there is no further data, or no further hole, before the end of the file.
    fn seek(&self, to: SeekFrom) -> Result<Option<u64>> {
        match rustix::fs::seek(&self.0.file, to) {
            Ok(offset) => Ok(Some(offset)),
            Err(Errno::NXIO) => Ok(None),
            Err(errno) => Err(self.failed(errno)),
        }
    }

    fn write_all(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut pieces = pieces(offset, bytes);
        let written = pieces.try_for_each(|(at, piece)| self.0.file.write_all_at(piece, at));
        written.map_err(|source| self.failed_with(source))
    }
}

impl Container for OrdinaryFile {
    fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>> {
        let rest = self.length()?.saturating_sub(offset);
        let length = length.min(usize::try_from(rest).unwrap_or(usize::MAX));
        files::read_at(&self.0.file, &self.0.path, offset, length)
    }

    fn read_apart(&self, offset: u64, length: usize) -> Result<Vec<u8>> {
        blocks::read_apart(&self.0.file, &self.0.path, offset, length)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.leave_room_besides(offset, bytes.len() as u64)?;
        self.write_all(offset, bytes)
    }

    fn fill(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.leave_half(bytes.len() as u64)?;
        self.write_all(offset, bytes)
    }

    fn set_length(&self, length: u64) -> Result<()> {
        self.0.file.set_len(length).map_err(|source| self.failed_with(source))
    }

    fn length(&self) -> Result<u64> {
        files::length(&self.0.file, &self.0.path)
    }

    fn punch(&self, offset: u64, length: u64) -> Result<()> {
        if length == 0 {
            return Ok(());
        }
        self.clear(FallocateFlags::PUNCH_HOLE, offset, length)
    }

    fn zero(&self, offset: u64, length: u64) -> Result<()> {
        if length == 0 {
            return Ok(());
        }
        // What there is no room for stays as it is.
        self.set_aside(offset, length)?;
        self.clear(FallocateFlags::ZERO_RANGE, offset, length)
    }

    fn set_aside(&self, offset: u64, length: u64) -> Result<()> {
        if length == 0 {
            return Ok(());
        }
        match self.leave_room_besides(offset, length) {
            // No disk has room for what no file of it can be.
            Err(StoreError::Full(_))
                if self.is_beyond_any_file(offset.saturating_add(length))? =>
            {
                return Err(self.failed(Errno::FBIG));
            }
            outcome => outcome?,
        }
        match rustix::fs::fallocate(&self.0.file, FallocateFlags::KEEP_SIZE, offset, length) {
            Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
            Err(errno) => Err(self.failed(errno)),
        }
    }

    fn allocate(&self, offset: u64, length: u64) -> Result<()> {
        if length == 0 {
            return Ok(());
        }
        // The length changes only when the room is there.
        self.set_aside(offset, length)?;
        let end = offset.saturating_add(length);
        if self.length()? < end { self.set_length(end) } else { Ok(()) }
    }

    fn data(&self, offset: u64, length: u64) -> Result<Vec<(u64, u64)>> {
        let end = offset.saturating_add(length).min(self.length()?);
        let mut stretches = Vec::new();
        let mut at = offset;
        while at < end {
            let Some(start) = self.seek(SeekFrom::Data(at))?.filter(|start| *start < end) else {
                break;
            };
            let hole = self.seek(SeekFrom::Hole(start))?.unwrap_or(end).min(end);
            stretches.push((start, hole - start));
            // A file that another thread cuts short meanwhile must not hold us here.
            at = hole.max(start + 1);
        }
        Ok(stretches)
    }

    fn allocated(&self) -> Result<u64> {
        self.metadata().map(|metadata| metadata.blocks() * BLOCK_BYTES)
    }

    fn sizes(&self) -> Result<Sizes> {
        let metadata = self.metadata()?;
        Ok(Sizes { length: metadata.len(), allocated: metadata.blocks() * BLOCK_BYTES })
    }

    fn changed_at(&self) -> Result<Option<(i64, u32)>> {
        let metadata = self.metadata()?;
        let nanos = u32::try_from(metadata.mtime_nsec()).unwrap_or(0);
        Ok(Some((metadata.mtime(), nanos)))
    }

    fn is_alone(&self) -> Result<bool> {
        let file = self.0.file.as_fd().as_raw_fd();
        #[allow(unsafe_code, reason = "no library offers the leases of fcntl(2)")]
        // SAFETY: with these commands fcntl(2) takes numbers alone.
        let outcome = unsafe {
            // Who opens it in this moment waits for the lease, and we are sent a signal that is
            // ignored unless somebody asks for it.
            libc::fcntl(file, SET_SIGNAL, libc::SIGURG);
            let taken = libc::fcntl(file, libc::F_SETLEASE, libc::F_WRLCK);
            let refused = (taken != 0).then(std::io::Error::last_os_error);
            libc::fcntl(file, libc::F_SETLEASE, libc::F_UNLCK);
            refused
        };
        match outcome {
            None => Ok(true),
            Some(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Some(error) => Err(files::failed(&self.0.path, error)),
        }
    }

    fn free_bytes(&self) -> Result<u64> {
        let disk = rustix::fs::fstatvfs(&self.0.file).map_err(|errno| self.failed(errno))?;
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    fn sync(&self) -> Result<()> {
        self.0.file.sync_data().map_err(|source| files::failed(&self.0.path, source))?;
        if !self.0.entry_synced.load(Ordering::Acquire) {
            let parent = self.0.path.parent().expect("each file is in a directory");
            files::sync_directory(parent)?;
            self.0.entry_synced.store(true, Ordering::Release);
        }
        // What is said to be on the disk after this is what the name leads to.
        if self.0.copied.load(Ordering::Acquire) { self.look() } else { Ok(()) }
    }

    fn look(&self) -> Result<()> {
        if self.is_there()? {
            return Ok(());
        }
        let _one = locked(&self.0.looking);
        let path = &self.0.path;
        // Two levels below that of all.
        if parent_of(parent_path(parent_path(path))).ok() != Some(self.0.home) {
            return Err(moved(path));
        }
        make_room_for(path)?;
        let first = !self.0.copied.swap(true, Ordering::AcqRel);
        kept::put(&self.0.file, path, |file| {
            let copy = OrdinaryFile::of(file, path.clone(), self.0.home, None);
            copy.fill_from(self, self.length()?, &mut || {})?;
            copy.0.file.sync_data().map_err(|source| files::failed(path, source))
        })?;
        if first {
            tracing::error!(
                path = %path.display(),
                "another program has removed or replaced contents that are in use; they are written anew"
            );
        }
        Ok(())
    }

    fn is_kept(&self) -> Result<bool> {
        self.is_there()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.file.as_fd())
    }
}
