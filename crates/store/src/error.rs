//! What can go wrong with a store.

use crate::ordinary::{self, Strange};
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk has no room. Nothing of the transaction or append was kept.
    #[error("no space left on the disk that holds {0}; make room and try again")]
    Full(PathBuf),
    /// The file system, or a limit of this process, takes no file of that length.
    #[error("{0} would be larger than a file can be on its disk")]
    TooLarge(PathBuf),
    /// Bytes that are not what was written.
    #[error("{place} is damaged: {what}")]
    Damaged { place: String, what: String },
    /// It was there, and something that is not kept elsewhere is in it.
    #[error("{place} is missing, {what}")]
    Missing { place: String, what: String },
    /// It may be a link to something that is not ours, or have no end.
    #[error("{place}: {what}")]
    Strange { place: String, what: Strange },
    /// Another process has the store open.
    #[error("{0} is in use by another farfs process")]
    Busy(PathBuf),
    #[error("cannot use {place}: {source}")]
    Io { place: String, source: std::io::Error },
    /// The embedded database's own trouble.
    #[error("the database {place} failed: {what}")]
    Database { place: String, what: String },
    /// Injected by the faulty back end: the process counts as dead.
    #[error("the simulated machine has crashed")]
    Crashed,
}

impl StoreError {
    /// What the operating system said, where it said something.
    pub fn kind(&self) -> Option<std::io::ErrorKind> {
        match self {
            StoreError::Io { source, .. } => Some(source.kind()),
            _ => None,
        }
    }

    /// The disk has lost what is there, or what leads to it: it is not read by trying again, but
    /// written anew.
    pub fn is_unreadable(&self) -> bool {
        const LOST: [i32; 6] =
            [libc::EIO, libc::EUCLEAN, libc::ENODATA, libc::EBADMSG, libc::EILSEQ, libc::EREMOTEIO];
        match self {
            StoreError::Io { source, .. } => {
                source.raw_os_error().is_some_and(|errno| LOST.contains(&errno))
            }
            _ => false,
        }
    }

    /// This process, or the machine, has no descriptor left for another open file.
    pub fn is_short_of_descriptors(&self) -> bool {
        match self {
            StoreError::Io { source, .. } => ordinary::is_short_of_descriptors(source),
            _ => false,
        }
    }
}

pub type Result<T, E = StoreError> = std::result::Result<T, E>;
