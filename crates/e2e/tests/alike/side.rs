//! One of the two trees, with what is open in it; and who the calling thread is.
#![allow(unsafe_code, reason = "what is compared are system calls as they are")]

use crate::steps::{LARGE_BYTES, SLOTS, USERS};
use std::ffi::{CString, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// What a call returned, or its errno.
pub type Result = std::result::Result<i64, i32>;

pub struct Side {
    pub root: OwnedFd,
    pub tree: PathBuf,
    pub slots: [Option<OwnedFd>; SLOTS],
    pub map: Option<Map>,
}

pub struct Map {
    at: *mut c_void,
    bytes: usize,
    file: OwnedFd,
}

pub fn checked(returned: i64) -> Result {
    if returned >= 0 { Ok(returned) } else { Err(errno()) }
}

pub fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().expect("a call has failed")
}

pub fn text(path: &str) -> CString {
    CString::new(path).expect("no zero in it")
}

impl Side {
    /// With large files too, if that is wanted.
    pub fn new(folder: &Path, large: bool) -> Side {
        let tree = folder.join("tree");
        std::fs::create_dir_all(tree.join("d")).unwrap();
        std::fs::create_dir(tree.join("e")).unwrap();
        std::fs::write(tree.join("a"), e2e::contents::noise(7, 10_000)).unwrap();
        std::fs::write(tree.join("d/a"), b"short").unwrap();
        std::os::unix::fs::symlink("d", tree.join("c")).unwrap();
        if large {
            let bytes = e2e::contents::noise(8, LARGE_BYTES);
            std::fs::write(tree.join("big"), &bytes).unwrap();
            std::fs::write(tree.join("ro"), &bytes[..2 << 20]).unwrap();
            let read_only = std::fs::Permissions::from_mode(0o444);
            std::fs::set_permissions(tree.join("ro"), read_only).unwrap();
        }
        let open = text(&tree.display().to_string());
        // SAFETY: the path ends in a zero, and the descriptor is new and nobody else's.
        let root = unsafe {
            let fd = libc::open(open.as_ptr(), libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC);
            assert!(fd >= 0, "{}: {}", tree.display(), errno());
            libc::fchmod(fd, 0o777);
            libc::chmod(open.as_ptr(), 0o777);
            OwnedFd::from_raw_fd(fd)
        };
        Side { root, tree, slots: [const { None }; SLOTS], map: None }
    }

    pub fn fd(&self, slot: usize) -> RawFd {
        self.slots[slot].as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// Whose offsets mean nothing to a program.
    pub fn is_directory(&self, slot: usize) -> bool {
        let Some(open) = &self.slots[slot] else { return false };
        rustix::fs::fstat(open).is_ok_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFDIR)
    }

    /// Puts what a call opened where it belongs.
    pub fn keep(&mut self, slot: usize, opened: Result) -> Result {
        let fd = opened?;
        // SAFETY: the call has just made it.
        self.slots[slot] = Some(unsafe { OwnedFd::from_raw_fd(fd as RawFd) });
        Ok(0)
    }
}

/// The size of what is open.
fn size(fd: RawFd) -> std::result::Result<usize, i32> {
    // SAFETY: the kernel fills the structure, for which zeros are a value.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        checked(libc::fstat(fd, &mut stat).into())?;
        Ok(stat.st_size as usize)
    }
}

/// As much of it as the file has: beyond its last page there is no memory, and what lies in that past
/// the end is another matter (see the cases).
fn within(fd: RawFd, bytes: usize) -> std::result::Result<usize, i32> {
    Ok(size(fd)?.min(bytes))
}

impl Map {
    /// Of so many bytes from the beginning of the file, whether or not it has them.
    pub fn new(fd: RawFd, bytes: usize, shared: bool) -> std::result::Result<Map, i32> {
        let flags = if shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
        let both = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel chooses a place that nothing else uses.
        unsafe {
            let file = checked(libc::dup(fd).into())?;
            let file = OwnedFd::from_raw_fd(file as RawFd);
            let at = libc::mmap(std::ptr::null_mut(), bytes, both, flags, fd, 0);
            if at == libc::MAP_FAILED { Err(errno()) } else { Ok(Map { at, bytes, file }) }
        }
    }

    pub fn start(&self) -> *mut u8 {
        self.at.cast()
    }

    /// Writes, as far as there is memory.
    pub fn poke(&self, at: usize, bytes: usize, fill: u8) -> Result {
        let end = within(self.file.as_raw_fd(), self.bytes)?.min(at + bytes);
        for place in at..end {
            // SAFETY: it lies in the mapping and in the file.
            unsafe { self.at.cast::<u8>().add(place).write_volatile(fill) };
        }
        Ok(end.saturating_sub(at) as i64)
    }

    pub fn peek(&self, at: usize, bytes: usize) -> std::result::Result<Vec<u8>, i32> {
        let end = within(self.file.as_raw_fd(), self.bytes)?.min(at + bytes);
        // SAFETY: it lies in the mapping and in the file.
        let byte = |place| unsafe { self.at.cast::<u8>().add(place).read_volatile() };
        Ok((at..end).map(byte).collect())
    }

    pub fn sync(&self) -> Result {
        // SAFETY: it is the whole mapping.
        checked(unsafe { libc::msync(self.at, self.bytes, libc::MS_SYNC) }.into())
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: it is the whole mapping, and nothing refers to it any more.
        unsafe { libc::munmap(self.at, self.bytes) };
    }
}

/// From here on this thread has a mask of its own, and its signals of leases kill nobody.
pub fn on_its_own() {
    // SAFETY: they take no memory.
    unsafe {
        assert_eq!(libc::unshare(libc::CLONE_FS), 0, "only root may be several users");
        libc::signal(libc::SIGIO, libc::SIG_IGN);
    }
}

pub fn usual_mask() {
    // SAFETY: it takes no memory.
    unsafe { libc::umask(0o22) };
}

/// Does it as another user, on this thread alone.
pub fn as_user<T>(user: usize, work: impl FnOnce() -> T) -> T {
    if user == 0 {
        return work();
    }
    let (uid, gid, groups) = USERS[user];
    become_user(uid, gid, groups);
    let done = work();
    become_user(0, 0, &[]);
    done
}

fn become_user(uid: u32, gid: u32, groups: &[u32]) {
    // The library would change all threads, the calls themselves change this one. The saved ids
    // stay root's, for the way back.
    // SAFETY: the groups are as many as are told.
    unsafe {
        use libc::{SYS_setgroups, SYS_setresgid, SYS_setresuid, syscall};
        let back = uid == 0;
        if back {
            assert_eq!(syscall(SYS_setresuid, 0, 0, 0), 0);
        }
        assert_eq!(syscall(SYS_setgroups, groups.len(), groups.as_ptr()), 0);
        assert_eq!(syscall(SYS_setresgid, gid, gid, 0), 0);
        if !back {
            assert_eq!(syscall(SYS_setresuid, uid, uid, 0), 0);
        }
        // Who changes its user may not look at its own descriptors in /proc otherwise.
        libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0);
    }
}
