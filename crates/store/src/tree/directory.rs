//! One open directory of a tree, and what can be done to the names in it.
//! Holds: it stays the same directory wherever it is moved.

use super::file::TreeFile;
use super::handle::{DEFAULT_LIST, Handle, XATTR_BYTES_MAX, Xattrs};
use super::shown;
use super::stat::{self, Sort, Stat};
use crate::error::{Result, StoreError};
use crate::faulty::Faults;
use crate::files;
use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, RenameFlags, ResolveFlags, Uid};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// What a rename does with what bears the new name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Nothing bears it, or it is an error.
    New,
    /// It goes.
    Replace,
    /// It gets the old name.
    Exchange,
}

#[derive(Debug)]
pub struct Directory {
    fd: OwnedFd,
    path: PathBuf,
    faults: Faults,
}

impl Directory {
    pub(super) fn new(fd: OwnedFd, path: PathBuf, faults: Faults) -> Directory {
        Directory { fd, path, faults }
    }

    pub(super) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// The path of a name in it, as people read it.
    pub fn shown(&self, name: &[u8]) -> String {
        self.path.join(shown(name)).display().to_string()
    }

    pub fn own_stat(&self) -> Result<Stat> {
        stat::look(&self.fd, b"", AtFlags::EMPTY_PATH).map_err(|errno| self.failed(b"", errno))
    }

