//! Locks among the processes of one machine.

use crate::in_both_modes;
use rustix::fs::{FlockOperation, flock};
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
