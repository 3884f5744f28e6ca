//! A cache, and a disk for it, that are smaller than the files that are read and written.

use crate::full::disk;
use e2e::contents::{checksum, noise, write_and_sync};
use e2e::mount::Wanted;
use e2e::{Mount, Server, World, eventually};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const MIB: usize = 1 << 20;

fn mounted(world: &World, server: &Server, name: &str, options: &[&str]) -> Mount {
    world.mount_with(server, name, Wanted { mode: "partial", options, ..Default::default() })
}

/// Another mount in partial mode shows what is at the server as soon as the link has told it so.
fn shows(mount: &Mount, name: &str, bytes: &[u8]) {
    let shown = || fs::read(mount.path(name)).is_ok_and(|found| found == bytes);
    eventually(5 * SECOND, "what is at the server is shown", shown);
}

fn held(mount: &Mount) -> u64 {
    mount.status()["cache"]["bytes"].as_u64().unwrap()
}

/// Reads from the beginning to the end, as `md5sum` does, and says what the cache took at most.
fn read_through(mount: &Mount, name: &str) -> (u64, u64) {
    let mut file = File::open(mount.path(name)).unwrap();
    let (mut whole, mut part, mut most) = (Vec::new(), vec![0; MIB], 0_u64);
    loop {
        let count = file.read(&mut part).unwrap();
        if count == 0 {
            return (checksum(&whole), most);
        }
        whole.extend_from_slice(&part[..count]);
        if whole.len() % (8 * MIB) < count {
            most = most.max(bytes_below(&mount.state));
        }
    }
}

/// What all files below a folder of an ordinary disk take up there.
fn bytes_below(folder: &Path) -> u64 {
    let Ok(names) = fs::read_dir(folder) else { return 0 };
    let of = |entry: std::io::Result<fs::DirEntry>| {
        let path = entry.ok()?.path();
        let metadata = fs::symlink_metadata(&path).ok()?;
        Some(if metadata.is_dir() { bytes_below(&path) } else { metadata.blocks() * 512 })
    };
    names.filter_map(of).sum()
}

#[test]
fn a_file_larger_than_the_cache_and_its_disk_is_read_and_the_cache_keeps_its_size() {
    let world = World::new();
    let server = world.server();
    let author = mounted(&world, &server, "author", &[]);
    let bytes = noise(1, 100 * MIB);
    fs::write(author.path("large"), &bytes).unwrap();
    author.wait();
    // Half of the disk would be too little for all of it; the cache is smaller still.
    disk(&world, "small.state", "80m");
    let small = mounted(&world, &server, "small", &["--cache-size", "24M"]);
    for _ in 0..2 {
        let (sum, most) = read_through(&small, "large");
        assert!(sum == checksum(&bytes));
        // The tables and the journal are there besides.
        assert!(most < 40 * MIB as u64, "{most}");
        assert!(held(&small) <= 24 * MIB as u64);
    }
    write_and_sync(&small.path("new"), &noise(2, MIB)).unwrap();
    small.wait();
    shows(&author, "new", &noise(2, MIB));
}

#[test]
fn on_a_disk_smaller_than_the_cache_may_be_what_can_be_fetched_again_makes_room() {
    let world = World::new();
    let server = world.server();
    let author = mounted(&world, &server, "author", &[]);
    let bytes = noise(1, 80 * MIB);
    fs::write(author.path("large"), &bytes).unwrap();
    author.wait();
    disk(&world, "small.state", "64m");
    let small = mounted(&world, &server, "small", &["--cache-size", "10G"]);
    let (sum, _) = read_through(&small, "large");
    assert!(sum == checksum(&bytes));
    // The file is open, and room is made for what is written beside it.
    let open = File::open(small.path("large")).unwrap();
    write_and_sync(&small.path("new"), &noise(2, 20 * MIB)).unwrap();
    let mut part = vec![0; 1000];
    open.read_exact_at(&mut part, 5000).unwrap();
    assert!(part == bytes[5000..6000]);
    small.wait();
    shows(&author, "new", &noise(2, 20 * MIB));
}

