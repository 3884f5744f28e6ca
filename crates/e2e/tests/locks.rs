//! Locks among two devices with one volume.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests of real mounts open files and start processes"
)]

use e2e::{Mount, Server, World, eventually, run};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Longer than a lease.
const LEASE_ENDS: Duration = Duration::from_secs(60);

fn two(mode: &str) -> (World, Server, Mount, Mount) {
    let world = World::bounded(Duration::from_secs(180));
    let server = world.server();
    let (a, b) = (world.mount(&server, "a", mode), world.mount(&server, "b", mode));
    (world, server, a, b)
}

/// The file `name`, made by the first and open at both.
fn open_at_both(a: &Mount, b: &Mount, name: &str) -> (File, File) {
    fs::write(a.path(name), vec![0; 100]).unwrap();
    let open =
        |mount: &Mount| OpenOptions::new().read(true).write(true).open(mount.path(name)).unwrap();
    (open(a), open(b))
}

#[derive(Clone, Copy)]
enum Kind {
    OfProcesses,
    OfDescriptions,
}

/// fcntl(2) of a stretch; `typ` is `F_WRLCK`, `F_RDLCK` or `F_UNLCK`.
fn record(kind: Kind, file: &File, typ: i32, first: i64, bytes: i64) -> Result<(), i32> {
    let command = match kind {
        Kind::OfProcesses => libc::F_SETLK,
        Kind::OfDescriptions => libc::F_OFD_SETLK,
    };
    asked(command, file, typ, first, bytes).map(drop)
}

#[allow(unsafe_code, reason = "the libraries have no open file description locks")]
fn asked(command: i32, file: &File, typ: i32, first: i64, bytes: i64) -> Result<libc::flock, i32> {
    let mut asked = libc::flock {
        l_type: typ as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: first,
        l_len: bytes,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open, and the kernel writes into nothing but `asked`.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut asked) } {
        0 => Ok(asked),
        _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap()),
    }
}

#[test]
fn a_whole_file_is_locked_among_machines() {
    let (_world, _server, a, b) = two("connected");
    let (here, there) = open_at_both(&a, &b, "file");
    use FlockOperation::{
        LockExclusive, LockShared, NonBlockingLockExclusive, NonBlockingLockShared, Unlock,
    };
    for (one, other) in [(&here, &there), (&there, &here)] {
        flock(one, LockExclusive).unwrap();
        assert_eq!(flock(other, NonBlockingLockExclusive), Err(Errno::WOULDBLOCK));
        assert_eq!(flock(other, NonBlockingLockShared), Err(Errno::WOULDBLOCK));
        flock(one, LockShared).unwrap();
        flock(other, NonBlockingLockShared).unwrap();
        assert_eq!(flock(one, NonBlockingLockExclusive), Err(Errno::WOULDBLOCK));
        flock(other, Unlock).unwrap();
        flock(one, NonBlockingLockExclusive).unwrap();
        flock(one, Unlock).unwrap();
    }
    flock(&here, LockExclusive).unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| flock(&there, LockExclusive));
        // Others are not held up by who waits.
        fs::write(b.path("beside"), "x").unwrap();
        assert!(!waits.is_finished());
        drop(here);
        waits.join().unwrap().unwrap();
    });
}

