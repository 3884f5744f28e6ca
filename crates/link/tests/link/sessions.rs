//! Requests, notices, and connections that come and go.

use crate::relay::Relay;
use crate::service::{Memory, Server, VOLUME, ask, event, limits, pattern, sum, until, up, within};
use link::{Address, Identity, Limits, Remote, RemoteConfig};
use model::{FileId, ReplicaId, Seq, Stamp};
use protocol::{
    Class, Event, PAYLOAD_BYTES_MAX, Payload, Range, Refusal, Request, Response, Tail, Unreachable,
    Upstream, Versions,
};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::Notify;
use world::World;

pub fn put(bytes: Vec<u8>) -> Request {
    let lengths = vec![bytes.len() as u32];
    Request::Put { payload: Payload { lengths, bytes: bytes.into(), plain: true }, deltas: None }
}

pub fn read(bytes: usize) -> Request {
    Request::Read {
        file: FileId::ROOT,
        version: Stamp { replica: ReplicaId(1), number: 1 },
        ranges: vec![Range { offset: 0, length: bytes as u64 }],
        base: None,
        packed: None,
        inside: None,
    }
}

async fn notice(remote: &Remote) -> (u64, tokio::sync::oneshot::Sender<()>) {
    match event(remote).await {
        Event::Notice(notice, done) => (notice.upto.0, done),
        other => panic!("no notice: {other:?}"),
    }
}

#[tokio::test]
async fn notices_come_in_order_and_are_answered_when_they_are_done() {
    let memory = Memory::inviting();
    let server = Server::start(&memory);
    let remote = server.connect();
    up(&remote).await;
    let first = tokio::spawn(memory.tell(1));
    let second = tokio::spawn(memory.tell(2));
    let (upto, done_first) = notice(&remote).await;
    assert_eq!(upto, 1);
    let (upto, done_second) = notice(&remote).await;
    assert_eq!(upto, 2);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!first.is_finished() && !second.is_finished(), "nobody has taken them in yet");
    drop(done_second);
    assert!(within(second).await.unwrap());
    assert!(!first.is_finished());
    done_first.send(()).unwrap();
    assert!(within(first).await.unwrap());
    server.stop().await;
}

#[tokio::test]
async fn many_notices_arrive_each_once_in_order() {
    let memory = Memory::inviting();
    let server = Server::start(&memory);
    let remote = Arc::new(server.connect());
    up(&remote).await;
    let taken = tokio::spawn({
        let remote = remote.clone();
        async move {
            for upto in 1..=300 {
                let (seen, done) = notice(&remote).await;
                assert_eq!(seen, upto);
                let _ = done.send(());
            }
        }
    });
    let mut told = Vec::new();
    for upto in 1..=300 {
        told.push(memory.tell(upto));
    }
    for told in told {
        assert!(within(told).await);
    }
    within(taken).await.unwrap();
    server.stop().await;
}

#[tokio::test]
async fn a_session_that_ends_answers_everybody_who_waits() {
    let memory = Memory::inviting();
    let server = Server::start(&memory);
    let remote = Arc::new(server.connect());
    up(&remote).await;
    let told = memory.tell(1);
    let (_, _done) = notice(&remote).await;
    let asked = tokio::spawn({
        let remote = remote.clone();
        async move { remote.ask(Class::Demand, Request::Renew { seen: Seq(600_000) }).await }
    });
    until(|| memory.answering.load(Ordering::SeqCst) == 1).await;
    remote.close();
    assert_eq!(within(asked).await.unwrap(), Err(Unreachable::Lost));
    assert!(!within(told).await);
    while let Some(event) = within(remote.event()).await {
        assert!(matches!(event, Event::Down(_)), "{event:?}");
    }
    let refused = within(remote.ask(Class::Demand, Request::Measure)).await;
    assert_eq!(refused, Err(Unreachable::NoLink));
    server.stop().await;
}

#[tokio::test]
async fn where_nothing_leads_to_the_server_that_is_said_once() {
    let memory = Memory::inviting();
    let server = Server::start(&memory);
    let config = server.config(Identity::generate().unwrap());
    // To send to everybody one needs leave that nobody has asked for.
    let address = Address { host: "255.255.255.255".into(), ..server.address() };
    let remote = Remote::connect(RemoteConfig { address, ..config }).unwrap();
    let down = event(&remote).await;
    assert!(matches!(down, Event::Down(Unreachable::NoWay)), "{down:?}");
    assert!(remote.trouble().unwrap().contains("no network that leads"));
    remote.close();
    assert!(within(remote.event()).await.is_none());
    server.stop().await;
}

