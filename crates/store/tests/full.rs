//! A disk without room, as a limit on the length of files: what was acknowledged stays, what was
//! refused leaves nothing, and with room again everything goes on.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]
#![allow(clippy::disallowed_methods, reason = "runs itself again under a limit")]

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::path::Path;
use std::process::Command;
use store::container::{DirectoryContainers, Key};
use store::embedded::{Database, Settings};
use store::journal::FileJournal;
use store::packs::Packs;
use store::{Blobs, Container, Containers, Durability, Journal, StoreError, Tables};

/// Says to the copy of this program that runs under the limit where it may write.
const DIRECTORY: &str = "STORE_TESTS_FULL_DIRECTORY";

/// More would mean that the limit did not hold.
const WRITES_MAX: u32 = 20_000;

/// Runs the test of this name again, in a process whose files may not grow beyond `kib`.
fn limited(test: &str, kib: u64, work: impl FnOnce(&Path)) {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        return work(Path::new(&directory));
    }
    let directory = tempfile::tempdir().unwrap();
    let program = std::env::current_exe().unwrap();
    // The shell ignores the signal, and so does what it starts; the limit is in halves of KiB.
    let script = format!("trap '' XFSZ; ulimit -S -f {}; exec \"$0\" --exact {test}", kib * 2);
    let output = Command::new("sh")
        .arg("-c")
        .arg(script)
        .arg(program)
        .env(DIRECTORY, directory.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("1 passed"), "{said}");
}

fn lift_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Fsize);
    setrlimit(Resource::Fsize, Rlimit { current: maximum, maximum }).unwrap();
}

/// Writes until the disk is full; returns how many were acknowledged.
fn fill(mut write: impl FnMut(u32) -> Result<(), StoreError>) -> u32 {
    for number in 0..WRITES_MAX {
        match write(number) {
            Ok(()) => {}
            Err(StoreError::Full(_)) => return number,
            Err(other) => panic!("{other}"),
        }
    }
    panic!("the disk never got full");
}

#[test]
fn a_full_disk_costs_the_journal_no_record() {
    limited("a_full_disk_costs_the_journal_no_record", 100, |directory| {
        let journal = FileJournal::open(directory).unwrap();
        let record = |number: u32| vec![number as u8; 1500];
        let count = fill(|number| journal.append(&record(number)).map(drop));
        assert!(matches!(journal.append(&record(0)), Err(StoreError::Full(_))));
        journal.sync().unwrap();
        lift_limit();
        assert_eq!(journal.append(&record(count)).unwrap(), u64::from(count) + 1);
        drop(journal);
        let records = FileJournal::open(directory).unwrap().records().unwrap();
        assert_eq!(records.len() as u32, count + 1);
        assert!(records.iter().zip(0..).all(|((_, bytes), number)| *bytes == record(number)));
    });
}

#[test]
fn a_full_disk_costs_the_packs_no_blob() {
    // The index needs more than a pack.
    limited("a_full_disk_costs_the_packs_no_blob", 4096, |directory| {
        let packs = Packs::open(directory).unwrap();
        let blob = |number: u32| vec![number as u8; 7000];
        let count = fill(|number| packs.put(&number.to_be_bytes(), &blob(number)));
        assert!(!packs.has(&count.to_be_bytes()).unwrap());
        packs.sync().unwrap();
        lift_limit();
        packs.put(&count.to_be_bytes(), &blob(count)).unwrap();
        drop(packs);
        let packs = Packs::open(directory).unwrap();
        for number in 0..=count {
            assert_eq!(packs.get(&number.to_be_bytes()).unwrap(), Some(blob(number)));
        }
    });
}

#[test]
fn a_full_disk_that_stops_a_reclaim_costs_no_blob() {
    limited("a_full_disk_that_stops_a_reclaim_costs_no_blob", 4096, |directory| {
        // Packs far beyond the limit: what is alive in the first does not fit behind the newest.
        let packs = Packs::open_with_packs(directory, 16 << 20).unwrap();
        let blob = |number: u32| vec![number as u8; 7000];
        let count = fill(|number| packs.put(&number.to_be_bytes(), &blob(number)));
        let mut deleted = 0;
        for number in (0..count).step_by(2) {
            // A deletion takes room too: as many as fit.
            if packs.delete(&number.to_be_bytes()).is_ok() {
                deleted += 1;
            }
        }
        let outcome = packs.reclaim(10);
        let left = |packs: &Packs| {
            (0..count)
                .filter(|number| {
                    let found = packs.get(&number.to_be_bytes()).unwrap();
                    assert!(found.is_none() || found == Some(blob(*number)));
                    found.is_some()
                })
                .count() as u32
        };
        assert!(deleted > 0 || outcome.is_ok_and(|freed| freed.is_none()));
        assert_eq!(left(&packs), count - deleted);
        drop(packs);
        lift_limit();
        let packs = Packs::open_with_packs(directory, 16 << 20).unwrap();
        assert_eq!(left(&packs), count - deleted);
        while packs.reclaim(10).unwrap().is_some_and(|freed| freed > 0) {}
        assert_eq!(left(&packs), count - deleted);
    });
}

