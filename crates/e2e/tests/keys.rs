//! Keys that are lost or replaced, and what was pending then.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests of real mounts open files and start processes"
)]

use e2e::contents::noise;
use e2e::{Mount, World};
use std::fs;

/// With an update that waits, and nothing mounted.
fn with_pending(mount: &mut Mount) {
    fs::write(mount.path("before"), "x").unwrap();
    mount.wait();
    mount.relay.cut();
    fs::write(mount.path("pending"), noise(1, 40_000)).unwrap();
    let said = mount.unmount(&["--wait", "1s"]);
    assert!(said.contains("not yet at the server"), "{said}");
    mount.relay.restore();
}

#[test]
fn what_is_pending_reaches_a_server_that_was_given_another_key_when_the_user_agrees() {
    let world = World::new();
    let mut server = world.server();
    let mut mount = world.mount(&server, "mount", "partial");
    with_pending(&mut mount);
    let before = server.key.clone();
    assert_eq!(server.stop(), Some(0));
    fs::remove_file(server.data.join("server.pem")).unwrap();
    server.options = vec!["--new-key".into()];
    server.restart();
    server.options.clear();
    assert_ne!(server.key, before);
    // The server knows the device, so no invitation is needed.
    let (bare, _) = mount.url.split_once("&invite").unwrap();
    mount.url = bare.replace(&before, &server.key);
    let said = mount.try_again().unwrap_err();
    assert!(said.contains("--accept-new-key") && said.contains(&server.key), "{said}");
    mount.set_options(&["--answer-within", "10s", "--accept-new-key"]);
    mount.again();
    mount.wait();
    mount.unmount(&[]);
    // From then on it is the server that is known.
    mount.set_options(&[]);
    mount.again();
    let other = world.mount(&server, "other", "connected");
    assert_eq!(fs::read(other.path("pending")).unwrap(), noise(1, 40_000));
    assert_eq!(fs::read_dir(&other.mountpoint).unwrap().count(), 2);
}

#[test]
fn what_is_pending_on_a_device_that_has_lost_its_key_is_sent_by_a_new_invitation() {
    let world = World::new();
    let server = world.server();
    let mut mount = world.mount(&server, "mount", "partial");
    with_pending(&mut mount);
    fs::remove_file(mount.state.join("device.pem")).unwrap();
    let said = mount.try_again().unwrap_err();
    assert!(said.contains("device.pem") && said.contains("--new-device-key"), "{said}");
    let own = mount.relay.address().to_string();
    mount.url = server.invite().replace(&server.address.to_string(), &own);
    mount.set_options(&["--answer-within", "10s", "--new-device-key"]);
    mount.again();
    mount.wait();
    let other = world.mount(&server, "other", "connected");
    assert_eq!(fs::read(other.path("pending")).unwrap(), noise(1, 40_000));
    assert_eq!(fs::read_dir(&other.mountpoint).unwrap().count(), 2);
}
