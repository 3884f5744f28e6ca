use super::shares::{
    FILES_OF_DEVICE_MAX, FILES_OF_ONE_MAX, STRETCHES_OF_DEVICE_MAX, STRETCHES_OF_ONE_MAX,
};
use super::*;
use model::LockKind;
use proptest::prelude::*;
use protocol::LOCKS_CLAIMED_MAX;
use std::collections::BTreeSet;
use world::World;

const FILE: FileId = FileId(7);
const A: ReplicaId = ReplicaId(1);
const B: ReplicaId = ReplicaId(2);
const C: ReplicaId = ReplicaId(3);

fn stretch(exclusive: bool, first: u64, last: u64) -> Lock {
    Lock { kind: LockKind::Record, exclusive, first, last }
}

fn asking(held: &[Lock], wished: &[Lock], aim: LockAim) -> Locking {
    Locking { held: Held { file: FILE, locks: held.to_vec() }, wished: wished.to_vec(), aim }
}

/// The clients from a hundred on are of one device, and all others of one each.
fn device_of(who: ReplicaId) -> DeviceId {
    DeviceId([who.0.min(100) as u8; 32])
}

/// A book, a clock, and those whose lease has ended.
struct Desk {
    book: Book,
    now: Moment,
    gone: BTreeSet<ReplicaId>,
    in_grace: bool,
}

impl Desk {
    fn new() -> Desk {
        let now = World::simulated(0, 1).clock.moment();
        let mut desk = Desk { book: Book::default(), now, gone: BTreeSet::new(), in_grace: false };
        for who in [A, B, C] {
            assert_eq!(desk.attach(who, &[]), []);
        }
        desk
    }

    fn ask(&mut self, who: ReplicaId, asked: &Locking) -> (LockOutcome, Vec<ReplicaId>) {
        let gone = self.gone.clone();
        let lasts = move |who| !gone.contains(&who);
        let (now, device, in_grace) = (self.now, device_of(who), self.in_grace);
        let around = Around { now, device, lasts: &lasts, in_grace };
        let (outcome, news) = self.book.ask(who, asked, &around).unwrap();
        (outcome, news.into_iter().map(|(who, _)| who).collect())
    }

    fn attach(&mut self, who: ReplicaId, claims: &[Lock]) -> Vec<FileId> {
        self.attach_with(who, &[Held { file: FILE, locks: claims.to_vec() }])
    }

    fn attach_with(&mut self, who: ReplicaId, claims: &[Held]) -> Vec<FileId> {
        let gone = self.gone.clone();
        let lasts = move |who| !gone.contains(&who);
        let (now, device, in_grace) = (self.now, device_of(who), self.in_grace);
        let around = Around { now, device, lasts: &lasts, in_grace };
        self.book.attach(who, claims, true, &around).0
    }

    fn check(&mut self, who: ReplicaId, asked: &Locking, wanted: (LockOutcome, &[ReplicaId])) {
        let (outcome, told) = self.ask(who, asked);
        assert_eq!((outcome, &told[..]), wanted);
    }
}

#[test]
fn who_is_alone_has_the_file_until_another_asks_and_then_both_have_what_they_hold() {
    let mut desk = Desk::new();
    let (low, high) = (stretch(true, 0, 9), stretch(true, 10, 19));
    desk.check(A, &asking(&[], &[low], LockAim::Try), (LockOutcome::GivenWhole, &[]));
    desk.check(B, &asking(&[], &[high], LockAim::Try), (LockOutcome::NotYet, &[A]));
    desk.check(A, &asking(&[low], &[], LockAim::Try), (LockOutcome::Given, &[B]));
    desk.check(B, &asking(&[], &[high], LockAim::Try), (LockOutcome::Given, &[]));
    desk.check(B, &asking(&[high], &[low], LockAim::Try), (LockOutcome::InTheWay(low), &[]));
    desk.check(A, &asking(&[], &[], LockAim::Try), (LockOutcome::Given, &[]));
    desk.check(B, &asking(&[high], &[low], LockAim::Try), (LockOutcome::GivenWhole, &[]));
    assert_eq!(desk.book.leave(B, desk.now), []);
    assert!(desk.book.files.is_empty());
}

