//! Peers that do not keep to the protocol: they lose their own session, and nothing else happens.

use crate::service::{Memory, Server, ask, event, limits, until, up, within};
use crate::stranger::{FalseServer, GOOD, Manners, Stranger, WELCOME, on_first_stream};
use link::{Address, Fingerprint, Identity, Limits, Listener, Remote, RemoteConfig};
use model::Seq;
use protocol::{Class, Event, Refusal, Request, Response, Unreachable, Upstream, Versions};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use world::World;

/// Two invitations: one for the stranger, one for somebody who must not notice it.
fn inviting_two() -> Arc<Memory> {
    let memory = Memory::inviting();
    memory.invitations.lock().unwrap().insert("welcome-2".to_owned());
    memory
}

async fn bystander(server: &Server) -> Remote {
    let mut config = server.config(Identity::generate().unwrap());
    config.invitation = Some("welcome-2".to_owned());
    let remote = Remote::connect(config).unwrap();
    up(&remote).await;
    remote
}

async fn answers(remote: &Remote) {
    assert!(matches!(ask(remote, Request::Measure).await, Response::Measured(_)));
}

fn read_response(frame: &[u8]) -> Response {
    assert_eq!(frame[0] & !3, 0, "short answers are not compressed");
    minicbor::decode(&frame[1..]).unwrap()
}

fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut noise = vec![0; bytes];
    world::Entropy::seeded(seed).fill(&mut noise);
    noise
}

#[tokio::test]
async fn datagrams_of_noise_are_passed_over() {
    let server = Server::start(&inviting_two());
    let remote = bystander(&server).await;
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    for seed in 0..500 {
        let bytes = usize::try_from(seed * 3 % 1_400).unwrap();
        socket.send_to(&noise(seed, bytes), server.socket()).unwrap();
    }
    answers(&remote).await;
    server.stop().await;
}

#[tokio::test]
async fn whoever_shows_no_key_or_speaks_something_else_gets_no_connection() {
    let memory = inviting_two();
    let server = Server::start(&memory);
    let speaks_web = Manners { alpn: b"h3", ..GOOD };
    assert!(Stranger::call_with(server.socket(), speaks_web).await.is_err());
    let shows_none = Manners { shows_key: false, ..GOOD };
    // TLS 1.3 lets a client go on before its (missing) key has been looked at.
    if let Ok(stranger) = Stranger::call_with(server.socket(), shows_none).await {
        stranger.closed().await;
    }
    assert!(memory.callers.lock().unwrap().is_empty());
    server.stop().await;
}

#[tokio::test]
async fn noise_instead_of_a_hello_ends_the_connection() {
    let memory = inviting_two();
    let server = Server::start(&memory);
    let remote = bystander(&server).await;
    let long = (u32::MAX / 2).to_be_bytes().to_vec();
    let cases = [
        noise(1, 3),
        noise(2, 400),
        on_first_stream(&noise(3, 100)),
        on_first_stream(&[]),
        on_first_stream(&[0x80]),
        on_first_stream(&[4, 0x28, 0xb5, 0x2f, 0xfd]),
        // A probe before the hello.
        on_first_stream(&[0, 0x82, 2, 0x80]),
        long,
    ];
    for case in cases {
        let stranger = Stranger::call(server.socket()).await;
        let (mut say, _hear) = stranger.connection.open_bi().await.unwrap();
        say.write_all(&case).await.unwrap();
        say.finish().unwrap();
        stranger.closed().await;
    }
    assert_eq!(memory.callers.lock().unwrap().len(), 1, "the bystander");
    answers(&remote).await;
    server.stop().await;
}

#[tokio::test]
async fn a_caller_that_says_nothing_is_not_waited_for() {
    let limits = Limits { handshake: Duration::from_millis(700), ..limits() };
    let identity = Identity::generate().unwrap();
    let anywhere = ([127, 0, 0, 1], 0).into();
    let (memory, world, versions) = (inviting_two(), World::real(), Versions::OURS);
    let listener = Listener::bind_with(anywhere, &identity, memory, world, limits, versions);
    let listener = Arc::new(listener.unwrap());
    let serving = tokio::spawn({
        let listener = listener.clone();
        async move { listener.serve().await }
    });
    let silent = Stranger::call(listener.local_addr().unwrap()).await;
    let stalls = Stranger::call(listener.local_addr().unwrap()).await;
    let (mut say, _hear) = stalls.connection.open_bi().await.unwrap();
    say.write_all(&[0, 0, 0, 50, 0, 0x82]).await.unwrap();
    silent.closed().await;
    stalls.closed().await;
    listener.close().await;
    within(serving).await.unwrap();
}

