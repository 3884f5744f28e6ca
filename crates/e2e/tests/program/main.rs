//! The program as people use it: in the background, as an ordinary user, by mount(8) and fstab,
//! with its other commands around it.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests of real mounts open files and start processes"
)]

mod around;
mod away;
mod paths;
mod users;

use e2e::contents::noise;
use e2e::world::{marked, program};
use e2e::{Mount, Ran, Server, World, eventually, run, timed};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn is_mounted(place: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().any(|line| line.split(' ').nth(4) == Some(&text(place)))
}

/// Whether a process has ended, waited for or not.
fn has_ended(pid: u64) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
}

/// `farfs mount` in the background, as at a shell.
fn mount_in_background(world: &World, url: &str, name: &str, more: &[&str]) -> (PathBuf, Ran) {
    let place = world.folder(name);
    let mut command = world.farfs(&["mount", url]);
    command.arg(&place).arg("--state").arg(world.path(&format!("{name}.state"))).args(more);
    (place, run(&mut command))
}

#[test]
fn a_mount_in_the_background_is_usable_when_the_command_returns_and_gone_after_umount() {
    let world = World::new();
    let server = world.server();
    let (place, ran) = mount_in_background(&world, &server.invite(), "mount", &[]);
    assert_eq!(ran.succeeds(), "");
    assert!(is_mounted(&place));
    fs::write(place.join("file"), "x").unwrap();
    let listed = run(&mut world.farfs(&["status"])).succeeds();
    assert!(listed.contains(&text(&place)), "{listed}");
    let status = run(&mut world.farfs(&["status", &text(&place), "--json"])).succeeds();
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let pid = status["pid"].as_u64().unwrap();
    let parent = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    assert!(!parent.contains(&format!("PPid:\t{}\n", std::process::id())), "it is on its own");
    assert_eq!(fs::read_link(format!("/proc/{pid}/cwd")).unwrap(), Path::new("/"));
    run(&mut world.farfs(&["umount", &text(&place)])).succeeds();
    assert!(!is_mounted(&place));
    assert!(has_ended(pid));
    run(&mut world.farfs(&["umount", &text(&place)])).fails_with(7);
    // Again, with nothing but the mount point and the state directory.
    let state = text(&world.path("mount.state"));
    run(&mut world.farfs(&["mount", &text(&place), "--state", &state])).succeeds();
    assert_eq!(fs::read(place.join("file")).unwrap(), b"x");
    run(&mut world.farfs(&["umount", &text(&place)])).succeeds();
}

/// In a mount namespace of its own, where /sbin has the helper that `make install` puts there.
#[test]
fn mount_and_fstab_know_the_file_system_by_its_name() {
    let world = World::new();
    let server = world.server();
    let (helper, upper, work) = (world.folder("helper"), world.folder("up"), world.folder("work"));
    symlink(program(), helper.join("mount.farfs")).unwrap();
    let (place, state) = (world.folder("mount"), text(&world.path("state")));
    let (url, place) = (server.invite(), text(&place));
    let (known, _) = url.split_once("&invite").unwrap();
    let fstab = world.path("fstab");
    let line = format!(
        "{known} {place} farfs noauto,nofail,x-systemd.requires-mounts-for={state},state={state} 0 0\n"
    );
    fs::write(&fstab, line).unwrap();
    let sbin = fs::canonicalize("/sbin").unwrap();
    // Both mount the overlay only for what follows.
    let script = format!(
        "set -e
         mount -t overlay overlay -o lowerdir={helper}:{sbin},upperdir={upper},workdir={work} {sbin}
         mount -t farfs -o state={state},noatime,noexec,sync '{url}' {place}
         echo hello > {place}/file
         mount | grep ' {place} '
         {farfs} umount {place}
         mount -T {fstab} {place}
         cat {place}/file
         umount {place}",
        helper = text(&helper),
        sbin = text(&sbin),
        upper = text(&upper),
        work = text(&work),
        farfs = text(&program()),
        fstab = text(&fstab),
    );
    // An overlay cannot lie on every file system; a tmpfs is one on which it can.
    let with_tmpfs = format!("mount -t tmpfs none {0}; mkdir {0}/u {0}/w", text(&upper));
    let script = script
        .replace(&format!("upperdir={},", text(&upper)), &format!("upperdir={}/u,", text(&upper)))
        .replace(&format!("workdir={}", text(&work)), &format!("workdir={}/w", text(&upper)));
    let mut command = Command::new("unshare");
    marked(&mut command);
    command.args(["--mount", "--propagation", "private", "sh", "-c"]);
    let said = run(command.arg(format!("{with_tmpfs}\n{script}"))).succeeds();
    assert!(said.contains("type fuse.farfs") || said.contains("type farfs"), "{said}");
    for flag in ["noexec", "nosuid", "nodev", "noatime", "sync"] {
        assert!(said.contains(flag), "{flag}: {said}");
    }
    assert!(said.ends_with("hello\n"), "{said}");
}