#[tokio::test]
async fn a_server_that_is_restarted_is_found_again() {
    let memory = Memory::inviting();
    let server = Server::start(&memory);
    let (socket, identity) = (server.socket(), server.identity.clone());
    let remote = server.connect();
    up(&remote).await;
    server.stop().await;
    let down = event(&remote).await;
    assert!(matches!(down, Event::Down(Unreachable::Lost)), "{down:?}");
    assert_eq!(
        within(remote.ask(Class::Interactive, Request::Measure)).await,
        Err(Unreachable::NoLink)
    );
    tokio::time::sleep(Duration::from_millis(300)).await;
    let server = Server::start_at(&memory, identity, socket, Versions::OURS);
    up(&remote).await;
    assert!(matches!(ask(&remote, Request::Measure).await, Response::Measured(_)));
    assert!(remote.traffic().wire_sent > 2_400, "both connections are counted");
    server.stop().await;
}

/// The answer to each attempt comes when that has been given up already.
#[tokio::test]
async fn an_answer_that_comes_while_the_next_attempt_is_waited_for_counts() {
    let server = Server::start(&Memory::inviting());
    let relay = Relay::slow(server.socket(), 0, Duration::from_millis(300)).await;
    let mut config = server.config(Identity::generate().unwrap());
    (config.address.host, config.address.port) =
        (relay.address.ip().to_string(), relay.address.port());
    config.limits = Limits {
        handshake: Duration::from_millis(200),
        retry_first: Duration::from_secs(5),
        ..config.limits
    };
    let remote = Remote::connect(config).unwrap();
    up(&remote).await;
    assert!(matches!(ask(&remote, Request::Measure).await, Response::Measured(_)));
    server.stop().await;
}

#[tokio::test]
async fn a_server_that_forgot_the_session_says_so_at_once() {
    let memory = Memory::inviting();
    let before = Server::start(&memory);
    // The same server after a crash: another process with the same key.
    let anywhere = ([127, 0, 0, 1], 0).into();
    let after = Server::start_at(&memory, before.identity.clone(), anywhere, Versions::OURS);
    let relay = Relay::to(before.socket()).await;
    let mut config = before.config(Identity::generate().unwrap());
    config.address.port = relay.address.port();
    let remote = Remote::connect(config).unwrap();
    up(&remote).await;
    ask(&remote, Request::Measure).await;
    relay.lead_to(after.socket());
    let began = std::time::Instant::now();
    let asked = within(remote.ask(Class::Interactive, Request::Measure)).await;
    assert_eq!(asked, Err(Unreachable::Lost));
    assert!(began.elapsed() < limits().silence, "not by waiting");
    assert!(matches!(event(&remote).await, Event::Down(_)));
    up(&remote).await;
    assert!(matches!(ask(&remote, Request::Measure).await, Response::Measured(_)));
    after.stop().await;
    before.stop().await;
}

#[tokio::test]
async fn a_link_that_dies_is_given_up_when_somebody_waits_and_found_again() {
    let memory = Memory::inviting();
    let server = Server::start(&memory);
    let relay = Relay::to(server.socket()).await;
    let mut config = server.config(Identity::generate().unwrap());
    config.address.port = relay.address.port();
    config.limits.silence = Duration::from_secs(1);
    let remote = Remote::connect(config).unwrap();
    up(&remote).await;
    relay.cut(true);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(remote.quality().connected, "nobody has waited for anything");
    let asked = within(remote.ask(Class::Interactive, Request::Measure)).await;
    assert_eq!(asked, Err(Unreachable::Lost));
    // Who is told learns for how long: that time counts as without a link.
    let down = event(&remote).await;
    let Event::Down(Unreachable::Silent(silent)) = down else { panic!("{down:?}") };
    assert!(silent >= Duration::from_secs(1), "{silent:?}");
    relay.cut(false);
    up(&remote).await;
    assert!(matches!(ask(&remote, Request::Measure).await, Response::Measured(_)));
    // The server has put the new session in the place of the old one.
    until(|| memory.sessions.load(Ordering::SeqCst) == 1).await;
    server.stop().await;
}

/// A server that lets nobody in before it is told to.
fn hesitant() -> (Arc<Memory>, Arc<Notify>, Server) {
    let memory = Memory::inviting();
    let lets_in = Arc::new(Notify::new());
    *memory.admits.lock().unwrap() = Some(lets_in.clone());
    let server = Server::start(&memory);
    (memory, lets_in, server)
}