#[test]
fn what_a_client_says_that_it_holds_is_kept_for_it_while_it_is_its_turn_to_claim_it() {
    let mut desk = Desk::new();
    let all = stretch(true, 0, 99);
    desk.check(A, &asking(&[], &[all], LockAim::Try), (LockOutcome::GivenWhole, &[]));
    // Of what it locked where locks hold on one machine alone.
    desk.check(B, &asking(&[all], &[], LockAim::Try), (LockOutcome::NotYet, &[A]));
    desk.check(A, &asking(&[], &[], LockAim::Try), (LockOutcome::Given, &[B]));
    desk.check(A, &asking(&[], &[all], LockAim::Try), (LockOutcome::NotYet, &[]));
    desk.check(B, &asking(&[all], &[], LockAim::Try), (LockOutcome::Given, &[]));
    let in_the_way = (LockOutcome::InTheWay(all), &[][..]);
    desk.check(A, &asking(&[], &[all], LockAim::Try), in_the_way);
    // Where the other has it still, who claims it is told at once that it is lost.
    let mut desk = Desk::new();
    desk.check(A, &asking(&[], &[all], LockAim::Try), (LockOutcome::GivenWhole, &[]));
    desk.check(B, &asking(&[all], &[], LockAim::Try), (LockOutcome::NotYet, &[A]));
    desk.check(A, &asking(&[all], &[], LockAim::Try), (LockOutcome::Given, &[B]));
    desk.check(B, &asking(&[all], &[], LockAim::Try), (LockOutcome::Lost, &[]));
}

#[test]
fn who_waited_comes_first_and_only_for_a_while() {
    let mut desk = Desk::new();
    let all = stretch(true, 0, 9);
    desk.check(A, &asking(&[], &[all], LockAim::Try), (LockOutcome::GivenWhole, &[]));
    desk.check(B, &asking(&[], &[all], LockAim::Wait), (LockOutcome::NotYet, &[A]));
    desk.check(A, &asking(&[all], &[], LockAim::Try), (LockOutcome::Given, &[]));
    desk.check(B, &asking(&[], &[all], LockAim::Wait), (LockOutcome::InTheWay(all), &[]));
    // It gives it back and wants it again, in one breath.
    desk.check(A, &asking(&[], &[all], LockAim::Wait), (LockOutcome::NotYet, &[B]));
    desk.check(B, &asking(&[], &[all], LockAim::Wait), (LockOutcome::Given, &[]));
    desk.check(B, &asking(&[], &[], LockAim::Try), (LockOutcome::Given, &[A]));
    desk.check(C, &asking(&[], &[all], LockAim::Try), (LockOutcome::NotYet, &[]));
    desk.now = desk.now + TURN;
    desk.check(C, &asking(&[], &[all], LockAim::Try), (LockOutcome::GivenWhole, &[]));
}

#[test]
fn of_two_processes_of_a_client_that_wait_for_different_stretches_each_is_told() {
    let mut desk = Desk::new();
    let (low, high, last) = (stretch(true, 0, 9), stretch(true, 15, 19), stretch(true, 20, 29));
    desk.check(A, &asking(&[], &[low], LockAim::Wait), (LockOutcome::GivenWhole, &[]));
    desk.check(B, &asking(&[], &[last], LockAim::Wait), (LockOutcome::NotYet, &[A]));
    desk.check(A, &asking(&[low, high], &[], LockAim::Try), (LockOutcome::Given, &[B]));
    desk.check(B, &asking(&[], &[last], LockAim::Wait), (LockOutcome::Given, &[]));
    desk.check(B, &asking(&[last], &[low], LockAim::Wait), (LockOutcome::InTheWay(low), &[]));
    desk.check(B, &asking(&[last], &[high], LockAim::Wait), (LockOutcome::InTheWay(high), &[]));
    // What another process of it gives up meanwhile changes nothing of that.
    desk.check(B, &asking(&[], &[], LockAim::Try), (LockOutcome::Given, &[]));
    desk.check(A, &asking(&[high], &[], LockAim::Try), (LockOutcome::Given, &[B]));
    desk.check(B, &asking(&[], &[low], LockAim::Wait), (LockOutcome::Given, &[]));
    desk.check(A, &asking(&[], &[], LockAim::Try), (LockOutcome::Given, &[B]));
    desk.check(B, &asking(&[low], &[high], LockAim::Wait), (LockOutcome::GivenWhole, &[]));
    assert_eq!(desk.book.files[&FILE].waiting.len(), 0);
}

