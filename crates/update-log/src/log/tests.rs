use super::*;
use model::{Contents, ReplicaId, Time};
use store::memory::MemoryJournal;

fn update(number: u64, change: Change) -> Update {
    Update { stamp: Stamp::new(ReplicaId(1), number), uid: 0, at: Time::default(), change }
}

fn store(file: u64) -> Change {
    Change::Store {
        file: FileId(file),
        expects: Stamp::default(),
        contents: Contents::EMPTY,
        mtime: Time::default(),
    }
}

fn remove_xattr(file: u64) -> Change {
    Change::RemoveXattr { file: FileId(file), name: b"user.k".to_vec().into() }
}

fn open(journal: &Arc<MemoryJournal>, settled: u64, applied: Position) -> (UpdateLog, Recovered) {
    UpdateLog::open(journal.clone(), settled, applied).expect("memory does not fail")
}

fn numbers(log: &UpdateLog) -> Vec<u64> {
    log.pending().map(|update| update.stamp.number).collect()
}

#[test]
fn what_was_appended_is_pending_again_after_a_restart() {
    let journal = Arc::new(MemoryJournal::default());
    let (mut log, _) = open(&journal, 0, 0);
    for number in 1..=3 {
        log.append(update(number, store(number))).expect("memory does not fail");
    }
    let (log, recovered) = open(&journal, 1, 1);
    assert_eq!(numbers(&log), vec![2, 3]);
    assert_eq!(recovered.replayed.len(), 2);
    assert_eq!(log.next_number(), 4);
}

#[test]
fn what_is_in_the_tables_already_is_pending_and_not_replayed() {
    let journal = Arc::new(MemoryJournal::default());
    let (mut log, _) = open(&journal, 0, 0);
    log.append(update(1, store(1))).expect("memory does not fail");
    let (log, recovered) = open(&journal, 0, 1);
    assert_eq!(numbers(&log), vec![1]);
    assert!(recovered.replayed.is_empty());
}

#[test]
fn a_log_that_ends_before_what_the_tables_know_of_is_damaged_and_not_empty() {
    let journal = Arc::new(MemoryJournal::default());
    let (mut log, _) = open(&journal, 0, 0);
    log.append(update(1, store(1))).expect("memory does not fail");
    let Err(error) = UpdateLog::open(journal, 0, 2) else { panic!("a record is missing") };
    assert!(matches!(error, LogError::CutShort { last: 1, of: 2 }), "{error}");
}

#[test]
fn an_update_that_may_have_left_is_never_taken_back() {
    let journal = Arc::new(MemoryJournal::default());
    let (mut log, _) = open(&journal, 0, 0);
    log.append(update(1, store(1))).expect("memory does not fail");
    log.append(update(2, store(2))).expect("memory does not fail");
    log.submitted(&[1]);
    assert_eq!(log.cancel(1).expect("memory does not fail"), Cancel::OnItsWay);
    assert_eq!(log.cancel(2).expect("memory does not fail"), Cancel::Cancelled);
    assert_eq!(log.cancel(2).expect("memory does not fail"), Cancel::NotPending);
    log.returned(&[1]);
    assert_eq!(log.cancel(1).expect("memory does not fail"), Cancel::Cancelled);
    // Nor does it come back.
    let (log, recovered) = open(&journal, 0, 0);
    assert_eq!(numbers(&log), Vec::<u64>::new());
    assert_eq!(recovered.cancelled.len(), 2);
    assert_eq!(log.next_number(), 3, "a number is never used again");
}

#[test]
fn the_journal_keeps_what_is_pending_however_old() {
    let journal = Arc::new(MemoryJournal::default());
    let (mut log, _) = open(&journal, 0, 0);
    for number in 1..=4 {
        log.append(update(number, remove_xattr(number))).expect("memory does not fail");
    }
    log.retire(1);
    log.retire(3);
    log.truncate(4).expect("memory does not fail");
    let (log, _) = open(&journal, 1, 4);
    assert_eq!(numbers(&log), vec![2, 3, 4], "3 is pending again until the origin says it is not");
}

#[test]
fn renumbered_updates_take_the_place_of_the_old_ones() {
    let journal = Arc::new(MemoryJournal::default());
    let (mut log, _) = open(&journal, 0, 0);
    log.append(update(1, store(1))).expect("memory does not fail");
    log.append(update(2, store(2))).expect("memory does not fail");
    log.renumber(|old| {
        let stamp = Stamp::new(ReplicaId(9), old.stamp.number + 2);
        Update { stamp, ..old.clone() }
    })
    .expect("memory does not fail");
    let (log, _) = open(&journal, 0, 0);
    let stamps: Vec<_> = log.pending().map(|update| update.stamp).collect();
    assert_eq!(stamps, vec![Stamp::new(ReplicaId(9), 3), Stamp::new(ReplicaId(9), 4)]);
}

#[test]
fn the_last_pending_store_of_a_file_is_found() {
    let journal = Arc::new(MemoryJournal::default());
    let (mut log, _) = open(&journal, 0, 0);
    log.append(update(1, store(7))).expect("memory does not fail");
    log.append(update(2, store(7))).expect("memory does not fail");
    log.append(update(3, remove_xattr(7))).expect("memory does not fail");
    assert_eq!(log.get(2).map(|update| update.stamp.number), Some(2));
    log.retire(3);
    let last = |log: &UpdateLog| log.pending_store(FileId(7)).map(|(number, _)| number);
    assert_eq!(last(&log), Some(2));
    assert_eq!(log.pending_store(FileId(8)), None);
    log.overtake(2).expect("memory does not fail");
    assert_eq!(last(&log), Some(1));
    assert_eq!(last(&open(&journal, 0, 0).0), Some(1));
    log.renumber(|old| Update { stamp: Stamp::new(ReplicaId(9), 7), ..old.clone() })
        .expect("memory does not fail");
    assert_eq!(last(&log), Some(7));
    log.retire(7);
    assert_eq!(last(&log), None);
}

#[test]
fn a_damaged_record_says_which() {
    let journal = Arc::new(MemoryJournal::default());
    journal.append(&[7, 7]).expect("memory does not fail");
    let error = UpdateLog::open(journal, 0, 0).err().expect("it is damaged");
    assert!(error.to_string().contains("record 1"), "{error}");
}

#[test]
fn what_is_put_back_is_on_its_way_again_and_the_journal_keeps_it() {
    let journal = Arc::new(MemoryJournal::default());
    let (mut log, _) = open(&journal, 0, 0);
    log.append(update(1, store(1))).expect("memory does not fail");
    log.append(update(2, store(2))).expect("memory does not fail");
    let retired = log.retire(1).into_iter().collect();
    log.put_back(retired);
    assert_eq!(numbers(&log), vec![1, 2]);
    assert_eq!(log.cancel(1).expect("memory does not fail"), Cancel::OnItsWay);
    log.truncate(2).expect("memory does not fail");
    assert_eq!(numbers(&open(&journal, 0, 2).0), vec![1, 2]);
}
