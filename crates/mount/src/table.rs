//! The kernel's table of mounts, as this process sees it, or another.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The table: one mount a line, those above others after them.
pub(crate) fn read() -> io::Result<String> {
    std::fs::read_to_string("/proc/self/mountinfo")
}

/// The table as another process sees it.
pub(crate) fn of(process: u32) -> io::Result<String> {
    std::fs::read_to_string(format!("/proc/{process}/mountinfo"))
}

/// Whether a device is mounted anywhere here. A process with a mount table of its own (a
/// container, a network namespace of `ip netns`) may keep a mount that is gone here.
pub(crate) fn is_mounted(table: &str, device: &str) -> bool {
    table.lines().any(|line| line.split(' ').nth(2) == Some(device))
}

/// The number of the device that was mounted last on a mountpoint, `major:minor`.
pub(crate) fn device_of<'a>(table: &'a str, mountpoint: &Path) -> Option<&'a str> {
    let mountpoint = escaped(mountpoint);
    table.lines().rev().find_map(|line| {
        let mut fields = line.split(' ').skip(2);
        let device = fields.next()?;
        (fields.nth(1)? == mountpoint).then_some(device)
    })
}

/// As the kernel writes paths in its tables.
fn escaped(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    let mut text = Vec::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => text.extend(format!("\\{byte:03o}").bytes()),
            _ => text.push(*byte),
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_mounted_as_long_as_one_line_has_it() {
        let table = "22 1 0:20 / / rw - ext4 /dev/vda rw\n40 22 0:31 / /mnt rw - fuse f rw\n";
        assert!(is_mounted(table, "0:31") && !is_mounted(table, "0:3"));
    }

    #[test]
    fn the_last_mount_on_a_path_is_the_one_that_shows() {
        let table = "22 1 0:20 / / rw - ext4 /dev/vda rw\n\
                     40 22 0:31 / /mnt/a\\040b rw - fuse.farfs farfs rw\n\
                     41 22 0:32 / /mnt/a rw - fuse.farfs farfs rw\n\
                     42 41 0:33 / /mnt/a rw - fuse.farfs farfs rw\n\
                     short\n";
        let device = |path| device_of(table, Path::new(path));
        assert_eq!(device("/mnt/a"), Some("0:33"));
        assert_eq!(device("/mnt/a b"), Some("0:31"));
        assert_eq!(device("/mnt"), None);
    }
}