#[test]
fn what_a_client_held_is_free_when_its_lease_has_ended_and_it_may_claim_what_nobody_took() {
    let mut desk = Desk::new();
    let (low, high) = (stretch(true, 0, 9), stretch(true, 10, 19));
    desk.check(A, &asking(&[], &[low], LockAim::Try), (LockOutcome::GivenWhole, &[]));
    desk.check(B, &asking(&[], &[high], LockAim::Wait), (LockOutcome::NotYet, &[A]));
    desk.gone.insert(A);
    desk.check(B, &asking(&[], &[high], LockAim::Wait), (LockOutcome::GivenWhole, &[]));
    desk.gone.clear();
    // B need not say what it locks of it, so it may have locked this.
    desk.check(A, &asking(&[low], &[], LockAim::Try), (LockOutcome::Lost, &[]));
    desk.check(A, &asking(&[], &[low], LockAim::Try), (LockOutcome::NotYet, &[B]));
    desk.check(B, &asking(&[high], &[], LockAim::Try), (LockOutcome::Given, &[A]));
    desk.check(A, &asking(&[], &[low], LockAim::Try), (LockOutcome::Given, &[]));
    desk.gone.insert(A);
    desk.gone.clear();
    assert_eq!(desk.attach(A, &[low]), [], "nobody was given any");
    desk.gone.insert(A);
    desk.check(B, &asking(&[high], &[low], LockAim::Try), (LockOutcome::GivenWhole, &[]));
    desk.gone.clear();
    desk.check(B, &asking(&[low, high], &[], LockAim::Try), (LockOutcome::GivenWhole, &[]));
    assert_eq!(desk.attach(A, &[low]), [FILE]);
}

#[test]
fn what_somebody_has_locked_and_given_up_meanwhile_is_lost() {
    let low = stretch(true, 0, 9);
    let given = (LockOutcome::GivenWhole, &[][..]);
    for (attaches, leaves) in [(false, false), (true, false), (true, true)] {
        let mut desk = Desk::new();
        desk.check(A, &asking(&[], &[low], LockAim::Try), given);
        desk.gone.insert(A);
        if leaves {
            // It says itself that it believes nothing any more.
            assert_eq!(desk.book.leave(A, desk.now), []);
        }
        desk.check(B, &asking(&[], &[low], LockAim::Try), given);
        assert_eq!(desk.book.leave(B, desk.now), []);
        desk.gone.clear();
        if attaches {
            assert_eq!(desk.attach(A, &[low]), [FILE]);
        } else {
            desk.check(A, &asking(&[low], &[], LockAim::Try), (LockOutcome::Lost, &[]));
        }
        desk.check(A, &asking(&[], &[low], LockAim::Try), given);
    }
}

#[test]
fn after_a_start_those_are_first_who_held_something_before() {
    let mut desk = Desk::new();
    desk.in_grace = true;
    let all = stretch(true, 0, 9);
    desk.check(B, &asking(&[], &[all], LockAim::Try), (LockOutcome::NotYet, &[]));
    assert_eq!(desk.attach(A, &[all]), []);
    desk.in_grace = false;
    desk.check(B, &asking(&[], &[all], LockAim::Try), (LockOutcome::InTheWay(all), &[]));
}

fn of(number: u64, held: &[Lock], wished: &[Lock], aim: LockAim) -> Locking {
    let asked = asking(held, wished, aim);
    Locking { held: Held { file: FileId(100 + number), ..asked.held }, ..asked }
}

const BYTES: [Lock; 1] = [Lock { kind: LockKind::Record, exclusive: true, first: 0, last: 9 }];

/// Others have so much that there is no room for another file.
fn fill(desk: &mut Desk) -> BTreeSet<ReplicaId> {
    let mut others = BTreeSet::new();
    for number in 0..FILES_MAX - desk.book.files.len() {
        let who = ReplicaId(10 + (number / FILES_OF_ONE_MAX) as u32);
        let asked = of(number as u64, &[], &BYTES, LockAim::Try);
        assert_eq!(desk.ask(who, &asked).0, LockOutcome::GivenWhole);
        others.insert(who);
    }
    others
}

