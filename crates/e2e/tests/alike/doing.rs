//! Does one step in one tree, and says what came of it.
#![allow(unsafe_code, reason = "what is compared are system calls as they are")]

use crate::asking::{asking, extended, rest};
use crate::side::{Map, Result, Side, as_user, checked, text};
use crate::steps::{Call, SLOTS, Step, Which};
use e2e::contents::checksum;
use libc::*;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::null_mut;

/// Bytes of a mapping that lasts over several steps.
const MAPPED: usize = 80_000;

/// What came of a step: what the call returned, or its errno, and what it told.
pub fn done(side: &mut Side, step: &Step) -> String {
    if let Call::Seek { slot, .. } = step.call
        && side.is_directory(slot)
    {
        return "a directory's".into();
    }
    let mut told = String::new();
    let result = as_user(step.user, || dispatch(side, &step.call, &mut told));
    match result {
        Ok(number) => format!("{number}{told}"),
        Err(code) => name_of(code),
    }
}

fn name_of(code: i32) -> String {
    let name = match code {
        EPERM => "EPERM",
        ENOENT => "ENOENT",
        EBADF => "EBADF",
        EACCES => "EACCES",
        EEXIST => "EEXIST",
        ENOTDIR => "ENOTDIR",
        EISDIR => "EISDIR",
        EINVAL => "EINVAL",
        EFBIG => "EFBIG",
        EXDEV => "EXDEV",
        EOPNOTSUPP => "EOPNOTSUPP",
        ESTALE => "ESTALE",
        ENODATA => "ENODATA",
        _ => return format!("errno {code}"),
    };
    name.into()
}

fn dispatch(side: &mut Side, call: &Call, told: &mut String) -> Result {
    use Call::*;
    match call {
        Open { .. } | Reopen { .. } | ByHandle { .. } | Close { .. } | Flags { .. } => {
            opening(side, call)
        }
        Read { .. } | ReadAt { .. } | Write { .. } | WriteAt { .. } | Seek { .. } => {
            contents(side, call, told)
        }
        Cut { .. }
        | Allocate { .. }
        | Advise { .. }
        | CopyRange { .. }
        | SendFile { .. }
        | Splice { .. } => ranges(side, call),
        MapWhole { .. } | Map { .. } | Poke { .. } | Peek { .. } | SyncMap | Unmap => {
            mapping(side, call, told)
        }
        Rename { .. }
        | Link { .. }
        | LinkOpen { .. }
        | Symlink { .. }
        | Unlink { .. }
        | Mkdir { .. }
        | Mknod { .. } => names(side, call),
        Chmod { .. } | Chown { .. } | Times { .. } => setting(side, call),
        SetAttribute { .. } | Attribute { .. } | Attributes { .. } | RemoveAttribute { .. } => {
            extended(side, call, told)
        }
        Stat { .. } | Access { .. } | ReadLink { .. } | List { .. } => asking(side, call, told),
        Sync { .. } | Flock { .. } | Record { .. } | Seals { .. } | Lease { .. } => {
            rest(side, call, told)
        }
        Umask { mask } => {
            // SAFETY: it takes no memory.
            unsafe { umask(*mask) };
            Ok(0)
        }
        Look { .. } => Ok(0),
    }
}

fn open_at(at: RawFd, path: &str, flags: i32, mode: u32, resolve: u64) -> Result {
    let path = text(path);
    let flags = flags | O_CLOEXEC | O_NONBLOCK;
    // SAFETY: the path ends in a zero, and the structure is as the kernel knows it.
    unsafe {
        if resolve == 0 {
            return checked(openat(at, path.as_ptr(), flags, mode).into());
        }
        let plain = if flags & O_PATH != 0 { flags & !O_NONBLOCK } else { flags };
        let mode = if flags & O_CREAT != 0 { mode } else { 0 };
        let how = [plain as u64, u64::from(mode), resolve];
        checked(syscall(SYS_openat2, at, path.as_ptr(), how.as_ptr(), size_of_val(&how)))
    }
}

fn opening(side: &mut Side, call: &Call) -> Result {
    match call {
        Call::Open { slot, at, path, flags, mode, resolve } => {
            let at = at.map_or(side.root.as_raw_fd(), |slot| side.fd(slot));
            side.keep(*slot, open_at(at, path, *flags, *mode, *resolve))
        }
        Call::Reopen { from, slot, flags } => {
            let open = format!("/proc/self/fd/{}", side.fd(*from));
            side.keep(*slot, open_at(AT_FDCWD, &open, flags & !O_NOFOLLOW, 0o600, 0))
        }
        Call::ByHandle { slot, path, flags } => {
            let mut handle = [0_u32; 40];
            handle[0] = 128;
            let (mut mount, path) = (0, text(path));
            // SAFETY: the handle has room for as many bytes as it says.
            let opened = unsafe {
                let (root, at) = (side.root.as_raw_fd(), handle.as_mut_ptr());
                checked(syscall(SYS_name_to_handle_at, root, path.as_ptr(), at, &mut mount, 0))?;
                let flags = flags | O_CLOEXEC | O_NONBLOCK;
                // A descriptor that is only a path names no mount for this.
                let open = open_at(root, ".", O_RDONLY | O_DIRECTORY, 0, 0)? as RawFd;
                let opened = checked(syscall(SYS_open_by_handle_at, open, at, flags));
                close(open);
                opened
            };
            side.keep(*slot, opened)
        }
        Call::Close { slot } => Ok(i64::from(side.slots[*slot].take().is_some())),
        Call::Flags { slot, flags } => {
            // SAFETY: it takes no memory.
            checked(unsafe { fcntl(side.fd(*slot), F_SETFL, *flags) }.into())
        }
        _ => unreachable!("another opens nothing"),
    }
}

