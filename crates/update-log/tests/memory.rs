//! What a log takes in memory: hardly more, however much is pending.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]
#![allow(clippy::disallowed_methods, reason = "asks the system what this process has in memory")]

use model::{Change, Contents, FileId, Kind, Name, ReplicaId, Stamp, Time, Update};
use std::sync::Arc;
use store::Journal;
use store::journal::FileJournal;
use update_log::{NEAR_MAX, UpdateLog};

/// Made and written, each.
const FILES: u64 = 50_000;
/// A pending update as a value takes 0.2 to 0.4 kB.
const GROWTH_KIB_MAX: u64 = FILES * 2 * 90 / 1024;

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn update(number: u64, change: Change) -> Update {
    let at = Time { secs: 1_795_000_000, nanos: 0 };
    Update { stamp: Stamp::new(ReplicaId(1), number), uid: 1000, at, change }
}

fn make(file: FileId) -> Change {
    Change::Make {
        parent: FileId::ROOT,
        name: Name::new(format!("file-{:07}.txt", file.counter()).into_bytes()).unwrap(),
        file,
        kind: Kind::File,
        mode: 0o644,
        uid: 1000,
        gid: 1000,
        target: None,
        rdev: None,
        born: None,
    }
}

fn store(file: FileId) -> Change {
    let contents = Contents { size: 30, ..Contents::EMPTY };
    Change::Store { file, expects: Stamp::default(), contents, mtime: Time::default() }
}

#[test]
fn what_is_pending_takes_little_and_leaves_in_its_order() {
    let directory = tempfile::tempdir().unwrap();
    let journal: Arc<dyn Journal> = Arc::new(FileJournal::open(directory.path()).unwrap());
    let open = || UpdateLog::open(journal.clone(), 0, 0, NEAR_MAX).unwrap().0;
    let mut log = open();
    let before = resident_kib();
    for counter in 1..=FILES {
        let file = FileId::new(ReplicaId(1), counter).unwrap();
        for change in [make(file), store(file)] {
            log.append(update(log.next_number(), change)).unwrap();
        }
    }
    let growth = resident_kib().saturating_sub(before);
    assert!(growth < GROWTH_KIB_MAX, "{growth} KiB while it was made");
    drop(log);
    let before = resident_kib();
    let mut log = open();
    assert_eq!(log.pending_len() as u64, 2 * FILES);
    let growth = resident_kib().saturating_sub(before);
    assert!(growth < GROWTH_KIB_MAX, "{growth} KiB while it was read");
    let mut next = 1;
    loop {
        let batch = log.batch(256).unwrap();
        if batch.updates.is_empty() {
            break;
        }
        for update in &batch.updates {
            assert_eq!(update.stamp.number, next);
            assert!(log.retire(update));
            next += 1;
        }
        assert_eq!(batch.more, next <= 2 * FILES);
    }
    assert_eq!((next, log.pending_len()), (2 * FILES + 1, 0));
}
