//! A server's data that cannot be written to is checked as it is: what is wrong with it is found, and not
//! a byte of it changes.

use super::says;
use e2e::contents::noise;
use e2e::world::farfs;
use e2e::{Ran, Server, World, run};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const FILES: u64 = 30;
/// Not root.
const USER: u32 = 1000;
const ONLY_LOOKED: &str = "it was only looked at, and nothing was mended or noted";

/// A server's data, whose last changes may be in its log alone.
fn furnished(world: &World, end: fn(&mut Server)) -> PathBuf {
    let mut server = world.server();
    let mut mount = world.mount(&server, "mount", "connected");
    for number in 0..FILES {
        fs::write(mount.path(format!("file {number}")), noise(number, 20_000)).unwrap();
    }
    end(&mut server);
    mount.unmount(&["--wait", "0s"]);
    server.data.clone()
}

fn stopped(server: &mut Server) {
    assert_eq!(server.stop(), Some(0));
}

/// The same directory, where it cannot be written to. It goes with the world.
fn only_read(world: &World, data: &Path, name: &str) -> PathBuf {
    let place = world.folder(name);
    run(Command::new("mount").arg("--bind").args([data, &place])).succeeds();
    run(Command::new("mount").args(["-o", "remount,ro,bind"]).arg(&place)).succeeds();
    let refused = fs::write(place.join("new"), "").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    place
}

fn copied(world: &World, data: &Path, name: &str) -> PathBuf {
    let copy = world.path(name);
    let _ = fs::remove_dir_all(&copy);
    run(Command::new("cp").args(["-a", "--sparse=always"]).args([data, &copy])).succeeds();
    copy
}

/// Of everything below a directory: when it was changed, and what is in it.
fn all_of(directory: &Path) -> BTreeMap<PathBuf, (i64, i64, Vec<u8>)> {
    let mut found = BTreeMap::new();
    for path in e2e::contents::tree(directory).into_keys() {
        let seen = fs::symlink_metadata(directory.join(&path)).unwrap();
        let bytes = if seen.is_file() { fs::read(directory.join(&path)).unwrap() } else { vec![] };
        found.insert(path, (seen.mtime(), seen.mtime_nsec(), bytes));
    }
    found
}

fn check(data: &Path) -> Ran {
    run(&mut farfs(&["check", "--data", &data.display().to_string()]))
}

/// What a check says of data that it may write to, and of the same where it may not, which it leaves as
/// it is.
#[track_caller]
fn checked_alike(world: &World, data: &Path, case: &str) -> Ran {
    let written = check(&copied(world, data, "written"));
    let place = only_read(world, data, &format!("read {case}"));
    let before = all_of(data);
    let looked = check(&place);
    assert!(all_of(data) == before, "{case}: something has changed");
    assert!(looked.code == written.code, "{case}: {looked:#?} {written:#?}");
    let is_found = |line: &&str| {
        !["missing: devices", "; not mended", ONLY_LOOKED].iter().any(|said| line.contains(said))
    };
    let in_place = |said: &str, at: &Path| said.replace(&at.display().to_string(), "DATA");
    let found = |said: String| -> Vec<String> {
        let lines = said.lines().filter(is_found);
        lines.map(|line| line.replace(", and it counts as missing from now on", "")).collect()
    };
    let wanted = found(in_place(&written.out, &world.path("written")));
    assert_eq!(found(in_place(&looked.out, &place)), wanted, "{case}: {}", looked.err);
    if !wanted.is_empty() {
        let told = looked.out.lines().filter(|line| line.contains(ONLY_LOOKED));
        assert_eq!(told.count(), 1, "{case}: {}", looked.out);
    }
    looked
}

