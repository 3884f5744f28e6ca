//! Sessions of one client that follow one another while updates are under way.

use crate::party::{Device, LEASE, Party};
use model::{FileId, Kind, Update};
use protocol::{Refusal, Submitted, Verdict};
use replica::{Blocking, Limits};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;

/// Lets the future go on until it waits. With an origin that works inline a submit is then in the
/// queue, and is not taken before the test itself waits for something.
async fn until_it_waits<F: Future>(mut future: Pin<&mut F>) {
    poll_fn(|context| {
        assert!(future.as_mut().poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
}

async fn submit_one(device: &Device, update: Update) -> Result<Submitted, Refusal> {
    device.submit_all(false, vec![update], None).await
}

#[tokio::test(start_paused = true)]
async fn a_batch_of_the_session_before_is_not_taken_after_the_next_has_begun() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let (file, base) = ada.write_new(FileId::ROOT, "a", "old").await;
    let store = ada.storing(file, base, "older").await;
    let taken_back = ada.update(store);
    let mut under_way = pin!(submit_one(&ada, taken_back));
    until_it_waits(under_way.as_mut()).await;

    let mut back = party.rejoin(&ada).await;
    assert_eq!((back.attached.taken, back.made), (2, 3));
    assert_eq!(under_way.await, Err(Refusal::NotAttached));
    assert_eq!(party.tree(), "a: old");
    let store = back.storing(file, base, "newer").await;
    assert!(matches!(back.replay(store).await, Verdict::Taken(_)));
    assert_eq!(party.tree(), "a: newer");
    assert_eq!(party.conflicts(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_taken_though_its_session_is_lost_if_no_other_has_followed() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let (_, make) = ada.making(FileId::ROOT, "a", Kind::File);
    let make = ada.update(make);
    {
        let mut under_way = pin!(submit_one(&ada, make));
        until_it_waits(under_way.as_mut()).await;
    }
    let Device { session, .. } = ada;
    drop(session);
    party.world.clock.sleep(LEASE).await;
    assert_eq!(party.tree(), "a: ");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_told_of_what_the_one_before_got_taken() {
    const ROUNDS: u64 = 200;
    let party = Party::with(Limits { blocking: Blocking::Pool, ..Limits::simulated() });
    let mut ada = party.join("ada").await;
    for round in 1..=ROUNDS {
        let (_, make) = ada.making(FileId::ROOT, &format!("{round}"), Kind::File);
        let make = ada.update(make);
        let (submitted, mut back) = tokio::join!(submit_one(&ada, make), party.rejoin(&ada));
        match submitted {
            Ok(_) => assert_eq!(back.attached.taken, ada.made, "round {round}"),
            Err(Refusal::NotAttached) => assert!(back.attached.taken < ada.made, "round {round}"),
            Err(refusal) => panic!("round {round}: {refusal}"),
        }
        back.files = ada.files;
        ada = back;
    }
}
