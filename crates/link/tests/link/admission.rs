//! Who gets a session, and what the others are told.

use crate::service::{INVITATION, Memory, Server, ask, event, limits, up, within};
use link::{Identity, Remote, RemoteConfig};
use protocol::{Class, Event, Request, Response, TurnedAway, Unreachable, Upstream, Versions};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::Notify;

async fn turned_away(remote: &Remote) -> String {
    match event(remote).await {
        Event::Down(Unreachable::TurnedAway(why)) => why,
        other => panic!("not turned away: {other:?}"),
    }
}

#[tokio::test]
async fn an_invited_device_gets_a_session_and_needs_no_invitation_again() {
    let memory = Memory::inviting();
    let server = Server::start(&memory);
    let device = Identity::generate().unwrap();
    let remote = Remote::connect(server.config(device.clone())).unwrap();
    up(&remote).await;
    assert!(matches!(ask(&remote, Request::Measure).await, Response::Measured(_)));
    let caller = memory.callers.lock().unwrap()[0].clone();
    assert_eq!(caller.device, device.public_key());
    assert_eq!((caller.name.as_str(), caller.volume.as_str()), ("laptop", "notes"));
    assert_eq!(caller.invitation.as_deref(), Some(INVITATION));
    drop(remote);

    let mut config = server.config(device);
    config.invitation = None;
    let remote = Remote::connect(config).unwrap();
    up(&remote).await;
    assert!(remote.trouble().is_none());
    server.stop().await;
}

#[tokio::test]
async fn an_uninvited_device_learns_the_same_whatever_it_asks_for() {
    let server = Server::start(&Memory::inviting());
    let mut answers = Vec::new();
    for (volume, invitation) in [("notes", None), ("notes", Some("guess")), ("other", None)] {
        let mut config = server.config(Identity::generate().unwrap());
        config.address.volume = volume.to_owned();
        config.invitation = invitation.map(str::to_owned);
        let remote = Remote::connect(config).unwrap();
        answers.push(turned_away(&remote).await);
        let asked = within(remote.ask(Class::Interactive, Request::Measure)).await;
        assert_eq!(asked, Err(Unreachable::TurnedAway(TurnedAway::NotInvited.to_string())));
    }
    answers.dedup();
    assert_eq!(answers, [TurnedAway::NotInvited.to_string()]);
    server.stop().await;
}

#[tokio::test]
async fn a_device_that_is_invited_later_gets_in_when_it_is_nudged() {
    let memory = Memory::inviting();
    let server = Server::start(&memory);
    let device = Identity::generate().unwrap();
    let mut config = server.config(device.clone());
    config.invitation = None;
    let remote = Remote::connect(config).unwrap();
    turned_away(&remote).await;
    memory.known.lock().unwrap().insert(device.public_key());
    remote.nudge();
    up(&remote).await;
    server.stop().await;
}

#[tokio::test]
async fn who_was_let_in_before_asks_with_the_hello() {
    let memory = Memory::inviting();
    let server = Server::start(&memory);
    let device = Identity::generate().unwrap();
    memory.known.lock().unwrap().insert(device.public_key());
    let admits = Arc::new(Notify::new());
    *memory.admits.lock().unwrap() = Some(admits.clone());
    let config = RemoteConfig { welcomed: true, ..server.config(device) };
    let remote = Remote::connect(config).unwrap();
    // It takes it that it is let in.
    up(&remote).await;
    let asked = remote.ask(Class::Interactive, Request::Measure);
    let others = remote.ask(Class::Demand, Request::Measure);
    let (asked, others, ()) = within(async {
        tokio::join!(asked, others, async {
            crate::service::until(|| remote.traffic().sent[0] > 0).await;
            assert_eq!(memory.answering_most.load(Ordering::SeqCst), 0, "nobody has been let in");
            admits.notify_one();
        })
    })
    .await;
    assert!(matches!(asked, Ok(Response::Measured(_))), "{asked:?}");
    assert!(matches!(others, Ok(Response::Measured(_))), "{others:?}");
    server.stop().await;
}