/// How many wait to be let in: one is with the test, and one in the service.
fn waiting(lets_in: &Arc<Notify>) -> usize {
    Arc::strong_count(lets_in) - 2
}

/// A server that dies between confirming the hello and answering it, for which it has a minute.
#[tokio::test]
async fn a_link_that_dies_before_the_hello_is_answered_is_given_up_as_later() {
    let (memory, never, server) = hesitant();
    let relay = Relay::to(server.socket()).await;
    let mut config = server.config(Identity::generate().unwrap());
    config.address.port = relay.address.port();
    config.limits.silence = Duration::from_secs(1);
    let remote = Remote::connect(config).unwrap();
    until(|| waiting(&never) == 1).await;
    *memory.admits.lock().unwrap() = None;
    relay.cut(true);
    tokio::time::sleep(Duration::from_millis(1500)).await;
    relay.cut(false);
    tokio::time::timeout(Duration::from_secs(7), up(&remote)).await.expect("it tries anew");
    server.stop().await;
}

/// Longer than a link may be silent, and shorter than a hello may take to be answered.
#[tokio::test]
async fn a_living_server_that_is_slow_to_let_in_is_waited_for() {
    let (memory, slowly, server) = hesitant();
    let mut config = server.config(Identity::generate().unwrap());
    config.limits.silence = Duration::from_millis(500);
    let remote = Remote::connect(config).unwrap();
    until(|| waiting(&slowly) == 1).await;
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert_eq!(waiting(&slowly), 1, "nobody has tried anew");
    slowly.notify_one();
    up(&remote).await;
    assert_eq!(memory.callers.lock().unwrap().len(), 1);
    server.stop().await;
}

