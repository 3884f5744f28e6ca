use super::*;
use model::{Change, Contents, ReplicaId, Stamp, Time};
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

#[test]
fn holes_are_not_pending() {
    let (mut log, _) = open(&Arc::new(MemoryJournal::default()), 0, 0);
    for (number, holes) in [(1, None), (2, Some(7 << 30))] {
        let contents = Contents { size: (7 << 30) + 5, holes, ..Contents::EMPTY };
        let Change::Store { file, expects, mtime, .. } = store(number) else { unreachable!() };
        let change = Change::Store { file, expects, contents, mtime };
        log.append(update(number, change)).expect("memory does not fail");
    }
    assert_eq!(log.store_bytes(), (7 << 30) + 10);
    retire(&mut log, 1);
    assert_eq!(log.store_bytes(), 5);
    retire(&mut log, 2);
    assert_eq!(log.store_bytes(), 0);
}

fn remove_xattr(file: u64) -> Change {
    Change::RemoveXattr { file: FileId(file), name: b"user.k".to_vec().into(), expects: None }
}

/// So few are kept in memory that nearly all are read from the journal.
const FEW: usize = 1;

fn opened_record(file: u64) -> Record {
    Record::Opened { file: FileId(file), generation: 0, expects: Stamp::default(), uid: 0 }
}

fn open(journal: &Arc<MemoryJournal>, settled: u64, applied: Position) -> (UpdateLog, Recovered) {
    UpdateLog::open(journal.clone(), settled, applied, FEW).expect("memory does not fail")
}

fn pending(log: &UpdateLog) -> Vec<Update> {
    let mut pending = Vec::new();
    log.each_from(0, |update| {
        pending.push(update.clone());
        Ok::<_, LogError>(())
    })
    .expect("memory does not fail");
    pending
}

fn numbers(log: &UpdateLog) -> Vec<u64> {
    let numbers: Vec<u64> = pending(log).iter().map(|update| update.stamp.number).collect();
    assert!(log.numbers_from(0).eq(numbers.iter().copied()));
    numbers
}

fn retire(log: &mut UpdateLog, number: u64) -> Option<Update> {
    let update = log.get(number).expect("memory does not fail")?;
    assert!(log.retire(&update) && !log.retire(&update));
    Some(update)
}

/// Records behind the checkpoint.
fn replayed(log: &UpdateLog, applied: Position) -> Vec<Record> {
    let (mut records, mut after) = (Vec::new(), applied);
    while let Some(page) = log.page(after).expect("memory does not fail") {
        after = page.last;
        records.extend(page.records);
    }
    records
}

#[test]
fn what_was_appended_is_pending_again_after_a_restart() {
    let journal = Arc::new(MemoryJournal::default());
    let (mut log, _) = open(&journal, 0, 0);
    for number in 1..=3 {
        log.append(update(number, store(number))).expect("memory does not fail");
    }
    let (log, _) = open(&journal, 1, 1);
    assert_eq!(numbers(&log), vec![2, 3]);
    assert_eq!(replayed(&log, 1).len(), 2);
    assert_eq!(log.next_number(), 4);
}

#[test]
fn what_is_in_the_tables_already_is_pending_and_not_replayed() {
    let journal = Arc::new(MemoryJournal::default());
    let (mut log, _) = open(&journal, 0, 0);
    log.append(update(1, store(1))).expect("memory does not fail");
    let (log, _) = open(&journal, 0, 1);
    assert_eq!(numbers(&log), vec![1]);
    assert_eq!(replayed(&log, 1), []);
}

#[test]
fn a_log_that_ends_before_what_the_tables_know_of_is_damaged_and_not_empty() {
    let journal = Arc::new(MemoryJournal::default());
    let (mut log, _) = open(&journal, 0, 0);
    log.append(update(1, store(1))).expect("memory does not fail");
    let Err(error) = UpdateLog::open(journal, 0, 2, FEW) else { panic!("a record is missing") };
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
    assert_eq!(recovered.cancelled, [2, 1]);
    assert_eq!(open(&journal, 0, 3).1.cancelled, [1], "of the others the tables know");
    assert!(log.written(1).expect("memory does not fail").is_some());
    assert_eq!(log.next_number(), 3, "a number is never used again");
}

