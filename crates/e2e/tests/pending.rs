//! What is pending as its user sees it: told by file, held back and let go, waited for.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests of real mounts open files and start processes"
)]

use e2e::contents::noise;
use e2e::mount::Wanted;
use e2e::{Lane, Mount, World, eventually, run};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_secs(20);
const MS: Duration = Duration::from_millis(1);

fn log(mount: &Mount, more: &[&str]) -> Value {
    let text = run(&mut mount.farfs("log", &[&["--json"], more].concat())).succeeds();
    serde_json::from_str(&text).unwrap()
}

fn paths(log: &Value) -> Vec<String> {
    let files = log["files"].as_array().unwrap();
    files.iter().map(|file| file["path"].as_str().unwrap_or("").to_owned()).collect()
}

/// What `user.farfs.NAME` says.
fn fact(mount: &Mount, path: &str, name: &str) -> Result<String, rustix::io::Errno> {
    let mut value = vec![0; 100];
    let name = format!("user.farfs.{name}");
    let length = rustix::fs::getxattr(mount.path(path), name, &mut value)?;
    Ok(String::from_utf8_lossy(&value[..length]).into_owned())
}

fn is_told_without_its_holes(mount: &Mount) {
    let before = mount.status()["pending"]["bytes"].as_u64().unwrap();
    let sparse = fs::File::create(mount.path("sparse")).unwrap();
    sparse.set_len(5 << 30).unwrap();
    sparse.write_all_at(b"few", 3 << 30).unwrap();
    drop(sparse);
    let told = log(mount, &[])["files"].as_array().unwrap().last().unwrap().clone();
    let bytes = told["bytes"].as_u64().unwrap();
    assert!(told["path"] == "sparse" && (3..2 << 20).contains(&bytes), "{told:#}");
    assert!(told["newest"].as_str().unwrap().contains("bytes of holes"), "{told:#}");
    let pending = || mount.status()["pending"]["bytes"].as_u64().unwrap();
    assert_eq!(pending(), before + bytes);
    fs::remove_file(mount.path("sparse")).unwrap();
    assert_eq!(pending(), before);
}

#[test]
fn what_is_held_back_is_told_by_file_goes_when_it_is_resumed_and_stays_paused_over_a_new_mount() {
    let world = World::bounded(150 * SECOND);
    let server = world.server();
    let mut writer = world.mount(&server, "writer", "auto");
    let reader = world.mount(&server, "reader", "auto");
    run(&mut writer.farfs("pause", &[])).succeeds();
    fs::create_dir(writer.path("notes")).unwrap();
    fs::write(writer.path("notes/large"), noise(1, 100_000)).unwrap();
    fs::write(writer.path("small"), b"few").unwrap();
    let told = log(&writer, &[]);
    assert_eq!(paths(&told), ["notes", "notes/large", "small"]);
    assert_eq!(told["held_back"], "paused");
    assert_eq!(told["files"][1]["bytes"], 100_000);
    is_told_without_its_holes(&writer);
    let text = run(&mut writer.farfs("log", &[])).succeeds();
    assert!(text.contains("notes/large") && text.contains("farfs resume"), "{text}");
    // Nobody waits for what is not sent, though others use the volume.
    assert_eq!(
        (writer.mode().as_str(), writer.status()["paused"].clone()),
        ("partial", true.into())
    );
    let waited = run(&mut writer.farfs("wait", &["--timeout", "1s"]));
    assert!(waited.err.contains("farfs resume"), "{}", waited.err);
    assert_eq!(waited.code, Some(8));
    assert!(!reader.path("small").exists());

    // Programs are told too, and no copy takes it along.
    assert_eq!(fact(&writer, "notes/large", "reach"), Ok("logged".into()));
    assert_eq!(fact(&writer, "notes/large", "cached"), Ok("100000".into()));
    assert_eq!(fact(&writer, "notes/large", "pending-bytes"), Ok("100000".into()));
    assert_eq!(fact(&writer, "notes/large", "waits-for"), Ok("held-back paused".into()));
    let age: u64 = fact(&writer, "notes/large", "pending-age").unwrap().parse().unwrap();
    assert!(age < 150, "{age}");
    assert_eq!(told["files"][1]["waits_for"]["held-back"], "paused");
    let listed: usize =
        rustix::fs::listxattr(writer.path("notes/large"), &mut [0_u8; 0][..]).unwrap();
    assert_eq!(listed, 0);

    // It is the user's wish until the user says otherwise; what is read goes over the link.
    writer.unmount(&[]);
    writer.again();
    fs::write(reader.path("from-elsewhere"), b"read me").unwrap();
    eventually(SOON, "what others change is seen", || {
        fs::read(writer.path("from-elsewhere")).is_ok_and(|read| read == b"read me")
    });
    assert_eq!(log(&writer, &[])["updates"], told["updates"]);
    run(&mut writer.farfs("resume", &[])).succeeds();
    run(&mut writer.farfs("wait", &["--until", "visible"])).succeeds();
    assert_eq!(fs::read(reader.path("notes/large")).unwrap(), noise(1, 100_000));
    assert_eq!(log(&writer, &[])["updates"], 0);
    assert_eq!(fact(&writer, "notes/large", "reach"), Ok("home".into()));
    assert_eq!(fact(&reader, "notes/large", "pending"), Ok("0".into()));
    for nothing in ["colour", "waits-for", "pending-age"] {
        assert_eq!(fact(&reader, "notes/large", nothing), Err(rustix::io::Errno::NODATA));
    }
    assert_eq!(fact(&writer, "notes/large", "pending-bytes"), Ok("0".into()));
    let text = run(&mut writer.farfs("log", &[])).succeeds();
    assert!(text.contains("all is at the server"), "{text}");
}

