//! Open files: reading, writing, and what else is done to contents.

use crate::attributes::{flags_asked, mode_asked, shown};
use crate::calls::{self, Held, Takes, Target, making};
use crate::driver::{Call, Driver, at_once};
use crate::privileges::Changer;
use crate::replies::{answer_data, answer_empty, caller, file};
use crate::{errno, locks};
use client::{Caller, Client, Handle, Inode, Opened, Owner, Stop};
use fuse::{
    FileHandle, FopenFlags, INodeNo, LockOwner, OpenFlags, ReplyCreate, ReplyData, ReplyEmpty,
    ReplyLseek, ReplyOpen, ReplyWrite, Request, WriteFlags,
};
use model::{Kind, Name};
use protocol::Upstream;
use std::sync::Arc;
use store::Containers;

pub(crate) const OFFSET_MAX: u64 = i64::MAX as u64;

/// A request about a file that is open.
pub(crate) struct OpenFile<'a> {
    request: &'a Request,
    ino: INodeNo,
    handle: Handle,
}

impl<'a> OpenFile<'a> {
    pub(crate) fn of(request: &'a Request, ino: INodeNo, fh: FileHandle) -> Self {
        OpenFile { request, ino, handle: Handle(fh.0) }
    }

    fn call(&self, what: &'static str) -> Call {
        Call::of(what, self.request, self.ino)
    }

    fn target(&self, takes: impl Into<Takes>) -> Target {
        Target { file: file(self.ino), handle: self.handle, takes: takes.into() }
    }
}

/// What `open` with O_CREAT names.
pub(crate) struct Made {
    pub(crate) parent: INodeNo,
    pub(crate) name: Name,
    pub(crate) mode: u32,
    pub(crate) umask: u32,
    pub(crate) flags: i32,
}

/// What the kernel is to do about an open file.
pub(crate) fn open_flags(opened: &Opened, writes: bool) -> FopenFlags {
    let mut flags = FopenFlags::empty();
    if opened.keep_cache {
        flags |= FopenFlags::FOPEN_KEEP_CACHE;
    }
    if opened.direct {
        flags |= FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
    }
    if !writes && !opened.is_recorded {
        // Closing what was only read changes nothing, where nobody locks it: one round trip less.
        flags |= FopenFlags::FOPEN_NOFLUSH;
    }
    flags
}

pub(crate) fn open<U: Upstream, C: Containers>(
    driver: &Driver<U, C>,
    request: &Request,
    ino: INodeNo,
    flags: OpenFlags,
    reply: ReplyOpen,
) {
    let counts = driver.notes_reads() && flags.0 & libc::O_NOATIME == 0;
    let (changer, flags) = (Changer::of(request), flags_asked(flags.0));
    let client = driver.client().clone();
    let inode = Inode { number: request.number().0, thread: request.pid() };
    driver.serve(
        Call::of("open", request, ino).that_asks(),
        move |client| calls::open(client, changer, file(ino), (flags, inode)),
        move |outcome| match outcome.map(Held::hand_over) {
            Ok(opened) => {
                if counts {
                    client.note_reads(&opened);
                }
                let (fh, flags) = (FileHandle(opened.handle.0), open_flags(&opened, flags.write));
                match &opened.lent {
                    Some(lent) => reply.opened_behind(fh, flags, lent.number()),
                    None => reply.opened(fh, flags),
                }
            }
            Err(errno) => reply.error(errno),
        },
    );
}

