//! Where containers lie: what bears the name of one, or of a directory of them.

use super::Key;
use crate::error::Result;
use crate::files;
use crate::ordinary::{self, Strange};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What bears the name of one of the 256 directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Nothing,
    /// It, or a link to it.
    Directory,
    /// Neither a directory nor a link.
    Other,
}

/// Errors: it cannot be told, or it is a link that does not lead to a directory now. What it led to
/// may be there again, as a disk that is not mounted yet.
pub fn look_at(fan: &Path) -> Result<Place> {
    let kind = match std::fs::symlink_metadata(fan) {
        Ok(metadata) => metadata.file_type(),
        Err(source) if source.kind() == ErrorKind::NotFound => return Ok(Place::Nothing),
        Err(source) => return Err(files::failed(fan, source)),
    };
    if !kind.is_symlink() {
        return Ok(if kind.is_dir() { Place::Directory } else { Place::Other });
    }
    match std::fs::metadata(fan) {
        Ok(metadata) if metadata.is_dir() => Ok(Place::Directory),
        Err(source) if !leads_nowhere(&source) => Err(files::failed(fan, source)),
        _ => Err(files::failed(fan, Strange::Astray.into())),
    }
}

fn leads_nowhere(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
        || error.raw_os_error() == Some(libc::ELOOP)
}

/// Something else in the place of a container, or of a directory of them, is as good as nothing.
pub fn is_missing(error: &std::io::Error) -> bool {
    use ErrorKind::{NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory) || Strange::of(error).is_some()
}

/// As `look_at`, of where a container is to be.
pub fn directory_of(path: &Path) -> Result<Place> {
    look_at(path.parent().expect("path puts each file into a directory"))
}

/// Makes the directory of a container, and puts aside what is none and bears its name.
pub fn make_room_for(path: &Path) -> Result<()> {
    let parent = path.parent().expect("path puts each file into a directory");
    let aside =
        |path: &Path| ordinary::put_aside(path).map_err(|source| files::failed(path, source));
    if look_at(parent)? == Place::Other {
        aside(parent)?;
    }
    files::make_directory(parent)?;
    match ordinary::metadata(path) {
        Err(error) if Strange::of(&error).is_some() => aside(path),
        _ => Ok(()),
    }
}

/// Another name of an ordinary file, in place of what may bear that. False: there is none of the first.
pub fn rename(from: &Path, to: &Path) -> Result<bool> {
    make_room_for(to)?;
    match ordinary::metadata(from).and_then(|_| std::fs::rename(from, to)) {
        Err(source) if is_missing(&source) => directory_of(from).map(|_| false),
        outcome => outcome.map(|()| true).map_err(|source| files::failed(from, source)),
    }
}

/// A second name of an ordinary file. False: there is none of the first name, or the file system has no
/// second names, or no more of them.
pub fn link(from: &Path, to: &Path) -> Result<bool> {
    make_room_for(to)?;
    match ordinary::metadata(from).and_then(|_| std::fs::hard_link(from, to)) {
        Ok(()) => Ok(true),
        Err(source) if is_missing(&source) => directory_of(from).map(|_| false),
        Err(source) if source.kind() == ErrorKind::StorageFull => Err(files::failed(to, source)),
        Err(_) => Ok(false),
    }
}

/// Whether an ordinary file has a second name.
pub fn is_linked(path: &Path) -> Result<bool> {
    match ordinary::metadata(path) {
        Ok(metadata) => Ok(metadata.nlink() > 1),
        Err(source) if is_missing(&source) => Ok(false),
        Err(source) => Err(files::failed(path, source)),
    }
}

/// Whether one of the 256 directories may have the name.
pub fn is_fan(name: &str) -> bool {
    name.len() == 2 && u8::from_str_radix(name, 16).is_ok()
}

pub fn parse_name(name: &str) -> Option<Key> {
    let (file, generation) = name.split_once('.')?;
    let file = u64::from_str_radix(file, 16).ok()?;
    Some(Key { file, generation: generation.parse().ok()? })
}