#[test]
fn stretches_are_locked_among_machines_and_those_that_do_not_meet_are_free() {
    let (_world, _server, a, b) = two("connected");
    for kind in [Kind::OfProcesses, Kind::OfDescriptions] {
        let (here, there) = open_at_both(&a, &b, "file");
        record(kind, &here, libc::F_WRLCK, 0, 10).unwrap();
        record(kind, &there, libc::F_WRLCK, 10, 10).unwrap();
        assert_eq!(record(kind, &there, libc::F_RDLCK, 5, 10), Err(libc::EAGAIN));
        assert_eq!(record(kind, &here, libc::F_WRLCK, 5, 0), Err(libc::EAGAIN));
        let found = asked(libc::F_OFD_GETLK, &there, libc::F_RDLCK, 5, 2).unwrap();
        assert_eq!((i32::from(found.l_type), found.l_start, found.l_len), (libc::F_WRLCK, 0, 10));
        record(kind, &here, libc::F_RDLCK, 0, 10).unwrap();
        record(kind, &there, libc::F_RDLCK, 5, 5).unwrap();
        assert_eq!(record(kind, &here, libc::F_WRLCK, 0, 10), Err(libc::EAGAIN));
        record(kind, &here, libc::F_WRLCK, 0, 5).unwrap();
        record(kind, &there, libc::F_UNLCK, 0, 0).unwrap();
        record(kind, &here, libc::F_WRLCK, 0, 0).unwrap();
        let free = asked(libc::F_OFD_GETLK, &here, libc::F_WRLCK, 0, 0).unwrap();
        let own = matches!(kind, Kind::OfProcesses);
        // To a description the locks of its own process are another's.
        assert_eq!(i32::from(free.l_type) == libc::F_UNLCK, !own);
    }
}

/// flock(1) bounds its wait by an alarm.
#[test]
fn a_wait_for_a_lock_ends_with_a_signal() {
    let (_world, _server, a, b) = two("connected");
    let (here, _there) = open_at_both(&a, &b, "file");
    flock(&here, FlockOperation::LockExclusive).unwrap();
    for mount in [&a, &b] {
        let mut waits = Command::new("flock");
        waits.args(["-w", "0.3", "-E", "7"]).arg(mount.path("file")).arg("true");
        assert_eq!(waits.status().unwrap().code(), Some(7));
    }
    flock(&here, FlockOperation::Unlock).unwrap();
    let mut free = Command::new("flock");
    run(free.args(["-w", "60"]).arg(b.path("file")).arg("true")).succeeds();
}

/// Adds one, many times, to a number in a file that stays open and is never synced.
fn count(file: &File, rounds: u64, lock: impl Fn(), unlock: impl Fn()) {
    for _ in 0..rounds {
        lock();
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, 0).unwrap();
        let next = u64::from_le_bytes(bytes) + 1;
        file.write_all_at(&next.to_le_bytes(), 0).unwrap();
        unlock();
    }
}

#[test]
fn who_gets_a_lock_reads_what_was_written_under_it_elsewhere() {
    const ROUNDS: u64 = 25;
    let (_world, _server, a, b) = two("connected");
    for by_flock in [true, false] {
        let (here, there) = open_at_both(&a, &b, if by_flock { "one" } else { "other" });
        std::thread::scope(|scope| {
            for file in [&here, &there] {
                scope.spawn(move || {
                    let waits = libc::F_OFD_SETLKW;
                    match by_flock {
                        true => count(
                            file,
                            ROUNDS,
                            || flock(file, FlockOperation::LockExclusive).unwrap(),
                            || flock(file, FlockOperation::Unlock).unwrap(),
                        ),
                        false => count(
                            file,
                            ROUNDS,
                            || {
                                let _ = asked(waits, file, libc::F_WRLCK, 0, 8).unwrap();
                            },
                            || {
                                let _ = asked(waits, file, libc::F_UNLCK, 0, 8).unwrap();
                            },
                        ),
                    }
                });
            }
        });
        for file in [&here, &there] {
            flock(file, FlockOperation::LockExclusive).unwrap();
            let mut bytes = [0; 8];
            file.read_exact_at(&mut bytes, 0).unwrap();
            assert_eq!(u64::from_le_bytes(bytes), 2 * ROUNDS, "flock: {by_flock}");
            flock(file, FlockOperation::Unlock).unwrap();
        }
    }
}