pub(crate) fn create<U: Upstream, C: Containers>(
    driver: &Driver<U, C>,
    request: &Request,
    Made { parent, name, mode, umask, flags }: Made,
    reply: ReplyCreate,
) {
    let exclusive = flags & libc::O_EXCL != 0;
    let (caller, flags) = (caller(request), flags_asked(flags));
    let (making, umask) = (making(caller, Kind::File, mode_asked(mode)), mode_asked(umask));
    driver.serve_kept(
        Call::within("create", request, parent),
        move |client| calls::create(client, caller, file(parent), &name, (&making, umask), flags),
        move |outcome| match outcome {
            Ok(((seen, held), keep)) => {
                let opened = held.hand_over();
                let (attributes, fh) = (shown(&seen.hand_over()), FileHandle(opened.handle.0));
                let flags = open_flags(&opened, flags.write);
                reply.created(&keep, &attributes, fh, flags);
            }
            Err(errno) => reply.error(errno::refused_create(errno, exclusive)),
        },
    );
}

pub(crate) fn read<U: Upstream, C: Containers>(
    driver: &Driver<U, C>,
    open: OpenFile<'_>,
    offset: u64,
    size: u32,
    reply: ReplyData,
) {
    let handle = open.handle;
    driver.client().takes_read(file(open.ino), open.request.unique());
    driver.serve(
        open.call("read").that_asks(),
        move |client| client.read(handle, offset, size as usize).map(at_once),
        move |outcome| answer_data(reply, outcome),
    );
}

pub(crate) fn write<U: Upstream, C: Containers>(
    driver: &Driver<U, C>,
    open: OpenFile<'_>,
    offset: u64,
    data: &[u8],
    flags: WriteFlags,
    reply: ReplyWrite,
) {
    let client = driver.client();
    let (was_mapped, file) = (flags.contains(WriteFlags::FUSE_WRITE_CACHE), file(open.ino));
    if !was_mapped {
        client.appends(open.handle, flags.contains(WriteFlags::APPENDS));
    }
    let is_past_cache = !was_mapped && client.is_past_cache(open.handle);
    let target = open.target(match flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
        true => Takes::All(Changer::of(open.request)),
        false if is_past_cache => Takes::Capability,
        false => Takes::Nothing,
    });
    // Of what goes through its cache the kernel asks for the sync itself.
    let syncs = is_past_cache && flags.contains(WriteFlags::SYNCS);
    let syncs = syncs.then(|| (open.call("fsync"), caller(open.request), target.handle));
    let taken = client.takes_write(file, open.request.unique());
    let write = if was_mapped { calls::write_mapped } else { calls::write };
    let first = write(client, target, offset, data);
    // The bytes lie in the thread's buffer: only a write that must wait copies them.
    let bytes: Option<Arc<[u8]>> = matches!(first, Err(Stop::Need(_))).then(|| Arc::from(data));
    // The kernel has them in its cache, and shows them, all the while. What comes from a mapping it
    // does not read before it is written.
    let late = match &bytes {
        Some(bytes) if !was_mapped => client.lands_late((file, target.handle), offset, bytes),
        _ => None,
    };
    let overtaken = taken.overtaken && !was_mapped;
    drop(taken);
    let (written, of) = (data.len() as u32, driver.clone());
    driver.go_on(
        open.call("write"),
        first,
        || {
            let bytes = bytes.unwrap_or_else(|| Arc::from(data));
            move |client: &Client<U, C>| write(client, target, offset, &bytes)
        },
        move |outcome| {
            let was_late = late.is_some();
            drop(late);
            let may_be_cached_otherwise = match outcome {
                Ok(growing) => {
                    let driver = of.clone();
                    of.when_grown(growing, move || {
                        answer_written(&driver, syncs, written, reply);
                    });
                    // A page of it may have been dropped, and read as it was before.
                    overtaken
                }
                Err(errno) => {
                    if was_mapped {
                        of.mapped_was_lost(file, errno);
                    }
                    reply.error(errno);
                    // It may have been read as written, or be written all the same.
                    was_late || is_past_cache
                }
            };
            if may_be_cached_otherwise {
                of.is_read_anew(file);
            }
        },
    );
}