#[tokio::test]
async fn who_was_let_in_before_and_is_not_any_more_is_told_so() {
    let memory = Memory::inviting();
    let server = Server::start(&memory);
    let mut config = server.config(Identity::generate().unwrap());
    (config.invitation, config.welcomed) = (None, true);
    let remote = Remote::connect(config).unwrap();
    up(&remote).await;
    let asked = within(remote.ask(Class::Interactive, Request::Measure)).await;
    assert!(matches!(asked, Err(Unreachable::Lost | Unreachable::TurnedAway(_))), "{asked:?}");
    assert_eq!(turned_away(&remote).await, TurnedAway::NotInvited.to_string());
    let asked = within(remote.ask(Class::Interactive, Request::Measure)).await;
    assert_eq!(asked, Err(Unreachable::TurnedAway(TurnedAway::NotInvited.to_string())));
    assert_eq!(memory.answering_most.load(Ordering::SeqCst), 0, "nothing was done for it");
    server.stop().await;
}

#[tokio::test]
async fn a_server_that_is_busy_when_one_comes_back_is_tried_again() {
    let memory = Memory::inviting();
    *memory.busy.lock().unwrap() = Some("it is checking its disk".to_owned());
    let server = Server::start(&memory);
    let config = server.config(Identity::generate().unwrap());
    let remote = Remote::connect(RemoteConfig { welcomed: true, ..config }).unwrap();
    up(&remote).await;
    assert!(matches!(event(&remote).await, Event::Down(Unreachable::Lost)));
    *memory.busy.lock().unwrap() = None;
    // It may have been told once more that there is no room.
    within(async {
        while !matches!(
            remote.ask(Class::Interactive, Request::Measure).await,
            Ok(Response::Measured(_))
        ) {
            let _ = event(&remote).await;
        }
    })
    .await;
    server.stop().await;
}

#[tokio::test]
async fn a_busy_server_is_tried_again() {
    let memory = Memory::inviting();
    *memory.busy.lock().unwrap() = Some("it is checking its disk".to_owned());
    let server = Server::start(&memory);
    let remote = server.connect();
    crate::service::until(|| remote.trouble().is_some_and(|why| why.contains("its disk"))).await;
    *memory.busy.lock().unwrap() = None;
    up(&remote).await;
    server.stop().await;
}

#[tokio::test]
async fn a_server_with_another_key_is_told_nothing() {
    let memory = Memory::inviting();
    let server = Server::start(&memory);
    let mut config = server.config(Identity::generate().unwrap());
    let pinned = Identity::generate().unwrap().fingerprint();
    config.address.key = pinned;
    let remote = Remote::connect(config).unwrap();
    let why = turned_away(&remote).await;
    assert!(why.contains(&pinned.to_string()), "{why}");
    assert!(why.contains(&server.identity.fingerprint().to_string()), "{why}");
    assert!(memory.callers.lock().unwrap().is_empty());
    assert_eq!(remote.trouble(), Some(why));
    server.stop().await;
}

#[tokio::test]
async fn versions_that_do_not_meet_are_named_on_both_sides() {
    let memory = Memory::inviting();
    let identity = Identity::generate().unwrap();
    let old = Versions { min: 1, max: 1 };
    let server = Server::start_at(&memory, identity, ([127, 0, 0, 1], 0).into(), old);
    let connect = |versions| {
        let mut config: RemoteConfig = server.config(Identity::generate().unwrap());
        config.versions = versions;
        Remote::connect(config).unwrap()
    };
    let newer = connect(Versions { min: 2, max: 3 });
    assert_eq!(
        turned_away(&newer).await,
        "the server speaks versions 1..1 of the protocol, this farfs speaks 2..3: update farfs \
         on the server"
    );
    let both = connect(Versions { min: 1, max: 3 });
    up(&both).await;
    server.stop().await;
}

