//! Everyday calls and their errno, on a mounted volume, in connected and in partial mode.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests of real mounts open files and start processes"
)]

mod access_lists;
mod attributes;
mod beside;
mod births;
mod contents;
mod crowded;
mod lent;
mod locks;
mod mapped;
mod names;
mod own_writes;
mod parts;
mod passthrough;
mod permissions;
mod privileges;
mod quotas;
mod raw;
mod renames;
mod set_aside;
mod signals;
mod sizes;
mod sparse;
mod special;
mod unseen;

use e2e::mount::Wanted;
use e2e::{Mount, World, contents as made};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Does it in connected mode and in partial mode, each on a new volume, and then looks whether a
/// second device sees the same tree.
fn in_both_modes(work: impl Fn(&Mount)) {
    for mode in ["connected", "partial"] {
        let world = World::new();
        let server = world.server();
        let options = &["--answer-within", "10s", "--allow-other"][..];
        let mount = world.mount_with(&server, mode, Wanted { mode, options, ..Wanted::default() });
        work(&mount);
        mount.wait();
        let other = world.mount(&server, "other", "connected");
        assert_eq!(
            made::tree_with_births(&mount.mountpoint),
            made::tree_with_births(&other.mountpoint),
            "in {mode} mode another device sees the same"
        );
    }
}

fn errno<T>(result: std::io::Result<T>) -> Errno {
    match result {
        Ok(_) => panic!("it should have failed"),
        Err(error) => Errno::from_io_error(&error).expect("it is the system's error"),
    }
}

fn opened(path: &Path, flags: rustix::fs::OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, flags, rustix::fs::Mode::from_raw_mode(0o644))
}
