//! The two calls that no safe library offers: truncate(2) by path, and memory mappings.
#![allow(unsafe_code, reason = "a mapping is memory that the kernel shares with a file")]

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
use std::ffi::{CString, c_void};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub fn truncate(path: &Path, length: i64) -> std::io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: the path ends in a zero and lives until the call returns.
    match unsafe { libc::truncate(path.as_ptr(), length) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// A stretch of a file as memory.
pub struct Mapping {
    at: *mut c_void,
    bytes: usize,
}

impl Mapping {
    pub fn shared(file: &File, bytes: usize) -> Mapping {
        Mapping::new(file, bytes, MapFlags::SHARED, ProtFlags::READ | ProtFlags::WRITE)
    }

    /// Of a file that is open for reading alone.
    pub fn shared_to_read(file: &File, bytes: usize) -> Mapping {
        Mapping::new(file, bytes, MapFlags::SHARED, ProtFlags::READ)
    }

    pub fn private(file: &File, bytes: usize) -> Mapping {
        Mapping::new(file, bytes, MapFlags::PRIVATE, ProtFlags::READ | ProtFlags::WRITE)
    }

    fn new(file: &File, bytes: usize, flags: MapFlags, protection: ProtFlags) -> Mapping {
        // SAFETY: the kernel chooses a place that nothing else uses.
        let at = unsafe { mmap(std::ptr::null_mut(), bytes, protection, flags, file, 0) };
        Mapping { at: at.unwrap(), bytes }
    }

    pub fn read(&self, offset: usize, bytes: usize) -> Vec<u8> {
        assert!(offset + bytes <= self.bytes);
        // Others may write while it is read: so byte by byte, and volatile.
        // SAFETY: the stretch lies within the mapping.
        (offset..offset + bytes)
            .map(|at| unsafe { self.at.cast::<u8>().add(at).read_volatile() })
            .collect()
    }

    pub fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.bytes);
        for (at, byte) in bytes.iter().enumerate() {
            // SAFETY: the stretch lies within the mapping.
            unsafe { self.at.cast::<u8>().add(offset + at).write_volatile(*byte) };
        }
    }

    pub fn sync(&self) {
        // SAFETY: it is the whole mapping.
        unsafe { msync(self.at, self.bytes, MsyncFlags::SYNC) }.unwrap();
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it is the whole mapping, and nothing refers to it any more.
        let _ = unsafe { munmap(self.at, self.bytes) };
    }
}
