//! Who is told of what, and who waits for it.

use crate::party::{Device, Party, mode_of, name, unlink_of};
use model::{Change, FileId, Kind, Seq};
use protocol::{Patience, Request, Response, Tail, Verdict};
use std::time::Duration;

/// A device that has the root's entries cached.
async fn watching(party: &Party, device: &str) -> Device {
    let device = party.join(device).await;
    device.list(FileId::ROOT).await;
    device
}

#[tokio::test(start_paused = true)]
async fn whoever_opens_after_close_has_returned_sees_what_was_closed() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let (file, stamp) = ada.write_new(FileId::ROOT, "a", "old").await;
    let bob = watching(&party, "bob").await;
    let store = ada.storing(file, stamp, "new").await;
    ada.strict(store).await;
    // Bob has been told by the time that ada's close returns.
    let heard = bob.ears.heard.lock().unwrap();
    let node = heard[0].states.nodes[0].node.as_ref().unwrap();
    assert_eq!((node.contents_stamp, heard[0].upto), (ada.stamp(), Seq(3)));
    assert!(ada.ears.heard.lock().unwrap().is_empty(), "ada gets no notice of her own");
}

#[tokio::test(start_paused = true)]
async fn only_what_was_shown_is_told_of() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let docs = ada.make_directory(FileId::ROOT, "docs").await;
    let bob = watching(&party, "bob").await;
    let eve = party.join("eve").await;
    let (_, make) = ada.making(docs, "inside", Kind::File);
    ada.strict(make).await;
    let (_, make) = ada.making(FileId::ROOT, "beside", Kind::File);
    ada.strict(make).await;
    // Bob was shown the root's entries and the node of docs, not its entries.
    assert_eq!(bob.heard(), ["inside", "beside"]);
    let nodes = bob.ears.heard.lock().unwrap()[0].states.nodes.len();
    assert_eq!(nodes, 1, "docs has another mtime; what is in it bob never saw");
    assert!(eve.heard().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_name_that_was_found_absent_is_told_of_when_it_comes() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let docs = ada.make_directory(FileId::ROOT, "docs").await;
    let bob = party.join("bob").await;
    bob.inspect(vec![], vec![(docs, name("wanted"))]).await;
    let (file, make) = ada.making(docs, "wanted", Kind::File);
    ada.strict(make).await;
    assert_eq!(bob.heard(), ["wanted"]);
    ada.strict(unlink_of(docs, "wanted", file)).await;
    assert_eq!(bob.heard(), ["wanted", "-wanted"]);
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_hangs_holds_a_writer_up_until_its_lease_ends_and_only_once() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let bob = watching(&party, "bob").await;
    bob.ears.hang();
    let clock = &party.world.clock;
    clock.sleep(Duration::from_secs(20)).await;
    let start = clock.moment();
    let (_, make) = ada.making(FileId::ROOT, "one", Kind::File);
    assert!(matches!(ada.strict(make).await, Verdict::Taken(_)));
    assert_eq!(clock.moment().since(start).as_secs(), 40, "the lease had 40 seconds left");
    // He renews, and hangs still: nobody waits for him again.
    bob.renew(Seq::START).await;
    let start = clock.moment();
    let (_, make) = ada.making(FileId::ROOT, "two", Kind::File);
    ada.strict(make).await;
    assert_eq!(clock.moment().since(start), Duration::ZERO);
    // Until he attaches again.
    let back = party.rejoin(&bob).await;
    back.ears.hang();
    let start = clock.moment();
    let (_, make) = ada.making(FileId::ROOT, "three", Kind::File);
    ada.strict(make).await;
    assert_eq!(clock.moment().since(start).as_secs(), 60);
}