#[test]
fn a_part_is_waited_for_while_the_rest_is_still_on_its_way() {
    let world = World::bounded(150 * SECOND);
    let server = world.server();
    let slow = Lane::new(300_000, 5 * MS);
    let wanted = Wanted { mode: "partial", up: Some(slow), ..Wanted::default() };
    let mount = world.mount_with(&server, "mount", wanted);
    fs::create_dir(mount.path("first")).unwrap();
    fs::write(mount.path("first/note"), b"first").unwrap();
    fs::create_dir(mount.path("then")).unwrap();
    fs::write(mount.path("then/large"), noise(2, 600_000)).unwrap();
    let first = mount.path("first").display().to_string();
    run(&mut e2e::world::farfs(&["wait", "--timeout", "30s", &first])).succeeds();
    let then = mount.path("then").display().to_string();
    let waited = run(&mut e2e::world::farfs(&["wait", "--timeout", "0s", &first, &then]));
    assert_eq!(waited.code, Some(8), "{}", waited.err);
    let told = log(&mount, &[]);
    assert_eq!(paths(&told), ["then/large"], "{told:#}");
    run(&mut e2e::world::farfs(&["wait", "--until", "logged", &then])).succeeds();
    // It takes 16 s, and every few of them some of it has come.
    let mut seen = std::collections::BTreeSet::new();
    eventually(SOON, "one sees it come", || {
        let told = log(&mount, &[]);
        seen.extend(told["sent"].as_u64().filter(|sent| (1..600_000).contains(sent)));
        assert!(told["sent"].as_u64() <= told["bytes"].as_u64(), "{told:#}");
        seen.len() >= 2
    });
    run(&mut e2e::world::farfs(&["wait", "--timeout", "50s", &first, &then])).succeeds();
    assert_eq!(mount.pending(), 0);
}

