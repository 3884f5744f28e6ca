//! What `farfs mount` and its relatives say before anything is mounted.

use crate::program::{Server, farfs, farfs_called, farfs_configured};
use std::path::Path;
use std::process::Command;

const KEY: &str = "abcdefghijklmnopqrstuvwxyz234567";

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Nobody listens on the port of discard.
fn url() -> String {
    format!("farfs://127.0.0.1:9/main?key={KEY}")
}

#[test]
fn a_wrong_url_is_called_wrong_and_says_what_is() {
    let mountpoint = tempfile::tempdir().unwrap();
    let place = format!("farfs://host:1/main?key={KEY}");
    for (url, part) in [
        ("http://host:1/main", "farfs://"),
        ("farfs://host:1/main", "key"),
        ("farfs://host:1/main?key=short", "short"),
        ("farfs://host/main?key=short", "port"),
        (&place.replace("main", ""), "volume"),
        (&format!("{place}&colour=red"), "colour"),
    ] {
        let said = farfs(&["mount", url, text(mountpoint.path())]).fails_with(2);
        assert!(said.contains(part), "{url}: {said}");
    }
}

#[test]
fn options_may_stand_anywhere_among_the_url_and_the_mount_point() {
    let (url, missing) = (url(), "/nonexistent/mount/point");
    for arguments in [
        ["mount", "--mode", "partial", &url, missing],
        ["mount", &url, "--mode", "partial", missing],
        ["mount", &url, missing, "--mode", "partial"],
    ] {
        assert!(farfs(&arguments).fails_with(7).contains(missing), "{arguments:?}");
    }
}

#[test]
fn a_wrong_mount_point_is_called_wrong() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert!(farfs(&["mount", &url(), text(&file)]).fails_with(2).contains("not a directory"));
    let missing = directory.path().join("missing");
    assert!(farfs(&["mount", &url(), text(&missing)]).fails_with(7).contains("missing"));
    let inside = directory.path().join("state");
    let said = farfs(&["mount", &url(), text(directory.path()), "--state", text(&inside)]);
    assert!(said.fails_with(2).contains("below the mount point"));
}

