//! Disks that another program has filled to the last byte: what is on them starts all the same, and
//! what needs no room, or makes some, works.

use crate::full::{disk, fill};
use e2e::contents::{noise, write_and_sync};
use e2e::disk::Disk;
use e2e::{Mount, World, eventually, run};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const FILES: u64 = 5;
const FILE_BYTES: usize = 4_000_000;

/// One disk that keeps some of its room from others than root, and writes by a journal, and one that
/// does neither.
fn disks(world: &World, name: &str) -> Vec<(String, PathBuf)> {
    let [ext4, tmpfs] = ["ext4", "tmpfs"].map(|kind| format!("{name}-{kind}"));
    let on_ext4 = Disk::new(world, &ext4, 64 << 20).place;
    let on_tmpfs = disk(world, &tmpfs, "48m");
    vec![(ext4, on_ext4), (tmpfs, on_tmpfs)]
}

fn write_all(mount: &Mount) {
    for number in 0..FILES {
        write_and_sync(&mount.path(format!("file-{number}")), &noise(number, FILE_BYTES)).unwrap();
    }
}

fn is_there(mount: &Mount, number: u64) -> bool {
    let read = fs::read(mount.path(format!("file-{number}")));
    read.is_ok_and(|read| read == noise(number, FILE_BYTES))
}

/// Who comes first may find the disk full, and has room made.
fn lists(mount: &Mount, files: u64) {
    let names = || fs::read_dir(&mount.mountpoint)?.collect::<std::io::Result<Vec<_>>>();
    eventually(30 * SECOND, "the files are listed", || {
        names().is_ok_and(|names| names.len() as u64 == files)
    });
}

fn reads(mount: &Mount, first: u64) {
    eventually(30 * SECOND, "the files are read", || {
        (first..FILES).all(|number| is_there(mount, number))
    });
}

/// Of the files `first` and those behind it are there; then it goes.
fn goes_on(mount: &Mount, first: u64) {
    lists(mount, FILES - first);
    reads(mount, first);
    fs::remove_file(mount.path(format!("file-{first}"))).unwrap();
    lists(mount, FILES - first - 1);
}

#[test]
fn a_server_starts_where_there_is_none_and_lists_reads_and_removes() {
    let world = World::bounded(Duration::from_secs(240));
    for (name, place) in disks(&world, "server") {
        let mut server = world.server_at(&place.join("data"), &name);
        let mount = world.mount(&server, &format!("{name}.mount"), "connected");
        write_all(&mount);
        mount.wait();
        for (round, is_killed) in [true, false].into_iter().enumerate() {
            eventually(30 * SECOND, "room is kept aside", || server.data.join("reserve").exists());
            if is_killed {
                server.kill();
            } else {
                assert_eq!(server.stop(), Some(0));
            }
            fill(&place);
            server.restart();
            let data = server.data.to_str().unwrap();
            run(&mut world.farfs(&["check", "--data", data])).succeeds();
            goes_on(&mount, round as u64);
        }
        // Without a server, too.
        server.stop();
        fill(&place);
        let data = server.data.to_str().unwrap();
        let listed = run(&mut world.farfs(&["volume", "list", "--data", data])).succeeds();
        assert!(listed.contains("main"), "{listed}");
        fs::remove_file(place.join("rest")).unwrap();
        server.restart();
        eventually(30 * SECOND, "there is room again", || {
            write_and_sync(&mount.path("later"), &noise(99, FILE_BYTES)).is_ok()
        });
    }
}

#[test]
fn a_server_that_cannot_write_down_its_new_address_says_so_and_serves() {
    let world = World::new();
    let place = disk(&world, "small", "48m");
    let mut server = world.server_at(&place.join("data"), "origin");
    let mount = world.mount(&server, "mount", "connected");
    write_all(&mount);
    server.stop();
    fill(&place);
    server.options = vec!["--advertise".into(), "elsewhere.example.org:7440".into()];
    let line = server.try_restart().unwrap();
    assert!(line.starts_with("elsewhere.example.org:7440 "), "{line}");
    let said = server.said();
    assert!(said.contains(&format!("show the address {}", server.address)), "{said}");
    reads(&mount, 0);
}

#[test]
fn a_mount_comes_up_where_there_is_none_and_lists_reads_and_removes() {
    let world = World::bounded(Duration::from_secs(240));
    let server = world.server();
    for (kind, is_killed) in [("tmpfs", true), ("ext4", true), ("tmpfs", false), ("ext4", false)] {
        let name = format!("{kind}-{is_killed}");
        let state = format!("{name}.state");
        let place = match kind {
            "ext4" => Disk::new(&world, &state, 64 << 20).place,
            _ => disk(&world, &state, "48m"),
        };
        let mut mount = world.mount(&server, &name, "partial");
        write_all(&mount);
        mount.wait();
        lists(&mount, FILES);
        if is_killed {
            mount.kill();
        } else {
            mount.unmount(&[]);
        }
        fill(&place);
        mount.again();
        lists(&mount, FILES);
        // Of a disk that keeps room from others more has left the cache, for what listing takes.
        let reads = || (0..FILES).any(|number| is_there(&mount, number));
        eventually(30 * SECOND, "files are read", || kind == "ext4" || reads());
        fs::remove_file(mount.path("file-0")).unwrap();
        lists(&mount, FILES - 1);
        mount.wait();
        eventually(30 * SECOND, "room is kept aside", || mount.state.join("reserve").exists());
        // Another program takes what has left the cache, too.
        mount.unmount(&[]);
        fill(&place);
        mount.again();
        lists(&mount, FILES - 1);
        for number in 1..FILES {
            fs::remove_file(mount.path(format!("file-{number}"))).unwrap();
        }
        mount.wait();
        fs::remove_file(place.join("rest")).unwrap();
        eventually(30 * SECOND, "there is room again", || {
            write_and_sync(&mount.path("later"), &noise(99, FILE_BYTES)).is_ok()
        });
        fs::remove_file(mount.path("later")).unwrap();
        mount.wait();
    }
}
