//! Steps that ask, and those about extended attributes and locks.
#![allow(unsafe_code, reason = "what is compared are system calls as they are")]

use crate::doing::meant;
use crate::side::{Result, Side, checked, text};
use crate::steps::{Call, Which};
use libc::*;
use std::os::fd::{AsRawFd, RawFd};

fn whole(side: &Side, path: &str) -> std::ffi::CString {
    // Without a path there would be the tree with a slash.
    let whole =
        if path.is_empty() { String::new() } else { format!("{}/{path}", side.tree.display()) };
    text(&whole)
}

pub fn extended(side: &mut Side, call: &Call, told: &mut String) -> Result {
    // SAFETY: every path and name ends in a zero, and buffers are as long as is told.
    unsafe {
        match call {
            Call::SetAttribute { which, name, value, flags } => {
                let (name, bytes) = (text(name), value.len());
                let (name, value) = (name.as_ptr(), value.as_ptr().cast());
                checked(i64::from(match which {
                    Which::Slot(slot) => fsetxattr(side.fd(*slot), name, value, bytes, *flags),
                    Which::Name(path, follow) => {
                        let set = if *follow { setxattr } else { lsetxattr };
                        set(whole(side, path).as_ptr(), name, value, bytes, *flags)
                    }
                }))
            }
            Call::Attribute { which, name, room } => {
                let (mut value, name) = (vec![0_u8; *room], text(name));
                let (name, at) = (name.as_ptr(), value.as_mut_ptr().cast());
                let bytes = checked(match which {
                    Which::Slot(slot) => fgetxattr(side.fd(*slot), name, at, *room) as i64,
                    Which::Name(path, follow) => {
                        let get = if *follow { getxattr } else { lgetxattr };
                        get(whole(side, path).as_ptr(), name, at, *room) as i64
                    }
                })?;
                *told = format!(" {:?}", &value[..(*room).min(bytes as usize)]);
                Ok(bytes)
            }
            Call::Attributes { which, room } => {
                let mut names = vec![0_u8; *room];
                let at = names.as_mut_ptr().cast();
                let bytes = checked(match which {
                    Which::Slot(slot) => flistxattr(side.fd(*slot), at, *room) as i64,
                    Which::Name(path, follow) => {
                        let list = if *follow { listxattr } else { llistxattr };
                        list(whole(side, path).as_ptr(), at, *room) as i64
                    }
                })?;
                names.truncate(bytes as usize);
                *told = format!(" {:?}", sorted(&names));
                Ok(bytes)
            }
            Call::RemoveAttribute { which, name } => {
                let name = text(name);
                checked(i64::from(match which {
                    Which::Slot(slot) => fremovexattr(side.fd(*slot), name.as_ptr()),
                    Which::Name(path, follow) => {
                        let remove = if *follow { removexattr } else { lremovexattr };
                        remove(whole(side, path).as_ptr(), name.as_ptr())
                    }
                }))
            }
            _ => unreachable!("another is about no such attribute"),
        }
    }
}

fn sorted(names: &[u8]) -> Vec<String> {
    let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let mut names: Vec<_> = names.map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    names.sort();
    names
}

pub fn asking(side: &mut Side, call: &Call, told: &mut String) -> Result {
    let root = side.root.as_raw_fd();
    // SAFETY: every path ends in a zero, and buffers are as long as is told.
    unsafe {
        match call {
            Call::Stat { which, mask } => {
                let (at, path, flags) = meant(side, which);
                let mut stat: statx = std::mem::zeroed();
                let asked = libc::statx(at, path.as_ptr(), flags, *mask, &mut stat);
                checked(asked.into())?;
                let is_directory = u32::from(stat.stx_mode) & S_IFMT == S_IFDIR;
                let size = if is_directory { 0 } else { stat.stx_size };
                let (mode, links) = (stat.stx_mode, stat.stx_nlink);
                *told = format!(" {mode:o} {}:{} {links}x {size}", stat.stx_uid, stat.stx_gid);
                Ok(0)
            }
            Call::Access { path, mode, flags } => {
                checked(syscall(SYS_faccessat2, root, text(path).as_ptr(), *mode, *flags))
            }
            Call::ReadLink { path, room } => {
                let mut target = vec![0_u8; *room];
                let at = target.as_mut_ptr().cast();
                let bytes = checked(readlinkat(root, text(path).as_ptr(), at, *room) as i64)?;
                *told = format!(" {}", String::from_utf8_lossy(&target[..bytes as usize]));
                Ok(bytes)
            }
            Call::List { slot } => listed(side.fd(*slot), told),
            _ => unreachable!("another asks nothing"),
        }
    }
}

/// The names of a directory from its beginning, in order.
fn listed(fd: RawFd, told: &mut String) -> Result {
    let mut names = Vec::new();
    let mut buffer = vec![0_u8; 1000];
    // SAFETY: the kernel fills no more than the buffer has.
    unsafe {
        checked(lseek(fd, 0, SEEK_SET))?;
        loop {
            let bytes = checked(syscall(SYS_getdents64, fd, buffer.as_mut_ptr(), buffer.len()))?;
            let mut at = 0;
            while at < bytes as usize {
                let record = usize::from(u16::from_le_bytes([buffer[at + 16], buffer[at + 17]]));
                let name = buffer[at + 19..at + record].split(|byte| *byte == 0).next();
                let name = String::from_utf8_lossy(name.unwrap_or_default());
                names.push(format!("{name}:{}", buffer[at + 18]));
                at += record;
            }
            if bytes == 0 {
                break;
            }
        }
    }
    // SAFETY: it takes no memory.
    unsafe { lseek(fd, 0, SEEK_SET) };
    names.sort();
    *told = format!(" {names:?}");
    Ok(names.len() as i64)
}

pub fn rest(side: &mut Side, call: &Call, told: &mut String) -> Result {
    // SAFETY: the only memory is a lock's, which is as the kernel knows it.
    unsafe {
        match call {
            Call::Sync { slot, how } => {
                let fd = side.fd(*slot);
                checked(i64::from(match how {
                    0 => fsync(fd),
                    1 => fdatasync(fd),
                    2 => sync_file_range(fd, 0, 0, 7),
                    _ => syncfs(fd),
                }))
            }
            Call::Flock { slot, how } => checked(flock(side.fd(*slot), *how).into()),
            Call::Record { slot, kind, at, bytes, command } => {
                let mut lock: libc::flock = std::mem::zeroed();
                lock.l_type = *kind as i16;
                (lock.l_start, lock.l_len) = (*at, *bytes);
                checked(fcntl(side.fd(*slot), *command, &mut lock).into())?;
                *told = format!(" {} {} {}", lock.l_type, lock.l_start, lock.l_len);
                Ok(0)
            }
            Call::Seals { slot } => checked(fcntl(side.fd(*slot), F_ADD_SEALS, 1).into()),
            Call::Lease { slot, kind } => {
                let fd = side.fd(*slot);
                checked(fcntl(fd, F_SETLEASE, *kind).into())?;
                let held = fcntl(fd, F_GETLEASE);
                checked(fcntl(fd, F_SETLEASE, F_UNLCK).into())?;
                Ok(held.into())
            }
            _ => unreachable!("another has its place above"),
        }
    }
}