/// Answers a write that has been done, if it `syncs` when that has been, too: for whom and by what handle.
fn answer_written<U: Upstream, C: Containers>(
    driver: &Driver<U, C>,
    syncs: Option<(Call, Caller, Handle)>,
    written: u32,
    reply: ReplyWrite,
) {
    let Some((call, caller, handle)) = syncs else { return reply.written(written) };
    driver.serve_beside(
        call,
        move |client| client.sync(caller, handle),
        move |outcome| match outcome {
            Ok(()) => reply.written(written),
            Err(errno) => reply.error(errno),
        },
    );
}

pub(crate) fn flush<U: Upstream, C: Containers>(
    driver: &Driver<U, C>,
    open: OpenFile<'_>,
    owner: LockOwner,
    reply: ReplyEmpty,
) {
    let (caller, handle, file) = (caller(open.request), open.handle, file(open.ino));
    let (client, again, call) = (driver.client().clone(), driver.clone(), open.call("flush"));
    let owner = Owner(owner.0);
    driver.serve(
        call,
        move |client| client.flush_by(caller, handle, owner),
        move |outcome| {
            // Closing one descriptor gives up all the records that the process has locked.
            client.closed_by(file, handle, owner);
            if outcome.is_err() {
                return answer_empty(reply, outcome);
            }
            locks::tell(&again, call, file, reply);
        },
    );
}

pub(crate) fn fsync<U: Upstream, C: Containers>(
    driver: &Driver<U, C>,
    open: OpenFile<'_>,
    reply: ReplyEmpty,
) {
    let (caller, handle) = (caller(open.request), open.handle);
    driver.serve_beside(
        open.call("fsync"),
        move |client| client.sync(caller, handle),
        move |outcome| answer_empty(reply, outcome),
    );
}

pub(crate) fn allocate<U: Upstream, C: Containers>(
    driver: &Driver<U, C>,
    open: OpenFile<'_>,
    offset: u64,
    length: u64,
    mode: i32,
    reply: ReplyEmpty,
) {
    if offset.checked_add(length).is_none_or(|end| end > OFFSET_MAX) {
        return reply.error(errno::FILE_TOO_LARGE);
    }
    let Some(mode) = calls::allocation_asked(mode) else { return reply.error(errno::NOT_KEPT) };
    let target = open.target(Changer::of(open.request).takes());
    driver.serve(
        open.call("fallocate"),
        move |client| calls::allocate(client, target, offset, length, mode),
        move |outcome| answer_empty(reply, outcome),
    );
}

pub(crate) fn seek<U: Upstream, C: Containers>(
    driver: &Driver<U, C>,
    open: OpenFile<'_>,
    offset: i64,
    whence: i32,
    reply: ReplyLseek,
) {
    // The kernel moves by itself, but for these two.
    let hole = match whence {
        libc::SEEK_DATA => false,
        libc::SEEK_HOLE => true,
        _ => return reply.error(errno::INVALID),
    };
    let Ok(offset) = u64::try_from(offset) else { return reply.error(errno::PAST_THE_END) };
    let handle = open.handle;
    driver.serve(
        open.call("lseek").that_asks(),
        move |client| client.seek(handle, offset, hole).map(at_once),
        move |outcome| match outcome.map(|found| found.and_then(|at| i64::try_from(at).ok())) {
            Ok(Some(at)) => reply.offset(at),
            Ok(None) => reply.error(errno::PAST_THE_END),
            Err(errno) => reply.error(errno),
        },
    );
}

pub(crate) fn copy<U: Upstream, C: Containers>(
    driver: &Driver<U, C>,
    from: (Handle, u64),
    (open, offset): (OpenFile<'_>, u64),
    length: u64,
    reply: ReplyWrite,
) {
    // A reply can tell of so many.
    let length = length.min(u32::MAX.into());
    let target = open.target(Changer::of(open.request).takes());
    driver.serve(
        open.call("copy_file_range"),
        move |client| calls::copy(client, from, (target, offset), length),
        move |outcome| match outcome {
            Ok(copied) => reply.written(copied as u32),
            Err(errno) => reply.error(errno),
        },
    );
}
