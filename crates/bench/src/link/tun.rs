//! TUN devices: packets of a network namespace as reads and writes.

use super::namespace::Namespace;
use crate::{Error, Result};
use rustix::ioctl::{Opcode, Setter, opcode};
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;

pub const CLONE_DEVICE: &str = "/dev/net/tun";

/// A device of layer 3, whose packets bear no header but their own.
const IFF_TUN: u16 = 0x0001;
const IFF_NO_PI: u16 = 0x1000;
const TUNSETIFF: Opcode = opcode::write::<i32>(b'T', 202);

/// The kernel's `struct ifreq`, as far as TUNSETIFF reads it.
#[repr(C)]
struct Request {
    name: [u8; 16],
    flags: u16,
    rest: [u8; 22],
}

/// Makes a device in a namespace. It lasts as long as the file; reads and writes do not wait.
pub fn make(namespace: &Namespace, name: &str) -> Result<File> {
    let mut request = Request { name: [0; 16], flags: IFF_TUN | IFF_NO_PI, rest: [0; 22] };
    let bytes = name.as_bytes();
    assert!(bytes.len() < request.name.len(), "names of devices end in a zero byte");
    request.name[..bytes.len()].copy_from_slice(bytes);
    namespace.inside(move || {
        let file = File::options()
            .read(true)
            .write(true)
            .custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32)
            .open(CLONE_DEVICE)
            .map_err(Error::file("cannot open", CLONE_DEVICE))?;
        set_device(&file, request)
            .map_err(Error::system("cannot make a network device (TUNSETIFF)"))?;
        Ok(file)
    })
}

#[allow(unsafe_code, reason = "no library that is already here makes TUN devices")]
fn set_device(file: &File, request: Request) -> rustix::io::Result<()> {
    // SAFETY: TUNSETIFF takes a pointer to a `struct ifreq`, of which `Request` has the size and
    // the layout (name, flags, the rest of the union), and which lives until the call returns.
    unsafe { rustix::ioctl::ioctl(file, Setter::<TUNSETIFF, Request>::new(request)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_is_laid_out_as_the_kernel_reads_it() {
        assert_eq!(size_of::<Request>(), 40);
        assert_eq!(std::mem::offset_of!(Request, flags), 16);
        assert_eq!(TUNSETIFF, 0x4004_54ca);
    }
}
