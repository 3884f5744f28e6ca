//! Having a volume for oneself, and company.

use crate::party::{Device, Party};
use model::{FileId, Kind, Seq};
use protocol::{Request, Response};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn told(device: &Device) -> Vec<bool> {
    device.ears.alone.lock().unwrap().clone()
}

async fn pass(party: &Party, time: Duration) {
    party.world.clock.sleep(time).await;
}

#[tokio::test(start_paused = true)]
async fn who_has_the_volume_for_itself_is_told_so_and_that_others_come() {
    let party = Party::new();
    let ada = party.join("ada").await;
    pass(&party, SECOND).await;
    assert_eq!(told(&ada), [true]);
    let bob = party.join("bob").await;
    assert_eq!(told(&ada), [true, false], "before he is attached");
    pass(&party, SECOND).await;
    assert!(told(&bob).is_empty());
    assert_eq!(bob.ask(Request::Leave).await, Response::Left);
    pass(&party, SECOND).await;
    assert_eq!(told(&ada), [true, false, true]);
}

#[tokio::test(start_paused = true)]
async fn who_comes_waits_until_the_one_who_was_alone_has_sent_what_it_did() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    pass(&party, SECOND).await;
    ada.ears.hang();
    let clock = party.world.clock.clone();
    let start = clock.moment();
    let (_, make) = ada.making(FileId::ROOT, "done alone", Kind::File);
    let token = party.origin.invite(crate::party::VOLUME, protocol::Access::ReadWrite, None);
    let (session, ears) = party.admit("bob", Some(token.unwrap())).await.unwrap();
    let bob = tokio::spawn(Device::attached("bob", session, ears, None, 0, Seq::START));
    pass(&party, SECOND * 3).await;
    assert!(!bob.is_finished());
    // What she sends meanwhile is taken, and part of what he finds.
    ada.replay(make).await;
    ada.ears.take_in();
    let bob = bob.await.unwrap();
    assert!(clock.moment().since(start) < SECOND * 5);
    assert_eq!(bob.list(FileId::ROOT).await.directories[0].entries.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn who_does_not_answer_is_waited_for_ten_seconds_and_only_once() {
    let party = Party::new();
    let ada = party.join("ada").await;
    pass(&party, SECOND).await;
    ada.ears.hang();
    let clock = &party.world.clock;
    let start = clock.moment();
    let _bob = party.join("bob").await;
    assert_eq!(clock.moment().since(start), SECOND * 10);
    let _eve = party.join("eve").await;
    assert_eq!(clock.moment().since(start), SECOND * 10);
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_one_who_is_away_is_company() {
    let party = Party::new();
    let bob = party.join("bob").await;
    drop(bob.session);
    let ada = party.join("ada").await;
    pass(&party, SECOND).await;
    assert!(told(&ada).is_empty());
    pass(&party, SECOND * 60).await;
    ada.renew(Seq::START).await;
    pass(&party, SECOND).await;
    assert_eq!(told(&ada), [true]);
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_nobody_is_alone_while_somebody_may_hold_a_lease() {
    let party = Party::new();
    let ada = party.join("ada").await;
    let _bob = party.join("bob").await;
    let party = party.killed();
    let ada = party.rejoin(&ada).await;
    pass(&party, SECOND).await;
    assert!(told(&ada).is_empty());
    pass(&party, SECOND * 61).await;
    ada.renew(Seq::START).await;
    pass(&party, SECOND).await;
    assert_eq!(told(&ada), [true]);
}

#[tokio::test(start_paused = true)]
async fn who_does_not_use_the_volume_is_no_company_until_it_asks_for_something() {
    let party = Party::new();
    let ada = party.join("ada").await;
    let mut bob = party.join("bob").await;
    let mut expected = told(&ada);
    for asks in 0..3 {
        pass(&party, SECOND * 60).await;
        ada.renew(Seq::START).await;
        pass(&party, SECOND).await;
        expected.push(true);
        assert_eq!(told(&ada), expected, "he asks for nothing, and his lease is over");
        match asks {
            0 => drop(bob.renew(Seq::START).await),
            1 => drop(bob.list(FileId::ROOT).await),
            _ => {
                let (_, make) = bob.making(FileId::ROOT, "of his", Kind::File);
                bob.replay(make).await;
            }
        }
        expected.push(false);
        assert_eq!(told(&ada), expected, "before he is answered");
        assert!(told(&bob).is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn who_asks_after_a_while_waits_until_the_one_who_was_alone_has_sent_what_it_did() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let bob = party.join("bob").await;
    pass(&party, SECOND * 60).await;
    ada.renew(Seq::START).await;
    pass(&party, SECOND).await;
    ada.ears.hang();
    let (_, make) = ada.making(FileId::ROOT, "done alone", Kind::File);
    let bob = tokio::spawn(async move {
        bob.renew(Seq::START).await;
        bob
    });
    pass(&party, SECOND * 3).await;
    assert!(!bob.is_finished());
    ada.replay(make).await;
    ada.ears.take_in();
    let bob = bob.await.unwrap();
    assert_eq!(bob.list(FileId::ROOT).await.directories[0].entries.len(), 1);
}
