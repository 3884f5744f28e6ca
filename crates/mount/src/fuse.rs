//! The kernel's requests, each turned into a call of the client's and its outcome into a reply.
//! Never: waits; that is the driver's.

use crate::attributes::{kind_asked, mode_asked, nothing, setting_asked, shown};
use crate::calls::{self, LookedUp, making};
use crate::contents::{self, OFFSET_MAX, OpenFile};
use crate::driver::{Call, Driver, at_once};
use crate::privileges::Changer;
use crate::replies::{
    answer_attributes, answer_data, answer_empty, answer_entry, answer_totals, caller, file, kept,
    sized,
};
use crate::{directory, errno, locks, tmpfile, xattrs};
use client::{Handle, Making};
use fuse::{
    FileHandle, Filesystem, INodeNo, LockAsked, LockOwner, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLock,
    ReplyLseek, ReplyOpen, ReplyStatfs, ReplyStatx, ReplyWrite, ReplyXattr, Request, SetAttributes,
    WriteFlags,
};
use model::Kind;
use protocol::Upstream;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Instant;
use store::Containers;

mod changes;

const SYMLINK_MODE: u16 = 0o777;

pub(crate) struct Fuse<U, C: Containers> {
    driver: Driver<U, C>,
}

/// A name that the kernel gave, or the reply that it is none.
macro_rules! name_or_error {
    ($name:expr, $reply:expr) => {
        match errno::name($name) {
            Ok(name) => name,
            Err(errno) => return $reply.error(errno),
        }
    };
}

impl<U: Upstream, C: Containers> Fuse<U, C> {
    pub(crate) fn new(driver: Driver<U, C>) -> Self {
        Fuse { driver }
    }
}

impl<U: Upstream, C: Containers> Filesystem for Fuse<U, C> {
    fn file_of(&self, number: INodeNo) -> INodeNo {
        INodeNo(self.driver.client().numbers().file(number.0).0)
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = match name.as_bytes() {
            b"." => LookedUp::Itself,
            b".." => LookedUp::Parent,
            _ => LookedUp::Entry(name_or_error!(name, reply)),
        };
        let known = self.driver.client().clone();
        let absent = self.driver.absent().clone();
        let looked_up = name.clone();
        self.driver.serve_kept(
            Call::within("lookup", request, parent).that_asks(),
            move |client| calls::lookup(client, file(parent), &name).map(at_once),
            move |outcome| match outcome {
                Ok((Some(seen), keep)) => answer_entry(reply, &known, Ok((seen, keep))),
                // The kernel remembers that there is nothing, too.
                Ok((None, keep)) => {
                    if let LookedUp::Entry(name) = &looked_up {
                        absent.add(file(parent), name, keep, Instant::now());
                    }
                    reply.entry(&keep, &nothing());
                }
                Err(errno) => reply.error(errno),
            },
        );
    }

    fn forget(&self, number: INodeNo, times: u64) {
        let client = self.driver.client();
        client.forgotten(client.numbers().forgotten(number.0, times), times);
    }

    fn interrupt(&self, unique: u64) {
        self.driver.interrupted(unique);
    }

    fn getattr(&self, request: &Request, ino: INodeNo, reply: ReplyAttr) {
        let (known, number) = (self.driver.client().clone(), request.number());
        self.driver.serve_kept(
            Call::of("getattr", request, ino).that_asks(),
            move |client| client.attributes_known(file(ino), number.0).map(at_once),
            move |outcome| answer_attributes(reply, (&known, number), outcome),
        );
    }

    fn statx(&self, request: &Request, ino: INodeNo, reply: ReplyStatx) {
        let (known, number) = (self.driver.client().clone(), request.number());
        self.driver.serve_kept(
            Call::of("statx", request, ino).that_asks(),
            move |client| client.attributes_known(file(ino), number.0).map(at_once),
            move |outcome| match outcome {
                Ok((found, keep)) => {
                    let attributes = sized(&known, shown(&found), number);
                    reply.attr(&kept(&known, found.file, keep), &attributes);
                }
                Err(errno) => reply.error(errno),
            },
        );
    }

    fn setattr(&self, request: &Request, ino: INodeNo, set: SetAttributes, reply: ReplyAttr) {
        if set.size.is_some_and(|size| size > OFFSET_MAX) {
            return reply.error(errno::FILE_TOO_LARGE);
        }
        let (known, number) = (self.driver.client().clone(), request.number());
        let cuts = set.size.is_some();
        let (changer, handle) = (Changer::of(request), set.handle.map(|handle| Handle(handle.0)));
        let setting = setting_asked(&set);
        self.driver.serve_kept(
            Call::of("setattr", request, ino),
            move |client| {
                let set = calls::set_attributes(client, changer, file(ino), handle, &setting)?;
                if cuts {
                    client.is_changed_by(file(ino), number.0);
                }
                Ok(set)
            },
            move |outcome| answer_attributes(reply, (&known, number), outcome),
        );
    }

