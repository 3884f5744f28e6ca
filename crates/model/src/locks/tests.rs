use super::*;
use proptest::prelude::*;

/// A file of so many bytes is enough for every way in which stretches can lie.
const BYTES: u64 = 12;
const HOLDERS: u8 = 3;

#[derive(Clone, Debug)]
enum Step {
    Lock(u8, Lock),
    Unlock(u8, Lock),
    UnlockAll(u8, LockKind),
    Remove(u8),
}

/// Of every byte and kind, who holds it and whether exclusively.
type Bytes = BTreeMap<(LockKind, u64, u8), bool>;

fn bytes_of(lock: &Lock) -> impl Iterator<Item = u64> + use<> {
    lock.first..=lock.last
}

fn naive_lock(bytes: &mut Bytes, holder: u8, lock: &Lock) -> bool {
    let free = bytes_of(lock).all(|byte| {
        (0..HOLDERS).filter(|other| *other != holder).all(|other| {
            let held = bytes.get(&(lock.kind, byte, other));
            held.is_none_or(|exclusive| !exclusive && !lock.exclusive)
        })
    });
    if free {
        bytes_of(lock).for_each(|byte| {
            bytes.insert((lock.kind, byte, holder), lock.exclusive);
        });
    }
    free
}

fn as_bytes(table: &LockTable<u8>) -> Bytes {
    let mut bytes = Bytes::new();
    for (holder, locks) in table.holders() {
        for lock in locks.iter() {
            for byte in bytes_of(lock) {
                let twice = bytes.insert((lock.kind, byte, *holder), lock.exclusive);
                assert_eq!(twice, None, "a byte is locked once by one holder");
            }
        }
    }
    bytes
}

fn any_kind() -> impl Strategy<Value = LockKind> {
    prop_oneof![3 => Just(LockKind::Record), 1 => Just(LockKind::Whole)]
}

fn any_lock() -> impl Strategy<Value = Lock> {
    (any_kind(), any::<bool>(), 0..BYTES, 0..BYTES).prop_map(|(kind, exclusive, one, other)| Lock {
        kind,
        exclusive,
        first: one.min(other),
        last: one.max(other),
    })
}

fn any_step() -> impl Strategy<Value = Step> {
    let holder = || 0..HOLDERS;
    prop_oneof![
        6 => (holder(), any_lock()).prop_map(|(holder, lock)| Step::Lock(holder, lock)),
        3 => (holder(), any_lock()).prop_map(|(holder, lock)| Step::Unlock(holder, lock)),
        1 => (holder(), any_kind()).prop_map(|(holder, kind)| Step::UnlockAll(holder, kind)),
        1 => holder().prop_map(Step::Remove),
    ]
}

fn assert_settled(locks: &Locks) {
    for pair in locks.all.windows(2) {
        let (one, next) = (pair[0], pair[1]);
        if one.kind == next.kind {
            let touch = one.last + 1 == next.first;
            assert!(one.last < next.first && !(touch && one.exclusive == next.exclusive));
        } else {
            assert!(one.kind < next.kind);
        }
    }
}