    /// Names that are there now, in order.
    pub fn names(&self) -> Result<Vec<Vec<u8>>> {
        self.faults.meanwhile();
        let entries = Dir::read_from(&self.fd).map_err(|errno| self.failed(b"", errno))?;
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|errno| self.failed(b"", errno))?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(name.to_vec());
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// None: nothing bears the name.
    pub fn stat(&self, name: &[u8]) -> Result<Option<Stat>> {
        self.faults.meanwhile();
        match stat::look(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NOENT) => Ok(None),
            Err(_) if self.is_mounted_over(name) => Ok(Some(Stat::of_mounted())),
            Err(errno) => Err(self.failed(name, errno)),
        }
    }

    /// Another file system is there, which is not asked.
    fn is_mounted_over(&self, name: &[u8]) -> bool {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV;
        let opened = rustix::fs::openat2(&self.fd, name, flags, Mode::empty(), beneath);
        matches!(opened, Err(Errno::XDEV))
    }

    pub fn read_link(&self, name: &[u8]) -> Result<Vec<u8>> {
        let target = rustix::fs::readlinkat(&self.fd, name, Vec::new());
        Ok(target.map_err(|errno| self.failed(name, errno))?.into_bytes())
    }

    /// Opens a file for reading. It does not wait for whoever has the other end of a pipe.
    pub fn open(&self, name: &[u8]) -> Result<TreeFile> {
        self.faults.meanwhile();
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        self.open_as(name, flags, Mode::empty())
    }

    /// A new file that nobody else may read yet.
    pub fn create(&self, name: &[u8]) -> Result<TreeFile> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let mode = Mode::RUSR | Mode::WUSR;
        self.faults.changes(name.len(), || self.open_as(name, flags | OFlags::CLOEXEC, mode))
    }

    fn open_as(&self, name: &[u8], flags: OFlags, mode: Mode) -> Result<TreeFile> {
        let opened = rustix::fs::openat(&self.fd, name, flags, mode);
        let fd = opened.map_err(|errno| self.failed(name, errno))?;
        Ok(TreeFile::new(fd, self.path.join(shown(name)), self.faults.clone()))
    }

    pub fn make_directory(&self, name: &[u8], mode: u16) -> Result<()> {
        let make = || rustix::fs::mkdirat(&self.fd, name, Mode::from_raw_mode(mode.into()));
        self.change(name, name.len(), make)
    }

    pub fn make_symlink(&self, name: &[u8], target: &[u8]) -> Result<()> {
        self.change(name, target.len(), || rustix::fs::symlinkat(target, &self.fd, name))
    }

    /// A pipe, a socket or a device.
    pub fn make_special(&self, name: &[u8], sort: Sort, mode: u16, rdev: u64) -> Result<()> {
        let kind = match sort {
            Sort::Fifo => FileType::Fifo,
            Sort::Socket => FileType::Socket,
            Sort::CharDevice => FileType::CharacterDevice,
            Sort::BlockDevice => FileType::BlockDevice,
            Sort::File | Sort::Directory | Sort::Symlink => {
                return Err(self.failed(name, Errno::INVAL));
            }
        };
        let mode = Mode::from_raw_mode(mode.into());
        self.change(name, name.len(), || rustix::fs::mknodat(&self.fd, name, kind, mode, rdev))
    }

    /// One more name for a file of this tree.
    pub fn link_from(&self, name: &[u8], other: &Directory, its_name: &[u8]) -> Result<()> {
        let flags = AtFlags::empty();
        let link = || rustix::fs::linkat(&other.fd, its_name, &self.fd, name, flags);
        self.change(name, name.len(), link)
    }

    /// `other`'s file gets a name here.
    pub fn rename_from(
        &self,
        name: &[u8],
        other: &Directory,
        its_name: &[u8],
        how: How,
    ) -> Result<()> {
        let flags = match how {
            How::New => RenameFlags::NOREPLACE,
            How::Replace => RenameFlags::empty(),
            How::Exchange => RenameFlags::EXCHANGE,
        };
        let rename = || rustix::fs::renameat_with(&other.fd, its_name, &self.fd, name, flags);
        self.change(name, 0, rename)
    }

    pub fn unlink(&self, name: &[u8]) -> Result<()> {
        self.change(name, 0, || rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()))
    }

    /// Errors: it is not empty.
    pub fn remove_directory(&self, name: &[u8]) -> Result<()> {
        self.change(name, 0, || rustix::fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR))
    }

    /// Owner and mode of the directory itself.
    pub fn set_own(&self, uid: u32, gid: u32, mode: u16) -> Result<()> {
        let now = self.own_stat()?;
        if (now.uid, now.gid) != (uid, gid) {
            let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
            self.change(b"", 0, || rustix::fs::fchown(&self.fd, uid, gid))?;
        }
        let mode = Mode::from_raw_mode(mode.into());
        self.change(b"", 0, || rustix::fs::fchmod(&self.fd, mode))
    }

    /// The access list that is handed down to what is made here.
    pub fn default_list(&self) -> Result<Option<Vec<u8>>> {
        let mut list = vec![0; XATTR_BYTES_MAX];
        match rustix::fs::fgetxattr(&self.fd, DEFAULT_LIST, &mut list[..]) {
            Ok(length) => Ok(Some(list[..length].to_vec())),
            Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::ACCESS | Errno::PERM) => Ok(None),
            Err(errno) => Err(self.failed(b"", errno)),
        }
    }

    /// As of the file that bears the name now.
    pub fn xattrs(&self, name: &[u8]) -> Result<Xattrs> {
        self.handle(name)?.xattrs()
    }

    /// As of the file that bears the name now.
    pub fn set_xattr(&self, name: &[u8], key: &[u8], value: Option<&[u8]>) -> Result<()> {
        self.handle(name)?.set_xattr(key, value)
    }

    pub fn sync(&self) -> Result<()> {
        self.faults.syncs(|| rustix::fs::fsync(&self.fd).map_err(|errno| self.failed(b"", errno)))
    }

    /// The file that bears the name now, whatever it is and whoever may read it.
    pub fn handle(&self, name: &[u8]) -> Result<Handle> {
        self.faults.meanwhile();
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&self.fd, name, flags, Mode::empty());
        let fd = opened.map_err(|errno| self.failed(name, errno))?;
        Ok(Handle::new(fd, self.path.join(shown(name)), self.faults.clone()))
    }

    /// Changes what bears a name; it takes so many bytes of the disk.
    fn change(
        &self,
        name: &[u8],
        bytes: usize,
        work: impl FnOnce() -> rustix::io::Result<()>,
    ) -> Result<()> {
        self.faults.changes(bytes, || work().map_err(|errno| self.failed(name, errno)))
    }

    fn failed(&self, name: &[u8], errno: Errno) -> StoreError {
        let path = if name.is_empty() { self.path.clone() } else { self.path.join(shown(name)) };
        files::failed(&path, errno.into())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Tree;
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_link_on_the_way_is_not_followed() {
        let outside = tempfile::tempdir().unwrap();
        let inside = tempfile::tempdir().unwrap();
        std::fs::create_dir(outside.path().join("d")).unwrap();
        std::os::unix::fs::symlink(outside.path(), inside.path().join("way")).unwrap();
        let tree = Tree::open(inside.path()).unwrap();
        assert!(tree.directory(b"way").unwrap().is_none());
        assert!(tree.directory(b"way/d").unwrap().is_none());
        assert!(tree.directory(b"..").unwrap().is_none());
        let root = tree.directory(b"").unwrap().unwrap();
        assert_eq!(root.names().unwrap(), [b"way".to_vec()]);
        assert_eq!(root.stat(b"way").unwrap().unwrap().sort, Sort::Symlink);
        assert!(root.open(b"way").is_err());
    }

    /// A file system of a user's own, which says nothing to root, and one whose process has died.
    #[test]
    fn what_is_mounted_and_says_nothing_is_another_disk() {
        for user in [12_345, 0] {
            let folder = tempfile::tempdir().unwrap();
            let there = folder.path().join("mounted");
            std::fs::create_dir(&there).unwrap();
            let Ok(fuse) = std::fs::File::open("/dev/fuse") else { return };
            let options =
                format!("fd={},rootmode=40000,user_id={user},group_id=0", fuse.as_raw_fd());
            let options = std::ffi::CString::new(options).unwrap();
            let flags = rustix::mount::MountFlags::NODEV | rustix::mount::MountFlags::NOSUID;
            if rustix::mount::mount("farfs-test", &there, "fuse", flags, &*options).is_err() {
                return; // It takes leave to mount.
            }
            // Whose last descriptor is closed has died.
            let _alive = (user != 0).then_some(fuse);
            let tree = Tree::open(folder.path()).unwrap();
            let root = tree.directory(b"").unwrap().unwrap();
            let refused = std::fs::symlink_metadata(&there).is_err();
            let seen = root.stat(b"mounted");
            rustix::mount::unmount(&there, rustix::mount::UnmountFlags::DETACH).unwrap();
            assert!(refused, "of user {user}");
            let seen = seen.unwrap().unwrap();
            assert_eq!(seen.sort, Sort::Directory);
            assert_ne!(seen.device, root.own_stat().unwrap().device);
        }
    }

    #[test]
    fn names_are_exchanged_and_a_taken_one_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let tree = Tree::open(folder.path()).unwrap();
        let root = tree.directory(b"").unwrap().unwrap();
        root.create(b"a").unwrap().write(0, b"one").unwrap();
        root.create(b"b").unwrap().write(0, b"two").unwrap();
        let taken = root.rename_from(b"b", &root, b"a", How::New).unwrap_err();
        assert_eq!(taken.kind(), Some(std::io::ErrorKind::AlreadyExists));
        root.rename_from(b"b", &root, b"a", How::Exchange).unwrap();
        assert_eq!(root.open(b"a").unwrap().read(0, 9).unwrap(), b"two");
        root.rename_from(b"b", &root, b"a", How::Replace).unwrap();
        assert_eq!(root.names().unwrap(), [b"b".to_vec()]);
        assert_eq!(root.open(b"b").unwrap().read(0, 9).unwrap(), b"two");
    }

    #[test]
    fn attributes_are_what_was_set() {
        let folder = tempfile::tempdir().unwrap();
        let tree = Tree::open(folder.path()).unwrap();
        let root = tree.directory(b"").unwrap().unwrap();
        root.create(&[0xff, b'x']).unwrap();
        let name = &[0xff, b'x'][..];
        let file = root.handle(name).unwrap();
        file.set_mode(0o640).unwrap();
        file.set_mtime((-5, 7)).unwrap();
        let stat = root.stat(name).unwrap().unwrap();
        assert_eq!((stat.mode, stat.mtime), (0o640, (-5, 7)));
        if root.set_xattr(name, b"user.k", Some(b"v")).is_ok() {
            assert_eq!(root.xattrs(name).unwrap().get(&b"user.k"[..]).unwrap(), b"v");
            root.set_xattr(name, b"user.k", None).unwrap();
            assert!(root.xattrs(name).unwrap().is_empty());
        }
    }

    #[test]
    fn what_comes_to_the_name_of_a_file_does_not_get_its_attributes() {
        let folder = tempfile::tempdir().unwrap();
        let tree = Tree::open(folder.path()).unwrap();
        let root = tree.directory(b"").unwrap().unwrap();
        for (name, mode) in [(b"a", 0o600), (b"b", 0o400)] {
            root.create(name).unwrap();
            root.handle(name).unwrap().set_mode(mode).unwrap();
        }
        let (file, a) = (root.handle(b"a").unwrap(), root.stat(b"a").unwrap().unwrap());
        root.rename_from(b"a", &root, b"b", How::Exchange).unwrap();
        file.set_mode(0o666).unwrap();
        file.set_mtime((1, 2)).unwrap();
        file.set_owner(a.uid, a.gid).unwrap();
        assert_eq!(file.stat().unwrap(), root.stat(b"b").unwrap().unwrap());
        let modes = [b"a", b"b"].map(|name| root.stat(name).unwrap().unwrap().mode);
        assert_eq!(modes, [0o400, 0o666]);
    }

    #[test]
    fn of_a_link_the_owner_can_be_set_and_not_of_where_it_leads() {
        let folder = tempfile::tempdir().unwrap();
        let tree = Tree::open(folder.path()).unwrap();
        let root = tree.directory(b"").unwrap().unwrap();
        root.create(b"a").unwrap();
        root.make_symlink(b"link", b"a").unwrap();
        let before = root.stat(b"a").unwrap().unwrap();
        let link = root.handle(b"link").unwrap();
        link.set_owner(before.uid, before.gid).unwrap();
        assert!(link.set_mode(0o777).is_err());
        assert_eq!(link.stat().unwrap().sort, Sort::Symlink);
        assert_eq!(root.stat(b"a").unwrap().unwrap(), before);
    }

    #[test]
    fn a_tree_that_was_replaced_is_not_in_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t");
        std::fs::create_dir(&path).unwrap();
        let tree = Tree::open(&path).unwrap();
        assert!(tree.is_in_place());
        std::fs::rename(&path, folder.path().join("u")).unwrap();
        assert!(!tree.is_in_place());
        std::fs::create_dir(&path).unwrap();
        assert!(!tree.is_in_place());
    }
}
