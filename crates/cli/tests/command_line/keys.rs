//! Keys that are lost, and keys that are replaced on purpose.

use crate::program::{Server, farfs};
use rustix::process::Signal;
use std::path::Path;

const KEY: &str = "abcdefghijklmnopqrstuvwxyz234567";

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_server_that_has_lost_its_key_makes_another_only_when_it_is_told_to() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path();
    let server = Server::start(data);
    let before = server.line.clone();
    assert_eq!(server.stop(Signal::TERM), Some(0));
    std::fs::remove_file(data.join("server.pem")).unwrap();
    let serve = ["serve", "--data", text(data), "--listen", "127.0.0.1:0"];
    for said in
        [farfs(&serve).fails_with(6), farfs(&["invite", "--data", text(data)]).fails_with(6)]
    {
        for part in ["server.pem", "backup", "--new-key", "--accept-new-key"] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
    assert!(!data.join("server.pem").exists());
    let server = Server::start_with(data, &["--new-key"]);
    let key = |line: &str| line.split_once("key=").unwrap().1.to_owned();
    assert_ne!(key(&server.line), key(&before));
    let listed = farfs(&["volume", "list", "--data", text(data)]).succeeds();
    assert!(listed.starts_with("main  "), "{listed}");
    let line = server.line.clone();
    assert_eq!(server.stop(Signal::TERM), Some(0));
    // A key that is there is not replaced by a flag that was left in a unit.
    let said = farfs(&[&serve[..], &["--new-key"]].concat()).fails_with(2);
    assert!(said.contains("move that file away"), "{said}");
    assert_eq!(key(&Server::start(data).line), key(&line));
}

#[test]
fn a_device_that_has_lost_its_key_makes_another_only_when_it_is_told_to() {
    let (mountpoint, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let url = format!("farfs://127.0.0.1:9/main?key={KEY}");
    let known =
        format!("format = 1\nurl = '{url}'\nkey = '{KEY}'\nvolume = 'main'\nmountpoint = '/mnt'\n");
    std::fs::write(state.path().join("server.toml"), known).unwrap();
    let mount = ["mount", &url, text(mountpoint.path()), "--state", text(state.path())];
    let mount = [&mount[..], &["--answer-within", "1s"]].concat();
    let said = farfs(&mount).fails_with(6);
    for part in ["device.pem", "backup", "invitation", "--new-device-key"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!state.path().join("device.pem").exists());
    farfs(&[&mount[..], &["--new-device-key"]].concat()).fails_with(3);
    assert!(state.path().join("device.pem").exists());
}
