//! Who is let in.

use crate::party::{Device, Party, VOLUME, make_of};
use model::{FileId, Kind, Seq};
use protocol::{Access, Objection, Refusal, Request, Response, TurnedAway, Verdict};
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn an_invitation_lets_one_device_in_once() {
    let party = Party::new();
    let token = party.origin.invite(VOLUME, Access::ReadWrite, None).unwrap();
    assert!(party.admit("ada", Some(token.clone())).await.is_ok());
    let second = party.admit("bob", Some(token)).await.map(|_| ()).unwrap_err();
    assert_eq!(second, TurnedAway::NotInvited);
}

#[tokio::test(start_paused = true)]
async fn a_device_whose_answer_was_lost_gets_in_with_the_same_token() {
    let party = Party::new();
    let token = party.origin.invite(VOLUME, Access::ReadWrite, None).unwrap();
    drop(party.admit("ada", Some(token.clone())).await.unwrap());
    assert!(party.admit("ada", Some(token)).await.is_ok());
    assert!(party.killed().admit("ada", None).await.is_ok(), "and is known after a restart");
}

#[tokio::test(start_paused = true)]
async fn an_uninvited_device_learns_nothing_of_the_volumes_there_are() {
    let party = Party::new();
    let uninvited = party.admit("eve", None).await.map(|_| ()).unwrap_err();
    let wrong_token = party.admit("eve", Some("x".into())).await.map(|_| ()).unwrap_err();
    let mut caller = party.caller("eve", None);
    caller.volume = "no such volume".into();
    let ears = crate::party::Ears::default();
    let no_volume = protocol::Service::admit(&party.origin, caller, ears).await;
    assert_eq!(uninvited, TurnedAway::NotInvited);
    assert_eq!(wrong_token, TurnedAway::NotInvited);
    assert_eq!(no_volume.map(|_| ()).unwrap_err(), TurnedAway::NotInvited);
}