/// Each record under a lock of its own, by processes of both machines and two of each.
#[test]
fn what_two_machines_count_in_records_of_one_file_is_all_there() {
    const ROUNDS: u64 = 25;
    const RECORDS: u64 = 3;
    let (_world, _server, a, b) = two("connected");
    let (here, there) = open_at_both(&a, &b, "records");
    let another = |mount: &Mount| {
        OpenOptions::new().read(true).write(true).open(mount.path("records")).unwrap()
    };
    let files = [here, there, another(&a), another(&b)];
    std::thread::scope(|scope| {
        for (number, file) in files.iter().enumerate() {
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let at = 8 * ((round * (number as u64 + 1)) % RECORDS);
                    let record = |typ| asked(libc::F_OFD_SETLKW, file, typ, at as i64, 8).unwrap();
                    record(libc::F_WRLCK);
                    let mut bytes = [0; 8];
                    file.read_exact_at(&mut bytes, at).unwrap();
                    let next = u64::from_le_bytes(bytes) + 1;
                    file.write_all_at(&next.to_le_bytes(), at).unwrap();
                    record(libc::F_UNLCK);
                }
            });
        }
    });
    drop(files);
    for mount in [&a, &b] {
        let bytes = fs::read(mount.path("records")).unwrap();
        let records = bytes.chunks(8).take(RECORDS as usize);
        let sum: u64 = records.map(|r| u64::from_le_bytes(r.try_into().unwrap())).sum();
        assert_eq!((sum, bytes.len()), (4 * ROUNDS, 100));
        assert_eq!(fs::read_dir(mount.path("")).unwrap().count(), 1, "nothing lies beside");
    }
}

#[test]
fn who_shares_a_lock_that_was_exclusive_reads_what_was_written_under_it_elsewhere() {
    let (_world, _server, a, b) = two("connected");
    for (name, by_flock) in [("one", true), ("other", false)] {
        let (here, there) = open_at_both(&a, &b, name);
        for (writer, reader, round) in [(&here, &there, 1), (&there, &here, 2), (&here, &there, 3)]
        {
            let lock = |file: &File, exclusive: bool| match by_flock {
                true if exclusive => flock(file, FlockOperation::LockExclusive).unwrap(),
                true => flock(file, FlockOperation::LockShared).unwrap(),
                false => {
                    let typ = if exclusive { libc::F_WRLCK } else { libc::F_RDLCK };
                    asked(libc::F_OFD_SETLKW, file, typ, 0, 8).map(drop).unwrap();
                }
            };
            lock(writer, true);
            writer.write_all_at(&[round; 8], 0).unwrap();
            lock(writer, false);
            lock(reader, false);
            let mut bytes = [0; 8];
            reader.read_exact_at(&mut bytes, 0).unwrap();
            assert_eq!(bytes, [round; 8], "flock: {by_flock}");
            for file in [writer, reader] {
                match by_flock {
                    true => flock(file, FlockOperation::Unlock).unwrap(),
                    false => record(Kind::OfDescriptions, file, libc::F_UNLCK, 0, 8).unwrap(),
                }
            }
        }
    }
}

/// Rollback journals: every transaction locks bytes of one page, and reads what others wrote.
#[test]
fn two_machines_count_in_one_database_and_lose_nothing() {
    let (_world, _server, a, b) = two("connected");
    let sqlite = |mount: &Mount, commands: &str| {
        let mut command = Command::new("sqlite3");
        command.args(["-bail", "-cmd", ".timeout 60000"]).arg(mount.path("data.db")).arg(commands);
        run(&mut command).succeeds()
    };
    sqlite(&a, "pragma journal_mode=delete; create table t(n); insert into t values(0);");
    const ROUNDS: usize = 12;
    std::thread::scope(|scope| {
        for mount in [&a, &b] {
            scope.spawn(move || {
                // One process that keeps the database open, and others that open it anew.
                let many = "begin immediate; update t set n = n + 1; commit;".repeat(ROUNDS);
                sqlite(mount, &many);
                for _ in 0..ROUNDS {
                    sqlite(mount, "begin immediate; update t set n = n + 1; commit;");
                }
            });
        }
    });
    for mount in [&a, &b] {
        let counted = sqlite(mount, "pragma integrity_check; select n from t;");
        assert_eq!(counted, format!("ok\n{}\n", 4 * ROUNDS));
    }
}