#[test]
fn of_each_file_it_is_told_what_it_waits_for_and_how_much_goes_before_it() {
    let world = World::bounded(150 * SECOND);
    let server = world.server();
    let slow = Lane::new(300_000, 5 * MS);
    let wanted = Wanted { mode: "partial", up: Some(slow), ..Wanted::default() };
    let mount = world.mount_with(&server, "mount", wanted);
    fs::write(mount.path("first"), noise(7, 600_000)).unwrap();
    // What is there when it leaves may leave with it.
    eventually(SOON, "the first is on its way", || {
        log(&mount, &[])["files"][0]["waits_for"] == "answer"
    });
    fs::write(mount.path("second"), noise(8, 500_000)).unwrap();
    let told = log(&mount, &[]);
    assert_eq!(paths(&told), ["first", "second"], "{told:#}");
    assert_eq!(told["files"][1]["waits_for"]["behind"]["path"], "first", "{told:#}");
    assert_eq!(fact(&mount, "second", "waits-for"), Ok("behind first".into()));
    eventually(SOON, "the first waits for the server", || {
        fact(&mount, "first", "waits-for") == Ok("answer".into())
    });
    let second = mount.path("second").display().to_string();
    let of_second: Value =
        serde_json::from_str(&run(&mut e2e::world::farfs(&["log", "--json", &second])).succeeds())
            .unwrap();
    assert_eq!(of_second["bytes"], 500_000);
    assert!(of_second["upto"].as_u64().unwrap() > 500_000, "{of_second:#}");
    let waited = run(&mut e2e::world::farfs(&["wait", "--timeout", "0s", &second]));
    assert!(waited.err.contains("go before it"), "{}", waited.err);
    run(&mut mount.farfs("mode", &["disconnected"])).succeeds();
    assert_eq!(fact(&mount, "second", "waits-for"), Ok("held-back mode".into()));
}

/// Bytes on the wire that this mount has sent and received.
fn wire(mount: &Mount) -> (u64, u64) {
    let status = mount.status();
    let bytes = |name: &str| status[name].as_u64().unwrap();
    (bytes("wire_bytes_sent"), bytes("wire_bytes_received"))
}

#[test]
fn a_mount_keeps_to_its_limits_and_they_are_changed_while_it_is_in_use() {
    const LIMIT: u64 = 60 << 10;
    let world = World::bounded(150 * SECOND);
    let server = world.server();
    let options = ["--answer-within", "10s", "--limit-up", "60K"];
    let wanted = Wanted { mode: "partial", options: &options, ..Wanted::default() };
    let mount = world.mount_with(&server, "mount", wanted);
    fs::write(mount.path("large"), noise(3, 900_000)).unwrap();
    std::thread::sleep(SECOND);
    let before = wire(&mount).0;
    std::thread::sleep(4 * SECOND);
    let sent = wire(&mount).0 - before;
    assert!(sent < 5 * LIMIT, "{sent}");
    assert!(mount.pending() > 0, "it takes 15 s");
    let shown = run(&mut mount.farfs("limit", &[])).succeeds();
    assert!(shown.contains("60.0 KiB/s") && shown.contains("8:3:1"), "{shown}");
    let refused = run(&mut mount.farfs("limit", &["--up", "10"]));
    assert_eq!(refused.code, Some(2), "{}", refused.err);
    run(&mut mount.farfs("limit", &["--up", "none", "--tickets", "8:3:3"])).succeeds();
    run(&mut mount.farfs("wait", &["--timeout", "5s"])).succeeds();
    assert_eq!(mount.status()["link"]["tickets"], "8:3:3");
}

#[test]
fn beyond_the_months_budget_nothing_is_sent_until_the_user_resumes() {
    let world = World::bounded(150 * SECOND);
    let server = world.server();
    let options = ["--answer-within", "10s", "--budget", "300K"];
    let wanted = Wanted { mode: "partial", options: &options, ..Wanted::default() };
    let mut mount = world.mount_with(&server, "mount", wanted);
    let other = world.mount(&server, "other", "partial");
    fs::write(mount.path("dear"), noise(4, 400_000)).unwrap();
    run(&mut mount.farfs("wait", &[])).succeeds();
    eventually(SOON, "what it took is counted", || {
        mount.status()["budget"]["spent"].as_u64().unwrap() >= 400_000
    });
    fs::write(mount.path("late"), b"late").unwrap();
    let waited = run(&mut mount.farfs("wait", &["--timeout", "2s"]));
    assert_eq!(waited.code, Some(8));
    assert!(waited.err.contains("budget"), "{}", waited.err);
    // What somebody waits for comes, and a new mount knows what was spent.
    fs::write(other.path("asked-for"), b"asked for").unwrap();
    eventually(SOON, "it is read", || fs::read(mount.path("asked-for")).is_ok());
    mount.unmount(&["--wait", "0s"]);
    mount.again();
    assert_eq!(log(&mount, &[])["held_back"], "budget");
    run(&mut mount.farfs("resume", &[])).succeeds();
    run(&mut mount.farfs("wait", &[])).succeeds();
    assert_eq!(fs::read(other.path("late")).unwrap(), b"late");
}

