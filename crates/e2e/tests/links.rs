//! Links that are slow, lossy, cut and changed: what is cached and what is written needs none, and
//! what needs one ends in time.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests of real mounts open files and start processes"
)]

use e2e::contents::{noise, tree, write_and_sync};
use e2e::mount::Wanted;
use e2e::world::{farfs, marked};
use e2e::{Lane, Mount, Server, World, eventually, run, timed, within};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
/// `--answer-within` of the mounts here, and a bit.
const ANSWERED: Duration = Duration::from_secs(12);
/// Until a link that is back is used again.
const BACK: Duration = Duration::from_secs(40);

/// A server with files on it, and a device that has not seen them yet.
fn with_files(files: &[(&str, Vec<u8>)], wanted: Wanted) -> (World, Server, Mount) {
    let world = World::alone(Duration::from_secs(150));
    let server = world.server();
    let mut author = world.mount(&server, "author", "connected");
    for (name, bytes) in files {
        fs::create_dir_all(author.path(name).parent().unwrap()).unwrap();
        write_and_sync(&author.path(name), bytes).unwrap();
    }
    author.unmount(&[]);
    let mount = world.mount_with(&server, "mount", wanted);
    (world, server, mount)
}

/// Not there, and the link that would bring it is gone.
fn is_clear(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::HostUnreachable | ErrorKind::TimedOut)
}

#[test]
fn a_read_of_what_is_not_cached_ends_in_time_when_the_link_is_cut_and_works_when_it_is_back() {
    let slow = Lane::new(1_000_000, 10 * MS);
    let wanted = Wanted { mode: "partial", down: Some(slow), ..Wanted::default() };
    let large = noise(1, 1_500_000);
    let (_world, _server, mount) = with_files(&[("large", large.clone())], wanted);
    let path = mount.path("large");
    let mut file = fs::File::open(&path).unwrap();
    let mut start = vec![0; 4096];
    file.read_exact(&mut start).unwrap();
    mount.relay.cut();
    let (read, took) = within(2 * ANSWERED, "a read over a link that is cut", move || {
        timed(|| file.read_to_end(&mut Vec::new()))
    });
    let error = read.unwrap_err();
    assert!(is_clear(&error), "{error}");
    assert!(took < ANSWERED, "{took:?}");
    mount.relay.restore();
    eventually(BACK, "the file can be read", || fs::read(&path).is_ok_and(|read| read == large));
}

#[test]
fn without_a_link_what_is_not_cached_fails_at_once_once_the_link_is_known_to_be_gone() {
    let files = [("seen", noise(1, 5000)), ("folder/unseen", noise(2, 5000))];
    let (_world, _server, mount) = with_files(&files, Wanted { mode: "auto", ..Wanted::default() });
    fs::read(mount.path("seen")).unwrap();
    assert_eq!(fs::read_dir(mount.path("folder")).unwrap().count(), 1);
    mount.relay.cut();
    // A silent link may be idle: the first who asks for something finds out.
    let path = mount.path("folder/unseen");
    let (read, took) = within(2 * ANSWERED, "the first read", move || timed(|| fs::read(path)));
    assert!(is_clear(&read.unwrap_err()));
    assert!(took < ANSWERED + SECOND, "{took:?}");
    eventually(BACK, "the mount knows", || mount.mode() == "disconnected");
    let (read, took) = timed(|| fs::read(mount.path("folder/unseen")));
    let error = read.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::HostUnreachable, "{error}");
    assert!(took < SECOND, "{took:?}");
    assert_eq!(fs::read(mount.path("seen")).unwrap(), noise(1, 5000));
}

