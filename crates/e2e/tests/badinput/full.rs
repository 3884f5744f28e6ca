//! Disks that are full, at the server and here: an errno, and nothing that was acknowledged is
//! lost; with room again the work goes on.

use e2e::contents::{noise, tree, write_and_sync};
use e2e::disk::Disk;
use e2e::{Mount, Server, World, eventually, run};
use rustix::fs::FallocateFlags;
use rustix::process::{Resource, Rlimit};
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);
const FILE_BYTES: usize = 700_000;
/// Blocks of 4096 bytes: no disk of a test has as many, and the machine's own has more.
const FILLING_MAX: u64 = 1 << 17;

/// A disk of its own for a directory. It goes with the world.
pub(crate) fn disk(world: &World, name: &str, size: &str) -> PathBuf {
    let place = world.folder(name);
    let mode = format!("size={size},mode=0755");
    run(Command::new("mount").args(["-t", "tmpfs", "-o", &mode, "farfs-test"]).arg(&place))
        .succeeds();
    place
}

fn enlarge(place: &Path, size: &str) {
    let options = format!("remount,size={size}");
    run(Command::new("mount").args(["-o", &options]).arg(place)).succeeds();
}

/// Writes files until that fails, and returns how many were acknowledged.
fn write_until_full(mount: &Mount, files_max: u64) -> (u64, std::io::Error) {
    for number in 0..files_max {
        let path = mount.path(format!("file-{number}"));
        if let Err(error) = write_and_sync(&path, &noise(number, FILE_BYTES)) {
            return (number, error);
        }
    }
    panic!("{files_max} files of {FILE_BYTES} bytes fit");
}

#[track_caller]
fn all_there(mount: &Mount, files: u64) {
    for number in 0..files {
        let read = fs::read(mount.path(format!("file-{number}"))).unwrap();
        let wanted = noise(number, FILE_BYTES);
        let differs = read.iter().zip(&wanted).position(|(read, wanted)| read != wanted);
        assert!(read == wanted, "file {number}: {} bytes, from {differs:?}", read.len());
    }
}

/// To the last byte.
pub(crate) fn fill(place: &Path) {
    let mut file = fs::File::options().append(true).create(true).open(place.join("rest")).unwrap();
    let error = (0..FILLING_MAX).find_map(|number| file.write_all(&noise(number, 4096)).err());
    assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::StorageFull));
}

fn on_a_small_server(world: &World) -> (PathBuf, Server) {
    let place = disk(world, "small", "16m");
    let server = world.server_at(&place.join("data"), "origin");
    (place, server)
}

