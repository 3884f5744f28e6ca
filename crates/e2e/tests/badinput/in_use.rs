//! What another program does to the files of a mount or of a server while they are in use.

use e2e::contents::{noise, write_and_sync};
use e2e::world::farfs;
use e2e::{World, eventually, run};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

const BOUND: Duration = Duration::from_secs(60);

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

#[test]
fn a_mounts_tables_that_are_removed_in_use_are_written_anew_and_it_is_said() {
    let world = World::new();
    let server = world.server();
    let mut mount = world.mount(&server, "mount", "partial");
    assert_eq!(fs::read_dir(&mount.mountpoint).unwrap().count(), 0);
    mount.set_mode("disconnected");
    write_and_sync(&mount.path("before"), &noise(1, 10_000)).unwrap();
    fs::remove_file(mount.state.join("tables.redb")).unwrap();
    write_and_sync(&mount.path("behind"), &noise(2, 10_000)).unwrap();
    eventually(BOUND, "the tables are there again", || mount.state.join("tables.redb").exists());
    assert_eq!(mount.status()["tables_put_anew"], 1);
    let shown = run(&mut mount.farfs("status", &[])).succeeds();
    assert!(shown.contains("was written anew 1 time, and nothing is lost"), "{shown}");
    mount.kill();
    mount.again();
    for (number, name) in [(1, "before"), (2, "behind")] {
        assert!(fs::read(mount.path(name)).unwrap() == noise(number, 10_000), "{name}");
    }
    mount.set_mode("partial");
    mount.wait();
}

/// All files below it.
fn remove_files(folder: &Path) {
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() { remove_files(&path) } else { fs::remove_file(path).unwrap() }
    }
}

#[test]
fn what_a_mounts_cache_has_of_a_file_that_is_written_to_is_written_anew_before_a_sync_returns() {
    let harms: [Harm; 2] = [remove_files, |cache| fs::remove_dir_all(cache).unwrap()];
    for harm in harms {
        let world = World::new();
        let server = world.server();
        let mut mount = world.mount(&server, "mount", "partial");
        assert_eq!(fs::read_dir(&mount.mountpoint).unwrap().count(), 0);
        mount.set_mode("disconnected");
        let mut open = fs::File::create(mount.path("synced")).unwrap();
        let mut closed = fs::File::create(mount.path("closed")).unwrap();
        for (part, file) in [(1, &mut open), (2, &mut closed)] {
            file.write_all(&noise(part, 100_000)).unwrap();
            file.sync_all().unwrap();
        }
        for part in 3..5 {
            harm(&mount.state.join("cache"));
            open.write_all(&noise(part, 100_000)).unwrap();
            open.sync_all().unwrap();
        }
        closed.write_all(&noise(5, 100_000)).unwrap();
        drop(closed);
        assert!(mount.said().contains("they are written anew"), "{}", mount.said());
        mount.kill();
        drop(open);
        mount.again();
        for (name, parts) in [("synced", &[1, 3, 4][..]), ("closed", &[2, 5])] {
            let wanted: Vec<_> = parts.iter().flat_map(|part| noise(*part, 100_000)).collect();
            assert!(fs::read(mount.path(name)).unwrap() == wanted, "{name}");
        }
        mount.set_mode("partial");
        mount.wait();
    }
}

type Harm = fn(&Path);

const MENDED: [(&str, Harm); 6] = [
    ("its tables are removed", |data| fs::remove_file(data.join("tables.redb")).unwrap()),
    ("an older state of its tables takes their place", |data| {
        fs::rename(data.join("older"), data.join("tables.redb")).unwrap();
    }),
    ("its packs are removed", |data| {
        let entries = fs::read_dir(data.join("chunks")).unwrap();
        let files = entries.map(|entry| entry.unwrap().path());
        let packs = files.filter(|path| path.extension().is_some_and(|ending| ending == "pack"));
        packs.for_each(|pack| fs::remove_file(pack).unwrap());
    }),
    ("their index is removed", |data| fs::remove_file(data.join("chunks/index.redb")).unwrap()),
    ("all its chunks are removed", |data| fs::remove_dir_all(data.join("chunks")).unwrap()),
    ("its tables with their log and all chunks are removed", |data| {
        fs::remove_file(data.join("tables.redb")).unwrap();
        fs::remove_dir_all(data.join("tables.log")).unwrap();
        fs::remove_dir_all(data.join("chunks")).unwrap();
    }),
];

#[test]
fn what_of_a_servers_data_is_removed_in_use_is_written_anew_before_a_sync_returns() {
    for (what, harm) in MENDED {
        let world = World::new();
        let mut server = world.server();
        fs::copy(server.data.join("tables.redb"), server.data.join("older")).unwrap();
        let mut mount = world.mount(&server, "mount", "connected");
        write_and_sync(&mount.path("before"), &noise(1, 100_000)).unwrap();
        harm(&server.data);
        write_and_sync(&mount.path("behind"), &noise(2, 100_000)).unwrap();
        server.kill();
        mount.unmount(&[]);
        server.restart();
        let other = world.mount(&server, "other", "connected");
        for (number, name) in [(1, "before"), (2, "behind")] {
            let found = fs::read(other.path(name)).unwrap();
            assert!(found == noise(number, 100_000), "{what}: {name}");
        }
        let data = server.data.display().to_string();
        run(&mut farfs(&["check", "--data", &data])).succeeds();
    }
}

#[test]
fn what_of_a_servers_data_is_cut_short_in_use_is_told_and_nothing_more_is_taken() {
    const CUT: [(&str, &str); 2] =
        [("tables.redb", "while it was in use"), ("chunks/00000001.pack", "start farfs again")];
    for (file, said) in CUT {
        let world = World::new();
        let mut server = world.server();
        let mut mount = world.mount(&server, "mount", "partial");
        write_and_sync(&mount.path("before"), &noise(1, 100_000)).unwrap();
        mount.wait();
        fs::File::create(server.data.join(file)).unwrap();
        write_and_sync(&mount.path("behind"), &noise(2, 100_000)).unwrap();
        eventually(BOUND, "it is said", || server.said().contains(said));
        assert!(mount.pending() > 0, "{file}: {}", server.said());
        server.kill();
        if file == "tables.redb" {
            let said = server.try_restart().unwrap_err();
            assert!(said.contains("missing or empty"), "{said}");
            mount.kill();
            continue;
        }
        // What was pending is taken, and what is lost is taken again from who has it.
        server.restart();
        mount.wait();
        let other = world.mount(&server, "other", "connected");
        for (number, name) in [(2, "behind"), (1, "before")] {
            eventually(BOUND, "the contents are there", || {
                fs::read(other.path(name)).is_ok_and(|found| found == noise(number, 100_000))
            });
        }
        assert!(server.said().contains("contents are lost"), "{}", server.said());
    }
}
