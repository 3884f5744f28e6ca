use crate::needs_fuse;
use crate::support::Farm;
use mount::MountOptions;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn what_one_machine_closes_the_other_sees_when_it_looks_next() {
    needs_fuse!();
    let farm = Farm::new();
    let (here, there) = (
        farm.machine("here", MountOptions::default()),
        farm.machine("there", MountOptions::default()),
    );
    let (mine, yours) = (here.path("file"), there.path("file"));
    // What is not there is remembered by the kernel too.
    assert_eq!(fs::metadata(&yours).unwrap_err().kind(), ErrorKind::NotFound);
    fs::write(&mine, "one").unwrap();
    assert_eq!(fs::read_to_string(&yours).unwrap(), "one");
    fs::write(&mine, "another").unwrap();
    assert_eq!(fs::metadata(&yours).unwrap().len(), 7);
    assert_eq!(fs::read_to_string(&yours).unwrap(), "another");
    assert_eq!(fs::metadata(&mine).unwrap().ino(), fs::metadata(&yours).unwrap().ino());

    fs::rename(&mine, here.path("moved")).unwrap();
    assert_eq!(fs::metadata(&yours).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(fs::read_to_string(there.path("moved")).unwrap(), "another");
    fs::remove_file(here.path("moved")).unwrap();
    assert_eq!(fs::read_dir(there.path("")).unwrap().count(), 0);
}

#[test]
fn a_listing_that_the_kernel_keeps_is_given_up_when_it_changes() {
    needs_fuse!();
    let farm = Farm::new();
    let (here, there) = (
        farm.machine("here", MountOptions::default()),
        farm.machine("there", MountOptions::default()),
    );
    let count = || fs::read_dir(there.path("")).unwrap().count();
    for expected in 0..5 {
        assert_eq!((count(), count()), (expected, expected));
        fs::create_dir(here.path(&format!("folder {expected}"))).unwrap();
    }
}

#[test]
fn a_file_that_is_replaced_over_there_is_opened_anew_and_never_stale() {
    needs_fuse!();
    let farm = Farm::new();
    let (here, there) = (
        farm.machine("here", MountOptions::default()),
        farm.machine("there", MountOptions::default()),
    );
    fs::write(here.path("config"), "0").unwrap();
    for version in 1..20 {
        let text = version.to_string();
        fs::write(here.path("new"), &text).unwrap();
        fs::rename(here.path("new"), here.path("config")).unwrap();
        assert_eq!(fs::read_to_string(there.path("config")).unwrap(), text);
    }
}

#[test]
fn who_has_a_version_open_goes_on_reading_it_and_nothing_else() {
    needs_fuse!();
    let farm = Farm::new();
    let (here, there) = (
        farm.machine("here", MountOptions::default()),
        farm.machine("there", MountOptions::default()),
    );
    let path = there.path("file");
    let newer = ["new", "a new version that is longer than the old one"];
    for newer in [newer; 5].into_iter().flatten() {
        fs::write(here.path("file"), "the old version").unwrap();
        let mut old = fs::File::open(&path).unwrap();
        let mut first = [0; 4];
        old.read_exact(&mut first).unwrap();
        fs::write(here.path("file"), newer).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), newer);
        // Whatever is asked meanwhile: no cut, and no zeros at the end.
        for _ in 0..3 {
            old.rewind().unwrap();
            assert_eq!(std::io::read_to_string(&old).unwrap(), "the old version");
            old.metadata().unwrap();
        }
        drop(old);
        assert_eq!(fs::read_to_string(&path).unwrap(), newer);
        let begun = Instant::now();
        // Closing is told to the client after `close` has returned.
        while fs::metadata(&path).unwrap().len() != newer.len() as u64 {
            assert!(begun.elapsed() < Duration::from_secs(5), "the size stays the old one's");
        }
    }
}

