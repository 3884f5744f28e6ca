//! Calls and memory of the cases that no safe library offers.
#![allow(unsafe_code, reason = "mappings, children that may die of a signal, and raw listings")]

use crate::side::{Map, checked};
use e2e::contents::checksum;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;

/// A mapping of which more is touched than there may be.
pub struct Pages(Map);

impl Pages {
    pub fn shared(file: &File, bytes: usize) -> Pages {
        Pages(Map::new(file.as_raw_fd(), bytes, true).unwrap())
    }

    pub fn private(file: &File, bytes: usize) -> Pages {
        Pages(Map::new(file.as_raw_fd(), bytes, false).unwrap())
    }

    pub fn fill(&self, at: usize, bytes: usize, fill: u8) {
        self.0.poke(at, bytes, fill).unwrap();
    }

    pub fn sum(&self, at: usize, bytes: usize) -> u64 {
        checksum(&self.0.peek(at, bytes).unwrap())
    }

    pub fn sync(&self) {
        self.0.sync().unwrap();
    }

    /// Reads a byte that may not be there.
    pub fn touch(&self, at: usize) -> i32 {
        // SAFETY: if it is not there, a signal comes, for which a child is there.
        let byte = unsafe { self.0.start().add(at).read_volatile() };
        i32::from(byte == 0)
    }

    pub fn write_to(&self, file: &File, from: usize, bytes: usize, to: i64) -> Result<i64, i32> {
        // SAFETY: the kernel reads what is mapped, and says so if it is not.
        checked(unsafe {
            libc::pwrite(file.as_raw_fd(), self.0.start().add(from).cast(), bytes, to) as i64
        })
    }

    pub fn read_from(&self, file: &File, to: usize, bytes: usize, from: i64) -> Result<i64, i32> {
        // SAFETY: the kernel fills what is mapped, and says so if it is not.
        checked(unsafe {
            libc::pread(file.as_raw_fd(), self.0.start().add(to).cast(), bytes, from) as i64
        })
    }
}

/// How a child ends that does this and nothing else: its code, or the signal of its death.
pub fn in_child(work: impl FnOnce() -> i32) -> Result<i32, i32> {
    // SAFETY: the child does a few calls and ends.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0, "no child");
        if child == 0 {
            libc::_exit(work());
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        if libc::WIFSIGNALED(status) {
            Err(libc::WTERMSIG(status))
        } else {
            Ok(libc::WEXITSTATUS(status))
        }
    }
}

/// Memory that begins at a page.
pub struct Aligned {
    memory: Vec<u8>,
    bytes: usize,
}

pub fn aligned(bytes: usize) -> Aligned {
    Aligned { memory: vec![0; bytes + 4_096], bytes }
}

impl Aligned {
    pub fn get_mut(&mut self) -> &mut [u8] {
        let from = self.memory.as_ptr().align_offset(4_096);
        &mut self.memory[from..from + self.bytes]
    }
}

pub fn truncate(path: &CStr, length: i64) -> Result<(), rustix::io::Errno> {
    // SAFETY: the path ends in a zero.
    let cut = checked(unsafe { libc::truncate(path.as_ptr(), length) }.into());
    cut.map(|_| ()).map_err(rustix::io::Errno::from_raw_os_error)
}

/// Entries of a directory from a place on, at least so many if there are, each with the place
/// after it.
pub fn positions(fd: RawFd, from: i64, at_least: usize) -> Vec<(String, i64)> {
    let mut found = Vec::new();
    let mut buffer = vec![0_u8; 700];
    // SAFETY: the kernel fills no more than the buffer has.
    unsafe {
        assert_eq!(libc::lseek(fd, from, libc::SEEK_SET), from);
        while found.len() < at_least {
            let (at, room) = (buffer.as_mut_ptr(), buffer.len());
            let bytes = checked(libc::syscall(libc::SYS_getdents64, fd, at, room)).unwrap_or(0);
            if bytes == 0 {
                break;
            }
            let mut rest = &buffer[..bytes as usize];
            while !rest.is_empty() {
                let after = i64::from_le_bytes(rest[8..16].try_into().unwrap());
                let length = usize::from(u16::from_le_bytes([rest[16], rest[17]]));
                let name = CStr::from_bytes_until_nul(&rest[19..length]).unwrap();
                found.push((name.to_str().unwrap().to_owned(), after));
                rest = &rest[length..];
            }
        }
    }
    found
}

/// What `inotify` tells of paths while something is done.
pub fn told_of(paths: &[&Path], work: impl FnOnce()) -> String {
    let mut told = String::new();
    // SAFETY: paths end in a zero, and the kernel fills no more than the buffer has.
    unsafe {
        let fd = libc::inotify_init1(libc::IN_NONBLOCK | libc::IN_CLOEXEC);
        for path in paths {
            let path = CString::new(path.display().to_string()).unwrap();
            assert!(libc::inotify_add_watch(fd, path.as_ptr(), libc::IN_ALL_EVENTS) > 0);
        }
        work();
        let mut buffer = vec![0_u8; 65_536];
        let bytes = libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len());
        let mut rest = &buffer[..bytes.max(0) as usize];
        while !rest.is_empty() {
            let word = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap());
            let (watch, mask, length) = (word(0), word(4), word(12) as usize);
            let name = rest[16..16 + length].split(|byte| *byte == 0).next().unwrap_or_default();
            told += &format!("{watch} {mask:x} {}\n", String::from_utf8_lossy(name));
            rest = &rest[16 + length..];
        }
        libc::close(fd);
    }
    told
}