#[test]
fn what_clients_held_that_are_gone_makes_room_for_what_others_lock() {
    let mut desk = Desk::new();
    let others = fill(&mut desk);
    let another = of(FILES_MAX as u64, &[], &BYTES, LockAim::Try);
    desk.check(B, &another, (LockOutcome::TooMany, &[]));
    desk.gone.extend(others);
    desk.check(B, &another, (LockOutcome::TooMany, &[]));
    desk.now = desk.now + SWEEP_EVERY;
    desk.check(B, &another, (LockOutcome::GivenWhole, &[]));
    assert_eq!(desk.book.files.len(), 1);
    assert_eq!(desk.book.shares, counted(&desk.book));
}

#[test]
fn where_there_is_no_room_for_another_file_those_that_are_locked_are_claimed_all_the_same() {
    let mut desk = Desk::new();
    desk.check(A, &asking(&[], &BYTES, LockAim::Try), (LockOutcome::GivenWhole, &[]));
    fill(&mut desk);
    assert_eq!(desk.attach(A, &BYTES), []);
    assert_eq!(desk.attach(A, &[]), []);
    let another = of(FILES_MAX as u64, &[], &BYTES, LockAim::Try);
    desk.check(B, &another, (LockOutcome::GivenWhole, &[]));
    assert_eq!(desk.attach(A, &BYTES), [FILE]);
}

#[test]
fn one_client_has_so_many_files_and_others_have_theirs() {
    let mut desk = Desk::new();
    let of = |number: usize, wished| of(number as u64, &[], wished, LockAim::Wait);
    desk.check(B, &of(0, &BYTES), (LockOutcome::GivenWhole, &[]));
    // It waits for one, and has the others.
    desk.check(A, &of(0, &BYTES), (LockOutcome::NotYet, &[B]));
    for number in 1..FILES_OF_ONE_MAX {
        assert_eq!(desk.ask(A, &of(number, &BYTES)).0, LockOutcome::GivenWhole);
    }
    let another = of(FILES_OF_ONE_MAX, &BYTES);
    desk.check(A, &another, (LockOutcome::TooMany, &[]));
    desk.check(B, &another, (LockOutcome::GivenWhole, &[]));
    desk.check(A, &of(1, &[]), (LockOutcome::Given, &[]));
    desk.check(A, &of(FILES_OF_ONE_MAX + 1, &BYTES), (LockOutcome::GivenWhole, &[]));
    assert_eq!(desk.book.leave(A, desk.now), []);
    assert_eq!(desk.book.shares, counted(&desk.book));
}

#[test]
fn one_client_holds_so_many_stretches_also_if_it_only_looks() {
    let mut desk = Desk::new();
    let many: Vec<Lock> = (0..1000).map(|n| stretch(true, 2 * n, 2 * n)).collect();
    let looks =
        |number, held: &[Lock]| of(number, held, &[stretch(true, 9000, 9009)], LockAim::Look);
    let fit = STRETCHES_OF_ONE_MAX as u64 / 1000;
    for number in 0..fit {
        desk.check(A, &looks(number, &many), (LockOutcome::Given, &[]));
    }
    desk.check(A, &looks(fit, &many), (LockOutcome::TooMany, &[]));
    desk.check(B, &looks(fit, &many), (LockOutcome::Given, &[]));
    // What is given up is, and makes room.
    desk.check(A, &looks(0, &many[1..]), (LockOutcome::Given, &[]));
    desk.check(A, &of(1, &[], &[], LockAim::Try), (LockOutcome::Given, &[]));
    desk.check(A, &looks(fit + 1, &many), (LockOutcome::Given, &[]));
    assert_eq!(desk.book.shares, counted(&desk.book));
    // What is claimed counts anew.
    assert_eq!(desk.attach(A, &many), []);
    assert_eq!(desk.book.shares, counted(&desk.book));
}

#[test]
fn what_somebody_has_had_of_a_file_that_a_client_had_no_room_to_claim_is_lost() {
    let given = (LockOutcome::GivenWhole, &[][..]);
    for (lasts, stretches) in [(false, 1), (true, 1), (false, LOCKS_TOLD_MAX)] {
        let mut desk = Desk::new();
        let mine: Vec<Lock> =
            (0..stretches as u64).map(|n| stretch(true, n * 20, n * 20)).collect();
        let files = FILES_CLAIMED_MAX.min(LOCKS_CLAIMED_MAX / stretches) as u64;
        let held = |number: u64| of(number, &mine, &[], LockAim::Try);
        for number in 0..files + 2 {
            desk.check(A, &held(number), given);
        }
        if !lasts {
            desk.gone.insert(A);
            desk.check(B, &of(files, &[], &BYTES, LockAim::Try), given);
            desk.check(B, &of(files, &[], &[], LockAim::Try), (LockOutcome::Given, &[]));
            desk.gone.clear();
        }
        let claims: Vec<Held> = (0..files).map(|number| held(number).held).collect();
        assert_eq!(desk.attach_with(A, &claims), []);
        if lasts {
            desk.check(B, &of(files, &[], &BYTES, LockAim::Try), given);
            desk.check(B, &of(files, &[], &[], LockAim::Try), (LockOutcome::Given, &[]));
        }
        desk.check(A, &held(files), (LockOutcome::Lost, &[]));
        // Of this nobody had any.
        desk.check(A, &held(files + 1), given);
    }
}

