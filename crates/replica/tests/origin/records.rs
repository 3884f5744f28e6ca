//! Stores under records that their client holds: what is merged, what is not, and that both sides of a
//! conflict are kept.

use crate::party::{Device, LEASE, Party, all_chunks, noise, store_of};
use model::{FileId, Kind, Lock, LockKind, Stamp, Update};
use protocol::{
    Held, LockAim, LockOutcome, Locking, Refusal, Request, Response, Submit, Submitted, Verdict,
};
use replica::Limits;

const ROOT: FileId = FileId::ROOT;

fn alone(first: u64, last: u64) -> Lock {
    Lock { kind: LockKind::Record, exclusive: true, first, last }
}

/// Ada and bob, who know of a file and hold a word of it each, and what of it she holds.
async fn two(party: &Party) -> (Device, Device, FileId, Stamp) {
    let mut ada = party.join("ada").await;
    let (file, base) = ada.write_new(ROOT, "words", "one two six").await;
    let bob = party.join("bob").await;
    assert_eq!(lock(&ada, file, vec![alone(0, 2)]).await, LockOutcome::GivenWhole);
    // Told of bob's wish, she says what she holds.
    assert_eq!(lock(&bob, file, vec![alone(4, 6)]).await, LockOutcome::NotYet);
    assert_eq!(tell(&ada, file, vec![alone(0, 2)], vec![]).await, LockOutcome::Given);
    assert_eq!(lock(&bob, file, vec![alone(4, 6)]).await, LockOutcome::Given);
    (ada, bob, file, base)
}

async fn lock(device: &Device, file: FileId, wished: Vec<Lock>) -> LockOutcome {
    tell(device, file, Vec::new(), wished).await
}

async fn tell(device: &Device, file: FileId, locks: Vec<Lock>, wished: Vec<Lock>) -> LockOutcome {
    let held = Held { file, locks };
    let asked = Locking { held, wished, aim: LockAim::Wait };
    match device.ask(Request::Lock(asked)).await {
        Response::Locked(locked) => locked.outcome,
        response => panic!("{response:?}"),
    }
}

async fn submit(device: &Device, updates: Vec<Update>, held: Vec<Held>) -> Submitted {
    match answer(device, updates, held).await {
        Response::Submitted(submitted) => submitted,
        response => panic!("{response:?}"),
    }
}

async fn answer(device: &Device, updates: Vec<Update>, held: Vec<Held>) -> Response {
    let submit = Submit {
        settled: 0,
        strict: true,
        updates,
        payload: None,
        deltas: None,
        seek: None,
        ahead: None,
        under: Some(held),
    };
    device.ask(Request::Submit(submit)).await
}

async fn storing(device: &mut Device, file: FileId, expects: Stamp, says: &str) -> Update {
    let change = device.storing(file, expects, says).await;
    device.update(change)
}

fn held(file: FileId, first: u64, last: u64) -> Vec<Held> {
    vec![Held { file, locks: vec![alone(first, last)] }]
}

#[tokio::test(start_paused = true)]
async fn what_two_hold_is_merged_and_the_second_is_shown_what_came_of_it() {
    let party = Party::new();
    let (mut ada, mut bob, file, base) = two(&party).await;
    let store = storing(&mut ada, file, base, "ONE two six").await;
    submit(&ada, vec![store], held(file, 0, 2)).await;
    let store = storing(&mut bob, file, base, "one TWO six").await;
    let stamp = store.stamp;
    let submitted = submit(&bob, vec![store.clone()], held(file, 4, 6)).await;
    assert!(matches!(submitted.verdicts[..], [Verdict::Taken(_)]));
    assert_eq!((party.tree(), party.conflicts().len()), ("words: ONE TWO six".into(), 0));
    let node = bob.node(file).await.unwrap();
    assert_ne!(node.contents_stamp, stamp, "every stamp has the contents that its writer gave it");
    let shown = submitted.states.nodes.iter().find(|state| state.file == file).unwrap();
    assert_eq!(shown.node.as_ref().map(|node| node.contents_stamp), Some(node.contents_stamp));
    // What comes again is answered as before, and nothing more is done.
    let again = submit(&bob, vec![store], held(file, 4, 6)).await;
    assert_eq!(again.verdicts, submitted.verdicts);
    assert_eq!(bob.node(file).await.unwrap().contents_stamp, node.contents_stamp);
    // Upon what he stored himself, as one who has not seen the merge.
    let store = storing(&mut bob, file, stamp, "one ZWO six").await;
    submit(&bob, vec![store], held(file, 4, 6)).await;
    assert_eq!((party.tree(), party.conflicts().len()), ("words: ONE ZWO six".into(), 0));
}