#[test]
fn cached_files_are_read_and_changes_are_made_without_a_link_and_arrive_when_it_is_back() {
    for mode in ["partial", "auto"] {
        let files = [("a/one", noise(1, 70_000)), ("a/two", noise(2, 10)), ("b", noise(3, 1000))];
        let wanted = Wanted { mode, options: &[], ..Wanted::default() };
        let (world, server, mount) = with_files(&files, wanted);
        // Who has the volume for itself does not wait for the server.
        let _company = world.mount(&server, "company", "partial");
        let before = tree(&mount.mountpoint);
        mount.relay.cut();
        let place = mount.mountpoint.clone();
        // Before and after the mount has noticed.
        for round in 0..3 {
            let place = place.clone();
            let (_, took) = within(30 * SECOND, "work without a link", move || {
                timed(|| {
                    fs::write(place.join(format!("new-{round}")), noise(10 + round, 3000)).unwrap();
                    fs::write(place.join("a/one"), noise(20 + round, 60_000)).unwrap();
                    fs::create_dir(place.join(format!("folder-{round}"))).unwrap();
                    fs::rename(place.join("b"), place.join(format!("folder-{round}/b"))).unwrap();
                    fs::rename(place.join(format!("folder-{round}/b")), place.join("b")).unwrap();
                    fs::remove_dir(place.join(format!("folder-{round}"))).unwrap();
                    assert_eq!(tree(&place).len(), 5 + round as usize);
                })
            });
            // A link that allowed to wait for every change is given up after a while, once: six
            // seconds of silence, and what a busy machine needs.
            let bound = if mode == "auto" && round == 0 { 9 * SECOND } else { 2 * SECOND };
            assert!(took < bound, "{mode}, round {round}: {took:?}");
            std::thread::sleep(4 * SECOND);
        }
        assert!(mount.pending() > 0);
        let after = tree(&mount.mountpoint);
        assert_ne!(before, after);
        mount.relay.restore();
        eventually(BACK, "everything has been sent", || mount.pending() == 0);
        let other = world.mount(&server, "other", "connected");
        assert_eq!(tree(&other.mountpoint), after, "{mode}");
    }
}

#[test]
fn whoever_waits_for_the_link_ends_at_once_by_a_signal() {
    let files = [("one", noise(1, 500_000)), ("two", noise(2, 500_000)), ("three", vec![1])];
    let (_world, _server, mount) =
        with_files(&files, Wanted { mode: "partial", ..Wanted::default() });
    assert_eq!(fs::read_dir(&mount.mountpoint).unwrap().count(), 3);
    mount.relay.cut();
    for (name, signal) in [("one", Signal::INT), ("two", Signal::KILL), ("three", Signal::TERM)] {
        // Where the tests run in the background, SIGINT comes to them as ignored.
        let mut reader = Command::new("env");
        reader.args(["--default-signal=INT,TERM", "cat"]).arg(mount.path(name));
        let mut reader = reader.stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(400 * MS);
        assert!(reader.try_wait().unwrap().is_none(), "it waits");
        kill_process(Pid::from_child(&reader), signal).unwrap();
        let (_, took) = timed(|| {
            eventually(5 * SECOND, "it has ended", || reader.try_wait().unwrap().is_some());
        });
        let status = reader.wait().unwrap();
        assert_eq!(status.signal(), Some(signal.as_raw()), "{name}: {status}");
        assert!(took < 4 * SECOND, "{name}: {took:?}");
    }
}

#[test]
fn a_tree_that_was_read_once_is_read_again_without_the_network() {
    let files: Vec<(String, Vec<u8>)> = (0..60)
        .map(|file| (format!("d{}/f{file}", file % 7), noise(file, 100 + 700 * file as usize)))
        .collect();
    let files: Vec<(&str, Vec<u8>)> =
        files.iter().map(|(name, bytes)| (name.as_str(), bytes.clone())).collect();
    let wanted = Wanted { mode: "partial", ..Wanted::default() };
    let (_world, _server, mut mount) = with_files(&files, wanted);
    let (first, bytes) = mount.relay.traffic_of(|| tree(&mount.mountpoint));
    let contents: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
    assert!(bytes > contents as u64, "it was not here: {bytes} bytes");
    let (second, bytes) = mount.relay.traffic_of(|| tree(&mount.mountpoint));
    assert_eq!(first, second);
    assert!(bytes < 2_000, "{bytes} bytes for nothing");
    // The kernel's cache is gone with the mount; the disk's is not.
    mount.unmount(&[]);
    mount.again();
    mount.status();
    let (third, bytes) = mount.relay.traffic_of(|| tree(&mount.mountpoint));
    assert_eq!(first, third);
    assert!(bytes < 4_000, "{bytes} bytes after a new mount");
    mount.relay.cut();
    assert_eq!(tree(&mount.mountpoint), first);
}