#[test]
fn the_journal_keeps_what_is_pending_however_old() {
    let journal = Arc::new(MemoryJournal::default());
    let (mut log, _) = open(&journal, 0, 0);
    for number in 1..=4 {
        log.append(update(number, remove_xattr(number))).expect("memory does not fail");
    }
    retire(&mut log, 1);
    retire(&mut log, 3);
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
    let stamps: Vec<_> = pending(&log).iter().map(|update| update.stamp).collect();
    assert_eq!(stamps, vec![Stamp::new(ReplicaId(9), 3), Stamp::new(ReplicaId(9), 4)]);
}

#[test]
fn the_last_pending_store_of_a_file_is_found() {
    let journal = Arc::new(MemoryJournal::default());
    let (mut log, _) = open(&journal, 0, 0);
    log.append(update(1, store(7))).expect("memory does not fail");
    log.append(update(2, store(7))).expect("memory does not fail");
    log.append(update(3, remove_xattr(7))).expect("memory does not fail");
    let second = log.get(2).expect("memory does not fail");
    assert_eq!(second.map(|update| update.stamp.number), Some(2));
    retire(&mut log, 3);
    let last = |log: &UpdateLog| log.pending_store(FileId(7));
    assert_eq!(last(&log), Some(2));
    assert_eq!(log.pending_store(FileId(8)), None);
    log.overtake(2).expect("memory does not fail");
    assert_eq!(last(&log), Some(1));
    assert_eq!(last(&open(&journal, 0, 0).0), Some(1));
    log.renumber(|old| Update { stamp: Stamp::new(ReplicaId(9), 7), ..old.clone() })
        .expect("memory does not fail");
    assert_eq!(last(&log), Some(7));
    retire(&mut log, 7);
    assert_eq!(last(&log), None);
}

#[test]
fn a_damaged_record_says_which() {
    let journal = Arc::new(MemoryJournal::default());
    journal.append(&[7, 7]).expect("memory does not fail");
    let error = UpdateLog::open(journal, 0, 0, FEW).err().expect("it is damaged");
    assert!(error.to_string().contains("record 1"), "{error}");
}

#[test]
fn what_is_put_back_is_on_its_way_again_and_the_journal_keeps_it() {
    let journal = Arc::new(MemoryJournal::default());
    let (mut log, _) = open(&journal, 0, 0);
    log.append(update(1, store(1))).expect("memory does not fail");
    log.append(update(2, store(2))).expect("memory does not fail");
    let retired = retire(&mut log, 1).into_iter().collect();
    log.put_back(retired);
    assert_eq!(numbers(&log), vec![1, 2]);
    assert_eq!(log.cancel(1).expect("memory does not fail"), Cancel::OnItsWay);
    log.truncate(2).expect("memory does not fail");
    assert_eq!(numbers(&open(&journal, 0, 2).0), vec![1, 2]);
}

#[test]
fn what_went_ahead_and_is_put_back_is_in_its_place() {
    let (mut log, _) = open(&Arc::new(MemoryJournal::default()), 0, 0);
    for number in 1..=5 {
        log.append(update(number, store(number))).expect("memory does not fail");
    }
    let other = update(4, remove_xattr(4));
    log.amend(&[], vec![other.clone()]).expect("memory does not fail");
    let retired: Vec<Update> = retire(&mut log, 4).into_iter().collect();
    assert_eq!((retired.len(), numbers(&log)), (1, vec![1, 2, 3, 5]));
    log.put_back(retired);
    assert_eq!(numbers(&log), vec![1, 2, 3, 4, 5]);
    assert_eq!(log.get(4).expect("memory does not fail"), Some(other));
    let batch = log.batch(2).expect("memory does not fail").updates;
    let sent: Vec<u64> = batch.iter().map(|update| update.stamp.number).collect();
    assert_eq!(sent, vec![1, 2], "nothing that is pending is passed over");
}

