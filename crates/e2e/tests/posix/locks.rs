//! Locks among the processes of one machine.

use crate::in_both_modes;
use rustix::fs::{FlockOperation, fcntl_lock, flock};
use rustix::io::Errno;
use std::fs::{self, File};
use std::process::Command;

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