#[test]
fn a_change_of_the_client_s_address_is_survived() {
    let slow = Lane::new(2_000_000, 10 * MS);
    let wanted = Wanted { mode: "partial", up: Some(slow), down: Some(slow), ..Wanted::default() };
    let large = noise(1, 1_000_000);
    let (world, server, mount) = with_files(&[("large", large.clone())], wanted);
    let path = mount.path("large");
    let reader = std::thread::spawn(move || timed(|| fs::read(path)));
    std::thread::sleep(SECOND);
    mount.relay.change_address();
    let (read, took) = reader.join().unwrap();
    assert!(read.unwrap() == large);
    assert!(took < 30 * SECOND, "{took:?}");
    for round in 0..5 {
        mount.relay.change_address();
        fs::write(mount.path(format!("new-{round}")), noise(round, 2000)).unwrap();
        mount.wait();
    }
    let other = world.mount(&server, "other", "connected");
    assert_eq!(tree(&other.mountpoint), tree(&mount.mountpoint));
}

#[test]
fn a_slow_and_lossy_link_brings_everything_all_the_same() {
    let mut lossy = Lane::new(256_000, 40 * MS);
    lossy.loss = 0.05;
    let wanted =
        Wanted { mode: "partial", up: Some(lossy), down: Some(lossy), ..Wanted::default() };
    let files = [("folder/text", noise(1, 40_000)), ("folder/more", noise(2, 5_000))];
    let (world, server, mount) = with_files(&files, wanted);
    assert_eq!(fs::read(mount.path("folder/text")).unwrap(), noise(1, 40_000));
    for file in 0..10 {
        fs::write(mount.path(format!("folder/{file}")), noise(file, 4_000)).unwrap();
    }
    mount.wait();
    let other = world.mount(&server, "other", "connected");
    assert_eq!(tree(&other.mountpoint), tree(&mount.mountpoint));
}

#[test]
fn a_fetch_that_somebody_waits_for_is_not_held_up_by_what_is_sent_in_the_background() {
    let slow = Lane::new(400_000, 30 * MS);
    let wanted = Wanted { mode: "partial", up: Some(slow), down: Some(slow), ..Wanted::default() };
    let (_world, _server, mount) = with_files(&[("folder/small", noise(1, 2_000))], wanted);
    // A minute's worth of the link.
    fs::write(mount.path("large"), noise(2, 3_000_000)).unwrap();
    std::thread::sleep(3 * SECOND);
    assert!(mount.pending() > 0, "it is on its way");
    let (read, took) = timed(|| fs::read(mount.path("folder/small")));
    assert_eq!(read.unwrap(), noise(1, 2_000));
    assert!(took < 4 * SECOND, "{took:?}");
    assert!(mount.pending() > 0, "it still is");
}

#[test]
fn an_interrupted_transfer_goes_on_where_it_stopped() {
    let slow = Lane::new(1_500_000, 10 * MS);
    let wanted = Wanted { mode: "partial", up: Some(slow), ..Wanted::default() };
    let (world, server, mount) = with_files(&[], wanted);
    let large = noise(1, 2_000_000);
    let before = mount.relay.traffic().up.carried.bytes;
    fs::write(mount.path("large"), &large).unwrap();
    let sent = || mount.relay.traffic().up.carried.bytes - before;
    for upto in [600_000, 1_300_000] {
        eventually(30 * SECOND, "some of it has been sent", || sent() > upto);
        mount.relay.cut();
        std::thread::sleep(8 * SECOND);
        mount.relay.restore();
    }
    mount.wait();
    assert!(sent() < 3_400_000, "{} bytes for 2,000,000", sent());
    let other = world.mount(&server, "other", "connected");
    assert!(fs::read(other.path("large")).unwrap() == large);
}