#[test]
fn a_full_disk_costs_the_tables_the_transaction_alone() {
    limited("a_full_disk_costs_the_tables_the_transaction_alone", 6000, |directory| {
        let path = directory.join("tables");
        let tables = Database::open(&path).unwrap();
        let insert = |number: u32, durability| {
            let mut write = tables.write()?;
            for part in 0..10_u8 {
                write.put("rows", &[&number.to_be_bytes()[..], &[part]].concat(), &[part; 5000])?;
            }
            write.commit(durability)
        };
        let rows = || tables.read().unwrap().scan("rows", &[], &[0xff; 6], usize::MAX).unwrap();
        let count = fill(|number| insert(number, Durability::Now));
        assert!(count > 0);
        assert_eq!(rows().len() as u32, count * 10, "nothing of the refused transaction");
        assert!(matches!(insert(count, Durability::Now), Err(StoreError::Full(_))));
        lift_limit();
        insert(count, Durability::Now).unwrap();
        assert_eq!(rows().len() as u32, (count + 1) * 10);
    });
}

#[test]
fn a_full_disk_costs_logged_tables_the_transaction_alone() {
    // The log is what gets too long: redb's file is made before the limit matters.
    limited("a_full_disk_costs_logged_tables_the_transaction_alone", 2500, |directory| {
        let (path, log) = (directory.join("tables"), directory.join("log"));
        let settings = Settings { log: Some(&log), ..Settings::default() };
        let tables = Database::open_as(&path, settings.clone()).unwrap();
        let insert = |tables: &Database, number: u32| {
            let mut write = tables.write()?;
            write.put("rows", &number.to_be_bytes(), &[7; 5000])?;
            write.commit(Durability::Now)
        };
        let rows = |tables: &Database| {
            tables.read().unwrap().scan("rows", &[], &[0xff; 6], usize::MAX).unwrap().len() as u32
        };
        let count = fill(|number| insert(&tables, number));
        assert!(count > 100);
        assert_eq!(rows(&tables), count, "nothing of the refused transaction");
        lift_limit();
        insert(&tables, count).unwrap();
        assert_eq!(rows(&tables), count + 1);
        drop(tables);
        let tables = Database::open_as(&path, settings).unwrap();
        assert_eq!(rows(&tables), count + 1, "nor after a start");
    });
}

#[test]
fn commits_that_only_memory_has_are_never_taken_back_by_a_full_disk() {
    let test = "commits_that_only_memory_has_are_never_taken_back_by_a_full_disk";
    limited(test, 3000, |directory| {
        let tables = Database::open(&directory.join("tables")).unwrap();
        let insert = |number: u32, durability| {
            let mut write = tables.write()?;
            write.put("rows", &number.to_be_bytes(), &[7; 50_000])?;
            write.commit(durability)
        };
        let mut acknowledged = 0;
        let refused = (0..WRITES_MAX).find_map(|number| {
            let durability = if number % 8 == 0 { Durability::Now } else { Durability::Later };
            let outcome = insert(number, durability);
            acknowledged += u32::from(outcome.is_ok());
            outcome.err()
        });
        assert!(acknowledged > 1);
        assert!(matches!(refused, Some(StoreError::Full(_))), "{refused:?}");
        lift_limit();
        match tables.read() {
            Ok(read) => {
                let rows = read.scan("rows", &[], &[0xff; 5], usize::MAX).unwrap();
                assert_eq!(rows.len() as u32, acknowledged);
            }
            Err(error) => assert!(error.to_string().contains("start farfs again"), "{error}"),
        }
    });
}

#[test]
fn a_file_that_is_too_large_is_told_from_a_full_disk_by_a_container() {
    let test = "a_file_that_is_too_large_is_told_from_a_full_disk_by_a_container";
    limited(test, 100, |directory| {
        let containers = DirectoryContainers::open(directory).unwrap();
        let container = containers.open(Key { file: 1, generation: 0 }, true).unwrap().unwrap();
        container.write(0, &[1; 90_000]).unwrap();
        let too_large = |outcome| matches!(outcome, Err(StoreError::TooLarge(_)));
        assert!(too_large(container.write(90_000, &[2; 90_000])));
        assert!(too_large(container.allocate(0, 200_000)));
        assert!(too_large(container.set_length(200_000)));
        assert_eq!(container.read(0, 90_000).unwrap(), [1; 90_000]);
    });
}
