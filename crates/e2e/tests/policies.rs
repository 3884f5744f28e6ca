//! Selective consistency as its user sees it: over a slow link, and over a new mount.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests of real mounts open files and start processes"
)]

use e2e::contents::noise;
use e2e::mount::Wanted;
use e2e::server::Server;
use e2e::world::farfs;
use e2e::{Lane, Mount, World, eventually, run};
use serde_json::Value;
use std::fs;
use std::process::Command;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_secs(60);
const BITS_A_SECOND: u64 = 800_000;

fn of_path(command: &str, mount: &Mount, path: &str, more: &[&str]) -> Command {
    let mut command = farfs(&[command]);
    command.arg(mount.path(path)).args(more);
    command
}

fn told(mount: &Mount, command: &str, more: &[&str]) -> Vec<Value> {
    let more = [more, &["--json"]].concat();
    let text = run(&mut mount.farfs(command, &more)).succeeds();
    serde_json::from_str::<Value>(&text).unwrap().as_array().unwrap().clone()
}

fn stale(mount: &Mount) -> Vec<String> {
    let stale = told(mount, "policy", &["--stale"]);
    stale.iter().map(|one| one["path"].as_str().unwrap_or_default().to_owned()).collect()
}

fn slow_reader(world: &World, server: &Server) -> Mount {
    let slow = Some(Lane::new(BITS_A_SECOND, Duration::from_millis(50)));
    let wanted = Wanted { mode: "partial", up: slow, down: slow, ..Wanted::default() };
    world.mount_with(server, "reader", wanted)
}

fn fact(mount: &Mount, path: &str, name: &str) -> String {
    let mut value = [0; 100];
    let length = rustix::fs::getxattr(mount.path(path), name, &mut value).unwrap();
    String::from_utf8_lossy(&value[..length]).into_owned()
}

/// Contents and size are of one version.
fn assert_shows(mount: &Mount, path: &str, contents: &[u8]) {
    assert!(fs::read(mount.path(path)).unwrap() == contents, "{path}");
    assert_eq!(fs::metadata(mount.path(path)).unwrap().len(), contents.len() as u64, "{path}");
}

#[test]
fn what_changed_elsewhere_shows_as_it_was_until_it_is_refreshed() {
    let world = World::bounded(150 * SECOND);
    let server = world.server();
    let writer = world.mount(&server, "writer", "auto");
    fs::create_dir_all(writer.path("tools/bin")).unwrap();
    let [old, new, newest] = [(1, 200_000), (2, 150_000), (3, 90_000)].map(|(n, l)| noise(n, l));
    fs::write(writer.path("tools/bin/cc"), &old).unwrap();
    fs::write(writer.path("tools/notes"), &old).unwrap();
    writer.wait();
    let mut reader = slow_reader(&world, &server);
    for path in ["tools/bin/cc", "tools/notes"] {
        assert_shows(&reader, path, &old);
    }
    assert_eq!(fact(&reader, "tools/bin/cc", "user.farfs.policy"), "strict");
    run(&mut of_path("policy", &reader, "tools", &["manual"])).succeeds();
    assert_eq!(fact(&reader, "tools/bin/cc", "user.farfs.policy"), "manual");
    let said = run(&mut of_path("policy", &reader, "tools/bin", &[])).succeeds();
    assert!(said.contains("tools/bin: manual"), "{said}");
    run(&mut of_path("policy", &reader, "tools", &["bounded"])).fails_with(2);

    fs::write(writer.path("tools/notes"), &new).unwrap();
    // As those who install programs do it.
    fs::write(writer.path("tools/bin/cc.new"), &new).unwrap();
    fs::rename(writer.path("tools/bin/cc.new"), writer.path("tools/bin/cc")).unwrap();
    writer.wait();
    eventually(SOON, "it is known that both changed", || stale(&reader).len() == 2);
    for path in ["tools/bin/cc", "tools/notes"] {
        assert_shows(&reader, path, &old);
    }
    let explained = run(&mut of_path("explain", &reader, "tools/notes", &[])).succeeds();
    assert!(explained.contains("policy: manual") && explained.contains("changed elsewhere"));

    // It lasts over a new mount, which has nothing of it in the kernel.
    reader.unmount(&[]);
    reader.again();
    assert_eq!(stale(&reader), ["tools/bin/cc", "tools/notes"]);
    for path in ["tools/bin/cc", "tools/notes"] {
        assert_shows(&reader, path, &old);
    }
    run(&mut of_path("refresh", &reader, "tools", &[])).succeeds();
    assert_eq!(stale(&reader), ["tools/bin/cc"]);
    assert_shows(&reader, "tools/notes", &new);
    run(&mut of_path("refresh", &reader, "tools", &["--recursive"])).succeeds();
    assert_shows(&reader, "tools/bin/cc", &new);

    // What is taken back shows what is current at once.
    fs::write(writer.path("tools/notes"), &newest).unwrap();
    writer.wait();
    eventually(SOON, "it is known that it changed", || stale(&reader).len() == 1);
    assert_shows(&reader, "tools/notes", &new);
    assert_eq!(told(&reader, "policy", &["--list"]).len(), 1);
    run(&mut of_path("policy", &reader, "tools", &["inherit"])).succeeds();
    assert_eq!(told(&reader, "policy", &["--list"]).len(), 0);
    eventually(SOON, "it is current", || stale(&reader).is_empty());
    assert_shows(&reader, "tools/notes", &newest);
}

