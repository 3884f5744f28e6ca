//! The calls of the kernel, handed on to the tree in memory.
//! Holds: each is answered before it returns. What is not done here is answered with ENOSYS, upon
//! which the kernel does it by itself and does not ask again.
//! Never: decides what a call does.

use super::node::{Moment, New};
use super::tree::{NAME_BYTES_MAX, Tree};
use fuse::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, INodeNo, LockAsked, LockOwner,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEmpty, ReplyEntry, ReplyLock, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyStatx, ReplyWrite,
    ReplyXattr, Request, SetAttributes, Totals, WriteFlags,
};
use rustix::fs::{FileType as Kind, OFlags};
use rustix::time::{ClockId, clock_gettime};
use std::ffi::OsStr;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

/// Nobody else changes anything.
const KEEP: Duration = Duration::from_secs(3600);
const BLOCK_BYTES: u32 = 4096;
/// More files than anybody makes.
const FILES_MAX: u64 = 1 << 30;
const LINK_PERMISSIONS: u32 = 0o777;
/// `ls -l` asks for it of every file, until it is told once that it is not kept here.
const SELINUX: &str = "security.selinux";

#[derive(Debug)]
pub struct Memory(RwLock<Tree>);

impl Memory {
    pub fn new(bytes_max: u64) -> Memory {
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let root = made(FileType::Directory, 0o755, (uid, gid));
        Memory(RwLock::new(Tree::new(&root, bytes_max, now())))
    }

    fn look(&self) -> RwLockReadGuard<'_, Tree> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) -> RwLockWriteGuard<'_, Tree> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the kernel is told of by its name, it knows from then on.
    fn told(
        &self,
        call: impl FnOnce(&mut Tree) -> Result<FileAttr, Errno>,
    ) -> Result<FileAttr, Errno> {
        let mut tree = self.change();
        let attr = call(&mut tree)?;
        tree.meet(attr.ino);
        Ok(attr)
    }
}

fn now() -> Moment {
    let now = clock_gettime(ClockId::Realtime);
    (now.tv_sec, u32::try_from(now.tv_nsec).unwrap_or_default())
}

fn made<'a>(kind: FileType, perm: u32, (uid, gid): (u32, u32)) -> New<'a> {
    New { kind, perm, uid, gid, rdev: 0, target: OsStr::new("") }
}

fn asked<'a>(request: &Request, kind: FileType, perm: u32) -> New<'a> {
    made(kind, perm, (request.uid(), request.gid()))
}

fn kind(mode: u32) -> Option<FileType> {
    Some(match Kind::from_raw_mode(mode) {
        Kind::RegularFile => FileType::RegularFile,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
        Kind::CharacterDevice => FileType::CharDevice,
        Kind::BlockDevice => FileType::BlockDevice,
        _ => return None,
    })
}