fn contents(side: &mut Side, call: &Call, told: &mut String) -> Result {
    // SAFETY: every buffer is as long as is told.
    unsafe {
        match call {
            Call::Read { slot, bytes } => {
                let mut buffer = vec![0_u8; *bytes];
                let seen =
                    checked(read(side.fd(*slot), buffer.as_mut_ptr().cast(), *bytes) as i64)?;
                *told = format!(" sum {:x}", checksum(&buffer[..seen as usize]));
                Ok(seen)
            }
            Call::ReadAt { slot, at, bytes, flags } => {
                let mut buffer = vec![0_u8; *bytes];
                let (one, two) = buffer.split_at_mut(bytes / 3);
                let parts = [one, two]
                    .map(|part| iovec { iov_base: part.as_mut_ptr().cast(), iov_len: part.len() });
                let seen = preadv2(side.fd(*slot), parts.as_ptr(), 2, *at, *flags);
                let seen = checked(seen as i64)?;
                *told = format!(" sum {:x}", checksum(&buffer[..seen as usize]));
                Ok(seen)
            }
            Call::Write { slot, bytes, fill } => {
                let buffer = vec![*fill; *bytes];
                checked(write(side.fd(*slot), buffer.as_ptr().cast(), *bytes) as i64)
            }
            Call::WriteAt { slot, at, bytes, fill, flags } => {
                let mut buffer = vec![*fill; *bytes];
                let (one, two) = buffer.split_at_mut(bytes / 3);
                let parts = [one, two]
                    .map(|part| iovec { iov_base: part.as_mut_ptr().cast(), iov_len: part.len() });
                checked(pwritev2(side.fd(*slot), parts.as_ptr(), 2, *at, *flags) as i64)
            }
            Call::Seek { slot, at, whence } => {
                let found = checked(lseek(side.fd(*slot), *at, *whence));
                if [SEEK_DATA, SEEK_HOLE].contains(whence) {
                    // Where it is from here on must not depend on what a disk has as holes.
                    lseek(side.fd(*slot), 0, SEEK_SET);
                }
                found
            }
            _ => unreachable!("another reads and writes nothing"),
        }
    }
}

fn ranges(side: &mut Side, call: &Call) -> Result {
    // SAFETY: offsets are variables of ours, and paths end in a zero.
    unsafe {
        match call {
            Call::Cut { which: Which::Slot(slot), length } => {
                checked(ftruncate(side.fd(*slot), *length).into())
            }
            Call::Cut { which: Which::Name(path, _), length } => {
                let path = text(&side.tree.join(path).display().to_string());
                checked(truncate(path.as_ptr(), *length).into())
            }
            Call::Allocate { slot, mode, at, length } => {
                checked(fallocate(side.fd(*slot), *mode, *at, *length).into())
            }
            Call::Advise { slot, how, at, bytes } => {
                match posix_fadvise(side.fd(*slot), *at, *bytes, *how) {
                    0 => Ok(0),
                    code => Err(code),
                }
            }
            Call::CopyRange { from, at, slot, to, bytes } => {
                let (mut at, mut to) = (*at, *to);
                let (from, slot) = (side.fd(*from), side.fd(*slot));
                checked(copy_file_range(from, &mut at, slot, &mut to, *bytes, 0) as i64)
            }
            Call::SendFile { from, slot, bytes } => {
                let sent = sendfile(side.fd(*slot), side.fd(*from), null_mut(), *bytes);
                checked(sent as i64)
            }
            Call::Splice { from, slot, at, bytes } => spliced(side, (*from, *slot), *at, *bytes),
            _ => unreachable!("another knows no ranges"),
        }
    }
}

/// From one file to another by way of a pipe.
unsafe fn spliced(side: &Side, (from, to): (usize, usize), mut at: i64, bytes: usize) -> Result {
    let mut pipe = [0; 2];
    // SAFETY: offsets and descriptors are variables of ours.
    unsafe {
        checked(pipe2(pipe.as_mut_ptr(), O_CLOEXEC | O_NONBLOCK).into())?;
        let [out, into] = pipe;
        let one = checked(splice(side.fd(from), null_mut(), into, null_mut(), bytes, 0) as i64);
        let mut all = 0;
        let end = loop {
            match one {
                Ok(one) if all < one => {
                    let left = (one - all) as usize;
                    match checked(splice(out, null_mut(), side.fd(to), &mut at, left, 0) as i64) {
                        Ok(0) => break Ok(all),
                        Ok(more) => all += more,
                        Err(code) => break Err(code),
                    }
                }
                Ok(_) => break Ok(all),
                Err(code) => break Err(code),
            }
        };
        close(out);
        close(into);
        end
    }
}