#[test]
fn on_a_disk_that_is_full_of_what_is_pending_what_is_not_here_is_read() {
    let world = World::new();
    let server = world.server();
    let author = mounted(&world, &server, "author", &[]);
    fs::write(author.path("large"), noise(1, 30 * MIB)).unwrap();
    fs::write(author.path("other"), noise(2, MIB)).unwrap();
    author.wait();
    disk(&world, "small.state", "64m");
    let mut small = mounted(&world, &server, "small", &[]);
    small.set_mode("fetch-only");
    let pending = |number: u64| noise(10 + number, MIB);
    let path = |number: u64| small.path(format!("pending-{number}"));
    let written =
        (0..80).take_while(|number| write_and_sync(&path(*number), &pending(*number)).is_ok());
    let written = written.count() as u64;
    assert!((10..64).contains(&written), "{written}");
    // It makes way for itself, again and again, and for what else is read.
    for _ in 0..2 {
        assert!(fs::read(small.path("other")).unwrap() == noise(2, MIB));
        let (sum, _) = read_through(&small, "large");
        assert!(sum == checksum(&noise(1, 30 * MIB)));
    }
    // And for what is written, once there is room: the tables and the journal have grown meanwhile.
    (0..4).for_each(|number| fs::remove_file(path(number)).unwrap());
    write_and_sync(&small.path("new"), &noise(3, MIB / 2)).unwrap();
    for number in 4..written {
        assert!(fs::read(path(number)).unwrap() == pending(number), "{number}");
    }
    small.set_mode("partial");
    small.wait();
    shows(&author, "new", &noise(3, MIB / 2));
    shows(&author, "pending-4", &pending(4));
}

#[test]
fn a_disk_that_another_program_has_filled_gets_room_from_the_cache() {
    let world = World::new();
    let server = world.server();
    let author = mounted(&world, &server, "author", &[]);
    fs::write(author.path("cached"), noise(1, 20 * MIB)).unwrap();
    fs::write(author.path("other"), b"other").unwrap();
    author.wait();
    let disk = disk(&world, "small.state", "60m");
    let small = mounted(&world, &server, "small", &["--cache-size", "10G"]);
    assert!(fs::read(small.path("cached")).unwrap() == noise(1, 20 * MIB));
    let filler = disk.join("filler");
    assert!(fs::write(&filler, vec![1; 70 * MIB]).is_err(), "to the last byte");
    // What comes first may find it full; then there is room.
    eventually(20 * SECOND, "room is made", || fs::read(small.path("other")).is_ok());
    write_and_sync(&small.path("new"), b"new").unwrap();
    fs::remove_file(small.path("cached")).unwrap();
    small.wait();
    shows(&author, "new", b"new");
    eventually(5 * SECOND, "the other is gone", || !author.path("cached").exists());
    assert!(filler.exists());
}

#[test]
fn a_file_larger_than_the_cache_is_written_and_leaves_it_when_it_is_at_the_server() {
    let world = World::new();
    let server = world.server();
    let mount = mounted(&world, &server, "mount", &["--cache-size", "16M"]);
    let bytes = noise(1, 60 * MIB);
    fs::write(mount.path("large"), &bytes).unwrap();
    mount.wait();
    eventually(5 * SECOND, "the cache is as small as was asked", || {
        held(&mount) <= 16 * MIB as u64
    });
    // With the tables, the journal, and what is kept aside; the disk gives blocks back a little later.
    eventually(5 * SECOND, "and so is what it takes of the disk", || {
        bytes_below(&mount.state) < 33 * MIB as u64
    });
    let (sum, _) = read_through(&mount, "large");
    assert!(sum == checksum(&bytes));
}

#[test]
fn a_sparse_file_takes_of_the_cache_what_it_holds_and_drives_nobody_out() {
    let world = World::new();
    let server = world.server();
    let author = mounted(&world, &server, "author", &[]);
    let sparse = File::create(author.path("sparse")).unwrap();
    sparse.set_len(64 * MIB as u64).unwrap();
    sparse.write_all_at(b"1", 10 * MIB as u64).unwrap();
    drop(sparse);
    write_and_sync(&author.path("file"), &noise(1, MIB)).unwrap();
    author.wait();
    let mut small = mounted(&world, &server, "small", &["--cache-size", "8M"]);
    assert!(fs::read(small.path("file")).unwrap() == noise(1, MIB));
    let whole = fs::read(small.path("sparse")).unwrap();
    assert!(whole.len() == 64 * MIB && whole.iter().filter(|byte| **byte != 0).count() == 1);
    // Longer than a look at the cache takes to come.
    eventually(10 * SECOND, "the cache was looked at", || held(&small) >= MIB as u64);
    assert!(held(&small) < 2 * MIB as u64);
    small.set_mode("disconnected");
    assert!(fs::read(small.path("file")).unwrap() == noise(1, MIB));
}