/// The clients of one device lock files, each as many as it may: so many all together.
fn fill_device(desk: &mut Desk) -> usize {
    for number in 0..FILES_MAX {
        let who = ReplicaId(100 + (number / FILES_OF_ONE_MAX) as u32);
        match desk.ask(who, &of(number as u64, &[], &BYTES, LockAim::Try)).0 {
            LockOutcome::GivenWhole => {}
            LockOutcome::TooMany => return number,
            other => panic!("{other:?}"),
        }
    }
    FILES_MAX
}

#[test]
fn one_device_has_so_many_files_however_many_clients_it_has_and_others_have_theirs() {
    let mut desk = Desk::new();
    let number = fill_device(&mut desk);
    assert_eq!(number, FILES_OF_DEVICE_MAX);
    assert!((2 * FILES_OF_ONE_MAX..FILES_MAX / 2).contains(&number));
    let (mine, another) = (ReplicaId(100), ReplicaId(177));
    let more = |number: usize| of((FILES_MAX + number) as u64, &[], &BYTES, LockAim::Try);
    desk.check(another, &more(0), (LockOutcome::TooMany, &[]));
    desk.check(B, &more(0), (LockOutcome::GivenWhole, &[]));
    // What one of its clients gives up another may have.
    desk.check(mine, &of(0, &[], &[], LockAim::Try), (LockOutcome::Given, &[]));
    desk.check(another, &more(1), (LockOutcome::GivenWhole, &[]));
    desk.check(another, &more(2), (LockOutcome::TooMany, &[]));
    assert_eq!(desk.book.shares, counted(&desk.book));
}

#[test]
fn what_clients_of_a_device_held_that_are_gone_makes_room_for_the_others() {
    let mut desk = Desk::new();
    let number = fill_device(&mut desk) as u64;
    let more = of(number, &[], &BYTES, LockAim::Try);
    desk.gone.insert(ReplicaId(100));
    desk.check(ReplicaId(177), &more, (LockOutcome::GivenWhole, &[]));
    assert_eq!(desk.book.files.len(), FILES_OF_DEVICE_MAX - FILES_OF_ONE_MAX + 1);
    assert_eq!(desk.book.shares, counted(&desk.book));
}

#[test]
fn what_all_clients_of_a_device_claim_is_no_more_than_they_may_lock() {
    let mut desk = Desk::new();
    let claims: Vec<Held> = (0..FILES_CLAIMED_MAX as u64)
        .map(|number| of(number, &[stretch(false, 0, 9)], &[], LockAim::Try).held)
        .collect();
    let fit = (FILES_OF_DEVICE_MAX / FILES_CLAIMED_MAX) as u32;
    let mut lost = |who: u32| desk.attach_with(ReplicaId(who), &claims).len();
    assert!((0..fit).all(|number| lost(100 + number) == 0));
    // Each of its clients counts, though they share the files.
    assert_eq!(lost(100 + fit), claims.len());
    assert_eq!(lost(100), 0, "it had as many before");
    assert_eq!(lost(B.0), 0);
    assert_eq!(desk.book.shares, counted(&desk.book));
    desk.gone.insert(ReplicaId(100));
    assert_eq!(desk.attach_with(ReplicaId(101 + fit), &claims).len(), 0);
}

