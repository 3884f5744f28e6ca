//! POSIX access control lists: kept, handed down and enforced as on a local disk.

use crate::in_both_modes;
use crate::permissions::{NOBODY, as_user, denied};
use e2e::{World, eventually};
use std::fs;
use std::path::Path;
use std::time::Duration;

const SEEN_BOUND: Duration = Duration::from_secs(20);

/// All that changes a list or is changed by one; then what there is.
const WORK: &str = "\
set -e
umask 027
touch file other bare
setfacl -m u:1000:rw,g:2000:r-x file
setfacl -m u:1000:rwx,m::r other
setfacl -m u::rwx,g::r,o::- bare
chmod 751 other
mkdir folder plain
setfacl -m u:1000:rwx,d:u:1000:rwx,d:u:1001:r,d:g::r-x,d:o::- folder
touch folder/file plain/file
mkdir folder/below plain/below
mkfifo folder/pipe
ln -s file folder/link
ln file folder/linked
(umask 077; touch folder/masked folder/below/deep; mkdir -m 700 folder/own)
cp file folder/copied
cp -a file folder/kept
mv other folder/moved
chmod g-w folder/file
chmod 1777 folder/below
setfacl -k folder/own
cp -a folder second
setfacl -b second/kept
setfacl -R -m u:1002:rX second/below
setfacl -x u:1000 second/copied
touch program
chown 1000:2000 program
chmod 6755 program
setpriv --reuid=1000 --regid=1000 --clear-groups setfacl -m u:7:r program
touch shared
chown 1000:2000 shared
chmod 2755 shared
setpriv --reuid=1000 --regid=1000 --groups=2000 setfacl -m u:7:r shared
find . ! -type l | sort | xargs getfacl -n
find . -printf '%p %y %m %u %g\\n' | sort
";

#[test]
fn access_lists_are_those_of_a_local_disk() {
    in_both_modes(|mount| {
        let disk = mount.mountpoint.with_file_name("disk");
        fs::create_dir(&disk).unwrap();
        fs::create_dir(mount.path("here")).unwrap();
        let there = as_user(0, &disk, WORK).succeeds();
        let here = as_user(0, &mount.path("here"), WORK).succeeds();
        assert!(there.contains("default:user:1001:r--"), "the disk has such lists: {there}");
        assert_eq!(here, there);
        fs::remove_dir_all(&disk).unwrap();
    });
}

#[test]
fn access_lists_say_who_may_do_what() {
    in_both_modes(|mount| {
        let here = mount.mountpoint.as_path();
        let root = |line: &str| as_user(0, here, line).succeeds();
        root("echo x > file && chmod 640 file && mkdir -m 750 folder && echo y > folder/below");
        denied(as_user(NOBODY, here, "cat file"), "Permission denied");
        root("setfacl -m u:65534:rw file");
        as_user(NOBODY, here, "cat file && echo more >> file").succeeds();
        denied(as_user(1000, here, "cat file"), "Permission denied");
        // The group's bits of the mode are the most that a list gives.
        root("chmod 600 file");
        denied(as_user(NOBODY, here, "cat file"), "Permission denied");
        root("chmod 640 file");
        as_user(NOBODY, here, "cat file").succeeds();
        denied(as_user(NOBODY, here, "echo more >> file"), "ermission denied");
        // Who is named has what the name has, though all others have more.
        root("chmod 666 file && setfacl -m u:65534:- file");
        denied(as_user(NOBODY, here, "cat file"), "Permission denied");
        as_user(1000, here, "cat file").succeeds();
        // By a group, and into a directory.
        denied(as_user(NOBODY, here, "cat folder/below"), "Permission denied");
        root("setfacl -m g:65534:rx folder");
        as_user(NOBODY, here, "cat folder/below && ls folder").succeeds();
        denied(as_user(NOBODY, here, "touch folder/new"), "Permission denied");
        // Who does not own it sets no list.
        denied(as_user(NOBODY, here, "setfacl -m u:65534:rwx folder"), "not permitted");
    });
}

#[test]
fn what_one_machine_sets_holds_on_the_other() {
    let world = World::new();
    let server = world.server();
    let options = &["--answer-within", "10s", "--allow-other"][..];
    let wanted = e2e::mount::Wanted { mode: "connected", options, ..e2e::mount::Wanted::default() };
    let (one, other) =
        (world.mount_with(&server, "one", wanted), world.mount_with(&server, "other", wanted));
    let root = |at: &Path, line: &str| as_user(0, at, line).succeeds();
    root(&one.mountpoint, "mkdir -m 700 folder && echo x > folder/file");
    let look = || as_user(NOBODY, &other.mountpoint, "cat folder/file");
    denied(look(), "Permission denied");
    root(&one.mountpoint, "setfacl -m u:65534:rx,d:u:65534:rw folder && echo y > folder/new");
    assert_eq!(look().succeeds(), "x\n");
    let lists = |at: &Path| root(at, "find folder | sort | xargs getfacl -n");
    assert_eq!(lists(&other.mountpoint), lists(&one.mountpoint));
    // What the other machine makes there has the list too.
    root(&other.mountpoint, "umask 077; touch folder/newer");
    eventually(SEEN_BOUND, "it is seen", || one.path("folder/newer").exists());
    assert_eq!(lists(&one.mountpoint), lists(&other.mountpoint));
    assert!(lists(&one.mountpoint).contains("user:65534:rw-"));
    root(&one.mountpoint, "setfacl -b folder && chmod 700 folder");
    denied(look(), "Permission denied");
}