#[test]
fn data_that_cannot_be_written_to_is_checked_and_stays_as_it_is() {
    for end in [stopped, Server::kill] {
        let world = World::bounded(Duration::from_secs(120));
        let data = furnished(&world, end);
        let said = checked_alike(&world, &data, "whole").succeeds();
        assert!(said.contains("Read-only file system"), "{said}");
        assert!(said.contains("looked at 1 volume, "), "{said}");
        fs::remove_file(data.join("chunks/index.redb")).unwrap();
        checked_alike(&world, &data, "no index").succeeds();
        fs::write(data.join("chunks/lost"), "9 chunks of 99 bytes").unwrap();
        checked_alike(&world, &data, "lost").succeeds();
        fs::write(data.join("chunks/index.redb"), noise(1, 5000)).unwrap();
        let said = checked_alike(&world, &data, "index unfit").succeeds();
        assert!(said.contains("/chunks/index.redb: ") && said.contains("; not mended"), "{said}");
        fs::remove_file(data.join("lock")).unwrap();
        checked_alike(&world, &data, "no lock").succeeds();
        let shown = world.path("read whole").display().to_string();
        let repaired = run(&mut farfs(&["check", "--data", &shown, "--repair"]));
        says(repaired, 1, &[&shown, "mounted read-only", "without --repair"]);
    }
}

#[test]
fn damage_is_found_where_nothing_can_be_written() {
    let world = World::bounded(Duration::from_secs(180));
    let pristine = furnished(&world, Server::kill);
    let damaged = |name: &str, at: u64, case: &str| {
        let data = copied(&world, &pristine, &format!("data {case}"));
        let file = fs::File::options().read(true).write(true).open(data.join(name)).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
        checked_alike(&world, &data, case)
    };
    let pack = "chunks/00000001.pack";
    let said = damaged(pack, 50_000, "a blob").out;
    assert!(said.contains("/file ") && said.contains("its bytes are damaged"), "{said}");
    assert!(said.contains("devices are not asked for them"), "{said}");
    says(damaged(pack, 17, "a head"), 6, &["left"]);
    let log = fs::read_dir(pristine.join("tables.log")).unwrap().map(|entry| entry.unwrap().path());
    let log = log.filter(|path| path.extension().is_some_and(|end| end == "journal")).max();
    let log = format!("tables.log/{}", log.unwrap().file_name().unwrap().display());
    says(damaged(&log, 100, "the log"), 6, &["tables.log", "restore it from a backup"]);
    let data = copied(&world, &pristine, "data without packs");
    fs::remove_dir_all(data.join("chunks")).unwrap();
    says(checked_alike(&world, &data, "no packs"), 6, &["left"]);
}

#[test]
fn a_damaged_row_is_found_where_nothing_can_be_written() {
    let world = World::new();
    let data = furnished(&world, stopped);
    let tables = data.join("tables.redb");
    let bytes = fs::read(&tables).unwrap();
    let name = b"file 17";
    let file = fs::File::options().write(true).open(&tables).unwrap();
    let found = bytes.windows(name.len()).enumerate().filter(|(_, window)| window == name);
    found.for_each(|(at, _)| file.write_all_at(b"F", at as u64).unwrap());
    let said = checked_alike(&world, &data, "a row");
    assert!(said.out.contains("tables.redb") && said.out.contains("do not remove it"), "{said:?}");
    says(said, 6, &["left"]);
    // The beginning of the file says where all the others are.
    file.write_all_at(&noise(1, 4096), 0).unwrap();
    says(checked_alike(&world, &data, "no head"), 6, &["tables.redb", "restore it from a backup"]);
}

#[test]
fn who_may_only_read_checks_what_he_may_read() {
    for end in [stopped, Server::kill] {
        let world = World::new();
        let data = copied(&world, &furnished(&world, end), "his");
        run(Command::new("chown").arg("-R").arg(USER.to_string()).arg(&data)).succeeds();
        run(Command::new("chmod").args(["-R", "a-w"]).arg(&data)).succeeds();
        let before = all_of(&data);
        let mut command = farfs(&["check", "--data", &data.display().to_string()]);
        let said = run(command.uid(USER).gid(USER)).succeeds();
        assert!(said.contains(ONLY_LOOKED) && said.contains("Permission denied"), "{said}");
        assert!(all_of(&data) == before, "something has changed");
    }
}

#[test]
fn while_a_server_runs_it_is_asked_or_kept_from() {
    let world = World::new();
    let mut server = world.server();
    let place = only_read(&world, &server.data, "read");
    let said = check(&place).succeeds();
    assert!(!said.contains(ONLY_LOOKED) && said.contains("looked at 1 volume"), "{said}");
    let socket = server.data.join("control.sock");
    fs::rename(&socket, server.data.join("aside")).unwrap();
    says(check(&place), 5, &["is in use by another farfs process"]);
    server.kill();
    assert!(check(&place).succeeds().contains(ONLY_LOOKED));
}
