//! What another program does to the files of a mount or of a server while they are in use.

use e2e::World;
use e2e::contents::{noise, write_and_sync};
use std::fs;
use std::path::Path;

fn empty(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
}

#[test]
fn a_mounts_log_that_is_removed_in_use_is_written_anew_before_a_sync_returns_and_it_is_said() {
    let world = World::new();
    let server = world.server();
    let mut mount = world.mount(&server, "mount", "partial");
    // What is there is known here from now on.
    assert_eq!(fs::read_dir(&mount.mountpoint).unwrap().count(), 0);
    mount.set_mode("disconnected");
    write_and_sync(&mount.path("before"), &noise(1, 10_000)).unwrap();
    empty(&mount.state.join("log"));
    write_and_sync(&mount.path("behind"), &noise(2, 10_000)).unwrap();
    assert_eq!(mount.status()["log_put_anew"], 1);
    fs::remove_dir_all(mount.state.join("log")).unwrap();
    write_and_sync(&mount.path("last"), &noise(3, 10_000)).unwrap();
    mount.kill();
    mount.again();
    for (number, name) in [(1, "before"), (2, "behind"), (3, "last")] {
        assert!(fs::read(mount.path(name)).unwrap() == noise(number, 10_000), "{name}");
    }
    mount.set_mode("partial");
    mount.wait();
}

#[test]
fn a_servers_log_that_is_removed_in_use_is_written_anew() {
    let world = World::new();
    let mut server = world.server();
    let mut mount = world.mount(&server, "mount", "connected");
    write_and_sync(&mount.path("before"), &noise(1, 10_000)).unwrap();
    empty(&server.data.join("tables.log"));
    write_and_sync(&mount.path("behind"), &noise(2, 10_000)).unwrap();
    assert!(server.said().contains("are written anew"), "{}", server.said());
    server.kill();
    mount.unmount(&[]);
    server.restart();
    let other = world.mount(&server, "other", "connected");
    for (number, name) in [(1, "before"), (2, "behind")] {
        assert!(fs::read(other.path(name)).unwrap() == noise(number, 10_000), "{name}");
    }
}
