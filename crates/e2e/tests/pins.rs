//! What is pinned as its user sees it: over a slow link, and without one.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests of real mounts open files and start processes"
)]

use e2e::contents::noise;
use e2e::mount::Wanted;
use e2e::world::farfs;
use e2e::{Lane, Mount, World, eventually, run};
use serde_json::Value;
use std::fs;
use std::process::Command;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_secs(60);
const BITS_A_SECOND: u64 = 800_000;

fn pins(mount: &Mount) -> Value {
    let text = run(&mut mount.farfs("pins", &["--json"])).succeeds();
    serde_json::from_str(&text).unwrap()
}

fn of_path(command: &str, mount: &Mount, path: &str, more: &[&str]) -> Command {
    let mut command = farfs(&[command]);
    command.arg(mount.path(path)).args(more);
    command
}

#[test]
fn a_pinned_tree_is_listed_and_read_without_a_link() {
    let world = World::bounded(150 * SECOND);
    let server = world.server();
    let writer = world.mount(&server, "writer", "auto");
    fs::create_dir_all(writer.path("thesis/figures")).unwrap();
    fs::write(writer.path("thesis/text"), noise(1, 300_000)).unwrap();
    fs::write(writer.path("thesis/figures/one"), noise(2, 40_000)).unwrap();
    std::os::unix::fs::symlink("figures/one", writer.path("thesis/link")).unwrap();
    writer.wait();

    let slow = Some(Lane::new(BITS_A_SECOND, Duration::from_millis(50)));
    let wanted = Wanted { mode: "partial", up: slow, down: slow, ..Wanted::default() };
    let mut reader = world.mount_with(&server, "reader", wanted);
    run(&mut of_path("pin", &reader, "thesis", &["--recursive"])).succeeds();
    let lacking = run(&mut reader.farfs("pins", &["--missing"]));
    assert_eq!(lacking.code, Some(9), "it takes seconds: {}", lacking.out);
    let all_here = || {
        let told = pins(&reader);
        told["pins"][0]["files"] == 3 && told["lacking_bytes"] == 0 && told["unknown"] == 0
    };
    eventually(SOON, "what is pinned is here", all_here);

    // Somebody adds to it, and changes it.
    fs::write(writer.path("thesis/figures/two"), noise(3, 50_000)).unwrap();
    fs::write(writer.path("thesis/text"), noise(4, 120_000)).unwrap();
    writer.wait();
    let all_new = || {
        let told = pins(&reader);
        told["pins"][0]["files"] == 4 && told["bytes"] == 210_000 && told["lacking_bytes"] == 0
    };
    eventually(SOON, "what was added is here, too", all_new);
    let text = run(&mut reader.farfs("pins", &["--missing"])).succeeds();
    assert!(text.contains("thesis, and all below: 4 files") && text.contains("all here"), "{text}");

    reader.set_mode("disconnected");
    // Its kernel has nothing of it.
    reader.unmount(&[]);
    reader.mount_as("disconnected");
    reader.again();
    let listed = run(Command::new("ls").arg("-lR").arg(reader.path("thesis"))).succeeds();
    assert!(listed.contains("link -> figures/one") && listed.contains("two"), "{listed}");
    assert_eq!(fs::read(reader.path("thesis/text")).unwrap(), noise(4, 120_000));
    assert_eq!(fs::read(reader.path("thesis/link")).unwrap(), noise(2, 40_000));
    assert_eq!(fs::read(reader.path("thesis/figures/two")).unwrap(), noise(3, 50_000));
    assert_eq!(pins(&reader)["pins"][0]["path"], "thesis", "it holds over a new mount");

    run(&mut of_path("unpin", &reader, "thesis", &[])).succeeds();
    run(&mut of_path("unpin", &reader, "thesis", &[])).fails_with(7);
    assert_eq!(pins(&reader)["pins"].as_array().unwrap().len(), 0);
}

