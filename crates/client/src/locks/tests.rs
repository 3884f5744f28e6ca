use super::split::TOLD_MAX;
use super::*;
use protocol::LockOutcome;

const FILE: FileId = FileId(7);
const LEASED: Scope = Scope::Leased { lasts: true };

fn call(owner: u64, exclusive: bool, first: u64, last: u64) -> LockCall {
    LockCall {
        file: FILE,
        handle: Handle(owner),
        owner: Owner(owner),
        lock: Lock { kind: LockKind::Record, exclusive, first, last },
        process: 100,
        taker: Taker::Told,
    }
}

fn in_the_way_of(owner: u64) -> Tried {
    Tried::InTheWay(BTreeSet::from([Owner(owner)]))
}

/// Asks for a lock and is answered.
fn asked(table: &mut Table, call: &LockCall, outcome: LockOutcome) -> Tried {
    let held = table.begin(FILE, true);
    table.answered(FILE, (held, &[call.lock]), outcome, true);
    table.try_lock(call, LEASED)
}

fn owed(table: &mut Table) -> bool {
    !table.owed(true).is_empty()
}

/// Whether it is told that nothing is held, so that the replica above takes it for heard that what
/// was held is lost.
fn told_to_be_heard(table: &mut Table, leases: bool) -> bool {
    let owed = table.owed(leases) == [FILE];
    let held = table.begin(FILE, leases);
    let nothing = held.is_empty();
    table.answered(FILE, (held, &[]), LockOutcome::Given, leases);
    owed && nothing
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
    let held = table.begin(FILE, true);
    assert_eq!(held.to_vec(), [other.lock]);
    table.answered(FILE, (held, &[]), LockOutcome::Given, true);
    assert!(!owed(&mut table));
    assert_eq!(table.try_lock(&one, LEASED), Tried::Lacking);
}

#[test]
fn a_file_that_is_recalled_before_the_answer_leases_it_whole_is_given_account_of() {
    let mut table = Table::default();
    let one = call(1, true, 0, 9);
    let held = table.begin(FILE, true);
    table.told_of(&[FILE]);
    table.answered(FILE, (held, &[one.lock]), LockOutcome::GivenWhole, true);
    assert_eq!(table.try_lock(&one, LEASED), Tried::Done);
    assert!(owed(&mut table));
    let held = table.begin(FILE, true);
    assert_eq!(held.to_vec(), [one.lock]);
    table.answered(FILE, (held, &[]), LockOutcome::GivenWhole, true);
    assert!(!owed(&mut table), "that was answered");
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
    let held = table.begin(FILE, true);
    assert!(held.is_empty());
    table.answered(FILE, (held, &[]), LockOutcome::Given, true);
    assert!(!owed(&mut table) && table.files.is_empty());
}

