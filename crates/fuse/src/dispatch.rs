//! Each request goes to the call of the file system that answers it.
//! Holds: what a file system does not do is answered with ENOSYS, after which the kernel does not
//! ask for it again; every request is traced (`fuse::asked`), whoever answers it, so that what a call
//! of a program costs can be counted.

use crate::answer::{
    Reply, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyLock, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyStatx, ReplyWrite, ReplyXattr,
};
use crate::asked::{Asked, Creating, LockAsked, Request, SetAttributes};
use crate::device::Device;
use crate::opcode;
use crate::words::{Errno, FileHandle, INodeNo, LockOwner, OpenFlags, RenameFlags, WriteFlags};
use std::ffi::OsStr;
use std::sync::Arc;

/// A file system. Calls come from several threads at once, and need not answer before they return.
#[allow(clippy::too_many_arguments, reason = "as many as the kernel gives")]
pub trait Filesystem: Send + Sync + 'static {
    /// The file that the kernel knows by a number, as all calls but `forget` name it.
    fn file_of(&self, number: INodeNo) -> INodeNo {
        number
    }
    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry);
    /// The kernel has the file of this number so many times less.
    fn forget(&self, number: INodeNo, times: u64);
    /// Whoever waits for the request of this number was sent a signal, the first since it waits. The
    /// request may have been answered by now, or come to be looked at only later.
    fn interrupt(&self, unique: u64);
    fn getattr(&self, request: &Request, ino: INodeNo, reply: ReplyAttr);
    /// Asked for once of each file that the kernel has: it remembers when a file was made.
    fn statx(&self, request: &Request, ino: INodeNo, reply: ReplyStatx);
    fn setattr(&self, request: &Request, ino: INodeNo, set: SetAttributes, reply: ReplyAttr);
    fn readlink(&self, request: &Request, ino: INodeNo, reply: ReplyData);
    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    );
    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    );
    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty);
    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty);
    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &OsStr,
        reply: ReplyEntry,
    );
    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        to: INodeNo,
        to_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    );
    /// A name more.
    fn link(
        &self,
        request: &Request,
        ino: INodeNo,
        parent: INodeNo,
        name: &OsStr,
        reply: ReplyEntry,
    );
    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen);
    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    );
    /// A file without a name, of the file system of `parent`.
    fn tmpfile(
        &self,
        request: &Request,
        parent: INodeNo,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    );
    fn read(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        reply: ReplyData,
    );
    fn write(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        bytes: &[u8],
        flags: WriteFlags,
        reply: ReplyWrite,
    );
    /// A descriptor is closed; there may be others.
    fn flush(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        reply: ReplyEmpty,
    );
    /// The last descriptor was closed. Nobody waits for the answer.
    fn release(&self, handle: FileHandle);
    fn fsync(&self, request: &Request, ino: INodeNo, handle: FileHandle, reply: ReplyEmpty);
    fn fsyncdir(&self, request: &Request, ino: INodeNo, reply: ReplyEmpty);
    fn readdir(&self, request: &Request, ino: INodeNo, offset: u64, reply: ReplyDirectory);
    fn readdirplus(&self, request: &Request, ino: INodeNo, offset: u64, reply: ReplyDirectoryPlus);
    fn statfs(&self, request: &Request, ino: INodeNo, reply: ReplyStatfs);
    fn setxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        reply: ReplyEmpty,
    );
    /// `size`: what there is room for; 0: how long the value is.
    fn getxattr(&self, request: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr);
    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr);
    fn removexattr(&self, request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty);
    fn getlk(&self, request: &Request, ino: INodeNo, lock: LockAsked, reply: ReplyLock);
    fn setlk(
        &self,
        request: &Request,
        ino: INodeNo,
        lock: LockAsked,
        waits: bool,
        reply: ReplyEmpty,
    );
    fn fallocate(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    );
    fn lseek(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    );
    fn copy_file_range(
        &self,
        request: &Request,
        from: (FileHandle, u64),
        to: (INodeNo, FileHandle, u64),
        length: u64,
        reply: ReplyWrite,
    );
}