#[tokio::test(start_paused = true)]
async fn who_has_renewed_its_lease_meanwhile_is_not_late_before_the_second_time() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let bob = watching(&party, "bob").await;
    let clock = party.world.clock.clone();
    let mut waits = async |text: &str| {
        bob.ears.hang();
        bob.renew(Seq::START).await;
        let (start, (_, make)) = (clock.moment(), ada.making(FileId::ROOT, text, Kind::File));
        let strict = async {
            ada.strict(make).await;
            clock.moment().since(start).as_secs()
        };
        let renews = async {
            clock.sleep(Duration::from_secs(30)).await;
            bob.renew(Seq::START).await;
        };
        tokio::join!(strict, renews).0
    };
    for round in 0..3 {
        assert_eq!(waits(&format!("{round}")).await, 60);
        // What was on its way arrives.
        bob.ears.take_in();
        clock.sleep(Duration::from_secs(1)).await;
    }
    let waited = [waits("first").await, waits("second").await, waits("third").await];
    assert_eq!(waited, [60, 60, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_the_session_before_says_nothing_of_the_one_that_followed_it() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let mut eve = party.join("eve").await;
    let bob = watching(&party, "bob").await;
    bob.ears.hang();
    let clock = party.world.clock.clone();
    let (_, make) = ada.making(FileId::ROOT, "one", Kind::File);
    let back = async {
        clock.sleep(Duration::from_secs(59)).await;
        // What was on its way was lost with the session.
        bob.ears.heard.lock().unwrap().clear();
        let back = party.rejoin_deaf(&bob).await;
        back.list(FileId::ROOT).await;
        back
    };
    let (_, back) = tokio::join!(ada.strict(make), back);
    let start = clock.moment();
    let (_, make) = eve.making(FileId::ROOT, "two", Kind::File);
    eve.strict(make).await;
    assert!(clock.moment().since(start).as_secs() >= 58, "he has a lease: {}", back.name);
}

#[tokio::test(start_paused = true)]
async fn who_can_do_with_less_than_what_is_current_is_told_without_waiting() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let tools = ada.make_directory(FileId::ROOT, "tools").await;
    let bin = ada.make_directory(tools, "bin").await;
    let (cc, _) = ada.write_new(bin, "cc", "compiles").await;
    let bob = watching(&party, "bob").await;
    for directory in [tools, bin] {
        bob.list(directory).await;
    }
    let clock = &party.world.clock;
    let waits = async |ada: &mut Device, change: Change| {
        let start = clock.moment();
        assert!(matches!(ada.strict(change).await, Verdict::Taken(_)));
        clock.moment().since(start) > Duration::ZERO
    };
    let be = async |below: &[FileId], but: &[FileId]| {
        let patience = Patience { below: below.to_vec(), but: but.to_vec() };
        assert_eq!(bob.ask(Request::Patience(patience)).await, Response::Heeded);
    };
    be(&[tools], &[]).await;
    bob.ears.hang();
    let attributes = async |ada: &Device| ada.node(cc).await.unwrap().attributes_stamp;
    let change = mode_of(cc, attributes(&ada).await, 0o600);
    assert!(!waits(&mut ada, change).await, "it is below the directory");
    let (made, change) = ada.making(bin, "ld", Kind::File);
    assert!(!waits(&mut ada, change).await, "so is its name");
    assert!(!waits(&mut ada, unlink_of(bin, "ld", made)).await, "and what is gone");
    be(&[tools], &[bin]).await;
    let change = mode_of(cc, attributes(&ada).await, 0o640);
    assert!(waits(&mut ada, change).await, "the nearest counts");
    let back = party.rejoin(&bob).await;
    back.ears.hang();
    let change = mode_of(cc, attributes(&ada).await, 0o644);
    assert!(waits(&mut ada, change).await, "it was said for one session");
}