#[tokio::test(start_paused = true)]
async fn who_says_that_he_holds_what_he_does_not_is_not_believed() {
    let party = Party::new();
    let (mut ada, mut bob, file, base) = two(&party).await;
    let store = storing(&mut ada, file, base, "ONE two six").await;
    submit(&ada, vec![store], held(file, 0, 2)).await;
    for (says, first, last) in [("one TWO six", 0, 100), ("one two SIX", 8, 10)] {
        let store = storing(&mut bob, file, base, says).await;
        let submitted = submit(&bob, vec![store], held(file, first, last)).await;
        assert!(matches!(submitted.verdicts[..], [Verdict::KeptAside { .. }]), "{says}");
    }
    let shared = Lock { exclusive: false, ..alone(4, 6) };
    let whole = Lock { kind: LockKind::Whole, ..alone(4, 6) };
    let turned = Lock { first: 6, last: 4, ..shared };
    for locks in [vec![shared], vec![whole], vec![turned], vec![]] {
        let store = storing(&mut bob, file, base, "one TWO six").await;
        let submitted = submit(&bob, vec![store], vec![Held { file, locks }]).await;
        assert!(matches!(submitted.verdicts[..], [Verdict::KeptAside { .. }]));
    }
    assert_eq!(party.conflicts().len(), 6);
    assert_eq!(ada.node(file).await.unwrap().contents_stamp, ada.stamp());
}

#[tokio::test(start_paused = true)]
async fn of_two_stores_at_once_the_second_is_merged_when_the_first_is_there() {
    let party = Party::new();
    let (mut ada, mut bob, file, base) = two(&party).await;
    let store = storing(&mut ada, file, base, "ONE two six").await;
    submit(&ada, vec![store], held(file, 0, 2)).await;
    let first = storing(&mut bob, file, base, "one TWO six").await;
    let second = storing(&mut bob, file, first.stamp, "one ZWO six").await;
    let submitted = submit(&bob, vec![first, second.clone()], held(file, 4, 6)).await;
    assert!(matches!(submitted.verdicts[..], [Verdict::Taken(_)]), "the rest is sent again");
    assert!(submitted.missing.is_empty());
    let submitted = submit(&bob, vec![second], held(file, 4, 6)).await;
    assert!(matches!(submitted.verdicts[..], [Verdict::Taken(_)]));
    assert_eq!((party.tree(), party.conflicts().len()), ("words: ONE ZWO six".into(), 0));
}