#[test]
fn what_is_pending_at_an_umount_is_there_at_the_next_mount_and_is_sent_then() {
    let world = World::new();
    let server = world.server();
    let mut mount = world.mount(&server, "mount", "auto");
    fs::write(mount.path("before"), "x").unwrap();
    mount.wait();
    assert_eq!(fs::read_dir(&mount.mountpoint).unwrap().count(), 1);
    mount.set_mode("partial");
    mount.relay.cut();
    fs::write(mount.path("pending"), noise(1, 40_000)).unwrap();
    fs::rename(mount.path("before"), mount.path("renamed")).unwrap();
    let said = mount.unmount(&["--wait", "1s"]);
    assert!(said.contains("not yet at the server") && said.contains("next mount"), "{said}");
    // Without a network: what is here is shown.
    let ((), took) = timed(|| mount.again());
    assert!(took < 15 * SECOND, "{took:?}");
    assert_eq!(fs::read(mount.path("pending")).unwrap(), noise(1, 40_000));
    assert_eq!(fs::read(mount.path("renamed")).unwrap(), b"x");
    assert!(mount.pending() > 0);
    let shown = run(&mut mount.farfs("status", &[])).succeeds();
    assert!(shown.contains("pending") && shown.contains("update"), "{shown}");
    let late = run(&mut mount.farfs("wait", &["--timeout", "1s"])).fails_with(8);
    assert!(late.contains("not yet at the server"), "{late}");
    mount.relay.restore();
    mount.wait();
    let other = world.mount(&server, "other", "connected");
    assert_eq!(fs::read(other.path("pending")).unwrap(), noise(1, 40_000));
    assert!(!other.path("before").exists());
}

/// In a namespace where there is no network at all, as early in a boot.
#[test]
fn without_a_network_what_is_cached_is_mounted_and_pending_changes_stay() {
    let world = World::new();
    let server = world.server();
    let (place, said) = mount_in_background(&world, &server.invite(), "mount", &[]);
    said.succeeds();
    fs::write(place.join("file"), "cached").unwrap();
    let farfs = |arguments: &[&str]| {
        let mut command = world.farfs(arguments);
        run(command.arg(&place)).succeeds()
    };
    farfs(&["wait"]);
    farfs(&["umount"]);
    let mut command = Command::new("unshare");
    marked(&mut command);
    command.args(["--net", &text(&program()), "mount", "--state"]);
    run(command.arg(world.path("mount.state")).arg(&place)).succeeds();
    assert_eq!(fs::read_to_string(place.join("file")).unwrap(), "cached");
    fs::write(place.join("later"), "pending").unwrap();
    let status = farfs(&["status"]);
    assert!(
        status.contains("disconnected") && status.contains("no network that leads"),
        "{status}"
    );
    farfs(&["umount", "--wait", "0s"]);
    let (_, said) = mount_in_background(&world, &server.invite(), "other", &[]);
    said.succeeds();
    let mut again = world.farfs(&["mount", "--state"]);
    run(again.arg(world.path("mount.state")).arg(&place)).succeeds();
    farfs(&["wait"]);
    assert_eq!(fs::read_to_string(world.path("other").join("later")).unwrap(), "pending");
}

#[test]
fn a_mount_that_is_in_use_says_by_whom_and_goes_when_it_is_free_or_lazily() {
    let world = World::new();
    let server = world.server();
    let mut mount = world.mount(&server, "mount", "connected");
    fs::write(mount.path("file"), "x").unwrap();
    let mut user = Command::new("sleep").arg("60").current_dir(&mount.mountpoint).spawn().unwrap();
    let said = run(&mut mount.farfs("umount", &[])).fails_with(5);
    assert!(said.contains("sleep") && said.contains(&user.id().to_string()), "{said}");
    fs::write(mount.path("file"), "still here").unwrap();
    let open = fs::File::open(mount.path("file")).unwrap();
    run(&mut mount.farfs("umount", &["--lazy"])).succeeds();
    assert!(!is_mounted(&mount.mountpoint));
    let mut seen = String::new();
    std::io::Read::read_to_string(&mut &open, &mut seen).unwrap();
    assert_eq!(seen, "still here");
    drop(open);
    user.kill().unwrap();
    user.wait().unwrap();
    mount.process().ends_within(30 * SECOND);
    mount.kill();
}

