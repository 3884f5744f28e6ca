//! The kernel's connection of a mount with its daemon, and how it is ended when the daemon is dead
//! and the kernel does not see it: a thread that tells the kernel of a name waits there for a lock that a program has, which
//! waits for the daemon, and keeps all open that the daemon had. Programs get an error then.
//! Never: ends the connection of a daemon that lives.

use crate::exit::{Exit, fail};
use crate::mounts::{self, Entry};
use anyhow::Result;
use rustix::fs::{Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::fs::File;
use std::io::{self, ErrorKind, Write};

/// Where the kernel's file system of connections is mounted, as systemd does it.
pub const CONTROLS: &str = "/sys/fs/fuse/connections";
const FILE_SYSTEM: &str = "fusectl";

/// The number of the connection with which a device is mounted, as the table of mounts has it.
pub fn number(device: &str) -> Option<u32> {
    device.split_once(':')?.1.parse().ok()
}

/// What ends the connection when something is written to it. While it is open it is of no later
/// connection with that number. It is its user's and root's.
pub fn control(number: u32) -> io::Result<File> {
    match File::options().write(true).open(format!("{CONTROLS}/{number}/abort")) {
        Err(error) if error.kind() == ErrorKind::NotFound => unseen(number).map_err(|_| error),
        outcome => outcome,
    }
}

/// Where that file system is mounted nowhere, root can have it all the same, and nobody sees it.
fn unseen(number: u32) -> io::Result<File> {
    let made = fsopen(FILE_SYSTEM, FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&made)?;
    let root = fsmount(&made, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(root, format!("{number}/abort"), flags, Mode::empty())?.into())
}

/// Of the mounts of dead processes that are `meant` the connections are ended: what still waits for them
/// goes on, and they let go of what they hold. False: there are none.
pub fn end_of_dead(meant: impl Fn(&Entry) -> bool) -> Result<bool> {
    let mut is_any = false;
    for left in mounts::left().iter().filter(|left| meant(left) && mounts::is_in_kernel(left)) {
        let Some(number) = left.device.as_deref().and_then(number) else { continue };
        // What is open is of this connection, and of no later one with its number.
        let open = control(number);
        if !mounts::left().contains(left) || !mounts::is_in_kernel(left) {
            continue;
        }
        match open.and_then(end) {
            Ok(()) => is_any = true,
            // It has ended meanwhile.
            Err(_) if !mounts::left().contains(left) => (),
            Err(error) => return Err(fail(Exit::Busy, cannot(left, &error))),
        }
    }
    Ok(is_any)
}

fn cannot(left: &Entry, error: &io::Error) -> String {
    let (pid, at) = (left.pid, left.mountpoint.display());
    format!(
        "the farfs process that was mounted at {at} (process {pid}) was killed, and the kernel still \
         waits for it: {error}. As root, `farfs umount {at}` frees whatever hangs there"
    )
}

/// Of a connection that has ended meanwhile nothing happens.
pub fn end(mut control: impl Write) -> io::Result<()> {
    control.write_all(b"1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_connection_is_that_of_its_device() {
        assert_eq!(number("0:57"), Some(57));
        assert_eq!(number("57"), None);
        assert_eq!(number("0:x"), None);
    }
}
