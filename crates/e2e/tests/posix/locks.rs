//! Locks among the processes of one machine.

use crate::in_both_modes;
use rustix::fs::{FlockOperation, fcntl_lock, flock};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn a_whole_file_is_locked_among_the_processes_of_this_machine() {
    in_both_modes(|mount| {
        let path = mount.path("file");
        fs::write(&path, "").unwrap();
        let (one, two) = (File::open(&path).unwrap(), File::open(&path).unwrap());
        flock(&one, FlockOperation::LockExclusive).unwrap();
        let refused = flock(&two, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(refused, Err(Errno::WOULDBLOCK));
        flock(&one, FlockOperation::Unlock).unwrap();
        flock(&two, FlockOperation::NonBlockingLockExclusive).unwrap();
    });
}

/// SQLite locks records, and does not wait for them unless it is told to.
#[test]
fn records_are_locked_between_processes() {
    in_both_modes(|mount| {
        let database = mount.path("database").display().to_string();
        let meanwhile = format!(".shell sqlite3 {database} 'insert into t values(2)'");
        let steps =
            ["create table t(a); begin exclusive; insert into t values(1);", &meanwhile, "commit;"];
        let ran = e2e::run(Command::new("sqlite3").arg(&database).args(steps));
        assert!(ran.err.contains("locked"), "{ran:#?}");
        let rows = e2e::run(Command::new("sqlite3").args([&database, "select a from t"]));
        assert_eq!(rows.succeeds(), "1\n");
    });
}

#[test]
fn flock_and_fcntl_do_not_know_of_each_other() {
    in_both_modes(|mount| {
        let path = mount.path("file");
        fs::write(&path, "").unwrap();
        let open = || File::options().read(true).write(true).open(&path).unwrap();
        let (one, two, three) = (open(), open(), open());
        flock(&one, FlockOperation::LockExclusive).unwrap();
        fcntl_lock(&two, FlockOperation::NonBlockingLockExclusive).unwrap();
        let refused = flock(&three, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(refused, Err(Errno::WOULDBLOCK));
        // And what one has by the one it keeps when the other goes.
        fcntl_lock(&two, FlockOperation::Unlock).unwrap();
        let refused = flock(&three, FlockOperation::NonBlockingLockShared);
        assert_eq!(refused, Err(Errno::WOULDBLOCK));
    });
}

/// Locks a file through a descriptor that is opened to be read, forks a process that keeps that, and says
/// which; a line that it is told ends it.
const FORKS: &str = "
import fcntl, os, struct, sys, time
file = os.open(sys.argv[1], os.O_RDONLY)
if sys.argv[2] == 'process':
    fcntl.lockf(file, fcntl.LOCK_SH)
else:
    lock = struct.pack('hhqqi4x', fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
    fcntl.fcntl(file, fcntl.F_OFD_SETLK, lock)
child = os.fork()
if child == 0:
    for number in range(3):
        os.close(number)
    time.sleep(120)
    os._exit(0)
print(child, flush=True)
sys.stdin.readline()
";

/// The process that has the lock, and the one that has a copy of its descriptor, until both end.
struct Forked {
    holder: Child,
    keeper: Pid,
}

impl Forked {
    fn of(file: &Path, whose: &str) -> Forked {
        let mut command = Command::new("python3");
        let command = command.args(["-c", FORKS]).arg(file).arg(whose);
        let mut holder =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python runs");
        let mut said = String::new();
        BufReader::new(holder.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
        let keeper = Pid::from_raw(said.trim().parse().expect("it has locked the file")).unwrap();
        Forked { holder, keeper }
    }

    fn holder_ends(&mut self) {
        self.holder.stdin.take();
        assert!(self.holder.wait().unwrap().success());
    }
}

impl Drop for Forked {
    fn drop(&mut self) {
        let _ = kill_process(self.keeper, Signal::KILL);
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

#[test]
fn what_a_process_locked_is_free_when_it_has_ended_though_another_has_its_descriptor() {
    in_both_modes(|mount| {
        let path = mount.path("file");
        fs::write(&path, "contents").unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let mut forked = Forked::of(&path, "process");
        let refused = fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(refused, Err(Errno::AGAIN), "it is alive");
        forked.holder_ends();
        fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        fcntl_lock(&file, FlockOperation::Unlock).unwrap();
        // Who waits already gets it, too.
        let mut forked = Forked::of(&path, "process");
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                fcntl_lock(&file, FlockOperation::LockExclusive).unwrap();
                Instant::now()
            });
            std::thread::sleep(Duration::from_millis(500));
            assert!(!waits.is_finished(), "it is alive");
            forked.holder_ends();
            let ended = Instant::now();
            let waited = waits.join().unwrap().saturating_duration_since(ended);
            assert!(waited < Duration::from_secs(20), "{waited:?}");
        });
    });
}

#[test]
fn what_an_open_file_description_has_locked_outlives_who_has_locked_it() {
    in_both_modes(|mount| {
        let path = mount.path("file");
        fs::write(&path, "contents").unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let mut forked = Forked::of(&path, "description");
        forked.holder_ends();
        let lock = || fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(lock(), Err(Errno::AGAIN), "another process has it");
        drop(forked);
        e2e::eventually(Duration::from_secs(20), "nobody has it", || lock().is_ok());
    });
}

#[test]
fn closing_what_was_opened_to_be_read_gives_up_what_the_process_has_locked_of_the_file() {
    in_both_modes(|mount| {
        let path = mount.path("file");
        fs::write(&path, "contents").unwrap();
        let lock = format!(
            "import fcntl; fcntl.lockf(open('{}', 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)",
            path.display()
        );
        let lock = || e2e::run(Command::new("python3").args(["-c", &lock]));
        let file = File::options().read(true).write(true).open(&path).unwrap();
        fcntl_lock(&file, FlockOperation::LockExclusive).unwrap();
        assert!(lock().err.contains("BlockingIOError"), "it is locked");
        drop(File::open(&path).unwrap());
        lock().succeeds();
    });
}