#[test]
fn the_mode_follows_the_link_and_the_company() {
    let (world, server, mut mount) = with_files(&[], Wanted { mode: "auto", ..Wanted::default() });
    let becomes = |mount: &Mount, mode: &str| {
        // What is asked now and then lets the link be measured.
        let mut number = 0;
        eventually(BACK, &format!("the mode is {mode}"), || {
            number += 1;
            let _ = fs::write(mount.path(format!("file-{mode}-{number}")), "x");
            mount.mode() == mode
        });
    };
    becomes(&mount, "partial");
    assert!(mount.status()["alone"].as_bool().unwrap());
    fs::write(mount.path("alone"), "x").unwrap();
    let other = world.mount(&server, "other", "auto");
    // At once, unless the link was measured in a bad moment.
    let status = mount.status();
    let is_poor = status["mode_why"].as_str().is_some_and(|why| why.contains("the link is poor"));
    assert!(status["mode"] == "connected" || is_poor, "{status}");
    becomes(&mount, "connected");
    assert!(other.path("alone").exists());
    becomes(&other, "connected");
    mount.relay.cut();
    becomes(&mount, "disconnected");
    mount.relay.restore();
    becomes(&mount, "connected");
    eventually(BACK, "everything has been sent", || mount.pending() == 0);
    mount.set_mode("fetch-only");
    fs::write(mount.path("held"), "x").unwrap();
    std::thread::sleep(SECOND);
    assert_eq!(mount.mode(), "fetch-only");
    assert!(mount.pending() > 0);
    mount.set_mode("auto");
    becomes(&mount, "connected");
    eventually(BACK, "what was held has been sent", || mount.pending() == 0);
}

#[test]
fn a_link_that_becomes_far_is_not_waited_for_until_it_is_near_again() {
    let (world, server, mount) = with_files(&[], Wanted { mode: "auto", ..Wanted::default() });
    let other = world.mount(&server, "other", "auto");
    let mut number = 0;
    let mut becomes = |mode: &str| {
        eventually(BACK, &format!("the mode is {mode}"), || {
            number += 1;
            // Both are in use.
            fs::write(mount.path(format!("here-{number}")), "x").unwrap();
            fs::write(other.path(format!("there-{number}")), "x").unwrap();
            mount.mode() == mode
        });
        mount.status()["mode_why"].as_str().unwrap().to_owned()
    };
    assert!(becomes("connected").contains("the link is good"));
    let far = Lane::new(2_000_000, 60 * MS);
    mount.relay.shape(far, far);
    assert!(becomes("partial").contains("far away"));
    let changes = mount.status()["mode_changes"].as_array().unwrap().clone();
    let last = changes.last().unwrap();
    assert_eq!((last["from"].as_str(), last["to"].as_str()), (Some("connected"), Some("partial")));
    mount.relay.shape(e2e::relay::fast(), e2e::relay::fast());
    assert!(becomes("connected").contains("the link is good"));
    let shown = run(&mut farfs(&["mode", &mount.path("").display().to_string()])).succeeds();
    assert!(shown.contains("partial after connected: the link is poor: far away"), "{shown}");
}

#[test]
fn a_near_link_that_is_slow_is_not_waited_for_once_that_is_known() {
    let (world, server, mount) = with_files(&[], Wanted { mode: "auto", ..Wanted::default() });
    let other = world.mount(&server, "other", "auto");
    let mut number = 0;
    let mut becomes = |mode: &str, bytes: usize| {
        eventually(3 * BACK, &format!("the mode is {mode}"), || {
            number += 1;
            fs::write(mount.path(format!("here-{number}")), noise(number, bytes)).unwrap();
            fs::write(other.path(format!("there-{number}")), "x").unwrap();
            mount.mode() == mode
        });
    };
    becomes("connected", 1);
    let slow = Lane::new(300_000, Duration::ZERO);
    mount.relay.shape(slow, slow);
    becomes("partial", 60_000);
    let status = mount.status();
    assert!(status["mode_why"].as_str().unwrap().contains("the link is poor: slow"), "{status}");
    let rate = status["link"]["estimate"]["rate_up"].as_u64().unwrap();
    assert!((10_000..45_000).contains(&rate), "300 kb/s: {status}");
}

#[test]
fn far_away_auto_does_not_wait_for_every_change() {
    let far = Lane::new(2_000_000, 60 * MS);
    let wanted = Wanted { mode: "auto", up: Some(far), down: Some(far), ..Wanted::default() };
    let (_world, _server, mount) = with_files(&[], wanted);
    eventually(BACK, "the mode is partial", || mount.mode() == "partial");
    fs::write(mount.path("first"), "x").unwrap();
    let (_, took) = timed(|| {
        for file in 0..20 {
            fs::write(mount.path(format!("file-{file}")), "x").unwrap();
        }
    });
    assert!(took < 2 * SECOND, "twenty files take less than twenty round trips: {took:?}");
    mount.wait();
}