/// They are committed together, so that each meets what was not there when it was looked at.
#[tokio::test(start_paused = true)]
async fn stores_of_many_that_arrive_together_are_all_there() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let text = ".".repeat(80);
    let (file, base) = ada.write_new(ROOT, "words", &text).await;
    let mut all = Vec::new();
    let mut locked = Vec::new();
    for number in 0..8u64 {
        let mut device = party.join(&format!("device {number}")).await;
        let at = (10 * number) as usize;
        let mut says = text.clone();
        says.replace_range(at..at + 3, &format!("<{number}>"));
        let store = storing(&mut device, file, base, &says).await;
        locked.push(alone(10 * number, 10 * number + 9));
        all.push((device, store));
    }
    for ((device, _), lock) in all.iter().zip(&locked) {
        while !matches!(
            tell(device, file, vec![], vec![*lock]).await,
            LockOutcome::Given | LockOutcome::GivenWhole
        ) {
            let (first, lock) = (&all[0].0, locked[0]);
            tell(first, file, vec![lock], vec![]).await;
        }
    }
    let mut tasks = tokio::task::JoinSet::new();
    for ((device, store), lock) in all.into_iter().zip(locked) {
        tasks.spawn(async move {
            let held = vec![Held { file, locks: vec![lock] }];
            let submitted = submit(&device, vec![store], held).await;
            assert!(matches!(submitted.verdicts[..], [Verdict::Taken(_)]));
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let words: String = (0..8).map(|number| format!("<{number}>.......")).collect();
    assert_eq!((party.tree(), party.conflicts().len()), (format!("words: {words}"), 0));
}

/// What the writer took back without knowing that it had arrived is followed by what it stored in its
/// place, also where the first was merged.
#[tokio::test(start_paused = true)]
async fn what_follows_a_merged_store_that_was_taken_back_is_no_conflict() {
    for merged in [false, true] {
        let party = Party::new();
        let (mut ada, mut bob) = (party.join("ada").await, party.join("bob").await);
        let (file, base) = ada.write_new(ROOT, "a", "0123456789").await;
        lock(&ada, file, vec![alone(0, 1)]).await;
        let under = || held(file, 0, 1);
        if merged {
            let store = bob.storing(file, base, "012345678b").await;
            assert!(matches!(bob.replay(store).await, Verdict::Taken(_)));
        }
        let first = ada.storing(file, base, "a123456789").await;
        let first = ada.update(first);
        let taken = submit(&ada, vec![first], under()).await;
        assert!(matches!(taken.verdicts[..], [Verdict::Taken(_)]), "{taken:?}");
        // The answer is lost; she writes over it, and what was pending is taken back.
        let second = ada.storing(file, base, "aa23456789").await;
        let second = ada.update(second);
        let taken = submit(&ada, vec![second], under()).await;
        assert!(matches!(taken.verdicts[..], [Verdict::Taken(_)]), "merged: {merged}: {taken:?}");
        let tree = party.tree();
        assert_eq!(tree, if merged { "a: aa2345678b" } else { "a: aa23456789" });
    }
}

#[tokio::test(start_paused = true)]
async fn what_there_is_no_room_to_merge_is_kept_by_its_writer_and_merged_when_there_is_some() {
    let mut room = u64::MAX;
    for is_full in [false, true] {
        let limits = Limits { lease: LEASE, bytes_max: room, ..Limits::simulated() };
        let party = Party::with(limits);
        party.blobs.put_all(&[(b"in the way", &[7; 4096])]).unwrap();
        let (mut ada, mut bob, file, base) = two(&party).await;
        let store = storing(&mut ada, file, base, "ONE two six").await;
        submit(&ada, vec![store], held(file, 0, 2)).await;
        let store = storing(&mut bob, file, base, "one TWO six").await;
        room = party.blobs.bytes();
        let answered = answer(&bob, vec![store.clone()], held(file, 4, 6)).await;
        if is_full {
            assert!(matches!(answered, Response::Refused(Refusal::NoSpace)), "{answered:?}");
            assert_eq!((party.tree(), party.conflicts().len()), ("words: ONE two six".into(), 0));
            party.blobs.delete(b"in the way").unwrap();
            submit(&bob, vec![store], held(file, 4, 6)).await;
        }
        assert_eq!((party.tree(), party.conflicts().len()), ("words: ONE TWO six".into(), 0));
    }
}

/// The same where others have gone on from it before the writer comes again.
#[tokio::test(start_paused = true)]
async fn what_others_have_stored_upon_a_store_that_was_taken_back_is_merged_with_what_follows_it() {
    for (merged, knows) in [(false, true), (true, true), (false, false), (true, false)] {
        let party = Party::new();
        let (mut ada, mut bob) = (party.join("ada").await, party.join("bob").await);
        let (file, base) = ada.write_new(ROOT, "a", "0123456789").await;
        lock(&ada, file, vec![alone(0, 1)]).await;
        lock(&bob, file, vec![alone(8, 9)]).await;
        tell(&ada, file, vec![alone(0, 1)], vec![]).await;
        lock(&bob, file, vec![alone(8, 9)]).await;
        let (mut says, mut upon) = ("0123456789", base);
        if merged {
            let store = storing(&mut bob, file, base, "012345678b").await;
            upon = store.stamp;
            says = "012345678b";
            submit(&bob, vec![store], held(file, 8, 9)).await;
        }
        let first = storing(&mut ada, file, base, "a123456789").await;
        let taken = submit(&ada, vec![first], held(file, 0, 1)).await;
        assert!(matches!(taken.verdicts[..], [Verdict::Taken(_)]), "{taken:?}");
        // The answer is lost, and somebody who has seen that stores, or who has not.
        if knows {
            says = if merged { "a12345678b" } else { "a123456789" };
            upon = bob.node(file).await.unwrap().contents_stamp;
        }
        let more = storing(&mut bob, file, upon, &says.replace('8', "B")).await;
        let taken = submit(&bob, vec![more], held(file, 8, 9)).await;
        assert!(matches!(taken.verdicts[..], [Verdict::Taken(_)]), "{taken:?}");
        let second = storing(&mut ada, file, base, "aa23456789").await;
        let taken = submit(&ada, vec![second], held(file, 0, 1)).await;
        assert!(matches!(taken.verdicts[..], [Verdict::Taken(_)]), "{merged} {knows}: {taken:?}");
        let last = if merged { "b" } else { "9" };
        assert_eq!(party.tree(), format!("a: aa234567B{last}"), "{merged} {knows}");
        assert_eq!(party.conflicts().len(), 0);
    }
}

async fn storing_bytes(device: &mut Device, file: FileId, expects: Stamp, bytes: &[u8]) -> Update {
    let described = device.describe(bytes);
    for (_, chunk) in all_chunks(&described, bytes) {
        device.put(&[&chunk]).await;
    }
    device.update(store_of(file, expects, described.tree.contents))
}

/// What each of them meets was not there before their turn, and all together they differ in more than
/// is compared within one.
#[tokio::test(start_paused = true)]
async fn of_many_that_arrive_together_each_has_room_to_be_merged() {
    const RECORD: usize = 2 << 20;
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let (mut stores, mut first, mut expected) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..7u64 {
        let mut device = party.join(&format!("device {number}")).await;
        let mut bytes = noise(RECORD + 1, number);
        let (file, base) = device.stored(&format!("words {number}"), &bytes).await;
        let lock = lock(&device, file, vec![alone(0, RECORD as u64 - 1)]).await;
        assert_eq!(lock, LockOutcome::GivenWhole);
        bytes[..RECORD].copy_from_slice(&noise(RECORD, 100 + number));
        let store = storing_bytes(&mut device, file, base, &bytes).await;
        stores.push((device, file, store));
        expected.push((file, bytes));
    }
    // She has changed the rest of each, with so much else that it is a transaction by itself.
    for ((file, bytes), number) in expected.iter_mut().zip(0..) {
        let mut before = noise(RECORD + 1, number);
        before[RECORD] ^= 1;
        bytes[RECORD] = before[RECORD];
        let base = ada.node(*file).await.unwrap().contents_stamp;
        first.push(storing_bytes(&mut ada, *file, base, &before).await);
    }
    while first.len() < 10_000 {
        let (_, make) = ada.making(ROOT, &format!("{}", first.len()), Kind::Fifo);
        first.push(ada.update(make));
    }
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move {
        let submitted = submit(&ada, first, Vec::new()).await;
        assert!(matches!(submitted.verdicts[..], [Verdict::Taken(_), ..]));
    });
    for (device, file, store) in stores {
        tasks.spawn(async move {
            let submitted = submit(&device, vec![store], held(file, 0, RECORD as u64 - 1)).await;
            assert!(matches!(submitted.verdicts[..], [Verdict::Taken(_)]), "{}", device.name);
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let bob = party.join("bob").await;
    for (file, bytes) in expected {
        let node = bob.node(file).await.unwrap();
        assert_eq!(node.contents, bob.describe(&bytes).tree.contents);
    }
}
