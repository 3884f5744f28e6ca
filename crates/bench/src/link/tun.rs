//! TUN devices: packets of a network namespace as reads and writes.

use super::namespace::Namespace;
use crate::{Error, Result};
use rustix::ioctl::{IntegerSetter, Opcode, Setter, opcode};
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;

pub const CLONE_DEVICE: &str = "/dev/net/tun";

/// A device of layer 3, whose packets bear no header but their own.
const IFF_TUN: u16 = 0x0001;
const IFF_NO_PI: u16 = 0x1000;
/// Before each packet are the ten bytes of `struct virtio_net_hdr`.
const IFF_VNET_HDR: u16 = 0x4000;
const TUNSETIFF: Opcode = opcode::write::<i32>(b'T', 202);
const TUNSETOFFLOAD: Opcode = opcode::write::<u32>(b'T', 208);

/// What the device may be handed: packets without a checksum, and runs of TCP and UDP that are still
/// one. Of UDP, the kernel takes both families or neither.
const TUN_F_CSUM: usize = 0x01;
const TUN_F_TSO4: usize = 0x02;
const TUN_F_USO4: usize = 0x20;
const TUN_F_USO6: usize = 0x40;
const RUNS: usize = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_USO4 | TUN_F_USO6;

/// The kernel's `struct ifreq`, as far as TUNSETIFF reads it.
#[repr(C)]
struct Request {
    name: [u8; 16],
    flags: u16,
    rest: [u8; 22],
}

/// Makes a device in a namespace. It lasts as long as the file; reads and writes do not wait.
pub fn make(namespace: &Namespace, name: &str) -> Result<File> {
    let mut request =
        Request { name: [0; 16], flags: IFF_TUN | IFF_NO_PI | IFF_VNET_HDR, rest: [0; 22] };
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

/// Whether the kernel may hand packets down in runs, as it does to network cards that cut them
/// themselves. It spares whoever sends most of the processor time that packets cost.
pub fn take_runs(device: &File, may: bool) {
    // A kernel before 6.2 does not know of UDP: there, packets come one by one.
    let _ = set_offload(device, if may { RUNS } else { 0 });
}

#[allow(unsafe_code, reason = "no library that is already here makes TUN devices")]
fn set_offload(device: &File, features: usize) -> rustix::io::Result<()> {
    // SAFETY: TUNSETOFFLOAD takes its argument as a number.
    unsafe {
        let set = IntegerSetter::<TUNSETOFFLOAD>::new_usize(features);
        rustix::ioctl::ioctl(device, set)
    }
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
        assert_eq!(TUNSETOFFLOAD, 0x4004_54d0);
    }
}