#[test]
fn all_clients_of_a_device_hold_so_many_stretches() {
    let mut desk = Desk::new();
    let many: Vec<Lock> = (0..1000).map(|n| stretch(true, 2 * n, 2 * n)).collect();
    // With a look at it the file does not become the client's as a whole.
    let other = [stretch(true, 9000, 9009)];
    let files_of_one = STRETCHES_OF_ONE_MAX / 1000;
    let mut held = 0;
    for number in 0..3 * files_of_one {
        let who = ReplicaId(100 + (number / files_of_one) as u32);
        if number % files_of_one == 0 {
            assert_eq!(desk.attach(who, &[]), []);
        }
        let holds = of(number as u64, &many, &other, LockAim::Look);
        if desk.ask(who, &holds).0 == LockOutcome::Given {
            held += many.len();
        }
    }
    assert!(held <= STRETCHES_OF_DEVICE_MAX && held > STRETCHES_OF_ONE_MAX, "{held}");
    desk.check(B, &of(9999, &many, &other, LockAim::Look), (LockOutcome::Given, &[]));
    assert_eq!(desk.book.shares, counted(&desk.book));
}

/// Whom they all wait for is found without looking at all that they share.
#[test]
#[expect(clippy::disallowed_methods, reason = "it measures real time")]
fn who_locks_is_not_held_up_by_many_who_wait_for_all_of_a_file_that_they_share_in_small_pieces() {
    let mut desk = Desk::new();
    let held: Vec<Lock> = (0..1000).map(|n| stretch(false, 2 * n, 2 * n)).collect();
    let all = [stretch(false, 0, 9000); 7];
    let last = stretch(true, 9001, 9001);
    let other = stretch(true, 9100, 9100);
    let blocks = asking(&[&held[..], &[last]].concat(), &[other], LockAim::Look);
    let waits = asking(&held, &[&all[..], &[last]].concat(), LockAim::Wait);
    let began = std::time::Instant::now();
    for number in 100..132 {
        let asked = if number == 100 { &blocks } else { &waits };
        let wanted = if number == 100 { LockOutcome::Given } else { LockOutcome::InTheWay(last) };
        assert_eq!(desk.attach(ReplicaId(number), &[]), []);
        desk.check(ReplicaId(number), asked, (wanted, &[]));
    }
    desk.check(B, &asking(&[], &[last], LockAim::Try), (LockOutcome::InTheWay(last), &[]));
    assert!(began.elapsed().as_secs() < 5, "{:?}", began.elapsed());
}

/// What every client has, as it is found by looking at all files.
fn counted(book: &Book) -> Shares {
    let mut shares = Shares::default();
    for (who, stretches) in book.files.values().flat_map(OfFile::parts) {
        shares.change(&Parts::new(), &Parts::from([(who, stretches)]), device_of(who));
    }
    shares
}

#[test]
fn who_looks_holds_nothing_and_nonsense_is_refused() {
    let mut desk = Desk::new();
    let all = stretch(true, 0, 9);
    desk.check(A, &asking(&[], &[all], LockAim::Look), (LockOutcome::Given, &[]));
    assert!(desk.book.files.is_empty());
    let nonsense = asking(&[stretch(true, 3, 2)], &[], LockAim::Try);
    let around = Around { now: desk.now, device: device_of(A), lasts: &|_| true, in_grace: false };
    assert_eq!(desk.book.ask(A, &nonsense, &around), Err(Nonsense));
    let many: Vec<Lock> =
        (0..=LOCKS_TOLD_MAX as u64).map(|n| stretch(true, 2 * n, 2 * n)).collect();
    desk.check(A, &asking(&[], &many, LockAim::Try), (LockOutcome::TooMany, &[]));
}

/// What a client may believe: that all is its own, or these.
#[derive(Clone, Debug, Default)]
struct Belief {
    whole: bool,
    locks: Locks,
}

fn any_stretch() -> impl Strategy<Value = Lock> {
    (any::<bool>(), 0_u64..6, 0_u64..3)
        .prop_map(|(exclusive, first, more)| stretch(exclusive, first, first + more))
}

#[test]
fn a_list_that_is_too_long_is_refused_as_it_came() {
    let (mut desk, lock) = (Desk::new(), stretch(true, 0, 9));
    // It is one stretch, when it is put in order.
    let many = vec![lock; LOCKS_TOLD_MAX + 1];
    desk.check(A, &asking(&many, &[], LockAim::Try), (LockOutcome::TooMany, &[]));
    desk.check(A, &asking(&[], &many, LockAim::Try), (LockOutcome::TooMany, &[]));
    desk.check(
        A,
        &asking(&[], &[lock; LOCKS_WISHED_MAX + 1], LockAim::Wait),
        (LockOutcome::TooMany, &[]),
    );
    let as_many = &many[1..];
    desk.check(A, &asking(as_many, &[lock], LockAim::Try), (LockOutcome::TooMany, &[]));
    desk.check(A, &asking(as_many, &[], LockAim::Try), (LockOutcome::GivenWhole, &[]));
    desk.check(B, &asking(&many, &[lock], LockAim::Wait), (LockOutcome::TooMany, &[]));
}

