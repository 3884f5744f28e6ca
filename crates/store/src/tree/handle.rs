//! One file of a tree, whatever it is and whoever may read it, and its attributes.
//! Holds: it stays the same file wherever it is moved, and whatever comes to the name that it had: who
//! has looked at it sets the attributes of what he has looked at.

use super::stat::{self, Instant, Stat};
use crate::error::{Result, StoreError};
use crate::faulty::Faults;
use crate::files;
use rustix::fs::{
    AtFlags, CWD, Gid, Mode, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags, chownat,
};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

/// Extended attributes of this kind belong to users.
const XATTR_PREFIX: &[u8] = b"user.";
/// Who may do what with a file, beside its permission bits.
const ACCESS_LIST: &[u8] = b"system.posix_acl_access";
/// What is made in a directory gets this one.
pub(super) const DEFAULT_LIST: &[u8] = b"system.posix_acl_default";
/// Bytes of all names, and of one value, that Linux allows.
pub(super) const XATTR_BYTES_MAX: usize = 64 << 10;

pub type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

/// Whether a tree has extended attributes of this name: the others are the machine's own affair.
pub fn has_xattrs_like(name: &[u8]) -> bool {
    name.starts_with(XATTR_PREFIX) || name == ACCESS_LIST || name == DEFAULT_LIST
}

#[derive(Debug)]
pub struct Handle {
    fd: OwnedFd,
    path: PathBuf,
    faults: Faults,
}

impl Handle {
    pub(super) fn new(fd: OwnedFd, path: PathBuf, faults: Faults) -> Handle {
        Handle { fd, path, faults }
    }

    pub fn stat(&self) -> Result<Stat> {
        stat::look(&self.fd, b"", AtFlags::EMPTY_PATH).map_err(|errno| self.failed(errno))
    }

    pub fn set_mode(&self, mode: u16) -> Result<()> {
        let mode = Mode::from_raw_mode(mode.into());
        self.change(0, || rustix::fs::chmod(place(&self.fd), mode))
    }

    /// Of a link, its own.
    pub fn set_owner(&self, uid: u32, gid: u32) -> Result<()> {
        let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        self.change(0, || chownat(&self.fd, "", uid, gid, AtFlags::EMPTY_PATH))
    }

    /// The time of the last access stays as it is.
    pub fn set_mtime(&self, (secs, nanos): Instant) -> Result<()> {
        let times = Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            last_modification: Timespec { tv_sec: secs, tv_nsec: nanos.into() },
        };
        let flags = AtFlags::empty();
        self.change(0, || rustix::fs::utimensat(CWD, place(&self.fd), &times, flags))
    }

    /// Those that users may set, and the lists of who may do what. None where the file system, or
    /// the kind of file, has none.
    pub fn xattrs(&self) -> Result<Xattrs> {
        let place = place(&self.fd);
        let mut list = vec![0; XATTR_BYTES_MAX];
        let length = match rustix::fs::listxattr(&*place, &mut list[..]) {
            Ok(length) => length,
            Err(Errno::OPNOTSUPP | Errno::ACCESS | Errno::PERM) => return Ok(Xattrs::new()),
            Err(errno) => return Err(self.failed(errno)),
        };
        let mut found = Xattrs::new();
        let mut value = Vec::new();
        for key in list[..length].split(|byte| *byte == 0) {
            if !has_xattrs_like(key) {
                continue;
            }
            value.resize(XATTR_BYTES_MAX, 0);
            match rustix::fs::getxattr(&*place, key, &mut value[..]) {
                Ok(length) => {
                    found.insert(key.to_vec(), value[..length].to_vec());
                }
                // It went since the list was made.
                Err(Errno::NODATA) => {}
                Err(errno) => return Err(self.failed(errno)),
            }
        }
        Ok(found)
    }

    /// Sets one; without a value, removes it. Those that the tree does not have are left alone.
    pub fn set_xattr(&self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        if !has_xattrs_like(key) {
            return Ok(());
        }
        let place = place(&self.fd);
        let set = || match value {
            Some(value) => rustix::fs::setxattr(&*place, key, value, XattrFlags::empty()),
            None => rustix::fs::removexattr(&*place, key),
        };
        let bytes = value.map_or(0, |value| key.len() + value.len());
        self.change(bytes, || match set() {
            Err(Errno::NODATA) => Ok(()),
            done => done,
        })
    }

    /// Changes it; that takes so many bytes of the disk.
    fn change(&self, bytes: usize, work: impl FnOnce() -> rustix::io::Result<()>) -> Result<()> {
        self.faults.changes(bytes, || work().map_err(|errno| self.failed(errno)))
    }

    fn failed(&self, errno: Errno) -> StoreError {
        files::failed(&self.path, errno.into())
    }
}

/// A path by which the calls that take only paths find an open file.
pub(super) fn place(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}