#[test]
fn what_is_bounded_is_refreshed_by_itself_and_a_reader_goes_on_with_what_he_opened() {
    let world = World::bounded(150 * SECOND);
    let server = world.server();
    let writer = world.mount(&server, "writer", "auto");
    let (old, new) = (noise(1, 200_000), noise(2, 150_000));
    fs::write(writer.path("table"), &old).unwrap();
    writer.wait();
    let reader = slow_reader(&world, &server);
    assert_shows(&reader, "table", &old);
    run(&mut of_path("policy", &reader, "table", &["bounded", "600"])).succeeds();
    let open = fs::File::open(reader.path("table")).unwrap();
    // Nothing is fetched in the background for now.
    run(&mut reader.farfs("pause", &[])).succeeds();
    fs::write(writer.path("table"), &new).unwrap();
    writer.wait();
    eventually(SOON, "it is known that it changed", || stale(&reader).len() == 1);
    assert_shows(&reader, "table", &old);
    run(&mut reader.farfs("resume", &[])).succeeds();
    eventually(SOON, "it is brought by itself", || stale(&reader).is_empty());
    let mut all = vec![0; old.len()];
    std::os::unix::fs::FileExt::read_exact_at(&open, &mut all, 0).unwrap();
    assert!(all == old, "who has it open goes on with it");
    drop(open);
    assert_shows(&reader, "table", &new);
}

#[test]
fn what_is_written_over_an_old_version_is_kept_beside_the_current_one() {
    let world = World::bounded(150 * SECOND);
    let server = world.server();
    let writer = world.mount(&server, "writer", "auto");
    let (old, theirs, mine) = (noise(1, 50_000), noise(2, 40_000), noise(3, 30_000));
    fs::write(writer.path("table"), &old).unwrap();
    writer.wait();
    let reader = slow_reader(&world, &server);
    assert_shows(&reader, "table", &old);
    run(&mut of_path("policy", &reader, "", &["manual"])).succeeds();
    fs::write(writer.path("table"), &theirs).unwrap();
    writer.wait();
    eventually(SOON, "it is known that it changed", || stale(&reader).len() == 1);
    fs::write(reader.path("table"), &mine).unwrap();
    assert_shows(&reader, "table", &mine);
    reader.wait();
    assert!(stale(&reader).is_empty());
    assert_shows(&reader, "table", &theirs);
    let listed: Vec<_> = fs::read_dir(&reader.mountpoint).unwrap().collect();
    let other = listed.iter().map(|entry| entry.as_ref().unwrap().path());
    let other = other.into_iter().find(|path| path.to_string_lossy().contains("conflict"));
    assert!(fs::read(other.unwrap()).unwrap() == mine);
}

