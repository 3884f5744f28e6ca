//! Makes a mount: by the call, for who may; otherwise by fusermount3, which may for everybody.

use crate::device::Device;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::{FdFlags, IoSliceMut, fcntl_setfd};
use rustix::mount::{MountFlags, mount};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
    recvmsg, socketpair,
};
use std::ffi::CString;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::path::Path;
use std::process::{Command, Stdio};

/// The helper, which has an older name on older systems, wherever it may be when PATH does not
/// lead to it.
const HELPERS: [&str; 4] = ["fusermount3", "fusermount", "/bin/fusermount3", "/bin/fusermount"];
/// By which it learns where to send the descriptor of the mount.
const SOCKET_VARIABLE: &str = "_FUSE_COMMFD";

/// How a file system is mounted.
#[derive(Clone, Debug, Default)]
pub struct How {
    /// What `mount` shows as the source. Neither this nor the kind has blanks or commas.
    pub source: String,
    /// What it shows as the kind, after `fuse.`.
    pub subtype: String,
    pub allow_other: bool,
    pub read_only: bool,
    /// Set-user-id bits and capabilities of programs count; below, device nodes do.
    pub suid: bool,
    pub dev: bool,
    pub no_exec: bool,
    pub no_atime: bool,
    /// Every write is synced; below, every change of a directory.
    pub sync: bool,
    pub dir_sync: bool,
}

/// Mounts, and gives back the device that has the mount.
pub(crate) fn make(mountpoint: &Path, how: &How) -> io::Result<Device> {
    match by_the_call(mountpoint, how) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            by_the_helper(mountpoint, how)
        }
        outcome => outcome,
    }
}

fn by_the_call(mountpoint: &Path, how: &How) -> io::Result<Device> {
    use rustix::fd::AsRawFd;
    let device = Device::open()?;
    let root_mode = libc::S_IFDIR;
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let others = if how.allow_other { ",allow_other" } else { "" };
    let fd = device.descriptor().as_raw_fd();
    let options = format!(
        "fd={fd},rootmode={root_mode:o},user_id={uid},group_id={gid},default_permissions{others}"
    );
    let kind = format!("fuse.{}", how.subtype);
    let options = CString::new(options)?;
    mount(how.source.as_str(), mountpoint, kind.as_str(), how.flags(), Some(options.as_c_str()))?;
    Ok(device)
}

impl How {
    fn flags(&self) -> MountFlags {
        let mut flags = MountFlags::empty();
        let told = [
            (!self.suid, MountFlags::NOSUID),
            (!self.dev, MountFlags::NODEV),
            (self.read_only, MountFlags::RDONLY),
            (self.no_exec, MountFlags::NOEXEC),
            (self.no_atime, MountFlags::NOATIME),
            (self.sync, MountFlags::SYNCHRONOUS),
            (self.dir_sync, MountFlags::DIRSYNC),
        ];
        told.into_iter().filter(|(is_told, _)| *is_told).for_each(|(_, flag)| flags |= flag);
        flags
    }

    /// As the helper takes them: one list. It leaves `suid` and `dev` out for who is not root.
    fn list(&self) -> String {
        let mut list = format!("fsname={},subtype={}", self.source, self.subtype);
        list += ",default_permissions";
        let told = [
            (true, if self.suid { "suid" } else { "nosuid" }),
            (true, if self.dev { "dev" } else { "nodev" }),
            (self.read_only, "ro"),
            (self.no_exec, "noexec"),
            (self.no_atime, "noatime"),
            (self.sync, "sync"),
            (self.dir_sync, "dirsync"),
            (self.allow_other, "allow_other"),
        ];
        for (_, word) in told.iter().filter(|(is_told, _)| *is_told) {
            list.push(',');
            list += word;
        }
        list
    }
}

fn by_the_helper(mountpoint: &Path, how: &How) -> io::Result<Device> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for helper in HELPERS {
        match by_helper(helper, mountpoint, how) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => last = error,
            outcome => return outcome,
        }
    }
    Err(last)
}

fn by_helper(helper: &str, mountpoint: &Path, how: &How) -> io::Result<Device> {
    use rustix::fd::AsRawFd;
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    fcntl_setfd(&theirs, FdFlags::empty())?;
    let mut child = Command::new(helper)
        .arg("-o")
        .arg(how.list())
        .arg("--")
        .arg(mountpoint)
        .env(SOCKET_VARIABLE, theirs.as_raw_fd().to_string())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| in_path(helper, error))?;
    drop(theirs);
    let received = receive(&ours);
    let mut said = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        stderr.read_to_string(&mut said)?;
    }
    let status = child.wait()?;
    match received {
        Ok(Some(descriptor)) => Ok(Device::of(descriptor)),
        _ if !said.trim().is_empty() => {
            Err(io::Error::new(io::ErrorKind::PermissionDenied, said.trim().to_owned()))
        }
        Ok(None) => Err(io::Error::other(format!("{helper} ended with {status}"))),
        Err(error) => Err(error),
    }
}

/// A name that no directory of PATH has is refused if one of them may not be entered. It is missing
/// all the same.
pub fn in_path(program: &str, error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::PermissionDenied if !program.contains('/') => {
            io::Error::new(io::ErrorKind::NotFound, error)
        }
        _ => error,
    }
}

/// The descriptor that the helper sends. None: it ended without.
fn receive(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0; 1];
    let mut parts = [IoSliceMut::new(&mut byte)];
    recvmsg(socket.as_fd(), &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
            return Ok(descriptors.next());
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_path_does_not_lead_to_is_missing_whatever_may_not_be_entered_on_the_way() {
        let refused = || io::Error::from(io::ErrorKind::PermissionDenied);
        assert_eq!(in_path("fusermount3", refused()).kind(), io::ErrorKind::NotFound);
        let there = in_path("/bin/fusermount3", refused());
        assert_eq!(there.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn devices_and_set_user_id_bits_count_if_that_is_asked_for() {
        let told = |suid, dev| {
            let how = How { suid, dev, ..How::default() };
            let list: Vec<_> = how.list().split(',').map(str::to_owned).collect();
            let both =
                [how.flags().contains(MountFlags::NOSUID), how.flags().contains(MountFlags::NODEV)];
            assert_eq!(both, ["nosuid", "nodev"].map(|word| list.contains(&word.to_owned())));
            both
        };
        assert_eq!(told(false, false), [true, true]);
        assert_eq!(told(true, false), [false, true]);
        assert_eq!(told(false, true), [true, false]);
    }
}
