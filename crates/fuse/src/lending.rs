//! Files that are lent to the kernel, to be read in the place of ours: passthrough.
//! Holds: what is lent is taken back once, when whoever lent it lets go of it; the kernel goes on
//! with it in what is open already.
//! From: the kernel's `Documentation/filesystems/fuse/fuse-passthrough.rst`.

use crate::device::Device;
use crate::privileged::Privileged;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode};
use std::ffi::c_void;
use std::io;
use std::sync::Arc;

/// `struct fuse_backing_map`.
#[repr(C)]
struct Named {
    descriptor: i32,
    flags: u32,
    unused: u64,
}

/// See FUSE_DEV_IOC_BACKING_OPEN: it gives back a number.
const LEND: Opcode = rustix::ioctl::opcode::write::<Named>(229, 1);
/// See FUSE_DEV_IOC_BACKING_CLOSE.
const TAKE_BACK: Opcode = rustix::ioctl::opcode::write::<u32>(229, 2);

/// Who lends: the daemon itself, or a program that may.
#[derive(Clone, Debug)]
pub struct Lender {
    device: Arc<Device>,
    by: Option<Arc<Privileged>>,
}

/// A file that the kernel has been lent, until this is dropped.
#[derive(Debug)]
pub struct LentFile {
    lender: Lender,
    number: i32,
}

impl Lender {
    pub(crate) fn of(device: &Arc<Device>) -> Lender {
        Lender { device: Arc::clone(device), by: None }
    }

    pub fn by(self, helper: Arc<Privileged>) -> Lender {
        Lender { by: Some(helper), ..self }
    }

    /// Lends an ordinary file. Errors: EPERM without CAP_SYS_ADMIN, ELOOP for a file of a file
    /// system that lies upon another one, EPIPE if the helper is gone.
    pub fn lend(&self, file: BorrowedFd<'_>) -> io::Result<LentFile> {
        let device = self.device.descriptor().as_fd();
        let number = match &self.by {
            Some(helper) => helper.lend(device, file)?,
            None => lend(device, file)?,
        };
        Ok(LentFile { lender: self.clone(), number })
    }

    fn take_back(&self, number: u32) -> io::Result<()> {
        let device = self.device.descriptor().as_fd();
        match &self.by {
            Some(helper) => helper.take_back(device, number),
            None => Ok(take_back(device, number)?),
        }
    }
}

/// FUSE_DEV_IOC_BACKING_OPEN.
pub(crate) fn lend(device: BorrowedFd<'_>, file: BorrowedFd<'_>) -> rustix::io::Result<i32> {
    let lend = Lend(Named { descriptor: file.as_raw_fd(), flags: 0, unused: 0 });
    #[allow(unsafe_code, reason = "no library offers this command of the device")]
    // SAFETY: the command reads one `fuse_backing_map`, and gets one.
    unsafe {
        rustix::ioctl::ioctl(device, lend)
    }
}

/// FUSE_DEV_IOC_BACKING_CLOSE.
pub(crate) fn take_back(device: BorrowedFd<'_>, number: u32) -> rustix::io::Result<()> {
    #[allow(unsafe_code, reason = "no library offers this command of the device")]
    // SAFETY: the command reads one u32, and gets one.
    unsafe {
        rustix::ioctl::ioctl(device, rustix::ioctl::Setter::<TAKE_BACK, u32>::new(number))
    }
}

impl LentFile {
    /// By which the kernel knows it.
    pub fn number(&self) -> i32 {
        self.number
    }
}

impl Drop for LentFile {
    fn drop(&mut self) {
        let number = self.number.cast_unsigned();
        let Err(error) = self.lender.take_back(number) else { return };
        match error.raw_os_error() {
            // With the mount all that was lent is given back.
            Some(libc::EPERM | libc::ENODEV | libc::EPIPE) => {}
            _ => tracing::warn!(%error, number, "the kernel does not give a file back"),
        }
    }
}

struct Lend(Named);

#[allow(unsafe_code, reason = "no library offers this command of the device")]
// SAFETY: the opcode is that of a command that reads a `Named`, to which the pointer points, and
// whose output is a number.
unsafe impl Ioctl for Lend {
    type Output = i32;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        LEND
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::from_mut(&mut self.0).cast()
    }

    unsafe fn output_from_ptr(number: IoctlOutput, _: *mut c_void) -> rustix::io::Result<i32> {
        Ok(number)
    }
}
