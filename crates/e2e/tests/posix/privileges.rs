//! Privileges of files that the kernel writes by itself, which the daemon does not see.

use crate::errno;
use crate::passthrough::needs_passthrough;
use crate::permissions::{NOBODY, as_user};
use crate::unseen::open_unseen;
use e2e::contents::noise;
use e2e::mount::Wanted;
use e2e::{World, eventually};
use rustix::io::Errno;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::Duration;

/// More than the least that is lent to who writes.
const BYTES: usize = 17 << 20;
const SOON: Duration = Duration::from_secs(20);
const WRITES: &str = "dd if=/dev/zero of=file conv=notrunc bs=4096 count=1 status=none";

#[test]
fn who_writes_to_a_large_file_takes_setuid_and_setgid_away_too() {
    needs_passthrough!();
    let world = World::new();
    let server = world.server();
    let options = &["--answer-within", "10s", "--allow-other"][..];
    let wanted = Wanted { mode: "partial", options, ..Wanted::default() };
    let mount = world.mount_with(&server, "mount", wanted);
    let path = mount.path("file");
    let set = |mode| fs::set_permissions(&path, Permissions::from_mode(mode));
    let mode = || fs::metadata(&path).unwrap().mode() & 0o7777;
    fs::write(&path, noise(1, BYTES)).unwrap();
    mount.wait();
    let file = open_unseen(&mount, &path, File::options().write(true));
    // Who sets them while somebody writes so is told.
    for wanted in [0o4755, 0o2755] {
        assert_eq!(errno(set(wanted)), Errno::BUSY);
    }
    set(0o666).unwrap();
    drop(file);
    eventually(SOON, "it is closed", || set(0o6777).is_ok());
    for (wanted, then) in [(0o6777, 0o777), (0o4777, 0o777), (0o2777, 0o777), (0o2666, 0o666)] {
        set(wanted).unwrap();
        assert_eq!(mode(), wanted);
        as_user(NOBODY, &mount.mountpoint, WRITES).succeeds();
        assert_eq!(mode(), then, "of {wanted:o}");
        mount.wait();
    }
    let other = world.mount(&server, "other", "connected");
    assert_eq!(fs::metadata(other.path("file")).unwrap().mode() & 0o7777, 0o666);
}