#[test]
fn what_would_take_long_is_not_fetched_unasked_and_opens_when_it_is_here_or_allowed() {
    let world = World::bounded(150 * SECOND);
    let server = world.server();
    let writer = world.mount(&server, "writer", "auto");
    let (film, clip, note) = (noise(1, 1_000_000), noise(2, 800_000), noise(3, 3_000));
    fs::write(writer.path("film"), &film).unwrap();
    fs::write(writer.path("clip"), &clip).unwrap();
    fs::write(writer.path("note"), &note).unwrap();
    fs::write(writer.path("first"), noise(4, 300_000)).unwrap();
    writer.wait();
    let mut reader = slow_reader(&world, &server);
    // By this the link is measured.
    fs::read(reader.path("first")).unwrap();
    run(&mut of_path("policy", &reader, "", &["--ask-above", "5"])).succeeds();
    let said = run(&mut of_path("policy", &reader, "film", &[])).succeeds();
    assert!(said.contains("asks before it fetches for more than 5 s"), "{said}");
    for path in ["film", "clip"] {
        let refused = run(Command::new("cat").arg(reader.path(path)));
        assert_eq!(refused.code, Some(1));
        let opened = fs::File::open(reader.path(path)).unwrap_err();
        assert_eq!(opened.raw_os_error(), Some(rustix::io::Errno::HOSTUNREACH.raw_os_error()));
    }
    assert_shows(&reader, "note", &note);
    assert_shows(&reader, "first", &noise(4, 300_000));

    // It lasts over a new mount, as the policy does.
    reader.unmount(&[]);
    reader.again();
    let misses = told(&reader, "misses", &[]);
    assert_eq!(misses.len(), 2, "{misses:?}");
    let missed = misses.iter().find(|miss| miss["path"] == "film").unwrap();
    assert_eq!((&missed["size"], &missed["times"]), (&1_000_000.into(), &2.into()));
    assert!(missed["asks_secs"].as_u64() > Some(5), "{missed}");
    let programs: Vec<_> = misses.iter().map(|miss| miss["program"].as_str().unwrap()).collect();
    assert!(programs.iter().all(|program| program.starts_with("policies")), "{programs:?}");

    run(&mut of_path("misses", &reader, "film", &["--fetch"])).succeeds();
    let coming = |path| told(&reader, "misses", &[]).iter().any(|miss| miss["path"] == path);
    eventually(SOON, "what was asked for is here", || !coming("film"));
    assert_shows(&reader, "film", &film);
    run(&mut of_path("misses", &reader, "clip", &["--allow"])).succeeds();
    assert_shows(&reader, "clip", &clip);
    assert_eq!(told(&reader, "misses", &[]).len(), 0);
    run(&mut of_path("policy", &reader, "", &["--ask-above", "inherit"])).succeeds();
    assert_eq!(told(&reader, "policy", &["--list"]).len(), 0);
}

/// The round trip is that of a house, where more is expected of a link of which little was asked.
#[test]
fn what_would_take_long_by_the_users_own_limit_is_not_fetched_unasked_either() {
    let world = World::bounded(120 * SECOND);
    let server = world.server();
    let writer = world.mount(&server, "writer", "partial");
    fs::write(writer.path("film"), noise(1, 1_000_000)).unwrap();
    fs::write(writer.path("note"), noise(2, 3_000)).unwrap();
    writer.wait();
    let reader = world.mount(&server, "reader", "auto");
    run(&mut reader.farfs("limit", &["--up", "20K", "--down", "20K"])).succeeds();
    run(&mut of_path("policy", &reader, "", &["--ask-above", "5"])).succeeds();
    let opened = fs::File::open(reader.path("film")).unwrap_err();
    assert_eq!(opened.raw_os_error(), Some(rustix::io::Errno::HOSTUNREACH.raw_os_error()));
    assert_eq!(told(&reader, "misses", &[]).len(), 1);
    assert_shows(&reader, "note", &noise(2, 3_000));
    // Nor does it wait for each change any more.
    eventually(SOON, "it is taken for a slow link", || {
        run(&mut reader.farfs("mode", &[])).succeeds().starts_with("partial")
    });
    run(&mut reader.farfs("limit", &["--up", "none", "--down", "none"])).succeeds();
    assert_shows(&reader, "film", &noise(1, 1_000_000));
}