#[test]
fn what_was_missed_without_a_link_is_listed_and_fetched_when_there_is_one() {
    let world = World::bounded(100 * SECOND);
    let server = world.server();
    let writer = world.mount(&server, "writer", "auto");
    fs::write(writer.path("report"), noise(5, 60_000)).unwrap();
    fs::write(writer.path("other"), noise(6, 1_000)).unwrap();
    writer.wait();
    let mut reader = world.mount(&server, "reader", "partial");
    run(Command::new("ls").arg("-l").arg(&reader.mountpoint)).succeeds();
    reader.set_mode("disconnected");
    for _ in 0..2 {
        let missed = fs::read(reader.path("report")).unwrap_err();
        assert_eq!(missed.raw_os_error(), Some(rustix::io::Errno::HOSTUNREACH.raw_os_error()));
    }
    fs::read(reader.path("other")).unwrap_err();
    let misses = |reader: &Mount| -> Value {
        let text = run(&mut reader.farfs("misses", &["--json"])).succeeds();
        serde_json::from_str(&text).unwrap()
    };
    let told = misses(&reader);
    assert_eq!(told.as_array().unwrap().len(), 2, "{told}");
    let report = told.as_array().unwrap().iter().find(|miss| miss["path"] == "report").unwrap();
    assert_eq!((&report["size"], &report["lacking_bytes"]), (&60_000.into(), &60_000.into()));
    assert!(report["times"].as_u64() >= Some(2), "{report}");
    assert_eq!(reader.status()["misses"], 2);

    run(&mut of_path("misses", &reader, "other", &["--forget"])).succeeds();
    run(&mut of_path("misses", &reader, "other", &["--forget"])).fails_with(7);
    run(&mut reader.farfs("misses", &["--fetch"])).succeeds();
    assert_eq!(
        (&misses(&reader)[0]["coming"], &reader.status()["misses"]),
        (&true.into(), &0.into())
    );
    reader.set_mode("partial");
    let cached = |path: &str| {
        let text = run(&mut of_path("explain", &reader, path, &["--json"])).succeeds();
        serde_json::from_str::<Value>(&text).unwrap()["bytes_here"].as_u64().unwrap()
    };
    eventually(SOON, "what was missed is fetched", || cached("report") == 60_000);
    eventually(SOON, "it is missed no more", || misses(&reader).as_array().unwrap().is_empty());
    assert_eq!(cached("other"), 0, "that was forgotten");
}

#[test]
fn a_pin_and_a_policy_hold_for_what_is_saved_by_rename() {
    let world = World::bounded(100 * SECOND);
    let server = world.server();
    let writer = world.mount(&server, "writer", "auto");
    fs::create_dir(writer.path("notes")).unwrap();
    fs::write(writer.path("notes/day"), noise(1, 30_000)).unwrap();
    writer.wait();
    let reader = world.mount(&server, "reader", "partial");
    run(&mut of_path("pin", &reader, "notes/day", &[])).succeeds();
    run(&mut of_path("policy", &reader, "notes/day", &["manual"])).succeeds();
    let is_here = |bytes: u64| {
        let told = pins(&reader);
        let is_named = told["pins"][0]["path"] == "notes/day";
        is_named && told["bytes"] == bytes && told["lacking_bytes"] == 0 && told["unknown"] == 0
    };
    eventually(SOON, "it is here", || is_here(30_000));

    let save = |mount: &Mount, number: u64, length: usize| {
        fs::write(mount.path("notes/.day.new"), noise(number, length)).unwrap();
        fs::rename(mount.path("notes/.day.new"), mount.path("notes/day")).unwrap();
        mount.wait();
    };
    save(&reader, 2, 20_000);
    eventually(SOON, "what was saved here is pinned", || is_here(20_000));
    save(&writer, 3, 10_000);
    let stale = || run(&mut reader.farfs("policy", &["--stale"])).succeeds();
    eventually(SOON, "by its policy it shows as it was", || stale().contains("notes/day"));
    assert_eq!(fs::read(reader.path("notes/day")).unwrap(), noise(2, 20_000));
    run(&mut of_path("refresh", &reader, "notes/day", &[])).succeeds();
    eventually(SOON, "what was saved elsewhere is pinned", || is_here(10_000));
    assert_eq!(fs::read(reader.path("notes/day")).unwrap(), noise(3, 10_000));
    let policy = run(&mut of_path("policy", &reader, "notes/day", &[])).succeeds();
    assert!(policy.contains("manual"), "{policy}");

    fs::remove_file(reader.path("notes/day")).unwrap();
    let told = run(&mut reader.farfs("pins", &["--missing"])).succeeds();
    assert!(told.contains("notes/day: removed"), "{told}");
    let told = run(&mut reader.farfs("policy", &["--list"])).succeeds();
    assert!(told.contains("notes/day: manual; removed"), "{told}");
    run(&mut of_path("unpin", &reader, "notes/other", &[])).fails_with(7);
    run(&mut of_path("unpin", &reader, "notes/day", &[])).succeeds();
    run(&mut of_path("policy", &reader, "notes/day", &["inherit"])).succeeds();
    assert_eq!(pins(&reader)["pins"].as_array().unwrap().len(), 0);
    let told = run(&mut reader.farfs("policy", &["--list"])).succeeds();
    assert!(told.contains("no policies"), "{told}");
}