#[test]
fn a_full_disk_at_the_server_is_an_errno_in_connected_mode() {
    let world = World::new();
    let (place, server) = on_a_small_server(&world);
    let mount = world.mount(&server, "mount", "connected");
    let other = world.mount(&server, "other", "connected");
    let late = world.mount(&server, "late", "connected");
    let (acknowledged, error) = write_until_full(&mount, 40);
    assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
    assert!(acknowledged > 2, "{acknowledged}");
    all_there(&mount, acknowledged);
    all_there(&other, acknowledged);
    // Longer than any lease.
    let begun = Instant::now();
    let (mut fetched, mut refused) = (0, 0);
    while begun.elapsed() < 30 * SECOND {
        all_there(&mount, acknowledged);
        let read = fs::read(late.path(format!("file-{fetched}"))).unwrap();
        assert!(read == noise(fetched, FILE_BYTES), "file {fetched}");
        fetched = (fetched + 1) % acknowledged;
        assert!(fs::read_dir(other.path("")).unwrap().count() as u64 >= acknowledged);
        // Tidying up by itself may bring room for one.
        match write_and_sync(&mount.path("more"), &noise(98, 4 * FILE_BYTES)) {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 0, "there is no room");
    fill(&place);
    let invite = ["invite", "--data", &server.data.display().to_string()];
    let said = run(&mut world.farfs(&invite)).fails_with(1);
    assert!(said.contains("no space left"), "{said}");
    enlarge(&place, "64m");
    eventually(30 * SECOND, "there is room again", || {
        write_and_sync(&mount.path("later"), &noise(99, FILE_BYTES)).is_ok()
    });
    mount.wait();
    assert_eq!(fs::read(other.path("later")).unwrap(), noise(99, FILE_BYTES));
}

#[test]
fn a_device_comes_to_a_server_without_a_byte_left_and_can_remove_what_is_there() {
    let world = World::new();
    let (place, server) = on_a_small_server(&world);
    let mut mount = world.mount(&server, "mount", "connected");
    let (acknowledged, _) = write_until_full(&mount, 40);
    assert!(acknowledged > 2, "{acknowledged}");
    fill(&place);
    for name in ["file-0", "file-1"] {
        // It has made changes since it last attached.
        mount.unmount(&[]);
        mount.again();
        let error = write_and_sync(&mount.path("more"), &noise(98, FILE_BYTES)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
        fs::remove_file(mount.path(name)).unwrap();
        assert!(!mount.path(name).exists());
        fill(&place);
    }
}

#[test]
fn a_full_disk_at_the_server_holds_up_what_is_pending_and_loses_none_of_it() {
    let world = World::new();
    let (place, mut server) = on_a_small_server(&world);
    let mount = world.mount(&server, "mount", "partial");
    for number in 0..40 {
        fs::write(mount.path(format!("file-{number}")), noise(number, FILE_BYTES)).unwrap();
    }
    std::thread::sleep(4 * SECOND);
    assert!(mount.pending() > 0, "28 MB do not fit 16");
    all_there(&mount, 40);
    // A server that is full can be stopped and started again.
    server.stop();
    enlarge(&place, "96m");
    server.restart();
    eventually(60 * SECOND, "everything has been sent", || mount.pending() == 0);
    let other = world.mount(&server, "other", "connected");
    all_there(&other, 40);
    assert_eq!(server.conflicts(), Vec::<String>::new());
}

/// What README says to do, with all of it going on.
fn follows_the_readme(world: &World, size: &str, fills: bool) {
    let place = disk(world, &format!("disk-{size}-{fills}"), size);
    let server = world.server_at(&place.join("data"), &format!("origin-{size}-{fills}"));
    let mount = world.mount(&server, &format!("mount-{size}-{fills}"), "partial");
    // A pack has some of each: none is dead as a whole when every second file goes.
    let mut there = 0;
    while there < 200 && mount.pending() < 8 {
        fs::write(mount.path(format!("file-{there}")), noise(there, FILE_BYTES)).unwrap();
        std::thread::sleep(SECOND / 10);
        there += 1;
    }
    assert!(there < 200, "the disk is full by then");
    for number in (0..there).step_by(2) {
        fs::remove_file(mount.path(format!("file-{number}"))).unwrap();
    }
    // A removal goes within a minute, and what is left of the reserve is for tidying up.
    std::thread::sleep(5 * SECOND);
    if fills {
        fill(&place);
    }
    let data = server.data.display().to_string();
    let set = |kept| {
        let set = ["volume", "set", "--data", &data, "--retention", kept, "main"];
        run(&mut world.farfs(&set)).succeeds();
    };
    set("0");
    let gc = ["gc", "--data", &data, "--empty-trash", "--forget-sent"];
    let said = run(&mut world.farfs(&gc)).succeeds();
    assert!(said.contains("given back to the disk: "), "{said}");
    assert!(!said.contains("given back to the disk: nothing"), "{said}");
    set("30d");
    eventually(90 * SECOND, "what was pending has gone", || mount.pending() == 0);
    for number in (1..there).step_by(2) {
        let read = fs::read(mount.path(format!("file-{number}"))).unwrap();
        assert!(read == noise(number, FILE_BYTES), "file {number}");
    }
    let check = ["check", "--data", &data];
    run(&mut world.farfs(&check)).succeeds();
}

#[test]
fn a_server_whose_disk_is_full_has_room_again_when_one_does_what_the_readme_says() {
    let world = World::new();
    follows_the_readme(&world, "24m", false);
}

#[test]
fn so_has_one_whose_disk_something_else_has_filled_to_the_last_byte() {
    let world = World::new();
    follows_the_readme(&world, "32m", true);
}

#[test]
fn a_full_disk_here_is_an_errno_and_what_was_written_stays() {
    let world = World::new();
    let server = world.server();
    let place = disk(&world, "mount.state", "12m");
    let mut mount = world.mount(&server, "mount", "partial");
    // What is at the server makes room for more; what cannot be sent does not. The directory has to
    // be known before, also after a kill.
    assert_eq!(fs::read_dir(&mount.mountpoint).unwrap().count(), 0);
    mount.unmount(&[]);
    mount.again();
    mount.set_mode("disconnected");
    let (acknowledged, error) = write_until_full(&mount, 40);
    assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
    assert!(acknowledged > 2, "{acknowledged}");
    all_there(&mount, acknowledged);
    // A daemon that is killed with its disk full starts again.
    mount.kill();
    enlarge(&place, "64m");
    mount.again();
    all_there(&mount, acknowledged);
    mount.set_mode("partial");
    write_and_sync(&mount.path("later"), &noise(99, FILE_BYTES)).unwrap();
    mount.wait();
    let other = world.mount(&server, "other", "connected");
    all_there(&other, acknowledged);
    assert_eq!(tree(&mount.mountpoint), tree(&other.mountpoint));
}

#[test]
fn more_than_the_disk_here_holds_is_written_in_connected_mode() {
    let world = World::new();
    let server = world.server();
    disk(&world, "mount.state", "12m");
    let mount = world.mount(&server, "mount", "connected");
    for number in 0..40 {
        write_and_sync(&mount.path(format!("file-{number}")), &noise(number, FILE_BYTES)).unwrap();
    }
    all_there(&mount, 40);
    let other = world.mount(&server, "other", "connected");
    assert_eq!(tree(&mount.mountpoint), tree(&other.mountpoint));
}

#[test]
fn a_cache_smaller_than_the_volume_makes_room_by_itself() {
    let world = World::new();
    let server = world.server();
    let author = world.mount(&server, "author", "connected");
    for number in 0..12 {
        write_and_sync(&author.path(format!("file-{number}")), &noise(number, FILE_BYTES)).unwrap();
    }
    let options = &["--cache-size", "3M", "--answer-within", "10s"][..];
    let wanted = e2e::mount::Wanted { mode: "connected", options, ..Default::default() };
    let small = world.mount_with(&server, "small", wanted);
    all_there(&small, 12);
    eventually(60 * SECOND, "the cache is as small as was asked", || {
        small.status()["cache"]["bytes"].as_u64().unwrap() <= 3 << 20
    });
    all_there(&small, 12);
}

/// Size and what is free of the file system at a path, in bytes, as `df` has them.
fn df(path: &Path) -> (u64, u64) {
    let said = run(Command::new("df").args(["-B1", "--output=size,avail"]).arg(path)).succeeds();
    let mut numbers = said.lines().nth(1).unwrap().split_whitespace();
    let mut next = || numbers.next().unwrap().parse().unwrap();
    (next(), next())
}

#[test]
fn df_shows_what_the_disk_of_the_server_has_room_for() {
    let world = World::new();
    let (place, server) = on_a_small_server(&world);
    let mount = world.mount(&server, "mount", "connected");
    let (disk_size, disk_free) = df(&place);
    let (size, free) = df(&mount.mountpoint);
    assert!(size <= disk_size && free <= disk_free, "{size} {free} of {disk_size} {disk_free}");
    assert!(free > 4 << 20, "{free}");
    write_and_sync(&mount.path("file"), &noise(1, 4 << 20)).unwrap();
    // A mount asks once in a while; one that has just been made has not asked yet.
    let other = world.mount(&server, "other", "connected");
    let left = df(&other.mountpoint).1;
    assert!(left <= free - (4 << 20), "{left} of {free}");
    enlarge(&place, "64m");
    let late = world.mount(&server, "late", "connected");
    assert!(df(&late.mountpoint).1 > 32 << 20);
}

#[test]
fn a_file_is_too_large_where_it_is_too_large_for_the_disk_of_the_cache() {
    let world = World::new();
    let server = world.server();
    let mount = world.mount(&server, "mount", "partial");
    let beside = fs::File::create(world.folder("beside").join("file")).unwrap();
    let file = fs::File::create(mount.path("file")).unwrap();
    for length in [1 << 32, 32 << 40, i64::MAX as u64] {
        let code = |file: &fs::File| file.set_len(length).map_err(|error| error.raw_os_error());
        assert_eq!(code(&file), code(&beside), "{length}");
        let length_of = |file: &fs::File| file.metadata().unwrap().len();
        assert_eq!(length_of(&file), length_of(&beside), "{length}");
    }
    // However it is made so large.
    for end in [32 << 40, 1 << 62, i64::MAX as u64] {
        let keeps = FallocateFlags::KEEP_SIZE;
        for (flags, from) in [(FallocateFlags::empty(), 0), (keeps, 0), (keeps, end - 1)] {
            let code = |file: &fs::File| rustix::fs::fallocate(file, flags, from, end - from);
            assert_eq!(code(&file), code(&beside), "{flags:?} from {from} to {end}");
        }
        let code =
            |file: &fs::File| file.write_at(b"x", end - 1).map_err(|error| error.raw_os_error());
        assert_eq!(code(&file), code(&beside), "{end}");
    }
    file.set_len(3).unwrap();
    drop(file);
    mount.wait();
    assert_eq!(fs::read(mount.path("file")).unwrap(), [0; 3]);
}

#[test]
fn without_a_descriptor_left_opening_says_so_and_goes_on_when_others_are_closed() {
    let world = World::new();
    let server = world.server();
    let mount = world.mount(&server, "mount", "partial");
    for number in 0..60 {
        fs::write(mount.path(format!("{number}")), noise(number, 3_000)).unwrap();
    }
    mount.wait();
    let pid = mount.process().pid();
    let used = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count() as u64;
    let process = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
    // It has taken as many as it may have, and may again.
    let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
    let few = Rlimit { current: Some(used + 40), maximum };
    let before = rustix::process::prlimit(Some(process), Resource::Nofile, few).unwrap();
    let open = |number: u64| fs::File::open(mount.path(format!("{number}")));
    let mut held = Vec::new();
    let error = (0..60).find_map(|number| open(number).map(|file| held.push(file)).err());
    assert_eq!(error.expect("there are too few").raw_os_error(), Some(libc::ENFILE));
    assert!(held.len() >= 10, "{}", held.len());
    assert_eq!(mount.said().matches("LimitNOFILE").count(), 1, "{}", mount.said());
    held.truncate(2);
    eventually(30 * SECOND, "there are some again", || open(59).is_ok());
    fs::write(mount.path("another"), "goes on").unwrap();
    mount.wait();
    rustix::process::prlimit(Some(process), Resource::Nofile, before).unwrap();
    assert_eq!((0..60).filter_map(|number| open(number).ok()).count(), 60);
}

#[test]
fn what_frees_room_goes_on_where_there_is_none_at_all_and_no_server_runs() {
    let world = World::new();
    let place = disk(&world, "filled", "64m");
    let mut server = world.server_at(&place.join("data"), "origin");
    let mut mount = world.mount(&server, "mount", "connected");
    for number in 0..8 {
        write_and_sync(&mount.path(format!("file-{number}")), &noise(number, FILE_BYTES)).unwrap();
    }
    for number in 0..8 {
        fs::remove_file(mount.path(format!("file-{number}"))).unwrap();
    }
    mount.wait();
    mount.unmount(&[]);
    let reserve = server.data.join("reserve");
    assert!(reserve.exists());
    assert_eq!(server.stop(), Some(0));
    let filling = place.join("filling");
    let error = fs::write(&filling, vec![1; 64 << 20]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    assert_eq!(df(&place).1, 0, "not a byte is free");
    let data = server.data.to_str().unwrap();
    let set = ["volume", "set", "--data", data, "--keep-versions", "0", "main"];
    run(&mut world.farfs(&set)).succeeds();
    run(&mut world.farfs(&["gc", "--data", data, "--empty-trash"])).succeeds();
    // What is aside is small again when there is room for it, and the server goes on.
    fs::remove_file(&filling).unwrap();
    server.restart();
    eventually(30 * SECOND, "it is set aside again", || reserve.exists());
}

/// Another program makes files until the disk can have no more.
fn take_inodes(folder: &Path) {
    let made = |number: u64| fs::File::create(folder.join(number.to_string()));
    let error = (0..FILLING_MAX).find_map(|number| made(number).err());
    assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::StorageFull));
}

/// Files in the cache, whatever is in them.
fn containers(mount: &Mount) -> usize {
    let names = |folder: &Path| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    names(&mount.state.join("cache")).map(|fan| names(&fan).count()).sum()
}

#[test]
fn on_a_disk_without_an_inode_nothing_leaves_for_what_cannot_come_and_a_few_files_for_what_can() {
    const CACHED: u64 = 200;
    const FILES: u64 = 1200;
    let world = World::bounded(Duration::from_secs(240));
    let mut server = world.server();
    let author = world.mount(&server, "author", "partial");
    let name = |number: u64| format!("small-{number}");
    (0..FILES).for_each(|number| fs::write(author.path(name(number)), name(number)).unwrap());
    author.wait();
    let disk = Disk::of_few_files(&world, "mount.state", 96 << 20, 800);
    // What is fetched ahead may take them all before.
    let others = disk.place.join("others");
    fs::create_dir(&others).unwrap();
    let mount = world.mount(&server, "mount", "partial");
    let read = |number: u64| fs::read_to_string(mount.path(name(number)));
    let is_there = |number: u64| read(number).is_ok_and(|read| read == name(number));
    assert_eq!(fs::read_dir(&mount.mountpoint).unwrap().count() as u64, FILES);
    assert!((0..CACHED).all(is_there));
    take_inodes(&others);
    server.kill();
    eventually(30 * SECOND, "the link is gone", || mount.mode() == "disconnected");
    // Some were fetched ahead.
    let held = containers(&mount);
    let code = |number: u64| read(number).err().and_then(|error| error.raw_os_error());
    let codes: Vec<_> = (0..FILES).filter_map(code).collect();
    assert!(codes.iter().all(|code| *code == libc::EHOSTUNREACH), "{codes:?}");
    assert!(codes.len() as u64 > FILES / 4, "{} of {held}", codes.len());
    assert!(codes.len() + held + 40 > FILES as usize, "{} of {held}", codes.len());
    let left = containers(&mount);
    assert!(left + 40 > held, "{left} of {held}: what the log took and no more");
    server.restart();
    eventually(30 * SECOND, "the link is back", || mount.mode() == "partial");
    eventually(60 * SECOND, "each is read", || {
        (0..FILES).filter(|one| is_there(*one)).count() as u64 == FILES
    });
    let left = containers(&mount);
    assert!(left + 40 > held, "{left} of {held}: as many have left as have come, and a few");
    fs::write(mount.path("new"), "new").unwrap();
    mount.wait();
    eventually(5 * SECOND, "it is at the server", || author.path("new").exists());
    fs::remove_dir_all(others).unwrap();
    assert!((0..FILES).all(is_there));
}
