//! Programs that people use, at work in a mounted volume.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests of real mounts open files and start processes"
)]

mod archives;
mod builds;
mod copies;
mod databases;
mod editors;
mod git;

use e2e::{Mount, Server, World, contents};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Programs in a debug build on a busy machine take their time.
const BOUND: Duration = Duration::from_secs(100);

/// A shell line that must succeed, in a folder; returns what it printed.
#[track_caller]
fn shell(folder: &Path, line: &str) -> String {
    let mut command = Command::new("bash");
    command.args(["-euo", "pipefail", "-c", line]).current_dir(folder).env("LC_ALL", "C");
    e2e::run_within(BOUND, &mut command).succeeds()
}

/// Does it in connected mode and in partial mode, each on a new volume.
fn in_both_modes(work: impl Fn(&World, &Server, &Mount)) {
    for mode in ["connected", "partial"] {
        let world = World::bounded(2 * BOUND);
        let server = world.server();
        let mount = world.mount(&server, mode, mode);
        work(&world, &server, &mount);
    }
}

/// A second device sees what the first one sees.
#[track_caller]
fn same_on_another_device(world: &World, server: &Server, mount: &Mount) -> Mount {
    mount.wait();
    let other = world.mount(server, "other", "connected");
    assert_eq!(contents::tree(&mount.mountpoint), contents::tree(&other.mountpoint));
    other
}