#[test]
fn what_a_program_has_made_sure_of_is_known_after_a_restart() {
    let journal = Arc::new(MemoryJournal::default());
    let (mut log, _) = open(&journal, 0, 0);
    for number in 1..=2 {
        log.append(update(number, store(number))).expect("memory does not fail");
    }
    log.make_sure(1).expect("memory does not fail");
    log.append(update(3, store(3))).expect("memory does not fail");
    // The first time counts.
    log.make_sure(1).expect("memory does not fail");
    log.make_sure(9).expect("memory does not fail");
    for log in [log, open(&journal, 0, 0).0] {
        let sure: Vec<_> = [1, 2, 3, 9].map(|number| log.sure_at(number)).into();
        assert_eq!(sure, [Some(2), None, None, None]);
    }
    let (mut log, _) = open(&journal, 0, 0);
    log.renumber(|old| Update {
        stamp: Stamp::new(old.stamp.replica, old.stamp.number + 10),
        ..old.clone()
    })
    .expect("memory does not fail");
    assert_eq!((log.sure_at(1), log.sure_at(11), log.sure_at(12)), (None, Some(11), None));
    assert_eq!(open(&journal, 0, 0).0.sure_at(11), Some(11));
    log.cancel(11).expect("memory does not fail");
    assert_eq!(log.sure_at(11), None);
}

#[test]
fn updates_that_are_not_in_their_order_are_damage() {
    let journal = Arc::new(MemoryJournal::default());
    for number in [2, 2] {
        journal.append(&Record::Update(update(number, store(1))).encode()).expect("memory");
    }
    let error = UpdateLog::open(journal, 0, 0, FEW).err().expect("it is damaged");
    assert!(matches!(error, LogError::Order { position: 2, number: 2, after: 2 }), "{error}");
}

#[test]
fn what_a_newer_program_wrote_is_no_damage() {
    let open = |bytes: &[u8]| {
        let journal = Arc::new(MemoryJournal::default());
        journal.append(bytes).expect("memory");
        UpdateLog::open(journal, 0, 0, FEW).err().expect("it cannot be read")
    };
    let error = open(&[3, 0x80]);
    assert!(matches!(error, LogError::Newer { position: 1, format: 3 }), "{error}");
    assert!(!error.to_string().contains("damaged"), "{error}");
    // What begins as of old and is not understood may be either.
    let error = open(&[1, 0x82, 0x18, 99, 0x80]);
    assert!(matches!(error, LogError::Record { source: RecordError::Unknown, .. }), "{error}");
}

/// What a log of plain rows in memory does.
#[derive(Default)]
struct Naive {
    pending: BTreeMap<u64, (Update, bool)>,
    last: u64,
}

impl Naive {
    fn of_file(&self, file: FileId) -> Vec<u64> {
        let of_file = |update: &Update| update.touches().contains(&file);
        let numbers = self.pending.iter().filter(|(_, (update, _))| of_file(update));
        numbers.map(|(number, _)| *number).rev().collect()
    }
}

fn agree(log: &mut UpdateLog, naive: &Naive) {
    assert_eq!(numbers(log), naive.pending.keys().copied().collect::<Vec<_>>());
    assert_eq!(log.pending_len(), naive.pending.len());
    assert_eq!(log.next_number(), naive.last + 1);
    for (number, (update, submitted)) in &naive.pending {
        assert_eq!(log.get(*number).expect("memory does not fail").as_ref(), Some(update));
        assert_eq!(log.is_submitted(*number), *submitted);
    }
    let sizes = naive.pending.values().map(|(update, _)| update.change.data());
    assert_eq!(log.store_bytes(), sizes.sum::<u64>());
    for file in (0..5).map(FileId) {
        let numbers: Vec<u64> = log.of_file(file).map(|(number, _)| number).collect();
        assert_eq!(numbers, naive.of_file(file));
    }
    let batch = log.batch(4).expect("memory does not fail");
    let first: Vec<_> = naive.pending.values().take(4).map(|(update, _)| update.clone()).collect();
    assert_eq!(batch.more, naive.pending.len() > 4);
    assert_eq!(batch.updates, first);
}