#[tokio::test(start_paused = true)]
async fn who_asks_learns_when_everybody_has_been_told_of_what_nobody_waited_for() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let bob = watching(&party, "bob").await;
    let clock = &party.world.clock;
    let start = clock.moment();
    let Response::Told(before) = ada.ask(Request::Told).await else { panic!("told") };
    bob.ears.hang();
    let (_, make) = ada.making(FileId::ROOT, "one", Kind::File);
    assert!(matches!(ada.replay(make).await, Verdict::Taken(_)));
    assert_eq!(clock.moment().since(start), Duration::ZERO, "nobody waits for it");
    let Response::Told(after) = ada.ask(Request::Told).await else { panic!("told") };
    assert!(after > before);
    assert_eq!(clock.moment().since(start).as_secs(), 60, "bob had his lease so long");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_went_away_keeps_its_lease() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let bob = watching(&party, "bob").await;
    drop(bob.session);
    let clock = &party.world.clock;
    let start = clock.moment();
    let (_, make) = ada.making(FileId::ROOT, "one", Kind::File);
    ada.strict(make).await;
    assert_eq!(clock.moment().since(start).as_secs(), 60);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_comes_back_in_time_ends_the_wait_with_its_first_word() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    ada.make_directory(FileId::ROOT, "docs").await;
    let bob = watching(&party, "bob").await;
    let (replica, made, seen) = (bob.replica, bob.made, bob.seen());
    drop(bob.session);
    let (_, make) = ada.making(FileId::ROOT, "one", Kind::File);
    let clock = party.world.clock.clone();
    let start = clock.moment();
    let writer = tokio::spawn(async move { ada.strict(make).await });
    clock.sleep(Duration::from_secs(5)).await;
    assert!(!writer.is_finished());
    let (session, ears) = party.admit("bob", None).await.unwrap();
    let back = Device::attached("bob", session, ears, Some(replica), made, seen).await;
    let Tail::Changes(notice) = &back.attached.tail else { panic!() };
    assert_eq!(notice.states.entries[0].name, name("one"));
    writer.await.unwrap();
    assert_eq!(clock.moment().since(start).as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_notices_of_a_replay() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let bob = watching(&party, "bob").await;
    bob.ears.hang();
    let start = party.world.clock.moment();
    let (_, make) = ada.making(FileId::ROOT, "one", Kind::File);
    ada.replay(make).await;
    assert_eq!(party.world.clock.moment().since(start), Duration::ZERO);
    party.world.clock.sleep(Duration::from_millis(1)).await;
    assert_eq!(bob.heard(), ["one"], "but it is sent at once");
}

#[tokio::test(start_paused = true)]
async fn notices_that_wait_for_a_slow_client_become_one_with_each_key_once() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let (file, mut stamp) = ada.write_new(FileId::ROOT, "a", "0").await;
    let bob = watching(&party, "bob").await;
    // All of this happens before bob's task gets a turn.
    let mut updates = Vec::new();
    for n in 1..=5 {
        let store = ada.storing(file, stamp, &n.to_string()).await;
        updates.push(ada.update(store));
        stamp = ada.stamp();
    }
    ada.submit_all(false, updates, None).await.unwrap();
    party.world.clock.sleep(Duration::from_millis(1)).await;
    let heard = bob.ears.heard.lock().unwrap();
    assert_eq!(heard.len(), 1);
    assert_eq!(heard[0].states.nodes.len(), 1);
    assert_eq!(heard[0].upto, Seq(7));
}

#[tokio::test(start_paused = true)]
async fn positions_go_up_from_notice_to_notice() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let bob = watching(&party, "bob").await;
    for n in 0..20 {
        let (_, make) = ada.making(FileId::ROOT, &format!("f{n}"), Kind::File);
        if n % 3 == 0 {
            ada.strict(make).await
        } else {
            ada.replay(make).await
        };
    }
    party.world.clock.sleep(Duration::from_millis(1)).await;
    let heard = bob.ears.heard.lock().unwrap();
    assert!(heard.windows(2).all(|pair| pair[0].upto < pair[1].upto));
    assert_eq!(heard.last().unwrap().upto, Seq(20));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_came_back_with_an_unknown_cache_is_told_of_everything() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let docs = ada.make_directory(FileId::ROOT, "docs").await;
    let bob = watching(&party, "bob").await;
    bob.list(docs).await;
    let after = party.killed();
    let mut ada = after.rejoin(&ada).await;
    let (session, ears) = after.admit("bob", None).await.unwrap();
    let bob = Device::attached("bob", session, ears, Some(bob.replica), 0, Seq(1)).await;
    let (_, make) = ada.making(docs, "inside", Kind::File);
    ada.strict(make).await;
    assert_eq!(bob.heard(), ["inside"], "the new origin does not know what he has cached");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_brings_what_was_shown_and_changed_and_nothing_else() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let docs = ada.make_directory(FileId::ROOT, "docs").await;
    let bob = party.join("bob").await;
    bob.list(docs).await;
    ada.write_new(FileId::ROOT, "beside", "").await;
    ada.write_new(docs, "inside", "").await;
    let Tail::Changes(notice) = bob.renew(Seq(1)).await else { panic!() };
    let names: Vec<_> = notice.states.entries.iter().map(|state| state.name.to_string()).collect();
    assert_eq!(names, ["inside"]);
    assert_eq!(notice.upto, Seq(5));
}