fn mapping(side: &mut Side, call: &Call, told: &mut String) -> Result {
    let none = EBADF;
    match call {
        Call::MapWhole { slot, at, bytes, fill, shared, sync } => {
            let map = Map::new(side.fd(*slot), MAPPED, *shared)?;
            *told = format!(" sum {:x}", checksum(&map.peek(0, MAPPED)?));
            let written = map.poke(*at, *bytes, *fill)?;
            if *sync {
                map.sync()?;
            }
            Ok(written)
        }
        Call::Map { slot } => {
            side.map = Some(Map::new(side.fd(*slot), MAPPED, true)?);
            Ok(0)
        }
        Call::Poke { at, bytes, fill } => side.map.as_ref().ok_or(none)?.poke(*at, *bytes, *fill),
        Call::Peek { at, bytes } => {
            let seen = side.map.as_ref().ok_or(none)?.peek(*at, *bytes)?;
            *told = format!(" sum {:x}", checksum(&seen));
            Ok(seen.len() as i64)
        }
        Call::SyncMap => side.map.as_ref().ok_or(none)?.sync(),
        _ => Ok(i64::from(side.map.take().is_some())),
    }
}

fn names(side: &mut Side, call: &Call) -> Result {
    let root = side.root.as_raw_fd();
    // SAFETY: every path ends in a zero.
    unsafe {
        match call {
            Call::Rename { from, to, flags } => {
                let (from, to) = (text(from), text(to));
                let (from, to) = (from.as_ptr(), to.as_ptr());
                checked(syscall(SYS_renameat2, root, from, root, to, *flags))
            }
            Call::Link { from, to, flags } => {
                let (from, to) = (text(from), text(to));
                checked(linkat(root, from.as_ptr(), root, to.as_ptr(), *flags).into())
            }
            Call::LinkOpen { slot, to, by_proc } => {
                let open = side.fd(*slot);
                let (at, from, flags) = if *by_proc {
                    (AT_FDCWD, format!("/proc/self/fd/{open}"), AT_SYMLINK_FOLLOW)
                } else {
                    (open, String::new(), AT_EMPTY_PATH)
                };
                let (from, to) = (text(&from), text(to));
                checked(linkat(at, from.as_ptr(), root, to.as_ptr(), flags).into())
            }
            Call::Symlink { target, path } => {
                let (target, path) = (text(target), text(path));
                checked(symlinkat(target.as_ptr(), root, path.as_ptr()).into())
            }
            Call::Unlink { path, flags } => {
                checked(unlinkat(root, text(path).as_ptr(), *flags).into())
            }
            Call::Mkdir { path, mode } => checked(mkdirat(root, text(path).as_ptr(), *mode).into()),
            Call::Mknod { path, mode, device } => {
                checked(mknodat(root, text(path).as_ptr(), *mode, *device).into())
            }
            _ => unreachable!("another changes no names"),
        }
    }
}

/// A descriptor, a path from there, and flags by which a call means that file.
pub fn meant(side: &Side, which: &Which) -> (RawFd, std::ffi::CString, i32) {
    match which {
        Which::Slot(slot) => (side.fd(*slot), text(""), AT_EMPTY_PATH),
        Which::Name(path, true) => (side.root.as_raw_fd(), text(path), 0),
        Which::Name(path, false) => (side.root.as_raw_fd(), text(path), AT_SYMLINK_NOFOLLOW),
    }
}

fn setting(side: &mut Side, call: &Call) -> Result {
    // SAFETY: every path ends in a zero, and there are two times.
    unsafe {
        match call {
            Call::Chmod { which, mode } => match which {
                Which::Slot(slot) => checked(fchmod(side.fd(*slot), *mode).into()),
                Which::Name(..) => {
                    let (at, path, flags) = meant(side, which);
                    checked(syscall(SYS_fchmodat2, at, path.as_ptr(), *mode, flags))
                }
            },
            Call::Chown { which, uid, gid } => {
                let (at, path, flags) = meant(side, which);
                checked(fchownat(at, path.as_ptr(), *uid, *gid, flags).into())
            }
            Call::Times { which, read, changed } => {
                let times = [read, changed]
                    .map(|(tv_sec, tv_nsec)| timespec { tv_sec: *tv_sec, tv_nsec: *tv_nsec });
                match which {
                    Which::Slot(slot) => checked(futimens(side.fd(*slot), times.as_ptr()).into()),
                    Which::Name(..) => {
                        let (at, path, flags) = meant(side, which);
                        checked(utimensat(at, path.as_ptr(), times.as_ptr(), flags).into())
                    }
                }
            }
            _ => unreachable!("another sets nothing"),
        }
    }
}

/// Closes all that is open, and says of what is mapped nothing any more.
pub fn close_all(side: &mut Side) {
    side.map = None;
    (0..SLOTS).for_each(|slot| side.slots[slot] = None);
}