#[tokio::test]
async fn a_nudge_finds_out_that_the_link_has_died() {
    let server = Server::start(&Memory::inviting());
    let relay = Relay::to(server.socket()).await;
    let mut config = server.config(Identity::generate().unwrap());
    config.address.port = relay.address.port();
    config.limits.silence = Duration::from_secs(1);
    let remote = Remote::connect(config).unwrap();
    up(&remote).await;
    remote.nudge();
    ask(&remote, Request::Measure).await;
    relay.cut(true);
    remote.nudge();
    assert!(matches!(event(&remote).await, Event::Down(_)));
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_is_gone_is_given_up_when_it_is_told_something() {
    let memory = Memory::inviting();
    let server = Server::start(&memory);
    let relay = Relay::to(server.socket()).await;
    let mut config = server.config(Identity::generate().unwrap());
    config.address.port = relay.address.port();
    let remote = Remote::connect(config).unwrap();
    up(&remote).await;
    relay.cut(true);
    assert!(!within(memory.tell(1)).await);
    until(|| memory.sessions.load(Ordering::SeqCst) == 0).await;
    server.stop().await;
}

#[tokio::test]
async fn a_client_without_a_server_goes_on_trying() {
    let memory = Memory::inviting();
    let identity = Identity::generate().unwrap();
    let spare = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let socket = spare.local_addr().unwrap();
    drop(spare);
    let address = Address {
        host: "127.0.0.1".to_owned(),
        port: socket.port(),
        volume: VOLUME.to_owned(),
        key: identity.fingerprint(),
        invitation: Some(crate::service::INVITATION.to_owned()),
    };
    let device = Identity::generate().unwrap();
    let mut config = RemoteConfig::new(address, device, "laptop".to_owned(), World::real());
    config.limits = limits();
    let remote = Remote::connect(config).unwrap();
    assert_eq!(
        within(remote.ask(Class::Interactive, Request::Measure)).await,
        Err(Unreachable::NoLink)
    );
    assert!(!remote.quality().connected);
    tokio::time::sleep(Duration::from_millis(200)).await;
    let server = Server::start_at(&memory, identity, socket, Versions::OURS);
    remote.nudge();
    up(&remote).await;
    assert!(remote.quality().connected);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_payloads_arrive_whole_in_both_directions() {
    let server = Server::start(&Memory::inviting());
    let remote = server.connect();
    up(&remote).await;
    for bytes in [0, 1, 1_000, 100_000, PAYLOAD_BYTES_MAX, 6 << 20] {
        let sent = pattern(bytes);
        let expected = (bytes as u64, sum(&sent));
        match within(remote.ask(Class::Replay, put(sent))).await.unwrap() {
            Response::Measured(totals) => assert_eq!((totals.bytes, totals.files), expected),
            other => panic!("{other:?}"),
        }
        match within(remote.ask(Class::Demand, read(bytes))).await.unwrap() {
            Response::Bytes(payload) => assert!(payload.bytes.as_slice() == pattern(bytes)),
            other => panic!("{other:?}"),
        }
    }
    let traffic = remote.traffic();
    assert!(traffic.sent[2] > 7 << 20 && traffic.received[1] > 7 << 20, "{traffic:?}");
    assert!(traffic.wire_sent > traffic.sent[2] && traffic.wire_received > traffic.received[1]);
    let quality = remote.quality();
    assert!(quality.round_trip.is_some() && quality.rate_up.is_some(), "{quality:?}");
    server.stop().await;
}

#[tokio::test]
async fn a_request_that_is_too_long_is_refused_before_it_is_sent() {
    let server = Server::start(&Memory::inviting());
    let remote = server.connect();
    up(&remote).await;
    let response = ask(&remote, put(vec![0; link::MESSAGE_BYTES_MAX])).await;
    assert!(
        matches!(&response, Response::Refused(Refusal::Malformed(why)) if why.contains("8388608")),
        "{response:?}"
    );
    let response = ask(&remote, read(link::MESSAGE_BYTES_MAX)).await;
    assert!(matches!(&response, Response::Refused(Refusal::Failed(_))), "{response:?}");
    assert!(matches!(ask(&remote, Request::Measure).await, Response::Measured(_)));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_ask_at_once_and_all_are_answered() {
    let memory = Memory::inviting();
    let server = Server::start(&memory);
    let remote = Arc::new(server.connect());
    up(&remote).await;
    let tasks: Vec<_> = (0..600_usize)
        .map(|index| {
            let remote = remote.clone();
            tokio::spawn(async move {
                let class = Class::ALL[index % 4];
                let bytes = index * 37;
                match remote.ask(class, read(bytes)).await.unwrap() {
                    Response::Bytes(payload) => assert_eq!(payload.bytes.len(), bytes),
                    other => panic!("{other:?}"),
                }
            })
        })
        .collect();
    for task in tasks {
        within(task).await.unwrap();
    }
    assert!(memory.answering_most.load(Ordering::SeqCst) <= 64);
    server.stop().await;
}

#[tokio::test]
async fn names_are_answered_while_everything_else_waits() {
    let memory = Memory::inviting();
    let server = Server::start(&memory);
    let remote = Arc::new(server.connect());
    up(&remote).await;
    let mut slow = Vec::new();
    for class in [Class::Demand, Class::Replay, Class::Prefetch] {
        for _ in 0..64 {
            let remote = remote.clone();
            slow.push(tokio::spawn(async move {
                remote.ask(class, Request::Renew { seen: Seq(600_000) }).await
            }));
        }
    }
    until(|| memory.answering.load(Ordering::SeqCst) >= 40).await;
    assert!(matches!(ask(&remote, Request::Measure).await, Response::Measured(_)));
    remote.close();
    for task in slow {
        assert_eq!(within(task).await.unwrap(), Err(Unreachable::Lost));
    }
    server.stop().await;
}

#[tokio::test]
async fn a_slow_answer_is_no_dead_link() {
    let server = Server::start(&Memory::inviting());
    let mut config = server.config(Identity::generate().unwrap());
    config.limits.silence = Duration::from_millis(400);
    let remote = Remote::connect(config).unwrap();
    up(&remote).await;
    let response = ask(&remote, Request::Renew { seen: Seq(2_500) }).await;
    assert_eq!(
        response,
        Response::Renewed {
            tail: Tail::TooFar(Seq(2_500)),
            wanted: None,
            allowance: None,
            conflicts: None
        }
    );
    server.stop().await;
}

#[tokio::test]
async fn an_idle_session_sends_nothing() {
    let server = Server::start(&Memory::inviting());
    let remote = server.connect();
    up(&remote).await;
    ask(&remote, Request::Measure).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let before = remote.traffic();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let after = remote.traffic();
    assert_eq!(before, after);
    server.stop().await;
}

#[tokio::test]
async fn a_session_is_dropped_when_the_client_goes() {
    let memory = Memory::inviting();
    let server = Server::start(&memory);
    let remote = server.connect();
    up(&remote).await;
    assert_eq!(memory.sessions.load(Ordering::SeqCst), 1);
    drop(remote);
    until(|| memory.sessions.load(Ordering::SeqCst) == 0).await;
    until(|| server.listener.sessions() == 0).await;
    server.stop().await;
}
