//! Directories that were removed here, and that stay since somebody else has put something into them; and files
//! that go by what both do.

use super::{SECOND, SOON};
use e2e::{Mount, World, eventually, run};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Child, Command};

/// A program that keeps the kernel from forgetting its working directory, also when that was removed.
struct Program(Child);

impl Program {
    fn within(directory: &Path) -> Program {
        Program(Command::new("sleep").arg("1000").current_dir(directory).spawn().unwrap())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Ada removes the empty directory `p/x` while something there has it open, and bob has put `f` into it.
fn check(removes: impl FnOnce(&Mount)) {
    let world = World::bounded(120 * SECOND);
    let server = world.server();
    let (ada, bob) =
        (world.mount(&server, "ada", "partial"), world.mount(&server, "bob", "partial"));
    fs::create_dir_all(ada.path("p/x")).unwrap();
    run(&mut ada.farfs("wait", &[])).succeeds();
    eventually(SOON, "bob sees it", || bob.path("p/x").exists());
    run(&mut ada.farfs("mode", &["disconnected"])).succeeds();
    let holders = (fs::File::open(ada.path("p/x")).unwrap(), Program::within(&ada.path("p/x")));
    removes(&ada);
    fs::write(bob.path("p/x/f"), "hello").unwrap();
    run(&mut bob.farfs("wait", &[])).succeeds();
    run(&mut ada.farfs("mode", &["partial"])).succeeds();
    run(&mut ada.farfs("wait", &[])).succeeds();
    let shows = || {
        eventually(SOON, "it is there, with what is in it", || {
            fs::read_to_string(ada.path("p/x/f")).is_ok_and(|text| text == "hello")
        });
        let names = fs::read_dir(ada.path("p/x")).unwrap().map(|entry| entry.unwrap().file_name());
        assert!(names.into_iter().any(|name| name == "f"));
    };
    shows();
    fs::write(ada.path("p/x/hers"), "hers").unwrap();
    drop(holders);
    shows();
    run(&mut ada.farfs("wait", &[])).succeeds();
    eventually(SOON, "bob sees hers", || bob.path("p/x/hers").exists());
    fs::remove_dir_all(ada.path("p/x")).unwrap();
    assert!(!ada.path("p/x").exists());
}

#[test]
fn a_directory_that_was_removed_while_it_was_in_use_is_one_again_when_it_is_brought_back() {
    check(|ada| fs::remove_dir(ada.path("p/x")).unwrap());
}

#[test]
fn so_is_one_that_another_was_renamed_over() {
    check(|ada| {
        fs::create_dir(ada.path("p/new")).unwrap();
        fs::rename(ada.path("p/new"), ada.path("p/x")).unwrap();
    });
}

/// Of two names of a file one goes here, and is pending, and the other elsewhere.
#[test]
fn what_is_open_stays_readable_when_one_of_its_names_goes_here_and_the_other_elsewhere() {
    let world = World::bounded(120 * SECOND);
    let server = world.server();
    let ada = world.mount(&server, "ada", "partial");
    let mut bob = world.mount(&server, "bob", "partial");
    fs::write(ada.path("f"), "hello").unwrap();
    fs::hard_link(ada.path("f"), ada.path("g")).unwrap();
    run(&mut ada.farfs("wait", &[])).succeeds();
    eventually(SOON, "bob sees both", || {
        fs::metadata(bob.path("g")).is_ok_and(|found| found.nlink() == 2)
    });
    bob.set_mode("fetch-only");
    let open = fs::File::open(bob.path("g")).unwrap();
    fs::remove_file(bob.path("f")).unwrap();
    fs::remove_file(ada.path("g")).unwrap();
    run(&mut ada.farfs("wait", &[])).succeeds();
    eventually(SOON, "bob hears of it", || !bob.path("g").exists());
    assert_eq!(open.metadata().unwrap().len(), 5);
    let mut found = [0; 5];
    open.read_exact_at(&mut found, 0).unwrap();
    assert_eq!(&found, b"hello");
    drop(open);
    bob.set_mode("partial");
    bob.wait();
    assert!(!bob.path("f").exists() && !bob.path("g").exists());
    eventually(SOON, "nor has ada any", || !ada.path("f").exists() && !ada.path("g").exists());
}