#[test]
fn a_mount_point_of_which_nothing_is_known_needs_a_url() {
    let (mountpoint, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let said =
        farfs(&["mount", text(mountpoint.path()), "--state", text(state.path())]).fails_with(2);
    assert!(said.contains("farfs invite"), "{said}");
}

#[test]
fn a_url_without_a_mount_point_is_told_what_it_lacks() {
    let said = farfs(&["mount", &url()]).fails_with(2);
    assert!(said.contains("farfs mount URL ~/work"), "{said}");
}

#[test]
fn a_directory_on_a_read_only_file_system_is_told_with_what_to_do() {
    let place = tempfile::tempdir().unwrap();
    let Some(_only_here) = ReadOnly::made(place.path()) else { return };
    let (state, mountpoint) = (place.path().join("state"), tempfile::tempdir().unwrap());
    let arguments = ["mount", &url(), text(mountpoint.path()), "--state", text(&state)];
    let said = farfs(&arguments).fails_with(1);
    assert!(said.contains("read-only") && said.contains("--state DIR"), "{said}");
    let data = place.path().join("data");
    let said = farfs(&["serve", "--data", text(&data), "--listen", "127.0.0.1:0"]).fails_with(1);
    assert!(said.contains("read-only") && said.contains("--data DIR"), "{said}");
}

/// A directory with a file system of its own, until it is dropped.
struct ReadOnly(std::path::PathBuf);

impl ReadOnly {
    /// None: who runs the tests may not mount.
    fn made(place: &Path) -> Option<ReadOnly> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "ro,size=64k", "none"]).arg(place);
        let made = mount.stderr(std::process::Stdio::null()).status().is_ok_and(|s| s.success());
        made.then(|| ReadOnly(place.into()))
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// It was made while this mount waited for it, by another one that has ended since.
#[test]
fn what_was_made_in_a_state_directory_while_it_was_waited_for_is_not_taken_back() {
    let (mountpoint, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let lock = std::fs::File::create(state.path().join("lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let waits = std::thread::spawn({
        let place = text(mountpoint.path()).to_owned();
        let (url, state) = (url(), text(state.path()).to_owned());
        move || farfs(&["mount", &url, &place, "--state", &state, "--foreground"])
    });
    std::thread::sleep(std::time::Duration::from_secs(2));
    let known = format!(
        "format = 1\nurl = '{}'\nkey = '{KEY}'\nvolume = 'main'\nmountpoint = '/mnt'\n",
        url()
    );
    std::fs::write(state.path().join("server.toml"), known).unwrap();
    for made in ["device.pem", "tables.redb"] {
        std::fs::write(state.path().join(made), "what cannot be used").unwrap();
    }
    drop(lock);
    let said = waits.join().unwrap();
    assert_ne!(said.code, Some(0), "{said:#?}");
    for kept in ["server.toml", "device.pem", "tables.redb"] {
        assert!(state.path().join(kept).exists(), "{kept} is gone: {said:#?}");
    }
}

#[test]
fn without_a_network_and_with_nothing_cached_the_mount_fails_in_time() {
    let (mountpoint, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let arguments = ["mount", &url(), text(mountpoint.path()), "--state", text(state.path())];
    let short = ["--answer-within", "2s"];
    let said = farfs(&[&arguments[..], &short].concat()).fails_with(3);
    for cause in ["`farfs serve` runs", "firewall", "--advertise"] {
        assert!(said.contains(cause), "{said}");
    }
    let foreground = ["--answer-within", "1s", "--foreground"];
    farfs(&[&arguments[..], &foreground].concat()).fails_with(3);
    // Nothing is left of what was made for it.
    assert_eq!(std::fs::read_dir(state.path()).unwrap().count(), 0);
    let other = state.path().join("made");
    let arguments = ["mount", &url(), text(mountpoint.path()), "--state", text(&other)];
    farfs(&[&arguments[..], &short].concat()).fails_with(3);
    assert!(!other.exists());
}

#[test]
fn a_device_that_is_turned_away_leaves_nothing_behind() {
    let (mountpoint, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = Server::start(&place.path().join("data"));
    let state = place.path().join("state");
    let data = place.path().join("data");
    let said = farfs(&["invite", "--data", text(&data)]).succeeds();
    let (url, token) = said.trim().split_once("&invite=").unwrap();
    let wrong = format!("{url}&invite={}", "0".repeat(token.len()));
    let arguments = ["mount", &wrong, text(mountpoint.path()), "--state", text(&state)];
    farfs(&arguments).fails_with(4);
    assert!(!state.exists(), "{:?}", std::fs::read_dir(&state).unwrap().collect::<Vec<_>>());
    // Nor one that is not begun at all.
    let file = place.path().join("file");
    std::fs::write(&file, "").unwrap();
    farfs(&["mount", said.trim(), text(&file), "--state", text(&state)]).fails_with(2);
    assert!(!state.exists());
    drop(server);
}

#[test]
fn a_malformed_invitation_and_a_name_that_leads_nowhere_are_told_at_once() {
    let (mountpoint, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let place = ["--state", text(state.path()), "--answer-within", "50s"];
    let mount = |url: &str| farfs(&[&["mount", url, text(mountpoint.path())][..], &place].concat());
    let said = mount(&format!("{}&invite=xx", url())).fails_with(2);
    assert!(said.contains("malformed"), "{said}");
    let said = mount(&url().replace("127.0.0.1", "no.such.host.invalid")).fails_with(3);
    assert!(said.contains("no.such.host.invalid leads to no address"), "{said}");
}

#[test]
fn a_damaged_state_directory_is_reported_with_the_damaged_file() {
    let mountpoint = tempfile::tempdir().unwrap();
    for name in ["server.toml", "device.pem", "tables.redb"] {
        let state = tempfile::tempdir().unwrap();
        std::fs::write(state.path().join(name), b"this is not what was written").unwrap();
        let arguments = ["mount", &url(), text(mountpoint.path()), "--state", text(state.path())];
        let said = farfs(&arguments).fails_with(6);
        assert!(said.contains(name), "{name}: {said}");
    }
}

#[test]
fn what_is_pending_goes_on_where_the_file_that_says_what_was_mounted_is_damaged() {
    let (mountpoint, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (data, state) = (place.path().join("data"), place.path().join("state"));
    let server = Server::start(&data);
    let said = farfs(&["invite", "--data", text(&data)]).succeeds();
    let at = text(mountpoint.path());
    let mount = |more: &[&str]| farfs(&[&["mount", "--state", text(&state)], more, &[at]].concat());
    mount(&["--mode", "fetch-only", said.trim()]).succeeds();
    std::fs::write(mountpoint.path().join("file"), "pending").unwrap();
    farfs(&["umount", "--wait", "0s", at]).succeeds();
    let known = state.join("server.toml");
    let kept = std::fs::read(&known).unwrap();
    for wrong in [&kept[..kept.len() / 3], b"\xff\xfe", b""] {
        std::fs::write(&known, wrong).unwrap();
        let said = mount(&[]).fails_with(6);
        for part in ["server.toml is damaged", "move it away", "give the URL", "farfs salvage"] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(!said.contains("new invitation"), "{said}");
    }
    // Nor where it is found by the mount point alone.
    std::fs::write(&known, [&kept[..], b"="].concat()).unwrap();
    let alone = farfs(&["mount", at]).fails_with(6);
    assert!(alone.contains("server.toml is damaged") && alone.contains("give the URL"), "{alone}");
    std::fs::rename(&known, place.path().join("away")).unwrap();
    let (url, _) = said.trim().split_once("&invite=").unwrap();
    mount(&[url]).succeeds();
    farfs(&["wait", at]).succeeds();
    let read = std::fs::read_to_string(mountpoint.path().join("file"));
    farfs(&["umount", at]).succeeds();
    assert_eq!(read.unwrap(), "pending");
    // Where more than that is damaged, nobody is asked for an invitation either.
    std::fs::write(state.join("tables.redb"), "they are damaged").unwrap();
    let said = mount(&[]).fails_with(6);
    assert!(said.contains("device.pem and server.toml"), "{said}");
    let new = place.path().join("new");
    std::fs::create_dir(&new).unwrap();
    for name in ["device.pem", "server.toml"] {
        std::fs::copy(state.join(name), new.join(name)).unwrap();
    }
    farfs(&["mount", "--state", text(&new), at]).succeeds();
    let read = std::fs::read_to_string(mountpoint.path().join("file"));
    farfs(&["umount", at]).succeeds();
    assert_eq!(read.unwrap(), "pending");
    drop(server);
}

#[test]
fn a_state_directory_that_does_not_say_what_to_mount_is_named_and_what_is_missing_of_it() {
    let (mountpoint, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mount = || farfs(&["mount", text(mountpoint.path()), "--state", text(state.path())]);
    let said = mount().fails_with(2);
    assert!(said.contains("nothing has been mounted with the state directory"), "{said}");
    assert!(said.contains(text(state.path())), "{said}");
    std::fs::write(state.path().join("device.pem"), "one was mounted").unwrap();
    let said = mount().fails_with(6);
    let missing = format!("{} is missing", text(&state.path().join("server.toml")));
    assert!(said.contains(&missing) && said.contains("give the URL"), "{said}");
    // Without one, nothing of a state directory is said.
    let said = farfs(&["mount", text(mountpoint.path())]).fails_with(2);
    assert!(said.contains("what is to be mounted at"), "{said}");
}

#[test]
fn a_state_directory_of_another_server_is_not_used() {
    let (mountpoint, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mount = |url: &str| {
        let state = ["--state", text(state.path()), "--answer-within", "1s"];
        farfs(&[&["mount", url, text(mountpoint.path())][..], &state].concat())
    };
    // What is there already stays, and beside it the device's key is made.
    std::fs::create_dir(state.path().join("log")).unwrap();
    mount(&url()).fails_with(3);
    assert!(state.path().join("device.pem").exists());
    let known = format!(
        "format = 1\nurl = '{}'\nkey = '{KEY}'\nvolume = 'main'\nmountpoint = '/mnt'\n",
        url()
    );
    std::fs::write(state.path().join("server.toml"), known).unwrap();
    mount(&url()).fails_with(3);
    let other = url().replace("abc", "cba");
    assert!(mount(&other).fails_with(4).contains("key"));
    assert!(mount(&url().replace("main", "docs")).fails_with(2).contains("main"));
}

#[test]
fn a_state_directory_that_no_server_has_let_in_takes_another_url() {
    let (mountpoint, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for url in [url().replace("main", "mian"), url().replace("abc", "cba"), url()] {
        let arguments = ["mount", &url, text(mountpoint.path()), "--state", text(state.path())];
        let said = farfs(&[&arguments[..], &["--answer-within", "1s"]].concat()).fails_with(3);
        assert!(said.contains(&url), "{said}");
    }
}

#[test]
fn a_configuration_with_an_unknown_key_is_refused_with_its_line() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("config.toml");
    std::fs::write(&config, "[mount]\nmode = 'auto'\ncolour = 'red'\n").unwrap();
    let said = farfs_configured(&config, &["mount", &url(), text(directory.path())]).fails_with(2);
    assert!(said.contains("line 3") && said.contains("colour"), "{said}");
}

#[test]
fn the_helper_of_mount_takes_what_mount_passes() {
    let mountpoint = tempfile::tempdir().unwrap();
    let (url, place) = (url(), text(mountpoint.path()).to_owned());
    let helper = |options: &[&str]| {
        farfs_called("mount.farfs", &[&[url.as_str(), place.as_str()][..], options].concat())
    };
    let said = helper(&["-f", "-v", "-n", "-o", "rw,_netdev,nofail,x-gvfs-show,cache_size=1G"]);
    assert!(said.succeeds().contains(&place));
    assert!(helper(&["-f", "-o", "colour=red"]).fails_with(2).contains("colour"));
    helper(&["-s", "-f", "-o", "colour=red"]).succeeds();
    farfs_called("mount.farfs", &["none", &place]).fails_with(2);
    let said = farfs_called("mount.farfs", &["none"]).fails_with(2);
    assert!(said.contains("Usage: mount.farfs [OPTIONS] <URL>"), "{said}");
}

#[test]
fn a_section_that_is_of_no_mount_point_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("config.toml");
    std::fs::write(&config, "[mounts.'work']\nmode = 'auto'\n").unwrap();
    let said = farfs_configured(&config, &["mount", &url(), text(directory.path())]).fails_with(2);
    assert!(said.contains("[mounts.\"work\"]") && said.contains("config.toml"), "{said}");
}

#[test]
fn what_would_mean_the_opposite_or_never_do_is_refused_with_what_does() {
    let directory = tempfile::tempdir().unwrap();
    let place = text(directory.path());
    for short in ["0", "1ms"] {
        let said = farfs(&["mount", &url(), place, "--answer-within", short]).fails_with(2);
        assert!(said.contains("1 s at least"), "{said}");
    }
    let said = farfs(&["policy", place, "--ask-above", "0"]).fails_with(2);
    assert!(said.contains("`none`"), "{said}");
}

#[test]
fn what_is_not_mounted_is_not_found() {
    let directory = tempfile::tempdir().unwrap();
    let place = text(directory.path());
    for arguments in [
        &["umount", place][..],
        &["status", place],
        &["status", place, "--json"],
        &["wait", place],
        &["mode", place],
        &["mode", place, "partial"],
        &["explain", place],
    ] {
        farfs(arguments).fails_with(7);
    }
}
