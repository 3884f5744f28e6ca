//! Directories of one name that two machines make, each for files of its own.

use super::{SECOND, SOON};
use e2e::{Mount, World, eventually, run};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Barrier};
use std::thread;

#[test]
fn a_program_goes_on_in_a_directory_that_another_machine_had_made_too() {
    let world = World::bounded(120 * SECOND);
    let server = world.server();
    let (ada, bob) =
        (world.mount(&server, "ada", "partial"), world.mount(&server, "bob", "partial"));
    assert_eq!(fs::read_dir(bob.path("")).unwrap().count(), 0);
    run(&mut bob.farfs("mode", &["disconnected"])).succeeds();
    fs::create_dir(ada.path("d")).unwrap();
    fs::write(ada.path("d/hers"), "hers").unwrap();
    run(&mut ada.farfs("wait", &[])).succeeds();
    fs::create_dir(bob.path("d")).unwrap();
    fs::create_dir(bob.path("d/in")).unwrap();
    let script = "read line; ls | grep -q hers && echo more > after && mkdir own && echo deep > in/deep && rm before && ls";
    let mut program = Command::new("sh")
        .args(["-c", &format!("echo x > before; {script}")])
        .current_dir(bob.path("d"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    eventually(SOON, "the program is there", || bob.path("d/before").exists());
    run(&mut bob.farfs("mode", &["partial"])).succeeds();
    run(&mut bob.farfs("wait", &[])).succeeds();
    program.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let output = program.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "after\nhers\nin\nown\n");
    run(&mut bob.farfs("wait", &[])).succeeds();
    eventually(SOON, "she has it all", || {
        let names = ["d/after", "d/in/deep", "d/own"];
        names.iter().all(|name| ada.path(name).exists()) && !ada.path("d/before").exists()
    });
}

const ROUNDS: usize = 15;
const LINES: usize = 5;

/// Makes directories as `mkdir -p` does, and a file of its own in each, to which it appends.
fn unpack(root: &Path, name: &str, together: &Barrier) -> Vec<(PathBuf, String)> {
    let unpack = |round: usize| {
        together.wait();
        let directory = root.join(format!("d{round}/in"));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join(name);
        let mut text = String::new();
        for line in 0..LINES {
            let line = format!("line {line} of {name}\n");
            let mut file = fs::File::options().create(true).append(true).open(&path).unwrap();
            file.write_all(line.as_bytes()).unwrap();
            text.push_str(&line);
        }
        (path.strip_prefix(root).unwrap().to_path_buf(), text)
    };
    (0..ROUNDS).map(unpack).collect()
}

#[test]
fn two_machines_that_unpack_into_directories_of_one_name_miss_nothing_and_meet_no_error() {
    let world = World::bounded(180 * SECOND);
    let server = world.server();
    let mounts = ["ada", "bob"].map(|name| (name, world.mount(&server, name, "partial")));
    let together = Arc::new(Barrier::new(2));
    let threads = mounts.each_ref().map(|(name, mount)| {
        let (root, name, together) = (mount.path(""), *name, together.clone());
        thread::spawn(move || unpack(&root, name, &together))
    });
    let files: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    mounts.iter().for_each(|(_, mount)| {
        run(&mut mount.farfs("wait", &[])).succeeds();
    });
    let shows = |mount: &Mount| {
        files.iter().all(|(path, text)| {
            fs::read_to_string(mount.path(path.to_str().unwrap())).is_ok_and(|read| read == *text)
        })
    };
    for (name, mount) in &mounts {
        eventually(SOON, &format!("{name} sees all of it"), || shows(mount));
        for round in 0..ROUNDS {
            let names = fs::read_dir(mount.path(format!("d{round}/in"))).unwrap();
            assert_eq!(names.count(), 2, "{name}, d{round}");
        }
    }
}
