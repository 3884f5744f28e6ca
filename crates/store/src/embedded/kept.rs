//! The file of redb's while it is in use, and how it is put where its name says anew.
//! Holds: what another program has removed, moved, or put something in the place of is noticed
//! before a commit begins and before anybody is told of it, and then what is open of it is there
//! again; where it has another length than was written, or its directory is elsewhere, each commit
//! fails until that is mended.
//! Never: goes on with what lies there instead.

use super::errors::damaged_file;
use crate::error::{Result, StoreError};
use crate::files::{self, locked};
use crate::kept::{self, Identity, identity, is_gone, moved, parent_of};
use redb::StorageBackend;
use std::fs::{File, TryLockError};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

#[derive(Debug)]
pub struct Kept {
    path: PathBuf,
    open: RwLock<Open>,
    /// The directory in which it lies.
    home: Mutex<Identity>,
    /// Bytes that it has as it was left here.
    length: AtomicU64,
    put_anew: AtomicU64,
    has_name: AtomicBool,
    /// It has another length: what is written to it now would hide where it ends.
    is_cut: AtomicBool,
}

#[derive(Debug)]
struct Open {
    file: File,
    is: Identity,
}

impl Open {
    /// Nobody else opens it from now on.
    fn locking(file: File, path: &Path) -> Result<Open> {
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(StoreError::Busy(path.to_path_buf())),
            // Of a file system without locks nobody can tell.
            Err(TryLockError::Error(source)) if source.kind() == ErrorKind::Unsupported => {}
            Err(TryLockError::Error(source)) => return Err(files::failed(path, source)),
        }
        let is = identity(&file.metadata().map_err(|source| files::failed(path, source))?);
        Ok(Open { file, is })
    }
}

impl Kept {
    /// Makes it if it is missing.
    pub fn open(path: &Path) -> Result<Kept> {
        // redb would follow a link.
        let open = Open::locking(files::open(path, true)?, path)?;
        kept::forget_half(path)?;
        Ok(Kept {
            path: path.to_path_buf(),
            home: Mutex::new(parent_of(path)?),
            length: AtomicU64::new(files::length(&open.file, path)?),
            open: RwLock::new(open),
            put_anew: AtomicU64::new(0),
            has_name: AtomicBool::new(true),
            is_cut: AtomicBool::new(false),
        })
    }

    /// How often it was put there anew.
    pub fn put_anew(&self) -> u64 {
        self.put_anew.load(Ordering::Relaxed)
    }

    pub fn unname(&self) -> Result<()> {
        self.has_name.store(false, Ordering::Release);
        files::remove(&self.path)
    }

    /// Its directory was made anew, by us.
    pub fn follow(&self) -> Result<()> {
        *locked(&self.home) = parent_of(&self.path)?;
        Ok(())
    }

    /// Whether it is where it was, as it was left; if not, it is put there anew. While nobody
    /// else writes to it.
    pub fn look(&self) -> Result<()> {
        if !self.has_name.load(Ordering::Acquire) {
            return Ok(());
        }
        let is_there = match std::fs::symlink_metadata(&self.path) {
            Ok(found) if identity(&found) == self.opened().is => return self.is_whole(found.len()),
            Ok(_) => false,
            Err(error) => !is_gone(&error),
        };
        if is_there {
            return Ok(());
        }
        self.put_there()?;
        tracing::error!(
            path = %self.path.display(),
            "another program has removed or replaced this file, which is in use; it is written anew, \
             and nothing is lost"
        );
        Ok(())
    }

    fn put_there(&self) -> Result<()> {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        let bytes = files::length(&open.file, &self.path)?;
        self.is_whole(bytes)?;
        if parent_of(&self.path).ok() != Some(*locked(&self.home)) {
            return Err(moved(&self.path));
        }
        *open = Open::locking(kept::put_anew(&open.file, bytes, &self.path)?, &self.path)?;
        self.put_anew.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn is_whole(&self, has: u64) -> Result<()> {
        let wanted = self.length.load(Ordering::Acquire);
        self.is_cut.store(has != wanted, Ordering::Release);
        if has == wanted {
            return Ok(());
        }
        let what = format!(
            "another program has changed it while it was in use: it has {has} bytes of {wanted}"
        );
        Err(damaged_file(&self.path, &what))
    }

    /// What is written to.
    fn whole(&self) -> std::io::Result<RwLockReadGuard<'_, Open>> {
        if self.is_cut.load(Ordering::Acquire) {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(self.opened())
    }

    /// Bytes that it has, and blocks that it takes.
    pub fn metadata(&self) -> Result<std::fs::Metadata> {
        self.opened().file.metadata().map_err(|source| files::failed(&self.path, source))
    }

    fn opened(&self) -> RwLockReadGuard<'_, Open> {
        self.open.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// For redb.
#[derive(Debug)]
pub struct Backend(pub Arc<Kept>);

impl StorageBackend for Backend {
    fn len(&self) -> std::io::Result<u64> {
        Ok(self.0.length.load(Ordering::Acquire))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.0.opened().file.read_exact_at(out, offset)
    }

    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.0.whole()?.file.set_len(len)?;
        self.0.length.store(len, Ordering::Release);
        Ok(())
    }

    fn sync_data(&self) -> std::io::Result<()> {
        self.0.whole()?.file.sync_data()?;
        self.0.look().map_err(Error::other)
    }

    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.0.whole()?.file.write_all_at(data, offset)?;
        self.0.length.fetch_max(offset + data.len() as u64, Ordering::AcqRel);
        Ok(())
    }
}