#[test]
fn the_status_has_what_programs_and_people_look_for() {
    let world = World::new();
    let server = world.server();
    let mount = world.mount(&server, "mount", "auto");
    fs::write(mount.path("file"), noise(1, 9_000)).unwrap();
    mount.wait();
    let status = mount.status();
    assert_eq!(status["volume"], "main");
    assert_eq!(status["mountpoint"], text(&mount.mountpoint));
    assert_eq!(status["state_directory"], text(&mount.state));
    assert_eq!(status["server"], mount.relay.address().to_string());
    // Which one depends on how quickly this machine answers itself.
    assert!(["connected", "partial"].contains(&status["mode"].as_str().unwrap()));
    assert_eq!(status["mode_wanted"], "auto");
    assert_eq!(status["read_only"], false);
    assert_eq!((&status["pending_updates"], &status["pending"]["updates"]), (&0.into(), &0.into()));
    assert_eq!(status["link"]["connected"], true);
    assert_eq!(status["conflicts"], 0);
    let number = |path: &str| status.pointer(path).and_then(serde_json::Value::as_f64).unwrap();
    assert!(number("/link/round_trip_ms") > 0.0);
    eventually(30 * SECOND, "what the cache holds has been counted", || {
        let cache = &mount.status()["cache"];
        cache["bytes"].as_u64() >= Some(9_000) && cache["files"].as_u64() >= Some(1)
    });
    assert!(number("/wire_bytes_sent") > 9_000.0 && number("/wire_bytes_received") > 100.0);
    let classes: Vec<&str> = status["traffic"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["class"].as_str().unwrap())
        .collect();
    assert_eq!(classes, ["interactive", "demand", "replay", "prefetch"]);
    let shown = run(&mut mount.farfs("status", &[])).succeeds();
    for word in
        ["mode", "partial (nobody else is there)", "link", "cache", "pending", "nothing", "wire"]
    {
        assert!(shown.contains(word), "{word}: {shown}");
    }
}

#[test]
fn explain_says_where_a_file_s_contents_are_and_how_far_its_changes_have_come() {
    let world = World::new();
    let server = world.server();
    let mount = world.mount(&server, "mount", "partial");
    fs::write(mount.path("file"), noise(1, 5_000)).unwrap();
    mount.wait();
    let explain = |path: &Path, more: &[&str]| {
        run(&mut world.farfs(&[&["explain", &text(path)][..], more].concat()))
    };
    let json = |path: &Path| -> serde_json::Value {
        serde_json::from_str(&explain(path, &["--json"]).succeeds()).unwrap()
    };
    let home = json(&mount.path("file"));
    assert_eq!((&home["size"], &home["bytes_here"]), (&5_000.into(), &5_000.into()));
    assert_eq!(home["reach"], "home");
    assert_eq!(home["file"], fs::metadata(mount.path("file")).unwrap().ino());
    mount.relay.cut();
    fs::write(mount.path("file"), noise(2, 6_000)).unwrap();
    let pending = json(&mount.path("file"));
    assert_eq!(pending["reach"], "logged");
    assert!(!pending["pending"].as_array().unwrap().is_empty());
    assert_ne!(pending["version"], home["version"]);
    let shown = explain(&mount.path("file"), &[]).succeeds();
    assert!(shown.contains(&text(&mount.path("file"))) && shown.contains("waits"), "{shown}");
    explain(&world.path("outside"), &[]).fails_with(7);
    explain(&mount.path("missing"), &[]).fails_with(7);
    let waits = world.farfs(&["wait", &text(&mount.path("file")), "--timeout", "1s"]);
    run(&mut { waits }).fails_with(8);
}