/// Plays calls on a log that keeps `near_max` updates in memory, which is opened again at times.
fn play(calls: &[(u8, u64)], near_max: usize) {
    let journal = Arc::new(MemoryJournal::default());
    let open = |settled, applied| {
        UpdateLog::open(journal.clone(), settled, applied, near_max).expect("memory").0
    };
    let (mut log, mut naive, mut settled) = (open(0, 0), Naive::default(), 0);
    for (call, chosen) in calls {
        let at = |naive: &Naive| {
            let numbers: Vec<u64> = naive.pending.keys().copied().collect();
            numbers.get(*chosen as usize % numbers.len().max(1)).copied().unwrap_or(1)
        };
        match call {
            0..=7 => {
                let number = log.next_number();
                let contents = Contents { size: *chosen, ..Contents::EMPTY };
                let change = match (call, store(chosen % 5)) {
                    (0..4, Change::Store { file, expects, mtime, .. }) => {
                        Change::Store { file, expects, contents, mtime }
                    }
                    _ => remove_xattr(chosen % 5),
                };
                log.append(update(number, change.clone())).expect("memory");
                naive.last = number;
                naive.pending.insert(number, (update(number, change), false));
            }
            8 => log.note(&opened_record(*chosen)).expect("memory"),
            9 => {
                let number = at(&naive);
                let expected = match naive.pending.get(&number) {
                    None => Cancel::NotPending,
                    Some((_, true)) => Cancel::OnItsWay,
                    Some((_, false)) => Cancel::Cancelled,
                };
                assert_eq!(log.cancel(number).expect("memory"), expected);
                if expected == Cancel::Cancelled {
                    naive.pending.remove(&number);
                }
            }
            10 => {
                // The first ones leave, and their verdicts come.
                let batch = log.batch(1 + *chosen as usize % 4).expect("memory").updates;
                let sent: Vec<u64> = batch.iter().map(|update| update.stamp.number).collect();
                log.submitted(&sent);
                sent.iter().for_each(|number| {
                    naive.pending.entry(*number).and_modify(|(_, submitted)| *submitted = true);
                });
                for update in batch.iter().take(*chosen as usize % 3) {
                    assert!(log.retire(update));
                    if *chosen % 5 == 0 {
                        log.put_back(vec![update.clone()]);
                    } else {
                        naive.pending.remove(&update.stamp.number);
                        settled = settled.max(update.stamp.number);
                    }
                }
            }
            11 => {
                let after = at(&naive);
                log.returned_after(after);
                naive.pending.range_mut(after + 1..).for_each(|(_, (_, sent))| *sent = false);
            }
            12 => log.truncate(log.last_position()).expect("memory"),
            13 => {
                log = open(settled, log.last_position());
                naive.pending = naive.pending.split_off(&(settled + 1));
                naive.pending.values_mut().for_each(|(_, submitted)| *submitted = false);
                naive.last = log.last_number();
            }
            _ => {
                let (first, base) = (log.first_number().unwrap_or(0), log.last_number() + 1);
                let anew =
                    |old: &Update| update(old.stamp.number - first + base, old.change.clone());
                log.renumber(anew).expect("memory");
                let old = std::mem::take(&mut naive.pending);
                for (old, _) in old.into_values() {
                    let new = anew(&old);
                    naive.last = new.stamp.number;
                    naive.pending.insert(new.stamp.number, (new, false));
                }
            }
        }
        agree(&mut log, &naive);
    }
}

proptest::proptest! {
    #[test]
    fn prop_it_does_as_a_log_in_memory(
        calls in proptest::collection::vec((0_u8..15, 0_u64..40), 1..60),
        near_max in proptest::sample::select(vec![0_usize, 1, 3, 1000]),
    ) {
        play(&calls, near_max);
    }
}