proptest! {
    #[test]
    fn prop_a_table_of_locks_is_as_if_every_byte_were_locked_by_itself(
        steps in prop::collection::vec(any_step(), 0..40),
    ) {
        let (mut table, mut bytes) = (LockTable::default(), Bytes::new());
        for step in steps {
            match step {
                Step::Lock(holder, lock) => {
                    let locked = naive_lock(&mut bytes, holder, &lock);
                    prop_assert_eq!(table.lock(holder, lock).is_ok(), locked);
                }
                Step::Unlock(holder, lock) => {
                    let before = bytes.len();
                    bytes_of(&lock).for_each(|byte| {
                        bytes.remove(&(lock.kind, byte, holder));
                    });
                    prop_assert_eq!(table.unlock(holder, &lock), bytes.len() < before);
                }
                Step::UnlockAll(holder, kind) => {
                    table.unlock_all(holder, kind);
                    bytes.retain(|(of, _, who), _| (*of, *who) != (kind, holder));
                }
                Step::Remove(holder) => {
                    table.remove(holder);
                    bytes.retain(|(_, _, who), _| *who != holder);
                }
            }
            prop_assert_eq!(&as_bytes(&table), &bytes);
            table.holders().for_each(|(_, locks)| assert_settled(locks));
        }
        let together = table.together();
        assert_settled(&together);
        for ((kind, byte, _), exclusive) in bytes {
            let lock = Lock { kind, exclusive, first: byte, last: byte };
            prop_assert!(together.cover(&lock));
        }
    }

    #[test]
    fn prop_of_two_lists_that_is_found_which_meets_wherever_it_stands(
        one in prop::collection::vec(any_lock(), 0..8),
        other in prop::collection::vec(any_lock(), 0..8),
        asked in any_lock(),
    ) {
        let (one, other) = (Locks::from_told(&one).unwrap(), Locks::from_told(&other).unwrap());
        let pairs = || one.iter().flat_map(|one| other.iter().map(move |other| (one, other)));
        prop_assert_eq!(one.exclude_any(&other), pairs().any(|(one, other)| one.excludes(other)));
        let found = one.iter().find(|held| held.excludes(&asked)).copied();
        prop_assert_eq!(one.in_the_way_of(&asked), found);
        let mut both = Locks::default();
        for (one, other) in pairs().filter(|(one, other)| one.kind == other.kind) {
            let (first, last) = (one.first.max(other.first), one.last.min(other.last));
            let exclusive = one.exclusive && other.exclusive;
            if first <= last {
                both.put(Lock { kind: one.kind, exclusive, first, last });
            }
        }
        prop_assert_eq!(one.within(&other), both);
    }

    #[test]
    fn prop_what_is_told_covers_what_each_byte_is_held_by(
        told in prop::collection::vec(any_lock(), 0..8), asked in any_lock(),
    ) {
        let locks = Locks::from_told(&told).unwrap();
        assert_settled(&locks);
        let within = locks.within(&Locks::from_told(&[asked]).unwrap());
        assert_settled(&within);
        prop_assert!(locks.cover_all(&within));
        prop_assert!(locks.cover(&asked) == within.cover(&asked));
        let both = [locks.to_vec(), within.to_vec()].concat();
        prop_assert_eq!(Locks::from_told(&both), Some(locks.clone()));
        let covered = bytes_of(&asked).all(|byte| {
            told.iter().any(|held| {
                let strong = held.exclusive || !asked.exclusive;
                held.kind == asked.kind && strong && bytes_of(held).any(|b| b == byte)
            })
        });
        prop_assert_eq!(locks.cover(&asked), covered);
    }
}

const TO_THE_END: Lock =
    Lock { kind: LockKind::Record, exclusive: true, first: 0, last: i64::MAX as u64 };

#[test]
fn a_lock_without_an_end_can_be_split_and_joined() {
    let mut table = LockTable::default();
    table.lock(1, TO_THE_END).unwrap();
    let middle = Lock { first: 100, last: 199, ..TO_THE_END };
    assert!(table.unlock(1, &middle));
    assert_eq!(table.len(), 2);
    table.lock(2, middle).unwrap();
    assert_eq!(table.lock(1, middle), Err((2, middle)));
    assert!(table.remove(2) && !table.remove(2));
    table.lock(1, middle).unwrap();
    assert_eq!(table.together().to_vec(), [TO_THE_END]);
    let whole = u64::MAX;
    table.lock(1, Lock { last: whole, ..TO_THE_END }).unwrap();
    assert_eq!(table.together().to_vec(), [Lock { last: whole, ..TO_THE_END }]);
}

#[test]
fn a_stretch_that_ends_before_it_begins_is_no_lock() {
    assert_eq!(Locks::from_told(&[Lock { first: 2, last: 1, ..TO_THE_END }]), None);
}

/// Of very many that a shared lock can be beside, before the first that it cannot.
#[test]
#[expect(clippy::disallowed_methods, reason = "it measures real time")]
fn what_excludes_a_shared_lock_is_found_without_looking_at_those_that_it_shares_with() {
    let byte = |exclusive, at| Lock { exclusive, first: at, last: at, ..TO_THE_END };
    let many = 100_000;
    let mut told: Vec<Lock> = (0..many).map(|n| byte(false, 2 * n)).collect();
    told.push(byte(true, 2 * many));
    let locks = Locks::from_told(&told).unwrap();
    let below = |last| Lock { exclusive: false, last, ..TO_THE_END };
    let began = std::time::Instant::now();
    for _ in 0..2000 {
        assert_eq!(locks.in_the_way_of(&below(2 * many - 1)), None);
        assert_eq!(locks.in_the_way_of(&below(2 * many)), Some(byte(true, 2 * many)));
    }
    assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
}