#[tokio::test]
async fn more_sessions_than_allowed_are_turned_away_for_now() {
    let memory = Memory::inviting();
    memory.invitations.lock().unwrap().insert("welcome-2".to_owned());
    let limits = link::Limits { sessions_max: 1, ..limits() };
    let identity = Identity::generate().unwrap();
    let listener = link::Listener::bind_with(
        ([127, 0, 0, 1], 0).into(),
        &identity,
        memory.clone(),
        world::World::real(),
        limits,
        Versions::OURS,
    );
    let listener = std::sync::Arc::new(listener.unwrap());
    let serving = tokio::spawn({
        let listener = listener.clone();
        async move { listener.serve().await }
    });
    let address = link::Address {
        host: "localhost".to_owned(),
        port: listener.local_addr().unwrap().port(),
        volume: "notes".to_owned(),
        key: identity.fingerprint(),
        invitation: Some(INVITATION.to_owned()),
    };
    let connect = |invitation: &str| {
        let device = Identity::generate().unwrap();
        let mut config =
            RemoteConfig::new(address.clone(), device, "laptop".to_owned(), world::World::real());
        config.limits = limits;
        config.invitation = Some(invitation.to_owned());
        Remote::connect(config).unwrap()
    };
    let first = connect(INVITATION);
    up(&first).await;
    let second = connect("welcome-2");
    crate::service::until(|| second.trouble().is_some_and(|why| why.contains("too many"))).await;
    drop(first);
    up(&second).await;
    listener.close().await;
    within(serving).await.unwrap();
}

#[tokio::test]
async fn a_device_that_begins_many_sessions_leaves_room_for_others() {
    let memory = Memory::inviting();
    memory.invitations.lock().unwrap().insert("welcome-2".to_owned());
    let limits = link::Limits { sessions_max: 4, sessions_of_device_max: 2, ..limits() };
    let identity = Identity::generate().unwrap();
    let listener = link::Listener::bind_with(
        ([127, 0, 0, 1], 0).into(),
        &identity,
        memory.clone(),
        world::World::real(),
        limits,
        Versions::OURS,
    );
    let listener = Arc::new(listener.unwrap());
    let serving = tokio::spawn({
        let listener = listener.clone();
        async move { listener.serve().await }
    });
    let address = link::Address {
        host: "localhost".to_owned(),
        port: listener.local_addr().unwrap().port(),
        volume: "notes".to_owned(),
        key: identity.fingerprint(),
        invitation: Some(INVITATION.to_owned()),
    };
    let connect = |device: &Identity, invitation: &str| {
        let (name, world) = ("laptop".to_owned(), world::World::real());
        let mut config = RemoteConfig::new(address.clone(), device.clone(), name, world);
        config.limits = limits;
        config.invitation = Some(invitation.to_owned());
        Remote::connect(config).unwrap()
    };
    let greedy = Identity::generate().unwrap();
    let first = connect(&greedy, INVITATION);
    up(&first).await;
    let second = connect(&greedy, INVITATION);
    up(&second).await;
    let third = connect(&greedy, INVITATION);
    up(&third).await;
    // The oldest has made room.
    assert!(matches!(event(&first).await, Event::Down(_)));
    drop(first);
    let more: Vec<_> = (0..4).map(|_| connect(&greedy, INVITATION)).collect();
    let modest = connect(&Identity::generate().unwrap(), "welcome-2");
    up(&modest).await;
    assert!(matches!(ask(&modest, Request::Measure).await, Response::Measured(_)));
    drop((second, third, more));
    crate::service::until(|| listener.sessions() == 1).await;
    assert!(matches!(ask(&modest, Request::Measure).await, Response::Measured(_)));
    listener.close().await;
    within(serving).await.unwrap();
}
