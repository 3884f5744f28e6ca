//! How traffic of different classes shares a link, slow or fast.

use crate::relay::Relay;
use crate::service::{Memory, Server, pattern, up, within};
use crate::sessions::{put, read};
use link::{Identity, Packets, Regulation, Remote, Tickets};
use protocol::{Class, PAYLOAD_BYTES_MAX, Request, Response, Upstream};
use std::sync::Arc;
use std::time::{Duration, Instant};

async fn slow_link(rate: u64, delay: Duration) -> (Server, Relay, Arc<Remote>) {
    let server = Server::start(&Memory::inviting());
    let relay = Relay::slow(server.socket(), rate, delay).await;
    let mut config = server.config(Identity::generate().unwrap());
    config.address.port = relay.address.port();
    // What is slow is far, which the relay's address does not show.
    config.packets = Packets::Least;
    let remote = Arc::new(Remote::connect(config).unwrap());
    up(&remote).await;
    (server, relay, remote)
}

/// Asks of `class` without end, the next as soon as the last is answered.
fn stream(
    remote: &Arc<Remote>,
    class: Class,
    request: impl Fn() -> Request + Send + 'static,
) -> tokio::task::JoinHandle<()> {
    let remote = remote.clone();
    tokio::spawn(async move { while remote.ask(class, request()).await.is_ok() {} })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_overtake_a_bulk_upload_on_a_slow_link() {
    // 256 kb/s, 50 ms each way: the upload of 1 MiB takes half a minute.
    let (server, _relay, remote) = slow_link(32_000, Duration::from_millis(50)).await;
    let bulk = stream(&remote, Class::Replay, || put(pattern(PAYLOAD_BYTES_MAX)));
    tokio::time::sleep(Duration::from_secs(4)).await;
    let mut times = Vec::new();
    for _ in 0..10 {
        let began = Instant::now();
        let response = within(remote.ask(Class::Interactive, Request::Measure)).await;
        assert!(matches!(response, Ok(Response::Measured(_))), "{response:?}");
        times.push(began.elapsed());
    }
    times.sort();
    // A buffer of all that the upload has to send would make it tens of seconds.
    assert!(times[5] < Duration::from_millis(1_500), "{times:?}");
    let sent = remote.traffic().wire_sent;
    assert!(sent > 60_000, "the link is not left idle: {sent}");
    remote.close();
    bulk.await.unwrap();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_demand_and_replay_share_a_slow_link_by_their_tickets() {
    let (server, _relay, remote) = slow_link(250_000, Duration::from_millis(5)).await;
    let streams: Vec<_> = [Class::Interactive, Class::Demand, Class::Replay]
        .into_iter()
        // Several of each, so that there is always one of each that waits.
        .flat_map(|class| (0..3).map(move |_| class))
        .map(|class| stream(&remote, class, || put(pattern(40_000))))
        .collect();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let before = remote.traffic().sent;
    tokio::time::sleep(Duration::from_secs(12)).await;
    let after = remote.traffic().sent;
    let sent: Vec<f64> = (0..3).map(|class| (after[class] - before[class]) as f64).collect();
    // Whole messages are counted when they begin, so the counts are rough.
    assert!(sent[0] / sent[1] > 1.6 && sent[0] / sent[1] < 4.5, "{sent:?}");
    assert!(sent[1] / sent[2] > 1.4 && sent[1] / sent[2] < 7.0, "{sent:?}");
    remote.close();
    for stream in streams {
        stream.await.unwrap();
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_download_fills_a_slow_link_and_its_rate_is_measured() {
    let rate = 500_000;
    let (server, _relay, remote) = slow_link(rate, Duration::from_millis(20)).await;
    let began = Instant::now();
    let bytes = 2_000_000;
    let response = within(remote.ask(Class::Demand, read(bytes))).await.unwrap();
    let took = began.elapsed().as_secs_f64();
    assert!(matches!(response, Response::Bytes(_)));
    let used = bytes as f64 / took / rate as f64;
    assert!(used > 0.6, "{used} of the link");
    let seen = remote.quality().rate_down.expect("it has been measured");
    assert!(seen > rate / 2 && seen < rate * 2, "{seen}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loopback_is_not_held_back() {
    let server = Server::start(&Memory::inviting());
    let remote = Arc::new(server.connect());
    up(&remote).await;
    let began = Instant::now();
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let remote = remote.clone();
            tokio::spawn(async move {
                for _ in 0..4 {
                    remote.ask(Class::Demand, read(PAYLOAD_BYTES_MAX)).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        within(task).await.unwrap();
    }
    let rate = 32.0 * 8.0 * 1.048_576 / began.elapsed().as_secs_f64();
    // No measure of speed: a controller that takes a busy machine for a full queue gives less.
    assert!(rate > 4.0, "{rate} Mb/s");
    server.stop().await;
}

#[tokio::test]
async fn a_session_begins_even_at_9600_bits_a_second() {
    let (server, _relay, remote) = slow_link(1_200, Duration::from_millis(100)).await;
    let response = within(remote.ask(Class::Interactive, Request::Measure)).await;
    assert!(matches!(response, Ok(Response::Measured(_))), "{response:?}");
    // With an ill-chosen first guess of the round trip, packets are sent again for nothing.
    let traffic = remote.traffic();
    assert!(traffic.wire_sent + traffic.wire_received < 20_000, "{traffic:?}");
    server.stop().await;
}

/// A relay on this machine, of which nobody says that it leads elsewhere.
async fn near_by(bytes_most: usize) -> (Server, Relay, Arc<Remote>) {
    let server = Server::start(&Memory::inviting());
    let relay = Relay::to(server.socket()).await;
    relay.pass_at_most(bytes_most);
    let mut config = server.config(Identity::generate().unwrap());
    config.address.port = relay.address.port();
    let remote = Arc::new(Remote::connect(config).unwrap());
    up(&remote).await;
    (server, relay, remote)
}

/// Some packets, long or short.
const MESSAGE_BYTES: usize = 100_000;
const IN_SHORT_ONES: usize = MESSAGE_BYTES / LEAST;

async fn there(remote: &Remote) {
    let response = within(remote.ask(Class::Replay, put(pattern(MESSAGE_BYTES)))).await;
    assert!(matches!(response, Ok(Response::Measured(_))), "{response:?}");
}

async fn back(remote: &Remote) {
    let response = within(remote.ask(Class::Demand, read(MESSAGE_BYTES))).await;
    assert!(matches!(response, Ok(Response::Bytes(_))), "{response:?}");
}

/// Datagrams that every path carries, and the longest that there are.
const LEAST: usize = 1_200;
const ANY: usize = 1 << 16;
/// What passes is found out while the first messages travel.
const MESSAGES: usize = 8;

/// Sends until a message takes fewer datagrams, in either direction, than short ones could carry it in.
async fn until_long(relay: &Relay, remote: &Remote) {
    let mut long = [false; 2];
    for _ in 0..MESSAGES {
        if long == [true; 2] {
            break;
        }
        relay.pass_at_most(ANY);
        there(remote).await;
        long[0] |= relay.passed() < IN_SHORT_ONES;
        relay.pass_at_most(ANY);
        back(remote).await;
        long[1] |= relay.passed() < IN_SHORT_ONES;
    }
    assert_eq!(long, [true; 2]);
}

#[tokio::test]
async fn within_one_machine_packets_are_long() {
    let (server, relay, remote) = near_by(ANY).await;
    until_long(&relay, &remote).await;
    server.stop().await;
}

#[tokio::test]
async fn where_long_packets_do_not_pass_short_ones_do() {
    let (server, relay, remote) = near_by(LEAST).await;
    there(&remote).await;
    back(&remote).await;
    assert_eq!(relay.longest(), LEAST);
    server.stop().await;
}

#[tokio::test]
async fn a_session_goes_on_when_long_packets_pass_no_more() {
    let (server, relay, remote) = near_by(ANY).await;
    until_long(&relay, &remote).await;
    relay.pass_at_most(LEAST);
    there(&remote).await;
    back(&remote).await;
    assert_eq!(server.listener.sessions(), 1);
    assert_eq!(relay.longest(), LEAST);
    server.stop().await;
}

#[tokio::test]
async fn who_says_that_the_server_is_elsewhere_sends_short_packets_and_gets_them() {
    let (server, relay, remote) = slow_link(0, Duration::ZERO).await;
    for _ in 0..MESSAGES {
        there(&remote).await;
        back(&remote).await;
    }
    assert_eq!(relay.longest(), LEAST);
    server.stop().await;
}

/// Bytes on the wire, sent and received, in so many seconds.
async fn in_secs(remote: &Remote, secs: u64) -> (u64, u64) {
    let before = remote.traffic();
    tokio::time::sleep(Duration::from_secs(secs)).await;
    let after = remote.traffic();
    (after.wire_sent - before.wire_sent, after.wire_received - before.wire_received)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_is_kept_in_both_directions_and_lifted_while_the_session_goes_on() {
    const LIMIT: u64 = 50_000;
    let server = Server::start(&Memory::inviting());
    let mut config = server.config(Identity::generate().unwrap());
    config.regulation = Regulation { up: Some(LIMIT), ..Regulation::default() };
    let remote = Arc::new(Remote::connect(config).unwrap());
    up(&remote).await;
    let ups = stream(&remote, Class::Replay, || put(pattern(40_000)));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (sent, _) = in_secs(&remote, 4).await;
    assert!(sent < 4 * LIMIT * 12 / 10, "{sent}");
    assert!(sent > LIMIT, "{sent}");
    // Names are not held up by what is limited.
    let began = Instant::now();
    within(remote.ask(Class::Interactive, Request::Measure)).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());

    remote.regulate(Regulation { down: Some(LIMIT), ..Regulation::default() });
    let downs = stream(&remote, Class::Demand, || read(40_000));
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (sent, received) = in_secs(&remote, 4).await;
    // Acknowledgements of what is sent come too.
    assert!(sent > 40 * LIMIT, "nothing limits it any more: {sent}");
    assert!(received < 4 * LIMIT * 12 / 10 + sent / 20, "{received} of {sent}");
    assert!(received > LIMIT, "{received}");
    remote.regulate(Regulation::default());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (_, received) = in_secs(&remote, 2).await;
    assert!(received > 20 * LIMIT, "{received}");
    remote.close();
    ups.await.unwrap();
    downs.await.unwrap();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tickets_are_those_that_are_wanted_in_both_directions() {
    let (server, _relay, remote) = slow_link(200_000, Duration::from_millis(5)).await;
    let tickets: Tickets = "1:1:6".parse().unwrap();
    remote.regulate(Regulation { tickets, ..Regulation::default() });
    let streams: Vec<_> = [Class::Demand, Class::Replay]
        .into_iter()
        .flat_map(|class| (0..3).map(move |_| class))
        .map(|class| stream(&remote, class, || read(20_000)))
        .collect();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let before = remote.traffic().received;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let after = remote.traffic().received;
    let (demand, replay) = (after[1] - before[1], after[2] - before[2]);
    assert!(replay > 2 * demand, "{replay} to {demand}");
    assert!(demand > 0, "nobody starves");
    remote.close();
    for stream in streams {
        stream.await.unwrap();
    }
    server.stop().await;
}