    fn readlink(&self, request: &Request, ino: INodeNo, reply: ReplyData) {
        let counts = self.driver.notes_reads();
        self.driver.serve(
            Call::of("readlink", request, ino).that_asks(),
            move |client| {
                let target = client.read_link(file(ino))?;
                if counts {
                    client.accessed(file(ino));
                }
                Ok(at_once(target))
            },
            move |outcome| answer_data(reply, outcome),
        );
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
        let name = name_or_error!(name, reply);
        let Some(kind) = kind_asked(mode) else { return reply.error(errno::INVALID) };
        let is_device = matches!(kind, Kind::CharDevice | Kind::BlockDevice);
        let rdev = is_device.then_some(u64::from(rdev));
        let making = Making { rdev, ..making(caller(request), kind, mode_asked(mode)) };
        self.make(("mknod", request), (parent, name), (making, umask), reply);
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
        let name = name_or_error!(name, reply);
        let making = making(caller(request), Kind::Directory, mode_asked(mode));
        self.make(("mkdir", request), (parent, name), (making, umask), reply);
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name_or_error!(name, reply);
        self.remove(request, parent, name, false, reply);
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name_or_error!(name, reply);
        self.remove(request, parent, name, true, reply);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &OsStr,
        reply: ReplyEntry,
    ) {
        let name = name_or_error!(name, reply);
        let target = Some(target.as_bytes().to_vec());
        let making = Making { target, ..making(caller(request), Kind::Symlink, SYMLINK_MODE) };
        self.make(("symlink", request), (parent, name), (making, 0), reply);
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        to: INodeNo,
        to_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let name = name_or_error!(name, reply);
        let to_name = name_or_error!(to_name, reply);
        let Some(flag) = calls::rename_asked(flags) else { return reply.error(errno::INVALID) };
        let caller = caller(request);
        self.driver.serve(
            Call::within("rename", request, parent).and_to(to).of_whatever_is_there(),
            move |client| client.rename(caller, file(parent), &name, file(to), &to_name, flag),
            move |outcome| answer_empty(reply, outcome),
        );
    }

    fn link(
        &self,
        request: &Request,
        ino: INodeNo,
        parent: INodeNo,
        name: &OsStr,
        reply: ReplyEntry,
    ) {
        let name = name_or_error!(name, reply);
        let (caller, known) = (caller(request), self.driver.client().clone());
        self.driver.serve_kept(
            Call::within("link", request, parent),
            move |client| calls::link(client, caller, file(ino), file(parent), &name),
            move |outcome| answer_entry(reply, &known, outcome),
        );
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        contents::open(&self.driver, request, ino, flags, reply);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let name = name_or_error!(name, reply);
        let made = contents::Made { parent, name, mode, umask, flags };
        contents::create(&self.driver, request, made, reply);
    }

    fn tmpfile(
        &self,
        request: &Request,
        parent: INodeNo,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        tmpfile::create(&self.driver, request, parent, (mode, umask, flags), reply);
    }

    fn read(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        reply: ReplyData,
    ) {
        contents::read(&self.driver, OpenFile::of(request, ino, handle), offset, size, reply);
    }

    fn write(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        bytes: &[u8],
        flags: WriteFlags,
        reply: ReplyWrite,
    ) {
        let open = OpenFile::of(request, ino, handle);
        contents::write(&self.driver, open, offset, bytes, flags, reply);
    }

    fn flush(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        contents::flush(&self.driver, OpenFile::of(request, ino, handle), owner, reply);
    }

    fn getlk(&self, request: &Request, ino: INodeNo, lock: LockAsked, reply: ReplyLock) {
        locks::get(&self.driver, &locks::Asked { request, ino, lock }, reply);
    }

    fn setlk(
        &self,
        request: &Request,
        ino: INodeNo,
        lock: LockAsked,
        waits: bool,
        reply: ReplyEmpty,
    ) {
        locks::set(&self.driver, &locks::Asked { request, ino, lock }, waits, reply);
    }

    fn release(&self, handle: FileHandle) {
        self.driver.client().release(Handle(handle.0));
    }

    fn fsync(&self, request: &Request, ino: INodeNo, handle: FileHandle, reply: ReplyEmpty) {
        contents::fsync(&self.driver, OpenFile::of(request, ino, handle), reply);
    }

    fn readdir(&self, request: &Request, ino: INodeNo, offset: u64, reply: ReplyDirectory) {
        directory::list(&self.driver, request, ino, offset, reply);
    }

    fn readdirplus(&self, request: &Request, ino: INodeNo, offset: u64, reply: ReplyDirectoryPlus) {
        directory::list_plus(&self.driver, request, ino, offset, reply);
    }

    fn fsyncdir(&self, request: &Request, ino: INodeNo, reply: ReplyEmpty) {
        self.driver.serve_beside(
            Call::of("fsyncdir", request, ino),
            |client| client.sync_names().map(at_once),
            move |outcome| answer_empty(reply, outcome),
        );
    }

    fn statfs(&self, request: &Request, ino: INodeNo, reply: ReplyStatfs) {
        self.driver.serve(
            Call::of("statfs", request, ino).that_asks(),
            |client| client.totals().map(at_once),
            move |outcome| match outcome {
                Ok(totals) => answer_totals(reply, &totals),
                Err(errno) => reply.error(errno),
            },
        );
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        reply: ReplyEmpty,
    ) {
        xattrs::set(&self.driver, request, ino, (name, value, flags), reply);
    }

    fn getxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        xattrs::get(&self.driver, request, ino, name, size, reply);
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        xattrs::list(&self.driver, request, ino, size, reply);
    }

    fn removexattr(&self, request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        xattrs::remove(&self.driver, request, ino, name, reply);
    }

    fn fallocate(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let open = OpenFile::of(request, ino, handle);
        contents::allocate(&self.driver, open, offset, length, mode, reply);
    }

    fn lseek(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        contents::seek(&self.driver, OpenFile::of(request, ino, handle), offset, whence, reply);
    }

    fn copy_file_range(
        &self,
        request: &Request,
        (from, from_offset): (FileHandle, u64),
        (ino, handle, offset): (INodeNo, FileHandle, u64),
        length: u64,
        reply: ReplyWrite,
    ) {
        let to = OpenFile::of(request, ino, handle);
        contents::copy(&self.driver, (Handle(from.0), from_offset), (to, offset), length, reply);
    }
}