#[test]
fn what_was_asked_while_the_session_changed_is_told_anew_before_anything_is_given() {
    let mut table = Table::default();
    let one = call(1, true, 0, 9);
    assert_eq!(asked(&mut table, &one, LockOutcome::Given), Tried::Done);
    table.doubt(FILE);
    assert!(owed(&mut table) && table.try_lock(&one, LEASED) == Tried::Lacking);
    let held = table.begin(FILE, true);
    assert_eq!(held.to_vec(), [one.lock]);
    table.answered(FILE, (held, &[]), LockOutcome::Given, true);
    assert!(!owed(&mut table) && table.try_lock(&one, LEASED) == Tried::Done);
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
fn what_was_locked_here_alone_is_not_claimed_and_is_asked_for_when_locks_are_leased() {
    let mut table = Table::default();
    let one = call(1, true, 0, 9);
    assert_eq!(table.try_lock(&one, Scope::Here), Tried::Done);
    assert!(table.owed(false).is_empty() && owed(&mut table) && table.is_unclaimed());
    assert_eq!(table.claims(9), []);
    table.attached(&[], &[]);
    assert!(table.owed(false).is_empty() && owed(&mut table) && table.is_unclaimed());
    // Also where the question may have arrived before the session ended.
    for outcome in [None, Some(LockOutcome::NotYet)] {
        let held = table.begin(FILE, true);
        assert_eq!(held.to_vec(), [one.lock]);
        if let Some(outcome) = outcome {
            table.answered(FILE, (held, &[]), outcome, true);
        }
        assert_eq!(table.claims(9), []);
        table.attached(&[], &[]);
        assert!(owed(&mut table) && !table.any_overtaken());
    }
    let held = table.begin(FILE, true);
    table.answered(FILE, (held, &[]), LockOutcome::Given, true);
    assert!(!owed(&mut table) && !table.is_unclaimed());
    assert_eq!(table.claims(9)[0].locks, [one.lock]);
}

#[test]
fn what_was_leased_is_claimed_and_lost_if_somebody_has_it() {
    let mut table = Table::default();
    let one = call(1, true, 0, 9);
    assert_eq!(asked(&mut table, &one, LockOutcome::Given), Tried::Done);
    let claims = table.claims(9);
    assert_eq!(claims[0].locks, [one.lock]);
    table.attached(&claims, &[]);
    assert!(!owed(&mut table) && !table.is_unclaimed());
    table.lapsed();
    assert!(owed(&mut table) && table.is_unclaimed());
    assert_eq!(table.claims(9), claims, "though the lease has ended");
    let held = table.begin(FILE, true);
    table.answered(FILE, (held, &[]), LockOutcome::Lost, true);
    assert!(table.is_lost(Handle(1)) && !table.any_held());
    assert!(told_to_be_heard(&mut table, true) && !owed(&mut table));
    assert_eq!(table.take_lost_files(), BTreeSet::from([FILE]));
    table.released(FILE, Handle(1));
    assert!(!table.any_lost());
}

#[test]
fn a_question_gives_nothing_up_where_it_is_known_that_all_is_held_that_was_told() {
    let mut table = Table::default();
    let one = call(1, true, 0, 9);
    assert_eq!(table.try_lock(&one, Scope::Here), Tried::Done);
    assert!(table.gives_nothing_up(FILE), "it is only claimed");
    let held = table.begin(FILE, true);
    assert!(table.gives_nothing_up(FILE), "whether it has arrived or not");
    // It may have taken note of it, or not.
    table.answered(FILE, (held, &[]), LockOutcome::NotYet, true);
    assert!(table.gives_nothing_up(FILE));
    let held = table.begin(FILE, true);
    table.unlock(&call(1, true, 5, 9), &[LockKind::Record]);
    assert!(!table.gives_nothing_up(FILE), "it may have arrived");
    table.answered(FILE, (held.clone(), &[]), LockOutcome::NotYet, true);
    table.doubt(FILE);
    assert!(!table.gives_nothing_up(FILE));
    assert_eq!(table.try_lock(&one, Scope::Here), Tried::Done);
    assert!(table.gives_nothing_up(FILE));
    table.answered(FILE, (held, &[]), LockOutcome::Given, true);
    assert_eq!(table.try_lock(&call(2, true, 20, 29), Scope::Here), Tried::Done);
    assert!(table.gives_nothing_up(FILE));
    let shared = LockCall { lock: Lock { exclusive: false, ..one.lock }, ..one };
    assert_eq!(table.try_lock(&shared, Scope::Here), Tried::Done);
    assert!(!table.gives_nothing_up(FILE), "others may share it");
    assert_eq!(asked(&mut table, &one, LockOutcome::GivenWhole), Tried::Done);
    assert!(!table.gives_nothing_up(FILE), "what others take for held is not known");
}

#[test]
fn of_what_is_held_that_is_claimed_which_was_leased_and_has_been_held_since() {
    let (one, other) = (call(1, true, 0, 9), call(2, true, 20, 29));
    for outcome in [LockOutcome::Given, LockOutcome::GivenWhole] {
        let mut table = Table::default();
        assert_eq!(asked(&mut table, &one, outcome), Tried::Done);
        let whole = outcome == LockOutcome::GivenWhole;
        // As long as the lease lasts, all of it is.
        assert_eq!(table.try_lock(&other, Scope::Here), Tried::Done);
        let leased = if whole { vec![one.lock, other.lock] } else { vec![one.lock] };
        assert_eq!(table.claims(9)[0].locks, leased);
        assert!(table.unlock(&other, &RECORDS));
        // Without a link.
        table.is_leased_no_more(FILE);
        assert_eq!(table.try_lock(&other, Scope::Here), Tried::Done);
        assert_eq!(table.claims(9)[0].locks, [one.lock]);
        table.is_leased_no_more(FILE);
        assert_eq!(table.claims(9)[0].locks, [one.lock]);
        let some = LockCall { lock: Lock { first: 5, ..one.lock }, ..one };
        assert!(table.unlock(&some, &RECORDS));
        assert_eq!(table.try_lock(&call(3, true, 5, 9), Scope::Here), Tried::Done);
        let left = Lock { last: 4, ..one.lock };
        assert_eq!(table.claims(9)[0].locks, [left]);
        let claims = table.claims(9);
        table.attached(&claims, &[]);
        assert!(owed(&mut table) && table.owed(false).is_empty());
        assert_eq!(table.begin(FILE, true).to_vec(), [one.lock, other.lock]);
        assert_eq!(table.claims(9), claims);
    }
}

#[test]
fn what_others_have_had_meanwhile_is_lost_when_locks_are_leased_and_not_before() {
    let held = || {
        let mut table = Table::default();
        assert_eq!(asked(&mut table, &call(1, true, 0, 9), LockOutcome::Given), Tried::Done);
        let claims = table.claims(9);
        table.attached(&claims, &[FILE]);
        assert!(table.any_overtaken() && table.any_held() && !table.any_lost());
        table
    };
    let mut table = held();
    table.lose_overtaken();
    assert!(table.is_lost(Handle(1)) && !table.any_held() && !table.any_overtaken());
    assert_eq!(table.take_lost_files(), BTreeSet::from([FILE]));

    let mut table = held();
    assert!(table.unlock(&call(1, true, 0, 9), &[LockKind::Record]), "among processes of here");
    table.lose_overtaken();
    assert!(!table.any_lost());
}

#[test]
fn of_files_that_nobody_locks_any_more_only_some_stay_leased() {
    let mut table = Table::default();
    for file in 0..=IDLE_MAX as u64 {
        let held = table.begin(FileId(file), true);
        table.answered(FileId(file), (held, &[]), LockOutcome::GivenWhole, true);
    }
    assert_eq!(table.owed(true), [FileId(0)]);
}

#[test]
fn all_that_is_too_much_is_given_back_though_nothing_could_be_told_for_a_while() {
    let mut table = Table::default();
    for number in 0..3 * IDLE_MAX as u64 {
        let file = FileId(100 + number);
        let held = table.begin(file, true);
        table.answered(file, (held, &[call(1, true, 0, 9).lock]), LockOutcome::GivenWhole, true);
    }
    assert_eq!(table.owed(true).len(), 2 * IDLE_MAX);
}

/// A byte amid others.
fn byte(number: u64) -> LockCall {
    call(1, true, 2 * number + 1, 2 * number + 1)
}

const RECORDS: [LockKind; 1] = [LockKind::Record];

fn give_up(table: &mut Table, call: &LockCall) {
    assert!(!table.leaves_too_many(call, &RECORDS, LEASED));
    assert!(table.unlock(call, &RECORDS));
}

#[test]
fn of_a_file_that_is_leased_whole_many_stretches_may_be_locked_and_all_of_it_is_told_for_them() {
    let mut table = Table::default();
    let all = call(1, true, 0, LAST);
    assert_eq!(asked(&mut table, &all, LockOutcome::GivenWhole), Tried::Done);
    for number in 0..2000 {
        give_up(&mut table, &byte(number));
    }
    table.told_of(&[FILE]);
    let told = table.begin(FILE, true);
    assert_eq!(told.to_vec(), [all.lock]);
    table.answered(FILE, (told, &[]), LockOutcome::Given, true);
    assert!(!owed(&mut table));
    // Nobody has to be asked, as all of it is leased.
    assert_eq!(table.try_lock(&byte(7), LEASED), Tried::Done);
    give_up(&mut table, &byte(7));
    assert!(!owed(&mut table));
    // After the end of a session it is claimed as it was told.
    let claims = table.claims(9);
    assert_eq!(claims[0].locks, [all.lock]);
    table.attached(&claims, &[]);
    assert!(!owed(&mut table) && !table.is_unclaimed());
    assert_eq!(table.try_lock(&byte(7), LEASED), Tried::Done);
    // Few stretches are told as they are.
    give_up(&mut table, &call(1, true, 0, 3000));
    assert!(owed(&mut table));
    let told = table.begin(FILE, true);
    assert_eq!(told, table.files[&FILE].held.together());
    table.answered(FILE, (told, &[]), LockOutcome::Given, true);
    assert!(!owed(&mut table) && table.try_lock(&byte(7), LEASED) == Tried::Lacking);
}

#[test]
fn where_others_have_some_of_a_file_no_more_is_held_than_can_be_told() {
    let mut table = Table::default();
    let all = call(1, true, 0, 1 << 20);
    assert_eq!(asked(&mut table, &all, LockOutcome::Given), Tried::Done);
    let mut given_up = 0;
    while given_up < 2000 && !table.leaves_too_many(&byte(given_up), &RECORDS, LEASED) {
        give_up(&mut table, &byte(given_up));
        given_up += 1;
    }
    let held = |table: &Table| table.files[&FILE].held.together();
    assert_eq!((table.begin(FILE, true), held(&table).len()), (held(&table), TOLD_MAX));
    assert!(!table.leaves_too_many(&byte(given_up), &RECORDS, Scope::Here));
    let far = call(1, true, (1 << 20) - 9, (1 << 20) - 3);
    assert_eq!(
        table.try_lock(&LockCall { lock: Lock { exclusive: false, ..far.lock }, ..far }, LEASED),
        Tried::TooMany
    );
    // What leaves no more stretches than there are can be given up as ever.
    assert!(!table.leaves_too_many(&call(1, true, 0, 0), &RECORDS, LEASED));
    assert!(!table.leaves_too_many(&all, &RECORDS, LEASED));
    // What is locked where locks hold here alone is told as it is, as far as that can be.
    let mut table = Table::default();
    for number in 0..TOLD_MAX as u64 {
        assert_eq!(table.try_lock(&byte(number), Scope::Here), Tried::Done);
    }
    assert_eq!(table.begin(FILE, true).len(), TOLD_MAX);
    assert_eq!(table.try_lock(&byte(5000), Scope::Here), Tried::Done);
    assert_eq!(table.begin(FILE, true).len(), 1);
}

#[test]
fn what_others_here_share_hides_nothing_of_how_much_is_held() {
    let mut table = Table::default();
    let all = |owner| call(owner, false, 0, 1 << 20);
    for owner in [1, 2] {
        assert_eq!(asked(&mut table, &all(owner), LockOutcome::Given), Tried::Done);
    }
    let mut given_up = 0;
    while given_up < 2000 && !table.leaves_too_many(&byte(given_up), &RECORDS, LEASED) {
        give_up(&mut table, &byte(given_up));
        given_up += 1;
    }
    assert_eq!(table.files[&FILE].held.len(), TOLD_MAX);
    give_up(&mut table, &all(2));
    // All of it would not be leased, where others have some.
    let held = table.files[&FILE].held.together();
    assert_eq!((table.begin(FILE, true), held.len()), (held, TOLD_MAX - 1));
}

#[test]
fn what_is_held_may_be_about_to_go_for_a_moment_after_a_descriptor_is_closed() {
    let (mut table, clock) = (Table::default(), world::Clock::simulated(0));
    let start = clock.moment();
    let (one, other) = (call(1, true, 0, 9), call(2, true, 20, 29));
    for call in [&one, &other] {
        assert_eq!(table.try_lock(call, Scope::Here), Tried::Done);
    }
    let may_go = |table: &Table, owners: &[u64], after| {
        let owners = owners.iter().copied().map(Owner).collect();
        table.may_be_released(FILE, &owners, start + after)
    };
    let soon = RELEASED_WITHIN / 2;
    assert!(!may_go(&table, &[1], soon));
    table.one_closed(FILE, Handle(1), start);
    assert!(may_go(&table, &[1], soon) && !may_go(&table, &[1], RELEASED_WITHIN));
    assert!(!may_go(&table, &[1, 2], soon), "the other one stays");
    // Through a descriptor that is left it is locked anew.
    assert_eq!(table.try_lock(&one, Scope::Here), Tried::Done);
    assert!(!may_go(&table, &[1], soon));
}

#[test]
fn flock_gives_up_what_it_held_before_it_waits_for_more() {
    let mut table = Table::default();
    let whole = |owner, exclusive| {
        let lock = Lock { kind: LockKind::Whole, ..call(owner, exclusive, 0, LAST).lock };
        LockCall { lock, ..call(owner, exclusive, 0, LAST) }
    };
    assert_eq!(table.try_lock(&whole(1, false), Scope::Here), Tried::Done);
    assert_eq!(table.try_lock(&whole(2, false), Scope::Here), Tried::Done);
    let other = Tried::InTheWay(BTreeSet::from([Owner(2)]));
    assert_eq!(table.try_lock(&whole(1, true), Scope::Here), other);
    assert_eq!(table.try_lock(&whole(2, true), Scope::Here), Tried::Done);

    // fcntl(2) keeps what it has.
    let mut table = Table::default();
    assert_eq!(table.try_lock(&call(1, false, 0, 9), Scope::Here), Tried::Done);
    assert_eq!(table.try_lock(&call(2, false, 0, 9), Scope::Here), Tried::Done);
    assert_eq!(table.try_lock(&call(1, true, 0, 9), Scope::Here), other);
    let first = Tried::InTheWay(BTreeSet::from([Owner(1)]));
    assert_eq!(table.try_lock(&call(2, true, 0, 9), Scope::Here), first);
}

#[test]
fn of_a_file_by_which_memory_is_shared_all_is_asked_for_and_held_while_any_record_is() {
    let mut table = Table::default();
    table.is_for_one(FILE);
    let (one, other) = (call(1, false, 128, 128), call(2, true, 120, 120));
    let all = Lock { exclusive: true, first: 0, last: LAST, ..one.lock };
    assert_eq!(table.to_ask_for(&one), all);
    let held = table.begin(FILE, true);
    table.answered(FILE, (held, &[all]), LockOutcome::Given, true);
    assert_eq!(table.try_lock(&one, LEASED), Tried::Done);
    assert_eq!(table.try_lock(&other, LEASED), Tried::Done, "processes of here share it");
    assert!(!owed(&mut table));
    assert_eq!(table.claims(1)[0].locks, [all], "as after a new session");
    assert!(table.unlock(&other, &[LockKind::Record]) && !owed(&mut table));
    assert!(table.unlock(&one, &[LockKind::Record]) && owed(&mut table));
    assert!(table.begin(FILE, true).is_empty());
}

#[test]
fn memory_is_shared_by_a_file_of_sqlites_whose_first_lock_is_known() {
    assert!(call(1, false, 128, 128).may_share_memory());
    assert!(!call(1, false, 0, 128).may_share_memory());
    assert!(!call(1, false, 120, 120).may_share_memory());
    assert!(shares_memory(Some(b"data.db-shm")) && shares_memory(None));
    assert!(!shares_memory(Some(b"data.db")));
}

#[test]
fn what_a_file_by_which_memory_is_shared_belongs_to_is_told_by_its_name() {
    assert_eq!(companions(b"a.db-shm"), [b"a.db".to_vec(), b"a.db-wal".to_vec()]);
    assert!(companions(b"a.db").is_empty());
}

#[test]
fn where_locks_hold_here_alone_what_others_have_takes_nothing_from_anybody() {
    let (one, other) = (call(1, true, 0, 9), call(2, true, 100, 109));
    let mut table = Table::default();
    assert_eq!(asked(&mut table, &one, LockOutcome::Given), Tried::Done);
    assert_eq!(table.try_lock(&other, Scope::Here), Tried::Done);
    assert!(table.owed(false).is_empty());
    // Of what is given up it is told, and nothing of what was locked here alone.
    assert!(table.unlock(&one, &[LockKind::Record]) && table.owed(false) == [FILE]);
    let held = table.begin(FILE, false);
    assert!(held.is_empty());
    table.answered(FILE, (held, &[]), LockOutcome::Given, false);
    assert!(table.owed(false).is_empty() && owed(&mut table));

    // What was leased is claimed when the lease had ended, and is not lost before it matters.
    for outcome in [LockOutcome::Lost, LockOutcome::TooMany] {
        let mut table = Table::default();
        assert_eq!(asked(&mut table, &one, LockOutcome::Given), Tried::Done);
        assert_eq!(table.try_lock(&other, Scope::Here), Tried::Done);
        table.lapsed();
        assert_eq!(table.owed(false), [FILE]);
        // Also where the answer does not come the first time.
        table.begin(FILE, false);
        table.doubt(FILE);
        let held = table.begin(FILE, false);
        assert_eq!(held.to_vec(), [one.lock]);
        table.answered(FILE, (held, &[]), outcome, false);
        assert!(!table.any_lost() && table.any_held() && table.any_overtaken());
        assert_eq!(table.try_lock(&call(2, true, 5, 5), Scope::Here), in_the_way_of(1));
        assert_eq!(table.try_lock(&call(1, true, 105, 105), Scope::Here), in_the_way_of(2));
        table.lose_overtaken();
        assert!(table.is_lost(Handle(1)));
    }
}

#[test]
fn what_is_locked_after_what_was_lost_is_claimed_when_the_loss_is_known_to_be_heard() {
    let mut table = Table::default();
    let one = call(1, true, 0, 9);
    assert_eq!(asked(&mut table, &one, LockOutcome::Given), Tried::Done);
    let claims = table.claims(9);
    table.attached(&claims, &[FILE]);
    assert!(table.unlock(&one, &[LockKind::Record]));
    let later = call(2, true, 0, 9);
    assert_eq!(table.try_lock(&later, Scope::Here), Tried::Done);
    // Not even in another session: it would be lost as what was lost before.
    assert!(table.claims(9).is_empty());
    table.attached(&[], &[]);
    assert!(told_to_be_heard(&mut table, false) && table.owed(false).is_empty());
    assert_eq!(table.claims(9), []);
    assert!(owed(&mut table) && table.begin(FILE, true).to_vec() == [later.lock]);

    // The same of what was given up while it was claimed.
    let mut table = Table::default();
    assert_eq!(asked(&mut table, &one, LockOutcome::Given), Tried::Done);
    let claims = table.claims(9);
    table.unlock(&one, &[LockKind::Record]);
    table.attached(&claims, &[FILE]);
    assert!(told_to_be_heard(&mut table, false) && table.owed(false).is_empty());
}