/// The memory that processes share then does not reach to another machine.
#[test]
fn a_database_in_wal_mode_is_for_one_machine_at_a_time_and_loses_nothing() {
    let (_world, _server, a, b) = two("connected");
    let sqlite = |mount: &Mount, timeout: &str, commands: &str| {
        let mut command = Command::new("sqlite3");
        command.args(["-bail", "-cmd", timeout]).arg(mount.path("data.db")).arg(commands);
        command
    };
    let patient = ".timeout 60000";
    run(&mut sqlite(&a, patient, "pragma journal_mode=wal; create table t(n);")).succeeds();
    // A program that keeps it open, and another on the same machine.
    let mut keeps = Command::new("sqlite3");
    let mut keeps = keeps.arg(a.path("data.db")).stdin(Stdio::piped()).spawn().unwrap();
    let said = format!("insert into t values(1);\n.shell touch {}\n", a.path("in").display());
    keeps.stdin.as_mut().unwrap().write_all(said.as_bytes()).unwrap();
    eventually(Duration::from_secs(20), "it is open", || a.path("in").exists());
    run(&mut sqlite(&a, patient, "insert into t values(2);")).succeeds();
    // SQLite itself tries for some ten seconds.
    let mut waits = sqlite(&b, patient, "insert into t values(3);").spawn().unwrap();
    for _ in 0..3 {
        run(&mut sqlite(&a, patient, "insert into t values(4);")).succeeds();
    }
    assert!(waits.try_wait().unwrap().is_none(), "two machines share no memory");
    drop(keeps.stdin.take());
    keeps.wait().unwrap();
    assert!(waits.wait().unwrap().success());
    // Then everybody in turn. At the same time, who opens it while another machine is the last to close
    // it, and removes the log, may be refused with an error of input and output.
    const ROUNDS: usize = 5;
    for _ in 0..ROUNDS {
        for mount in [&a, &b] {
            run(&mut sqlite(mount, patient, "insert into t values(5);")).succeeds();
        }
    }
    for mount in [&a, &b] {
        let count = "pragma integrity_check; select count(*) from t;";
        let counted = run(&mut sqlite(mount, patient, count)).succeeds();
        assert_eq!(counted, format!("ok\n{}\n", 6 + 2 * ROUNDS));
        let names = fs::read_dir(mount.path("")).unwrap().map(|entry| entry.unwrap().file_name());
        let names: Vec<_> =
            names.filter(|name| name.to_string_lossy().contains("conflict")).collect();
        assert!(names.is_empty(), "{names:?}");
    }
}

#[test]
fn the_lock_of_a_device_that_is_killed_becomes_free() {
    let (_world, _server, mut a, b) = two("connected");
    let (here, there) = open_at_both(&a, &b, "file");
    flock(&here, FlockOperation::LockExclusive).unwrap();
    let refused = flock(&there, FlockOperation::NonBlockingLockExclusive);
    assert_eq!(refused, Err(Errno::WOULDBLOCK));
    a.kill();
    drop(here);
    eventually(LEASE_ENDS, "the lease ends", || {
        flock(&there, FlockOperation::NonBlockingLockExclusive).is_ok()
    });
}

#[test]
fn a_lock_outlives_a_restart_of_the_server() {
    let (_world, mut server, a, b) = two("connected");
    let (here, there) = open_at_both(&a, &b, "file");
    flock(&here, FlockOperation::LockExclusive).unwrap();
    server.kill();
    server.restart();
    let refused = flock(&there, FlockOperation::NonBlockingLockExclusive);
    assert_eq!(refused, Err(Errno::WOULDBLOCK));
    flock(&here, FlockOperation::Unlock).unwrap();
    flock(&there, FlockOperation::LockExclusive).unwrap();
}

#[test]
fn in_partial_mode_locks_hold_among_the_processes_of_each_machine() {
    let (_world, _server, a, b) = two("partial");
    fs::write(a.path("file"), "x").unwrap();
    eventually(Duration::from_secs(20), "it arrives", || b.path("file").exists());
    let open = |mount: &Mount| File::open(mount.path("file")).unwrap();
    let (one, other, there) = (open(&a), open(&a), open(&b));
    flock(&one, FlockOperation::LockExclusive).unwrap();
    let refused = flock(&other, FlockOperation::NonBlockingLockExclusive);
    assert_eq!(refused, Err(Errno::WOULDBLOCK));
    flock(&there, FlockOperation::NonBlockingLockExclusive).unwrap();
}
