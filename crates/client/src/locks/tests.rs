use super::*;

const FILE: FileId = FileId(7);
const LEASED: Scope = Scope::Leased { lasts: true };

fn call(owner: u64, exclusive: bool, first: u64, last: u64) -> LockCall {
    LockCall {
        file: FILE,
        handle: Handle(owner),
        owner: Owner(owner),
        lock: Lock { kind: LockKind::Record, exclusive, first, last },
        process: 100,
    }
}

/// Asks for a lock and is answered.
fn asked(table: &mut Table, call: &LockCall, outcome: LockOutcome) -> Tried {
    let held = table.begin(FILE);
    table.answered(FILE, held, &[call.lock], outcome);
    table.try_lock(call, LEASED)
}

fn owed(table: &mut Table) -> bool {
    !table.owed(true).is_empty()
}

#[test]
fn of_a_file_that_is_leased_whole_nobody_is_asked_or_told() {
    let mut table = Table::default();
    let (one, other) = (call(1, true, 0, 9), call(2, true, 10, 19));
    assert_eq!(table.try_lock(&one, LEASED), Tried::Lacking);
    assert_eq!(asked(&mut table, &one, LockOutcome::GivenWhole), Tried::Done);
    assert_eq!(table.try_lock(&other, LEASED), Tried::Done);
    assert_eq!(
        table.try_lock(&call(2, true, 5, 5), LEASED),
        Tried::InTheWay(BTreeSet::from([Owner(1)]))
    );
    assert_eq!(table.try_lock(&other, Scope::Leased { lasts: false }), Tried::Lacking);
    assert!(table.unlock(&one, &[LockKind::Record]) && !owed(&mut table));
    table.told_of(&[FILE]);
    assert!(owed(&mut table));
    let held = table.begin(FILE);
    assert_eq!(held.to_vec(), [other.lock]);
    table.answered(FILE, held, &[], LockOutcome::Given);
    assert!(!owed(&mut table));
    assert_eq!(table.try_lock(&one, LEASED), Tried::Lacking);
}

#[test]
fn what_is_given_up_is_told_and_must_be_asked_for_again() {
    let mut table = Table::default();
    let (one, other) = (call(1, false, 0, 9), call(2, false, 5, 19));
    assert_eq!(asked(&mut table, &one, LockOutcome::Given), Tried::Done);
    assert_eq!(table.try_lock(&other, LEASED), Tried::Lacking);
    assert_eq!(asked(&mut table, &other, LockOutcome::Given), Tried::Done);
    assert!(table.unlock(&one, &[LockKind::Record]) && owed(&mut table));
    assert_eq!(table.try_lock(&one, LEASED), Tried::Lacking);
    assert_eq!(table.try_lock(&call(1, false, 5, 9), LEASED), Tried::Done);
    assert!(table.closed(FILE, Owner(1)) && table.released(FILE, Handle(2)));
    let held = table.begin(FILE);
    assert!(held.is_empty());
    table.answered(FILE, held, &[], LockOutcome::Given);
    assert!(!owed(&mut table) && table.files.is_empty());
}

#[test]
fn a_descriptor_that_is_closed_gives_up_what_was_locked_through_it_alone() {
    let mut table = Table::default();
    let one = call(1, true, 0, 9);
    let through_another = LockCall { handle: Handle(5), lock: call(1, true, 20, 29).lock, ..one };
    assert_eq!(table.try_lock(&one, Scope::Here), Tried::Done);
    assert_eq!(table.try_lock(&through_another, Scope::Here), Tried::Done);
    assert!(!table.released(FILE, Handle(1)) && table.any_held());
    assert!(table.released(FILE, Handle(5)) && !table.any_held());
}

#[test]
fn locks_that_were_held_here_alone_are_claimed_and_lost_if_somebody_has_them() {
    let mut table = Table::default();
    let one = call(1, true, 0, 9);
    assert_eq!(table.try_lock(&one, Scope::Here), Tried::Done);
    assert!(table.owed(false).is_empty() && owed(&mut table) && table.is_unclaimed());
    let claims = table.claims(9);
    table.attached(&claims, &[]);
    assert!(!owed(&mut table) && !table.is_unclaimed());
    table.lapsed();
    assert!(owed(&mut table) && table.is_unclaimed());
    table.attached(&claims, &[FILE]);
    assert!(owed(&mut table) && !table.any_lost());
    let held = table.begin(FILE);
    table.answered(FILE, held, &[], LockOutcome::Lost);
    assert!(table.is_lost(Handle(1)) && !table.any_held() && !owed(&mut table));
    table.released(FILE, Handle(1));
    assert!(!table.any_lost());
}

#[test]
fn of_files_that_nobody_locks_any_more_only_some_stay_leased() {
    let mut table = Table::default();
    for file in 0..=IDLE_MAX as u64 {
        let held = table.begin(FileId(file));
        table.answered(FileId(file), held, &[], LockOutcome::GivenWhole);
    }
    assert_eq!(table.owed(true), [FileId(0)]);
}