#[test]
fn where_there_is_a_budget_what_nobody_waits_for_stays_until_another_time_is_set() {
    let world = World::bounded(150 * SECOND);
    let server = world.server();
    let options = ["--answer-within", "10s", "--budget", "100M"];
    let wanted = Wanted { mode: "partial", options: &options, ..Wanted::default() };
    let mount = world.mount_with(&server, "mount", wanted);
    fs::write(mount.path("stays"), b"stays").unwrap();
    assert_eq!(log(&mount, &[])["held_back"], "budget-delay");
    for (command, said) in
        [("log", "the link has a budget"), ("status", "3 min"), ("limit", "3 min")]
    {
        let shown = run(&mut mount.farfs(command, &[])).succeeds();
        assert!(shown.contains(said), "{shown}");
    }
    run(&mut mount.farfs("wait", &["--timeout", "20s"])).succeeds();
    fs::write(mount.path("stays"), b"once more").unwrap();
    run(&mut mount.farfs("limit", &["--replay-delay", "1h"])).succeeds();
    assert_eq!(log(&mount, &[])["held_back"], "delay");
    run(&mut mount.farfs("limit", &["--replay-delay", "0s"])).succeeds();
    eventually(SOON, "it leaves by itself", || mount.pending() == 0);
}

#[test]
fn prometheus_is_answered() {
    let world = World::bounded(100 * SECOND);
    let server = world.server();
    // Free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let options = ["--answer-within", "10s", "--metrics", &address];
    let wanted = Wanted { mode: "fetch-only", options: &options, ..Wanted::default() };
    let mount = world.mount_with(&server, "mount", wanted);
    fs::write(mount.path("held"), b"held back").unwrap();
    let mut answer = String::new();
    let mut stream = std::net::TcpStream::connect(&address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let value = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };
    assert!(value(&answer, "farfs_log_updates{") >= 2.0, "{answer}");
    assert!((value(&answer, "farfs_log_held_back{") - 1.0).abs() < 1e-9);
    let printed = run(&mut mount.farfs("metrics", &[])).succeeds();
    assert!(value(&printed, "farfs_log_bytes{") >= 9.0, "{printed}");
    run(&mut mount.farfs("wait", &["--until", "logged"])).succeeds();
    run(&mut mount.farfs("mode", &["partial"])).succeeds();
    run(&mut mount.farfs("wait", &[])).succeeds();
    let printed = run(&mut mount.farfs("metrics", &[])).succeeds();
    let reached = |reach: &str| {
        let counted =
            |line: &&str| line.starts_with("farfs_reach_seconds_count{") && line.contains(reach);
        let line = printed.lines().find(counted).unwrap();
        line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    let (logged, home) = (reached("\"logged\""), reached("\"home\""));
    assert!(logged >= 2 && home >= 1, "{printed}");
}

#[test]
fn who_waits_until_it_is_seen_waits_no_longer_than_he_said() {
    let world = World::bounded(120 * SECOND);
    let server = world.server();
    let writer = world.mount(&server, "writer", "partial");
    let mut reader = world.mount(&server, "reader", "connected");
    fs::write(reader.path("one"), b"old").unwrap();
    eventually(SOON, "it is seen", || fs::read(writer.path("one")).is_ok());
    reader.relay.cut();
    fs::write(writer.path("one"), b"new").unwrap();
    let options = ["--until", "visible", "--timeout", "2s"];
    let waited = run(&mut writer.farfs("wait", &options));
    assert_eq!(waited.code, Some(8), "{}", waited.err);
    assert!(waited.err.contains("not yet seen by everybody"), "{}", waited.err);
    // Who does not answer is waited for until his lease ends.
    run(&mut writer.farfs("wait", &["--until", "visible", "--timeout", "40s"])).succeeds();
    reader.kill();
}
