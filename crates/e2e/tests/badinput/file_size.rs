//! A limit of the size of files (`ulimit -f`), which a daemon and a server inherit from the shell that starts
//! them: what it is in the way of fails, and nobody ends.

use crate::says;
use e2e::contents::{noise, write_and_sync};
use e2e::{Process, World, eventually, run};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const LIMIT: u64 = 1 << 20;
const LARGE: usize = 3 << 20;

fn limit(process: &Process, bytes: Option<u64>) {
    let pid = Pid::from_raw(process.pid().cast_signed()).unwrap();
    let limit = Rlimit { current: bytes, maximum: None };
    prlimit(Some(pid), Resource::Fsize, limit).unwrap();
}

#[test]
fn a_write_beyond_the_limit_of_a_daemon_fails_and_all_else_goes_on() {
    let world = World::new();
    let server = world.server();
    let mut mount = world.mount(&server, "mount", "partial");
    let other = fs::File::create(mount.path("other")).unwrap();
    other.write_all_at(b"kept", 0).unwrap();
    limit(mount.process(), Some(LIMIT));
    let file = fs::File::create(mount.path("large")).unwrap();
    let piece = noise(1, 100_000);
    let write = |number: u64| file.write_all_at(&piece, number * piece.len() as u64);
    let written = (0..30).take_while(|number| write(*number).is_ok()).count();
    assert_eq!(written as u64, LIMIT / piece.len() as u64);
    assert_eq!(write(20).unwrap_err().raw_os_error(), Some(libc::EFBIG));
    other.write_all_at(b"more", 4).unwrap();
    assert_eq!(fs::read_to_string(mount.path("other")).unwrap(), "keptmore");
    assert!(mount.process().is_running());

    limit(mount.process(), None);
    write(20).unwrap();
    drop((file, other));
    mount.unmount(&["--wait", "30s"]);
    mount.again();
    assert_eq!(fs::read_to_string(mount.path("other")).unwrap(), "keptmore");
    let read = fs::read(mount.path("large")).unwrap();
    assert!(read.starts_with(&piece.repeat(written)) && read.ends_with(&piece));
}

#[test]
fn a_server_under_such_a_limit_takes_no_more_loses_nothing_and_goes_on_without_it() {
    let world = World::new();
    let server = world.server();
    let mount = world.mount(&server, "mount", "partial");
    fs::write(mount.path("before"), noise(1, LARGE)).unwrap();
    mount.wait();
    limit(server.process(), Some(LIMIT));
    for number in 2..6 {
        write_and_sync(&mount.path(format!("{number}")), &noise(number, LARGE)).unwrap();
    }
    std::thread::sleep(3 * SECOND);
    assert!(server.process().is_running(), "{}", server.said());
    limit(server.process(), None);
    mount.wait();
    let fresh = world.mount(&server, "fresh", "connected");
    for number in 2..6 {
        assert!(fs::read(fresh.path(format!("{number}"))).unwrap() == noise(number, LARGE));
    }
    assert!(fs::read(fresh.path("before")).unwrap() == noise(1, LARGE));
}

#[test]
fn the_limit_of_a_shell_is_lifted_as_far_as_it_may_be_and_the_rest_is_told() {
    let world = World::new();
    let server = world.server();
    let mut mount = world.mount(&server, "mount", "partial");
    mount.unmount(&[]);
    let mount = mount;
    let limited = |ulimit: &str| {
        let plain = mount.command();
        let mut command = Command::new("sh");
        e2e::world::marked(&mut command);
        command.args(["-c", &format!("ulimit {ulimit}; exec \"$0\" \"$@\"")]);
        command.arg(plain.get_program()).args(plain.get_args());
        command
    };
    // In halves of KiB, of the soft and the hard one.
    for (ulimit, told, lifted) in
        [("-S -f 2048", false, "unlimited"), ("-f 2097152", true, "1073741824")]
    {
        let (process, _out) = world.process(limited(ulimit), "limited");
        let there = || run(&mut mount.farfs("status", &[])).code == Some(0);
        eventually(30 * SECOND, "it is mounted", there);
        let limits = fs::read_to_string(format!("/proc/{}/limits", process.pid())).unwrap();
        let line = limits.lines().find(|line| line.starts_with("Max file size")).unwrap();
        assert_eq!(line.split_whitespace().nth(3), Some(lifted), "{line}");
        assert_eq!(process.said().contains("LimitFSIZE="), told, "{}", process.said());
        fs::write(mount.path("file"), noise(7, LARGE)).unwrap();
        run(&mut mount.farfs("umount", &[])).succeeds();
        process.ends_within(20 * SECOND);
    }
    says(run(&mut limited("-f 2048")), 1, &["1.0 MiB at most", "ulimit -Hf", "LimitFSIZE="]);
}
