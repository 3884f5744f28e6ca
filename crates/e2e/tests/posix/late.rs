//! Large files where the kernel takes no containers: the daemon writes them, and they are stored as
//! if the kernel had.

use crate::errno;
use crate::unseen::{
    Draw, Model, SOON, both, do_something, is_everywhere, made, overwrite, store_is_pending,
    to_write,
};
use e2e::mount::Wanted;
use e2e::{Mount, Server, World, eventually, run};
use std::fs;
use std::path::Path;

fn mount_without(world: &World, server: &Server, mode: &str) -> Mount {
    let options = &["--answer-within", "10s", "--passthrough", "off"][..];
    world.mount_with(server, "mount", Wanted { mode, options, ..Wanted::default() })
}

fn waits_for(path: &Path) -> Option<String> {
    let mut value = vec![0; 100];
    let length = rustix::fs::getxattr(path, "user.farfs.waits-for", &mut value).ok()?;
    Some(String::from_utf8_lossy(&value[..length]).into_owned())
}

/// Writes all of it anew until it is seen that the close did not wait for it to be cut.
fn is_closed_before_it_is_stored(mount: &Mount, bytes: &mut [u8]) {
    let mut round = 0;
    eventually(SOON, "it is closed and not stored", || {
        round += 1;
        let file = to_write().open(mount.path("file")).unwrap();
        bytes.fill(round);
        file_of(&file, bytes);
        drop(file);
        waits_for(&mount.path("file")).as_deref() == Some("close")
    });
}

fn file_of(file: &fs::File, bytes: &[u8]) {
    use std::os::unix::fs::FileExt;
    file.write_all_at(bytes, 0).unwrap();
}

#[test]
fn who_closes_it_does_not_wait_and_what_is_done_then_is_logged_after_it() {
    let world = World::new();
    let server = world.server();
    let mount = mount_without(&world, &server, "partial");
    let mut bytes = made(&mount, "file");
    run(&mut mount.farfs("pause", &[])).succeeds();
    is_closed_before_it_is_stored(&mount, &mut bytes);
    for round in 0..4_u8 {
        let file = to_write().open(mount.path("file")).unwrap();
        overwrite(&mut bytes, &file, 100_000, &[round; 5000]);
        drop(file);
        match round {
            0 => fs::write(mount.path("marker"), b"it is done").unwrap(),
            1 => fs::rename(mount.path("marker"), mount.path("mark")).unwrap(),
            2 => fs::copy(mount.path("mark"), mount.path("copy")).map(drop).unwrap(),
            _ => fs::remove_file(mount.path("mark")).unwrap(),
        }
        assert!(store_is_pending(&mount, "file"), "{round}");
    }
    run(&mut mount.farfs("resume", &[])).succeeds();
    is_everywhere(&world, &server, &mount, "file", &bytes);
}

#[test]
fn what_was_closed_is_there_after_a_kill() {
    let world = World::new();
    let server = world.server();
    let mut mount = mount_without(&world, &server, "partial");
    let mut bytes = made(&mount, "file");
    is_closed_before_it_is_stored(&mount, &mut bytes);
    let file = both().open(mount.path("file")).unwrap();
    overwrite(&mut bytes, &file, 9_000_000, b"before the kill");
    drop(file);
    mount.kill();
    mount.again();
    assert!(fs::read(mount.path("file")).unwrap() == bytes);
    is_everywhere(&world, &server, &mount, "file", &bytes);
}

#[test]
fn where_calls_wait_by_then_so_does_the_close() {
    let world = World::new();
    let server = world.server();
    let mut mount = mount_without(&world, &server, "partial");
    let other = world.mount(&server, "other", "connected");
    let mut bytes = made(&mount, "file");
    is_closed_before_it_is_stored(&mount, &mut bytes);
    let file = to_write().open(mount.path("file")).unwrap();
    mount.set_mode("connected");
    overwrite(&mut bytes, &file, 3_000_000, b"in company");
    drop(file);
    assert!(fs::read(other.path("file")).unwrap() == bytes);
}

#[test]
fn what_was_written_to_a_file_that_is_removed_at_once_is_nobodys() {
    let world = World::new();
    let server = world.server();
    let mount = mount_without(&world, &server, "partial");
    let mut bytes = made(&mount, "file");
    is_closed_before_it_is_stored(&mount, &mut bytes);
    let file = to_write().open(mount.path("file")).unwrap();
    file_of(&file, b"never seen");
    drop(file);
    fs::remove_file(mount.path("file")).unwrap();
    mount.wait();
    let other = world.mount(&server, "other", "connected");
    for seen_by in [&mount, &other] {
        let looked = fs::metadata(seen_by.path("file"));
        assert_eq!(errno(looked), rustix::io::Errno::NOENT);
    }
}

/// A failing seed is in the message.
#[test]
fn whatever_programs_do_with_it_all_of_them_see_it_and_it_is_stored() {
    let world = World::new();
    let server = world.server();
    let mount = mount_without(&world, &server, "partial");
    let other = world.mount(&server, "elsewhere", "connected");
    for seed in [1, u64::from(std::process::id())] {
        let name = format!("file {seed}");
        let bytes = made(&mount, &name);
        let path = mount.path(&name);
        let mut model = Model { bytes, open: Vec::new(), mapped: Vec::new() };
        let mut draw = Draw { seed, count: 0 };
        for step in 0..120 {
            do_something(&path, &mut model, &mut draw);
            if step % 40 == 39 {
                model.open.clear();
                assert!(fs::read(&path).unwrap() == model.bytes, "seed {seed}, step {step}");
            }
        }
        model.mapped.clear();
        mount.wait();
        assert!(fs::read(&path).unwrap() == model.bytes, "seed {seed}");
        let there = || fs::read(other.path(&name)).unwrap() == model.bytes;
        eventually(SOON, &format!("seed {seed}: it is elsewhere"), there);
    }
}