#[test]
fn an_append_beside_an_older_version_goes_to_the_end_of_the_newer_one() {
    needs_fuse!();
    let farm = Farm::new();
    let (here, there) = (
        farm.machine("here", MountOptions::default()),
        farm.machine("there", MountOptions::default()),
    );
    for newer in ["two", "a line that is longer than the older one"] {
        fs::write(here.path("log"), "the first line").unwrap();
        let older = fs::File::open(there.path("log")).unwrap();
        fs::write(here.path("log"), newer).unwrap();
        fs::metadata(there.path("log")).unwrap();
        let mut options = fs::OpenOptions::new();
        let mut log = options.append(true).open(there.path("log")).unwrap();
        log.write_all(b", more").unwrap();
        log.write_all(b", and more").unwrap();
        drop(log);
        assert_eq!(
            fs::read_to_string(here.path("log")).unwrap(),
            format!("{newer}, more, and more")
        );
        assert_eq!(std::io::read_to_string(&older).unwrap(), "the first line");
    }
}

#[test]
fn a_shell_keeps_its_place_when_others_work_beside_it() {
    needs_fuse!();
    let farm = Farm::new();
    let (here, there) = (
        farm.machine("here", MountOptions::default()),
        farm.machine("there", MountOptions::default()),
    );
    fs::create_dir_all(here.path("project/source")).unwrap();
    let mut shell = Command::new("sh")
        .args(["-c", "while read line; do /bin/pwd; done"])
        .current_dir(there.path("project/source"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut asked = shell.stdin.take().unwrap();
    let mut answers = BufReader::new(shell.stdout.take().unwrap()).lines();
    let mut place = || {
        asked.write_all(b"?\n").unwrap();
        answers.next().unwrap().unwrap()
    };
    let before = place();
    assert!(before.ends_with("project/source"), "{before}");
    fs::write(here.path("project/source/file"), "").unwrap();
    fs::write(here.path("project/file"), "").unwrap();
    // Away and back: the name is told of twice, and is in the end what it was.
    fs::rename(here.path("project/source"), here.path("project/away")).unwrap();
    fs::rename(here.path("project/away"), here.path("project/source")).unwrap();
    assert_eq!(place(), before);
    fs::rename(here.path("project"), here.path("moved")).unwrap();
    fs::metadata(there.path("moved/source")).unwrap();
    assert!(place().ends_with("moved/source"));
    drop(asked);
    assert!(shell.wait().unwrap().success());
}

#[test]
fn a_create_that_comes_second_opens_what_is_there() {
    needs_fuse!();
    let farm = Farm::new();
    let (here, there) = (
        farm.machine("here", MountOptions::default()),
        farm.machine("there", MountOptions::default()),
    );
    for round in 0..10 {
        let name = format!("file {round}");
        assert!(fs::metadata(there.path(&name)).is_err());
        fs::write(here.path(&name), "first").unwrap();
        let mut options = fs::OpenOptions::new();
        let exclusive = options.write(true).create_new(true).open(there.path(&name));
        assert_eq!(exclusive.unwrap_err().kind(), ErrorKind::AlreadyExists);
        let mut options = fs::OpenOptions::new();
        options.append(true).create(true).open(there.path(&name)).unwrap();
        assert_eq!(fs::read_to_string(there.path(&name)).unwrap(), "first");
    }
}

#[test]
fn a_directory_that_is_removed_over_there_while_it_is_open_lists_nothing() {
    needs_fuse!();
    let farm = Farm::new();
    let (here, there) = (
        farm.machine("here", MountOptions::default()),
        farm.machine("there", MountOptions::default()),
    );
    fs::create_dir(here.path("folder")).unwrap();
    fs::write(here.path("folder/file"), "").unwrap();
    let stands_in_it = Command::new("sh")
        .args(["-c", "read line; exec ls -a"])
        .current_dir(there.path("folder"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    fs::remove_dir_all(here.path("folder")).unwrap();
    let mut looks = stands_in_it;
    looks.stdin.take().unwrap().write_all(b"\n").unwrap();
    let looked = looks.wait_with_output().unwrap();
    assert!(looked.status.success() && looked.stdout.is_empty(), "{looked:?}");
}