fn done(reply: ReplyEmpty, outcome: Result<(), Errno>) {
    match outcome {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

fn shown(reply: ReplyAttr, outcome: Result<FileAttr, Errno>) {
    match outcome {
        Ok(attr) => reply.attr(&KEEP, &attr),
        Err(errno) => reply.error(errno),
    }
}

fn found(reply: ReplyEntry, outcome: Result<FileAttr, Errno>) {
    match outcome {
        Ok(attr) => reply.entry(&KEEP, &attr),
        Err(errno) => reply.error(errno),
    }
}

impl Filesystem for Memory {
    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.told(|tree| tree.find((parent, name))) {
            Err(Errno::ENOENT) => reply.entry(&KEEP, &FileAttr::NOTHING),
            outcome => found(reply, outcome),
        }
    }

    fn forget(&self, number: INodeNo, times: u64) {
        self.change().forget(number, times);
    }

    /// Nobody waits here.
    fn interrupt(&self, _unique: u64) {}

    fn getattr(&self, _request: &Request, ino: INodeNo, reply: ReplyAttr) {
        let attr = self.look().attributes(ino);
        shown(reply, attr);
    }

    fn statx(&self, _request: &Request, ino: INodeNo, reply: ReplyStatx) {
        let attr = self.look().attributes(ino);
        match attr {
            Ok(attr) => reply.attr(&KEEP, &attr),
            Err(errno) => reply.error(errno),
        }
    }

    fn setattr(&self, _request: &Request, ino: INodeNo, set: SetAttributes, reply: ReplyAttr) {
        let attr = self.change().set(ino, &set, now());
        shown(reply, attr);
    }

    fn readlink(&self, _request: &Request, ino: INodeNo, reply: ReplyData) {
        match self.look().target(ino) {
            Ok(target) => reply.data(target.as_encoded_bytes()),
            Err(errno) => reply.error(errno),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let Some(kind) = kind(mode) else { return reply.error(Errno::EINVAL) };
        let new = New { rdev, ..asked(request, kind, mode & !umask) };
        found(reply, self.told(|tree| tree.make((parent, name), &new, now())));
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let new = asked(request, FileType::Directory, mode & !umask);
        found(reply, self.told(|tree| tree.make((parent, name), &new, now())));
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let outcome = self.change().unlink((parent, name), now());
        done(reply, outcome);
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let outcome = self.change().remove_directory((parent, name), now());
        done(reply, outcome);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &OsStr,
        reply: ReplyEntry,
    ) {
        let new = New { target, ..asked(request, FileType::Symlink, LINK_PERMISSIONS) };
        found(reply, self.told(|tree| tree.make((parent, name), &new, now())));
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        to: INodeNo,
        to_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let outcome = self.change().rename((parent, name), (to, to_name), flags, now());
        done(reply, outcome);
    }

    fn link(
        &self,
        _request: &Request,
        ino: INodeNo,
        parent: INodeNo,
        name: &OsStr,
        reply: ReplyEntry,
    ) {
        found(reply, self.told(|tree| tree.link(ino, (parent, name), now())));
    }

    fn open(&self, _request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let truncates = OFlags::from_bits_retain(flags.0.cast_unsigned()).contains(OFlags::TRUNC);
        let outcome = match truncates {
            true => self.change().truncate(ino, 0, now()),
            false => self.look().attributes(ino).map(|_| ()),
        };
        match outcome {
            Ok(()) => reply.opened(FileHandle(ino.0), FopenFlags::FOPEN_KEEP_CACHE),
            Err(errno) => reply.error(errno),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let new = asked(request, FileType::RegularFile, mode & !umask);
        match self.told(|tree| tree.make((parent, name), &new, now())) {
            Ok(attr) => {
                let handle = FileHandle(attr.ino.0);
                reply.created(&KEEP, &attr, handle, FopenFlags::FOPEN_KEEP_CACHE);
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn tmpfile(
        &self,
        _request: &Request,
        _parent: INodeNo,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn read(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        reply: ReplyData,
    ) {
        // The kernel takes the bytes from where they are, without a copy in between.
        match self.look().read(ino, offset, size) {
            Ok(bytes) => reply.data(bytes),
            Err(errno) => reply.error(errno),
        }
    }

    fn write(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        bytes: &[u8],
        flags: WriteFlags,
        reply: ReplyWrite,
    ) {
        let as_other = flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        let outcome = self.change().write(ino, (offset, bytes), as_other, now());
        match (outcome, u32::try_from(bytes.len())) {
            (Ok(()), Ok(count)) => reply.written(count),
            (Err(errno), _) => reply.error(errno),
            (_, Err(_)) => reply.error(Errno::EIO),
        }
    }

    fn flush(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::ENOSYS);
    }

    /// A file is kept as long as the kernel knows it, so that open ones need not be counted.
    fn release(&self, _handle: FileHandle) {}

    fn fsync(&self, _request: &Request, _ino: INodeNo, _handle: FileHandle, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn fsyncdir(&self, _request: &Request, _ino: INodeNo, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn readdir(&self, _request: &Request, ino: INodeNo, offset: u64, mut reply: ReplyDirectory) {
        let tree = self.look();
        match tree.list(ino, offset) {
            Ok(mut listed) => {
                // Until it is full.
                let _ = listed.find(|entry| reply.add(entry.attr, entry.position, entry.name));
                reply.ok();
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn readdirplus(
        &self,
        _request: &Request,
        ino: INodeNo,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let mut tree = self.change();
        let mut told = Vec::new();
        match tree.list(ino, offset) {
            Ok(listed) => {
                for entry in listed {
                    let known = !entry.is_dot;
                    if reply.add((entry.attr, known), entry.position, entry.name, KEEP) {
                        break;
                    }
                    told.extend(known.then_some(entry.attr.ino));
                }
            }
            Err(errno) => return reply.error(errno),
        }
        told.into_iter().for_each(|file| tree.meet(file));
        drop(tree);
        reply.ok();
    }

    fn statfs(&self, _request: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let (bytes, bytes_max, files) = {
            let tree = self.look();
            (tree.bytes(), tree.bytes_max(), tree.files())
        };
        let blocks = |bytes: u64| bytes / u64::from(BLOCK_BYTES);
        reply.totals(&Totals {
            blocks: blocks(bytes_max),
            blocks_free: blocks(bytes_max.saturating_sub(bytes)),
            files: FILES_MAX,
            files_free: FILES_MAX.saturating_sub(files),
            block_bytes: BLOCK_BYTES,
            name_bytes_max: NAME_BYTES_MAX as u32,
        });
    }

    fn setxattr(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _name: &OsStr,
        _value: &[u8],
        _flags: i32,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EOPNOTSUPP);
    }

    /// Not ENOSYS: a file system that has such attributes is asked for them, as FarFS is.
    fn getxattr(
        &self,
        _request: &Request,
        _ino: INodeNo,
        name: &OsStr,
        _size: u32,
        reply: ReplyXattr,
    ) {
        reply.error(if name == SELINUX { Errno::EOPNOTSUPP } else { Errno::ENODATA });
    }

    fn listxattr(&self, _request: &Request, _ino: INodeNo, size: u32, reply: ReplyXattr) {
        match size {
            0 => reply.size(0),
            _ => reply.data(&[]),
        }
    }

    fn removexattr(&self, _request: &Request, _ino: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EOPNOTSUPP);
    }

    fn getlk(&self, _request: &Request, _ino: INodeNo, _lock: LockAsked, reply: ReplyLock) {
        reply.error(Errno::ENOSYS);
    }

    fn setlk(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _lock: LockAsked,
        _waits: bool,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn fallocate(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _offset: u64,
        _length: u64,
        _mode: i32,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn lseek(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _offset: i64,
        _whence: i32,
        reply: ReplyLseek,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn copy_file_range(
        &self,
        _request: &Request,
        _from: (FileHandle, u64),
        _to: (INodeNo, FileHandle, u64),
        _length: u64,
        reply: ReplyWrite,
    ) {
        reply.error(Errno::ENOSYS);
    }
}