#[test]
fn a_mount_whose_process_has_died_is_cleared_away_and_mounted_again() {
    let world = World::new();
    let server = world.server();
    let (place, ran) =
        mount_in_background(&world, &server.invite(), "mount", &["--mode", "partial"]);
    ran.succeeds();
    fs::write(place.join("file"), "x").unwrap();
    let kill = || {
        let status = run(&mut world.farfs(&["status", &text(&place), "--json"])).succeeds();
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        let pid = status["pid"].as_u64().unwrap();
        run(Command::new("kill").args(["-KILL", &pid.to_string()])).succeeds();
        eventually(5 * SECOND, "it is dead", || has_ended(pid));
        let error = fs::read(place.join("file")).unwrap_err();
        // As the mount ends just now, or has ended.
        let ended = [rustix::io::Errno::NOTCONN, rustix::io::Errno::CONNABORTED];
        assert!(ended.contains(&rustix::io::Errno::from_io_error(&error).unwrap()), "{error}");
    };
    let state = text(&world.path("mount.state"));
    let again = || run(&mut world.farfs(&["mount", &text(&place), "--state", &state]));
    kill();
    again().succeeds();
    assert_eq!(fs::read(place.join("file")).unwrap(), b"x");
    kill();
    run(&mut world.farfs(&["umount", &text(&place)])).succeeds();
    again().succeeds();
    assert_eq!(fs::read(place.join("file")).unwrap(), b"x");
    run(&mut world.farfs(&["umount", &text(&place)])).succeeds();
}

#[test]
fn volumes_are_apart() {
    let world = World::new();
    let server = world.server();
    let data = text(&server.data);
    run(&mut world.farfs(&["volume", "create", "--cutter", "rabin", "--data", &data, "docs"]))
        .succeeds();
    let listed = run(&mut world.farfs(&["volume", "list", "--data", &data])).succeeds();
    let names = listed.lines().filter_map(|line| line.split("  ").next());
    assert_eq!(names.collect::<Vec<_>>(), ["docs", "main"]);
    let main = world.mount(&server, "main", "connected");
    let wanted = e2e::mount::Wanted { volume: "docs", mode: "connected", ..Default::default() };
    let docs = world.mount_with(&server, "docs", wanted);
    fs::write(main.path("file"), "of main").unwrap();
    assert_eq!(fs::read_dir(&docs.mountpoint).unwrap().count(), 0);
    fs::write(docs.path("file"), "of docs").unwrap();
    assert_eq!(fs::read(main.path("file")).unwrap(), b"of main");
    assert_ne!(
        fs::metadata(&main.mountpoint).unwrap().dev(),
        fs::metadata(&docs.mountpoint).unwrap().dev()
    );
    run(&mut world.farfs(&["volume", "remove", "--data", &data, "docs"])).fails_with(2);
    run(&mut world.farfs(&["volume", "remove", "--data", &data, "--yes", "docs"])).succeeds();
    eventually(10 * SECOND, "what is removed cannot be changed", || {
        fs::write(docs.path("more"), "x").is_err()
    });
    assert_eq!(fs::read(main.path("file")).unwrap(), b"of main");
}

fn asked_to_end(signal: rustix::process::Signal) {
    let world = World::new();
    let server: Server = world.server();
    let mut mount: Mount = world.mount(&server, "mount", "partial");
    fs::write(mount.path("file"), "x").unwrap();
    mount.process().signal(signal);
    assert!(mount.process().ends_within(30 * SECOND).success());
    assert!(!is_mounted(&mount.mountpoint));
    mount.kill();
    mount.again();
    assert_eq!(fs::read(mount.path("file")).unwrap(), b"x");
    mount.wait();
}

#[test]
fn a_mount_that_is_asked_to_end_unmounts_and_loses_nothing() {
    asked_to_end(rustix::process::Signal::TERM);
    asked_to_end(rustix::process::Signal::INT);
}

#[test]
fn every_command_explains_itself_with_an_example() {
    let world = World::new();
    let overview = run(&mut world.farfs(&["--help"])).succeeds();
    for command in [
        "mount",
        "umount",
        "status",
        "wait",
        "mode",
        "explain",
        "serve",
        "invite",
        "volume",
        "device",
        "conflicts",
        "completions",
        "man",
    ] {
        assert!(overview.contains(command), "{command}");
        let help = run(&mut world.farfs(&[command, "--help"])).succeeds();
        assert!(help.contains("Examples:") && help.contains("Exit codes:"), "{command}: {help}");
        assert!(help.contains(&format!("farfs {command}")), "{command}: {help}");
    }
    run(&mut world.farfs(&["sing"])).fails_with(2);
    assert!(run(&mut world.farfs(&["--version"])).succeeds().starts_with("farfs "));
}
