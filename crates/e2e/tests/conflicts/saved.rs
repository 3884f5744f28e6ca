//! Two machines whose programs save by rename under the same names, as editors do, each by way of names of its own.

use super::SECOND;
use e2e::{World, eventually, run};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, Barrier};
use std::thread;

const SAVES: usize = 400;
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// What went wrong.
fn saves(directory: &Path, who: &str, together: &Barrier) -> Vec<String> {
    together.wait();
    let mut wrong = Vec::new();
    for number in 0..SAVES {
        let name = NAMES[(number * 7 + number / 3 + who.len()) % NAMES.len()];
        let (new, file) = (directory.join(format!("{name}.{who}")), directory.join(name));
        if fs::symlink_metadata(&new).is_ok() {
            wrong.push(format!("{number}: {name}.{who} shows, which was renamed away"));
        }
        fs::write(&new, format!("{who} {number}\n")).unwrap();
        if let Err(error) = fs::rename(&new, &file) {
            wrong.push(format!("{number}: rename of {name}.{who}: {error}"));
        }
        // Others have saved over it, or removed it, or not.
        match (number % 10, fs::read(&file)) {
            (0, Ok(_)) => {
                fs::remove_file(&file).unwrap_or_else(|error| {
                    assert_eq!(error.kind(), ErrorKind::NotFound);
                });
            }
            (_, Err(error)) => assert_eq!(error.kind(), ErrorKind::NotFound),
            _ => {}
        }
    }
    wrong
}

#[test]
fn who_saves_by_rename_where_another_machine_does_too_meets_no_error_and_no_name_of_before() {
    let world = World::bounded(180 * SECOND);
    let server = world.server();
    let mounts = ["ada", "robert"].map(|name| (name, world.mount(&server, name, "partial")));
    fs::create_dir(mounts[0].1.path("t")).unwrap();
    run(&mut mounts[0].1.farfs("wait", &[])).succeeds();
    e2e::eventually(30 * SECOND, "both see it", || mounts[1].1.path("t").exists());
    let together = Arc::new(Barrier::new(2));
    let threads = mounts.each_ref().map(|(name, mount)| {
        let (directory, name, together) = (mount.path("t"), *name, together.clone());
        thread::spawn(move || saves(&directory, name, &together))
    });
    let wrong: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// One was removed elsewhere, and another is saved in its place, just before the daemon dies: what it had heard
/// of since it last wrote its tables is lost with it.
#[test]
fn what_is_saved_where_another_machine_has_just_removed_something_shows_after_a_kill() {
    let world = World::bounded(180 * SECOND);
    let server = world.server();
    let ada = world.mount(&server, "ada", "partial");
    let mut bob = world.mount(&server, "bob", "partial");
    fs::write(ada.path("c"), "old").unwrap();
    run(&mut ada.farfs("wait", &[])).succeeds();
    eventually(10 * SECOND, "bob sees it", || bob.path("c").exists());
    // The tables are written every five seconds, if there is something to write.
    thread::sleep(6 * SECOND);
    bob.set_mode("fetch-only");
    fs::remove_file(ada.path("c")).unwrap();
    run(&mut ada.farfs("wait", &[])).succeeds();
    eventually(3 * SECOND, "bob hears of it", || !bob.path("c").exists());
    fs::write(bob.path("new"), "saved").unwrap();
    fs::rename(bob.path("new"), bob.path("c")).unwrap();
    // What is done is in the log soon.
    thread::sleep(2 * SECOND);
    bob.kill();
    bob.mount_as("fetch-only");
    bob.again();
    assert!(!bob.path("new").exists(), "it was renamed");
    assert_eq!(fs::read_to_string(bob.path("c")).unwrap(), "saved");
    bob.set_mode("partial");
    bob.wait();
    eventually(10 * SECOND, "ada sees it", || {
        fs::read_to_string(ada.path("c")).is_ok_and(|text| text == "saved")
    });
}
