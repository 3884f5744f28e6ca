//! An ordinary directory that other programs of this machine use too.
//! Holds: every path is walked below the root, over no symbolic link and into no other file
//! system, whatever others do to the tree meanwhile; a file comes to a name whole or not at all.
//! Never: follows a link, or believes that what was seen is still so.

mod directory;
mod file;
mod handle;
mod stat;
mod watch;

pub use directory::{Directory, How};
pub use file::TreeFile;
pub use handle::{Handle, has_xattrs_like};
pub use stat::{Instant, Sort, Stat};
pub use watch::{Event, Waker, Watch};

use crate::error::Result;
use crate::faulty::Faults;
use crate::files::failed;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatVfsMountFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Bytes of a path that Linux takes, without the one that ends it.
const PATH_BYTES_MAX: usize = 4095;

/// A tree, by its root.
#[derive(Debug)]
pub struct Tree {
    root: OwnedFd,
    path: PathBuf,
    faults: Faults,
}

impl Tree {
    /// The tree below an existing directory.
    pub fn open(path: &Path) -> Result<Tree> {
        Tree::with(path, Faults::default())
    }

    /// What the path leads to now, in the place of this.
    pub fn again(&self) -> Result<Tree> {
        Tree::with(&self.path, self.faults.clone())
    }

    pub(crate) fn with(path: &Path, faults: Faults) -> Result<Tree> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, path, flags, Mode::empty())
            .map_err(|errno| failed(path, errno.into()))?;
        Ok(Tree { root, path: path.to_path_buf(), faults })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the path still leads to the directory that was opened. It does not when that was
    /// removed or moved, or when a file system was mounted over it or taken away.
    pub fn is_in_place(&self) -> bool {
        let flags = AtFlags::empty();
        let here = stat::look(&self.root, b"", AtFlags::EMPTY_PATH);
        let there = rustix::fs::statat(CWD, &self.path, flags);
        match (here, there) {
            (Ok(here), Ok(there)) => {
                here.links > 0 && here.ino == there.st_ino && here.device == there.st_dev
            }
            _ => false,
        }
    }

    /// The directory at a path of names between slashes; of no names, the root. None: there is
    /// none, or a link or another file system is in the way.
    pub fn directory(&self, path: &[u8]) -> Result<Option<Directory>> {
        self.faults.reads()?;
        let shown = self.path.join(shown(path));
        self.faults.opens(&shown)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let path: &[u8] = if path.is_empty() { b"." } else { path };
        let mut opened: Option<OwnedFd> = None;
        for part in parts(path) {
            let from = opened.as_ref().unwrap_or(&self.root);
            opened = match rustix::fs::openat2(from, part, flags, Mode::empty(), beneath) {
                Ok(fd) => Some(fd),
                Err(
                    Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::NAMETOOLONG,
                ) => return Ok(None),
                Err(errno) => return Err(failed(&shown, errno.into())),
            };
        }
        Ok(opened.map(|fd| Directory::new(fd, shown, self.faults.clone())))
    }

    /// Bytes that the disk of the root has free.
    pub fn room(&self) -> Result<u64> {
        let disk =
            rustix::fs::fstatvfs(&self.root).map_err(|errno| failed(&self.path, errno.into()))?;
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    /// Whether its file system can only be read.
    pub fn is_read_only(&self) -> bool {
        let flags = rustix::fs::fstatvfs(&self.root).map(|disk| disk.f_flag);
        let is_read_only = flags.is_ok_and(|flags| flags.contains(StatVfsMountFlags::RDONLY));
        is_read_only || self.faults.is_read_only()
    }

    /// All that was written below the root is safe from a power cut when this returns, unless the file
    /// system is read-only: one that its trouble has made so may say that all is well.
    pub fn sync(&self) -> Result<()> {
        let sync = || rustix::fs::syncfs(&self.root);
        self.faults.syncs(|| sync().map_err(|errno| failed(&self.path, errno.into())))
    }
}

/// A path in pieces that one call each takes, one below the other.
fn parts(path: &[u8]) -> Vec<&[u8]> {
    let (mut parts, mut rest) = (Vec::new(), path);
    while let Some(head) = rest.get(..=PATH_BYTES_MAX)
        && let Some(slash) = head.iter().rposition(|byte| *byte == b'/')
    {
        parts.push(&rest[..slash]);
        rest = &rest[slash + 1..];
    }
    parts.push(rest);
    parts
}

/// A path or a name as people read it.
pub(crate) fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
