//! The calls that no safe library offers here: memory mappings, and three that are about a file.
#![allow(unsafe_code, reason = "a mapping is memory that the kernel shares with a file")]

use std::ffi::{CString, c_void};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub fn truncate(path: &Path, length: i64) {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: the path ends in a zero and lives until the call returns.
    assert_eq!(unsafe { libc::truncate(path.as_ptr(), length) }, 0);
}

/// Whether there is something to read.
pub fn poll(file: &File) -> bool {
    let mut asked = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: there is one of them.
    assert_eq!(unsafe { libc::poll(&raw mut asked, 1, 0) }, 1);
    asked.revents & libc::POLLIN != 0
}

pub fn is_terminal(file: &File) -> bool {
    // SAFETY: the descriptor is open until the call returns.
    unsafe { libc::isatty(file.as_raw_fd()) == 1 }
}

/// The first bytes of a file, shared with it.
pub struct Mapping {
    at: *mut c_void,
    bytes: usize,
}

impl Mapping {
    pub fn of(file: &File, bytes: usize) -> Mapping {
        let (both, file) = (libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd());
        // SAFETY: the kernel chooses a place that nothing else uses.
        let at =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, both, libc::MAP_SHARED, file, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        Mapping { at, bytes }
    }

    pub fn read(&self, offset: usize) -> u8 {
        assert!(offset < self.bytes);
        // SAFETY: the byte lies within the mapping.
        unsafe { self.at.cast::<u8>().add(offset).read_volatile() }
    }

    pub fn write(&self, offset: usize, byte: u8) {
        assert!(offset < self.bytes);
        // SAFETY: the byte lies within the mapping.
        unsafe { self.at.cast::<u8>().add(offset).write_volatile(byte) };
    }

    pub fn sync(&self) {
        // SAFETY: it is the whole mapping.
        assert_eq!(unsafe { libc::msync(self.at, self.bytes, libc::MS_SYNC) }, 0);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it is the whole mapping, and nothing refers to it any more.
        let _ = unsafe { libc::munmap(self.at, self.bytes) };
    }
}
