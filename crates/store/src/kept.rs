//! Files that are in use: whether they still lie where their names say, and how one that another
//! program has taken away is put there anew from what is open of it.
//! Holds: what is put anew is whole and on the disk before it has its name.

use crate::error::{Result, StoreError};
use crate::files;
use crate::ordinary;
use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt, fchown};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Bytes that are copied at once.
const COPIED_AT_ONCE: usize = 1 << 20;

/// Behind the name of a file, of one that is to take its place and may be half of it.
const HALF: &str = ".new";

/// A file or directory, wherever it is called what.
pub type Identity = (u64, u64);

pub fn identity(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

/// Of the directory in which a file or directory of this name lies.
pub fn parent_of(path: &Path) -> Result<Identity> {
    let parent = parent_path(path);
    let found = std::fs::metadata(parent).map_err(|source| files::failed(parent, source))?;
    Ok(identity(&found))
}

pub fn parent_path(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// It was moved with the directory that it was in, or that is gone.
pub fn moved(path: &Path) -> StoreError {
    let what =
        "and so is the directory in which it was while in use: move that back to where it was";
    StoreError::Missing { place: path.display().to_string(), what: what.to_owned() }
}

/// Nothing of this name is there. What may not be looked at may be there all the same.
pub fn is_gone(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// So many bytes of what is open, under this name, in a file of their own. Another one that lies there
/// stays beside it.
pub fn put_anew(open: &File, bytes: u64, path: &Path) -> Result<File> {
    put(open, path, |copy| {
        let copy = copied(open, bytes, copy, path)?;
        ordinary::leave_beside(path).map_err(|source| files::failed(path, source))?;
        Ok(copy)
    })
}

/// A file with the owner and mode of what is open, which is filled, and synced, before it has this name.
pub fn put<T>(open: &File, path: &Path, fill: impl FnOnce(File) -> Result<T>) -> Result<T> {
    let half = half_of(path);
    let put = files::open(&half, true).and_then(|file| {
        file.set_len(0)
            .and_then(|()| permit_as(open, &file))
            .map_err(|source| files::failed(path, source))?;
        let filled = fill(file)?;
        ordinary::replace(&half, path).map_err(|source| files::failed(path, source))?;
        files::sync_directory(parent_path(path))?;
        Ok(filled)
    });
    if put.is_err()
        && let Err(error) = files::remove(&half)
    {
        tracing::warn!(%error, "half a file stays");
    }
    put
}

/// Takes away what a process that ended while it put a file anew has left of it.
pub fn forget_half(path: &Path) -> Result<()> {
    files::remove(&half_of(path))
}

/// The same, if it was written before: a later one may be under way.
pub fn forget_old_half(path: &Path, before: SystemTime) {
    let modified = ordinary::metadata(&half_of(path)).and_then(|half| half.modified());
    if modified.is_ok_and(|modified| modified < before)
        && let Err(error) = forget_half(path)
    {
        tracing::debug!(%error, "half a file stays");
    }
}

pub fn is_half(name: &str, ending: &str) -> bool {
    whole_of(name).is_some_and(|whole| whole.ends_with(ending))
}

/// The name of what a half was to become.
pub fn whole_of(name: &str) -> Option<&str> {
    name.strip_suffix(HALF)
}

fn half_of(path: &Path) -> PathBuf {
    let mut name = path.file_name().map_or_else(OsString::new, OsString::from);
    name.push(HALF);
    path.with_file_name(name)
}

fn permit_as(open: &File, copy: &File) -> std::io::Result<()> {
    let (wanted, has) = (open.metadata()?, copy.metadata()?);
    if (wanted.uid(), wanted.gid()) != (has.uid(), has.gid()) {
        fchown(copy, Some(wanted.uid()), Some(wanted.gid()))?;
    }
    copy.set_permissions(wanted.permissions())
}

fn copied(open: &File, bytes: u64, copy: File, path: &Path) -> Result<File> {
    let failed = |source| files::failed(path, source);
    if rustix::fs::ioctl_ficlone(&copy, open).is_err() {
        // It is tried again with each commit: a disk that is nearly full is not filled for that.
        if files::free_bytes(parent_path(path))? < bytes {
            return Err(StoreError::Full(path.to_path_buf()));
        }
        copy_bytes(open, bytes, &copy).map_err(failed)?;
    }
    copy.set_len(bytes).map_err(failed)?;
    copy.sync_all().map_err(failed)?;
    Ok(copy)
}

fn copy_bytes(from: &File, bytes: u64, to: &File) -> std::io::Result<()> {
    let mut piece = vec![0; COPIED_AT_ONCE.min(bytes as usize)];
    let mut at = 0;
    while at < bytes {
        let length = (bytes - at).min(piece.len() as u64) as usize;
        from.read_exact_at(&mut piece[..length], at)?;
        to.write_all_at(&piece[..length], at)?;
        at += length as u64;
    }
    Ok(())
}