/// With real network devices, and TCP/IP's own view of a cut.
#[test]
fn over_an_emulated_link_between_two_networks_work_goes_on_through_a_cut() {
    let world = World::alone(Duration::from_secs(120));
    let link = bench::Link::start(&bench::Profile::named("adsl").unwrap()).unwrap();
    let (data, place, state) = (world.path("data"), world.folder("mount"), world.path("state"));
    let farfs_at = |end: &bench::End, arguments: &[&str]| {
        let plain = farfs(arguments);
        let mut command = end.command(plain.get_program());
        command.args(plain.get_args());
        marked(&mut command);
        command
    };
    let listen = format!("{}:7440", link.far().address());
    let text = |path: &PathBuf| path.display().to_string();
    let serve = ["serve", "--data", &text(&data), "--listen", &listen];
    let (server, _out) = world.process(farfs_at(link.far(), &serve), "server");
    eventually(20 * SECOND, "the server serves", || server.said().contains("serving"));
    let url = run(&mut farfs(&["invite", "--data", &text(&data)])).succeeds();
    let (url, state) = (url.trim(), text(&state));
    let mount = ["mount", url, &text(&place), "--state", &state, "--foreground"];
    let (mounted, _) = world.process(farfs_at(link.near(), &mount), "mount");
    eventually(30 * SECOND, "it is mounted", || mounted.said().contains("mounted at"));
    let wait = || run(&mut farfs(&["wait", &text(&place), "--timeout", "50s"])).succeeds();
    for file in 0..10 {
        fs::write(place.join(format!("file-{file}")), noise(file, 8_000)).unwrap();
    }
    wait();
    assert_eq!(fs::read_dir(&place).unwrap().count(), 10);
    link.cut();
    fs::write(place.join("during the cut"), noise(99, 30_000)).unwrap();
    std::thread::sleep(8 * SECOND);
    assert_eq!(fs::read(place.join("during the cut")).unwrap(), noise(99, 30_000));
    link.restore();
    wait();
    run(&mut farfs(&["umount", &text(&place)])).succeeds();
    mounted.ends_within(20 * SECOND);
    server.signal(Signal::TERM);
    assert!(server.ends_within(20 * SECOND).success());
}

/// Bytes that went up, as the relay has counted them.
fn sent(mount: &Mount) -> u64 {
    mount.relay.traffic().up.carried.bytes
}

#[test]
fn what_is_written_to_a_large_file_is_at_the_server_before_it_is_closed() {
    use std::io::Write;
    let world = World::alone(Duration::from_secs(150));
    let server = world.server();
    let mount = world.mount(&server, "mount", "partial");
    let before = sent(&mount);
    let mut file = fs::File::create(mount.path("large")).unwrap();
    // How much is sent before, goes by how fast the link is found to be.
    let (mut bytes, enough) = (Vec::new(), 3 << 20);
    eventually(BACK, "much of it is at the server", || {
        let more = noise(bytes.len() as u64, 8 << 20);
        if bytes.len() < 15 * more.len() {
            file.write_all(&more).unwrap();
            bytes.extend(more);
        }
        sent(&mount) - before > enough
    });
    // No process was started since: closing the copy of the descriptor that it gets would store it.
    drop(file);
    mount.wait();
    let all = sent(&mount) - before;
    assert!(all < bytes.len() as u64 / 10 * 13, "{all} bytes were sent of {}", bytes.len());
    let reader = world.mount(&server, "reader", "partial");
    assert!(fs::read(reader.path("large")).unwrap() == bytes);
}

#[test]
fn a_large_file_that_is_removed_again_costs_a_slow_link_nothing() {
    use std::io::Write;
    let world = World::alone(Duration::from_secs(150));
    let server = world.server();
    let slow = Lane::new(1_000_000, 10 * MS);
    let wanted = Wanted { mode: "partial", up: Some(slow), ..Wanted::default() };
    let mount = world.mount_with(&server, "mount", wanted);
    let before = sent(&mount);
    let mut file = fs::File::create(mount.path("large")).unwrap();
    file.write_all(&noise(1, 16 << 20)).unwrap();
    fs::remove_file(mount.path("large")).unwrap();
    drop(file);
    mount.wait();
    let all = sent(&mount) - before;
    assert!(all < 50_000, "{all} bytes were sent");
}
