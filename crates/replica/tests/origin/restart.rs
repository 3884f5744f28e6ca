//! The origin dies, and another life of it opens what it left.

use crate::party::{Device, Party, name};
use model::{FileId, Kind};
use protocol::{Request, Response, Verdict};
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn a_strict_writer_waits_for_those_who_may_hold_callbacks_of_an_earlier_life() {
    let party = Party::new();
    let ada = party.join("ada").await;
    let bob = party.join("bob").await;
    bob.list(FileId::ROOT).await;
    let after = party.killed();
    let mut ada = after.rejoin(&ada).await;
    let clock = after.world.clock.clone();
    let start = clock.moment();
    let (_, make) = ada.making(FileId::ROOT, "one", Kind::File);
    assert!(matches!(ada.strict(make).await, Verdict::Taken(_)));
    assert_eq!(clock.moment().since(start).as_secs(), 60, "bob never came back");
    let start = clock.moment();
    let (_, make) = ada.making(FileId::ROOT, "two", Kind::File);
    ada.strict(make).await;
    assert_eq!(clock.moment().since(start), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_strict_writer_waits_so_wherever_the_wall_clock_was_set_to_before_the_restart() {
    const YEAR: i64 = 366 * 24 * 60 * 60;
    for shift in [-YEAR, -500_000, 0, 500_000, YEAR] {
        let party = Party::new();
        let ada = party.join("ada").await;
        let bob = party.join("bob").await;
        bob.list(FileId::ROOT).await;
        party.world.clock.shift(shift);
        let after = party.killed();
        let mut ada = after.rejoin(&ada).await;
        let start = after.world.clock.moment();
        let (_, make) = ada.making(FileId::ROOT, "one", Kind::File);
        ada.strict(make).await;
        assert_eq!(after.world.clock.moment().since(start).as_secs(), 60, "{shift}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_wait_ends_when_everybody_is_back() {
    let party = Party::new();
    let ada = party.join("ada").await;
    let bob = party.join("bob").await;
    bob.list(FileId::ROOT).await;
    let after = party.killed();
    let mut ada = after.rejoin(&ada).await;
    let clock = after.world.clock.clone();
    let start = clock.moment();
    let (_, make) = ada.making(FileId::ROOT, "one", Kind::File);
    let writer = tokio::spawn(async move { ada.strict(make).await });
    clock.sleep(Duration::from_secs(7)).await;
    assert!(!writer.is_finished());
    let bob = after.rejoin(&bob).await;
    writer.await.unwrap();
    assert_eq!(clock.moment().since(start).as_secs(), 7);
    let entries = bob.inspect(vec![], vec![(FileId::ROOT, name("one"))]).await.entries;
    assert!(entries[0].file.is_some());
}

#[tokio::test(start_paused = true)]
async fn the_wait_ends_no_sooner_than_who_is_back_has_taken_in_what_it_missed() {
    let party = Party::new();
    let ada = party.join("ada").await;
    let bob = party.join("bob").await;
    bob.list(FileId::ROOT).await;
    let after = party.killed();
    let mut ada = after.rejoin(&ada).await;
    let clock = after.world.clock.clone();
    let start = clock.moment();
    let (_, make) = ada.making(FileId::ROOT, "one", Kind::File);
    let writer = tokio::spawn(async move { ada.strict(make).await });
    clock.sleep(Duration::from_secs(3)).await;
    // The answer is on its way to bob, who goes by his lease until it is there.
    let bob = after.rejoin_deaf(&bob).await;
    clock.sleep(Duration::from_secs(4)).await;
    assert!(!writer.is_finished(), "bob does not know of it yet");
    bob.ears.take_in();
    writer.await.unwrap();
    assert_eq!(clock.moment().since(start).as_secs(), 7);
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_after_a_restart_for_who_took_leave_or_was_away_for_days() {
    let party = Party::new();
    let ada = party.join("ada").await;
    drop(party.join("bob").await);
    let origin = party.origin.clone();
    let keeping = tokio::spawn(async move { origin.keep_up().await });
    party.world.clock.sleep(Duration::from_secs(74 * 60 * 60)).await;
    keeping.abort();
    let eve = party.join("eve").await;
    ada.renew(ada.seen()).await;
    // The last word before the origin dies.
    assert_eq!(eve.ask(Request::Leave).await, Response::Left);
    let after = party.killed();
    let mut ada = after.rejoin(&ada).await;
    let start = after.world.clock.moment();
    let (_, make) = ada.making(FileId::ROOT, "one", Kind::File);
    ada.strict(make).await;
    assert_eq!(after.world.clock.moment().since(start), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_renewed_outlives_the_origin() {
    let party = Party::new();
    let ada = party.join("ada").await;
    let bob = party.join("bob").await;
    // Bob renews for longer than what was written at first.
    for _ in 0..20 {
        party.world.clock.sleep(Duration::from_secs(25)).await;
        bob.renew(bob.seen()).await;
        ada.renew(ada.seen()).await;
    }
    let after = party.killed();
    let mut ada = after.rejoin(&ada).await;
    let start = after.world.clock.moment();
    let (_, make) = ada.making(FileId::ROOT, "one", Kind::File);
    ada.strict(make).await;
    assert_eq!(after.world.clock.moment().since(start).as_secs(), 60);
}

/// Bob is idle for longer than his lease while the origin looks after its store.
async fn idle(party: &Party, ada: &Device) {
    let origin = party.origin.clone();
    let keeping = tokio::spawn(async move { origin.keep_up().await });
    for _ in 0..4 {
        party.world.clock.sleep(Duration::from_secs(25)).await;
        ada.renew(ada.seen()).await;
    }
    keeping.abort();
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_after_a_restart_for_one_whose_lease_had_ended() {
    let party = Party::new();
    let ada = party.join("ada").await;
    let bob = party.join("bob").await;
    bob.list(FileId::ROOT).await;
    idle(&party, &ada).await;
    let after = party.killed();
    let mut ada = after.rejoin(&ada).await;
    let start = after.world.clock.moment();
    let (_, make) = ada.making(FileId::ROOT, "one", Kind::File);
    ada.strict(make).await;
    assert_eq!(after.world.clock.moment().since(start), Duration::ZERO);
    // Nor after the next, if nobody has been there but her.
    let origin = after.origin.clone();
    let keeping = tokio::spawn(async move { origin.keep_up().await });
    after.world.clock.sleep(Duration::from_secs(100)).await;
    keeping.abort();
    let last = after.killed();
    let mut eve = last.join("eve").await;
    let start = last.world.clock.moment();
    let (_, make) = eve.making(FileId::ROOT, "two", Kind::File);
    eve.strict(make).await;
    assert_eq!(last.world.clock.moment().since(start), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn one_whose_lease_had_ended_and_begins_again_is_waited_for_after_a_restart() {
    let party = Party::new();
    let ada = party.join("ada").await;
    let bob = party.join("bob").await;
    bob.list(FileId::ROOT).await;
    idle(&party, &ada).await;
    bob.renew(bob.seen()).await;
    let after = party.killed();
    let mut ada = after.rejoin(&ada).await;
    let start = after.world.clock.moment();
    let (_, make) = ada.making(FileId::ROOT, "one", Kind::File);
    ada.strict(make).await;
    assert_eq!(after.world.clock.moment().since(start).as_secs(), 60);
}

#[tokio::test(start_paused = true)]
async fn a_restarted_origin_never_gives_an_id_twice() {
    let party = Party::new();
    let ada = party.join("ada").await;
    let after = party.without_power();
    let bob = after.join("bob").await;
    assert_ne!(ada.replica, bob.replica);
}

#[tokio::test(start_paused = true)]
async fn chunks_that_a_crash_took_are_asked_for_again() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let (file, make) = ada.making(FileId::ROOT, "a", Kind::File);
    ada.replay(make).await;
    let store = ada.storing(file, ada.stamp(), "text").await;
    let store = ada.update(store);
    let after = party.without_power();
    let ada = after.rejoin(&ada).await;
    let submitted = ada.submit_all(false, vec![store.clone()], None).await.unwrap();
    assert_eq!(submitted.missing, [ada.secret().name(b"text")]);
    ada.put(&[b"text"]).await;
    ada.submit_all(false, vec![store], None).await.unwrap();
    assert_eq!(after.tree(), "a: text");
}