/// Hands a request on. `device`: where it was read.
pub(crate) fn dispatch<F: Filesystem>(
    fs: &F,
    device: &Arc<Device>,
    request: &Request,
    asked: Asked<'_>,
) {
    let request = &request.about(fs.file_of(request.ino));
    let ino = request.ino;
    tracing::trace!(
        target: "fuse::asked", what = opcode::name(request.opcode), file = ino.0, thread = request.pid()
    );
    // These two nobody answers.
    if let Asked::Interrupt(unique) = asked {
        return fs.interrupt(unique);
    }
    if let Asked::Forget(files) = asked {
        return files.into_iter().for_each(|(number, times)| fs.forget(number, times));
    }
    let reply = Reply::to(device, request.unique);
    match asked {
        Asked::Read(at) => {
            fs.read(request, ino, at.handle, at.offset, at.size, ReplyData(reply));
        }
        Asked::Write { stretch: at, flags, bytes } => {
            fs.write(request, ino, at.handle, at.offset, bytes, flags, ReplyWrite(reply));
        }
        Asked::Flush { handle, owner } => {
            fs.flush(request, ino, handle, owner, ReplyEmpty(reply));
        }
        Asked::Release(handle) => {
            fs.release(handle);
            reply.ok(&[]);
        }
        Asked::Fsync(handle) => fs.fsync(request, ino, handle, ReplyEmpty(reply)),
        Asked::Open(flags) => fs.open(request, ino, flags, ReplyOpen(reply)),
        Asked::Allocate { handle, offset, length, mode } => {
            fs.fallocate(request, ino, handle, offset, length, mode, ReplyEmpty(reply));
        }
        Asked::Seek { handle, offset, whence } => {
            let offset = offset.cast_signed();
            fs.lseek(request, ino, handle, offset, whence, ReplyLseek(reply));
        }
        Asked::Copy { from, to: (to, handle, offset), length } => {
            let to = (fs.file_of(to), handle, offset);
            fs.copy_file_range(request, from, to, length, ReplyWrite(reply));
        }
        Asked::GetLock(lock) => fs.getlk(request, ino, lock, ReplyLock(reply)),
        Asked::SetLock { lock, waits } => fs.setlk(request, ino, lock, waits, ReplyEmpty(reply)),
        other => about_names(fs, request, other, reply),
    }
}

fn about_names<F: Filesystem>(fs: &F, request: &Request, asked: Asked<'_>, reply: Reply) {
    let ino = request.ino;
    match asked {
        Asked::Lookup(name) => fs.lookup(request, ino, name, ReplyEntry(reply)),
        Asked::MkNod { name, mode, umask, rdev } => {
            fs.mknod(request, ino, name, mode, umask, rdev, ReplyEntry(reply));
        }
        Asked::MkDir { name, mode, umask } => {
            fs.mkdir(request, ino, name, mode, umask, ReplyEntry(reply));
        }
        Asked::Unlink(name) => fs.unlink(request, ino, name, ReplyEmpty(reply)),
        Asked::RmDir(name) => fs.rmdir(request, ino, name, ReplyEmpty(reply)),
        Asked::Symlink { name, target } => {
            fs.symlink(request, ino, name, target, ReplyEntry(reply));
        }
        Asked::Rename { name, to, to_name, flags } => {
            fs.rename(request, ino, name, to, to_name, flags, ReplyEmpty(reply));
        }
        Asked::Link { file, name } => {
            fs.link(request, fs.file_of(file), ino, name, ReplyEntry(reply));
        }
        Asked::Create(Creating { name, flags, mode, umask }) => {
            fs.create(request, ino, name, mode, umask, flags, ReplyCreate(reply));
        }
        Asked::TmpFile(Creating { flags, mode, umask, .. }) => {
            fs.tmpfile(request, ino, mode, umask, flags, ReplyCreate(reply));
        }
        other => about_files(fs, request, other, reply),
    }
}

fn about_files<F: Filesystem>(fs: &F, request: &Request, asked: Asked<'_>, reply: Reply) {
    let ino = request.ino;
    match asked {
        Asked::GetAttr => fs.getattr(request, ino, ReplyAttr(reply)),
        Asked::Statx => fs.statx(request, ino, ReplyStatx(reply)),
        Asked::SetAttr(set) => fs.setattr(request, ino, set, ReplyAttr(reply)),
        Asked::ReadLink => fs.readlink(request, ino, ReplyData(reply)),
        Asked::FsyncDir => fs.fsyncdir(request, ino, ReplyEmpty(reply)),
        Asked::ReadDir(at) => {
            fs.readdir(request, ino, at.offset, ReplyDirectory::new(reply, at.size));
        }
        Asked::ReadDirPlus(at) => {
            fs.readdirplus(request, ino, at.offset, ReplyDirectoryPlus::new(reply, at.size));
        }
        Asked::StatFs => fs.statfs(request, ino, ReplyStatfs(reply)),
        Asked::SetXattr { name, value, flags } => {
            fs.setxattr(request, ino, name, value, flags, ReplyEmpty(reply));
        }
        Asked::GetXattr { name, size } => {
            fs.getxattr(request, ino, name, size, ReplyXattr(reply));
        }
        Asked::ListXattr { size } => fs.listxattr(request, ino, size, ReplyXattr(reply)),
        Asked::RemoveXattr(name) => fs.removexattr(request, ino, name, ReplyEmpty(reply)),
        // Commands of devices, of which there are none here.
        Asked::Ioctl => reply.error(Errno::ENOTTY),
        Asked::Destroy => reply.ok(&[]),
        // Such as opendir: the kernel then opens directories by itself, and caches what they hold.
        other => {
            tracing::debug!(?other, "not done here");
            reply.error(Errno::ENOSYS);
        }
    }
}