proptest! {
    /// Whatever is asked, kept, given up or lost: no two clients believe what cannot be.
    #[test]
    fn prop_no_two_clients_hold_what_excludes_each_other(
        steps in prop::collection::vec(
            (1_u32..4, 0_u8..8, prop::collection::vec(any_stretch(), 0..3), any::<u8>()), 0..60,
        ),
    ) {
        let mut desk = Desk::new();
        let mut beliefs: BTreeMap<ReplicaId, Belief> =
            (1..4).map(|who| (ReplicaId(who), Belief::default())).collect();
        for (who, what, locks, keeps) in steps {
            let who = ReplicaId(who);
            let belief = beliefs.get_mut(&who).unwrap();
            // Of its own it holds some; of a whole file whatever it likes.
            let held = if belief.whole {
                Locks::from_told(&locks).unwrap()
            } else {
                let kept = belief.locks.iter().enumerate().filter(|(n, _)| keeps >> (n % 8) & 1 == 1);
                Locks::from_told(&kept.map(|(_, lock)| *lock).collect::<Vec<_>>()).unwrap()
            };
            match what {
                0 => {
                    desk.gone.insert(who);
                    *belief = Belief::default();
                }
                1 => {
                    desk.gone.remove(&who);
                    let lost = desk.attach(who, &held.to_vec());
                    let locks = if lost.is_empty() { held } else { Locks::default() };
                    *belief = Belief { whole: false, locks };
                }
                2 => desk.now = desk.now + TURN / 2,
                _ if desk.gone.contains(&who) => {}
                _ => {
                    let aim = if what < 6 { LockAim::Try } else { LockAim::Wait };
                    let (outcome, _) = desk.ask(who, &asking(&held.to_vec(), &locks, aim));
                    *belief = Belief { whole: outcome == LockOutcome::GivenWhole, locks: held };
                    if outcome == LockOutcome::Given {
                        for exclusive in [false, true] {
                            let wished = locks.iter().filter(|lock| lock.exclusive == exclusive);
                            wished.for_each(|lock| belief.locks.put(*lock));
                        }
                    }
                    prop_assert_ne!(outcome, LockOutcome::Lost);
                }
            }
            prop_assert_eq!(&desk.book.shares, &counted(&desk.book));
            for (one, belief) in &beliefs {
                for (other, theirs) in beliefs.iter().filter(|(other, _)| *other != one) {
                    prop_assert!(!belief.whole || (!theirs.whole && theirs.locks.is_empty()),
                        "{one} has all, and {other} {theirs:?}");
                    for lock in belief.locks.iter() {
                        prop_assert_eq!(theirs.locks.in_the_way_of(lock), None);
                    }
                }
            }
        }
    }
}

#[test]
fn who_asks_for_one_stretch_is_told_that_it_is_its_turn_for_another() {
    let mut desk = Desk::new();
    let (one, other) = (stretch(true, 0, 7), stretch(true, 8, 15));
    let wait = |held: &[Lock]| asking(held, &[one], LockAim::Wait);
    desk.check(A, &asking(&[], &[one], LockAim::Try), (LockOutcome::GivenWhole, &[]));
    desk.check(C, &wait(&[]), (LockOutcome::NotYet, &[A]));
    desk.check(A, &asking(&[one], &[], LockAim::Try), (LockOutcome::Given, &[]));
    desk.check(B, &asking(&[], &[other], LockAim::Try), (LockOutcome::Given, &[]));
    desk.check(B, &wait(&[other]), (LockOutcome::InTheWay(one), &[]));
    desk.check(A, &asking(&[], &[], LockAim::Try), (LockOutcome::Given, &[C]));
    // Who came first does not come.
    desk.now = desk.now + TURN;
    desk.check(B, &asking(&[], &[], LockAim::Try), (LockOutcome::Given, &[B]));
    desk.check(B, &wait(&[]), (LockOutcome::GivenWhole, &[]));
}