#[tokio::test(start_paused = true)]
async fn an_invitation_expires() {
    let party = Party::new();
    let hour = Some(Duration::from_secs(3600));
    let token = party.origin.invite(VOLUME, Access::ReadWrite, hour).unwrap();
    party.world.clock.sleep(Duration::from_secs(3601)).await;
    assert!(party.admit("ada", Some(token)).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn the_store_does_not_give_the_token_away() {
    let party = Party::new();
    let token = party.origin.invite(VOLUME, Access::ReadWrite, None).unwrap();
    let read = party.tables.read().unwrap();
    let rows = read.scan("origin-invitations", &[], &[0xff; 80], 10).unwrap();
    assert_eq!(rows.len(), 1);
    for (key, value) in rows {
        assert!(!String::from_utf8_lossy(&key).contains(&token));
        assert!(!String::from_utf8_lossy(&value).contains(&token));
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_only_device_changes_nothing() {
    let party = Party::new();
    let mut eve = party.join_as("eve", Access::ReadOnly).await;
    let (_, make) = eve.making(FileId::ROOT, "x", Kind::File);
    let update = eve.update(make);
    // Nothing is judged: what it did while it could write stays pending there.
    let refused = eve.submit_all(false, vec![update.clone()], None).await;
    assert_eq!(refused, Err(Refusal::ReadOnly));
    let payload = chunks::pack(&[b"bytes"]);
    let put = eve.ask(Request::Put { payload, deltas: None }).await;
    assert_eq!(put, Response::Refused(Refusal::ReadOnly));
    assert_eq!(party.tree(), "");
    assert_eq!(eve.attached.access, Access::ReadOnly);
    drop(eve);
    let mut eve = party.join_as("eve", Access::ReadWrite).await;
    let (_, make) = eve.making(FileId::ROOT, "x", Kind::File);
    assert!(matches!(eve.replay(make).await, Verdict::Taken(_)));
}

#[tokio::test(start_paused = true)]
async fn a_second_invitation_gives_a_known_device_another_access() {
    let party = Party::new();
    drop(party.join_as("eve", Access::ReadOnly).await);
    let eve = party.join_as("eve", Access::ReadWrite).await;
    assert_eq!(eve.attached.access, Access::ReadWrite);
    assert_eq!(party.origin.devices().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_removed_device_is_shut_out_at_once_and_can_be_invited_anew() {
    let party = Party::new();
    let ada = party.join("ada").await;
    let id = party.origin.devices().unwrap()[0].id.to_string();
    party.origin.remove_device(&id[..6]).unwrap();
    let refused = ada.ask(Request::Measure).await;
    assert!(matches!(refused, Response::Refused(Refusal::Failed(_))), "{refused:?}");
    assert!(party.admit("ada", None).await.is_err());
    let ada = party.join("ada").await;
    assert!(matches!(ada.ask(Request::Measure).await, Response::Measured(_)));
    assert!(party.origin.remove_device("nobody").is_err());
}

#[tokio::test(start_paused = true)]
async fn a_removed_device_is_told_of_nothing_more_and_nobody_waits_for_it() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let eve = party.join("eve").await;
    eve.list(FileId::ROOT).await;
    let (_, make) = ada.making(FileId::ROOT, "before", Kind::File);
    ada.strict(make).await;
    party.origin.remove_device("eve").unwrap();
    eve.ears.hang();
    let clock = &party.world.clock;
    let start = clock.moment();
    let (_, make) = ada.making(FileId::ROOT, "after", Kind::File);
    ada.strict(make).await;
    assert_eq!(clock.moment().since(start), std::time::Duration::ZERO);
    assert_eq!(eve.heard(), ["before"]);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_was_not_attached_is_told_so() {
    let party = Party::new();
    let token = party.origin.invite(VOLUME, Access::ReadWrite, None).unwrap();
    let (session, _) = party.admit("ada", Some(token)).await.unwrap();
    let answer = protocol::Session::answer(&session, Request::Measure).await;
    assert_eq!(answer, Response::Refused(Refusal::NotAttached));
}

#[tokio::test(start_paused = true)]
async fn a_newer_session_of_the_same_client_ends_the_older() {
    let party = Party::new();
    let ada = party.join("ada").await;
    let newer = party.rejoin(&ada).await;
    assert_eq!(newer.replica, ada.replica);
    assert_eq!(ada.ask(Request::Measure).await, Response::Refused(Refusal::NotAttached));
    assert!(matches!(newer.ask(Request::Measure).await, Response::Measured(_)));
}

#[tokio::test(start_paused = true)]
async fn a_removed_volume_is_gone_with_its_chunks_and_its_name_is_free() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    ada.write_new(FileId::ROOT, "a", "some text").await;
    assert!(party.blobs.bytes() > 0);
    party.origin.remove_volume(VOLUME).unwrap();
    assert_eq!(ada.ask(Request::Measure).await, Response::Refused(Refusal::NoVolume));
    assert_eq!(party.blobs.bytes(), 0);
    assert!(party.origin.volumes().unwrap().is_empty());
    assert!(party.origin.invite(VOLUME, Access::ReadWrite, None).is_err());
    assert!(party.admit("ada", None).await.is_err());
    party.origin.create_volume(VOLUME, 0, 0, protocol::Cutter::Gear).unwrap();
    assert_eq!(party.tree(), "");
}

#[test]
fn a_volume_s_name_is_checked() {
    let party = Party::new();
    let create = |name| party.origin.create_volume(name, 0, 0, protocol::Cutter::Gear);
    assert!(create(VOLUME).is_err(), "it exists");
    let long = "x".repeat(65);
    for bad in ["", ".", "a/b", "a b", "-x", &long] {
        assert!(create(bad).is_err(), "{bad}");
    }
    assert!(create("photos-2026_raw.v2").is_ok());
    assert_eq!(party.origin.volumes().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_device_makes_files_under_its_own_ids_only() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let bob = party.join("bob").await;
    let foreign = FileId::new(bob.replica, 1).unwrap();
    for file in [foreign, FileId::ROOT, FileId(77)] {
        let make = make_of(FileId::ROOT, "x", file, Kind::File);
        assert_eq!(ada.replay(make).await, Verdict::Refused(Objection::Invalid));
    }
    assert_eq!(party.tree(), "");
}

#[tokio::test(start_paused = true)]
async fn no_more_sessions_are_let_in_than_there_may_be() {
    let limits = replica::Limits { sessions_max: 1, ..replica::Limits::simulated() };
    let party = Party::with(limits);
    let ada = party.join("ada").await;
    let second = party.admit("ada", None).await.map(|_| ()).unwrap_err();
    assert!(matches!(second, TurnedAway::Busy(_)), "{second}");
    drop(ada);
    let (session, ears) = party.admit("ada", None).await.unwrap();
    Device::attached("ada", session, ears, None, 0, Seq::START).await;
}