#[tokio::test]
async fn a_caller_has_two_streams_until_it_is_admitted() {
    let server = Server::start(&inviting_two());
    let stranger = Stranger::call(server.socket()).await;
    let _first = stranger.connection.open_bi().await.unwrap();
    let _second = stranger.connection.open_bi().await.unwrap();
    let third = stranger.connection.open_bi();
    assert!(tokio::time::timeout(Duration::from_millis(300), third).await.is_err());
    let one_way = stranger.connection.open_uni();
    assert!(tokio::time::timeout(Duration::from_millis(300), one_way).await.is_err());
    server.stop().await;
}

#[tokio::test]
async fn a_request_of_nonsense_is_answered_and_the_session_goes_on() {
    let server = Server::start(&inviting_two());
    let (stranger, _say, _hear) = Stranger::admitted(server.socket()).await;
    let mut bomb = vec![4];
    bomb.extend(zstd::bulk::compress(&vec![0; 9 << 20], 3).unwrap());
    let cases =
        [vec![], vec![0x40], vec![0], noise(5, 64), noise(6, 5_000), vec![4, 1, 2, 3], bomb];
    for case in cases {
        let response = read_response(&stranger.request(&case).await);
        assert!(matches!(response, Response::Refused(Refusal::Malformed(_))), "{response:?}");
    }
    let measure = [&[0][..], &minicbor::to_vec(Request::Measure).unwrap()].concat();
    let response = read_response(&stranger.request(&measure).await);
    assert!(matches!(response, Response::Measured(_)));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_too_long_is_stopped_and_told_so() {
    let server = Server::start(&inviting_two());
    let (stranger, _say, _hear) = Stranger::admitted(server.socket()).await;
    let response = read_response(&stranger.request(&vec![0; 10 << 20]).await);
    assert!(
        matches!(&response, Response::Refused(Refusal::Malformed(why)) if why.contains("8388608")),
        "{response:?}"
    );
    server.stop().await;
}

#[tokio::test]
async fn requests_that_stall_hold_nobody_else_up() {
    let server = Server::start(&inviting_two());
    let remote = bystander(&server).await;
    let (stranger, _say, _hear) = Stranger::admitted(server.socket()).await;
    let mut stalled = Vec::new();
    for _ in 0..63 {
        let (mut send, receive) = within(stranger.connection.open_bi()).await.unwrap();
        send.write_all(&noise(7, 1_000)).await.unwrap();
        stalled.push((send, receive));
    }
    let measure = [&[0][..], &minicbor::to_vec(Request::Measure).unwrap()].concat();
    let response = read_response(&stranger.request(&measure).await);
    assert!(matches!(response, Response::Measured(_)), "one is free");
    // What has been freed is announced only when it is worth a packet.
    let one_more = stranger.connection.open_bi();
    assert!(tokio::time::timeout(Duration::from_millis(300), one_more).await.is_err());
    answers(&remote).await;
    server.stop().await;
}

#[tokio::test]
async fn requests_that_are_taken_back_still_count_while_they_are_worked_on() {
    let memory = inviting_two();
    let server = Server::start(&memory);
    let remote = bystander(&server).await;
    let (stranger, _say, _hear) = Stranger::admitted(server.socket()).await;
    let slow = minicbor::to_vec(Request::Renew { seen: Seq(1_500) }).unwrap();
    let slow = [&[0][..], &slow].concat();
    for _ in 0..300 {
        let opening = tokio::time::timeout(Duration::from_secs(3), stranger.connection.open_bi());
        let Ok(Ok((mut send, mut receive))) = opening.await else { break };
        send.write_all(&slow).await.unwrap();
        send.finish().unwrap();
        receive.stop(0_u32.into()).unwrap();
    }
    answers(&remote).await;
    until(|| memory.answering.load(Ordering::SeqCst) == 0).await;
    assert!(memory.answering_most.load(Ordering::SeqCst) <= 65);
    server.stop().await;
}

#[tokio::test]
async fn an_acknowledgement_of_nothing_ends_the_session() {
    let memory = inviting_two();
    let server = Server::start(&memory);
    let remote = bystander(&server).await;
    let never_sent = on_first_stream(&[0, 0x82, 1, 0x81, 0x81, 7]);
    let second_hello = on_first_stream(&crate::stranger::hello());
    let too_long = 100_000_000_u32.to_be_bytes().to_vec();
    for (round, case) in [never_sent, second_hello, too_long].into_iter().enumerate() {
        if round > 0 {
            memory.invitations.lock().unwrap().insert(crate::service::INVITATION.to_owned());
        }
        let (stranger, mut say, _hear) = Stranger::admitted(server.socket()).await;
        say.write_all(&case).await.unwrap();
        stranger.closed().await;
    }
    until(|| memory.sessions.load(Ordering::SeqCst) == 1).await;
    answers(&remote).await;
    server.stop().await;
}

fn remote_of(server: &FalseServer) -> Remote {
    let address = Address {
        host: "127.0.0.1".to_owned(),
        port: server.endpoint.local_addr().unwrap().port(),
        volume: "notes".to_owned(),
        key: Fingerprint::of(&server.public_key),
        invitation: None,
    };
    let device = Identity::generate().unwrap();
    let mut config = RemoteConfig::new(address, device, "laptop".to_owned(), World::real());
    config.limits = limits();
    Remote::connect(config).unwrap()
}

#[tokio::test]
async fn a_server_that_answers_the_hello_with_noise_is_tried_again() {
    let server = FalseServer::start();
    let remote = remote_of(&server);
    for answer in [noise(8, 30), on_first_stream(&[]), on_first_stream(&[0, 0x82, 5, 0x80])] {
        let (_connection, mut say, _hear) = server.accept().await;
        say.write_all(&answer).await.unwrap();
        let _ = say.finish();
    }
    let (_connection, mut say, _hear) = server.accept().await;
    say.write_all(&on_first_stream(WELCOME)).await.unwrap();
    up(&remote).await;
}

#[tokio::test]
async fn a_server_that_speaks_noise_in_a_session_loses_it() {
    let server = FalseServer::start();
    let remote = remote_of(&server);
    for noise in [on_first_stream(&noise(9, 40)), on_first_stream(WELCOME), vec![0xff; 9]] {
        let (connection, mut say, _hear) = server.accept().await;
        say.write_all(&on_first_stream(WELCOME)).await.unwrap();
        up(&remote).await;
        say.write_all(&noise).await.unwrap();
        let down = event(&remote).await;
        assert!(matches!(down, Event::Down(Unreachable::Lost)), "{down:?}");
        drop(connection);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_of_noise_is_a_refusal_and_the_session_goes_on() {
    let server = FalseServer::start();
    let remote = remote_of(&server);
    let (connection, mut say, _hear) = server.accept().await;
    say.write_all(&on_first_stream(WELCOME)).await.unwrap();
    up(&remote).await;
    let answering = tokio::spawn(async move {
        let mut bomb = vec![4];
        bomb.extend(zstd::bulk::compress(&vec![0; 9 << 20], 3).unwrap());
        for answer in [vec![], vec![0xff], noise(10, 100), bomb, vec![0; 10 << 20]] {
            let (mut send, mut receive) = connection.accept_bi().await.unwrap();
            receive.read_to_end(1_000).await.unwrap();
            let _ = send.write_all(&answer).await;
            let _ = send.finish();
        }
        let (mut send, _receive) = connection.accept_bi().await.unwrap();
        send.reset(9_u32.into()).unwrap();
        connection.closed().await;
    });
    for _ in 0..6 {
        let response = within(remote.ask(Class::Demand, Request::Measure)).await.unwrap();
        assert!(matches!(response, Response::Refused(Refusal::Failed(_))), "{response:?}");
    }
    remote.close();
    within(answering).await.unwrap();
}
