//! `/dev/fuse`: where requests are read and answers written.
//! Holds: a request is answered on the descriptor on which it was read, as the kernel wants it.

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io::{self, IoSlice};
use std::path::Path;

const DEVICE: &str = "/dev/fuse";

/// Gives a descriptor of its own to a mount that has one: see FUSE_DEV_IOC_CLONE.
const CLONE: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<u32>(229, 0);

#[derive(Debug)]
pub(crate) struct Device(OwnedFd);

impl Device {
    pub fn of(descriptor: OwnedFd) -> Device {
        Device(descriptor)
    }

    pub fn open() -> io::Result<Device> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        Ok(Device(rustix::fs::open(Path::new(DEVICE), flags, Mode::empty())?))
    }

    /// One more descriptor of the mount, for a thread of its own: it waits for nobody else's lock.
    pub fn beside(&self) -> io::Result<Device> {
        use rustix::fd::AsRawFd;
        let other = Device::open()?;
        let ours = u32::try_from(self.0.as_raw_fd()).map_err(io::Error::other)?;
        #[allow(unsafe_code, reason = "no library offers this command of the device")]
        // SAFETY: the command reads one u32, and gets one.
        unsafe {
            rustix::ioctl::ioctl(&other.0, rustix::ioctl::Setter::<CLONE, u32>::new(ours))?;
        }
        Ok(other)
    }

    pub fn descriptor(&self) -> &OwnedFd {
        &self.0
    }

    /// `read` gives back None at once where there is nothing.
    pub fn never_waiting(self) -> io::Result<Device> {
        let flags = rustix::fs::fcntl_getfl(&self.0)?;
        rustix::fs::fcntl_setfl(&self.0, flags | OFlags::NONBLOCK)?;
        Ok(self)
    }

    /// The next request. None: there is none, or the process that asked is gone.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match rustix::io::read(&self.0, buffer) {
            Ok(count) => Ok(Some(count)),
            Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        Ok(rustix::io::writev(&self.0, parts).map(|_| ())?)
    }
}