#[tokio::test(start_paused = true)]
async fn a_client_whose_concern_it_is_not_learns_the_position_now_and_then() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let bob = party.join("bob").await;
    let docs = ada.make_directory(FileId::ROOT, "docs").await;
    let mut updates = Vec::new();
    for n in 0..1200 {
        let (_, make) = ada.making(docs, &format!("f{n}"), Kind::File);
        updates.push(ada.update(make));
    }
    ada.submit_all(false, updates, None).await.unwrap();
    party.world.clock.sleep(Duration::from_millis(1)).await;
    let heard = bob.ears.heard.lock().unwrap();
    assert_eq!(heard.len(), 1);
    assert!(heard[0].states.is_empty());
    assert_eq!(heard[0].upto, Seq(1201));
}

#[tokio::test(start_paused = true)]
async fn beyond_the_bound_a_client_is_told_of_everything() {
    let limits = replica::Limits { shown_max: 2, ..replica::Limits::simulated() };
    let party = Party::with(limits);
    let mut ada = party.join("ada").await;
    let docs = ada.make_directory(FileId::ROOT, "docs").await;
    ada.make_directory(FileId::ROOT, "more").await;
    let bob = watching(&party, "bob").await;
    let deep = ada.make_directory(docs, "deep").await;
    let (_, make) = ada.making(deep, "below", Kind::File);
    ada.strict(make).await;
    assert_eq!(bob.heard(), ["deep", "below"]);
    assert!(matches!(bob.ask(protocol::Request::Measure).await, Response::Measured(_)));
}

#[tokio::test(start_paused = true)]
async fn what_is_too_much_for_one_notice_comes_with_the_next_renewal() {
    const FILES: usize = 80;
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let mut files = Vec::new();
    for n in 0..FILES {
        let (file, make) = ada.making(FileId::ROOT, &format!("f{n}"), Kind::File);
        ada.replay(make).await;
        files.push(file);
    }
    let bob = watching(&party, "bob").await;
    bob.ears.hang();
    let (_, make) = ada.making(FileId::ROOT, "first", Kind::File);
    ada.replay(make).await;
    party.world.clock.sleep(Duration::from_millis(1)).await;
    // While bob is stuck with the first notice, more comes than a message holds.
    let large = |file| Change::SetXattr {
        file,
        name: b"user.large".to_vec().into(),
        value: vec![1; 60_000].into(),
        expects: None,
    };
    let updates = files.iter().map(|file| ada.update(large(*file))).collect();
    let submitted = ada.submit_all(false, updates, None).await.unwrap();
    assert_eq!(submitted.verdicts.len(), FILES);
    assert!(submitted.states.nodes.len() < FILES, "the answer has a bound as well");
    party.world.clock.sleep(Duration::from_millis(1)).await;
    let seen = Seq(FILES as u64);
    let told: usize =
        ada.ears.heard.lock().unwrap().iter().map(|notice| notice.states.nodes.len()).sum();
    assert_eq!(submitted.states.nodes.len() + told, FILES, "ada hears of the rest");
    assert!(matches!(bob.renew(seen).await, Tail::TooFar(_)), "and bob is to look anew");
    assert_eq!(bob.ears.heard.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_client_that_has_taken_its_leave() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let bob = watching(&party, "bob").await;
    bob.ears.hang();
    assert_eq!(bob.ask(protocol::Request::Leave).await, Response::Left);
    let before = party.world.clock.moment();
    let (_, make) = ada.making(FileId::ROOT, "first", Kind::File);
    ada.strict(make).await;
    assert!(party.world.clock.moment().since(before) < Duration::from_secs(1));
    assert!(matches!(
        bob.ask(protocol::Request::Measure).await,
        Response::Refused(protocol::Refusal::NotAttached)
    ));
}
